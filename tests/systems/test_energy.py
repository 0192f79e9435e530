"""Joules of simulated devices: closed forms of what a training costs, and what it takes to a target."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard.cli import app
from fedguard.contracts import Fate
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.moments import axes, in_time
from tests.systems.scenes import reports, scene

#: A second of computing costs 2 J and takes a hundred examples; a byte costs 10 mJ, either way.
POWER = {"compute": {"seconds": 0.01, "watts": 2.0}, "link": {"joules": 0.01, "latency": 1.0}}
#: Of a softmax model of 64 x 10 + 10 numbers.
BYTES = 4 * 650


@pytest.mark.parametrize("architecture", ["server", "parameter_server", "fedbuff(buffer=6)"])
def test_joules_are_watts_times_seconds_and_those_of_each_byte_sent_and_received(architecture):
    made, setup = scene(architecture, network=POWER, training={"rounds": 3})
    examples = sum(setup.task.sizes)
    found = list(made.architecture.run(setup))
    spent = axes(found)["joules"]
    if architecture == "fedbuff(buffer=6)":  # in the last aggregates some have begun what nobody sees the end of
        assert spent[0] >= 2.0 * 0.01 * examples + 0.01 * 2 * 6 * BYTES
    else:
        each = 2.0 * 0.01 * examples + 0.01 * 2 * 6 * BYTES
        assert spent == pytest.approx([each, 2 * each, 3 * each])
    assert in_time(found)["joules"] == spent[-1]


def test_who_is_late_has_spent_in_vain():
    """Six are asked for five, and one straggler is late in each round: it counts like the others."""
    network = {**POWER, "compute": {"seconds": 0.01, "watts": 2.0, "slow": {"share": 0.17, "factor": 3.0}}}
    found = list(reports("google(over=1.2)", network=network, clients={"per_round": 5}, training={"rounds": 2}))
    assert all(len(report.of_fate(Fate.LATE)) == 1 for report in found)
    seconds = found[-1].moment.computed
    assert axes(found)["joules"][-1] == pytest.approx(2.0 * seconds + 0.01 * 2 * 12 * BYTES)


def test_a_run_shows_them_and_what_it_took_to_a_target(tmp_path):
    suite = {"name": "power", "seeds": 1, "clients": {"total": 4}, "training": {"rounds": 3}, "network": POWER}
    run = fg.run(suite, store=tmp_path, jobs=1)
    (row,) = run.rows("joules_to(0.5)", "joules_to(1)")
    assert row["joules"] == FIGURES["joules_to(1)"].of(next(iter(run.ran.values()))) > row["joules_to(0.5)"] > 0
    assert "joules" in run.figures and "joules_to" in run.to_target
    for figure, title in (("joules", FIGURES["joules"].title), ("joules_to(0.5)", "in joules of the devices")):
        said = CliRunner().invoke(app, ["show", "power", "--store", str(tmp_path), "--metric", figure])
        assert title in " ".join(said.output.split())
    done = CliRunner().invoke(
        app, ["compare", "power", "power", "--metric", "joules", "--json", "--store", str(tmp_path)]
    )
    (found,) = json.loads(done.output)["differences"]
    assert found["figure"] == "joules" and found["a"] == found["b"] == row["joules"]
