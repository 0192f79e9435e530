"""Whose code an error came out of: a plug-in's mistake is its author's to mend, and he has to be told where."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from fedguard.bench.running.code import parts_of
from fedguard.config import Cell
from fedguard.contracts import Algorithm
from fedguard.errors import ContractError, printable


def blame_plugin(error: BaseException) -> Algorithm | None:
    """The plug-in that ran when an error was raised or, failing that, the last one whose answer was at hand; else None."""
    return next((one for frame in _frames(error) for one in _plugins(frame)), None)


def in_words(error: BaseException) -> str:
    """An error in one line that names the plug-in it came out of, with its file."""
    said = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    plugin = blame_plugin(error)
    if plugin is None or isinstance(error, ContractError):  # which says so itself
        return said
    return f"{plugin.kind} {plugin.name!r} of {plugin.stands_in()}: {said}"


def plugins_of(cell: Cell) -> list[str]:
    """The plug-ins that a cell is built of, each with its file, and what runs functions of somebody else's."""
    found = []
    for one in parts_of(cell):
        place = one.stands_in() or ", ".join(sorted(one.modules - {"fedguard"}))
        if place:
            found.append(f"{one.kind} {one.name!r} of {place}")
    return found


def _frames(error: BaseException) -> Iterator[FrameType]:
    """From where the error was raised outwards."""
    trace, frames = error.__traceback__, list[FrameType]()
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(frames)


def _plugins(frame: FrameType) -> Iterator[Algorithm]:
    """What a frame holds of other people's algorithms, the one whose method it is first."""
    held = sorted(frame.f_locals.items(), key=lambda item: item[0] != "self")
    return (value for _, value in held if isinstance(value, Algorithm) and value.stands_in() is not None)
