"""A rule in whole trainings: its worst case, what it costs when nobody attacks, and backdoors.

Every trial is an ordinary record of an ordinary run in the folder of the verdict. So a run that was stopped goes on where it
stopped, and each figure of the verdict can be looked at with `fedguard show`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedguard.bench.acceptance.findings import AcceptanceFinding, CellMetrics
from fedguard.bench.acceptance.flags import flag_cell
from fedguard.bench.acceptance.seeds import report_seeds
from fedguard.bench.acceptance.standard import Standard, TrainingCell
from fedguard.bench.acceptance.submission import Submission
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.check import explain_refusals
from fedguard.bench.running.estimate import estimate as estimate_time
from fedguard.bench.running.execute import execute
from fedguard.bench.running.progress import Listener
from fedguard.config import Plan, plan, read_suite
from fedguard.config.document import document_of
from fedguard.errors import ConfigError
from fedguard.metrics.stats import Estimate, estimate


def lay_out_cell(submission: Submission, standard: Standard, cell: TrainingCell) -> tuple[Plan, Plan]:
    """The trainings of a cell: the mean without attack; and the rule without attack, under the worst one and backdoors."""
    trainings = standard.trainings
    shared = {**cell.suite, "seeds": list(report_seeds(submission, standard))}
    honest = {**shared, "name": f"{cell.name}-honest", "matrix": {"attack": ["none"], "defense": ["mean"]}}
    plugins = {} if submission.module is None else {"plugins": [submission.module]}
    attacks = ["none", dict(trainings.worst), *trainings.backdoors]
    judged = {**shared, **plugins, "name": cell.name, "matrix": {"attack": attacks, "defense": [submission.text]}}
    return _plan_of(honest, None), _plan_of(judged, submission.folder)


def run_cell(
    submission: Submission, standard: Standard, cell: TrainingCell, store: Path, jobs: int | None, listener: Listener
) -> tuple[Run, Run]:
    """Run the missing trainings of a cell: the run of the mean without attack, and the one of the rule.

    Raises:
        ConfigError: its data are not there, or the rule cannot be trained with in it.
        StoreError: the store cannot be written.
    """
    runs = []
    for laid_out in lay_out_cell(submission, standard, cell):
        folder = RunFolder(store / laid_out.suite.name)
        runs.append(execute(laid_out, folder, jobs=jobs, listener=listener))
    return runs[0], runs[1]


def metrics_of(cell: TrainingCell, honest: Run, judged: Run) -> CellMetrics:
    """What the runs of a cell say."""
    rows = [*honest.rows(), *judged.rows()]
    gaps = [
        f"{row['attack']} against {row['defense']}, seed {row['seed']}: {row['status']}"
        for row in rows
        if row["status"] != "ok"
    ]
    clean_mean = _by_seed(honest.rows(), "none", "final_accuracy")
    attacks = list(dict.fromkeys(row["attack"] for row in judged.rows()))
    worst_name = worst_attack(judged)
    clean, worst = (_by_seed(judged.rows(), one, "final_accuracy") for one in ("none", worst_name))
    chance = next((record["result"]["chance"] for record in honest.ran.values()), None) or 0.0
    paired = [seed for seed in clean_mean if seed in worst and clean_mean[seed] > chance]
    backdoors = {
        one: _by_seed(judged.rows(), one, "attack_success") for one in attacks if one not in ("none", worst_name)
    }
    return CellMetrics(
        cell=cell.name,
        counts=cell.counts,
        worst=_estimate(list(worst.values())),
        attack=_winner(judged),
        cost=_estimate([clean_mean[seed] - clean[seed] for seed in clean_mean if seed in clean], bounds=None),
        honest=_estimate(list(clean_mean.values())),
        worst_class=_estimate(list(_by_seed(judged.rows(), worst_name, "worst_class_accuracy").values())),
        backdoors={name: found for name, values in backdoors.items() if (found := _estimate(list(values.values())))},
        kept=[(worst[seed] - chance) / (clean_mean[seed] - chance) for seed in paired],
        gaps=gaps,
        run=judged.name,
    )


def worst_attack(judged: Run) -> str:
    """The attack of a run that is the worst case, as its rows name it; '' if there is none."""
    return next((row["attack"] for row in judged.rows() if row["attack"].startswith("worst_case")), "")


def _plan_of(suite: Mapping[str, Any], folder: Path | None) -> Plan:
    document = document_of(suite, folder)
    return plan(document, read_suite(document))


def _by_seed(rows: Sequence[Mapping[str, Any]], attack: str, figure: str) -> dict[int, float]:
    return {row["seed"]: row[figure] for row in rows if row["attack"] == attack and row[figure] is not None}


def _estimate(values: Sequence[float], bounds: tuple[float, float] | None = (0.0, 1.0)) -> Estimate | None:
    return estimate(values, bounds) if values else None


def _winner(run: Run) -> str | None:
    """The attack that the ensemble chose."""
    chosen = (one["result"].get("worst_case") for one in run.ran.values())
    return next((one["chosen"] for one in chosen if one is not None), None)


def run_cells(
    submission: Submission, standard: Standard, store: Path, *, jobs: int | None, listener: Listener
) -> tuple[list[CellMetrics], list[AcceptanceFinding], dict[str, str]]:
    """Run the missing trainings of each cell.

    Args:
        store: folder of the runs.
        listener: receives the progress of each cell.

    Returns:
        What the cells say; their flags; and by name those that could not run, each with the reason.
    """
    found, flags, missing = list[CellMetrics](), list[AcceptanceFinding](), dict[str, str]()
    for cell in standard.trainings.cells:
        try:
            honest, judged = run_cell(submission, standard, cell, store, jobs, listener)
        except ConfigError as error:  # its data are not there
            missing[cell.name] = str(error)
            continue
        found.append(metrics_of(cell, honest, judged))
        flags += flag_cell(cell.name, judged, worst_attack(judged))
        if gaps := found[-1].gaps:
            missing[cell.name] = f"{len(gaps)} trials are missing, the first: {gaps[0]}"
    return found, flags, missing


def plan_cells(submission: Submission, standard: Standard) -> Iterator[tuple[str, str]]:
    """Of each cell, its name and in words what would run in it and how long that takes on one core, or why it cannot run."""
    for cell in standard.trainings.cells:
        try:
            plans = lay_out_cell(submission, standard, cell)
            refused = [explain_refusals(one) for one in plans]
            times = [estimate_time(one, none, 1) for one, none in zip(plans, refused, strict=True)]
        except ConfigError as error:
            yield cell.name, f"cannot run: {error}"
            continue
        reasons = {reason for one in refused for reason in one.values()}
        told = f"about {sum(one.seconds for one in times) / 60:.1f} minutes on one core"
        yield cell.name, told + (f"; refused: {'; '.join(sorted(reasons))}" if reasons else "")


def digest_records(store: Path) -> dict[str, str]:
    """SHA-256 of each record of the runs in a store, by its path."""
    found = sorted(store.glob("*/cells/*/seed-*.json"))
    return {path.relative_to(store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
