"""Each renderer with each type of block: it shows every text once it is given, escapes all of it, and bears empty blocks."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, get_args

import pytest
from rich.console import Console
from streamlit.testing.v1 import AppTest

from fedguard.app import blocks as dashboard
from fedguard.bench.pages import html as html_renderer
from fedguard.bench.pages import markdown as markdown_renderer
from fedguard.bench.pages import terminal as terminal_renderer
from fedguard.bench.pages import tokens
from fedguard.bench.pages.blocks import (
    Action,
    Bar,
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
    Heading,
    Heatmap,
    Key,
    More,
    Panel,
    Picture,
    Pictures,
    Prose,
    Steps,
    TableBlock,
    Verdict,
)  # fmt: skip
from fedguard.bench.pages.elements import to_bytes
from fedguard.bench.pages.tokens import TOKENS
from tests.app.test_app import MEANT
from tests.stores import HOSTILE

SPEC = {
    "data": {"values": [{"x": 1, "y": "a"}]},
    "mark": {"type": "bar", "color": "var(--orange)"},
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "nominal"}},
}
#: One pixel
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000" "1f15c4890000000d49444154789c63606060f80f0001040100"
    "5fe5c34b0000000049454e44ae426082"
)  # fmt: skip


def one_of_each(say=lambda text: text) -> list[Block]:
    """A block of each type; each text is passed through ``say``."""
    table = TableBlock(
        [Heading(say("column one")), Heading(say("column two"), number=True), Heading(say("column three"))],
        [[say("first cell"), 1.25, say("third cell")], [say("other first"), None, say("other third")]],
        caption=say("a caption"), title=say("a table"), leading=[0], bars=[Bar(50, 40, 60, 90), None],
        legend=say("legend of the bars"), compare=say("values to compare with"),
    )  # fmt: skip
    action = Action(say("an action"), say("fedguard do"), "matrix", {"cell": "abc"})
    check = CheckItem(
        say("a scope"), "warn", say("a check"), say("text of a check"), say("a_flag"), say("3 cells"), action
    )
    return [
        Verdict(say("a headline"), [say("lead one"), say("lead two")], say("trained on"), [Chip(say("a chip")), Chip(say("last chip"), "bad")], [action]),
        Facts([(say("a fact"), [say("line one"), say("line two")])], say("facts")),
        Prose([say("a paragraph"), say("another paragraph")], say("prose")),
        Chart(SPEC, SPEC, say("what a chart shows"), table, say("a chart"), say("about a chart"), say("note of a chart"), [Key("dot", "orange", say("a key"))]),
        table,
        Heatmap(
            [Panel(say(f"panel {n}"), [say("a defense")], [(say("a row"), [Field(say("a value"), say("an interval"), 0.5, {"attack": "a"})]), (say("last row"), [Field(say("refused here"))])], 1) for n in "ab"],
            say("a corner"), say("a heat map"), say("about a heat map"), [(0.5, say("40 points"))],
        ),
        Checks([check], say("checks"), say("about checks")),
        Pictures([Picture(PNG, say("what a picture shows"), say("caption of a picture"))], say("pictures")),
        Diff([(say("a key"), say("before"), say("after")), (say("new key"), None, say("new value"))], say("a diff")),
        Code(say("some code"), title=say("code")),
        Columns([Prose([say("in a column")]), Prose([say("in another column")])]),
        Steps([(say("step one"), say("text one")), (say("step two"), say("text two"))], 1, title=say("steps")),
        Choice("setting", say("a choice"), [say("option one"), say("option two")], say("option two")),
        More(say("more"), [Prose([say("on demand")])], say("fedguard show more")),
    ]  # fmt: skip


class Parsed(HTMLParser):
    """What a browser makes of a source: tags, names of attributes, and all text, attributes included."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.text += " ".join(["", *(value or "" for _, value in attrs), ""])

    def handle_data(self, data):
        self.text += data


def harmless(source: str) -> bool:
    """Whether nothing in it runs, and it has no tag but the renderer's own."""
    found = Parsed(source)
    allowed = "div span h1 h2 p a b small code i dl dt dd figure figcaption img svg g path text line rect tspan table caption thead"
    allowed += " tbody tr th td details summary del ins ol li label input pre"
    return found.tags <= set(allowed.split()) and not any(name.startswith("on") for name in found.attributes)


def in_html(blocks: list[Block]) -> str:
    return Parsed(b"".join(map(to_bytes, html_renderer.render_html(blocks))).decode()).text


def in_terminal(blocks: list[Block]) -> str:
    console = Console(width=600, no_color=True)
    with console.capture() as capture:
        console.print(terminal_renderer.render_terminal(blocks, unfold=False))
        console.print(terminal_renderer.render_terminal(blocks, unfold=True))
    return capture.get()


def in_markdown(blocks: list[Block]) -> str:
    return re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", html.unescape(markdown_renderer.render_markdown(blocks)))


def _script(blocks):
    from pathlib import Path

    from fedguard.app import address
    from fedguard.app.blocks import draw
    from fedguard.app.here import PageContext

    with address.write_address():
        draw(blocks, PageContext(Path("runs"), "a run", {}))


def page(blocks: list[Block]) -> AppTest:
    """The blocks on a page of the dashboard."""
    test = AppTest.from_function(_script, kwargs={"blocks": blocks}, default_timeout=60).run()
    assert not test.exception, test.exception[0].stack_trace
    return test


def in_dashboard(blocks: list[Block]) -> str:
    said = []
    for node in page(blocks).main:
        if node.type in ("arrow_data_frame", "dataframe"):
            said.append(" ".join(map(str, [*node.value.columns, *node.value.to_numpy().ravel()])))
        elif node.proto is not None:
            body = node.proto.body if node.type == "html" else str(node.proto)
            said.append(Parsed(body).text if node.type == "html" else body)
    return " ".join(said)


RENDERERS = {"html": in_html, "terminal": in_terminal, "markdown": in_markdown, "dashboard": in_dashboard}

#: Fields that are no text for readers
NO_TEXT = {"tone", "symbol", "color", "key", "query", "spec", "narrow", "page", "png", "command"}

#: What a renderer has no place for, by type and field
LEFT_OUT = {
    "html": {("TableBlock", "legend"), ("Choice", "options"), ("More", "command")},
    "terminal": {
        ("Chart", "alt"), ("Chart", "title"), ("Chart", "about"), ("Chart", "note"), ("Key", "meaning"), ("TableBlock", "caption"),
        ("CheckItem", "title"), ("Checks", "about"), ("Picture", "alt"), ("Choice", "options"), ("Heatmap", "scale"),
    },
    "markdown": {
        ("Chart", "alt"), ("Chart", "about"), ("Key", "meaning"), ("TableBlock", "legend"), ("Checks", "about"), ("Picture", "alt"),
        ("Choice", "options"), ("Heatmap", "scale"),
    },
    "dashboard": {("TableBlock", "legend"), ("Steps", "items")},
}  # fmt: skip


def texts(part: Any, left_out: set[tuple[str, str]]) -> Iterator[str]:
    """Every text of a block for its readers."""
    if isinstance(part, str):
        yield part
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            if field.name not in NO_TEXT and (type(part).__name__, field.name) not in left_out:
                yield from texts(getattr(part, field.name), left_out)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from texts(one, left_out)


def missing(name: str, blocks: list[Block]) -> list[str]:
    said = " ".join(RENDERERS[name](blocks).split())
    return [text for block in blocks for text in texts(block, LEFT_OUT[name]) if text not in said]


def test_there_is_a_block_of_each_type_and_each_renderer_knows_it():
    types = set(get_args(Block))
    assert {type(one) for one in one_of_each()} == types
    for renderer in (html_renderer, terminal_renderer, markdown_renderer, dashboard):
        assert set(renderer._RENDER) == types


@pytest.mark.parametrize("name", RENDERERS)
def test_every_text_is_shown(name):
    assert not missing(name, one_of_each())
    assert "1.2" in RENDERERS[name](one_of_each()), "a number of a table"


@pytest.mark.parametrize("name", RENDERERS)
def test_a_lost_column_and_a_lost_chip_are_noticed(name, monkeypatch):
    """Planted faults: a renderer that drops the last column of a table, and one that drops the last chip of a verdict."""
    whole = one_of_each()
    verdict, table = whole[0], whole[4]
    cut_table = dataclasses.replace(table, columns=table.columns[:-1], rows=[row[:-1] for row in table.rows])
    cut_verdict = dataclasses.replace(verdict, chips=verdict.chips[:-1])
    draw = RENDERERS[name]
    monkeypatch.setitem(RENDERERS, name, lambda blocks: draw([cut_table if one is table else one for one in blocks]))
    assert missing(name, [table]) == ["column three", "third cell", "other third"]
    monkeypatch.setitem(
        RENDERERS, name, lambda blocks: draw([cut_verdict if one is verdict else one for one in blocks])
    )
    assert missing(name, [verdict]) == ["last chip"]


EMPTY = [
    Verdict("nothing"), Facts([]), Prose([]), Chart(SPEC, SPEC, "nothing", TableBlock([], [])), Heatmap([], "attack"), TableBlock([], []), TableBlock([Heading("a")], []),
    Checks([]), Pictures([]), Diff([]), Choice("key", "label", ["one"], "one"), More("nothing", []),
]  # fmt: skip


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("block", EMPTY, ids=lambda one: type(one).__name__)
def test_empty_blocks(name, block):
    assert "None" not in RENDERERS[name]([block])


EVIL = f"{HOSTILE} \x1b[31m\n# heading\n- item | @team &lt;b&gt; </p><script>alert(1)</script>"


def test_html_escapes():
    source = b"".join(map(to_bytes, html_renderer.render_html(one_of_each(lambda text: EVIL + text)))).decode()
    assert harmless(source) and "\x1b" not in source
    assert source.count('<img src="data:image/png') == 1
    assert "alert(1)" in source
    assert not harmless("<p onclick='x'>") and not harmless("<script>"), "a planted fault"


def test_the_terminal_escapes():
    said = in_terminal(one_of_each(lambda text: EVIL + text))
    assert "\x1b[31m" not in said and "\\x1b[31m" in said
    assert ":red[red]" in said, "rich takes nothing for markup"


def test_markdown_escapes():
    source = markdown_renderer.render_markdown(one_of_each(lambda text: EVIL + text))
    outside = re.sub(r"(?m)`` ?.*? ?``(?!`)|^ {4}.*$", "", source)  # code shows what it holds
    assert not MEANT.search(outside)
    assert not re.search(r"<(script|img|b)|\x1b|@team|^(# heading|- item)", outside, re.MULTILINE)
    for line in source.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4), "two or three columns"


def test_the_dashboard_escapes():
    for node in page(one_of_each(lambda text: HOSTILE + text)).main:
        if node.type == "html":
            assert harmless(node.proto.body)
        elif node.type in ("expander", "markdown", "caption", "selectbox"):
            assert not MEANT.search(node.proto.label if hasattr(node.proto, "label") else str(node.proto))


def test_charts_are_written_in_tokens():
    drawn = to_bytes(html_renderer.render_html([one_of_each()[3]])[0]).decode()
    assert "var(--orange)" in drawn
    assert not set(re.findall(r"var\(--([\w-]+)\)", drawn)) - set(TOKENS)


def test_a_bar_lies_where_its_values_are():
    drawn = terminal_renderer._draw(Bar(50, 25, 75, 100), 0, 100)
    assert len(drawn) == 32 and drawn.index("●") == 16 and drawn.index("○") == 31
    assert (drawn.index("─"), drawn.rindex("─")) == (8, 23)
    assert terminal_renderer._draw(Bar(-20, ring=None), 0, 100)[0] == "●"


def test_what_is_folded_is_a_command_in_the_terminal():
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(
            terminal_renderer.render_terminal([More("more", [Prose(["on demand"])], "fedguard show x --all")])
        )
    assert "on demand" not in capture.get() and "More: fedguard show x --all" in capture.get()


def test_a_heat_map_has_a_link_for_each_field_and_a_tab_for_each_panel():
    block = next(one for one in one_of_each() if isinstance(one, Heatmap))
    source = to_bytes(
        html_renderer.render_html([block], lambda action: f"{action.page}?{action.query['attack']}")[0]
    ).decode()
    assert source.count('<a href="cell?a" target="_self">') == 2 and source.count('class="h10"') == 2
    assert source.count('<input type="radio"') == 2 and source.count(' checked="checked"') == 1
    assert source.count('class="last"') == source.count('<td class="none">') == 2
    assert "<a " not in to_bytes(html_renderer.render_html([block])[0]).decode(), "a report has no other pages"
    alone = dataclasses.replace(block, panels=block.panels[:1])
    assert "<input" not in to_bytes(html_renderer.render_html([alone])[0]).decode()


def test_text_on_the_strongest_color_can_be_read():
    """4.5 to 1 by WCAG: ink on orange at its largest opacity over the ground."""
    for dark in (False, True):
        ink, orange, ground = (_rgb(TOKENS[name][dark]) for name in ("ink", "orange", "ground"))
        part = tokens._STRONGEST[dark]
        under = [part * top + (1 - part) * below for top, below in zip(orange, ground, strict=True)]
        light, shade = sorted((_luminance(ink), _luminance(under)), reverse=True)
        assert (light + 0.05) / (shade + 0.05) >= 4.5


def _rgb(color: str) -> list[float]:
    return [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]


def _luminance(color: list[float]) -> float:
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
