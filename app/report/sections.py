"""The sections of a report, from the answer to the configuration."""

from __future__ import annotations

from fedguard.app.report.controls import controls
from fedguard.app.report.costs import costs, sums
from fedguard.app.report.curves import curves
from fedguard.app.report.document import ReportSection
from fedguard.app.report.facts import what_was_run
from fedguard.app.report.gate import gate
from fedguard.app.report.matrices import matrices
from fedguard.app.report.pictures import pictures
from fedguard.app.report.privacy import privacy
from fedguard.app.report.reading import configuration, reading
from fedguard.app.report.threats import threats
from fedguard.bench.pages.html import render_html
from fedguard.bench.pages.overview import OVERVIEW

#: A section without content is left out
SECTIONS = (
    ReportSection("overview", "Answer", lambda run: render_html(OVERVIEW.blocks(run, {})), headed=True),
    ReportSection("breakdown", "Where defenses break", curves),
    ReportSection("matrices", "Every attack against every defense", matrices),
    ReportSection("privacy", "Privacy", privacy),
    ReportSection("gate", "The gate's verdict", gate),
    ReportSection("controls", "What defenses cost and attacks harm", controls),
    ReportSection("threats", "Threat cards", threats),
    ReportSection("pictures", "Reconstructions", pictures),
    ReportSection("sums", "Secure aggregation", sums),
    ReportSection("reading", "How to read the numbers", reading),
    ReportSection("run", "What was run", what_was_run),
    ReportSection("costs", "Costs", costs),
    ReportSection("configuration", "Configuration", configuration),
)
