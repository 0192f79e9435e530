"""Runs as a static site: each page of each run as one HTML file, linked to each other, to be opened without network."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from fedguard.app.report.document import html_file
from fedguard.bench.pages.blocks import Action, Verdict
from fedguard.bench.pages.elements import Cell, el, table
from fedguard.bench.pages.html import render_html
from fedguard.bench.pages.page import PAGES, page
from fedguard.bench.pages.trained import describe_training
from fedguard.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run

#: Identifies a file of a site
MARK = '<meta name="generator" content="FedGuard site">'
#: Most files of a run; the views with the fewest choices come first
MOST = 500

#: A page with the reader's choices, each a key and its value
View = tuple[str, tuple[tuple[str, str], ...]]


def site(
    runs: Sequence[Run], folder: str | Path, *, force: bool = False, written: Callable[[str, int], None] | None = None
) -> int:
    """Write runs as a static site, with all views that its links and choices lead to.

    Args:
        folder: a new folder, an empty one, or with ``force`` one with an earlier site.
        written: called after each file with the name of the run and its number of files so far.

    Returns:
        number of views that were left out, since a run has at most `MOST` files.

    Raises:
        MissingExtra: vl-convert is not installed.
        StoreError: the folder has other files, or cannot be written.
    """
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtra("the site", "vl-convert-python", "dashboard") from None
    path, left_out = Path(folder), 0
    try:
        _prepare(path, force)
        for run in runs:
            (path / run.name).mkdir(exist_ok=True)
            left_out += _write_run(run, path / run.name, written)
        (path / "index.html").write_bytes(_index(runs))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None
    return left_out


def _prepare(path: Path, force: bool) -> None:
    """Make the folder, and remove the files of an earlier site in it."""
    files = [one for one in path.rglob("*") if not one.is_dir()] if path.exists() else []
    if strangers := [one for one in files if one.suffix != ".html" or MARK.encode() not in one.read_bytes()[:500]]:
        raise StoreError(
            f"{path}: expected a new folder, or one with a site alone; it has {strangers[0].name}. Choose another."
        )
    if files and not force:
        raise StoreError(f"{path}: there is a site already. Choose another folder, or write over it with --force.")
    for one in files:
        one.unlink()
    path.mkdir(parents=True, exist_ok=True)


def _write_run(run: Run, folder: Path, written: Callable[[str, int], None] | None) -> int:
    """Write the views of a run; returns how many are left out."""
    views: list[View] = [(name, ()) for name in PAGES]
    left_out: set[View] = set()

    def find(view: View, action: Action) -> str | None:
        """The file that an action of this view opens; it joins the views if there is room."""
        name = action.page or view[0]
        choices = {**dict(view[1] if not action.page else ()), **action.query}
        other = (name, tuple(sorted(choices.items())))
        if name not in PAGES:
            return None
        if other not in views:
            if len(views) >= MOST:
                left_out.add(other)
                return None
            views.append(other)
        return _file(other)

    for number, view in enumerate(views, 1):
        content = render_html(page(view[0]).blocks(run, dict(view[1])), partial(find, view))
        body = el("body", _navigation(run.name, view[0]), el("main", *content))
        title = f"{page(view[0]).title}: {run.name}"
        (folder / _file(view)).write_bytes(html_file(title, MARK, body))
        if written:
            written(run.name, number)
    return len(left_out)


def _file(view: View) -> str:
    name, choices = view
    return f"{name}.html" if not choices else f"{name}-{sha256(json.dumps(choices).encode()).hexdigest()[:12]}.html"


def _navigation(run: str, current: str) -> Element:
    entries = [el("li", el("a", page(name).title, href=_file((name, ())))) for name in PAGES]
    entries[PAGES.index(current)][0].set("aria-current", "page")
    where = el("p", el("a", "Runs", href="../index.html"), f" / {run}")
    return el("nav", where, el("ol", *entries), class_="pages", aria_label="Pages")


def _index(runs: Sequence[Run]) -> bytes:
    rows: list[list[Cell]] = []
    for run in runs:
        verdict = next(block for block in page("overview").blocks(run, {}) if isinstance(block, Verdict))
        rows.append([el("a", run.name, href=f"{run.name}/overview.html"), verdict.headline, describe_training(run)])
    made = table("The runs of this site", ["run", "verdict", "what was trained"], rows, "lll")
    return html_file("FedGuard: runs", MARK, el("body", el("header", "FedGuard"), el("main", el("h1", "Runs"), made)))
