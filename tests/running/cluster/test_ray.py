"""A Ray cluster: the same records as from processes of this machine.

Workers of a cluster are processes; what is run here to compare with, runs in the tests' own, but for the first comparison.

All of it needs Ray: `make test-ray`. What needs none stands in `tests/running/test_ray_seats.py`.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import pytest

import fedguard as fg
from fedguard.errors import ConfigError
from tests.running.cluster.conftest import PLUGIN, SUITE, Ear, ran_at, records

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray")


@pytest.fixture(scope="module")
def cluster(started_once):
    """One machine with two cores, which this process is part of."""
    from ray.cluster_utils import Cluster

    started_once("cluster")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def connected(cluster):
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.mark.processes
def test_the_same_records_as_from_processes_of_this_machine(tmp_path, connected):
    ear = Ear()
    there = fg.run(SUITE, store=tmp_path / "there", engine=fg.Ray(), listener=ear)
    here = fg.run(SUITE, store=tmp_path / "here", jobs=2)
    assert records(there) == records(here)
    assert len(ear.ran) == len(set(ear.ran)) > 10
    assert ear.jobs == 2  # as many as the cluster has cores
    models = {path.name: path.read_bytes() for path in (tmp_path / "here" / "small" / "artifacts").iterdir()}
    assert models and models == {
        path.name: path.read_bytes() for path in (tmp_path / "there" / "small" / "artifacts").iterdir()
    }
    again = Ear()
    fg.run(SUITE, store=tmp_path / "there", engine=fg.Ray(), listener=again)
    assert not again.ran


def test_plugins_and_data_travel(plugin, connected, tmp_path):
    suite = plugin("mine")
    here = fg.run(suite, store=tmp_path / "here", jobs=2)
    there = fg.run(suite, store=tmp_path / "there", engine=fg.Ray())
    assert records(there) == records(here)
    assert {record["status"] for record in there.records.values()} == {"ok"}
    made_of = [set(record["environment"]["code"]) for record in there.records.values()]
    assert {"fedguard", "mine"} in made_of and {"fedguard"} in made_of


def test_trouble_in_a_trial_ends_as_it_does_here(plugin, connected, tmp_path):
    """An error, the death of a process and a hang are failed records with a log, and none of them costs another trial."""
    suite = plugin("\"mine(what='raise')\"", "\"mine(what='die')\"", "\"mine(what='hang')\"")
    run = fg.run(suite, store=tmp_path / "there", engine=fg.Ray(), timeout=8)
    rows = [row for row in run.rows() if row["defense"] == "mean"]
    assert [row["status"] for row in rows] == ["ok", "failed", "failed", "failed"]
    raised, died, hung = (row["reason"] for row in rows[1:])
    assert "no such luck" in raised
    assert (died, hung) == ("the worker process was lost: killed by SIGKILL", "timed out after 8 s")
    logs = [path.read_text() for path in (tmp_path / "there" / "plugged" / "logs").iterdir()]
    assert any("mine.py" in log and "ValueError: no such luck" in log for log in logs)
    assert any("timed out" in log and "in craft" in log for log in logs)  # where it stood


def test_a_worst_case_and_a_tuning(connected, tmp_path):
    worst = {**SUITE, "name": "worst", "seeds": 1, "matrix": {"attack": ["none", {"name": "worst_case", "attacks": ["ipm", "sign_flip"]}], "defense": ["median"]}}  # fmt: skip
    there, here = (
        fg.run(worst, store=tmp_path / where, engine=engine, jobs=1)
        for where, engine in (("there", fg.Ray()), ("here", None))
    )
    assert records(there) == records(here)
    assert any((record["result"] or {}).get("worst_case") for record in there.records.values())
    tunings = [
        fg.tune({**SUITE, "matrix": {"attack": ["none", "ipm", "sign_flip"], "defense": ["median", "trimmed_mean"]}},
                budget=2, seeds=1, out=tmp_path / f"{where}.yaml", store=tmp_path / where, engine=engine, jobs=1)
        for where, engine in (("there", fg.Ray()), ("here", None))
    ]  # fmt: skip
    assert (tmp_path / "there.yaml").read_text().replace("there.yaml", "here.yaml") == (
        tmp_path / "here.yaml"
    ).read_text()
    assert [one.chosen for one in tunings[0].defenses] == [one.chosen for one in tunings[1].defenses]


def test_a_baseline_and_a_gate(plugin, connected, tmp_path):
    """The same baseline and verdicts as from processes of this machine: a rerun is identical, an attack made stronger is worse."""
    from fedguard.bench.gate.baseline import read

    suite, module = plugin("mine", name="gated"), tmp_path / "mine.py"
    rules = "seeds: 2\ngate: {confirm: 3, metrics: {final_accuracy: {margin: 0.02}}}"
    suite.write_text(suite.read_text().replace("seeds: 1", rules).replace("[mean, median]", "[mean]"))
    found = {}
    for where, engine in (("there", fg.Ray()), ("here", None)):
        module.write_text(PLUGIN)
        how = {"engine": engine, "jobs": 1}
        run, file, ear = fg.run(suite, store=tmp_path / where, **how), tmp_path / f"{where}.json", Ear()
        fg.save_baseline(run, file, listener=ear, **how)
        assert len(ear.ran) == 9  # two cells and the one in which the malicious are silent, on three fresh seeds
        same = fg.gate(run, file, **how)
        assert same.passed and {one.verdict for one in same.judgments} == {"identical"}
        module.write_text(
            PLUGIN.replace(
                "torch.full((view.f, view.dim), FACTOR)", "torch.linspace(99, -99, view.dim).repeat(view.f, 1)"
            )
        )
        ear = Ear()
        worse = fg.gate(fg.run(suite, store=tmp_path / where, **how), file, listener=ear, **how)
        assert worse.exit_code == 3 and len(ear.ran) >= 3
        cells = read(file).snapshot.cells
        found[where] = (
            {key: cell.values for key, cell in cells.items()},
            [(one.label, one.verdict, one.drop, one.p_value) for one in worse.judgments],
            records(fg.open_run(tmp_path / where / "gated" / "confirmation")),
        )
    assert found["there"] == found["here"]
    assert {label: verdict for label, verdict, *_ in found["there"][1]}["mine against mean"] == "regressed"


def test_memory_is_a_request_that_some_machine_must_meet(connected, tmp_path):
    with pytest.raises(
        ConfigError, match="expected a machine with 1 CPU, 5.*memory for a worker; none of the 1 of the"
    ):
        fg.run(SUITE, store=tmp_path, engine=fg.Ray(), jobs=1, memory="500T")
    run = fg.run(SUITE, store=tmp_path, engine=fg.Ray(), jobs=2, memory="3G", limit=1)
    (record,) = [one for one in run.records.values() if one["status"] != "refused"]
    assert record["cost"]["worker_memory_limit_bytes"] == 3 << 29


def test_a_plugin_that_a_worker_cannot_import_is_one_line(plugin, connected, tmp_path):
    """The package is there for this process alone."""
    (tmp_path / "only_here").mkdir()
    (tmp_path / "only_here" / "helper_of_mine.py").write_text("FACTOR = 0.5\n")
    suite = plugin("mine")
    (tmp_path / "beside.py").write_text("from helper_of_mine import FACTOR\n")
    sys.path.append(str(tmp_path / "only_here"))
    try:
        with pytest.raises(
            ConfigError,
            match=r"--engine ray: no worker starts on .*'mine' cannot be imported.*No module named 'helper_of_mine'",
        ) as raised:
            fg.run(suite, store=tmp_path / "there", engine=fg.Ray())
    finally:
        sys.path.remove(str(tmp_path / "only_here"))
        sys.modules.pop("helper_of_mine", None)
    assert "\n" not in str(raised.value)


def test_other_code_at_a_machine_is_one_line(connected, tmp_path, monkeypatch):
    monkeypatch.setattr("fedguard.bench.running.engines.ray.own_code", lambda: "another")
    with pytest.raises(ConfigError, match="has other code of FedGuard"):
        fg.run(SUITE, store=tmp_path, engine=fg.Ray(), jobs=1)


def test_another_version_of_ray_is_one_line(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "__version__", "2.0.0")
    with pytest.raises(ConfigError, match="another version of Ray or Python than this process. Install the same"):
        fg.run(SUITE, store=tmp_path, engine=fg.Ray(cluster.address))


def test_a_cluster_without_tokens_and_a_process_with_one_are_told(cluster, tmp_path):
    """Ray lets that process in, and its cluster cannot talk to it."""
    (tmp_path / "quick.json").write_text(json.dumps(SUITE))
    done = ran_at(cluster.address, tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64)
    assert done.returncode == 2
    said = "no worker starts in the cluster, tried 3 times. If it asks for no token and this process has one"
    assert said in done.stderr


def test_a_record_that_is_altered_on_its_way_is_made_again(connected, tmp_path, monkeypatch):
    """It comes under a seal, which is looked at before anything is stored."""
    from fedguard.bench.running.engines import ray as engine

    opened, altered = engine.verify_record, []

    def open_another(text, job):
        if not altered:
            altered.append(text)
            text = text.replace(b'"final_accuracy": 0.', b'"final_accuracy": 0.1', 1)
            assert text != altered[0]
        return opened(text, job)

    monkeypatch.setattr(engine, "verify_record", open_another)
    ear = Ear()
    there = fg.run(SUITE, store=tmp_path / "there", engine=fg.Ray(), jobs=1, limit=2, listener=ear)
    assert any(
        "its record was altered on its way (the checksum does not fit); the trial runs again" in one
        for one in ear.notes
    )
    assert records(there) == records(fg.run(SUITE, store=tmp_path / "here", jobs=1, limit=2))


def test_actors_conform(connected):
    """All on the same two actors, which take seconds to start."""
    from fedguard.bench.conformance.conform import conform

    architectures = ["server", "parameter_server(consistency='eventual')", "a3c", "impala(buffer=2)"]
    found = conform(architectures, "ray", rounds=3)
    assert [one.architecture for one in found[::2]] == [one.architecture for one in found[1::2]] == architectures
    for plain, attacked in zip(found[::2], found[1::2], strict=True):
        assert plain.passed and plain.same_bits and attacked.passed and attacked.same_bits
        assert (plain.order is None) == (plain.architecture == "server")
        assert plain.real.sha256 != attacked.real.sha256


def test_a_trial_that_takes_each_machine_down_has_failed(connected, tmp_path, monkeypatch):
    """It is not started again for ever."""
    from fedguard.bench.running.engines.ray import RayPool

    give = RayPool._give

    def fatal(self, seat, job):
        give(self, seat, job)
        threading.Timer(0.05, ray.kill, [seat.actor]).start()

    monkeypatch.setattr(RayPool, "_give", fatal)
    run = fg.run(SUITE, store=tmp_path, engine=fg.Ray(), jobs=1, limit=1)
    (record,) = [one for one in run.records.values() if one["status"] != "refused"]
    assert (record["status"], record["reason"]) == (
        "failed",
        "its machine or its Ray actor was lost (ActorDiedError), and so it went 3 times",
    )
