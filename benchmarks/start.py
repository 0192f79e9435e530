"""How long a process takes to start: `fedguard --help`, and a suite until its first cell runs, seconds on the wall; and the
CPU seconds of the commands that read a run.

The first cell is seen from outside: a cell began as many seconds before its record was stored as the record says that it
took. The files of the libraries are in the system's cache, since each command is run once before.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measure import arguments, keep

from fedguard.bench.records.record import from_text

SUITE = """
name: start
clients: {total: 10, malicious: 2}
training: {rounds: 1}
seeds: 1
matrix: {attack: [none], defense: [mean]}
"""
#: Commands that read a stored run, or look something up.
READERS = (
    "show start",
    "lint start",
    "export start --json",
    "compare start start",
    "list",
    "explain krum",
    "report start --force",
    "doctor",
)
COMMAND = [sys.executable, "-m", "fedguard.cli"]


def helped() -> float:
    """Seconds until `fedguard --help` has said all."""
    begun = time.perf_counter()
    subprocess.run([*COMMAND, "--help"], check=True, capture_output=True)
    return time.perf_counter() - begun


def first_cell() -> float:
    """Seconds until the first cell of a new suite begins."""
    with tempfile.TemporaryDirectory() as folder:
        suite, store = Path(folder) / "start.yaml", Path(folder) / "runs"
        suite.write_text(SUITE)
        begun = time.perf_counter()
        process = subprocess.Popen([*COMMAND, "run", str(suite), "--store", str(store), "--quiet"])
        while not (found := list(store.glob("start/cells/*/*.json"))):
            if process.poll():
                sys.exit("The suite did not run; its message stands above.")
            time.sleep(0.002)
        stored = time.perf_counter()
        process.wait()
        seconds: float = from_text(found[0].read_bytes())["cost"]["seconds"]
        return stored - begun - seconds


def reading(folder: str, command: str) -> float:
    """CPU seconds of a command, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, *command.split()], cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = arguments(__doc__ or "")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    figures = []
    for name, job in {"fedguard --help": helped, "first cell of a suite": first_cell}.items():
        seconds = [job() for _ in range(1 if options.smoke else 6)][-5:]
        figures.append({"start": name, "seconds": median(seconds), "longest": max(seconds)})
        print(f"{name:24} {median(seconds):5.2f} s, {max(seconds):5.2f} s at the longest of {len(seconds)}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "start.yaml").write_text(SUITE)
        subprocess.run([*COMMAND, "run", "start.yaml", "--quiet"], cwd=folder, check=True)
        rounds = [{one: reading(folder, one) for one in READERS} for _ in range(1 if options.smoke else 5)]
    for name in READERS:
        seconds = [one[name] for one in rounds]
        figures.append({"start": f"fedguard {name}, CPU", "seconds": median(seconds), "longest": max(seconds)})
        print(f"{name:24} {median(seconds):5.2f} s of CPU time, {max(seconds):5.2f} s at the most of {len(seconds)}")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
