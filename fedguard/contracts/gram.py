"""The Gram matrix of a round: all that a weight rule or a mixing may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedguard.errors import ContractError

#: Squared distances below this share of the squares that they are the difference of are rounding of float64.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Gram:
    """Inner products of the rows of a round about a common reference point c.

    The rows are the n updates, then the rule's own anchors (a previous aggregate, the server's root update), then the origin.
    Each map that a rule makes is affine: it takes a row to a combination of rows with weights that sum to one, where the origin
    takes the rest. Distances do not depend on c, and a ``c`` close to the bulk of the rows keeps close rows distinct in
    float32.

    Attributes:
        compute: makes `inner`; called at most once, and only for rules that use it.
        n: number of updates.
        anchors: names of the rows between the updates and the origin.
        material: makes `vectors`; called at most once.
        measure: distances of the updates from an anchor or from the origin, in one pass without all inner products.
        project: makes `projections`; called at most once, and only for rules that use `order`.
    """

    compute: Callable[[], Tensor]
    n: int
    anchors: tuple[str, ...] = ()
    material: Callable[[], Tensor] | None = None
    measure: Callable[[str], Tensor] | None = None
    project: Callable[[], Tensor] | None = None

    @cached_property
    def inner(self) -> Tensor:
        """float64 ``[k, k]``: ``(r_i - c) . (r_j - c)``, with ``k = n + len(anchors) + 1``."""
        return self.compute()

    @cached_property
    def vectors(self) -> Tensor:
        """float32 ``[n, d]``: the updates themselves, read-only.

        For the few filters that use signs, layers or losses, which inner products do not determine. After a mixing it is the
        mixed matrix, which costs the memory of a second one.
        """
        if self.material is None:
            raise ContractError("the updates themselves are not at hand here; only their inner products are.")
        return self.material()

    @cached_property
    def projections(self) -> Tensor:
        """float64 ``[n]``: the updates along one random direction: equal for equal rows, whatever their positions."""
        return torch.zeros(self.n, dtype=torch.float64) if self.project is None else self.project()

    @cached_property
    def order(self) -> Tensor:
        """int64 ``[n]``: the updates in an order that depends on their values and on a random draw, not on their positions.

        For ties that a rule cannot split. In hypothetical rounds, which have no rows of vectors, it is the order of the rows.
        """
        return self.projections.argsort(stable=True)

    @property
    def rows(self) -> int:
        """k, the number of rows: updates, anchors and the origin."""
        return self.n + len(self.anchors) + 1

    def unit(self, row: int | str) -> Tensor:
        """float64 ``[k]``: the affine weights that pick one row, by index or by anchor name (``"origin"`` is the last)."""
        weights = torch.zeros(self.rows, dtype=torch.float64)
        if isinstance(row, str):
            row = self.rows - 1 if row == "origin" else self.n + self.anchors.index(row)
        weights[row] = 1
        return weights

    def about(self, point: Tensor) -> Tensor:
        """float64 ``[n, n]``: inner products of the updates about the affine combination ``point`` (float64 ``[k]``)."""
        shift = self.inner[: self.n] @ point
        return self.inner[: self.n, : self.n] - shift[:, None] - shift[None, :] + point @ self.inner @ point

    def products(self) -> Tensor:
        """float64 ``[n, n]``: the plain inner products ``x_i . x_j`` of the updates."""
        return self.about(self.unit("origin"))

    def distances_squared(self) -> Tensor:
        """float64 ``[n, n]``: ``|x_i - x_j|^2``, exactly 0 on the diagonal and where nothing but rounding keeps rows apart."""
        inner = self.inner[: self.n, : self.n]
        square = inner.diagonal()
        sums = square[:, None] + square[None, :]
        apart = sums - 2 * inner
        return torch.where(apart > ROUNDING * sums, apart, 0.0).fill_diagonal_(0)

    def distances_to(self, point: Tensor | str) -> Tensor:
        """float64 ``[n]``: ``|x_i - p|`` for an anchor's name, or for the affine combination p (float64 ``[k]``).

        A rule that asks for names alone never makes the Gram matrix.
        """
        if isinstance(point, str) and self.measure is not None and "inner" not in self.__dict__:
            return self.measure(point)
        weights = self.unit(point) if isinstance(point, str) else point
        square = self.inner.diagonal()[: self.n] - 2 * self.inner[: self.n] @ weights + weights @ self.inner @ weights
        return square.clamp(min=0).sqrt()

    def norms(self) -> Tensor:
        """float64 ``[n]``: the length ``|x_i|`` of each update."""
        return self.distances_to("origin")

    def products_with(self, anchor: str) -> Tensor:
        """float64 ``[n]``: the plain inner products ``x_i . a`` with an anchor a."""
        origin = self.unit("origin")
        return (self.inner[: self.n] - origin @ self.inner) @ (self.unit(anchor) - origin)

    def affine(self, weights: Tensor) -> Tensor:
        """float64 ``[..., k]``: weights on the updates (or on updates and anchors), with the rest on the origin."""
        lacking = self.rows - 1 - weights.shape[-1]
        if lacking not in (0, len(self.anchors)):
            raise ContractError(
                f"expected weights on {self.n} updates (or on those and {len(self.anchors)} anchors); got {weights.shape[-1]}."
            )
        padded = torch.nn.functional.pad(weights.double(), (0, lacking + 1))
        padded[..., -1] = 1 - padded[..., :-1].sum(-1)
        return padded

    def mix(self, matrix: Tensor) -> Gram:
        """The Gram matrix of the rows ``matrix @ X`` (``matrix`` float64 ``[m, n]``), with the same anchors and origin."""
        fixed = torch.eye(self.rows, dtype=torch.float64)[self.n :]
        change = torch.cat([self.affine(matrix), fixed])
        material = None if self.material is None else lambda: matrix.to(self.vectors.dtype) @ self.vectors
        project = None if self.project is None else lambda: matrix @ self.projections
        return Gram(lambda: change @ self.inner @ change.T, len(matrix), self.anchors, material, project=project)
