"""What a record says of the machine and the code that made it."""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """Versions, device, threads and git commit."""
    import torch

    return {**_fixed(), "threads": torch.get_num_threads()}


@lru_cache(maxsize=1)
def _fixed() -> dict[str, Any]:
    packages = {name: version(name) for name in ("fedguard", "torch", "numpy", "scikit-learn", "scipy")}
    return {
        **packages,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": "cpu",
        "git_commit": git_commit(),
    }


def peak_memory() -> int | None:
    """The most memory that this process has held so far, in bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def git_commit() -> str | None:
    """The commit of the checkout that this package runs from, ``-dirty`` if it was changed; None outside of one."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
