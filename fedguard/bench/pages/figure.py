"""A chart or a table of a page as a file for a paper: PDF, SVG or PNG at the width of a column, LaTeX or CSV; or a GIF.

The caption says what was trained, with n, f and seeds, and explains the symbols, which stand beside the chart on a page.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

from fedguard.bench.pages.blocks import Address, Block, Chart, Choice, Columns, Heatmap, Key, More, TableBlock, in_cells
from fedguard.bench.pages.escape import line
from fedguard.bench.pages.heatmap_chart import draw_heatmap
from fedguard.bench.pages.tokens import CONFIG, TOKENS
from fedguard.bench.pages.trained import describe_training
from fedguard.bench.records.reading import escape_tree
from fedguard.bench.results.run import Run
from fedguard.errors import ConfigError, MissingExtra, brief
from fedguard.metrics.stats import over_seeds

Form = Literal["pdf", "svg", "png", "tex", "csv", "gif"]

#: Widths in inches: of one column and of a whole page of two columns, as most conferences have them
WIDTHS = {"column": 3.35, "page": 6.9}
#: Points in an inch, and pixels in an inch of a PNG file
POINTS, DENSITY = 72.0, 300.0
#: Pixels in an inch of an animation, and the milliseconds of a picture
SCREEN, FRAME = 144.0, 400

_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "\N{MINUS SIGN}": "$-$", "\N{PLUS-MINUS SIGN}": r"$\pm$", "\N{MIDDLE DOT}": r"$\cdot$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$", "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$", "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$", "\N{GREEK SMALL LETTER EPSILON}": r"$\varepsilon$",
    "\N{GREEK SMALL LETTER DELTA}": r"$\delta$",
}  # fmt: skip


def figures(blocks: Iterable[Block]) -> dict[str, Chart | TableBlock]:
    """The charts, heat maps and tables of a page by name: the first words of the title, with a number if another one has it."""
    found: dict[str, Chart | TableBlock] = {}
    for block in _flatten(blocks):
        title = block.title or (block.table.title if isinstance(block, Chart) else block.caption) or "table"
        name = base = "-".join(re.findall(r"[a-z0-9]+", title.lower())[:6]) or "table"
        number = 1
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found[name] = block
    return found


def _flatten(blocks: Iterable[Block]) -> Iterator[Chart | TableBlock]:
    for block in blocks:
        if isinstance(block, Chart | TableBlock):
            yield block
        elif isinstance(block, Heatmap):
            yield draw_heatmap(block)
        elif isinstance(block, Columns | More):
            yield from _flatten(block.blocks)


def find_figure(blocks: Iterable[Block], name: str | None, page: str) -> Chart | TableBlock:
    """The chart or table of this name, or whose name begins with it; without a name, the first chart, or the only table.

    Raises:
        ConfigError: there is none, or several; the message lists them.
    """
    found = figures(blocks)
    if not found:
        raise ConfigError(
            f"{page}: expected a page with a chart or a table; it has none for this run. Choose another page."
        )
    if name is None:
        charts = [block for block in found.values() if isinstance(block, Chart)]
        if charts or len(found) == 1:
            return charts[0] if charts else next(iter(found.values()))
    else:
        fits = [name] if name in found else [one for one in found if one.startswith(name)]
        if len(fits) == 1:
            return found[fits[0]]
    asked = f"; got {brief(name)}" if name else ""
    raise ConfigError(
        f"{page}: expected one of {', '.join(f'{page}:{one}' for one in found)}{asked}. Name one of them."
    )


def caption(block: Chart | TableBlock, run: Run) -> str:
    """What it shows, what was trained, and what symbols and intervals mean, in sentences."""
    parts = (
        [block.title, block.alt, block.about, block.note] if isinstance(block, Chart) else [block.title, block.caption]
    )
    keys = _explain_keys(block.keys) if isinstance(block, Chart) else block.legend
    compare = f"To compare with: {block.compare}" if isinstance(block, TableBlock) and block.compare else ""
    seeds = over_seeds(len(run.seeds))
    whole = [*parts, keys, compare, describe_training(run), seeds[0].upper() + seeds[1:]]
    sentences = (" ".join(line(one).split()).rstrip(".") for one in whole if one)
    return " ".join(f"{one}." for one in dict.fromkeys(sentences))


def _explain_keys(keys: Sequence[Key]) -> str:
    said = (f"{key.symbol} ({key.color})" if key.color != key.symbol else key.symbol for key in keys)
    text = "; ".join(f"{symbol}: {key.meaning}" for symbol, key in zip(said, keys, strict=True))
    return text[:1].upper() + text[1:]


def draw(block: Chart | TableBlock, form: Form, run: Run, width: str = "column") -> bytes:
    """The content of the file.

    Args:
        width: of a picture: ``column`` or ``page`` of two columns.

    Raises:
        ConfigError: a table as a picture.
    """
    if form == "csv":
        return _csv(block.table if isinstance(block, Chart) else block)
    if form == "tex":
        return _latex(block, caption(block, run))
    if isinstance(block, TableBlock):
        raise ConfigError(f"expected .tex or .csv for a table; got .{form}. Choose a chart, or another form.")
    return _picture(block, form, width)


def _csv(table: TableBlock) -> bytes:
    """RFC 4180 with a line of headings; numbers as they are stored, and nothing for no value.

    The values that a table has for its bars follow in columns of their own, in the units of the table.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        [*(column.name for column in table.columns), *(("value", "low", "high", "reference") if table.bars else ())]
    )
    for row, bar in zip(table.rows, table.bars or [None] * len(table.rows), strict=True):
        drawn = [bar.dot, bar.low, bar.high, bar.ring] if bar else [None] * 4 if table.bars else []
        writer.writerow(["" if cell is None else cell for cell in (*row, *drawn)])
    return text.getvalue().encode()


def _latex(block: Chart | TableBlock, said: str) -> bytes:
    r"""A table of the package booktabs, with its caption."""
    table = block.table if isinstance(block, Chart) else block
    align = "".join("r" if column.number else "l" for column in table.columns)
    rows = [[column.name for column in table.columns], *map(in_cells, table.rows)]
    head, *body = (" & ".join(escape_latex(line(cell)) for cell in row) + r" \\" for row in rows)
    lines = [
        r"% \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(said)}}}",
        rf"\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}",
        r"\end{table}", "",
    ]  # fmt: skip
    return "\n".join(lines).encode()


def escape_latex(text: str) -> str:
    """The text with everything that LaTeX would interpret escaped."""
    return "".join(_TEX.get(character, character) for character in text)


def _picture(block: Chart, form: Form, width: str, density: float = DENSITY) -> bytes:
    import vl_convert

    spec = escape_tree(dict(block.narrow if width == "column" else block.spec))
    config = {**CONFIG, "font": _FONT, "background": "white"}
    svg = str(vl_convert.vegalite_to_svg(_on_light({**spec, "config": config})))
    if form == "svg":
        return _resize(svg, WIDTHS[width], "in").encode()
    if form == "pdf":
        return bytes(vl_convert.svg_to_pdf(_resize(svg, WIDTHS[width] * POINTS)))
    return bytes(vl_convert.svg_to_png(_resize(svg, WIDTHS[width] * density), ppi=POINTS))


def animate(charts: Sequence[Chart], width: str = "page") -> bytes:
    """An animated GIF of pictures in their order, the last of which stays longer.

    Raises:
        MissingExtra: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("an animation", "pillow", "dashboard") from None
    frames = [Image.open(io.BytesIO(_picture(one, "png", width, SCREEN))).convert("RGB") for one in charts]
    size = max(one.width for one in frames), max(one.height for one in frames)
    even = [Image.new("RGB", size, "white") for _ in frames]  # labels of axes may differ in size
    for canvas, frame in zip(even, frames, strict=True):
        canvas.paste(frame, (0, 0))
    written = io.BytesIO()
    times = [*[FRAME] * (len(even) - 1), 3 * FRAME]
    even[0].save(written, "GIF", save_all=True, append_images=even[1:], duration=times, loop=0)
    return written.getvalue()


def sequence(blocks: Callable[[Address], Iterable[Block]], at: Address, name: str | None, page: str) -> list[Chart]:
    """The chart of this name for each option of the page's ordered choice.

    Raises:
        ConfigError: the page has no such choice, or no such chart.
    """
    choice = next((one for one in blocks(at) if isinstance(one, Choice) and one.ordered), None)
    if choice is None:
        raise ConfigError(
            f"expected a page with a sequence for a .gif, such as replay; got {page}. Choose another form."
        )
    found = [find_figure(blocks({**at, choice.key: option}), name, page) for option in choice.options]
    return [one for one in found if isinstance(one, Chart)]


def _resize(svg: str, width: float, unit: str = "") -> str:
    """The picture at this width, with the same proportions."""
    found = re.match(r'<svg[^>]*? width="([\d.]+)" height="([\d.]+)"', svg)
    assert found is not None  # every picture of the renderer begins with its size
    height = width * float(found[2]) / float(found[1])
    size = f'width="{width:g}{unit}" height="{height:.5g}{unit}"'
    return svg.replace(f'width="{found[1]}" height="{found[2]}"', size, 1)


def _on_light(part: Any) -> Any:
    """The specification with the colors of a light page instead of tokens."""
    if isinstance(part, dict):
        return {key: _on_light(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_on_light(one) for one in part]
    if isinstance(part, str):
        return re.sub(r"var\(--([a-z-]+)\)", lambda found: TOKENS[found[1]][0], part)
    return part


FORMS: tuple[Form, ...] = get_args(Form)
