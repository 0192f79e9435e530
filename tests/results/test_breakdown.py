"""Breakdown curves: closed forms, gaps, the worst of several attacks, and the command."""

from __future__ import annotations

import json
import math

import pytest
from rich.console import Console

import fedguard as fg
from fedguard.bench.pages.breakdown import BREAKDOWN
from fedguard.bench.pages.terminal import render_terminal
from fedguard.bench.results.breakdown import WORST, breakdown
from fedguard.bench.terminal.plot import chart
from fedguard.errors import UnknownName
from tests.flags.test_lint import command
from tests.root import ROOT


def curve_of(
    figures,
    key="clients.malicious",
    attack="ipm",
    defense="krum",
    seeds=1,
    clean=0.9,
    chance=0.1,
    figure="final_accuracy",
    **row,
):
    """Rows and references of one curve, from ``{value: figure, or a status}``; with several seeds a list of figures."""
    rows, references = [], []
    for value, found in figures.items():
        for seed in range(seeds):
            one = found[seed] if isinstance(found, list | tuple) else found
            status = one if isinstance(one, str) else "ok"
            measured = None if isinstance(one, str) else one
            rows.append({
                "attack": attack, "defense": defense, key: str(value), "seed": seed, "status": status, figure: measured, **row,
            })  # fmt: skip
            references.append(None if measured is None else (clean, chance))
    return rows, references


def drawn(*curves, key="clients.malicious", figure="final_accuracy", others=()):
    rows = [row for one, _ in curves for row in one]
    references = [reference for _, found in curves for reference in found]
    return breakdown("made", rows, references, [key, *others], key, figure)


def only(*curves, **options):
    (curve,) = drawn(*curves, **options).curves
    return curve


def test_a_straight_line():
    """From 0.9 at f = 0 to chance at f = 8: half of it is lost at 4, and half the area lies under it."""
    curve = only(curve_of({f: 0.9 - 0.1 * f for f in range(9)}))
    assert curve.half == pytest.approx(4)
    assert curve.area.mean == pytest.approx(0.5)


def test_a_step_is_interpolated():
    """.9, .9, .3 at 0, 2, 4: half is 0.5, two thirds of the way down. The area is 2 x 1 + 2 x (1 + .25) / 2, of 4."""
    curve = only(curve_of({0: 0.9, 2: 0.9, 4: 0.3}))
    assert curve.half == pytest.approx(2 + 2 * 2 / 3)
    assert curve.area.mean == pytest.approx(3.25 / 4)


def test_the_first_crossing_counts():
    curve = only(curve_of({0: 0.9, 1: 0.1, 2: 0.9, 3: 0.1}))
    assert curve.half == pytest.approx(0.5)


def test_never_and_at_once():
    flat = only(curve_of({0: 0.9, 4: 0.8, 8: 0.6}))
    assert flat.half is None
    assert flat.area.mean == pytest.approx((4 * (1 + 0.875) / 2 + 4 * (0.875 + 0.625) / 2) / 8)
    lost = only(curve_of({1: 0.2, 2: 0.1}, clean=0.9))
    assert lost.half == 1
    assert lost.area.mean == pytest.approx((0.125 + 0) / 2)


def test_without_malicious_clients_the_attack_is_none():
    """An attack without clients is refused at f = 0; its curve starts where the clean one does."""
    clean = curve_of({0: 0.9, 4: 0.9, 8: 0.9}, attack="none")
    attacked = curve_of({0: "refused", 4: 0.5, 8: 0.1})
    found = {curve.attack: curve for curve in drawn(clean, attacked).curves}
    assert [entry.estimate.mean for entry in found["ipm"].entries] == [0.9, 0.5, 0.1]
    assert found["ipm"].half == pytest.approx(4)
    assert found["none"].area.mean == 1
    elsewhere = drawn(clean, curve_of({0: "refused", 4: 0.5, 8: 0.1}, defense="median")).curves
    assert elsewhere[1].entries[0].status == "refused"


def test_a_refused_end_and_a_gap():
    ended = only(curve_of({0: 0.9, 4: 0.9, 8: 0.5, 9: "refused"}))
    assert (ended.until, ended.half) == ("8", 8)
    assert ended.area.mean == pytest.approx((4 + 4 * 0.75) / 8)
    gap = only(curve_of({0: 0.9, 4: "failed", 8: 0.1}))
    assert gap.area is None
    assert gap.until == "0"
    assert gap.half is None
    early = only(curve_of({0: 0.9, 1: 0.1, 2: "failed", 3: 0.1}))
    assert early.half == pytest.approx(0.5)
    assert early.area is None


def test_intervals_over_seeds():
    """Halves of 2, 3 and 4: mean 3, and t(2) = 4.3027 times 1 / sqrt(3)."""
    curve = only(
        curve_of({0: 0.9, 1: [0.7, 0.9, 0.9], 2: [0.5, 0.7, 0.8], 3: [0.4, 0.5, 0.6], 4: [0.3, 0.4, 0.5]}, seeds=3)
    )
    assert curve.half_width == pytest.approx(4.3027 / math.sqrt(3), abs=1e-3)
    areas = [
        (1 + 0.75 + 0.5 + 0.375 + 0.25 - 0.625),
        (1 + 1 + 0.75 + 0.5 + 0.375 - 0.6875),
        (1 + 1 + 0.875 + 0.625 + 0.5 - 0.75),
    ]
    assert curve.area.mean == pytest.approx(sum(areas) / 12)
    assert curve.area.half_width > 0
    one_holds = only(curve_of({0: 0.9, 1: [0.1, 0.9]}, seeds=2))
    assert one_holds.half == pytest.approx(1.0)  # the mean curve
    assert one_holds.half_width is None


def test_a_seed_that_is_missing_is_a_gap():
    curve = only(curve_of({0: 0.9, 1: [0.1, "missing"]}, seeds=2))
    assert curve.entries[1].status == "missing"
    assert curve.half is None


def test_labels_keep_their_order():
    found = drawn(curve_of({"iid": 0.9, "dirichlet(alpha=0.5)": 0.8, "label_sorted": 0.3}, key="p"), key="p")
    assert found.labels == ("iid", "dirichlet(alpha=0.5)", "label_sorted")
    assert found.positions is None
    assert found.curves[0].half == "label_sorted"
    assert found.curves[0].area.mean == pytest.approx((1 + 0.875) / 4 + (0.875 + 0.25) / 4)


def test_alpha_falls_on_a_logarithmic_axis():
    """From 100 to 1 to 0.01; 0.5 is half-way between .9 and .1, so half is lost at the root of 1 x .01."""
    found = drawn(curve_of({"100": 0.9, "1": 0.9, "0.01": 0.1}, key="alpha"), key="alpha")
    assert found.positions == (100, 1, 0.01)
    assert found.curves[0].half == pytest.approx(0.1)
    assert found.curves[0].area.mean == pytest.approx(0.75)
    short = drawn(curve_of({"3": 0.9, "2": 0.9, "1": 0.1}, key="alpha"), key="alpha").curves[0]
    assert short.half == pytest.approx(1.5)  # a narrow range stays linear, and its order stays


def test_the_clean_model_is_that_of_the_first_value():
    """Elsewhere than along f, heterogeneity lowers the clean accuracy too; what counts is the start."""
    rows, _ = curve_of({"2": 0.8, "1": 0.5}, key="alpha")
    found = breakdown("made", rows, [(0.9, 0.1), (0.6, 0.1)], ["alpha"], "alpha").curves[0]
    assert found.area.mean == pytest.approx((0.875 + 0.5) / 2)
    assert found.half == pytest.approx(1)


def test_numbers_out_of_order_ascend():
    found = drawn(curve_of({"4": 0.5, "0": 0.9, "8": 0.1}))
    assert found.labels == ("0", "4", "8")
    assert found.curves[0].half == pytest.approx(4)
    down = drawn(curve_of({"8": 0.1, "4": 0.5, "0": 0.9}))
    assert down.labels == ("0", "4", "8")


def test_the_worst_of_several_attacks():
    a = curve_of({0: 0.9, 1: 0.5, 2: 0.4}, attack="a")
    b = curve_of({0: 0.9, 1: 0.8, 2: 0.1}, attack="b")
    none = curve_of({0: 0.9, 1: 0.0, 2: 0.0}, attack="none")
    (worst,) = drawn(a, b, none).worst
    assert worst.attack == WORST
    assert [entry.estimate.mean for entry in worst.entries] == [0.9, 0.5, 0.1]
    (worst,) = drawn(a, curve_of({0: 0.9, 1: "refused", 2: "failed"}, attack="c")).worst
    assert [entry.status for entry in worst.entries] == ["ok", "ok", "failed"]  # what failed might have been worse
    higher = [
        curve_of({0: 0.1, 1: value}, attack=name, figure="attack_success") for name, value in (("a", 0.2), ("b", 0.9))
    ]
    (worst,) = drawn(*higher, figure="attack_success").worst
    assert worst.entries[1].estimate.mean == 0.9


def test_other_swept_keys_make_curves_of_their_own():
    found = drawn(
        curve_of({0: 0.9, 1: 0.1}, **{"training.lr": "0.1"}), curve_of({0: 0.9, 1: 0.8}, **{"training.lr": "0.5"}),
        others=["training.lr"],
    )  # fmt: skip
    assert {(curve.setting, curve.half) for curve in found.curves} == {
        ("training.lr = 0.1", 0.5),
        ("training.lr = 0.5", None),
    }


def test_figures_that_are_no_accuracy_have_no_half():
    curve = only(curve_of({0: 0.1, 1: 5.0}, figure="kappa"), figure="kappa")
    assert (curve.half, curve.area) == (None, None)
    assert curve.entries[1].text() == "5"


def test_unknown_keys_and_figures():
    with pytest.raises(UnknownName, match="unknown swept key 'clients.malicios'. Did you mean 'clients.malicious'"):
        breakdown("made", *curve_of({0: 0.9}), ["clients.malicious"], "clients.malicios")
    with pytest.raises(UnknownName, match="unknown metric 'acc'"):
        breakdown("made", *curve_of({0: 0.9}), ["clients.malicious"], "clients.malicious", "acc")


def test_the_chart_has_its_letters_where_the_figures_are():
    lines = chart("worst", {"krum": [100, 50, 0], "median": [100, None, 90]}, ("0", "5", "10"), (0.0, 5.0, 10.0), 28)
    title, *body, _, axis, legend = lines.splitlines()
    rows = {line[:5].strip(): line[7:] for line in body}
    assert title == "worst"
    assert rows["100"].rstrip() == "*"
    assert rows["50"].index("A") == 10  # half-way: 28 columns less the margin of 7 and 2
    assert rows["0"].index("A") == 19
    assert rows["90"].rstrip() == 19 * " " + "B"
    assert axis.split() == ["0", "5", "10"]
    assert legend == "A krum   B median   * several"
    assert chart("none", {"krum": [None]}, ("0",), (0.0,), 28) == ""
    assert chart("small", {"krum": [1.0, 3.0]}, ("0", "1"), (0.0, 1.0), 28).splitlines()[1].startswith("    3 │")


SUITE = {
    "name": "swept",
    "clients": {"total": 8},
    "training": {"rounds": 4, "momentum": 0.9},
    "seeds": 2,
    "matrix": {
        "clients.malicious": [0, 1, 3],
        "attack": ["none", "ipm(tau=10)", "sign_flip"],
        "defense": ["mean", "trimmed_mean", "krum"],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


def test_a_run(run):
    found = run.breakdown()
    assert found.labels == ("0", "1", "3")
    curves = {(curve.attack, curve.defense): curve for curve in found.curves}
    assert len(curves) == 9
    assert curves["ipm(tau=10)", "mean"].half < 3  # 3 of 8 with ten times the length turn the mean round
    table = run.table().blocks["clients.malicious = 1"]
    entry = curves["ipm(tau=10)", "krum"].entries[1]
    assert entry.estimate == table["ipm(tau=10)"]["krum"].estimate
    rows = found.rows()
    assert len(rows) == 9 * 3 + 3 * 3
    assert {row["attack"] for row in rows} == {"none", "ipm(tau=10)", "sign_flip", WORST}


def test_the_command(run, monkeypatch, capsys):
    store = run.folder.path.parent
    code, said, _ = command(monkeypatch, capsys, "breakdown", "swept", "--store", store)
    assert code == 0
    assert said.startswith("Half of the accuracy above chance is lost first by mean at clients.malicious = ")
    assert "half is lost at" in said and "worst of these against krum" in said
    page = command(monkeypatch, capsys, "show", "swept", "--page", "breakdown", "--store", store)[1]
    assert said == page, "one page under two names"
    said = command(monkeypatch, capsys, "breakdown", "swept", "--metric", "worst_class_accuracy", "--store", store)[1]
    assert "worst class" in said.splitlines()[0]
    said = command(monkeypatch, capsys, "breakdown", "swept", "--metric", "attack_success", "--store", store)[1]
    assert said.startswith("No value of backdoor success"), "never another metric instead"
    code, said, _ = command(monkeypatch, capsys, "breakdown", "swept", "--store", store, "--json", "--metric", "kappa")
    told = json.loads(said)
    assert set(told) == {"points", "curves"}
    code, _, error = command(monkeypatch, capsys, "breakdown", "swept", "--store", store, "--over", "training.lr")
    assert (code, error.count("\n")) == (2, 1)
    assert "unknown swept key 'training.lr'" in error
    refused = command(monkeypatch, capsys, "show", "swept", "--store", store, "--all")[1]
    assert (
        " ".join(refused.split()).count("has no client to act through") == 2
    )  # one line for each attack, not for each defense


def test_narrow_terminals(run):
    console = Console(width=60, no_color=True)
    with console.capture() as capture:
        console.print(render_terminal(BREAKDOWN.blocks(run, {}), unfold=True))
    assert max(len(line.rstrip()) for line in capture.get().splitlines()) <= 60


@pytest.mark.parametrize("name", ["breakdown_f", "heterogeneity"])
def test_the_examples_can_be_laid_out(name):

    from fedguard.api import lay_out

    laid_out = lay_out(ROOT / "examples" / f"{name}.yaml")[1]
    assert laid_out.suite.name == name
    trials = len([cell for cell in laid_out.cells if not cell.verdict.reasons]) * len(laid_out.suite.seeds)
    assert 200 < trials < 800
