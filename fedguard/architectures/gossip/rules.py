"""The rule of the cell at each node of a training without a server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedguard.aggregation import aggregate
from fedguard.architectures.gossip.place import Destination, Key
from fedguard.architectures.root import loss_on
from fedguard.architectures.rule_context import noise_of, rule_context
from fedguard.contracts import Pipeline, SentRound, Setup, State
from fedguard.errors import PreconditionError
from fedguard.kernels import unusable_rows


def weighs_by_graph(pipeline: Pipeline) -> bool:
    """Whether the rule is given the graph's weight of each row: not after a mixing, unless it looks up whose row it is."""
    return not pipeline.mixings or pipeline.rule.reads_clients


class Rules:
    """The rule at each node, with counts of what happened in this round.

    Attributes:
        states: states of the rule, by destination.
        acting: nodes that lie in this round; their rules do not count.
        outvoted: number of nodes with more malicious rows than the assumed f.
        abandoned: number of nodes at which the rule could not run.
        not_finite: nodes that sent values that are not finite.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup, self._round = setup, 0
        self.states: dict[Key, tuple[State, ...]] = {}
        self.begin(0, frozenset())

    def begin(self, round: int, acting: frozenset[int]) -> None:
        """A round begins (from 1)."""
        self._round, self.acting = round, acting
        self.outvoted, self.abandoned, self.not_finite = 0, 0, set[int]()

    def abandon(self, node: int) -> None:
        """The rule could not run at a node."""
        self.abandoned += node not in self.acting

    def aggregate_rows(self, place: Destination, sent: SentRound, exchange: int) -> Tensor:
        """float32 ``[d]``: R of these rows; the node's own row if R cannot run on them."""
        setup, node = self._setup, place.node
        assumed_f = setup.assume_f_among(len(sent.senders))
        bad = [sent.senders[row] for row in unusable_rows(sent.updates)]
        self.not_finite.update(bad)
        if node in bad:
            return torch.zeros_like(place.about)
        # Honest values are finite, so each dropped row was one of the malicious ones that the rule assumes
        sent, assumed_f = sent.without(bad), max(0, assumed_f - len(bad))
        own = sent.senders.index(node)
        if node not in self.acting:
            self.outvoted += len(sent.malicious & set(sent.senders)) > assumed_f
        context = rule_context(setup, place.model, self._round, assumed_f).restrict(
            "node",
            setup.cell.rule_sees,
            rng=setup.rng.child("rule", exchange, "node", node),
            clients=sent.senders,
            samples=self._samples(place, sent.senders),
            noise=noise_of(setup, sent.senders),
            own=own,
            mixing=place.mixing(sent.senders) if weighs_by_graph(setup.cell.pipeline) else None,
            root=sent.updates[own],
            root_loss=partial(loss_on, setup, node),
        )
        try:
            found = aggregate(setup.cell.pipeline, sent.updates, context, self.states.get(place.key, ()))
        except PreconditionError:
            self.abandon(node)
            return sent.updates[own].clone()
        self.states[place.key] = found.states
        return found.vector

    def _samples(self, place: Destination, clients: Sequence[int]) -> Tensor:
        """float64 ``[n]``: number of examples that each of them claims, or its claimed share of all in this exchange."""
        claims: Sequence[float] = self._setup.claims
        if place.links is not None and place.weights is not None:
            claims = place.weights.tolist()
        return torch.tensor([claims[client] for client in clients], dtype=torch.float64)
