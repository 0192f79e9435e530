"""Schedule of a suite: the trials to run, and their order, by stored records, controls, and the choices of ensembles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.records.schema import Record
from fedguard.bench.records.store import RunFolder
from fedguard.bench.running.code import code_of, data_digest
from fedguard.bench.running.engines import Job
from fedguard.bench.running.replay import why_no_replay
from fedguard.bench.running.selection import AttackSelection, Trial
from fedguard.config import Plan, PlannedCell
from fedguard.errors import NotAllowed
from fedguard.metrics.returns import controls, in_shares, score


def _unsaid(found: DamagedFile) -> None:
    """Ignore damaged files."""


@dataclass
class TrialSchedule:
    """The trials of one suite beside the records of one run folder. Nothing is written.

    Args:
        plan: the suite laid out.
        folder: where records are.
        retry_failed: run failed trials again.
        fresh: run every trial again, whatever is stored.
        same_code: run trials of other FedGuard code again, whether or not the change alters results.
        secret_noise: run trials again if their noise for privacy came from their seed.
        broken: called with each unreadable record; its trial runs again.

    Attributes:
        refused: cell id -> why it may not run.
        races: cell id of an ensemble -> how its attack is chosen.
        final: the final accuracy or return of each finished trial; None for a failed trial.
        shares: the same, with normalized returns; attacks are compared by these.
        stale: stored trials made by other code or data, among those examined.
        told: stored trials with noise from their seed, which are run again for that reason.
        unkept: stored trials whose rounds were not kept, which are run again for the replay that the suite asks for.
    """

    plan: Plan
    folder: RunFolder
    retry_failed: bool = False
    fresh: bool = False
    same_code: bool = False
    broken: Callable[[DamagedFile], None] = _unsaid
    secret_noise: bool = False

    def __post_init__(self) -> None:
        self._cells = {cell.id: cell for cell in self.plan.cells}
        self._trials: list[Trial] = [(cell, seed) for cell in self._cells for seed in self.plan.suite.seeds]
        self._control_cells = {cell.id: self._controls_of(cell) for cell in self.plan.cells}
        self.final: dict[Trial, float | None] = {}
        self.shares: dict[Trial, float | None] = {}
        self._halted: set[Trial] = set()
        self.refused = {cell.id: " ".join(cell.verdict.reasons) for cell in self.plan.cells if cell.verdict.reasons}
        self._require_something_to_run()
        ensembles = [cell for cell in self.plan.cells if cell.ensemble and cell.id not in self.refused]
        self.races = {cell.id: AttackSelection.of(cell) for cell in ensembles}
        self._cells |= {member.id: member for race in self.races.values() for member in race.members}
        self._code = {cell.id: code_of(cell) for cell in self._cells.values()}
        self.stale: set[Trial] = set()
        self.told: set[Trial] = set()
        self.unkept: set[Trial] = set()

    def pending(self) -> list[Trial]:
        """The trials to be run, each after the controls that it is compared with.

        Selection trials of ensembles are included as far as they are known now.
        """
        pending: list[Trial] = []
        for trial in self._trials:
            if trial[0] in self.refused:
                continue
            record = self._read_record(trial)
            if self._must_run(trial, record):
                pending.append(trial)
            else:
                assert record is not None
                self.take_in(record)
        racing = dict.fromkeys(cell for cell, _ in pending)
        return list(dict.fromkeys([*pending, *(trial for cell in racing for trial in self.gather_due_trials(cell))]))

    def trials(self, pending: Sequence[Trial]) -> int:
        """Number of all trials, as far as it is known now."""
        return len({*self._trials, *pending, *self.final})

    def cell(self, trial: Trial) -> PlannedCell:
        """The cell of a trial."""
        return self._cells[trial[0]]

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Take cells out, each with its reason.

        Raises:
            NotAllowed: nothing is left.
        """
        self.refused |= refused
        self._require_something_to_run()
        self.races = {cell: AttackSelection.of(race.cell, refused) for cell, race in self.races.items()}

    def refusals(self) -> list[tuple[Trial, str]]:
        """The trials that may not run, and why."""
        return [(trial, self.refused[trial[0]]) for trial in self._trials if trial[0] in self.refused]

    def gather_due_trials(self, cell: str) -> list[Trial]:
        """The trials that an ensemble needs now for its choice; stored ones are read and counted."""
        race = self.races.get(cell)
        if race is None:
            return []
        while wanted := race.due_trials(self.shares):
            missing = []
            for trial in wanted:
                record = self._read_record(trial)
                if self._must_run(trial, record):
                    missing.append(trial)
                else:
                    assert record is not None
                    self._came_to(trial, record)
            if missing:
                return missing
        return []

    def first(self, pending: list[Trial], limit: int | None) -> list[Trial]:
        """The first trials of the plan up to the limit, each with its controls.

        Ensembles are left out, since their choice takes many trials.
        """
        if limit is None:
            return pending
        first, known = list[Trial](), set(self.final)
        for trial in pending:
            ready = trial[0] not in self.races and set(self._controls(trial).values()) <= known
            if ready and len(first) < limit:
                first.append(trial)
                known.add(trial)
        return first

    def is_decided(self, cell: str) -> bool:
        """Whether a cell has no ensemble, or its attack is chosen."""
        return cell not in self.races or not self.races[cell].due_trials(self.shares)

    def next_ready(self, waiting: list[Trial], open_races: set[str]) -> Trial | None:
        """The first trial with finished controls and a chosen attack."""
        return next(
            (
                trial
                for trial in waiting
                if trial[0] not in open_races
                and all(control in self.final for control in self._controls(trial).values())
            ),
            None,
        )

    def resolve_cell(self, trial: Trial) -> PlannedCell | None:
        """The cell to be trained: the trial's own, or the cell of the attack that its ensemble chose; None if all failed."""
        race = self.races.get(trial[0])
        return self.cell(trial) if race is None else race.choice(self.shares)

    def races_of(self, member: str) -> set[str]:
        """The ensembles that choose among others on trials of this cell."""
        return {cell for cell, race in self.races.items() if any(one.id == member for one in race.members)}

    def job(self, trial: Trial, cell: PlannedCell) -> Job:
        """The job of a trial for a worker, in which ``cell`` is trained."""
        seed, clean = trial[1], cell.control(attacked=False, defended=True)
        return {
            "cell": cell.canonical,
            "id": trial[0],
            "seed": seed,
            "controls": {name: self.final[control] for name, control in self._controls(trial).items()},
            "clean_model": str(self.folder.model_path(clean.id, seed)),
            "folder": str(self.folder.path),
            "model": str(self.folder.model_path(cell.id, seed)) if cell.named is None else None,
            "replay": replay.every if (replay := self.plan.suite.replay) and self._wants_replay(trial) else None,
        }

    def _wants_replay(self, trial: Trial) -> bool:
        """Whether the suite asks to keep the rounds of this trial, and they can be kept."""
        cells = {cell.id for _, cell in self.plan.positions}
        asked = trial[0] in cells and trial[1] == self.plan.suite.replay_seed
        return asked and why_no_replay(self._cells[trial[0]]) is None

    def take_in(self, record: Record) -> None:
        """Store the outcome of a finished trial."""
        trial = (record["cell"], record["seed"])
        self._came_to(trial, record)
        if record["status"] == "ok" and _halts(record["result"]):
            self._halted.add(trial)

    def _came_to(self, trial: Trial, record: Record) -> None:
        self.final[trial] = self.shares[trial] = None
        if record["status"] == "ok":
            self.final[trial] = score(record["result"])
            self.shares[trial] = in_shares(record["result"])["final_accuracy"]

    def _controls(self, trial: Trial) -> dict[str, Trial]:
        """The controls of a trial, as far as they have run and are meaningful.

        A silent control that stops the training, since too few clients are left, does not measure the loss by silence.
        """
        if trial[1] not in self.plan.suite.seeds:  # an ensemble's member on a selection seed is compared with nothing
            return {}
        controls = self._control_cells[trial[0]]
        run = {name: (cell, trial[1]) for name, cell in controls.items() if cell not in self.refused}
        return {name: one for name, one in run.items() if not (name.startswith("silent") and one in self._halted)}

    def _controls_of(self, cell: PlannedCell) -> dict[str, str]:
        """The ids of the cells, other than itself, that a cell is compared with."""
        ids = {name: control.id for name, control in cell.compared_with.items()}
        return {name: control for name, control in ids.items() if control != cell.id and control in self._cells}

    def _require_something_to_run(self) -> None:
        if self.refused and all(cell.id in self.refused for cell in self.plan.cells):
            cell, reason = next(iter(self.refused.items()))
            raise NotAllowed(f"nothing in this suite may run. {self._cells[cell].label}: {reason}")

    def _read_record(self, trial: Trial) -> Record | None:
        return self.folder.read(*trial, broken=self.broken)

    def _must_run(self, trial: Trial, record: Record | None) -> bool:
        if self.fresh or record is None or record["status"] == "refused":
            return True
        if self._is_outdated(trial[0], record):
            self.stale.add(trial)
            return True
        if record["status"] == "failed":
            return self.retry_failed
        if record["status"] == "ok" and self._wants_replay(trial) and not self.folder.replay_path(*trial).exists():
            self.unkept.add(trial)
            return True
        if self.secret_noise and record["threat_card"].get("noise_from") == "seed":
            self.told.add(trial)
            return True
        # A control that was missing when this record was made, and is there or to be run now.
        return self.retry_failed and any(controls(record["result"]).get(name) is None for name in self._controls(trial))

    def _is_outdated(self, cell: str, record: Record) -> bool:
        """Whether the code or the data of the cell have changed since.

        FedGuard's own changes count only with ``same_code``: changes that alter results raise `RESULTS_VERSION` anyway.
        """
        made, now = record["environment"].get("code", {}), self._code[cell]
        modules = now if self.same_code else set(now) - {"fedguard"}
        if any(made.get(module) != now[module] for module in modules):
            return True
        data = self._cells[cell].data
        found = data_digest(data) if data.outside else None
        return found is not None and found != record["environment"].get("data")


def _halts(result: Mapping[str, Any]) -> bool:
    """Whether more than one in twenty rounds changed nothing, or more than one in twenty sums were lost."""
    rounds, sums = result["rounds"], result["secure_aggregation"] or {"aborted_sessions": 0, "sessions": 1}
    return bool(20 * rounds["abandoned"] > rounds["total"] or 20 * sums["aborted_sessions"] > max(sums["sessions"], 1))
