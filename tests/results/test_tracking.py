"""Runs in MLflow, TensorBoard and Weights & Biases: read back by their own readers, or by their own forms.

What needs one of the packages is skipped where it is not installed; `make test-tracking` installs them.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from scipy import stats

import fedguard as fg
from fedguard.bench.records.record import to_text
from fedguard.bench.results.run import Run
from fedguard.bench.results.tracking import TRACKERS, track
from fedguard.bench.results.tracking.mlflow import DIGEST, KEY
from fedguard.bench.results.tracking.trials import collect_trials
from fedguard.errors import MissingExtra, StoreError

SUITE = {
    "name": "small",
    "clients": {"total": 6, "assumed_f": 1},
    "training": {"rounds": 3},
    "seeds": 3,
    "matrix": {"clients.malicious": [1, 2], "attack": ["none", "ipm(tau=5)"], "defense": ["mean", "fltrust"]},
}


def with_packages(test):
    """Needs a tracker's package."""
    for mark in (pytest.mark.tracking, pytest.mark.slow, pytest.mark.filterwarnings("ignore")):
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(made, tmp_path):
    """A copy, which a test may alter."""
    shutil.copytree(made.folder.path, tmp_path / "runs" / "small")
    return Run.open("small", tmp_path / "runs")


def stored(run: Run) -> dict[str, dict]:
    """The records of the matrix as their files have them, by ``cell-seed``."""
    cells = {position["cell"] for position in json.loads((run.folder.path / "manifest.json").read_text())["positions"]}
    files = [json.loads(path.read_text()) for path in run.folder.path.glob("cells/*/*.json")]
    return {f"{one['cell']}-{one['seed']}": one for one in files if one["cell"] in cells}


def cell_of(run: Run, **swept: str) -> str:
    (cell,) = {one["cell"] for one in run.manifest["positions"] if swept.items() <= one["swept"].items()}
    return cell


def altered(run: Run, cell: str, seed: int) -> Run:
    """The same run, after one of its trials came out otherwise."""
    path = run.folder.record_path(cell, seed)
    record = json.loads(path.read_text())
    record["result"]["final_accuracy"] = 0.123
    path.write_bytes(to_text(record))
    return Run.open(run.folder.path)


def test_each_trial_stands_once_with_what_its_record_says(run):
    found = {one.key: one for one in collect_trials(run)}
    records = stored(run)
    assert len(found) == len(collect_trials(run)) == len(records) + len({key.rpartition("-")[0] for key in records})
    assert {record["status"] for record in records.values()} == {"ok", "refused"}
    for key, record in records.items():
        one = found[key]
        assert one.tags["status"] == record["status"]
        assert one.tags["threat"] == record["threat_card"]["in_words"]
        assert one.parameters["training.rounds"] == "3" and one.parameters["seed"] == str(record["seed"])
        assert one.parameters["defense.0.name"] == record["config"]["defense"][0]["name"]
        if record["status"] == "ok":
            result = record["result"]
            assert one.figures["final_accuracy"] == result["final_accuracy"]
            curve = result["curve"]
            assert list(one.curves["curve/accuracy"]) == list(zip(curve["round"], curve["accuracy"], strict=True))
            assert "curve/backdoor" not in one.curves  # nobody plants one
            assert one.seconds == record["cost"]["seconds"]
        else:
            assert one.tags["reason"] == record["reason"] and not one.figures and not one.curves


def test_a_cell_has_the_means_of_its_trials_and_their_intervals(run):
    """The interval is Student's on the logit scale, by the delta method."""
    cell = cell_of(run, attack="ipm(tau=5)", defense="mean", **{"clients.malicious": "1"})
    values = [record["result"]["final_accuracy"] for key, record in stored(run).items() if key.startswith(cell)]
    mean = sum(values) / 3
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    half = stats.t.ppf(0.975, 2) * spread / math.sqrt(3) / (mean * (1 - mean))
    ends = [1 / (1 + math.exp(-(math.log(mean / (1 - mean)) + sign * half))) for sign in (-1, 1)]
    figures = next(one for one in collect_trials(run) if one.key == cell).figures
    assert figures["final_accuracy"] == pytest.approx(mean)
    assert [figures[f"final_accuracy/{end}"] for end in ("low", "high")] == pytest.approx(ends)


def test_a_cell_that_positions_share_tells_all_their_values(run):
    cell = cell_of(run, attack="none", defense="mean")
    assert next(one for one in collect_trials(run) if one.key == cell).parameters["clients.malicious"] == "1, 2"


def test_tags_have_the_six_words(run):
    tags = collect_trials(run)[0].tags
    assert {"data", "model", "privacy mechanism", "architecture", "scale", "motivation"} <= set(tags)
    assert (tags["model"], tags["scale"]) == ("linear", "cross-silo")


def test_a_digest_follows_what_is_tracked_and_nothing_else(run):
    before = {one.key: one.digest for one in collect_trials(run)}
    assert {one.key: one.digest for one in collect_trials(Run.open(run.folder.path))} == before
    cell = cell_of(run, attack="ipm(tau=5)", defense="mean", **{"clients.malicious": "1"})
    after = {one.key: one.digest for one in collect_trials(altered(run, cell, 1))}
    assert {key for key in before if before[key] != after[key]} == {cell, f"{cell}-1"}


@pytest.mark.parametrize(
    ("tracker", "package", "imported"),
    [
        ("mlflow", "mlflow", "mlflow"),
        ("tensorboard", "tensorboard", "torch.utils.tensorboard"),
        ("wandb", "wandb", "wandb"),
    ],
)
def test_a_package_that_is_missing_is_named(run, tmp_path, monkeypatch, tracker, package, imported):
    monkeypatch.setitem(sys.modules, imported, None)
    with pytest.raises(MissingExtra, match=rf"--{tracker} needs {package}.*'fedguard\[tracking\]'"):
        track(run, tracker, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


class Mlflow:
    """An SQLite file, read by MLflow's client."""

    name = "mlflow"

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("mlflow", reason="MLflow is not installed: make test-tracking")
        from mlflow import MlflowClient

        self.target = str(folder / "mlflow.db")
        self.client = MlflowClient(f"sqlite:///{self.target}")

    def runs(self):
        return self.client.search_runs([self.client.get_experiment_by_name("small").experiment_id], max_results=1000)

    def read(self):
        found = []
        for one in self.runs():
            metrics, tags = one.data.metrics, one.data.tags
            history = {
                name: [(point.step, point.value) for point in self.client.get_metric_history(one.info.run_id, name)]
                for name in metrics
                if name.startswith("curve/")
            }
            figures = {name: value for name, value in metrics.items() if name not in history}
            words = {name.removeprefix("fedguard.").replace("_", " "): text for name, text in tags.items()}
            found.append(Found(tags[KEY], one.data.params, words, figures, history))
        return found


class Tensorboard:
    """Folders of events, read by TensorBoard's own reader."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("tensorboard", reason="TensorBoard is not installed: make test-tracking")
        self.target = str(folder / "events")

    def read(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG, parse_session_start_info_plugin_data

        found = []
        for path in sorted(Path(self.target).rglob("events.*")):
            events = EventAccumulator(str(path.parent)).Reload()
            scalars = {name: [(at.step, at.value) for at in events.Scalars(name)] for name in events.Tags()["scalars"]}
            texts = {
                name.removesuffix("/text_summary"): events.Tensors(name)[0].tensor_proto.string_val[0].decode()
                for name in events.Tags()["tensors"]
            }
            start = parse_session_start_info_plugin_data(
                events.SummaryMetadata(SESSION_START_INFO_TAG).plugin_data.content
            )
            cell, name = path.parent.parent.name.rpartition("-")[2], path.parent.name
            found.append(
                Found(
                    cell if name == "mean" else f"{cell}-{name.removeprefix('seed-')}",
                    {name: value.string_value for name, value in start.hparams.items()},
                    texts,
                    {name: points[0][1] for name, points in scalars.items() if not name.startswith("curve/")},
                    {name: points for name, points in scalars.items() if name.startswith("curve/")},
                )
            )
        return found


class Wandb:
    """Offline runs, read as what they are: a log of LevelDB's form, of protocol buffers that wandb describes."""

    name = "wandb"

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("wandb", reason="wandb is not installed: make test-tracking")
        self.target = str(folder)

    def read(self):
        return [self._read(path) for path in sorted(Path(self.target).glob("wandb/offline-run-*/run-*.wandb"))]

    def _read(self, path: Path):
        from wandb.proto.wandb_internal_pb2 import Record

        data, at, whole, records = path.read_bytes(), 7, b"", []
        while at < len(data):
            left = 2**15 - at % 2**15
            if left < 7:
                at += left
                continue
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            whole += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # whole, or the last of its parts
                records.append(Record.FromString(whole))
                whole = b""

        def values(items):
            return {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in items}

        (begun,) = (one.run for one in records if one.HasField("run"))
        config = values(begun.config.update)
        curves: dict[str, list] = {}
        for one in (one.history for one in records if one.HasField("history")):
            for name, value in values(one.item).items():
                if name.startswith("curve/"):
                    curves.setdefault(name, []).append((one.step.num, value))
        summary = {}
        for one in records:
            if one.HasField("summary"):
                summary |= values(one.summary.update)
        figures = {name: value for name, value in summary.items() if name[0] != "_" and not name.startswith("curve/")}
        tags = config.pop("fedguard")
        config = {name: value for name, value in config.items() if name != "_wandb"}
        return Found(tags["key"], config, tags, figures, curves)


class Found(NamedTuple):
    """What a tracker has of one trial or cell."""

    key: str
    parameters: dict
    tags: dict
    figures: dict
    curves: dict


@pytest.fixture(params=[Mlflow, Tensorboard, Wandb], ids=list(TRACKERS))
def tracker(request, tmp_path):
    return request.param(tmp_path)


@with_packages
def test_a_tracker_has_all_that_is_tracked(run, tracker):
    wanted = {one.key: one for one in collect_trials(run)}
    assert track(run, tracker.name, tracker.target) == (len(wanted), 0)
    found = tracker.read()
    assert sorted(one.key for one in found) == sorted(wanted)
    for one in found:
        told = wanted[one.key]
        assert one.parameters == told.parameters
        assert told.tags.items() <= one.tags.items()
        assert one.figures == pytest.approx(told.figures, rel=1e-6)
        assert one.curves.keys() == told.curves.keys()
        for name, curve in told.curves.items():
            assert [at for at, _ in one.curves[name]] == [at for at, _ in curve]
            assert [value for _, value in one.curves[name]] == pytest.approx([value for _, value in curve], rel=1e-6)


@with_packages
def test_a_second_export_writes_what_has_changed_and_doubles_nothing(run, tracker):
    many, _ = track(run, tracker.name, tracker.target)
    assert track(run, tracker.name, tracker.target) == (0, many)
    cell = cell_of(run, attack="ipm(tau=5)", defense="mean", **{"clients.malicious": "1"})
    again = altered(run, cell, 1)
    assert track(again, tracker.name, tracker.target) == (2, many - 2)
    found = {one.key: one for one in tracker.read()}
    assert len(found) == len(tracker.read()) == many
    assert found[f"{cell}-1"].figures["final_accuracy"] == pytest.approx(0.123)


@with_packages
def test_an_export_that_was_cut_short_is_made_good(run, tracker, monkeypatch):
    """One trial is half written: its figures are missing, and so is the mark that it is whole."""
    many, _ = track(run, tracker.name, tracker.target)
    if tracker.name == "mlflow":
        one = next(one for one in tracker.runs() if one.data.tags[KEY].count("-"))
        tracker.client.delete_tag(one.info.run_id, DIGEST)
    else:
        seal = sorted(Path(tracker.target).rglob("fedguard.sha256"))[1]
        seal.unlink()
    assert track(run, tracker.name, tracker.target) == (1, many - 1)
    assert len(tracker.read()) == many


@with_packages
def test_trials_are_nested_in_their_cell(run, tmp_path):
    tracker = Mlflow(tmp_path)
    track(run, "mlflow", tracker.target)
    cell = cell_of(run, attack="ipm(tau=5)", defense="mean", **{"clients.malicious": "1"})
    track(
        altered(run, cell, 1), "mlflow", tracker.target
    )  # the cell is another run now, also for trials that are as they were
    keys = {one.info.run_id: one.data.tags[KEY] for one in tracker.runs()}
    for one in tracker.runs():
        parent = one.data.tags.get("mlflow.parentRunId")
        key = one.data.tags[KEY]
        assert (None if parent is None else keys[parent]) == (key.partition("-")[0] if "-" in key else None)
        assert one.info.status == ("FINISHED" if one.data.tags["fedguard.status"] == "ok" else "FAILED")


@with_packages
def test_other_files_in_the_folder_stay(run, tmp_path):
    tracker = Tensorboard(tmp_path)
    track(run, "tensorboard", tracker.target)
    seal = sorted(Path(tracker.target).rglob("fedguard.sha256"))[0]
    other = seal.parent / "events.out.tfevents.1.somebody"
    other.touch()
    seal.unlink()
    assert track(run, "tensorboard", tracker.target).new == 1
    assert other.exists() and len(list(seal.parent.glob("events.*.fedguard"))) == 1


@with_packages
@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("mlflow", "http://127.0.0.1:9", "--mlflow http://127.0.0.1:9: .*failed"),
        ("mlflow", "none://there", "--mlflow none://there: "),
        ("mlflow", "{file}", "not a database"),
        ("tensorboard", "{file}/in", "cannot be written: Not a directory"),
        ("wandb", "{file}/in", "cannot be written: Not a directory"),
    ],
)
def test_a_target_that_cannot_be_written_is_one_line(run, tmp_path, monkeypatch, name, target, said):
    {"mlflow": Mlflow, "tensorboard": Tensorboard, "wandb": Wandb}[name](tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    file = tmp_path / "file"
    file.write_text("no database")
    with pytest.raises(StoreError, match=said) as raised:
        track(run, name, target.format(file=file))
    assert "\n" not in str(raised.value)
