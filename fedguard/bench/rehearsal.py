"""What only the data can tell: does this cell's task come together at all?

A partition may be unable to serve so many clients, a model may not fit the inputs, a trigger may need images, a sum of
weights or noise may not fit the ring. Each
distinct task is dealt once, each attack tampers with two examples, and its trigger is put to the test set, before anything
runs. What does not come together is refused with the reason, like what the visibility check refuses.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fedguard.architectures.masking import masking
from fedguard.bench.inference.curious import Curious
from fedguard.bench.trial import colluders, deal, set_up
from fedguard.config import Cell
from fedguard.contracts import ROOT, DataView, Sight, State
from fedguard.errors import ConfigError, PreconditionError
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification


def refusals(cells: Iterable[Cell], seed: int) -> dict[str, str]:
    """By cell id, why a cell cannot run on its data with this seed; cells that can are left out."""
    found = {}
    for cell in cells:
        reason = _why_not(cell, seed)
        if reason is not None:
            found[cell.id] = reason
    return found


def _why_not(cell: Cell, seed: int) -> str | None:
    try:
        task, _ = deal(cell, seed)
        if cell.config.server.root_data:
            task.examples(ROOT)
        setup = set_up(cell, seed, task)
        masking(setup)
        if cell.inference is not None:
            Curious(cell, setup, task).check()
        if cell.attack is not None:
            planted = cell.attack.backdoor(_tamper(cell, task, seed))
            if planted is not None:
                task.backdoor_success(task.initial_model(Rng(seed)), *planted)
    except (ConfigError, PreconditionError) as error:
        return str(error)
    return None


def _tamper(cell: Cell, task: Classification, seed: int) -> State:
    """Let one colluder poison two of its examples; the state with which it did."""
    attack, hostile = cell.attack, sorted(colluders(cell, seed))
    if attack is None or not hostile:
        return {}
    view = DataView(
        attack.name,
        cell.verdict.attack_sees,
        rng=Rng(seed),
        round=1,
        position=0,
        hostile=tuple(hostile),
        classes=task.classes,
        shape=task.shape,
        value_range=task.value_range,
        state={},
        pool=tuple(task.examples(client) for client in hostile),
        model=task.initial_model(Rng(seed)) if attack.every_round else None,
        predict=task.logits,
    )
    state = attack.prepare(view) if attack.every_round else view.state
    if Sight.OWN_DATA in cell.verdict.attack_sees:
        examples = task.examples(hostile[0])
        few = examples[torch.arange(min(2, len(examples)))]
        attack.poison(few, view.narrowed(view.party, view.granted, state=state))
    return state
