"""The types of blocks that a page is made of. Text is plain text: each renderer escapes it, none interprets it.

A block has an optional ``title``, the heading above it. The verdict is the only heading of the first level on a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: The reader's choices: swept keys, metric, cell, seed; in the dashboard the query of the address
Address = Mapping[str, str]

#: The symbol of an entry of a legend
Symbol = Literal["ring", "dot", "triangle", "fall", "diamond", "square", "bar", "band"]

#: The symbol of each shape of a mark
SYMBOLS: Mapping[str, Symbol] = {
    "circle": "dot",
    "square": "square",
    "diamond": "diamond",
    "triangle-up": "triangle",
    "triangle-down": "fall",
}

#: The severity of a statement, which a renderer shows by color and by a word or symbol
Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True)
class Chip:
    """A short state: ``complete``."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Action:
    """What a reader can do: run a command, or open another page of the run."""

    label: str
    command: str = ""
    page: str = ""
    query: Address = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The answer of a page.

    Attributes:
        headline: one sentence with its condition.
        lead: the evidence, sentence by sentence.
        trained: one line that says what was trained.
        tone: of the headline's first words, up to the colon.
    """

    headline: str
    lead: Sequence[str] = ()
    trained: str = ""
    chips: Sequence[Chip] = ()
    actions: Sequence[Action] = ()
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """Names with their values, which may have several lines."""

    items: Sequence[tuple[str, Sequence[str]]]
    title: str = ""


@dataclass(frozen=True)
class Prose:
    """Paragraphs."""

    paragraphs: Sequence[str]
    title: str = ""


@dataclass(frozen=True)
class Heading:
    """The heading of a column, with its unit: ``accuracy, %``; and whether its cells are numbers."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class Bar:
    """A row of a chart in characters: a dot with its interval, and a ring to compare it with, in the units of the axis."""

    dot: float
    low: float | None = None
    high: float | None = None
    ring: float | None = None


@dataclass(frozen=True)
class TableBlock:
    """Rows below headings.

    Attributes:
        rows: a cell is a text, a number, or None for nothing; a column of numbers is sorted by value.
        leading: indices of the rows of the leading group, which are emphasized.
        bars: one for each row, drawn where a chart is not; with the two ends of their axis.
        legend: explains the bars.
        compare: values to compare the rows with.
    """

    columns: Sequence[Heading]
    rows: Sequence[Sequence[str | float | None]]
    caption: str = ""
    title: str = ""
    leading: Sequence[int] = ()
    bars: Sequence[Bar | None] = ()
    axis: tuple[float, float] = (0.0, 100.0)
    legend: str = ""
    compare: str = ""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a symbol, its color token, its meaning."""

    symbol: Symbol
    color: str
    meaning: str


@dataclass(frozen=True)
class Chart:
    """A chart with its table.

    Attributes:
        spec: Vega-Lite for a wide page (up to 1,140 pixels); colors are tokens, as ``var(--blue)``.
        narrow: the same for 390 pixels.
        alt: the finding, in a sentence.
        about: one line under the title; ``note``: one under the chart.
    """

    spec: Mapping[str, Any]
    narrow: Mapping[str, Any]
    alt: str
    table: TableBlock
    title: str = ""
    about: str = ""
    note: str = ""
    keys: Sequence[Key] = ()


@dataclass(frozen=True)
class Field:
    """A field of a heat map.

    Attributes:
        text: the value, or why there is none: ``refused``.
        spread: its interval or range.
        heat: share of the strongest color, in [0, 1]; None for a field without a value, which has a dashed frame.
        query: the choices with which the page of the heat map shows this field.
    """

    text: str
    spread: str = ""
    heat: float | None = None
    query: Address = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One of the small multiples of a heat map: fields by rows and columns; the ``last`` rows are set off."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Field]]]
    last: int = 0


@dataclass(frozen=True)
class Heatmap:
    """Panels with a common scale of colors.

    Attributes:
        corner: what the rows are.
        scale: entries of the legend: a heat and its meaning.
        page: the page that shows a field.
        first: index of the panel that is shown first where there is room for one.
    """

    panels: Sequence[Panel]
    corner: str
    title: str = ""
    about: str = ""
    scale: Sequence[tuple[float, str]] = ()
    page: str = "cell"
    first: int = 0


@dataclass(frozen=True)
class CheckItem:
    """Something that speaks against quoting a result.

    Attributes:
        scope: about whom it is: ``leading group``, ``9 cells``.
        title: what is the matter; ``text``: a case, and what to do about it.
        flag: the red flag; ``count``: on how many trials or cells it is raised.
    """

    scope: str
    tone: Tone
    title: str
    text: str
    flag: str = ""
    count: str = ""
    action: Action | None = None


@dataclass(frozen=True)
class Checks:
    """Checks, the most severe first."""

    items: Sequence[CheckItem]
    title: str = ""
    about: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG file with a description for who cannot see it, and a caption."""

    png: bytes
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Pictures:
    """Pictures beside each other."""

    images: Sequence[Picture]
    title: str = ""


@dataclass(frozen=True)
class Diff:
    """Keys with their values before and after; None where there is no such key."""

    rows: Sequence[tuple[str, str | None, str | None]]
    title: str = ""


@dataclass(frozen=True)
class Steps:
    """A sequence that a reader walks through: names with texts, and the index of the current one."""

    items: Sequence[tuple[str, str]]
    current: int = 0
    key: str = "step"
    title: str = ""


@dataclass(frozen=True)
class Choice:
    """A choice of the reader under its key in the address; the page has read it, and yields the chosen one.

    ``titles`` are the names of the options, which are shown as they are if they have none. ``ordered`` options are a sequence,
    which a slider walks through.
    """

    key: str
    label: str
    options: Sequence[str]
    chosen: str
    titles: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = False


@dataclass(frozen=True)
class Code:
    """Lines to copy, such as a suite file, shown literally."""

    text: str
    language: str = ""
    title: str = ""


@dataclass(frozen=True)
class Columns:
    """Blocks beside each other where there is room, for charts of at most half of the page's width."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class More:
    """Blocks on demand. The title says how much it is; the command shows them in a terminal."""

    title: str
    blocks: Sequence[Block]
    command: str = ""


Block = (
    Verdict
    | Facts
    | Prose
    | Chart
    | TableBlock
    | Heatmap
    | Checks
    | Pictures
    | Diff
    | Steps
    | Choice
    | Code
    | Columns
    | More
)


def choose(address: Address, key: str, options: Sequence[str], default: str) -> str:
    """The reader's choice, or the default if the address has none of the options."""
    asked = address.get(key, default)
    return asked if asked in options else default


def decimal(value: float) -> str:
    """One decimal, with a true minus."""
    return f"{value:.1f}".replace("-", "\N{MINUS SIGN}")


def in_cells(row: Sequence[str | float | None]) -> list[str]:
    """The texts of a row."""
    return ["" if one is None else one if isinstance(one, str) else decimal(one) for one in row]
