"""One run as one HTML file, readable without network and without JavaScript: `fedguard report RUN --to FILE.html`.

document.py     the page around the sections: head, policy, style, contents
style.py        how it looks on light and dark, and printed
sections.py     which sections there are, in their order; overview, matrix, privacy and gate are pages (`fedguard.bench.pages`),
                and each other one turns a run into elements: facts.py, threats.py, costs.py, reading.py
records.py      the completed trials of a run
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedguard.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run

#: Identifies a report
MARK = '<meta name="generator" content="FedGuard report">'


def report(run: Run, html: str | Path, *, force: bool = False) -> None:
    """Write a run as one HTML file with its charts in it, which needs no network.

    Args:
        html: the file.
        force: write over an existing file.

    Raises:
        MissingExtra: altair or vl-convert is not installed.
        StoreError: the file cannot be written, or exists and is not to be overwritten.
    """
    from fedguard.arguments import of_kind, path_like, truth
    from fedguard.bench.records.store import is_stored
    from fedguard.bench.results.run import Run

    of_kind(run, "run", Run, "a Run, as fedguard.open_run gives")
    path_like(html, "html")
    truth(force, "force")
    path = Path(html)
    try:
        if is_stored(path):
            raise StoreError(f"{path}: expected a file of your own; a run is stored in it. Choose another.")
        if path.is_file() and not force:
            raise StoreError(f"{path} is there already. Choose another file, or write over it with force=True.")
        path.write_bytes(render_report(run))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None


def render_report(run: Run) -> bytes:
    """The report of a run in UTF-8.

    Raises:
        MissingExtra: altair or vl-convert is not installed.
    """
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtra("the report", "vl-convert-python", "dashboard") from None
    from fedguard.app.report.document import document
    from fedguard.app.report.sections import SECTIONS

    return document(run.name, MARK, SECTIONS, run)
