"""What the checks of a submission find, and the verdict over all of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedguard.metrics.stats import Estimate, estimate

#: ``failed``: its contract is broken. ``flagged``: a reader should know it. ``noted``: a property, neither good nor bad.
Level = Literal["failed", "flagged", "noted"]


@dataclass(frozen=True)
class AcceptanceFinding:
    """One thing that a check found.

    Attributes:
        code: a stable word, such as ``keeps_state``.
        words: what was found, a sentence.
        example: the smallest input that shows it, in words; "" if none is needed.
        remedy: what to do, a sentence; "" for properties.
        number: behind it, if there is one.
    """

    code: str
    level: Level
    words: str
    example: str = ""
    remedy: str = ""
    number: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON types."""
        return {
            "code": self.code,
            "level": self.level,
            "words": self.words,
            "example": self.example,
            "remedy": self.remedy,
            "number": self.number,
        }


@dataclass(frozen=True)
class CellMetrics:
    """What trainings of one cell say. Accuracies are in [0, 1], with 95 % intervals over the report seeds.

    Attributes:
        cell: name of the cell in the standard.
        counts: whether the rank counts it.
        worst: accuracy left under the worst attack.
        attack: the attack that won; None if it is not known.
        cost: accuracy of the mean minus the rule's, both without attack; paired by seed.
        honest: accuracy of the mean without attack.
        worst_class: accuracy of the class that suffers most, under the worst attack.
        backdoors: success of each backdoor that ran.
        kept: by seed, (worst - chance) / (honest mean - chance).
        gaps: trials that are not there, each with its reason.
        run: name of the run that holds the records.
    """

    cell: str
    counts: bool
    worst: Estimate | None
    attack: str | None
    cost: Estimate | None
    honest: Estimate | None
    worst_class: Estimate | None
    backdoors: Mapping[str, Estimate]
    kept: Sequence[float]
    gaps: Sequence[str]
    run: str

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON types."""
        return {**dataclasses.asdict(self), "kept": list(self.kept), "gaps": list(self.gaps)}


@dataclass(frozen=True)
class AcceptanceVerdict:
    """The verdict on a submission.

    Attributes:
        submission: its file or name, its pipeline in words, and its digest.
        standard: name and digest of the standard.
        findings: in the order of the checks.
        checked: names of the checks that ran to their end.
        missing: checks that did not, each with the reason.
        seconds: CPU seconds of the checks.
        cells: what trainings say, one for each cell of the standard that ran.
        records: SHA-256 of each record behind them, by its path below the folder of the runs.
    """

    submission: Mapping[str, str]
    standard: Mapping[str, str]
    findings: Sequence[AcceptanceFinding]
    checked: Sequence[str]
    missing: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cells: Sequence[CellMetrics] = ()
    records: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """3: a check failed; 4: one could not be judged; 0 otherwise. None of them says that the rule is robust."""
        return 3 if self.of("failed") else 4 if self.missing else 0

    @property
    def headline(self) -> str:
        """What was found, in one sentence."""
        failed = [one.code for one in self.of("failed")]
        if failed:
            return f"{len(failed)} of the contract's conditions {'fails' if len(failed) == 1 else 'fail'}: {', '.join(failed)}."
        if self.missing:
            return f"{len(self.missing)} of the checks and cells could not be judged: {', '.join(self.missing)}."
        kept = self.worst_share()
        if kept is None:
            return "it keeps the contract. This does not say that it is robust."
        low = "" if kept.low is None or kept.high is None else f" [{100 * kept.low:.0f}, {100 * kept.high:.0f}]"
        return (
            f"it keeps the contract. In the worst cell that counts, the worst attack leaves {100 * kept.mean:.0f} %{low} of "
            "what the mean learns without attack."
        )

    def worst_share(self) -> Estimate | None:
        """What the worst attack leaves of the honest mean's gain over chance, in the worst cell that counts.

        For each cell the mean over seeds of (worst - chance) / (honest mean - chance); of the cells the smallest. None if no
        cell counts, or one that counts was not measured.
        """
        counted = [estimate(one.kept) if one.kept else None for one in self.cells if one.counts]
        whole = [one for one in counted if one is not None]
        return min(whole, key=lambda one: one.mean) if whole and len(whole) == len(counted) else None

    def of(self, level: Level) -> list[AcceptanceFinding]:
        """The findings of one level."""
        return [one for one in self.findings if one.level == level]

    def missing_by_reason(self) -> dict[str, list[str]]:
        """The names of the checks that could not be judged, by the reason."""
        found = dict[str, list[str]]()
        for name, reason in self.missing.items():
            found.setdefault(reason, []).append(name)
        return found

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON types, with a seal over all other keys but the time it took."""
        content = {
            "submission": dict(self.submission),
            "standard": dict(self.standard),
            "findings": [one.as_dict() for one in self.findings],
            "checked": list(self.checked),
            "missing": dict(self.missing),
            "exit_code": self.exit_code,
            "cells": [one.as_dict() for one in self.cells],
            "records": dict(self.records),
            "kept": None if (kept := self.worst_share()) is None else dataclasses.asdict(kept),
        }
        return {**content, "seconds": round(self.seconds, 1), "seal": seal_of(content)}


def seal_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of a verdict's JSON, without its seal and the time and memory that the checks took, which no machine repeats."""
    sealed = {key: value for key, value in content.items() if key not in ("seconds", "seal")}
    sealed["findings"] = [one for one in content["findings"] if one.get("code") != "cost"]
    return hashlib.sha256(json.dumps(sealed, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
