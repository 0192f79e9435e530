"""Findings as SARIF 2.1.0, the format in which code hosts show them beside the code: one writer for all commands.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0 (2020).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple


class SarifRule(NamedTuple):
    """A kind of finding: what it says, its level (error, warning or note), and its severity (0 to 10) for code hosts."""

    words: str
    level: str
    severity: str


@dataclass(frozen=True)
class SarifFinding:
    """One finding at a place of the repository.

    Attributes:
        rule: a key of the rules.
        words: the message.
        identity: what the finding is about, the same in every run: it keeps its history by this.
        place: a file, and a line of it from 1.
        facts: numbers and words beside the message.
    """

    rule: str
    words: str
    identity: str
    place: tuple[str | Path, int]
    facts: Mapping[str, Any] = field(default_factory=dict)


def sarif_text(
    command: str, rules: Mapping[str, SarifRule], found: Sequence[SarifFinding], root: Path, tag: str
) -> str:
    """Findings of one command as JSON text.

    Args:
        command: a word that keeps its findings apart from those of other commands.
        root: the folder to which paths are relative, the same in every run: the repository's.
        tag: what the rules are about.
    """
    driver = {
        "name": "FedGuard",
        "version": version("fedguard"),
        "rules": [_rule(name, rule, tag) for name, rule in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"fedguard/{command}/"},
        "results": [_result(one, rules[one.rule], root) for one in found],
    }
    content = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _rule(name: str, rule: SarifRule, tag: str) -> dict[str, Any]:
    command = name.partition("/")[0]
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.replace("/", "-").split("-")),
        "shortDescription": {"text": rule.words},
        "fullDescription": {"text": rule.words},
        "help": {"text": f"See the page on fedguard {command} in FedGuard's documentation."},
        "defaultConfiguration": {"level": rule.level},
        "properties": {"tags": [tag], "precision": "high", "security-severity": rule.severity},
    }


def _result(one: SarifFinding, rule: SarifRule, root: Path) -> dict[str, Any]:
    path, line = Path(one.place[0]).resolve(), one.place[1]
    uri = path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.name
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(1, line)}}
    return {
        "ruleId": one.rule,
        "level": rule.level,
        "message": {"text": one.words},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"fedguard/v1": hashlib.sha256(one.identity.encode()).hexdigest()[:32]},
        "properties": dict(one.facts),
    }
