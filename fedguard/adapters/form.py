"""What clients send of low-rank adapters, and what the server makes of it: the contract of the forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fedguard.adapters.layers import add_adapters
from fedguard.adapters.pairs import NAMES, AdapterPair, find_pairs
from fedguard.contracts import Architecture, Cell, PositiveFloat, PositiveInt
from fedguard.contracts.algorithm import Algorithm
from fedguard.errors import ConfigError
from fedguard.rows import Rows, VectorRows


@dataclass(frozen=True, kw_only=True)
class AdapterForm(Algorithm):
    """Low-rank adapters: a layer with a frozen weight W computes $W x + s B A x$, with $s = alpha / rank$.

    Args:
        rank: r of the adapters that are put beside the linear layers of the network; null for a network that brings its own.
        alpha: of the constant in front of B A; null for the rank, so that it is 1. Not for a network's own adapters.
        targets: linear layers that get an adapter, by their names or the last parts of these; all but the last if empty. The
            last linear layer is trained as a whole, and everything else is frozen.
        names: what the factors A and B are called in a network's own adapters, as parts of the names of its parameters.
    """

    kind: ClassVar[str] = "adapters"
    #: What clients send and the server aggregates, a sentence for `fedguard check`
    words: ClassVar[str]
    #: Whether a rule sees products of factors, which have no coordinates among those that are sent
    of_products: ClassVar[bool] = False

    rank: PositiveInt | None = None
    alpha: PositiveFloat | None = None
    targets: tuple[str, ...] = ()
    names: tuple[str, str] = NAMES

    def adapt(self, module: nn.Module) -> nn.Module:
        """The network with its adapters; only what the form sends of it requires a gradient.

        Raises:
            ConfigError: the network has no adapters and gets none, or has its own and would get others.
        """
        own = find_pairs(module, self.names)
        if self.rank is None:
            self._check_own(own)
        elif own:
            raise ConfigError(
                f"training.adapters: rank: the network has {len(own)} adapters of its own; got {self.rank}. Leave rank out."
            )
        else:
            add_adapters(module, self.rank, (self.alpha or self.rank) / self.rank, self.targets)
        self.freeze(module)
        return module

    def find_pairs(self, module: nn.Module) -> tuple[AdapterPair, ...]:
        """The adapters of a network that was built with this form."""
        return find_pairs(module, self.names if self.rank is None else NAMES)

    def freeze(self, module: nn.Module) -> None:
        """Freeze what the form never sends; nothing by default."""

    def reasons(self, cell: Cell, architecture: Architecture) -> Iterator[str]:
        """Why it may not run in a cell of an architecture: a line for each reason."""
        return iter(())

    def rows(self, module: nn.Module, model: Tensor, updates: Tensor) -> Rows:
        """The rows that the server aggregates.

        Args:
            module: the network.
            model: float32 ``[d]``, from which the clients trained.
            updates: float32 ``[n, d]``.
        """
        return VectorRows(updates)

    def bias(self, module: nn.Module, model: Tensor, updates: Tensor) -> float | None:
        """How far the server's adapter is from the mean of the clients' (`factor_bias`); None for a form without this error."""
        return None

    def _check_own(self, own: tuple[AdapterPair, ...]) -> None:
        if not own:
            raise ConfigError(
                f"training.adapters: the network has no parameters named {self.names[0]} and {self.names[1]}. Set rank, to put "
                "adapters beside its linear layers, or say in names how its factors are named."
            )
        if self.alpha is not None or self.targets:
            raise ConfigError(
                "training.adapters: alpha and targets are of adapters that are put beside layers, and the network has its own: "
                "a layer's attribute scaling is alpha / rank. Leave them out."
            )
