"""Judges a submission in processes of their own, within limits of time and memory."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from fedguard.arguments import of_kind, path_like
from fedguard.bench.acceptance.findings import AcceptanceFinding, AcceptanceVerdict
from fedguard.bench.acceptance.standard import Standard, load_standard
from fedguard.bench.acceptance.submission import read_submission
from fedguard.bench.acceptance.trainings import digest_records, run_cells
from fedguard.bench.acceptance.words import write_verdict
from fedguard.bench.running.progress import Listener, choose_listener
from fedguard.errors import ConfigError, InputError, UnknownName, brief

#: How far a judgement goes
STAGES = ("contracts", "all")
#: Seconds in which a process has to say its first word, on a busy machine
START = 120.0
#: Checks that may end a process before the rest is given up
MOST_ENDS = 3
#: Seconds that a repeated trial may take
RERUN = 3600.0
#: Where a process is before any check: what happens here concerns the whole submission
BEFORE = ("start", "import")


def check_contract(
    given: str, standard: str = "2026", listener: Callable[[str], None] = lambda _: None
) -> AcceptanceVerdict:
    """Check the contract of a rule.

    Args:
        given: a Python file with one rule, or a pipeline by name.
        standard: a year, or a YAML file.
        listener: receives the name of each check as it starts.

    Raises:
        ConfigError: there is no such file, standard or rule, or the file cannot be imported.
    """
    rule, found = load_standard(standard), _Collected()
    while not found.complete and len(found.ended) <= MOST_ENDS:
        asked = {"given": given, "standard": standard, "skip": found.skip, "broken": found.has_failed}
        _run_process(asked, rule, found, listener)
        if found.error is not None:
            raise ConfigError(found.error)
    _compare_processes(given, standard, rule, found)
    return AcceptanceVerdict(
        {"given": given, **found.submission},
        {"name": rule.name, "digest": rule.digest},
        tuple(found.findings),
        tuple(found.done),
        found.missing,
        found.seconds,
    )


def accept(
    submission: str | Path,
    *,
    stage: str = "all",
    standard: str = "2026",
    folder: str | Path | None = None,
    jobs: int | None = None,
    before: Callable[[str], None] = lambda _: None,
    listener: Listener | None = None,
) -> AcceptanceVerdict:
    """Judge a rule: check its contract, and if it holds, train with it in each cell of a standard.

    Args:
        submission: a Python file with one defense, or a pipeline such as ``nnm >> krum``.
        stage: ``contracts`` for the checks of the contract alone, or ``all``.
        standard: a year, or a YAML file.
        folder: where verdict.json, verdict.md and the runs are written, in ``runs``; what is there is not run again. By default
            ``my_rule.accept`` in the working directory, for ``my_rule.py``.
        jobs: worker processes of the trainings; by default one for each core.
        before: receives the name of each check as it starts, and ``trainings`` before these.
        listener: receives the progress of the trainings; by default progress bars on a terminal, and nothing elsewhere.

    Raises:
        ConfigError: there is no such file, stage, standard or rule, or the file cannot be imported.
        StoreError: the folder cannot be written.
    """
    _check_arguments(submission, stage, standard, folder, before)
    listener = choose_listener(listener)
    given = str(submission)
    place = default_folder(given) if folder is None else Path(folder)
    verdict = check_contract(given, standard, before)
    if stage == "all" and not verdict.of("failed") and not verdict.missing:
        before("trainings")
        verdict = _train(verdict, given, load_standard(standard), place / "runs", jobs, listener)
    write_verdict(verdict, place)
    return verdict


def _check_arguments(submission: object, stage: object, standard: object, folder: object, before: object) -> None:
    path_like(submission, "submission")
    of_kind(stage, "stage", str, "contracts or all")
    of_kind(standard, "standard", str, "a year, such as '2026', or the path of a YAML file")
    if stage not in STAGES:
        raise UnknownName("stage", stage, STAGES, "--stage")
    if folder is not None:
        path_like(folder, "folder")
    if not callable(before):
        raise InputError(f"before: expected a function of a name; got {brief(before)}.")


def _train(
    verdict: AcceptanceVerdict, given: str, rule: Standard, runs: Path, jobs: int | None, listener: Listener
) -> AcceptanceVerdict:
    """The verdict with what the trainings say."""
    cells, flags, missing = run_cells(read_submission(given), rule, runs, jobs=jobs, listener=listener)
    findings = (*verdict.findings, *flags)
    return replace(verdict, findings=findings, cells=tuple(cells), missing=missing, records=digest_records(runs))


def default_folder(given: str) -> Path:
    """``my_rule.accept`` in the working directory, for ``my_rule.py`` in any folder."""
    name = Path(given).stem if given.endswith(".py") else re.sub("[^A-Za-z0-9_-]+", "_", given).strip("_")
    return Path(f"{name}.accept")


@dataclass
class _Collected:
    """What the processes have said so far."""

    submission: dict[str, str] = field(default_factory=dict)
    findings: list[AcceptanceFinding] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)
    seconds: float = 0.0
    running: str = BEFORE[0]
    complete: bool = False
    error: str | None = None

    @property
    def has_failed(self) -> bool:
        return any(one.level == "failed" for one in self.findings)

    @property
    def skip(self) -> list[str]:
        return [*self.done, *self.missing]

    def note(self, line: Mapping[str, Any], listener: Callable[[str], None]) -> None:
        """Take in one line of a process."""
        for key, value in line.items():
            match key:
                case "start":
                    self.running = value
                    if value not in BEFORE:
                        listener(value)
                case "submission":
                    self.submission = value
                case "finding":
                    self.findings.append(AcceptanceFinding(**value))
                case "done":
                    self.done.append(value)
                case "missing":
                    self.missing[value] = line["reason"]
                case "fingerprint":
                    self.fingerprints.append(value)
                case "error":
                    self.error = value
                case "end":
                    self.seconds += value
                    self.complete = True

    def note_end(self, reason: str) -> None:
        """A process ended before it was done: the check that it was at cannot be judged, nor, before any, the submission."""
        self.ended.append(self.running)
        if self.running in BEFORE:
            self.error = f"accept: importing the file failed: {reason}. Fix it."
            return
        self.missing[self.running] = reason
        self.findings.append(
            AcceptanceFinding(
                "ends_process", "failed", f"In the check {self.running}, {reason}.", remedy="Make it answer, or raise."
            )
        )


def _run_process(
    request: Mapping[str, Any], rule: Standard, found: _Collected, listener: Callable[[str], None], hashing: str = "0"
) -> None:
    """Run one process to its end, or end it."""
    found.running, found.complete = BEFORE[0], False
    with closing(_lines_of(request, rule.contracts.check_seconds, hashing)) as lines:
        for line in lines:
            if isinstance(line, str):
                found.note_end(line)
                return
            found.note(line, listener)
    if not found.complete:
        found.note_end("its process ends without a word")


def _lines_of(
    request: Mapping[str, Any], seconds: float, hashing: str
) -> Generator[Mapping[str, Any] | str, None, None]:
    """The lines of a process as they come; the last one is the reason in words if the process had to be ended."""
    variables = {**os.environ, "PYTHONHASHSEED": hashing, "OMP_NUM_THREADS": "1"}
    # Without the working directory among the places of modules: a file there might bear the submission's name
    command = [sys.executable, "-P", "-m", "fedguard.bench.acceptance.child"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    said: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read_lines, args=(process.stdout, said), daemon=True)
    reader.start()
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        patience = START + seconds
        while True:
            try:
                line = said.get(timeout=patience)
            except queue.Empty:
                yield f"it did not end within {patience:g} seconds"
                return
            if line is None or not line.endswith("\n"):  # ended in the middle of a line
                return
            patience = seconds
            yield json.loads(line)
    finally:
        # The whole group: a submission may have started others
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(5)  # a process that left the group may hold the pipe open
        if not reader.is_alive():
            process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()


def _read_lines(stream: IO[str], said: queue.Queue[str | None]) -> None:
    for line in stream:
        said.put(line)
    said.put(None)


def rerun_trials(
    given: str, standard: str, asked: Sequence[Mapping[str, Any]], listener: Callable[[str], None]
) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
    """Repeat trials in a process of their own.

    Args:
        asked: of each its ``config``, as in a record, and its ``seed``.

    Yields:
        Its number, and its result; None if it raised an error.
    """
    request = {"given": given, "standard": standard, "skip": [], "broken": False, "rerun": list(asked)}
    with closing(_lines_of(request, RERUN, "0")) as lines:
        for line in lines:
            if isinstance(line, str) or "error" in line:
                raise ConfigError(line if isinstance(line, str) else line["error"])
            if "rerun" in line:
                listener(f"trial {line['rerun'] + 1} of {len(asked)}")
                yield line["rerun"], line["result"]


def _compare_processes(given: str, standard: str, rule: Standard, found: _Collected) -> None:
    """Whether two processes with other hashes of words have the same answers."""
    if (
        any(one.code in ("not_deterministic", "global_random", "keeps_state", "crashes") for one in found.findings)
        or found.ended
    ):
        return
    asked = {"given": given, "standard": standard, "skip": [], "broken": False, "fingerprint": True}
    for hashing in ("1", "2"):
        _run_process(asked, rule, found, lambda _: None, hashing)
    if len(set(found.fingerprints)) > 1:
        words = "The same round has other answers in another process."
        remedy = "Sort sets before they are gone through, and use nothing that is drawn as Python starts."
        found.findings.append(AcceptanceFinding("differs_by_process", "failed", words, remedy=remedy))
    found.error = None
