"""The environment in a record: the machine and the code that made it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


def environment(device: str) -> dict[str, Any]:
    """Versions, device, threads and git commit."""
    import torch

    return {**_describe_software(), "device": device, "threads": torch.get_num_threads()}


@lru_cache(maxsize=1)
def _describe_software() -> dict[str, Any]:
    packages = {name: version(name) for name in ("fedguard", "torch", "numpy", "scikit-learn", "scipy")}
    return {
        **packages,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git_commit": git_commit(),
    }


def peak_memory() -> int | None:
    """Peak memory of this process so far, in bytes; None if the system does not report it.

    Linux counts what a parent held among its child's `getrusage`, so there it is read elsewhere.
    """
    status = Path("/proc/self/status")
    if status.exists() and (line := re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)):
        return 1024 * int(line[1])
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_memory() -> int:
    """Resident memory of this process, in bytes; if the system does not report it, the peak so far, or 0."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak_memory() or 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
