"""Plant each fault of `faults.py` into a copy of the checkout, and see whether the quick tests of `make test` notice.

    python -m tests.mutants.quick                  the tests near each fault first; where they pass, all others; the first failure ends it
    python -m tests.mutants.quick --only krum      faults with one of these words in their names

Exit code 1 where more than one fault is not noticed, or where a plant or the unplanted copy is not what it should be.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.faults import FAULTS, Fault
from tests.mutants.planting import ROOT, PlantError, plant

#: Folders of the checkout that are packages below `fedguard`, once installed.
PACKAGES = ("attacks", "defenses", "app")
#: What is not copied. What is compiled already is, and is taken for files of the same time and length only: not for planted ones.
LEFT_OUT = shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", "runs", ".*_cache", ".hypothesis")
#: How many of all faults may go unnoticed.
MISSED = 1
NOBODY = "nobody"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.mutants.quick", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="faults with one of these in their names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    asked = parser.parse_args(arguments)
    faults = [one for one in FAULTS if not asked.only or any(word in one.name for word in asked.only)]
    near = tuple(dict.fromkeys(path for one in faults for path in one.near))
    started = time.perf_counter()
    with ThreadPoolExecutor(asked.jobs) as pool:
        control = pool.submit(watched, None, near)
        found = [*pool.map(lambda one: _told(one), faults)]
    bad = [one.name for one, noticed in zip(faults, found, strict=True) if noticed == NOBODY]
    print(f"{len(faults)} faults, {len(faults) - len(bad)} noticed, {time.perf_counter() - started:.0f} s")
    for name in bad:
        print(f"NOT NOTICED: {name}")
    if (failed := control.result()) != NOBODY:
        print(f"The unplanted copy fails as well: {failed}. Nothing of the above means anything.")
    return int(len(bad) > MISSED or failed != NOBODY)


def _told(fault: Fault) -> str:
    noticed = watched(fault, fault.near)
    if noticed == NOBODY:
        noticed = watched(fault, ("tests",))
        if noticed != NOBODY and watched(None, (noticed,)) != NOBODY:
            raise PlantError(f"{fault.name}: {noticed} fails without it, too")
    print(f"{fault.name}: {noticed}", flush=True)
    return noticed


def watched(fault: Fault | None, tests: Sequence[str]) -> str:
    """The first of these tests that fails of a copy with the fault in it, or `NOBODY`.

    Raises:
        PlantError: the fault cannot be planted, or pytest could not run.
    """
    with tempfile.TemporaryDirectory(prefix="fedguard-fault-") as name:
        folder = copied(Path(name))
        if fault is not None:
            plant(fault.edits, folder)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "FEDGUARD_"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--order", "written", *tests],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
    if done.returncode == 0:
        return NOBODY
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        raise PlantError(
            f"{fault.name if fault else 'control'}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}"
        )
    return failed[1]


def copied(folder: Path) -> Path:
    """The checkout below ``folder``, with its packages where the installed ones are found as well."""
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
    for package in PACKAGES:
        (folder / "fedguard" / package).symlink_to(folder / package)
    return folder


if __name__ == "__main__":
    sys.exit(main())
