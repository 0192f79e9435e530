"""A Flower app in one process, with its real server app, strategy, client apps and messages."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedguard.bridges.flower.node import SeededClientApp, drawing
from fedguard.rng import Rng

#: Flower's node id of the server, and its error code for a client app that raised.
SERVER, RAISED = 1, 2


class InlineGrid(Grid):
    """A Grid with its nodes in this process, which answer one after another in the order of the messages.

    Each message passes through Flower's wire format in both directions, so nodes and server share no memory. If a client app
    raises, the answer is Flower's error, as on its own engines.

    Args:
        client: the client app.
        nodes: number of nodes; node k has ``partition-id`` k - 2 of ``num-partitions``, since the server is node 1.
        config: the run's configuration.

    Attributes:
        raised: the tracebacks of client apps.
    """

    def __init__(self, client: ClientApp, nodes: int, config: Mapping[str, Any]) -> None:
        self._client, self.raised = client, list[str]()
        self._contexts = {
            SERVER + 1 + number: Context(
                run_id=1,
                node_id=SERVER + 1 + number,
                node_config={"partition-id": number, "num-partitions": nodes},
                state=RecordDict(),
                run_config=dict(config),
            )
            for number in range(nodes)
        }
        self._replies: dict[str, Message] = {}
        self._sent = 0

    @property
    def partitions(self) -> dict[int, int]:
        """Node -> ``partition-id``."""
        return {node: node - SERVER - 1 for node in self._contexts}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            self._sent += 1
            name = str(self._sent)
            # Metadata has no setter for the id. Flower's own Grids set it in this way, and replies refer to it
            message.metadata.__dict__["_message_id"] = name
            self._replies[name] = self._answer(message)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def _answer(self, message: Message) -> Message:
        arrived = message_from_proto(message_to_proto(message))
        context = self._contexts[arrived.metadata.dst_node_id]
        try:
            with as_node(context.node_id):
                reply = self._client(arrived, context)
        except Exception as error:  # whatever a user's app raises
            self.raised.append(traceback.format_exc())
            reply = Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=arrived)
        return message_from_proto(message_to_proto(reply))

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def set_run(self, run: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> Any:
        return Run.create_empty(run_id=1)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)


@contextmanager
def as_node(number: int) -> Iterator[None]:
    """Set Flower's process-wide identity to a node while its app runs, then back to the server."""
    # `Message` takes the sender's id from here; with several nodes in one process it must follow the node that runs
    TaskIdentity.task_id = TaskIdentity.run_id = 1
    TaskIdentity.node_id = number
    try:
        yield
    finally:
        TaskIdentity.node_id = SERVER


def run_inline(
    server: Callable[[InlineGrid, Context], object],
    client: ClientApp,
    *,
    nodes: int,
    config: Mapping[str, Any],
    seed: int,
) -> InlineGrid:
    """Run an app to its end, in this process.

    Args:
        server: the server app, or a function with the same arguments.
        nodes: number of nodes.
        seed: seed of the random streams of Python, numpy and torch, at the server and at each node.

    Returns:
        the Grid, with the tracebacks of client apps.
    """
    grid = InlineGrid(SeededClientApp(client, seed), nodes, config)
    context = Context(run_id=1, node_id=SERVER, node_config={}, state=RecordDict(), run_config=dict(config))
    with as_node(SERVER), drawing(Rng(seed).child("server")):
        server(grid, context)
    return grid
