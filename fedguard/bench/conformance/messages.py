"""A server app of Flower, and a client app for each client: models travel as Flower's messages, in its wire format."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedguard.architectures.server import Server
from fedguard.bench.conformance.actors import Node
from fedguard.bench.conformance.engine import Outcome, set_up_of, simulated, start_of
from fedguard.config import Cell
from fedguard.contracts import Architecture, Setup
from fedguard.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

#: What a message asks for, the model in it, and the one array of that.
ASKED, MODEL, VECTOR = "asked", "model", "vector"


class Messages:
    """The server, which sends each client a message in a round and waits for all answers."""

    name = "flower"
    runs = "server, whose rounds wait for all"

    def why_not(self, architecture: Architecture) -> str | None:
        return None if isinstance(architecture, Server) else f"flower runs {self.runs}. Take --engine ray or gloo."

    def run(self, cells: Sequence[Cell], seed: int) -> list[Outcome]:
        try:
            from fedguard.flower.inline import run_inline
        except ImportError:
            raise MissingExtra("--engine flower", "flwr", "flower") from None
        client, found = client_app(cells, seed), list[Outcome]()
        for number, cell in enumerate(cells):
            server = server_app(cell, number, seed, found)
            run_inline(server, client, nodes=cell.config.clients.total, config={}, seed=seed)
        return found

    def simulated(self, cell: Cell, setup: Setup, order: tuple[tuple[int, int], ...] | None) -> Tensor:
        return simulated(cell.architecture, setup)


def server_app(cell: Cell, number: int, seed: int, found: list[Outcome]) -> ServerApp:
    """A server app that trains a cell over its Grid, and appends what comes of it."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Any) -> None:
        setup = set_up_of(cell, seed)
        remote = Remote(grid, number)
        remote.meet()
        began, last = time.monotonic(), start_of(setup)
        for report in cell.architecture.run(replace(setup, trainer=remote)):
            last = report.model
        found.append(Outcome(last[None], time.monotonic() - began))

    return app


def client_app(cells: Sequence[Cell], seed: int) -> ClientApp:
    """A client app that trains client ``partition-id`` of each cell, with data of its own in each node."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp

    app, nodes = ClientApp(), dict[int, Node]()

    @app.query()
    def who(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        nodes[client] = Node([cell.canonical for cell in cells], seed)
        return Message(RecordDict({ASKED: ConfigRecord({"client": client})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, asked = int(context.node_config["partition-id"]), message.content.config_records[ASKED]
        model = message.content.array_records[MODEL][VECTOR].numpy()
        row = nodes[client].train(int(asked["cell"]), client, int(asked["turn"]), model)
        return Message(RecordDict({MODEL: ArrayRecord({VECTOR: Array(row)})}), reply_to=message)

    return app


@dataclass
class Remote:
    """A trainer whose clients are nodes of a Grid.

    Args:
        grid: Flower's way to them.
        cell: which of their cells is trained.
    """

    grid: Grid
    cell: int
    _nodes: dict[int, int] = field(default_factory=dict)

    def meet(self) -> None:
        """Ask each node which client it is."""
        from flwr.app import Message, RecordDict

        asked = [Message(RecordDict(), node, "query") for node in self.grid.get_node_ids()]
        self._nodes = {
            int(reply.content.config_records[ASKED]["client"]): reply.metadata.src_node_id
            for reply in self._answers(asked)
        }

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...], rows: Tensor) -> None:
        """Fill ``rows`` with what the clients' answers bring.

        Raises:
            ConfigError: a node did not answer, or its app raised.
        """
        from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

        starts = model.expand(len(clients), -1)
        asked = [
            Message(
                RecordDict(
                    {
                        ASKED: ConfigRecord({"cell": self.cell, "turn": turn}),
                        MODEL: ArrayRecord({VECTOR: Array(start.numpy())}),
                    }
                ),
                self._nodes[client],
                "train",
            )
            for client, turn, start in zip(clients, rounds, starts, strict=True)
        ]
        answers = {answer.metadata.src_node_id: answer for answer in self._answers(asked)}
        for client, row in zip(clients, rows, strict=True):
            row.copy_(torch.tensor(answers[self._nodes[client]].content.array_records[MODEL][VECTOR].numpy()))

    def _answers(self, asked: list[Any]) -> list[Any]:
        answers = list(self.grid.send_and_receive(asked))
        for answer in answers:
            if answer.has_error():
                why = " ".join(answer.error.reason.split())[:300]
                raise ConfigError(f"conform: node {answer.metadata.src_node_id} did not come to its end: {why}.")
        if len(answers) < len(asked):
            raise ConfigError(f"conform: {len(asked) - len(answers)} of {len(asked)} nodes did not answer.")
        return answers
