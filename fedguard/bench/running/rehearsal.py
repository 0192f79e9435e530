"""Rehearsal: checks of a cell that need its data, before anything runs.

Examples of what is refused, with the reason, as by the visibility check:

- a partition has too few examples for the number of clients, or a model does not fit the inputs;
- a trigger needs images;
- a sum of weights or noise does not fit the ring, or a delta is too large for the number of examples;
- the network mixes the examples of a batch (batch normalization), although DP-SGD clips each of them;
- a deadline is too early for any device.

The rehearsal deals each distinct task once, lets each attack tamper with two examples and applies its trigger to the test set,
and lets a client defend two examples.

Texts are tokens by number. Attacks and defenses that change inputs slightly, or search them by gradients, are refused on
texts: there is nothing between one character and the next.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedguard.algorithms.client_state import start_algorithm
from fedguard.architectures.clients import client_context
from fedguard.architectures.malicious import extract_backdoor
from fedguard.bench.running.inference.curious import PrivacyAdversary
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench, malicious_clients
from fedguard.config import PlannedCell
from fedguard.contracts import ROOT, DataView, Examples, Setup, Sight, State
from fedguard.contracts.return_checks import check_return
from fedguard.errors import ConfigError, PreconditionError
from fedguard.privacy.accounting import check_delta
from fedguard.rng import Rng, global_generators
from fedguard.tasks.classification import Classification
from fedguard.tasks.compute import computing_in
from fedguard.tasks.network import flatten
from fedguard.tasks.playing import EnvironmentTask
from fedguard.tasks.tokens import goes_on_behind

NO_TEXT = (
    "makes inputs up, changes them by a little or finds them by gradients; the inputs here are tokens by number. Take "
    "other data."
)

ONE_LABEL = (
    "goes by one label of each example; here each token has one. Take data with targets: last, an attack on updates, or "
    "dager."
)


def why_not(cell: PlannedCell, seed: int, bench: Workbench) -> str | None:
    """Why a cell cannot run on its data with this seed; None if it can."""
    with (
        global_generators(Rng(seed).child("rehearsal")),
        computing_in(cell.training.dtype),
    ):  # it runs in the user's own process
        return _why_not(cell, seed, bench)


def _why_not(cell: PlannedCell, seed: int, bench: Workbench) -> str | None:
    try:
        task = bench.task(cell, seed)
        if cell.config.server.root_data:
            task.examples(ROOT)
        if cell.noise.unit:
            units = cell.noise.units(cell.clients.total, sum(task.sizes))
            check_delta(cell.noise.delta, units, cell.noise.unit)
        setup = set_up(cell, seed, task)
        setup.cell.masking.receiver(setup)
        start_algorithm(setup)
        cell.architecture.check(setup)
        if isinstance(task, EnvironmentTask):  # nothing that tampers with examples gets so far
            task.rehearse()
            if cell.attack is not None and (shown := extract_backdoor(cell.attack, {})) is not None:
                task.backdoor_success(task.initial_model(Rng(seed)), *shown)
            return None
        if (private := setup.local_plan.private) is not None:
            task.hold_private(private.sample_rate)
        _defend(setup, task)
        if cell.evasion is not None and task.dataset.tokens:
            raise PreconditionError(f"{cell.evasion.name} {NO_TEXT}")
        if cell.inference is not None:
            if task.network.answers and cell.inference.goal != "text":
                raise PreconditionError(f"{cell.inference.name} {ONE_LABEL}")
            if task.dataset.tokens and cell.inference.goal == "reconstruction":
                raise PreconditionError(f"{cell.inference.name} {NO_TEXT}")
            PrivacyAdversary(cell, setup, task).check()
        if cell.attack is not None:
            planted = extract_backdoor(cell.attack, _tamper(cell, task, seed))
            if planted is not None:
                few = task.open_to_backdoor(*planted).x[:2]
                task.logits(task.initial_model(Rng(seed)), planted[0].apply(few, task.value_range))
                some = task.dataset.test.x if task.dataset.tokens else task.dataset.test.x[:2]
                triggered = planted[0].apply(some, task.value_range)
                _check_text(planted[0].name, task, triggered)
                _check_padding(planted[0].name, task, triggered)
    except (ConfigError, PreconditionError) as error:
        return str(error)
    return None


def _tamper(cell: PlannedCell, task: Classification, seed: int) -> State:
    """Let one colluder poison two of its examples, and return the state that it used.

    Texts are all poisoned, and in the last round: a fault may have grown until then, and an attack may change few of them.
    """
    attack, malicious = cell.attack, sorted(malicious_clients(cell, seed))
    if attack is not None and task.network.answers and attack.overrides("poison"):
        raise PreconditionError(f"{attack.name} {ONE_LABEL}")
    if attack is None or not malicious:
        return {}
    view = DataView(
        attack.name,
        cell.attack_sees,
        rng=Rng(seed),
        round=cell.training.rounds if task.dataset.tokens else 1,
        position=0,
        malicious=tuple(malicious),
        classes=task.classes,
        shape=task.shape,
        value_range=task.value_range,
        state={},
        pool=tuple(task.examples(client) for client in malicious),
        model=task.initial_model(Rng(seed)) if attack.every_round else None,
        predict=_reading(task, attack.name).logits,
    )
    state = attack.prepare(view) if attack.every_round else view.state
    if Sight.OWN_DATA in cell.attack_sees:
        for examples in view.pool if task.dataset.tokens else view.pool[:1]:
            few = examples if task.dataset.tokens else examples[torch.arange(min(2, len(examples)))]
            poisoned = attack.poison(few, view.restrict(view.party, view.granted, state=state))
            poisoned = check_return(attack, "poison", poisoned, Examples)
            _check_text(attack.name, task, poisoned.x)
            _check_padding(attack.name, task, poisoned.x)
    return state


def _defend(setup: Setup, task: Classification) -> None:
    """Let one client defend two of its examples, and the model itself for an update."""
    model, few = task.initial_model(setup.rng), task.examples(0)[torch.arange(min(2, task.sizes[0]))]
    for stage, transform in enumerate(setup.cell.pipeline.transforms):
        reading = replace(setup, task=_reading(task, transform.name))
        few = transform.prepare(few, client_context(reading, stage, 0, 1, model, few))
        few = check_return(transform, "prepare", few, Examples)
        _check_text(transform.name, task, few.x)
        if transform.reads_data:
            transform.apply(model, client_context(reading, stage, 0, 1, model, few))
    for one in setup.cell.pipeline.stages:
        if one.makes_inputs and task.dataset.tokens:
            raise PreconditionError(f"{one.name} {NO_TEXT}")


def _reading(task: Classification, owner: str) -> Classification:
    """The task with a network that accepts only tokens, and no inputs that require a gradient."""
    if not task.dataset.tokens:
        return task
    network = copy.deepcopy(task.network)
    network.flat = flatten(network.module)

    def read(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        if given[0].requires_grad:
            raise PreconditionError(f"{owner} {NO_TEXT}")
        _check_text(owner, task, given[0])

    network.module.register_forward_pre_hook(read, prepend=True)
    return replace(task, network=network)


def _check_text(owner: str, task: Classification, x: Tensor) -> None:
    low, high = task.value_range
    if task.dataset.tokens and not bool(((x == x.round()) & (low <= x) & (x <= high)).all()):
        raise PreconditionError(f"{owner} {NO_TEXT}")


def _check_padding(owner: str, task: Classification, x: Tensor) -> None:
    """Raise `PreconditionError` where a text goes on behind its padding, unless the data have such texts."""
    padding = task.dataset.tokens.padding if task.dataset.tokens else None
    if padding is None or bool(goes_on_behind(task.dataset.train.x, padding).any()):
        return
    if odd := int(goes_on_behind(x, padding).sum()):
        raise PreconditionError(
            f"{owner} puts tokens behind the padding, token {padding}, in {odd} of {len(x)} texts; expected padding behind a "
            f"text alone. Say so, padding={padding}, if it has this parameter, or choose another place."
        )
