"""The sections of a report, the answer first, where it comes from last."""

from __future__ import annotations

from fedguard.app.report.corners import corners
from fedguard.app.report.costs import costs, sums
from fedguard.app.report.curves import curves
from fedguard.app.report.document import Section
from fedguard.app.report.facts import what_was_run
from fedguard.app.report.flags import flags
from fedguard.app.report.gate import gate
from fedguard.app.report.headline import headline
from fedguard.app.report.matrices import matrices
from fedguard.app.report.pictures import pictures
from fedguard.app.report.privacy import privacy
from fedguard.app.report.reading import configuration, reading
from fedguard.app.report.threats import threats

#: A section without content is left out.
SECTIONS = (
    Section("headline", "What came out", headline),
    Section("breakdown", "Where defenses break", curves),
    Section("matrices", "Every attack against every defense", matrices),
    Section("privacy", "Privacy", privacy),
    Section("gate", "The gate's verdict", gate),
    Section("corners", "What defenses cost and attacks harm", corners),
    Section("flags", "Red flags", flags),
    Section("threats", "Threat cards", threats),
    Section("pictures", "Reconstructions", pictures),
    Section("sums", "Secure aggregation", sums),
    Section("reading", "How to read the figures", reading),
    Section("run", "What was run", what_was_run),
    Section("costs", "Costs", costs),
    Section("configuration", "Configuration", configuration),
)
