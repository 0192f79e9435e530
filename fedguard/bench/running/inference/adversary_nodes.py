"""The adversary nodes of one trial: their position, and what they infer from the messages that they receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedguard.bench.running.inference.targets import join_examples
from fedguard.config import PlannedCell
from fedguard.contracts import (
    Examples,
    InferenceAttack,
    Listeners,
    Observer,
    RoundObservation,
    SentRound,
    Setup,
    Sight,
    first_met,
)
from fedguard.inference import Adapt
from fedguard.tasks.classification import Classification


class AdversaryNodes:
    """The adversary nodes of one trial, which pool the messages that they receive.

    Which updates they can solve for is known before the training. They solve for them from the received vectors, and know
    nothing else of the other nodes' updates.
    """

    def __init__(self, cell: PlannedCell, setup: Setup) -> None:
        assert cell.inference is not None
        self._attack: InferenceAttack = cell.inference
        self._wants, self._setup, self._sums = cell.config.observer, setup, cell.verdict.inference_sees
        rounds = setup.cell.training.rounds
        until = min(rounds, self._wants.round + self._wants.listens) if self._attack.watches == "round" else rounds
        self._listeners: Listeners = cell.architecture.listeners(setup, self._wants.seat, self._wants.nodes, until)
        self._off: list[float] = []
        #: Which coordinates of an update they have, by target, where not all.
        self.known: dict[tuple[int, ...], Tensor] = {}

    @property
    def observer(self) -> Observer:
        """The observer of the training: the nodes only listen."""
        one = self._attack.watches == "round"
        return Observer(
            self._wants.round if one else None, seat=self._listeners.nodes, listens=self._wants.listens if one else 0
        )

    @cached_property
    def sees(self) -> Sight:
        """The attack's view: single updates if the nodes can solve for any; else a sum, if the attack works on sums."""
        sees = self._sums
        if Sight.EACH_UPDATE in sees and self._attack.watches != "model" and not self.solved:
            return first_met(self._attack.needs, Sight.SUM | Sight.MODEL | Sight.ROOT_DATA) or sees
        return sees

    @cached_property
    def solved(self) -> Mapping[int, float]:
        """By client, the share of its update that they can solve for; clients without any are left out."""
        if self._attack.watches == "model":
            return {}
        found: dict[int, float] = {}
        for round in self._rounds:
            for node, share in self._listeners.reads(round).items():
                found[node] = max(share, found.get(node, 0.0))
        return found

    @property
    def shares(self) -> Mapping[int, float]:
        """The clients that they can attack, each with the share of its update that they know."""
        if self._attack.watches == "model":
            clients = range(self._setup.cell.clients.total)
            return {client: 1.0 for client in clients if client not in self._listeners.nodes}
        if Sight.EACH_UPDATE in self.sees:
            return self.solved
        return dict.fromkeys(self._behind, 1.0)

    @property
    def nothing(self) -> str:
        """Why they can attack no client."""
        when = f"of round {self._wants.round}" if self._attack.watches == "round" else "of any round"
        least = "" if Sight.SUM in self.sees or self._behind else ", and have no sum of updates alone"
        return (
            f"{self._attack.name}: {self.party} can solve for nobody's update {when}{least}. Set observer.round: 1 or another "
            "seat, or let more nodes pool what they hear."
        )

    @property
    def party(self) -> str:
        """The nodes, in words."""
        nodes = list(map(str, self._listeners.nodes))
        return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(nodes[:-1])} and {nodes[-1]}"

    @property
    def vector(self) -> str:
        """What the attack looks at, in words."""
        if Sight.EACH_UPDATE in self.sees:
            return "one node's update, as far as it could be solved for"
        return f"the mean of {len(self._behind)} nodes' updates"

    def examples(self, task: Classification) -> Examples:
        """Their own examples, from the same kind of data as the others'."""
        return join_examples([task.examples(node) for node in self._listeners.nodes])

    def select_rounds(self, every: Sequence[RoundObservation], clients: tuple[int, ...]) -> list[RoundObservation]:
        """The rounds in which they know the update of these clients, as they observe them.

        Args:
            every: the rounds in which they listened, from the first.
        """
        if self._attack.watches == "model":
            return []
        alone = Sight.EACH_UPDATE in self.sees
        return [
            self._round(every, round, clients)
            for round in self._rounds
            if (clients[0] in self._listeners.reads(round) if alone else self._listeners.sum_of(round))
        ]

    def _round(self, every: Sequence[RoundObservation], round: int, clients: tuple[int, ...]) -> RoundObservation:
        behind = clients if Sight.EACH_UPDATE in self.sees else self._listeners.sum_of(round)
        found, after = self._listeners.solve_update(every, round, behind), every[round - 1].after
        if found.known is not None and not bool(found.known.all()):
            self.known[clients] = found.known
        if len(behind) == 1:
            known = torch.ones_like(found.update, dtype=torch.bool) if found.known is None else found.known
            there = every[round - 1].sent
            true = there.updates[there.senders.index(behind[0])]
            self._off.append(float((found.update - true)[known].norm() / true.norm().clamp(min=1e-30)))
        sent = SentRound(round, found.model, found.update[None], behind)
        return RoundObservation(sent, after, (behind,), found.update[None], None)

    def describe_nodes(self) -> dict[str, Any]:
        """The nodes in the record, after all targets were attacked."""
        return {
            "place": self._wants.seat,
            "nodes": list(self._listeners.nodes),
            "solved": {str(node): share for node, share in sorted(self.solved.items())},
            "whole": sum(share == 1 for share in self.solved.values()),
            "off": max(self._off) if self._off else None,
        }

    @property
    def _rounds(self) -> range:
        one = self._wants.round
        return (
            range(one, one + 1) if self._attack.watches == "round" else range(1, self._setup.cell.training.rounds + 1)
        )

    @cached_property
    def _behind(self) -> tuple[int, ...]:
        return next((behind for round in self._rounds if (behind := self._listeners.sum_of(round))), ())


def where_known(adapt: Adapt, known: Tensor | None) -> Adapt:
    """The same comparison, on the known coordinates only; on all coordinates for None."""
    if known is None:
        return adapt
    there = known.clone()

    def restrict_pair(dummy: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        one, other = adapt(dummy, observed)
        return one * there, other * there

    return restrict_pair
