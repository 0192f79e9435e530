"""A trial: one cell with one seed, from the data to the record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedguard.architectures.statistics import describe_statistics
from fedguard.architectures.statistics_checks import check_statistics
from fedguard.bench.records.record import build_record
from fedguard.bench.records.schema import Record
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.code import code_of, data_digest
from fedguard.bench.running.environment import environment, peak_memory
from fedguard.bench.running.in_time import as_of
from fedguard.bench.running.inference.curious import Album, PrivacyAdversary
from fedguard.bench.running.other_fates import OtherFates, check_other_fates
from fedguard.bench.running.protocol import privacy_spent, sums
from fedguard.bench.running.references import references
from fedguard.bench.running.replay import RoundKeeper
from fedguard.bench.running.workbench import Workbench, malicious_clients
from fedguard.config import PlannedCell
from fedguard.contracts import Evaluation, RoundReport, Setup, Stopwatch, Task
from fedguard.contracts.at_clients import backdoor_success
from fedguard.contracts.tasks import NOT_ASKED
from fedguard.metrics.durability import durability
from fedguard.metrics.evasion import measure_evasion, play_under_evasion
from fedguard.metrics.flags import find_red_flags
from fedguard.metrics.minority import minorities
from fedguard.metrics.parties import parties
from fedguard.metrics.returns import mean_return, means, normalize_return, score
from fedguard.metrics.trajectory import judge_last, summarize
from fedguard.rng import Rng, global_generators
from fedguard.robustness.weight import WeightBreakdown
from fedguard.tasks.classification import Classification
from fedguard.tasks.compute import computing_in
from fedguard.tasks.playing import EPISODES, EnvironmentTask

Controls = Mapping[str, float | None]
#: Called with the round, the number of rounds, and the accuracy or mean return after it if it was evaluated.
Progress = Callable[[int, int, float | None], None]


def silent(round: int, rounds: int, score: float | None) -> None:
    """Ignore progress."""


def run_trial(
    cell: PlannedCell,
    seed: int,
    controls: Controls,
    bench: Workbench | None = None,
    *,
    progress: Progress = silent,
    clean_model: Callable[[], Tensor | None] = lambda: None,
    album: Album = lambda name, claim, truth: None,
    replay: RoundKeeper | None = None,
) -> tuple[Record, Tensor]:
    """Train a cell that may run, with one seed.

    Args:
        controls: final accuracies of the control cells (`PlannedCell.compared_with`) with the same seed, as far as known.
        bench: shared state of the trials of this process; by default a new one.
        progress: called after each round.
        clean_model: the final model of the cell without its attack, if stored; else it is trained again if the success of a
            backdoor must be compared with it.
        album: receives the pictures of a reconstruction.
        replay: keeps what a replay of the rounds needs; changes no result.

    Returns:
        the record, and the final model (``[d]`` of the training's dtype).

    Raises:
        ConfigError: the training needs more memory.
    """
    bench = bench or Workbench()
    with global_generators(_global(cell, seed, bench)) as drawn, computing_in(cell.training.dtype):
        record, model = _train_and_score(cell, seed, controls, bench, progress, clean_model, album, replay)
        if drew := drawn():
            record["environment"]["drew"] = drew
    return record, model


def _global(cell: PlannedCell, seed: int, bench: Workbench) -> Rng:
    """Seed of a trial's global generators, from which FedGuard never draws, but third-party code may."""
    return Rng.secret() if bench.secret_noise and cell.noise.unit else Rng(seed).child("global")


def _train_and_score(
    cell: PlannedCell,
    seed: int,
    controls: Controls,
    bench: Workbench,
    progress: Progress,
    clean_model: Callable[[], Tensor | None],
    album: Album,
    replay: RoundKeeper | None,
) -> tuple[Record, Tensor]:
    compared_with = references(cell, lambda one: bench.final(one, seed, lambda: _final_score(one, seed, bench)))
    started, stopwatch = time.time(), Stopwatch()
    with stopwatch.stage("data"):
        task = bench.task(cell, seed)
    if isinstance(task, EnvironmentTask):
        with stopwatch.stage("scoring"):
            task.guess  # noqa: B018  raises where nothing can be judged by it, before hours of training
    setup = replace(set_up(cell, seed, task, secret_noise=bench.secret_noise), stopwatch=stopwatch, keep=replay)
    curious = None
    if cell.inference and isinstance(task, Classification):
        with stopwatch.stage("inference"):
            curious = PrivacyAdversary(cell, setup, task)
            setup = replace(setup, observer=curious.observer)
    setup = bench.limit_memory(cell, seed, setup)
    with stopwatch.stage("measuring"):
        measured = bench.dissimilarity(cell, seed)
    fates = OtherFates(cell, setup) if cell.compared_fates else None
    reports, model = _run(setup, cell, progress, fates)
    with stopwatch.stage("scoring"):
        result = _scores(cell, setup, task, reports)
        if fates is not None:
            result["statistics"]["compared"] = fates.accuracies(reports)
    result.update(_label_changes(cell, result, controls))
    result["references"] = compared_with
    result["inference"] = None
    if curious:
        with stopwatch.stage("inference"):
            watched = [one for report in reports for one in report.watched]
            result["inference"] = curious.run_attack(watched, model, album)
    result.update(_backdoor(cell, seed, setup, reports, model, clean_model, bench))
    if cell.evasion is not None and isinstance(task, EnvironmentTask):
        with stopwatch.stage("evaluation"):
            result["returns"]["evaded"] = mean_return(
                play_under_evasion(cell.evasion, task, model, Rng(seed).child("evasion"))
            )
    if cell.evasion is not None and isinstance(task, Classification):
        with stopwatch.stage("evaluation"):
            result["evasion"] = measure_evasion(
                cell.evasion, task, task.dataset.test, model, Rng(seed).child("evasion"), reports[-1].statistics
            )
    if cell.config.evaluation.weight_breakdown:
        with stopwatch.stage("evaluation"):
            result["weight_breakdown"] = _in_weight(bench.weight_breakdown(cell, task.sizes))
    card = threat_card(cell, secret_noise=bench.secret_noise)
    card["worst_hostile_share"] = result["rounds"]["worst_hostile_share"]
    card["dissimilarity"] = measured
    card["epsilon"] = result["privacy"]["epsilon"] if result["privacy"] else None
    stages = stopwatch.stage_totals()
    record: dict[str, Any] = {
        "status": "ok",
        "reason": None,
        "threat_card": card,
        "result": result,
        "cost": {
            "seconds": sum(stage["seconds"] for stage in stages.values()),
            "cpu_seconds": sum(stage["cpu_seconds"] for stage in stages.values()),
            "stages": stages,
            "worker_peak_memory_bytes": peak_memory(),
            "worker_memory_limit_bytes": bench.memory,
            "update_bytes_sent": cell.architecture.messages(cell, task).up * _vectors(result),
            "protocol_bytes_sent": sum(report.masked.bytes_up for report in reports if report.masked),
            "protocol_bytes_received": sum(report.masked.bytes_down for report in reports if report.masked),
        },
        "environment": {
            **environment(bench.compute.name),
            "code": code_of(cell),
            "data": data_digest(cell.data),
            "started": started,
        },
    }
    record["flags"] = find_red_flags(
        result, {**card, "attack": None} if curious else card
    )  # they are of attacks on the training
    return build_record(cell, seed, record), model


def _in_weight(found: WeightBreakdown) -> dict[str, Any]:
    """The part of a record, in which nothing is infinite and sites have names."""
    return {
        "f": found.f,
        "shares": list(found.shares),
        "least": found.least,
        "sites": [f"site {site + 1}" for site in found.sites],
        "pull": [None if math.isinf(pull) else pull for pull in found.pull],
        "evaluations": found.evaluations,
    }


def _vectors(result: Mapping[str, Any]) -> int:
    """Number of vectors sent: updates, or messages between nodes."""
    return int(result["nodes"]["messages"] if "nodes" in result else result["rounds"]["updates"])


def set_up(
    cell: PlannedCell, seed: int, task: Classification | EnvironmentTask, *, secret_noise: bool = False
) -> Setup:
    """The input of the cell's architecture.

    Args:
        secret_noise: draw noise for privacy from the operating system, so that no two trainings are alike.

    Raises:
        PreconditionError: running statistics of the network do not fit the cell.
    """
    malicious = malicious_clients(cell, seed) if cell.attack else frozenset()
    setup = Setup(
        cell=replace(cell, attacking=len(malicious)),
        task=task,
        rng=Rng(seed),
        malicious=malicious,
        evaluate_every=1 if cell.config.evaluation.in_time else cell.config.evaluation.every,
        noise=Rng.secret() if secret_noise else Rng(seed).child("cell", cell.id),
        secret=secret_noise,
    )
    check_statistics(setup, cell.architecture)
    check_other_fates(cell, setup)
    return setup.with_parts(meeting=cell.architecture.resolve_meeting(setup))


def _train(cell: PlannedCell, seed: int, bench: Workbench) -> tuple[list[RoundReport], Tensor]:
    setup = set_up(cell, seed, bench.task(cell, seed), secret_noise=bench.secret_noise)
    with global_generators(_global(cell, seed, bench)):  # as in a trial of its own
        return _run(bench.limit_memory(cell, seed, setup), cell, silent)


def _run(
    setup: Setup, cell: PlannedCell, progress: Progress, fates: OtherFates | None = None
) -> tuple[list[RoundReport], Tensor]:
    reports = []
    model = torch.empty(0)
    if fates is not None:
        setup = replace(setup, keep=fates.also(setup.keep))
    ran = cell.architecture.run(setup)
    for report in as_of(ran, cell.config.evaluation) if cell.config.evaluation.in_time else ran:
        model = report.model
        if fates is not None:
            fates.evaluate(report)
        reports.append(replace(report, model=model[:0].clone()))  # its memory is free
        judged = report.evaluation
        reached = None if judged is None else mean_return(judged) if judged.returns else judged.accuracy
        progress(report.round, cell.training.rounds, reached)
    return reports, model


def _final_score(cell: PlannedCell, seed: int, bench: Workbench) -> float:
    reports = _train(cell, seed, bench)[0]
    returns = means([report.evaluation for report in judge_last(reports) if report.evaluation])
    return sum(returns) / len(returns) if returns else float(summarize(reports)["final_accuracy"])


def _scores(
    cell: PlannedCell, setup: Setup, task: Classification | EnvironmentTask, reports: Sequence[RoundReport]
) -> dict[str, Any]:
    """The result from the reports of the rounds."""
    result: dict[str, Any] = {**summarize(reports, cell.algorithm.steps_taken(task))}
    if isinstance(task, EnvironmentTask):
        result |= {"chance": None, "minority": [], "returns": _returns(task, reports)}
    else:
        result.update(_of_examples(cell, setup, task, reports, result["class_accuracy"]))
    result["secure_aggregation"] = sums(cell, reports, setup.malicious, setup.secret)
    result["privacy"] = privacy_spent(cell, setup, reports)
    return result


def share(task: Task, evaluation: Evaluation) -> float:
    """An evaluation's accuracy, or the normalized return in reinforcement learning."""
    if not isinstance(task, EnvironmentTask):
        return evaluation.accuracy
    return normalize_return(mean_return(evaluation), task.guess, task.environment.best)


def _returns(task: EnvironmentTask, reports: Sequence[RoundReport]) -> dict[str, Any]:
    """Returns of the episodes, with the returns of guessing and of the best policy."""
    evaluated = means([report.evaluation for report in reports if report.evaluation])
    last = means([report.evaluation for report in judge_last(reports) if report.evaluation])
    final, guess, perfect = sum(last) / len(last), task.guess, task.environment.best
    return {
        "final": final,
        "best": max(evaluated),
        "last": evaluated[-1],
        "normalized": normalize_return(final, guess, perfect),
        "guess": guess,
        "perfect": perfect,
        "bounds": None if task.environment.bounds is None else list(task.environment.bounds),
        "episodes": EPISODES,
    }


def _of_examples(
    cell: PlannedCell,
    setup: Setup,
    task: Classification,
    reports: Sequence[RoundReport],
    by_class: Sequence[float | None],
) -> dict[str, Any]:
    """Results that exist only for a task with examples and labels."""
    y = task.dataset.test.y
    result: dict[str, Any] = {
        "chance": float((labels := y[y != NOT_ASKED]).bincount().max()) / len(labels),
        "minority": minorities(task, reports, setup.malicious, by_class),
    }
    if task.statistics.layers:
        result["statistics"] = describe_statistics(cell, task, reports[-1])
    if label_sets := cell.partition.label_sets(task.classes):
        result["parties"] = parties(label_sets, by_class, task.dataset.test.y)
    return result


def _label_changes(cell: PlannedCell, result: Mapping[str, Any], controls: Controls) -> dict[str, Any]:
    """`_changes` under the names of accuracies, or of returns; accuracies are then None."""
    found = _changes(cell, score(result), controls)
    of_accuracy = {"drop": "accuracy_drop", "absence": "absence", "harm": "harm", "tax": "robustness_tax"}
    if "returns" not in result:
        return {"controls": found["controls"], **{name: found[key] for key, name in of_accuracy.items()}}
    none = {"controls": dict.fromkeys(found["controls"]), **dict.fromkeys(of_accuracy.values())}
    return {**none, "returns": {**result["returns"], **found}}


def _changes(cell: PlannedCell, final: float, controls: Controls) -> dict[str, Any]:
    """The controls, the cost of the defense without attack, and the effect of the attack, split into absence and harm.

    drop = clean - attack = (clean - silent) + (silent - attack) = absence + harm, all with the same defense. In the silent
    control the malicious clients send nothing: absence is the loss of their data, and harm the effect of their messages.
    """
    here = {
        (False, False): "clean_mean",
        (False, True): "clean_defense",
        (True, False): "attack_mean",
        (True, True): "attack_defense",
    }
    attacked, defended = cell.attack is not None, cell.defended
    all_six: dict[str, float | None] = {
        name: controls.get(name) for name in (*here.values(), "silent_mean", "silent_defense")
    }
    all_six[here[attacked, defended]] = final
    if not defended:  # the mean is its own undefended control
        for side in ("clean", "silent", "attack"):
            all_six[f"{side}_defense"] = all_six[f"{side}_mean"]
    clean, clean_mean, alone = all_six["clean_defense"], all_six["clean_mean"], all_six["silent_defense"]
    return {
        "controls": all_six,
        "drop": clean - final if attacked and clean is not None else None,
        "absence": clean - alone if attacked and clean is not None and alone is not None else None,
        "harm": alone - final if attacked and alone is not None else None,
        "tax": clean_mean - clean if clean is not None and clean_mean is not None else None,
    }


def _backdoor(
    cell: PlannedCell,
    seed: int,
    setup: Setup,
    reports: Sequence[RoundReport],
    model: Tensor,
    clean_model: Callable[[], Tensor | None],
    bench: Workbench,
) -> dict[str, Any]:
    """Success rate of the trigger on test examples of other classes, less its success rate on the unattacked model."""
    planted = next((report.planted for report in reversed(reports) if report.planted is not None), None)
    if planted is None:
        return {"attack_success": None, "attack_success_raw": None, "attack_success_clean": None, "durability": None}
    with setup.stopwatch.stage("references"):
        clean, statistics = clean_model(), None
        # A stored model has no running statistics
        if clean is None or clean.shape != model.shape or setup.task.statistics.size:
            unattacked, clean = _train(cell.control(attacked=False, defended=True), seed, bench)
            statistics = unattacked[-1].statistics
    with setup.stopwatch.stage("evaluation"):
        raw = backdoor_success(setup.task, setup.honest, model, planted, reports[-1].statistics)
        base = backdoor_success(setup.task, setup.honest, clean, planted, statistics)
    return {
        "attack_success": raw - base,
        "attack_success_raw": raw,
        "attack_success_clean": base,
        "durability": durability(reports, cell.threat.last_round),
    }
