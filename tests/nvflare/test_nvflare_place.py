"""A job's folder and the controller of its copy, without processes: its sites are called where the server would send."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = [pytest.mark.nvflare, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("nvflare.app_common", reason="NVFlare is not installed: make test-nvflare")

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedguard.bridges.nvflare.aggregator import FedGuardAggregator
from fedguard.bridges.nvflare.controller import guard_controller
from fedguard.bridges.nvflare.job import NVFlareJob
from fedguard.bridges.nvflare.running import read, rehearse
from fedguard.errors import ConfigError, FedGuardError, NotAllowed
from tests.nvflare.trained import CLIENT, DATA, JOB, SITES, TEST, changed, own, request

WORKFLOWS = "nvflare.app_common.workflows"


class Sites:
    """What a server's messages reach: each site trains at once, and its result is handed back in some order."""

    def __init__(self, full=True, silent=None, claims=True, wrong=None):
        self.full, self.silent, self.claims, self.wrong = full, silent or {}, claims, wrong
        self.calls = 0

    def send(self, controller, task_name, targets, data, callback):
        self.calls += 1
        order = list(targets)[::-1] if self.calls % 2 else list(targets)
        for name in order:
            if self.silent.get(name, 99) > self.calls:
                callback(self.result(name, data.params["numpy_key"]))

    def result(self, name, model):
        x, y = DATA[SITES.index(name)]
        trained = CLIENT.train(model, x, y)
        return FLModel(
            params={"other" if name == self.wrong else "numpy_key": trained if self.full else trained - model},
            params_type=ParamsType.FULL if self.full else ParamsType.DIFF,
            metrics={"accuracy": CLIENT.accuracy(model, *TEST)},
            meta={"client_name": name} | ({"NUM_STEPS_CURRENT_ROUND": len(x)} if self.claims else {}),
        )


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the controller of a job's copy, and return what it tells and its last model."""

    def start(sites=None, aggregator=None, rounds=5, names=SITES, **asked):
        sites = sites or Sites()
        (tmp_path / "asked.json").write_text(
            json.dumps({"asked": request(rounds=rounds, **asked).__dict__, "told": str(tmp_path / "told.json")})
        )
        kind = guard_controller(FedAvg, str(tmp_path / "asked.json"))
        model = {"numpy_key": np.zeros((65, 10), np.float32)}
        one = kind(num_clients=6, num_rounds=rounds, model=model, aggregator=aggregator, save_filename="")
        one.engine = SimpleNamespace(get_clients=lambda: [SimpleNamespace(name=name) for name in names])
        one.fl_ctx = SimpleNamespace(
            get_job_id=lambda *_: "job", set_prop=lambda *_, **__: None, get_prop=lambda *_, **__: None
        )
        one.abort_signal = SimpleNamespace(triggered=False)
        for silent in ("event", "fire_event_with_data", "info", "warning", "error", "debug", "system_panic"):
            monkeypatch.setattr(kind, silent, lambda *_, **__: None)
        monkeypatch.setattr(FedAvg, "panic", lambda *_: None)
        monkeypatch.setattr(FedAvg, "send_model", lambda self, **named: sites.send(self, **named))
        monkeypatch.setattr(kind, "get_num_standing_tasks", lambda self: 0)
        one.run()
        with np.load(tmp_path / "told.npz") as arrays:
            last = arrays.get("last/numpy_key")
        return json.loads((tmp_path / "told.json").read_text()), last

    return start


def near(model, other):
    """To 1e-6 of the largest weight."""
    assert np.abs(model - other).max() <= 1e-6 * np.abs(other).max()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("attack", "defense", "malicious"),
    [
        (None, None, None),
        ("ipm(tau=5)", None, ["site-6"]),
        ("ipm(tau=5)", None, ["site-1"]),
        ("ipm(tau=5)", "median", ["site-1"]),
        ("alie", "nnm >> trimmed_mean", ["site-2"]),
    ],
)
def test_a_job_trains_as_the_guard_does(run, full, attack, defense, malicious):
    told, last = run(Sites(full), attack=attack, defense=defense, malicious=malicious)
    models = own(attack, defense, malicious)
    near(last, models[-1])
    assert told["rounds"] == 5 and told["updates"] == 30 and told["weights"] == "NUM_STEPS_CURRENT_ROUND"
    assert told["params_type"] == ("FULL" if full else "DIFF") and told["panic"] is None
    # The last model is measured as well, and the first is not
    assert [number for number, _ in told["curve"]] == [1, 2, 3, 4, 5]
    expected = [CLIENT.accuracy(model, *TEST) for model in models]
    assert [found["accuracy"] for _, found in told["curve"]] == pytest.approx(expected, abs=2e-3)


def test_a_jobs_own_aggregator_gets_the_attacked_results(run):
    for attack, malicious in ((None, None), ("ipm(tau=5)", ["site-1"])):
        rule = FedGuardAggregator(defense="median", f=1)
        rule.fl_ctx = None
        told, last = run(Sites(full=False), aggregator=rule, attack=attack, malicious=malicious)
        near(last, own(attack, "median", malicious)[-1])
        assert rule.dropped == 0 and told["aggregator"] == "FedGuardAggregator"


def test_a_rule_for_good_drops_what_does_not_fit_and_skips_a_round_of_too_few():
    def result(name, value, kind=ParamsType.DIFF):
        return FLModel(params={"w": np.full(2, value, np.float32)}, params_type=kind, meta={"client_name": name})

    rule = FedGuardAggregator(defense="median", f=1)
    rule.warning = lambda _: None
    for name, value in (("site-1", 1.0), ("site-2", 2.0), ("site-10", 90.0)):
        rule.accept_model(result(name, value))
    rule.accept_model(
        FLModel(params={"v": np.zeros(2, np.float32)}, params_type=ParamsType.DIFF, meta={"client_name": "site-3"})
    )
    np.testing.assert_allclose(rule.aggregate_model().params["w"], 2.0)
    assert rule.dropped == 1
    rule.reset_stats()
    rule.accept_model(result("site-1", 5.0))
    few = FedGuardAggregator(defense="median", f=2)
    few.warning = rule.warning
    for name in SITES[:3]:  # the median needs more than 2 f
        few.accept_model(result(name, 5.0))
    np.testing.assert_allclose(few.aggregate_model().params["w"], 0.0)
    assert len(few.skipped) == 1
    with pytest.raises(FedGuardError, match="expected the server's model, from which updates are counted"):
        full = FedGuardAggregator(defense="median", f=0)
        full.accept_model(result("site-1", 5.0, ParamsType.FULL))
        full.aggregate_model()


def test_a_site_that_falls_silent_is_told_and_the_others_go_on(run):
    told, last = run(Sites(silent={"site-3": 3}))
    near(last, own(dies=(2, 3))[-1])
    assert told["gone"] == {"2": 3} and told["lost"] == 3 and told["updates"] == 2 * 6 + 3 * 5


def test_malicious_sites_report_no_accuracy(run, monkeypatch):
    class Boasts(Sites):
        def result(self, name, model):
            found = super().result(name, model)
            if name == "site-1":
                found.metrics = {"accuracy": 1.0}
            return found

    told, _ = run(Boasts(), attack="ipm(tau=5)", malicious=["site-1"], rounds=1)
    honest, _ = run(Sites(), attack="ipm(tau=5)", malicious=["site-1"], rounds=1)
    assert told["curve"] == honest["curve"]


def test_what_cannot_be_aggregated_ends_the_job_with_one_line(run):
    told, last = run(Sites(wrong="site-4"))
    assert told["reason"]["reason"].startswith("the reply of site site-4: expected the entries numpy_key")
    assert not told["reason"]["refused"] and told["panic"] and last is None
    told, _ = run(Sites(claims=False), defense="weighted_mean")
    assert "expected NUM_STEPS_CURRENT_ROUND in its meta" in told["reason"]["reason"]
    told, _ = run(names=SITES[:3], malicious=["site-5"])
    assert "malicious: expected some of site-1, site-2, site-3; got site-5" in told["reason"]["reason"]


def test_only_the_controller_of_a_copy_is_another_one(tmp_path):
    job = NVFlareJob.read(JOB, {"num_rounds": 2})
    before = job.digest()
    made = job.copy(tmp_path, tmp_path / "asked.json")
    assert NVFlareJob.read(JOB).digest() == before and job.controller == f"{WORKFLOWS}.fedavg.FedAvg"
    ours, theirs = (json.loads((one / "app" / "config" / "config_fed_server.json").read_text()) for one in (made, JOB))
    assert ours["workflows"] == [
        {
            "id": "controller",
            "path": "fedguard_place.Controller",
            "args": {**theirs["workflows"][0]["args"], "num_rounds": 2},
        }
    ]
    assert {k: v for k, v in ours.items() if k != "workflows"} == {k: v for k, v in theirs.items() if k != "workflows"}
    new = {path.name for path in made.rglob("*") if path.is_file()} - {path.name for path in JOB.rglob("*")}
    assert new == {"fedguard_place.py"}
    (made / "app" / "custom" / "client.py").write_text("")
    assert NVFlareJob.read(JOB).digest() == before


def at(path):
    return lambda told: told["workflows"][0].update(path=path)


def add(path):
    return lambda told: told["components"].append({"id": "one", "path": path, "args": {}})


@pytest.mark.parametrize(
    ("server", "site", "said"),
    [
        (
            at(f"{WORKFLOWS}.cyclic_ctl.CyclicController"),
            None,
            "CyclicController: sites pass the model on .* no server aggregates",
        ),
        (
            at("nvflare.app_common.ccwf.swarm_server_ctl.SwarmServerController"),
            None,
            "sites aggregate among themselves",
        ),
        (at("nvflare.app_common.ccwf.CyclicServerController"), None, "CyclicServerController: sites pass the model on"),
        (at(f"{WORKFLOWS}.splitnn_workflow.SplitNNController"), None, "activations and gradients"),
        (at(f"{WORKFLOWS}.scaffold.Scaffold"), None, "Scaffold: its control variates travel beside"),
        (at(f"{WORKFLOWS}.scatter_and_gather.ScatterAndGather"), None, "one by one. Export the job from a FedAvg"),
        (at(f"{WORKFLOWS}.lr.fedavg.FedAvgLR"), None, "gradients and Hessians"),
        (
            at("nvflare.app_opt.xgboost.histogram_based_v2.fed_controller.XGBFedController"),
            None,
            "trees are no vectors",
        ),
        (at("nvflare.app_common.psi.psi_controller.PSIController"), None, "sites intersect their identifiers"),
        (at(f"{WORKFLOWS}.statistics_controller.StatisticsController"), None, "sites send statistics"),
        (at(f"{WORKFLOWS}.model_controller.ModelController"), None, "have a place in FedAvg and its subclasses alone"),
        (None, add("nvflare.app_opt.he.model_encryptor.HEModelEncryptor"), "HEModelEncryptor: updates are encrypted"),
        (lambda told: told["workflows"].append(told["workflows"][0]), None, "expected one workflow .* got 2"),
        (
            lambda told: told["workflows"][0]["args"].update(enable_tensor_disk_offload=True),
            None,
            "all of a round at once",
        ),
    ],
)
def test_jobs_without_a_place_are_refused_with_the_reason(tmp_path, server, site, said):
    folder = changed(tmp_path, server, site)
    with pytest.raises(NotAllowed, match=said) as raised:
        rehearse(request(folder))
    assert str(raised.value).startswith(str(folder)) and "\n" not in str(raised.value)


def test_evaluation_across_sites_may_stand_beside(tmp_path):
    after = {"id": "cse", "path": f"{WORKFLOWS}.cross_site_model_eval.CrossSiteModelEval", "args": {}}
    folder = changed(tmp_path, lambda told: told["workflows"].append(after))
    assert read(request(folder)).number == 0


def write(name, text):
    return lambda folder: (folder / name).write_bytes(text)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (shutil.rmtree, "expected meta.json of an NVFlare job; there is none. Name the folder"),
        (write("meta.json", b""), "meta"),
        (write("meta.json", b"\xff\xfe\x00"), "meta: cannot be read"),
        (write("meta.json", b'{"deploy_map": ['), "meta: cannot be read"),
        (write("meta.json", b"[1, 2]"), "expected a mapping that is not empty; got .1, 2."),
        (write("meta.json", b'{"deploy_map": {"app": ["site-1"]}}'), "expected one app for the server; got none"),
        (write("meta.json", b'{"deploy_map": 5}'), "deploy_map: expected a mapping that is not empty; got 5"),
        (write("app/config/config_fed_server.json", b"{}"), "workflows: expected a list that is not empty"),
        (write("app/config/config_fed_server.json", b'{"workflows": [5]}'), "expected the path of a class; got 5"),
        (
            write("app/config/config_fed_server.json", b'{"workflows": [{"path": "nowhere.At"}]}'),
            "nowhere.At cannot be imported",
        ),
        (write("app/config/config_fed_client.json", b'{"executors": {}}'), "executors: expected a list"),
    ],
)
def test_a_damaged_folder_is_one_clear_line(tmp_path, spoil, said):
    folder = changed(tmp_path)
    spoil(folder)
    with pytest.raises(ConfigError, match=said) as raised:
        rehearse(request(folder))
    assert "\n" not in str(raised.value) and str(folder) in str(raised.value)


def test_sites_are_those_of_the_job(tmp_path):
    assert NVFlareJob.read(JOB).names(3) == ("site-1", "site-2", "site-3")
    with pytest.raises(ConfigError, match="expected some of site-1, .*, site-6; got site-7"):
        rehearse(request(malicious=["site-7"]))
    folder = changed(tmp_path)
    (folder / "meta.json").write_text(json.dumps({"deploy_map": {"app": ["server", "north", "south"]}}))
    assert NVFlareJob.read(folder).names(2) == ("north", "south")
    with pytest.raises(ConfigError, match="app.sites: expected the 2 of the job's deploy_map; got 6"):
        rehearse(request(folder))
