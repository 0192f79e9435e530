"""How long a process takes to start: `fedguard --help`, and a suite until its first cell runs; seconds on the wall.

Seen from outside: a cell began as many seconds before its record was stored as the record says that it took. The files of the
libraries are in the system's cache, since each command is run once before.
"""

from __future__ import annotations

import os
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


def main() -> None:
    options = arguments(__doc__ or "")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    figures = []
    for name, job in {"fedguard --help": helped, "first cell of a suite": first_cell}.items():
        seconds = [job() for _ in range(1 if options.smoke else 6)][-5:]
        figures.append({"start": name, "seconds": median(seconds), "longest": max(seconds)})
        print(f"{name:24} {median(seconds):5.2f} s, {max(seconds):5.2f} s at the longest of {len(seconds)}")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
