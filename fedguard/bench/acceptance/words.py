"""A verdict in words: its headline, and the two files that `accept` writes."""

from __future__ import annotations

import json
from pathlib import Path

from fedguard.bench.acceptance.findings import Level, Verdict
from fedguard.bench.pages import escape

_HEADS: dict[Level, str] = {"failed": "Failed", "flagged": "To be known", "noted": "Properties"}


def headline(found: Verdict) -> str:
    """What was found, in one sentence."""
    failed = [one.code for one in found.of("failed")]
    if failed:
        return f"{len(failed)} of the contract's conditions {'fails' if len(failed) == 1 else 'fail'}: {', '.join(failed)}."
    if found.missing:
        return f"{len(found.missing)} of the checks could not be judged: {', '.join(found.missing)}."
    return "it keeps the contract. This does not say that it is robust."


def as_markdown(found: Verdict) -> str:
    """The verdict on one screen."""
    lines = [f"# `{found.submission['pipeline']}`", "", headline(found).capitalize(), ""]
    for level, head in _HEADS.items():
        rows = found.of(level)
        if rows:
            lines += [f"## {head}", ""]
        for one in rows:
            more = " ".join(escape.markdown(text) for text in (one.example, one.remedy) if text)
            lines.append(f"- **{one.code}**: {escape.markdown(one.words)}{f' ({more})' if more else ''}")
        lines += [""] if rows else []
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


def write_verdict(found: Verdict, folder: Path) -> None:
    """Write ``verdict.json`` and ``verdict.md`` into a folder, which is made.

    Raises:
        OSError: they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdict.json").write_text(json.dumps(found.as_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "verdict.md").write_text(as_markdown(found), encoding="utf-8")
