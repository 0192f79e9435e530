"""The comparison of two runs as a list of blocks: which run it is compared with, and that no sentence or mark says more than its test."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from scipy.stats import ttest_1samp

import fedguard as fg
from fedguard.bench.pages.blocks import Chart, Checks, Choice, Diff, More, Prose, TableBlock
from fedguard.bench.pages.compare import COMPARE, comparison
from fedguard.bench.records.record import to_text
from fedguard.bench.results.compare import compare
from fedguard.bench.results.partners import partners
from tests.app.test_app import text_of, visit
from tests.stores import HOSTILE, SHORT, break_manifest, copied
from tests.views import VIEWS

MATRIX = {"attack": ["none", "sign_flip", "ipm"], "defense": ["mean", "median", "krum"]}


def changed(folder, **environment) -> fg.Run:
    """The run of a folder, as if made elsewhere: with other values in its records' environment."""
    run = fg.open_run(folder)
    for (cell, seed), record in run.records.items():
        record["environment"] = {**record["environment"], **environment}
        run.folder.record_path(cell, seed).write_bytes(to_text(record))
    return fg.open_run(folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """From the oldest to the latest: another matrix, one key changed, four keys changed, other code, a broken manifest, the run."""
    made = tmp_path_factory.mktemp("compare") / "store"
    suite = SHORT | {"matrix": MATRIX, "seeds": 3}
    fg.run(suite | {"name": "alone", "matrix": {"attack": ["alie"], "defense": ["mean"]}}, store=made, jobs=1)
    fg.run(suite, name="part", store=made, jobs=1, overrides=["matrix.defense=[mean,trimmed_mean]"])
    fg.run(suite | {"name": "longer"}, store=made, jobs=1, overrides=["training.rounds=5"])
    more = ["training.rounds=4", "training.lr=0.2", "training.momentum=0.5", "training.batch_size=8"]
    fg.run(suite | {"name": "otherwise"}, store=made, jobs=1, overrides=more)
    run = fg.run(suite, store=made, jobs=1)
    changed(copied(run, made, "older"), code={"fedguard": "1" * 16})
    break_manifest(copied(run, made, "damaged"))
    return made


def opened(store, name: str) -> fg.Run:
    return fg.open_run(name, store)


def of_type(blocks, kind: type) -> list:
    return [one for one in blocks if isinstance(one, kind)]


def test_partners_by_the_rule_with_the_reason(store):
    found = partners(opened(store, "short"))
    assert [(one.name, one.rank) for one in found[:3]] == [("older", 0), ("longer", 1), ("part", 2)]
    why = {one.name: one.why for one in found}
    assert why["older"] == "the same suite with other code"
    assert why["longer"] == "the same matrix, training.rounds changed"
    assert why["part"] == "an earlier run of the suite short: 3 positions in common, 9 here and 6 there"
    assert {one.name: one.why for one in found if one.rank is None} == {
        "alone": "no position of the matrix in common",
        "damaged": "its manifest cannot be read",
        "otherwise": "the same matrix, 4 keys changed",
    }


def test_the_best_partner_is_the_default_and_the_address_has_the_last_word(store):
    """A damaged run is no choice: it is named with its reason below."""
    run = opened(store, "short")
    (other, metric) = of_type(COMPARE.blocks(run, {}), Choice)
    assert (other.chosen, metric.chosen, len(other.options)) == ("older", "final_accuracy", 5)
    blocks = list(COMPARE.blocks(run, {"other": "alone"}))
    assert blocks[0].headline == "Nothing could be compared." and of_type(blocks, Choice)[0].chosen == "alone"
    why = of_type(blocks, Prose)[-1]
    assert why.title.startswith("Not compared") and any("not in b" in one for one in why.paragraphs)
    (others,) = of_type(blocks, More)
    assert others.title == "Other partners: 3 comparable, 2 not, and why" and len(others.blocks[0].rows) == 5
    with pytest.raises(fg.errors.StoreError):
        list(COMPARE.blocks(run, {"other": "damaged"}))


def test_where_no_run_compares_that_is_said_with_the_command_and_every_reason(store, tmp_path):
    blocks = list(COMPARE.blocks(opened(store, "alone"), {}))
    assert blocks[0].headline == "No run to compare with" and "--name other" in blocks[0].actions[0].command
    assert {row[0] for row in of_type(blocks, More)[0].blocks[0].rows} == {"not comparable"}
    shutil.copytree(store / "short", tmp_path / "short")
    (only,) = COMPARE.blocks(opened(tmp_path, "short"), {})
    assert only.headline == "No run to compare with"


def test_the_broad_test_first_then_the_cells_by_plain_loops(store):
    """B is the run looked at, A the other one; fewer rounds are worse, so that a swapped sign or partner shows."""
    a, b = opened(store, "longer"), opened(store, "short")
    blocks = list(COMPARE.blocks(b, {"other": "longer"}))
    verdict = blocks[0]
    values = [{(row["cell_"], row["seed"]): row["final_accuracy"] for row in rows(run)} for run in (a, b)]
    cells = sorted({cell for cell, _ in values[0]})
    means = [
        100 * sum(values[1][cell, seed] - values[0][cell, seed] for cell in cells) / len(cells) for seed in (0, 1, 2)
    ]
    mean, test = sum(means) / 3, ttest_1samp(means, 0)
    low, high = test.confidence_interval()
    assert mean < 0
    assert (
        f"{minus(mean)} points of final accuracy on average over 9 cells [{minus(low)}, {minus(high)}]"
        in verdict.headline
    )
    decided = "short is worse than longer: " if test.pvalue < 0.05 else "No difference found: short minus longer is "
    assert verdict.headline.startswith(decided)
    assert verdict.lead[0].startswith("One test over all cells, paired on 3 seeds: p ")
    found = compare(a, b).differences
    worse, alone = sum(one.direction == "worse" for one in found), sum(one.suggestive for one in found)
    assert f"{worse or 'none'} worse, none better" in verdict.lead[1]
    assert (f"{alone} more with p < .05 alone" in verdict.lead[1]) == bool(alone)
    assert "longer" in verdict.trained and verdict.trained.startswith("short · ")
    assert verdict.actions[0].query == {"run": "longer", "other": "short"}


def rows(run) -> list[dict]:
    return [{**row, "cell_": (row["attack"], row["defense"])} for row in run.rows()]


def minus(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def test_the_chart_holds_each_cell_with_the_interval_of_its_pairs(store):
    a, b = opened(store, "longer"), opened(store, "short")
    (chart,) = of_type(COMPARE.blocks(b, {"other": "longer"}), Chart)
    values = [{(*row["cell_"], row["seed"]): 100 * row["final_accuracy"] for row in rows(run)} for run in (a, b)]
    drawn = chart.spec["data"]["values"]
    assert len(drawn) == 9 == len(chart.table.rows) and drawn == chart.narrow["data"]["values"]
    for row, cells, bar in zip(drawn, chart.table.rows, chart.table.bars, strict=True):
        place = (row["attack"].replace("no attack", "none"), row["defense"])
        pairs = [values[1][*place, seed] - values[0][*place, seed] for seed in (0, 1, 2)]
        low, high = ttest_1samp(pairs, 0).confidence_interval()
        assert row["at"] == bar.dot == pytest.approx(sum(pairs) / 3) and bar.ring == 0
        assert (bar.low, bar.high) == pytest.approx((low, high))
        limit = chart.table.axis[1]
        assert (row["low"], row["high"]) == pytest.approx((max(-limit, low), min(limit, high)))
        assert cells[3] == f"{minus(row['at'])} [{minus(low)}, {minus(high)}]"
        assert (row["kind"] != "undecided") == (low > 0 or high < 0)
        assert cells[4] == {"alone": "p < .05 alone"}.get(row["kind"], row["kind"])
    assert chart.spec["columns"] == 3 and chart.narrow["columns"] == 1 and chart.narrow["spec"]["width"] <= 358
    assert "9 cells" in chart.alt and len(chart.keys) == len({row["kind"] for row in drawn})


def test_no_interval_at_two_seeds_no_test_at_one_nothing_without_common_seeds(store, tmp_path):
    def seeds(name: str, *wanted: int) -> fg.Run:
        run = opened(store, name)
        return replace(run, manifest={**run.manifest, "seeds": list(wanted)})

    two = list(comparison(compare(seeds("longer", 0, 1), seeds("short", 0, 1))))
    assert "[" not in two[0].headline and "on 2 seeds" in two[0].lead[0]
    (chart,) = of_type(two, Chart)
    assert all(bar.low is None for bar in chart.table.bars) and all("[" not in row[3] for row in chart.table.rows)
    assert all(row["low"] == row["at"] == row["high"] for row in chart.spec["data"]["values"])
    assert "interval" not in chart.about
    one = list(comparison(compare(seeds("longer", 0), seeds("short", 0))))
    assert one[0].headline.startswith("One common seed, no test: short minus longer is ")
    assert not any("worse" in text or "p =" in text for text in (one[0].headline, *one[0].lead))
    none = list(comparison(compare(seeds("longer", 0), seeds("short", 1))))
    assert "no seed in common" in none[0].headline and not of_type(none, Chart) and len(of_type(none, TableBlock)) == 1


def test_a_run_beside_itself_is_identical_and_nothing_differs(store):
    run = opened(store, "short")
    blocks = list(comparison(compare(run, run)))
    assert (
        blocks[0].headline
        == "short and short are identical to the last bit in final accuracy, on average over 9 cells."
    )
    assert not blocks[0].lead and not of_type(blocks, Diff)
    assert (
        of_type(blocks, Prose)[0].paragraphs[0].startswith("Nothing differs in their configurations. The same in both:")
    )
    (chart,) = of_type(blocks, Chart)
    assert not chart.table.rows and chart.table.compare == "9 of 9 positions are identical"


def test_what_changed_names_keys_code_and_data(store, tmp_path):
    (diff,) = of_type(COMPARE.blocks(opened(store, "short"), {"other": "longer"}), Diff)
    assert diff.rows == [("training.rounds", "5", "2")]
    other = changed(
        copied(opened(store, "short"), tmp_path, "other"), data="0" * 16, code={"fedguard": "1" * 16, "rule": "2" * 16}
    )
    blocks = list(comparison(compare(opened(store, "short"), other)))
    rows = {key: after for key, _, after in of_type(blocks, Diff)[0].rows}
    assert rows == {"code": "fedguard: 11111111, rule: 22222222", "data": "00000000"}
    (grave,) = of_type(blocks, Checks)
    assert [one.text for one in grave.items] == ["The data differ: pairs of seeds did not see the same examples."]


def test_less_is_better_reverses_the_axis_and_the_word(store):
    blocks = list(COMPARE.blocks(opened(store, "longer"), {"other": "short", "metric": "accuracy_drop"}))
    (chart,) = of_type(blocks, Chart)
    layer = chart.spec["spec"]["layer"][2]
    assert layer["encoding"]["x"]["scale"]["reverse"] is True and "reversed" in chart.about
    again = list(COMPARE.blocks(opened(store, "longer"), {"other": "short"}))
    assert of_type(again, Chart)[0].spec["spec"]["layer"][2]["encoding"]["x"]["scale"]["reverse"] is False


def test_several_metrics_are_corrected_together_and_each_has_its_chart(store):
    found = compare(opened(store, "longer"), opened(store, "short"), ["final_accuracy", "worst_class_accuracy"])
    blocks = list(comparison(found))
    assert [chart.title.partition(",")[0] for chart in of_type(blocks, Chart)] == [
        "final accuracy",
        "accuracy of the worst class",
    ]
    assert any("Holm over 2 metrics" in one for one in blocks[0].lead) and any(
        "Holm over 18" in one for one in blocks[0].lead
    )


def test_names_from_the_runs_are_left_to_the_renderers(store, tmp_path):
    folder = copied(opened(store, "short"), tmp_path, "hostile")
    manifest = json.loads((folder / "manifest.json").read_text())
    for position in manifest["positions"]:
        position["swept"]["defense"] = position["swept"]["defense"].replace("median", HOSTILE)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run = fg.open_run(folder)
    (chart,) = of_type(comparison(compare(run, run)), Chart)
    assert HOSTILE in chart.spec["facet"]["sort"]


def test_the_page_of_the_dashboard(store, monkeypatch):
    (view,) = [view for view in VIEWS if view.name == "compare"]
    test = visit(store, monkeypatch, view, run="short", other="longer")
    assert next(box for box in test.selectbox if box.label == "Compare with").value == "longer"
    text = text_of(test)
    assert "training.rounds" in text and "points of final accuracy" in text
    test = visit(store, monkeypatch, view, run="alone")
    assert "No run to compare with" in text_of(test)
