"""What does not go with a system is refused in one line that says what, why and how to remedy it; bad input never hangs."""

from __future__ import annotations

import itertools

import pytest
import yaml

from fedguard.api import lay_out
from fedguard.contracts import Fate
from fedguard.errors import FedGuardError
from tests.systems.scenes import cell, reports, settings

EVENTUAL = "parameter_server(consistency='eventual')"
BOUNDED = "parameter_server(consistency='bounded')"
ALONE = ("fedasync", "fedbuff", "basgd", EVENTUAL, BOUNDED)
TOGETHER = ("parameter_server", "google", "decaf", "mapreduce", "fate")

MASKED = {"protocol": {"secure_aggregation": "full"}}
NOISE = {
    "protocol": {"privacy": {"kind": "record", "sample_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0}},
    "training": {"local_steps": 2},
}
STEPS = {"local_steps": 2}
AT_SERVER = {"protocol": {"privacy": {"kind": "client", "noise_multiplier": 1.0, "delta": 1e-3}}}
OWN = {"kind": "record", "sample_rate": 0.1, "clip": 1.0}
LEVELS = {
    "protocol": {"privacy": {**OWN, "levels": [{"noise_multiplier": 1.0}, {"noise_multiplier": 2.0}]}},
    "training": STEPS,
}
TURNS = {"clients": {"per_round": 0.5, "sampling": "cyclic"}}
LATER = {"clients": {"schedule": [{"clients": 1, "joins": 2}]}}
LOSSY = {"network": {"link": {"loss": 0.1}}}
AWAY = {"network": {"there": "on_off(on=60, off=30)"}}
ROBUST = {"defense": "median", "attack": "ipm", "clients": {"malicious": 1}}

REFUSED = [
    *((system, MASKED, "each counts by itself", "Set secure_aggregation: none, or use fedbuff or server.") for system in ("fedasync", EVENTUAL, BOUNDED)),
    ("fedbuff(buffer=7)", MASKED, "7 updates of 6 clients never meet in one", "Lower buffer, or set secure_aggregation: none."),
    ("fedbuff(buffer=2)", MASKED, "at least 3 clients, for of two each learns the other's input", "for of two"),
    ("fedbuff(buffer=5)", {"protocol": {"secure_aggregation": {"groups": 2}}}, "2 groups of 5 clients have 2", "Take at most 1 groups"),
    ("google(over=2.0)", {**MASKED, "clients": {"per_round": 3}}, "must survive", "raise least."),
    ("google(over=1.0)", {**MASKED, "network": {"there": "on_off(on=60, off=30)"}}, "a device that comes later has no part in it", "use fedbuff, or set secure_aggregation: none under google."),
    ("mapreduce(combiners=7)", {}, "a combiner that gets no update has no mean, and mapreduce has 7 for 6 clients", "Lower combiners to 6"),
    ("mapreduce", {"clients": {"per_round": 3}}, "mapreduce has 5 for 3 clients of a round", "or raise clients.per_round."),
    ("mapreduce(backup=0.2)", {"attack": "ipm", "clients": {"malicious": 1}}, "would answer for an honest client", "Leave out backup, or the attack."),
    ("mapreduce(backup=0.2)", {"training": {"worker_momentum": 0.5}}, "and not its momentum", "set training.worker_momentum: 0."),
    ("mapreduce", MASKED, "the combiners of mapreduce add up", "or use server with secure_aggregation: {groups: ...}."),
    *((system, AT_SERVER, "a server that adds noise clips each update", "Use privacy: {name: record}") for system in ("basgd", "mapreduce", "fate")),
    ("parameter_server(ranges=2)", AT_SERVER, "clips an update by its whole length", "Set ranges=1, or privacy: {name: record}."),
    ("fate", NOISE, "reads each party's number of examples, which no noise hides", "Use server."),
    ("decaf", NOISE, "the trusted set would be the unit", "Leave out privacy, or use google."),
    ("mapreduce(backup=0.2)", NOISE, "what is hidden lies with two", "Leave out backup, or privacy."),
    ("fedbuff(buffer=5)", {"protocol": {**MASKED["protocol"], "privacy": {"kind": "distributed", "noise_multiplier": 2.0, "epsilon": 3.0, "delta": 1e-3}}}, "nothing bounds how often", "Set privacy.noise_multiplier"),
    *(
        (system, {"protocol": {"privacy": {"kind": "client", "epsilon": 3.0, "delta": 1e-3}}}, "nothing bounds how often a quick client sends here", "Set privacy.noise_multiplier")
        for system in ("fedbuff", "fedasync", EVENTUAL)
    ),
    ("fedbuff", {"protocol": {"privacy": {**OWN, "levels": [{"epsilon": 3.0}]}}, "training": STEPS}, "nothing bounds how often", "Set privacy.noise_multiplier"),
    *((system, {**LEVELS, "defense": "inverse_variance"}, "weighs the updates of an aggregate against each other", "Use fedbuff, or mean.") for system in ("fedasync", EVENTUAL, BOUNDED)),
    *(
        (system, {"training": {"algorithm": name, **STEPS}}, f"{name} carries more than updates", "Use fedavg, fedsgd or fedprox")
        for system, name in itertools.product((*ALONE, *(one for one in TOGETHER if one not in ("parameter_server", "google"))), ("scaffold", "feddyn", "fednova", "fedper"))
    ),
    *((system, TURNS, "who trains next follows from who is done", "Leave out clients.sampling: cyclic") for system in ALONE),
    *((system, LATER, "who trains next follows from who is done", "and clients.schedule.") for system in ALONE),
    ("google(selection=30)", {"clients": {"per_round": 0.5, "sampling": "poisson"}}, "takes the devices that check in first", "Use fixed."),
    ("google(check_ins=5)", {}, "steers the pace of devices that check in, and none do", "Set selection, or leave out check_ins."),
    ("google(selection=2, check_ins=5)", {}, "2 times 6 devices in 2 s are more than 5 a second", "Raise check_ins or selection, or lower clients.per_round."),
    ("google", TURNS, "google asks more devices than a round needs", "Use fixed or poisson."),
    *((system, missing, "would be waited for for ever", "or use google, which has a deadline.") for system in ("parameter_server", "mapreduce", "fate") for missing in (LOSSY, AWAY)),
    *(("server", missing, "asks network for times alone", "or use google.") for missing in (LOSSY, AWAY)),
    (BOUNDED, {"clients": {"per_round": 0.5}}, "bounded delay counts the pushes", "Set clients.per_round: 1.0."),
    *((system, ROBUST, "n >= 2f + 1, with f = 1", "Here each update is an aggregate of its own: use mean") for system in (EVENTUAL, BOUNDED, "fedasync")),
    ("fedbuff(buffer=2)", ROBUST, "n >= 2f + 1, with f = 1", "raise buffer."),
    ("mapreduce(combiners=2)", ROBUST, "n >= 2f + 1, with f = 1", "Here n counts combiners: raise their number."),
    ("fate", MASKED, "fate brings masks of its own", "Set secure_aggregation: none, or use server."),
    ("fate", {"clients": {"per_round": 2}}, "of two parties each learns the other's update", "Set clients.per_round to at least 3."),
    ("fate", {"defense": "krum"}, "krum needs each client's update", "Use server"),
    ("fate", ROBUST, "n >= 2f + 1, with f = 1", "The arbiter of fate has one sum: use mean."),
    ("fate(bits=24)", {"clients": {"total": 300}}, "the sum of 300 clients may reach", "Lower bits to"),
    ("mapreduce", {"defense": "foolsgold"}, "foolsgold needs each client's update; this architecture does not show it", "Use server"),
    ("mapreduce", {"defense": "fltrust", "server": {"root_data": 20}}, "fltrust needs each client's update", "Use server"),
    *((system, {"defense": "foolsgold"}, "a client may be behind two", "Use server.") for system in ALONE if system != "basgd"),
    ("parameter_server(ranges=2)", {"defense": "fltrust", "server": {"root_data": 20}}, "of which each of 2 servers has a range", "Set ranges=1."),
    ("fedbuff", {"attack": "analytic", "protocol": {"secure_aggregation": "full"}}, "those of several meet in a sum", "Use google, parameter_server or server."),
    (BOUNDED, {"attack": "nasr_active", "observer": {"server": "malicious"}}, "the updates of a round began with several", "Use another attack"),
    ("basgd(buffers=2)", {"attack": "analytic"}, "those of several meet in a sum", "Use google"),
]  # fmt: skip


@pytest.mark.parametrize(("system", "changes", "why", "remedy"), REFUSED)
def test_it_is_refused_in_one_line(system, changes, why, remedy, tmp_path):
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({"name": "refused", **settings(system, **changes)}))
    cells = lay_out(tmp_path / "suite.yaml")[1].cells
    reasons = {reason for one in cells for reason in one.verdict.reasons}
    (reason,) = (reason for reason in reasons if why in reason)
    assert remedy in reason and "\n" not in reason


@pytest.mark.parametrize(
    "changes",
    {
        str(changes): changes
        for _, changes, *_ in REFUSED
        if "loss" not in changes.values() and "there" not in str(changes) and changes != LOSSY
    }.values(),
)
def test_it_is_refused_for_the_systems_sake(changes):
    assert cell("server", **changes).verdict.reasons == ()


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("parameter_server(tau=-1)", "tau: expected at least 0; got -1."),
        ("parameter_server(ranges=0)", "ranges: expected at least 1; got 0."),
        ("parameter_server(consistency='never')", "'sequential', 'bounded' or 'eventual'"),
        ("google(over=0.5)", "over: expected at least 1; got 0.5."),
        ("google(window=0)", "window: expected more than 0"),
        ("google(selection=0)", "selection: expected more than 0"),
        ("google(least=0)", "least: expected a number in (0, 1]"),
        ("basgd(buffers=0)", "buffers: expected at least 1; got 0."),
        ("fedbuff(buffer=0)", "buffer: expected a number in [1, 100000]; got 0."),
        ("mapreduce(backup=0)", "backup: expected a number in (0, 1]"),
        ("mapreduce(combiners=0)", "combiners: expected at least 1; got 0."),
        ("fate(bits=25)", "bits: expected a number in [2, 24]; got 25."),
        ("fedasync(alpha=0)", "alpha: expected a number in (0, 1]"),
        ("fedasync(staleness='old')", "'constant', 'polynomial' or 'hinge'"),
    ],
)
def test_a_parameter_out_of_its_range_is_named(system, message):
    with pytest.raises(FedGuardError, match=r"^architecture: ") as caught:
        cell(system)
    assert message in str(caught.value)


def test_a_window_that_nobody_can_meet_abandons_each_round_and_ends():
    found = list(reports("google(window=0.5)", training={"rounds": 3}))
    assert [report.abandoned for report in found] == ["0 updates arrived, of at least 5"] * 3
    assert found[-1].moment.seconds == 1.5
    assert all(len(report.of_fate(Fate.LATE)) == 6 and not report.clients for report in found)


def test_a_buffer_of_more_than_there_are_clients_waits_until_they_have_come_again():
    found = list(reports("fedbuff(buffer=15)", training={"rounds": 3}))
    assert [len(report.clients) for report in found] == [15, 15, 15]
    assert [report.moment.seconds for report in found] == [6, 10, 16]  # six come every two seconds
    assert found[-1].evaluation.accuracy > 0.7


def test_rounds_in_which_nobody_was_drawn_take_no_time():
    drawn = {"per_round": 1, "sampling": "poisson"}
    found = list(reports("parameter_server", clients=drawn, training={"rounds": 12}))
    empty = [report for report in found if not len(report.clients)]
    assert 0 < len(empty) < 12 and all(report.abandoned == "nobody was chosen" for report in empty)
    assert found[-1].moment.seconds == 2 * (12 - len(empty))
