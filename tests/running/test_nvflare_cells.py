"""Cells of an NVFlare job, as far as they need no NVFlare: what they are, what is refused, what is recorded, and the command."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from fedguard import api
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.running import apps
from fedguard.bench.running.apps import run_app
from fedguard.bench.running.code import code_of
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.errors import ConfigError
from tests.forked import fedguard
from tests.root import ROOT

JOB = ROOT / "tests" / "nvflare" / "job"
MATRIX = {"attack": ["none", "ipm(tau=5)"], "defense": ["own", "median"]}
#: What a trial of a job comes to.
FOUND = {
    **{
        "metric": "accuracy",
        "where": "the honest sites",
        "round": [1, 2],
        "accuracy": [0.5, 0.7],
        "loss": [None, None],
    },
    **{"malicious": [0], "rounds": 2, "updates": 11, "hostile_share": 0.2, "outvoted": 0, "dropped": 0, "lost": 1},
    **{"gone": {"2": 2}, "abandoned": [], "bytes": 400, "seconds": 60.0, "cpu_seconds": 20.0, "memory": 1000},
    "app": {
        **{"framework": "nvflare", "version": "2.9.0", "job": "ab" * 32, "controller": "m.FedAvg", "place": "server"},
        **{"params_type": "DIFF", "weights": "equal", "sites": [f"site-{number}" for number in range(1, 7)]},
    },
}


def cells(app=None, **more):
    told = {"nvflare": str(JOB), "sites": 6, "malicious": ["site-1"]} | (app or {})
    plan = api.lay_out({"app": told, "matrix": MATRIX, **more})[1]
    return {(swept["attack"], swept["defense"]): cell for swept, cell in plan.positions}


def test_each_cell_is_built_again_from_what_its_record_holds():
    found = cells()
    for cell in found.values():
        again = build_cell(CellConfig.model_validate(json.loads(json.dumps(cell.canonical))), cell.known)
        assert (again.id, again.label, again.own) == (cell.id, cell.label, cell.own)
    assert len({cell.id for cell in found.values()}) == 4
    assert found["none", "own"].config.clients.total == 6 and found["ipm(tau=5)", "own"].malicious == 1
    assert found["none", "own"].canonical["architecture"] == "nvflare"


def test_who_lies_and_what_the_controller_is_given_are_part_of_the_cell():
    one = cells()["ipm(tau=5)", "median"].id
    others = [{"malicious": ["site-2"]}, {"set": {"num_rounds": 2}}, {"metric": "auc"}]
    assert len({one, *(cells(app)["ipm(tau=5)", "median"].id for app in others)}) == 4
    assert cells({"sites": None}, clients={"total": 6})["ipm(tau=5)", "median"].id == one


@pytest.mark.parametrize(
    ("app", "more", "said"),
    [
        ({"folder": "app"}, {}, "expected app.folder, of a Flower app, or app.nvflare, of an NVFlare job; got both"),
        ({"engine": "deployment"}, {}, "engine is of a Flower app; an NVFlare job runs in its simulator"),
        ({"training": {"model": "a:b", "data": "a:c", "lr": 1}}, {}, "training is of a Flower app"),
        (
            {"nvflare": None, "folder": "app"},
            {},
            "sites and malicious are of an NVFlare job; for a Flower app say clients",
        ),
        ({}, {"clients": {"total": 4}}, "app.sites: expected clients.total = 4; got 6"),
        ({}, {"clients": {"malicious": 2}}, "app.malicious: expected clients.malicious = 2 names of sites; got site-1"),
    ],
)
def test_what_is_no_setting_of_a_job(app, more, said):
    with pytest.raises(ConfigError, match=said):
        cells(app, **more)


def test_attacks_on_privacy_and_on_data_are_refused():
    found = cells(matrix={"attack": ["dlg", "label_flip", "ipm"], "defense": ["median"]})
    reasons = {attack: " ".join(cell.verdict.reasons) for (attack, _), cell in found.items()}
    assert "an app names neither" in reasons["dlg"] and "the app's own" in reasons["label_flip"] and not reasons["ipm"]


def test_a_record_holds_what_a_trial_came_to():
    class Runner:
        def run_app_trial(self, cell, seed, folder=None):
            asked = apps._build_request(cell, seed, folder)
            assert asked["framework"] == "nvflare" and asked["malicious"] == ("site-1",) and asked["f"] == 1
            return {"status": "ok", "found": FOUND, "log": ""}

    record, _ = run_app(cells()["ipm(tau=5)", "median"], 0, {}, Runner())
    assert from_text(to_text(record))["result"]["app"] == {
        **FOUND["app"],
        **{"metric": "accuracy", "measured_by": "the honest sites", "malicious": [0]},
        "lost": [{"node": 2, "round": 2, "how": None}],
    }
    assert record["threat_card"]["in_words"].startswith("1 of 6 sites of the NVFlare job job collude")
    assert record["threat_card"]["architecture"] == "nvflare"
    (lost,) = [flag["said"] for flag in record["flags"] if flag["flag"] == "lost_nodes"]
    assert "1 of 6 nodes stopped answering: site-3 from round 2 on" in lost


def test_a_trial_runs_again_when_any_file_of_the_job_has_changed(tmp_path):
    shutil.copytree(JOB, tmp_path / "job")
    cell = cells({"nvflare": str(tmp_path / "job")})["none", "own"]
    before = code_of(cell)
    for name in ("meta.json", "app/config/config_fed_client.json", "app/custom/client.py"):
        path = tmp_path / "job" / name
        path.write_text(path.read_text() + " ")
        assert code_of(cell)["app"] != before["app"]
        before = code_of(cell)


def test_without_nvflare_or_with_another_version_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(apps, "version", lambda name: "2.8.1")
    assert apps.without_framework("nvflare") == "app: expected NVFlare 2.9; got 2.8.1. pip install 'fedguard[nvflare]'"
    monkeypatch.setattr(apps, "version", lambda name: "2.9.3")
    assert apps.without_framework("nvflare") is None


def test_the_command_writes_a_suite(tmp_path):
    arguments = (
        "nvflare",
        "check",
        str(JOB),
        "-a",
        "alie",
        "-d",
        "median",
        "--malicious",
        "site-2",
        "--to",
        "mine.yaml",
    )
    done = fedguard(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asked = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert asked["app"]["nvflare"] == str(JOB) and asked["app"]["sites"] == 6
    assert asked["app"]["malicious"] == ["site-2"] and asked["clients"] == {"total": 6, "malicious": 1}
    assert asked["matrix"] == {"attack": ["none", "alie"], "defense": ["own", "median"]}


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (None, "expected an NVFlare job's meta.json; No such file"),
        ('{"deploy_map": {"app": ["@ALL"]}}', "expected deploy_map with the names of sites, or min_clients"),
        ("[", "expected deploy_map with the names of sites, or min_clients"),
    ],
)
def test_a_folder_that_is_no_job_is_one_line(tmp_path, meta, said):
    if meta is not None:
        (tmp_path / "meta.json").write_text(meta)
    done = fedguard("nvflare", "check", ".", cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
