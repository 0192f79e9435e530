"""The targets of an attack on privacy: clients, the examples that they used, and candidates of a membership inference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedguard.config.sections import ObserverSection
from fedguard.contracts import (
    Architecture,
    Examples,
    InferenceAttack,
    LocalPlan,
    LocalTraining,
    RoundObservation,
    Setup,
)
from fedguard.contracts.cell import honest_plan
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification


@dataclass(frozen=True)
class InferenceTarget:
    """One target of an attack.

    Attributes:
        clients: one client, or all clients in one sum that the server sees.
        truth: the examples that they used in the watched round, or hold.
        candidates, members: for a membership inference, the candidates, and which of them were trained on.
    """

    clients: tuple[int, ...]
    truth: Examples
    candidates: Examples | None = None
    members: Tensor | None = None


class InferenceTargets:
    """The targets of one trial.

    Args:
        alone: whether clients are attacked one by one; otherwise all clients in one sum together.
        rng: draws victims and candidates.
        shares: for adversary nodes, the known share of the update of each client that they can attack; larger shares come
            first. None for a server, which may attack every client that takes part.
    """

    def __init__(
        self,
        attack: InferenceAttack,
        alone: bool,
        wants: ObserverSection,
        setup: Setup,
        task: Classification,
        rng: Rng,
        architecture: Architecture,
        shares: Mapping[int, float] | None = None,
    ) -> None:
        self._attack, self._alone, self._wants = attack, alone, wants
        self._setup, self._task, self._rng = setup, task, rng
        self._shares, self._architecture = shares, architecture

    @cached_property
    def plan(self) -> LocalPlan:
        """The local training of a client; the mean of several steps from one model is one step on all their batches."""
        plan, times = self._setup.local_plan, self._architecture.trainings()
        return plan if times == 1 or plan.batch_size is None else replace(plan, batch_size=times * plan.batch_size)

    @cached_property
    def planned(self) -> tuple[InferenceTarget, ...]:
        """The targets as known before the training; none if no client takes part."""
        clients = self._present
        chosen = [clients[i] for i in self._rng.child("victims").numpy().permutation(len(clients)).tolist()]
        if self._shares is not None:
            chosen.sort(key=lambda client: -self._shares[client] if self._shares else 0.0)
        if self._attack.goal != "property":
            chosen = chosen[: self._wants.victims]
        groups = [(client,) for client in chosen] if self._alone else [clients] if clients else []
        return tuple(self._target(group, number) for number, group in enumerate(groups))

    def restrict_target(self, target: InferenceTarget, one: RoundObservation) -> InferenceTarget | None:
        """The target as seen in one aggregate of the watched round; None if the adversary received nothing of it there.

        If the adversary sees sums, the target is reduced to the clients in one of them.
        """
        there = [client for client in target.clients if self.find_row(one, client) is not None]
        if not self._alone and self._shares is None and self._setup.cell.noise.added_by != "server":
            there = next((list(row) for row in one.behind if set(row) & set(there)), [])
        if not there:
            return None
        if set(there) == set(target.clients) or (self._attack.active and self._attack.goal == "membership"):
            return replace(target, clients=tuple(there))  # the server has tampered for these candidates
        return self._target(tuple(there), 0)

    def find_row(self, one: RoundObservation, client: int) -> int | None:
        """The row of the client's update that the attack watches; None if it is not in this aggregate."""
        if not one.sent.trainings:
            return one.sent.senders.index(client) if client in one.sent.senders else None
        keys = [training.key for training in one.sent.trainings]
        return next((keys.index(one.key) for one in self._observed[client] if one.key in keys), None)

    def counts(self, target: InferenceTarget, trusted: bool) -> list[int]:
        """The number of examples that each client reports; if noise hides this number, its public value."""
        plan, sizes = self.plan, self._task.sizes
        final = self._attack.watches == "model"  # it holds what all clients learned in all rounds
        if plan.private is not None and plan.batch_size is not None:
            one_batch = plan.steps == 1 and not final
            expected = plan.batch_size if one_batch else round(plan.batch_size / plan.private.sample_rate)
            return [expected] * len(target.clients)
        if trusted:
            usual = round(sum(sizes) / len(sizes))
            if final:
                return [usual] * len(target.clients)
            expected = min(plan.batch_size or usual, usual) if plan.steps == 1 else usual
            return [expected] * self._architecture.updates(self._setup.cell.clients)
        return [used for client in target.clients if (used := len(self._select_examples(client)))]

    @cached_property
    def _present(self) -> tuple[int, ...]:
        """The clients of the watched round; of all rounds for an attack that observes more than one."""
        if self._shares is not None:
            return tuple(sorted(self._shares))
        return tuple(sorted(self._observed))

    @cached_property
    def _observed(self) -> Mapping[int, Sequence[LocalTraining]]:
        """By client, the trainings behind its first update in the watched round, or in all rounds."""
        first, last = 1, self._setup.cell.training.rounds
        if self._attack.watches == "round":
            first = last = self._wants.round
        found: dict[int, list[LocalTraining]] = {}
        for one in self._architecture.participants(self._setup, range(first, last + 1)):
            found.setdefault(one.client, []).append(one)
        return found

    def _target(self, clients: tuple[int, ...], number: int) -> InferenceTarget:
        truth = join_examples([self._select_examples(client) for client in clients])
        if self._attack.goal != "membership":
            return InferenceTarget(clients, truth)
        rng = self._rng.child("candidates", number)
        inside, outside = alike(truth, self._task.dataset.test, self._wants.candidates, rng)
        order = torch.randperm(len(inside) + len(outside), generator=rng.child("order").torch())
        return InferenceTarget(clients, truth, join_examples([inside, outside])[order], order < len(inside))

    def _select_examples(self, client: int) -> Examples:
        """The examples that a client used in the watched round; all of them if the target is the client or several rounds."""
        if self._attack.watches != "round" or self._attack.goal == "property":
            return self._task.examples(client)
        plan, rng = honest_plan(self._setup), self._setup.rng.child
        used = [
            self._task.examples_used(client, replace(plan, shares={client: one.share}), rng("round", one.turn))
            for one in self._observed[client]
        ]
        return used[0] if len(used) == 1 else join_examples(used)


def alike(members: Examples, others: Examples, most: int, rng: Rng) -> tuple[Examples, Examples]:
    """Members and non-members with the same shares of each class, at most the given number of either.

    A client's labels are distributed differently from all examples, so unmatched candidates could be distinguished by class
    alone, which is no membership inference. Class c has ``m_c = min(members, k others)`` members, where k is the overall ratio
    of members to others (1 at least), and ``floor(r m_c)`` others, with the largest r that all classes allow.
    """
    classes = sorted(set(members.y.tolist()))
    counts = {c: (int((members.y == c).sum()), int((others.y == c).sum())) for c in classes}
    times = max(1.0, len(members) / max(1, len(others)))
    kept = {c: int(min(inside, times * outside)) for c, (inside, outside) in counts.items()}
    ratio = min((counts[c][1] / kept[c] for c in classes if kept[c]), default=0.0)

    def draw_examples(examples: Examples, share: Mapping[int, int], name: str) -> Examples:
        order = torch.randperm(len(examples), generator=rng.child(name).torch())
        rows = [order[examples.y[order] == c][: share[c]] for c in classes]
        kept = torch.cat(rows) if rows else order[:0]
        return examples[kept[torch.randperm(len(kept), generator=rng.child(name, "cut").torch())[:most]]]

    return draw_examples(members, kept, "in"), draw_examples(others, {c: int(ratio * kept[c]) for c in classes}, "out")


def join_examples(parts: Collection[Examples]) -> Examples:
    """All examples of several parts, in order."""
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
