"""A parameter server (Li et al., OSDI 2014): clients push and pull by themselves, and keys are spread over several servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.architectures.release import release_aggregate
from fedguard.architectures.rule_context import server_context
from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import Cell, Participation, PositiveInt, ReceivedRound, Setup, Sight, State
from fedguard.errors import PreconditionError
from fedguard.simulated.barriers import Barrier, asp, bsp, ssp


@dataclass(frozen=True, kw_only=True)
class ParameterServer(EventServer):
    """Clients push their updates and pull the model by themselves, from servers that hold a range of its coordinates each.

    $w <- w + eta u / n$ for the update u of each client as it comes, with eta the ``server_lr`` and n the number of clients
    that train at a time; or $w <- w + eta R(u_1, ..., u_n)$ with the rule R of the cell, if clients wait for each other.

    Args:
        consistency: ``sequential``: all clients wait for each other (BSP), and the rule aggregates their updates; ``bounded``:
            a client that has pushed t times starts again only when all others have pushed t - tau times (SSP); ``eventual``:
            nobody waits (ASP).
        tau: number of pushes by which a client may be ahead of the slowest, under ``bounded``.
        ranges: number of servers that share the coordinates, in contiguous ranges of nearly equal size. Each server runs the
            rule on its own range.
        shuffled: whether ranges are cut from a random order of the coordinates, drawn for each training. Otherwise they follow
            the order of the parameters, so that their content depends on the network: in ``softmax`` a few classes each.
    """

    name = "parameter_server"
    source = "Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014"

    consistency: Literal["sequential", "bounded", "eventual"] = "sequential"
    tau: Annotated[int, Ge(0)] = 4
    ranges: PositiveInt = 1
    shuffled: bool = False

    later: ClassVar = {"shuffled": False}

    @property
    def more_rows(self) -> str:
        single = "Here each update is an aggregate of its own: use mean, consistency='sequential', or fedbuff."
        return "" if self.consistency == "sequential" else single

    @property
    def carries(self) -> bool:
        return self.consistency == "sequential"

    def barrier(self, clients: Participation) -> Barrier:
        if self.consistency == "sequential":
            return bsp(clients.most)
        return ssp(self.tau) if self.consistency == "bounded" else asp()

    def gain(self, clients: Participation) -> float:
        """1 / n without rounds: a push is one n-th of a round of all clients."""
        return 1.0 if self.consistency == "sequential" else 1 / clients.expected

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if self.consistency == "bounded" and cell.clients.expected < cell.clients.total:
            yield "bounded delay counts the pushes of clients that are always there. Set clients.per_round: 1.0."
        if self.ranges > 1 and cell.noise.added_by == "server":
            yield (
                f"a server that adds noise clips an update by its whole length, and each of {self.ranges} servers has a range. "
                "Set ranges=1, or privacy: {name: record}."
            )
        whole = [stage.name for stage in cell.pipeline.stages if (Sight.MODEL | Sight.ROOT_DATA) & cell.rule_sees]
        if self.ranges > 1 and whole:
            yield (
                f"{' and '.join(whole)} works with the whole model, of which each of {self.ranges} servers has a range. "
                "Set ranges=1."
            )

    def check(self, setup: Setup) -> None:
        super().check(setup)
        if self.ranges > setup.task.dim:
            raise PreconditionError(
                f"{self.ranges:,} servers cannot have a range each of a model of {setup.task.dim:,} coordinates. Lower ranges."
            )

    def visible_states(self, states: tuple[State, ...]) -> tuple[State, ...]:
        """None with several ranges: the malicious clients' copy is one rule on all coordinates, without their states."""
        return states if self.ranges == 1 else ()

    def aggregate(
        self, setup: Setup, model: Tensor, round: int, received: ReceivedRound, states: tuple[State, ...]
    ) -> Aggregate | str:
        if self.ranges == 1 or not received.behind:
            return release_aggregate(setup, model, round, received, states)
        order = None
        if self.shuffled:
            # The same in every round: what a rule remembers of a range must stay about the same coordinates
            order = torch.from_numpy(setup.rng.child("coordinates").numpy().permutation(len(model)))
        return by_ranges(setup, model, round, received, states, self.ranges, order)


def by_ranges(
    setup: Setup,
    model: Tensor,
    round: int,
    received: ReceivedRound,
    states: tuple[State, ...],
    ranges: int,
    order: Tensor | None = None,
) -> Aggregate | str:
    """The rule applied to each range of the coordinates by itself; or why there is no aggregate.

    Args:
        states: states of the stages of each range, one range after another; empty in a first round.
        order: int64 ``[d]``: order in which the coordinates are cut; the order of the parameters if None.
    """
    cuts = (torch.arange(len(model)) if order is None else order).tensor_split(min(ranges, len(model)))
    each = len(states) // len(cuts)
    vector = torch.zeros_like(model)
    after: list[State] = []
    try:
        for index, keys in enumerate(cuts):
            # Servers do not share randomness: a stage that deals rows into buckets does so anew for each range
            rng, layers = setup.rng.child("rule", round, index), _within(setup.task.layers, keys)
            context = server_context(setup, model, round, received, f"server {index}", rng=rng, layers=layers)
            kept = states[index * each : (index + 1) * each]
            found = aggregate(setup.cell.pipeline, received.rows[:, keys], context, kept)
            vector[keys] = found.vector
            after += found.states
    except PreconditionError as error:
        return str(error)
    return Aggregate(vector, None, tuple(after))


def _within(layers: tuple[int, ...], keys: Tensor) -> tuple[int, ...]:
    """Numbers of coordinates of each layer in a range, without empty ones."""
    ends = torch.tensor(layers).cumsum(0)
    sizes = torch.bincount(torch.searchsorted(ends, keys, right=True), minlength=len(layers))
    return tuple(size for size in sizes.tolist() if size > 0)
