"""A trial: one cell with one seed, from the data to the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from fedguard.bench.budget import within
from fedguard.bench.card import threat_card
from fedguard.bench.code import code_of, data_digest
from fedguard.bench.environment import environment, held_memory, peak_memory
from fedguard.bench.inference.curious import Album, Curious
from fedguard.bench.protocol import privacy_spent, sums
from fedguard.bench.record import Record, identified
from fedguard.bench.references import references
from fedguard.config import Cell
from fedguard.contracts import Clock, Data, Model, Partition, RoundReport, Setup
from fedguard.metrics.dissimilarity import dissimilarity
from fedguard.metrics.flags import raised
from fedguard.metrics.minority import minorities
from fedguard.metrics.trajectory import durability, summarise
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.engines.parallel import memory_floats

Corners = Mapping[str, float | None]
#: Is told the round, of how many, and its accuracy where it was evaluated.
Progress = Callable[[int, int, float | None], None]


def silent(round: int, rounds: int, accuracy: float | None) -> None:
    """Progress that nobody wants to hear."""


def run_trial(
    cell: Cell,
    seed: int,
    corners: Corners,
    progress: Progress = silent,
    clean_model: Callable[[], Tensor | None] = lambda: None,
    album: Album = lambda name, claim, truth: None,
    memory: int | None = None,
) -> tuple[Record, Tensor]:
    """Train a cell that may run, with one seed.

    Args:
        corners: final accuracies of the cells that it is compared with (`Cell.compared_with`), same seed, as far as known.
        progress: called after each round.
        clean_model: the final model of the cell without its attack, if it is stored; otherwise it is trained again where
            a backdoor's success must be compared with it.
        album: takes the pictures that an inversion made.
        memory: bytes that this process may hold, see `fedguard.bench.budget`; None for no limit.

    Returns:
        the record, and the final model (float32 ``[d]``).

    Raises:
        ConfigError: the training needs more memory.
    """
    compared_with = references(cell, seed, partial(_final_accuracy, memory=memory))
    started, clock = time.time(), Clock()
    with clock.stage("data"):
        task = _task(cell, seed, memory)
    setup = replace(set_up(cell, seed, task), clock=clock)
    curious = None
    if cell.inference:
        with clock.stage("inference"):
            curious = Curious(cell, setup, task)
            setup = replace(setup, observer=curious.observer)
    setup = _limited(cell, seed, setup, memory)
    with clock.stage("measuring"):
        measured = _dissimilarity(_key(cell, seed), memory_floats())
    reports, model = _run(setup, cell, progress)
    with clock.stage("scoring"):
        result = _scores(cell, seed, task, reports)
    result.update(_compared(cell, result["final_accuracy"], corners))
    result["references"] = compared_with
    result["inference"] = None
    if curious:
        with clock.stage("inference"):
            result["inference"] = curious.inferred(reports, model, album)
    result.update(_backdoor(cell, seed, setup, reports, model, clean_model, memory))
    card = threat_card(cell)
    card["worst_hostile_share"] = result["rounds"]["worst_hostile_share"]
    card["dissimilarity"] = measured
    card["epsilon"] = result["privacy"]["epsilon"] if result["privacy"] else None
    stages = clock.spent()
    record: Record = {
        "status": "ok",
        "reason": None,
        "threat_card": card,
        "result": result,
        "cost": {
            "seconds": sum(stage["seconds"] for stage in stages.values()),
            "cpu_seconds": sum(stage["cpu_seconds"] for stage in stages.values()),
            "stages": stages,
            "worker_peak_memory_bytes": peak_memory(),
            "worker_memory_limit_bytes": memory,
            "update_bytes_sent": 4 * task.dim * result["rounds"]["updates"],
            "protocol_bytes_sent": sum(report.masked.bytes_up for report in reports if report.masked),
            "protocol_bytes_received": sum(report.masked.bytes_down for report in reports if report.masked),
        },
        "environment": {**environment(), **_origin(cell), "started": started},
    }
    record["flags"] = raised(
        result, {**card, "attack": None} if curious else card
    )  # they are of attacks on the training
    return identified(cell, seed, record), model


def not_run(cell: Cell, seed: int, status: str, reason: str) -> Record:
    """The record of a trial that was ``refused``, or that ``failed``."""
    body: Record = {
        "status": status,
        "reason": reason,
        "threat_card": threat_card(cell),
        "result": None,
        "cost": None,
        "flags": [],
    }
    return identified(cell, seed, {**body, "environment": {**environment(), **_origin(cell), "started": time.time()}})


def _origin(cell: Cell) -> dict[str, Any]:
    """Digests of the code and of the data."""
    return {"code": code_of(cell), "data": data_digest(cell.data)}


def deal(cell: Cell, seed: int) -> tuple[Classification, dict[str, float | int]]:
    """The task of a cell and the measured dissimilarity of its clients.

    Raises:
        ConfigError: data, partition, model and number of clients do not come together.
    """
    return _deal(*_key(cell, seed)), _dissimilarity(_key(cell, seed), memory_floats())


def dealt(cell: Cell, seed: int) -> Classification:
    """The task of a cell alone, for which nothing is measured; see `deal`."""
    return _deal(*_key(cell, seed))


#: All on which a dealt task depends: data, model, partition, number of clients, random stream, root examples, and who holds
#: copies of others' examples.
_Key = tuple[Data, Model, Partition, int, Rng, int, frozenset[int]]


def _key(cell: Cell, seed: int) -> _Key:
    fixed = cell.config.task.partition_seed
    rng = Rng(seed if fixed is None else fixed)
    copying = colluders(cell, seed) if cell.copying else frozenset()
    return cell.data, cell.model, cell.partition, cell.config.clients.total, rng, cell.config.server.root_data, copying


@lru_cache(maxsize=4)
def _deal(
    data: Data, model: Model, partition: Partition, clients: int, rng: Rng, root: int, copying: frozenset[int]
) -> Classification:
    """The dealt task, kept for the next cells, which mostly share it."""
    return Classification.deal(data, model, partition, clients, rng.child("partition"), root, copying)


@lru_cache(maxsize=4)
def _dissimilarity(key: _Key, held: int) -> dict[str, float | int]:
    return dissimilarity(_deal(*key), key[4].child("dissimilarity"), held)


@lru_cache(maxsize=1)
def _alone(key: _Key) -> tuple[Classification, int]:
    """The dealt task with all others let go, and the bytes that the process then holds."""
    _alone.cache_clear()
    _deal.cache_clear()
    task = _deal(*key)
    return task, held_memory()


def _task(cell: Cell, seed: int, memory: int | None) -> Classification:
    return _deal(*_key(cell, seed)) if memory is None else _alone(_key(cell, seed))[0]


def _limited(cell: Cell, seed: int, setup: Setup, memory: int | None) -> Setup:
    return setup if memory is None else within(setup, memory, _alone(_key(cell, seed))[1])


def colluders(cell: Cell, seed: int) -> frozenset[int]:
    """The malicious clients, drawn so that more of them include fewer."""
    drawn = Rng(seed).child("hostile").numpy().permutation(cell.config.clients.total)[: cell.hostile]
    return frozenset(drawn.tolist())


def set_up(cell: Cell, seed: int, task: Classification) -> Setup:
    """All that the cell's architecture needs."""
    return Setup(
        task=task,
        pipeline=cell.pipeline,
        attack=cell.attack,
        hostile=colluders(cell, seed) if cell.attack else frozenset(),
        threat=cell.threat,
        told=cell.told,
        attack_sees=cell.verdict.attack_sees,
        rule_sees=cell.verdict.rule_sees,
        training=cell.config.training,
        participation=cell.participation,
        rng=Rng(seed),
        evaluate_every=cell.config.evaluation.every,
        protocol=cell.config.protocol,
    )


def _train(cell: Cell, seed: int, memory: int | None) -> tuple[list[RoundReport], Tensor]:
    return _run(_limited(cell, seed, set_up(cell, seed, _task(cell, seed, memory)), memory), cell, silent)


def _run(setup: Setup, cell: Cell, progress: Progress) -> tuple[list[RoundReport], Tensor]:
    reports = []
    model = torch.empty(0)
    for report in cell.architecture.run(setup):
        model = report.model
        reports.append(report.without_model())
        accuracy = report.evaluation.accuracy if report.evaluation else None
        progress(report.round, cell.config.training.rounds, accuracy)
    return reports, model


def _final_accuracy(cell: Cell, seed: int, memory: int | None) -> float:
    return float(summarise(_train(cell, seed, memory)[0])["final_accuracy"])


def _scores(cell: Cell, seed: int, task: Classification, reports: Sequence[RoundReport]) -> dict[str, Any]:
    """What the reports of the rounds say."""
    result = summarise(reports)
    result["chance"] = float(task.dataset.test.y.bincount().max()) / len(task.dataset.test)
    hostile = colluders(cell, seed) if cell.attack else frozenset()
    result["minority"] = minorities(task, reports, hostile, result["class_accuracy"])
    result["secure_aggregation"] = sums(cell, reports, hostile)
    result["privacy"] = privacy_spent(cell, reports, task)
    return result


def _compared(cell: Cell, final: float, corners: Corners) -> dict[str, Any]:
    """The corners; what the defense costs without attack; what the attack does under it, as lost data and as harm.

    drop = clean - attack = (clean - silent) + (silent - attack) = absence + harm, all with the same defense: in the middle
    the colluders send nothing, so that absence is what their data would have brought, and harm what they sent instead.
    """
    here = {
        (False, False): "clean_mean",
        (False, True): "clean_defense",
        (True, False): "attack_mean",
        (True, True): "attack_defense",
    }
    attacked, defended = cell.attack is not None, cell.defended
    all_six: dict[str, float | None] = {
        name: corners.get(name) for name in (*here.values(), "silent_mean", "silent_defense")
    }
    all_six[here[attacked, defended]] = final
    if not defended:  # the mean is its own undefended corner
        for side in ("clean", "silent", "attack"):
            all_six[f"{side}_defense"] = all_six[f"{side}_mean"]
    clean, clean_mean, alone = all_six["clean_defense"], all_six["clean_mean"], all_six["silent_defense"]
    return {
        "corners": all_six,
        "accuracy_drop": clean - final if attacked and clean is not None else None,
        "absence": clean - alone if attacked and clean is not None and alone is not None else None,
        "harm": alone - final if attacked and alone is not None else None,
        "robustness_tax": clean_mean - clean if clean is not None and clean_mean is not None else None,
    }


def _backdoor(
    cell: Cell,
    seed: int,
    setup: Setup,
    reports: Sequence[RoundReport],
    model: Tensor,
    clean_model: Callable[[], Tensor | None],
    memory: int | None,
) -> dict[str, Any]:
    """How often the trigger works on other classes' test examples, less how often it does so on the unattacked model."""
    planted = next((report.planted for report in reversed(reports) if report.planted is not None), None)
    if planted is None:
        return {"attack_success": None, "attack_success_raw": None, "attack_success_clean": None, "durability": None}
    with setup.clock.stage("references"):
        clean = clean_model()
        if clean is None or clean.shape != model.shape:
            clean = _train(cell.corner(attacked=False, defended=True), seed, memory)[1]
    with setup.clock.stage("evaluation"):
        raw, base = (setup.task.backdoor_success(one, *planted) for one in (model, clean))
    return {
        "attack_success": raw - base,
        "attack_success_raw": raw,
        "attack_success_clean": base,
        "durability": durability(reports, cell.threat.last_round),
    }
