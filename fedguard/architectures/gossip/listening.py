"""What some nodes of a graph can solve for from the messages they receive: the algorithm on symbols, then on numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Listeners, RoundObservation, SentRound, Setup, SolvedUpdate
from fedguard.privacy.determined import combinations
from fedguard.simulated.topology import Topology

Matrix = NDArray[np.float64]


class Symbols:
    """The interface of `Nodes` on combinations of unknowns instead of vectors.

    A value is a row over the unknowns: the common first model, the update of each node in each round, and the result of each
    rule that is not a sum. In a round of several trainings their mean is one unknown.

    Args:
        rounds: number of rounds.
        exchanges: largest number of exchanges in a round, if the rule is not a sum by the graph's weights; 0 if it is.

    Attributes:
        start: float64 ``[n, U]``.
        values: for each exchange its round, its weights, and what each node sent, float64 ``[n, U]``.
        models: for each round, what each node trained from, float64 ``[n, U]``.
    """

    def __init__(self, topology: Topology, rounds: int, exchanges: int = 0) -> None:
        n = topology.nodes
        self.topology, self._rounds, self._linear, self._round = topology, rounds, not exchanges, 0
        self.start = torch.zeros(n, 1 + n * rounds * (1 + exchanges), dtype=torch.float64)
        self.start[:, 0] = 1
        self.values: list[tuple[int, Matrix, Tensor]] = []
        self.models: list[Tensor] = []

    def begin(self, round: int) -> None:
        """A round begins (from 1)."""
        self._round = round

    @property
    def matrix(self) -> Matrix:
        """As of `Nodes`."""
        return self.topology.at(len(self.values))

    @property
    def said(self) -> Symbols:
        """As of `Nodes`; nobody lies."""
        return self

    def weights(self, own: Matrix) -> Matrix:
        """As of `SelfReports`: push-sum weights."""
        return own

    def drop_messages(self, matrix: Matrix) -> Matrix:
        """What the network leaves of an exchange: all of it."""
        return matrix

    def updates(self, models: Tensor) -> Tensor:
        """As of `Nodes`."""
        if len(self.models) < self._round:
            self.models.append(models)
        return self._fresh(self._round - 1)

    def mix_values(
        self,
        values: Tensor,
        about: Tensor,
        *,
        matrix: Matrix | None = None,
        trackers_at: Tensor | None = None,
        vectors: int = 1,
    ) -> Tensor:
        """As of `Nodes`; the result of a rule that is not a sum is a new unknown."""
        matrix = self.matrix if matrix is None else matrix
        self.values.append((self._round, matrix, values))
        if self._linear:
            return torch.from_numpy(matrix) @ values
        return self._fresh(self._rounds + len(self.values) - 1)

    def _fresh(self, block: int) -> Tensor:
        n = self.topology.nodes
        rows = torch.zeros_like(self.start)
        rows[:, 1 + n * block : 1 + n * (block + 1)] = torch.eye(n, dtype=torch.float64)
        return rows


def sources(matrix: Matrix, node: int) -> list[int]:
    """The nodes from which a node receives, in order."""
    return [int(other) for other in np.flatnonzero(matrix[node]) if other != node]


def messages(values: Tensor, matrix: Matrix, nodes: Collection[int], summed: bool) -> Iterator[Tensor]:
    """What these nodes receive in an exchange, in order: each value, or for each node their weighted sum."""
    for node in sorted(nodes):
        heard = sources(matrix, node)
        if summed and heard:
            yield torch.from_numpy(matrix[node, heard]).to(values.dtype) @ values[heard]
        elif not summed:
            yield from values[heard]


class Eavesdropper:
    """What observing nodes receive, round by round, and the true values of what they try to find out.

    Args:
        summed: whether they receive sums only, through `hear_sum`.
    """

    def __init__(self, setup: Setup, summed: bool) -> None:
        assert setup.observer is not None
        self._observer, self._summed, self._round = setup.observer, summed, 0
        self._received: list[Tensor] = []
        self._models, self._rows = torch.empty(0), list[Tensor]()

    def begin(self, round: int) -> None:
        """A round begins (from 1)."""
        self._round, self._received, self._rows = round, [], []

    def record_updates(self, models: Tensor, rows: Tensor) -> None:
        """All nodes have trained from these models, and move by these rows."""
        if self._observer.watches(self._round):
            self._models, self._rows = models.clone(), [*self._rows, rows.clone()]

    def hear(self, values: Tensor, matrix: Matrix) -> None:
        """All nodes have sent these values."""
        if self._observer.watches(self._round):
            self._received += [one.clone() for one in messages(values, matrix, self._observer.seat, False)]

    def hear_sum(self, node: int, summed: Tensor) -> None:
        """A node has the weighted sum of its neighbors' values; called in the order of the nodes."""
        if self._observer.watches(self._round) and node in self._observer.seat:
            self._received.append(summed.clone())

    def observe_round(self, after: Tensor) -> tuple[RoundObservation, ...]:
        """The round with the received messages, if it is watched.

        Args:
            after: float32 ``[n, d]``: the nodes' models at its end.
        """
        if not self._observer.watches(self._round):
            return ()
        own, n = self._observer.seat[0], len(after)
        observed = RoundObservation(
            SentRound(self._round, self._models[own], torch.stack(self._rows).mean(0), tuple(range(n))),
            after=after[own].clone(),
            behind=tuple((node,) for node in range(n)),
            rows=after[:0],
            aggregate=None,
            models=self._models,
            heard=torch.stack(self._received) if self._received else after[:0],
        )
        return (observed,)


class GossipListeners(Listeners):
    """Nodes of a graph that pool the messages they receive.

    They know their own updates, the first model, and the weights of the graph. The result of a rule that is not a sum is
    unknown to them.

    Args:
        symbols: symbols of a training with all the rounds in which they listen.
        summed: whether they receive only weighted sums of their neighbors' values.
    """

    def __init__(self, nodes: tuple[int, ...], symbols: Symbols, summed: bool) -> None:
        self.nodes, self._symbols, self._n = nodes, symbols, symbols.topology.nodes
        rows = [row for _, matrix, values in symbols.values for row in messages(values, matrix, nodes, summed)]
        self._rows: Matrix = torch.stack(rows).numpy() if rows else np.zeros((0, symbols.start.shape[1]))
        self._rounds = len(symbols.models)
        self._own = [(round, node) for round in range(1, self._rounds + 1) for node in nodes]
        self._known = [0, *(self._column(round, node) for round, node in self._own)]

    def reads(self, round: int) -> Mapping[int, float]:
        """See `Listeners.reads`: whole updates, or nothing."""
        return {node: 1.0 for at, node in self._read if at == round}

    def sum_of(self, round: int) -> tuple[int, ...]:
        """Neighbors of an observer that do not observe themselves, if the observers can solve for the sum of their updates."""
        for node in self.nodes:
            behind = self._beside(node)
            if len(behind) > 1 and self._solvable(round, behind).all():
                return behind
        return ()

    def solve_update(self, watched: Sequence[RoundObservation], round: int, behind: tuple[int, ...]) -> SolvedUpdate:
        """See `Listeners.solve_update`; the mean of several is by the graph's weights."""
        wanted = self._build_targets(round, behind)
        made, there = combinations(self._rows, wanted, self._known)
        assert there.all()
        known = torch.stack([_start(watched), *(watched[at - 1].sent.updates[node].double() for at, node in self._own)])
        heard = torch.cat([_require_messages(one) for one in watched]).double()
        rest = heard - torch.from_numpy(self._rows[:, self._known]) @ known
        found = torch.from_numpy(made) @ rest + torch.from_numpy(wanted[:, self._known]) @ known
        update, model = found.to(watched[0].after.dtype)
        return SolvedUpdate(behind, model, update)

    @cached_property
    def _read(self) -> tuple[tuple[int, int], ...]:
        """Round and node of each update that the observers can solve for."""
        rounds, others = range(1, self._rounds + 1), sorted(set(range(self._n)) - set(self.nodes))
        single = [(round, node) for round in rounds for node in others]
        wanted = np.concatenate([self._build_targets(round, (node,)) for round, node in single])
        there = combinations(self._rows, wanted, self._known)[1].reshape(-1, 2)
        return tuple(one for one, found in zip(single, there, strict=True) if found.all())

    def _solvable(self, round: int, behind: tuple[int, ...]) -> NDArray[np.bool_]:
        models = self._symbols.models[round - 1][list(behind)]
        if not bool((models == models[0]).all()):
            return np.zeros(2, bool)
        return combinations(self._rows, self._build_targets(round, behind), self._known)[1]

    def _build_targets(self, round: int, behind: tuple[int, ...]) -> Matrix:
        """float64 ``[2, U]``: the update, or the mean of several, and the model that it was trained from."""
        found = np.zeros((2, self._rows.shape[1]))
        shares = self._shares(behind)
        for node, share in zip(behind, shares, strict=True):
            found[0, self._column(round, node)] = share
        found[1] = self._symbols.models[round - 1][behind[0]].numpy()
        return found

    def _shares(self, behind: tuple[int, ...]) -> Matrix:
        """Weights of these nodes in the sum that an observer has of them."""
        if len(behind) == 1:
            return np.ones(1)
        node = next(node for node in self.nodes if self._beside(node) == behind)
        weights = self._symbols.topology.at(0)[node, list(behind)]
        return np.asarray(weights / weights.sum(), np.float64)

    def _beside(self, node: int) -> tuple[int, ...]:
        return tuple(one for one in sources(self._symbols.topology.at(0), node) if one not in self.nodes)

    def _column(self, round: int, node: int) -> int:
        return 1 + self._n * (round - 1) + node


def _start(watched: Sequence[RoundObservation]) -> Tensor:
    models = watched[0].models
    assert models is not None
    return models[0].double()


def _require_messages(one: RoundObservation) -> Tensor:
    assert one.heard is not None
    return one.heard
