"""Running statistics in whole trainings: one trajectory over the fates, the plain loop of FedAvg on state dicts, refusals."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedguard.architectures.statistics_checks import _why_not_kept
from fedguard.architectures.wire import drop_not_finite
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Fate, ReceivedRound, SentRound
from fedguard.errors import ConfigError, PreconditionError
from fedguard.registry import load_registry
from fedguard.statistics import FATES
from fedguard.tasks.cohort import schedule
from fedguard.tasks.statistics import ConstantNorm, join_single

BASE = {
    "task": {"data": "digits", "model": {"name": "module", "target": "tests.architectures.test_running_statistics:small"},
             "partition": "dirichlet(alpha=0.5)", "subset": {"train": 300, "test": 100}},
    "clients": {"total": 4},
    "training": {"rounds": 2, "lr": 0.1, "local_epochs": 2, "batch_size": 16},
}  # fmt: skip
BENCH = Workbench()


def small(shape, classes):
    """A network of the user's own with batch normalization."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, classes),
    )  # fmt: skip


def cell(**changes):
    merged = {key: {**BASE.get(key, {}), **value} if isinstance(value, dict) and key in BASE else value
              for key, value in {**{key: {} for key in BASE}, **changes}.items()}  # fmt: skip
    return build_cell(CellConfig.model_validate(merged), load_registry())


def reports(fate, **changes):
    changes["training"] = {**changes.get("training", {}), "statistics": fate}
    made = cell(**changes)
    assert not made.verdict.reasons, made.verdict.reasons
    setup = set_up(made, 0, BENCH.task(made, 0))
    return setup, list(made.architecture.run(setup))


def refusal(**changes) -> str:
    made = cell(**changes)
    assert not made.verdict.reasons, made.verdict.reasons
    with pytest.raises(PreconditionError) as found:
        set_up(made, 0, BENCH.task(made, 0))
    return str(found.value)


MOVING = [name for name in FATES if name != "frozen"]


@pytest.fixture(scope="module")
def trained():
    return {fate: reports(fate) for fate in FATES}


def test_all_fates_have_the_same_parameters_as_long_as_layers_normalize_by_the_batch(trained):
    """To the last bit: training never reads running statistics."""
    runs = [[report.model for report in trained[fate][1]] for fate in MOVING]
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(run, runs[0], strict=True))
    assert not torch.equal(trained["frozen"][1][-1].model, runs[0][-1])


def test_the_fates_differ_in_what_the_model_is_evaluated_with(trained):
    found = {fate: trained[fate][1][-1].statistics for fate in FATES}
    assert found["hidden"] is None and found["frozen"] is None
    sent = [found[fate] for fate in ("weighted", "average", "pooled", "recomputed")]
    assert all(row.shape == (32,) and (row[4:8] > 0).all() for row in sent)
    assert not any(torch.allclose(one, other) for k, one in enumerate(sent) for other in sent[:k])


def state_of(module):
    return {name: one.clone() for name, one in module.state_dict().items() if "num_batches" not in name}


def test_weighted_is_fedavg_on_state_dicts(trained):
    """The loop of any tutorial, with all floating entries averaged by numbers of examples, to 1e-6."""
    setup, found = reports("weighted", defense="weighted_mean")
    task = setup.task
    module, model = copy.deepcopy(task.module).train(), task.initial_model(setup.rng.child("model"))
    nn.utils.vector_to_parameters(model, module.parameters())
    for layer in (module[1], module[6]):
        layer.reset_running_stats()
    for number, report in enumerate(found, 1):
        before, sums = state_of(module), {}
        for client, part in enumerate(task.parts):
            module.load_state_dict(before, strict=False)
            sgd = torch.optim.SGD(module.parameters(), lr=0.1)
            draw = setup.rng.child("round", number).child("client", client).numpy()
            for batch in join_single(schedule(setup.local_plan, len(part), draw), "small"):
                rows = torch.from_numpy(batch[batch >= 0])
                sgd.zero_grad()
                nn.functional.cross_entropy(module(part.x[rows]), part.y[rows]).backward()
                sgd.step()
            share = len(part) / sum(task.sizes)
            for name, one in state_of(module).items():
                sums[name] = sums.get(name, 0) + share * one.double()
        module.load_state_dict({name: one.float() for name, one in sums.items()}, strict=False)
        parameters = nn.utils.parameters_to_vector(module.parameters())
        statistics = torch.cat([
            module[1].running_mean, module[1].running_var, module[6].running_mean, module[6].running_var
        ])  # fmt: skip
        assert torch.allclose(report.model, parameters, atol=1e-6)
        assert torch.allclose(report.statistics, statistics, atol=1e-6)
    with torch.no_grad():
        right = (module.eval()(task.dataset.test.x).argmax(1) == task.dataset.test.y).double().mean()
    assert found[-1].evaluation.accuracy == pytest.approx(float(right), abs=1e-9)


def test_recomputed_statistics_have_no_memory(trained):
    """They are those of the clients' examples under the last model, whatever came before."""
    setup, found = trained["recomputed"]
    task, rows = setup.task, torch.empty(4, 32)
    task.measure_statistics(found[-1].model, range(4), rows)
    shares = torch.tensor(task.sizes, dtype=torch.float64) / sum(task.sizes)
    assert torch.allclose(found[-1].statistics, (shares @ rows.double()).float(), atol=1e-6)


@pytest.mark.parametrize("fate", ["average", "weighted", "pooled"])
def test_statistics_that_are_not_finite_or_below_0_are_stopped_and_counted(fate):
    setup, _ = reports(fate)
    from fedguard.architectures.statistics import RunningStatistics

    running = RunningStatistics(setup)
    rows = {0: torch.rand(32) + 0.5, 1: torch.rand(32) + 0.5}
    rows[1][4:8] = -3.0  # variances
    sent = SentRound(1, torch.zeros(5), torch.zeros(2, 5), (0, 1), statistics=rows)
    samples = torch.ones(2, dtype=torch.float64)
    running.settle(ReceivedRound(sent.updates, ((0,), (1,)), samples, 0, (0, 1), sent), 1)
    assert running.floored == 4
    assert (running.for_evaluation(torch.zeros(setup.task.dim))[setup.task.statistics.variances] >= 0).all()
    rows[1][0] = float("nan")
    kept = drop_not_finite(sent)
    assert kept.senders == (0,) and kept.fates == {1: Fate.NOT_FINITE}


# ---- Identity.


def test_a_cell_s_identity_has_the_fate_only_if_it_is_not_the_usual_one():
    none, usual = cell(), cell(training={"statistics": "weighted"})
    assert none.id == usual.id and "statistics" not in none.canonical["training"]
    other = cell(training={"statistics": "average"})
    assert other.id != none.id and other.canonical["training"]["statistics"] == "average"
    assert cell(training={"statistics": {"fate": "average"}}).id == other.id
    again = build_cell(CellConfig.model_validate(other.canonical), load_registry())
    assert again.id == other.id and again.statistics.name == "average"


# ---- Refusals.


@pytest.mark.parametrize(
    ("changes", "why", "remedy"),
    [
        ({"task": {"model": "softmax"}, "training": {"statistics": "average"}}, "softmax has no layer", "Leave it out"),
        ({"architecture": "all_reduce"}, "all_reduce carries updates alone", "Use server"),
        ({"architecture": "d_psgd"}, "d_psgd carries updates alone", "Use server"),
        (
            {"protocol": {"privacy": {"name": "client", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3}},
             "training": {"statistics": "weighted"}},
            "without noise, and no epsilon would hold", "hidden or frozen",
        ),
        (
            {"protocol": {"privacy": {"name": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-4}},
             "training": {"statistics": "hidden"}},
            "couple the examples of a batch", "frozen, or use GroupNorm",
        ),
        ({"attack": "dlg", "observer": {"victims": 1}, "training": {"rounds": 1}}, "does not know the batch", "GroupNorm"),
        ({"training": {"batch_size": 1}}, "one has no variance", "Raise batch_size"),
        (
            {"clients": {"total": 20}, "task": {"partition": "iid", "subset": {"train": 20, "test": 20}}},
            "a client has 1", "lower clients.total",
        ),
    ],
)  # fmt: skip
def test_what_is_not_carried_is_refused_with_its_reason(changes, why, remedy):
    said = refusal(**changes)
    assert why in said and remedy in said, said


@pytest.mark.parametrize("name", [name for name in load_registry().names("architecture") if name != "server"])
def test_every_architecture_but_server_refuses_statistics_that_go_from_round_to_round(name):
    """Nodes do not settle what they hear, and nothing ages: each says so instead of leaving statistics where they are."""
    architecture = load_registry().build("architecture", name)
    for fate in ("weighted", "local"):
        (said,) = _why_not_kept(cell(training={"statistics": fate}), architecture)
        assert f"{name} carries updates alone. Use server, or set training.statistics: hidden or frozen." in said


@pytest.mark.parametrize("fate", ["hidden", "frozen"])
@pytest.mark.parametrize("changes", [
    {"architecture": "all_reduce"}, {"architecture": "d_psgd"},
    {"protocol": {"secure_aggregation": "full"}, "clients": {"total": 8}},
])  # fmt: skip
def test_fates_that_send_nothing_run_everywhere(fate, changes):
    _, found = reports(fate, **changes)
    assert found[-1].evaluation is not None and found[-1].statistics is None


def test_frozen_statistics_train_by_dp_sgd():
    """The remedy that the refusals of other fates name."""
    private = {"name": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-4}
    model = {"name": "resnet8", "norm": "batch"}
    setup, found = reports("frozen", protocol={"privacy": private}, task={"model": model})
    assert not torch.equal(found[-1].model, setup.task.initial_model(setup.rng.child("model")))


def test_constants_are_the_layer_in_evaluation_mode():
    layer = nn.BatchNorm2d(3)
    for number, values in enumerate((layer.running_mean, layer.running_var, layer.weight.data, layer.bias.data)):
        values.copy_(torch.linspace(0.5, 2.0 + number, 3))
    x = torch.randn(5, 3, 2, 4)
    assert torch.allclose(ConstantNorm(layer)(x), layer.eval()(x), atol=1e-6)
    plain = nn.BatchNorm2d(3, affine=False)
    assert not list(ConstantNorm(plain).parameters()) and torch.allclose(
        ConstantNorm(plain)(x), plain.eval()(x), atol=1e-6
    )


def test_an_actor_s_network_normalizes_nothing_over_batches():
    made = build_cell(
        CellConfig.model_validate({
            "task": {"data": "cartpole", "model": {"name": "module", "target": "tests.architectures.test_running_statistics:acting"}},
            "training": {"algorithm": "actor_critic", "rounds": 1, "lr": 0.1}, "architecture": "a2c",
        }), load_registry(),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="what an actor does must not depend on other observations"):
        Workbench().task(made, 0)


def acting(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


def test_a_trial_measures_a_backdoor_with_the_statistics_of_each_model():
    made = cell(attack="backdoor", clients={"total": 4, "malicious": 1}, training={"statistics": "pooled"})
    record, _ = run_trial(made, 0, {}, BENCH)
    assert record["status"] == "ok" and 0 <= record["result"]["attack_success_raw"] <= 1


# ---- Lies beside honest parameters, and rules on statistics.

LYING = {"clients": {"total": 6, "malicious": 1}, "threat": {"knowledge": ["own_data"]}}


def accuracy(fate, attack="statistics_lie", **changes):
    setup, found = reports(fate, **{**LYING, "attack": attack, **changes})
    return found[-1].evaluation.accuracy, found[-1], setup


def test_a_lie_leaves_the_parameters_as_they_are_and_ruins_a_mean_of_statistics():
    longer = {"training": {"rounds": 5, "local_epochs": 4}}
    honest, report, _ = accuracy("weighted", "none", **longer)
    told, lied, setup = accuracy("weighted", "statistics_lie(factor=10000.0)", **longer)
    assert torch.allclose(report.model, lied.model, atol=1e-3)  # rows come in another order; updates tell nothing
    variances = setup.task.statistics.variances
    assert (lied.statistics[variances] > 20 * report.statistics[variances]).all()
    assert torch.allclose(lied.statistics[~variances], report.statistics[~variances], atol=1e-3)
    assert told < 0.25 < 0.4 < honest


def test_a_lie_in_the_last_layer_alone_and_about_means():
    _, honest, setup = accuracy("weighted", "none")
    _, lied, _ = accuracy("weighted", "statistics_lie(what='mean', factor=100.0, layers='last')")
    layout = setup.task.statistics
    moved = honest.statistics != lied.statistics
    assert torch.equal(moved, (torch.arange(32) >= 8) & ~layout.variances)


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
@pytest.mark.parametrize("lie", ["factor=10000.0", "what='mean', factor=100.0"])
def test_a_rule_on_fresh_statistics_withstands_lies(rule, lie):
    fate = {"fate": "recomputed", "rule": rule}
    clean, honest, _ = accuracy(fate, "none", clients={"total": 6, "malicious": 1, "assumed_f": 1})
    told, lied, _ = accuracy(fate, f"statistics_lie({lie})")
    assert torch.allclose(honest.model, lied.model, atol=1e-3) and told >= clean - 0.1
    exposed, _, _ = accuracy("recomputed", f"statistics_lie({lie})")
    assert exposed < clean


def test_a_lie_that_is_not_finite_drops_the_liar_and_a_negative_variance_is_floored_and_counted():
    _, lied, _ = accuracy("weighted", "statistics_lie(factor=1e38)", training={"rounds": 1, "local_epochs": 1})
    assert lied.statistics.isfinite().all()
    _, below, _ = accuracy("weighted", "statistics_lie(factor=-3.0)")
    assert below.floored == 2 * 16 and (below.statistics >= 0)[4:8].all()


def test_a_lie_is_refused_where_nobody_sends_statistics():
    for changes in ({"task": {"model": "softmax"}}, {"training": {"statistics": "hidden"}}):
        assert "nobody sends any here" in refusal(**{**LYING, "attack": "statistics_lie", **changes})
    (reason,) = cell(**LYING, attack="statistics_lie", architecture="d_psgd").verdict.reasons
    assert "lies about its running statistics" in reason


def test_beside_a_robust_rule_the_usual_fate_is_fresh_and_trimmed():
    """And each cell is one with its fate spelled out, its controls as well."""
    robust, spelled = (
        cell(defense="krum"),
        cell(defense="krum", training={"statistics": {"fate": "recomputed", "rule": "trimmed_mean"}}),
    )
    assert str(robust.statistics) == "recomputed(rule=trimmed_mean)" and robust.id == spelled.id
    weighted = cell(defense="krum", training={"statistics": "weighted"})
    assert weighted.id != robust.id and weighted.statistics.rule is None
    mean = weighted.control(attacked=False, defended=False)
    assert mean.id == cell().id and str(mean.statistics) == "weighted"
    again = build_cell(CellConfig.model_validate(weighted.canonical), load_registry())
    assert again.id == weighted.id


def test_a_rule_on_statistics_is_one_by_coordinates_and_has_enough_rows():
    with pytest.raises(ConfigError, match="rule: expected a CoordinateRule; got krum"):
        cell(training={"statistics": {"fate": "weighted", "rule": "krum"}})
    said = refusal(
        clients={"total": 4, "assumed_f": 0.5}, training={"statistics": {"fate": "weighted", "rule": "trimmed_mean"}}
    )
    assert ("trimmed_mean" in said and "n > 2f" in said) or "n >= 2f + 1" in said
