"""Red flags: conditions that make the metrics doubtful, and what to do about them."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from fedguard.app.report.elements import el, fold_content, table
from fedguard.bench.flags.lint import Finding, Lint, lint
from fedguard.bench.flags.results import results_of
from fedguard.bench.results.run import Run

#: Further cases of a flag beyond this number are only counted
SHOWN = 5


def flags(run: Run) -> list[Element]:
    """Flags that are raised, that could not be judged, and that were judged and not raised."""
    found = lint(results_of(run))
    parts: list[Element] = []
    if found.findings:
        rows = [
            (flag, str(len(cases)), [el("div", _case(cases[0])), *_more(cases[1:]), *_gaps(found, flag)])
            for (_, flag), cases in found.flags().items()
        ]
        caption = f"Raised on {found.trials} trials: the cell, the value, the threshold and what to do"
        parts.append(table(caption, ["flag", "cases", "what it says"], rows, "lrl"))
    else:
        parts.append(el("p", "No flag is raised."))
    whole = ", ".join(flag for flag in found.clear if not found.gaps(flag))
    partly = [el("p", f"{flag}, {gaps}.") for flag in found.clear if (gaps := found.gaps(flag))]
    parts.append(fold_content("Judged and not raised", el("p", f"{whole or 'None'}."), *partly))
    if found.open:
        left = [(one.flag, f"{one.cases} of {one.of}", one.why) for one in found.open]
        parts.append(
            fold_content(f"Not judged ({len(left)})", table("Not judged", ["flag", "cases", "why"], left, "lrl"))
        )
    return parts


def _case(one: Finding) -> str:
    seed = "" if one.seed is None else f", seed {one.seed}"
    return f"{one.cell}{seed}: {one.said}"


def _gaps(found: Lint, flag: str) -> list[Element]:
    gaps = found.gaps(flag)
    return [el("div", f"{gaps[0].upper()}{gaps[1:]}.", class_="note")] if gaps else []


def _more(cases: list[Finding]) -> list[Element]:
    if not cases:
        return []
    more = len(cases) - SHOWN
    rest = [el("div", f"... and {more} more: `fedguard lint` names them all.", class_="note")] if more > 0 else []
    return [fold_content("More cases", *(el("div", _case(one)) for one in cases[:SHOWN]), *rest)]
