"""The gate's verdicts on a run: the worst cell, each cell against the baseline, what changed, and every verdict so far."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from fedguard.bench.gate.verdict import CANNOT_JUDGE, PASSED, REGRESSED, GateVerdict, Judgment, Word
from fedguard.bench.gate.verdict_store import verdicts
from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Block,
    CheckItem,
    Checks,
    Chip,
    Choice,
    Diff,
    Heading,
    More,
    Prose,
    TableBlock,
    Tone,
    Verdict,
    choose,
)  # fmt: skip
from fedguard.bench.pages.gate_chart import against_baseline, history
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.trained import describe_training
from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import p_text

_SAID = {PASSED: "passed", REGRESSED: "regressed", CANNOT_JUDGE: "cannot judge"}
_TONES: dict[int, Tone] = {PASSED: "good", REGRESSED: "bad", CANNOT_JUDGE: "warn"}

#: Judgments that need attention, worst first
_TROUBLE: dict[Word, Tone] = {"regressed": "bad", "missing": "warn", "inconclusive": "warn"}

#: A warning of the gate that is a difference: ``torch was 2.13.0, is 2.14.0.``
_WAS = re.compile(r"(?:.*: )?(.+) was (.+), is (.+)\.")


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The latest verdict, or the one of the address under ``verdict``; then all of them over time."""
    broken: list[DamagedFile] = []
    found = verdicts(run.folder, broken.append)
    trained = describe_training(run)
    damaged = [CheckItem("whole run", "warn", "A verdict cannot be read and is left out.", str(one)) for one in broken]
    if not found:
        yield Verdict("The gate has not judged this run yet", (), trained, (), list(_first_commands(run)))
    else:
        names = [f"#{number} {_date(one.time)}: {_SAID[one.exit_code]}" for number, one in enumerate(found, 1)]
        chosen = choose(address, "verdict", names, names[-1])
        verdict, *rest = describe_verdict(found[names.index(chosen)], trained)
        yield verdict
        if len(found) > 1:
            yield Choice("verdict", "Verdict", names[::-1], chosen)
        yield from rest
        if any(one.judgments for one in found):
            yield history(found)
    if damaged:
        yield Checks(damaged, "Damaged")


def describe_verdict(verdict: GateVerdict, trained: str = "") -> Iterator[Block]:
    """One verdict: what a job summary holds."""
    now, was = (commit or "unknown commit" for commit in (verdict.commit, verdict.baseline_commit))
    about = f"FedGuard gate: {verdict.run} ({now}) against {verdict.baseline} ({was}), judged {_date(verdict.time)}"
    symbol = {PASSED: "✓", REGRESSED: "✗", CANNOT_JUDGE: "?"}[verdict.exit_code]
    tone = _TONES[verdict.exit_code]
    chips = [Chip(f"{symbol} exit code {verdict.exit_code}", tone), *_counts(verdict)]
    shown = " · ".join(part for part in (trained, about) if part)
    yield Verdict(_headline(verdict), list(_lead(verdict)), shown, chips, list(_actions(verdict)), tone)
    if items := [*_incompatible(verdict), *_trouble(verdict)]:
        yield Checks(items, "What needs attention")
    for metric in dict.fromkeys(one.figure for one in verdict.judgments if one.before is not None):
        yield against_baseline([one for one in verdict.judgments if one.figure == metric])
    yield from _what_changed(verdict)
    if verdict.audits:
        yield _audits(verdict)
    if verdict.judgments:
        command = shlex.join(["fedguard", "show", verdict.run, "--page", "gate", "--all"])
        yield More(
            f"All {len(verdict.judgments)} judgments, and how a cell is judged",
            [_all(verdict), Prose([_NOTE])],
            command,
        )


_NOTE = (
    "Means over seeds. What is worse by more than its margin is trained again on fresh seeds, and is regressed only if these "
    "confirm it; then before and now are of the fresh seeds. p is one-sided, adjusted by Holm. 'Detectable' is the drop that "
    "this comparison finds with a chance of 80 %, 'worst seed' the largest drop of a seed."
)


#: Most cells without a verdict that are named
_NAMED = 6


def _headline(verdict: GateVerdict) -> str:
    if verdict.exit_code == REGRESSED:
        return f"Regressed: {_regression(verdict)}"
    if verdict.exit_code == CANNOT_JUDGE:
        return f"Cannot judge: {_obstacle(verdict)}"
    cells = len({one.cell for one in verdict.judgments})
    return f"Passed: no drop beyond its margin is found in {f'{cells} cells' if cells != 1 else 'the one cell'}."


def _regression(verdict: GateVerdict) -> str:
    """The worst regression, measured in margins: of a cell, or else of the whole suite, or else an epsilon."""
    worst = max(_with(verdict, "regressed"), key=_in_margins, default=None)
    if worst is not None:
        if worst.drop is None or worst.p_value is None:
            return f"{FIGURES[worst.figure].title} in {worst.label}: {worst.why}"
        size = (
            f"{FIGURES[worst.figure].title} is worse by {FIGURES[worst.figure].difference(worst.drop)} in {worst.label}"
        )
        return f"{size}, confirmed on {len(worst.confirmed_on)} fresh seeds, {p_text(worst.p_value)}."
    broad = next((one for one in verdict.broad if one.verdict == "regressed"), None)
    if broad is not None:
        return f"{FIGURES[broad.figure].title} over the whole suite, though no single cell shows it: {broad.why}"
    return f"the epsilon of {verdict.violated[0].get('subject', 'the suite')} does not hold."


def _in_margins(one: Judgment) -> float:
    return (one.drop or 0.0) / (one.margin or 1e-9)


def _obstacle(verdict: GateVerdict) -> str:
    if verdict.incompatible:
        return verdict.incompatible[0]
    if not verdict.judgments:
        return "no metric of any cell could be compared."
    for word, said in (("missing", "have no value"), ("inconclusive", "are inconclusive")):
        found = [one for one in verdict.judgments if one.verdict == word]
        if found:
            such = f"such as {found[0].label}: {found[0].why}"
            return f"{len(found)} of {len(verdict.judgments)} judgments {said}, {such}"
    return "an audit of an epsilon could not be judged."


def _lead(verdict: GateVerdict) -> Iterator[str]:
    worst = max(_with(verdict, "regressed"), key=_in_margins, default=None)
    if worst is not None and worst.before is not None and worst.after is not None:
        known = FIGURES[worst.figure]
        margin = "" if worst.margin is None else f"; the margin is {known.difference(worst.margin)}"
        yield f"{known.quantity(worst.before)} before, {known.quantity(worst.after)} now{margin}."
    for one in verdict.broad:
        if one.verdict != "identical":
            yield f"Over the whole suite, {FIGURES[one.figure].title}: {one.verdict}: {one.why}"
    labels = list(dict.fromkeys(one.label for word in ("missing", "inconclusive") for one in _with(verdict, word)))
    if verdict.exit_code == CANNOT_JUDGE and len(labels) > 1:
        more = f", and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
        yield f"Without a verdict: {'; '.join(labels[:_NAMED])}{more}."
    better = _with(verdict, "improved")
    if better:
        best = max(better, key=lambda one: -_in_margins(one))
        gain = FIGURES[best.figure].difference(abs(best.drop or 0.0))
        most = f"most of all {best.label}, by {gain}" if len(better) > 1 else f"{best.label}, by {gain}"
        yield f"{_numbered(len(better), 'judgment')} improved: {most}. An attack that became weaker looks the same."
    if verdict.violated:
        yield f"{_numbered(len(verdict.violated), 'epsilon')} violated."


def _numbered(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _counts(verdict: GateVerdict) -> Iterator[Chip]:
    """Numbers of judgments, the regressed ones first."""
    counts = [f"{count} {word}" for word, count in reversed(verdict.counts.items()) if count]
    order = sorted(counts, key=lambda text: not text.endswith("regressed"))
    if order:
        yield Chip(", ".join(order))
    cells = len({one.cell for one in verdict.lost_seeds})
    if cells:
        yield Chip(f"in {_numbered(cells, 'cell')} a seed is ruined", "warn")


def _actions(verdict: GateVerdict) -> Iterator[Action]:
    worst = max(_with(verdict, "regressed"), key=_in_margins, default=None)
    if worst is not None:
        yield Action("See the cell", page="cell", query=worst.swept)
    named = [verdict.run, "--baseline", verdict.baseline]
    if worst is not None or (verdict.exit_code == PASSED and verdict.counts["improved"]):
        accept = shlex.join(["fedguard", "baseline", "update", *named])
        yield Action("If the change is meant, accept it as the new baseline:", f'{accept} --reason "..."')
    yield Action("Judge again:", shlex.join(["fedguard", "gate", *named]))


def _first_commands(run: Run) -> Iterator[Action]:
    """The commands that make a verdict, in any working directory."""
    there = ["--store", str(run.folder.path.parent)]
    save = ["fedguard", "baseline", "save", run.name, "--to", "baseline.json", *there]
    yield Action("Save a baseline, once:", shlex.join(save))
    judge = ["fedguard", "gate", run.name, "--baseline", "baseline.json", *there]
    yield Action("After a change, judge a new run:", shlex.join(judge))


def _incompatible(verdict: GateVerdict) -> Iterator[CheckItem]:
    for why in verdict.incompatible:
        yield CheckItem("whole suite", "bad", "Cannot be compared.", why)
    for one in verdict.violated:
        yield CheckItem("epsilon", "bad", f"{one.get('subject', '-')}.", str(one.get("words", "")))


def _trouble(verdict: GateVerdict) -> Iterator[CheckItem]:
    """The judgments that need attention, those of one reason together, and passes with a ruined seed."""
    for word, tone in _TROUBLE.items():
        yield from _reasons(_with(verdict, word), word, tone)
    yield from _reasons([one for one in verdict.lost_seeds if one.verdict not in _TROUBLE], "ruined seed", "warn")


def _reasons(judgments: Sequence[Judgment], scope: str, tone: Tone) -> Iterator[CheckItem]:
    for metric in dict.fromkeys(one.figure for one in judgments):
        cells = [(one.swept, one.why) for one in judgments if one.figure == metric]
        for said in reason_lines(cells, "cells"):
            yield CheckItem(scope, tone, f"{FIGURES[metric].title}:", said)


def _what_changed(verdict: GateVerdict) -> Iterator[Block]:
    """Every difference between run and baseline, whether or not it prevents a judgment."""
    title, rows, rest = "What changed since the baseline", [], []
    if verdict.commit != verdict.baseline_commit:
        rows.append(("commit", verdict.baseline_commit or "unknown", verdict.commit or "unknown"))
    for warning in verdict.warnings:
        found = _WAS.fullmatch(warning)
        rows += [(found[1], found[2], found[3])] if found else []
        rest += [] if found else [warning]
    if rows:
        yield Diff(rows, title)
    if not verdict.warnings and not verdict.incompatible:
        rest.append("Seeds, thresholds, versions and the code of plug-ins are the same.")
    if rest:
        yield Prose(rest, "" if rows else title)


def _audits(verdict: GateVerdict) -> TableBlock:
    heads = ["of", "verdict", "claimed epsilon", "lower bound", "in words", "cells"]
    rows = [
        [
            str(one.get("subject", "-")),
            str(one["verdict"]),
            _four_digits(one.get("claimed")),
            _four_digits((one.get("bound") or {}).get("epsilon")),
            str(one.get("words", "")),
            ", ".join(str(cell) or "every cell" for cell in one.get("cells") or ()),
        ]
        for one in verdict.audits
    ]
    return TableBlock([Heading(head) for head in heads], rows, "Audits of the epsilons", "Audits of the epsilons")


def _four_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _all(verdict: GateVerdict) -> TableBlock:
    heads = ["verdict", "cell", "metric", "before", "now", "worse by", "margin", "worst seed", "p", "detectable", "why"]
    columns = [Heading(head, number=head not in ("verdict", "cell", "metric", "why")) for head in heads]
    return TableBlock(columns, [_row(one) for one in verdict.judgments], "One judgment for each metric of each cell")


def _row(one: Judgment) -> list[str]:
    known = FIGURES[one.figure]
    levels = ("" if value is None else known.quantity(value) for value in (one.before, one.after))
    sizes = (one.drop, one.margin, one.worst_seed_drop)
    p = "" if one.p_value is None else f"{one.p_value:.2g}"
    drops = ["" if value is None else known.difference(value) for value in (*sizes, one.detectable)]
    return [one.verdict, one.label, known.title, *levels, *drops[:3], p, drops[3], one.why]


def _with(verdict: GateVerdict, word: Word) -> list[Judgment]:
    return [one for one in verdict.judgments if one.verdict == word]


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


GATE = Page("gate", "Gate", blocks)
