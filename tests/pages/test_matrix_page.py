"""The matrix as a list of blocks: values, intervals and ranges, the worst row, colors, refused cells, settings, sentences."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

import fedguard as fg
from fedguard.bench.pages import matrix as page_module
from fedguard.bench.pages.blocks import Choice, Heatmap, More, Prose, Verdict
from fedguard.bench.pages.elements import to_bytes
from fedguard.bench.pages.html import query, render_html
from fedguard.bench.pages.matrix import MATRIX, heatmaps
from fedguard.bench.pages.panels import Heat, matrix_panels
from fedguard.metrics.figures import FIGURES
from tests import stores

SUITE = {
    "name": "tiny",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 2},
    "matrix": {"attack": ["none", "sign_flip", "ipm"], "defense": ["mean", "median", "fltrust"]},
}


def row(attack, defense, seed, value, status="ok", **more):
    figures = {"final_accuracy": value, "kappa": None if value is None else 10 * value}
    reason = None if status == "ok" else f"{status} since"
    found = {"attack": attack, "defense": defense, "seed": seed, "cell": f"{attack}/{defense}", "goal": None}
    return {**found, "status": status, "reason": reason, **figures, **more}


ROWS = [
    row("none", "mean", 0, 0.9),
    row("none", "mean", 1, 0.8),
    row("alie", "mean", 0, 0.5),
    row("alie", "mean", 1, 0.3),
    row("ipm", "mean", 0, 0.1),
    row("ipm", "mean", 1, None, "failed"),
    row("none", "krum", 0, None, "refused"),
    row("none", "krum", 1, None, "refused"),
    row("alie", "krum", 0, None, "refused"),
    row("alie", "krum", 1, None, "refused"),
    row("ipm", "krum", 0, None, "missing"),
    row("ipm", "krum", 1, None, "missing"),
]


def panels(rows=ROWS, metric="final_accuracy", swept=()):
    return matrix_panels(
        SimpleNamespace(rows=lambda _: rows, swept=list(swept), ran={}, score="final_accuracy"), metric
    )


def fields(rows=ROWS, metric="final_accuracy"):
    """The fields of the only panel by attack and defense."""
    (panel,) = panels(rows, metric)
    drawn = panel.draw(Heat([panel], FIGURES[metric]), [])
    return {
        (attack, defense): field
        for attack, its in drawn.rows
        for defense, field in zip(drawn.columns, its, strict=True)
    }


def of_type(blocks, kind):
    return [one for one in blocks if isinstance(one, kind)]


def page(run, **address):
    return list(MATRIX.blocks(run, address))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run({**SUITE, "seeds": 2}, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two keys: a number, and a mode in which nothing but the mean may run."""
    matrix = {
        "clients.malicious": [0, 1, 2], "protocol.secure_aggregation": ["none", "full"],
        "attack": ["none", "sign_flip"], "defense": ["mean", "median"],
    }  # fmt: skip
    suite = {**SUITE, "name": "swept", "seeds": 1, "clients": {"total": 8}, "training": {"rounds": 1}, "matrix": matrix}
    return fg.run(suite, store=tmp_path_factory.mktemp("swept"), jobs=1)


# ------------------------------------------------------------------------------------------------------------ values


def test_a_field_is_the_mean_with_its_interval():
    one = fields([row("none", "mean", seed, value) for seed, value in ((0, 0.3), (1, 0.4), (2, 0.5))])["none", "mean"]
    # Student's t on the logit scale: logit(0.4) ± 4.303 * 0.1 / sqrt(3) / (0.4 * 0.6) = -0.405 ± 1.035: -20.9 and +25.2
    assert (one.text, one.spread) == ("40.0", "[19.1, 65.2]")


def test_two_seeds_have_their_range_and_one_seed_nothing():
    assert fields()["alie", "mean"].spread == "30.0\N{EN DASH}50.0"
    assert fields(ROWS[:1])["none", "mean"].spread == ""


def test_what_rounding_leaves_is_zero():
    one = fields([row("none", "mean", seed, 1e-17 * seed) for seed in (1, 2, 3)], "kappa")["none", "mean"]
    assert (one.text, one.spread) == ("0", "[0, 0]")


def test_what_has_no_value_has_its_word_and_no_color():
    found = fields()
    assert (found["none", "krum"].text, found["none", "krum"].heat) == ("refused", None)
    assert found["ipm", "mean"].text == "failed", "one seed of two: the other's value is no mean"
    assert found["ipm", "krum"].text == "missing"


def test_the_worst_row_is_an_attack_that_was_measured_and_marks_what_may_be_worse():
    found = fields()
    assert (found["worst", "mean"].text, found["worst", "mean"].spread) == ("40.0*", "")
    assert found["worst", "mean"].query == found["alie", "mean"].query == {"attack": "alie", "defense": "mean"}
    assert (found["worst", "krum"].text, found["worst", "krum"].heat) == ("-", None)
    assert ("worst", "mean") not in fields(ROWS[:4]), "of one attack"


def test_the_worst_is_the_highest_where_less_is_better():
    rows = [row("a", "mean", 0, 0.1), row("b", "mean", 0, 0.7)]
    assert fields(rows, "kappa")["worst", "mean"].query["attack"] == "b"
    assert fields(rows)["worst", "mean"].query["attack"] == "a"


def test_the_color_is_what_is_lost_against_the_plain_mean_without_attack():
    found = fields([*ROWS, row("none", "median", 0, 0.45), row("none", "median", 1, 0.45)])
    assert found["none", "mean"].heat == 0
    assert found["alie", "mean"].heat == pytest.approx((0.85 - 0.4) / 0.8)
    assert found["none", "median"].heat == pytest.approx((0.85 - 0.45) / 0.8), "what the defense costs is lost too"
    better = fields([*ROWS, row("none", "median", 0, 0.99), row("none", "median", 1, 0.99)])
    assert better["none", "median"].heat == 0


def test_without_a_clean_value_the_color_is_against_the_best():
    rows = [row("a", "mean", 0, 0.1), row("b", "mean", 0, 0.7)]
    (panel,) = panels(rows)
    assert Heat([panel], FIGURES["final_accuracy"]).reference == "the best value"
    assert [fields(rows)[name, "mean"].heat for name in "ab"] == [pytest.approx(0.75), 0]
    assert [fields(rows, "kappa")[name, "mean"].heat for name in "ab"] == [0, 1], "from the best to the worst"


def test_controls_are_the_reference_where_the_suite_has_no_mean(run):
    median = [one for one in run.manifest["positions"] if one["swept"]["defense"] == "median"]
    (panel,) = matrix_panels(replace(run, manifest={**run.manifest, "positions": median}), "final_accuracy")
    (whole,) = matrix_panels(run, "final_accuracy")
    assert panel.clean == pytest.approx(whole.clean)


def test_the_fields_have_the_values_of_the_table(run):
    (shown,) = of_type(page(run), Heatmap)
    entries = run.table().blocks[""]
    for attack, its in shown.panels[0].rows[:-1]:
        for defense, field in zip(shown.panels[0].columns, its, strict=True):
            entry = entries[attack][defense]
            assert field.text == (entry.text() if entry.estimate else entry.status)


# ---------------------------------------------------------------------------------------------------- blocks, settings


def test_the_order_of_blocks(run):
    found = page(run)
    assert [type(one) for one in found] == [Verdict, Choice, Heatmap, Prose, More]
    verdict, _, shown, why, _ = found
    assert verdict.chips[-1].text == "2 seeds: ranges, no intervals"
    assert [attack for attack, _ in shown.panels[0].rows] == ["none", "sign_flip", "ipm", "worst"]
    assert why.title == "Refused, and why" and len(why.paragraphs) == 1 and "fltrust needs" in why.paragraphs[0]
    assert "no interval" in shown.about and "no attack with the plain mean" in shown.about


def test_the_sentence_names_the_least_and_the_most_that_is_lost(run):
    finals = {}
    for one in run.rows():
        if one["final_accuracy"] is not None:
            finals.setdefault((one["attack"], one["defense"]), []).append(one["final_accuracy"])
    mean = {place: sum(values) / len(values) for place, values in finals.items()}
    lost = {
        defense: 100 * (mean["none", "mean"] - min(mean["sign_flip", defense], mean["ipm", defense]))
        for defense in ("mean", "median")
    }
    least, most = sorted(lost, key=lost.get)
    said = page(run)[0]
    assert said.headline == (
        f"The worst of 2 attacks takes {lost[least]:.1f} points ({least}) to {lost[most]:.1f} points ({most}) of final accuracy."
    )
    assert "Refused: fltrust." in said.lead and "the Overview tests the order of defenses" in said.lead[-1]


def test_one_panel_for_each_value_of_the_first_key_and_one_row_for_each_of_the_second(swept):
    first, second = of_type(page(swept), Heatmap)
    assert [panel.title for panel in first.panels] == [f"clients.malicious = {f}" for f in (0, 1, 2)]
    assert first.title.endswith("protocol.secure_aggregation = none") and second.title.endswith("= full")
    assert first.scale and not second.scale and not second.about
    assert first.first == 1, "a telephone opens where an attack ran"
    headline = page(swept)[0].headline
    assert (
        headline.startswith("Whatever defense runs, the worst attack takes at least ")
        and "1 seed" in page(swept)[0].chips[-1].text
    )


def test_further_keys_are_a_choice_of_any_type(swept):
    manifest = swept.manifest
    positions = [
        {**one, "swept": {**one["swept"], "task.model": name}}
        for name in ("(mlp)", "none")
        for one in manifest["positions"]
    ]
    more = replace(swept, manifest={**manifest, "swept": [*manifest["swept"], "task.model"], "positions": positions})
    choice = of_type(page(more), Choice)[-1]
    assert (choice.key, choice.options, choice.chosen) == ("task.model", ["(mlp)", "none"], "(mlp)")
    found = page(more, **{"task.model": "none"})
    assert of_type(found, Choice)[-1].chosen == "none"
    assert [len(one.panels) for one in of_type(found, Heatmap)] == [3, 3], "of the chosen value alone"


def test_the_metric_is_a_choice_of_those_that_have_values_and_of_targets(run):
    (metric,) = of_type(page(run), Choice)
    assert (
        metric.chosen == "final_accuracy" and "worst_class_accuracy" in metric.options and "psnr" not in metric.options
    )
    assert of_type(page(run, metric="<b>none</b>"), Choice)[0].chosen == "final_accuracy"
    metric, target = of_type(page(run, metric="rounds_to", target="60"), Choice)
    assert (metric.chosen, target.chosen) == ("rounds_to", "60")
    _, target = of_type(page(run, metric="rounds_to(0.33)"), Choice)
    assert target.chosen == "33", "a command may ask for any"
    texts = {
        field.text
        for one in of_type(page(run, metric="rounds_to(1)"), Heatmap)
        for _, its in one.panels[0].rows
        for field in its
    }
    assert ">2" in texts, "never reached"


def test_metrics_that_hold_for_some_attacks_alone_leave_the_others_out(tmp_path):
    suite = {**SUITE, "seeds": 1, "matrix": {"attack": ["none", "sign_flip", "model_replacement"], "defense": ["mean"]}}
    run = fg.run(suite, store=tmp_path, jobs=1)
    *_, backdoors = heatmaps(run, "show")
    assert [attack for attack, _ in backdoors.panels[0].rows] == ["model_replacement"]
    assert [one.title for one in heatmaps(run, "show", ("final_accuracy",))] == [backdoors.title]


def test_without_attack_without_records_and_where_nothing_is_learned(run, tmp_path):
    clean = [one for one in run.manifest["positions"] if one["swept"]["attack"] == "none"]
    said = page(replace(run, manifest={**run.manifest, "positions": clean}))[0].headline
    assert said.startswith("Without attack, final accuracy is ") and "(mean)" in said
    folder = stores.copied(run, tmp_path, "bare")
    stores.lose_records(folder)
    stores.lose_records(folder)
    for path in folder.glob("cells/*/*.json"):
        path.unlink()
    bare = page(fg.open_run(folder))
    assert bare[0].headline == "Nothing has run yet." and bare[0].actions[0].command.startswith("fedguard run")
    assert any(one.startswith("No answer yet") for one in page(run)[0].lead) == any(
        one.headline.startswith("No answer yet") for one in run.verdicts.values()
    )


def test_hostile_names_are_text_in_links_too(run):
    manifest = json.loads(json.dumps(run.manifest).replace('"median"', json.dumps(stores.HOSTILE)))
    found = page(replace(run, manifest=manifest))
    assert any(stores.HOSTILE in panel.columns for one in of_type(found, Heatmap) for panel in one.panels)
    source = "".join(to_bytes(one).decode() for one in render_html(found, partial(query, "<run>")))
    assert "<img" not in source and "onerror=alert" not in source.replace("src=x onerror=alert(1)&gt;", "")


def test_five_thousand_records_take_less_than_a_second():
    rows = [
        row(f"a{attack}" if attack else "none", f"d{defense}" if defense else "mean", seed, 0.1 + 0.001 * defense)
        for attack in range(25) for defense in range(20) for seed in range(10)
    ]  # fmt: skip
    start = time.perf_counter()
    (panel,) = panels(rows)
    blocks = list(page_module._heatmaps(SimpleNamespace(seeds=list(range(10))), [panel], FIGURES["final_accuracy"], []))
    render_html(blocks)
    assert time.perf_counter() - start < 1
