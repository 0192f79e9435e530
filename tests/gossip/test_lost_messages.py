"""Messages that the network loses between nodes: whose weight becomes whose."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from fedguard.registry import load_registry
from tests.gossip.test_gossip_formulae import STEP, Quadratics
from tests.gossip.test_hearing import draws, nodes
from tests.systems.scenes import EVEN, cell, reports

LOSSY: dict[str, Any] = {"network": EVEN | {"link": {"latency": 1, "loss": 0.3}}}


def lost_of(found) -> np.ndarray:
    """bool ``[n, n]``: which messages of the next exchange the network loses, as the world draws them."""
    n, k = found._n, found._exchanges
    return np.array([[i != j and found._world._loss(j, k * n + i) < 0.3 for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("defense", ["mean", "median"])
def test_the_weight_of_what_is_lost_is_the_nodes_own(defense):
    found, setup = nodes({"name": "d_psgd", "graph": "complete"}, defense=defense, **LOSSY)
    losses = 0
    for turn in range(3):
        values, about, lost = draws(6, setup.task.dim, turn), draws(6, setup.task.dim, 9), lost_of(found)
        made = found.mix_values(values, about)
        losses += lost.sum()
        for i in range(6):
            rows = [values[j].numpy() for j in range(6) if not lost[i, j]]
            gone = lost[i].sum() * values[i].numpy()
            want = (sum(rows) + gone) / 6 if defense == "mean" else np.median(rows, axis=0)
            assert np.allclose(made[i].numpy(), want, atol=1e-5)
    assert 3 < losses < 60 and found._world.spent.lost == losses
    assert found.traffic.messages == 3 * 30  # what is lost was sent


def test_a_share_of_them_is_lost():
    found, _ = nodes({"name": "d_psgd", "graph": "complete"}, **LOSSY)
    values = draws(6, 650)
    for _ in range(60):
        found.mix_values(values, values)
    assert abs(found._world.spent.lost - 0.3 * 1800) < 5 * (1800 * 0.3 * 0.7) ** 0.5


def test_push_sum_loses_mass_and_divides_like_by_like():
    """Nodes that agree stay where they are, whatever is lost; and the weights are those of the loop."""
    found, setup = nodes({"name": "sgp", "graph": "exponential"}, **LOSSY)
    found.updates = lambda models: torch.zeros_like(models)
    found.start = torch.ones_like(found.start) * 3
    system = load_registry().build("architecture", {"name": "sgp", "graph": "exponential"})
    told: list[np.ndarray] = []
    found.said.weights = lambda own: told.append(own.copy()) or own
    run = system.models(found)
    w = np.ones(6)
    for _ in range(4):
        heard, lost = found.matrix != 0, lost_of(found)
        assert torch.allclose(next(run), found.start, atol=1e-5)
        assert np.allclose(told[-1], w)
        w = np.array(
            [sum(w[j] / heard[:, j].sum() for j in range(6) if heard[i, j] and not lost[i, j]) for i in range(6)]
        )
    assert w.sum() < 5


@pytest.mark.parametrize("system", ["d_psgd", "sgp", {"name": "defacto", "phase": 2}, "dlion(transfer=2)"])
def test_they_learn_where_messages_are_lost(system):
    steps = {"local_steps": 10} if "dlion" in system else {}
    training = {"rounds": 10, **steps}
    *_, last = reports(system, training=training, network={"link": {"loss": 0.2}}, evaluation={"every": 10})
    assert min(last.nodes.accuracy) > 0.75


def test_masks_and_listeners_ask_for_all_messages():
    words = {"name": "d_psgd", "graph": "complete", "masks": 20}
    (reason,) = cell(words, network={"link": {"loss": 0.1}}).verdict.reasons
    assert "masks do not cancel" in reason and "Leave out network.link.loss" in reason
    assert not cell(words).verdict.reasons


def test_in_dlion_a_nodes_own_update_or_model_takes_the_place_of_what_is_lost():
    """One round with a transfer, beside a loop."""
    words = {"name": "dlion", "top": 1.0, "transfer": 1, "step": 0.75}
    found, setup = nodes(words, training={"local_steps": 1}, **LOSSY)
    u, x0, best = draws(6, setup.task.dim), found.start.clone(), 2
    found.updates = lambda models, batches, faster: u
    found.said.losses = lambda models: np.array([3.0, 3, 1, 3, 3, 3])
    lost = lost_of(found)
    x = next(load_registry().build("architecture", words).models(found))
    found._exchanges = 1
    lost_model = lost_of(found)[:, best]
    assert 2 < lost.sum() < 20 and 0 < lost_model.sum() < 5
    moved = []
    for i in range(6):
        heard = [j for j in range(6) if j != i and not lost[i, j]]
        moved.append(x0[i] + sum(u[j] for j in heard) / 6 + (6 - len(heard)) * u[i] / 6)
    for i in range(6):
        want = moved[i] if lost_model[i] else moved[i] - 0.75 * (moved[i] - moved[best])
        assert torch.allclose(x[i], want, atol=1e-5)


class Lossy(Quadratics):
    """Noisy gradients whose messages are lost with a chance: the weight of what is lost is the node's own value's."""

    def __init__(self, graph: str, weight: float, loss: float, dim: int = 200) -> None:
        super().__init__(graph, weight)
        self.draws, self.loss = np.random.default_rng(11), loss
        goals = self.draws.normal(size=(8, dim))
        self.best = torch.from_numpy(goals.mean(0))
        self.start, self.goals = torch.zeros(8, dim, dtype=torch.float64), torch.from_numpy(goals)

    @property
    def samples(self):
        return np.ones(8)

    def updates(self, models):
        return -STEP * (models - self.goals + torch.from_numpy(self.draws.normal(size=models.shape)) / 2)

    def mix_values(self, values, about, *, matrix=None, trackers_at=None):
        w = self.matrix if matrix is None else matrix
        lost = (self.draws.random(w.shape) < self.loss) & ~np.eye(8, dtype=bool)
        kept = np.where(lost, 0, w) + np.diag(np.where(lost, w, 0).sum(1))
        return torch.from_numpy(kept) @ values

    def of_parcels(self, updates, parcel, *, models, matrix=None):
        return self.mix_values(updates, updates, matrix=matrix)


def off(system: dict[str, Any], loss: float, rounds: int, last: int = 50) -> float:
    """How far a node is from the optimum on average over the last of so many rounds, if the algorithm goes on with losses."""
    made = load_registry().build("architecture", system)
    quadratics = Lossy(made.graph, made.weight, loss)
    quadratics.topology = made.topology(8)
    ends = [float((x - quadratics.best).norm(dim=1).mean()) for x in islice(made.models(quadratics), rounds)]
    return float(np.mean(ends[-last:]))


@pytest.mark.parametrize(
    "system",
    [
        {"name": "d2", "weight": 0.5},
        {"name": "dsgt"},
        {"name": "detag", "phase": 2},
        {"name": "ako"},
        {"name": "wide_area"},
    ],
    ids=lambda words: words["name"],
)
def test_what_is_refused_would_be_wrong_for_good(system):
    """Sums that messages carry along walk off at random, as the root of time, or nodes part: of gossip of values neither."""
    system = {"graph": "complete" if system["name"] in ("ako", "wide_area") else "ring", **system}
    early, late, whole = off(system, 0.1, 100), off(system, 0.1, 400), off(system, 0.0, 400)
    assert late > 1.4 * early and late > 3 * whole
    values = {"name": "d_psgd", "graph": "ring"}
    assert off(values, 0.1, 400) < 1.15 * off(values, 0.0, 400)


@pytest.mark.parametrize("system", ["d2", "dsgt", "detag", "ako", "wide_area", "dlion(transfer=0)"])
def test_where_no_later_message_makes_up_for_it_loss_is_refused(system):
    words: Any = {"name": "d2", "weight": 0.5} if system == "d2" else system
    (reason,) = cell(words, network={"link": {"loss": 0.1}}, training={"local_steps": 1}).verdict.reasons
    assert "would leave it wrong for good" in reason and "use d_psgd, defacto, sgp, or dlion" in reason
