"""Trials on other machines, without Ray: what travels, what comes home, and what becomes of a trial whose machine is lost.

The cluster is pretended: actors are objects of this process. With Ray itself: `tests/running/cluster/test_ray.py`.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.records.record import reproducible, to_text
from fedguard.bench.records.store import RunFolder
from fedguard.bench.running.engines.ray import Cluster, RayPool, _reachable, verify_record
from fedguard.bench.running.engines.remote_worker import JobFiles, RemoteWorker, store_artifacts
from fedguard.bench.running.progress import Listener
from fedguard.bench.running.runner import Runner
from fedguard.bench.running.schedule import TrialSchedule
from fedguard.bench.running.workbench import Workbench
from fedguard.bench.running.worker import serve
from fedguard.errors import ConfigError, MissingExtra
from fedguard.registry import load_registry
from tests.forked import fedguard

SUITE = {
    "name": "small",
    "clients": {"total": 6, "malicious": 1},
    "training": {"rounds": 2, "local_steps": 1, "lr": 0.1},
    "seeds": 1,
    "matrix": {"attack": ["none", "ipm"], "defense": ["mean", "median"]},
}


def records(run):
    return {trial: reproducible(record) for trial, record in run.records.items()}


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A suite with a plug-in, a module that it imports, a package and data."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "mine.py": "from beside import FACTOR\nfrom dataclasses import dataclass\nfrom fedguard.contracts import PoisonAttack, Sight\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(PoisonAttack):\n    '''Sends a constant.'''\n    name = 'mine'\n"
        "    needs = (Sight.NOTHING,)\n    def craft(self, view):\n        import torch\n"
        "        return torch.full((view.f, view.dim), FACTOR)\n",
        "beside.py": "FACTOR = 0.25\n", "more/__init__.py": "", "more/inner/deep.py": "", "notes/secret.txt": "secret", "secret.txt": "secret",
    }.items():  # fmt: skip
        (tmp_path / "suite" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "suite" / name).write_text(text)
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 120)
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "points.npz", x=(draw.normal(size=(120, 4)) + y[:, None]).astype(np.float32), y=y)
    (tmp_path / "suite" / "suite.yaml").write_text(
        "schema: 1\nname: plugged\nplugins: [mine]\n"
        "task: {data: {name: npz, file: data/points.npz, value_range: [-5, 8], classes: 3}, model: softmax}\n"
        "clients: {total: 6, malicious: 2}\ntraining: {rounds: 2}\nseeds: 1\nmatrix: {attack: [mine], defense: [mean]}\n"
    )
    return lay_out(tmp_path / "suite" / "suite.yaml")[1]


def test_what_travels_are_plugins_with_the_python_beside_them_and_data(beside, tmp_path):
    luggage = JobFiles.of(beside)
    assert set(luggage.files) == {
        "plugins/mine.py", "plugins/beside.py", "plugins/more/__init__.py", "plugins/more/inner/deep.py", "data/data/points.npz",
    }  # fmt: skip
    luggage.unpack_files(tmp_path / "there")
    assert (tmp_path / "there" / "data" / "data" / "points.npz").read_bytes() == Path("data/points.npz").read_bytes()


@pytest.mark.forked
def test_a_seat_elsewhere_comes_to_the_same_record(beside, tmp_path, monkeypatch):
    """Its worker finds plug-in and data in what travelled, for the originals are gone."""
    run = fg.run(tmp_path / "suite" / "suite.yaml", store=tmp_path / "here", jobs=1)
    schedule = TrialSchedule(beside, run.folder, fresh=True)
    attacked = next(trial for trial in schedule.pending() if schedule.cell(trial).attack is not None)
    for record in run.records.values():
        schedule.take_in(record)
    start = {"plugins": ["mine"], "folder": str(tmp_path / "suite"), "memory": None, "device": "cpu"}
    luggage, job = JobFiles.of(beside), schedule.job(attacked, schedule.cell(attacked))
    (tmp_path / "suite").rename(tmp_path / "gone")
    (tmp_path / "data").rename(tmp_path / "gone_too")
    seat = RemoteWorker(start, None, luggage)
    try:
        seat.ready()
        *progress, last = seat.trial(job, None)
        assert all(one["record"] is None and one["files"] == {} for one in progress)
        assert reproducible(verify_record(last["record"], job)) == reproducible(run.records[attacked])
    finally:
        seat.close()
        monkeypatch.chdir(tmp_path)
    assert not seat._here.exists()


def test_files_that_come_home_lead_nowhere_else(tmp_path):
    (tmp_path / "run" / "artifacts").mkdir(parents=True)
    store_artifacts(
        {"model.npy": b"1", "../../outside.npy": b"2", str(tmp_path / "elsewhere" / "outside2.npy"): b"3"},
        tmp_path / "run",
    )
    assert {path.name for path in (tmp_path / "run" / "artifacts").iterdir()} == {
        "model.npy",
        "outside.npy",
        "outside2.npy",
    }
    assert not (tmp_path / "outside.npy").exists() and not (tmp_path / "elsewhere").exists()


class Gone(Exception):
    """A machine is lost."""


class Pretended:
    """What of Ray the pool uses, in this process. ``lost`` says of the k-th trial whether its machine is lost; ``altered``, of its
    record, what arrives; ``unborn``, of the k-th actor, whether it is lost before it is ready."""

    def __init__(self, lost=lambda k: False, altered=lambda k, text: text, unborn=lambda k: False):
        self.lost, self.altered, self.unborn, self.given, self.made = lost, altered, unborn, 0, 0
        self.exceptions = SimpleNamespace(RayError=Gone, RayTaskError=type("RayTaskError", (Gone,), {}))
        self.bench, self.known = Workbench(), load_registry()

    def wait(self, heard, num_returns, timeout):
        return heard[:1], heard[1:]

    def get(self, what):
        if isinstance(what, Exception):
            raise what
        return what

    def kill(self, actor):
        actor.killed = True

    def seated(self):
        self.made += 1
        return Actor(self)


class Actor:
    def __init__(self, ray):
        self.ray, self.killed = ray, False
        self.close = SimpleNamespace(remote=lambda: object())
        came = Gone("it never ran") if ray.unborn(ray.made) else object()
        self.ready = SimpleNamespace(remote=lambda: came)
        self.trial = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.begin))

    def begin(self, job, clean_model):
        assert not self.killed
        self.ray.given += 1
        k = self.ray.given
        if self.ray.lost(k):
            return iter([Gone("no such machine")])
        answer = serve(job, self.ray.known, self.ray.bench, lambda message: None)
        record = self.ray.altered(k, to_text(answer.pop("record")))
        return iter([{"message": answer, "record": record, "ended": "", "log": "", "files": {}}])


def ran(ray, tmp_path, jobs=2):
    """The suite, in a pretended cluster."""
    plan = lay_out(SUITE)[1]
    notes, ended = [], []
    listener, waits = Listener(), itertools.count()

    def waiting():
        assert next(waits) < 1000, "it waits for what nobody does"

    listener.waiting = waiting
    listener.note, listener.note_record = notes.append, lambda record: ended.append((record["cell"], record["seed"]))
    folder = RunFolder(tmp_path / "there" / "small")
    Runner(plan, folder, listener).run(lambda: RayPool(ray, ray.seated, jobs), jobs)
    return fg.open_run(folder.path), notes, ended


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("here"), jobs=1)


def test_lost_trials_run_again_elsewhere(here, tmp_path):
    ray = Pretended(lost=lambda k: k in (1, 3, 4))
    run, notes, ended = ran(ray, tmp_path)
    assert records(run) == records(here)
    assert len(ended) == len(set(ended)) == len(here.records)
    assert ray.made == 2 + 3 and ray.given == len(here.records) + 3
    assert len([note for note in notes if "was lost (Gone); the trial runs again" in note]) == 3


def test_a_trial_that_loses_every_machine_has_failed(here, tmp_path):
    run, _, _ = ran(Pretended(lost=lambda k: k <= 3), tmp_path, jobs=1)
    failed = run.with_status("failed")
    assert [row["reason"] for row in failed] == ["its machine or its Ray actor was lost (Gone), and so it went 3 times"]
    assert len(run.records) == len(here.records)


def test_a_cluster_in_which_no_worker_starts_ends_the_run_with_one_line(here, tmp_path):
    """Twice in a row is an accident; the third time it is none, and would go on for ever."""
    ray = Pretended(unborn=lambda k: k in (1, 3))
    assert records(ran(ray, tmp_path)[0]) == records(here) and ray.made == 2 + 2
    ray = Pretended(unborn=lambda k: True)
    with pytest.raises(ConfigError, match="no worker starts in the cluster, tried 3 times.*Ray says: it never ran"):
        ran(ray, tmp_path / "again")
    assert ray.made == 2 + 2 and not ray.given


@pytest.mark.parametrize(
    "altered",
    [
        lambda text: text.replace(b'"final_accuracy": 0.', b'"final_accuracy": 0.9', 1),
        lambda text: text[:-10],
        lambda text: text.replace(b'"seed": 0', b'"seed": 1', 1),
    ],
    ids=["a figure", "cut", "of another seed"],
)
def test_a_record_that_is_altered_on_its_way_is_made_again(here, tmp_path, altered):
    ray = Pretended(altered=lambda k, text: altered(text) if k == 2 else text)
    run, notes, _ = ran(ray, tmp_path)
    assert records(run) == records(here)
    assert ray.given == len(here.records) + 1
    assert sum("altered on its way (the checksum does not fit); the trial runs again" in note for note in notes) == 1


def test_a_record_of_another_trial_is_none(here):
    first, second = list(here.records.values())[:2]
    job = {"cell": first["config"], "seed": first["seed"]}
    assert verify_record(to_text(first), job)["cell"] == first["cell"]
    with pytest.raises(ValueError, match="it belongs to another trial"):
        verify_record(to_text(second), job)
    other = {**first, "environment": {**first["environment"], "code": {"fedguard": "another"}}}
    with pytest.raises(ConfigError, match="has other code of FedGuard .another. than this one"):
        verify_record(to_text(other), job)


def test_a_cluster_without_room_for_a_worker_is_one_line():
    machines = [
        {"Alive": True, "Resources": {"CPU": 2.0, "memory": 1e9}},
        {"Alive": False, "Resources": {"CPU": 2.0, "memory": 1e12}},
    ]
    cluster = Cluster(SimpleNamespace(nodes=lambda: machines), local=True)
    with pytest.raises(
        ConfigError, match="expected a machine with 1 CPU, 2e.09 memory for a worker; none of the 1 of the cluster"
    ):
        cluster.pool(1, {"memory": 2 * 10**9, "device": "cpu"}, None, lay_out(SUITE)[1])


@pytest.mark.parametrize(
    "address, why",
    [("ray://head:10001", "expected auto, HOST or HOST:PORT of a cluster that this machine is part of"),
     ("head:port", "expected auto, HOST or HOST:PORT; got 'head:port'"), ("127.0.0.1:1", "expected a Ray cluster at 127.0.0.1:1; got no answer")],
)  # fmt: skip
def test_an_address_that_is_none_is_one_line(address, why):
    with pytest.raises(ConfigError, match=why) as raised:
        _reachable(address)
    assert "\n" not in str(raised.value)


def test_without_ray_the_command_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingExtra, match=r"--engine ray needs ray, which is not installed. Install it: pip install 'fedguard\[ray\]'"
    ):
        fg.run(SUITE, store=tmp_path, engine=fg.Ray())


def test_engines_of_the_command(tmp_path):
    (tmp_path / "suite.yaml").write_text("schema: 1\nname: small\n")
    for arguments, why in (
        (("--engine", "slurm"), "unknown engine 'slurm'"),
        (("--address", "auto"), "--address: expected one with --engine ray alone; got auto"),
    ):
        done = fedguard("run", "suite.yaml", *arguments, cwd=tmp_path)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1, done.stderr
