"""An architecture of somebody else's: a spec with parameters, clients that start from models of their own, in a suite."""

from __future__ import annotations

import json

import torch

from fedguard.api import lay_out
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.rng import Rng
from tests.pages import shown

PLUGIN = shown("add_architecture.md", "averaging.py")
SUITE = """
name: mixing
plugins: [averaging]
clients: {total: 4}
training: {rounds: 3, lr: 0.1, local_epochs: 1, batch_size: 16}
matrix:
  architecture: [server, averaging, averaging(mixing=0.5), {name: averaging, mixing: 0.25}]
  defense: [mean, krum]
"""


def laid_out(folder, suite=SUITE):
    (folder / "averaging.py").write_text(PLUGIN)
    (folder / "suite.yaml").write_text(suite)
    return lay_out(folder / "suite.yaml")[1]


def test_an_architecture_is_a_spec_and_the_server_keeps_its_identity(tmp_path):
    plan = laid_out(tmp_path)
    cells = {
        cell.architecture.spec().get("mixing", "server"): cell for cell in plan.cells if str(cell.pipeline) == "mean"
    }
    assert list(cells) == ["server", 1.0, 0.5, 0.25]
    assert len({cell.id for cell in plan.cells}) == 8
    assert cells["server"].canonical["architecture"] == "server"
    assert cells[0.5].canonical["architecture"] == {"name": "averaging", "mixing": 0.5}
    plain = laid_out(tmp_path, SUITE.split("matrix", maxsplit=1)[0]).cells[0]
    assert plain.id == cells["server"].id
    # What an architecture does not show, no rule is given.
    assert all(
        ("krum" in str(cell.pipeline)) <= bool(cell.verdict.reasons)
        for cell in plan.cells
        if cell.architecture.name != "server"
    )


def test_clients_that_start_from_their_own_models_learn_as_the_formula_says(tmp_path):
    cells = {
        cell.architecture.spec().get("mixing"): cell
        for cell in laid_out(tmp_path).cells
        if str(cell.pipeline) == "mean"
    }
    bench = Workbench()
    _, full = run_trial(cells[1.0], 0, {}, bench)
    record, half = run_trial(cells[0.5], 0, {}, bench)
    json.dumps(record)
    assert record["status"] == "ok" and record["result"]["final_accuracy"] > 0.5
    assert (full - half).norm() > 1e-4

    task, plan = bench.task(cells[0.5], 0), cells[0.5].plan
    models = [task.initial_model(Rng(0).child("model"))] * 4
    for round in (1, 2, 3):
        rng = Rng(0).child("round", round)
        moved = [x + task.local_updates(x, [i], plan, rng, torch.empty(1, len(x)))[0] for i, x in enumerate(models)]
        models = [0.5 * y + 0.5 * sum(moved) / 4 for y in moved]
    assert torch.allclose(half, sum(models) / 4, atol=1e-6)


def test_where_all_models_are_averaged_it_is_the_server(tmp_path):
    """FedAvg weighs all alike, so complete mixing after each round is one model and one server."""
    cells = {
        cell.architecture.spec().get("mixing", "server"): cell
        for cell in laid_out(tmp_path).cells
        if str(cell.pipeline) == "mean"
    }
    models = {name: run_trial(cells[name], 3, {})[1] for name in ("server", 1.0)}
    assert torch.allclose(models["server"], models[1.0], atol=1e-6)
