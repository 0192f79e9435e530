"""Running statistics of a network: what counts as one, where clients start and write, and batches of one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedguard.contracts import Examples, LocalPlan, LocalStatistics, Model, StatisticsLayout
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.statistics.pooled import Pooled
from fedguard.statistics.weighted import Weighted
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.engines.conv_shapes import conv_shapes
from fedguard.tasks.network import FlatNetwork, Predictor
from fedguard.tasks.statistics import join_single

SHAPE, CLASSES, DENSE = (1, 8, 8), 10, (1, 2, 3)


class Given(Model):
    name = "given"

    def __init__(self, make) -> None:
        self.make = make

    def build(self, shape, classes):
        return self.make()


def dense(norm=lambda: nn.BatchNorm1d(5)):
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), norm(), nn.ReLU(), nn.Linear(5, 3))


def network_of(make=dense, normalization="running", shape=DENSE, classes=3) -> FlatNetwork:
    return FlatNetwork(Given(make), shape, classes, Rng(0), None, normalization)


def examples(n, shape=DENSE, classes=3, seed=1) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    return Examples(torch.randn(n, *shape, generator=draw) + 1, torch.randint(classes, (n,), generator=draw))


def train(network, parts, plan, start=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The updates and the statistics of one client for each part."""
    out = torch.empty(len(parts), network.dim)
    s = network.statistics
    written = torch.full((len(parts), s.size), torch.nan)
    begun = s.initial if start is None else start
    Cohort(network, parts).train(
        network.flat.clone(), range(len(parts)), plan, Rng(5), out, LocalStatistics(begun, written)
    )
    return out, written


# ---- What counts as what.


class Buffered(nn.Module):
    """A dense layer with a buffer that a forward pass may change."""

    def __init__(self, buffer, change=lambda one: None) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(6, 3), change
        self.register_buffer("seen", buffer)

    def forward(self, x):
        self.change(self.seen)
        return self.layer(x.flatten(1))


def test_statistics_are_means_and_variances_layer_by_layer():
    network = network_of(lambda: nn.Sequential(dense(), nn.BatchNorm1d(3)))
    assert network.statistics.channels == (5, 3) and network.statistics.layers == 2
    expected = torch.cat([torch.zeros(5), torch.ones(5), torch.zeros(3), torch.ones(3)])
    assert torch.equal(network.statistics.initial, expected)
    assert torch.equal(network.statistics.variances, expected.bool())


def test_layers_are_found_by_type_and_not_by_name():
    names = {"bn1": nn.Identity(), "downsample": nn.BatchNorm1d(6)}
    made = network_of(lambda: nn.Sequential(nn.Flatten(), nn.Sequential(*names.values()), nn.Linear(6, 3)))
    assert made.statistics.channels == (6,)


@pytest.mark.parametrize("buffer", [torch.arange(3), torch.ones(2, 2)])
def test_a_buffer_that_training_does_not_change_is_a_constant(buffer):
    network = network_of(lambda: Buffered(buffer))
    assert network.statistics.size == 0 and network.dim == 21


@pytest.mark.parametrize("buffer", [torch.zeros(3), torch.zeros((), dtype=torch.int64)])
def test_another_buffer_that_training_changes_is_refused_by_name(buffer):
    with pytest.raises(ConfigError, match="training changes the buffer seen of Buffered"):
        network_of(lambda: Buffered(buffer, lambda one: one.add_(1)))


def test_the_counter_of_batches_is_no_statistic_and_no_layer_may_need_it():
    network = network_of()
    assert "2.num_batches_tracked" in dict(network.module.named_buffers()) and network.statistics.size == 10
    with pytest.raises(ConfigError, match="momentum=None"):
        network_of(lambda: dense(lambda: nn.BatchNorm1d(5, momentum=None)))


@pytest.mark.parametrize("normalization", ["running", "batch"])
def test_a_layer_that_is_left_in_evaluation_mode_stays_so(normalization):
    """It normalizes by its own constants, in training and after an evaluation, and nobody sends them."""

    def kept():
        module = nn.Sequential(dense(), nn.BatchNorm1d(3))
        module[0][2].running_mean.fill_(0.5)
        module[0][2].eval()
        return module

    network, parts = network_of(kept, normalization), [examples(9), examples(6)]
    assert (
        network.statistics.channels == ((3,) if normalization == "running" else ()) and network.statistics.layers == 1
    )
    layer = network.module[0][2]
    network(network.flat.clone(), parts[0].x, network.statistics.initial if normalization == "running" else None)
    assert not layer.training and (layer.running_mean == 0.5).all() and network.module[1].training
    x = parts[0].x.flatten(1)
    with torch.no_grad():
        hidden = network.module[0][1](x)
        constant = (hidden - 0.5) / torch.sqrt(torch.tensor(1 + 1e-5))
        assert torch.allclose(layer(hidden), constant, atol=1e-6)
    assert layer.num_batches_tracked == 0 and (layer.running_mean == 0.5).all()


def test_a_network_that_is_wholly_in_evaluation_mode_normalizes_by_the_batch():
    assert network_of(lambda: dense().eval()).statistics.channels == (5,)


def test_a_frozen_weight_that_is_not_finite_is_named():
    def broken():
        module = dense()
        module[1].weight.requires_grad_(False)[0, 0] = torch.nan
        return module

    with pytest.raises(ConfigError, match=r"1\.weight is frozen .* and holds NaN or infinity"):
        network_of(broken)


def test_the_counter_is_in_nothing_that_a_client_sends():
    """Neither in the update nor among the statistics, however many batches it has counted."""
    network, plan = network_of(), LocalPlan(lr=0.1, batch_size=2, epochs=3)
    out, written = train(network, [examples(10)], plan)
    assert out.shape == (1, 6 * 5 + 5 + 5 + 5 + 5 * 3 + 3) and written.shape == (1, 10)
    assert not (written >= 15).any() and (out.abs() < 15).all()


def test_no_engine_takes_a_network_with_batch_normalization_for_a_plain_one():
    assert network_of().widths is None and network_of(normalization="constant").widths is None
    plain = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))
    assert conv_shapes(plain, (1, 3, 2)) is not None
    for place in range(1, 4):
        layers = list(plain)
        layers.insert(place, nn.BatchNorm2d(2))
        assert conv_shapes(nn.Sequential(*layers), (1, 3, 2)) is None


# ---- Training.


def plain_client(module, part, batches, plan, start):
    """A client as torch trains it: the module's own buffers, set before and read after."""
    module = copy.deepcopy(module).train()
    before = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    with torch.no_grad():
        for layer, row in zip([m for m in module.modules() if isinstance(m, nn.BatchNorm1d)], [start], strict=True):
            layer.running_mean.copy_(row[:5])
            layer.running_var.copy_(row[5:])
    sgd = torch.optim.SGD(module.parameters(), lr=plan.lr)
    for batch in batches:
        rows = torch.from_numpy(batch[batch >= 0])
        sgd.zero_grad()
        nn.functional.cross_entropy(module(part.x[rows]), part.y[rows]).backward()
        sgd.step()
    after = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    return after - before, torch.cat([module[2].running_mean, module[2].running_var])


@pytest.mark.parametrize("plan", [LocalPlan(lr=0.1, batch_size=4, epochs=2), LocalPlan(lr=0.1, steps=1)])
def test_each_client_starts_from_its_own_statistics_and_writes_its_own(plan):
    """A fault that this finds: one client's statistics left in the module for the next, or not set before training."""
    network, parts = network_of(), [examples(n, seed=n) for n in (11, 8, 2)]
    starts = torch.rand(3, 10, generator=torch.Generator().manual_seed(2)) + 0.5
    out, written = train(network, parts, plan, starts)
    for client, part in enumerate(parts):
        batches = schedule(plan, len(part), Rng(5).child("client", client).numpy())
        update, statistics = plain_client(network.module, part, batches, plan, starts[client])
        assert torch.allclose(out[client], update, atol=1e-6)
        assert torch.allclose(written[client], statistics, atol=1e-6)


def test_a_client_s_statistics_are_affine_in_where_it_starts():
    """out = (1 - m)^steps * in + own, and parameters do not depend on it."""
    network, parts, plan = network_of(), [examples(12)], LocalPlan(lr=0.1, batch_size=4, epochs=1)
    found = [train(network, parts, plan, torch.full((10,), start)) for start in (0.0, 1.0, 7.0)]
    assert all(torch.equal(found[0][0], out) for out, _ in found)
    own, one, seven = (statistics[0] for _, statistics in found)
    assert torch.allclose(one - own, torch.tensor(0.9**3), atol=1e-6)
    assert torch.allclose(seven - own, torch.tensor(7 * 0.9**3), atol=1e-5)


def test_a_last_batch_of_one_joins_the_batch_before():
    batches = np.array([[0, 1, 2], [3, -1, -1], [4, 5, 6], [7, -1, -1]])
    joined = join_single(batches, "given")
    assert joined.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert join_single(joined, "given") is joined
    for bad in ([[0], [1]], [[3, -1], [0, 1]]):
        with pytest.raises(ConfigError, match="at least 2 examples of each client and in each batch"):
            join_single(np.array(bad), "given")


def test_a_client_whose_examples_leave_one_over_trains():
    network, plan = network_of(), LocalPlan(lr=0.1, batch_size=4, epochs=1)
    out, _ = train(network, [examples(9)], plan)
    assert out.isfinite().all()
    with pytest.raises(ConfigError, match="one example has no variance"):
        train(network, [examples(1)], plan)


# ---- Evaluation.


def test_evaluation_reads_the_given_statistics_or_the_batch():
    network, x = network_of(), examples(6).x
    module = copy.deepcopy(network.module)
    module[2].running_mean.fill_(0.3)
    module[2].running_var.fill_(2.0)
    given = torch.tensor([0.3] * 5 + [2.0] * 5)
    flat = network.flat.clone()
    with torch.no_grad():
        by_statistics, by_batch = module.eval()(x), module.train()(x)
    predict = Predictor(network, given)
    for answer in (network(flat, x, given), network.logits(flat, x, given), predict(flat, x)):
        assert torch.allclose(answer, by_statistics, atol=1e-6)
    for answer in (network(flat, x), network.logits(flat, x), Predictor(network)(flat, x)):
        assert torch.allclose(answer, by_batch, atol=1e-6)


def test_measured_statistics_are_the_moments_of_the_batch():
    network, x = network_of(), examples(30).x
    out = torch.empty(10)
    network.measure_statistics(network.flat.clone(), x, out)
    hidden = network.module[1](x.flatten(1)).detach()
    assert torch.allclose(out[:5], hidden.mean(0), atol=1e-6)
    assert torch.allclose(out[5:], hidden.var(0), atol=1e-6)
    assert network.module[2].momentum == 0.1


@pytest.mark.parametrize("norm", [lambda: nn.BatchNorm1d(5), lambda: nn.BatchNorm1d(5, affine=False)])
def test_constant_normalization_is_evaluation_mode(norm):
    network, x = network_of(lambda: dense(norm), "constant"), examples(6).x
    usual = network_of(lambda: dense(norm))
    assert network.statistics.size == 0 and network.statistics.layers == 1 and network.dim == usual.dim
    flat = torch.randn(network.dim, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(network(flat, x), usual(flat, x, usual.statistics.initial), atol=1e-6)
    assert torch.allclose(network(flat, x)[:1], network(flat, x[:1]), atol=1e-6)  # each example by itself


def test_hidden_statistics_are_the_batch_s_at_test_time_too():
    network, x = network_of(normalization="batch"), examples(6).x
    usual, flat = network_of(), network_of().flat.clone()
    assert network.statistics.size == 0 and torch.allclose(network(flat, x), usual(flat, x), atol=1e-6)


@pytest.mark.parametrize("name", ["resnet8", "resnet20"])
def test_resnets_have_either_norm(name):
    known = load_registry()
    group, batch = (known.build("model", {"name": name, "norm": norm}) for norm in ("group", "batch"))
    assert "norm" not in group.spec() and batch.spec()["norm"] == "batch"
    layers = {"resnet8": 7, "resnet20": 19}[name]
    made = FlatNetwork(batch, SHAPE, CLASSES, Rng(0))
    assert made.statistics.layers == layers and made.dim == FlatNetwork(group, SHAPE, CLASSES, Rng(0)).dim


# ---- What the server makes of them.


LAYOUT = StatisticsLayout((2,), torch.zeros(4), 1)


def test_pooled_moments_are_those_of_all_examples_together():
    parts = [torch.randn(n, 2, dtype=torch.float64) + n for n in (4, 9, 30)]
    rows = torch.stack([torch.cat([part.mean(0), part.var(0, correction=0)]) for part in parts])
    every = torch.cat(parts)
    samples = torch.tensor([4.0, 9.0, 30.0], dtype=torch.float64)
    found = Pooled().combine(rows, samples, LAYOUT)
    assert torch.allclose(found, torch.cat([every.mean(0), every.var(0, correction=0)]))
    averaged = Weighted().combine(rows, samples, LAYOUT)
    assert torch.allclose(averaged[:2], found[:2]) and (averaged[2:] < found[2:]).all()
