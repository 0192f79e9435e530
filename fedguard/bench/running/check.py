"""What `fedguard check` says of a suite before it runs: what is legal, what is refused and why, how long it takes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from rich.console import Group, RenderableType
from rich.text import Text

from fedguard.bench.records import taxonomy
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.running.procedures import procedure, refusals
from fedguard.bench.running.protocol import encoding_in_words, protocol_in_words
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Cell, Plan

#: Seconds until the first trial of a suite starts: workers load their libraries.
START = 5.0


def refused_cells(plan: Plan) -> dict[str, str]:
    """By cell id, why a cell is refused: by what it would need to see, or by its data."""
    refused = {cell.id: " ".join(cell.verdict.reasons) for cell in plan.cells if cell.verdict.reasons}
    return refused | refusals([cell for cell in plan.cells if cell.id not in refused], plan.suite.seeds[0])


def checked(plan: Plan, refused: Mapping[str, str]) -> RenderableType:
    """The suite in words; ``refused`` as `refused_cells` gives it."""
    return Group(*_parts(plan, refused))


def estimate_seconds(plan: Plan, refused: Mapping[str, str], jobs: int, samples: int = 6) -> float:
    """Wall seconds for the whole plan on ``jobs`` workers, without regard to what is stored already.

    Up to ``samples`` cells that may run, evenly spaced, are trained for two rounds each with one thread; an attack on the
    clients' privacy is made once more by itself, since its cost is not that of a round.
    """
    legal = [cell for cell in plan.cells if cell.id not in refused and procedure(cell).here]
    if not legal:
        return float("nan")
    chosen = legal[:: max(1, len(legal) // samples)][:samples]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        costs = [_costs(cell, plan.suite.seeds[0]) for cell in chosen]
    finally:
        torch.set_num_threads(threads)
    per_round, once = (sum(one[part] for one in costs) / len(costs) for part in (0, 1))
    trials = [(cell.training.rounds, len(plan.suite.seeds) + _selecting(cell)) for cell in legal]
    return START + sum(many * (rounds * per_round + once) for rounds, many in trials) / jobs


def _parts(plan: Plan, refused: Mapping[str, str]) -> Iterator[Text]:
    cells, seeds = plan.cells, len(plan.suite.seeds)
    named = list({cell.id: cell for _, cell in plan.positions}.values())
    legal = [cell for cell in cells if cell.id not in refused]
    told_of = [cell for cell in named if cell.id not in refused]
    silent = sum(cell.attack is not None and cell.silenced.id == cell.id for cell in plan.corners)
    quiet = f" ({silent} in which the malicious clients send nothing)" if silent else ""
    yield Text(
        f"{plan.suite.name}: {len(plan.positions)} positions of the matrix, {len(plan.corners)} more cells to compare with"
        f"{quiet}, {seeds} seeds: {len(legal) * seeds} trials to run, {(len(cells) - len(legal)) * seeds} refused."
    )
    for line in dict.fromkeys(_clients(cell) for cell in named if cell.adversary or len(cells) == 1):
        yield Text(line)
    for threat in dict.fromkeys(procedure(cell).in_words(cell) for cell in told_of if cell.named):
        yield Text(f"Threat: {threat}")
    if told_of:
        kinds = [{"config": cell.canonical, "threat_card": procedure(cell).card(cell)} for cell in told_of]
        yield Text(f"Kind: {taxonomy.in_words(kinds)}.")
    yield from _protocols(legal)
    if refused:
        yield Text("\nRefused, and why:", "bold")
        places = {cell.id: swept for swept, cell in reversed(plan.positions)}
        told = [
            (
                places.get(cell.id, {"attack": str(cell.named or "none"), "defense": str(cell.pipeline)}),
                refused[cell.id],
            )
            for cell in cells
            if cell.id in refused
        ]
        yield from (Text(f"  {line}") for line in reason_lines(told, "cells"))
    selecting = sum(_selecting(cell) for cell in legal)
    if selecting:
        yield Text(f"To choose the worst cases, up to {selecting} more trials on selection seeds.")
    unproven = [line for cell in told_of for line in cell.pipeline.unproven(cell.rows, cell.told_rows)]
    if unproven:
        yield Text("\nRuns, but outside what was proven:", "bold")
        yield from (Text(f"  {line}") for line in dict.fromkeys(unproven))


def _protocols(cells: Sequence[Cell]) -> Iterator[Text]:
    """Who sees what under masks, and how exact the sums are; of many encodings only their number."""
    for lines in dict.fromkeys(tuple(protocol_in_words(cell)) for cell in cells):
        yield from (Text(line) for line in lines)
    encodings = [line for line in dict.fromkeys(encoding_in_words(cell) for cell in cells) if line]
    if len(encodings) > 4:
        encodings = [f"{len(encodings)} encodings, from the first to the last:", encodings[0], encodings[-1]]
    yield from (Text(line) for line in encodings)


def _selecting(cell: Cell) -> int:
    """How many trials at most an ensemble takes to choose."""
    return len(cell.members) * len(cell.ensemble.choose_on()) if cell.ensemble else 0


def _clients(cell: Cell) -> str:
    sampled, share = cell.participation, 100 * cell.malicious / cell.participation.total
    return (
        f"Clients: {sampled.expected} of {sampled.total} in a round ({sampled.sampling}), {cell.malicious} malicious "
        f"({share:.0f} %), and the rules are told f = {cell.told}."
    )


def _costs(cell: Cell, seed: int, rounds: int = 2) -> tuple[float, float]:
    """Seconds for a round, and for what is done once in a trial."""
    training = dataclasses.replace(cell.training, rounds=rounds)
    changed = {"observer": cell.config.observer.model_copy(update={"round": 1})}
    short = dataclasses.replace(cell, training=training, config=cell.config.model_copy(update=changed))
    alone = dataclasses.replace(short, inference=None)
    bench = Workbench()
    run_trial(alone, seed, {}, bench)  # the first time loads and deals the data
    trained = _timed(alone, seed, bench)
    return trained / rounds, max(0.0, _timed(short, seed, bench) - trained) if cell.inference else 0.0


def _timed(cell: Cell, seed: int, bench: Workbench) -> float:
    begun = time.perf_counter()
    run_trial(cell, seed, {}, bench)
    return time.perf_counter() - begun
