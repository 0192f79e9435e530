"""Rules that know which row is the node's own, beside their papers' formulae as plain loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedguard.aggregation import aggregate
from fedguard.contracts import RuleContext, Sight
from fedguard.registry import load_registry
from fedguard.rng import Rng


def rows_of(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def weights_of(n: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).random(n) + 0.2
    return drawn / drawn.sum()


def run(text: str, rows: np.ndarray, own: int, f: int, mixing: np.ndarray | None = None, loss=None) -> np.ndarray:
    context = RuleContext(
        "node",
        Sight.EACH_UPDATE | Sight.MODEL | Sight.GRAPH | Sight.ROOT_DATA,
        f=f,
        round=1,
        rng=Rng(0),
        state={},
        layers=(rows.shape[1],),
        shape=(2,),
        server_lr=1.0,
        clients=tuple(range(len(rows))),
        own=own,
        mixing=None if mixing is None else torch.from_numpy(mixing),
        model=torch.zeros(rows.shape[1]),
        root_loss=loss,
    )
    return aggregate(load_registry().pipeline(text), torch.from_numpy(rows), context).vector.numpy()


def clip(z: np.ndarray, radius: float) -> np.ndarray:
    length = np.linalg.norm(z)
    return z if length <= radius else z * radius / length


def clipped(rows, own, w, radius):
    return rows[own] + sum(w[j] * clip(rows[j] - rows[own], radius) for j in range(len(rows)))


def radius_of_he(rows, own, w, f):
    """sqrt((1 / b) sum over the nearest that weigh 1 - b of w |x_j - x_i|^2), b the weight of the f heaviest neighbors."""
    b = sum(sorted((w[j] for j in range(len(rows)) if j != own), reverse=True)[:f])
    total, taken = 0.0, 0.0
    for j in sorted(range(len(rows)), key=lambda j: np.linalg.norm(rows[j] - rows[own])):
        if taken + w[j] > 1 - b + 1e-9:
            break
        taken, total = taken + w[j], total + w[j] * np.linalg.norm(rows[j] - rows[own]) ** 2
    return np.sqrt(total / b)


def radius_of_gaucher(rows, own, w, f):
    b = sum(sorted((w[j] for j in range(len(rows)) if j != own), reverse=True)[:f])
    taken, radius = 0.0, 0.0
    for j in sorted(range(len(rows)), key=lambda j: np.linalg.norm(rows[j] - rows[own])):
        taken += w[j]
        if taken > 1 - 2 * b + 1e-9:
            break
        radius = np.linalg.norm(rows[j] - rows[own])
    return radius


SHAPES = [(n, f, own, seed) for n, f in ((5, 1), (7, 2), (9, 2)) for own in (0, n - 1) for seed in range(4)]


@pytest.mark.parametrize(("n", "f", "own", "seed"), SHAPES)
def test_clipped_gossip_is_its_formula(n, f, own, seed):
    rows, w = rows_of(n, 6, seed), weights_of(n, seed)
    want = clipped(rows.astype(float), own, w, radius_of_he(rows.astype(float), own, w, f))
    assert np.allclose(run("clipped_gossip", rows, own, f, w), want, atol=1e-5)
    assert np.allclose(
        run("clipped_gossip(tau=0.5)", rows, own, f, w), clipped(rows.astype(float), own, w, 0.5), atol=1e-5
    )


@pytest.mark.parametrize(("n", "f", "own", "seed"), SHAPES)
def test_cs_plus_is_its_formula(n, f, own, seed):
    rows, w = rows_of(n, 6, seed), weights_of(n, seed)
    want = clipped(rows.astype(float), own, w, radius_of_gaucher(rows.astype(float), own, w, f))
    assert np.allclose(run("cs_plus", rows, own, f, w), want, atol=1e-5)


def test_cs_plus_clips_the_two_farthest_of_equal_neighbors_to_the_third():
    """Five neighbors of weight 1/6 and f = 1: 1 - 2b = 2/3 is the own row and the three nearest."""
    rows = np.zeros((6, 1), np.float32)
    rows[:, 0] = [0, 1, 2, 3, 10, -100]
    want = (1 + 2 + 3 + 3 - 3) / 6
    assert run("cs_plus", rows, 0, 1, np.full(6, 1 / 6))[0] == pytest.approx(want)


def test_cs_plus_takes_equally_far_neighbors_together_whatever_their_order():
    """1 - 2b = 0.45 holds the own row and the nearest, and of the two at distance 2 only one: so neither."""
    rows, w = np.array([[0], [1], [2], [-2], [9]], np.float32), np.array([0.2, 0.15, 0.1, 0.275, 0.275])
    want = clipped(rows.astype(float), 0, w, 1.0)
    for order in ([0, 1, 2, 3, 4], [0, 1, 3, 2, 4], [3, 4, 2, 1, 0]):
        assert run("cs_plus", rows[order], order.index(0), 1, w[order])[0] == pytest.approx(want[0])


def test_clipped_gossip_takes_the_first_of_equally_far_neighbors():
    """More rows than an unstable sort leaves in their order."""
    n = 65
    rows = np.concatenate(
        [np.zeros((1, 2)), np.where(np.arange(64)[:, None] % 2, 1, -1) * np.eye(2)[np.arange(64) % 2]]
    )
    w = weights_of(n, 3)
    want = clipped(rows, 0, w, radius_of_he(rows, 0, w, 5))
    assert np.allclose(run("clipped_gossip", rows.astype(np.float32), 0, 5, w), want, atol=1e-6)


@pytest.mark.parametrize("rule", ["clipped_gossip", "cs_plus"])
def test_without_malicious_neighbors_nothing_is_clipped(rule):
    rows, w = rows_of(6, 4, 0), weights_of(6, 0)
    assert np.allclose(run(rule, rows, 2, 0, w), w @ rows, atol=1e-5)


@pytest.mark.parametrize(("n", "f", "own", "seed"), SHAPES)
def test_nna_is_the_mean_of_the_nearest(n, f, own, seed):
    rows = rows_of(n, 6, seed)
    near = sorted(range(n), key=lambda j: np.linalg.norm(rows[j] - rows[own]))[: n - f]
    assert np.allclose(run("nna", rows, own, f), rows[near].mean(0), atol=1e-5)


@pytest.mark.parametrize(("n", "f", "own", "seed"), SHAPES)
def test_bridge_trims_the_neighbors_and_keeps_its_own(n, f, own, seed):
    rows = rows_of(n, 6, seed)
    want = []
    for k in range(6):
        others = sorted(rows[j, k] for j in range(n) if j != own)[f : n - 1 - f]
        want.append((sum(others) + rows[own, k]) / (n - 2 * f))
    assert np.allclose(run("bridge", rows, own, f), want, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize(("n", "f", "own", "seed"), SHAPES)
def test_ubar_looks_at_the_near_and_takes_the_good(n, f, own, seed, alpha):
    rows, goal = rows_of(n, 6, seed), rows_of(1, 6, 100 + seed)[0]

    def loss(model):
        return float(np.square(np.asarray(model, float) - goal).sum())

    near = sorted((j for j in range(n) if j != own), key=lambda j: np.linalg.norm(rows[j] - rows[own]))[: n - 1 - f]
    good = [j for j in near if loss(rows[j]) <= loss(rows[own])] or [min(near, key=lambda j: loss(rows[j]))]
    want = alpha * rows[own] + (1 - alpha) * rows[good].mean(0)
    assert np.allclose(run(f"ubar(alpha={alpha})", rows, own, f, loss=loss), want, atol=1e-5)


@pytest.mark.parametrize("rule", ["clipped_gossip", "cs_plus", "nna", "bridge"])
def test_a_neighbor_far_away_does_not_take_the_node_along(rule):
    rows, w = rows_of(7, 6, 3), np.full(7, 1 / 7)
    rows[3] = 1e6
    assert np.abs(run(rule, rows, 0, 1, w)).max() < 10


def test_ubar_takes_all_that_are_near_if_its_own_model_overflows():
    rows = rows_of(5, 6, 0)
    near = sorted(range(1, 5), key=lambda j: np.linalg.norm(rows[j] - rows[0]))[:3]

    def loss(model):
        return math.nan if np.allclose(np.asarray(model, float), rows[0], atol=1e-5) else 1.0

    assert np.allclose(run("ubar(alpha=0)", rows, 0, 1, loss=loss), rows[near].mean(0), atol=1e-5)


@pytest.mark.parametrize("rule", ["clipped_gossip", "cs_plus", "nna", "bridge"])
def test_it_follows_the_node_and_not_the_row(rule):
    """The node's row at another place, with the others and their weights moved along, gives the same."""
    rows, w = rows_of(7, 6, 3), weights_of(7, 5)
    order = np.array([4, 2, 0, 6, 5, 1, 3])
    moved = run(rule, rows[order], int(np.flatnonzero(order == 1)[0]), 2, w[order])
    assert np.allclose(moved, run(rule, rows, 1, 2, w), atol=1e-5)


@pytest.mark.parametrize("rule", ["clipped_gossip", "cs_plus", "nna", "bridge", "ubar"])
def test_none_of_them_stands_behind_a_mixing(rule):
    with pytest.raises(Exception, match="behind a mixing|looks up"):
        load_registry().pipeline(f"nnm >> {rule}")
