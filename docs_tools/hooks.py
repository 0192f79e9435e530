"""Hooks that MkDocs calls while it builds the site; see `mkdocs.yml`."""

from __future__ import annotations

import atexit
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(str(Path(__file__).parents[1]))  # MkDocs knows this file alone, and not the package that it is in

from docs_tools import algorithms, commands, formulae, front_door, included, records, speed, suite

_ROOT = Path(__file__).parents[1]


@event_priority(100)  # before mkdocstrings looks
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the modules under their installed names: it does not follow the mapping of folders to packages."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    package = Path(folder.name, "fedguard")
    package.mkdir()
    sources = [*(_ROOT / "fedguard").iterdir(), *(_ROOT / name for name in ("attacks", "defenses", "app"))]
    for name, source in {source.name: source for source in sources}.items():
        (package / name).symlink_to(source)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [folder.name]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for source in (algorithms, suite, records, commands, front_door, included, speed):
        for address, markdown in source.pages().items():
            files.append(File.generated(config, address, content=markdown))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Correct the links; in the catalogue, link each name to its reference."""
    address = page.file.src_uri
    if address == "catalogue.md":
        known = {key.partition("/")[2]: where for key, where in algorithms.addresses().items()}
        markdown = re.sub(
            r"^\| `(\w+)` \|", lambda row: f"| [`{row[1]}`]({known[row[1]]}) |", markdown, flags=re.MULTILINE
        )
    return included.shown(markdown, address)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Typeset the formulae of docstrings, which make up the reference, and of documents, which are TeX."""
    return formulae.set_in(html, docstrings=page.file.src_uri.startswith("reference/"))
