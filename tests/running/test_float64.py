"""Trainings in double precision, from the word of a suite to the stored model: they equal plain loops of float64 to 1e-12."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fedguard as fg
from fedguard import rows
from fedguard.bench.audits.contribution import contribution
from fedguard.bench.audits.training import training_checks
from fedguard.bench.running.code import data_digest
from fedguard.bench.running.rehearsal import why_not
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.errors import ConfigError
from fedguard.kernels import combine_rows
from fedguard.registry import load_registry
from fedguard.tasks.compute import computing_in
from tests.architectures.test_training import twin_of

SETTINGS: dict[str, Any] = {
    "task": {"data": "wine", "model": "mlp(hidden=(5,))", "partition": "dirichlet(alpha=0.5)"},
    "clients": {"total": 6, "per_round": 0.7},
    "training": {"rounds": 4, "lr": 0.3, "batch_size": 7, "momentum": 0.6, "worker_momentum": 0.5, "server_momentum": 0.3},
}  # fmt: skip


def settings(dtype: str | None = "float64", **changes: Any) -> dict[str, Any]:
    found = {**SETTINGS, **changes}
    for section in ("task", "clients", "training"):
        found[section] = {**SETTINGS[section], **changes.get(section, {})}
    return found if dtype is None else {**found, "training": {**found["training"], "dtype": dtype}}


def cell_of(dtype: str | None = "float64", **changes: Any) -> PlannedCell:
    return build_cell(CellConfig.model_validate(settings(dtype, **changes)), load_registry())


def stored(suite: dict[str, Any], store: Any) -> np.ndarray:
    """The final model of a suite of one cell and one seed."""
    run = fg.run({**suite, "name": "double", "seeds": 1}, store=store)
    (record,) = run.records.values()
    assert record["status"] == "ok", record["reason"]
    return np.load(store / "double" / "artifacts" / f"{record['cell']}-seed-000.npy")


def loop(cell: PlannedCell) -> torch.Tensor:
    """The final model of the plain loop in float64, on a task of float64."""
    with computing_in("float64"):
        task = Workbench().task(cell, 0)
        return twin_of(set_up(cell, 0, task), task)[-1]


@pytest.mark.parametrize("model", ["softmax", "mlp(hidden=(5,))"])
def test_a_suite_in_float64_is_the_plain_loop_to_the_last_digits(model, tmp_path):
    suite = settings(task={"model": model})
    found = stored(suite, tmp_path / "double")
    theirs = loop(cell_of(task={"model": model}))
    assert found.dtype == np.float64 and np.abs(found - theirs.numpy()).max() < 1e-12
    with computing_in("float64"):
        task = Workbench().task(cell_of(task={"model": model}), 0)  # the loop has moved the other one's network
        logits, y = task.logits(theirs, task.dataset.test.x), task.dataset.test.y
        evaluation = task.evaluate(theirs)
    loss = float((logits.logsumexp(1) - logits.gather(1, y[:, None])[:, 0]).mean())
    assert abs(evaluation.loss - loss) < 1e-12
    single = stored(settings(None, task={"model": model}), tmp_path / "single")
    assert single.dtype == np.float32 and 1e-9 < np.abs(single - theirs.numpy()).max() < 1e-4


def test_it_has_the_examples_and_the_first_model_of_float32():
    """So the two differ by rounding alone, and the numbers are compared, not the draws."""
    one, other = (Workbench().task(cell_of(dtype), 0) for dtype in ("float32", "float64"))
    assert other.dataset.train.x.dtype == other.network.flat.dtype == torch.float64
    for client in range(6):
        assert torch.equal(one.examples(client).x.double(), other.examples(client).x)
    stream = set_up(cell_of(), 0, other).rng.child("model")
    start = one.initial_model(stream)
    with computing_in("float64"):
        assert torch.equal(other.initial_model(stream), start.double()) and start.dtype == torch.float32


def test_only_a_suite_that_asks_for_it_has_another_identity():
    assert cell_of(None).id == cell_of("float32").id != cell_of("float64").id
    assert "dtype" not in cell_of().canonical["training"] or cell_of().canonical["training"]["dtype"] == "float64"
    assert "dtype" not in cell_of("float32").canonical["training"]
    again = build_cell(CellConfig.model_validate(cell_of("float64").canonical), load_registry())
    assert again.id == cell_of("float64").id and again.training.dtype == "float64"


# No place computes in float32.


class Float32Seen(TorchDispatchMode):
    """Lists where a tensor of float32 is made or read while float64 is computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.where: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        # First models are drawn in float32 on purpose
        if torch.get_default_dtype() == torch.float64:
            for one in tree_leaves((args, kwargs, found)):
                if isinstance(one, torch.Tensor) and one.dtype == torch.float32:
                    lines = [at for at in traceback.extract_stack()[:-1] if "/torch/" not in at.filename]
                    self.where.append(f"{func} in {lines[-1].filename}:{lines[-1].lineno}")
                    break
        return found


def trained(**changes: Any) -> Float32Seen:
    cell = cell_of(**changes)
    assert not cell.verdict.reasons, cell.verdict.reasons
    bench = Workbench()
    assert why_not(cell, 0, bench) is None
    data_digest(cell.data)  # the data as they are stored, which is float32
    with Float32Seen() as seen:
        record, model = run_trial(cell, 0, {}, bench)
    assert record["status"] == "ok" and model.dtype == torch.float64
    return seen


PLAIN = {"training": {"rounds": 2, "momentum": 0.0, "worker_momentum": 0.0, "server_momentum": 0.0}, "clients": {"per_round": 1.0}}  # fmt: skip
NETWORK = {"network": {}, **PLAIN}
PLACES: dict[str, dict[str, Any]] = {
    "momenta": {},
    "softmax": {"task": {"model": "softmax"}},
    **{
        name: {**NETWORK, "architecture": name}
        for name in ("parameter_server", "google", "mapreduce", "fate", "fedasync", "fedbuff", "basgd", "all_reduce", "btard")
    },
    **{name: {**NETWORK, "architecture": name} for name in ("d_psgd", "sgp", "dsgt", "ako")},
    **{
        name: {**PLAIN, "training": {**PLAIN["training"], "algorithm": name, "local_steps": 3}}
        for name in ("scaffold", "feddyn", "fedprox", "fedper")
    },
    "masks": {**PLAIN, "protocol": {"secure_aggregation": "full"}},
    "groups": {**PLAIN, "protocol": {"secure_aggregation": {"groups": 2}}},
    "neighborhoods under masks": {**NETWORK, "architecture": {"name": "d_psgd", "masks": 20}},
    "noise of records": {
        **PLAIN,
        "protocol": {
            "privacy": {"name": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3, "sample_rate": 0.3}
        },
    },
    "noise of clients": {
        **PLAIN,
        "protocol": {"privacy": {"name": "client", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-2}},
    },
    "an attack that searches": {**PLAIN, "clients": {"per_round": 1.0, "malicious": 1}, "attack": "opt_alie", "defense": "krum"},
    "root data": {**PLAIN, "server": {"root_data": 20}, "defense": "fltrust"},
    "a rule by coordinates": {**PLAIN, "defense": "sign >> nnm >> trimmed_mean"},
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_no_place_computes_in_float32(place):
    assert trained(**PLACES[place]).where == []


def test_one_place_that_computes_in_float32_is_noticed(monkeypatch, tmp_path):
    """Planted: the mean of a round is rounded to float32 without a word, and everything else is float64."""
    monkeypatch.setattr(rows, "combine_rows", lambda *given: combine_rows(*given).float().double())
    assert any(f"{__file__}" in one for one in trained().where)
    found = stored(settings(), tmp_path)
    assert np.abs(found - loop(cell_of()).numpy()).max() > 1e-10


def test_updates_in_a_file_are_float64_too(monkeypatch, tmp_path):
    """A worker with little memory keeps them there."""
    monkeypatch.setattr("fedguard.bench.running.workbench.within", lambda setup, memory, held: (64 << 20, 100))
    cell, bench = cell_of(), Workbench(memory=1 << 30)
    _, model = run_trial(cell, 0, {}, bench)
    assert float((model - loop(cell)).abs().max()) < 1e-12


# What cannot be held is refused.


def test_actors_see_float32_and_are_refused():
    reasons = cell_of(
        task={"data": "cartpole", "model": "towers", "partition": "iid"},
        training={"algorithm": "actor_critic", "momentum": 0.0, "server_momentum": 0.0, "worker_momentum": 0.0},
    ).verdict.reasons
    assert any("training.dtype: float64 is for tasks with examples" in one for one in reasons)


class Constant(torch.nn.Module):
    """A network with a constant of its own in float32, which no call of ``double`` reaches."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.last = torch.nn.Linear(inputs, classes)
        self.scale = [torch.full((classes, classes), 0.5)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) @ self.scale[0]


class Rounded(Constant):
    """A network that rounds its logits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x).float()


def constant(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    return Constant(shape[0], classes)


def rounded(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    return Rounded(shape[0], classes)


@pytest.mark.parametrize(("name", "why"), [("constant", "fails on inputs"), ("rounded", "expected logits of float64")])
def test_a_network_that_computes_in_float32_is_refused_in_one_line(name, why):
    target = {"task": {"model": {"name": "module", "target": f"{__name__}:{name}"}}}
    assert why_not(cell_of("float32", **target), 0, Workbench()) is None
    found = why_not(cell_of(**target), 0, Workbench())
    assert found is not None and why in found and "\n" not in found


def test_other_types_are_refused_with_the_place():
    with pytest.raises(ConfigError, match=r"training\.dtype: expected 'float32' or 'float64'"):
        fg.run(settings("float16"))


# Who else trains or looks at cells.


def test_contributions_add_up_in_float64_too():
    cell = cell_of(**PLAIN)
    found = contribution(cell, measure="loss", permutations=3)
    assert sum(found.shares.values()) == pytest.approx(found.gain, abs=1e-9)


def test_an_audit_of_a_cell_in_float64_is_that_of_float32():
    noise = {"name": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3, "sample_rate": 0.3}
    checks = [
        [(one.name, one.passed) for one in training_checks(cell_of(dtype, **PLAIN, protocol={"privacy": noise}), 0)]
        for dtype in ("float32", "float64")
    ]
    assert checks[0] == checks[1] and all(passed for _, passed in checks[0])
