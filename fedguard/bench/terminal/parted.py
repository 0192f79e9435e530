"""Tables that fit a terminal: words are never broken, and columns without room go into a further table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

#: Length in characters above which a value wraps at its spaces.
_WIDEST = 26

#: Between two columns.
_GAP = 3


def fitting(widths: list[int], room: int) -> Iterator[slice]:
    """Runs of columns whose widths fit the room, one column at least."""
    start = used = 0
    for column, width in enumerate(widths):
        if column > start and used + width > room:
            yield slice(start, column)
            start, used = column, 0
        used += width
    yield slice(start, len(widths))


def split_table(heads: Sequence[str], rows: Sequence[Sequence[Text]], labels: int, room: int) -> Iterator[Table]:
    """One table, or several with the same rows if not all columns fit beside each other.

    Args:
        heads: of the columns; they wrap at spaces.
        rows: the fields; texts keep their style.
        labels: number of columns on the left that are repeated in every table, and wrap at spaces.
        room: characters of a line.
    """
    columns = [[head, *(row[number].plain for row in rows)] for number, head in enumerate(heads)]
    taken = _labels(columns[:labels], room // 2)
    widths = [_width(column) for column in columns[labels:]]
    for part in fitting([width + _GAP for width in widths], room - sum(taken) - _GAP * labels):
        table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for head, width in zip(heads[:labels], taken, strict=True):
            table.add_column(head, width=width, overflow="fold")
        for head, width in zip(heads[labels:][part], widths[part], strict=True):
            table.add_column(head, width=min(width, room), justify="right", overflow="fold")
        for row in rows:
            table.add_row(*row[:labels], *row[labels:][part])
        yield table


def _labels(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths of the labels: their full length, or the widest ones reduced, down to their longest word."""
    widths = [max(map(len, column)) for column in columns]
    least = [_longest_word(column) for column in columns]
    while sum(widths) + _GAP * len(widths) > room:
        able = [number for number, width in enumerate(widths) if width > least[number]]
        if not able:
            break
        widest = max(able, key=lambda number: widths[number])
        widths[widest] -= 1
    return widths


def _width(column: Sequence[str]) -> int:
    head, *texts = column
    longest = max(map(len, texts), default=0)
    return max(_longest_word([head]), longest if longest <= _WIDEST else max(_WIDEST, _longest_word(texts)))


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)
