"""Trackers that write a folder for each trial: its name, and a seal with the digest of its content."""

from __future__ import annotations

import re
from pathlib import Path

from fedguard.bench.results.tracking.trials import TrackerEntry

#: File with the digest of the trial; written last, so that its presence marks a complete folder.
SEAL = "fedguard.sha256"


def folder_of(run: str, trial: TrackerEntry) -> Path:
    """``RUN/CELL/mean`` or ``RUN/CELL/seed-N``, the cell in words and by its id."""
    label = re.sub(r"[^\w.,()=+-]+", "-", trial.label)[:100]
    return Path(run) / f"{label}-{trial.cell}" / ("mean" if trial.seed is None else f"seed-{trial.seed}")


def is_there(folder: Path, trial: TrackerEntry) -> bool:
    """Whether an earlier export wrote exactly this content, in full."""
    try:
        return (folder / SEAL).read_text() == trial.digest
    except OSError:
        return False


def seal(folder: Path, trial: TrackerEntry) -> None:
    (folder / SEAL).write_text(trial.digest)
