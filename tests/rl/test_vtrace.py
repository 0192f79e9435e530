"""V-trace against its paper as plain loops in float64; IMPALA around it; and who lies about how it acted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedguard.algorithms.rl.rollouts import n_step_returns
from fedguard.algorithms.rl.vtrace import v_trace
from fedguard.bench.running.trial import run_trial
from tests.rl.acting import cell, reports, scene
from tests.rl.test_actor_critic import forward
from tests.systems.test_asynchronous import course

VTRACE = {"algorithm": "vtrace(t_max=4)", "rounds": 6, "lr": 0.05}
SLOW = {"compute": {"seconds": 0.01, "spread": 0.8}, "link": {"latency": 0.05}}


def loop_of_v_trace(
    ratio: Any,
    rewards: Any,
    values: Any,
    after: Any,
    terminated: Any,
    truncated: Any,
    gamma: float,
    rho: float,
    trace: float,
) -> tuple[list[float], list[float]]:
    """Equation 1 of the paper as a sum over the steps that follow, of one environment."""
    steps = len(rewards)
    follows = [0.0 if terminated[t] else float(after[t]) for t in range(steps)]
    targets = []
    for s in range(steps):
        total, weight = float(values[s]), 1.0
        for t in range(s, steps):
            delta = min(rho, float(ratio[t])) * (float(rewards[t]) + gamma * follows[t] - float(values[t]))
            total += weight * delta
            weight *= gamma * min(trace, float(ratio[t]))
            if terminated[t] or truncated[t]:
                break
        targets.append(total)
    advantages = []
    for s in range(steps):
        ends = terminated[s] or truncated[s] or s == steps - 1
        value = follows[s] if ends else targets[s + 1]
        advantages.append(min(rho, float(ratio[s])) * (float(rewards[s]) + gamma * value - float(values[s])))
    return targets, advantages


def drawn(steps: int = 14, copies: int = 30) -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(steps, copies))
    ends = rng.integers(9, size=(steps, copies))
    terminated, truncated = ends == 0, ends == 1
    after = rng.normal(size=(steps, copies))
    goes_on = ~(terminated | truncated)[:-1]
    after[:-1][goes_on] = values[1:][goes_on]  # the state after a step is the one before the next
    return rng.lognormal(size=(steps, copies)), rng.normal(size=(steps, copies)), values, after, terminated, truncated


@pytest.mark.parametrize(("rho", "trace"), [(1.0, 1.0), (2.0, 0.7), (None, None)])
def test_v_trace_is_the_sum_of_the_paper(rho: float | None, trace: float | None) -> None:
    given = drawn()
    targets, advantages = v_trace(*map(torch.from_numpy, given), 0.9, rho, trace)
    for copy in range(given[0].shape[1]):
        cut = (math.inf if rho is None else rho, math.inf if trace is None else trace)
        wanted = loop_of_v_trace(*(one[:, copy] for one in given), 0.9, *cut)
        assert targets[:, copy].tolist() == pytest.approx(wanted[0], abs=1e-10)
        assert advantages[:, copy].tolist() == pytest.approx(wanted[1], abs=1e-10)


def test_on_policy_its_targets_are_the_n_step_returns() -> None:
    _, rewards, values, after, terminated, truncated = map(torch.from_numpy, drawn())
    ends = terminated, truncated
    targets, advantages = v_trace(torch.ones_like(rewards), rewards, values, after, *ends, 0.9, 1.0, 1.0)
    returns = n_step_returns(rewards, after, *ends, 0.9)
    assert torch.allclose(targets, returns, rtol=0, atol=1e-6)
    assert torch.allclose(advantages, returns - values, rtol=0, atol=1e-6)


def test_where_actors_wait_for_each_other_it_is_actor_critic() -> None:
    *_, ours = reports("server", training=VTRACE)
    *_, theirs = reports("server")
    assert torch.allclose(ours.model, theirs.model, rtol=0, atol=1e-6)


def gradient_of_loss(task: Any, algorithm: Any, model: Tensor, rollout: Any) -> Tensor:
    """float64 ``[d]``: of IMPALA's loss at the learner's model, step by step."""
    wide = model.float().double().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    steps, copies = rollout.rewards.shape
    for copy in range(copies):
        out = [forward(task, wide, rollout.seen[t, copy].double()) for t in range(steps)]
        logs = [torch.log_softmax(one[:-1], 0) for one in out]
        chosen = [log[action] for log, action in zip(logs, rollout.actions[:, copy], strict=True)]
        ratio = [
            math.exp(float(log.detach()) - float(mu)) for log, mu in zip(chosen, rollout.behavior[:, copy], strict=True)
        ]
        values = [float(one[-1].detach()) for one in out]
        after = [float(forward(task, wide, x.double())[-1].detach()) for x in rollout.after[:, copy]]
        ends = rollout.terminated[:, copy], rollout.truncated[:, copy]
        cuts = algorithm.gamma, algorithm.rho, algorithm.trace
        rewards = [algorithm.reward_scale * float(reward) for reward in rollout.rewards[:, copy]]
        targets, advantages = loop_of_v_trace(ratio, rewards, values, after, *ends, *cuts)
        for t in range(steps):
            entropy = -(logs[t].exp() * logs[t]).sum()
            total = total - chosen[t] * advantages[t] - algorithm.entropy * entropy
            total = total + algorithm.value * (targets[t] - out[t][-1]) ** 2
    return torch.autograd.grad(total / (steps * copies), wide)[0]


def test_impala_is_the_papers_loop_over_who_came_when() -> None:
    scaled = {**VTRACE, "algorithm": "vtrace(t_max=4, reward_scale=0.3)"}
    made, setup = scene("impala(buffer=3)", network=SLOW, training=scaled)
    task, algorithm = setup.task, setup.cell.training.algorithm
    states = {one: task.start_actor(setup.rng.child("actor", one).numpy()) for one in range(4)}
    models = [task.initial_model(setup.rng.child("model")).double()]
    begun: dict[tuple[int, int], Tensor] = {}
    releases, late = course(made, setup), 0
    found = [report.model for report in made.architecture.aggregates(setup)]
    for _ in found:
        release = next(releases)
        begun.update(dict.fromkeys((one.key for one in release.begun), models[-1]))
        gradients = []
        for device, turn in sorted((one.key for one in release.arrivals), key=lambda key: key[::-1]):
            rng = setup.rng.child("round", turn).child("client", device).numpy()
            acted = begun.pop((device, turn)).float()
            (rollout,), (states[device],) = task.rollouts(
                acted[None], [device], [states[device]], algorithm.t_max, [rng]
            )
            gradients.append(gradient_of_loss(task, algorithm, models[-1], rollout))
        late += sum(release.version - one.version for one in release.arrivals)
        models.append(
            models[-1] - setup.cell.training.server_lr * setup.cell.training.lr * sum(gradients) / len(gradients)
        )
    assert late > 0
    assert (found[-1].double() - models[-1]).norm() < 1e-5 * (models[-1] - models[0]).norm()


def after_lies(training: str, attack: str = "false_behavior") -> tuple[float, Tensor]:
    """How far the model moved, with one of four actors malicious; and the model."""
    given = {**VTRACE, "algorithm": training}
    made, setup = scene("impala(buffer=4)", network=SLOW, training=given, attack=attack, clients={"malicious": 1})
    *_, last = made.architecture.run(setup)
    return float((last.model - setup.task.initial_model(setup.rng.child("model"))).norm()), last.model


def test_false_probabilities_move_an_uncut_learner_and_not_v_trace_nor_one_that_works_them_out() -> None:
    truth, free = "false_behavior(shift=0)", "t_max=4, rho=None, trace=None"
    uncut, _ = after_lies(f"vtrace({free})")
    honest, _ = after_lies("vtrace(t_max=4)", truth)
    assert uncut > 20 * honest
    cut, _ = after_lies("vtrace(t_max=4)")
    assert cut < 1.5 * honest
    _, recomputed = after_lies(f"vtrace({free}, recompute=True)")
    _, believed = after_lies(f"vtrace({free})", truth)
    assert torch.allclose(recomputed, believed, rtol=0, atol=1e-4)


def test_trajectories_are_counted_in_bytes_and_not_as_gradients() -> None:
    made = cell("impala(buffer=4)", network=SLOW, training=VTRACE, task={"model": "mlp(hidden=[200])"})
    record, _ = run_trial(made, 0, {})
    seen, t_max, copies = 4 * 4, 4, 3
    one = copies * (t_max * (seen + 4 + 4 + 4 + 1) + seen)
    assert record["result"]["time"]["bytes_up"] % one == 0
    assert record["cost"]["update_bytes_sent"] == one * record["result"]["rounds"]["updates"]
    gradients, _ = run_trial(cell("a3c", network=SLOW, task={"model": "mlp(hidden=[200])"}), 0, {})
    assert gradients["cost"]["update_bytes_sent"] == 4 * 1603 * gradients["result"]["rounds"]["updates"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"attack": "sign_flip", "clients": {"malicious": 1}},
            "sign_flip changes updates, and the actors of impala send",
        ),
        ({"training": {}}, "Set training.algorithm: vtrace, or use a3c."),
        ({"defense": "client_clipping(bound=1) >> mean"}, "which nobody can mask, clip or average"),
    ],
)
def test_what_trajectories_do_not_go_with_is_refused(changes: dict[str, Any], why: str) -> None:
    reasons = cell("impala", **{"training": VTRACE, **changes}).verdict.reasons
    assert any(why in reason for reason in reasons), reasons


def test_nobody_asks_actors_for_probabilities_who_send_gradients() -> None:
    made = cell("a2c", attack="false_behavior", clients={"malicious": 1})
    assert any("a2c does not go by that here. Use impala with vtrace" in reason for reason in made.verdict.reasons)


def test_the_card_says_what_the_learner_reads() -> None:
    record, _ = run_trial(cell("impala", training=VTRACE), 0, {})
    assert "The learner reads each observation, action and reward of every actor." in record["threat_card"]["in_words"]
