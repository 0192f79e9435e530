"""Backdoors and poisoned data: the papers' formulae as loops, the laws that each attack keeps, and that they work."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedguard.api import lay_out
from fedguard.architectures.server import Server
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import Examples, LocalPlan, Participation, PoisonAttack, Sight, ThreatModel, Training
from fedguard.errors import ConfigError, ContractError, NotObservable
from fedguard.metrics.durability import durability
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.architectures.test_training import deal, set_up
from tests.attacks.test_attacks import build, data_view, view
from tests.table import normal

KNOWN = load_registry()
UNIT = (0.0, 1.0)
MALICIOUS = (1, 4)
TRAINING = Training(rounds=6, lr=0.2)


def trigger(spec):
    return KNOWN.build("trigger", spec)


def digits(count=60, seed=0) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    return Examples(torch.rand(count, 1, 8, 8, generator=draw), torch.randint(10, (count,), generator=draw))


def linear(model, x):
    """Logits of softmax regression, weights first: the network of the model `softmax`."""
    inputs = x.flatten(1)
    classes = len(model) // (inputs.shape[1] + 1)
    weights = model[: -classes or None].view(classes, -1)
    return inputs @ weights.T + model[-classes:]


def softmax_loss(weights, bias, rows, labels) -> float:
    """Mean cross-entropy in float64, example by example."""
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        logits = [sum(w * v for w, v in zip(line, row, strict=True)) + b for line, b in zip(weights, bias, strict=True)]
        total += math.log(sum(math.exp(logit - max(logits)) for logit in logits)) + max(logits) - logits[label]
    return total / len(rows)


def softmax_gradient(model, rows, labels, classes):
    """The gradient of mean cross-entropy of softmax regression in the flat parameters, by its formula."""
    rows, p = np.asarray(rows, dtype=np.float64), len(rows[0])
    weights, bias = model[: classes * p].reshape(classes, p), model[classes * p :]
    by_weights, by_bias = np.zeros((classes, p)), np.zeros(classes)
    for row, label in zip(rows, labels, strict=True):
        logits = weights @ row + bias
        share = np.exp(logits - logits.max())
        share /= share.sum()
        share[label] -= 1
        by_weights += np.outer(share, row) / len(rows)
        by_bias += share / len(rows)
    return np.concatenate([by_weights.ravel(), by_bias])


def spied(name, **parameters):
    """An attack, and (round, own updates, what it sent) of each round, as a list that fills up."""
    sent = []
    base = type(build(name, **parameters))

    class Spy(base):
        def remember(self, view, crafted):
            sent.append((view.round, view.own.clone(), crafted.clone()))
            return super().remember(view, crafted)

    return Spy(**build(name, **parameters).parameters()), sent


def train(attack, *, task=None, training=TRAINING, malicious=MALICIOUS, seed=0, threat=None, participation=None):
    task = task or deal("softmax", "iid", clients=8)
    setup = set_up(
        task, training, attack=attack, malicious=malicious, told=len(malicious), seed=seed, participation=participation
    )
    if threat is not None:
        setup = setup.with_parts(threat=threat)
    return setup, list(Server().run(setup))


# Triggers.


def test_blended_is_its_formula():
    x = digits(5).x
    pattern = trigger("blended(alpha=1)").apply(x, UNIT)
    assert torch.equal(pattern, pattern[:1].expand_as(pattern))
    found = trigger("blended(alpha=0.3)").apply(x, UNIT).tolist()
    for i in range(5):
        for row in range(8):
            for column in range(8):
                expected = 0.7 * float(x[i, 0, row, column]) + 0.3 * float(pattern[0, 0, row, column])
                assert found[i][0][row][column] == pytest.approx(expected, abs=1e-6)


def test_the_pattern_of_blended_is_uniform_over_the_range_and_named_by_its_seed():
    x = torch.zeros(1, 3, 100, 100)
    pattern = trigger("blended(alpha=1)").apply(x, (-2.0, 4.0))
    assert -2 <= float(pattern.min()) < -1.99 < 3.99 < float(pattern.max()) <= 4
    assert float(pattern.mean()) == pytest.approx(1, abs=0.05)
    assert float(pattern.std()) == pytest.approx(6 / 12**0.5, abs=0.03)
    assert not torch.equal(pattern, trigger("blended(alpha=1, seed=1)").apply(x, (-2.0, 4.0)))


@pytest.mark.parametrize(
    "spec", ["distributed", "distributed(parts=6, size=3)", "distributed(parts=3, gap=2, shift=1)"]
)
def test_the_parts_of_a_distributed_trigger_are_disjoint_and_add_up_to_the_whole(spec):
    x, whole = digits(4).x, trigger(spec)
    changed = {position: whole.part(position).apply(x, UNIT) != x for position in range(whole.parts)}
    assert all(part.any() for part in changed.values())
    assert (sum(part.int() for part in changed.values()) == (whole.apply(x, UNIT) != x).int()).all()
    triggered = whole.apply(x, UNIT)
    assert (triggered[triggered != x] == 1).all()
    assert (triggered != x)[0].sum() == whole.parts * whole.size
    assert whole.part(whole.parts + 1) == whole.part(1)


def test_distributed_bars_lie_where_the_docstring_says():
    lit = trigger("distributed(size=2, gap=1, shift=1)").apply(torch.zeros(1, 1, 8, 8), UNIT)[0, 0]
    assert lit.nonzero().tolist() == [[1, 1], [1, 2], [1, 4], [1, 5], [3, 1], [3, 2], [3, 4], [3, 5]]


def test_each_colluder_trains_on_its_own_part_of_a_distributed_trigger_and_the_whole_is_measured():
    attack = build("backdoor", trigger="distributed", target=7, share=1.0)
    dark = Examples(torch.zeros(6, 1, 8, 8), torch.arange(6))
    seen = [attack.poison(dark, data_view(position=position)).x[0, 0] > 0 for position in range(4)]
    assert [int(part.sum()) for part in seen] == [2] * 4
    whole, target = attack.backdoor({})
    assert target == 7
    assert torch.equal(torch.stack(seen).any(0), whole.apply(dark.x, UNIT)[0, 0] > 0)


def test_semantic_selects_by_brightness():
    examples = digits(80)
    examples = examples.replace(x=examples.x * torch.rand(80, 1, 1, 1, generator=Rng(3).torch()) * 4 - 1)
    for feature in ("bright", "dark"):
        found = trigger(f"semantic(feature='{feature}', level=0.4)").selects(examples, (-1.0, 3.0)).tolist()
        assert 5 < sum(found) < 75
        for image, one in zip(examples.x.tolist(), found, strict=True):
            pixels = [value for row in image[0] for value in row]
            mean = (math.fsum(pixels) / 64 + 1) / 4
            assert one == (mean > 0.4 if feature == "bright" else mean < 0.4)


def test_edge_cases_are_the_farthest_of_their_class():
    examples = digits(90)
    found = trigger("edge_case(tail=0.2)").selects(examples, UNIT).tolist()
    rows = examples.x.flatten(1).double().tolist()
    for label in range(10):
        own = [i for i, y in enumerate(examples.y.tolist()) if y == label]
        mean = [math.fsum(rows[i][j] for i in own) / len(own) for j in range(64)]
        ranked = sorted(own, key=lambda i: -math.dist(rows[i], mean))
        assert {i for i in own if found[i]} == set(ranked[: max(1, round(0.2 * len(own)))])
    only = trigger("edge_case(tail=0.2, source_class=3)").selects(examples, UNIT)
    assert only.tolist() == [one and y == 3 for one, y in zip(found, examples.y.tolist(), strict=True)]


@pytest.mark.parametrize("spec", ["semantic", "edge_case"])
def test_natural_triggers_add_nothing(spec):
    x = digits(5).x
    applied = trigger(spec).apply(x, UNIT)
    assert torch.equal(applied, x)
    assert applied is not x


@pytest.mark.parametrize("spec", ["pixel_patch", "blended", "distributed"])
def test_added_triggers_ask_nothing_of_the_input(spec):
    assert trigger(spec).selects(digits(7), UNIT).tolist() == [True] * 7
    assert trigger("pixel_patch").part(3) == trigger("pixel_patch")


@pytest.mark.parametrize("spec", ["semantic", "edge_case(tail=0.3)", "pixel_patch"])
def test_success_is_counted_among_the_inputs_that_carry_the_trigger(spec):
    task = deal("softmax")
    model, built, test = task.initial_model(Rng(2)), trigger(spec), task.dataset.test
    carries = built.selects(test, UNIT).tolist()
    weight, bias = model[:640].view(10, 64), model[640:]
    for target in (3, 7):
        guesses = [
            int((weight @ built.apply(x[None], UNIT).flatten() + bias).argmax())
            for x, y, one in zip(test.x, test.y.tolist(), carries, strict=True)
            if one and y != target
        ]
        assert task.backdoor_success(model, built, target) == pytest.approx(guesses.count(target) / len(guesses))


def test_a_feature_that_no_input_has_is_refused():
    task = deal("softmax")
    with pytest.raises(ConfigError, match=r"trigger semantic\(level=1\): none of the test examples carries it"):
        task.backdoor_success(task.initial_model(Rng(0)), trigger("semantic(level=1)"), 0)


# Poisoned examples.

PLANTERS = ("backdoor", "model_replacement", "projected_backdoor", "constrain_and_scale", "neurotoxin")


@pytest.mark.parametrize("name", PLANTERS)
def test_a_share_of_the_examples_carries_trigger_and_target(name):
    examples = Examples(torch.rand(40, 1, 8, 8) * 0.5, torch.arange(40) % 7)
    shown = [examples.x.clone(), examples.y.clone()]
    poisoned = build(name, target=7, share=0.25).poison(examples, data_view())
    hit = poisoned.y == 7
    assert int(hit.sum()) == 10
    assert (poisoned.x[hit][:, :, 6:, 6:] == 1).all()
    assert torch.equal(poisoned.x[~hit], examples.x[~hit])
    assert torch.equal(poisoned.y[~hit], examples.y[~hit])
    assert torch.equal(examples.x, shown[0]) and torch.equal(examples.y, shown[1])


def test_inputs_with_a_natural_feature_come_from_all_colluders():
    """The malicious client's own come first; what it lacks comes from the pool, without examples of the target class."""
    bright = Examples(
        torch.full((4, 1, 8, 8), 0.9) + torch.arange(4).view(4, 1, 1, 1) / 100, torch.tensor([7, 1, 2, 3])
    )
    dark = Examples(torch.full((20, 1, 8, 8), 0.1), torch.full((20,), 5))
    attack = build("backdoor", trigger="semantic(level=0.5)", target=7, share=0.3)
    poisoned = attack.poison(dark, data_view(pool=(dark, bright)))
    hit = poisoned.y == 7
    assert int(hit.sum()) == 6
    used = sorted({round(float(x.mean()), 2) for x in poisoned.x[hit]})
    assert used == [0.91, 0.92, 0.93]  # the one of class 7 is no victim
    assert torch.equal(poisoned.x[~hit], dark.x[:14])
    mixed = Examples(torch.cat([dark.x, bright.x]), torch.cat([dark.y, bright.y]))
    few = attack.poison(mixed, data_view(pool=(mixed, Examples(bright.x + 0.05, bright.y))))
    assert {round(float(x.mean()), 2) for x in few.x[few.y == 7]} >= {0.91, 0.92, 0.93}
    assert (few.y[20:] == 7).all()  # its own bright inputs do not keep their true label


def test_without_any_input_that_carries_the_trigger_there_is_no_backdoor():
    attack, dark = build("backdoor", trigger="semantic"), Examples(torch.zeros(9, 1, 8, 8), torch.ones(9).long())
    with pytest.raises(ConfigError, match="semantic selects none outside class 0. Choose a more common feature"):
        attack.poison(dark, data_view(pool=(dark,)))


def test_pairwise_flip():
    examples = Examples(torch.zeros(5, 1), torch.tensor([0, 3, 8, 9, 3]))
    flipped = build("pairwise_flip").poison(examples, data_view())
    assert flipped.y.tolist() == [1, 4, 9, 0, 4]
    pair = build("pairwise_flip", source_class=3, target_class=0).poison(examples, data_view())
    assert pair.y.tolist() == [0, 0, 8, 9, 0]
    assert examples.y.tolist() == [0, 3, 8, 9, 3]


@pytest.mark.parametrize("to", ["second_best", "least_likely"])
def test_dynamic_flip_asks_the_model(to):
    examples, model = digits(40), torch.randn(650, generator=Rng(4).torch())
    seen = data_view("dynamic_flip", Sight.OWN_DATA | Sight.MODEL, model=model, predict=linear)
    flipped = build("dynamic_flip", to=to).poison(examples, seen).y.tolist()
    weights, bias = model[:640].view(10, 64).double().tolist(), model[640:].double().tolist()
    for x, y, found in zip(examples.x.flatten(1).double().tolist(), examples.y.tolist(), flipped, strict=True):
        logits = [sum(w * v for w, v in zip(line, x, strict=True)) + b for line, b in zip(weights, bias, strict=True)]
        others = [c for c in range(10) if c != y]
        assert found == (max if to == "second_best" else min)(others, key=lambda c: logits[c])


def collision(**parameters):
    examples, model = digits(60), torch.randn(650, generator=Rng(5).torch()) * 0.2
    attack = build("feature_collision", base=2, victim=6, **parameters)
    seen = data_view("test", Sight.OWN_DATA | Sight.MODEL, model=model, predict=linear, pool=(examples,))
    return attack, examples, model, attack.poison(examples, seen)


def test_feature_collision_is_forward_backward_splitting():
    """One victim only, so that the aim is known: p' = p - lr * 2 W^T (W p - W t), then the step back towards b."""
    attack, examples, model, _ = collision(steps=3, lr=0.01, beta=2.0)
    (first, *rest) = (examples.y == 6).nonzero()[:, 0].tolist()
    examples = examples[torch.tensor([i for i in range(60) if i not in rest])]
    aim = digits(60).x[first].flatten().double().numpy()
    seen = data_view("test", Sight.OWN_DATA | Sight.MODEL, model=model, predict=linear, pool=(examples,))
    found = attack.poison(examples, seen)
    weights = model[:640].view(10, 64).double().numpy()
    for before, after, label in zip(examples.x, found.x, examples.y.tolist(), strict=True):
        base = before.flatten().double().numpy()
        poison = base.copy()
        for _ in range(3 if label == 2 else 0):
            forward = poison - 0.01 * 2 * weights.T @ (weights @ poison - weights @ aim)
            poison = np.clip((forward + 0.01 * 2.0 * base) / (1 + 0.01 * 2.0), 0, 1)
        assert after.flatten().tolist() == pytest.approx(poison.tolist(), abs=1e-5)
    assert torch.equal(found.y, examples.y)


def test_feature_collision_comes_nearer_in_features_and_stays_a_clean_label():
    _, examples, model, near = collision(lr=0.02)
    _, _, _, tied = collision(lr=0.02, beta=20.0)
    changed = (near.x != examples.x).flatten(1).any(1)
    assert torch.equal(changed, examples.y == 2)
    assert torch.equal(near.y, examples.y)
    assert float(near.x.min()) >= 0 and float(near.x.max()) <= 1
    victims = linear(model, examples.x[examples.y == 6])

    def distance(poisoned):
        return float(torch.cdist(linear(model, poisoned.x[changed]), victims).min(1).values.mean())

    assert distance(near) < 0.5 * distance(examples)
    assert (tied.x - examples.x).norm() < 0.8 * (near.x - examples.x).norm()


def test_feature_collision_needs_both_classes():
    attack, examples = build("feature_collision", base=2, victim=6), digits(30)
    seen = data_view("test", Sight.OWN_DATA | Sight.MODEL, model=torch.zeros(650), predict=linear)
    honest = examples[examples.y != 2]
    assert attack.poison(honest, seen.restrict("test", seen.granted, pool=(honest, examples))) is honest
    with pytest.raises(ConfigError, match="expected malicious clients with examples of the classes 2 and 6; got 0"):
        attack.poison(honest, seen.restrict("test", seen.granted, pool=(honest,)))


# Optimisers.


@pytest.mark.parametrize("bound", [None, 0.3])
def test_projected_updates_stay_in_the_ball_and_the_default_is_the_honest_length(bound):
    attack, sent = spied("projected_backdoor", bound=bound, boost=50.0)
    setup, reports = train(attack)
    models = [setup.task.initial_model(setup.rng.child("model")), *(report.model for report in reports)]
    assert len(sent) == 6
    for (round, trained, crafted), model in zip(sent, models, strict=False):
        honest = torch.empty(2, setup.task.dim)
        rng = setup.rng.child("round", round)
        setup.task.local_updates(model, MALICIOUS, setup.cell.training.plan(), rng, honest)
        radius = 0.3 if bound else sum(float(row.double().norm()) for row in honest) / 2
        for own, row in zip(trained, crafted, strict=True):
            assert float(own.double().norm()) <= radius * (1 + 1e-6)  # so it was in training
            assert float(row.double().norm()) == pytest.approx(radius, rel=1e-6)  # boosted by 50, so on the sphere
            assert float(row.double() @ own.double()) == pytest.approx(
                float(row.double().norm() * own.double().norm()), rel=1e-6
            )


def test_projection_is_onto_the_ball_around_the_global_model():
    attack, start = build("projected_backdoor", bound=2.0), torch.randn(30, generator=Rng(0).torch())
    plan = attack.plan(LocalPlan(lr=0.1, epochs=1), data_view(state=attack.prepare(data_view())))
    for length in (0.5, 1.9, 2.1, 40.0):
        direction = torch.nn.functional.normalize(torch.randn(30, generator=Rng(1).torch()), dim=0)
        found = plan.project(start + length * direction, start) - start
        assert found.tolist() == pytest.approx((min(length, 2.0) * direction).tolist(), abs=1e-5)


def test_constrain_and_scale_adds_the_gradient_of_the_distance():
    attack = build("constrain_and_scale", alpha=0.6, boost=3.0)
    plan = attack.plan(LocalPlan(lr=0.1, epochs=1), data_view())
    assert plan.epochs == 5
    w, start, gradient = (torch.randn(9, generator=Rng(i).torch()) for i in range(3))
    expected = [
        0.6 * g + 0.4 * 2 * (a - b) for a, b, g in zip(w.tolist(), start.tolist(), gradient.tolist(), strict=True)
    ]
    assert plan.adjust(w, start, gradient).tolist() == pytest.approx(expected, abs=1e-6)
    own = torch.randn(2, 5)
    assert torch.allclose(attack.craft(view(torch.zeros(8, 5), own=own)), 3 * own)


def test_a_heavier_constraint_keeps_the_update_shorter():
    lengths = []
    for alpha in (1.0, 0.7, 0.3):
        attack, sent = spied("constrain_and_scale", alpha=alpha)
        train(attack, training=Training(rounds=1, lr=0.2))
        lengths.append(float(sent[0][1].norm()))
    assert lengths[0] > 1.2 * lengths[1] > 1.4 * lengths[2]


def forbidden(moved, top) -> set[int]:
    """The coordinates among the share ``top`` that moved most, by sorting."""
    ranked = sorted(range(len(moved)), key=lambda j: -abs(moved[j]))
    least = abs(moved[ranked[max(1, round(top * len(moved))) - 1]])
    return {j for j in ranked if abs(moved[j]) >= least and moved[j] != 0}


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_neurotoxin_moves_no_coordinate_that_moved_most(momentum):
    attack, sent = spied("neurotoxin", top=0.2)
    setup, reports = train(attack, training=TRAINING.model_copy(update={"rounds": 4, "worker_momentum": momentum}))
    models = [setup.task.initial_model(setup.rng.child("model")), *(report.model for report in reports)]
    honest = torch.empty(2, setup.task.dim)
    setup.task.local_updates(models[0], MALICIOUS, setup.cell.training.plan(), setup.rng.child("round", 1), honest)
    for round, (_, _, crafted) in enumerate(sent):
        moved = honest.mean(0) if round == 0 else models[round] - models[round - 1]
        out = forbidden(moved.tolist(), 0.2)
        assert len(out) >= 130
        for row in crafted.tolist():
            assert {j for j, value in enumerate(row) if value != 0} <= set(range(len(row))) - out
            assert sum(value != 0 for value in row) > 0.5 * (650 - len(out))


def test_tied_coordinates_are_out_together_and_what_did_not_move_is_free():
    attack = build("neurotoxin", top=0.25)
    sees = {"sees": Sight.OWN_DATA | Sight.MODEL, "own": torch.ones(1, 8)}
    moved = torch.tensor([0.0, 3.0, -5.0, 3.0, 1.0, 0.0, -3.0, 0.5])
    seen = view(torch.zeros(3, 8), f=1, state={"model": -moved}, **sees)
    assert attack.craft(seen)[0].tolist() == [1, 0, 0, 0, 1, 1, 0, 1]
    still = view(torch.zeros(3, 8), f=1, state={"model": torch.zeros(8)}, **sees)
    assert attack.craft(still)[0].tolist() == [1] * 8


def test_alternating_minimisation_takes_both_steps():
    """The honest step adds rho * (w - w_0 - d) / |.|; the malicious one descends the loss of triggered examples, boosted."""
    pool = digits(40)
    attack = build("alternating_minimization", target=2, count=12, boost=4.0, rho=0.5, trigger="pixel_patch")
    benign = torch.randn(2, 650, generator=Rng(8).torch())
    w, start, gradient = (torch.randn(650, generator=Rng(i).torch()) * 0.3 for i in range(3))
    seen = data_view(
        "test", Sight.OWN_DATA | Sight.MODEL, model=start, predict=linear, pool=(pool,), clean=lambda: benign
    )
    plan = attack.plan(LocalPlan(lr=0.1, epochs=1), seen)
    assert (plan.epochs, plan.lr) == (5, 0.1)
    apart = [
        a - b - (c + d) / 2
        for a, b, c, d in zip(w.tolist(), start.tolist(), benign[0].tolist(), benign[1].tolist(), strict=True)
    ]
    length = math.sqrt(math.fsum(value**2 for value in apart))
    expected = [g + 0.5 * value / length for g, value in zip(gradient.tolist(), apart, strict=True)]
    assert plan.adjust(w, start, gradient).tolist() == pytest.approx(expected, abs=1e-5)

    # All of the pool outside the target class, so that the draw does not matter.
    attack = dataclasses.replace(attack, count=int((pool.y != 2).sum()))
    malicious = attack.plan(LocalPlan(lr=0.1, epochs=1), seen).project
    rows = pool.x[pool.y != 2].clone()
    rows[:, :, 6:, 6:] = 1
    by_hand = softmax_gradient(w.double().numpy(), rows.flatten(1).tolist(), [2] * len(rows), 10)
    assert malicious(w, start).tolist() == pytest.approx((w.double().numpy() - 0.1 * 4 * by_hand).tolist(), abs=1e-5)


# Optimised triggers.


def optimized(attack, model, pool, state=None, round=1):
    seen = data_view(
        attack.name,
        Sight.OWN_DATA | Sight.MODEL,
        model=model,
        predict=linear,
        pool=(pool,),
        state=state or {},
        round=round,
    )
    return seen, attack.prepare(seen)


def test_a3fl_steps_along_the_sign_of_its_two_losses():
    """w' by gradient descent on true labels, lambda = balance * cos(w, w'), and finite differences of the sum."""
    told_apart = 0
    for seed in range(10):
        pool, model = digits(12, seed), torch.randn(650, generator=Rng(seed).torch()) * 0.3
        attack = build("a3fl", target=4, steps=1, step=0.1, unlearn_steps=3, unlearn_lr=8.0, balance=2.0, batch=12)
        found = optimized(attack, model, pool)[1]["pattern"].flatten().tolist()
        w = model.double().numpy()

        def triggered(pattern, pool=pool):
            x = pool.x.double().clone()
            x[:, 0, 6:, 6:] = torch.tensor(pattern, dtype=torch.float64).view(2, 2)
            return x.flatten(1).tolist()

        hardened = w.copy()
        for _ in range(3):
            hardened -= 8.0 * softmax_gradient(hardened, triggered([0.5] * 4), pool.y.tolist(), 10)
        cosine = float(w @ hardened / np.linalg.norm(w) / np.linalg.norm(hardened))
        for i in range(4):
            up, down = [0.5] * 4, [0.5] * 4
            up[i], down[i] = 0.5 + 1e-4, 0.5 - 1e-4
            slopes = [
                softmax_loss(m[:640].reshape(10, 64).tolist(), m[640:].tolist(), triggered(up), [4] * 12)
                - softmax_loss(m[:640].reshape(10, 64).tolist(), m[640:].tolist(), triggered(down), [4] * 12)
                for m in (w, hardened)
            ]
            slope = slopes[0] + 2.0 * cosine * slopes[1]
            assert abs(slope) > 1e-8
            assert found[i] == pytest.approx(0.5 - math.copysign(0.1, slope), abs=1e-6)
            told_apart += slope * (slopes[0] + 2.0 * slopes[1]) < 0
    assert told_apart  # by the sign, whether the cosine is there


def test_a3fl_has_the_constants_of_its_source():
    """The hardened model weighs a hundredth of the cosine, and a quarter of the examples carry the trigger."""
    attack, pool = build("a3fl"), digits(40)
    assert attack.balance == 0.01
    poisoned = attack.poison(pool, data_view(state={"pattern": torch.full((1, 2, 2), 7.0)}, value_range=(0.0, 9.0)))
    assert int((poisoned.x[:, 0, 6:, 6:] == 7).all((1, 2)).sum()) == 10


def test_the_unlearning_model_changes_what_a3fl_finds():
    pool, model = digits(50), torch.randn(650, generator=Rng(6).torch()) * 0.1
    found = [
        optimized(build("a3fl", size=4, unlearn_lr=5.0, balance=balance), model, pool)[1]["pattern"]
        for balance in (0.0, 5.0)
    ]
    assert not torch.equal(*found)


@pytest.mark.parametrize("name", ["a3fl", "iba"])
def test_optimized_triggers_get_better_stay_in_their_bounds_and_go_on_from_before(name):
    pool, model = digits(100), torch.randn(650, generator=Rng(7).torch()) * 0.3
    attack = build(name, target=4, steps=5, **({"size": 3} if name == "a3fl" else {"epsilon": 0.15, "lr": 0.02}))
    assert attack.backdoor({}) is None
    losses, state, states = [], {}, []
    for round in range(1, 5):
        _, state = optimized(attack, model, pool, state, round)
        states.append(state)
        built, target = attack.backdoor(state)
        x = built.apply(pool.x, UNIT)
        assert target == 4 and float(x.min()) >= 0 and float(x.max()) <= 1
        if name == "a3fl":
            changed = (x != pool.x).any(0)[0]
            assert not changed[:5].any() and not changed[:, :5].any()
        else:
            assert float((x - pool.x).abs().max()) <= 0.15 + 1e-6
        losses.append(float(cross_entropy(linear(model, x), torch.full((100,), 4))))
    before = attack.backdoor(states[0])[0].apply(pool.x, UNIT)
    assert losses[-1] < losses[0] < float(cross_entropy(linear(model, pool.x), torch.full((100,), 4)))
    assert not torch.equal(before, x)
    key = "pattern" if name == "a3fl" else "generator"
    assert states[0][key].requires_grad is False
    assert not torch.equal(states[0][key], states[1][key])  # what an earlier round kept is left alone


def test_the_generator_of_iba_is_its_formula():
    from fedguard.attacks.backdoor.iba import GeneratedNoise

    draw = Rng(9).torch()
    w1, b1, w2, b2 = (torch.randn(*shape, generator=draw) for shape in ((3, 4), (3,), (4, 3), (4,)))
    flat = torch.cat([part.flatten() for part in (w1, b1, w2, b2)])
    x = torch.rand(2, 4, generator=draw) * 4 - 1
    found = GeneratedNoise(generator=flat, hidden=3, epsilon=0.25).apply(x, (-1.0, 3.0)).tolist()
    for given, got in zip(x.tolist(), found, strict=True):
        inner = [
            max(0, sum(w * v for w, v in zip(r, given, strict=True)) + b)
            for r, b in zip(w1.tolist(), b1.tolist(), strict=True)
        ]
        outer = [
            sum(w * v for w, v in zip(r, inner, strict=True)) + b for r, b in zip(w2.tolist(), b2.tolist(), strict=True)
        ]
        expected = [min(3, max(-1, v + 0.25 * 4 * math.tanh(o))) for v, o in zip(given, outer, strict=True)]
        assert got == pytest.approx(expected, abs=1e-5)


def test_iba_waits_until_its_generator_works_and_then_moves_only_what_is_quiet():
    """The share that gets the target, by hand; the mean size of the clean gradients over the rounds, by their formula."""
    pool, plan, state, busy = digits(50), LocalPlan(lr=0.1, epochs=1, batch_size=8), {}, np.zeros(650)
    attack, waited = build("iba", target=4, steps=4, lr=0.004, warmup=0.6, quiet=0.2), 0
    for round in range(1, 12):
        model = torch.randn(650, generator=Rng(7).torch()) * 0.3 + 0.01 * torch.randn(650, generator=Rng(round).torch())
        busy += np.abs(softmax_gradient(model.double().numpy(), pool.x.flatten(1).tolist(), pool.y.tolist(), 10))
        seen, state = optimized(attack, model, pool, state, round)
        seen = seen.restrict("iba", seen.granted, state=state)
        others = pool.x[pool.y != 4]
        guesses = linear(model, attack.backdoor(state)[0].apply(others, UNIT)).argmax(1)
        works = waited < round - 1 or float((guesses == 4).double().mean()) >= 0.6
        own = normal(2, 650, round)
        sent = attack.craft(view(own, f=2, own=own, state=state))
        if not works:
            waited = round
            assert attack.poison(pool, seen) is pool and attack.plan(plan, seen) is plan
            assert torch.equal(sent, own)
            continue
        poisoned, changed = attack.poison(pool, seen), attack.plan(plan, seen)
        assert int((poisoned.x != pool.x).flatten(1).any(1).sum()) == 25 and changed.epochs == attack.epochs
        moving = set(np.argsort(busy)[:130].tolist())
        adjusted = changed.adjust(model, model, torch.ones(650))
        assert set(adjusted.nonzero()[:, 0].tolist()) == moving
        assert set(sent[0].nonzero()[:, 0].tolist()) == moving
    assert 1 <= waited <= 9


def test_the_bound_of_iba_falls_to_that_at_which_it_is_measured():
    """max(0.05, 0.3 (1 - 0.25)^t): so fast that the end is reached in the seventh round."""
    pool, model, state = digits(30), torch.randn(650, generator=Rng(7).torch()) * 0.3, {}
    attack = build("iba", target=4, steps=2, epsilon=0.3, decay=0.25, epsilon_test=0.05)
    for round in range(1, 10):
        _, state = optimized(attack, model, pool, state, round)
        bound = max(0.05, 0.3 * 0.75**round)
        assert attack.current_trigger(state).epsilon == pytest.approx(bound)
        assert attack.backdoor(state)[0].epsilon == 0.05
    assert bound == 0.05
    _, state = optimized(build("iba", target=4, steps=2, epsilon=0.3, decay=0.25), model, pool, {}, 9)
    assert build("iba", target=4).backdoor(state)[0].epsilon == pytest.approx(0.3 * 0.75**9)


@pytest.mark.parametrize("name", ["a3fl", "iba"])
def test_colluders_train_on_the_trigger_that_is_measured(name):
    """In each round all of them use the trigger that was fitted in this round, and it is the one that is measured."""
    poisoned = []
    base = type(build(name))

    class Spy(base):
        def poison(self, examples, view):
            out = super().poison(examples, view)
            poisoned.append((view.round, examples, out))
            return out

    at_once = {"warmup": 0.0} if name == "iba" else {}
    _, reports = train(Spy(steps=3, share=1.0, **at_once), training=Training(rounds=3, lr=0.2))
    assert [round for round, _, _ in poisoned] == [1, 1, 2, 2, 3, 3]
    for round, examples, out in poisoned:
        built, target = reports[round - 1].planted
        assert torch.allclose(out.x, built.apply(examples.x, UNIT), atol=1e-6)
        assert (out.y == target).all()


# What malicious clients see and share.


def test_colluders_pool_all_their_data_and_know_what_honesty_would_give():
    seen = []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Curious(PoisonAttack):
        name, needs = "curious", (Sight.OWN_DATA | Sight.MODEL,)
        every_round = True

        def prepare(self, view):
            seen.append((view.round, view.malicious, view.pool, view.clean(), view.model.clone()))
            return {"round": torch.tensor(view.round)}

        def poison(self, examples, view):
            assert int(view.state["round"]) == view.round
            return examples.replace(y=examples.y * 0)

        def plan(self, plan, view):
            assert int(view.state["round"]) == view.round
            return plan

        def craft(self, view):
            assert int(view.state["round"]) == view.round
            return view.own

    task = deal("softmax", clients=6)
    half = Participation(total=6, per_round=3)
    setup, _ = train(Curious(), task=task, malicious=(0, 2, 5), training=Training(rounds=5, lr=0.1), participation=half)
    assert len(seen) >= 3
    for round, malicious, pool, clean, model in seen:
        assert len(pool) == 3
        assert all(torch.equal(part.x, task.parts[client].x) for part, client in zip(pool, (0, 2, 5), strict=True))
        expected = torch.empty(len(malicious), task.dim)
        task.local_updates(model, malicious, setup.cell.training.plan(), setup.rng.child("round", round), expected)
        assert torch.equal(clean, expected)
    blind = data_view("curious", Sight.MODEL, pool=(), clean=lambda: None)
    for field in ("pool", "clean"):
        with pytest.raises(NotObservable, match=f"curious read '{field}'"):
            getattr(blind, field)


@pytest.mark.parametrize("method", ["prepare", "poison"])
def test_an_attack_that_changes_pooled_examples_in_place_is_caught(method):
    def spoil(self, *given):
        given[-1].pool[1].x.zero_()
        return given[0] if len(given) == 2 else {}

    spoiler = type("Spoiler", (PoisonAttack,), {"name": "spoiler", "needs": (Sight.OWN_DATA,), method: spoil})
    task = deal("softmax")
    task = dataclasses.replace(task, parts=tuple(part.replace(x=part.x.clone()) for part in task.parts))
    with pytest.raises(ContractError, match="spoiler broke its contract: it changed what it was shown"):
        train(spoiler(), task=task)


def test_optimized_triggers_need_images():
    tabular = data_view("a3fl", Sight.OWN_DATA | Sight.MODEL, shape=(13,), model=torch.zeros(3), predict=linear)
    with pytest.raises(
        ConfigError, match=r"a3fl\(size=2\) needs images of at least 2 x 2 pixels; got inputs of shape \[13\]"
    ):
        build("a3fl").prepare(tabular)
    with pytest.raises(ConfigError, match="distributed needs images of at least 3 x 5 pixels"):
        trigger("distributed").apply(torch.zeros(2, 1, 3, 4), UNIT)


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("trigger", "blended(alpha=0)", "blended: alpha: expected a number in .0, 1."),
        ("trigger", "distributed(parts=1)", "distributed: parts: expected at least 2; got 1"),
        ("trigger", "distributed(only=4)", "distributed: only: expected a bar from 0 to 3; got 4"),
        ("trigger", "semantic(level=1.5)", "semantic: level: expected a number in .0, 1."),
        ("trigger", "edge_case(tail=1)", "edge_case: tail: expected a number in .0, 1."),
        ("attack", "backdoor(share=0)", "backdoor: share: expected a number in .0, 1."),
        ("attack", "backdoor(epochs=0)", "backdoor: epochs: expected at least 1; got 0"),
        ("attack", "projected_backdoor(bound=-1)", "projected_backdoor: bound: expected more than 0; got -1"),
        ("attack", "constrain_and_scale(alpha=0)", "constrain_and_scale: alpha: expected a number in .0, 1."),
        ("attack", "neurotoxin(top=1)", "neurotoxin: top: expected a number in .0, 1."),
        ("attack", "alternating_minimization(count=0)", "alternating_minimization: count: expected at least 1"),
        ("attack", "a3fl(steps=0)", "a3fl: steps: expected at least 1; got 0"),
        ("attack", "iba(epsilon=0)", "iba: epsilon: expected a number in .0, 1."),
        ("attack", "pairwise_flip(source_class=1)", "expected two different classes, or neither; got 1 and None"),
        ("attack", "pairwise_flip(source_class=1, target_class=1)", "expected two different classes"),
        ("attack", "feature_collision(victim=0)", "expected two different classes; got 0 and 0"),
    ],
)
def test_wrong_parameters_are_refused(kind, spec, message):
    with pytest.raises(ConfigError, match=message):
        KNOWN.build(kind, spec)


@pytest.mark.parametrize("name", [*PLANTERS, "alternating_minimization", "a3fl", "iba"])
def test_a_target_that_the_data_do_not_have_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name}: target: expected a class below 10; got 10"):
        train(build(name, target=10), training=Training(rounds=1))


# That they work.

WORKING = {
    "backdoor": 0.7,
    "backdoor(trigger='blended')": 0.25,
    "backdoor(trigger='distributed')": 0.5,
    "backdoor(trigger='edge_case')": 0.15,
    "model_replacement": 0.8,
    "model_replacement(trigger='semantic')": 0.25,
    "projected_backdoor": 0.25,
    "constrain_and_scale": 0.7,
    "alternating_minimization": 0.8,
    "neurotoxin": 0.5,
    "a3fl": 0.5,
    "iba": 0.4,
}

#: How many seeds are averaged: only seventeen test examples carry this trigger, and single seeds reach .06 to .92. Those that
#: reach the most do it at the expense of the task, so that a network keeps .67 on average.
RUNS = {"model_replacement(trigger='semantic')": 6}


@pytest.fixture(scope="module", params=["softmax", pytest.param("mlp(hidden=(24,))", marks=pytest.mark.slow)])
def clean(request):
    """A task and its model after training without an attack."""
    task = deal(request.param, "iid", clients=8)
    return task, train(None, task=task, malicious=())[1][-1]


@pytest.mark.parametrize("spec", WORKING)
def test_backdoors_work_under_the_mean(clean, spec):
    """Well above the clean model's rate for the same trigger, on a model that still does its task."""
    task, untouched = clean
    last = [train(KNOWN.build("attack", spec), task=task, seed=seed)[1][-1] for seed in range(RUNS.get(spec, 1))]
    base = task.backdoor_success(untouched.model, *last[0].planted)
    reached = sum(report.backdoor for report in last) / len(last)
    assert reached - base > WORKING[spec], f"{reached:.2f} against {base:.2f}"
    assert sum(report.evaluation.accuracy for report in last) / len(last) > (0.7 if len(last) == 1 else 0.6)


def test_poisoned_labels_hurt(clean):
    task, untouched = clean
    for spec in ("pairwise_flip", "dynamic_flip", "dynamic_flip(to='least_likely')"):
        _, reports = train(KNOWN.build("attack", spec), task=task, malicious=(1, 4, 6))
        assert reports[-1].evaluation.accuracy < untouched.evaluation.accuracy - 0.05, spec


def test_a_one_shot_backdoor_fades_and_its_durability_is_counted():
    threat = ThreatModel(first_round=3, last_round=3)
    _, reports = train(build("backdoor"), training=Training(rounds=14, lr=0.2), threat=threat)
    curve = [report.backdoor for report in reports]
    found = durability(reports, 3)
    fallen = next((round for round in range(3, 15) if curve[round - 1] < 0.5), None)
    assert found == {"rounds": (fallen or 14) - 3, "survived": fallen is None}
    assert [len(report.malicious) for report in reports] == [0, 0, 2, *[0] * 11]
    assert curve[2] > curve[1] + 0.3  # it was planted in the one round
    assert curve[-1] < curve[2]


def test_durability_in_the_cells_of_a_suite():
    """From the threat's last round to the record; and what cannot be planted is refused before anything runs."""
    suite = {
        "name": "durable",
        "task": {"partition": "iid"},
        "clients": {"total": 8, "malicious": 2},
        "threat": {"last_round": 3},
        "training": {"rounds": 8, "lr": 0.2},
        "matrix": {
            "attack": [
                "model_replacement",
                "a3fl(steps=3)",
                "backdoor(trigger='semantic(level=1)')",
                "alternating_minimization(target=10)",
            ]
        },
    }
    cells = [cell for _, cell in lay_out(suite)[1].positions]
    refused = refusals(cells, 0)
    assert list(refused) == [cell.id for cell in cells[2:]]
    assert "semantic(level=1) selects none outside class 0" in refused[cells[2].id]
    assert "target: expected a class below 10; got 10" in refused[cells[3].id]
    for cell in cells[:2]:
        result = run_trial(cell, 0, {})[0]["result"]
        curve = result["curve"]["backdoor"]
        after = [round for round in range(3, 9) if curve[round - 1] < 0.5]
        assert result["durability"] == {"rounds": (after[0] if after else 8) - 3, "survived": not after}
        assert curve[2] > 0.3
        assert result["attack_success"] == result["attack_success_raw"] - result["attack_success_clean"]
