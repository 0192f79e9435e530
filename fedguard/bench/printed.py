"""What prints on a terminal prints as text as well."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console


class Printed:
    """Base of what rich can render: ``str()`` is the same without colours."""

    #: Columns of the text.
    columns: ClassVar[int] = 160

    def __str__(self) -> str:
        console = Console(width=self.columns, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()
