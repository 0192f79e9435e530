"""Audits of whole suites: what a cell trains with is what is audited, and the command says what came of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from fedguard import api
from fedguard.bench.audits.cells import audit_suite, subjects
from fedguard.commands.audit import audit as command
from fedguard.privacy.audit import subjects as of_subjects
from fedguard.privacy.central import CentralDP
from fedguard.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from fedguard.rng import Rng
from fedguard.tasks.engines.private import PrivateEngine
from tests.root import ROOT

SUITE = {
    "name": "noisy",
    "seeds": [0],
    "clients": {"total": 20, "per_round": 0.5, "sampling": "poisson"},
    "training": {"rounds": 6, "batch_size": 20, "local_epochs": 1},
    "matrix": {
        "protocol.privacy": [
            "none",
            {"kind": "client", "noise_multiplier": 1.5},
            {"kind": "record", "sample_rate": 0.2, "levels": [{"noise_multiplier": 1.0}, {"epsilon": 2.0}]},
        ]
    },
}
SHARED = {
    "name": "shared",
    "seeds": [0],
    "clients": {"total": 10},
    "training": {"rounds": 4},
    "protocol": {
        "secure_aggregation": "full",
        "privacy": {"kind": "distributed", "mechanism": "discrete_gaussian", "noise_multiplier": 1.5},
    },
}


def plan(suite):
    return api.lay_out(suite)[1]


def test_each_kind_of_noise_in_a_suite_is_audited_once():
    found = audit_suite(plan({**SUITE, "matrix": {**SUITE["matrix"], "attack": ["none", "sign_flip"]}}), canaries=300)
    assert [one.audit.subject for one in found] == [
        "client-level noise at the server",
        "record-level DP-SGD, level 0",
        "record-level DP-SGD, level 1",
    ]
    for one in found:
        assert one.audit.verdict == "consistent", one.audit.words
        assert one.audit.bound.epsilon < one.audit.claimed


def test_claims_are_those_of_the_cells_accountant():
    cells = [cell for _, cell in plan(SUITE).positions]
    (client,) = subjects(cells[1], 0)
    noisy = client.mechanism
    assert noisy.noise_multiplier == 1.5
    assert client.claim == noisy.account_rounds(cells[1].clients, 6, 1e-5)
    first, second = subjects(cells[2], 0)
    assert second.claim.value < first.claim.value
    assert first.claim.unit == "record"


def test_shared_noise_of_a_suite():
    (found,) = audit_suite(plan(SHARED), canaries=200)
    assert found.audit.verdict == "consistent", found.audit.words
    assert found.audit.subject == "distributed noise, discrete_gaussian"


def test_data_and_models_with_parameters_are_audited():
    task = {"data": {"name": "digits"}, "model": {"name": "mlp", "hidden": [16]}}
    (found,) = audit_suite(
        plan({**SUITE, "task": task, "matrix": {"protocol.privacy": [{"kind": "client", "noise_multiplier": 1.5}]}}),
        canaries=100,
    )
    assert found.audit.verdict == "consistent", found.audit.words


@pytest.mark.slow
def test_an_example_with_privacy_is_audited():
    """All cells of one noise, whatever the attack, are audited as one."""
    laid_out = api.lay_out(ROOT / "examples" / "privacy_cost.yaml")[1]
    strong = tuple(
        (swept, cell)
        for swept, cell in laid_out.positions
        if getattr(cell.noise, "epsilon", None) == 100 and swept["defense"] == "mean"
    )
    (found,) = audit_suite(replace(laid_out, positions=strong), canaries=100)
    assert found.audit.verdict == "consistent", found.audit.words
    assert len(found.cells) > 1


# What is audited is what trains: a fault in the mechanism's own file is found through the suite.


def test_a_fault_in_the_servers_noise(monkeypatch):
    right = CentralDP.release

    def quiet(self, updates, state, rng):
        nothing, _ = right(self, updates[:0], state, rng)
        mean, after = right(self, updates, state, rng)
        return mean - nothing / 2, after

    monkeypatch.setattr(CentralDP, "release", quiet)
    found = audit_suite(plan(SUITE), canaries=300)
    assert [one.audit.verdict for one in found] == ["violated", "consistent", "consistent"]


def test_a_fault_in_the_noise_of_clients(monkeypatch):
    right = DiscreteGaussian.sample
    monkeypatch.setattr(DiscreteGaussian, "sample", lambda self, count, entropy: right(self, count, entropy) // 2)
    (found,) = audit_suite(plan(SHARED), canaries=200)
    assert found.audit.verdict == "violated"


def test_a_fault_in_private_training(monkeypatch):
    right = PrivateEngine.train

    def seeded(self, model, clients, schedules, plan, out, streams):
        """The noise starts anew with every round."""
        right(self, model, clients, schedules, plan, out, [Rng(1).child(client) for client in clients])

    monkeypatch.setattr(PrivateEngine, "train", seeded)
    found = audit_suite(plan(SUITE), canaries=300)
    assert [one.audit.verdict for one in found] == ["consistent", "violated", "violated"]


# The command.


def run(tmp_path, suite, *options):
    file = tmp_path / "suite.yaml"
    file.write_text(json.dumps(suite))
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(file), *options])


@pytest.mark.slow
def test_the_command_tells_both_bounds_and_the_verdict(tmp_path):
    done = run(tmp_path, SUITE, "--canaries", "200")
    assert done.exit_code == 0, done.output
    assert done.output.count("consistent") == 3
    assert "relation: add/remove" in done.output
    done = run(tmp_path, SUITE, "--canaries", "200", "--json")
    assert "1 of 2 kinds of noise: 400 canaries" in done.stderr and "DP-SGD in 20 of 20 clients" in done.stderr
    told = json.loads(done.stdout)
    assert [one["verdict"] for one in told] == ["consistent"] * 3
    assert told[0]["bound"]["method"] == "gdp_split"


def test_the_command_says_by_its_exit_code_what_came_of_it(tmp_path, monkeypatch):
    assert run(tmp_path, {**SUITE, "matrix": {}}).exit_code == 4
    assert run(tmp_path, SHARED, "--canaries", "50", "--method", "one_shot").exit_code == 4
    loud = of_subjects.release_distributed_noise

    def faulty(*args, **kwargs):
        honest = loud(*args, **kwargs)
        return replace(honest, release=lambda rows, rng: honest.release(rows, rng) + rows.clamp(max=1).sum(0).double())

    monkeypatch.setattr(of_subjects, "release_distributed_noise", faulty)
    done = run(tmp_path, SHARED, "--canaries", "200")
    assert done.exit_code == 3
    assert "violated" in done.output
