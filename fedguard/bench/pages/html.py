"""Blocks as HTML: the renderer of reports. Charts are SVG; nothing runs, and nothing is loaded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlencode
from xml.etree.ElementTree import Element

from fedguard.bench.pages.blocks import (
    Action,
    Block,
    Chart,
    CheckItem,
    Checks,
    Chip,
    Choice,
    Code,
    Columns,
    Diff,
    Facts,
    Field,
    Heatmap,
    More,
    Panel,
    Pictures,
    Prose,
    Steps,
    TableBlock,
    Verdict,
    in_cells,
)  # fmt: skip
from fedguard.bench.pages.elements import el, facts, fold_content, table
from fedguard.bench.pages.escape import line
from fedguard.bench.pages.svg import draw_spec
from fedguard.bench.pages.tokens import MOST_TABS

#: The address of another page with its query, or None where there are no other pages
Address = Callable[[Action], str | None]


def render_html(blocks: Iterable[Block], address: Address = lambda _: None) -> list[Element]:
    """Blocks as elements, in one container for each block.

    Args:
        address: of the page that an action opens; without one, a reader gets its command.
    """
    return [el("div", *_RENDER[type(block)](block, address), class_="fg") for block in blocks]


def _verdict(block: Verdict, address: Address) -> Iterator[Element]:
    chips = el("span", *map(_chip, block.chips), class_="row")
    yield el("div", el("span", line(block.trained)), chips, class_="trained")
    word, colon, rest = block.headline.partition(":") if block.tone != "plain" else ("", "", block.headline)
    yield el("h1", el("span", line(word + colon), class_=block.tone) if word else None, line(rest))
    if block.lead:
        yield el("p", line(" ".join(block.lead)), class_="lead")
    yield from (el("p", *_action(one, address)) for one in block.actions)


def _chip(chip: Chip) -> Element:
    return el("span", line(chip.text), class_=f"chip {chip.tone}")


def _action(action: Action, address: Address) -> Iterator[Element | str]:
    where = address(action) if action.page else None
    if where is not None:
        yield el("a", line(action.label), href=where, class_="button", target="_self")
    else:
        yield line(action.label)
    if action.command:
        yield " "
        yield el("code", line(action.command))


def _title(title: str) -> Iterator[Element]:
    if title:
        yield el("h2", line(title))


def _sub(text: str, class_: str = "sub") -> Iterator[Element]:
    if text:
        yield el("p", line(text), class_=class_)


def _facts(block: Facts, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    yield facts((line(name), [el("span", line(one)) for one in lines]) for name, lines in block.items)


def _prose(block: Prose, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    yield from (el("p", line(one)) for one in block.paragraphs)


def head_of_chart(block: Chart) -> Iterator[Element]:
    """Its heading and legend."""
    yield from (*_title(block.title), *_sub(block.about))
    if block.keys:
        keys = (el("span", el("i", class_=f"{key.symbol} {key.color}"), line(key.meaning)) for key in block.keys)
        yield el("div", *keys, class_="keys")


def _chart(block: Chart, address: Address) -> Iterator[Element]:
    yield from head_of_chart(block)
    yield el("figure", draw_spec(block.spec, line(block.alt)), class_="wide")
    yield el("figure", draw_spec(block.narrow, line(block.alt)), class_="narrow")
    yield from _sub(block.note, "note")
    yield fold_content("Table", *_table(block.table, address))


def _table(block: TableBlock, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    align = "".join("r" if column.number else "l" for column in block.columns)
    made = table(
        line(block.caption or block.title), [line(one.name) for one in block.columns],
        [[line(cell) for cell in in_cells(row)] for row in block.rows], align,
    )  # fmt: skip
    for number, row in enumerate(made.iterfind(".//tbody/tr")):
        if number in block.leading:
            row.set("class", "leading")
    yield made
    yield from _sub(f"To compare with: {block.compare}" if block.compare else "")


def _heatmap(block: Heatmap, address: Address) -> Iterator[Element]:
    yield from (*_title(block.title), *_sub(block.about))
    if block.scale:
        keys = (el("span", el("i", class_=f"heat {_heat(heat)}"), line(meaning)) for heat, meaning in block.scale)
        yield el("div", *keys, el("span", el("i", class_="heat none"), "no value"), class_="keys")
    if 1 < len(block.panels) <= MOST_TABS:
        tabs = (_tab(block, number) for number in range(len(block.panels)))
        yield el("div", *tabs, class_="tabs", role="radiogroup", aria_label="Panel")
    yield el("div", *(_panel(one, block, address) for one in block.panels), class_="panels")


def _tab(block: Heatmap, number: int) -> Element:
    """A button that shows one panel on a narrow page."""
    name = f"panel of {line(block.title)}"
    checked = {"checked": "checked"} if number == block.first else {}
    return el(
        "label", el("input", type="radio", name=name, value=str(number), **checked), line(block.panels[number].title)
    )


def _heat(heat: float | None) -> str:
    """The class of one of the 21 colors."""
    return "none" if heat is None else f"h{round(20 * heat)}"


def _panel(panel: Panel, block: Heatmap, address: Address) -> Element:
    names = (el("th", line(name), scope="col") for name in panel.columns)
    body = [el("tr", el("th", line(name), scope="row"), *(_field(one, block.page, address) for one in fields))
            for name, fields in panel.rows]  # fmt: skip
    for row in body[len(body) - panel.last :]:
        row.set("class", "last")
    head = el("thead", el("tr", el("th", line(block.corner), scope="col"), *names))
    caption = el("caption", line(panel.title)) if panel.title else None
    whole = el("table", caption, head, el("tbody", *body))
    label = line(": ".join(part for part in (block.title, panel.title) if part))
    return el("div", whole, class_="panel", tabindex="0", role="region", aria_label=label)


def _field(field: Field, page: str, address: Address) -> Element:
    said = [el("b", line(field.text)), el("small", line(field.spread)) if field.spread else None]
    where = address(Action("", page=page, query=field.query)) if field.query else None
    shown = el("a", *said, href=where, target="_self") if where is not None else el("span", *said)
    return el("td", shown, class_=_heat(field.heat))


def _checks(block: Checks, address: Address) -> Iterator[Element]:
    yield from (*_title(block.title), *_sub(block.about))
    yield from (_check(one, address) for one in block.items)


def _check(check: CheckItem, address: Address) -> Element:
    about = " · ".join(part for part in (check.flag, check.count) if part)
    said = el("span", el("b", line(check.title)), f" {line(check.text)} ", el("small", line(about)))
    does = el("span", *_action(check.action, address)) if check.action else None
    return el("div", _chip(Chip(check.scope, check.tone)), said, does, class_=f"check {check.tone}")


def _pictures(block: Pictures, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    yield el("div", *(_picture(one.png, one.alt, one.caption) for one in block.images), class_="pictures")


def _picture(png: bytes, alt: str, caption: str) -> Element:
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    return el("figure", el("img", src=source, alt=line(alt)), el("figcaption", line(caption)) if caption else None)


def _diff(block: Diff, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    rows = [
        [line(key), el("del", line(before)) if before is not None else "", el("ins", line(after)) if after is not None else ""]
        for key, before, after in block.rows
    ]  # fmt: skip
    yield table(line(block.title) or "Differences", ["key", "before", "after"], rows, "l")


def _steps(block: Steps, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    items = [el("li", el("b", line(name)), f" {line(text)}") for name, text in block.items]
    if items:
        items[block.current].set("aria-current", "step")
    yield el("ol", *items)


#: More options of a choice are folded away
_IN_A_ROW = 8


def _choice(block: Choice, address: Address) -> Iterator[Element]:
    """Links to this page with another choice; in a report, which is one page, the choice that was made."""
    others = (option for option in block.options if option != block.chosen)
    where = {option: address(Action("", query={block.key: option})) for option in others}
    titles = {option: block.titles.get(option, option) for option in (*block.options, block.chosen)}
    if not any(where.values()):
        yield el("p", f"{line(block.label)}: {line(titles[block.chosen])}, one of {len(block.options)}.", class_="sub")
        return
    links = (
        el("a", line(titles[option]), href=href) if (href := where.get(option)) else el("b", line(titles[option]))
        for option in block.options
    )
    made = el("div", f"{line(block.label)}: ", *links, class_="row sub")
    many = f"{line(block.label)}: {line(titles[block.chosen])}, one of {len(block.options)}"
    yield made if len(block.options) <= _IN_A_ROW else fold_content(many, made)


def _code(block: Code, _: Address) -> Iterator[Element]:
    yield from _title(block.title)
    lines = "\n".join(map(line, block.text.rstrip().split("\n")))
    yield el("pre", lines, tabindex="0", role="region", aria_label=line(block.title) or "Code")


def _columns(block: Columns, address: Address) -> Iterator[Element]:
    yield el("div", *render_html(block.blocks, address), class_="columns")


def _more(block: More, address: Address) -> Iterator[Element]:
    yield fold_content(line(block.title), *render_html(block.blocks, address))


_RENDER: dict[type, Callable[[Any, Address], Iterator[Element]]] = {
    Verdict: _verdict, Facts: _facts, Prose: _prose, Chart: _chart, TableBlock: _table, Heatmap: _heatmap, Checks: _checks,
    Pictures: _pictures, Diff: _diff, Steps: _steps, Choice: _choice, Code: _code,
    Columns: _columns, More: _more,
}  # fmt: skip


def query(run: str, action: Action) -> str:
    """The address of another page of the dashboard, relative to this one."""
    return f"{action.page}?{urlencode({'run': run, **action.query})}"
