"""The report on controls in plain words: what was asked, what is evidence, what it does not show, and what was not tested."""

from __future__ import annotations

from collections.abc import Iterator

from fedguard.bench.controls.evidence import ControlEvidence, collect_evidence
from fedguard.bench.controls.table import ControlTable
from fedguard.bench.pages.blocks import Block, Facts, Prose, Verdict
from fedguard.bench.pages.trained import describe_training
from fedguard.bench.results.run import Run

NOT_TESTED = "not tested"
GRADES = {"read": "the text was read", "secondary": "known from summaries of the text"}


def describe_controls(run: Run, table: ControlTable) -> Iterator[Block]:
    """The blocks of the report: every control in the order of the table, tested or not, in the same size."""
    found = collect_evidence(run, table)
    tested = sum(bool(one.found) for one in found)
    yield Verdict(
        f"This run is evidence for {tested} of {len(found)} controls; {len(found) - tested} were not tested",
        (
            "Evidence is no compliance: whether it is enough is for the reader to judge.",
            "Each value is the worst over the attacks of this run, for each defense, with its 95 % interval over seeds.",
        ),
        describe_training(run),
    )
    for one in found:
        yield _describe_control(one, table)
    yield Prose(
        [f"{text.name}: {text.version}; {GRADES[text.grade]}. {text.url}" for text in table.texts.values()],
        f"Texts (table {table.version})",
    )


def _describe_control(one: ControlEvidence, table: ControlTable) -> Facts:
    evidence = [found.describe() for found in one.found] or [NOT_TESTED]
    items = [("asks", [one.control.asks]), ("evidence", evidence), ("does not show", [one.control.not_shown])]
    return Facts(items, f"{table.texts[one.control.text].name}, {one.control.id}")
