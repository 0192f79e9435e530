"""What the server's rule sees in a round, and the copy of the rule in the colluders' hands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.aggregation import KnownPipeline
from fedguard.contracts import Gram, Mixing, Pipeline, RuleContext, Setup, Sight, State
from fedguard.privacy.record import private_plan


def rule_context(setup: Setup, model: Tensor, round: int, told: int) -> RuleContext:
    """What the server sees beside the updates, apart from its clean data and from who sent what."""
    return RuleContext(
        "server",
        setup.rule_sees,
        f=told,
        round=round,
        rng=setup.rng.child("rule", round),
        state={},
        layers=setup.task.layers,
        shape=setup.task.shape,
        server_lr=setup.training.server_step,
        model=model,
        predict=setup.task.logits,
    )


def noise_of(setup: Setup, clients: Sequence[int]) -> Tensor | None:
    """float64 ``[n]``: z C of each client's privacy level; None where clients add no noise of their own."""
    private = private_plan(setup).private
    if private is None:
        return None
    return torch.tensor([clip * noise for clip, noise in map(private.level, clients)], dtype=torch.float64)


class KnownToColluders(KnownPipeline):
    """The colluders' copy of the server's rule: all but its random draws and its clean data.

    For the server's update on these they take the mean of the benign updates, and for its loss the first-order change
    along that mean. Under masks they know that the rule is given means of groups, and deal the groups themselves.
    """

    def __init__(
        self,
        setup: Setup,
        model: Tensor,
        round: int,
        states: tuple[State, ...],
        honest: tuple[int, ...],
        hostile: tuple[int, ...],
    ) -> None:
        order = honest + hostile
        samples = torch.tensor([setup.task.sizes[client] for client in order], dtype=torch.float64)
        pipeline = setup.pipeline
        if setup.protocol.masked and not pipeline.rule.by_samples:  # whose weights are the same on single updates
            groups = GroupMeans(groups=setup.protocol.rows(len(order)))
            pipeline = Pipeline((groups, *pipeline.mixings, pipeline.rule))
            states = ({}, *states) if states else ()

        def context(n: int, rows: Tensor) -> RuleContext:
            told = min(setup.told_among(n), setup.protocol.rows(n))
            root = rows[: len(honest) or len(rows)].mean(0)

            def root_loss(moved: Tensor) -> float:
                return -float((moved - model) @ root)

            return rule_context(setup, model, round, told).narrowed(
                "the colluders' copy of the rule",
                setup.rule_sees,
                rng=setup.rng.child("attack", "rule", round),
                clients=order if len(order) == n else None,
                samples=samples if len(order) == n else None,
                noise=noise_of(setup, order) if len(order) == n else None,
                root=root,
                root_loss=root_loss,
            )

        super().__init__(pipeline, context, states)


@dataclass(frozen=True, kw_only=True)
class GroupMeans(Mixing):
    """Deals the updates at random into groups of nearly equal size and hands on their means."""

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
