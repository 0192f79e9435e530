"""What made a record: plug-ins that have changed make their trials run again, and the rest of the origin is written down."""

from __future__ import annotations

import sys

import pytest
from test_running import Ear

import fedguard as fg
from fedguard.bench.running.code import own_code
from fedguard.bench.running.progress import Listener

RULE = '''
from dataclasses import dataclass
from fedguard.contracts import CoordinateRule, Sight

@dataclass(frozen=True, kw_only=True)
class Scaled(CoordinateRule):
    """The mean, scaled."""
    name = "scaled"
    source = "a test"
    needs = (Sight.EACH_UPDATE,)
    def reduce(self, block, context):
        return block.mean(0) * {factor}
'''


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A suite beside its plug-in; ``suite(factor)`` writes the plug-in."""

    def write(factor: float):
        (tmp_path / "my_rules.py").write_text(RULE.replace("{factor}", str(factor)))
        (tmp_path / "suite.yaml").write_text(
            "name: mine\nplugins: [my_rules]\nclients: {total: 4}\ntraining: {rounds: 2}\nseeds: 2\n"
            "matrix: {defense: [mean, scaled]}\n"
        )
        return tmp_path / "suite.yaml"

    yield write
    sys.modules.pop("my_rules", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def test_a_changed_plugin_runs_its_own_cells_again_and_no_others(suite, tmp_path):
    before = fg.run(suite(1.0), store=tmp_path / "runs").rows()[-1]["final_accuracy"]
    ear = Ear()
    again = fg.run(suite(0.01), store=tmp_path / "runs", listener=ear)
    assert {label for label, _ in ear.ran} == {"no attack against scaled"}
    assert len(ear.ran) == 2
    assert ear.notes == ["2 stored trials were made by code or data of yours that have changed; they run again."]
    assert again.rows()[-1]["final_accuracy"] < before - 0.1
    ear = Ear()
    fg.run(suite(0.01), store=tmp_path / "runs", listener=ear)
    assert ear.ran == [] and ear.notes == []


def test_a_record_names_its_code_and_its_data(suite, tmp_path):
    run = fg.run(suite(1.0), store=tmp_path / "runs")
    origins = {record["label"]: record["environment"] for record in run.records.values()}
    assert origins["no attack against mean"]["code"] == {"fedguard": own_code()}
    assert set(origins["no attack against scaled"]["code"]) == {"fedguard", "my_rules"}
    assert len({origin["data"] for origin in origins.values()}) == 1
    other = fg.run({"name": "other", "task": {"data": "wine"}, "training": {"rounds": 1}, "seeds": 1}, store=tmp_path)
    assert next(iter(other.records.values()))["environment"]["data"] not in {one["data"] for one in origins.values()}


class Curves(Listener):
    """Keeps what is evaluated while it trains."""

    def __init__(self):
        self.heard = []

    def note_progress(self, trial, round, rounds, scores):
        assert rounds == 60 and round <= rounds
        self.heard += [tuple(point) for point in scores]


def test_the_accuracy_is_heard_while_it_trains(tmp_path):
    ear = Curves()
    suite = {"name": "live", "clients": {"total": 40}, "training": {"rounds": 60, "local_epochs": 5}, "seeds": 1}
    run = fg.run(suite, store=tmp_path, listener=ear)
    curve = next(iter(run.records.values()))["result"]["curve"]
    stored = list(zip(curve["round"], curve["accuracy"], strict=True))
    assert len(ear.heard) >= 5
    assert ear.heard == stored[: len(ear.heard)]
