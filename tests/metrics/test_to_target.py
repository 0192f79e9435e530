"""How long it took to a target accuracy: reached for good, or censored, and nowhere taken for a number that it is not."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedguard.bench.pages.panels import matrix_panels
from fedguard.bench.records.record import from_text
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.compare import compare
from fedguard.bench.results.run import Run
from fedguard.cli import app
from fedguard.errors import UnknownName
from fedguard.metrics.figures import FIGURES, metric_name
from fedguard.metrics.stats import CensoredValue
from tests.root import ROOT

OLD = ROOT / "tests" / "first_edition"
FIGURE = "seconds_to(0.8)"


def of(name, accuracy, **axes):
    return FIGURES[name].of({"result": {"curve": {"accuracy": accuracy, **axes}}})


@given(st.lists(st.integers(0, 10), min_size=1, max_size=9), st.integers(1, 10))
def test_the_first_evaluation_that_has_it_and_after_which_none_lacks_it(tenths, target):
    accuracy, rounds = [one / 10 for one in tenths], [3 * number + 1 for number in range(len(tenths))]
    found = of(f"rounds_to({target / 10:g})", accuracy, round=rounds)
    for number, round in enumerate(rounds):
        if all(later >= target / 10 for later in accuracy[number:]):
            assert found == round
            assert not isinstance(found, CensoredValue)
            return
    assert isinstance(found, CensoredValue)
    assert found == rounds[-1]


def test_each_family_counts_along_its_own_axis():
    axes = {"round": [2, 4], "updates": [30, 60], "seconds": [1.5, 3.5], "bytes_up": [100, 200]}
    found = {family: of(f"{family}(0.5)", [0.4, 0.6], **axes) for family in ("rounds_to", "updates_to", "seconds_to")}
    assert found == {"rounds_to": 4, "updates_to": 60, "seconds_to": 3.5}
    assert of("bytes_to(0.5)", [0.4, 0.6], **axes) == 200
    assert of("seconds_to(0.5)", [0.4, 0.6], round=[2, 4]) is None, "without simulated time there are no seconds"


def test_actors_reach_a_target_by_their_normalized_return():
    """Guessing has 20, perfect 220: 120 is half of the way, and 119 is not."""
    curve = {"returns": [20.0, 119.0, 120.0, 220.0], "round": [1, 2, 3, 4], "steps": [40, 80, 120, 160]}
    result = {"curve": curve, "returns": {"guess": 20.0, "perfect": 220.0}}
    found = [FIGURES[name].of({"result": result}) for name in ("steps_to(0.5)", "rounds_to(0.5)", "steps_to(1)")]
    assert found == [120, 3, 160]
    assert FIGURES["seconds_to(0.5)"].of({"result": result}) is None
    never = FIGURES["steps_to(1)"].of(
        {"result": {**result, "curve": {**curve, "returns": [20.0, 119.0, 120.0, 219.0]}}}
    )
    assert isinstance(never, CensoredValue) and never == 160


@pytest.mark.parametrize("name", ["seconds_to", "seconds_to()", "seconds_to(0)", "seconds_to(1.2)", "hours_to(0.9)"])
def test_what_is_no_target_is_an_unknown_metric(name):
    assert name not in FIGURES
    with pytest.raises(UnknownName, match=r"Or how long it took, as rounds_to\(0\.9\)"):
        metric_name(name)


def test_a_mean_with_censored_seeds_is_a_bound_without_an_interval():
    figure = FIGURES[FIGURE]
    assert figure.format_estimate(figure.estimate([4.0, 5.0, 6.0])) == "5 [2.52, 7.48]"
    censored = figure.estimate([4.0, 5.0, CensoredValue(6.0)])
    assert (figure.format_estimate(censored), censored.low, censored.censored) == (">5", None, 1)
    assert str(CensoredValue(6.0)) == ">6"


@pytest.fixture
def runs(tmp_path):
    """Two runs with several attacks: all are slow, but for one that never gets there, and ends early; in b another one."""
    found = []
    for name, never in (("a", "alie"), ("b", "loss")):
        folder = tmp_path / name
        shutil.copytree(OLD, folder)
        store = RunFolder(folder)
        for path in folder.glob("cells/*/*.json"):
            record = from_text(path.read_bytes())
            attack = record["threat_card"]["attack"]
            record["threat_card"]["goal"] = attack and "untargeted"
            record["result"]["inference"] = None
            curve = record["result"]["curve"]
            count = len(curve["accuracy"])
            curve["accuracy"] = [0.9 if attack != never else 0.1] * count
            curve["seconds"] = [1.0 * number + (1.0 if attack == never else 50.0) for number in range(count)]
            store.write(record)
        found.append(Run.open(folder))
    return found


def test_never_is_worse_than_late_and_is_not_averaged_with_it(runs):
    table = runs[0].table(FIGURE)
    block, attacks = next(iter(table.blocks.items()))
    defense = "median"
    assert attacks["alie"][defense].text().startswith(">")
    assert table.worst(block, defense) is attacks["alie"][defense]
    assert FIGURE not in runs[0].rows()[0], "figures to a target are no columns unasked"
    worst = matrix_panels(runs[0], FIGURE)[0].worst[defense]
    assert (worst.swept["attack"], worst.text[0]) == ("alie", ">")


def test_what_is_censored_is_compared_with_nothing(runs):
    found = compare(*runs, FIGURE)
    assert {one.swept["attack"] for one in found.apart if "did not get there" in one.why} == {"alie", "loss"}
    assert {one.swept["attack"] for one in found.differences} & {"alie", "loss"} == set()
    assert found.differences, "the others are compared"


def test_the_command_line_shows_it(runs, tmp_path):
    said = CliRunner().invoke(app, ["show", "a", "--metric", FIGURE, "--store", str(tmp_path)])
    assert said.exit_code == 0, said.output
    assert "What it takes to 80 % accuracy, or normalized return, for good in simulated seconds" in " ".join(
        said.output.split()
    )
    assert ">" in said.output
