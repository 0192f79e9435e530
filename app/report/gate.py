"""The gate's last verdict on the run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from fedguard.app.charts.gate import drops
from fedguard.bench.gate.reports import HEADS, NOTE, row
from fedguard.bench.gate.verdict import WORDS, GateVerdict, Judgment
from fedguard.bench.gate.verdict_store import verdicts
from fedguard.bench.pages.elements import bullet_list, el, facts, fold_content, paragraphs, table
from fedguard.bench.pages.svg import draw_figure
from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES


def gate(run: Run) -> list[Element]:
    """The verdict with its reasons."""
    broken: list[DamagedFile] = []
    found = verdicts(run.folder, broken.append)
    damaged = paragraphs(
        (f"gate/{one.path.name} is no verdict that can be read: {one.why}." for one in broken), class_="note"
    )
    return [*damaged, *(_last(found[-1]) if found else [])]


def _last(verdict: GateVerdict) -> list[Element]:
    headline = el("p", verdict.headline, class_="lead")
    about = facts(
        [
            ("judged", datetime.fromtimestamp(verdict.time, UTC).strftime("%Y-%m-%d %H:%M UTC")),
            ("run", verdict.run),
            ("baseline", verdict.baseline),
            ("commit", f"{verdict.commit or 'not known'}, baseline {verdict.baseline_commit or 'not known'}"),
            ("exit code", str(verdict.exit_code)),
        ]
    )
    lines = [*verdict.incompatible, *verdict.warnings]
    charts = [
        draw_figure(chart, f"{FIGURES[figure].title}: how much worse each cell became, beside its margin.")
        for figure, chart in drops(verdict).items()
    ]
    said = [bullet_list(lines)] if lines else []
    return [headline, about, *said, *_broad(verdict), *charts, *_judgments(verdict), *_audits(verdict)]


def _judgments(verdict: GateVerdict) -> list[Element]:
    ordered = sorted(verdict.judgments, key=lambda one: -WORDS.index(one.verdict))
    if not ordered:
        return []
    telling = [one for one in ordered if one.verdict not in ("pass", "identical") or one.lost_seed]
    rest = [one for one in ordered if one not in telling]
    parts = []
    if telling:
        parts += [
            _table("One judgment for each metric of each cell, the worst first", telling),
            el("p", NOTE, class_="note"),
        ]
    if rest:
        parts.append(fold_content(f"{len(rest)} as they were", _table("No worse than the margin", rest)))
    return parts


def _table(caption: str, judgments: Sequence[Judgment]) -> Element:
    rows = [[*row(one), one.why] for one in judgments]
    return table(caption, [*HEADS, "why"], rows, "lllrrrrrrrl")


def _broad(verdict: GateVerdict) -> list[Element]:
    """What all cells share, before the single cells."""
    rows = [(FIGURES[one.figure].title, one.verdict, one.why) for one in verdict.broad]
    return [table("Each metric over the whole suite", ["figure", "verdict", "why"], rows, "l")] if rows else []


def _audits(verdict: GateVerdict) -> list[Element]:
    rows = [(str(one.get("subject", "-")), str(one["verdict"]), str(one.get("words", ""))) for one in verdict.audits]
    return [table("Audits of the epsilons", ["of", "verdict", "in words"], rows, "l")] if rows else []
