"""The sections of a report, from the answer to the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from xml.etree.ElementTree import Element

from fedguard.app.report.costs import costs
from fedguard.app.report.document import ReportSection
from fedguard.app.report.facts import what_was_run
from fedguard.app.report.reading import configuration, reading
from fedguard.app.report.threats import threats
from fedguard.bench.gate.verdict_store import verdicts
from fedguard.bench.pages import matrix
from fedguard.bench.pages.blocks import Block, Choice, More, Prose, Verdict
from fedguard.bench.pages.breakdown import draw_numbers
from fedguard.bench.pages.cell import worst_cells
from fedguard.bench.pages.gate import GATE
from fedguard.bench.pages.html import render_html
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.privacy import PRIVACY
from fedguard.bench.pages.replay import REPLAY
from fedguard.bench.pages.secagg import SECAGG
from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.results.run import Run


def render_section(blocks: Iterable[Block]) -> list[Element]:
    """A page as a section below the answer of the run: its verdict is a heading of the second level, and nothing is chosen."""
    kept = [one for one in blocks if not isinstance(one, Choice)]
    return render_html(Prose(one.lead, one.headline) if isinstance(one, Verdict) else one for one in kept)


def _gate(run: Run) -> list[Element]:
    """The verdicts, if there are any."""
    broken: list[DamagedFile] = []
    found = verdicts(run.folder, broken.append)
    return render_section(GATE.blocks(run, {})) if found or broken else []


def _replay(run: Run) -> list[Element]:
    """The last kept round of the first attacked cell, if rounds were kept: each further picture would double the report."""
    found = [one for one in REPLAY.blocks(run, {}) if not isinstance(one, Choice | More)]
    return render_section(found) if len(found) > 1 else []


def _if_asked(page: Page, run: Run) -> list[Element]:
    """Nothing if the run does not ask what the page answers, so that there is nothing but the verdict."""
    found = [one for one in page.blocks(run, {}) if not isinstance(one, Choice)]
    return render_section(found) if len(found) > 1 else []


#: A section without content is left out
SECTIONS = (
    ReportSection("overview", "Answer", lambda run: render_html(OVERVIEW.blocks(run, {})), headed=True),
    ReportSection("breakdown", "Breakdown", lambda run: render_html(draw_numbers(run)), headed=True),
    ReportSection("matrix", "Matrix", lambda run: render_section(matrix.whole(run, "report", {})), headed=True),
    ReportSection("cells", "Cells that matter", lambda run: render_html(worst_cells(run)), headed=True),
    ReportSection("privacy", "Privacy", partial(_if_asked, PRIVACY), headed=True),
    ReportSection("sums", "Secure aggregation", partial(_if_asked, SECAGG), headed=True),
    ReportSection("replay", "Round replay", _replay, headed=True),
    ReportSection("gate", "Gate", _gate, headed=True),
    ReportSection("threats", "Threat cards", threats),
    ReportSection("reading", "How to read the numbers", reading),
    ReportSection("run", "What was run", what_was_run),
    ReportSection("costs", "Costs", costs),
    ReportSection("configuration", "Configuration", configuration),
)
