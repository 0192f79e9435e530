"""What a cell puts to attacks and defenses: a training that FedGuard composes, or an app of other people."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from fedguard.config.cells import Cell
    from fedguard.config.schema import CellConfig
    from fedguard.contracts import Sight

#: The defense that is an app's own strategy, whatever it does.
OWN = "own"


class Target(ABC):
    """What differs in a cell by what is put to the test. How its trials run, `fedguard.bench.running.procedures` says.

    Attributes:
        undefended: the defense that others are held against.
        silences: whether malicious clients can be made to send nothing, which tells lost data from harm.
    """

    undefended: ClassVar[str]
    silences: ClassVar[bool]

    @abstractmethod
    def check(self, config: CellConfig) -> None:
        """Raises ValueError if settings of the cell have no meaning here."""

    @abstractmethod
    def reasons(self, cell: Cell, rule_sees: Sight) -> Iterator[str]:
        """Why the cell may not run, apart from what its two sides may see."""

    @abstractmethod
    def canonical(self, cell: Cell) -> dict[str, Any]:
        """What JSON can hold, every default spelled out; see `Cell.canonical`."""

    def files(self) -> Mapping[str, Sequence[Path]]:
        """Files of other people that are run, beside plug-ins, by the name under which a record keeps their digest."""
        return {}
