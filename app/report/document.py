"""The page around the sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element

from fedguard.app.report.style import STYLE
from fedguard.bench.pages.elements import el, to_bytes
from fedguard.bench.pages.svg import number_chart_ids

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run

#: Nothing is loaded, and nothing is executed
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class ReportSection(NamedTuple):
    """A part of the report: its anchor, its title, and the function of its content; a section without content is left out.

    ``headed`` content brings its own headings, and the title is listed in the contents alone.
    """

    name: str
    title: str
    content: Callable[[Run], Sequence[Element]]
    headed: bool = False


def document(name: str, mark: str, sections: Sequence[ReportSection], run: Run) -> bytes:
    """The whole page.

    Args:
        name: name of the run.
        mark: an element that identifies the file as a report.
        sections: in their order.
    """
    filled = [(one, content) for one in sections if (content := list(one.content(run)))]
    contents = el("nav", el("ol", *(_entry(one) for one, _ in filled)), aria_label="Contents")
    body = el(
        "body",
        el("header", f"FedGuard report: {name}"),
        contents,
        el("main", *(_section(one, content) for one, content in filled)),
    )
    return html_file(f"FedGuard report: {name}", mark, body)


def html_file(title: str, mark: str, body: Element) -> bytes:
    """A whole HTML file that loads and executes nothing.

    Args:
        mark: an element of the head that identifies the kind of file.
    """
    number_chart_ids(body)
    # The policy must precede all content of a run, including the name in the title
    start = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">{mark}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
    )
    head = start.encode() + to_bytes(el("title", title))
    return head + f"<style>{STYLE}</style></head>\n".encode() + to_bytes(body) + b"</html>\n"


def _entry(section: ReportSection) -> Element:
    return el("li", el("a", section.title, href=f"#{section.name}"))


def _section(section: ReportSection, content: Sequence[Element]) -> Element:
    if section.headed:
        return el("section", *content, id=section.name, aria_label=section.title)
    heading = el("h2", section.title, id=f"{section.name}-title")
    return el("section", heading, *content, id=section.name, aria_labelledby=f"{section.name}-title")
