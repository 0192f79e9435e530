"""Baselines: what stands in the file, what is refused, and how a file that cannot be trusted is met."""

from __future__ import annotations

import json

import pytest

from fedguard.api import lay_out
from fedguard.bench.gate.baseline import Baseline, confirmation_seeds, read
from fedguard.bench.results.differences import differences
from fedguard.errors import ConfigError, StoreError
from tests.gate.tables import FRESH, SEEDS, accuracies, baseline, cell, snapshot


@pytest.fixture
def saved(tmp_path):
    """A baseline of two cells, of which one was refused, and its file."""
    refused = cell({}, (), status="refused", reason="needs sums")
    run = snapshot({**accuracies(x=[0.8, 0.81, 0.82]), "y": refused})
    fresh = snapshot({"x": cell({"final_accuracy": [0.7] * 8, "kappa": [1.0] * 8}, FRESH)}, FRESH)
    made = baseline(run, fresh)
    made.write(tmp_path / "deep" / "b.json")
    return made, tmp_path / "deep" / "b.json"


def test_a_baseline_survives_its_file(saved):
    made, file = saved
    assert read(file) == made
    assert read(file).text() == file.read_text()


def test_it_holds_both_kinds_of_seeds_and_when_and_why(saved):
    made, _ = saved
    assert made.confirmation == FRESH and made.snapshot.seeds == SEEDS
    assert made.snapshot.cells["x"].values["final_accuracy"] == {0: 0.8, 1: 0.81, 2: 0.82} | dict.fromkeys(FRESH, 0.7)
    assert made.snapshot.cells["x"].values["kappa"] == dict.fromkeys(FRESH, 1.0)
    assert made.snapshot.cells["y"].status == "refused"
    assert [(one.reason, one.commit, one.changes) for one in made.history] == [("saved", "abc", ())]


def test_the_file_is_made_for_reviews(saved):
    """Sorted keys, a line for each value: one changed value is one changed line, beside the times."""
    made, file = saved
    run = snapshot({**made.snapshot.cells, **accuracies(x=[0.8, 0.81, 0.83])})
    other = baseline(run, snapshot({"x": cell({"final_accuracy": [0.7] * 8, "kappa": [1.0] * 8}, FRESH)}, FRESH))
    lines = [text.splitlines() for text in (made.text(), other.text())]
    assert len(lines[0]) == len(lines[1])
    assert [(a.strip(), b.strip()) for a, b in zip(*lines, strict=True) if a != b] == [('"2": 0.82,', '"2": 0.83,')]
    content = json.loads(file.read_text())
    assert list(content) == sorted(content)


def broken(**changes) -> dict:
    """A sound baseline's content with parts put over it, each named by dots and underscores."""
    run = snapshot(accuracies(x=[0.8, 0.81, 0.82]))
    content = json.loads(baseline(run).text())
    for key, value in changes.items():
        place = content
        *path, last = key.split("__")
        for part in path:
            place = place[part]
        place[last] = value
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is damaged"),
        (b"\xff\xfe", "the file is damaged"),
        ("{", "the file is damaged"),
        ("[" * 100_000, "the file is damaged"),
        ("[]", "this is another file"),
        ('{"schema": 1}', "this is another file"),
        (broken(kind="manifest"), "this is another file"),
        (broken(schema=2), "another version of FedGuard"),
        (broken(surprise=1), "damaged at surprise"),
        (broken(snapshot__seeds="many"), "damaged at snapshot.seeds"),
        (broken(snapshot__positions=[{"swept": {"attack": "none", "defense": "z"}, "cell": "z"}]), "cell z is not in the file"),
        (broken(snapshot__positions=[{"swept": {}, "cell": "x"}]), "has no attack or no defense"),
        (broken(snapshot__cells__x__values={"final_accuracy": {"0": "high"}}), "damaged at snapshot.cells.x.values"),
        (json.dumps(broken()).replace("0.81", "NaN"), "the file is damaged"),
        (json.dumps(broken()).replace("0.81", "1e999"), "finite number"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_one_line(tmp_path, content, said):
    file = tmp_path / "b.json"
    text = json.dumps(content) if isinstance(content, dict) else content
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(StoreError) as caught:
        read(file)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert "fedguard baseline save" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        read(tmp_path / "b.json")


@pytest.mark.parametrize("status", ["failed", "missing"])
def test_a_run_that_is_not_whole_makes_no_baseline(status):
    bad = cell({}, (), status=status, reason="no such luck")
    good = accuracies(x=[0.8] * 3)
    with pytest.raises(ConfigError, match=f"no attack against y is {status} .no such luck."):
        baseline(snapshot({**good, "y": bad}))
    with pytest.raises(ConfigError, match=f"no attack against x is {status}"):
        baseline(snapshot(good), snapshot({"x": bad}, FRESH))


def test_an_update_keeps_the_history_and_says_what_changed():
    before = baseline(snapshot(accuracies(x=[0.8] * 3, y=[0.6] * 3, gone=[0.5] * 3)))
    gate = {"metrics": {"final_accuracy": {"margin": 0.1}}}
    after = Baseline.of(
        snapshot(accuracies(x=[0.9] * 3, y=[0.6] * 3), gate=gate), None, "a better rule", before, now=2.0
    )
    assert [one.reason for one in after.history] == ["saved", "a better rule"]
    assert after.history[-1].changes == (
        "1 positions removed",
        'thresholds: gate.metrics.final_accuracy was unset, is {"margin": 0.1, "floor": null, "ceiling": null}',
        "final accuracy: 70.0 % before, 75.0 % now, on average; 1 of 2 cells differ",
    )
    same = Baseline.of(before.snapshot, None, "nothing", before, now=3.0)
    assert same.history[-1].changes == ()


def test_differences_name_dotted_keys():
    old = {"a": {"b": 1, "c": [1, 2]}, "d": "x", "same": {}}
    new = {"a": {"b": 2, "c": [1, 3]}, "e": True, "same": {}}
    assert differences(old, new) == [
        "a.b was 1, is 2", "a.c was [1, 2], is [1, 3]", "d was x, is unset", "e was unset, is true",
    ]  # fmt: skip


def test_confirmation_seeds_are_nobody_elses():
    suite = {"seeds": [0, 20_000, 20_003], "gate": {"confirm": 4}, "matrix": {"defense": ["mean", "median"]}}
    assert confirmation_seeds(lay_out(suite)[1]) == (20_001, 20_002, 20_004, 20_005)
    tuned = {"attacks": ["ipm"], "seeds": [20_000, 20_001], "budget": 1}
    assert confirmation_seeds(lay_out({"seeds": 3, "gate": {"confirm": 3}, "tuning": tuned})[1]) == (
        20_002,
        20_003,
        20_004,
    )
    assert len(confirmation_seeds(lay_out({})[1])) == 8
