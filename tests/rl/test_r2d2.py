"""R2D2 against its papers as plain loops in float64; three initial states and their drift; and who lies to its replay."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import cache
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedguard.algorithms.rl.recurrent_dqn import RecurrentDQN
from fedguard.algorithms.rl.replay import ReplayBuffer
from fedguard.algorithms.rl.rescaling import invert_rescaling, rescale_values
from fedguard.algorithms.rl.sequences import Sequences, join_rollouts, last_steps, nothing_yet, sequences
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import Rollout
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.environments.masked_cartpole import MaskedCartPole
from fedguard.tasks.models.gru import GRU
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import cell, scene

SMALL = "t_max=4, n=3, burn_in=3, warm=10, capacity=30, target_every=3"
ONE = ", batch=1"
TASK = {"data": "masked_cartpole(copies=3)", "model": "gru(memory=5, inside=4)"}
SLOW = {"compute": {"seconds": 0.01, "spread": 0.8}, "link": {"latency": 0.05}}


def training(more: str = ONE, rounds: int = 4) -> dict[str, Any]:
    parameters = dict(one.split("=", 1) for one in f"{SMALL}{more}".split(", "))  # a later one takes the place
    named = ", ".join("=".join(one) for one in parameters.items())
    return {"algorithm": f"recurrent_dqn({named})", "rounds": rounds, "lr": 0.05}


def task_of(memory: int = 5, copies: int = 3, remembers: bool = True) -> EnvironmentTask:
    return EnvironmentTask.build_task(
        MaskedCartPole(copies=copies), GRU(memory=memory, inside=4, remembers=remembers), 2, Rng(0)
    )


def loud(task: EnvironmentTask, seed: int, size: float = 0.7) -> Tensor:
    """A model whose memory matters, float32 ``[d]``."""
    return size * torch.from_numpy(np.random.default_rng(seed).normal(size=task.dim)).float()


def parts_of(task: EnvironmentTask, model: Tensor) -> dict[str, Tensor]:
    named = dict(task.module.named_parameters())
    parts = torch.split(model, [parameter.numel() for parameter in named.values()])
    return {name: part.view(named[name].shape) for (name, _), part in zip(named.items(), parts, strict=True)}


def loop_of_gru(task: EnvironmentTask, model: Tensor, x: Tensor, memory: list[Any]) -> tuple[list[Any], list[Any]]:
    """One step of one copy by the formulae of Cho et al., number by number: outputs and memory."""
    p, size = parts_of(task, model), len(memory)

    def affine(name: str, row: int, given: list[Any]) -> Any:
        return sum(w * v for w, v in zip(p[f"{name}.weight"][row], given, strict=True)) + p[f"{name}.bias"][row]

    inside = [torch.tanh(affine("encoder.0", i, list(x))) for i in range(len(p["encoder.0.bias"]))]
    new = []
    for j in range(size):
        r, z = (torch.sigmoid(affine("of_input", at, inside) + affine("of_memory", at, memory)) for at in (j, size + j))
        c = torch.tanh(affine("of_input", 2 * size + j, inside) + r * affine("of_memory", 2 * size + j, memory))
        new.append((1 - z) * c + z * memory[j])
    return [affine("outputs", o, new) for o in range(len(p["outputs.bias"]))], new


def wide(*numbers: float) -> list[Tensor]:
    return [torch.tensor(number, dtype=torch.float64) for number in numbers]


def test_the_network_is_the_gated_unit_of_its_paper_and_forgets_where_an_episode_starts() -> None:
    task = task_of()
    model, rng = loud(task, 1), np.random.default_rng(2)
    seen = torch.from_numpy(rng.normal(size=(6, 3, 2))).float()
    starts = torch.from_numpy(rng.random((6, 3)) < 0.3)
    before = torch.from_numpy(rng.normal(size=(3, 5))).float()
    outputs, values, memories = task.unroll_steps(model, seen, starts, before)
    assert starts[1:].any() and not starts.all()
    for copy in range(3):
        memory = wide(*before[copy].tolist())
        for t in range(6):
            if starts[t, copy]:
                memory = wide(*[0.0] * 5)
            wanted, memory = loop_of_gru(task, model.double(), seen[t, copy].double(), memory)
            assert [*outputs[t, copy].tolist(), float(values[t, copy])] == pytest.approx(
                [float(o) for o in wanted], abs=1e-5
            )
            assert memories[t, copy].tolist() == pytest.approx([float(m) for m in memory], abs=1e-5)
    assert torch.allclose(
        task.outputs(model, seen[0])[0], task.outputs_from_memory(model, seen[0], torch.zeros(3, 5))[0]
    )


def test_a_network_that_does_not_remember_has_the_same_size_and_sees_each_step_alone() -> None:
    with_memory, without = task_of(), task_of(remembers=False)
    model = loud(without, 1)
    seen, none = torch.randn(6, 3, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(6, 3, dtype=torch.bool)
    assert with_memory.dim == without.dim
    outputs, _, _ = without.unroll_steps(model, seen, none, torch.ones(3, 5))
    assert torch.allclose(outputs, without.outputs(model, seen.flatten(0, 1))[0].view(6, 3, -1), atol=1e-6)
    assert not torch.allclose(with_memory.unroll_steps(model, seen, none, torch.ones(3, 5))[0], outputs, atol=1e-2)


def loop_of_h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def test_values_are_rescaled_by_h_and_come_back() -> None:
    numbers = [0.0, 1e-4, -0.3, 1.0, -17.0, 99.3, 5e3, -1e6]
    found = rescale_values(torch.tensor(numbers, dtype=torch.float64))
    assert found.tolist() == pytest.approx([loop_of_h(x) for x in numbers], rel=1e-12)
    for y in found.tolist():  # by bisection, which knows nothing of the closed form
        low, high = -2e6, 2e6
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if loop_of_h(middle) < y else (low, middle)
        assert float(invert_rescaling(torch.tensor(y, dtype=torch.float64))) == pytest.approx(low, rel=1e-9, abs=1e-9)
    single = torch.tensor(numbers)
    assert invert_rescaling(rescale_values(single)).tolist() == pytest.approx(single.tolist(), rel=1e-5, abs=1e-6)


def test_an_actor_remembers_within_an_episode_and_says_what_before_each_step() -> None:
    task = task_of(copies=6)
    model, state = loud(task, 3), task.start_actor(Rng(2).numpy())
    (one,), (after,) = task.rollouts(model[None], [0], [state], 60, [Rng(3).numpy()])
    assert one.memory is not None and one.memory.shape == (60, 6, 5)
    over = one.terminated | one.truncated
    starts = torch.cat([torch.ones_like(over[:1]), over[:-1]])
    assert over.any()
    assert (one.memory[starts] == 0).all() and (one.memory[~starts].abs().sum(-1) > 0).all()
    outputs, _, memories = task.unroll_steps(model, one.seen, starts, torch.zeros(6, 5))
    assert torch.allclose(memories[:-1][~over[:-1]], one.memory[1:][~over[:-1]], atol=1e-5)
    assert torch.allclose(task.policy.log_prob(outputs, one.actions), one.behavior, atol=1e-5)
    (second,), _ = task.rollouts(model[None], [0], [after], 1, [Rng(4).numpy()])
    assert second.memory is not None
    kept = torch.where(over[-1][:, None], torch.zeros(6, 5), memories[-1])
    assert torch.allclose(second.memory[0], kept, atol=1e-5)


def test_an_evaluation_remembers_and_forgets_with_its_episodes() -> None:
    task = task_of()
    model = loud(task, 9, 2.0)
    model[-3:] = 0  # so that actions follow what is seen and remembered
    world = task.environment
    state, memory = world.start_episodes(100, task.rng.child("test").numpy()), torch.zeros(100, 5)
    returns, playing = np.zeros(100), np.ones(100, bool)
    while playing.any():
        outputs, _, memory = task.outputs_from_memory(model, torch.from_numpy(world.observe_state(state)), memory)
        step = world.take_step(state, outputs.argmax(-1).numpy())
        returns += playing
        playing &= ~(step.terminated | step.truncated)
        state = step.state
    assert task.evaluate(model).returns == tuple(returns.tolist())
    assert task_of(remembers=False).evaluate(model).returns != tuple(returns.tolist())


def given(task: EnvironmentTask, steps: int = 11, copies: int = 9, seed: int = 4) -> Sequences:
    """Sequences with ends in all places, and any memory before them."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(6, size=(copies, steps))
    seen, after = rng.normal(size=(2, copies, steps, *task.shape))
    actions, rewards = rng.integers(2, size=(copies, steps)), rng.normal(size=(copies, steps))
    memory = rng.normal(size=(copies, task.memory))
    parts = [torch.from_numpy(part) for part in (seen, actions, rewards, ends == 0, ends == 1, after, memory)]
    return Sequences(*(part.float() if part.is_floating_point() else part for part in parts))


def loop_of_q(one: RecurrentDQN, out: list[Any]) -> list[Any]:
    if not one.dueling:
        return out[:-1]
    return [out[-1] + a - sum(out[:-1]) / len(out[:-1]) for a in out[:-1]]


def loop_of_views(
    task: EnvironmentTask, one: RecurrentDQN, vector: Tensor, some: Sequences, j: int
) -> tuple[list[Any], list[Any]]:
    """Q before and after each step of sequence j, by one who unrolls it step by step; no gradient through the burn-in."""
    stored = some.memory[j].tolist()
    memory = wide(*(stored if one.initial_state == "stored" else [0.0] * len(stored)))
    before, after = [], []
    for t in range(len(some.rewards[j])):
        if t and (some.terminated[j, t - 1] or some.truncated[j, t - 1]):
            memory = wide(*[0.0] * len(stored))
        if t == one.burn_in:
            memory = [m.detach() for m in memory]
        out, memory = loop_of_gru(task, vector, some.seen[j, t].double(), memory)
        before.append(loop_of_q(one, out))
        after.append(loop_of_q(one, loop_of_gru(task, vector, some.after[j, t].double(), memory)[0]))
    return before, after


def loop_of_inverse(y: float) -> float:
    root = (math.sqrt(1 + 4e-3 * (abs(y) + 1 + 1e-3)) - 1) / 2e-3
    return math.copysign(root**2 - 1, y)


def loop_of_errors(
    task: EnvironmentTask, one: RecurrentDQN, model: Tensor, target: Tensor, some: Sequences
) -> list[list[Any]]:
    errors = []
    for j in range(len(some)):
        before, online = loop_of_views(task, one, model, some, j)
        _, other = loop_of_views(task, one, target, some, j)
        steps, row = len(before), []
        for t in range(one.burn_in, steps):
            total, k = 0.0, 0
            while True:
                total += one.gamma**k * float(some.rewards[j, t + k])
                over = bool(some.terminated[j, t + k] or some.truncated[j, t + k])
                if over or k + 1 == one.n or t + k + 1 == steps:
                    break
                k += 1
            chooser = [float(q.detach()) for q in (online if one.double else other)[t + k]]
            worth = float(other[t + k][chooser.index(max(chooser))].detach())
            if not some.terminated[j, t + k]:
                total += one.gamma ** (k + 1) * (loop_of_inverse(worth) if one.rescale else worth)
            row.append((loop_of_h(total) if one.rescale else total) - before[t][int(some.actions[j, t])])
        errors.append(row)
    return errors


PARTS: list[dict[str, Any]] = [
    {},
    {"rescale": False},
    {"double": False},
    {"dueling": False},
    {"initial_state": "zero"},
    {"burn_in": 0},
]


@cache
def batch() -> tuple[EnvironmentTask, Tensor, Tensor, Sequences, Tensor]:
    """What a gradient is taken of: a task, the model, the target, sequences and their weights."""
    task = task_of(memory=3)
    weights = torch.from_numpy(np.random.default_rng(0).random(4)).float()
    return task, loud(task, 1), loud(task, 2), given(task, 8, 4), weights


@cache
def gradients() -> list[tuple[Tensor, Tensor]]:
    return [RecurrentDQN(**{"burn_in": 4, "n": 3, **parts}).gradient(*batch()) for parts in PARTS]


@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_a_gradient_is_that_of_the_paper_and_each_part_can_be_switched_off(parts: dict[str, Any]) -> None:
    task, model, target, some, weights = batch()
    one = RecurrentDQN(**{"burn_in": 4, "n": 3, **parts})
    found, errors = gradients()[PARTS.index(parts)]
    vector = model.double().requires_grad_()
    wanted = loop_of_errors(task, one, vector, target.double(), some)
    assert errors.flatten().tolist() == pytest.approx([float(e.detach()) for row in wanted for e in row], abs=2e-4)
    loss = sum(float(w) * sum(e**2 for e in row) / len(row) for w, row in zip(weights, wanted, strict=True))
    (gradient,) = torch.autograd.grad(loss / len(some) / 2, vector)
    assert (found - gradient).norm() < 1e-4 * gradient.norm()
    eta = one.largest_share
    sizes = [[abs(float(e.detach())) for e in row] for row in wanted]
    priorities = [eta * max(row) + (1 - eta) * sum(row) / len(row) for row in sizes]
    assert one.surprise(errors).tolist() == pytest.approx(priorities, abs=2e-4)
    assert all((found - other).norm() > 1e-3 for other, _ in gradients() if other is not found)


def test_the_first_steps_are_unrolled_and_not_learned_from() -> None:
    """What was rewarded and done in the burn-in changes nothing; what was seen there does."""
    task, one = task_of(), RecurrentDQN(burn_in=4, n=3)
    model, target, some = loud(task, 1), loud(task, 2), given(task)
    errors = one.errors(task, model, target, some)
    rewards, actions, seen = some.rewards.clone(), some.actions.clone(), some.seen.clone()
    rewards[:, :4], actions[:, :4], seen[:, :4] = 7.0, 1 - actions[:, :4], seen[:, :4] + 1
    assert torch.equal(one.errors(task, model, target, replace(some, rewards=rewards, actions=actions)), errors)
    assert not torch.allclose(one.errors(task, model, target, replace(some, seen=seen)), errors, atol=1e-3)


def test_an_episode_that_ends_with_the_burn_in_is_forgotten_before_the_first_step_that_is_learned_from() -> None:
    """Its last step lies before what is learned from, and the memory that comes of it does not."""
    task, one = task_of(memory=3), RecurrentDQN(burn_in=4, n=3)
    model, target, some = loud(task, 1), loud(task, 2), given(task, 8, 3)
    terminated, truncated = torch.zeros_like(some.terminated), torch.zeros_like(some.truncated)
    terminated[0, 3], truncated[1, 3] = True, True  # of the third, no episode ends
    ended = replace(some, terminated=terminated, truncated=truncated)
    found = one.errors(task, model, target, ended)
    wanted = loop_of_errors(task, one, model.double(), target.double(), ended)
    assert found.flatten().tolist() == pytest.approx([float(e.detach()) for row in wanted for e in row], abs=2e-4)
    through = one.errors(task, model, target, replace(ended, terminated=truncated & False, truncated=truncated & False))
    assert ((found - through).abs().amax(1) > 1e-3).tolist() == [True, True, False]


def part(rollout: Rollout, first: int, last: int) -> Rollout:
    return Rollout(*(one[first:last] for one in rollout.parts))


@pytest.mark.parametrize("burn_in", [0, 3, 9])
def test_sequences_overlap_by_the_burn_in_and_start_with_what_was_remembered(burn_in: int) -> None:
    task = task_of()
    model, state = loud(task, 3), task.start_actor(Rng(2).numpy())
    (whole,), _ = task.rollouts(model[None], [0], [state], 24, [Rng(3).numpy()])
    past = nothing_yet(part(whole, 0, 4), burn_in)
    for first in range(0, 24, 4):
        window = join_rollouts(past, part(whole, first, first + 4))
        past = last_steps(window, burn_in)
        found = sequences(window, 0.5)
        assert found.rewards.shape == (3, burn_in + 4)
        for back in range(burn_in + 4):  # from the last step of the sequence
            t, at = first + 3 - back, burn_in + 3 - back
            if t < 0:
                assert (found.seen[:, at] == 0).all()
                continue
            assert torch.equal(found.seen[:, at], whole.seen[t]) and torch.equal(found.after[:, at], whole.after[t])
            assert torch.equal(found.actions[:, at], whole.actions[t])
            assert torch.equal(found.rewards[:, at], 0.5 * whole.rewards[t])
        start = first - burn_in
        assert torch.equal(found.memory, whole.memory[start] if start >= 0 else torch.zeros(3, 5))
        if start < 0:  # the episode starts with the first step that there was
            assert found.starts is not None and found.in_time().starts()[-start].all()


def drift(steps: int, state: str, size: float, factor: float = 1.0) -> float:
    """Mean of $|q(state) - q(fresh)|$ over all actions: of the first step that is learned from after so many steps of burn-in,
    where the actor's model was another than the learner's, and its memory is told times a factor; fresh is what the learner's network remembers from the start of
    the episode on."""
    task = EnvironmentTask.build_task(MaskedCartPole(copies=40), GRU(memory=16, inside=16), 1, Rng(0))
    model = task.initial_model(Rng(1))
    acted = model + size * torch.from_numpy(np.random.default_rng(0).normal(size=task.dim)).float()
    (one,), _ = task.rollouts(acted[None], [0], [task.start_actor(Rng(2).numpy())], 30, [Rng(3).numpy()])
    over = (one.terminated | one.truncated).cumsum(0)
    at = 12
    whole = over[at] == 0  # copies whose first episode is still on
    nothing = torch.zeros(at + 1, 40, dtype=torch.bool)
    algorithm = RecurrentDQN(burn_in=steps, initial_state=state)  # type: ignore[arg-type]
    window = sequences(part(one, at - steps, at + 1))[whole]
    window = replace(window, memory=factor * window.memory)
    found, _ = algorithm.action_values(task, model, window.in_time())
    outputs, values, _ = task.unroll_steps(model, one.seen[: at + 1], nothing, torch.zeros(40, 16))
    fresh = algorithm.worth(outputs[-1], values[-1])[whole]
    assert whole.sum() > 10 and len(found) == 1
    return float((found[0] - fresh).abs().mean())


def test_drift_falls_with_burn_in_and_a_stored_state_drifts_less_than_none() -> None:
    stored = [drift(steps, "stored", 0.1) for steps in (0, 2, 4, 8)]
    zero = [drift(steps, "zero", 0.1) for steps in (0, 2, 4, 8)]
    assert all(more > less for more, less in pairwise(stored)), stored
    assert all(more > less for more, less in pairwise(zero)), zero
    assert stored[0] < zero[0] and stored[-1] < 0.2 * stored[0]
    assert drift(12, "zero", 0.1) < 1e-6  # the whole episode
    assert drift(0, "stored", 0.0) < 1e-6  # the same model


def after(attack: str, more: str = "", rounds: int = 5) -> tuple[Tensor, Any, float]:
    """The final model, the learner's replay, and the share of what it drew that is of the malicious one of four actors."""
    made, setup = scene(
        "r2d2",
        network=SLOW,
        task=TASK,
        training=training(more + ONE, rounds=rounds + 1),  # the last would be evaluated, and is left out
        attack=attack,
        clients={"malicious": 1},
        evaluation={"every": rounds + 1},
    )
    learners: list[Any] = []
    owners: list[int] = []
    start, drawn = RecurrentDQN.start, ReplayBuffer.sample_indices

    def seen(self: Any, *given: Any) -> Any:
        places, chances = drawn(self, *given)
        owners.extend(self.owners[places].tolist())
        return places, chances

    def watched(self: Any, given: Any) -> Any:
        learners.append(start(self, given))
        return learners[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecurrentDQN, "start", watched)
        patch.setattr(ReplayBuffer, "sample_indices", seen)
        *_, last = islice(made.architecture.run(setup), rounds)
    (liar,) = setup.malicious
    return last.model, learners[-1]._replay, owners.count(liar) / len(owners)


def test_false_priorities_fill_the_batches_of_a_learner_that_believes_them_and_no_other() -> None:
    lie, truth = "false_priorities(factor=1e6, scale=1)", "false_priorities(factor=1, scale=1)"
    believed, _, mine = after(lie)
    honest, _, fair = after(truth)
    assert mine > 0.7 and fair < 0.5
    assert not torch.allclose(believed, honest)
    checked, *_ = after(lie, ", recompute=True")
    unmoved, *_ = after(truth, ", recompute=True")
    assert torch.equal(checked, unmoved)


def test_a_flood_takes_the_replay_and_a_quota_leaves_it_its_part() -> None:
    _, replay, _ = after("replay_flood(times=20)")
    assert np.bincount(replay.owners).max() > 0.6 * len(replay)
    _, replay, _ = after("replay_flood(times=20)", ", quota=7")
    assert np.bincount(replay.owners[replay.owners >= 0]).tolist() == [7] * 4


def test_a_false_memory_reaches_a_learner_that_starts_from_it_and_no_other() -> None:
    lie, truth = "false_memory(factor=-10, scale=1)", "false_memory(factor=1, scale=1)"
    (believed, *_), (honest, *_) = after(lie), after(truth)
    assert not torch.allclose(believed, honest)
    wait = ", warm=72, capacity=90"  # all 24 messages are there before anything is learned
    (_, told, _), (_, true, _) = after(lie, wait, rounds=6), after(truth, wait, rounds=6)
    said, was = (replay.at(np.arange(len(true))).memory for replay in (told, true))
    (liar,) = set(true.owners[: len(true)][(said != was).any(1).numpy()].tolist())
    mine = torch.from_numpy(true.owners[: len(true)] == liar)
    assert torch.equal(said[mine], -10 * was[mine]) and torch.equal(said[~mine], was[~mine])
    unheard, *_ = after(lie, ", initial_state='zero', recompute=True")
    unmoved, *_ = after(truth, ", initial_state='zero', recompute=True")
    assert torch.equal(unheard, unmoved)


def test_burn_in_forgets_a_false_memory() -> None:
    moved = [drift(steps, "stored", 0.0, -10.0) for steps in (0, 2, 4, 8)]
    assert all(more > less for more, less in pairwise(moved)), moved
    assert moved[0] > 0.1 and moved[-1] < 0.05 * moved[0]


def test_malicious_actors_learn_from_other_rewards_and_the_learner_reads_them() -> None:
    flipped, *_ = after("reward_flip")
    honest, *_ = after("reward_scaling(scale=1)")
    assert not torch.allclose(flipped, honest)


def test_what_actors_that_nobody_waits_for_send_goes_on_where_their_last_sequences_ended() -> None:
    made, setup = scene("r2d2", network=SLOW, task=TASK, training=training(rounds=6), evaluation={"every": 6})
    sent: dict[int, list[Sequences]] = {}
    add = ReplayBuffer.add

    def seen(self: Any, actor: int, new: Any, priorities: Any) -> None:
        sent.setdefault(actor, []).append(new)
        add(self, actor, new, priorities)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplayBuffer, "add", seen)
        list(islice(made.architecture.run(setup), 5))
    assert sum(map(len, sent.values())) == 20 and max(map(len, sent.values())) > 4
    for of_one in sent.values():
        assert (of_one[0].seen[:, :3] == 0).all() and (of_one[0].memory == 0).all()
        for before, then in pairwise(of_one):
            for name in [field.name for field in fields(Sequences) if field.name != "memory"]:
                assert torch.equal(getattr(before, name)[:, -3:], getattr(then, name)[:, :3])
            on = ~(before.terminated | before.truncated)[:, -1]
            assert torch.equal(before.after[on, -1], then.seen[on, 3])


@pytest.mark.parametrize(
    ("architecture", "changes", "why"),
    [
        ("r2d2", {"training": {"algorithm": "double_dqn"}},
         "double_dqn draws from the replay of apex, and r2d2 has another. Use training.algorithm: recurrent_dqn, or apex."),
        ("apex", {"training": training()},
         "recurrent_dqn draws from the replay of r2d2, and apex has another. Use training.algorithm: double_dqn, or r2d2."),
        ("r2d2", {"training": {}}, "Use training.algorithm: recurrent_dqn, or impala."),
        ("a3c", {"training": training()}, "recurrent_dqn learns from a replay, which a3c does not have. Use r2d2"),
        ("apex", {"training": {"algorithm": "double_dqn"}, "task": TASK},
         "gru remembers from one step to the next, and double_dqn learns from each by itself. Use recurrent_dqn, or a model"),
        ("r2d2", {"training": training(", quota=2")}, "starts with 10 sequences, and the replay keeps 2 of each of 4 actors"),
        ("r2d2", {"training": training(), "task": {"data": "pendulum"}}, "which of a few actions is best, and pendulum has a range"),
        ("r2d2", {"training": training(), "defense": "median", "clients": {"malicious": 1}, "attack": "reward_flip"},
         "use mean, with recompute or quota of recurrent_dqn"),
        ("r2d2", {"training": training(), "attack": "sign_flip", "clients": {"malicious": 1}},
         "sign_flip changes updates, and the actors of r2d2 send"),
        ("r2d2", {"training": training(), "attack": "false_behavior", "clients": {"malicious": 1}},
         "how likely its actors were to act so, and r2d2 does not go by that here"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(architecture: str, changes: dict[str, Any], why: str) -> None:
    reasons = cell(architecture, **changes).verdict.reasons
    assert any(why in reason for reason in reasons), reasons


def test_a_record_counts_the_bytes_of_sequences_with_what_was_remembered() -> None:
    record, _ = run_trial(cell("r2d2", task=TASK, training=training()), 0, {})
    one = 3 * (7 * (8 + 9) + 8 + 4 * 5 + 4)
    assert record["cost"]["update_bytes_sent"] == one * record["result"]["rounds"]["updates"]


def test_a_network_without_memory_goes_as_well() -> None:
    task = EnvironmentTask.build_task(CartPole(copies=3), MLP(hidden=(8,)), 3, Rng(0))
    some = given(task)
    assert task.memory == 0 and some.memory.shape == (9, 0)
    errors = RecurrentDQN(burn_in=4).errors(task, loud(task, 1), loud(task, 2), some)
    assert errors.shape == (9, 7)
    record, _ = run_trial(cell("r2d2", training=training()), 0, {})
    assert record["result"]["rounds"]["updates"] > 0
