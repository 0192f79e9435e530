"""Pictures of every page, and what axe-core finds on it: ``python -m tests.app.e2e.screenshots OUT --store runs --run quick``.

Each page is opened in windows of 1440 x 900 and 390 x 844, light and dark: ``matrix-390-dark.png`` is the whole page, or with
``--first`` the first screen. ``matrix.pdf`` is the page as it is printed. Where ``make axe`` has fetched axe-core, the rules that
a page breaks are printed with their elements, and the command ends with 1 if one of ours is serious or critical.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from playwright.sync_api import Browser

from tests import stores
from tests.app.e2e.axe import Violation, script, violations
from tests.app.e2e.browser import Reader
from tests.app.e2e.conftest import chromium, serving
from tests.views import VIEWS, View

WINDOWS = ({"width": 1440, "height": 900}, {"width": 390, "height": 844})
SCHEMES = ("light", "dark")

#: More pictures than this are counted
_NAMED = 8

#: An element is the same on all pages that break the rule with it, so each is named once, with the pages
Found = dict[Violation, list[str]]


def screenshots(out: Path, store: Path, run: str, only: str = "", *, first: bool = False) -> tuple[list[Path], Found]:
    """Pictures of the pages of a run, and what axe-core finds on them.

    Args:
        only: the pages whose names begin so.
        first: the first screen instead of the whole page.
    """
    out.mkdir(parents=True, exist_ok=True)
    taken: list[Path] = []
    found: Found = {}
    views = [view for view in VIEWS if str(view).startswith(only)]
    with serving(store.resolve(), out.resolve() / "server.log") as address, chromium() as browser:
        for window, scheme in product(WINDOWS, SCHEMES):
            reader = Reader(browser.new_context(viewport=window, color_scheme=scheme).new_page(), address, out)
            for view in views:
                name = f"{view}-{window['width']}-{scheme}"
                reader.come_back(view.name, run=run, **view.query).shows(view.page.title)
                for violation in _violations(reader):
                    found.setdefault(violation, []).append(name)
                taken.append(_picture(reader, name, first=first))
            reader.page.context.close()
        taken += _prints(browser, address, out, run, views)
    return taken, found


def _violations(reader: Reader) -> Iterator[Violation]:
    source = script()
    if source is not None:
        yield from violations(reader.page, source)


def _picture(reader: Reader, name: str, *, first: bool) -> Path:
    if not first:
        return reader.shot(name)
    reader.page.screenshot(path=reader.shots / f"{name}.png")
    return reader.shots / f"{name}.png"


def _prints(browser: Browser, address: str, out: Path, run: str, views: list[View]) -> Iterator[Path]:
    """The pages as they are printed."""
    reader = Reader(browser.new_context(viewport=WINDOWS[0]).new_page(), address, out)
    for view in views:
        reader.come_back(view.name, run=run, **view.query).shows(view.page.title)
        reader.page.pdf(path=out / f"{view}.pdf", format="A4", print_background=True)
        yield out / f"{view}.pdf"
    reader.page.context.close()


def report(found: Mapping[Violation, list[str]]) -> Iterator[str]:
    """Lines on the violations: ours first, then those of Streamlit's navigation."""
    if script() is None:
        yield "axe-core is not installed: make axe"
        return
    for foreign, whose in ((False, "pages"), (True, "Streamlit's navigation")):
        those = [(one, where) for one, where in found.items() if one.foreign == foreign]
        yield f"axe-core, {whose}: {len(those)} elements break a rule"
        yield from (f"  {one}\n    on {_pictures(where)}" for one, where in those)


def _pictures(names: Sequence[str]) -> str:
    """The pictures by name, or how many there are."""
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct) if len(distinct) <= _NAMED else f"{len(distinct)} pictures, such as {distinct[0]}"


def main() -> None:
    """Without ``--store`` of a run made for it, in which everything occurs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--run", default="everything")
    parser.add_argument("--only", default="", metavar="PAGE")
    parser.add_argument("--first", action="store_true", help="the first screen of each page instead of the whole page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or Path(folder) / "runs"
        if given.store is None:
            stores.all_kinds(store)
        taken, found = screenshots(given.out, store, given.run, given.only, first=given.first)
    for line in (*map(str, taken), *report(found)):
        sys.stdout.write(f"{line}\n")
    sys.exit(any(not one.foreign and one.impact in ("serious", "critical") for one in found))


if __name__ == "__main__":
    main()
