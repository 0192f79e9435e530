"""Pictures of every page, light and dark: ``python -m tests.app.e2e.screenshots OUT --store runs --run quick``.

Each shows the first screen at 1440 x 900, which is what a reader sees without scrolling; ``--whole`` the whole page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests import stores
from tests.app.e2e.browser import Reader
from tests.app.e2e.conftest import chromium, serving
from tests.views import VIEWS

WINDOW = {"width": 1440, "height": 900}


def screenshots(out: Path, store: Path, run: str, only: str = "", *, whole: bool = False) -> list[Path]:
    """Pictures of the pages of a run.

    Args:
        only: the pages whose names begin so.

    Returns:
        Their files: ``matrix-dark.png``.
    """
    out.mkdir(parents=True, exist_ok=True)
    taken = []
    with serving(store.resolve(), out.resolve() / "server.log") as address, chromium() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport=WINDOW, color_scheme=scheme).new_page()
            reader = Reader(page, address, out)
            for view in (view for view in VIEWS if str(view).startswith(only)):
                reader.open(view.name, run=run, **view.query).shows(view.page.title)
                taken.append(out / f"{view}-{scheme}.png")
                if whole:
                    reader.shot(f"{view}-{scheme}")
                else:
                    page.screenshot(path=taken[-1])
    return taken


def main() -> None:
    """Without ``--store`` of a run made for it, in which everything occurs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--run", default="everything")
    parser.add_argument("--only", default="", metavar="PAGE")
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or Path(folder) / "runs"
        if given.store is None:
            stores.all_kinds(store)
        for path in screenshots(given.out, store, given.run, given.only, whole=given.whole):
            sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
