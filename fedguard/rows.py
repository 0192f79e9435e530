"""What a pipeline aggregates: n rows, of which it asks for inner products, weighted sums and blocks of coordinates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedguard.errors import InputError
from fedguard.kernels import combine_rows, distances_from, gram_matrix, projections, walk
from fedguard.memmap import is_mapped

#: A rule by coordinates, applied to a block ``[n, b]``: ``[b]``
Reduce = Callable[[Tensor], Tensor]


class Rows(ABC):
    """The rows of a round, in whatever form they lie; nothing here changes them.

    Attributes:
        updates: float32 ``[n, d]``: what the clients sent. Its rows need not be what inner products are of.
    """

    def __init__(self, updates: Tensor) -> None:
        self.updates = updates

    @abstractmethod
    def products(self, others: Sequence[Tensor]) -> Tensor:
        """float64 ``[k, k]``: inner products of rows, ``others`` (float32 ``[d]`` each) and the origin, about a point."""

    @abstractmethod
    def distances(self, point: Tensor | None) -> Tensor:
        """float64 ``[n]``: ``|x_i - p|`` for a point p (float32 ``[d]``), or the lengths ``|x_i|``."""

    @abstractmethod
    def projections(self, draw: torch.Generator) -> Tensor:
        """float64 ``[n]``: the rows along one random direction."""

    @abstractmethod
    def whole(self, asks: str) -> Tensor:
        """float32 ``[n, d]``: all rows as one matrix in memory, for the stages ``asks`` that need it.

        Raises:
            InputError: there is no such matrix.
        """

    @abstractmethod
    def combine(self, weights: Tensor) -> Tensor:
        """float32 ``[d]``: what the server adds to the model for the weighted sum of the rows (weights ``[n]``)."""

    @abstractmethod
    def reduce(self, rule: Reduce, mixed: Tensor | None) -> Tensor:
        """float32 ``[d]``: what the server adds to the model for a rule by coordinates.

        Args:
            rule: applied to blocks that it may sort in place, stored column by column.
            mixed: float64 ``[m, n]``: the rows are mixed by it first, block by block; None for none.
        """


class VectorRows(Rows):
    """Rows that are the updates themselves."""

    def products(self, others: Sequence[Tensor]) -> Tensor:
        return gram_matrix(self.updates, others)

    def distances(self, point: Tensor | None) -> Tensor:
        return distances_from(self.updates, point)

    def projections(self, draw: torch.Generator) -> Tensor:
        return projections(self.updates, draw)

    def whole(self, asks: str) -> Tensor:
        if is_mapped(self.updates):
            raise InputError(
                f"'{asks}' reads the updates as a whole; these lie in a memory-mapped file, which is read in blocks. "
                "Raise the memory, load the file, or take a rule by weights or coordinates, such as krum or median."
            )
        return self.updates

    def combine(self, weights: Tensor) -> Tensor:
        return combine_rows(self.updates, weights)

    def reduce(self, rule: Reduce, mixed: Tensor | None) -> Tensor:
        updates = self.updates
        mix = None if mixed is None else mixed.to(updates.dtype).to(updates.device).T
        rows = len(updates) if mix is None else mix.shape[1]
        vector = torch.empty(updates.shape[1], dtype=updates.dtype, device=updates.device)
        scratch = torch.empty(0, dtype=updates.dtype, device=updates.device)
        for block in walk(updates, rows):
            # One scratch for all blocks, stored column by column: rules sort it in place and cannot reach the updates
            columns = scratch.resize_(block.stop - block.start, rows)
            if mix is None:
                columns.copy_(updates[:, block].T)
            else:
                torch.mm(updates[:, block].T, mix, out=columns)
            vector[block] = rule(columns.T)
        return vector
