"""Inputs from the gradient by linear algebra: exact where the papers say so, and refused where they say nothing."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from fedguard.attacks.inference.analytic.cocktail_party import CocktailParty, least_gaussian
from fedguard.attacks.inference.analytic.linear_leak import LinearLeak
from fedguard.attacks.inference.analytic.r_gap import RGAP, top_slopes
from fedguard.attacks.inference.analytic.spear import Spear
from fedguard.attacks.inference.layers import first_dense, last_dense
from fedguard.contracts import Examples, Sight
from fedguard.errors import PreconditionError
from tests.inference.scenes import Scene, digits, flat, gradient, mlp, psnr, trained

SECURE_SUM = Sight.SUM | Sight.MODEL


def matched(found: Tensor, truth: Tensor) -> Tensor:
    """PSNR of each true input beside its claim, in the order with the best mean; what is not claimed is a constant.

    The order with the least squared error would give up exact claims to bring bad ones nearer.
    """
    from scipy.optimize import linear_sum_assignment

    rows = torch.full_like(truth, 0.5)
    rows[: len(found)] = found
    quality = torch.stack([psnr(rows, row.expand_as(rows)) for row in truth])
    return psnr(rows[linear_sum_assignment(-quality.numpy())[1]], truth)


def small(kind: str, activation: type[nn.Module], bias: bool, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "dense":
            return nn.Sequential(
                nn.Flatten(), nn.Linear(64, 60, bias=bias), activation(),
                nn.Linear(60, 30, bias=bias), activation(), nn.Linear(30, 10, bias=bias),
            )  # fmt: skip
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=bias), activation(),
            nn.Conv2d(8, 12, 3, padding=1, stride=2, bias=bias), activation(),
            nn.Flatten(), nn.Linear(192, 10, bias=bias),
        )  # fmt: skip


class Skip(nn.Module):
    """Not a row of modules: the input is added to a layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.last(torch.relu(self.first(x)) + x)


# layers


def test_the_slices_of_first_and_last_layer_are_those_that_autograd_names():
    module, examples = mlp(64, 30, 20, 10), digits(3)
    view = Scene(module, (examples,)).view()
    loss = nn.functional.cross_entropy(module(examples.x), examples.y)
    named = dict(module.named_parameters())
    parts = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    whole = gradient(module, examples)
    for found, name in ((first_dense(view), "1"), (last_dense(view), "5")):
        assert torch.equal(found.weight(whole), parts[f"{name}.weight"])
        assert torch.equal(found.bias(whole), parts[f"{name}.bias"])


def test_looking_at_a_network_leaves_no_hook_in_it():
    view = Scene(mlp(64, 30, 10), (digits(1),)).view()
    LinearLeak().infer(view)
    assert all(not module._forward_hooks for module in view.module.modules())


@pytest.mark.parametrize("attack", [LinearLeak(), Spear(), CocktailParty()])
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 20, bias=False), nn.ReLU(), nn.Linear(20, 10)),
        nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 10)),
    ],
)
def test_another_first_layer_is_refused(attack, module):
    view = Scene(module, (digits(2),)).view()
    for call in (attack.check, attack.infer):
        with pytest.raises(PreconditionError, match="begins with a dense layer with bias"):
            call(view)


# analytic


@pytest.mark.parametrize("sees", [Sight.EACH_UPDATE | Sight.MODEL, SECURE_SUM])
@pytest.mark.parametrize("widths", [(64, 10), (64, 50, 10), (64, 50, 30, 10)])
def test_one_example_is_exact(widths, sees):
    for seed in range(5):
        examples = digits(1, seed)
        claim = LinearLeak().infer(Scene(mlp(*widths, seed=seed), (examples,), sees=sees).view())
        assert float(psnr(claim.x, examples.x)) >= 120


def test_who_is_alone_in_two_neurons_is_exact_and_no_more_than_b_are_claimed():
    exact = 0
    for seed in range(10):
        module, examples = mlp(64, 100, 10, seed=seed), digits(6, seed)
        active = module[1](examples.x.flatten(1)) > 0
        alone = (active & (active.sum(0) == 1)).sum(1) >= 2
        claim = LinearLeak().infer(Scene(module, (examples,)).view())
        assert len(claim.x) <= 6
        assert bool((matched(claim.x, examples.x)[alone] >= 100).all())
        exact += int(alone.sum())
    assert exact > 20  # or the test would say little


def test_it_works_on_a_network_that_is_no_row_of_modules():
    examples = digits(1)
    torch.manual_seed(0)
    claim = LinearLeak().infer(Scene(Skip(), (examples,)).view())
    assert float(psnr(claim.x, examples.x)) >= 120


def test_claims_keep_to_the_value_range_when_the_update_is_noise():
    module, examples = mlp(64, 30, 10), digits(3)
    noise = torch.randn(1, len(flat(module)), generator=torch.Generator().manual_seed(0))
    claim = LinearLeak().infer(Scene(module, (examples,)).view(updates=noise))
    assert 0 <= float(claim.x.min()) <= float(claim.x.max()) <= 1


# spear


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 10])
def test_spear_is_exact_on_whole_batches(batch):
    for seed in range(3 if batch < 8 else 1):
        examples = digits(batch, seed)
        claim = Spear().infer(Scene(mlp(64, 300, 10, seed=seed), (examples,)).view())
        assert bool((matched(claim.x, examples.x) >= 100).all())


def test_spear_is_exact_where_no_neuron_is_alone_with_an_example():
    """So it does more than `analytic`: its inputs are never seen alone."""
    module, examples = mlp(64, 200, 10), digits(4)
    active = module[1](examples.x.flatten(1)) > 0
    with torch.no_grad():
        module[1].weight[active.sum(0) == 1] = 0
        module[1].bias[active.sum(0) == 1] = -1
    scene = Scene(module, (examples,))
    assert not bool(((module[1](examples.x.flatten(1)) > 0).sum(0) == 1).any())
    assert bool((matched(LinearLeak().infer(scene.view()).x, examples.x) < 40).all())
    assert bool((matched(Spear().infer(scene.view()).x, examples.x) >= 100).all())


def test_spear_takes_a_secure_sum_apart_and_a_trained_network():
    parts = tuple(digits(2, seed) for seed in range(3))
    truth = torch.cat([part.x for part in parts])
    module = mlp(64, 200, 10)
    assert bool((matched(Spear().infer(Scene(module, parts, sees=SECURE_SUM).view()).x, truth) >= 100).all())
    start = flat(module) + trained(module, digits(500, 9), lr=0.1, epochs=2, batch=20)
    nn.utils.vector_to_parameters(start, module.parameters())
    assert bool((matched(Spear().infer(Scene(module, (digits(4),)).view()).x, digits(4).x) >= 100).all())


def test_spear_refuses_more_examples_than_neurons_and_another_activation():
    with pytest.raises(PreconditionError, match="neurons or inputs, 16; got 17"):
        Spear().check(Scene(mlp(64, 16, 10), (digits(17),)).view())
    with pytest.raises(PreconditionError, match="expected a ReLU after the first dense layer; found Tanh"):
        Spear().check(Scene(mlp(64, 16, 10, activation=nn.Tanh), (digits(2),)).view())
    with pytest.raises(PreconditionError, match="plain row of modules"):
        Spear().check(Scene(Skip(), (digits(2),)).view())


def test_spear_returns_what_it_has_when_the_batch_is_too_large_for_its_samples():
    claim = Spear(samples=1).infer(Scene(mlp(64, 100, 10), (digits(20),)).view())
    assert len(claim.x) <= 20
    assert bool(claim.x.isfinite().all())


# r_gap


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh])
@pytest.mark.parametrize("bias", [True, False])
def test_r_gap_is_exact_through_dense_layers_without_any_bias_too(activation, bias):
    for seed in range(3):
        examples = digits(1, seed)
        claim = RGAP().infer(Scene(small("dense", activation, bias, seed), (examples,)).view())
        assert float(psnr(claim.x, examples.x)) >= 100


@pytest.mark.parametrize("activation", [nn.LeakyReLU, nn.Sigmoid, nn.Tanh])
@pytest.mark.parametrize("bias", [True, False])
def test_r_gap_goes_back_through_convolutions(activation, bias):
    examples = digits(1, 0)
    claim = RGAP().infer(Scene(small("conv", activation, bias, 0), (examples,)).view())
    assert float(psnr(claim.x, examples.x)) >= 80


def test_without_a_bias_the_logits_gradient_is_found_among_the_lengths_that_fit():
    for seed in range(5):
        module, examples = small("dense", nn.Tanh, False, seed), digits(1, seed)
        view = Scene(module, (examples,)).view()
        true = module(examples.x).detach().softmax(1)[0].double()
        true[examples.y[0]] -= 1
        assert min(float((slope - true).norm()) for slope in top_slopes(last_dense(view), view)) < 1e-4


def test_r_gap_refuses_batches_and_layers_that_lose_information():
    with pytest.raises(PreconditionError, match="expected one example; got 2"):
        RGAP().check(Scene(mlp(64, 20, 10), (digits(2),)).view())
    pooled = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10))
    with pytest.raises(PreconditionError, match="got MaxPool2d"):
        RGAP().check(Scene(pooled, (digits(1),)).view())


# cocktail_party


def blobs(count: int, seed: int) -> Examples:
    """Images of independent pixels, most of them dark: the sources that the theory of blind separation asks for."""
    x = torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(seed)) ** 4
    return Examples(x, torch.arange(count) % 10)


@pytest.mark.parametrize("name", ["tanh", "square", "cube"])
def test_the_fixed_points_are_the_sources_of_a_known_mixture(name):
    generator = torch.Generator().manual_seed(0)
    sources = torch.rand(3, 20_000, generator=generator, dtype=torch.float64).log()  # skew, and with a heavy tail
    sources = sources - sources.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(sources @ sources.T / 20_000)
    white = vectors @ torch.diag(values**-0.5) @ vectors.T @ sources
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    start = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    alike = (least_gaussian(rotation @ white, start, name) @ rotation).abs()  # a source's direction is a column
    assert bool((alike.max(0).values > 0.99).all())  # each is found
    assert float((alike.max(1).values > 0.99).double().mean()) > 0.8  # and little else


@pytest.mark.parametrize("clients", [2, 4])
def test_it_takes_a_secure_sum_apart_far_better_than_a_guess(clients):
    parts = tuple(blobs(2, seed) for seed in range(clients))
    truth = torch.cat([part.x for part in parts])
    found = CocktailParty().infer(Scene(mlp(784, 200, 10), parts, sees=SECURE_SUM).view()).x
    guess = psnr(truth.mean(0, keepdim=True).expand_as(truth), truth)
    assert len(found) == 2 * clients
    assert bool((matched(found, truth) > guess + 10).all())


def test_it_separates_pairs_of_digits_though_these_are_neither_many_pixels_nor_independent():
    gains = []
    for seed in range(6):
        examples = digits(2, seed)
        guess = psnr(examples.x.mean(0, keepdim=True).expand_as(examples.x), examples.x)
        claim = CocktailParty().infer(Scene(mlp(64, 200, 10, seed=seed), (examples,)).view())
        gains.append(float((matched(claim.x, examples.x) - guess).mean()))
    assert sum(gain > 5 for gain in gains) >= 4


def test_all_of_them_claim_the_shape_of_the_inputs_from_the_view_alone():
    for attack, batch in itertools.product((LinearLeak(), Spear(), CocktailParty()), (1, 3)):
        claim = attack.infer(Scene(mlp(64, 100, 10), (digits(batch),), sees=SECURE_SUM).view())
        assert claim.x.shape[1:] == (1, 8, 8)
        assert claim.x.dtype == torch.float32


@pytest.mark.parametrize("attack", [LinearLeak(), Spear(), CocktailParty(), RGAP()])
def test_who_sends_nothing_gives_nothing_away_and_breaks_nothing(attack):
    module, examples = mlp(64, 30, 10), digits(1)
    found = attack.infer(Scene(module, (examples,)).view(updates=torch.zeros(1, len(flat(module))))).x
    assert len(found) <= 1
    assert bool(found.isfinite().all())
