"""The clients' side of a round: honest training, what honest clients do before they send, and what colluders craft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ClientContext, DataView, PoisonAttack, PoisonView, Setup, Sight, State, Task
from fedguard.errors import ContractError


@dataclass(frozen=True)
class Wire:
    """What travels to the server in one round.

    Attributes:
        updates: float32 ``[n, d]``.
        clients: the client behind each row.
        hostile: those of them that are hostile.
    """

    updates: Tensor
    clients: tuple[int, ...]
    hostile: frozenset[int]


class Clients:
    """All clients of a federation, with what they keep from one round to the next.

    That is the worker momentum of each (float32 ``[clients, d]``, where it is on) and the colluders' common memory.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._poisoned = _poisoned(setup)
        self._attack_state: State = {}
        keeps = setup.training.worker_momentum > 0
        self._momentum = torch.zeros(len(setup.task.sizes), setup.task.dim) if keeps else None

    def send(
        self, model: Tensor, round: int, chosen: Sequence[int], known_rule: Callable[[Tensor], Tensor], buffer: Tensor
    ) -> Wire:
        """Train the chosen clients from ``model``, let the colluders among them craft, and put all into ``buffer``.

        The colluders' rows stand together, at the top or at the bottom by the toss of a coin: so the honest rows can be
        shown to them without a copy, and no rule can gain from the order.

        Args:
            known_rule: the colluders' copy of the server's rule, float32 ``[n, d] -> [d]``.
            buffer: float32 ``[len(chosen), d]``, overwritten.
        """
        setup = self._setup
        acting = setup.hostile if setup.attack and setup.threat.acts(round) else frozenset()
        hostile = tuple(client for client in chosen if client in acting)
        honest = tuple(client for client in chosen if client not in acting)
        hostile_first = bool(setup.rng.child("order", round).numpy().integers(2))
        cut = len(hostile) if hostile_first else len(honest)
        upper, lower = buffer[:cut], buffer[cut:]
        hostile_rows, honest_rows = (upper, lower) if hostile_first else (lower, upper)

        self._train_honest(model, round, honest, honest_rows)
        if setup.attack is not None and hostile:
            view = self._view(model, round, hostile, honest, known_rule, hostile_rows, honest_rows)
            shown = buffer._version
            crafted = setup.attack.craft(view)
            self._attack_state = setup.attack.remember(view, crafted)
            if buffer._version != shown:
                raise ContractError(f"{setup.attack.name} broke its contract: it changed the updates it was shown.")
            hostile_rows.copy_(_checked(setup.attack, crafted, view))
        return Wire(buffer, hostile + honest if hostile_first else honest + hostile, frozenset(hostile))

    def _train_honest(self, model: Tensor, round: int, honest: tuple[int, ...], rows: Tensor) -> None:
        self._train(self._setup.task, model, round, honest, rows)
        for transform in self._setup.pipeline.transforms:
            for client, update in zip(honest, rows, strict=True):
                rng = self._setup.rng.child("round", round, transform.name, client)
                update.copy_(
                    transform.apply(update, ClientContext(transform.name, Sight.NOTHING, round=round, rng=rng))
                )

    def _view(
        self,
        model: Tensor,
        round: int,
        hostile: tuple[int, ...],
        honest: tuple[int, ...],
        known_rule: Callable[[Tensor], Tensor],
        hostile_rows: Tensor,
        honest_rows: Tensor,
    ) -> PoisonView:
        """What the colluders see; their own training runs only where the attack asks for it."""
        setup = self._setup
        attack, sees = setup.attack, setup.attack_sees
        assert attack is not None
        if Sight.OWN_DATA in sees:
            self._train(self._poisoned, model, round, hostile, hostile_rows, attack)
        return PoisonView(
            attack.name,
            sees,
            round=round,
            n=len(hostile) + len(honest),
            dim=len(model),
            hostile=hostile,
            server_lr=setup.training.server_step,
            rng=setup.rng.child("attack", round),
            state=self._attack_state,
            honest=honest_rows,
            honest_clients=honest,
            own=hostile_rows,
            model=model,
            rule=known_rule,
        )

    def _train(
        self,
        task: Task,
        model: Tensor,
        round: int,
        clients: tuple[int, ...],
        rows: Tensor,
        attack: PoisonAttack | None = None,
    ) -> None:
        """Fill ``rows`` with the updates of ``clients``, worker momentum included: m <- beta m + (1 - beta) u."""
        if not clients:
            return
        plan = self._setup.training.plan()
        task.local_updates(
            model, clients, attack.plan(plan) if attack else plan, self._setup.rng.child("round", round), rows
        )
        if self._momentum is not None:
            beta = self._setup.training.worker_momentum
            for client, update in zip(clients, rows, strict=True):
                update.copy_(self._momentum[client].mul_(beta).add_(update, alpha=1 - beta))


def _poisoned(setup: Setup) -> Task:
    """The task as the colluders train on it."""
    if setup.attack is None:
        return setup.task
    replaced = {}
    for client in sorted(setup.hostile):
        rng = setup.rng.child("attack", "data", client)
        facts = {"rng": rng, "classes": setup.task.classes, "value_range": setup.task.value_range}
        examples = setup.task.examples(client)
        altered = setup.attack.poison(examples, DataView(setup.attack.name, setup.attack_sees, **facts))
        if altered is not examples:
            replaced[client] = altered
    return setup.task.with_examples(replaced) if replaced else setup.task


def _checked(attack: PoisonAttack, crafted: Tensor, view: PoisonView) -> Tensor:
    expected = (view.f, view.dim)
    if tuple(crafted.shape) != expected:
        raise ContractError(
            f"{attack.name} broke its contract: expected updates of shape {list(expected)}; got {list(crafted.shape)}."
        )
    return crafted
