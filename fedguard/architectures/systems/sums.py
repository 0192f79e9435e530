"""The exchange of an all-reduce: sums in the order of its topology, of floats or masked ring elements, and false sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.by_node import by_node
from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.collectives.schedule import Schedule, simulate_chunk
from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.masking.pairwise import KEY, PairwiseKeys
from fedguard.architectures.masking.plain import PlainReceiver
from fedguard.architectures.rounds import RoundPlan, ServerStep
from fedguard.architectures.systems.peers import ELEMENT, HASH, PeerRun
from fedguard.contracts import (
    MaskedRound,
    NodesReport,
    ReceivedRound,
    RoundReport,
    SentRound,
    Setup,
)
from fedguard.contracts.lying import Channels
from fedguard.contracts.wire import UNUSABLE
from fedguard.kernels import all_finite
from fedguard.secagg.encoding import Encoding


class Exchange(Protocol):
    """What is settled of an exchange before it runs: see `fedguard.architectures.systems.all_reduce.AllReduce`."""

    @property
    def group(self) -> int | None: ...
    @property
    def masks(self) -> int | None: ...
    @property
    def hashes(self) -> bool: ...
    @property
    def channels(self) -> Channels: ...
    def schedule(self, nodes: int) -> Schedule: ...
    def encoding(self, largest_weight: int) -> Encoding: ...


class Collective(PeerRun):
    """The exchange of one training."""

    def __init__(self, system: Exchange, setup: Setup) -> None:
        super().__init__(setup, system.channels)
        self.system = system

    @property
    def width(self) -> int:
        """Elements of a vector: the coordinates, and one for the number of examples with weights by samples or under masks."""
        return len(self.model) + (self.setup.cell.pipeline.rule.by_samples or self.system.masks is not None)

    def exchange(self, nodes: Sequence[int], round: int) -> float:
        seconds = self.carry(self.schedule(nodes), self.width, nodes)
        if not self.system.hashes:
            return seconds
        told = dict.fromkeys(nodes, (len(nodes) - 1) * HASH)
        return seconds + self.send_at_once(told, told)

    def schedule(self, nodes: Sequence[int]) -> Schedule:
        """The messages among these nodes; one ring if the nodes left cannot be dealt into groups of equal size."""
        group = self.system.group
        if group is not None and len(nodes) % group:
            return build_schedule("ring", len(nodes), 1)
        return self.system.schedule(len(nodes))


class AllToAllRun(Collective):
    """Each node has all updates, and runs the rule itself; with a common seed all get the same aggregate."""

    def __init__(self, system: Exchange, setup: Setup) -> None:
        super().__init__(system, setup)
        self._receiver = PlainReceiver(setup)

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        return self._receiver.receive(sent)


class SumRun(Collective):
    """Each node has the sum in the order of the topology: of floats, or of masked ring elements."""

    def __init__(self, system: Exchange, setup: Setup) -> None:
        super().__init__(system, setup)
        self._weighted = setup.cell.pipeline.rule.by_samples
        # Of the claims, since a malicious node's may be the largest, and the ring must hold it
        self._encoding = system.encoding(max(setup.claims) if self._weighted else 1)
        if system.masks:
            self._encoding.check(len(setup.claims))
        self._pairs = PairwiseKeys()

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        nodes = sent.clients
        # Nobody sees the single updates, so one that is not finite cannot be left out: the round is lost
        if (bad := sent.of_fate(*UNUSABLE)) or not nodes:
            return _nothing(sent, f"{len(bad)} of {len(nodes)} nodes sent what is not finite, and so was the sum")
        # Of two nodes each could subtract its own update from the sum
        if self.system.masks and len(nodes) < 3:
            return _nothing(sent, f"{len(nodes)} nodes came, and it takes at least 3 for a sum to hide any")
        if not all(map(all_finite, sent.added.values())):
            return _nothing(sent, "a node passed on a sum that was not finite")
        weights, masked = self._weights(sent), None
        if self.system.masks:
            mean, masked = self._of_masked(sent, weights)
        else:
            mean = self._of_floats(sent, weights)
        if not all_finite(mean):
            return _nothing(sent, "the sum was not finite")
        return ReceivedRound(
            rows=mean[None],
            behind=(nodes,),
            samples=torch.tensor([sum(weights[node] for node in nodes)], dtype=torch.float64),
            assumed_f=min(self.setup.assume_f_among(len(nodes)), 1),
            clients=nodes,
            sent=sent,
            masked=masked,
        )

    def _weights(self, sent: SentRound) -> list[int]:
        """The factor of each node's update, for all nodes."""
        if not self._weighted:
            return [1] * len(self.setup.claims)
        sizes, claims = self.setup.task.sizes, self.setup.claims
        return [claims[node] if node in sent.malicious else size for node, size in enumerate(sizes)]

    def _of_floats(self, sent: SentRound, weights: Sequence[int]) -> Tensor:
        """float32 ``[d]``: the mean, which is the same at all nodes."""
        # A finished chunk is passed on as it is, so all nodes have the same bits, and the first is enough
        return self.ends(sent, weights, 1)[0]

    def ends(self, sent: SentRound, weights: Sequence[int], some: int | None = None) -> Tensor:
        """float32 ``[n, d]``: the mean as each node has it.

        Args:
            some: number of first nodes to compute it for; None for all.
        """
        nodes = sent.clients
        parts = [sent.updates[sent.senders.index(node)] for node in nodes]
        if self._weighted:
            parts = [part * weights[node] for part, node in zip(parts, nodes, strict=True)]
        added, handed = (
            {nodes.index(node): vector for node, vector in lies.items()} for lies in (sent.added, sent.handed)
        )
        total = float(sum(weights[node] for node in nodes))
        return self.sum_vectors(self.schedule(nodes), parts, added, handed, some) / total

    def cuts(self, schedule: Schedule) -> list[slice]:
        """Where the model's coordinates are cut; the last element that is sent may be the number of examples."""
        return [slice(cut.start, min(cut.stop, len(self.model))) for cut in schedule.cuts(self.width)]

    def sum_vectors(
        self,
        schedule: Schedule,
        vectors: Sequence[Tensor],
        added: Mapping[int, Tensor],
        handed: Mapping[int, Tensor],
        some: int | None,
    ) -> Tensor:
        """float32 ``[n, d]``: the sum that each node ends with, added up chunk by chunk in the order of the messages.

        Args:
            vectors: float32 ``[d]`` of each node.
            added: by node, what a malicious node adds to the first sum of others that it passes on.
            handed: by node, what a malicious node adds to each finished sum that it passes on.
            some: number of first nodes to compute it for; None for all.
        """
        sums = self.model.new_empty(len(vectors) if some is None else some, len(self.model))
        # In float32 and in the topology's order, so that rounding is as it would be in a real run
        for chunk, cut in enumerate(self.cuts(schedule)):
            more, other = ({node: vector[cut] for node, vector in lies.items()} for lies in (added, handed))
            ends = simulate_chunk(schedule, chunk, [vector[cut] for vector in vectors], added=more, handed=other)
            # Not strict: `some` may ask for fewer nodes than there are
            for whole, end in zip(sums, ends, strict=False):
                whole[cut] = end
        return sums

    def _of_masked(self, sent: SentRound, weights: Sequence[int]) -> tuple[Tensor, MaskedRound]:
        """The mean from masked ring elements, and a report of the masks. Keys count as traffic and take no time."""
        setup, encoding, nodes, schedule = (
            self.setup,
            self._encoding,
            sent.clients,
            self.schedule(sent.clients),
        )
        _, handed = self._pairs.introduce(nodes)
        self.world.spent.add_bytes(KEY * handed, KEY * handed)
        inputs = Inputs(sent, encoding, None, weights, setup.rng.child("masking"), "all")
        vectors = [self.message(inputs, node, sent) for node in nodes]
        added = {nodes.index(node): self._encode_addend(vector, node, inputs) for node, vector in sent.added.items()}
        total = np.empty_like(vectors[0])
        for chunk, cut in enumerate(schedule.cuts(self.width)):
            more = {node: vector[cut] for node, vector in added.items()}
            # Addition in the ring is exact, so the order does not matter, and any node's sum will do
            total[cut] = simulate_chunk(schedule, chunk, [vector[cut] for vector in vectors], added=more)[0]
        summed, weight = encoding.decode(total, dim=inputs.dim, seed=inputs.seed)
        # Malicious weights are in the sum, too, and may take it to 0 or below
        mean, true = torch.from_numpy(summed / max(weight, 1)), inputs.mean(nodes)
        return mean.to(self.model.dtype), MaskedRound(
            clients=len(nodes),
            sessions=1,
            aborted=(),
            survivors=len(nodes),
            anonymity=len(nodes) - setup.cell.protocol.colluders(len(nodes)),
            contributors=None,
            error=float((mean - true).norm() / true.norm()) if true.norm() > 0 else None,
            clipped=inputs.mean_clip_fraction(nodes),
            bytes_up=ELEMENT * sum(schedule.traffic(self.width).sent) + KEY * handed,
            bytes_down=0,
        )

    def message(self, inputs: Inputs, node: int, sent: SentRound) -> NDArray[np.uint32]:
        """uint32 ``[d + 1]``: masked update and number of examples that a node puts in."""
        vector = inputs.encode_update(node).astype(np.uint32)
        self._pairs.mask(vector, node, sent.clients, sent)
        return vector

    def _encode_addend(self, added: Tensor, node: int, inputs: Inputs) -> NDArray[np.uint32]:
        """uint32 ``[d + 1]``: what a malicious node adds to a masked sum; its number of examples is 0."""
        bits = inputs.rounding("addend", node)
        vector = self._encoding.encode_raw(added.numpy(), weight=1, seed=inputs.seed, entropy=bits).astype(np.uint32)
        # The encoding appends the weight, and what is added on the way is nobody's update
        vector[-1] = 0
        return vector


class SplitRun(SumRun):
    """The sums if some nodes pass on false ones: each node has a model of its own.

    Malicious nodes know the honest nodes' mean model, and the rule works on it.
    """

    def __init__(self, system: Exchange, setup: Setup) -> None:
        super().__init__(system, setup)
        n = setup.cell.clients.total
        self._models = self.model.expand(n, -1).clone()
        # Momentum follows each node's own sums, which differ
        self._steps = [ServerStep(setup.cell, self.model) for _ in range(n)]
        self._honest = tuple(node for node in range(n) if node not in setup.malicious)
        self._means: dict[int, Tensor] = {}
        self._messages = 0
        self._links: tuple[tuple[int, int], ...] = ()

    @property
    def starts(self) -> Tensor:
        return self._models

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        self._means = {}
        found = super().receive_updates(sent)
        honest = [self._means[node] for node in self._honest if node in self._means]
        if not all(map(all_finite, honest)):
            return _nothing(sent, "a node handed on a sum that was not finite")
        # Equal to the last bit: honest nodes add up in one order, so only a false sum makes hashes differ
        if self.system.hashes and len({sha256(mean.numpy().tobytes()).digest() for mean in honest}) > 1:
            return _nothing(sent, "the nodes' sums differ, as their hashes tell")
        return found

    def _of_floats(self, sent: SentRound, weights: Sequence[int]) -> Tensor:
        """float32 ``[d]``: mean over the honest nodes of what they end with; each node's own mean is kept."""
        schedule, nodes = self.schedule(sent.clients), sent.clients
        ends = self.ends(sent, weights)
        self._means = dict(zip(nodes, ends, strict=True))
        self._messages += sum(map(len, schedule.steps))
        self._links = tuple(sorted({(nodes[one.source], nodes[one.to]) for step in schedule.steps for one in step}))
        return torch.stack([self._means[node] for node in self._honest if node in self._means]).mean(0)

    def move(self, vector: Tensor, received: ReceivedRound) -> None:
        for node, mean in self._means.items():
            self._models[node] = self._steps[node].apply_update(self._models[node], mean)
        # The model that is reported: malicious nodes may hold anything, so they do not count
        self.model = self._models[list(self._honest)].mean(0)

    def complete_report(self, plan: RoundPlan, received: ReceivedRound, report: RoundReport) -> RoundReport:
        nodes = NodesReport(self._messages, self._links)
        found = replace(super().complete_report(plan, received, report), nodes=nodes)
        own = self._models[list(self._honest)]
        return by_node(self.setup, self.clients, own, self._honest, found) if plan.due else found


def _nothing(sent: SentRound, why: str) -> ReceivedRound:
    return ReceivedRound(sent.updates[:0], (), None, 0, sent.clients, sent, why=why)


@cache
def build_schedule(topology: str, nodes: int, group: int) -> Schedule:
    """The messages among ``nodes`` nodes; ``group`` is the group size of a hierarchy."""
    return TOPOLOGIES[topology](nodes, group)
