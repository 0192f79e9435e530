"""A malicious server: what comes back to the model that it sends shows inputs, as often as the papers' laws say."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedguard.attacks.inference.analytic.linear_leak import LinearLeak
from fedguard.attacks.inference.layers import explains_bias, rows
from fedguard.attacks.inference.malicious.fishing import Fishing
from fedguard.attacks.inference.malicious.robbing_the_fed import RobbingTheFed
from fedguard.attacks.inference.malicious.trap_weights import TrapWeights
from fedguard.contracts import Examples, InferenceAttack, LocalPlan, Sight
from fedguard.errors import ConfigError, PreconditionError
from tests.inference.scenes import Scene, digits, flat, gradient, mlp
from tests.inference.test_analytic import matched

EACH, SECURE_SUM = Sight.EACH_UPDATE | Sight.MODEL, Sight.SUM | Sight.MODEL
ATTACKS = [RobbingTheFed(), TrapWeights(), Fishing(target=3)]


def with_weights(module: nn.Module, model: Tensor) -> nn.Module:
    module = copy.deepcopy(module)
    nn.utils.vector_to_parameters(model.clone(), module.parameters())
    return module


def tampered(attack: InferenceAttack, scene: Scene, **more: Any) -> nn.Module:
    """What the clients get: the view has the model alone, as before anybody has sent anything."""
    model = flat(scene.module)
    before = scene.view(models=model[None], updates=torch.full((1, len(model)), torch.nan), **more)
    attack.check(before)
    return with_weights(scene.module, attack.tamper(before))


def attacked(attack: InferenceAttack, scene: Scene, **more: Any) -> Tensor:
    """The claimed inputs after the clients have answered to the tampered model."""
    after = replace(scene, module=tampered(attack, scene, **more))
    return attack.infer(after.view(**more)).x


def measuring(sent: nn.Module, bins: Tensor, seed: int = 0) -> Examples:
    """Different images in [0, 1], each within the given one of the bins of a ruler that the server sent."""
    generator = torch.Generator().manual_seed(seed)
    direction, marks = sent[1].weight[0].detach(), -sent[1].bias.detach()
    ends = torch.cat([marks[1:], marks[-1:] + 0.02])
    inside = ends - (ends - marks).clamp(max=0.02) * (0.1 + 0.8 * torch.rand(len(marks), generator=generator))
    noise = 0.5 + 0.2 * (torch.rand(len(bins), 64, generator=generator) - 0.5)
    x = noise + ((inside[bins] - noise @ direction) / direction.square().sum())[:, None] * direction
    assert float(x.min()) >= 0 and float(x.max()) <= 1
    return Examples(x.view(-1, 1, 8, 8), torch.arange(len(bins)) % 10)


# what holds for all of them


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_tampered_model_has_the_same_shape_is_finite_and_the_view_stays_as_it_was(attack):
    scene = Scene(mlp(64, 50, 20, 10), (digits(4),))
    model = flat(scene.module)
    view = scene.view(models=model[None])
    sent = attack.tamper(view)
    assert sent.shape == model.shape
    assert sent.dtype == torch.float32
    assert bool(sent.isfinite().all())
    assert not torch.equal(sent, model)
    assert torch.equal(view.models[0], model)
    assert torch.equal(attack.tamper(view), sent)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_networks_that_begin_otherwise_are_refused(attack):
    conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    view = Scene(conv, (digits(2),)).view()
    for call in (attack.check, attack.tamper, attack.infer):
        with pytest.raises(PreconditionError, match="begins with a dense layer"):
            call(view)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_one_dense_layer_is_not_enough(attack):
    with pytest.raises(PreconditionError):
        attack.check(Scene(mlp(64, 10), (digits(2),)).view())


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_claimed_of_who_sends_nothing(attack):
    scene = Scene(mlp(64, 50, 10), (digits(2),))
    assert len(attack.infer(scene.view(updates=torch.zeros(1, len(flat(scene.module))))).x) == 0


# robbing_the_fed


def test_one_example_in_each_bin_is_exact_and_two_in_one_are_not():
    sent = tampered(RobbingTheFed(), Scene(mlp(64, 10, 10), (digits(7),)))
    examples = measuring(sent, torch.tensor([0, 1, 2, 3, 3, 8, 9]))
    quality = matched(RobbingTheFed().infer(Scene(sent, (examples,)).view()).x, examples.x)
    alone = torch.tensor([True, True, True, False, False, True, True])
    assert bool((quality[alone] > 80).all())
    assert bool((quality[~alone] < 40).all())


def test_the_exact_share_follows_the_law_of_the_paper():
    """(1 - 1/k)^(B - 1), the chance that no other of B examples falls into the same of k equal bins."""
    k, batch, rounds = 20, 12, 120
    module, shares = mlp(64, k, 10), []
    sent = tampered(RobbingTheFed(), Scene(module, (digits(batch),)))
    for seed in range(rounds):
        examples = measuring(sent, torch.randint(k, (batch,), generator=torch.Generator().manual_seed(seed)), seed)
        found = RobbingTheFed().infer(Scene(sent, (examples,)).view()).x
        shares.append((matched(found, examples.x) >= 60).double().mean())
    mean, error = torch.stack(shares).mean(), torch.stack(shares).std() / rounds**0.5
    assert abs(float(mean) - (1 - 1 / k) ** (batch - 1)) < 3.5 * float(error)
    assert float(error) < 0.03


def exact_digits(attack: InferenceAttack, batch: int, k: int, seed: int, root: int) -> int:
    """How many of a batch of digits are read exactly by one who has so many others of the same kind."""
    drawn = digits(batch + max(root, 1), seed)
    examples, others = drawn[torch.arange(batch)], drawn[torch.arange(batch, len(drawn))]
    scene = Scene(mlp(64, k, 10, seed=seed), (examples,), sees=EACH | Sight.ROOT_DATA if root else EACH, seed=seed)
    return int((matched(attacked(attack, scene, root=others), examples.x) >= 60).sum())


def test_robbing_keeps_the_law_on_digits_whose_brightness_has_ties():
    """B = 100, k = 500: .82 of the batch; along plain brightness, which comes in steps of 1/1024, it is .45."""
    shares = torch.tensor([exact_digits(RobbingTheFed(), 100, 500, seed, 1000) / 100 for seed in range(3)])
    assert float(shares.mean()) > (1 - 1 / 500) ** 99 - 0.06
    assert float(shares.min()) > 0.66


@pytest.mark.parametrize("attack", [RobbingTheFed(), TrapWeights()], ids=lambda attack: attack.name)
def test_more_knowledge_never_costs(attack):
    """Five batches of 60: few root examples find about as many as none or more, and many find more than few."""
    none, few, many = (sum(exact_digits(attack, 60, 200, seed, root) for seed in range(5)) for root in (0, 10, 1000))
    assert few > none - 15  # of 300: two deviations of a sum of five
    assert many > max(none, few)


def test_a_secure_sum_hides_as_little_as_one_client_with_all_the_examples():
    parts = tuple(digits(4, seed) for seed in range(5))
    truth = torch.cat([part.x for part in parts])
    scene = Scene(mlp(64, 500, 10), parts, sees=SECURE_SUM | Sight.ROOT_DATA)
    found = attacked(RobbingTheFed(), scene, root=digits(1000, 99))
    assert int((matched(found, truth) >= 60).sum()) >= 16
    honest = LinearLeak().infer(scene.view(root=digits(1000, 99))).x
    assert int((matched(honest, truth) >= 60).sum()) < 16


def test_a_few_small_local_steps_blur_it_only():
    examples, plan = digits(8), LocalPlan(lr=0.001, epochs=1, batch_size=4)
    scene = Scene(mlp(64, 200, 10), (examples,), plan=plan, sees=EACH | Sight.ROOT_DATA)
    quality = matched(attacked(RobbingTheFed(), scene, root=digits(1000, 99)), examples.x)
    assert int((quality > 40).sum()) >= 5


def test_robbing_needs_a_dense_layer_that_reads_the_marks():
    head = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Unflatten(1, (1, 8, 8)), nn.Flatten(), nn.Linear(64, 10)
    )
    with pytest.raises(PreconditionError, match="another dense layer after the first"):
        RobbingTheFed().check(Scene(head, (digits(2),)).view())


# trap_weights


def test_each_trapped_neuron_answers_to_one_in_b_of_the_root_data():
    root, batch = digits(1000, 99), 10
    scene = Scene(mlp(64, 100, 10), (digits(batch),), sees=EACH | Sight.ROOT_DATA)
    sent = tampered(TrapWeights(), scene, root=root)
    share = (sent[1](root.x.flatten(1)) > 0).double().mean(0)
    assert float((share - 1 / batch).abs().max()) < 0.01
    assert float(((sent[1].weight < 0).double().mean(1) - 0.5).abs().max()) < 0.01


def test_traps_shift_with_the_value_range():
    """Inputs in [-1, 1] activate the same neurons as the same inputs in [0, 1]."""
    root = digits(500, 99)
    wide = Examples(2 * root.x - 1, root.y)
    masks = []
    for data, value_range in ((root, (0.0, 1.0)), (wide, (-1.0, 1.0))):
        scene = Scene(mlp(64, 100, 10), (data[torch.arange(5)],), sees=EACH | Sight.ROOT_DATA)
        sent = tampered(TrapWeights(), scene, root=data, value_range=value_range)
        masks.append(sent[1](data.x.flatten(1)) > 1e-5)
    assert float((masks[0] == masks[1]).double().mean()) > 0.99


@pytest.mark.parametrize("granted", [EACH, EACH | Sight.ROOT_DATA])
def test_traps_catch_more_than_the_honest_model_shows(granted):
    trapped = honest = 0
    for seed in range(5):
        examples = digits(16, seed)
        scene = Scene(mlp(64, 100, 10, seed=seed), (examples,), sees=granted)
        found = attacked(TrapWeights(), scene, root=digits(1000, 99))
        trapped += int((matched(found, examples.x) >= 60).sum())
        honest += int((matched(LinearLeak().infer(scene.view()).x, examples.x) >= 60).sum())
    assert trapped > honest + 8


def test_who_is_alone_in_some_trap_is_read_whatever_mixtures_the_others_show():
    """Of 200 neurons most show mixtures; the claims are no more than the batch, and the exact ones are all among them."""
    batch = 40
    for seed in range(3):
        examples = digits(batch, seed)
        scene = Scene(mlp(64, 200, 10, seed=seed), (examples,), sees=EACH | Sight.ROOT_DATA, seed=seed)
        sent = tampered(TrapWeights(), scene, root=digits(1000, 99))
        active = sent[1](examples.x.flatten(1)) > 0
        alone = (active & (active.sum(0) == 1)).any(1)
        view = replace(scene, module=sent).view(root=digits(1000, 99))
        found = TrapWeights().infer(view).x
        assert len(found) == batch
        exact = matched(found, examples.x) >= 60
        assert int((exact & alone).sum()) >= 0.95 * int(alone.sum()) > 10
        weight, bias, neurons = rows(view)
        single = active.sum(0)[neurons] == 1
        kept = explains_bias(view, weight / bias[:, None], bias, neurons)
        assert float(kept[single].double().mean()) > 0.98
        assert float(kept[~single].double().mean()) < 0.1


def test_the_published_constant_takes_the_same_magnitudes_at_other_places():
    attack = TrapWeights(factor=0.95)
    weight = tampered(attack, Scene(mlp(64, 50, 10), (digits(4),)))[1].weight.detach()
    for row in weight:
        assert int((row > 0).sum()) == int((row < 0).sum()) == 32
        assert torch.allclose(row[row > 0].sort().values, 0.95 * (-row[row < 0]).sort().values)
    for factor in (0.0, 1.0, -0.5):
        with pytest.raises(ConfigError, match=r"factor: expected a number in \(0, 1\)"):
            TrapWeights(factor=factor)


# fishing


def test_the_gradient_that_comes_back_is_that_of_the_fished_example_alone():
    examples = digits(8, labels="distinct")
    scene = Scene(mlp(64, 50, 10), (examples,))
    sent = tampered(Fishing(target=int(examples.y[2])), scene)
    hidden = 64 * 50 + 50
    alone = gradient(sent, examples[torch.tensor([2])])[:hidden] / 8
    assert torch.allclose(gradient(sent, examples)[:hidden], alone, rtol=1e-5, atol=1e-9)
    assert float(alone.norm()) > 0


@pytest.mark.parametrize("widths", [(64, 50, 10), (64, 50, 30, 10)])
def test_the_fished_example_is_exact_in_a_secure_sum_of_all_classes(widths):
    whole = digits(10, labels="distinct")
    parts = tuple(whole[rows] for rows in torch.arange(10).split(2))
    for row in (0, 7):
        found = attacked(Fishing(target=int(whole.y[row])), Scene(mlp(*widths), parts, sees=SECURE_SUM))
        assert float(matched(found, whole.x)[row]) >= 100


def test_who_is_told_the_labels_fishes_for_the_rarest():
    examples = digits(8)
    rare = int(examples.y.bincount().where(examples.y.bincount() > 0, 99).argmin())
    assert int((examples.y == rare).sum()) == 1
    found = attacked(Fishing(), Scene(mlp(64, 50, 10), (examples,)), labels=examples.y)
    assert float(matched(found, examples.x)[examples.y == rare]) >= 100


def test_who_fishes_for_a_class_that_nobody_has_claims_nothing():
    examples = digits(4)
    target = next(label for label in range(10) if label not in examples.y.tolist())
    assert len(attacked(Fishing(target=target), Scene(mlp(64, 50, 10), (examples,)))) == 0


def test_fishing_refuses_a_class_that_does_not_exist():
    with pytest.raises(ConfigError, match="expected a class below 10; got 10"):
        Fishing(target=10).check(Scene(mlp(64, 50, 10), (digits(2),)).view())
    with pytest.raises(ConfigError, match="expected at least 0"):
        Fishing(target=-1)
