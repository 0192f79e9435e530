"""Dreamer against its papers as plain loops in float64; what each part of a gradient reaches; and who lies to its replay."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy import stats as laws
from torch import Tensor

from fedguard.algorithms.rl.dreaming import Dreaming
from fedguard.algorithms.rl.imagination import (
    Weights,
    divergence,
    imagine_rollout,
    infer_posterior,
    lambda_returns,
    world_loss,
)
from fedguard.algorithms.rl.replay import ReplayBuffer
from fedguard.algorithms.rl.sequences import Sequences
from fedguard.bench.running.trial import run_trial
from fedguard.rng import Rng
from fedguard.tasks.environments.pendulum import Pendulum
from fedguard.tasks.models.rssm import RSSM
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import cell, scene

FIXED, CHANCE, INSIDE = 4, 3, 5
STATE = FIXED + CHANCE
TASK = {"data": "pendulum(copies=2)", "model": f"rssm(fixed={FIXED}, chance={CHANCE}, inside={INSIDE})"}
WEIGHTS = Weights(free=1.5, prior=0.5, posterior=0.1)


def training(more: str = "", rounds: int = 4) -> dict[str, Any]:
    return {
        "algorithm": f"dreaming(t_max=4, batch=3, warm=8, capacity=60, horizon=3, dreams=5, target_every=3{more})",
        "rounds": rounds,
        "lr": 0.05,
    }


def task_of(copies: int = 2) -> EnvironmentTask:
    return EnvironmentTask.build_task(
        Pendulum(copies=copies), RSSM(fixed=FIXED, chance=CHANCE, inside=INSIDE), 2, Rng(0)
    )


def loud(task: EnvironmentTask, seed: int = 1) -> Tensor:
    """A model all parts of which matter, float64 ``[d]``."""
    return 0.5 * torch.from_numpy(np.random.default_rng(seed).normal(size=task.dim))


def normal(*shape: int, seed: int = 3) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def given(task: EnvironmentTask, steps: int = 6, copies: int = 5) -> Sequences:
    """Sequences with ends in all places, float64, with actions beyond the bounds, too."""
    rng = np.random.default_rng(4)
    ends = rng.integers(5, size=(copies, steps))
    seen, after = rng.normal(size=(2, copies, steps, *task.shape))
    parts = (
        seen,
        2 * rng.normal(size=(copies, steps, 1)),
        rng.normal(size=(copies, steps)),
        ends == 0,
        ends == 1,
        after,
    )
    return Sequences(*map(torch.from_numpy, parts), torch.zeros(copies, 0))


class Loop:
    """The formulae of the papers, of one state at a time, with each product of a matrix written out."""

    def __init__(self, task: EnvironmentTask, model: Tensor) -> None:
        named = dict(task.module.named_parameters())
        pieces = torch.split(model, [one.numel() for one in named.values()])
        self.p = {name: piece.view(named[name].shape) for name, piece in zip(named, pieces, strict=True)}

    def affine(self, name: str, x: Tensor) -> Tensor:
        return (self.p[f"{name}.weight"] * x).sum(1) + self.p[f"{name}.bias"]

    def layers(self, name: str, x: Tensor, last: int) -> Tensor:
        for at in range(0, last, 2):
            x = self.affine(f"{name}.{at}", x)
            x = x / (1 + torch.exp(-x))
        return self.affine(f"{name}.{last}", x)

    def h(self, state: Tensor, heard: Tensor) -> Tensor:
        h, z = state[:FIXED], state[FIXED:]
        inside = self.affine("mixer.0", torch.cat([z, heard]))
        inside = inside / (1 + torch.exp(-inside))
        given, kept = self.affine("of_input", inside), self.affine("of_fixed", h)
        new = []
        for j in range(FIXED):
            r = 1 / (1 + torch.exp(-given[j] - kept[j]))
            u = 1 / (1 + torch.exp(-given[FIXED + j] - kept[FIXED + j]))
            c = torch.tanh(given[2 * FIXED + j] + r * kept[2 * FIXED + j])
            new.append((1 - u) * c + u * h[j])
        return torch.stack(new)

    @staticmethod
    def normal(outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs[:CHANCE], torch.log(1 + torch.exp(outputs[CHANCE:])) + 0.1

    def prior(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return self.normal(self.layers("of_prior", h, 2))

    def posterior(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        read = self.affine("encoder.0", symlog(x))
        return self.normal(self.layers("of_posterior", torch.cat([h, read / (1 + torch.exp(-read))]), 2))

    def told(self, what: str, state: Tensor) -> Tensor:
        return self.layers(what, state, 4)


def symlog(x: Tensor) -> Tensor:
    return torch.stack([torch.sign(one) * torch.log(1 + torch.abs(one)) for one in x])


def heard(torque: Tensor) -> Tensor:
    b = min(max(float(torque) / 2, -1.0), 1.0)
    return torch.tensor([b, b * b], dtype=torch.float64)


def test_lambda_returns_are_the_mixture_of_the_paper() -> None:
    r"""$V_lambda = (1 - lambda) sum_{n=1}^{H-1} lambda^{n-1} V^n + lambda^{H-1} V^H$ of returns that look n steps ahead."""
    horizon, share = 5, 0.8
    rewards, values = normal(horizon, 3), normal(horizon + 1, 3, seed=5)
    discounts = normal(horizon, 3, seed=6).sigmoid()
    found = lambda_returns(rewards, discounts, values, share)
    for dream in range(3):
        for k in range(horizon):

            def ahead(n: int, k: int = k, dream: int = dream) -> float:
                total, counts = 0.0, 1.0
                for j in range(k, k + n):
                    total += counts * float(rewards[j, dream])
                    counts *= float(discounts[j, dream])
                return total + counts * float(values[k + n, dream])

            left = horizon - k
            wanted = sum((1 - share) * share ** (n - 1) * ahead(n) for n in range(1, left)) + share ** (
                left - 1
            ) * ahead(left)
            assert float(found[k, dream]) == pytest.approx(wanted, rel=1e-12)


def test_a_divergence_is_the_integral_that_it_stands_for() -> None:
    means, spreads = normal(2, 4), normal(2, 4, seed=8).exp()
    found = divergence((means[0], spreads[0]), (means[1], spreads[1]))
    wanted = 0.0
    for i in range(4):
        one, other = (laws.norm(float(means[k, i]), float(spreads[k, i])) for k in (0, 1))
        ends = one.mean() - 12 * one.std(), one.mean() + 12 * one.std()
        wanted += integrate.quad(lambda x: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), *ends, limit=200)[0]  # noqa: B023
    assert float(found) == pytest.approx(wanted, rel=1e-7)


def test_who_acts_believes_the_posteriors_mean_and_hears_what_it_did() -> None:
    task, seen = task_of(), normal(2, 3)
    model = loud(task)
    memory = normal(2, task.memory, seed=9)
    outputs, values, after = task.outputs_from_memory(model, seen, memory)
    actions = torch.tensor([[1.0], [-7.0]])
    noted = task.remember_actions(after, actions)
    loop = Loop(task, model)
    for copy in range(2):
        h = loop.h(memory[copy, :STATE], memory[copy, STATE:])
        state = torch.cat([h, loop.posterior(h, seen[copy])[0]])
        assert torch.allclose(outputs[copy], loop.told("actor", state))
        assert float(values[copy]) == pytest.approx(float(loop.told("critic", state)))
        assert torch.allclose(noted[copy], torch.cat([state, heard(actions[copy])]))
    assert torch.allclose(
        task.outputs(model, seen)[0], task.outputs_from_memory(model, seen, torch.zeros_like(memory))[0]
    )


def test_an_actor_remembers_within_an_episode_and_what_it_did_last() -> None:
    task = task_of()
    model = loud(task).float()
    (one,), (after,) = task.rollouts(model[None], [0], [task.start_actor(Rng(2).numpy())], 203, [Rng(3).numpy()])
    memory = one.memory
    assert memory is not None and memory.shape == (203, 2, STATE + 2)
    assert (memory[0] == 0).all() and (memory[200] == 0).all() and one.truncated[199].all()
    others = [t for t in range(1, 203) if t != 200]
    assert torch.allclose(memory[others, :, STATE:], task.policy.encode_actions(one.actions[[t - 1 for t in others]]))
    outputs, _, kept = task.outputs_from_memory(model, one.seen[50], memory[50])
    assert torch.allclose(task.remember_actions(kept, one.actions[50]), memory[51], atol=1e-6)
    assert torch.allclose(task.policy.log_prob(outputs, one.actions[50]), one.behavior[50], atol=1e-5)
    (then,), _ = task.rollouts(model[None], [0], [after], 1, [Rng(4).numpy()])
    assert then.memory is not None and torch.allclose(
        then.memory[0, :, STATE:], task.policy.encode_actions(one.actions[-1])
    )


def test_an_evaluation_hears_what_it_does() -> None:
    task = task_of()
    model = loud(task).float()
    actor = parts_of(task)["actor"]
    model[actor] *= 0.4  # so that most torques are within their bounds
    world, memory = task.environment, torch.zeros(100, task.memory)
    state, total = world.start_episodes(100, task.rng.child("test").numpy()), np.zeros(100)
    for _ in range(200):
        outputs, _, memory = task.outputs_from_memory(model, torch.from_numpy(world.observe_state(state)), memory)
        torques = 2 * outputs[:, :1]
        memory[:, STATE:] = torch.cat([(torques / 2).clamp(-1, 1), (torques / 2).clamp(-1, 1) ** 2], -1)
        step = world.take_step(state, torques.numpy())
        total, state = total + step.rewards, step.state
    assert task.evaluate(model).returns == pytest.approx(total.tolist(), rel=1e-5)


def loop_of_world(loop: Loop, some: Sequences, noise: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
    """The world's loss, and the states after each step of each sequence."""
    total, kept, count = torch.zeros((), dtype=torch.float64), [], some.rewards.numel()
    zero = torch.zeros(STATE, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for j in range(len(some)):
        states: list[Tensor] = []
        for t in range(len(some.rewards[j])):
            if t == 0 or some.terminated[j, t - 1] or some.truncated[j, t - 1]:
                h = loop.h(*zero)
                mean, spread = loop.posterior(h, some.seen[j, t])
                before = torch.cat([h, mean + spread * noise[0, t, j]])
            else:
                before = states[-1]
            h = loop.h(before, heard(some.actions[j, t]))
            q, p = loop.posterior(h, some.after[j, t]), loop.prior(h)
            state = torch.cat([h, q[0] + q[1] * noise[1, t, j]])
            states.append(state)
            picture = ((loop.told("decoder", state) - symlog(some.after[j, t])) ** 2).sum() / 2
            reward = (loop.told("reward", state)[0] - some.rewards[j, t]) ** 2 / 2
            lasts = 1 / (1 + torch.exp(-loop.told("end", state)[0]))
            end = -torch.log(1 - lasts if some.terminated[j, t] else lasts)
            stopped = [tuple(one.detach() for one in belief) for belief in (q, p)]
            both = []
            for (m, s), (m_, s_) in ((stopped[0], p), (q, stopped[1])):
                apart = (torch.log(s_ / s) + (s**2 + (m - m_) ** 2) / (2 * s_**2) - 0.5).sum()
                both.append(apart if apart > WEIGHTS.free else torch.tensor(WEIGHTS.free, dtype=torch.float64))
            total = total + (picture + reward + end + 0.5 * both[0] + 0.1 * both[1]) / count
        kept.append(states)
    return total, kept


def test_a_world_is_learned_as_its_papers_say() -> None:
    task, some = task_of(), given(task_of())
    model = loud(task).requires_grad_()
    noise = normal(2, 6, 5, CHANCE)
    stands = task.policy.encode_actions(some.in_time().actions)
    found, states = task.within(model, world_loss, some.in_time(), stands, noise, WEIGHTS)
    wanted, kept = loop_of_world(Loop(task, model), some, noise)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=1e-10)
    assert torch.allclose(states, torch.stack([torch.stack(one) for one in kept], 1))
    ours, theirs = (torch.autograd.grad(loss, model)[0] for loss in (found, wanted))
    assert torch.allclose(ours, theirs, atol=1e-10) and ours.norm() > 0.1


def test_what_is_free_is_reached_by_some_states_and_not_by_others() -> None:
    """So that the test above sees both sides of the free nats."""
    task = task_of()
    some = given(task).in_time()
    states, q = task.within(
        loud(task), infer_posterior, some, task.policy.encode_actions(some.actions), normal(2, 6, 5, CHANCE)
    )
    p = task.within(loud(task), lambda net, h: net.prior(h), states[..., :FIXED])
    apart = divergence(q, p)
    assert (apart > WEIGHTS.free).any() and (apart < WEIGHTS.free).any(), apart


def loop_of_dream(
    loop: Loop, one: Dreaming, state: Tensor, noise: Tensor, draws: Tensor
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    states, outputs, rewards, lasts = [state], [], [], []
    for of_state, of_action in zip(noise, draws, strict=True):
        told = loop.told("actor", states[-1].detach())
        b = (told[0] + (torch.log(1 + torch.exp(told[1])) + 1e-3) * of_action[0]).clamp(-1, 1)
        h = loop.h(states[-1], torch.stack([b, b * b]))
        mean, spread = loop.prior(h)
        states.append(torch.cat([h, mean + spread * of_state]))
        outputs.append(told)
        rewards.append(loop.told("reward", states[-1])[0])
        lasts.append(1 / (1 + torch.exp(-loop.told("end", states[-1])[0])))
    return states, outputs, rewards, lasts


def test_a_dream_is_what_the_prior_foresees_of_what_the_actor_does() -> None:
    task = task_of()
    model, start, noise, draws = loud(task), normal(4, STATE), normal(3, 4, CHANCE, seed=5), normal(3, 4, 1, seed=6)
    dream = task.within(model, imagine_rollout, task.policy, start, noise, draws)
    for n in range(4):
        found = loop_of_dream(Loop(task, model), Dreaming(), start[n], noise[:, n], draws[:, n])
        for ours, theirs in zip((dream.states, dream.outputs, dream.rewards, dream.lasts), found, strict=True):
            assert torch.allclose(ours[:, n], torch.stack(theirs), atol=1e-6)  # the policy draws in float32


SMALL = Dreaming(horizon=3, dreams=7, share=0.8, entropy=0.3, free=1.5)


def parts_of(task: EnvironmentTask) -> dict[str, Tensor]:
    """Of each part, which entries of a model are its own, bool ``[d]``."""
    heads = [(name.partition(".")[0], one.numel()) for name, one in task.module.named_parameters()]
    of_each = [head if head in ("actor", "critic") else "world" for head, size in heads for _ in range(size)]
    return {part: torch.tensor([one == part for one in of_each]) for part in ("world", "actor", "critic")}


def test_each_loss_moves_its_own_part_alone() -> None:
    task = task_of()
    model = loud(task).requires_grad_()
    losses = SMALL.losses(task, model, loud(task, 2), given(task), np.random.default_rng(0))
    mine = parts_of(task)
    for part, loss in zip(("world", "actor", "critic"), losses, strict=True):
        (gradient,) = torch.autograd.grad(loss, model, retain_graph=True)
        assert (gradient[~mine[part]] == 0).all(), part
        assert (gradient[mine[part]] != 0).double().mean() > 0.9, part


def test_a_gradient_is_that_of_the_papers_three_losses() -> None:
    task, some = task_of(), given(task_of())
    model, target = loud(task), loud(task, 2)
    found = SMALL.gradient(task, model, target, some, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    noise = torch.from_numpy(rng.standard_normal((2, 6, 5, CHANCE)))
    chosen = rng.permutation(30)[:7]
    of_states, of_actions = (torch.from_numpy(rng.standard_normal((3, 7, size))) for size in (CHANCE, 1))
    vector = model.clone().requires_grad_()
    loop, before = Loop(task, vector), Loop(task, target)
    world, kept = loop_of_world(loop, some, noise)
    starts = [kept[place % 5][place // 5].detach() for place in chosen]
    actor = critic = torch.zeros((), dtype=torch.float64)
    for n, start in enumerate(starts):
        states, outputs, rewards, lasts = loop_of_dream(loop, SMALL, start, of_states[:, n], of_actions[:, n])
        values = [before.told("critic", state)[0] for state in states]
        follows, returns = values[-1], []
        for k in (2, 1, 0):
            follows = rewards[k] + 0.97 * lasts[k] * (0.2 * values[k + 1] + 0.8 * follows)
            returns.insert(0, follows)
        counts = 1.0
        for k in range(3):
            spread = torch.log(1 + torch.exp(outputs[k][1])) + 1e-3
            entropy = torch.log(2 * spread * math.sqrt(2 * math.pi * math.e))
            actor = actor - (counts * returns[k] + 0.3 * entropy) / 21
            value = loop.told("critic", states[k].detach())[0]
            critic = critic + counts * (value - returns[k].detach()) ** 2 / 42
            counts *= 0.97 * float(lasts[k].detach())
    wanted = torch.zeros_like(found)
    for part, loss in (("world", world), ("actor", actor), ("critic", critic)):
        mine = parts_of(task)[part]
        wanted[mine] = torch.autograd.grad(loss, vector, retain_graph=True)[0][mine]
    assert (found - wanted).norm() < 1e-5 * wanted.norm()
    clipped = Dreaming(horizon=3, dreams=7, clip=0.01).gradient(task, model, target, some, np.random.default_rng(0))
    assert float(clipped.norm()) == pytest.approx(0.01)


def after(attack: str, more: str = "", rounds: int = 5) -> tuple[Tensor, Any]:
    """The model after so many rounds, of which none is evaluated, and the learner's replay."""
    made, setup = scene(
        "dreamer", task=TASK, training=training(more, rounds + 1), attack=attack, clients={"malicious": 1},
        evaluation={"every": rounds + 1},
    )  # fmt: skip
    learners: list[Any] = []
    start = Dreaming.start

    def watched(self: Any, given: Any) -> Any:
        learners.append(start(self, given))
        return learners[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dreaming, "start", watched)
        *_, last = islice(made.architecture.run(setup), rounds)
    return last.model, learners[-1]._replay


def test_a_flood_takes_the_replay_and_a_quota_leaves_it_its_part() -> None:
    _, replay = after("replay_flood(times=20)")
    assert np.bincount(replay.owners[replay.owners >= 0]).max() > 0.6 * len(replay)
    _, replay = after("replay_flood(times=20)", ", quota=7")
    assert np.bincount(replay.owners[replay.owners >= 0]).tolist() == [7] * 4


def test_the_learner_models_the_rewards_that_it_is_told() -> None:
    flipped, replay = after("reward_flip")
    honest, _ = after("reward_scaling(scale=1)")
    assert not torch.allclose(flipped, honest)
    rewards = replay.at(np.flatnonzero(replay.owners >= 0)).rewards
    owners = replay.owners[replay.owners >= 0]
    assert sum(bool((rewards[owners == one] > 0).any()) for one in range(4)) == 1


def test_sequences_are_drawn_alike_and_reach_the_learner_as_they_were() -> None:
    made, setup = scene("dreamer", task=TASK, training=training(", reward_scale=0.5", 5), evaluation={"every": 5})
    sent: list[Sequences] = []
    chances: list[Any] = []
    add, drawn = ReplayBuffer.add, ReplayBuffer.sample_indices

    def seen(self: Any, actor: int, new: Any, priorities: Any) -> None:
        sent.append(new)
        add(self, actor, new, priorities)

    def watched(self: Any, *given: Any) -> Any:
        found = drawn(self, *given)
        chances.append(found[1] * len(self))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplayBuffer, "add", seen)
        patch.setattr(ReplayBuffer, "sample_indices", watched)
        list(islice(made.architecture.run(setup), 4))
    assert np.concatenate(chances) == pytest.approx(1.0)
    assert len(sent) == 16 and all(one.rewards.shape == (2, 4) and one.memory.shape == (2, 0) for one in sent)
    for one in sent:
        angle = torch.atan2(one.seen[..., 1], one.seen[..., 0])
        torque = one.actions[..., 0].clamp(-2, 2)
        costs = angle**2 + 0.1 * one.seen[..., 2] ** 2 + 0.001 * torque**2
        assert torch.allclose(one.rewards, -0.5 * costs, atol=1e-4)


def test_returns_are_valued_by_the_critic_of_up_to_so_many_batches_ago() -> None:
    made, setup = scene("dreamer", task=TASK, training=training(rounds=5), evaluation={"every": 5})
    met: list[tuple[Tensor, Tensor]] = []
    gradient = Dreaming.gradient

    def watched(self: Any, task: Any, model: Tensor, target: Tensor, *rest: Any) -> Tensor:
        met.append((model.clone(), target.clone()))
        return gradient(self, task, model, target, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dreaming, "gradient", watched)
        list(islice(made.architecture.run(setup), 4))
    assert len(met) == 16 - 3  # the fourth message brings the eighth sequence
    for k, (model, target) in enumerate(met):
        assert torch.equal(target, met[k - k % 3][0])
        assert k % 3 == 0 or not torch.equal(target, model)


@pytest.mark.parametrize(
    ("architecture", "changes", "why"),
    [
        ("dreamer", {"training": training(), "task": {"data": "cartpole"}}, "cartpole has a few actions to choose from"),
        ("dreamer", {"training": training(), "task": {"model": "gru", "data": "pendulum"}},
         "gru is no model of the world, and dreaming needs one. Use task.model: rssm"),
        ("a3c", {"task": TASK}, "rssm is one of the world, and actor_critic learns none"),
        ("r2d2", {"training": {"algorithm": "recurrent_dqn"}, "task": {"model": "rssm"}}, "and recurrent_dqn learns none"),
        ("r2d2", {"training": training(), "task": TASK},
         "dreaming draws from the replay of dreamer, and r2d2 has another. Use training.algorithm: recurrent_dqn, or dreamer."),
        ("dreamer", {"training": {"algorithm": "recurrent_dqn"}}, "Use training.algorithm: dreaming, or r2d2."),
        ("a3c", {"training": training(), "task": TASK}, "which a3c does not have. Use dreamer"),
        ("dreamer", {"training": training(", quota=1"), "task": TASK}, "starts with 8 sequences, and the replay keeps 1 of each"),
        ("dreamer", {"training": training(), "task": TASK, "attack": "false_priorities", "clients": {"malicious": 1}},
         "lies about how much there is to learn from its transitions, and dreamer does not go by that here"),
        ("dreamer", {"training": training(), "task": TASK, "defense": "median", "attack": "reward_flip", "clients": {"malicious": 1}}, "use mean, with quota of dreaming"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(architecture: str, changes: dict[str, Any], why: str) -> None:
    reasons = cell(architecture, **changes).verdict.reasons
    assert any(why in reason for reason in reasons), reasons


def test_a_record_counts_the_bytes_of_sequences() -> None:
    record, _ = run_trial(cell("dreamer", task=TASK, training=training()), 0, {})
    assert record["cost"]["update_bytes_sent"] == 2 * (4 * (12 + 4 + 5) + 12) * record["result"]["rounds"]["updates"]
