"""Devices that come and go as a file says."""

from __future__ import annotations

import csv
import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import ClassVar

from fedguard.contracts import Availability, Presence
from fedguard.errors import ConfigError, brief, oneline
from fedguard.rng import Rng
from fedguard.simulated.files import content

#: Largest size in bytes of a trace, some three million rows.
MOST_BYTES = 64 << 20
#: Fewest seconds of a stretch: simulated time is rounded, and a shorter one could vanish.
LEAST = 0.001
#: Most digits of a device number.
_DIGITS = 18


@dataclass(frozen=True, kw_only=True)
class Trace(Availability):
    """Devices come and go as a file says.

    The file holds comma-separated values under the header ``device,start,end``. Each row is one online stretch in seconds.
    Devices are numbered from 0; devices beyond the federation are ignored, and each device of the federation has a row. The
    stretches of a device are in order, and each lasts a millisecond or more. After the last end in the file the trace repeats.
    A file has at most 64 MiB, some three million rows.

    Args:
        file: the file, relative to where ``fedguard`` was started.
    """

    name = "trace"
    source = "comma-separated values (RFC 4180)"
    example: ClassVar = {"file": "phones.csv"}

    file: str

    @property
    def digest(self) -> str | None:
        return _read(self.file)[1]

    def check(self, devices: int) -> None:
        stretches, _ = _read(self.file)
        lacking = next((device for device in range(devices) if device not in stretches), None)
        if lacking is not None:
            raise ConfigError(
                f"{self.file}: expected a row for each of the {devices} devices, numbered from 0; device {lacking} has none. "
                "Add one, or lower clients.total."
            )

    def start(self, devices: int, rng: Rng) -> Presence:
        self.check(devices)
        return _Trace(_read(self.file)[0], devices)


class _Trace(Presence):
    def __init__(self, stretches: dict[int, list[tuple[float, float]]], devices: int) -> None:
        # Over all devices of the file, ignored ones included: all repeat together, and clients.total does not move the period
        self._period = max(end for those in stretches.values() for _, end in those)
        self._stretches = [_around(stretches[device], self._period) for device in range(devices)]
        self._ends = [[end for _, end in those] for those in self._stretches]

    def stretch(self, device: int, after: float) -> tuple[float, float]:
        those, period = self._stretches[device], self._period
        if those[0][1] == inf:
            return those[0]
        turn = after // period
        index = bisect_right(self._ends[device], after - turn * period)
        if index == len(those):
            index, turn = 0, turn + 1
        begin, end = those[index]
        return turn * period + begin, turn * period + end


def _around(stretches: Sequence[tuple[float, float]], period: float) -> list[tuple[float, float]]:
    """Merge stretches that touch, also across the end of the period; sorted by their ends."""
    joined = [stretches[0]]
    for begin, end in stretches[1:]:
        if begin == joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    if joined == [(0.0, period)]:
        return [(-inf, inf)]
    if joined[0][0] == 0 and joined[-1][1] == period:
        # Once in each neighboring period: without it, a device online over midnight would seem to leave and lose its work
        first, (begin, _) = joined[0], joined[-1]
        return [(begin - period, first[1]), *joined[1:-1], (begin, period + first[1])]
    return joined


def _read(file: str) -> tuple[dict[int, list[tuple[float, float]]], str]:
    """The stretches of each device of a file, and a digest of the file.

    Raises:
        ConfigError: the file cannot be read, or is not a trace.
    """
    held = content(file, MOST_BYTES, "Leave out devices beyond clients.total, or cut it short: it is repeated.")
    try:
        return _parse_trace(held, file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file}: cannot be read: {oneline(error)}. Write it as comma-separated values.") from None


# Cached by content: a file that is changed under the same name is parsed anew
@lru_cache(maxsize=4)
def _parse_trace(held: bytes, name: str) -> tuple[dict[int, list[tuple[float, float]]], str]:
    # utf-8-sig, since spreadsheets write a byte order mark, which would be part of the header
    rows = csv.reader(held.decode("utf-8-sig").splitlines(), strict=True)
    header = next(rows, [])
    if header != ["device", "start", "end"]:
        raise ConfigError(
            f"{name}: row 1: expected the header device,start,end; got {brief(','.join(header))}. Write it so."
        )
    stretches: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        device, begin, end = _row(row, f"{name}: row {rows.line_num}")
        those = stretches.setdefault(device, [])
        if those and begin < those[-1][1]:
            raise ConfigError(
                f"{name}: row {rows.line_num}: expected a start of at least {those[-1][1]:g}, where the stretch of device "
                f"{device} before it ends; got {begin:g}. Sort its rows, and join those that overlap."
            )
        those.append((begin, end))
    if not stretches:
        raise ConfigError(f"{name}: expected a row for each device below the header; got none. Add them.")
    return stretches, hashlib.sha256(held).hexdigest()[:16]


def _row(row: Sequence[str], where: str) -> tuple[int, float, float]:
    """Device, begin and end of a row."""
    if len(row) != 3:
        raise ConfigError(f"{where}: expected device,start,end; got {brief(','.join(row))}. Give three values.")
    # isdigit accepts digits such as a superscript two, for which int fails
    if not (row[0].isascii() and row[0].isdigit() and len(row[0]) <= _DIGITS):
        raise ConfigError(f"{where}: expected the number of a device, from 0; got {brief(row[0])}. Number the devices.")
    begin, end = (_seconds(text, f"{where}: {name}") for text, name in zip(row[1:], ("start", "end"), strict=True))
    if end <= begin:
        raise ConfigError(f"{where}: expected an end after the start {begin:g}; got {end:g}. Swap or drop them.")
    if end - begin < LEAST:
        raise ConfigError(f"{where}: expected {LEAST:g} s or more; got {end - begin:g}. Drop what is over at once.")
    return int(row[0]), begin, end


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise ConfigError(f"{where}: expected seconds, at least 0; got {brief(text)}. Write a number such as 3600.")
    return seconds
