"""Nodes without a server, in rounds: all train from one model, exchange updates, and each computes the same next model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from fedguard.architectures.collectives.schedule import CollectiveCost, Schedule
from fedguard.architectures.rounds import RoundPlan, Rounds, count_outvoted
from fedguard.architectures.rule_context import ColluderPipeline
from fedguard.architectures.times import moment, world
from fedguard.contracts import (
    Architecture,
    Cell,
    LocalTraining,
    ReceivedRound,
    RoundReport,
    SentRound,
    Setup,
    State,
)
from fedguard.contracts.lying import Channels
from fedguard.memmap import round_buffer

#: Bytes of an element: a float32 or a ring element.
ELEMENT = 4
#: Bytes of a hash.
HASH = 32
#: Largest number of nodes: n nodes send some 2 n^2 messages in a round, and simulating each takes seconds.
MOST_NODES = 500


class Peers(Architecture):
    """Base of architectures of peers. Each node does a server's work, its rule and its optimizer's step, for itself.

    All nodes take part in each round. A node that is silent when a round begins has no part in it: the others close the gap.
    A suite without ``network:`` has the defaults of `fedguard.contracts.Network`.
    """

    in_time = True

    def reasons(self, cell: Cell) -> Iterator[str]:
        name = self.name
        if cell.clients.expected < cell.clients.total or cell.clients.schedule:
            yield (
                f"under {name} all nodes take part in each round. Set clients.per_round: 1.0 and leave out clients.schedule, "
                "or use server."
            )
        if cell.clients.total > MOST_NODES:
            yield (
                f"{name} tells the messages among {cell.clients.total:,} nodes one by one, which takes too long. Set "
                f"clients.total to {MOST_NODES} at most, or use server."
            )
        if cell.protocol.dropout.rate:
            yield f"under {name} one silent node holds up all others. Leave out protocol.dropout, or use server."
        if cell.masking.masked:
            yield (
                "a session of secure aggregation has a server that hands its messages around, and "
                f"{name} has none. Set secure_aggregation: none, and set masks of all_reduce; or use server."
            )
        if cell.noise.added_by == "server":
            yield f"{name} has no server that could be trusted to add noise. Use privacy: {{name: record}}, or server."
        if not cell.algorithm.only_updates:
            yield (
                f"{cell.algorithm.name} carries more than updates from one round to the next, and {name} carries "
                "updates alone. Use fedavg, fedsgd or fedprox, or server."
            )
        if cell.inference is not None and not cell.lookers:
            yield (
                f"{cell.inference.name} watches rounds of server, which {name} does not have. Use server, or set "
                "observer.seat to nodes that hear each other."
            )
        if cell.loses:
            yield (
                f"under {name} every node waits for the one before it, and one that network loses would be waited for for "
                "ever. Leave out network.link.loss and network.availability, or use google."
            )

    @abstractmethod
    def start(self, setup: Setup) -> PeerRun:
        """One training."""

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        return self.start(setup).reports()


class PeerRun(Rounds[RoundPlan]):
    """One training, round by round."""

    def __init__(self, setup: Setup, asked: Channels) -> None:
        super().__init__(setup)
        self._asked = asked
        self.world = world(setup, self.model)
        self._buffer: Tensor | None = None
        self._traffic: dict[int, CollectiveCost] = {}
        self._seconds = 0.0

    @property
    def starts(self) -> Tensor | None:
        """float32 ``[n, d]``: the models from which nodes train; None if all have one model."""
        return None

    def nodes(self, round: int) -> Sequence[int]:
        """The nodes that take part, in ascending order."""
        return self.setup.choose_clients(round)

    @abstractmethod
    def exchange(self, nodes: Sequence[int], round: int) -> float:
        """Simulated seconds of the exchange among these nodes; its bytes and energy are charged to the world."""

    def carry(self, schedule: Schedule, width: int, nodes: Sequence[int]) -> float:
        """Simulated seconds of a collective on ``width`` elements among these nodes, step by step."""
        # By the number of nodes alone: width and kind of collective are the same in all rounds
        if schedule.nodes not in self._traffic:
            self._traffic[schedule.nodes] = schedule.traffic(width)

        def size(elements: Mapping[int, int]) -> dict[int, int]:
            return {nodes[place]: ELEMENT * count for place, count in elements.items()}

        steps = self._traffic[schedule.nodes].steps
        return sum(self.send_at_once(size(sent), size(received)) for sent, received in steps)

    def send_at_once(self, sent: Mapping[int, int], received: Mapping[int, int]) -> float:
        """Simulated seconds until messages, all sent at once, have arrived; their bytes are charged to the world.

        Args:
            sent, received: bytes by node. Links carry both directions at a time.
        """
        world = self.world
        world.spent.add_bytes(sum(sent.values()), sum(received.values()))
        up = [size / world.up[node] for node, size in sent.items()]
        down = [size / world.down[node] for node, size in received.items()]
        return world.latency + max(up + down, default=0.0)

    def visible_states(self) -> tuple[State, ...]:
        """States of the rule that malicious nodes know if they see all honest updates."""
        return self.states

    def ban_nodes(self, round: int, sent: SentRound, nodes: Sequence[int]) -> tuple[int, ...]:
        """Nodes that take no part in later rounds, for what they did in this one."""
        return ()

    def plan_rounds(self) -> Iterator[RoundPlan]:
        for round in range(1, self.setup.cell.training.rounds + 1):
            yield RoundPlan(round, round, tuple(self.nodes(round)), self.setup.due(round))

    def train(self, plan: RoundPlan, model: Tensor) -> SentRound:
        known = partial(ColluderPipeline, self.setup, model, plan.round, self.visible_states())
        self._buffer = round_buffer(len(plan.chosen), len(model), self.setup.memory, self._buffer)
        return self.clients.send(model, plan.round, plan.chosen, known, self._buffer, self.starts, self._asked)

    def complete_report(self, plan: RoundPlan, received: ReceivedRound, report: RoundReport) -> RoundReport:
        """Nodes find out in the same round what they have computed; all wait for the slowest, and then for the exchange."""
        began, round, nodes = self._seconds, plan.round, received.sent.clients
        banned = self.ban_nodes(round, received.sent, plan.chosen)
        ended = {node: began + self.world.compute(node, round) for node in nodes}
        self._seconds = max(ended.values(), default=began) + (self.exchange(nodes, round) if ended else 0.0)
        order = sorted(ended, key=lambda node: ended[node])
        found = moment(
            self.world,
            self._seconds,
            (0,) * len(received.clients),
            trainings=tuple(LocalTraining(node, began, ended[node]) for node in order),
            acting=self.setup.acting(round),
            outvoted=count_outvoted(received),
        )
        return replace(report, banned=banned, moment=found)
