"""The origin of an error: if it is in a plug-in, the message names the plug-in and its file for the author."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from fedguard.bench.running.code import parts_of
from fedguard.config import PlannedCell
from fedguard.contracts import Algorithm
from fedguard.errors import ContractError, printable


def blame_plugin(error: BaseException) -> Algorithm | None:
    """The plug-in that ran when an error was raised, else the last plug-in with a return value at hand, else None."""
    return next((one for frame in _frames(error) for one in _plugins(frame)), None)


def in_words(error: BaseException) -> str:
    """An error in one line that names the plug-in it came from, with its file."""
    said = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    plugin = blame_plugin(error)
    if plugin is None or isinstance(error, ContractError):  # which says so itself
        return said
    return f"{plugin.kind} {plugin.name!r} of {plugin.stands_in()}: {said}"


def plugins_of(cell: PlannedCell) -> list[str]:
    """The plug-ins of a cell, each with its file, and the algorithms that run third-party functions."""
    found = []
    for one in parts_of(cell):
        place = one.stands_in() or ", ".join(sorted(one.modules - {"fedguard"}))
        if place:
            found.append(f"{one.kind} {one.name!r} of {place}")
    return found


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The frames from where the error was raised outward."""
    trace, frames = error.__traceback__, list[FrameType]()
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(frames)


def _plugins(frame: FrameType) -> Iterator[Algorithm]:
    """The third-party algorithms that a frame holds; first the one that the frame is a method of."""
    held = sorted(frame.f_locals.items(), key=lambda item: item[0] != "self")
    return (value for _, value in held if isinstance(value, Algorithm) and value.stands_in() is not None)
