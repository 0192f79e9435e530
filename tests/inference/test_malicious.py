"""A malicious server: what comes back to the model that it sends shows inputs, as often as the papers' laws say."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from fedguard.attacks.inference.analytic.linear_leak import LinearLeak
from fedguard.attacks.inference.malicious.fishing import Fishing
from fedguard.attacks.inference.malicious.robbing_the_fed import RobbingTheFed
from fedguard.attacks.inference.malicious.trap_weights import TrapWeights
from torch import Tensor, nn

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


def of_brightness(values: Tensor, seed: int = 0) -> Examples:
    """Different images in [0, 1] whose mean values are exactly these."""
    noise = torch.rand(len(values), 1, 8, 8, generator=torch.Generator().manual_seed(seed)) - 0.5
    noise = noise - noise.mean((1, 2, 3), keepdim=True)
    noise = noise / noise.abs().amax((1, 2, 3), keepdim=True)
    room = torch.minimum(values, 1 - values)[:, None, None, None]
    return Examples(values[:, None, None, None] + room * noise, torch.arange(len(values)) % 10)


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
    """Without root data the ten marks are 0, .1, ..., .9."""
    brightness = torch.tensor([0.05, 0.15, 0.25, 0.33, 0.37, 0.85, 0.95])
    examples = of_brightness(brightness)
    quality = matched(attacked(RobbingTheFed(), Scene(mlp(64, 10, 10), (examples,))), examples.x)
    alone = torch.tensor([True, True, True, False, False, True, True])
    assert bool((quality[alone] > 80).all())
    assert bool((quality[~alone] < 40).all())


def test_the_exact_share_follows_the_law_of_the_paper():
    """(1 - 1/k)^(B - 1), the chance that no other of B examples falls into the same of k equal bins."""
    k, batch, rounds = 20, 12, 120
    module, shares = mlp(64, k, 10), []
    sent = tampered(RobbingTheFed(), Scene(module, (of_brightness(torch.rand(batch)),)))
    for seed in range(rounds):
        values = torch.rand(batch, generator=torch.Generator().manual_seed(seed)) * 0.98 + 0.01
        examples = of_brightness(values, seed)
        found = RobbingTheFed().infer(Scene(sent, (examples,)).view()).x
        shares.append((matched(found, examples.x) >= 60).double().mean())
    mean, error = torch.stack(shares).mean(), torch.stack(shares).std() / rounds**0.5
    assert abs(float(mean) - (1 - 1 / k) ** (batch - 1)) < 3.5 * float(error)
    assert float(error) < 0.03


def test_a_secure_sum_hides_as_little_as_one_client_with_all_the_examples():
    parts = tuple(digits(4, seed) for seed in range(5))
    truth = torch.cat([part.x for part in parts])
    scene = Scene(mlp(64, 500, 10), parts, sees=SECURE_SUM | Sight.ROOT_DATA)
    found = attacked(RobbingTheFed(), scene, root=digits(1000, 99))
    assert int((matched(found, truth) >= 60).sum()) >= 16
    honest = LinearLeak().infer(scene.view(root=digits(1000, 99))).x
    assert int((matched(honest, truth) >= 60).sum()) < 16


def test_root_data_spread_the_marks_so_that_more_are_alone():
    exact = {}
    for granted in (EACH, EACH | Sight.ROOT_DATA):
        exact[granted] = 0
        for seed in range(5):
            examples = digits(10, seed)
            found = attacked(RobbingTheFed(), Scene(mlp(64, 100, 10), (examples,), sees=granted), root=digits(1000, 99))
            exact[granted] += int((matched(found, examples.x) >= 60).sum())
    assert exact[EACH | Sight.ROOT_DATA] > exact[EACH] + 5


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
    with pytest.raises(ConfigError, match="expected a class from 0"):
        Fishing(target=-1)
