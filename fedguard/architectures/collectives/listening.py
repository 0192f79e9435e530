"""The updates that some nodes of a collective can solve for, and their solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.collectives.leaks import read_by, trace_messages
from fedguard.architectures.collectives.schedule import Schedule, simulate_chunk
from fedguard.contracts import Listeners, RoundObservation, SolvedUpdate
from fedguard.privacy.determined import combinations


def neighbors(schedule: Schedule) -> NDArray[np.bool_]:
    """bool ``[n, n]``: whether node i (row) ever receives a message of node j."""
    found = np.zeros((schedule.nodes, schedule.nodes), bool)
    for step in schedule.steps:
        for message in step:
            found[message.to, message.source] = True
    return found


class CollectiveListeners(Listeners):
    """Nodes that pool the chunks they receive. All nodes train from one model, and end with one sum.

    Args:
        nodes: the observing nodes.
        weights: factor of each node's update.
        masked: whether chunks are masked, so that they have only the sum (see `fedguard.privacy.determined`).
        width: elements of a summed vector: d, and any further ones.
        dim: d.
    """

    def __init__(
        self, nodes: tuple[int, ...], schedule: Schedule, weights: Sequence[int], masked: bool, width: int, dim: int
    ) -> None:
        self.nodes, self._schedule, self._weights, self._masked = nodes, schedule, weights, masked
        self._width, self._dim = width, dim
        self._others = tuple(node for node in range(schedule.nodes) if node not in nodes)

    @cached_property
    def _shares(self) -> Mapping[int, float]:
        found = read_by(self._schedule, self.nodes, self._masked)
        return {node: float(share) for node, share in found.items()}

    def reads(self, round: int) -> Mapping[int, float]:
        """See `Listeners.reads`: the share of chunks, the same in every round."""
        return self._shares

    def sum_of(self, round: int) -> tuple[int, ...]:
        """All other nodes: the observers have the sum of all, and their own updates."""
        return self._others if len(self._others) > 1 else ()

    def solve_update(self, watched: Sequence[RoundObservation], round: int, behind: tuple[int, ...]) -> SolvedUpdate:
        """See `Listeners.solve_update`; the mean of all others is weighted."""
        one = watched[round - 1]
        if len(behind) > 1 or self._masked:
            return SolvedUpdate(behind, one.sent.model, self._of_sum(one, behind))
        (node,) = behind
        found, known = torch.zeros(self._width, dtype=torch.float64), torch.zeros(self._width, dtype=torch.bool)
        for chunk, cut in enumerate(self._schedule.cuts(self._width)):
            part = self._of_chunk(chunk, self._parts(one, cut), node)
            if part is not None:
                found[cut], known[cut] = part, True
        update = (found[: self._dim] / self._weights[node]).to(one.sent.updates.dtype)
        return SolvedUpdate(behind, one.sent.model, update, known[: self._dim])

    def _of_chunk(self, chunk: int, parts: list[Tensor], node: int) -> Tensor | None:
        said: list[Tensor] = []
        simulate_chunk(
            self._schedule,
            chunk,
            parts,
            on_message=lambda message, value: said.append(value) if message.to in self.nodes else None,
        )
        rows = np.array(
            [row for message, row in trace_messages(self._schedule, chunk) if message.to in self.nodes], np.float64
        )
        made, there = combinations(rows, np.eye(len(parts))[[node]], self.nodes)
        if not there[0]:
            return None
        own = torch.from_numpy(rows[:, list(self.nodes)]) @ torch.stack([parts[one] for one in self.nodes]).double()
        answer: Tensor = torch.from_numpy(made[0]) @ (torch.stack(said).double() - own)
        return answer

    def _parts(self, one: RoundObservation, cut: slice) -> list[Tensor]:
        """Input of each node for a chunk; a last element after the coordinates is its weight."""
        found = []
        for node, weight in enumerate(self._weights):
            whole = torch.cat(
                [one.sent.updates[one.sent.senders.index(node)] * weight, torch.full((1,), float(weight))]
            )
            found.append(whole[cut])
        return found

    def _of_sum(self, one: RoundObservation, behind: tuple[int, ...]) -> Tensor:
        own = sum(self._weights[node] * one.sent.updates[one.sent.senders.index(node)].double() for node in self.nodes)
        total = sum(self._weights) * one.rows[0].double() - own
        return (total / sum(self._weights[node] for node in behind)).to(one.sent.updates.dtype)
