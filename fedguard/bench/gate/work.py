"""Trainings and audits that the gate runs itself: fresh seeds, epsilons, and the confirmation seeds of a baseline.

Trainings execute the plug-ins that the run's suite names, so judge only runs of suites that you trust.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedguard.arguments import of_kind, path_like, words
from fedguard.bench.gate.baseline import Baseline, confirmation_seeds, read
from fedguard.bench.gate.judge import judge
from fedguard.bench.gate.snapshot import Snapshot, plan_of, stale
from fedguard.bench.gate.verdict import GateVerdict
from fedguard.bench.gate.verdict_store import keep
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.places import label
from fedguard.bench.results.run import Run
from fedguard.bench.running.execute import check_workers, execute
from fedguard.bench.running.progress import Listener
from fedguard.config import Plan
from fedguard.errors import ConfigError, UnknownName
from fedguard.retired import accept_retired_arguments

if TYPE_CHECKING:
    from fedguard.bench.running.engines.ray import Ray


@accept_retired_arguments
def gate(
    run: Run,
    baseline: str | Path,
    *,
    fail_on: str | Sequence[str] = (),
    jobs: int | None = None,
    listener: Listener | None = None,
    engine: Ray | None = None,
) -> GateVerdict:
    """Has anything become worse? Judge a run against a baseline; what looks worse is trained again on fresh seeds.

    Args:
        baseline: the file.
        fail_on: ``inconclusive``: inconclusive judgments count as not judged.
        jobs, listener, engine: for these trainings, as for `fedguard.run`.

    Returns:
        the verdict; ``verdict.passed`` and ``verdict.exit_code`` sum it up. It is stored beside the run.

    Raises:
        StoreError: the baseline cannot be read, or the verdict not written.
        ConfigError: the run's suite cannot be laid out.
    """
    of_kind(run, "run", Run, "a Run, as fedguard.open_run gives")
    path_like(baseline, "baseline")
    for one in words([fail_on] if isinstance(fail_on, str) else fail_on, "fail_on"):
        if one != "inconclusive":
            raise UnknownName("reason to fail", one, ("inconclusive",), "fail_on")
    base, work = read(baseline), Work(run, jobs, listener, engine)
    verdict = judge(
        work.snapshot,
        base,
        confirm=work.confirm,
        audit=work.audit,
        run_name=run.name,
        file=str(baseline),
        stale=work.stale,
        strict=bool(fail_on),
    )
    keep(verdict, run.folder)
    return verdict


def save_baseline(
    run: Run,
    to: str | Path,
    *,
    reason: str = "",
    jobs: int | None = None,
    listener: Listener | None = None,
    engine: Ray | None = None,
) -> Baseline:
    """Write the baseline that `gate` holds later runs against, after running what it takes: the run's cells on fresh seeds.

    Args:
        to: the file; if a baseline is there, its history goes on.
        reason: why; needed where a baseline is there.
        jobs, listener, engine: as for `fedguard.run`.

    Raises:
        ConfigError: the run is not whole, other code made it than is installed, or there is no reason.
        StoreError: the file is something else, or cannot be written.
    """
    of_kind(run, "run", Run, "a Run, as fedguard.open_run gives")
    path_like(to, "to")
    of_kind(reason, "reason", str, "words")
    before = read(to) if Path(to).exists() else None
    made = make_baseline(
        run, reason if before else reason or "saved", before, jobs=jobs, listener=listener, engine=engine
    )
    made.write(Path(to))
    return made


def make_baseline(
    run: Run,
    reason: str,
    before: Baseline | None = None,
    *,
    jobs: int | None = None,
    listener: Listener | None = None,
    engine: Ray | None = None,
) -> Baseline:
    """The baseline of a run; its cells are run on the seeds that confirm, in the run's folder ``confirmation``.

    Args:
        before: the baseline that it takes the place of.

    Raises:
        ConfigError: the run is not whole, other code made it than is installed, or the reason is empty.
    """
    if not reason.strip():
        raise ConfigError("baseline: expected a reason, which the history keeps; got none.")
    work = Work(run, jobs, listener, engine)
    if work.stale:
        raise ConfigError(f"baseline: {work.stale[0]}")
    if run.failures:  # of a control, too: what is compared with it would be missing from the baseline without a word
        one = run.failures[0]
        raise ConfigError(
            f"baseline: expected every trial run or refused; {label(one.place)}, seed {one.seed}, failed ({one.reason}). "
            "Run the suite again with --retry-failed."
        )
    screening = Baseline.of(work.snapshot, None, reason)  # says what is missing before anything is run
    ran = [key for key, cell in screening.snapshot.cells.items() if cell.status == "ok"]
    confirmation = work.confirm(ran, confirmation_seeds(work.plan), fresh=False) if ran else None
    return Baseline.of(work.snapshot, confirmation, reason, before)


@dataclass(frozen=True)
class Work:
    """A run, and how its cells are run on other seeds."""

    run: Run
    jobs: int | None = None
    listener: Listener | None = None
    engine: Ray | None = None

    def __post_init__(self) -> None:
        check_workers(self.jobs, self.listener, self.engine)

    @cached_property
    def plan(self) -> Plan:
        return plan_of(self.run)

    @cached_property
    def stale(self) -> tuple[str, ...]:
        """Why the run does not show what the installed code does."""
        return stale(self.run, self.plan)

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot.of(self.run, self.plan)

    def confirm(self, cells: Sequence[str], seeds: Sequence[int], *, fresh: bool = True) -> Snapshot:
        """Some cells on other seeds, in the run's folder ``confirmation``.

        Args:
            fresh: run everything, whatever is stored: a digest of code cannot know all that a plug-in reads. Otherwise what the
                installed code has stored is not run again.
        """
        suite = self.plan.suite.model_copy(update={"seeds": tuple(seeds), "replay": None})
        wanted = dataclasses.replace(self.plan, suite=suite).only(cells)
        folder = RunFolder(self.run.folder.path / "confirmation")
        where: dict[str, Any] = {"jobs": self.jobs, "engine": self.engine, "listener": self.listener}
        done = execute(wanted, folder, retry_failed=True, same_code=True, fresh=fresh, **where)
        return Snapshot.of(done, wanted)

    def audit(self) -> list[dict[str, Any]]:
        """The audits of everything in the suite that adds noise."""
        from fedguard.bench.audits.cells import audit_suite  # here, since it loads all methods of audits

        say = self.listener.note if self.listener else (lambda text: None)
        return [one.as_dict() for one in audit_suite(self.plan, before=lambda what: say(f"auditing: {what}"))]
