"""The context in which the server's rule runs, and the malicious clients' copy of the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedguard.aggregation import KnownPipeline
from fedguard.contracts import Gram, Mixing, Pipeline, ReceivedRound, RuleContext, Setup, Sight, State, scale_assumed_f
from fedguard.privacy.central import ServerClipping


def rule_context(setup: Setup, model: Tensor, round: int, assumed_f: int) -> RuleContext:
    """What the server sees beside the updates, without its root data and the senders."""
    return RuleContext(
        "server",
        setup.cell.rule_sees,
        f=assumed_f,
        round=round,
        rng=setup.rng.child("rule", round),
        layers=setup.task.layers,
        shape=setup.task.shape,
        server_lr=setup.cell.server_step,
        model=model,
        predict=setup.task.logits,
    )


def noise_of(setup: Setup, clients: Sequence[int]) -> Tensor | None:
    """float64 ``[n]``: noise multiplier times clipping bound of each client's privacy level; None if clients add no noise."""
    private = setup.local_plan.private
    if private is None:
        return None
    return torch.tensor([clip * noise for clip, noise in map(private.level, clients)], dtype=torch.float64)


def server_context(
    setup: Setup, model: Tensor, round: int, received: ReceivedRound, party: str = "server", **own: Any
) -> RuleContext:
    """What a server sees of the rows that arrived, with values of its ``own``; who sent them unless rows cover groups."""
    single = None if _of_groups(received) else tuple(client for (client,) in received.behind)
    return rule_context(setup, model, round, received.assumed_f).restrict(
        party,
        setup.cell.rule_sees,
        clients=single,
        samples=received.samples,
        noise=None if single is None else noise_of(setup, single),
        **_times_of(setup, received),
        **own,
    )


def _of_groups(received: ReceivedRound) -> bool:
    """Whether a row may cover several clients."""
    return received.masked is not None or any(len(row) != 1 for row in received.behind)


def _times_of(setup: Setup, received: ReceivedRound) -> dict[str, Any]:
    """The values of `RuleContext` that `Sight.TIMES` grants: when each row arrived, and from which model it was trained."""
    trainings = received.sent.trainings
    if Sight.TIMES not in setup.cell.rule_sees or _of_groups(received):
        return {}
    return {
        "staleness": torch.tensor([one.staleness for one in trainings]),
        "versions": torch.tensor([one.version for one in trainings]),
        "arrived": torch.tensor([one.ended for one in trainings], dtype=torch.float64),
        "scale": torch.tensor([one.scale for one in trainings], dtype=torch.float64),
        "federation": (setup.cell.assumed_f, setup.cell.clients.total),
        "starts": stack_starts(received) if Sight.MODEL in setup.cell.rule_sees else None,
    }


def stack_starts(received: ReceivedRound) -> Tensor:
    """float32 ``[n, d]``: the model that each row was trained from."""
    return torch.stack([one.start for one in received.sent.trainings if one.start is not None])


def clipping(setup: Setup, clip: float | None) -> Setup:
    """The set-up as the malicious clients know it. A server that clips for privacy clips their updates too."""
    if clip is None:
        return setup
    return setup.with_parts(pipeline=Pipeline((ServerClipping(bound=clip), setup.cell.pipeline.rule)))


@dataclass(frozen=True)
class NodeContext:
    """What a node's rule knows beside the rows, for the malicious clients' copy of it.

    Attributes:
        own: number of the node's own row; the honest rows come first.
        mixing: float64 ``[n]``, the weight of each row; None if a mixing comes before the rule.
    """

    own: int
    mixing: Tensor | None

    def context_values(self, whole: bool) -> dict[str, Any]:
        """The values of `RuleContext` at a node.

        Args:
            whole: whether all rows of the round are there; if not, rows have equal weights.
        """
        return {"own": self.own if whole else 0, "mixing": self.mixing if whole else None}


class ColluderPipeline(KnownPipeline):
    """The malicious clients' copy of the server's rule: its stages and parameters, applied to what these clients see.

    They replace what they do not see by guesses:

    - Random draws are their own.
    - The server's root update is the mean of the benign updates, and its loss on root data the first-order change along that
      mean.
    - The state that stages keep from round to round was computed from the honest updates. If the clients see these updates,
      they have the state; otherwise it is empty, as in a first round.
    - If they do not see the honest updates, they do not know which honest clients take part, nor how many examples these
      claim: they assume arbitrary clients, each with the mean number of their own examples.
    - If they are not granted the model, it is zero.
    - Under masks they know that the rule gets means of groups, and assign clients to groups themselves.
    - All updates have staleness 0.
    """

    def __init__(
        self,
        setup: Setup,
        model: Tensor,
        round: int,
        states: tuple[State, ...],
        honest: tuple[int, ...],
        malicious: tuple[int, ...],
        seat: NodeContext | None = None,
        version: int = 0,
    ) -> None:
        sizes = [setup.task.sizes[client] for client in honest] + [setup.claims[client] for client in malicious]
        if Sight.HONEST_UPDATES not in setup.cell.attack_sees:
            states = ()
            own = sizes[len(honest) :]
            sizes = [max(1, sum(own) // len(own))] * len(honest) + own
            honest = tuple(client for client in range(len(honest) + len(malicious)) if client not in malicious)[
                : len(honest)
            ]
        if Sight.MODEL not in setup.cell.threat.grants:
            model = torch.zeros_like(model)
        pipeline, rows = setup.cell.pipeline, setup.cell.masking.rows(len(sizes))
        if rows < len(sizes) and not pipeline.rule.by_samples:  # weights by samples are the same on single updates
            groups = GroupMeans(groups=rows)
            pipeline = Pipeline((groups, *pipeline.mixings, pipeline.rule))
            states = ({}, *states) if states else ()
        order, samples = honest + malicious, torch.tensor(sizes, dtype=torch.float64)
        # The context is made of these alone: the closure below must not hold the set-up, through which all can be reached.
        known = rule_context(setup, model, round, 0).restrict(
            "the malicious clients' copy of the rule",
            setup.cell.rule_sees,
            rng=setup.rng.child("attack", "rule", round).apart(),
            predict=setup.task.predictor() if Sight.MODEL in setup.cell.rule_sees else None,
        )
        noise, benign = noise_of(setup, order), len(honest)
        assumed_f, total, masking = setup.cell.assumed_f, setup.cell.clients.total, setup.cell.masking

        def context(n: int, rows: Tensor) -> RuleContext:
            root, whole = rows[: benign or len(rows)].mean(0), len(order) == n
            of_graph = {} if seat is None else seat.context_values(whole)

            def root_loss(moved: Tensor) -> float:
                return -float((moved - model) @ root)

            return known.restrict(
                known.party,
                known.granted,
                f=min(scale_assumed_f(n, assumed_f, total), masking.rows(n)),
                clients=order if whole else None,
                samples=samples if whole else None,
                noise=noise if whole else None,
                root=root,
                root_loss=root_loss,
                staleness=torch.zeros(n, dtype=torch.int64),
                versions=torch.full((n,), version),
                arrived=torch.zeros(n, dtype=torch.float64),
                scale=torch.ones(n, dtype=torch.float64),
                federation=(assumed_f, total),
                starts=model.expand(n, -1),
                **of_graph,
            )

        super().__init__(pipeline, context, states)


@dataclass(frozen=True, kw_only=True)
class GroupMeans(Mixing):
    """Means of random groups of updates, whose sizes differ by one at most."""

    name = "group_means"
    needs = (Sight.NOTHING,)

    groups: int

    def rows_out(self, n: int) -> int:
        return min(self.groups, n)

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        order = torch.randperm(gram.n, generator=context.rng.torch())
        matrix = torch.zeros(self.rows_out(gram.n), gram.n, dtype=torch.float64)
        for row, group in enumerate(order.tensor_split(len(matrix))):
            matrix[row, group] = 1 / len(group)
        return matrix
