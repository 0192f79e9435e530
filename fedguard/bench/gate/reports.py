"""A verdict for CI: JUnit XML. For people it is a page (`fedguard.bench.pages.gate`).

Names, reasons and file names come from runs and suites and are untrusted, so they are escaped everywhere.
"""

from __future__ import annotations

import re
import time
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fedguard.bench.gate.verdict import GateVerdict, Word
from fedguard.metrics.figures import FIGURES

_AUDITED: dict[str, Word] = {"violated": "regressed", "not judged": "inconclusive"}


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


def _case(suite: Element, verdict: GateVerdict, kind: str, name: str, word: Word, why: str) -> None:
    case = SubElement(suite, "testcase", classname=f"fedguard.gate.{kind}", name=_clean(name), time="0")
    tags = {"regressed": "failure", "missing": "error", "inconclusive": "error" if verdict.strict else "skipped"}
    if word in tags:
        SubElement(case, tags[word], message=_clean(why), type=word)
    else:
        SubElement(case, "system-out").text = _clean(f"{word}: {why}")


def _clean(text: str) -> str:
    """Text without characters that are illegal in XML."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
