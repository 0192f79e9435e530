"""A permanent defense: a rule of the catalog before one of Flower's strategies that average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedXgbBagging, FedXgbCyclic, QFedAvg, Strategy
from flwr.supercore import log

from fedguard.bridges.flower.records import arrays_of, layout_of, samples_of, start_of, with_arrays
from fedguard.contracts.claims import counts
from fedguard.errors import InputError, NotAllowed, PreconditionError, brief
from fedguard.guard import Guard
from fedguard.guarded_statistics import JOINED, drop_with_statistics
from fedguard.states import Layout

#: Kinds of FedAvg that do not average models.
NO_AVERAGE = (QFedAvg, FedXgbBagging, FedXgbCyclic)


class FedGuardStrategy(Strategy):
    """A strategy that gets the robust aggregate for each node's model: ``FedGuardStrategy(FedAdam(), defense="median", f=2)``.

    The rule sees the update of each node and keeps its state from round to round. Each reply is then replaced by the model that
    was sent plus the aggregate. A strategy that averages, with any weights, gets exactly that model, and continues with its own
    step: momentum in `FedAvgM`, Adam in `FedAdam`, the nodes' penalty in `FedProx`. ``weighted_mean`` is FedAvg's own average,
    ``mean`` counts each node once.

    The first round decides which arrays are parameters: those that most nodes send back as floating point. Of the others, such
    as a BatchNorm's count of batches, the next model holds the nodes' lower median, in their type.

    A reply that cannot be averaged (with other records, arrays or shapes than most, or without a valid number of examples) is
    dropped, and counts toward f. A round with too few replies for the rule leaves the model as it was. Under secure aggregation
    there are no single updates, and training stops with an error.

    Args:
        strategy: the strategy that averages; by default `FedAvg` with ``settings``.
        defense: a rule of the catalog.
        f: assumed number of malicious nodes in a round.
        seed: seed of a randomized rule.
        statistics: what becomes of the running statistics of normalizing layers, as in `fedguard.Guard`.
        settings: the settings of `FedAvg`, among them ``weighted_by_key``, the metric by which a rule weights.

    Attributes:
        dropped: number of dropped replies.
        skipped: reasons for the rounds that left the model as it was.

    Raises:
        ConfigError: an unknown rule or parameter.
        InputError: a strategy that does not average, such as `QFedAvg` or Flower's wrappers that add noise: their guarantee is
            about a mean.
    """

    def __init__(
        self,
        strategy: FedAvg | None = None,
        *,
        defense: str,
        f: int,
        seed: int = 0,
        statistics: str = JOINED,
        **settings: Any,
    ) -> None:
        if strategy is not None and settings:
            raise InputError(
                f"expected settings for FedAvg or a strategy; got both, {', '.join(settings)} and {strategy}."
            )
        self.strategy = FedAvg(**settings) if strategy is None else strategy
        if not isinstance(self.strategy, FedAvg) or isinstance(self.strategy, NO_AVERAGE):
            raise InputError(
                "strategy: expected a FedAvg or one of its kind that averages models, such as FedAvgM, FedAdam or FedProx; "
                f"got {brief(strategy)}."
            )
        self.guard = Guard(defense=defense, f=f, seed=seed, statistics=statistics)
        self.f = self.guard.assumed_f
        self.dropped = 0
        self.skipped: list[str] = []
        self._sent: ArrayRecord | None = None
        self._layout: Layout | None = None

    def summary(self) -> None:
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._sent = arrays
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def initialize_parameters(self, client_manager: Any) -> Any:
        """Refuse Flower's workflows, which call this method of its earlier strategy interface.

        Raises:
            NotAllowed: always. `SecAggPlusWorkflow` would hand the rule one unmasked sum as if it were an update.
        """
        raise NotAllowed(
            f"FedGuardStrategy({self.guard}): a workflow drives it, such as SecAgg+'s, whose server gets one sum of all "
            "updates; the rule needs to see each. Use strategy.start(grid=...) without masks, or the workflow with FedAvg."
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's next model, and the nodes' metrics; no model if the rule cannot run.

        Raises:
            NotAllowed: the replies hold no single models, as under secure aggregation.
        """
        # Replies arrive in any order; rules that draw or break ties need one
        came = sorted(replies, key=lambda one: one.metadata.src_node_id)
        answered = [one for one in came if one.has_content()]
        if not answered:
            return self.strategy.aggregate_train(server_round, came)
        if self._sent is None:
            raise InputError(
                "aggregate_train: expected configure_train before it, which knows the model that was sent."
            )
        sent = {key: array.numpy() for key, array in self._sent.items()}
        usable = self._usable(answered, sent)
        claims, states = [one.claim for one in usable], [one.state for one in usable]
        try:
            if not sum(claims) > 0:
                raise PreconditionError(
                    f"round {server_round}: expected replies to average; of {len(answered)} {len(usable)} can be, and their "
                    "numbers of examples add up to 0."
                )
            nodes = [one.reply.metadata.src_node_id for one in usable]
            self._layout = self._layout or layout_of(sent, states, nodes)
            layout, own = self.guard.split(self._layout)
            model = start_of(layout, sent)
            # A reply that cannot be averaged counts as malicious, which leaves fewer of the f among the rest
            self.guard.round, self.guard.assumed_f = server_round, max(0, self.f - (len(answered) - len(usable)))
            rows = torch.stack([layout.vector(state, "the replies", averaged=True) for state in states]) - model
            beside = None
            if own is not None:
                beside = torch.stack([own.vector(state, "the replies", averaged=True) for state in states])
                rows = drop_with_statistics(rows, beside)
            step = self.guard.aggregate_updates(model, rows, layers=layout.sizes, samples=claims, clients=nodes)
            if own is not None and beside is not None:
                beside = self.guard.aggregate_statistics(rows, beside, own, samples=claims)
        except PreconditionError as error:
            self.skipped.append(str(error))
            log(WARNING, "round %s: the model stays as it was. %s", server_round, error)
            # `Strategy.start` keeps the model of the round before where it gets none
            return None, None
        found = []
        for one in usable:
            state = layout.state(model + step, {name: one.state[name] for name in sent})
            if own is not None and beside is not None:
                state = own.state(beside, state)
            found.append(with_arrays(one.reply, one.name, state))
        arrays, metrics = self.strategy.aggregate_train(
            server_round, [*found, *(one for one in came if one.has_error())]
        )
        if arrays is not None:
            # FedAvg has averaged these, too: counts would return as fractions in float64
            for name in self._layout.others:
                arrays[name] = Array(_middle([state[name] for state in states]))
        return arrays, metrics

    def _usable(self, replies: Sequence[Message], sent: Mapping[str, Any]) -> list[_UsableReply]:
        """The replies that can be averaged."""
        key = self.strategy.weighted_by_key
        usual, _ = Counter(map(_form, replies)).most_common(1)[0]
        found = []
        for reply in replies:
            what = f"the reply of node {reply.metadata.src_node_id}"
            try:
                if _form(reply) != usual:
                    raise InputError(f"{what}: expected the records, keys and lengths of most replies; got others.")
                name, arrays = arrays_of(reply, what)
                claim = samples_of(reply, key)
                if claim is None or not counts(claim):
                    raise InputError(f"{what}: expected a metric {key!r}, the number of examples; got {brief(claim)}.")
                Layout.of(arrays, what)
                if odd := [one for one in sent if one not in arrays or arrays[one].shape != sent[one].shape]:
                    raise InputError(f"{what}, {odd[0]}: expected the shape that was sent, {list(sent[odd[0]].shape)}.")
            except (InputError, ValueError) as error:  # Flower's own for bytes that are no array
                self.dropped += 1
                log(WARNING, "dropped: %s", error if str(error).startswith(what) else f"{what}: {error}")
                continue
            found.append(_UsableReply(reply, name, arrays, claim))
        return found


@dataclass(frozen=True)
class _UsableReply:
    """A reply that can be averaged: its record of arrays, and the number of examples that it claims."""

    reply: Message
    name: str
    state: Mapping[str, Any]
    claim: float


def _form(reply: Message) -> tuple[Any, ...]:
    """What must be equal for replies to be averaged: records, their keys, and the lengths of lists among metrics."""
    content = reply.content
    return (
        tuple((name, tuple(sorted(record))) for name, record in sorted(content.array_records.items())),
        tuple(
            (name, tuple((key, len(value) if isinstance(value, list) else 1) for key, value in sorted(record.items())))
            for name, record in sorted(content.metric_records.items())
        ),
    )


def _middle(column: Sequence[Any]) -> Any:
    """The lower median of each coordinate, in the most frequent dtype."""
    kind, _ = Counter(one.dtype for one in column).most_common(1)[0]
    return np.asarray(np.sort(np.stack(column), axis=0)[(len(column) - 1) // 2], dtype=kind)
