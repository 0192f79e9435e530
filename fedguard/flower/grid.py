"""Attack and defense in a Flower app act at the Grid, through which every strategy talks to its nodes.

No strategy is rewritten. With an attack and no defense, the evaluation is of the team's own aggregation, whatever it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedguard.contracts import scale_assumed_f
from fedguard.errors import InputError, NotAllowed, PreconditionError
from fedguard.flower.records import (
    SAMPLES,
    arrays_of,
    decode_update,
    is_masked,
    is_training,
    layout_of,
    samples_of,
    start_of,
    with_arrays,
)
from fedguard.guard import Guard
from fedguard.retired import accept_retired_arguments
from fedguard.rng import Rng
from fedguard.states import Layout

LOG = logging.getLogger("fedguard.flower")


class GuardedGrid(Grid):
    """A Grid that forwards everything except the replies of malicious nodes to training messages.

    Among the replies to one `send_and_receive` of training messages, the attack makes the malicious nodes' from the honest
    ones, as far as its knowledge permits. With a defense, each reply becomes the sent model plus the robust aggregate, so every
    strategy that averages, with any weights, gets exactly that model.

    The first training round decides which arrays hold parameters: those that most nodes send back as floating point. The
    others, such as a BatchNorm's count of batches, reach the strategy unchanged and are in no update, even if the strategy
    averages them to fractions.

    Args:
        grid: Flower's own Grid.
        guard: attack and rule.
        defended: whether the rule aggregates; if not, the team's own strategy does.
        seed: seed for the choice of malicious nodes among all that are connected at the first training round.

    Attributes:
        weighted_by_key: the strategy's name for the number of examples that a node claims.
        malicious: the malicious nodes; empty before the first training round.
        nodes: the nodes that were connected in the first training round.
        rounds, updates: number of training rounds so far, and of updates in them.
        hostile_share: the largest share of malicious updates in a round.
        outvoted: number of rounds with more malicious updates than the assumed f of the rule.
        bytes: size of all updates as float32.
        abandoned: reasons for the rounds in which the rule could not run; the model stayed as it was.
    """

    def __init__(self, grid: Grid, guard: Guard, *, defended: bool, seed: int = 0) -> None:
        self._grid, self._guard, self._defended, self._seed = grid, guard, defended, seed
        self._assumed_f = guard.assumed_f
        self._layout: Layout | None = None
        self.weighted_by_key = SAMPLES
        self.malicious: frozenset[int] = frozenset()
        self.nodes: tuple[int, ...] = ()
        self.rounds = self.updates = self.outvoted = self.bytes = 0
        self.hostile_share = 0.0
        self.abandoned: list[str] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        asked = list(messages)
        training = [message for message in asked if is_training(message)]
        if training and not self._defended and not self._guard.attacks and all(map(is_masked, training)):
            # Without attack and rule nothing needs single updates, so masked messages, which `arrays_of` refuses, may pass
            return self._grid.send_and_receive(asked, timeout=timeout)
        if training and len(training) < len(asked):
            raise NotAllowed(
                "send_and_receive: expected messages of training alone, or none; got both. Send them apart."
            )
        if training and not self.rounds:
            self._draw()
        sent = {message.metadata.dst_node_id: message for message in training}
        models = {node: arrays_of(message, "the server's message") for node, message in sent.items()}
        replies = list(self._grid.send_and_receive(asked, timeout=timeout))
        if training:
            return self._replace_replies(models, replies)
        self.record_evaluation(replies)
        return replies

    def record_evaluation(self, replies: Sequence[Message]) -> None:
        """Called with replies to messages other than of training. Does nothing; for subclasses."""

    def record_training(
        self, layout: Layout, starts: torch.Tensor, updates: torch.Tensor, nodes: Sequence[int]
    ) -> None:
        """Called with the models sent to nodes and their updates, float32 ``[n, d]``, before any attack. For subclasses."""

    def rank(self, node: int) -> int:
        """The key that sorts nodes and rows, and by which malicious nodes are drawn: here the engine's node id."""
        return node

    @property
    def dropped(self) -> int:
        """Number of updates that were not finite and so reached no rule."""
        return self._guard.dropped

    def _draw(self) -> None:
        """Choose the malicious nodes: f of the connected ones, by the seed."""
        self.nodes = tuple(sorted(self._grid.get_node_ids(), key=self.rank))
        if self._guard.f >= len(self.nodes) > 0:
            raise InputError(
                f"f: expected fewer malicious nodes than there are, {len(self.nodes)}; got {self._guard.f}."
            )
        drawn = Rng(self._seed).child("malicious").numpy().permutation(len(self.nodes))[: self._guard.f]
        self.malicious = frozenset(self.nodes[number] for number in drawn.tolist())

    def _replace_replies(self, models: dict[int, tuple[str, dict[str, Any]]], replies: list[Message]) -> list[Message]:
        """The replies that the strategy gets; those with an error are unchanged."""
        self.rounds += 1
        # Replies arrive in any order; sorted, the attack and the rule get the same rows on every engine
        good = sorted(
            (one for one in replies if one.has_content()), key=lambda one: self.rank(one.metadata.src_node_id)
        )
        failed = [one for one in replies if not one.has_content()]
        if not good:
            return replies
        nodes = [one.metadata.src_node_id for one in good]
        found = [arrays_of(one, f"the reply of node {node}") for one, node in zip(good, nodes, strict=True)]
        layout = self._layout = self._layout or layout_of(models[nodes[0]][1], [arrays for _, arrays in found], nodes)
        starts = torch.stack([start_of(layout, models[node][1]) for node in nodes])
        rows = torch.stack(
            [
                decode_update(layout, start, arrays, f"the reply of node {node}")
                for start, (_, arrays), node in zip(starts, found, nodes, strict=True)
            ]
        )
        self.record_training(layout, starts, rows, nodes)
        claims = [samples_of(one, self.weighted_by_key) for one in good]
        known = None if None in claims else [float(claim or 0) for claim in claims]
        if known is None and self._guard.weighs:
            raise InputError(
                f"the reply of node {nodes[claims.index(None)]}: expected a metric {self.weighted_by_key!r}, the number of "
                "examples, which attack or rule go by; got none. Name the strategy's own: "
                "under_attack(..., weighted_by_key=...)."
            )
        # An attack sees the model of the first node only; each update still starts from the model of its own node
        acting = [row for row, node in enumerate(nodes) if node in self.malicious and self._guard.attacks]
        model = starts[0]
        self._guard.assumed_f = min(scale_assumed_f(len(nodes), self._assumed_f, len(self.nodes)), len(nodes))
        self.updates += len(nodes)
        self.bytes += 4 * rows.numel()
        self.hostile_share = max(self.hostile_share, len(acting) / len(nodes))
        self.outvoted += len(acting) > self._guard.assumed_f
        if len(acting) == len(nodes):
            LOG.warning("round %d: every node that answered is malicious; they send honest updates.", self.rounds)
            acting = []
        rows, lies = self._guard.apply_attack(model, rows, acting, layers=layout.sizes, samples=known)
        if self._defended:
            rows = self._aggregate_updates(model, rows, nodes, layout, lies).expand(len(rows), -1)
        return [
            with_arrays(
                one,
                name,
                layout.state(start + row, arrays),
                lies[number] if lies is not None and number in acting else None,
                self.weighted_by_key,
            )
            for number, (one, (name, arrays), start, row) in enumerate(zip(good, found, starts, rows, strict=True))
        ] + failed

    def _aggregate_updates(
        self,
        model: torch.Tensor,
        rows: torch.Tensor,
        nodes: Sequence[int],
        layout: Layout,
        samples: Sequence[float] | None,
    ) -> torch.Tensor:
        """float32 ``[d]``: what the rule makes of the updates; zeros where it cannot run."""
        try:
            return self._guard.aggregate_updates(
                model, rows, layers=layout.sizes, samples=samples, clients=[self.nodes.index(node) for node in nodes]
            )
        except PreconditionError as error:
            self.abandoned.append(str(error))
            LOG.warning("round %d: the model stays as it was. %s", self.rounds, error)
            return torch.zeros_like(model)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        asked = list(messages)
        if any(map(is_training, asked)):
            raise NotAllowed(
                "push_messages: messages of training are attacked where all replies are there. Use send_and_receive."
            )
        return self._grid.push_messages(asked)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)


@accept_retired_arguments
def under_attack(
    app: ServerApp,
    *,
    attack: str | None = None,
    defense: str | None = None,
    f: int = 0,
    assumed_f: int | None = None,
    knowledge: Sequence[str] | None = None,
    seed: int = 0,
    weighted_by_key: str = SAMPLES,
    grid: type[GuardedGrid] = GuardedGrid,
    hear: Callable[[GuardedGrid], None] | None = None,
) -> ServerApp:
    """The same server app, with f of its nodes malicious.

    Args:
        app: the app's own server.
        attack: for example ``"ipm(tau=5)"``; None for no attack.
        defense: a rule of the catalog that aggregates before the app's own strategy; None for that strategy alone.
        f: number of malicious nodes, drawn by the seed among those that are connected at the first training round.
        assumed_f: number of malicious nodes that the rule assumes; f by default.
        knowledge: what the malicious nodes see, as a suite's ``threat.knowledge``: by default each other's and the honest
            updates, the model, and the rule if there is a defense.
        weighted_by_key: the strategy's name for the number of examples, about which attacks may lie and by which rules weight.
        grid: a subclass of `GuardedGrid`.
        hear: called with the Grid before the app starts.

    Returns:
        an app that Flower runs like the original one.

    Raises:
        ConfigError, NotAllowed: the attack or the rule is unknown, or cannot be used here.
    """
    granted = knowledge or (("honest_updates", "own_data", "model") + (("defense",) if defense else ()))
    arguments: dict[str, Any] = {
        "attack": attack,
        "defense": defense or "mean",
        "f": f,
        "assumed_f": assumed_f,
        "knowledge": granted,
        "seed": seed,
    }
    Guard(**arguments)  # raises on wrong arguments now instead of in the middle of a run

    guarded = ServerApp()

    @guarded.main()
    def main(given: Grid, context: Context) -> None:
        place = grid(given, Guard(**arguments), defended=defense is not None, seed=seed)
        place.weighted_by_key = weighted_by_key
        if hear is not None:
            hear(place)
        app(place, context)

    return guarded
