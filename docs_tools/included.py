"""Files outside of docs/ as pages of the site, with links that work in the repository and on the site.

A document links to other files of the repository by relative paths. Files outside of docs/ are shown by the site as well,
so such a link leads to their page; one to a file that the site does not show is a warning, which fails a strict build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from docs_tools.markup import fenced, page

ROOT = Path(__file__).parents[1]
log = logging.getLogger("mkdocs.plugins.fedguard")

#: Documents outside of docs/, and their pages. A line ``[README.md: Limits](...)`` in a page is replaced by a section of one.
DOCUMENTS = {
    "CONTRIBUTING.md": "contributing.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}

#: Files that the page of examples shows, by language.
_EXAMPLES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".toml": "toml"}

#: What else of the repository a document may link to, and where the site shows it: pages made from code among them.
_SHOWN = {
    **DOCUMENTS,
    "README.md": "index.md",
    "examples": "examples.md",
    "benchmarks/measured": "speed.md",
    "attacks": "reference/attacks.md",
    "attacks/inference": "reference/inference.md",
    "attacks/protocol": "reference/protocol_attacks.md",
    "defenses": "reference/defenses.md",
    "fedguard/api.py": "reference/python.md",
    "fedguard/commands": "reference/commands.md",
    "fedguard/bench/records/schema": "reference/records.md",
    "fedguard/config/schema.py": "reference/suite.md",
    "fedguard/metrics/figures.py": "reference/figures.md",
    "fedguard/algorithms": "reference/algorithms.md",
    "fedguard/tasks": "reference/tasks.md",
    "fedguard/architectures/masking": "reference/modes.md",
}


def pages() -> dict[str, str]:
    """The documents unchanged, and one page with all examples."""
    return {**{shown: (ROOT / name).read_text() for name, shown in DOCUMENTS.items()}, "examples.md": _examples()}


def shown(markdown: str, address: str) -> str:
    """A page as the site shows it: with the sections of other documents, and links to the pages that show their targets."""
    origin = next((name for name, page_ in DOCUMENTS.items() if page_ == address), f"docs/{address}")
    whole = _linked(markdown, origin, address)
    return re.sub(
        r"^\[(?P<file>[\w/]+\.md): (?P<title>.+)\]\(.*\)$",
        lambda line: _linked(_section(line["file"], line["title"]), line["file"], address),
        whole,
        flags=re.MULTILINE,
    )


def _section(file: str, title: str) -> str:
    """The text under a heading of a document."""
    _, _, rest = (ROOT / file).read_text().partition(f"\n## {title}\n")
    if not rest:
        log.warning("%s has no section %r.", file, title)
    return rest.partition("\n## ")[0].strip()


def _linked(markdown: str, origin: str, address: str) -> str:
    """Links of a document, relative to its place in the repository, as links between the pages of the site."""

    def relink(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link["target"]))
        found = _page_of(path)
        if found is None:
            log.warning("%s links to %s, which the site does not show.", origin, path)
            return link[0]
        target, _, anchor = found.partition("#")
        there = posixpath.relpath(target, posixpath.dirname(address) or ".")
        return f"]({there}{link['anchor'] or (f'#{anchor}' if anchor else '')})"

    return re.sub(r"\]\((?P<target>(?![a-z]+:)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)", relink, markdown)


def _page_of(path: str) -> str | None:
    """The page that shows a file of the repository, perhaps with an anchor; None where there is none."""
    if path in _SHOWN:
        return _SHOWN[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"examples.md#{_anchor(path)}" if path in dict(_example_files()) else None


def _example_files() -> list[tuple[str, Path]]:
    files = [path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in _EXAMPLES] + [
        ROOT / "action.yml"
    ]
    return [(path.relative_to(ROOT).as_posix(), path) for path in files if "egg-info" not in path.as_posix()]


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.removeprefix("examples/")).strip("-")


def _examples() -> str:
    parts = [
        f"## {name.removeprefix('examples/')} {{ #{_anchor(name)} }}\n\n{fenced(path.read_text(), _EXAMPLES[path.suffix])}"
        for name, path in _example_files()
    ]
    return page("Examples", "The files in `examples/`, as they are, and the action for GitHub.", *parts)
