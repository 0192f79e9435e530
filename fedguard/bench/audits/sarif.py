"""An audit of a mechanism as SARIF 2.1.0 (`fedguard.bench.sarif`)."""

from __future__ import annotations

from pathlib import Path

from fedguard.bench.sarif import SarifFinding, SarifRule, sarif_text
from fedguard.privacy.blackbox.verdict import MechanismAudit

RULES = {
    "audit/epsilon-exceeded": SarifRule("The mechanism does not keep the epsilon that it claims.", "error", "8.0"),
    "audit/no-noise": SarifRule(
        "Noise is missing, repeats or is seeded, so that no finite epsilon holds.", "error", "8.0"
    ),
    "audit/epsilon-doubtful": SarifRule(
        "The claim is violated if the noise has the law that it seems to have.", "warning", "5.0"
    ),
    "audit/no-claim": SarifRule("Nothing is claimed, or nothing could be judged.", "note", "1.0"),
    "audit/unpaid": SarifRule("Something leaves that the claim does not cover.", "warning", "5.0"),
}


def as_sarif(found: MechanismAudit, root: Path) -> str:
    """The audit as JSON text.

    Args:
        root: the folder to which paths are relative, the same in every run: the repository's.
    """
    main = found.bounds[0] if found.bounds else None
    facts = {
        "claimed": found.claim.describe() if found.claim else None,
        "proven": main.proven.epsilon if main else None,
        "confidence": 0.95,
    }
    place = found.defined_in or ("pyproject.toml", 1)
    results = [
        SarifFinding(rule, f"{found.name}: {words}", f"{found.name}:{rule}:{code}", place, facts)
        for rule, words, code in _findings(found)
    ]
    return sarif_text("audit", RULES, results, root, "privacy")


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
