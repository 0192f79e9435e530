"""Checks by actual use whether this installation works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedguard.errors import FedGuardError


@dataclass(frozen=True)
class DiagnosticResult:
    """The result of one check."""

    what: str
    good: bool
    said: str


REQUIRED = ("torch", "opacus", "cryptography", "scikit-learn", "numpy", "scipy", "pydantic", "PyYAML", "typer", "rich")
OPTIONAL = {"streamlit": "the dashboard", "pandas": "run.frame()", "pyarrow": "export --to rows.parquet"}


def examine(store: Path) -> Iterator[DiagnosticResult]:
    """Check packages, plug-ins, machine, workers and store; each failed check states how to fix it."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield DiagnosticResult("python", sys.version_info >= (3, 11), f"{python}; 3.11 or later is needed")
    for package in REQUIRED:
        found = _version(package)
        yield DiagnosticResult(package, found is not None, found or f"missing; pip install {package}")
    for package, use in OPTIONAL.items():
        found = _version(package)
        yield DiagnosticResult(
            f"{package} (optional)",
            True,
            found or f"not installed; needed for {use}: pip install 'fedguard[dashboard]'",
        )
    yield _plugins()
    yield from _worker()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield DiagnosticResult("cores", True, f"{cores}; so many trials run at once")
    yield _memory()
    yield _writable(store)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _plugins() -> DiagnosticResult:
    try:
        from fedguard.registry import BUILT_IN, KINDS, load_registry

        known = load_registry()
        foreign = [
            f"{name} ({known.origin(kind, name)})"
            for kind in KINDS
            for name in known.names(kind)
            if known.origin(kind, name) != BUILT_IN
        ]
        return DiagnosticResult("plug-ins", True, ", ".join(foreign) or "none installed")
    except FedGuardError as error:
        return DiagnosticResult("plug-ins", False, str(error))


def _worker() -> Iterator[DiagnosticResult]:
    """Start a worker as a run does, and let it end; torch, which it loads, says whether there is a CUDA device."""
    start, device, said = [sys.executable, "-P", "-c", _START], "unknown, since no worker starts", ""
    try:
        done = subprocess.run(
            start, input='{"plugins": [], "folder": null}\n', capture_output=True, text=True, timeout=120, check=False
        )
        good, said = done.returncode == 0 and '"ready"' in done.stdout, done.stderr.strip()[-200:]
        if good:
            device = done.stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError) as error:
        good, said = False, str(error)
    yield DiagnosticResult("worker process", good, "starts" if good else f"does not start: {said}")
    yield DiagnosticResult("CUDA device (optional)", True, device)


_START = """
import torch
found = torch.cuda.is_available() and torch.cuda.get_device_name()
print(f"{found}; used by `run --device cuda`" if found else "none; `run --device cuda` needs one", flush=True)
from fedguard.bench.running.worker import main
main()
"""


def _memory() -> DiagnosticResult:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (ValueError, OSError, AttributeError):
        return DiagnosticResult("memory", True, "unknown on this system")
    return DiagnosticResult(
        "memory", free > 1, f"{free:.1f} GiB free; about 0.6 GiB per worker is needed for small models"
    )


def _writable(store: Path) -> DiagnosticResult:
    existing = next(path for path in (store.resolve(), *store.resolve().parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return DiagnosticResult("store", False, f"{existing} cannot be written. Choose another one with --store.")
    return DiagnosticResult(
        "store", True, f"{store} can be written, {shutil.disk_usage(existing).free / 2**30:.0f} GiB free"
    )
