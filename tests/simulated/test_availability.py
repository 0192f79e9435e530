"""When devices are there, against the closed forms of each law; and what a suite may say of it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, expon, kstest

from fedguard.api import lay_out
from fedguard.bench.running.code import code_of
from fedguard.bench.running.trial import run_trial
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Availability, Presence
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng

HOUR = 3600.0


def presence(spec: str | dict, devices: int = 1, seed: int = 0) -> Presence:
    law: Availability = load_registry().build("availability", spec)
    law.check(devices)
    return law.start(devices, Rng(seed))


def stretches(there: Presence, device: int, until: float) -> list[tuple[float, float]]:
    found, after = [], 0.0
    while after < until:
        found.append(there.stretch(device, after))
        after = found[-1][1]
    return found


# on_off


def test_on_off_is_there_for_on_over_on_and_off_at_any_time_the_start_included():
    for time in (0.0, 7.0, 900.0, 12_345.6):
        there = presence("on_off(on=600, off=200)", 2500)
        present = sum(there.wait(device, time) == 0 for device in range(2500))
        assert binomtest(present, 2500, 0.75).pvalue > 1e-4, time


def test_on_off_shares_out_time_as_it_shares_out_devices():
    there = presence("on_off(on=60, off=30)", 50)
    until = 20_000.0
    stayed = sum(
        min(end, until) - begin
        for device in range(50) for begin, end in stretches(there, device, until) if begin < until
    )  # fmt: skip
    # Variance of the share over T: 2 p (1 - p) / (T (1/on + 1/off)) for each device.
    share, error = 2 / 3, math.sqrt(2 * (2 / 9) / (until * (1 / 60 + 1 / 30)) / 50)
    assert stayed / (50 * until) == pytest.approx(share, abs=5 * error)


def test_on_off_stays_and_is_away_for_exponential_times():
    there = presence("on_off(on=60, off=30)")
    found = np.array(stretches(there, 0, 200_000.0))[1:]
    assert kstest(found[:, 1] - found[:, 0], expon(scale=60).cdf).pvalue > 1e-3
    assert kstest(found[1:, 0] - found[:-1, 1], expon(scale=30).cdf).pvalue > 1e-3


def test_on_off_forgets_at_the_rate_of_its_chain():
    """$P(there at t | there at 0) = p + (1 - p) exp(-t (1/on + 1/off))$."""
    there, time = presence("on_off(on=60, off=30)", 6000), 20.0
    first = [device for device in range(6000) if there.wait(device, 0.0) == 0]
    still = sum(there.wait(device, time) == 0 for device in first)
    chance = 2 / 3 + 1 / 3 * math.exp(-time * (1 / 60 + 1 / 30))
    assert binomtest(still, len(first), chance).pvalue > 1e-4


# day_and_night


@pytest.mark.parametrize(
    ("hour", "share"),
    # Nights of 8 hours that begin evenly over the first 6: at hour h those are there whose night began in (h - 8, h].
    [(0.0, 0.0), (3.0, 0.5), (6.0, 1.0), (8.0, 1.0), (11.0, 0.5), (14.0, 0.0), (20.0, 0.0), (24 + 3.0, 0.5), (240 + 11.0, 0.5)],
)  # fmt: skip
def test_the_share_of_devices_that_are_there_follows_the_hour(hour, share):
    there = presence("day_and_night(night=8, spread=6)", 2000)
    present = sum(there.wait(device, hour * HOUR) == 0 for device in range(2000))
    assert present == round(2000 * share) if share in (0, 1) else binomtest(present, 2000, share).pvalue > 1e-4


def test_each_device_has_its_night_each_day_at_its_hour():
    there = presence("day_and_night(night=8, spread=24)", 20)
    for device in range(20):
        found = np.array(stretches(there, device, 10 * 24 * HOUR))
        assert found[:, 1] - found[:, 0] == pytest.approx(8 * HOUR)
        assert np.diff(found[:, 0]) == pytest.approx(24 * HOUR)
    assert len({there.stretch(device, 48 * HOUR)[0] for device in range(20)}) == 20


def test_around_the_clock_as_many_are_there_at_any_hour():
    there = presence("day_and_night(night=6, spread=24)", 2000)
    for hour in (0.0, 5.0, 13.0, 23.0):
        present = sum(there.wait(device, hour * HOUR) == 0 for device in range(2000))
        assert binomtest(present, 2000, 0.25).pvalue > 1e-4, hour


def test_a_night_of_24_hours_has_no_end():
    there = presence("day_and_night(night=24, spread=24)", 3)
    assert [there.wait(device, 12_345.0) for device in range(3)] == [0.0] * 3
    assert there.leaves(0, 12_345.0, 1e9) is None


# trace


def written(folder, text: str) -> str:
    path = folder / "trace.csv"
    path.write_text(text)
    return str(path)


def test_a_trace_says_who_is_there_and_is_repeated_from_its_end(tmp_path):
    file = written(tmp_path, "device,start,end\n0,0,10\n1,5,20\n0,30,40\n")
    there = presence({"name": "trace", "file": file}, 2)
    assert stretches(there, 1, 100.0) == [(5.0, 20.0), (45.0, 60.0), (85.0, 100.0)]
    # Device 0 is there around the end: from 30 on to 40, and on to 50.
    assert stretches(there, 0, 90.0) == [(-10.0, 10.0), (30.0, 50.0), (70.0, 90.0)]
    assert there.wait(1, 25.0) == 20.0
    assert there.leaves(0, 35.0, 10.0) is None
    assert there.leaves(0, 35.0, 20.0) == 15.0


def test_stretches_that_touch_are_one_and_all_of_them_are_always(tmp_path):
    file = written(tmp_path, "device,start,end\n0,0,10\n0,10,40\n1,5,10\n1,10,20\n")
    there = presence({"name": "trace", "file": file}, 2)
    assert there.leaves(0, 39.0, 1e6) is None
    assert there.stretch(1, 0.0) == (5.0, 20.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device;start;end\n0;0;1\n", "row 1: expected the header device,start,end; got 'device;start;end'. Write it so."),
        ("", "row 1: expected the header device,start,end; got ''. Write it so."),
        ("device,start,end\n", "expected a row for each device below the header; got none. Add them."),
        ("device,start,end\n0,0\n", "row 2: expected device,start,end; got '0,0'. Give three values."),
        ("device,start,end\n0,0,1,2\n", "row 2: expected device,start,end; got '0,0,1,2'. Give three values."),
        ("device,start,end\n0,0,1\n\n1,0,1\n", "row 3: expected device,start,end; got ''. Give three values."),
        ("device,start,end\n0,0,1\none,0,1\n", "row 3: expected the number of a device, from 0; got 'one'. Number the devices."),
        ("device,start,end\n-1,0,1\n", "row 2: expected the number of a device, from 0; got '-1'. Number the devices."),
        ("device,start,end\n0,noon,1\n", "row 2: start: expected seconds, at least 0; got 'noon'. Write a number such as 3600."),
        ("device,start,end\n0,0,nan\n", "row 2: end: expected seconds, at least 0; got 'nan'. Write a number such as 3600."),
        ("device,start,end\n0,0,inf\n", "row 2: end: expected seconds, at least 0; got 'inf'. Write a number such as 3600."),
        ("device,start,end\n0,-5,1\n", "row 2: start: expected seconds, at least 0; got '-5'. Write a number such as 3600."),
        ("device,start,end\n0,5,1\n", "row 2: expected an end after the start 5; got 1. Swap or drop them."),
        ("device,start,end\n0,5,5\n", "row 2: expected an end after the start 5; got 5. Swap or drop them."),
        (
            "device,start,end\n0,0,10\n1,0,1\n0,9,12\n",
            "row 4: expected a start of at least 10, where the stretch of device 0 before it ends; got 9. Sort its rows, and "
            "join those that overlap.",
        ),
        (
            "device,start,end\n0,5,10\n0,0,1\n",
            "row 3: expected a start of at least 10, where the stretch of device 0 before it ends; got 0. Sort its rows, and "
            "join those that overlap.",
        ),
        (
            "device,start,end\n0,0,10\n2,0,1\n",
            "expected a row for each of the 3 devices, numbered from 0; device 1 has none. Add one, or lower clients.total.",
        ),
        ('device,start,end\n0,0,"1\n', "cannot be read: unexpected end of data. Write it as comma-separated values."),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, text, message):
    file = written(tmp_path, text)
    law = load_registry().build("availability", {"name": "trace", "file": file})
    with pytest.raises(ConfigError) as caught:
        law.check(3)
    assert str(caught.value) == f"{file}: {message}"


def test_a_trace_that_cannot_be_read_is_refused_in_one_line(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"device,start,end\n0,\xff,1\n")
    for file, said in (
        ("~nobody_of_this_name/x.csv", "cannot be read"),
        (tmp_path / "none.csv", "no such file"),
        (tmp_path, "no such file"),
        (tmp_path / "bytes.csv", "utf-8"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            load_registry().build("availability", {"name": "trace", "file": str(file)}).check(1)
        assert "\n" not in str(caught.value)


def test_devices_beyond_the_federation_are_left_out_and_a_new_file_is_read_anew(tmp_path):
    there = presence({"name": "trace", "file": written(tmp_path, "device,start,end\n0,0,4\n7,1,8\n")}, 1)
    assert there.stretch(0, 0.0) == (0.0, 4.0)
    assert there.wait(0, 6.0) == 2.0  # the period is that of the file
    there = presence({"name": "trace", "file": written(tmp_path, "device,start,end\n0,0,4\n7,1,100\n")}, 1)
    assert there.wait(0, 6.0) == 94.0


# What all laws have in common.


def laws(folder) -> list:
    file = written(folder, "device,start,end\n" + "".join(f"{i},{i},{i + 3}\n{i},50,{60 + i}\n" for i in range(12)))
    return [
        "always", "on_off(on=60, off=30)", "day_and_night(night=8, spread=24)", "day_and_night(night=20, spread=24)",
        {"name": "trace", "file": file},
    ]  # fmt: skip


def test_the_laws_are_those_of_the_table(tmp_path):
    named = {spec["name"] if isinstance(spec, dict) else spec.partition("(")[0] for spec in laws(tmp_path)}
    assert named == set(load_registry().names("availability"))


def test_a_device_depends_on_nobody_else_and_not_on_the_order_of_questions(tmp_path):
    times = [0.0, 10.0, 33.3, 1000.0, 40_000.0, 100_000.0]
    for spec in laws(tmp_path):
        few, many = presence(spec, 3), presence(spec, 12)
        forth = [[few.stretch(device, time) for time in times] for device in range(3)]
        back = [[many.stretch(device, time) for device in reversed(range(12))][::-1] for time in reversed(times)][::-1]
        assert forth == [[row[device] for row in back] for device in range(3)], spec
    one, other = (presence("on_off", 3, seed).stretch(0, 0.0) for seed in (0, 1))
    assert one != other


@settings(deadline=None)
@given(times=st.lists(st.floats(0, 3e5), min_size=1, max_size=20), seconds=st.floats(0, 1e5))
@pytest.mark.slow
def test_waits_and_leaves_are_those_of_the_stretches(times, seconds, tmp_path_factory):
    """Looked up in the plain list of all stretches of a device, up to a microsecond."""
    for spec in laws(tmp_path_factory.getbasetemp()):
        there, known = presence(spec, 12), presence(spec, 12)
        listed = stretches(known, 5, 1e6)
        for now in times:
            begin, end = next((begin, end) for begin, end in listed if end > now + 1e-6)
            assert there.wait(5, now) == pytest.approx(max(begin - now, 0.0), abs=2e-6)
            left = there.leaves(5, now, seconds)
            if begin > now + 1e-6:
                assert left == 0.0
            elif now + seconds <= end:
                assert left is None
            else:
                assert left == pytest.approx(end - now, abs=2e-6)


def test_after_the_wait_a_device_is_there_and_after_it_has_left_it_is_not():
    """Also where simulated time is rounded to nanoseconds, after years."""
    there = presence("on_off(on=600, off=300)", 4)
    for device in (0, 3):
        now = device * 1e7 + 0.1
        for _ in range(50):
            now = round((now + there.wait(device, now)) * 1e9) / 1e9
            assert there.wait(device, now) == 0.0
            left = there.leaves(device, now, math.inf)
            assert left > 0
            now = round((now + left) * 1e9) / 1e9
            assert there.wait(device, now) > 0


# In a suite.

SUITE = """
name: there
seeds: 1
clients: {total: 6}
training: {rounds: 2}
"""


def cells(folder, further: str = "") -> list[PlannedCell]:
    (folder / "suite.yaml").write_text(SUITE + further)
    return [cell for _, cell in lay_out(folder / "suite.yaml")[1].positions]


def test_a_cell_without_a_network_is_what_it_was(tmp_path):
    (cell,) = cells(tmp_path)
    assert "network" not in cell.canonical
    assert cell.network is None


def test_a_law_stands_in_the_identity_with_all_its_parameters(tmp_path):
    further = """
network: {compute: {spread: 0.2}}
matrix:
  network.availability: [null, always, "on_off", "on_off(on=600)", {name: on_off, off: 300}, on_off(on=10), day_and_night]
"""
    found = cells(tmp_path, further)
    assert [cell.canonical["network"]["there"] for cell in found] == [
        "always", "always", *[{"name": "on_off", "on": 600.0, "off": 300.0}] * 3, {"name": "on_off", "on": 10.0, "off": 300.0},
        {"name": "day_and_night", "night": 8.0, "spread": 6.0},
    ]  # fmt: skip
    assert len({cell.id for cell in found}) == 4
    for cell in found:
        again = build_cell(CellConfig.model_validate(cell.canonical), load_registry())
        assert (again.id, again.canonical) == (cell.id, cell.canonical)
        assert again.availability.spec() == cell.availability.spec()


def test_a_law_may_be_swept_where_nothing_else_is_said_of_the_network(tmp_path):
    assert len(cells(tmp_path, "matrix: {network.availability: [on_off, day_and_night]}")) == 2


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (
            "network: {availability: on_of}",
            "network.availability: unknown availability 'on_of'. Did you mean 'on_off'?",
        ),
        (
            "network: {availability: {name: on_off, on: 0}}",
            "network.availability: on_off: on: expected at least 0.001; got 0.0.",
        ),
        (
            "matrix: {network.availability: [always, on_off(away=3)]}",
            "network.availability[1]: unknown parameter of on_off 'away'.",
        ),
        ("network: {availability: {name: trace, file: none.csv}}", "network.availability: none.csv: no such file."),
        (
            "network: {their: always}",
            "unknown key 'their'. Expected one of: availability, compute, link, malicious_pace.",
        ),
    ],
)
def test_what_a_suite_may_not_say_of_it(tmp_path, further, message):
    with pytest.raises(ConfigError) as caught:
        cells(tmp_path, further)
    assert message in str(caught.value)
    assert "suite.yaml" in str(caught.value)


def test_a_record_names_the_trace_it_was_made_with(tmp_path):
    rows = "".join(f"{device},0,50\n" for device in range(6))
    file = written(tmp_path, f"device,start,end\n{rows}")
    (cell,) = cells(tmp_path, f"network: {{availability: {{name: trace, file: {file}}}}}")
    before = code_of(cell)
    written(tmp_path, f"device,start,end\n{rows}5,60,70\n")
    after = code_of(dataclasses.replace(cell))
    assert before["network.there"] != after["network.there"]
    assert {**before, "network.there": ""} == {**after, "network.there": ""}


PLUGIN = '''
"""Weekends off."""
from dataclasses import dataclass

from fedguard.contracts import Availability, PositiveFloat, Presence


@dataclass(frozen=True, kw_only=True)
class Weekly(Availability):
    """Each device is there for the first days of a week.

    Args:
        days: how many.
    """

    name = "weekly"
    days: PositiveFloat = 5.0

    def start(self, devices, rng):
        return _Weekly(self.days * 86400.0)


class _Weekly(Presence):
    def __init__(self, days):
        self.days = days

    def stretch(self, device, after):
        week = after // (7 * 86400.0) * 7 * 86400.0
        week += 7 * 86400.0 * (after - week >= self.days)
        return week, week + self.days
'''


def test_a_law_of_somebody_else_is_one_file(tmp_path):
    (tmp_path / "weekly_of_mine.py").write_text(PLUGIN)
    further = "plugins: [weekly_of_mine]\nnetwork: {there: weekly(days=2)}\narchitecture: fedbuff(buffer=3)\n"
    (cell,) = cells(tmp_path, further)
    assert cell.canonical["network"]["there"] == {"name": "weekly", "days": 2.0}
    assert "weekly_of_mine" in code_of(cell)
    record, _ = run_trial(cell, 0, {})
    assert record["status"] == "ok"
