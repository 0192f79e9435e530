"""An audit as SARIF 2.1.0, the format in which code hosts show findings beside the code.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0 (2020).
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedguard.privacy.blackbox.verdict import MechanismAudit

#: Rule: what it finds, its level, and its severity (0 to 10) for code hosts.
RULES = {
    "audit/epsilon-exceeded": ("The mechanism does not keep the epsilon that it claims.", "error", "8.0"),
    "audit/no-noise": ("Noise is missing, repeats or is seeded, so that no finite epsilon holds.", "error", "8.0"),
    "audit/epsilon-doubtful": (
        "The claim is violated if the noise has the law that it seems to have.",
        "warning",
        "5.0",
    ),
    "audit/no-claim": ("Nothing is claimed, or nothing could be judged.", "note", "1.0"),
    "audit/unpaid": ("Something leaves that the claim does not cover.", "warning", "5.0"),
}


def as_sarif(found: MechanismAudit, root: Path) -> str:
    """The audit as JSON text.

    Args:
        root: the folder to which paths are relative, the same in every run: the repository's.
    """
    results = [_result(found, root, rule, words, code) for rule, words, code in _findings(found)]
    rules = [
        {
            "id": rule,
            "name": "".join(part.capitalize() for part in rule.replace("/", "-").split("-")),
            "shortDescription": {"text": words},
            "fullDescription": {"text": words},
            "help": {"text": "See the page on black-box audits in FedGuard's documentation."},
            "defaultConfiguration": {"level": level},
            "properties": {"tags": ["privacy"], "precision": "high", "security-severity": severity},
        }
        for rule, (words, level, severity) in RULES.items()
    ]
    driver = {"name": "FedGuard", "version": version("fedguard"), "rules": rules}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "automationDetails": {"id": "fedguard/audit/"}, "results": results}],
    }
    return json.dumps(content, indent=1) + "\n"


def _findings(found: MechanismAudit) -> list[tuple[str, str, str]]:
    """Rule, words, and a code that tells findings of one rule apart."""
    results = [("audit/no-noise", one.words, one.code) for one in found.findings if one.refutes]
    if found.verdict == "violated" and not results:
        results.append(("audit/epsilon-exceeded", found.words, "epsilon"))
    elif found.doubtful:
        results.append(("audit/epsilon-doubtful", found.words, "law"))
    elif found.exit_code == 4:
        results.append(("audit/no-claim", found.words, "claim"))
    refuting = {one.code for one in found.findings if one.refutes}
    return results + [("audit/unpaid", one.words, one.code) for one in found.unpaid if one.code not in refuting]


def _result(found: MechanismAudit, root: Path, rule: str, words: str, code: str) -> dict[str, Any]:
    file, line = found.defined_in or ("pyproject.toml", 1)
    path = Path(file).resolve()
    uri = path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.name
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(1, line)}}
    print_of = hashlib.sha256(f"{found.name}:{rule}:{code}".encode()).hexdigest()[:32]
    main = found.bounds[0] if found.bounds else None
    return {
        "ruleId": rule,
        "level": RULES[rule][1],
        "message": {"text": f"{found.name}: {words}"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"fedguard/v1": print_of},
        "properties": {
            "claimed": found.claim.describe() if found.claim else None,
            "proven": main.proven.epsilon if main else None,
            "confidence": 0.95,
        },
    }
