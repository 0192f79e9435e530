"""What a cell evaluates: a training that FedGuard composes, or an existing app."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from fedguard.config.cells import Cell
    from fedguard.config.schema import CellConfig
    from fedguard.contracts import Sight

#: The defense that is an app's own strategy, whatever it does
OWN = "own"


class Target(ABC):
    """What differs between cells by the evaluated training. `fedguard.bench.running.procedures` runs their trials.

    Attributes:
        undefended: the defense with which others are compared.
        silences: whether malicious clients can be made to send nothing, which separates lost data from harm.
    """

    undefended: ClassVar[str]
    silences: ClassVar[bool]

    @abstractmethod
    def check(self, config: CellConfig) -> None:
        """Raise ValueError if settings of the cell have no meaning here."""

    @abstractmethod
    def reasons(self, cell: Cell, rule_sees: Sight) -> Iterator[str]:
        """Why the cell may not run, apart from what its rule and its attack may see."""

    @abstractmethod
    def canonical(self, cell: Cell) -> dict[str, Any]:
        """The content of `Cell.canonical`: values that JSON can hold, with every default spelled out."""

    def files(self) -> Mapping[str, Sequence[Path]]:
        """Files beside plug-ins that are executed, by the name under which a record stores their digest."""
        return {}
