"""A verdict for people and for CI: a terminal, GitHub's summary in Markdown, and JUnit XML.

Names, reasons and file names come from runs and suites and are untrusted, so they are escaped everywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from fedguard.bench.gate.verdict import CANNOT_JUDGE, PASSED, REGRESSED, GateVerdict, Judgment, Word
from fedguard.bench.terminal.parted import split_table
from fedguard.metrics.figures import FIGURES

#: Verdicts that need attention, worst first; all others are only counted.
TROUBLE: tuple[Word, ...] = ("regressed", "missing", "inconclusive")
HEADS = ("verdict", "cell", "figure", "before", "after", "worse by", "margin", "worst seed", "p", "detectable")
NOTE = (
    "Means over seeds. 'Worse by' is negative where it is better, 'worst seed' by how much the worst of all seeds is. "
    "p is one-sided, of fresh seeds, adjusted by Holm. "
    "'Detectable' is the drop that this comparison finds with a chance of 80 %."
)
_AUDITED: dict[str, Word] = {"violated": "regressed", "not judged": "inconclusive"}
_STYLES = {PASSED: "bold green", REGRESSED: "bold red", CANNOT_JUDGE: "bold yellow"}
_COLORS = {"regressed": "red", "missing": "yellow", "inconclusive": "yellow", "improved": "cyan"}


def terminal(verdict: GateVerdict) -> RenderableType:
    """The judgments that changed or need attention; all others are only counted."""
    parts: list[RenderableType] = [_text(verdict.headline, _STYLES[verdict.exit_code])]
    parts += [_text(f"cannot be compared: {why}", "yellow") for why in verdict.incompatible]
    parts += [_text(line) for line in _broad_lines(verdict)]
    looked_at = [*_trouble(verdict), *_with(verdict, "improved")]
    if looked_at:
        fields = [
            [_text(one.verdict, _COLORS.get(one.verdict, "")), *(_text(field) for field in row(one)[1:])]
            for one in looked_at
        ]
        parts += [_Fields(fields), _text(NOTE, "dim")]
        parts += [_text(line) for line in _sentences(verdict)]
    parts += [_text(line) for line in _audit_lines(verdict)]
    parts += [_text(f"warning: {line}", "yellow") for line in verdict.warnings]
    if (advice := _advice(verdict)) is not None:
        parts.append(_text(advice))
    return Group(*parts)


def markdown(verdict: GateVerdict) -> str:
    """Markdown for a summary in GitHub: judgments that need attention first, the rest folded."""
    lines = [
        f"## FedGuard gate: {escape_markdown(verdict.headline)}",
        "",
        escape_markdown(_describe_comparison(verdict)),
        "",
    ]
    lines += [f"- **cannot be compared**: {escape_markdown(why)}" for why in verdict.incompatible]
    lines += [f"- {escape_markdown(line)}" for line in _broad_lines(verdict)]
    for found in (_trouble(verdict), _with(verdict, "improved")):
        lines += _table(found)
    lines += [f"- {escape_markdown(line)}" for line in (*_sentences(verdict), *_audit_lines(verdict))]
    lines += [f"- warning: {escape_markdown(line)}" for line in verdict.warnings]
    if (advice := _advice(verdict)) is not None:
        lines += ["", escape_markdown(advice)]
    rest = [one for one in _with(verdict, "pass", "identical") if not one.lost_seed]
    if rest:
        lines += ["", "<details>", f"<summary>{len(rest)} as they were</summary>", *_table(rest), "</details>"]
    return "\n".join([*lines, "", escape_markdown(NOTE), ""])


def junit(verdict: GateVerdict) -> str:
    """JUnit XML: a test case for each judgment, for each figure over the whole suite, and for each audit.

    Regressed cases are failures, missing cases errors, and inconclusive cases skipped (errors if the gate is strict).
    """
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(verdict.time))
    suite = Element("testsuite", name=_clean(f"fedguard gate: {verdict.run}"), timestamp=stamp)
    properties = SubElement(suite, "properties")
    known = {"baseline": verdict.baseline, "commit": verdict.commit, "baseline_commit": verdict.baseline_commit}
    known |= {"exit_code": str(verdict.exit_code), "headline": verdict.headline}
    for number, line in enumerate(verdict.warnings, start=1):
        known[f"warning_{number}"] = line
    for number, one in enumerate(verdict.lost_seeds, start=1):
        known[f"lost_seed_{number}"] = f"{one.label}, {FIGURES[one.figure].title}: {one.lost_seed}"
    for name, value in known.items():
        SubElement(properties, "property", name=name, value=_clean(str(value or "")))
    for one in verdict.judgments:
        _case(suite, verdict, f"cell.{one.figure}", one.label, one.verdict, one.why)
    for whole in verdict.broad:
        _case(suite, verdict, "suite", f"{whole.figure} over the whole suite", whole.verdict, whole.why)
    for audit in verdict.audits:
        word = _AUDITED.get(audit["verdict"], "pass")
        _case(suite, verdict, "audit", str(audit["subject"]), word, str(audit["words"]))
    for number, why in enumerate(verdict.incompatible, start=1):
        _case(suite, verdict, "comparable", f"reason {number}", "missing", why)
    if not suite.findall("testcase"):
        _case(suite, verdict, "comparable", "anything to compare", "missing", "no metric of any cell could be compared")
    count = {kind: str(len(suite.findall(f"testcase/{kind}"))) for kind in ("failure", "error", "skipped")}
    suite.attrib |= {
        "tests": str(len(suite.findall("testcase"))),
        "failures": count["failure"],
        "errors": count["error"],
    }
    suite.set("skipped", count["skipped"])
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def row(one: Judgment) -> list[str]:
    """One line of a table, under `HEADS`."""

    known = FIGURES[one.figure]

    def value(number: float | None, difference_: bool = False) -> str:
        return "" if number is None else (known.difference if difference_ else known.quantity)(number)

    return [
        one.verdict,
        one.label,
        known.title,
        value(one.before),
        value(one.after),
        value(one.drop, True),
        value(one.margin, True),
        value(one.worst_seed_drop, True),
        "" if one.p_value is None else f"{one.p_value:.2g}",
        value(one.detectable, True),
    ]


def escape_markdown(text: str) -> str:
    """Text escaped for Markdown, tables included."""
    text = " ".join(_clean(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", text).replace("@", "&#64;")  # no mail to a team that bears the name


@dataclass(frozen=True)
class _Fields:
    """The judgments as one table, or as several if the terminal is narrow."""

    rows: list[list[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from split_table(HEADS, self.rows, 3, options.max_width)


def _trouble(verdict: GateVerdict) -> list[Judgment]:
    """Judgments that need attention, including passes with a ruined seed."""
    return [*_with(verdict, *TROUBLE), *(one for one in verdict.lost_seeds if one.verdict not in TROUBLE)]


def _sentences(verdict: GateVerdict) -> list[str]:
    return [f"{one.label}, {FIGURES[one.figure].title}: {one.why}" for one in _trouble(verdict)]


def _with(verdict: GateVerdict, *words: Word) -> list[Judgment]:
    return [one for word in words for one in verdict.judgments if one.verdict == word]


def _table(judgments: Sequence[Judgment]) -> list[str]:
    if not judgments:
        return []
    rows = [HEADS, ["---"] * 3 + ["---:"] * (len(HEADS) - 3)]
    return [
        "",
        *(
            f"| {' | '.join(fields)} |"
            for fields in (*rows, *([escape_markdown(one) for one in row(each)] for each in judgments))
        ),
        "",
    ]


def _broad_lines(verdict: GateVerdict) -> Iterator[str]:
    """Judgments over the whole suite; they come first, since small drops of many cells show nowhere else."""
    for one in verdict.broad:
        if one.verdict != "identical":
            yield f"over the whole suite, {FIGURES[one.figure].title}: {one.verdict}: {one.why}"


def _audit_lines(verdict: GateVerdict) -> Iterator[str]:
    for one in verdict.audits:
        yield f"audit of {one['subject']}: {one['verdict']}: {one['words']}"


def _describe_comparison(verdict: GateVerdict) -> str:
    commits = [commit or "unknown commit" for commit in (verdict.commit, verdict.baseline_commit)]
    return f"{verdict.run} ({commits[0]}) against {verdict.baseline} ({commits[1]})."


def _advice(verdict: GateVerdict) -> str | None:
    if verdict.exit_code == PASSED and verdict.counts["improved"]:
        return (
            "Better than the baseline. An attack that became weaker looks the same, so see why. To keep what was won: "
            f'fedguard baseline update {verdict.run} --baseline {verdict.baseline} --reason "..."'
        )
    return None


def _case(suite: Element, verdict: GateVerdict, kind: str, name: str, word: Word, why: str) -> None:
    case = SubElement(suite, "testcase", classname=f"fedguard.gate.{kind}", name=_clean(name), time="0")
    tags = {"regressed": "failure", "missing": "error", "inconclusive": "error" if verdict.strict else "skipped"}
    if word in tags:
        SubElement(case, tags[word], message=_clean(why), type=word)
    else:
        SubElement(case, "system-out").text = _clean(f"{word}: {why}")


def _text(text: str, style: str = "") -> Text:
    return Text(_clean(text), style)


def _clean(text: str) -> str:
    """Text without characters that are illegal in XML or control a terminal."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
