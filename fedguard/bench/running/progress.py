"""Progress of a run: bars on a terminal, plain lines elsewhere, and nothing in Python unless asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedguard.arguments import of_kind

Trial = tuple[str, int]
#: Rounds, each with the accuracy, or the mean return of actors, after it.
Curve = Sequence[tuple[int, float]]


class Listener:
    """Receives all events of a run and shows nothing; base of the listeners that do."""

    def begin(self, total: int, stored: int, refused: int, jobs: int) -> None:
        """``total`` trials, of which ``stored`` are there already and ``refused`` are not run."""

    def grew(self, trials: int) -> None:
        """More trials turned out to be needed."""

    def note_start(self, trial: Trial, label: str) -> None:
        """A worker took a trial."""

    def note_progress(self, trial: Trial, round: int, rounds: int, scores: Curve) -> None:
        """A trial has done some rounds; ``scores``: what was evaluated since this was last called."""

    def note_record(self, record: Mapping[str, Any]) -> None:
        """A record was stored."""

    def waiting(self) -> None:
        """No worker has sent a message for a second; a listener can end the run by raising here."""

    def note(self, text: str) -> None:
        """Show a message on a line of its own."""

    def close(self) -> None:
        """The run is over or interrupted."""


class Lines(Listener):
    """One line every few seconds, for logs."""

    def __init__(self, console: Console, every: float = 5.0) -> None:
        self._console, self._every = console, every
        self._first = self._spoken = time.monotonic()
        self._total = self._done = self._failed = 0

    def begin(self, total: int, stored: int, refused: int, jobs: int) -> None:
        # A listener may follow one run after another
        self._first = self._spoken = time.monotonic()
        self._done = self._failed = 0
        self._total = total - stored - refused
        self._console.print(
            f"{total} trials: {self._total} to run on {jobs} workers, {stored} stored already, {refused} refused."
        )

    def grew(self, trials: int) -> None:
        self._total += trials

    def note_record(self, record: Mapping[str, Any]) -> None:
        self._done += 1
        self._failed += record["status"] == "failed"
        now = time.monotonic()
        if self._done == 1:
            self._first = now  # until then the workers were loading their libraries
        elif now - self._spoken >= self._every or self._done == self._total:
            self._spoken = now
            left = (now - self._first) / (self._done - 1) * (self._total - self._done)
            failed = f", {self._failed} failed" if self._failed else ""
            self._console.print(
                f"[{self._done}/{self._total}] {left:.0f} s left{failed}; last: {record['label']}, seed {record['seed']}",
                markup=False,
            )

    def note(self, text: str) -> None:
        self._console.print(text, markup=False)


class Bars(Listener):
    """A bar for the suite and one for each running trial."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._suite: TaskID | None = None
        self._running: dict[Trial, TaskID] = {}

    def begin(self, total: int, stored: int, refused: int, jobs: int) -> None:
        for task in self._progress.task_ids:  # of a run before
            self._progress.remove_task(task)
        self._running.clear()
        self._progress.start()
        self._suite = self._progress.add_task("suite", total=total - refused, completed=stored)

    def grew(self, trials: int) -> None:
        if self._suite is not None:
            total = next(task.total for task in self._progress.tasks if task.id == self._suite)
            self._progress.update(self._suite, total=(total or 0) + trials)

    def note_start(self, trial: Trial, label: str) -> None:
        self._running[trial] = self._progress.add_task(f"  {label}, seed {trial[1]}", total=None)

    def note_progress(self, trial: Trial, round: int, rounds: int, scores: Curve) -> None:
        if trial in self._running:
            self._progress.update(self._running[trial], completed=round, total=rounds)

    def note_record(self, record: Mapping[str, Any]) -> None:
        running = self._running.pop((record["cell"], record["seed"]), None)
        if running is not None:
            self._progress.remove_task(running)
        if self._suite is not None:
            self._progress.advance(self._suite)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False)

    def close(self) -> None:
        self._progress.stop()


def for_console(console: Console) -> Listener:
    """Bars on a terminal, plain lines elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)


def choose_listener(listener: Listener | None) -> Listener:
    """The given listener; None for bars on a terminal or in a notebook, and nothing elsewhere.

    Raises:
        InputError: it is no listener.
    """
    if listener is not None:
        of_kind(listener, "listener", Listener, "a Listener of fedguard.bench.running.progress, or None")
        return listener
    console = Console(stderr=True)
    return Bars(console) if console.is_terminal or console.is_jupyter else Listener()
