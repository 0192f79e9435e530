"""Ape-X against its papers as plain loops in float64; what its replay keeps; and who lies to it."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedguard.algorithms.rl.double_dqn import DoubleDQN
from fedguard.algorithms.rl.epsilon_greedy import EpsilonGreedy
from fedguard.algorithms.rl.replay import (
    ReplayBuffer,
    Transitions,
    importance,
    probabilities,
    stratify_draws,
    transitions,
)
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import PoisonAttack, Rollout, Sight, lies
from fedguard.contracts.channels import PRIORITIES, TRANSITIONS
from fedguard.errors import ContractError
from fedguard.rng import Rng
from tests.rl.acting import cell, playing, scene
from tests.rl.test_actor_critic import forward
from tests.systems.test_asynchronous import course

SMALL = "t_max=4, n=3, batch=16, warm=30, capacity=60, target_every=5"
SLOW = {"compute": {"seconds": 0.01, "spread": 0.8}, "link": {"latency": 0.05}}


def training(more: str = "", rounds: int = 6) -> dict[str, Any]:
    return {"algorithm": f"double_dqn({SMALL}{more})", "rounds": rounds, "lr": 0.05}


def rollout(steps: int = 9, copies: int = 30) -> Rollout:
    rng = np.random.default_rng(4)
    ends = rng.integers(7, size=(steps, copies))
    seen, after = rng.normal(size=(2, steps, copies, 4))
    actions, rewards = rng.integers(2, size=(steps, copies)), rng.normal(size=(steps, copies))
    parts = seen, actions, rewards, ends == 0, ends == 1, after, np.zeros((steps, copies))
    return Rollout(*map(torch.from_numpy, parts))


@pytest.mark.parametrize("n", [1, 3, 20])
def test_a_transition_sums_up_to_n_rewards_and_looks_from_the_state_after_them(n: int) -> None:
    one, gamma = rollout(), 0.9
    steps, copies = one.rewards.shape
    found = transitions(one, n, gamma, scale=0.5)
    assert len(found) == steps * copies
    for t in range(steps):
        for copy in range(copies):
            total, k = 0.0, 0
            while True:
                total += gamma**k * 0.5 * float(one.rewards[t + k, copy])
                over = bool(one.terminated[t + k, copy] or one.truncated[t + k, copy])
                if over or k + 1 == n or t + k + 1 == steps:
                    break
                k += 1
            at = t * copies + copy
            assert float(found.returns[at]) == pytest.approx(total, abs=1e-12)
            worth = 0.0 if one.terminated[t + k, copy] else gamma ** (k + 1)
            assert float(found.discounts[at]) == pytest.approx(worth, abs=1e-6)
            assert torch.equal(found.after[at], one.after[t + k, copy])
            assert torch.equal(found.seen[at], one.seen[t, copy]) and found.actions[at] == one.actions[t, copy]


def some(n: int, first: int = 0) -> Transitions:
    """Transitions that are told apart by their returns."""
    numbers = torch.arange(first, first + n)
    return Transitions(torch.zeros(n, 4), numbers % 2, numbers.float(), torch.zeros(n), torch.zeros(n, 4))


def loop_of_draws(priorities: list[float], alpha: float, draws: Any) -> tuple[list[int], list[float]]:
    """Proportional prioritisation as the paper says it, one range after the other."""
    powers = [(p + 1e-6) ** alpha for p in priorities]
    total, places = sum(powers), []
    for number, draw in enumerate(draws):
        left = (number + float(draw)) / len(draws) * total
        place = 0
        while (left := left - powers[place]) >= 0:
            place += 1
        places.append(place)
    return places, [powers[place] / total for place in places]


@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.4), (1.0, 1.0), (0.0, 0.4)])
def test_draws_and_weights_are_those_of_the_papers_loop(alpha: float, beta: float) -> None:
    rng = np.random.default_rng(0)
    priorities = rng.lognormal(sigma=2, size=37)
    replay = ReplayBuffer(50)
    replay.add(0, some(37), priorities)
    draws = np.random.default_rng(1).random(64)
    places, chances = replay.sample_indices(64, alpha, np.random.default_rng(1))
    wanted, likely = loop_of_draws(priorities.tolist(), alpha, draws)
    assert places.tolist() == wanted
    assert chances == pytest.approx(likely, abs=1e-14)
    weights = [(37 * p) ** -beta for p in likely]
    assert importance(chances, 37, beta) == pytest.approx([w / max(weights) for w in weights], abs=1e-12)
    if alpha == 0:
        assert chances == pytest.approx(1 / 37)


def test_what_is_drawn_follows_its_chances_and_full_weights_take_the_bias_back() -> None:
    """Means of drawn values: by the chances as they are, and by $w = 1 / (N P)$ that of all values alike."""
    rng = np.random.default_rng(2)
    priorities = rng.lognormal(size=40)
    values = np.log(priorities) + rng.normal(size=40)  # what surprises more is worth more
    there = np.ones(40, bool)
    chances = probabilities(priorities, there, 0.6)
    drawn = np.concatenate([stratify_draws(chances, rng.random(32)) for _ in range(2000)])
    counts = np.bincount(drawn, minlength=40)
    # Draws of one batch are spread evenly, so the statistic is smaller than that of free draws; it may not be larger.
    assert stats.chisquare(counts, len(drawn) * chances).pvalue > 1e-3
    weights = 1 / (40 * chances[drawn])
    error = (weights * values[drawn]).std() / math.sqrt(len(drawn))
    assert abs((weights * values[drawn]).mean() - values.mean()) < 4 * error
    assert abs(values[drawn].mean() - values.mean()) > 4 * error


def kept(replay: ReplayBuffer) -> dict[int, list[int]]:
    """By actor, the numbers of what is kept of it."""
    there = np.flatnonzero(replay.owners >= 0)
    returns = replay.at(there).returns.int().tolist()
    found: dict[int, list[int]] = {}
    for owner, number in zip(replay.owners[there].tolist(), returns, strict=True):
        found.setdefault(owner, []).append(number)
    return {owner: sorted(numbers) for owner, numbers in found.items()}


def test_the_oldest_make_room_and_an_actor_above_its_quota_loses_its_own() -> None:
    free, bounded = ReplayBuffer(10), ReplayBuffer(10, quota=4)
    for replay in (free, bounded):
        replay.add(0, some(3), np.ones(3))
        replay.add(1, some(9, 100), np.ones(9))
    assert kept(free) == {0: [2], 1: list(range(100, 109))}
    assert kept(bounded) == {0: [0, 1, 2], 1: [105, 106, 107, 108]}
    bounded.add(1, some(2, 200), np.ones(2))
    assert kept(bounded) == {0: [0, 1, 2], 1: [107, 108, 200, 201]}
    bounded.add(2, some(4, 300), np.ones(4))  # one place more than is empty
    assert kept(bounded) == {0: [1, 2], 1: [107, 108, 200, 201], 2: [300, 301, 302, 303]}
    free.add(2, some(30, 500), np.ones(30))
    assert kept(free) == {2: list(range(520, 530))}


def loop_of_q(task: Any, one: DoubleDQN, model: Tensor, x: Tensor) -> Tensor:
    out = forward(task, model, x.double())
    if not one.dueling:
        return out[:-1]
    return out[-1] + out[:-1] - sum(out[:-1]) / len(out[:-1])


def loop_of_errors(task: Any, one: DoubleDQN, model: Tensor, target: Tensor, batch: Transitions) -> list[Tensor]:
    errors = []
    for j in range(len(batch)):
        online, other = (loop_of_q(task, one, vector, batch.after[j]).tolist() for vector in (model, target))
        chooser = online if one.double else other
        worth = other[chooser.index(max(chooser))]
        wanted = float(batch.returns[j]) + float(batch.discounts[j]) * worth
        errors.append(wanted - loop_of_q(task, one, model, batch.seen[j])[int(batch.actions[j])])
    return errors


@pytest.mark.parametrize("parts", [{}, {"double": False}, {"dueling": False}])
def test_a_gradient_is_that_of_double_dqn_and_each_part_can_be_switched_off(parts: dict[str, bool]) -> None:
    task, one = playing(), DoubleDQN(**parts)
    model, target = (task.initial_model(Rng(seed)) for seed in (1, 2))
    given = transitions(
        Rollout(*(part.float() if part.is_floating_point() else part for part in rollout(5, 8).parts)), 3, 0.9
    )
    weights = torch.from_numpy(np.random.default_rng(0).random(len(given))).float()
    found, errors = one.gradient(task, model, target, given, weights)
    wide = model.double().requires_grad_()
    wanted = loop_of_errors(task, one, wide, target.double(), given)
    assert errors.tolist() == pytest.approx([float(error.detach()) for error in wanted], abs=1e-5)
    loss = sum(float(w) * error**2 for w, error in zip(weights, wanted, strict=True)) / len(given) / 2
    (gradient,) = torch.autograd.grad(loss, wide)
    assert (found - gradient).norm() < 1e-5 * gradient.norm()
    others = [DoubleDQN(**other) for other in ({}, {"double": False}, {"dueling": False}) if other != parts]
    assert all((found - other.gradient(task, model, target, given, weights)[0]).norm() > 1e-3 for other in others)


def test_actors_try_by_chances_that_fall_from_one_to_the_next() -> None:
    outputs = torch.tensor([0.1, 0.9, 0.3]).expand(2, 30_000, 3)
    law = EpsilonGreedy(3, torch.tensor([[0.3], [0.0]]))
    drawn = law.draw_actions(outputs, torch.from_numpy(law.draws((2, 30_000), np.random.default_rng(0))))
    assert stats.chisquare(torch.bincount(drawn[0]).numpy(), 30_000 * np.array([0.1, 0.8, 0.1])).pvalue > 1e-3
    assert (drawn[1] == 1).all()
    assert law.log_prob(outputs, torch.ones(2, 30_000).long())[:, 0].exp().tolist() == pytest.approx([0.8, 1.0])
    _, setup = scene("apex", training=training(", epsilon=0.4, spread=7"))
    chances = setup.cell.training.algorithm.start(setup).law(range(4)).epsilon[:, 0].tolist()
    assert chances == pytest.approx([0.4 ** (1 + 7 * i / 3) for i in range(4)])


def test_apex_is_the_papers_loop_over_who_came_when() -> None:
    """A replay as a list, whose oldest is overwritten; priorities claimed by actors, and then the learner's own errors."""
    made, setup = scene("apex", network=SLOW, training=training())
    task, one = setup.task, setup.cell.training.algorithm
    states = {actor: task.start_actor(setup.rng.child("actor", actor).numpy()) for actor in range(4)}
    models = [task.initial_model(setup.rng.child("model")).double()]
    begun: dict[tuple[int, int], Tensor] = {}
    releases, replay, next_place, batches, target = course(made, setup), [], 0, 0, models[0]
    found = [report.model for report in made.architecture.aggregates(setup)]
    for _ in found:
        release = next(releases)
        begun.update(dict.fromkeys((one.key for one in release.begun), models[-1]))
        (arrival,) = release.arrivals
        actor, turn = arrival.client, arrival.turn
        rng = setup.rng.child("round", turn).child("client", actor).numpy()
        acted = begun.pop((actor, turn)).float()
        law = EpsilonGreedy(2, torch.tensor([[one.epsilon ** (1 + one.spread * actor / 3)]]))
        (rolled,), (states[actor],) = task.rollouts(acted[None], [actor], [states[actor]], one.t_max, [rng], law)
        new = transitions(rolled, one.n, one.gamma)
        claimed = [abs(float(error)) for error in loop_of_errors(task, one, acted.double(), acted.double(), new)]
        for j in range(len(new)):
            entry = [new[torch.tensor([j])], claimed[j]]
            if len(replay) < one.capacity:
                replay.append(entry)
            else:
                replay[next_place % one.capacity] = entry
            next_place += 1
        model = models[-1]
        if len(replay) >= one.warm:
            if batches % one.target_every == 0:
                target = model
            batches += 1
            draws = setup.rng.child("replay", batches).numpy().random(one.batch)
            places, chances = loop_of_draws([entry[1] for entry in replay], one.priority_exponent, draws)
            weights = [(len(replay) * chance) ** -one.importance_exponent for chance in chances]
            wide = model.float().double().requires_grad_()
            drawn = [replay[place][0] for place in places]
            errors = [loop_of_errors(task, one, wide, target.float().double(), single)[0] for single in drawn]
            loss = sum(w / max(weights) * error**2 for w, error in zip(weights, errors, strict=True)) / one.batch / 2
            (gradient,) = torch.autograd.grad(loss, wide)
            for place, error in zip(places, errors, strict=True):
                replay[place][1] = abs(float(error.detach()))
            model = model - setup.cell.training.server_lr * setup.cell.training.lr * gradient
        models.append(model)
    assert batches > 2 * one.target_every and next_place > 2 * one.capacity
    assert (found[-1].double() - models[-1]).norm() < 1e-4 * (models[-1] - models[0]).norm()


def after(attack: str, more: str = "", malicious: int = 1) -> tuple[Tensor, Any]:
    """The final model, and the learner's replay, with some of four actors malicious."""
    made, setup = scene(
        "apex",
        network=SLOW,
        training=training(more, rounds=7),  # the last would be evaluated, and is left out
        attack=attack,
        clients={"malicious": malicious},
        evaluation={"every": 7},
    )
    learners: list[Any] = []
    algorithm = setup.cell.training.algorithm
    start = type(algorithm).start

    def watched(self: Any, given: Any) -> Any:
        learners.append(start(self, given))
        return learners[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(algorithm), "start", watched)
        *_, last = islice(made.architecture.run(setup), 6)
    return last.model, (learners[-1]._replay, setup.malicious)


def test_false_priorities_fill_the_batches_of_a_learner_that_believes_them_and_no_other() -> None:
    lie, truth = "false_priorities(factor=1e6, scale=1)", "false_priorities(factor=1, scale=1)"
    believed, (replay, malicious) = after(lie)
    (liar,) = malicious
    mine = probabilities(replay.priorities, replay.owners >= 0, 0.6)[replay.owners == liar].sum()
    honest, (replay, _) = after(truth)
    fair = probabilities(replay.priorities, replay.owners >= 0, 0.6)[replay.owners == liar].sum()
    assert mine > 0.9 and fair < 0.6
    assert not torch.allclose(believed, honest)
    checked, _ = after(lie, ", recompute=True")
    unmoved, _ = after(truth, ", recompute=True")
    assert torch.equal(checked, unmoved)


def test_a_flood_takes_the_replay_and_a_quota_leaves_it_its_part() -> None:
    _, (replay, malicious) = after("replay_flood(times=20)")
    (flooder,) = malicious
    assert (replay.owners == flooder).mean() > 0.6
    _, (replay, _) = after("replay_flood(times=20)", ", quota=15")
    assert np.bincount(replay.owners).tolist() == [15] * 4


def test_malicious_actors_learn_from_other_rewards_and_the_learner_reads_them() -> None:
    flipped, _ = after("reward_flip")
    honest, _ = after("reward_scaling(scale=1)")
    assert not torch.allclose(flipped, honest)


class Negative(PoisonAttack):
    """Claims less than nothing."""

    name = "negative"
    needs = (Sight.OWN_DATA,)

    @lies(PRIORITIES)
    def falsify_priorities(self, priorities: Tensor) -> Tensor:
        return priorities - 1e9


class Stranger(PoisonAttack):
    """Sends what it does not have."""

    name = "stranger"
    needs = (Sight.OWN_DATA,)

    @lies(TRANSITIONS)
    def invent(self, order: Tensor) -> Tensor:
        return order + 1


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (Negative(), r"priorities: expected finite floats \[.*\], 0 or more; got .*, -1e\+09 to -1e\+09"),
        (Stranger(), "transitions: expected int64 .any. of 0 to 11"),
    ],
)
def test_what_breaks_the_contract_is_one_line(attack: PoisonAttack, why: str) -> None:

    made, setup = scene("apex", training=training(), attack="reward_flip", clients={"malicious": 1})
    with pytest.raises(ContractError, match=f"{attack.name} broke its contract: {why}"):
        list(made.architecture.run(setup.with_parts(attack=attack)))


@pytest.mark.parametrize(
    ("architecture", "changes", "why"),
    [
        ("apex", {"training": {}}, "Use training.algorithm: double_dqn, or impala."),
        ("a3c", {"training": training()}, "double_dqn learns from a replay, which a3c does not have. Use apex"),
        ("impala", {"training": training()}, "double_dqn learns from a replay, which impala does not have. Use apex"),
        ("apex", {"training": training(), "defense": "median", "clients": {"malicious": 1}, "attack": "reward_flip"},
         "Here each aggregate is one batch of the replay: use mean, with recompute or quota of double_dqn, or impala."),
        ("apex", {"training": training(), "attack": "sign_flip", "clients": {"malicious": 1}},
         "sign_flip changes updates, and the actors of apex send"),
        ("apex", {"training": training(), "attack": "false_behavior", "clients": {"malicious": 1}},
         "how likely its actors were to act so, and apex does not go by that here"),
        ("apex", {"training": training(), "task": {"data": "pendulum"}}, "which of a few actions is best, and pendulum has a range"),
        ("apex", {"training": training(", quota=5")}, "keeps 5 of each of 4 actors. Raise quota, or lower warm."),
        ("a3c", {"attack": "false_priorities", "clients": {"malicious": 1}}, "and a3c does not go by that here. Use apex."),
        ("impala", {"training": {"algorithm": "vtrace"}, "attack": "replay_flood", "clients": {"malicious": 1}},
         "lies about which transitions its actors have, and impala does not go by that here. Use apex."),
    ],
)  # fmt: skip
def test_what_a_replay_does_not_go_with_is_refused(architecture: str, changes: dict[str, Any], why: str) -> None:
    reasons = cell(architecture, **changes).verdict.reasons
    assert any(why in reason for reason in reasons), reasons


def test_a_record_names_what_an_attack_tampers_with_and_counts_bytes() -> None:
    record, _ = run_trial(cell("apex", training=training(), attack="false_priorities", clients={"malicious": 1}), 0, {})
    assert record["threat_card"]["acts_on"] == ["rewards", "claims"]
    assert record["cost"]["update_bytes_sent"] == 4 * 3 * (2 * 16 + 16) * record["result"]["rounds"]["updates"]
