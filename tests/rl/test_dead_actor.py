"""An actor dies: who waits for all waits for ever, and says so; who waits for nobody learns on from the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedguard.errors import StalledError
from tests.rl.acting import cell, reports, scene

ALGORITHMS = {"a2c": "actor_critic(t_max=4)", "a3c": "actor_critic(t_max=4)", "impala(buffer=2)": "vtrace(t_max=4)"}
#: What a training takes: of 12 steps of a second each.
SECONDS = 12.0


@pytest.fixture
def dies(tmp_path: Path) -> dict[str, Any]:
    """A world in which the first of four actors is there for two trainings and a half, and then no more."""
    file = tmp_path / "dies.csv"
    file.write_text("device,start,end\n0,0,30\n" + "".join(f"{actor},0,100000\n" for actor in (1, 2, 3)))
    return {"compute": {"seconds": 1.0}, "there": {"name": "trace", "file": str(file)}}


def test_who_waits_for_all_is_refused_where_actors_may_die_and_would_wait_for_ever(dies: dict[str, Any]) -> None:
    made = cell("a2c", network=dies)
    assert any("would be waited for for ever" in reason for reason in made.verdict.reasons)
    _, setup = scene("a2c")
    begun, found = made.architecture.run(setup.with_parts(network=made.network, availability=made.availability)), []
    with pytest.raises(StalledError, match="the server has 3 of the 4 updates that it waits for"):
        found.extend(begun)
    assert [report.moment.seconds for report in found if report.moment] == [SECONDS, 2 * SECONDS]


@pytest.mark.parametrize("architecture", ["a3c", "impala(buffer=2)"])
def test_who_waits_for_nobody_learns_on_from_those_who_live(architecture: str, dies: dict[str, Any]) -> None:
    training = {"algorithm": ALGORITHMS[architecture], "rounds": 6}
    alive = list(reports(architecture, training=training, network={"compute": {"seconds": 1.0}}))
    found = list(reports(architecture, training=training, network=dies))
    heard = Counter(client for report in found for client in report.clients)
    assert heard[0] == 2 and len({heard[actor] for actor in (1, 2, 3)}) <= 2
    assert heard.total() == 24, "as many updates as with all, which take longer to come"
    last, usual = found[-1].moment, alive[-1].moment
    assert last is not None and usual is not None
    assert usual.seconds == 6 * SECONDS
    assert last.seconds == -(-(24 - 2) // 3) * SECONDS
