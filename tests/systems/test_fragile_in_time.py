"""What docs/fragile.md concludes of defenses that live in time follows from a run of its suite."""

from __future__ import annotations

import os
from statistics import mean

import pytest

import fedguard as fg
from fedguard.bench.results.run import Run
from tests.root import ROOT

SUITE = ROOT / "examples" / "fragile_in_time.yaml"
EVENTUAL, FEDBUFF = "parameter_server(consistency=eventual)", "fedbuff(buffer=10)"


class Table:
    """Final accuracies in % of a run, means over seeds."""

    def __init__(self, run: Run) -> None:
        assert not run.with_status("failed") and not run.with_status("missing")
        rows = [row for row in run.rows() if row["status"] == "ok"]
        self.attacks = {row["attack"] for row in rows} - {"none"}
        self.found: dict[tuple[str, str, str], list[float]] = {}
        for row in rows:
            key = (row["architecture"], row["defense"], row["attack"])
            self.found.setdefault(key, []).append(100 * row["final_accuracy"])

    def without(self, system: str, defense: str) -> float:
        """Without attack."""
        return mean(self.found[system, defense, "none"])

    def worst(self, system: str, defense: str) -> float:
        """Under the worst of the attacks."""
        return min(mean(self.found[system, defense, attack]) for attack in self.attacks)


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """Three defenses of one server, under one attack with one seed, in half of the rounds."""
    settings = [
        "seeds=1",
        "training.rounds=20",
        "matrix.attack=[none, ipm(tau=2)]",
        "matrix.defense=[mean, kardam, zeno_plus_plus]",
        "matrix.architecture=[{name: parameter_server, consistency: eventual}]",
    ]
    return Table(fg.run(SUITE, store=tmp_path_factory.mktemp("in_time"), overrides=settings, jobs=1))


@pytest.mark.slow
def test_on_few_cells_clean_examples_hold_and_a_filter_of_single_updates_does_not(part):
    zeno, plain = part.worst(EVENTUAL, "zeno_plus_plus"), part.worst(EVENTUAL, "mean")
    assert zeno > plain + 5 and zeno > part.without(EVENTUAL, "zeno_plus_plus") - 5
    assert part.worst(EVENTUAL, "kardam") < plain


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Table(fg.run(SUITE, store=tmp_path_factory.mktemp("in_time"), jobs=2))


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("ANCHOR_SEEDS") == "1", reason="the suite takes many minutes: make test-slow")
class TestTheWholeSuite:
    def test_with_clean_examples_an_asynchronous_server_loses_three_points_at_most(self, whole):
        for system in (EVENTUAL, "fedasync", FEDBUFF):
            lost = whole.without(system, "zeno_plus_plus") - whole.worst(system, "zeno_plus_plus")
            assert lost < 3 and whole.worst(system, "zeno_plus_plus") > 84

    def test_kardam_on_single_updates_is_worse_than_the_mean_and_in_buffers_it_is_not(self, whole):
        assert whole.worst(EVENTUAL, "kardam") < whole.worst(EVENTUAL, "mean") - 20
        assert whole.without(EVENTUAL, "kardam") < whole.without(EVENTUAL, "mean") - 5
        assert whole.worst(FEDBUFF, "kardam") > whole.worst(FEDBUFF, "mean")

    def test_asyncfilter_falls_below_the_mean(self, whole):
        assert whole.worst(FEDBUFF, "asyncfilter") < whole.worst(FEDBUFF, "mean")
