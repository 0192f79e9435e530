"""Plain text of objects that rich renders on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.console import Console
from rich.table import Table
from rich.text import Text


class Printed:
    """Base of classes that rich can render: ``str()`` is the same without colors."""

    #: Columns of the text.
    columns: ClassVar[int] = 160

    def __str__(self) -> str:
        console = Console(width=self.columns, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()


def lines(meanings: Mapping[str, str]) -> Table:
    """A line for each name with its meaning, cut at the width of the terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=max(map(len, meanings), default=0))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for name, meaning in meanings.items():
        table.add_row(Text(name, "bold"), Text(meaning))
    return table
