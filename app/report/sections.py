"""The sections of a report, from the answer to the configuration."""

from __future__ import annotations

from functools import partial
from xml.etree.ElementTree import Element

from fedguard.app.report.controls import controls
from fedguard.app.report.costs import costs, sums
from fedguard.app.report.curves import curves
from fedguard.app.report.document import ReportSection
from fedguard.app.report.facts import what_was_run
from fedguard.app.report.gate import gate
from fedguard.app.report.matrices import matrices
from fedguard.app.report.reading import configuration, reading
from fedguard.app.report.threats import threats
from fedguard.bench.pages.blocks import Prose, Verdict
from fedguard.bench.pages.html import render_html
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.privacy import PRIVACY
from fedguard.bench.results.run import Run


def _part(page: Page, run: Run) -> list[Element]:
    """A page as a section, its verdict as a paragraph; nothing if the page has nothing but a verdict."""
    verdict, *rest = page.blocks(run, {})
    assert isinstance(verdict, Verdict)
    said = Prose([verdict.headline + ".", " ".join(verdict.lead)], page.title)
    return render_html([said, *rest]) if rest else []


#: A section without content is left out
SECTIONS = (
    ReportSection("overview", "Answer", lambda run: render_html(OVERVIEW.blocks(run, {})), headed=True),
    ReportSection("breakdown", "Where defenses break", curves),
    ReportSection("matrices", "Every attack against every defense", matrices),
    ReportSection("privacy", "Privacy", partial(_part, PRIVACY), headed=True),
    ReportSection("gate", "The gate's verdict", gate),
    ReportSection("controls", "What defenses cost and attacks harm", controls),
    ReportSection("threats", "Threat cards", threats),
    ReportSection("sums", "Secure aggregation", sums),
    ReportSection("reading", "How to read the numbers", reading),
    ReportSection("run", "What was run", what_was_run),
    ReportSection("costs", "Costs", costs),
    ReportSection("configuration", "Configuration", configuration),
)
