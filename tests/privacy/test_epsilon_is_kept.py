"""An epsilon that a suite asks for is an upper bound of what its records say, in every architecture that takes noise."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest

from fedguard.bench.running.protocol import privacy_spent
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.errors import PreconditionError, StalledError
from fedguard.privacy.gaussian import epsilon
from fedguard.registry import load_registry
from tests.systems.scenes import cell

ASKED, ROUNDS = 2.0, 4
NOISES: dict[str, dict[str, Any]] = {
    "record": {"kind": "record", "clip": 1.0, "sample_rate": 0.1, "delta": 1e-4},
    "client": {"kind": "client", "clip": 0.05, "delta": 1e-3},
    "distributed": {"kind": "distributed", "clip": 0.05, "delta": 1e-3},
}
UNEVEN: dict[str, Any] = {"compute": {"seconds": 0.05, "spread": 1.0}}
NETWORKS: dict[str, Any] = {
    "no times": None,
    "speeds": UNEVEN,
    "loss": {**UNEVEN, "link": {"latency": 0.1, "loss": 0.3}},
    "much loss": {**UNEVEN, "link": {"latency": 0.1, "loss": 0.8}},
    "presence": {**UNEVEN, "there": {"name": "on_off", "on": 0.4, "off": 0.2}},
}
CLIENTS: dict[str, Any] = {
    "all": {},
    "drawn": {"per_round": 3},
    "taking turns": {"per_round": 3, "sampling": "cyclic"},
    "budget": {"most_trainings": 7},
    "dropout": {},
}
#: With parameters under which others train, or more often.
VARIANTS = (
    "parameter_server(consistency='bounded', tau=1)",
    "parameter_server(consistency='eventual')",
    "google(over=1.5)",
    "fedbuff(buffer=3)",
    "mapreduce(combiners=2)",
    "all_reduce(topology='hierarchical', group=3)",
    "detag(phase=3)",
    "ako(wait=False)",
)


def trained(system: str, noise: str, network: Any, clients: dict[str, Any], dropout: float = 0.0) -> Any:
    """What the record says; None where the cell is refused, or comes to no end."""
    protocol: dict[str, Any] = {"privacy": {**NOISES[noise], "epsilon": ASKED}}
    if noise == "distributed":
        protocol["secure_aggregation"] = "full"
    if dropout:
        protocol["dropout"] = {"rate": dropout}
    made = cell(
        system,
        network=network,
        clients={"total": 6, **clients},
        protocol=protocol,
        training={"rounds": ROUNDS, "local_steps": 2},
        evaluation={"every": ROUNDS},
    )
    if made.verdict.reasons:
        return None
    try:
        setup = set_up(made, 0, BENCH.task(made, 0))
        made.architecture.check(setup)
        reports = list(made.architecture.run(setup))
    except (PreconditionError, StalledError):
        return None
    return setup, reports, privacy_spent(made, setup, reports)


BENCH = Workbench()


#: The quick ones: each network and each kind of participation once.
QUICK = {
    ("no times", "all"),
    ("no times", "taking turns"),
    ("speeds", "budget"),
    ("much loss", "all"),
    ("presence", "drawn"),
    ("speeds", "dropout"),
}


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", NOISES)
def test_no_record_says_more_than_was_asked_for(noise: str, quick: bool) -> None:
    ran: Counter[str] = Counter()
    for system, which, who in product((*load_registry().names("architecture"), *VARIANTS), NETWORKS, CLIENTS):
        if ((which, who) in QUICK) == quick:
            found = trained(system, noise, NETWORKS[which], CLIENTS[who], 0.2 if who == "dropout" else 0.0)
            if found is not None:
                said = found[2]["epsilon"]
                assert said is not None and said <= ASKED, f"{system}, {which}, {who}: {said} for {ASKED}"
                ran[system] += said > 0.1
    if quick:
        systems = {"server", "parameter_server", "google", "google(over=1.5)", "fedbuff(buffer=3)"}
        systems |= {VARIANTS[0], VARIANTS[1], "fedasync"} if noise != "distributed" else set()
        systems |= {"all_reduce", "d_psgd", "sgp", "lone", "mapreduce(combiners=2)"} if noise == "record" else set()
        assert systems <= {system for system, times in ran.items() if times}


def test_more_trainings_than_a_plan_has_are_reckoned_with_before_the_first() -> None:
    """Bounded delay with loss: four rounds and tau = 1 plan six trainings of a client, and many more end."""
    setup, reports, found = trained(VARIANTS[0], "record", NETWORKS["much loss"], {})
    ended = Counter(span.client for report in reports for span in report.moment.trainings)
    most = max(ended.values())
    assert most > ROUNDS + 1 + 1 and setup.cell.meeting.trainings == most == found["ledger"]["releases"]["most"]
    by_hand = epsilon(found["noise_multiplier"], 0.1, 2 * most, 1e-4, "prv", "record", "poisson").value
    assert found["epsilon"] == pytest.approx(by_hand) and 0.95 * ASKED < by_hand <= ASKED


def test_where_nothing_is_lost_the_plan_stands() -> None:
    planned, _, found = trained(VARIANTS[0], "record", NETWORKS["speeds"], {})
    lossy, _, more = trained(VARIANTS[0], "record", NETWORKS["loss"], {})
    assert planned.cell.meeting.trainings == ROUNDS + 1 + 1 <= lossy.cell.meeting.trainings
    assert more["noise_multiplier"] >= found["noise_multiplier"]


def test_shares_of_noise_count_the_turns_of_a_client() -> None:
    """Two of four rounds have a client's turn: what the noise is found for is what is charged."""
    _, _, turns = trained("server", "distributed", None, CLIENTS["taking turns"])
    _, _, all_of_them = trained("server", "distributed", None, {})
    assert 0.9 * ASKED < turns["epsilon"] <= ASKED
    assert turns["noise_multiplier"] < all_of_them["noise_multiplier"]
