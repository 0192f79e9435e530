"""The malicious clients of a federation: their views, poisoned data, training, crafted updates and common state."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fedguard.adapters.model import form_of
from fedguard.architectures.effect import effects
from fedguard.architectures.sides import Sides
from fedguard.contracts import (
    Channel,
    DataView,
    Examples,
    KnownRule,
    LocalPlan,
    PoisonAttack,
    PoisonView,
    RunningAlgorithm,
    Setup,
    Sight,
    State,
    Task,
    Trigger,
)
from fedguard.contracts.channels import FINISHED_SUMS, PARTIAL_SUMS, TRACKERS
from fedguard.contracts.return_checks import (
    check_return,
    check_tensor_return,
    contract_error,
    describe_value,
    forbid_changes,
)
from fedguard.contracts.tasks import select_trained
from fedguard.memmap import round_buffer

#: (model ``[d]``, inputs ``[B, *shape]``) -> logits ``[B, classes]``.
Predict = Callable[[Tensor, Tensor], Tensor]

#: Makes the malicious clients' copy of the server's rule for the honest and the malicious clients of a round.
KnownBy = Callable[[tuple[int, ...], tuple[int, ...]], KnownRule]

#: (task, model, round, clients, plan, rows): train these clients from the model, and fill the rows with their updates.
Train = Callable[[Task, Tensor, int, tuple[int, ...], LocalPlan, Tensor], None]


class MaliciousClients:
    """The malicious clients of one training, which act as one adversary and share the state of the attack.

    Args:
        local: the running federated algorithm, with the clients' state.
        train: trains clients like honest ones, worker momentum included.

    Attributes:
        effect: effect of the attack on the rule, in evaluated rounds: see `effects`.
        added: by client, the vector that it adds in this round to each sum of others that it passes on.
        handed: by client, the vector that it adds in this round to each finished sum that it passes on.
    """

    def __init__(self, setup: Setup, local: RunningAlgorithm, train: Train) -> None:
        self._setup, self._local, self._train = setup, local, train
        self._attack_state: State = {}
        self._predict = setup.task.predictor() if setup.cell.attack and Sight.MODEL in setup.cell.attack_sees else None
        self.effect: Mapping[str, float] | None = None
        self.added: Mapping[int, Tensor] = {}
        self.handed: Mapping[int, Tensor] = {}
        self._poisoned = setup.task
        if setup.cell.attack is not None and not setup.cell.attack.every_round:
            with setup.stopwatch.stage("attack"):
                self._poisoned = _poison_task(setup, local, sorted(setup.malicious), 1, None, {}, self._predict)

    def choose_senders(self, malicious: tuple[int, ...], round: int, model: Tensor) -> tuple[int, ...]:
        """The chosen malicious clients that send an update to the server."""
        attack = self._setup.cell.attack
        assert attack is not None
        views = (self._view(malicious, client, round, model) for client in malicious)
        with forbid_changes(attack, model, *_tensors(self._setup.pool)):
            return tuple(client for client, view in zip(malicious, views, strict=True) if not attack.silent(view))

    def current_backdoor(self) -> tuple[Trigger, int] | None:
        """The current backdoor: trigger and target class; None without one."""
        return extract_backdoor(self._setup.cell.attack, self._attack_state) if self._setup.cell.attack else None

    def notes(self) -> dict[str, float]:
        """Metrics that the attack reports about itself so far, by name."""
        attack = self._setup.cell.attack
        said = check_return(attack, "notes", attack.notes(self._attack_state), Mapping) if attack else {}
        for value in said.values():
            if attack and not math.isfinite(check_return(attack, "notes", value, (int, float))):
                raise contract_error(attack, f"notes: expected a finite number; got {value}")
        return dict(said)

    def craft(
        self,
        model: Tensor,
        round: int,
        sides: Sides,
        known_rule: KnownBy,
        *,
        measure: bool | None = None,
        links: Mapping[str, Any] | None = None,
        asked: Collection[Channel[Any, ...]] = (),
    ) -> None:
        """Fill the malicious clients' rows. They train only if the attack uses their own data.

        Args:
            measure: whether to measure the effect of the attack on the rule; by default in rounds with an evaluation.
            links: without a server, the values of `PoisonView` under `Sight.GRAPH`.
            asked: self-reports requested beside updates: `TRACKERS` if the rows are trackers, `PARTIAL_SUMS`, `FINISHED_SUMS`.
        """
        setup, attack = self._setup, self._setup.cell.attack
        assert attack is not None
        first = sides.malicious[0]
        with forbid_changes(attack, model, *_tensors(setup.pool)):
            settled = attack.prepare(self._view(sides.malicious, first, round, model))
            self._attack_state = check_return(attack, "prepare", settled, Mapping)
        if Sight.OWN_DATA in setup.cell.attack_sees:
            task = self._poisoned
            if attack.every_round:
                task = _poison_task(
                    setup, self._local, sides.malicious, round, model, self._attack_state, self._predict
                )
            plan = attack.plan(setup.cell.plan, self._view(sides.malicious, first, round, model))
            plan = check_return(attack, "plan", plan, LocalPlan)
            self._train(task, model, round, sides.malicious, plan, sides.malicious_rows)
            self._local.note(sides.malicious, sides.malicious_rows)
        rule = known_rule(sides.honest, sides.malicious)
        view = PoisonView.of_round(
            attack,
            setup.cell.attack_sees,
            round=round,
            malicious=sides.malicious,
            layers=setup.task.layers,
            ranks=[parameter.dim() for parameter in select_trained(setup.task.module).values()],
            local_lr=fmean(setup.cell.plan.reach(setup.task.sizes[client]) for client in sides.malicious),
            server_lr=setup.cell.server_step * self._local.gain(len(sides.malicious) + len(sides.honest)),
            rng=setup.rng.child(
                "attack", round
            ).apart(),  # a child would lead to the draws of the honest and the server
            state=self._attack_state,
            honest=sides.honest_rows,
            honest_clients=sides.honest,
            own=self._own(sides),
            model=model,
            rule=rule if Sight.RULE in setup.cell.attack_sees else None,
            **(links or {}),
        )
        with forbid_changes(attack, sides.honest_rows, model):
            crafted = check_tensor_return(attack, "craft", attack.craft(view), (view.f, view.dim))
            if TRACKERS in asked:
                crafted = attack.report(TRACKERS, crafted, view)
            self.added, self.handed = (
                _ask_addends(attack, channel, view, crafted) if channel in asked else {}
                for channel in (PARTIAL_SUMS, FINISHED_SUMS)
            )
            self._attack_state = check_return(attack, "remember", attack.remember(view, crafted), Mapping)
        form = form_of(setup.cell.model)
        probed = form is None or not form.of_products  # a copy of the rule is probed with vectors
        if probed and (setup.due(round) if measure is None else measure):
            with setup.stopwatch.stage("measuring"):
                self.effect = effects(attack, view, sides.honest_rows, crafted, rule)
        sides.malicious_rows.copy_(crafted)

    def _own(self, sides: Sides) -> Tensor:
        """float32 ``[f, d]``: the malicious clients' rows, in memory of their own unless the attack sees the honest rows."""
        if Sight.HONEST_UPDATES in self._setup.cell.attack_sees or Sight.OWN_DATA not in self._setup.cell.attack_sees:
            return sides.malicious_rows
        f, d = sides.malicious_rows.shape
        return round_buffer(f, d, self._setup.memory).copy_(sides.malicious_rows)

    def _view(self, malicious: Sequence[int], client: int, round: int, model: Tensor) -> DataView:
        return _data_view(self._setup, self._local, malicious, client, round, model, self._attack_state, self._predict)


def _ask_addends(
    attack: PoisonAttack, channel: Channel[Tensor, [PoisonView, Tensor]], view: PoisonView, crafted: Tensor
) -> Mapping[int, Tensor]:
    """By malicious client, the vector float32 ``[d]`` that it adds to sums; empty if the attack does not falsify sums."""
    if channel not in attack.lies:
        return {}
    rows = attack.report(channel, torch.zeros_like(crafted), view, crafted)
    return dict(zip(view.malicious, rows, strict=True))


def extract_backdoor(attack: PoisonAttack, state: State) -> tuple[Trigger, int] | None:
    """The planted backdoor: trigger and target class; None if the attack plants none."""
    planted = check_return(attack, "backdoor", attack.backdoor(state), (tuple, type(None)))
    if planted is None:
        return None
    if len(planted) != 2:
        raise contract_error(attack, f"backdoor: expected a trigger and a class; got {describe_value(planted)}")
    return check_return(attack, "backdoor", planted[0], Trigger), check_return(attack, "backdoor", planted[1], int)


def _poison_task(
    setup: Setup,
    local: RunningAlgorithm,
    malicious: Sequence[int],
    round: int,
    model: Tensor | None,
    state: State,
    predict: Predict | None,
) -> Task:
    """The task with the poisoned examples of the malicious clients; without a model, as before the first round."""
    attack, replaced = setup.cell.attack, {}
    assert attack is not None
    with forbid_changes(attack, *_tensors(setup.pool)):
        for client in malicious:
            examples = setup.task.examples(client)
            altered = attack.poison(examples, _data_view(setup, local, malicious, client, round, model, state, predict))
            altered = check_return(attack, "poison", altered, Examples)
            if altered is not examples:
                replaced[client] = altered
    task = setup.task.with_examples(replaced) if replaced else setup.task
    return task.with_liars(attack.report, malicious) if attack.lies else task


def _tensors(pool: tuple[Examples, ...]) -> list[Tensor]:
    return [tensor for examples in pool for tensor in (examples.x, examples.y)]


def _data_view(
    setup: Setup,
    local: RunningAlgorithm,
    malicious: Sequence[int],
    client: int,
    round: int,
    model: Tensor | None,
    state: State,
    predict: Predict | None,
) -> DataView:
    assert setup.cell.attack is not None
    path = ("attack", "data", client) if model is None else ("attack", "data", client, round)

    def clean() -> Tensor:
        assert model is not None
        out, rng = torch.empty(len(malicious), len(model)), setup.rng.child("round", round)
        local.train(setup.task, model, malicious, setup.cell.plan, rng, out)
        return out

    return DataView(
        setup.cell.attack.name,
        setup.cell.attack_sees,
        rng=setup.rng.child(*path).apart(),
        round=round,
        position=list(malicious).index(client),
        malicious=tuple(malicious),
        classes=setup.task.classes,
        shape=setup.task.shape,
        value_range=setup.task.value_range,
        state=state,
        pool=setup.pool,
        clean=None if model is None else clean,
        model=model,
        predict=predict,
    )
