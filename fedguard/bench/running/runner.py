"""Runs a suite: what is stored is kept, what is missing is run, and an interruption loses only the trials in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import yaml

from fedguard.bench.records.reading import Damaged
from fedguard.bench.records.record import identified
from fedguard.bench.records.schema import Record
from fedguard.bench.records.store import RunFolder, set_aside, write_atomically
from fedguard.bench.running.blame import plugins_of
from fedguard.bench.running.code import code_of, data_digest
from fedguard.bench.running.engines import Engine, Job, Said
from fedguard.bench.running.progress import Listener
from fedguard.bench.running.rehearsal import refusals
from fedguard.bench.running.selection import Selection
from fedguard.bench.running.trial import not_run
from fedguard.config import Cell, Plan
from fedguard.config.cells import RESULTS_VERSION
from fedguard.errors import NotAllowed, StoreError
from fedguard.metrics.flags import raised

Trial = tuple[str, int]

#: What a record holds beside its identity, its configuration and its seal.
_BODY = ("status", "reason", "threat_card", "result", "cost", "flags", "environment")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after everything finished was stored."""


@dataclass
class Runner:
    """One suite on its way into one run folder.

    Args:
        plan: the suite laid out.
        folder: where records go.
        listener: told of everything that happens.
        retry_failed: run trials again that failed before.
        fresh: run every trial again, whatever is stored.
        same_code: run trials again that other code of FedGuard made, whether or not it alters results.
        dry: look only; a damaged record is not set aside.
        timeout: seconds that the rehearsal of a cell may take; None for no limit.
        limit: how many trials to run at most; None for all.
    """

    plan: Plan
    folder: RunFolder
    listener: Listener = field(default_factory=Listener)
    retry_failed: bool = False
    fresh: bool = False
    same_code: bool = False
    dry: bool = False
    timeout: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        self._cells = {cell.id: cell for cell in self.plan.cells}
        self._trials: list[Trial] = [(cell, seed) for cell in self._cells for seed in self.plan.suite.seeds]
        self._corner_cells = {cell.id: self._corners_of(cell) for cell in self.plan.cells}
        self._final: dict[Trial, float | None] = {}
        self._halted: set[Trial] = set()
        self._refused = {cell.id: " ".join(cell.verdict.reasons) for cell in self.plan.cells if cell.verdict.reasons}
        self._require_something_to_run()
        ensembles = [cell for cell in self.plan.cells if cell.ensemble and cell.id not in self._refused]
        self._races = {cell.id: Selection.of(cell) for cell in ensembles}
        self._cells |= {member.id: member for race in self._races.values() for member in race.members}
        self._code = {cell.id: code_of(cell) for cell in self._cells.values()}
        self._stale: set[Trial] = set()

    def pending(self) -> list[Trial]:
        """The trials to be run, in an order in which each finds the corners it is compared with done.

        Of the trials on which ensembles choose, those that can be named now.
        """
        pending: list[Trial] = []
        for trial in self._trials:
            if trial[0] in self._refused:
                continue
            record = self._stored(trial)
            if self._must_run(trial, record):
                pending.append(trial)
            else:
                assert record is not None
                self._take_in(record)
        racing = dict.fromkeys(cell for cell, _ in pending)
        return list(dict.fromkeys([*pending, *(trial for cell in racing for trial in self._wanted(cell))]))

    def trials(self, pending: Sequence[Trial]) -> int:
        """Number of all trials, as far as it can be told now."""
        return len({*self._trials, *pending, *self._final})

    def label(self, trial: Trial) -> str:
        """What a trial is, in words."""
        return self._cells[trial[0]].label

    def _wanted(self, cell: str) -> list[Trial]:
        """The trials that an ensemble needs now to make its choice; what is stored is taken in on the way."""
        race = self._races.get(cell)
        if race is None:
            return []
        while wanted := race.wanted(self._final):
            missing = []
            for trial in wanted:
                record = self._stored(trial)
                if self._must_run(trial, record):
                    missing.append(trial)
                else:
                    assert record is not None
                    self._final[trial] = _final_of(record)
            if missing:
                return missing
        return []

    def run(self, engine: Callable[[], Engine], jobs: int) -> None:
        """Run what is missing.

        Args:
            engine: makes the pool of workers; called only if there is something to run.
            jobs: how many workers it has, for the record of what is said.

        Raises:
            NotAllowed: nothing in the suite may run.
            Interrupted: Ctrl-C.
            StoreError: the folder cannot be written, or another process writes to it.
        """
        pending = self.pending()
        pool = engine() if pending else None  # the workers load their libraries while we rehearse
        try:
            if pending:
                self._rehearse(pending)
            self.folder.create()
            with self.folder.lock():
                self._run_in_folder([trial for trial in pending if trial[0] not in self._refused], pool, jobs)
        finally:
            if pool is not None:
                pool.close()
            self.listener.close()

    def _run_in_folder(self, pending: list[Trial], pool: Engine | None, jobs: int) -> None:
        self._write_manifest()
        refused = self._write_refusals()
        everything = list(dict.fromkeys(pending))
        pending = self._first(everything)
        left = len(everything) - len(pending)
        total = self.trials(everything) - left
        self.listener.begin(total, total - len(pending) - refused, refused, jobs)
        if self._stale:
            by = "code or data that have" if self.same_code else "code or data of yours that have"
            self.listener.note(f"{len(self._stale)} stored trials were made by {by} changed; they run again.")
        if left:
            self.listener.note(f"{left} trials are left for another run without --limit, or with it.")
        try:
            if pool is not None:
                self._work(pending, pool)
        except KeyboardInterrupt:
            total, stored = self.trials(pending) - refused, len(self._final)
            raise Interrupted(
                f"interrupted: {stored} of {total} trials are stored. Run the same command to go on."
            ) from None

    def _first(self, pending: list[Trial]) -> list[Trial]:
        """The first trials of the plan, as many as the limit allows, each with those that it is compared with.

        An ensemble is none of them, for its choice takes many.
        """
        if self.limit is None:
            return pending
        first, known = list[Trial](), set(self._final)
        for trial in pending:
            ready = trial[0] not in self._races and set(self._corners(trial).values()) <= known
            if ready and len(first) < self.limit:
                first.append(trial)
                known.add(trial)
        return first

    def _rehearse(self, pending: list[Trial]) -> None:
        """Refuse what does not come together with its data."""
        cells = {trial[0]: self._cells[trial[0]] for trial in pending}
        refused = refusals(cells.values(), self.plan.suite.seeds[0], self.timeout)
        self._refused |= refused
        self._require_something_to_run()
        self._races = {cell: Selection.of(race.cell, refused) for cell, race in self._races.items()}

    def _require_something_to_run(self) -> None:
        if self._refused and all(cell.id in self._refused for cell in self.plan.cells):
            cell, reason = next(iter(self._refused.items()))
            raise NotAllowed(f"nothing in this suite may run. {self._cells[cell].label}: {reason}")

    def _work(self, pending: list[Trial], engine: Engine) -> None:
        waiting, running = list(pending), set[Trial]()
        open_races = {trial[0] for trial in waiting if trial[0] in self._races and not self._decided(trial[0])}
        while waiting or running:
            while engine.free() and (trial := self._next_ready(waiting, open_races)):
                waiting.remove(trial)
                if trial[0] in self._races and self._races[trial[0]].choice(self._final) is None:
                    self._store(
                        not_run(self._cells[trial[0]], trial[1], "failed", "every attack of the ensemble failed.")
                    )
                    continue
                engine.submit(self._job(trial))
                self.listener.started(trial, self.label(trial))
                running.add(trial)
            assert running or not waiting, f"trials wait for each other: {waiting[:3]}"
            said = engine.wait(timeout=1.0)
            if said is None:
                self.listener.waiting()
            if said is not None and (done := self._hear(said)):
                running.remove(done)
                for cell in [one for one in open_races if any(done[0] == m.id for m in self._races[one].members)]:
                    more = [one for one in self._wanted(cell) if one not in running and one not in waiting]
                    self.listener.grew(len(more))
                    waiting += more
                    if self._decided(cell):
                        open_races.remove(cell)

    def _decided(self, cell: str) -> bool:
        return not self._races[cell].wanted(self._final)

    def _next_ready(self, waiting: list[Trial], open_races: set[str]) -> Trial | None:
        """The first trial whose corners are done and whose attack is chosen."""
        return next(
            (
                trial
                for trial in waiting
                if trial[0] not in open_races and all(corner in self._final for corner in self._corners(trial).values())
            ),
            None,
        )

    def _corners(self, trial: Trial) -> dict[str, Trial]:
        """The other corners of a trial, as far as they are run and say what they are meant to.

        Where silence itself stops the training, since too few clients are left, it is no measure of what their data bring.
        """
        if trial[1] not in self.plan.suite.seeds:  # an ensemble's member on a selection seed is compared with nothing
            return {}
        corners = self._corner_cells[trial[0]]
        run = {name: (cell, trial[1]) for name, cell in corners.items() if cell not in self._refused}
        return {name: one for name, one in run.items() if not (name.startswith("silent") and one in self._halted)}

    def _corners_of(self, cell: Cell) -> dict[str, str]:
        """The ids of the cells, other than itself, that a cell is compared with."""
        ids = {name: corner.id for name, corner in cell.compared_with.items()}
        return {name: corner for name, corner in ids.items() if corner != cell.id and corner in self._cells}

    def _job(self, trial: Trial) -> Job:
        cell, seed = self._cells[trial[0]], trial[1]
        if trial[0] in self._races:
            chosen = self._races[trial[0]].choice(self._final)
            assert chosen is not None
            cell = chosen
        clean = cell.corner(attacked=False, defended=True)
        return {
            "cell": cell.canonical,
            "id": trial[0],
            "seed": seed,
            "corners": {name: self._final[corner] for name, corner in self._corners(trial).items()},
            "clean_model": str(self.folder.model_path(clean.id, seed)),
            "folder": str(self.folder.path),
            "model": str(self.folder.model_path(cell.id, seed)) if cell.named is None else None,
        }

    def _hear(self, said: Said) -> Trial | None:
        """Take in what a worker said; the trial that this ended, if it did."""
        trial = (said.job["id"], said.job["seed"])
        if said.message is not None and "record" not in said.message:
            self.listener.advanced(trial, said.message["round"], said.message["rounds"], said.message["accuracy"])
            return None
        if said.message is None:
            record = not_run(self._cells[trial[0]], trial[1], "failed", said.ended)
            log: str | None = f"{said.ended}\n{said.log}"
        else:
            record, log = self._noted(said.message)
        if log:
            write_atomically(self.folder.log_path(*trial), log.encode())
            self.listener.note(
                f"failed: {record['label']}, seed {trial[1]}: {record['reason']} (log: {self.folder.log_path(*trial)})"
            )
        self._store(self._as_ensemble(trial, record) if trial[0] in self._races else record)
        return trial

    def _noted(self, message: Mapping[str, Any]) -> tuple[Record, str | None]:
        """The record of a trial with what it changed for others, which is said aloud; and its log."""
        record: Record = message["record"]
        changed: list[str] = message["changed"]
        if changed:
            cell = self._cells.get(record["cell"])
            who = " or ".join(plugins_of(cell) if cell else []) or record["label"]
            self.listener.note(
                f"{record['label']}, seed {record['seed']}: {who} changed {', '.join(changed)}. Later trials do not find it "
                "so: they get a fresh process."
            )
            record["environment"]["changed"] = changed
        return record, message["log"]

    def _as_ensemble(self, trial: Trial, record: Record) -> Record:
        """The record of the chosen attack's training as that of the ensemble that chose it."""
        race = self._races[trial[0]]
        body: dict[str, Any] = {key: value for key, value in record.items() if key in _BODY}
        body["threat_card"] = {**body["threat_card"], "ensemble": str(race.cell.ensemble)}
        if body["result"] is not None:
            body["result"] = {**body["result"], "worst_case": race.report(self._final)}
            body["flags"] = raised(body["result"], body["threat_card"])
        return identified(race.cell, trial[1], body)

    def _store(self, record: Record) -> None:
        self.folder.write(record)
        self._take_in(record)
        self.listener.ended(record)

    def _take_in(self, record: Record) -> None:
        trial = (record["cell"], record["seed"])
        self._final[trial] = _final_of(record)
        if record["status"] == "ok" and _halts(record["result"]):
            self._halted.add(trial)

    def _stored(self, trial: Trial) -> Record | None:
        def broken(found: Damaged) -> None:
            if self.dry:
                return
            aside = set_aside(found.path).name
            self.listener.note(
                f"{found.path} is damaged; it was set aside as {aside} and its trial runs again. {found.why}."
            )

        return self.folder.read(*trial, broken=broken)

    def _must_run(self, trial: Trial, record: Record | None) -> bool:
        if self.fresh or record is None or record["status"] == "refused":
            return True
        if self._outdated(trial[0], record):
            self._stale.add(trial)
            return True
        if record["status"] == "failed":
            return self.retry_failed
        # A corner that was missing when this record was made, and is there or to be run now.
        return self.retry_failed and any(record["result"]["corners"].get(name) is None for name in self._corners(trial))

    def _outdated(self, cell: str, record: Record) -> bool:
        """Whether the code or the data that the cell is built of have changed since.

        FedGuard's own changes count under ``same_code`` alone: those that alter results raise `RESULTS_VERSION`.
        """
        made, now = record["environment"].get("code", {}), self._code[cell]
        modules = now if self.same_code else set(now) - {"fedguard"}
        if any(made.get(module) != now[module] for module in modules):
            return True
        data = self._cells[cell].data
        found = data_digest(data) if data.outside else None
        return found is not None and found != record["environment"].get("data")

    def _write_refusals(self) -> int:
        refused = [(trial, self._refused[trial[0]]) for trial in self._trials if trial[0] in self._refused]
        for (cell, seed), reason in refused:
            self.folder.write(not_run(self._cells[cell], seed, "refused", reason))
        return len(refused)

    def _write_manifest(self) -> None:
        suite = self.plan.suite
        try:
            created = self.folder.manifest()["created"]
        except (StoreError, KeyError):  # the first run into this folder, or a damaged manifest, which is made anew
            created = time.time()
        manifest: Mapping[str, Any] = {
            "schema": 1,
            "name": suite.name,
            "folder": None if self.plan.known.folder is None else str(self.plan.known.folder),
            "fedguard": version("fedguard"),
            "results_version": RESULTS_VERSION,
            "created": created,
            "started": time.time(),
            "seeds": list(suite.seeds),
            "swept": list(suite.matrix),
            "positions": [{"cell": cell.id, "swept": swept} for swept, cell in self.plan.positions],
            "corners": [cell.id for cell in self.plan.corners],
            "tuning": suite.tuning.model_dump(mode="json") if suite.tuning else None,
            "ensembles": [
                {"cell": cell, "seeds": race.seeds, "members": {one.id: str(one.attack) for one in race.members}}
                for cell, race in self._races.items()
            ],
        }
        config = suite.model_dump(mode="json", by_alias=True)
        self.folder.write_manifest(manifest, yaml.safe_dump(config, sort_keys=False))


def _halts(result: Mapping[str, Any]) -> bool:
    """Whether more than one round in twenty changed nothing, or so many of its sums were lost."""
    rounds, sums = result["rounds"], result["secure_aggregation"] or {"aborted_sessions": 0, "sessions": 1}
    return bool(20 * rounds["abandoned"] > rounds["total"] or 20 * sums["aborted_sessions"] > max(sums["sessions"], 1))


def _final_of(record: Record) -> float | None:
    return record["result"]["final_accuracy"] if record["status"] == "ok" else None
