"""The matrices of the metrics shown by default, as a picture."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from fedguard.bench.results.matrix import Matrix
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError
from fedguard.metrics.figures import default_figures


def matrices(run: Run) -> Iterator[Matrix]:
    """The metrics shown by default that any trial has; the final accuracy if no trial has run."""
    held = run.figures or [run.score]
    for figure in default_figures("show"):
        if figure != "attack_success" and figure in held:
            yield run.table(figure)
    if "attack_success" in held:
        backdoors = run.table("attack_success")
        kept = {
            block: {attack: row for attack, row in rows.items() if any(entry.estimate for entry in row.values())}
            for block, rows in backdoors.blocks.items()
        }
        yield Matrix(backdoors.title, backdoors.figure, backdoors.defenses, kept)


def write_svg(tables: Sequence[Matrix], path: Path) -> None:
    """Write matrices as a picture.

    Raises:
        StoreError: the file cannot be written.
    """
    wide = Console(record=True, width=max(table.width for table in tables), file=io.StringIO(), force_terminal=True)
    for table in tables:
        wide.print(table)
    # Rich has its pictures load a font from the network; a picture of ours does not.
    picture = re.sub(r"@font-face \{.*?\}", "", wide.export_svg(title="FedGuard"), flags=re.DOTALL)
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None
