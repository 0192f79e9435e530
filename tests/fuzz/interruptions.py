"""Interrupts runs at random moments, and holds what is stored against a run that nobody interrupted.

``python -m tests.fuzz.interruptions --moments 20 --seed 0`` takes some five minutes of CPU time. Each moment is a run of its own: after a
random number of records, and a random while, it is killed outright, sent Ctrl-C or TERM, or loses a worker. What is stored by then is
whole and equal to the uninterrupted run's; so is everything once the same command has gone on.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import fedguard as fg
from fedguard.bench.records.record import reproducible

SUITE = {
    "name": "whole",
    "clients": {"total": 10, "malicious": 2},
    "training": {"rounds": 60},
    "seeds": 2,
    "matrix": {"attack": ["none", "sign_flip", "model_replacement"], "defense": ["mean", "median"]},
}
#: What happens to a run, and the exit codes that it may end with. A worker that is lost between two trials costs nothing.
KINDS = {"KILL": (-signal.SIGKILL,), "INT": (130,), "TERM": (130,), "worker": (0, 4)}

Records = dict[tuple[str, int], dict[str, Any]]

#: ``(command, folder, file for what it says) -> a process`` with the methods of `subprocess.Popen`.
Start = Callable[[list[str], Path, IO[str]], Any]


@dataclass(frozen=True)
class Moment:
    """When a run is interrupted, and how: ``wait`` seconds after so many ``records`` are stored."""

    kind: str
    records: int
    wait: float


def moments(count: int, seed: int, trials: int) -> Iterator[Moment]:
    """Random moments; of four in a row each is of another kind."""
    draw = random.Random(seed)
    for number in range(count):
        if number % len(KINDS) == 0:
            kinds = draw.sample(sorted(KINDS), len(KINDS))
        yield Moment(kinds[number % len(KINDS)], draw.randrange(trials), draw.uniform(0, 0.5))


def undisturbed(store: Path) -> Records:
    """The records of a run that nobody interrupts."""
    return records(fg.run(SUITE, store=store, jobs=2))


def records(run: fg.Run) -> Records:
    return {trial: reproducible(record) for trial, record in run.records.items()}


def from_nothing(command: list[str], folder: Path, said: IO[str]) -> subprocess.Popen[str]:
    """A process as a person starts it."""
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # whoever starts this may ignore it: nohup does
    called = [sys.executable, "-m", "fedguard.cli", *command]
    return subprocess.Popen(called, cwd=folder, stdout=said, stderr=said, text=True, preexec_fn=heard)


def faults(moment: Moment, whole: Records, folder: Path, start: Start = from_nothing) -> list[str]:
    """What is wrong after a run was interrupted at this moment, and after it went on; empty if nothing is."""
    code, said = _interrupted(moment, folder, start)
    found = [] if code in (*KINDS[moment.kind], 0) else [f"exit code {code}: {said[-300:]}"]
    if "Traceback" in said:
        found.append(f"a traceback: {said[-300:]}")
    stored = fg.open_run("whole", folder / "runs")
    found += [f"half written: {path.name}" for path in stored.folder.path.rglob("*.tmp") if moment.kind != "KILL"]
    found += [f"damaged: {path}" for path in stored.broken]
    kept = {trial: record for trial, record in records(stored).items() if record["status"] == "ok"}
    if len(kept) < len(stored.records) - (moment.kind == "worker"):
        found.append(f"{len(stored.records) - len(kept)} trials failed")
    if moment.kind != "worker":  # the trials that are compared with a lost one lack its figures until it is there
        found += [f"another record: {whole[trial]['label']}" for trial in kept if kept[trial] != whole[trial]]
    if records(fg.run(SUITE, store=folder / "runs", jobs=1, retry_failed=True)) != whole:
        found.append("the records of the resumed run differ")
    return found


def _interrupted(moment: Moment, folder: Path, start: Start) -> tuple[int, str]:
    """Run the suite, interrupt it, and wait for its end: its exit code and what it said."""
    (folder / "suite.json").write_text(json.dumps(SUITE))
    shutil.copy(folder / "suite.json", folder / "suite.yaml")  # JSON is YAML
    with (folder / "said.txt").open("w+") as said:
        process = start(["run", "suite.yaml", "--jobs", "2"], folder, said)
        cells = folder / "runs" / "whole"
        while process.poll() is None and not (
            (cells / "manifest.json").exists() and len(list(cells.glob("cells/*/seed-*.json"))) >= moment.records
        ):
            time.sleep(0.01)
        time.sleep(moment.wait)
        if moment.kind == "worker":
            workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
            if workers:
                subprocess.run(["kill", "-KILL", workers[0]], check=False, capture_output=True)
        else:
            process.send_signal(getattr(signal, f"SIG{moment.kind}"))
        process.wait(timeout=300)
        said.seek(0)
        return process.returncode, said.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        whole = undisturbed(Path(place))
        for number, moment in enumerate(moments(given.moments, given.seed, len(whole))):
            folder = Path(place) / str(number)
            folder.mkdir()
            found = faults(moment, whole, folder)
            bad += bool(found)
            print(
                f"{number:2d} {moment.kind:6s} after {moment.records:2d} records: {'; '.join(found) or 'as if undisturbed'}",
                flush=True,
            )
    print(f"{given.moments - bad} of {given.moments} runs as if undisturbed, seed {given.seed}.")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
