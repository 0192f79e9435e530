"""Each algorithm without a server beside the formula of its paper, written as loops over nodes, in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import sqrt

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.registry import load_registry
from fedguard.simulated.topology import topology

NODES, DIM, ROUNDS, STEP = 8, 5, 12, 0.1
EXACT = 1e-12


class Quadratics:
    """Nodes of which node i minimises |x - b_i|^2 / 2 with noise in its k-th gradient; all of them are honest.

    It stands in for `fedguard.architectures.gossip.nodes.Nodes`, whose float32 hides what differs by 1e-12.
    """

    def __init__(self, graph: str, weight: float = 1.0, spread: float = 1.0) -> None:
        draws = np.random.default_rng(7)
        self.goals = draws.normal(size=(NODES, DIM)) * spread
        self.noise = draws.normal(size=(500, NODES, DIM)) * 0.1
        self.topology = topology(graph, NODES, weight=weight)
        self.start = torch.zeros(NODES, DIM, dtype=torch.float64) + 3.0
        self.taken = self.exchanges = 0

    @property
    def matrix(self) -> np.ndarray:
        return self.topology.at(self.exchanges)

    def gradient(self, turn: int, node: int, x: np.ndarray) -> np.ndarray:
        return -STEP * (x - self.goals[node] + self.noise[turn, node])

    def updates(self, models: torch.Tensor) -> torch.Tensor:
        rows = [self.gradient(self.taken, node, models[node].numpy()) for node in range(NODES)]
        self.taken += 1
        return torch.from_numpy(np.stack(rows))

    @property
    def said(self) -> Quadratics:
        return self

    @property
    def traffic(self) -> Quadratics:
        return self

    def weights(self, own: np.ndarray) -> np.ndarray:
        return own

    def drop_messages(self, pushed: np.ndarray) -> np.ndarray:
        return pushed

    def mix_values(self, values, about, *, matrix=None, trackers_at=None, vectors=1):
        matrix = self.matrix if matrix is None else matrix
        self.exchanges += 1
        return torch.from_numpy(matrix) @ values


def ours(spec: str, nodes: Quadratics) -> np.ndarray:
    system = load_registry().build("architecture", spec)
    assert isinstance(system, Gossip)
    return torch.stack(list(islice(system.models(nodes), ROUNDS))).numpy()


def mix(w: np.ndarray, x: list[np.ndarray]) -> list[np.ndarray]:
    return [sum(w[i, j] * x[j] for j in range(NODES)) for i in range(NODES)]


def plus(x, y, a=1.0):
    return [one + a * other for one, other in zip(x, y, strict=True)]


def gradients(nodes: Quadratics, turn: int, x: list[np.ndarray]) -> list[np.ndarray]:
    return [nodes.gradient(turn, i, x[i]) for i in range(NODES)]


def d_psgd(nodes, order):
    x, w = list(nodes.start.numpy()), nodes.topology.at(0)
    for turn in range(ROUNDS):
        u = gradients(nodes, turn, x)
        x = mix(w, plus(x, u)) if order == "adapt_first" else plus(mix(w, x), u)
        yield x


def d2(nodes):
    w, x0 = nodes.topology.at(0), list(nodes.start.numpy())
    u0 = gradients(nodes, 0, x0)
    x1 = mix(w, plus(x0, u0))
    yield x1
    for turn in range(1, ROUNDS):
        u1 = gradients(nodes, turn, x1)
        x2 = mix(w, [2 * x1[i] - x0[i] + u1[i] - u0[i] for i in range(NODES)])
        x0, x1, u0 = x1, x2, u1
        yield x1


def dsgt(nodes, order, leak=0.0):
    w, x = nodes.topology.at(0), list(nodes.start.numpy())
    u = gradients(nodes, 0, x)
    y = u
    for turn in range(1, ROUNDS + 1):
        x = mix(w, plus(x, y)) if order == "adapt_first" else plus(mix(w, x), y)
        yield x
        u_next = gradients(nodes, turn, x)
        change = plus(u_next, u, leak - 1)
        y = [(1 - leak) * one for one in y]
        y = mix(w, plus(y, change)) if order == "adapt_first" else plus(mix(w, y), change)
        u = u_next


def dsgt_at_once(nodes, leak=0.0):
    """As in Pu and Nedic: both vectors in one exchange, the tracker before its correction."""
    x, y = list(nodes.start.numpy()), None
    y = u = gradients(nodes, 0, x)
    for turn in range(1, ROUNDS + 1):
        w = nodes.topology.at(turn - 1)
        x, y = mix(w, plus(x, y)), mix(w, [(1 - leak) * one for one in y])
        yield x
        u_next = gradients(nodes, turn, x)
        y, u = plus(y, plus(u_next, u, leak - 1)), u_next


def sgp(nodes):
    """Push-sum with its numerators, as in the paper; each node halves what it has among itself and those that hear it."""
    x, w = list(nodes.start.numpy()), np.ones(NODES)
    for turn in range(ROUNDS):
        heard = nodes.topology.at(turn) != 0
        p = np.array([[heard[i, j] / heard[:, j].sum() for j in range(NODES)] for i in range(NODES)])
        z = [x[i] / w[i] for i in range(NODES)]
        x, w = mix(p, plus(x, gradients(nodes, turn, z))), p @ w
        yield [x[i] / w[i] for i in range(NODES)]


def chebyshev(w, x, times):
    values = np.linalg.eigvals(w)
    second = sorted(abs(values))[-2]
    c = (1 - sqrt(1 - second**2)) / (1 + sqrt(1 - second**2))
    before, now = x, x
    for _ in range(times):
        before, now = now, plus([(1 + c) * one for one in mix(w, now)], before, -c)
    return now


def mean_gradient(nodes, phase, x, times):
    rows = [gradients(nodes, phase * times + k, x) for k in range(times)]
    return [sum(row[i] for row in rows) / times for i in range(NODES)]


def detag(nodes, order, times):
    w, x = nodes.topology.at(0), list(nodes.start.numpy())
    u = mean_gradient(nodes, 0, x, times)
    y = u
    for phase in range(1, ROUNDS + 1):
        first = order == "adapt_first"
        x = chebyshev(w, plus(x, y), times) if first else plus(chebyshev(w, x, times), y)
        yield x
        u_next = mean_gradient(nodes, phase, x, times)
        change = plus(u_next, u, -1)
        y = chebyshev(w, plus(y, change), times) if first else plus(chebyshev(w, y, times), change)
        u = u_next


def defacto(nodes, times, plain=False):
    w, x = nodes.topology.at(0), list(nodes.start.numpy())
    for phase in range(ROUNDS):
        x = plus(x, mean_gradient(nodes, phase, x, times))
        if plain:
            for _ in range(times):
                x = mix(w, x)
        else:
            x = chebyshev(w, x, times)
        yield x


PAPERS: dict[str, Callable[[Quadratics], object]] = {
    "d_psgd": lambda nodes: d_psgd(nodes, "adapt_first"),
    "d_psgd(order='combine_first')": lambda nodes: d_psgd(nodes, "combine_first"),
    "d2": d2,
    "dsgt": lambda nodes: dsgt(nodes, "adapt_first"),
    "dsgt(order='combine_first')": lambda nodes: dsgt(nodes, "combine_first"),
    "dsgt(leak=0.2)": lambda nodes: dsgt(nodes, "adapt_first", 0.2),
    "dsgt(leak=0.2, order='combine_first')": lambda nodes: dsgt(nodes, "combine_first", 0.2),
    "dsgt(order='at_once')": dsgt_at_once,
    "dsgt(leak=0.2, order='at_once')": lambda nodes: dsgt_at_once(nodes, 0.2),
    "sgp": sgp,
    "detag(phase=3)": lambda nodes: detag(nodes, "adapt_first", 3),
    "detag(phase=3, order='combine_first')": lambda nodes: detag(nodes, "combine_first", 3),
    "defacto(phase=3)": lambda nodes: defacto(nodes, 3),
    "defacto(phase=3, plain=True)": lambda nodes: defacto(nodes, 3, plain=True),
}


@pytest.mark.parametrize("graph", ["ring", "torus", "star"])
@pytest.mark.parametrize("spec", PAPERS)
def test_it_is_its_formula(spec, graph):
    theirs = np.array(list(PAPERS[spec](Quadratics(graph, 0.5))))
    assert np.abs(ours(spec, Quadratics(graph, 0.5)) - theirs).max() < EXACT * np.abs(theirs).max()


@pytest.mark.parametrize("graph", ["directed_ring", "exponential", "one_peer_exponential"])
def test_sgp_is_its_formula_over_links_of_one_direction(graph):
    theirs = np.array(list(sgp(Quadratics(graph))))
    assert np.abs(ours("sgp", Quadratics(graph)) - theirs).max() < EXACT * np.abs(theirs).max()


def test_at_once_model_and_tracker_are_mixed_by_one_matrix():
    theirs = np.array(list(dsgt_at_once(Quadratics("one_peer_exponential"))))
    found = ours("dsgt(order='at_once')", Quadratics("one_peer_exponential"))
    assert np.abs(found - theirs).max() < EXACT * np.abs(theirs).max()


def server(nodes: Quadratics, times: int = 1) -> np.ndarray:
    x, found = nodes.start.numpy()[0], []
    for turn in range(ROUNDS):
        rows = [nodes.gradient(turn * times + k, i, x) for i in range(NODES) for k in range(times)]
        x = x + np.mean(rows, axis=0)
        found.append(x)
    return np.array(found)


def off(spec: str, graph: str = "complete", times: int = 1) -> float:
    """How far the nodes end from the synchronous server, over the way that it went."""
    theirs = server(Quadratics(graph), times)
    end = ours(spec, Quadratics(graph))[-1]
    return float(np.abs(end - theirs[-1]).max() / np.abs(theirs[-1] - 3.0).max())


@pytest.mark.parametrize("spec", ["d_psgd", "d2", "dsgt", "sgp", "defacto(phase=1)", "detag(phase=1)"])
def test_over_a_complete_graph_it_is_the_synchronous_server(spec):
    assert off(spec) < EXACT


@pytest.mark.parametrize("spec", ["d_psgd(order='combine_first')", "dsgt(order='combine_first')"])
def test_combine_first_is_not_the_server_even_over_a_complete_graph(spec):
    assert off(spec) > 0.01


def test_detag_in_one_step_is_dsgt():
    for order in ("adapt_first", "combine_first"):
        graph = "complete"
        detags, dsgts = (ours(f"{name}order='{order}')", Quadratics(graph)) for name in ("detag(phase=1, ", "dsgt("))
        assert np.abs(detags - dsgts).max() < EXACT * np.abs(dsgts).max()


@pytest.mark.parametrize(("leak", "left"), [(0.0, 1.0), (0.1, 0.9**10), (0.5, 0.5**10)])
def test_what_is_added_to_the_trackers_once_stays_unless_they_leak(leak, left):
    """After ten more rounds the mean of the trackers is off that of the updates by (1 - leak)^10 of what was added."""

    class Pushed(Quadratics):
        """Adds 1 to what one node sends as its tracker, in the first exchange of trackers."""

        pushed = False

        def mix_values(self, values, about, *, matrix=None, trackers_at=None, vectors=1):
            if trackers_at is not None:
                self.trackers = values + (torch.eye(NODES)[:, :1].double() if not self.pushed else 0)
                self.pushed, values = True, self.trackers
            return super().mix_values(values, about, matrix=matrix, trackers_at=trackers_at)

        def updates(self, models):
            self.last = super().updates(models)
            return self.last

    nodes = Pushed("ring", 0.5)
    system = load_registry().build("architecture", {"name": "dsgt", "leak": leak})
    list(islice(system.models(nodes), 12))  # eleven exchanges of trackers
    off = (nodes.trackers.mean(0) - nodes.last.mean(0))[0]
    assert float(off) == pytest.approx(left / NODES, rel=1e-6)


def test_alone_nobody_hears_anybody():
    nodes = Quadratics("none")
    found = ours("lone", nodes)
    x = list(nodes.start.numpy())
    for turn in range(ROUNDS):
        x = plus(x, gradients(nodes, turn, x))
    assert np.abs(found[-1] - np.array(x)).max() < EXACT


def test_unlike_nodes_stay_apart_under_d_psgd_and_meet_under_d2_and_tracking():
    """On quadratics without noise: the fixed point of D-PSGD depends on the node, and those of the two others do not."""
    apart = {}
    for spec in ("d_psgd", "d2(weight=0.5)", "dsgt"):
        nodes = Quadratics("ring", 0.5, spread=5.0)
        nodes.noise[:] = 0
        nodes.noise = np.zeros((2000, NODES, DIM))
        system = load_registry().build("architecture", spec)
        end = torch.stack(list(islice(system.models(nodes), 600)))[-1].numpy()
        apart[spec] = np.abs(end - nodes.goals.mean(0)).max()
    assert apart["d_psgd"] > 1
    assert apart["d2(weight=0.5)"] < 1e-6 and apart["dsgt"] < 1e-6
