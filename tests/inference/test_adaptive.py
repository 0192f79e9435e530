"""What defenses on the client side hold back from an attacker who does not know them, and from one who does.

One digit, a small network, its label known: without a defense gradient matching finds the digit to over 90 dB.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.models.precode import PRECODE
from fedguard.tasks.network import FlatNetwork
from tests.inference.scenes import client, digits, gradient, mlp, psnr

Compare = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
SEEDS = pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])


def naive(dummy: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    return dummy, observed


def cosine(dummy: Tensor, observed: Tensor) -> Tensor:
    return 1 - torch.cosine_similarity(dummy, observed, dim=0)


def squares(dummy: Tensor, observed: Tensor) -> Tensor:
    return (dummy - observed).square().sum()


def matched(
    module: nn.Module, y: Tensor, observed: Tensor, compare: Compare, distance: Callable[..., Tensor] = cosine
) -> Tensor:
    """The image whose update is nearest to the observed one: 300 steps of Adam from noise, within [0, 1]."""
    x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    descent = torch.optim.Adam([x], lr=0.1)
    for step in range(300):
        parts = torch.autograd.grad(cross_entropy(module(x), y), list(module.parameters()), create_graph=True)
        dummy, seen = compare(-torch.cat([part.reshape(-1) for part in parts]), observed)
        (x.grad,) = torch.autograd.grad(distance(dummy, seen), [x])
        descent.param_groups[0]["lr"] = 0.1 * 0.1 ** sum(step >= 300 * part / 8 for part in (3, 5, 7))
        descent.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return x.detach()


def told(defense: str, seed: int, distance: Callable[..., Tensor] = cosine) -> tuple[float, float]:
    """The PSNR of an attacker who does not know the defense, and of one who does."""
    module, digit = mlp(64, 64, 10, seed=seed, activation=nn.Sigmoid), digits(1, seed=seed)
    pipeline = load_registry().pipeline(f"{defense} >> mean")
    sent = -gradient(module, digit)
    for transform in pipeline.transforms:
        sent = transform.apply(sent, client(module, digit, seed))
    unaware, aware = (
        float(psnr(matched(module, digit.y, sent, compare, distance), digit.x))
        for compare in (naive, pipeline.adapt(module))
    )
    return unaware, aware


@SEEDS
def test_without_a_defense_the_digit_is_found(seed):
    module, digit = mlp(64, 64, 10, seed=seed, activation=nn.Sigmoid), digits(1, seed=seed)
    assert psnr(matched(module, digit.y, -gradient(module, digit), naive), digit.x) > 90


@SEEDS
def test_pruning_hides_from_those_alone_who_compare_what_was_not_sent(seed):
    unaware, aware = told("pruning(keep=0.1)", seed)
    assert unaware < 14
    assert aware > 35


@SEEDS
def test_clipping_hides_from_those_alone_who_compare_lengths(seed):
    unaware, aware = told("client_clipping(bound=0.1)", seed, squares)
    assert unaware < 10
    assert aware > 90
    assert told("client_clipping(bound=0.1)", seed)[0] > 90  # a cosine knows no lengths


@SEEDS
def test_soteria_hides_from_those_alone_who_compare_its_layer(seed):
    unaware, aware = told("soteria(share=0.8)", seed)
    assert unaware < 10
    assert aware > 90


@SEEDS
def test_signs_tell_a_little_more_to_those_who_smooth_theirs_and_much_to_nobody(seed):
    """Of a first layer's signs, those of delta_i x_j, inputs of one sign show where they are not 0, and no more."""
    unaware, aware = told("sign", seed)
    assert aware > unaware + 1
    assert aware < 12


@SEEDS
def test_against_noise_there_is_nothing_to_know(seed):
    figures = [told(f"noise(scale={scale})", seed) for scale in (0.1, 1.0)]
    assert all(unaware == aware for unaware, aware in figures)
    assert 90 > figures[0][0] > figures[1][0] + 10


@SEEDS
def test_grad_defense_hides_from_those_who_do_not_see_which_rows_agree(seed):
    """Each row of the first layer without noise gives x = dW_i/db_i, so that two of them are alike."""
    module, digit = mlp(64, 64, 10, seed=seed, activation=nn.Sigmoid), digits(1, seed=seed)
    defense = load_registry().build("defense", "grad_defense")
    sent = defense.apply(-gradient(module, digit), client(module, digit, seed))
    weight, bias = sent[: 64 * 64].view(64, 64), sent[64 * 64 :][:64]
    rows = weight / bias[:, None]
    assert psnr(matched(module, digit.y, sent, naive), digit.x) < 30
    assert psnr(rows.mean(0).view(1, 1, 8, 8), digit.x) < 30
    apart = torch.cdist(rows.double(), rows.double()).fill_diagonal_(torch.inf)
    alike = rows[int(apart.min(1).values.argmin())]
    found = psnr(alike.view(1, 1, 8, 8), digit.x)
    assert found > 60


@SEEDS
def test_ats_gives_the_transformed_image_away_and_who_knows_an_invertible_policy_the_image_too(seed):
    module, digit = mlp(64, 64, 10, seed=seed, activation=nn.Sigmoid), digits(1, seed=seed)
    for policy, undo in ((("rotate", "shift", "contrast"), None), (("flip", "invert"), lambda x: 1 - x.flip(3))):
        defense = load_registry().build("defense", {"name": "ats", "policy": policy})
        used = defense.prepare(digit, client(module, digit, seed))
        found = matched(module, digit.y, -gradient(module, used), naive)
        assert psnr(found, used.x) > 90
        assert psnr(found, digit.x) < 15
        if undo is not None:
            assert psnr(undo(found), digit.x) > 90


@SEEDS
def test_precode_hides_from_those_alone_who_compare_what_lies_behind_its_bottleneck(seed):
    model = PRECODE(hidden=(64,), bottleneck=64)
    module, digit = FlatNetwork(model, (1, 8, 8), 10, Rng(seed)).module, digits(1, seed=seed)
    sent = -gradient(module, digit)
    before = torch.zeros_like(sent)
    before[: 64 * 64 + 64] = 1
    assert psnr(matched(module, digit.y, sent, naive), digit.x) < 12
    assert psnr(matched(module, digit.y, sent, lambda dummy, seen: (dummy * before, seen * before)), digit.x) > 25
    weight, bias = sent[: 64 * 64].view(64, 64), sent[64 * 64 :][:64]
    row = int(bias.abs().argmax())
    assert psnr((weight[row] / bias[row]).view(1, 1, 8, 8), digit.x) > 90
