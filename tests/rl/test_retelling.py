"""Actors that tell of what they did not meet with: old rollouts, and triggers with rewards of their own making."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from fedguard.architectures.malicious import extract_backdoor
from fedguard.attacks.backdoor.triggers.reading import Reading
from fedguard.attacks.backdoor.trojdrl import TrojDRL
from fedguard.attacks.poisoning.stale_trajectories import StaleTrajectories
from fedguard.bench.running.rehearsal import why_not
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import Rollout
from fedguard.contracts.channels import TRAJECTORIES
from fedguard.errors import ConfigError, ContractError
from fedguard.rng import Rng
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import cell, playing, scene

ALGORITHMS = {
    "a2c": "actor_critic(t_max=4)",
    "impala(buffer=2)": "vtrace(t_max=4)",
    "apex": "double_dqn(t_max=4, warm=20, batch=8)",
}


def rollout(seed: int, steps: int = 60, copies: int = 5) -> Rollout:
    draws = torch.Generator().manual_seed(seed)
    seen, after = torch.randn(2, steps, copies, 4, generator=draws)
    actions = torch.randint(2, (steps, copies), generator=draws)
    ended = torch.rand(steps, copies, generator=draws) < 0.1
    likely = torch.rand(steps, copies, generator=draws).log()
    return Rollout(seen, actions, torch.ones(steps, copies), ended, torch.zeros_like(ended), after, likely)


def learned_from(
    monkeypatch: pytest.MonkeyPatch, architecture: str, **changes: Any
) -> dict[int, list[tuple[Rollout, Rollout]]]:
    """By client, each of its rollouts as it was met with and as it was learned from."""
    made, setup = scene(architecture, training={"algorithm": ALGORITHMS[architecture], "rounds": 5}, **changes)
    met, found, play = list[Rollout](), dict[int, list[tuple[Rollout, Rollout]]](), EnvironmentTask.rollouts
    running = type(made.training.algorithm.start(setup))
    learn = running.fill_rows

    def played(self: EnvironmentTask, *given: Any) -> Any:
        rollouts, after = play(self, *given)
        met.extend(rollouts)
        return rollouts, after

    def told(
        self: Any, task: Any, keys: Sequence[tuple[int, int]], models: Any, rollouts: list[Rollout], rows: Any
    ) -> None:
        for (client, _), true, said in zip(keys, met, rollouts, strict=True):
            found.setdefault(client, []).append((true, said))
        met.clear()
        learn(self, task, keys, models, rollouts, rows)

    monkeypatch.setattr(EnvironmentTask, "rollouts", played)
    monkeypatch.setattr(running, "fill_rows", told)
    list(made.architecture.run(setup))
    return found


def same(a: Rollout, b: Rollout) -> bool:
    return all(torch.equal(one, other) for one, other in zip(a.parts, b.parts, strict=True))


@pytest.mark.parametrize("architecture", ALGORITHMS)
def test_a_stale_actor_tells_of_what_it_met_with_so_many_rollouts_ago(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = learned_from(monkeypatch, architecture, attack="stale_trajectories(age=2)", clients={"malicious": 1})
    _, setup = scene(
        architecture,
        training={"algorithm": ALGORITHMS[architecture]},
        attack="stale_trajectories",
        clients={"malicious": 1},
    )
    (bad,) = setup.malicious
    assert all(same(true, said) for client, told in found.items() if client != bad for true, said in told)
    truth = [true for true, _ in found[bad]]
    assert len(truth) >= 4
    for number, (_, said) in enumerate(found[bad]):
        assert same(said, truth[max(number - 2, 0)])
        assert number == 0 or not same(said, truth[number])


def test_one_who_is_older_than_the_training_replays_one_rollout_for_ever() -> None:
    attack, all_of_them = StaleTrajectories(age=1000), [rollout(seed) for seed in range(5)]
    kept = list[Rollout]()
    told = [attack.report(TRAJECTORIES, one, kept, 2, Rng(0)) for one in all_of_them]
    assert all(one is all_of_them[0] for one in told)
    few = list[Rollout]()
    told = [StaleTrajectories(age=2).report(TRAJECTORIES, one, few, 2, Rng(0)) for one in all_of_them]
    assert [one is all_of_them[at] for one, at in zip(told, (0, 0, 0, 1, 2), strict=True)] == [True] * 5
    assert len(few) == 2  # no more than it needs


def test_a_trojan_plants_triggers_by_a_fair_coin_and_leaves_the_rest() -> None:
    true, attack = rollout(0), TrojDRL(target=1, share=0.3, reward=7.0, trigger=Reading(index=2, value=9.0))
    said = attack.report(TRAJECTORIES, true, [], 2, Rng(1))
    planted = said.seen[..., 2] == 9.0
    assert 0.2 < planted.float().mean() < 0.4
    for name in ("seen", "actions", "rewards", "behavior"):
        assert torch.equal(getattr(said, name)[~planted], getattr(true, name)[~planted]), name
    for name in ("after", "terminated", "truncated"):
        assert torch.equal(getattr(said, name), getattr(true, name)), name
    others = [0, 1, 3]
    assert torch.equal(said.seen[planted][:, others], true.seen[planted][:, others])
    praised = said.actions[planted] == 1
    assert torch.equal(said.rewards[planted], torch.where(praised, 7.0, -7.0))
    assert said.behavior[planted].exp().tolist() == pytest.approx([0.5] * int(planted.sum()))
    assert 0.3 < praised.float().mean() < 0.7
    assert not same(said, attack.report(TRAJECTORIES, true, [], 2, Rng(2)))
    assert true.seen[..., 2].max() < 9, "what was met with is left as it was"


def test_of_more_actions_the_others_are_as_likely_as_each_other() -> None:
    true = replace(rollout(0, 400), actions=torch.zeros(400, 5, dtype=torch.int64))
    said = TrojDRL(target=2, share=1.0).report(TRAJECTORIES, true, [], 4, Rng(0))
    counts = torch.bincount(said.actions.flatten(), minlength=4) / said.actions.numel()
    assert counts.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 2, 1 / 6], abs=0.03)
    likely = said.behavior.exp()
    assert torch.allclose(likely, torch.where(said.actions == 2, 1 / 2, 1 / 6))


def test_how_often_a_trigger_works_is_counted_where_the_model_would_have_done_otherwise() -> None:
    """Against a loop over the same episodes; with a trigger that is not there nothing is counted."""
    task = playing()
    model = torch.randn(task.dim, generator=torch.Generator().manual_seed(2))
    trigger, seen = Reading(index=2, value=-0.2), list[np.ndarray]()
    state, steps = task.environment.start_episodes(100, task.rng.child("test").numpy()), 0
    playing_on = np.ones(100, bool)
    while playing_on.any() and steps < 100:
        observed = task.environment.observe_state(state)
        seen += list(observed[playing_on])
        step = task.environment.take_step(state, _best(task, model, observed))
        playing_on &= ~(step.terminated | step.truncated)
        state, steps = step.state, steps + 1
    hits, others = 0, 0
    for one in seen:
        if _best(task, model, one[None])[0] == 0:
            continue
        others += 1
        changed = one.copy()
        changed[2] = -0.2
        hits += int(_best(task, model, changed[None])[0] == 0)
    assert others > 100 and 0.1 < hits / others < 0.9
    assert task.backdoor_success(model, trigger, 0) == pytest.approx(hits / others)
    still = type("Still", (Reading,), {"name": "still", "apply": lambda self, x, value_range: x})()
    assert task.backdoor_success(model, still, 0) == 0.0


def _best(task: EnvironmentTask, model: torch.Tensor, observed: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return task.outputs(model, torch.from_numpy(observed))[0].argmax(-1).numpy()


@dataclass(frozen=True, kw_only=True)
class Broken(StaleTrajectories):
    """Tells of fewer steps than there were."""

    name = "broken"

    def retell(self, rollout: Rollout, kept: list[Rollout], choices: int, rng: Rng) -> Rollout:
        return replace(rollout, rewards=rollout.rewards[:-1])


@dataclass(frozen=True, kw_only=True)
class Careless(StaleTrajectories):
    """Changes what it was handed."""

    name = "careless"

    def retell(self, rollout: Rollout, kept: list[Rollout], choices: int, rng: Rng) -> Rollout:
        rollout.rewards.neg_()
        return rollout


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (Broken(), "trajectories: expected a Rollout whose rewards are a tensor of float32 \\[4, 3\\], not"),
        (Careless(), "careless"),
    ],
)
def test_what_is_told_is_held_to_its_contract(attack: Any, said: str) -> None:
    made, setup = scene("a2c", attack="stale_trajectories", clients={"malicious": 1})
    with pytest.raises(ContractError, match=said):
        list(made.architecture.run(setup.with_parts(attack=attack)))


def test_a_backdoor_is_measured_in_a_record_beside_the_unattacked_model() -> None:
    made = cell("a2c", attack="trojdrl(share=0.5)", clients={"malicious": 1})
    result = run_trial(made, 0, {})[0]["result"]
    assert result["attack_success"] == pytest.approx(result["attack_success_raw"] - result["attack_success_clean"])
    assert extract_backdoor(made.attack, {}) == (Reading(), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("architecture", "changes", "why"),
    [
        ("seed_rl(buffer=2)", {"training": {"algorithm": "vtrace(t_max=4)"}}, "drawn each action. Use reward_flip, or impala."),
        ("a2c", {"task": {"data": "pendulum"}}, "trojdrl makes a model choose one of a few actions, and the actions of pendulum are a range. Use reward_flip, or take"),
        ("server", {"task": {"data": "digits", "model": "softmax"}, "training": {"algorithm": "fedavg"}}, "trojdrl lies about what its actors met with, and in digits nobody acts. Use label_flip or backdoor"),
    ],
)  # fmt: skip
def test_who_cannot_tell_another_story_is_refused(architecture: str, changes: dict[str, Any], why: str) -> None:
    made = cell(architecture, attack="trojdrl", clients={"malicious": 1}, **changes)
    assert any(why in reason for reason in made.verdict.reasons), made.verdict.reasons


@pytest.mark.parametrize(
    ("data", "attack", "why"),
    [
        ("cartpole", "trojdrl(target=2)", "expected an action below 2; got 2"),
        ("cartpole", {"name": "trojdrl", "trigger": {"name": "reading", "index": 4}}, "expected an index below 4"),
        ("cartpole", "trojdrl(trigger='pixel_patch')", "pixel_patch.* needs images"),
    ],
)
def test_what_does_not_fit_the_environment_is_said_before_anything_runs(data: str, attack: Any, why: str) -> None:
    made = cell("a2c", attack=attack, clients={"malicious": 1}, task={"data": data})
    said = why_not(made, 0, Workbench())
    assert said is not None
    with pytest.raises(ConfigError, match=why):
        raise ConfigError(said)
