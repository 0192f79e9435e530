"""Federated averaging with a rule of the catalogue in place of the average, for those who want it for good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedguard.errors import InputError, NotAllowed
from fedguard.flower.records import arrays_of, moved, samples_of
from fedguard.guard import Guard
from fedguard.states import Layout


class FedGuardStrategy(FedAvg):
    """FedAvg whose models are aggregated by a rule: ``FedGuardStrategy(defense="nnm >> trimmed_mean", f=2)``.

    The rule sees each node's update and remembers from round to round what it must. Nodes' metrics are averaged as FedAvg
    does. Under secure aggregation single updates are not there, and training stops with the reason.

    Args:
        defense: a rule of the catalogue.
        f: how many malicious nodes a round may have.
        seed: of a rule that draws.
        settings: those of `FedAvg`.

    Raises:
        ConfigError: an unknown rule or parameter.
    """

    def __init__(self, *, defense: str, f: int, seed: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.guard = Guard(defense=defense, told=f, seed=seed)
        self._sent: ArrayRecord | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._sent = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def initialize_parameters(self, client_manager: Any) -> Any:
        """What Flower's workflows ask a strategy of its earlier interface for; here they are refused.

        Raises:
            NotAllowed: always. `SecAggPlusWorkflow` would hand the rule one unmasked sum as if it were an update.
        """
        raise NotAllowed(
            f"FedGuardStrategy({self.guard}): a workflow drives it, such as that of SecAgg+, whose server gets one sum of all "
            "updates; the rule needs to see each. Use strategy.start(grid=...) without masks, or the workflow with FedAvg."
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The rule's model, and the nodes' metrics averaged.

        Raises:
            PreconditionError: too few replies for the rule, or too many malicious ones.
            NotAllowed: the replies hold no single models, as under secure aggregation.
        """
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        if self._sent is None:
            raise InputError(
                "aggregate_train: expected configure_train before it, which knows the model that was sent."
            )
        sent = {key: array.numpy() for key, array in self._sent.items()}
        layout = Layout.of(sent, "the model that was sent")
        model = layout.vector(sent)
        valid = sorted(valid, key=lambda one: one.metadata.src_node_id)
        rows, claims = [], []
        for reply in valid:
            what = f"the reply of node {reply.metadata.src_node_id}"
            rows.append(moved(layout, model, arrays_of(reply, what)[1], what))
            claims.append(samples_of(reply) or 0.0)
        self.guard.round = server_round
        nodes = [reply.metadata.src_node_id for reply in valid]
        result = self.guard.aggregated(model, torch.stack(rows), layers=layout.sizes, samples=claims, clients=nodes)
        after = layout.state(model + result, sent)
        metrics = self.train_metrics_aggr_fn([reply.content for reply in valid], self.weighted_by_key)
        return ArrayRecord({key: Array(value) for key, value in after.items()}), metrics
