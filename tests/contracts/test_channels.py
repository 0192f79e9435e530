"""Channels: each is asked for where an architecture says so and nowhere else, each checks what is reported, and no lie is silently honest."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Architecture, Box, Channel, Choices, PoisonAttack, Rollout, Setup, Sight, channels, lies
from fedguard.contracts.channels import (
    ACCUSATIONS,
    ACTIONS,
    AVAILABILITY,
    BEHAVIOR,
    CHECK_IN,
    CHECKS,
    FINISHED_SUMS,
    LOSS,
    MEMORIES,
    MIXING,
    PARTIAL_SUMS,
    PRIORITIES,
    PROMISES,
    RATE,
    REWARDS,
    SAMPLES,
    STATISTICS,
    TRACKERS,
    TRAJECTORIES,
    TRANSITIONS,
    WEIGHT,
)
from fedguard.contracts.lying import RETIRED
from fedguard.contracts.statistics import StatisticsLayout
from fedguard.errors import ContractError, PluginError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.rl import acting
from tests.systems import scenes

CHANNELS: dict[str, Channel[Any, ...]] = {
    name: channel for name, channel in vars(channels).items() if isinstance(channel, Channel)
}

# Who asks for what.


def telling(told: list[Channel[Any, ...]]) -> PoisonAttack:
    """An attack that tells the truth on every channel, and notes the channels on which it was asked."""

    def lie(channel: Channel[Any, ...]) -> Any:
        def tell(self: PoisonAttack, truth: Any, *context: Any) -> Any:
            told.append(channel)
            return truth

        return lies(channel)(tell)

    words = {"name": "telling", "needs": (Sight.OWN_DATA,)}
    methods = {f"tell_{channel.name}": lie(channel) for channel in CHANNELS.values()}
    return type("Telling", (PoisonAttack,), words | methods)()  # type: ignore[no-any-return]


UNEVEN = {"compute": {"seconds": 0.01, "spread": 0.5}, "link": {"latency": 0.05}}
STEPS = {"training": {"rounds": 3, "local_steps": 2, "batch_size": 16}}
ONE = {"clients": {"total": 8, "malicious": 2}, "network": UNEVEN, **STEPS}
#: Architectures with examples, in the settings on which it depends what they ask
ON_EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    (
        "server",
        ONE | {"task": {"model": {"name": "module", "target": "tests.architectures.test_running_statistics:small"}}},
    ),
    *((name, ONE) for name in ("parameter_server", "mapreduce", "fate", "fedasync", "fedbuff", "basgd")),
    ("google", ONE),
    ("google(selection=30)", ONE),
    ("google(selection=60, check_ins=2)", ONE),
    ("decaf(deadline=1, history=1)", ONE | {"training": STEPS["training"] | {"rounds": 5}}),
    *((f"all_reduce(topology={one!r})", ONE) for one in ("ring", "reduce_broadcast", "all_to_all")),
    ("all_reduce(topology='hierarchical', group=4)", ONE),
    ("all_reduce(masks=16)", ONE),
    ("btard(validators=4)", ONE),
    ("btard(validators=4, sums=True)", ONE),
    *(
        (name, ONE)
        for name in ("d_psgd", "sgp", "d2(weight=0.5)", "dsgt", "detag", "defacto", "ako", "wide_area", "lone")
    ),
    ("dlion(transfer=1)", ONE),
    ("dlion(transfer=0)", ONE),
    ("dlion(transfer=1, by_capability=False)", ONE),
    ("dlion(transfer=0, by_capability=False, weighted=False)", ONE),
]
#: Architectures of actors, with their algorithms and tasks
OF_ACTORS: list[tuple[str, str, dict[str, Any]]] = [
    ("a2c", "actor_critic(t_max=4)", {}),
    ("a3c", "actor_critic(t_max=4)", {}),
    ("impala", "vtrace(t_max=4)", {}),
    ("seed_rl", "vtrace(t_max=4)", {}),
    ("apex", "double_dqn(t_max=4, batch=16, warm=24)", {}),
    (
        "r2d2",
        "recurrent_dqn(t_max=4, n=3, burn_in=3, warm=10, capacity=30, batch=1)",
        {"data": "masked_cartpole(copies=3)", "model": "gru(memory=5, inside=4)"},
    ),
    ("dreamer", "dreaming", {"data": "pendulum(copies=2)", "model": "rssm(fixed=8, chance=4, inside=8)"}),
]


def asked_in(architecture: Architecture, setup: Setup) -> set[Channel[Any, ...]]:
    told: list[Channel[Any, ...]] = []
    list(architecture.run(setup.with_parts(attack=telling(told))))
    return set(told)


@pytest.mark.parametrize(("system", "changes"), ON_EXAMPLES, ids=[system for system, _ in ON_EXAMPLES])
def test_an_architecture_asks_for_what_it_declares_and_for_nothing_else(system: str, changes: dict[str, Any]) -> None:
    made, setup = scenes.scene(system, attack="label_flip", **changes)
    asked = asked_in(made.architecture, setup) - {SAMPLES}
    # Nodes of every graph are asked whether they mix; `lone` has no graph, so that nothing follows
    assert asked - ({MIXING} if system == "lone" else set()) == made.architecture.channels


@pytest.mark.parametrize(("system", "algorithm", "task"), OF_ACTORS, ids=[system for system, *_ in OF_ACTORS])
def test_an_architecture_of_actors_asks_for_what_it_declares_and_environments_for_the_rest(
    system: str, algorithm: str, task: dict[str, Any]
) -> None:
    made, setup = acting.scene(
        system, task=task, training={"algorithm": algorithm}, attack="reward_flip", clients={"malicious": 2}
    )
    of_environments = {channel for channel in CHANNELS.values() if channel.listener == "environment"}
    asked = asked_in(made.architecture, setup)
    assert of_environments == {REWARDS, ACTIONS, TRAJECTORIES} <= asked
    # Every rollout has the probabilities of its actions; who does not learn by them does not declare them
    assert asked - of_environments - {SAMPLES, BEHAVIOR} == made.architecture.channels - {BEHAVIOR}
    assert BEHAVIOR in asked


def test_every_architecture_and_every_channel_is_among_these() -> None:
    tried = [made for system, changes in ON_EXAMPLES for made in [scenes.cell(system, **changes).architecture]]
    tried += [acting.cell(system, training={"algorithm": one}).architecture for system, one, _ in OF_ACTORS]
    assert {one.name for one in tried} == set(load_registry().names("architecture"))
    declared = set().union(*(one.channels for one in tried))
    assert declared == {channel for channel in CHANNELS.values() if channel.listener == "architecture"}


def test_every_channel_has_an_attack_of_the_catalogue() -> None:
    known = [cls for _, cls in load_registry().classes(["attack"]) if issubclass(cls, PoisonAttack)]
    assert {channel for cls in known for channel in cls.lies} == set(CHANNELS.values())


# What may be reported.

NAN, INF = float("nan"), float("inf")
ROWS = torch.ones(2, 5)
ROLLOUT = Rollout(
    torch.zeros(4, 3, 2), torch.ones(4, 3, dtype=torch.int64), torch.ones(4, 3), *torch.zeros(2, 4, 3).bool(),
    torch.zeros(4, 3, 2), torch.zeros(4, 3),
)  # fmt: skip
NO_ROWS = [None, 1.0, [1.0] * 10, ROWS[:1], ROWS.long(), ROWS.numpy()]
ANSWERS = (True, (), [1, 0, None, "yes"], [True, False])

#: Channel -> the truth, the context, what is no report, and what is one
REPORTS: dict[Channel[Any, ...], tuple[Any, tuple[Any, ...], list[Any], list[Any]]] = {
    SAMPLES: (5, (), [0, -3, 2.5, None, NAN, 2**113, 10**400, "5"], [1, 2**112]),
    CHECK_IN: (5.0, (), [-1.0, NAN, INF, None, "soon"], [0, 0.0, 9.5]),
    PROMISES: ANSWERS,
    RATE: (5.0, (), [0.0, -1, NAN, INF, None, "much"], [1, 0.1]),
    AVAILABILITY: (0.5, (), [-0.1, 1.5, NAN, None], [0, 1, 0.3]),
    STATISTICS: (ROWS, (StatisticsLayout(),), NO_ROWS, [ROWS * NAN, -ROWS]),
    LOSS: (0.5, (), [-0.1, NAN, None, "low", ROWS], [0, 0.0, 7.5, INF]),
    WEIGHT: (1.0, (), [0.0, -1, NAN, INF, None], [10, 0.1]),
    MIXING: ANSWERS,
    TRACKERS: (ROWS, (None,), NO_ROWS, [ROWS * NAN, -ROWS]),
    PARTIAL_SUMS: (ROWS, (None, ROWS), NO_ROWS, [ROWS * NAN, ROWS.double()]),
    FINISHED_SUMS: (ROWS, (None, ROWS), NO_ROWS, [ROWS * INF, -ROWS]),
    CHECKS: ANSWERS,
    ACCUSATIONS: ANSWERS,
    REWARDS: (ROWS, (), NO_ROWS, [-ROWS]),
    ACTIONS: (torch.tensor([0, 1]), (Choices(2),), [None, torch.tensor([0, 2]), torch.tensor([-1, 0]), torch.tensor([0]), torch.tensor([0.0, 1.0])], [torch.tensor([1, 1])]),
    TRAJECTORIES: (ROLLOUT, ([], 2, Rng(0)), [None, ROWS, replace(ROLLOUT, rewards=ROWS), replace(ROLLOUT, actions=torch.ones(4, 3)), replace(ROLLOUT, memory=ROWS)], [replace(ROLLOUT, rewards=-ROLLOUT.rewards)]),
    BEHAVIOR: (ROWS, (), NO_ROWS, [ROWS - 10]),
    PRIORITIES: (ROWS, (), [*NO_ROWS, -ROWS, ROWS * NAN, ROWS * INF], [ROWS * 0, 1e6 * ROWS]),
    MEMORIES: (ROWS, (), NO_ROWS, [-10 * ROWS]),
    TRANSITIONS: (torch.arange(4), (), [None, torch.tensor([4]), torch.tensor([-1]), torch.arange(4.0), torch.arange(4)[None]], [torch.tensor([3, 3, 0]), torch.arange(0)]),
}  # fmt: skip


def saying(channel: Channel[Any, ...], said: Any) -> PoisonAttack:
    method = lies(channel)(lambda self, truth, *context: said)
    return type("Says", (PoisonAttack,), {"name": "says", "needs": (Sight.OWN_DATA,), "say": method})()  # type: ignore[no-any-return]


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_what_is_no_report_is_an_error_in_one_line_that_names_attack_and_channel(channel: Channel[Any, ...]) -> None:
    truth, context, wrong, right = REPORTS[channel]
    for said in wrong:
        with pytest.raises(
            ContractError, match=f"^says broke its contract: {channel.name}: expected .*; got "
        ) as error:
            saying(channel, said).report(channel, truth, *context)
        assert "\n" not in str(error.value)
    for said in right:
        assert saying(channel, said).report(channel, truth, *context) is said
    other = next(one for one in CHANNELS.values() if one is not channel)
    assert (
        saying(other, None).report(channel, truth, *context) is truth
    )  # of what it does not lie about it tells the truth


def test_a_range_allows_actions_beyond_it_and_none_that_are_not_finite() -> None:
    truth, space = torch.zeros(2, 1), Box(1, -1.0, 1.0)
    assert saying(ACTIONS, truth + 5).report(ACTIONS, truth, space).tolist() == [[5.0], [5.0]]
    with pytest.raises(ContractError, match="actions: expected .* of -inf to inf; got .*nan"):
        saying(ACTIONS, truth * NAN).report(ACTIONS, truth, space)


@pytest.mark.parametrize("channel", [REWARDS, TRAJECTORIES], ids=repr)
def test_a_lie_that_changes_the_truth_in_place_is_caught(channel: Channel[Any, ...]) -> None:
    truth, context, *_ = REPORTS[channel]
    truth, old = (truth.clone(), ()) if channel is REWARDS else (truth, ([replace(truth, rewards=torch.ones(4, 3))],))

    def spoil(self: PoisonAttack, truth: Any, *context: Any) -> Any:
        (context[0][0].rewards if context else truth).neg_()
        return truth

    attack = type("Spoils", (PoisonAttack,), {"name": "spoils", "spoil": lies(channel)(spoil)})()
    with pytest.raises(ContractError, match="spoils broke its contract: it changed what it was shown, in place"):
        attack.report(channel, truth, *old, *context[len(old) :])


# Where nobody asks.


def test_a_lie_that_nobody_hears_is_refused_in_the_words_of_its_channel(tmp_path: Path) -> None:
    for name, channel in CHANNELS.items():
        (tmp_path / f"says_{channel.name}.py").write_text(
            "from fedguard.contracts import PoisonAttack, Sight, lies\n"
            f"from fedguard.contracts.channels import {name}\n\n\n"
            f"class Says(PoisonAttack):\n    name, needs = 'says_{channel.name}', (Sight.OWN_DATA,)\n\n"
            f"    @lies({name})\n    def say(self, truth, *context):\n        return truth\n"
        )
        known = load_registry().with_modules([f"says_{channel.name}"], tmp_path)
        told = scenes.settings("server", attack=f"says_{channel.name}", clients={"malicious": 1})
        made = build_cell(CellConfig.model_validate(told), known)
        why = "in digits nobody acts" if channel.listener == "environment" else "server does not go by that here"
        wanted = (f"says_{channel.name} lies about {channel.about}, and {why}. Use {channel.where}.",)
        heard = channel.listener == "everybody" or channel in made.architecture.channels
        assert made.verdict.reasons == (() if heard else wanted)


# How an attack lies.


def test_lies_are_inherited_overridden_and_moved() -> None:
    class Base(PoisonAttack):
        name, needs = "base", (Sight.OWN_DATA,)

        @lies(LOSS)
        def claim(self, loss: float) -> float:
            return loss / 2

    class Same(Base):
        def claim(self, loss: float) -> float:
            return super().claim(loss) / 2

    class Other(Base):
        @lies(LOSS)
        def shrink(self, loss: float) -> float:
            return 0.0

    class Moved(Base):
        @lies(RATE)
        def claim(self, rate: float) -> float:
            return 7.0

    class Mixed:
        @lies(WEIGHT)
        def weigh(self, weight: float) -> float:
            return 3 * weight

    class Both(Mixed, Base):
        pass

    assert [attack().report(LOSS, 8.0) for attack in (Base, Same, Other, Moved, Both)] == [4.0, 2.0, 0.0, 8.0, 4.0]
    assert Moved().report(RATE, 1.0) == 7.0 and Moved.lies.keys() == {RATE}
    assert Both().report(WEIGHT, 1.0) == 3.0 and Both.lies.keys() == {LOSS, WEIGHT}
    assert not PoisonAttack.lies and Base.lies == {LOSS: "claim"}


def test_two_lies_on_one_channel_are_refused() -> None:
    method = lies(LOSS)(lambda self, loss: loss)
    with pytest.raises(TypeError, match="Twice: expected one method for each channel; got one, two"):
        type("Twice", (PoisonAttack,), {"one": method, "two": lies(LOSS)(lambda self, loss: 0.0)})


def test_only_who_acts_lies_and_only_then() -> None:
    _, setup = scenes.scene("server", attack="sign_flip", clients={"malicious": 2}, threat={"first_round": 3})
    setup = setup.with_parts(attack=saying(LOSS, 0.25))
    for client in range(6):
        lied = client in setup.malicious
        assert [setup.report(LOSS, client, 2.0, round) for round in (2, 3)] == [2.0, 0.25 if lied else 2.0]
    assert setup.with_parts(attack=None).report(LOSS, min(setup.malicious), 2.0, 3) == 2.0


# Methods of version 0.1.


@pytest.mark.parametrize("method", RETIRED)
def test_a_method_of_earlier_versions_is_refused_by_the_name_of_its_channel(method: str) -> None:
    words = {"name": "old", "needs": (Sight.OWN_DATA,)}
    channel = CHANNELS[RETIRED[method]]
    told = rf"^Old\.{method}: nobody calls .* so the attack would be honest\. Write @lies\({RETIRED[method]}\) above it"
    with pytest.raises(TypeError, match=told):
        type("Old", (PoisonAttack,), words | {method: lambda self, *given: None})
    with pytest.raises(TypeError, match=told):
        type("Old", (type("Mixin", (), {method: lambda self, *given: None}), PoisonAttack), words)
    new = type("New", (PoisonAttack,), words | {method: lies(channel)(lambda self, truth, *context: truth)})
    assert new.lies == {channel: method}
    type("Newer", (new,), words | {method: lambda self, truth, *context: truth})
    type("Field", (PoisonAttack,), words | {method: 3.0})  # a parameter, say


def test_a_plug_in_with_a_method_of_earlier_versions_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "old_attack.py").write_text(
        "from fedguard.contracts import PoisonAttack, Sight\n\n\nclass Old(PoisonAttack):\n"
        "    name, needs = 'old', (Sight.OWN_DATA,)\n\n    def claim_loss(self, loss):\n        return 0.0\n"
    )
    with pytest.raises(PluginError, match=r"Old\.claim_loss: .* Write @lies\(LOSS\) above it"):
        load_registry().with_modules(["old_attack"], tmp_path)


# A page.


def test_the_page_lists_every_channel() -> None:
    text = (Path(__file__).parents[2] / "docs" / "add_attack.md").read_text()
    rows = dict(re.findall(r"(?m)^\| `([A-Z_]+)` \| ([^|]+) \|", text))
    assert rows == {name: channel.about for name, channel in CHANNELS.items()}
