"""What `fedguard check` says of a suite before it runs: what is legal, what is refused and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from rich.console import Group, RenderableType
from rich.text import Text

from fedguard.adapters.model import form_of
from fedguard.bench.records import taxonomy
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.records.replay import LARGEST, size_of
from fedguard.bench.running.budget import read_as_a_whole
from fedguard.bench.running.card import describe_subset, threat_card, threat_in_words
from fedguard.bench.running.estimate import selecting
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.protocol import copies_in_words, encoding_in_words, moments_in_words, protocol_in_words
from fedguard.bench.running.replay import why_no_replay
from fedguard.config import Plan, PlannedCell
from fedguard.contracts import Data
from fedguard.tasks.classification import fitting
from fedguard.tasks.data import load_dataset
from fedguard.tasks.first_model import describe_first_model

#: Columns of a table that are told of one by one.
MOST_COLUMNS = 30


def explain_refusals(plan: Plan) -> dict[str, str]:
    """The reason of refusal by cell id: what the cell would need to see, or its data."""
    refused = {cell.id: " ".join(cell.verdict.reasons) for cell in plan.cells if cell.verdict.reasons}
    return refused | refusals([cell for cell in plan.cells if cell.id not in refused], plan.suite.seeds[0])


def render_plan(plan: Plan, refused: Mapping[str, str]) -> RenderableType:
    """The suite in words; ``refused`` as `explain_refusals` gives it."""
    return Group(*_parts(plan, refused))


def _parts(plan: Plan, refused: Mapping[str, str]) -> Iterator[Text]:
    cells, seeds = plan.cells, len(plan.suite.seeds)
    named = list({cell.id: cell for _, cell in plan.positions}.values())
    legal = [cell for cell in cells if cell.id not in refused]
    told_of = [cell for cell in named if cell.id not in refused]
    silent = sum(cell.attack is not None and cell.silenced.id == cell.id for cell in plan.controls)
    quiet = f" ({silent} in which the malicious clients send nothing)" if silent else ""
    yield Text(
        f"{plan.suite.name}: {len(plan.positions)} positions of the matrix, {len(plan.controls)} more cells to compare with"
        f"{quiet}, {seeds} seed{'s' * (seeds > 1)}: {len(legal) * seeds} trial{'s' * (len(legal) * seeds != 1)} to run, "
        f"{(len(cells) - len(legal)) * seeds} refused."
    )
    for line in dict.fromkeys(_clients(cell) for cell in named if cell.adversary or len(cells) == 1):
        yield Text(line)
    threats = list(dict.fromkeys(threat_in_words(cell) for cell in told_of if cell.named))
    yield from (Text(f"Threat: {threat}") for threat in threats)
    if told_of:
        kinds = [{"config": cell.canonical, "threat_card": threat_card(cell)} for cell in told_of]
        yield Text(f"Kind: {taxonomy.in_words(kinds)}.")
    for data in dict.fromkeys(cell.data for cell in legal if isinstance(cell.data, Data)):
        yield from map(Text, _data(data))
    for line in dict.fromkeys(describe_subset(cell.config.task.subset) for cell in legal):
        yield from [Text(line)] * (bool(line) and not any(line in threat for threat in threats))
    for file in dict.fromkeys(cell.training.first_model for cell in legal):
        if file is not None:
            yield Text(f"First model: {describe_first_model(file)}.")
    for line in dict.fromkeys(_statistics(cell) for cell in legal):
        yield from [Text(line)] * bool(line)
    for line in dict.fromkeys(line for cell in legal for line in describe_network(cell)):
        yield Text(line)
    yield from _protocols(legal)
    yield from (Text(line) for line in dict.fromkeys(line for cell in legal for line in _copies(cell)))
    yield from (Text(line) for line in _replay(plan, told_of))
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
    choosing = sum(selecting(cell) for cell in legal)
    if choosing:
        yield Text(f"To choose the worst cases, up to {choosing} more trials on selection seeds.")
    unproven = [line for cell in told_of for line in cell.pipeline.unproven(cell.rows, cell.assumed_rows)]
    if unproven:
        yield Text("\nRuns, but outside what was proven:", "bold")
        yield from (Text(f"  {line}") for line in dict.fromkeys(unproven))


def _replay(plan: Plan, cells: Iterable[PlannedCell]) -> Iterator[str]:
    """What is kept of the rounds to be replayed, its size, and of which cells nothing can be kept."""
    if plan.suite.replay is None:
        return
    reasons = [(cell, why_no_replay(cell)) for cell in cells]
    kept = [cell for cell, reason in reasons if reason is None]
    for reason, count in Counter(reason for _, reason in reasons if reason is not None).items():
        yield f"Replay: no rounds are kept of {count} cells: {reason}."
    if kept:
        sizes = [size_of(cell.clients.most, -(-cell.training.rounds // plan.suite.replay.every)) for cell in kept]
        cut = " A file ends with the round before 16 MiB; raise replay.every." if max(sizes) > LARGEST // 2 else ""
        yield (
            f"Replay: of {len(kept)} cells the rounds of seed {plan.suite.replay_seed} are kept as inner products, at most "
            f"{_bytes(min(max(sizes), LARGEST // 2))} a cell and {_bytes(sum(sizes))} in all.{cut}"
        )


def _bytes(count: int) -> str:
    """``36.0 KiB`` below a tenth of a MiB, and else ``1.4 MiB``."""
    return f"{count / 2**20:.1f} MiB" if count > 2**20 / 10 else f"{count / 2**10:.1f} KiB"


def _protocols(cells: Sequence[PlannedCell]) -> Iterator[Text]:
    """Who sees what under masks, and how exact the sums are; many encodings are only counted."""
    for lines in dict.fromkeys(tuple(protocol_in_words(cell)) for cell in cells):
        yield from (Text(line) for line in lines)
    encodings = [line for line in dict.fromkeys(encoding_in_words(cell) for cell in cells) if line]
    if len(encodings) > 4:
        encodings = [f"{len(encodings)} encodings, from the first to the last:", encodings[0], encodings[-1]]
    yield from (Text(line) for line in encodings)


def _data(data: Data) -> Iterator[str]:
    """The data as read: number and shape of the examples, their clients, and each column of a table."""
    found = load_dataset(data)
    low, high = found.value_range
    owners = "no natural clients"
    if found.train.client is not None:
        counts = torch.unique(found.train.client, return_counts=True)[1]
        owners = f"{len(counts)} natural clients with {int(counts.min())} to {int(counts.max())} train examples"
        newcomers = (
            set(found.test.client.tolist()) - set(found.train.client.tolist()) if found.test.client is not None else ()
        )
        owners += f", and {len(newcomers)} with test examples alone" if newcomers else ""
    yield (
        f"Data: {data}: {len(found.train)} train and {len(found.test)} test examples; {_inputs(found.shape)} from "
        f"{low:.4g} to {high:.4g}; {found.classes} classes; {owners}."
    )
    lines = list(data.describe())
    yield from (f"  {line}" for line in lines[:MOST_COLUMNS])
    if len(lines) > MOST_COLUMNS:
        yield f"  ... and {len(lines) - MOST_COLUMNS} more columns"


def _statistics(cell: PlannedCell) -> str:
    """What becomes of running statistics; '' for a network that normalizes nothing over batches, or for actors."""
    if not isinstance(cell.data, Data):
        return ""
    found = fitting(cell.model, load_dataset(cell.data), None, cell.statistics.normalization).statistics
    if not found.layers:
        return ""
    fate = cell.statistics
    words = f"Statistics: {cell.model} normalizes over batches in {found.layers} layers; {fate}: {fate.words}."
    return f"{words} {moments_in_words(cell)}" if fate.sends and cell.masking.masked else words


#: A matrix of updates of at least this size is told of before a run, in bytes
TOLD = 256 << 20


def describe_network(cell: PlannedCell) -> Iterator[str]:
    """The adapters of the network, and which matrices of updates a rule or an attack holds, if they are large."""
    form, whole = form_of(cell.model), read_as_a_whole(cell)
    if not isinstance(cell.data, Data) or (form is None and not whole):
        return
    network = fitting(cell.model, load_dataset(cell.data), None, cell.statistics.normalization)
    if form is not None:
        pairs = form.find_pairs(network.module)
        ranks = ", ".join(map(str, sorted({pair.rank for pair in pairs})))
        frozen = sum(one.numel() for one in network.module.parameters() if not one.requires_grad)
        yield (
            f"Adapters: {len(pairs)} pair{'s' * (len(pairs) != 1)} of factors of rank {ranks}; {network.dim} parameters are "
            f"trained and sent, {frozen} are frozen. {form.name}: {form.words}."
        )
    n, itemsize = cell.clients.expected, getattr(torch, cell.training.dtype).itemsize
    if whole and n * network.dim * itemsize >= TOLD:
        yield (
            f"Memory: {' and '.join(whole)} hold{'s' * (len(whole) == 1)} all updates of a round as one matrix, {n} x "
            f"{network.dim} numbers: {n * network.dim * itemsize / 2**30:.2f} GiB, and as much again for a copy. Rules by "
            "weights or coordinates need one block at a time."
        )


def _inputs(shape: Sequence[int]) -> str:
    """What an input is taken for."""
    if len(shape) != 3:
        return f"inputs {list(shape)}"
    channels, height, width = shape
    return f"images {list(shape)}: {channels} channel{'s' * (channels > 1)} of {height} rows and {width} columns,"


def _copies(cell: PlannedCell) -> list[str]:
    """Duplicates among the records that noise is to hide."""
    if cell.noise.unit != "record" or not isinstance(cell.data, Data):
        return []
    return copies_in_words(cell, [load_dataset(cell.data).train])


def _clients(cell: PlannedCell) -> str:
    sampled, share = cell.clients, 100 * cell.malicious / cell.clients.total
    return (
        f"Clients: {sampled.expected} of {sampled.total} in a round ({sampled.sampling}), {cell.malicious} malicious "
        f"({share:.0f} %), and the rules assume f = {cell.assumed_f}."
    )
