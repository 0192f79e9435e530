"""Attacks on privacy by an observer of an app's messages, with the attacks and scores of suites without an app.

The app's team declares its model, data and local training. From these, FedGuard builds a cell of its own with the same model,
data and local training. That cell is not trained: the rounds that were observed at the Grid take the place of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedguard.bench.records import pictures
from fedguard.bench.records.store import RunFolder
from fedguard.bench.running.inference.curious import PrivacyAdversary
from fedguard.bench.running.trial import set_up
from fedguard.bridges.jobs import ReadApp
from fedguard.bridges.seen import AppObserver, TrainingObservations
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import (
    Dataset,
    Examples,
    LocalPlan,
    Model,
    OneLogit,
    Participation,
    Reconstruction,
    RoundObservation,
)
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError, PreconditionError
from fedguard.metrics.reconstruction import Range
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.states import Layout
from fedguard.tasks.classification import Classification, fitting


def check(observer: AppObserver, read: ReadApp, nodes: int, seed: int) -> None:
    """Check before anything runs that model, data and attack fit together.

    Raises:
        ConfigError: something that the app's team declares cannot be found or does not fit.
        PreconditionError: the attack cannot work on this network or training.
    """
    # Who answers is not known yet: assume that all nodes do, in every round up to the observed one
    everybody = [tuple(range(nodes))] * int(observer.wants["round"])
    _curious(observer, read, seed, _task(observer, read, nodes), everybody).check()


def evaluate_inference(
    observer: AppObserver, read: ReadApp, nodes: int, seed: int, seen: TrainingObservations
) -> dict[str, Any]:
    """Run the attack on the observations, and compare its result with the truth.

    Returns:
        inference: in the form of a record; misfit: see `misfit`.

    Raises:
        ConfigError: the watched round has no replies, or the messages hold another model than the declared one.
    """
    rounds, watched = len(seen.took_part), seen.watched
    if observer.wants["round"] > rounds or (observer.watches(observer.wants["round"]) and not watched):
        raise ConfigError(
            f"observer.round: expected one of the {rounds} rounds of the app in which a node answered; got "
            f"{observer.wants['round']}."
        )
    task = _task(observer, read, nodes)
    assert seen.layout is not None
    task = replace(task, initial=check_parameter_order(task.network.module, seen.layout, seen.sent[1]))
    curious = _curious(observer, read, seed, task, seen.took_part)
    found = curious.run_attack(watched, seen.after[rounds], partial(_keep, observer, task.value_range))
    return {"inference": found, "misfit": misfit(task, curious.plan, watched)}


def misfit(task: Classification, plan: LocalPlan, watched: Sequence[RoundObservation]) -> float | None:
    r"""Relative distance of the observed updates from the declared local training: 0 if they agree.

    $\max_i \|u_i + \eta \nabla L_i(w)\| / \|\eta \nabla L_i(w)\|$ over the nodes i of the first watched round that take one
    step, of the mean cross-entropy on all of their examples; None if no node does.
    """
    # Only one full-batch step has a closed form: with batches or several steps, order and draws of the app are unknown
    found = []
    for client, row in zip(watched[0].sent.senders, watched[0].sent.updates, strict=True) if watched else ():
        own, model = task.examples(client), watched[0].sent.model.clone().requires_grad_()
        if (plan.batch_size or len(own)) < len(own) or (plan.steps or plan.epochs) != 1:
            continue
        (gradient,) = torch.autograd.grad(task.loss(task.logits(model, own.x), own.y), model)
        found.append(float((row + plan.lr * gradient).norm() / (plan.lr * gradient).norm()))
    return max(found, default=None)


def _curious(
    observer: AppObserver, read: ReadApp, seed: int, task: Classification, took_part: Sequence[tuple[int, ...]]
) -> PrivacyAdversary:
    cell = _cell(observer, read, len(task.parts), len(took_part))
    usual = round(sum(map(len, took_part)) / len(took_part))
    there = ObservedParticipation(total=len(task.parts), per_round=max(1, usual), chosen=tuple(took_part))
    return PrivacyAdversary(cell, set_up(cell, seed, task).with_parts(clients=there), task)


def _cell(observer: AppObserver, read: ReadApp, nodes: int, rounds: int) -> PlannedCell:
    """The app as a cell of FedGuard, without its data and model."""
    training = {
        key: numbers(value, read, f"app.training.{key}")
        for key, value in observer.training.items()
        if key not in ("model", "data")
    }
    config = {"clients": {"total": nodes}, "attack": observer.attack, "observer": dict(observer.wants)}
    return build_cell(
        CellConfig.model_validate({**config, "training": {**training, "rounds": rounds}}), load_registry()
    )


def _task(observer: AppObserver, read: ReadApp, nodes: int) -> AppClassification:
    model = AppModel(target=UserFunction(observer.training["model"], read.folder))
    dealt = [of_node(UserFunction(observer.training["data"], read.folder), number, nodes) for number in range(nodes)]
    parts, others = tuple(own for own, _ in dealt), _join_examples([rest for _, rest in dealt])
    # The range of values and the number of classes are no part of the declaration, so data and network give them
    every = _join_examples([*parts, others])
    with torch.no_grad():
        logits = model.build(tuple(every.x.shape[1:]), 0)(every.x[:2])
    dataset = Dataset(
        train=_join_examples(list(parts)),
        test=others,
        classes=logits.shape[-1],
        value_range=(float(every.x.min()), float(every.x.max())),
    )
    network = fitting(model, dataset, None)
    return AppClassification(dataset, parts, None, model, network, initial=network.flat.clone())


def _keep(observer: AppObserver, values: Range, name: str, claim: Reconstruction, truth: Examples) -> None:
    if observer.pictures is not None:
        folder, cell, seed = observer.pictures
        pictures.save(RunFolder(Path(folder)), cell, seed, name, claim, truth, values)


@dataclass(frozen=True)
class AppClassification(Classification):
    """An app's nodes, with the training data that its team declares.

    Attributes:
        initial: float32 ``[d]``: the model that its server sent first.
    """

    initial: Tensor = field(default_factory=lambda: torch.empty(0))

    def initial_model(self, rng: Rng) -> Tensor:
        return self.initial.clone()

    def examples_used(self, client: int, plan: LocalPlan, rng: Rng) -> Examples:
        if plan.steps is not None and plan.batch_size is not None and plan.batch_size < self.sizes[client]:
            raise PreconditionError(
                f"app.training: the app draws {plan.steps} batches of {plan.batch_size}, and nobody knows which of node "
                f"{client}'s {self.sizes[client]} examples they hold, so nothing can be scored. Set local_epochs, or a "
                "batch_size that takes all."
            )
        return self.examples(client)

    def local_updates(self, *arguments: Any, **named: Any) -> Tensor:
        """An app trains by itself."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AppModel(Model):
    """The network of an app, made by the app's own function."""

    name = "app"
    source = "the app's own"

    target: UserFunction

    def network(self) -> nn.Module:
        """The network that the app's function returns.

        Raises:
            ConfigError: it is no `torch.nn.Module`.
        """
        made = self.target.call_function("app.training.model")
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"app.training.model {self.target}: expected what makes a torch.nn.Module without arguments; got "
                f"{type(made).__name__}."
            )
        return made

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network; one with a single logit is turned into one of two classes."""
        network = self.network()
        with torch.no_grad():
            logits = network(torch.zeros(2, *shape))
        return OneLogit(network) if logits.shape == (2, 1) else network


@dataclass(frozen=True)
class ObservedParticipation(Participation):
    """The nodes that answered in each round, as observed."""

    chosen: tuple[tuple[int, ...], ...] = ()

    def choose(self, rng: Rng, round: int) -> tuple[int, ...]:
        return self.chosen[round - 1]


def numbers(value: Any, read: ReadApp, key: str) -> Any:
    """A setting of an app's training: the value itself, or, for a string, the app's run configuration under that key.

    Raises:
        ConfigError: the run configuration has no such key.
    """
    if not isinstance(value, str):
        return value
    if value not in read.config:
        raise ConfigError(
            f"{key}: expected a number, or one of the app's run configuration, {', '.join(sorted(read.config)) or 'none'}; "
            f"got {value!r}."
        )
    return read.config[value]


def of_node(function: UserFunction, number: int, nodes: int) -> tuple[Examples, Examples]:
    """The examples on which a node trains, and those on which no node does.

    Raises:
        ConfigError: the function fails, or returns something else.
    """
    said = function.call_function("app.training.data", number, nodes)
    try:
        own, others = (
            Examples(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.int64)) for x, y in said
        )
        fits = len(own.x) == len(own.y) > 0 and len(others.x) == len(others.y) and own.y.dim() == 1
    except (TypeError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise ConfigError(
            f"app.training.data {function}: expected ((x, y), (x, y)) for partition {number} of {nodes}: inputs and labels on "
            f"which the node trains, and on which nobody does; got {type(said).__name__}."
        )
    return own, others


def check_parameter_order(module: nn.Module, layout: Layout, vector: Tensor) -> Tensor:
    """The vector, if the arrays of the messages are the module's parameters in the same order.

    Raises:
        ConfigError: they are not.
    """
    # By name if the app sends names; apps that send a list of arrays have numbers there, so that only shapes can be compared
    expected = [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]
    got = [(name, tuple(shape)) for name, shape in zip(layout.names, layout.shapes, strict=True)]
    named = {name for name, _ in expected} == set(layout.names)
    if (expected if named else [shape for _, shape in expected]) != (got if named else [shape for _, shape in got]):
        raise ConfigError(
            f"app.training.model: expected the parameters that the app sends, {_format_shapes(got)}; got "
            f"{_format_shapes(expected)}."
        )
    return vector


def _format_shapes(named: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in named)


def _join_examples(parts: list[Examples]) -> Examples:
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
