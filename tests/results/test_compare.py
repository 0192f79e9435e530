"""`compare`: paired differences and adjusted p-values against plain loops, and what two real runs show of each other."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest
import typer
from scipy.integrate import quad
from scipy.special import gamma
from scipy.stats import ttest_1samp
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.records.record import to_text
from fedguard.bench.results.compare import _adjust_p_values, _broad, compare
from fedguard.bench.results.comparison import Comparison, Difference
from fedguard.bench.results.run import Run
from fedguard.commands.compare import compare as command
from fedguard.errors import UnknownName
from fedguard.metrics.stats import compare_pairs, estimate
from fedguard.rng import Rng

SUITE = {
    "name": "long",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 6},
    "seeds": 4,
    "matrix": {"attack": ["none", "sign_flip", "ipm"], "defense": ["mean", "median", "fltrust"]},
}
SHORT = {
    **SUITE,
    "name": "short",
    "training": {"rounds": 1},
    "seeds": 3,
    "matrix": {"attack": ["none", "sign_flip", "alie"], "defense": ["mean", "median", "fltrust"]},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    for suite in (SUITE, SHORT):
        fg.run(suite, store=store, jobs=1)
    fg.run({**SHORT, "name": "elsewhere", "seeds": [7, 8]}, store=store, jobs=1)
    return store


def opened(store, name) -> Run:
    return Run.open(name, store)


def quantile(freedom: int, level: float) -> float:
    """Of Student's t, by bisection of the integral of its density."""

    def density(x: float) -> float:
        scale = gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * gamma(freedom / 2))
        return scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2)

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 + quad(density, 0, middle)[0] < level else (low, middle)
    return low


def test_differences_are_taken_seed_by_seed_with_students_interval(store):
    a, b = opened(store, "long"), opened(store, "short")
    values = {
        name: {(row["attack"], row["defense"], row["seed"]): row["final_accuracy"] for row in run.rows()}
        for name, run in (("a", a), ("b", b))
    }
    found = compare(a, b).differences
    assert {(one.swept["attack"], one.swept["defense"]) for one in found} == {
        (attack, defense) for attack in ("none", "sign_flip") for defense in ("mean", "median")
    }
    half = quantile(2, 0.975) / math.sqrt(3)
    for one in found:
        place = (one.swept["attack"], one.swept["defense"])
        common = (0, 1, 2)  # seed 3 is of a alone
        differences = [values["b"][*place, seed] - values["a"][*place, seed] for seed in common]
        mean = sum(differences) / 3
        spread = math.sqrt(sum((value - mean) ** 2 for value in differences) / 2)
        assert one.seeds == (0, 1, 2)
        assert one.paired.mean == pytest.approx(mean)
        assert one.paired.half_width == pytest.approx(half * spread, rel=1e-6)
        assert one.a.mean == pytest.approx(sum(values["a"][*place, seed] for seed in (0, 1, 2)) / 3)


def test_p_values_follow_holm_over_all_positions_and_figures(store):
    found = compare(opened(store, "long"), opened(store, "short"), ["final_accuracy", "worst_class_accuracy"])
    p_values = [one.paired.p_value for one in found.differences]
    assert len(p_values) == 8
    ordered, expected = sorted(p_values), []
    for p_value in p_values:  # the smallest level at which the step-down procedure rejects it
        rank = ordered.index(p_value)
        expected.append(max(min(1.0, (8 - j) * ordered[j]) for j in range(rank + 1)))
    assert [one.p_adjusted for one in found.differences] == pytest.approx(expected)


#: By position, b - a on four seeds: all are worse by two points on average, and scatter by more.
SHARED = [
    (-0.05, 0.01, -0.06, 0.02), (0.02, -0.06, 0.01, -0.05), (-0.07, 0.03, 0.02, -0.06), (0.03, -0.06, -0.07, 0.02),
    (-0.01, -0.03, 0.01, -0.05), (-0.03, 0.0, -0.04, -0.01), (0.01, -0.05, -0.02, -0.02), (-0.06, 0.0, 0.0, -0.02),
]  # fmt: skip


def of_cells(rows, figure="final_accuracy", cells=None):
    return [
        Difference(swept={"attack": "none", "defense": str(n)}, figure=figure, a=estimate([0.5] * len(values)),
                   b=estimate([0.5 + value for value in values]), paired=compare_pairs(values), seeds=tuple(range(len(values))),
                   differences=tuple(values), cells=(cells or [("a", str(k)) for k in range(len(rows))])[n])
        for n, values in enumerate(rows)
    ]  # fmt: skip


def test_what_all_cells_share_is_said_first_though_none_shows_it_by_itself():
    """In a real comparison one of 42 cells was separated although all were worse: a list of cells said that nothing changed."""
    cells = _adjust_p_values(of_cells(SHARED))
    assert {one.direction for one in cells} == {"undecided"}
    (broad,) = _broad(cells)
    means = [sum(column) / 8 for column in zip(*SHARED, strict=True)]
    assert broad.paired.mean == pytest.approx(sum(means) / 4)
    assert broad.p_value == pytest.approx(ttest_1samp(means, 0).pvalue) and broad.p_value < 0.01
    assert (broad.direction, broad.cells, broad.seeds, broad.decided) == ("worse", 8, (0, 1, 2, 3), 0)
    low, high = ttest_1samp([-one for one in means], 0).confidence_interval()
    said = f"final accuracy over all 8 cells: b is worse by {-100 * sum(means) / 4:.1f} points [{100 * low:.1f}, {100 * high:.1f}], "
    assert broad.words() == f"{said}p < .0001; none by itself"
    text = str(Comparison("a", "b", ("final_accuracy",), tuple(cells), (), (), (), (broad,))).splitlines()
    assert text[0].startswith("b is worse than a: \N{MINUS SIGN}2.0 points of final accuracy on average over 8 cells [")
    assert text[2] == "By cell, after Holm over 8: none worse, none better, 8 not separated."


def test_the_broad_test_counts_a_shared_cell_once_and_takes_the_seeds_of_all():
    (once,) = _broad(of_cells(SHARED))
    twice = of_cells([*SHARED, SHARED[0]], cells=[*(("a", str(k)) for k in range(8)), ("a", "0")])
    assert next(_broad(twice)) == once
    fewer = [SHARED[0][:3], *SHARED[1:]]
    assert next(_broad(of_cells(fewer))).seeds == (0, 1, 2)
    assert list(_broad([replace(one, paired=None, seeds=(), differences=()) for one in of_cells(SHARED)])) == []
    (lone,) = _broad(of_cells([(0.1,)]))
    assert lone.words() == "final accuracy in the one cell: undecided: b is better by 10.0 points, one seed, no test"
    (same,) = _broad(of_cells([(0.0, 0.0), (0.0, 0.0)]))
    assert same.words() == "final accuracy over all 2 cells: the same on average"


def test_less_is_better_over_all_cells_too():
    (broad,) = _broad(of_cells([tuple(-value for value in row) for row in SHARED], "accuracy_drop"))
    assert broad.direction == "worse"


def test_fewer_rounds_are_found_to_be_worse(store):
    found = compare(opened(store, "long"), opened(store, "short"))
    clean = next(one for one in found.differences if one.swept == {"attack": "none", "defense": "mean"})
    assert clean.direction == "worse"
    ends = [-100 * clean.paired.mean + sign * 100 * clean.half_width for sign in (-1, 1)]
    assert clean.words() == f"b is worse by {-100 * clean.paired.mean:.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]"
    assert [(one.key, one.a, one.b) for one in found.settings] == [
        ("seeds", "[0, 1, 2, 3]", "[0, 1, 2]"),
        ("training.rounds", "6", "1"),
    ]
    back = compare(opened(store, "short"), opened(store, "long"))
    assert {one.direction for one in back.differences if one.swept == clean.swept} == {"better"}


def test_less_is_better_for_what_an_attack_takes(store):
    found = compare(opened(store, "long"), opened(store, "short"), "accuracy_drop")
    assert found.differences
    for one in found.differences:
        assert one.side == ("worse" if one.b.mean > one.a.mean else "better")


def test_what_changed_most_stands_first_figure_by_figure(store):
    found = compare(opened(store, "long"), opened(store, "short"), ["final_accuracy", "worst_class_accuracy"])
    assert [one.figure for one in found.differences] == ["final_accuracy"] * 4 + ["worst_class_accuracy"] * 4
    for figure in ("final_accuracy", "worst_class_accuracy"):
        sizes = [abs(one.paired.mean) for one in found.differences if one.figure == figure]
        assert sizes == sorted(sizes, reverse=True)


def test_an_interval_leaves_out_0_just_where_its_difference_is_decided():
    """At the levels that Holm leaves, test and interval are one statement."""
    draw, seen = Rng(4).numpy(), set()
    for case in range(60):
        effects = draw.normal(0, 0.05 * (case % 4), 12)
        raw = [draw.normal(effect, 0.02, 4).tolist() for effect in effects]
        found = _adjust_p_values([
            Difference(swept={"attack": "none", "defense": str(n)}, figure="final_accuracy", a=estimate([0.5]), b=estimate(
                [0.5 + sum(values) / 4]), paired=compare_pairs(values), seeds=(0, 1, 2, 3), differences=tuple(values))
            for n, values in enumerate(raw)
        ])  # fmt: skip
        for one in found:
            low, high = one.interval
            assert (low > 0 or high < 0) == (one.direction != "undecided")
            seen.add(one.direction)
    assert seen == {"better", "worse", "undecided"}


def test_differences_stay_in_what_a_figure_can_be_and_two_pairs_have_no_interval():
    values = (-0.9, -0.05, -0.4)
    wide = Difference(swept={"attack": "a", "defense": "d"}, figure="final_accuracy", a=estimate([0.9]), b=estimate([0.45]),
                      paired=compare_pairs(values), seeds=(0, 1, 2), differences=values, half_width=2.541, p_adjusted=0.3)  # fmt: skip
    assert wide.interval == (-1.0, 1.0)
    assert wide.words() == "undecided: b is worse by 45.0 points [-100.0, 100.0]"
    two = replace(wide, differences=(-0.4, -0.5), seeds=(0, 1), paired=compare_pairs((-0.4, -0.5)))
    assert two.words() == "undecided: b is worse by 45.0 points on 2 common seeds" and two.interval is None


def test_positions_of_one_side_and_refused_ones_are_listed_with_the_reason(store):
    found = compare(opened(store, "long"), opened(store, "short"))
    why = {(one.swept["attack"], one.swept["defense"]): one.why for one in found.apart}
    assert why["ipm", "mean"] == "not in b"
    assert why["alie", "mean"] == "not in a"
    assert why["none", "fltrust"].startswith("refused in a: fltrust needs")
    assert len(why) == 3 * 3 + 3 - len(found.differences)
    text = str(found)
    assert "not in b" in text and "refused in a" in text and "training.rounds: 6 -> 1" in text


def test_a_run_is_identical_to_itself_and_nothing_is_said_to_differ(store):
    a = opened(store, "long")
    found = compare(a, a)
    assert {one.direction for one in found.differences} == {"identical"}
    assert not found.settings and not found.warnings
    assert "6 of 6 positions are identical" in str(found)


def test_without_a_common_seed_there_is_no_test(store):
    found = compare(opened(store, "long"), opened(store, "elsewhere"))
    assert found.differences
    for one in found.differences:
        assert (one.direction, one.paired, one.p_adjusted, one.seeds) == ("untested", None, None, ())
        assert one.words().endswith("no common seed, no test")
        assert (one.a.seeds, one.b.seeds) == (4, 2)


def test_a_trial_that_is_gone_keeps_its_position_from_being_compared(store, tmp_path):
    shutil.copytree(store / "short", tmp_path / "short")
    run = opened(tmp_path, "short")
    cell = next(one["cell"] for one in run.manifest["positions"] if one["swept"]["attack"] == "sign_flip")
    run.folder.record_path(cell, 1).unlink()
    found = compare(opened(store, "long"), opened(tmp_path, "short"))
    assert ("sign_flip", "missing in b: not run yet") in [(one.swept["attack"], one.why) for one in found.apart]


def test_other_data_and_other_code_are_warned_of(store, tmp_path):
    shutil.copytree(store / "short", tmp_path / "short")
    run = opened(tmp_path, "short")
    for (cell, seed), record in run.records.items():
        record["environment"] = {**record["environment"], "data": "0" * 16, "code": {"fedguard": "1" * 16}}
        run.folder.record_path(cell, seed).write_bytes(to_text(record))
    warnings = compare(opened(store, "short"), opened(tmp_path, "short")).warnings
    assert [line.partition(" (")[0] for line in warnings] == [
        "the data differ: pairs of seeds did not see the same examples",
        "the code differs",
    ]


def test_keys_that_one_run_does_not_sweep_are_named(store, tmp_path):
    matrix = {"attack": ["none", "alie"], "defense": ["mean"], "clients.malicious": [1, 2]}
    fg.run({**SHORT, "matrix": matrix}, store=tmp_path, jobs=1)
    found = compare(opened(store, "short"), opened(tmp_path, "short"))
    assert not found.differences
    assert {one.why for one in found.apart} == {"a does not sweep clients.malicious", "not in b"}


def test_false_finds_are_as_rare_as_the_level_says(store):
    """With no difference anywhere, some position is found in LEVEL of all comparisons: every p is uniform."""
    from fedguard.bench.results.compare import _adjust_p_values
    from fedguard.metrics.stats import compare_pairs

    example = compare(opened(store, "long"), opened(store, "short")).differences[0]
    noise = Rng(0).child("noise").numpy().normal(size=(600, 8, 3))
    found = 0
    for trial in noise:
        judged = _adjust_p_values(
            [replace(example, paired=compare_pairs(list(map(float, values)))) for values in trial]
        )
        found += any(one.direction != "undecided" for one in judged)
    assert 0.023 < found / 600 < 0.077  # 0.05 within three standard errors


def test_unknown_figures_are_refused(store):
    with pytest.raises(UnknownName, match="final_accuracy"):
        compare(opened(store, "long"), opened(store, "short"), "final_acuracy")


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(command)
    made.command("other")(lambda: None)
    return made


def test_the_command_prints_json_and_exits_with_4_where_nothing_can_be_compared(store):
    said = CliRunner().invoke(app(), ["compare", "long", "short", "--json", "--store", str(store)])
    assert said.exit_code == 0
    found = json.loads(said.stdout)
    assert found["differences"] == compare(opened(store, "long"), opened(store, "short")).rows()
    nothing = CliRunner().invoke(app(), ["compare", "long", "short", "--metric", "psnr", "--store", str(store)])
    assert nothing.exit_code == 4
    assert "Nothing could be compared" in nothing.stdout
    help_text = " ".join(CliRunner().invoke(app(), ["compare", "--help"]).stdout.split())
    assert "exploration" in help_text and "gate" in help_text
