"""A verdict as SARIF 2.1.0 (`fedguard.bench.sarif`), for the checks of a pull request. The exit code stays the gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedguard.bench.gate.verdict import GateVerdict, Judgment
from fedguard.bench.sarif import SarifFinding, SarifRule, sarif_text
from fedguard.metrics.figures import FIGURES

RULES = {
    "gate/worse": SarifRule("A metric is worse than in the baseline by more than its margin.", "error", "8.0"),
    "gate/epsilon-exceeded": SarifRule("An audit refutes an epsilon of the run.", "error", "8.0"),
    "gate/not-judged": SarifRule("Something could not be judged against the baseline.", "note", "1.0"),
}


def gate_sarif(verdict: GateVerdict, baseline: Path, root: Path) -> str:
    """The verdict as JSON text; what passed is left out.

    Args:
        baseline: its file, a part of the repository: each finding points to the line of its cell there.
        root: the folder to which paths are relative, the same in every run: the repository's.
    """
    lines = _lines_of_cells(baseline)
    return sarif_text("gate", RULES, list(_findings(verdict, baseline, lines)), root, "robustness")


def _findings(verdict: GateVerdict, baseline: Path, lines: list[str]) -> Iterator[SarifFinding]:
    rules = {"regressed": "gate/worse", "missing": "gate/not-judged", "inconclusive": "gate/not-judged"}
    for one in verdict.judgments:
        if one.verdict in rules:
            line = next((number for number, text in enumerate(lines, start=1) if f'"{one.cell}"' in text), 1)
            words = f"{one.label}, {FIGURES[one.figure].title}: {one.why}"
            yield SarifFinding(rules[one.verdict], words, f"{one.label}:{one.figure}", (baseline, line), _facts(one))
    for whole in verdict.broad:
        if whole.verdict in rules:
            words = f"{FIGURES[whole.figure].title} over the whole suite: {whole.why}"
            yield SarifFinding(
                rules[whole.verdict], words, f"suite:{whole.figure}", (baseline, 1), {"drop": whole.drop}
            )
    for audit in verdict.audits:
        rule = {"violated": "gate/epsilon-exceeded", "not judged": "gate/not-judged"}.get(audit["verdict"])
        if rule is not None:
            yield SarifFinding(rule, str(audit["words"]), f"audit:{audit['subject']}", (baseline, 1))
    for reason in verdict.incompatible:
        yield SarifFinding("gate/not-judged", reason, f"incompatible:{reason}", (baseline, 1))


def _facts(one: Judgment) -> dict[str, float | str | None]:
    return {"cell": one.cell, "before": one.before, "after": one.after, "drop": one.drop, "margin": one.margin}


def _lines_of_cells(baseline: Path) -> list[str]:
    try:
        return baseline.read_text(encoding="utf-8").splitlines()
    except OSError:  # it was judged; a finding without its line is still one
        return []
