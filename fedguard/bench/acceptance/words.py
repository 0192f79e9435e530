"""A verdict in words: its headline, and the two files that `accept` writes."""

from __future__ import annotations

import json
from pathlib import Path

from fedguard.bench.acceptance.findings import AcceptanceVerdict, CellMetrics, Level
from fedguard.bench.pages import escape
from fedguard.bench.records.store import write_atomically
from fedguard.errors import StoreError
from fedguard.metrics.stats import Estimate

_HEADS: dict[Level, str] = {"failed": "Failed", "flagged": "To be known", "noted": "Properties"}


def describe_cell(one: CellMetrics) -> str:
    """The metrics of a cell in one line, in %."""
    parts = [] if one.counts else ["shown, not counted"]
    if one.worst is not None:
        parts.append(f"worst {_percent(one.worst)} by {one.attack or 'an unknown attack'}")
    if one.honest is not None:
        parts.append(f"honest mean {_percent(one.honest)}")
    if one.cost is not None:
        parts.append(f"cost without attack {_percent(one.cost)}")
    if one.worst_class is not None:
        parts.append(f"worst class {_percent(one.worst_class)}")
    parts += [f"{name} succeeds {_percent(found)}" for name, found in one.backdoors.items()]
    return "; ".join(parts)


def _percent(found: Estimate) -> str:
    interval = "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{100 * found.mean:.1f}{interval}"


def as_markdown(found: AcceptanceVerdict) -> str:
    """The verdict on one screen."""
    lines = [f"# `{found.submission['pipeline']}`", "", found.headline.capitalize(), ""]
    for level, head in _HEADS.items():
        findings = found.of(level)
        if findings:
            lines += [f"## {head}", ""]
        for one in findings:
            more = " ".join(escape.markdown(text) for text in (one.example, one.remedy) if text)
            lines.append(f"- **{one.code}**: {escape.markdown(one.words)}{f' ({more})' if more else ''}")
        lines += [""] if findings else []
    if found.cells:
        rows = [f"- **{one.cell}**: {escape.markdown(describe_cell(one))}" for one in found.cells]
        lines += ["## Trainings (in %, with 95 % intervals over the seeds)", "", *rows, ""]
    if found.missing:
        rows = [
            f"- {', '.join(names)}: {escape.markdown(reason)}" for reason, names in found.missing_by_reason().items()
        ]
        lines += ["## Not judged", "", *rows, ""]
    lines += [
        f"Standard {found.standard['name']}, SHA-256 `{found.standard['digest']}`. Submission SHA-256 "
        f"`{found.submission['digest']}`. {len(found.checked)} checks, {found.seconds:.0f} CPU seconds.",
        "",
    ]
    return "\n".join(lines)


def write_verdict(found: AcceptanceVerdict, folder: Path) -> None:
    """Write ``verdict.json`` and ``verdict.md`` into a folder, which is made.

    Raises:
        StoreError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found.as_dict(), indent=1, sort_keys=True) + "\n"
        write_atomically(folder / "verdict.json", text.encode())
        write_atomically(folder / "verdict.md", as_markdown(found).encode())
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror}.") from None
