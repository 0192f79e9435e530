"""HTML as trees of elements: text is text, and is escaped when the tree is written out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

Content = Element | str | None
Cell = Content | Sequence[Content]


def el(tag: str, *content: Content | Iterable[Content], **attributes: str) -> Element:
    """An element, as ``el("p", "n < ", el("b", "3"), class_="note")``; None is left out.

    An underscore in the name of an attribute becomes a hyphen; one at its end is dropped.
    """
    made = Element(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    for one in _flat(content):
        if isinstance(one, Element):
            made.append(one)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + one
        else:
            made.text = (made.text or "") + one
    return made


def _flat(content: Iterable[Content | Iterable[Content]]) -> Iterable[Element | str]:
    for one in content:
        if one is None:
            continue
        if isinstance(one, Element | str):
            yield one
        else:
            yield from _flat(one)


def paragraphs(lines: Iterable[str], **attributes: str) -> list[Element]:
    """One paragraph for each line."""
    return [el("p", line, **attributes) for line in lines]


def bullet_list(lines: Iterable[Cell]) -> Element:
    """A list with one item for each line."""
    return el("ul", *(el("li", *_parts(line)) for line in lines))


def facts(pairs: Iterable[tuple[str, Cell]]) -> Element:
    """A list of names with their values."""
    return el("dl", *(el("div", el("dt", name), el("dd", *_parts(value))) for name, value in pairs))


def fold_content(summary: str, *content: Content | Iterable[Content]) -> Element:
    """Content that a reader can unfold on a screen, and that is not printed."""
    return el("details", el("summary", summary), *content)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], align: str, last: int = 0) -> Element:
    """A table; the first cell of a row is its heading.

    Args:
        align: a letter for each column, as in LaTeX: ``l`` for text, ``r`` for numbers. The last one applies to all further
            columns.
        last: number of rows at the end that are set off.
    """
    sides = [align[min(number, len(align) - 1)] for number in range(len(heads))]
    body = [
        el("tr", *(_cell(cell, number, sides) for number, cell in enumerate(row)))
        for row in (list(one) for one in rows)
    ]
    for row in body[len(body) - last :]:
        row.set("class", "last")
    head = el("tr", *(el("th", text, scope="col", class_=side) for text, side in zip(heads, sides, strict=True)))
    whole = el("table", el("caption", caption), el("thead", head), el("tbody", *body))
    return el("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(cell: Cell, number: int, sides: Sequence[str]) -> Element:
    if number == 0:
        return el("th", *_parts(cell), scope="row", class_=sides[0])
    status = f" {cell}" if cell in ("refused", "failed", "missing") else ""
    return el("td", *_parts(cell), class_=sides[number] + status)


def _parts(cell: Cell) -> Sequence[Content]:
    return [cell] if cell is None or isinstance(cell, Element | str) else cell


def to_bytes(root: Element) -> bytes:
    """The tree as HTML in UTF-8; characters that cannot be encoded become question marks."""
    return tostring(root, encoding="unicode", method="html").encode("utf-8", errors="replace")
