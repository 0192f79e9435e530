"""The clients' side of a round: honest training, what honest clients do before they send, and what malicious clients craft."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from fedguard.architectures.effect import effects
from fedguard.architectures.local import started
from fedguard.architectures.local.kept import check_kept
from fedguard.contracts import (
    ClientContext,
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
    Wire,
)
from fedguard.contracts.returned import broken, returned, returned_tensor, told
from fedguard.mapped import held_at_a_time, kept_rows, let_go, round_buffer
from fedguard.rng import Rng

T = TypeVar("T")

#: (model ``[d]``, inputs ``[B, *shape]``) -> logits ``[B, classes]``.
Predict = Callable[[Tensor, Tensor], Tensor]

#: The round (from 1) in which all clients are, or that of each.
Rounds = int | Sequence[int]

#: Makes the malicious clients' copy of the server's rule for the honest and the malicious clients of a round.
KnownBy = Callable[[tuple[int, ...], tuple[int, ...]], KnownRule]


@dataclass(frozen=True)
class Sides:
    """The clients of a round on their two sides, each with its rows of one matrix."""

    honest: tuple[int, ...]
    honest_rows: Tensor
    malicious: tuple[int, ...]
    malicious_rows: Tensor
    order: tuple[int, ...]

    @classmethod
    def drawn(cls, rng: Rng, rows: Tensor, honest: tuple[int, ...], malicious: tuple[int, ...]) -> Sides:
        """The malicious clients' rows stand at the top of ``rows`` or at the bottom, by the toss of a coin."""
        if honest and malicious and rng.numpy().integers(2):
            cut = len(malicious)
            return cls(honest, rows[cut:], malicious, rows[:cut], malicious + honest)
        cut = len(honest)
        return cls(honest, rows[:cut], malicious, rows[cut:], honest + malicious)

    def in_order(self, honest: Sequence[T], malicious: Sequence[T]) -> tuple[T, ...]:
        """What belongs to the clients of the two sides, in the order of their rows."""
        honest_first = self.order == self.honest + self.malicious
        return (*honest, *malicious) if honest_first else (*malicious, *honest)


class Clients:
    """All clients of a federation, with what they keep from one round to the next.

    That is the worker momentum of each (float32 ``[clients, d]``, where it is on), what their algorithm keeps (``local``),
    and the malicious clients' common memory. ``effect`` is what the attack does to the rule, in evaluated rounds: see
    `effects`.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.local = started(setup)
        self._attack_state: State = {}
        self._predict = setup.task.predictor() if setup.attack and Sight.MODEL in setup.attack_sees else None
        self.effect: Mapping[str, float] | None = None
        once = setup.attack is not None and not setup.attack.every_round
        self._poisoned = setup.task
        if once:
            with setup.stopwatch.stage("attack"):
                self._poisoned = _poisoned(setup, self.local, sorted(setup.malicious), 1, None, {}, self._predict)
        keeps = setup.training.worker_momentum > 0
        if keeps and setup.memory is None:
            check_kept(setup, "training.worker_momentum", setup.task.dim)
        self._momentum = kept_rows(len(setup.task.sizes), setup.task.dim, setup.memory) if keeps else None

    def send(self, model: Tensor, round: int, chosen: Sequence[int], known_rule: KnownBy, buffer: Tensor) -> Wire:
        """Train the chosen clients from ``model``, let the malicious clients among them craft, and put all into ``buffer``.

        The malicious clients' rows stand together, at the top or at the bottom by the toss of a coin: so the honest rows
        can be shown to them without a copy, and no rule can gain from the order. Malicious clients that are silent have no
        row.

        Args:
            known_rule: makes the malicious clients' copy of the server's rule for the honest and malicious clients of a
                round.
            buffer: float32 ``[len(chosen), d]``, overwritten; its last rows stay unused if some are silent.
        """
        setup = self._setup
        self.begin(chosen)
        acting = setup.acting(round)
        honest = tuple(client for client in chosen if client not in acting)
        malicious = tuple(client for client in chosen if client in acting)
        if malicious:
            with setup.stopwatch.stage("attack"):
                malicious = self.heard(malicious, round, model)
        rows = buffer[: len(honest) + len(malicious)]
        sides = Sides.drawn(setup.rng.child("order", round), rows, honest, malicious)
        with setup.stopwatch.stage("training"):
            self.train_honest(model, round, sides.honest, sides.honest_rows)
        if malicious:
            with setup.stopwatch.stage("attack"):
                self.craft(model, round, sides, known_rule)
        self.local.trim(rows)
        let_go(rows)
        return Wire(rows, sides.order, frozenset(malicious))

    def begin(self, chosen: Sequence[int]) -> None:
        """A round begins, for these clients."""
        self.local.begin(chosen)
        self.effect = None

    def heard(self, malicious: tuple[int, ...], round: int, model: Tensor) -> tuple[int, ...]:
        """Those of the chosen malicious clients whose updates will reach the server."""
        attack = self._setup.attack
        assert attack is not None
        views = (self._view(malicious, client, round, model) for client in malicious)
        with _untouched(attack, model, *_tensors(self._setup.pool)):
            return tuple(client for client, view in zip(malicious, views, strict=True) if not attack.silent(view))

    def train_honest(
        self,
        model: Tensor,
        round: Rounds,
        honest: tuple[int, ...],
        rows: Tensor,
        shares: Mapping[int, float] | None = None,
    ) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what honest clients send.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
            round: in which all are, or each of them.
            shares: of its work that a client does, of those that do not do all.
        """
        setup, plan = self._setup, replace(self._setup.local_plan, shares=shares or None)
        task, rounds = setup.task, _each(round, len(honest))
        starts = model.expand(len(honest), -1)
        if setup.pipeline.transforms:
            with setup.stopwatch.stage("client_defense"):
                task = self._prepared(starts, rounds, honest)
        self._train(task, model, round, honest, plan, rows)
        for stage, transform in enumerate(setup.pipeline.transforms):
            with setup.stopwatch.stage("client_defense"):
                for client, number, start, update in zip(honest, rounds, starts, rows, strict=True):
                    used = task.examples_used(client, plan, setup.rng.child("round", number))
                    sent = transform.apply(update, client_context(setup, stage, client, number, start, used))
                    update.copy_(returned_tensor(transform, "apply", sent, update.shape))
                    let_go(update)
        self.local.note(honest, rows)

    def _prepared(self, starts: Tensor, rounds: Sequence[int], honest: tuple[int, ...]) -> Task:
        """The task with what the honest clients train on in these rounds."""
        setup, replaced = self._setup, {}
        for client, round, model in zip(honest, rounds, starts, strict=True):
            own = examples = setup.task.examples(client)
            for stage, transform in enumerate(setup.pipeline.transforms):
                context = client_context(setup, stage, client, round, model, examples)
                examples = returned(transform, "prepare", transform.prepare(examples, context), Examples)
            if examples is not own:
                replaced[client] = examples
        return setup.task.with_examples(replaced) if replaced else setup.task

    def planted(self) -> tuple[Trigger, int] | None:
        """The backdoor as the malicious clients now have it: trigger and target class."""
        return planted_by(self._setup.attack, self._attack_state) if self._setup.attack else None

    def notes(self) -> dict[str, float]:
        """What the attack says of itself so far."""
        attack = self._setup.attack
        said = returned(attack, "notes", attack.notes(self._attack_state), Mapping) if attack else {}
        for value in said.values():
            if attack and not math.isfinite(returned(attack, "notes", value, (int, float))):
                raise broken(attack, f"notes: expected a finite number; got {value}")
        return dict(said)

    def craft(
        self, model: Tensor, round: int, sides: Sides, known_rule: KnownBy, *, measure: bool | None = None
    ) -> None:
        """Fill the malicious clients' rows. Their own training runs only where the attack asks for it.

        Args:
            measure: whether to see what the attack does to the rule; by default where the model is evaluated.
        """
        setup, attack = self._setup, self._setup.attack
        assert attack is not None
        first = sides.malicious[0]
        with _untouched(attack, model, *_tensors(setup.pool)):
            settled = attack.prepare(self._view(sides.malicious, first, round, model))
            self._attack_state = returned(attack, "prepare", settled, Mapping)
        if Sight.OWN_DATA in setup.attack_sees:
            task = self._poisoned
            if attack.every_round:
                task = _poisoned(setup, self.local, sides.malicious, round, model, self._attack_state, self._predict)
            plan = attack.plan(setup.training.plan(), self._view(sides.malicious, first, round, model))
            plan = returned(attack, "plan", plan, LocalPlan)
            self._train(task, model, round, sides.malicious, plan, sides.malicious_rows)
            self.local.note(sides.malicious, sides.malicious_rows)
        rule = known_rule(sides.honest, sides.malicious)
        view = PoisonView(
            attack.name,
            setup.attack_sees,
            round=round,
            n=len(sides.malicious) + len(sides.honest),
            dim=len(model),
            malicious=sides.malicious,
            layers=setup.task.layers,
            server_lr=setup.training.server_step * self.local.gain(len(sides.malicious) + len(sides.honest)),
            rng=setup.rng.child(
                "attack", round
            ).apart(),  # a child would lead to the draws of the honest and the server
            state=self._attack_state,
            honest=sides.honest_rows,
            honest_clients=sides.honest,
            own=self._own(sides),
            model=model,
            rule=rule if Sight.RULE in setup.attack_sees else None,
        )
        with _untouched(attack, sides.honest_rows, model):
            crafted = returned_tensor(attack, "craft", attack.craft(view), (view.f, view.dim))
            self._attack_state = returned(attack, "remember", attack.remember(view, crafted), Mapping)
        if setup.due(round) if measure is None else measure:
            with setup.stopwatch.stage("measuring"):
                self.effect = effects(attack, view, sides.honest_rows, crafted, rule)
        sides.malicious_rows.copy_(crafted)

    def _own(self, sides: Sides) -> Tensor:
        """float32 ``[f, d]``: the malicious clients' rows; not in one memory with the honest ones, unless these are seen."""
        if Sight.HONEST_UPDATES in self._setup.attack_sees or Sight.OWN_DATA not in self._setup.attack_sees:
            return sides.malicious_rows
        f, d = sides.malicious_rows.shape
        return round_buffer(f, d, self._setup.memory).copy_(sides.malicious_rows)

    def _view(self, malicious: Sequence[int], client: int, round: int, model: Tensor) -> DataView:
        return _data_view(self._setup, self.local, malicious, client, round, model, self._attack_state, self._predict)

    def _train(
        self, task: Task, model: Tensor, round: Rounds, clients: tuple[int, ...], plan: LocalPlan, rows: Tensor
    ) -> None:
        """Fill ``rows`` with the updates of ``clients``, worker momentum included: m <- beta m + (1 - beta) u."""
        beta, own = self._setup.training.worker_momentum, self._setup.rng.child
        streams = own("round", round) if isinstance(round, int) else [own("round", one) for one in round]
        for some in held_at_a_time(rows, self._setup.memory):
            starts = model if model.dim() == 1 else model[some]
            rng = streams if isinstance(streams, Rng) else streams[some]
            self.local.train(task, starts, clients[some], plan, rng, rows[some])
            if self._momentum is not None:
                for client, update in zip(clients[some], rows[some], strict=True):
                    update.copy_(self._momentum[client].mul_(beta).add_(update, alpha=1 - beta))
                    let_go(self._momentum)
            let_go(rows)


def _each(round: Rounds, clients: int) -> Sequence[int]:
    return [round] * clients if isinstance(round, int) else round


def planted_by(attack: PoisonAttack, state: State) -> tuple[Trigger, int] | None:
    """The backdoor that an attack has planted: trigger and target class."""
    planted = returned(attack, "backdoor", attack.backdoor(state), (tuple, type(None)))
    if planted is None:
        return None
    if len(planted) != 2:
        raise broken(attack, f"backdoor: expected a trigger and a class; got {told(planted)}")
    return returned(attack, "backdoor", planted[0], Trigger), returned(attack, "backdoor", planted[1], int)


def client_context(
    setup: Setup, stage: int, client: int, round: int, model: Tensor, examples: Examples
) -> ClientContext:
    """What a client knows at one stage of the pipeline, as it prepares its examples or its update."""
    name = setup.pipeline.transforms[stage].name
    # Where noise hides the examples, whatever comes after it must not look at them again.
    hidden = setup.protocol.privacy.unit == "record"
    return ClientContext(
        name,
        Sight.MODEL if hidden else Sight.OWN_DATA | Sight.MODEL,
        round=round,
        rng=setup.rng.child("round", round, name, stage, client),
        examples=examples,
        value_range=setup.task.value_range,
        model=model,
        module=setup.task.module,
        predict=setup.task.logits,
        plan=setup.training.plan(),
    )


def _poisoned(
    setup: Setup,
    local: RunningAlgorithm,
    malicious: Sequence[int],
    round: int,
    model: Tensor | None,
    state: State,
    predict: Predict | None,
) -> Task:
    """The task as the malicious clients train on it; without a model, as it is before the first round."""
    attack, replaced = setup.attack, {}
    assert attack is not None
    with _untouched(attack, *_tensors(setup.pool)):
        for client in malicious:
            examples = setup.task.examples(client)
            altered = attack.poison(examples, _data_view(setup, local, malicious, client, round, model, state, predict))
            altered = returned(attack, "poison", altered, Examples)
            if altered is not examples:
                replaced[client] = altered
    return setup.task.with_examples(replaced) if replaced else setup.task


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
    assert setup.attack is not None
    path = ("attack", "data", client) if model is None else ("attack", "data", client, round)

    def clean() -> Tensor:
        assert model is not None
        out, rng = torch.empty(len(malicious), len(model)), setup.rng.child("round", round)
        local.train(setup.task, model, malicious, setup.training.plan(), rng, out)
        return out

    return DataView(
        setup.attack.name,
        setup.attack_sees,
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


@contextmanager
def _untouched(attack: PoisonAttack, *shown: Tensor) -> Iterator[None]:
    """See to it that an attack leaves alone what it is shown, by torch's own count of changes in place."""
    before = [tensor._version for tensor in shown]
    yield
    if [tensor._version for tensor in shown] != before:
        raise broken(attack, "it changed what it was shown, in place")
