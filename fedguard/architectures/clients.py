"""The clients' side of a round: honest training, client defenses before sending, and crafting by malicious clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedguard.algorithms.client_state import check_kept, start_algorithm
from fedguard.architectures.malicious import KnownBy, MaliciousClients
from fedguard.architectures.sides import Sides
from fedguard.architectures.statistics import RunningStatistics
from fedguard.contracts import Channel, ClientContext, Examples, LocalPlan, SentRound, Setup, Sight, Task, Trigger
from fedguard.contracts.cell import honest_plan
from fedguard.contracts.return_checks import check_return, check_tensor_return
from fedguard.memmap import allocate_rows, let_go, slice_rows
from fedguard.rng import Rng

#: The round (from 1) of all clients, or the round of each.
Rounds = int | Sequence[int]


class Clients:
    """All clients of a federation, with their state between rounds.

    The state is the worker momentum of each client (float32 ``[clients, d]``, if it is on), the state of the algorithm
    (``local``), the running statistics of the network (``statistics``), and the malicious clients' common memory
    (``malicious``).
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.local, self.statistics = start_algorithm(setup), RunningStatistics(setup)
        self.malicious = MaliciousClients(setup, self.local, self._train)
        self._apart: list[MaliciousClients] = []
        keeps = setup.cell.training.worker_momentum > 0
        if keeps and setup.memory is None:
            check_kept(setup, "training.worker_momentum", setup.task.dim)
        self._momentum = allocate_rows(len(setup.task.sizes), setup.task.dim, setup.memory) if keeps else None

    def send(
        self,
        model: Tensor,
        round: int,
        chosen: Sequence[int],
        known_rule: KnownBy,
        buffer: Tensor,
        starts: Tensor | None = None,
        asked: Collection[Channel[Any, ...]] = (),
    ) -> SentRound:
        """Train the chosen clients from ``model``, let the malicious clients among them craft, and put all into ``buffer``.

        The malicious clients' rows are together, at the top or at the bottom by a coin toss: so the honest rows can be shown to
        them without a copy, and no rule can exploit the order. Silent malicious clients have no row.

        Args:
            known_rule: makes the malicious clients' copy of the server's rule for the honest and malicious clients of a
                round.
            buffer: float32 ``[len(chosen), d]``, overwritten; its last rows stay unused if some are silent.
            starts: float32 ``[clients, d]``, if honest clients train from their own models.
            asked: channels of sums on which malicious clients are asked: see `MaliciousClients.craft`.
        """
        setup = self._setup
        self.begin(chosen)
        acting = setup.acting(round)
        honest = tuple(client for client in chosen if client not in acting)
        malicious = tuple(client for client in chosen if client in acting)
        if malicious:
            with setup.stopwatch.stage("attack"):
                malicious = self.malicious.choose_senders(malicious, round, model)
        rows = buffer[: len(honest) + len(malicious)]
        sides = Sides.split_rows(setup.rng.child("order", round), rows, honest, malicious)
        with setup.stopwatch.stage("training"):
            own = model if starts is None else starts[list(sides.honest)]
            self.train_honest(own, round, sides.honest, sides.honest_rows)
        if malicious:
            with setup.stopwatch.stage("attack"):
                self.malicious.craft(model, round, sides, known_rule, asked=asked)
        self.local.trim(rows)
        let_go(rows)
        statistics, lies = self.statistics.send(sides.order, malicious), self.malicious
        return SentRound(
            round,
            model,
            rows,
            sides.order,
            frozenset(malicious),
            added=lies.added,
            handed=lies.handed,
            statistics=statistics,
        )

    def colluders(self) -> MaliciousClients:
        """Malicious clients with their own memory, for example of their lies to one node."""
        self._apart.append(MaliciousClients(self._setup, self.local, self._train))
        return self._apart[-1]

    def current_backdoor(self) -> tuple[Trigger, int] | None:
        """The current backdoor: trigger and target class; None without one."""
        found = (one.current_backdoor() for one in (*self._apart, self.malicious))
        return next((planted for planted in found if planted is not None), None)

    def notes(self) -> dict[str, float]:
        """What the attack reports about itself so far; where it has several memories, by the first."""
        return (*self._apart, self.malicious)[0].notes()

    def begin(self, chosen: Sequence[int]) -> None:
        """Begin a round for these clients."""
        self.local.begin(chosen)
        self.statistics.begin()
        self.malicious.effect, self.malicious.added, self.malicious.handed = None, {}, {}

    def train_honest(
        self,
        model: Tensor,
        round: Rounds,
        honest: tuple[int, ...],
        rows: Tensor,
        shares: Mapping[int, float] | None = None,
        batches: Mapping[int, int] | None = None,
        faster: float = 1.0,
    ) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what honest clients send.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
            round: the round of all, or of each.
            shares: share of its work that a client does, for clients that do not do all.
            batches: examples in a step, for clients that do not take the plan's number.
            faster: factor of the plan's step size.
        """
        setup, plan = self._setup, replace(honest_plan(self._setup), shares=shares or None, batches=batches)
        plan = replace(plan, lr=plan.lr * faster)
        task, rounds = setup.task, _each(round, len(honest))
        if setup.trainer is not None:
            for client, number, sent, row in zip(
                honest, rounds, setup.trainer(model, rounds, honest), rows, strict=True
            ):
                self.local.receive_message((client, number), sent, row)
            return
        starts = model.expand(len(honest), -1)
        if setup.cell.pipeline.transforms:
            with setup.stopwatch.stage("client_defense"):
                task = self._prepare_task(starts, rounds, honest)
        self._train(task, model, round, honest, plan, rows)
        for stage, transform in enumerate(setup.cell.pipeline.transforms):
            with setup.stopwatch.stage("client_defense"):
                for client, number, start, update in zip(honest, rounds, starts, rows, strict=True):
                    used = task.examples_used(client, plan, setup.rng.child("round", number))
                    sent = transform.apply(update, client_context(setup, stage, client, number, start, used))
                    update.copy_(check_tensor_return(transform, "apply", sent, update.shape))
                    let_go(update)
        self.local.note(honest, rows)

    def train_client(self, client: int, turn: int, model: Tensor) -> Tensor:
        """float32 ``[any]``: message of one honest client after training number ``turn`` from a model ``[d]``."""
        row = torch.empty(1, len(model))
        self.train_honest(model, [turn], (client,), row)
        return self.local.pack_message((client, turn), row[0])

    def _prepare_task(self, starts: Tensor, rounds: Sequence[int], honest: tuple[int, ...]) -> Task:
        """The task with the examples on which the honest clients train in these rounds."""
        setup, replaced = self._setup, {}
        for client, round, model in zip(honest, rounds, starts, strict=True):
            own = examples = setup.task.examples(client)
            for stage, transform in enumerate(setup.cell.pipeline.transforms):
                context = client_context(setup, stage, client, round, model, examples)
                examples = check_return(transform, "prepare", transform.prepare(examples, context), Examples)
            if examples is not own:
                replaced[client] = examples
        return setup.task.with_examples(replaced) if replaced else setup.task

    def _train(
        self, task: Task, model: Tensor, round: Rounds, clients: tuple[int, ...], plan: LocalPlan, rows: Tensor
    ) -> None:
        """Fill ``rows`` with the updates of ``clients``, worker momentum included: m <- beta m + (1 - beta) u."""
        beta, own = self._setup.cell.training.worker_momentum, self._setup.rng.child
        streams = own("round", round) if isinstance(round, int) else [own("round", one) for one in round]
        for some in slice_rows(rows, self._setup.memory):
            starts = model if model.dim() == 1 else model[some]
            rng = streams if isinstance(streams, Rng) else streams[some]
            statistics = self.statistics.start(clients[some])
            self.local.train(task, starts, clients[some], plan, rng, rows[some], statistics)
            self.statistics.note(clients[some], statistics)
            if self._momentum is not None:
                for client, update in zip(clients[some], rows[some], strict=True):
                    update.copy_(self._momentum[client].mul_(beta).add_(update, alpha=1 - beta))
                    let_go(self._momentum)
            let_go(rows)


def _each(round: Rounds, clients: int) -> Sequence[int]:
    return [round] * clients if isinstance(round, int) else round


def client_context(
    setup: Setup, stage: int, client: int, round: int, model: Tensor, examples: Examples
) -> ClientContext:
    """Knowledge of a client at one stage of the pipeline, when it prepares its examples or its update."""
    name = setup.cell.pipeline.transforms[stage].name
    # Where noise hides the examples, whatever comes after it must not look at them again.
    hidden = setup.cell.noise.unit == "record"
    return ClientContext(
        name,
        Sight.MODEL if hidden else Sight.OWN_DATA | Sight.MODEL,
        round=round,
        rng=setup.noise_rng.child("round", round, name, stage, client),
        examples=examples,
        value_range=setup.task.value_range,
        model=model,
        module=setup.task.module,
        predict=setup.task.logits,
        plan=setup.cell.plan,
    )
