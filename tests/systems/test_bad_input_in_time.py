"""What cannot work in simulated time, as a person types it: one clear line and exit code 2 before anything runs, never a hang."""

from __future__ import annotations

from contextlib import nullcontext
from time import process_time

import pytest

from fedguard.api import lay_out
from fedguard.contracts import Fate, Links, Network
from fedguard.errors import ConfigError, FedGuardError, PreconditionError, StalledError
from fedguard.simulated import course
from fedguard.simulated.availability import trace
from fedguard.simulated.barriers import asp, covers
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.world import World
from tests import forked
from tests.simulated import scenes
from tests.systems import scenes as systems

HEAD = "device,start,end\n"
SUITE = """\
name: bad
seeds: 1
task: {data: digits, model: softmax}
clients: {total: 6}
training: {rounds: 1}
"""
#: Six devices that are there for a second, and come back after a hundred.
GAPS = HEAD + "".join(f"{device},0,1\n{device},99,100\n" for device in range(6))
#: Of a stay that begins before the last one is over.
TRACE = "network: {availability: {name: trace, file: overlapping.csv}}"
SLOW = "network: {compute: {seconds: 10}, availability: {name: trace, file: phones.csv}}"

#: What a suite cannot say at all.
WRONG = {
    "tau below 0": ("architecture: parameter_server(tau=-1)", "suite.yaml:6: architecture: parameter_server: tau: expected at least 0; got -1."),
    "a buffer without end": ("architecture: fedbuff(buffer=1000000000)", "buffer: expected a number in [1, 100000]; got 1000000000."),
    "time without end": ("architecture: google\nnetwork: {link: {latency: .inf}}", "suite.yaml:7: network.link.latency: expected a finite number; got inf."),
    "time that is none": ("architecture: google\nnetwork: {compute: {seconds: .nan}}", "suite.yaml:7: network.compute.seconds: expected a finite number; got nan."),
    "time beyond all numbers": ("architecture: google\nnetwork: {compute: {seconds: 1e300}}", "network.compute.seconds: expected less than or equal to 1000000000; got 1e+300."),
    "bytes that take for ever": ("architecture: google\nnetwork: {link: {up: 1e-300}}", "network.link.up: expected greater than or equal to 0.001; got 1e-300."),
    "stays of no time": ("architecture: fedbuff\nnetwork: {there: 'on_off(on=1e-9)'}", "on_off: on: expected at least 0.001; got 1e-09."),
    "a trace that overlaps": (f"architecture: fedbuff\n{TRACE}", "suite.yaml:7: network.availability: overlapping.csv: row 3: expected a start of at least 5"),
}  # fmt: skip

#: Refused, each for its own reason, under a network on which a message takes a second and nothing arrives.
NOTHING_ARRIVES = "network: {link: {latency: 1, loss: 0.999999999}}"
REFUSED = {
    "parameter_server(ranges=700, consistency='eventual')": "under parameter_server after",
    "fedbuff(buffer=2)": "Let devices be there for longer (network.availability), or lower network.compute, network.link or its loss.",
    "google(window=0.5)": "it ends after 0.5 s, and needs 5 updates by then, which take 2.24 s at least. Raise the window",
    "basgd(buffers=9)": "stays empty for ever, and there are 9 for 6 clients. Lower buffers to 6.",
    "parameter_server": "would be waited for for ever. Leave out network.link.loss",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Commands are forked from here, and so are as impatient."""
    monkeypatch.setattr(course, "_IN_VAIN", 300)
    monkeypatch.setattr(course, "_IN_VAIN_EACH", 0)


def said(folder, command: str, text: str, *more: str) -> str:
    (folder / "suite.yaml").write_text(f"{SUITE}{text}\n")
    done = forked.fedguard(command, "suite.yaml", *more, cwd=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path):
    architectures = ", ".join(f'"{one}"' for one in REFUSED)
    words = said(tmp_path, "check", f"{NOTHING_ARRIVES}\nmatrix: {{architecture: [{architectures}]}}")
    assert f"{len(REFUSED)} refused" in words
    assert [why for why in REFUSED.values() if why not in words] == []


def test_a_run_of_devices_that_always_leave_before_they_are_done_ends_before_it_starts(tmp_path):
    (tmp_path / "phones.csv").write_text(GAPS)
    words = said(tmp_path, "run", f"architecture: fedbuff(buffer=2)\n{SLOW}", "--jobs", "1")
    assert (
        "no update comes any more: 0 trainings since the last aggregate were lost on their way, and the devices of"
        in words
    )


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_a_suite_cannot_say_is_one_line(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlapping.csv").write_text(HEAD + "0,0,5\n0,3,9\n")
    (tmp_path / "suite.yaml").write_text(f"{SUITE}{text}\n")
    with pytest.raises(FedGuardError) as caught:
        lay_out(tmp_path / "suite.yaml")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_ranges_that_leave_a_server_without_coordinates_are_refused():
    made, setup = systems.scene("parameter_server(ranges=700)")
    with pytest.raises(
        PreconditionError, match="700 servers cannot have a range each of a model of 650 coordinates. Lower"
    ):
        made.architecture.check(setup)


@pytest.mark.parametrize(
    ("system", "more"),
    [("basgd(buffers=3)", {}), ("fedbuff(buffer=5)", {"protocol": {"secure_aggregation": "full"}})],
)
def test_malicious_clients_that_answer_in_no_time_do_not_stop_the_clock(system, more):
    """They alone are at work at time 0, over and over, and nobody else's update ever comes."""
    clients = {"total": 6, "malicious": 1}
    network = {"compute": {"seconds": 0.01}, "malicious_pace": 0.0}
    made, setup = systems.scene(system, clients=clients, attack="sign_flip", network=network, **more)
    with pytest.raises(
        PreconditionError, match=r"after 0 simulated seconds .* updates of a few devices wait for updates of others"
    ):
        made.architecture.check(setup)
    network = {**network, "link": {"latency": 0.01}}
    made, setup = systems.scene(system, clients=clients, attack="sign_flip", network=network, **more)
    made.architecture.check(setup)


def test_one_quick_device_does_not_make_a_round():
    """A malicious one is in time, and five of six are needed."""
    settings = {"clients": {"total": 6, "malicious": 1}, "attack": "ipm"}
    network = {"compute": {"seconds": 1.0}, "malicious_pace": 0.0}
    made, setup = systems.scene("google(window=50)", network=network, **settings)
    with pytest.raises(PreconditionError, match="would be abandoned"):
        made.architecture.check(setup)
    made, setup = systems.scene("google(window=50, least=0.1)", network=network, **settings)
    with pytest.raises(PreconditionError, match="malicious clients fill every aggregate"):
        made.architecture.check(setup)


#: By system, a network in which a malicious client answers so quickly that nobody else is in any aggregate.
FILLED = {
    "fedasync": {"malicious_pace": 0.0},
    "fedbuff(buffer=3)": {"malicious_pace": 0.0},
    "parameter_server(consistency='eventual')": {"malicious_pace": 1e-6},
    "google(over=1.0, least=0.1, window=2)": {"malicious_pace": 0.0, "link": {"latency": 0.5}},
}


@pytest.mark.parametrize(("system", "network"), FILLED.items(), ids=FILLED.keys())
def test_malicious_clients_that_fill_every_aggregate_have_nothing_to_craft_from(system, network):
    """Their attack would be honest updates to the end, and its figure that of no attack: refused, and never reported."""
    network = {"compute": {"seconds": 0.1}, **network}
    settings = {"clients": {"total": 6, "malicious": 1}, "attack": "sign_flip", "training": {"rounds": 3}}
    made, setup = systems.scene(system, network=network, **settings)
    with pytest.raises(PreconditionError, match=r"fill every aggregate here .* Raise network.malicious_pace"):
        made.architecture.check(setup)
    with pytest.raises(PreconditionError, match="fill every aggregate here"):  # with a seed that nobody has looked at
        list(made.architecture.run(setup))


@pytest.mark.parametrize("system", ["fedasync", "fedbuff(buffer=3)", "parameter_server(consistency='eventual')"])
def test_at_another_pace_they_have(system):
    network = {"compute": {"seconds": 0.1}, "malicious_pace": 0.2}
    settings = {"clients": {"total": 6, "malicious": 1}, "attack": "sign_flip", "training": {"rounds": 3}}
    made, setup = systems.scene(system, network=network, **settings)
    made.architecture.check(setup)
    assert [report.round for report in made.architecture.run(setup)] == [1, 2, 3]


def test_who_acts_later_or_not_at_all_is_not_refused_for_that():
    """In rounds in which nobody acts, malicious clients send honest updates, as they mean to."""
    network = {"compute": {"seconds": 0.1}, "malicious_pace": 0.0}
    settings = {"clients": {"total": 6, "malicious": 1}, "training": {"rounds": 3}, "network": network}
    for changes, refused in (
        ({"attack": "none"}, False),
        ({"attack": "sign_flip", "threat": {"first_round": 4}}, False),
        ({"attack": "sign_flip", "threat": {"first_round": 2}}, True),
    ):
        made, setup = systems.scene("fedbuff(buffer=3)", **settings, **changes)
        with pytest.raises(PreconditionError) if refused else nullcontext():
            made.architecture.check(setup)


@pytest.mark.parametrize(
    ("network", "refused"),
    [
        # The least of six devices takes 240 examples of a second and two messages of one; five of six are needed.
        ({"compute": {"seconds": 1.0}, "link": {"latency": 1}}, True),
        (
            {"compute": {"seconds": 1.0, "jitter": 0.1}, "link": {"latency": 1}},
            False,
        ),  # a draw may be as quick as it likes
        ({"compute": {"seconds": 1.0, "spread": 0.1}, "link": {"latency": 25.5}}, True),
        ({"compute": {"seconds": 0.0}, "link": {"latency": 25}}, False),  # at the deadline is in time
        ({"compute": {"seconds": 0.0}, "link": {"up": 50.0}}, True),  # 2,600 bytes take 52 s
        ({"compute": {"seconds": 0.0}, "link": {"up": 50.0, "spread": 1.0}}, False),
    ],
)
def test_a_deadline_is_refused_where_nobody_could_meet_it_whatever_is_drawn(network, refused):
    made, setup = systems.scene("google(window=50)", network=network)
    if not refused:
        made.architecture.check(setup)
        return
    with pytest.raises(PreconditionError, match="each round of google would be abandoned: it ends after 50 s"):
        made.architecture.check(setup)


def test_gaps_that_leave_time_enough_are_waited_for():
    there = scenes.Timetable({device: [(99.0 * turn, 99.0 * turn + 3) for turn in range(9)] for device in range(3)})
    network = Network(link=Links(latency=1.0), availability=there)
    assert [release.at for release in scenes.releases(network, asp(), 3, 6)] == pytest.approx(
        [2.001] * 3 + [101.001] * 3
    )


def test_what_came_before_does_not_count_as_vain():
    """Each second update is lost, far more in all than in a row."""
    found = scenes.releases(Network(link=Links(latency=1.0, loss=0.5)), asp(), 3, 1000)
    assert len(found) == 1000
    assert sum(len(release.of_fate(Fate.LOST)) for release in found) > 600


def test_updates_that_wait_cost_the_same_however_many_they_are(monkeypatch):
    """Device 0 answers in no time, and buffer 1 stays empty: what has come is not looked through again for each update."""
    monkeypatch.setattr(course, "_IN_VAIN", 15_000)
    flood = ServerSimulation(
        World(Network(), [0.0, 1.0], 1000, scenes.Rng(0)), covers(2), 2, lambda round: (0, 1), scenes.Rng(0)
    )
    began = process_time()
    with pytest.raises(StalledError, match=r"after 0 simulated seconds 15,00\d updates of a few devices wait"):
        next(flood.releases())
    assert process_time() - began < 2


def test_devices_that_wait_in_ever_smaller_steps_are_given_up(monkeypatch):
    """A law of somebody's own whose devices are always about to come."""
    monkeypatch.setattr(scenes.world(Network(), 1).presence.__class__, "wait", lambda presence, device, now: 0.001)
    with pytest.raises(StalledError, match="no update comes any more"):
        scenes.releases(Network(), asp(), 3, 1)


def trace_of(folder, content: bytes) -> str:
    path = folder / "phones.csv"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + HEAD.encode() + b"0,0,5\n", b"device,start,end\r\n0,0,5\r\n"])
def test_a_trace_may_come_from_a_spreadsheet(tmp_path, content):
    law = trace.Trace(file=trace_of(tmp_path, content))
    law.check(1)
    assert law.start(1, scenes.Rng(0)).stretch(0, 0.0)[1] > 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,0,1e-9", "row 2: expected 0.001 s or more; got 1e-09. Drop what is over at once."),
        ("9" * 5000 + ",0,1", "row 2: expected the number of a device, from 0; got '999"),
        ("0,0,1e400", "row 2: end: expected seconds, at least 0; got '1e400'. Write a number such as 3600."),
        ("1,0,5", "expected a row for each of the 6 devices, numbered from 0; device 0 has none."),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, row, message):
    with pytest.raises(ConfigError) as caught:
        trace.Trace(file=trace_of(tmp_path, f"{HEAD}{row}\n".encode())).check(6)
    assert message in str(caught.value)


def test_a_trace_without_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MOST_BYTES", 100)
    file = trace_of(tmp_path, (HEAD + "0,0,5\n" * 20).encode())
    with pytest.raises(ConfigError, match=r"expected at most 100 bytes; got more\. Leave out devices"):
        trace.Trace(file=file).check(1)
