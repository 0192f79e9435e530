"""The overview as a list of blocks, for runs of different kinds; how blocks look is the renderers' matter."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest

import fedguard as fg
from fedguard.bench.pages.blocks import Chart, Checks, Choice, Facts, More, Prose, Verdict
from fedguard.bench.pages.checks import all_checks, checks
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.bench.pages.overview_chart import _Panels, _places, chart
from fedguard.bench.pages.svg import draw_spec
from fedguard.bench.pages.trained import describe_training, references
from fedguard.bench.results.answer import standings
from fedguard.bench.results.verdict import RunVerdict
from tests import stores

SUITE = {
    "name": "tiny",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 3},
    "matrix": {"attack": ["none", "alie", "sign_flip", "model_replacement"], "defense": ["mean", "median", "fltrust"]},
}


def page(run: fg.Run, **address: str) -> list:
    return list(OVERVIEW.blocks(run, address))


def of_type(blocks: list, kind: type) -> list:
    return [one for one in blocks if isinstance(one, kind)]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> dict[int, fg.Run]:
    """Runs by their number of seeds."""
    return {n: fg.run(SUITE | {"seeds": n}, store=tmp_path_factory.mktemp(f"{n}"), jobs=1) for n in (1, 2, 3)}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_order_of_blocks_and_the_verdict(seeds, n):
    blocks = page(seeds[n])
    assert [type(one) for one in blocks[:4]] == [Verdict, Chart, Facts, Checks]
    assert all(type(one) is More for one in blocks[4:])
    verdict = seeds[n].verdict()
    assert (blocks[0].headline, tuple(blocks[0].lead)) == (verdict.headline, verdict.lead)
    assert (
        blocks[0].trained
        == f"tiny · digits, softmax · 2 of 8 clients malicious · fedavg, 3 rounds · {n} seed{'s' * (n > 1)}"
    )
    assert [chip.text for chip in blocks[0].chips] == ["✓ complete", f"{8 * n} of {12 * n} trials, {4 * n} refused"]


def test_intervals_from_three_seeds_a_range_for_two_nothing_for_one(seeds):
    rows = {n: of_type(page(run), Chart)[0].spec["data"]["values"] for n, run in seeds.items()}
    assert "worst_low" in rows[3][0] and "clean_low" in rows[3][0]
    judged = [row for row in rows[2] if "worst_low" in row]
    assert judged and "clean_low" not in judged[0]
    assert not any("worst_low" in row for row in rows[1])
    meanings = {n: [key.meaning for key in of_type(page(run), Chart)[0].keys] for n, run in seeds.items()}
    assert "95 % interval over 3 seeds" in meanings[3] and "range of two seeds" in meanings[2]
    assert not any("interval" in one or "range" in one for one in meanings[1])


def test_the_chart_has_the_values_of_the_standings_and_its_table_too(seeds):
    run = seeds[3]
    found = {one.defense: one for one in standings(run)}
    drawn = of_type(page(run), Chart)[0]
    assert {row["defense"] for row in drawn.spec["data"]["values"]} == {"mean", "median"}, "fltrust is refused"
    for row, cells, bar in zip(drawn.spec["data"]["values"], drawn.table.rows, drawn.table.bars, strict=True):
        one = found[row["defense"]]
        assert row["clean"] == pytest.approx(100 * one.clean.mean) == cells[1] == bar.ring
        assert row["worst"] == pytest.approx(100 * one.worst.estimate.mean) == bar.dot
        assert (row["attack"], cells[3]) == (one.worst.attack, one.worst.attack)
        assert row["backdoor"] == pytest.approx(100 * one.success.estimate.mean)
    assert len(drawn.spec["hconcat"]) == len(drawn.narrow["vconcat"]) == 2
    assert drawn.narrow["vconcat"][0]["width"] <= 358 < drawn.spec["hconcat"][0]["width"]


def test_a_ranking_sorts_and_marks_the_leading_group(seeds):
    found = [one for one in standings(seeds[3]) if one.worst]
    ranked = RunVerdict("median keeps the most.", ranked=True, group=("median",))
    made = chart(found, ranked, {"chance": 0.1})
    assert [row["lead"] for row in made.spec["data"]["values"]] == [False, True] and list(made.table.leading) == [1]
    assert made.title == "How far each defense falls" and "band" in [key.symbol for key in made.keys]
    plain = chart(found, RunVerdict("No answer yet."), {})
    assert plain.title == "What was measured, without a ranking" and not plain.table.leading
    assert "band" not in [key.symbol for key in plain.keys]


def test_labels_stay_inside_and_beside_the_ring():
    row = {"defense": "a >> b", "worst": 99.0, "worst_label": "99.0", "attack": "sign_flip", "clean": 99.5}
    placed = _places(row, 600)
    assert placed["lines"] == "a >>\nb"
    assert placed["label_at"] < 90, "left of the ring's label"
    assert _places(row | {"worst": 1.0, "clean": 90.0}, 600)["label_at"] > 5


def test_a_sweep_has_a_choice_that_the_address_makes(tmp_path):
    matrix = {"clients.malicious": [0, 1, 2], "attack": ["none", "sign_flip"], "defense": ["mean", "median"]}
    run = fg.run({**SUITE, "seeds": 1, "clients": {"total": 8}, "matrix": matrix}, store=tmp_path, jobs=1)
    (choice,) = of_type(page(run), Choice)
    assert (
        choice.chosen == "clients.malicious = 1" and len(choice.options) == 3
    )  # with none malicious every attack is refused
    (choice,) = of_type(page(run, setting="clients.malicious = 2"), Choice)
    assert choice.chosen == "clients.malicious = 2"
    (choice,) = of_type(page(run, setting="<b>no such</b>"), Choice)
    assert choice.chosen == "clients.malicious = 1"
    assert any(more.title.startswith("Other settings (") for more in of_type(page(run), More))


def test_an_app_and_a_run_without_records(seeds, tmp_path):
    folder = stores.copied(seeds[2], tmp_path, "app")
    stores.of_an_app(folder)
    blocks = page(fg.open_run(folder))
    assert "chance" not in references(fg.open_run(folder)) and of_type(blocks, Chart)
    shutil.rmtree(folder / "cells")
    bare = fg.open_run(folder)
    blocks = page(bare)
    assert not of_type(blocks, Chart) and of_type(blocks, Facts)[0].items == [("Trials", ["none has run"])]
    assert describe_training(bare) == "app · 2 seeds"
    assert [one.title for one in of_type(blocks, Checks)[0].items] == ["Trials are missing."]
    assert of_type(blocks, Verdict)[0].chips[0].text == "not complete"


def test_where_all_is_refused_there_is_no_chart_and_each_reason_once(seeds):
    run = seeds[1]
    refused = [one for one in run.manifest["positions"] if one["swept"]["defense"] == "fltrust"]
    blocks = page(replace(run, manifest={**run.manifest, "positions": refused}))
    assert not of_type(blocks, Chart)
    (why,) = [more for more in of_type(blocks, More) if more.title == "Without a result: 4 trials, and why"]
    (prose,) = why.blocks
    assert isinstance(prose, Prose) and len(prose.paragraphs) == 1 and "fltrust needs" in prose.paragraphs[0]


def test_checks_about_the_leading_group_come_first(seeds):
    run = seeds[3]
    assert len(checks(run, ()).items) == len(run.checks.flags())
    for group in ((), ("median",), ("mean", "median")):
        items = checks(run, group).items
        tones = ["bad", "warn", "plain"]
        assert [one.tone for one in items] == sorted((one.tone for one in items), key=tones.index)
        assert all((one.scope == "leading group") <= bool(group) for one in items)
    (whole, *_) = all_checks(run)
    assert len(whole.blocks[0].rows) == len(run.checks.findings) and whole.command == "fedguard lint tiny"


def test_failed_and_damaged_trials_are_checks_with_a_command(seeds, tmp_path):
    folder = stores.copied(seeds[2], tmp_path, "tiny")
    stores.break_record(folder)
    path = next(
        path for path in sorted(folder.glob("cells/*/*.json"), reverse=True) if '"status": "ok"' in path.read_text()
    )
    record = json.loads(path.read_text())
    from fedguard.bench.records.record import to_text

    path.write_bytes(
        to_text({**record, "status": "failed", "reason": "no luck", "result": None, "cost": None, "flags": []})
    )
    items = {one.title: one for one in checks(fg.open_run(folder), ()).items}
    assert (
        items["Trials failed."].text.endswith("no luck") and "--retry-failed" in items["Trials failed."].action.command
    )
    assert items["Records are damaged."].tone == "bad"


def test_a_page_computes_what_takes_long_once(seeds):
    """What takes long is cached in the run: verdicts, checks and rows are computed once."""
    run = seeds[3]
    first = page(run)
    assert run.verdicts is run.verdicts and run.checks is run.checks and run._rows is run._rows
    assert page(run) == first


def test_text_from_the_run_is_left_to_the_renderers(seeds):
    """A page escapes nothing: twice escaped is wrong in every renderer."""
    folder = seeds[1].folder.path
    manifest = json.loads((folder / "manifest.json").read_text())
    for position in manifest["positions"]:
        if position["swept"]["defense"] == "median":
            position["swept"]["defense"] = stores.HOSTILE
    run = replace(seeds[1], manifest=manifest)
    assert stores.HOSTILE in [row["defense"] for row in of_type(page(run), Chart)[0].spec["data"]["values"]]


def test_panels_have_the_same_rows_even_where_one_has_no_mark():
    """A defense without a backdoor's success, and a leading group with another defense in between: drawn, and read back."""
    rows = [
        {
            "defense": name,
            "lead": lead,
            "clean": 90.0,
            "clean_label": "90.0",
            "worst": worst,
            "worst_label": "x",
            "attack": "ipm",
        }
        | ({"backdoor": 5.0, "backdoor_label": f"b-{name}"} if name != "beta" else {})
        for name, lead, worst in (("alpha", True, 80.0), ("beta", False, 70.0), ("gamma", True, 60.0))
    ]
    for spec in (_Panels(rows, {}, "accuracy", "", True).wide(), _Panels(rows, {}, "accuracy", "", True).narrow()):
        picture = draw_spec(spec, "")
        places = {}
        for text in picture.iter("text"):
            up = sum(
                float(found[1]) for found in re.finditer(r"translate\([-\d.]+,([-\d.]+)\)", text.get("transform", ""))
            )
            places.setdefault(text.text or "", []).append(up)
        assert places["alpha"][0] < places["beta"][0] < places["gamma"][0]
        step = places["beta"][0] - places["alpha"][0]
        apart = places["b-gamma"][0] - places["b-alpha"][0]
        assert apart == pytest.approx(2 * step), "the row of beta is there, though it has no mark"


def test_accuracy_on_the_clients_own_labels_is_said_to_be_that(seeds, tmp_path):
    """Where each client has a model of its own, the number in each header is another one."""

    def trained(run):
        return dict(of_type(page(run), Facts)[0].items)["Training"]

    own = "the mean over honest clients of each one's own model on its own shares of the labels"
    assert not any(own in line for line in trained(seeds[2]))
    suite = {**SUITE, "seeds": 1, "clients": {"total": 4}, "task": {**SUITE.get("task", {}), "model": "mlp"}}
    matrix = {"training.algorithm": ["fedper", "fedavg"]}
    both = fg.run({**suite, "name": "both", "matrix": matrix}, store=tmp_path, jobs=1)
    assert f"accuracy of some cells is {own}" in trained(both)
    alone = fg.run({**suite, "name": "alone", "matrix": {"training.algorithm": ["fedper"]}}, store=tmp_path, jobs=1)
    assert f"accuracy is {own}" in trained(alone)
