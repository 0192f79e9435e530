"""Where the time of a cell goes, on its page: the bars hold the run's seconds, and older records are told."""

from __future__ import annotations

import shutil

import pytest
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.profile import REST, pieces, select_stages
from fedguard.app.charts.profile import profile as drawn
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.results.profile import ProfileEntry, StageProfile, together

SUITE = {
    "name": "timed",
    "clients": {"total": 6},
    "training": {"rounds": 2},
    "seeds": 1,
    "matrix": {"clients.malicious": [1, 2], "attack": ["none", "sign_flip"], "defense": ["mean", "median"]},
}
PAGE = """
import os
from pathlib import Path
from fedguard.app.here import PageContext
from fedguard.app.times import times
times(PageContext(Path(os.environ["FEDGUARD_STORE"]), "timed", dict()).run(), {position})
"""
AT = {"attack": "sign_flip", "defense": "median", "clients.malicious": "2"}
NAMES = ["training", "aggregation", "evaluation", "data", "attack", "masking", "model", "other"]


def part(place="alie against krum", swept=None, **seconds):
    stages = (StageProfile(name, spent, spent / 2, 1) for name, spent in seconds.items())
    return ProfileEntry(place, swept or {}, "cell", 1, 10, tuple(sorted(stages, key=lambda stage: -stage.seconds)))


def colors(chart):
    scale = chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def test_the_pieces_of_a_bar_are_as_long_as_its_rounds_take():
    """Eight stages of 1 to 8 s in 10 rounds: the six longest have a piece of their own, 1 s and 2 s share one."""
    one = part(**{name: 8.0 - number for number, name in enumerate(NAMES)})
    rows = {row["stage"]: row for row in pieces([one], select_stages(one))}
    assert list(rows) == [*NAMES[:6], REST]
    assert select_stages(part(other=9.0, training=1.0)) == ["training"]
    assert rows["training"]["ms"] == pytest.approx(800)
    assert rows[REST]["ms"] == pytest.approx(300) and rows[REST]["cpu"] == pytest.approx(1.5)
    assert sum(row["ms"] for row in rows.values()) == pytest.approx(one.ms_per_round) == 3600
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    assert [row["total"] for row in rows.values() if row["total"]] == ["3,600.0"]  # once, behind the bar


def test_a_stage_keeps_its_color_whatever_is_chosen():
    cells = [
        part(**{name: 8.0 - number for number, name in enumerate(NAMES)}),
        part("other", evaluation=1.0, model=1.0),
    ]
    stages = select_stages(together(cells))
    everything, few = colors(drawn(cells, stages)), colors(drawn(cells[1:], stages))
    assert everything == few
    assert everything[REST] == GRAY and len(set(everything.values())) == len(COLORS)
    assert REST not in colors(drawn([part(training=1.0)], ["training"]))


def test_the_setting_of_a_cell_stands_on_a_line_of_its_own():
    swept = {"attack": "ipm(a=1, b=2)", "defense": "krum", "task.model": "mlp", "clients.malicious": "2"}
    place = "ipm(a=1, b=2) against krum, task.model = mlp, clients.malicious = 2"
    (row,) = pieces([part(place, swept, training=1.0)], ["training"])
    assert row["place"] == "ipm(a=1, b=2) against krum\ntask.model = mlp, clients.malicious = 2"
    assert pieces([part(training=1.0)], ["training"])[0]["place"] == "alie against krum"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture
def page(monkeypatch):
    def show(run):
        monkeypatch.setenv("FEDGUARD_STORE", str(run.folder.path.parent))
        test = AppTest.from_string(PAGE.format(position=AT), default_timeout=60)
        test.run()
        for toggle in test.toggle:
            toggle.set_value(True).run()
        assert not test.exception
        return test

    return show


def tables(test):
    """The stages, and the cells."""
    return [one.value for one in test.dataframe]


def older(run, store, records):
    """A copy of the run in which an older FedGuard ran the first records."""
    shutil.copytree(run.folder.path, store / "timed")
    for path in sorted((store / "timed").glob("cells/*/*.json"))[:records]:
        body = from_text(path.read_bytes())
        del body["cost"]["stages"]
        path.write_bytes(to_text(body))
    return fg.open_run("timed", store=store)


def test_the_stages_of_the_cell_and_every_cell_beside_it(run, page):
    test = page(run)
    stages, cells = tables(test)
    (own,) = [one for one in run.profile().cells if one.swept == AT]
    assert list(stages["ms_per_round"]) == pytest.approx([row["ms_per_round"] for row in own.rows(0.0005)])
    assert stages["share"].sum() == pytest.approx(100, abs=0.5)
    assert all(stages["what it is"])
    assert len(cells) == len({cell for cell, _ in run.records})
    assert list(cells["ms per round"]) == sorted(cells["ms per round"], reverse=True)
    assert len(test.get("vega_lite_chart")) == 2


def test_a_cell_that_was_not_run_has_no_stages(run, page, tmp_path):
    cell = next(one["cell"] for one in run.manifest["positions"] if one["swept"] == AT)
    shutil.copytree(run.folder.path, tmp_path / "timed", ignore=shutil.ignore_patterns(cell))
    test = page(fg.open_run("timed", store=tmp_path))
    assert len(test.dataframe) == len(test.get("vega_lite_chart")) == 1
    assert "stage" not in test.dataframe[0].value.columns


def test_older_records_are_told_beside_the_others(run, page, tmp_path):
    test = page(older(run, tmp_path, 1))
    assert any("1 trial was run by an older FedGuard" in one.value for one in test.caption)


def test_a_run_of_older_records_says_so(run, page, tmp_path):
    test = page(older(run, tmp_path, 100))
    assert "run by an older FedGuard" in test.caption[0].value
    assert not test.get("vega_lite_chart")
