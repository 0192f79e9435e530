"""`evaluation.statistics`: one training says what its accuracy would be with other fates, as trainings with these fates show."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedguard.bench.running import other_fates
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.errors import ConfigError, PreconditionError
from fedguard.registry import load_registry
from fedguard.tasks.statistics import momenta

BENCH = Workbench()
FATES = ["average", "pooled", "recomputed", "hidden", "local", "initial", {"fate": "weighted", "rule": "median"}]


def uneven(shape, classes):
    """Layers whose statistics move at different speeds."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12, momentum=0.3), nn.ReLU(),
        nn.Linear(12, 8), nn.BatchNorm1d(8, momentum=0.05), nn.ReLU(), nn.Linear(8, classes),
    )  # fmt: skip


def cell(fates=(), **changes):
    base = {
        "task": {"data": "digits", "model": {"name": "module", "target": "tests.running.test_other_fates:uneven"},
                 "partition": "dirichlet(alpha=0.5)", "subset": {"train": 300, "test": 200}},
        "clients": {"total": 5},
        "training": {"rounds": 3, "lr": 0.1, "local_epochs": 2, "batch_size": 16},
        "evaluation": {"statistics": list(fates)} if fates else {},
    }  # fmt: skip
    merged = {
        key: {**base.get(key, {}), **changes.get(key, {})} if key in base else changes[key]
        for key in {**base, **changes}
    }
    return build_cell(CellConfig.model_validate(merged), load_registry())


def statistics_of(made, fates):
    """The statistics of each fate after the last round, as `OtherFates` has them."""
    setup = set_up(made, 0, BENCH.task(made, 0))
    followed = other_fates.OtherFates(made, setup)
    for report in made.architecture.run(replace(setup, keep=followed.also(None))):
        model = report.model
    return {
        str(fate): followed._others[str(fate)].for_evaluation(model) for fate in fates if str(fate) in followed._others
    }


CHANGES = {
    "plain": {},
    "half of the clients in a round": {"clients": {"total": 6, "per_round": 3}},
    "a client that does not train": {"attack": "ipm(tau=0.5)", "clients": {"total": 6, "malicious": 2}},
    "a client that trains on false labels": {"attack": "label_flip", "clients": {"total": 6, "malicious": 1}},
    "steps": {"training": {"local_epochs": 1, "local_steps": 3}},
    "pooled": {"training": {"statistics": "pooled"}},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_statistics_are_those_of_a_training_with_the_fate(changes):
    """To rounding errors of float32, for layers with different momenta."""
    made = cell(FATES, **changes)
    found = statistics_of(made, made.compared_fates)
    assert set(found) == {"average", "pooled", "recomputed", "local", "initial", "weighted(rule=median)"}
    for fate in FATES:
        other = cell(**{**changes, "training": {**changes.get("training", {}), "statistics": fate}})
        setup = set_up(other, 0, BENCH.task(other, 0))
        last = list(other.architecture.run(setup))[-1].statistics
        if str(other.statistics) == "hidden":
            assert last is None
            continue
        here = found[str(other.statistics)]
        if last.dim() == 2:  # only honest clients are evaluated
            here, last = here[sorted(setup.honest)], last[sorted(setup.honest)]
        assert torch.allclose(here, last, rtol=1e-4, atol=1e-5), fate


def test_a_record_has_the_accuracies_that_trainings_with_these_fates_have():
    made = cell(FATES)
    record, model = run_trial(made, 0, {}, BENCH)
    compared = record["result"]["statistics"]["compared"]
    for fate in FATES:
        other = cell(training={"statistics": fate})
        alone, same = run_trial(other, 0, {}, BENCH)
        assert torch.equal(model, same)
        assert compared[str(other.statistics)] == pytest.approx(alone["result"]["final_accuracy"], abs=1e-12)
    plain, _ = run_trial(cell(), 0, {}, BENCH)
    assert plain["result"]["final_accuracy"] == record["result"]["final_accuracy"]
    assert "compared" not in plain["result"]["statistics"]


def test_momenta_are_of_each_coordinate():
    found = momenta(uneven((64,), 10))
    assert found.tolist() == pytest.approx([0.3] * 24 + [0.05] * 16)


def test_a_cell_s_identity_has_the_fates_only_if_there_are_any():
    assert "statistics" not in cell().canonical["evaluation"]
    assert cell(["average"]).id != cell().id
    assert cell([{"fate": "average"}]).id == cell(["average"]).id
    again = build_cell(CellConfig.model_validate(cell(["average"]).canonical), load_registry())
    assert again.id == cell(["average"]).id
    with pytest.raises(ConfigError, match="evaluation.statistics"):
        cell(["averaged"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"task": {"model": "softmax"}}, "softmax has no layer"),
        ({"training": {"statistics": "recomputed"}}, "got recomputed"),
        ({"training": {"statistics": "local"}}, "got local"),
        ({"training": {"algorithm": "feddyn"}}, "fedavg, fedsgd or fedprox"),
        ({"clients": {"total": 8}, "protocol": {"secure_aggregation": "full"}}, "nobody sees a client's statistics"),
        ({"attack": "statistics_lie", "clients": {"total": 5, "malicious": 1}}, "statistics_lie lies about statistics"),
        ({"protocol": {"dropout": {"rate": 0.2}}}, "Leave out local"),
    ],
)  # fmt: skip
def test_what_no_messages_tell_is_refused(changes, why):
    made = cell(["average", "local"], **changes)
    with pytest.raises(PreconditionError, match=why):
        set_up(made, 0, BENCH.task(made, 0))


def test_constants_in_training_are_another_training():
    made = cell(["frozen"])
    with pytest.raises(PreconditionError, match="frozen trains other parameters"):
        set_up(made, 0, BENCH.task(made, 0))
