"""Attack and defense in a Flower app act at the Grid, through which every strategy talks to its nodes.

No strategy is rewritten. With an attack and no defense, the evaluation is of the team's own aggregation, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedguard.bridges.flower.records import SAMPLES, arrays_of, is_masked, is_training, samples_of, with_arrays
from fedguard.bridges.place import Place, Reply
from fedguard.errors import NotAllowed
from fedguard.guard import Guard
from fedguard.retired import accept_retired_arguments


class GuardedGrid(Place, Grid):
    """A Grid that forwards everything except the replies to training messages, on which attack and rule act.

    All replies to one `send_and_receive` of training messages are a round of `Place`. What is no parameter reaches the strategy
    unchanged, even if the strategy averages it to fractions.

    Args:
        grid: Flower's own Grid.
        guard: attack and rule.
        defended: whether the rule aggregates; if not, the team's own strategy does.
        seed: seed for the choice of malicious nodes among all that are connected at the first training round.

    Attributes:
        weighted_by_key: the strategy's name for the number of examples that a node claims.
    """

    noun = "node"

    def __init__(self, grid: Grid, guard: Guard, *, defended: bool, seed: int = 0) -> None:
        super().__init__(guard, defended=defended, seed=seed)
        self._grid = grid
        self.weighted_by_key = SAMPLES

    @property
    def without_claim(self) -> str:  # type: ignore[override]
        return (
            f"expected a metric {self.weighted_by_key!r}, the number of examples, which attack or rule go by; got none. Name "
            "the strategy's own: under_attack(..., weighted_by_key=...)."
        )

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
            self.meet_sites(list(self._grid.get_node_ids()))
        sent = {message.metadata.dst_node_id: message for message in training}
        models = {node: arrays_of(message, "the server's message")[1] for node, message in sent.items()}
        replies = list(self._grid.send_and_receive(asked, timeout=timeout))
        if training:
            return self._replace_replies(models, replies)
        self.record_evaluation(replies)
        return replies

    def record_evaluation(self, replies: Sequence[Message]) -> None:
        """Called with replies to messages other than of training. Does nothing; for subclasses."""

    def _replace_replies(self, models: dict[int, dict[str, Any]], replies: list[Message]) -> list[Message]:
        """The replies that the strategy gets; those with an error are unchanged."""
        failed = [one for one in replies if not one.has_content()]
        # By node, so that of several bad replies the first one is named on every engine
        good = sorted(
            (one for one in replies if one.has_content()), key=lambda one: self.rank(one.metadata.src_node_id)
        )
        return [*map(self._write_reply, self.round(models, list(map(self._read_reply, good)))), *failed]

    def _read_reply(self, message: Message) -> Reply:
        node = message.metadata.src_node_id
        name, arrays = arrays_of(message, self._whose(node))
        return Reply(node, arrays, samples=samples_of(message, self.weighted_by_key), handle=(message, name))

    def _write_reply(self, reply: Reply) -> Message:
        message, name = reply.handle
        changed = reply.samples != samples_of(message, self.weighted_by_key)
        return with_arrays(message, name, reply.arrays, reply.samples if changed else None, self.weighted_by_key)

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
