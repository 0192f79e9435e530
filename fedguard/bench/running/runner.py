"""Runs a suite: stored trials are kept, missing ones are run, and an interruption loses only the trials in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.records.record import build_record
from fedguard.bench.records.schema import Record
from fedguard.bench.records.store import RunFolder, set_aside, write_atomically
from fedguard.bench.running.blame import plugins_of
from fedguard.bench.running.engines import WorkerMessage, WorkerPool
from fedguard.bench.running.failure_monitor import ENOUGH, FailureMonitor
from fedguard.bench.running.manifest import describe_orphan_run, write_manifest
from fedguard.bench.running.procedures import procedure, refusals
from fedguard.bench.running.progress import Listener
from fedguard.bench.running.schedule import TrialSchedule
from fedguard.bench.running.selection import Trial
from fedguard.config import Plan, PlannedCell
from fedguard.metrics.flags import find_red_flags

#: What a record holds beside its identity, its configuration and its seal.
_BODY = ("status", "reason", "threat_card", "result", "cost", "flags", "environment")


class RunInterrupt(KeyboardInterrupt):
    """Ctrl-C, raised after all finished trials were stored."""


@dataclass
class Runner:
    """One suite on its way into one run folder.

    Args:
        plan: the suite laid out.
        folder: where records go.
        listener: receives all events.
        retry_failed, fresh, same_code, secret_noise: as for `TrialSchedule`.
        timeout: seconds that the rehearsal of a cell may take; None for no limit.
        limit: how many trials to run at most; None for all.
    """

    plan: Plan
    folder: RunFolder
    listener: Listener = field(default_factory=Listener)
    retry_failed: bool = False
    fresh: bool = False
    same_code: bool = False
    timeout: float | None = None
    limit: int | None = None
    secret_noise: bool = False

    def run(self, engine: Callable[[], WorkerPool], jobs: int) -> None:
        """Run the missing trials.

        Args:
            engine: makes the pool of workers; called only if there is something to run.
            jobs: number of its workers, for the listener.

        Raises:
            NotAllowed: nothing in the suite may run.
            RunInterrupt: Ctrl-C.
            StoreError: the folder cannot be written, or another process writes to it.
        """
        self._at_hand: tuple[Trial, Record] | None = None
        self._told_of_draws = False
        self._schedule = schedule = TrialSchedule(
            self.plan,
            self.folder,
            self.retry_failed,
            self.fresh,
            self.same_code,
            self._set_aside,
            self.secret_noise,
        )
        pending = schedule.pending()
        pool = engine() if pending else None  # the workers load their libraries while we rehearse
        try:
            if pending:
                cells = {trial[0]: schedule.cell(trial) for trial in pending}
                schedule.refuse(refusals(cells.values(), self.plan.suite.seeds[0], self.timeout))
            self.folder.create()
            with self.folder.lock():
                self.folder.remove_leftovers()
                self._run_in_folder([trial for trial in pending if trial[0] not in schedule.refused], pool, jobs)
        finally:
            if pool is not None:
                pool.close()
            self.listener.close()

    def _run_in_folder(self, everything: list[Trial], pool: WorkerPool | None, jobs: int) -> None:
        schedule = self._schedule
        if said := describe_orphan_run(self.folder, self.plan):
            self.listener.note(said)
        write_manifest(self.folder, self.plan, schedule.races, self.secret_noise)
        refused = schedule.refusals()
        for trial, reason in refused:
            self.folder.write(_not_run(schedule.cell(trial), trial[1], "refused", reason))
        pending = schedule.first(everything, self.limit)
        left = len(everything) - len(pending)
        total = schedule.trials(everything) - left
        self.listener.begin(total, total - len(pending) - len(refused), len(refused), jobs)
        if schedule.stale:
            by = "code or data that have" if self.same_code else "code or data of yours that have"
            self.listener.note(f"{len(schedule.stale)} stored trials were made by {by} changed; they run again.")
        if schedule.told:
            self.listener.note(
                f"{len(schedule.told)} stored trials drew noise for privacy from their seeds; they run again with secret noise."
            )
        if schedule.unkept:
            self.listener.note(f"{len(schedule.unkept)} stored trials run again, to keep their rounds for a replay.")
        if left:
            self.listener.note(f"{left} trials are left for another run without --limit, or with it.")
        try:
            if pool is not None:
                self._work(pending, pool)
        except KeyboardInterrupt:
            if self._at_hand is not None and self.folder.record_path(*self._at_hand[0]).exists():
                schedule.take_in(self._at_hand[1])  # stored, but not yet counted
            total, stored = schedule.trials(pending) - len(refused), len(schedule.final)
            raise RunInterrupt(
                f"interrupted: {stored} of {total} trials are stored. Run the same command to go on."
            ) from None

    def _work(self, pending: list[Trial], engine: WorkerPool) -> None:
        schedule, waiting, running = self._schedule, list(pending), set[Trial]()
        self._alike = FailureMonitor(pending, all(found is None for found in schedule.final.values()))
        open_races = {cell for cell, _ in waiting if not schedule.is_decided(cell)}
        while waiting or running:
            if waiting and (reason := self._alike.reason):
                left = len(waiting) + len(running)
                self.listener.note(
                    f"stopped: the first {ENOUGH} trials have failed alike, and {left} are left. {reason.rstrip('.')}. "
                    "Fix it, and run the suite again with --retry-failed."
                )
                return
            while engine.free() and (trial := schedule.next_ready(self._alike.sort_trials(waiting), open_races)):
                waiting.remove(trial)
                if (cell := schedule.resolve_cell(trial)) is None:
                    self._store(
                        _not_run(schedule.cell(trial), trial[1], "failed", "every attack of the ensemble failed.")
                    )
                    continue
                engine.submit(schedule.job(trial, cell))
                self.listener.note_start(trial, schedule.cell(trial).label)
                running.add(trial)
            assert running or not waiting or not engine.free(), f"trials wait for each other: {waiting[:3]}"
            said = engine.wait(timeout=1.0)
            if said is None:
                self.listener.waiting()
            elif done := self._hear(said):
                running.remove(done)
                for race in schedule.races_of(done[0]) & open_races:
                    more = [
                        one for one in schedule.gather_due_trials(race) if one not in running and one not in waiting
                    ]
                    self.listener.grew(len(more))
                    waiting += more
                    if schedule.is_decided(race):
                        open_races.remove(race)

    def _hear(self, said: WorkerMessage) -> Trial | None:
        """Process a message of a worker, and return the trial if the message ended it."""
        trial = (said.job["id"], said.job["seed"])
        if said.message is not None and "lost" in said.message:
            self.listener.note(f"{self._schedule.cell(trial).label}, seed {trial[1]}: {said.message['lost']}.")
            return None
        if said.message is not None and "record" not in said.message:
            self.listener.note_progress(trial, said.message["round"], said.message["rounds"], said.message["scores"])
            return None
        if said.message is None:
            record = _not_run(self._schedule.cell(trial), trial[1], "failed", said.ended)
            log: str | None = f"{said.ended}\n{said.log}"
        else:
            record, log = self._note_changes(said.message)
        if log:
            write_atomically(self.folder.log_path(*trial), log.encode())
            self.listener.note(
                f"failed: {record['label']}, seed {trial[1]}: {record['reason']} (log: {self.folder.log_path(*trial)})"
            )
        self._store(self._as_ensemble(trial, record) if trial[0] in self._schedule.races else record)
        return trial

    def _note_changes(self, message: Mapping[str, Any]) -> tuple[Record, str | None]:
        """The record of a trial with the state that it changed for later trials, which is reported; and its log."""
        record: Record = message["record"]
        changed: list[str] = message["changed"]
        if changed:
            who = " or ".join(plugins_of(self._schedule.cell((record["cell"], record["seed"])))) or record["label"]
            self.listener.note(
                f"{record['label']}, seed {record['seed']}: {who} changed {', '.join(changed)}. Later trials do not find it "
                "so: they get a fresh process."
            )
            record["environment"]["changed"] = changed
        if (drew := record["environment"].get("drew")) and not self._told_of_draws:
            self._told_of_draws = True
            who = " or ".join(plugins_of(self._schedule.cell((record["cell"], record["seed"])))) or record["label"]
            self.listener.note(
                f"{record['label']}: {who} draws from {' and '.join(drew)} global generator. It starts where each trial's seed "
                "says, so that records repeat; but one draw more shifts all that follow. Draw from the rng that is given."
            )
        return record, message["log"]

    def _as_ensemble(self, trial: Trial, record: Record) -> Record:
        """The record of the chosen attack's training as the record of the ensemble that chose it."""
        race = self._schedule.races[trial[0]]
        body: dict[str, Any] = {key: value for key, value in record.items() if key in _BODY}
        body["threat_card"] = {**body["threat_card"], "ensemble": str(race.cell.ensemble)}
        if body["result"] is not None:
            body["result"] = {**body["result"], "worst_case": race.report(self._schedule.shares)}
            body["flags"] = find_red_flags(body["result"], body["threat_card"])
        return build_record(race.cell, trial[1], body)

    def _store(self, record: Record) -> None:
        self._at_hand = (record["cell"], record["seed"]), record
        self.folder.write(record)
        self._schedule.take_in(record)
        self._alike.take_in(record)
        self.listener.note_record(record)

    def _set_aside(self, found: DamagedFile) -> None:
        aside = set_aside(found.path).name
        self.listener.note(
            f"{found.path} is damaged; it was set aside as {aside} and its trial runs again. {found.why}."
        )


def _not_run(cell: PlannedCell, seed: int, status: str, reason: str) -> Record:
    return procedure(cell).not_run(cell, seed, status, reason)
