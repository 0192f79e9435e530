"""Running statistics name the mean of a client's inputs, where the server sees them; elsewhere the attack is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedguard.attacks.inference.analytic.batch_statistics import BatchStatistics
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Exposure, LocalPlan, Sight
from fedguard.errors import NotObservable, PreconditionError
from fedguard.inference import inference_view
from fedguard.registry import load_registry
from fedguard.visibility import derive_exposure
from tests.inference.scenes import digits, flat

BASE = {
    "task": {"data": "digits", "model": {"name": "module", "target": "tests.inference.test_batch_statistics:square"}},
    "clients": {"total": 4},
    "training": {"algorithm": "fedsgd", "rounds": 3, "lr": 0.1, "batch_size": 8},
    "observer": {"round": 2, "victims": 3},
    "attack": "batch_statistics",
}  # fmt: skip
GRANTED = Sight.EACH_UPDATE | Sight.STATISTICS | Sight.MODEL


def square(shape, classes, units=64, bias=True):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, units, bias=bias), nn.BatchNorm1d(units), nn.ReLU(), nn.Linear(units, classes)
    )


def narrow(shape, classes):
    return square(shape, classes, 32)


def cell(**changes):
    merged = {
        **BASE,
        **{key: {**BASE.get(key, {}), **value} if isinstance(value, dict) else value for key, value in changes.items()},
    }
    return build_cell(CellConfig.model_validate(merged), load_registry())


@pytest.mark.parametrize("bias", [True, False])
def test_the_mean_of_one_batch_follows_from_means_alone(bias):
    """A loop of torch's own: one forward pass in training mode moves the running mean."""
    torch.manual_seed(4)
    module, examples = square((1, 8, 8), 10, units=70, bias=bias), digits(5)
    with torch.no_grad():
        module[2].running_mean.uniform_(-3, 3)
    before = torch.cat([module[2].running_mean, module[2].running_var])
    model = flat(module)
    module.train()(examples.x)
    after = torch.cat([module[2].running_mean, module[2].running_var])
    view = inference_view(
        "the server", GRANTED, module, models=torch.stack([model, model]), updates=torch.zeros(1, 1, len(model)), shape=(1, 8, 8),
        classes=10, plan=LocalPlan(lr=0.1, steps=1), counts=(5,), statistics=torch.stack([before, after])[None],
    )  # fmt: skip
    found = BatchStatistics().infer(view)
    assert found.mean and (found.x[0] - examples.x.mean(0)).abs().max() < 1e-4
    hidden = view.restrict("the server", Sight.EACH_UPDATE | Sight.MODEL)
    with pytest.raises(NotObservable, match="each client's running statistics"):
        BatchStatistics().infer(hidden)


@pytest.mark.parametrize("batch", [2, 8, 32])
def test_a_trial_reads_the_mean_picture_at_100_db(batch):
    found = run_trial(cell(training={"batch_size": batch}), 0, {})[0]["result"]["inference"]
    assert len(found["targets"]) == 3 and found["given"]["sees"] == ["each_update", "model", "statistics"]
    assert all(one["images"] == 1 and min(one["psnr"]["values"]) >= 100 for one in found["targets"]), found["score"]


def test_the_weighted_mean_of_several_steps_is_near():
    """Four steps: the batches' means count 0.73 to 1, and the weights move by little."""
    training = {"algorithm": "fedavg", "local_epochs": 1, "batch_size": 8, "lr": 0.01}
    one = run_trial(cell(training=training, task={"subset": {"train": 128, "test": 50}}), 0, {})[0]["result"][
        "inference"
    ]
    assert 20 < one["score"]["psnr"] < 100 and one["score"]["gain"] > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"protocol": {"secure_aggregation": "full"}, "clients": {"total": 8}}, "secure_aggregation: full hides it"),
        ({"training": {"statistics": "hidden"}}, "nobody sends any in a round here"),
        ({"training": {"statistics": "recomputed"}}, "nobody sends any in a round here"),
        ({"architecture": "all_reduce", "training": {"statistics": "frozen"}}, "this architecture does not show it"),
    ],
)
def test_it_is_refused_where_the_server_sees_no_client_s_statistics(changes, why):
    reasons = " ".join(cell(**changes).verdict.reasons)
    assert why in reasons, reasons


@pytest.mark.parametrize("mode", load_registry().names("masking"))
def test_no_mode_of_masking_shows_a_client_s_statistics(mode):
    """They travel inside the masks; without masks a server sees them."""
    kind, server = load_registry().get("masking", mode), Exposure(Sight.EACH_UPDATE | Sight.MODEL, Sight.NOTHING)
    shown = Sight.STATISTICS in derive_exposure(server, kind, statistics=True).server
    assert shown == (not kind.masked) == (mode == "none")
    assert Sight.STATISTICS not in derive_exposure(server, kind).server


def test_it_is_refused_before_the_training_for_another_network():
    for target, why in (("narrow", "32 units for 64 inputs"), ("resnet8", "begins with")):
        model = (
            {"name": "resnet8", "norm": "batch"}
            if target == "resnet8"
            else {**BASE["task"]["model"], "target": f"{__name__}:{target}"}
        )
        with pytest.raises(PreconditionError, match=why):
            run_trial(cell(task={"model": model}), 0, {})


def test_attacks_that_compute_gradients_stay_refused():
    made, bench = cell(attack="inverting_gradients"), Workbench()
    with pytest.raises(PreconditionError, match="does not know the batch"):
        set_up(made, 0, bench.task(made, 0))
