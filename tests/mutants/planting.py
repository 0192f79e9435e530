"""A copy of the source with one plant in it, and how tables of plants are written. The checkout itself is never touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.mutants.tree import PatternError, edited

ROOT = Path(__file__).parents[2]
#: What stands between what an edit looks for and what it writes.
ARROW = "-->"
_EDIT = re.compile(r"(?P<module>[\w.]+):(?P<name>[\w.]*):(?P<text>.*)", re.DOTALL)
_FACT = re.compile(r"(?P<key>\w+): (?P<text>.*)")


@dataclass(frozen=True)
class Edit:
    """One mutation of the source: an edit of its syntax tree (`tree.py`).

    Attributes:
        module: dotted, from the root of the checkout, such as ``fedguard.secagg.keys``.
        name: the class or function in it, such as ``Client.advertise``; empty for the module itself.
        before: the pattern, which has exactly one place there.
        after: what is there instead.
    """

    module: str
    name: str
    before: str
    after: str

    @property
    def file(self) -> str:
        """From the root of the checkout."""
        path = self.module.replace(".", "/")
        return f"{path}/__init__.py" if (ROOT / path).is_dir() else f"{path}.py"


@dataclass(frozen=True)
class Plant:
    """One planted weakness.

    Attributes:
        name: in a few words.
        because: the sentence that no longer holds: of the pages on secure aggregation in docs/, or of a docstring.
        edits: the mutations that make it, all at once.
        first: who is expected to notice: the name of an attack, or a test as pytest names it: from ``tests/secagg/`` on, or from ``tests/``.
    """

    name: str
    because: str
    edits: Sequence[Edit]
    first: str


class PlantError(Exception):
    """A plant that cannot be planted, or breaks more than it says."""


def rows(text: str) -> Iterator[tuple[str, dict[str, str], tuple[Edit, ...]]]:
    """The rows of a table of plants: their names, facts and edits.

        # a remark
        == tests/defenses/test_rules.py             a fact of all rows below, as `near`
        krum with one neighbor too many             a name
            because: what no longer holds           a fact
            defenses.aggregators.krum:krum_scores: n - f - 2 --> n - f - 1

    Lines that are indented by eight go on with the one before.

    Raises:
        PlantError: a line that is none of these.
    """
    near, found = "", list[tuple[str, str, list[str]]]()
    for line in filter(str.strip, text.splitlines()):
        if line.startswith("=="):
            near = line.removeprefix("==").strip()
        elif line.startswith(" " * 8) and found and found[-1][2]:
            found[-1][2][-1] += "\n" + line
        elif line.startswith(" ") and found:
            found[-1][2].append(line.strip())
        elif not line.startswith("#"):
            found.append((line.strip(), near, []))
    for name, near, lines in found:
        facts, edits = {"near": near}, list[Edit]()
        for line in lines:
            if edit := _EDIT.fullmatch(line):
                before, arrow, after = edit["text"].partition(ARROW)
                if not arrow:
                    raise PlantError(f"{name}: expected a pattern, {ARROW} and what is there instead; found:\n{line}")
                edits.append(Edit(edit["module"], edit["name"], _code(before), _code(after)))
            elif fact := _FACT.fullmatch(line):
                facts[fact["key"]] = fact["text"]
            else:
                raise PlantError(f"{name}: expected a fact or an edit; found:\n{line}")
        yield name, facts, tuple(edits)


def copied(folder: Path) -> Path:
    """Lay out the packages as they are installed, with the tests of secure aggregation, below ``folder``.

    What lies there are links to the checkout, of which `plant` makes folders and files where it writes: copies of two thousand files
    would take longer than what is done with them. What is compiled already comes along, and is taken for files of the same time and
    length only: not for planted ones.
    """
    for source in ("fedguard", "tests/secagg"):
        _linked(ROOT / source, folder / source)
    for source in ("attacks", "defenses"):
        (folder / "fedguard" / source).symlink_to(ROOT / source)
    for file in ("pyproject.toml", "tests/conftest.py", "tests/masking/test_masking.py"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).symlink_to(ROOT / file)
    return folder


def plant(edits: Sequence[Edit], folder: Path) -> None:
    """Write the mutated files into a copy.

    Raises:
        PlantError: the pattern is not there, or not once, so that the plant would be none.
    """
    for edit in edits:
        path = folder / edit.file
        try:
            text = edited(path.read_text(), edit.name, edit.before, edit.after)
        except PatternError as error:
            raise PlantError(f"{edit.file}: {error}") from error
        _own(path.parent, folder)
        path.unlink()  # a link to the checkout's file, or a copy of it
        path.write_text(text)


def _code(text: str) -> str:
    """Without the indentation that its lines share."""
    return dedent(text.strip("\n")).strip()


def _own(inner: Path, folder: Path) -> None:
    """Make folders of links to folders, from ``folder`` down to ``inner``, so that what is written there is not in the checkout."""
    for path in [*reversed(inner.parents), inner]:
        if folder in path.parents and path.is_symlink():
            source = path.readlink()
            path.unlink()
            _linked(source, path)


def _linked(source: Path, target: Path) -> None:
    """A folder of links to all that is in another."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        (target / path.name).symlink_to(path)
