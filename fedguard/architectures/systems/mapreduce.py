"""MapReduce: a round ends with its slowest client, and combiners merge updates (Dean & Ghemawat, OSDI 2004)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import (
    Cell,
    Exposure,
    Masking,
    Participation,
    PlainReceiver,
    PositiveInt,
    ReceivedRound,
    Receiver,
    SentRound,
    Setup,
    Share,
    Sight,
    first_met,
)
from fedguard.kernels import combine_rows
from fedguard.simulated.barriers import Barrier, bsp


@dataclass(frozen=True, kw_only=True)
class MapReduce(EventServer):
    """Rounds that end with their slowest client, and combiners that hide single updates from the server.

    $w <- w + server_lr * R(m_1, ..., m_k)$ with $m_j$ the mean of the updates of combiner j, as soon as all are done.

    Clients map; combiners and the server reduce. The clients of a round are dealt anew to k combiners in groups of sizes that
    differ by one at most. The server sees no single update, so rules that need single updates are refused. Each malicious
    client may spoil one of the k means.

    With ``backup``, when all but this share of a round's tasks are done, each awaited task starts a second time on another idle
    device with the same examples; the first copy to end counts. So client i + 1 needs a copy of the examples of client i:
    they have left their client, against the promise of federated learning.

    Args:
        combiners: k, at most the clients of a round. With one combiner the server has only the mean; with as many as clients
            it sees each update. If Poisson sampling draws fewer than k clients, some combiners send nothing.
        backup: share of a round's tasks, rounded up, that get a second copy; None for no copies, and no examples that move.
    """

    name = "mapreduce"
    source = "Dean and Ghemawat, MapReduce: Simplified Data Processing on Large Clusters, OSDI 2004"
    exposes = Exposure(server=Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL, clients=EventServer.exposes.clients)

    combiners: PositiveInt = 5
    backup: Share | None = None

    @property
    def more_rows(self) -> str:
        return "Here n counts combiners: raise their number."

    def barrier(self, clients: Participation) -> Barrier:
        # A share that is a whole number of tasks but for rounding must not start a further copy
        return replace(bsp(clients.most), backups=math.ceil((self.backup or 0) * clients.expected - 1e-9))

    def rows(self, updates: int) -> int:
        return min(self.combiners, updates)

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if self.combiners > cell.clients.expected:
            yield (
                f"a combiner that gets no update has no mean, and mapreduce has {self.combiners} for {cell.clients.expected} "
                f"clients of a round. Lower combiners to {cell.clients.expected}, or raise clients.per_round."
            )
        if self.backup and cell.adversary is not None:
            yield (
                "a malicious device that runs a backup task of mapreduce would answer for an honest client, which is not "
                "simulated. Leave out backup, or the attack."
            )
        if self.backup and cell.training.worker_momentum:
            yield (
                "the device that runs a backup task of mapreduce has a client's examples, and not its momentum. Leave out "
                "backup, or set training.worker_momentum: 0."
            )
        if self.backup and cell.protocol.private:
            yield (
                "a backup task of mapreduce trains on a client's examples on another device: what is hidden lies with two, and "
                "is released twice. Leave out backup, or privacy."
            )
        if cell.protocol.masked:
            yield (
                "the combiners of mapreduce add up updates of groups of their own, which a session of secure aggregation does "
                "not know. Set secure_aggregation: none, or use server with secure_aggregation: {groups: ...}."
            )
        looking = [
            stage.name
            for stage in cell.pipeline.stages
            if stage.reads_clients and not stage.by_samples and first_met(stage.needs, self.exposes.server) is not None
        ]
        if looking:
            yield (
                f"{' and '.join(looking)} looks up the client behind each row; under mapreduce a row is a mean of several. "
                "Use server."
            )

    def as_trained(self, setup: Setup) -> Setup:
        combined = CombinerMasking(combiners=self.combiners)
        return setup.with_parts(protocol=replace(setup.cell.protocol, secure_aggregation=combined))


@dataclass(frozen=True, kw_only=True)
class CombinerMasking(Masking):
    """Updates travel unmasked, and the server gets the mean of each combiner; not a mode that a suite can set."""

    name = "combined"
    hides = Sight.EACH_UPDATE
    shows = Sight.GROUP_SUMS | Sight.SUM
    masked = False
    words = "The server sees the mean of each combiner."
    cost = "nothing: each update travels as it is"

    combiners: int

    def rows(self, clients: int) -> int:
        return min(self.combiners, clients)

    def receiver(self, setup: Setup) -> Receiver:
        return CombinerReceiver(setup, self.combiners)


class CombinerReceiver(PlainReceiver):
    """One row for each combiner that received an update."""

    def __init__(self, setup: Setup, combiners: int) -> None:
        super().__init__(setup)
        self.combiners = combiners

    def receive(self, sent: SentRound) -> ReceivedRound:
        each = super().receive(sent)
        if not each.behind or each.samples is None:
            return each
        by_samples = self.setup.cell.pipeline.rule.by_samples
        # Weighted within a group as well as across them: only then is the mean of the means the mean of all
        weights = each.samples if by_samples else torch.ones_like(each.samples)
        groups = self.groups(sent, each)
        means = [combine_rows(each.rows[group], weights[group] / weights[group].sum()) for group in groups]
        return replace(
            each,
            rows=torch.stack(means),
            behind=tuple(tuple(each.behind[row][0] for row in group.tolist()) for group in groups),
            samples=torch.stack([each.samples[group].sum() for group in groups]) if by_samples else None,
            # In the worst case every malicious client is in another group
            assumed_f=min(self.spoilers(each), len(groups)),
        )

    def groups(self, sent: SentRound, each: ReceivedRound) -> list[Tensor]:
        """Indices of the rows of each group, int64 ``[.]``; no group is empty."""
        # Dealt among what arrived, after dropouts, so that no combiner is empty while others have several
        order = torch.randperm(len(each.behind), generator=self.setup.rng.child("combiners", sent.round).torch())
        return [group.sort().values for group in order.tensor_split(min(self.combiners, len(order)))]

    def spoilers(self, each: ReceivedRound) -> int:
        """Largest number of groups that malicious clients may spoil."""
        return each.assumed_f
