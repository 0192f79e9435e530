"""SEED RL beside IMPALA: what is equal, what travels, how long it takes, and who sees what."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedguard.architectures.times import least_of, world
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import InferenceAttack, NoMasking, PoisonAttack, Sight, ThreatModel
from fedguard.registry import load_registry
from fedguard.visibility import judge, judge_inference
from tests.rl.acting import cell, reports, scene

VTRACE = {"algorithm": "vtrace(t_max=4)", "rounds": 6, "lr": 0.05}
UNEVEN = {"compute": {"seconds": 0.01, "spread": 0.8}}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("network", [None, UNEVEN])
def test_it_is_impala_where_trajectories_come_in_the_same_order(seed: int, network: dict[str, Any] | None) -> None:
    given = {"network": network} if network else {}
    *_, ours = reports("seed_rl(buffer=3)", seed, training=VTRACE, **given)
    *_, theirs = reports("impala(buffer=3)", seed, training=VTRACE, **given)
    assert torch.equal(ours.model, theirs.model)
    assert ours.moment is not None and theirs.moment is not None and ours.moment.seconds == theirs.moment.seconds


def test_each_step_waits_for_the_learner_and_no_model_travels() -> None:
    """One actor of 3 copies, 4 steps a rollout: bytes and seconds of a rollout in closed form."""
    latency, up, down, work = 0.05, 1000.0, 4000.0, 0.01
    network = {"compute": {"seconds": work}, "link": {"latency": latency, "up": up, "down": down}}
    given: dict[str, Any] = {"training": VTRACE, "clients": {"total": 1}, "network": network}
    steps, copies, seen = 4, 3, 16
    (_, *_, seed), (_, *_, impala) = (list(reports(f"{name}(buffer=1)", **given)) for name in ("seed_rl", "impala"))
    asked, told = copies * (steps * (seen + 5) + seen), copies * steps * 4
    sent, model = copies * (steps * (seen + 4 + 4 + 4 + 1) + seen), 4 * seed.model.numel()
    computed = work * copies * steps
    rounds = VTRACE["rounds"]
    for report, bytes_up, bytes_down, waits in ((seed, asked, told, 2 * steps), (impala, sent, model, 2)):
        assert report.moment is not None
        assert report.moment.bytes_up == rounds * bytes_up
        one = waits * latency + bytes_up / up + bytes_down / down + computed
        assert report.moment.seconds == pytest.approx(rounds * one)


@pytest.mark.parametrize("name", ["seed_rl", "impala"])
def test_the_least_time_of_a_rollout_is_the_time_of_what_is_sent(name: str) -> None:
    """Without anything random the bound is what a rollout takes, whatever the size of the model."""
    network = {"compute": {"seconds": 0.01}, "link": {"latency": 0.05, "up": 1000.0, "down": 4000.0}}
    made, setup = scene(f"{name}(buffer=1)", training=VTRACE, clients={"total": 1}, network=network)
    system, model = made.architecture, setup.task.initial_model(setup.rng)
    assert least_of(setup, system) == [pytest.approx(world(setup, model, system).train(0, 1, 0.0)[0])]


def test_a_record_counts_what_actors_send() -> None:
    record, _ = run_trial(cell("seed_rl(buffer=4)", training=VTRACE), 0, {})
    assert record["cost"]["update_bytes_sent"] == 3 * (4 * (16 + 5) + 16) * record["result"]["rounds"]["updates"]


SEEN = {
    "a3c": (set(), ""),
    "a2c": (set(), ""),
    "impala": ({"trajectories"}, "The learner reads each observation, action and reward of every actor."),
    "seed_rl": ({"trajectories", "observations"}, "The learner reads each observation of every actor as it is made"),
    "apex": ({"trajectories"}, "and reads them again and again"),
}


@pytest.mark.parametrize("name", SEEN)
def test_the_card_says_what_a_learner_sees_of_an_actor(name: str) -> None:
    algorithms = {"impala": "vtrace(t_max=4)", "seed_rl": "vtrace(t_max=4)", "apex": "double_dqn(t_max=4)"}
    chosen = algorithms.get(name, "actor_critic(t_max=4)")
    record, _ = run_trial(cell(name, training={"algorithm": chosen, "rounds": 2}), 0, {})
    card, (seen, words) = record["threat_card"], SEEN[name]
    assert {"trajectories", "observations"} & set(card["server_shown"]) == seen
    assert words in card["in_words"]
    config: dict[str, Any] = {
        "attack": "reward_flip",
        "clients": {"total": 4, "malicious": 1},
        "training": {"algorithm": chosen, "rounds": 2},
    }
    colluders = threat_card(cell(name, **config))["in_words"]
    assert ("the honest clients' updates" in colluders) == (not seen)  # none travels where trajectories do
    assert ("the global model" in colluders) == (name != "seed_rl")


class Reader(InferenceAttack):
    """Reads what actors met with."""

    name = "reader"
    needs = (Sight.TRAJECTORIES,)


class Watcher(InferenceAttack):
    """Reads observations as they are made."""

    name = "watcher"
    needs = (Sight.OBSERVATIONS,)


@pytest.mark.parametrize(
    ("name", "reads", "watches"), [("a3c", 0, 0), ("impala", 1, 0), ("seed_rl", 1, 1), ("apex", 1, 0)]
)
def test_who_needs_more_than_a_learner_sees_is_refused(name: str, reads: int, watches: int) -> None:
    shown = load_registry().get("architecture", name).exposes
    for attack, runs in ((Reader, reads), (Watcher, watches)):
        reasons, _ = judge_inference(attack.__new__(attack), shown, malicious=False, mode=NoMasking())
        wanted = [] if runs else [f"{attack.name} needs {attack.needs[0].words()}; this architecture does not show it."]
        assert reasons == wanted


class Follower(PoisonAttack):
    """Rewards by what the model would do."""

    name = "follower"
    needs = (Sight.MODEL,)


def test_an_actor_without_a_model_cannot_attack_by_it_nor_lie_about_its_chances() -> None:
    for name, refused in (("impala", False), ("seed_rl", True)):
        made = cell(name, training=VTRACE)
        shown, threat = made.architecture.exposes, ThreatModel()
        assert bool(judge(made.pipeline, Follower(), shown, threat, 4, 0, NoMasking()).reasons) == refused
    made = cell("seed_rl", training=VTRACE, attack="false_behavior", clients={"malicious": 1})
    assert any(
        "how likely its actors were to act so, and seed_rl does not go by that here" in one
        for one in made.verdict.reasons
    )
    assert not cell("seed_rl", training=VTRACE, attack="reward_flip", clients={"malicious": 1}).verdict.reasons
