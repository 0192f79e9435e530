"""Facts that other libraries get wrong: each is shown together with the mistake that it guards against."""

from __future__ import annotations

import statistics

import pytest
import torch

import fedguard as fg
from fedguard.aggregation import aggregate
from fedguard.architectures import wire
from fedguard.architectures.server import Server
from fedguard.contracts import Gram, Model, Training
from fedguard.errors import ContractError, InputError
from fedguard.kernels import gram_matrix
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.network import FlatNetwork
from tests.architectures.test_training import deal, set_up
from tests.table import context, normal, run


@pytest.mark.parametrize("n", range(2, 21))
def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two(n):
    updates = normal(n, 30, seed=n)
    expected = [statistics.median(column) for column in updates.T.tolist()]
    assert run("median", updates, 0).vector.tolist() == pytest.approx(expected, abs=1e-6)
    if n % 2 == 0:  # what torch.median gives is the lower of the two
        assert (updates.median(0).values.double() - torch.tensor(expected).double()).abs().max() > 1e-3


def relative_error(squares: torch.Tensor, rows: torch.Tensor) -> float:
    """The largest relative error of squared distances, diagonal aside."""
    exact = (rows.double()[:, None] - rows.double()[None]).square().sum(2)
    apart = ~torch.eye(len(rows), dtype=torch.bool)
    return float(((squares.double() - exact).abs() / exact)[apart].max())


def squares_by_product(rows: torch.Tensor) -> torch.Tensor:
    """|a|^2 + |b|^2 - 2ab in float32, as peers compute squared distances."""
    lengths = rows.square().sum(1)
    return lengths[:, None] + lengths[None] - 2 * rows @ rows.T


@pytest.mark.parametrize("outlier", [None, 1e6])
def test_distances_of_updates_that_are_long_and_close_together(outlier):
    """Without centring all is lost; centring at the mean loses as much where one update is huge."""
    rows = normal(12, 2000, seed=1, spread=1e-2, center=300.0)
    ours = Gram(lambda: gram_matrix(rows), 12).distances_squared()
    assert relative_error(ours, rows) < 1e-3
    assert relative_error(squares_by_product(rows), rows) > 0.9
    if outlier:
        rows = torch.cat([rows, torch.full((1, 2000), outlier)])
        ours = Gram(lambda: gram_matrix(rows), 13).distances_squared()
        assert relative_error(ours, rows) < 1e-3
        assert relative_error(squares_by_product(rows - rows.mean(0)), rows) > 0.9


def test_krum_still_sees_the_outlier_among_long_updates():
    rows = normal(9, 2000, seed=2, spread=1e-2, center=300.0)
    rows[4] += 0.05
    assert run("multi_krum", rows, 1).weights[4] == 0
    assert run("multi_krum", rows, 1).weights.count_nonzero() == 8


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bucketing_uses_each_row_exactly_once(size):
    for n in (*range(1, 14), 50):
        for seed in range(20):
            stage = load_registry().build("defense", {"name": "bucketing", "size": size})
            matrix = stage.matrix(Gram(lambda: torch.zeros(0), n), context(n, 0, seed=seed))
            held = matrix > 0
            assert held.sum(0).tolist() == [1] * n
            assert sorted(held.sum(1).tolist()) == sorted([size] * (n // size) + ([n % size] if n % size else []))
            assert torch.allclose(matrix.sum(1), torch.ones(len(matrix), dtype=torch.float64))


def test_bucketing_deals_every_pair_together_at_times():
    """Buckets that followed the order of the rows would always hold the same pairs."""
    stage, met = load_registry().build("defense", "bucketing"), torch.zeros(6, 6)
    for seed in range(300):
        held = (stage.matrix(Gram(lambda: torch.zeros(0), 6), context(6, 1, seed=seed)) > 0).float()
        met += held.T @ held
    together = met[~torch.eye(6, dtype=torch.bool)]
    assert ((together - 60).abs() < 5 * (300 * 0.2 * 0.8) ** 0.5).all()  # each pair in a fifth of the rounds


TRAINING = Training(algorithm="fedsgd", rounds=25, lr=0.5, batch_size=32)


def poisoned(pipeline="median"):
    return set_up(deal("softmax", "iid"), TRAINING, pipeline=pipeline, attack="nan", malicious=(1, 4), told=2)


def test_the_median_learns_although_two_of_six_send_nan():
    reports = list(Server().run(poisoned()))
    assert {report.not_finite for report in reports} == {(1, 4)}
    assert reports[-1].evaluation.accuracy > 0.85
    assert reports[-1].evaluation.accuracy > reports[0].evaluation.accuracy


@pytest.mark.parametrize("pipeline", ["mean", "krum", "geometric_median"])
def test_without_the_guard_a_nan_row_is_an_error_and_never_a_model(pipeline, monkeypatch):
    assert all(report.model.isfinite().all() for report in Server().run(poisoned(pipeline)))
    monkeypatch.setattr(wire, "drop_not_finite", lambda sent: sent)
    with pytest.raises(ContractError, match=f"{pipeline} broke its contract: its result holds NaN or infinity"):
        list(Server().run(poisoned(pipeline)))


def test_one_nan_row_is_enough_to_lose_a_round_elsewhere():
    rows = normal(5, 4, seed=3)
    rows[2] = torch.nan
    assert rows.mean(0).isnan().all()
    assert rows.median(0).values.isnan().all()
    with pytest.raises(ContractError, match="NaN or infinity"):
        aggregate(load_registry().pipeline("mean"), rows, context(5, 1, dim=4))
    with pytest.raises(InputError, match=r"rows \[2\] hold NaN or infinity"):
        fg.aggregate("median", rows, f=1)


class Normalized(Model):
    name = "normalized"

    def __init__(self, layer: torch.nn.Module) -> None:
        self.layer = layer

    def build(self, shape, classes):
        return torch.nn.Sequential(torch.nn.Flatten(), self.layer, torch.nn.Linear(64, classes))


def test_running_statistics_are_no_parameters():
    """Equal parameters do not make equal models where there are running statistics, and no update carries these."""
    batch, other = torch.nn.BatchNorm1d(64), torch.nn.BatchNorm1d(64)
    other.running_mean += 1
    assert all(torch.equal(a, b) for a, b in zip(batch.parameters(), other.parameters(), strict=True))
    x = torch.ones(3, 64)
    assert not torch.allclose(batch.eval()(x), other.eval()(x))
    for layer, s in ((batch.train(), 2 * 64), (torch.nn.GroupNorm(4, 64), 0)):
        network = FlatNetwork(Normalized(layer), (1, 8, 8), 10, Rng(0))
        assert network.dim == 2 * 64 + 64 * 10 + 10
        assert network.statistics.size == s
