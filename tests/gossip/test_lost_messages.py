"""Messages that the network loses between nodes: whose weight becomes whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedguard.registry import installed
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
        made = found.mixed(values, about)
        losses += lost.sum()
        for i in range(6):
            rows = [values[j].numpy() for j in range(6) if not lost[i, j]]
            gone = lost[i].sum() * values[i].numpy()
            want = (sum(rows) + gone) / 6 if defense == "mean" else np.median(rows, axis=0)
            assert np.allclose(made[i].numpy(), want, atol=1e-5)
    assert 3 < losses < 60 and found._world.spent.lost == losses
    assert found._messages == 3 * 30  # what is lost was sent


def test_a_share_of_them_is_lost():
    found, _ = nodes({"name": "d_psgd", "graph": "complete"}, **LOSSY)
    values = draws(6, 650)
    for _ in range(60):
        found.mixed(values, values)
    assert abs(found._world.spent.lost - 0.3 * 1800) < 5 * (1800 * 0.3 * 0.7) ** 0.5


def test_push_sum_loses_mass_and_divides_like_by_like():
    """Nodes that agree stay where they are, whatever is lost; and the weights are those of the loop."""
    found, setup = nodes({"name": "sgp", "graph": "exponential"}, **LOSSY)
    found.updates = lambda models: torch.zeros_like(models)
    found.start = torch.ones_like(found.start) * 3
    system = installed().build("architecture", {"name": "sgp", "graph": "exponential"})
    told: list[np.ndarray] = []
    found.weights = lambda own: told.append(own.copy()) or own
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


@pytest.mark.parametrize("system", ["d_psgd", "sgp", {"name": "defacto", "phase": 2}])
def test_they_learn_where_messages_are_lost(system):
    *_, last = reports(system, training={"rounds": 10}, network={"link": {"loss": 0.2}}, evaluation={"every": 10})
    assert min(last.nodes.accuracy) > 0.75


def test_masks_and_listeners_ask_for_all_messages():
    words = {"name": "d_psgd", "graph": "complete", "masks": 20}
    (reason,) = cell(words, network={"link": {"loss": 0.1}}).verdict.reasons
    assert "masks do not cancel" in reason and "Leave out network.link.loss" in reason
    assert not cell(words).verdict.reasons


@pytest.mark.parametrize("system", ["d2", "dsgt", "detag", "ako", "wide_area", "dlion"])
def test_where_no_later_message_makes_up_for_it_loss_is_refused(system):
    words = {"name": system, **({"weight": 0.5} if system == "d2" else {})}
    (reason,) = cell(words, network={"link": {"loss": 0.1}}, training={"local_steps": 1}).verdict.reasons
    assert "would leave it wrong for good" in reason and "use d_psgd, defacto or sgp" in reason
