"""A copy of the source with one plant in it. The checkout itself is never touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Edit:
    """One mutation of the source.

    Attributes:
        file: from the root of the checkout, such as ``fedguard/secagg/keys.py``.
        before: text that stands there exactly once.
        after: what stands there instead.
    """

    file: str
    before: str
    after: str


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
    for file in ("pyproject.toml", "tests/conftest.py", "tests/test_masking.py"):
        (folder / file).symlink_to(ROOT / file)
    return folder


def plant(edits: Sequence[Edit], folder: Path) -> None:
    """Write the mutated files into a copy.

    Raises:
        PlantError: the text is not there, or not once, so that the plant would be none.
    """
    for edit in edits:
        path = folder / edit.file
        text = path.read_text()
        if (found := text.count(edit.before)) != 1 or edit.before == edit.after:
            raise PlantError(f"{edit.file}: expected this text exactly once; found it {found} times:\n{edit.before}")
        _own(path.parent, folder)
        path.unlink()  # a link to the checkout's file, or a copy of it
        path.write_text(text.replace(edit.before, edit.after))


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
