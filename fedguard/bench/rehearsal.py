"""What only the data can tell: does this cell's task come together at all?

A partition may be unable to serve so many clients, a model may not fit the inputs, a trigger may need images, a sum of
weights or noise may not fit the ring. Each
distinct task is dealt once, each attack tampers with two examples, and its trigger is put to the test set, before anything
runs. What does not come together is refused with the reason, like what the visibility check refuses.

Texts are characters by number. Who changes them by a little, or looks for them by gradients, is refused: there is nothing
between one character and the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from fedguard.architectures.masking import masking
from fedguard.bench.inference.curious import Curious
from fedguard.bench.trial import colluders, deal, set_up
from fedguard.config import Cell
from fedguard.contracts import ROOT, DataView, PoisonAttack, Sight, State
from fedguard.errors import ConfigError, PreconditionError
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification

NO_TEXT = (
    "changes inputs by a little or finds them by gradients; the inputs here are characters by number. Take other data."
)


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
            if task.dataset.characters and cell.inference.goal == "reconstruction":
                raise PreconditionError(f"{cell.inference.name} {NO_TEXT}")
            Curious(cell, setup, task).check()
        if cell.attack is not None:
            planted = cell.attack.backdoor(_tamper(cell, task, seed))
            if planted is not None:
                task.backdoor_success(task.initial_model(Rng(seed)), *planted)
                _check_text(cell.attack, task, planted[0].apply(task.dataset.test.x[:2], task.value_range))
    except (ConfigError, PreconditionError) as error:
        return str(error)
    return None


def _tamper(cell: Cell, task: Classification, seed: int) -> State:
    """Let one colluder poison two of its examples; the state with which it did.

    Texts are all poisoned, and in the last round: a fault may have grown until then, and an attack may change few of them.
    """
    attack, hostile = cell.attack, sorted(colluders(cell, seed))
    if attack is None or not hostile:
        return {}
    view = DataView(
        attack.name,
        cell.verdict.attack_sees,
        rng=Rng(seed),
        round=cell.config.training.rounds if task.dataset.characters else 1,
        position=0,
        hostile=tuple(hostile),
        classes=task.classes,
        shape=task.shape,
        value_range=task.value_range,
        state={},
        pool=tuple(task.examples(client) for client in hostile),
        model=task.initial_model(Rng(seed)) if attack.every_round else None,
        predict=_text_predict(attack, task) if task.dataset.characters else task.logits,
    )
    state = attack.prepare(view) if attack.every_round else view.state
    if Sight.OWN_DATA in cell.verdict.attack_sees:
        for examples in view.pool if task.dataset.characters else view.pool[:1]:
            few = examples if task.dataset.characters else examples[torch.arange(min(2, len(examples)))]
            poisoned = attack.poison(few, view.narrowed(view.party, view.granted, state=state))
            _check_text(attack, task, poisoned.x)
    return state


def _text_predict(attack: PoisonAttack, task: Classification) -> Callable[[Tensor, Tensor], Tensor]:
    """The network's logits for whoever does not want a gradient at the inputs."""

    def predict(model: Tensor, x: Tensor) -> Tensor:
        if x.requires_grad:
            raise PreconditionError(f"{attack.name} {NO_TEXT}")
        return task.logits(model, x)

    return predict


def _check_text(attack: PoisonAttack, task: Classification, x: Tensor) -> None:
    low, high = task.value_range
    if task.dataset.characters and not bool(((x == x.round()) & (low <= x) & (x <= high)).all()):
        raise PreconditionError(f"{attack.name} {NO_TEXT}")
