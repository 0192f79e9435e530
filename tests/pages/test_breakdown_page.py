"""The breakdown as a list of blocks: values of the curves at their true places, gaps, half and chance; names as rows of dots."""

from __future__ import annotations

import pytest

import fedguard as fg
from fedguard.bench.pages.blocks import Chart, Choice
from fedguard.bench.pages.breakdown import BREAKDOWN, draw_numbers, list_keys
from fedguard.bench.pages.breakdown_chart import chart
from fedguard.bench.results.breakdown import breakdown
from tests.app.test_app import text_of, visit
from tests.stores import SHORT
from tests.views import VIEWS

SUITE = {
    "name": "swept",
    "clients": {"total": 8},
    "training": {"rounds": 3},
    "seeds": 2,
    "matrix": {"clients.malicious": [0, 1, 3], "attack": ["none", "sign_flip", "ipm"], "defense": ["mean", "median"]},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = tmp_path_factory.mktemp("breakdown") / "store"
    fg.run(SUITE, store=made, jobs=1)
    names = {"architecture": ["server", "mapreduce(combiners=4)"], "training.rounds": [1, 2]}
    fg.run(SHORT | {"name": "named", "matrix": SHORT["matrix"] | names}, store=made, jobs=1)
    fg.run(SHORT, store=made, jobs=1)
    return made


def of_type(blocks, kind: type) -> list:
    return [one for one in blocks if isinstance(one, kind)]


def row(
    f: str, value: float | None, seed: int, status: str = "ok", defense: str = "mean", attack: str = "alie"
) -> dict:
    return {"attack": attack, "defense": defense, "f": f, "seed": seed, "cell": f, "status": status, "reason": None, "goal": None,
            "final_accuracy": value}  # fmt: skip


def drawn(rows: list[dict], references: tuple[float, float] | None = (0.9, 0.1), chance: float | None = 0.1) -> Chart:
    return chart(breakdown("x", rows, [references] * len(rows), ["f"], "f"), "", rows, chance)


def values(made: Chart, key: str) -> list[dict]:
    return [one for one in made.spec["data"]["values"] if one.get(key) is not None]


def marks(made: Chart) -> list[str]:
    return [layer["mark"]["type"] for layer in made.spec["spec"]["layer"]]


def test_the_curves_are_those_of_the_run_at_their_true_places(store):
    run = fg.open_run("swept", store)
    (made,) = of_type(BREAKDOWN.blocks(run, {}), Chart)
    found = run.breakdown()
    points = {(one["attack"], one["defense"], one["at"]): one["mean"] for one in values(made, "mean")}
    for curve in found.curves:
        attack = "no attack" if curve.attack == "none" else curve.attack
        for at, entry in zip(found.positions, curve.entries, strict=True):
            assert points[attack, curve.defense, at] == pytest.approx(100 * entry.estimate.mean)
    assert made.spec["facet"]["sort"] == ["worst of these", "sign_flip", "ipm", "no attack"]
    seeds = values(made, "seed_value")
    ran = [one for one in run.rows() if one["status"] == "ok"]
    assert len(seeds) == len(ran) and seeds[0]["seed_value"] == pytest.approx(100 * ran[0]["final_accuracy"])
    half = {(one["attack"], one["defense"]): one for one in values(made, "half_at")}
    for curve in (*found.curves, *found.worst):
        place = (
            "no attack" if curve.attack == "none" else curve.attack.replace("worst of these", "worst of these"),
            curve.defense,
        )
        assert (place in half) == isinstance(curve.half, float)
        if place in half:
            assert half[place]["half_at"] == curve.half and half[place]["half_value"] == pytest.approx(
                100 * curve.threshold
            )
    assert made.narrow["columns"] == 1 and made.narrow["spec"]["width"] <= 358


def test_the_table_has_each_curve_with_its_half_and_its_points(store):
    run = fg.open_run("swept", store)
    (made,) = of_type(BREAKDOWN.blocks(run, {}), Chart)
    assert [one.name for one in made.table.columns] == ["cell", "half is lost at", "area", "0", "1", "3"]
    cells = {line[0]: line[3:] for line in made.table.rows}
    for curve in run.breakdown().curves:
        name = "no attack" if curve.attack == "none" else curve.attack
        assert cells[f"{name} against {curve.defense}"] == [entry.text() for entry in curve.entries]
    assert cells["worst of these against mean"] == [entry.text() for entry in run.breakdown().worst[0].entries]


def test_the_headline_names_the_first_half_that_is_lost_and_what_keeps():
    falls = [(f, value) for f, value in (("0", 0.9), ("1", 0.5), ("2", 0.1))]
    rows = [row(f, value + 0.01 * seed, seed) for f, value in falls for seed in (0, 1)]
    rows += [row(f, 0.88, seed, defense="krum") for f, _ in falls for seed in (0, 1)]
    found = breakdown("x", rows, [(0.9, 0.1)] * len(rows), ["f"], "f")
    from fedguard.bench.pages.breakdown import _headline, _lead

    half = found.worst[0].half
    assert half == pytest.approx(1.0, abs=0.05)
    assert _headline(found, "") == (
        f"Half of the accuracy above chance is lost first by mean at f = {half:.3g}, under the attack; 1 of 2 defenses keep more "
        "than half throughout."
    )
    assert list(_lead(found, "")) == [
        f"Where the mean loses half, under the attack: mean at {half:.3g}, krum not up to 2."
    ]
    keeps = breakdown("x", rows[6:], [(0.9, 0.1)] * 6, ["f"], "f")
    assert _headline(keeps, "").startswith("No defense loses half of its accuracy above chance under the attack")


def test_a_refused_point_is_a_cross_at_the_foot_and_never_a_value():
    rows = [row("1", value, seed) for seed, value in ((0, 0.8), (1, 0.6))]
    rows += [row("2", None, seed, "refused") for seed in (0, 1)]
    made = drawn(rows)
    first, second = (one for one in made.spec["data"]["values"] if one.get("status"))
    assert (first["mean"], first["status"]) == (pytest.approx(70), "ok") and "low" not in first
    assert (second["mean"], second["status"], second["said"]) == (None, "refused", "refused")
    assert "at the foot: refused, failed or missing" in made.about
    assert "at the foot" not in drawn(rows[:2]).about


def test_a_band_from_five_seeds_and_single_seeds_below():
    few = [row(f, value, seed) for f in "12" for seed, value in enumerate((0.70, 0.71, 0.72))]
    many = [row(f, value, seed) for f in "12" for seed, value in enumerate((0.70, 0.71, 0.72, 0.73, 0.74))]
    assert "area" not in marks(drawn(few)) and "open marks: 3 single seeds" in drawn(few).about
    assert len(values(drawn(few), "seed_value")) == 6
    assert "area" in marks(drawn(many)) and "band: 95 % interval of 5 seeds" in drawn(many).about
    assert not values(drawn(many), "seed_value")
    point = values(drawn(few), "low")[0]
    half = 4.303 / 3**0.5  # Student's t for three values a point apart: so close that the logit hardly bends it
    assert (point["low"], point["high"]) == (pytest.approx(71 - half, abs=0.1), pytest.approx(71 + half, abs=0.1))
    assert not values(drawn([one for one in few if one["seed"] == 0]), "low")


def test_the_axis_runs_in_the_order_of_the_suite_on_logarithms_where_it_must():
    made = drawn([row(alpha, 0.5, 0) for alpha in ("100", "1", "0.1")], None, None)
    (line,) = [layer for layer in made.spec["spec"]["layer"] if layer["mark"]["type"] == "line"]
    scale = line["encoding"]["x"]["scale"]
    assert (scale["type"], scale["reverse"], scale["domain"]) == ("log", True, [0.1, 100])
    assert "rule" not in marks(made), "neither chance nor half is known"
    linear = drawn([row(f, 0.5, 0) for f in "123"])
    (line,) = [layer for layer in linear.spec["spec"]["layer"] if layer["mark"]["type"] == "line"]
    assert (line["encoding"]["x"]["scale"]["type"], line["encoding"]["x"]["scale"]["reverse"]) == ("linear", False)
    rules = [
        layer["encoding"]["y"]["datum"] for layer in linear.spec["spec"]["layer"] if layer["mark"]["type"] == "rule"
    ]
    assert rules == pytest.approx([10, 50])


def test_a_key_with_names_is_rows_of_dots_and_every_swept_key_can_be_chosen(store):
    run = fg.open_run("named", store)
    assert list_keys(run) == ["training.rounds", "architecture"]
    blocks = list(BREAKDOWN.blocks(run, {"over": "architecture", "others": "training.rounds = 2"}))
    over, metric, others = of_type(blocks, Choice)
    assert (over.chosen, metric.chosen, others.chosen) == ("architecture", "final_accuracy", "training.rounds = 2")
    (made,) = of_type(blocks, Chart)
    assert "line" not in marks(made) and "range of the seeds" in made.about
    y = next(layer["encoding"]["y"] for layer in made.spec["spec"]["layer"] if layer["mark"]["type"] == "point")
    clean = {
        one["label"]: one["mean"]
        for one in values(made, "mean")
        if (one["attack"], one["defense"]) == ("no attack", "mean")
    }
    assert y["sort"] == sorted(clean, key=lambda label: -clean[label]) and len(y["sort"]) == 2
    assert "goes from" in blocks[0].headline and "2 seeds do not rank" in [chip.text for chip in blocks[0].chips]
    assert len(list(draw_numbers(run))) == 2, "in the report, the number in each of two settings"


def test_a_metric_of_a_target_is_kept_in_the_address(store):
    (_, metric, *_) = of_type(BREAKDOWN.blocks(fg.open_run("swept", store), {"metric": "rounds_to(0.3)"}), Choice)
    assert metric.chosen == "rounds_to(0.3)" and "rounds_to(0.8)" in metric.options
    (_, metric, *_) = of_type(BREAKDOWN.blocks(fg.open_run("swept", store), {"metric": "<b>"}), Choice)
    assert metric.chosen == "final_accuracy"


def test_the_page_of_the_dashboard_and_where_nothing_is_swept(store, monkeypatch):
    (view,) = [view for view in VIEWS if view.name == "breakdown"]
    test = visit(store, monkeypatch, view, run="swept")
    assert len(test.get("vega_lite_chart")) + len(test.get("arrow_vega_lite_chart")) == 2
    (only,) = BREAKDOWN.blocks(fg.open_run("short", store), {})
    assert (
        only.headline == "This run sweeps no key"
        and only.actions[0].command == "fedguard run examples/breakdown_f.yaml"
    )
    assert "fedguard run examples/breakdown_f.yaml" in text_of(visit(store, monkeypatch, view, run="short"))
