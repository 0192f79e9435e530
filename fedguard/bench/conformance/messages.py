"""A server app of Flower, and a client app for each client: models travel as Flower's messages, in its wire format."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.server import Server
from fedguard.bench.conformance.engine import TrainingOutcome, simulate_models
from fedguard.bench.conformance.remote import ClientProcess, Key, RemoteTrainer, train_remotely
from fedguard.config import PlannedCell
from fedguard.contracts import Architecture, Setup
from fedguard.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

#: What a message asks for, the model in it, and the one array of that.
ASKED, MODEL, VECTOR = "asked", "model", "vector"
#: Seconds between questions whether answers are there, and those without any after which no more are expected.
PAUSE, PATIENCE = 0.1, 300.0


class FlowerEngine:
    """Engine for the synchronous server, which sends each client a message per round and waits for all answers."""

    name = "flower"
    runs = "server, whose rounds wait for all"

    def why_not(self, architecture: Architecture) -> str | None:
        if isinstance(architecture, Server):
            return None
        return (
            f"flower runs {self.runs}: all nodes are in one process, and answer in turn. Take --engine deployment, ray or "
            "gloo."
        )

    def run(self, cells: Sequence[PlannedCell], seed: int) -> list[TrainingOutcome]:
        try:
            from fedguard.bridges.flower.inline import run_inline
        except ImportError:
            raise MissingExtra("--engine flower", "flwr", "flower") from None
        canonical, found = [cell.canonical for cell in cells], list[TrainingOutcome]()
        client = client_app(lambda number: canonical[number], seed)
        for number, cell in enumerate(cells):
            server = server_app(cell, number, seed, found.append)
            run_inline(server, client, nodes=cell.config.clients.total, config={}, seed=seed)
        return found

    def simulate_cell(self, cell: PlannedCell, setup: Setup, order: tuple[Key, ...] | None) -> Tensor:
        return simulate_models(cell.architecture, setup)


def server_app(
    cell: PlannedCell,
    number: int,
    seed: int,
    found: Callable[[TrainingOutcome], object],
    clients: Mapping[int, int] | None = None,
) -> ServerApp:
    """A server app that trains a cell over its Grid, and calls ``found`` with the outcome.

    Args:
        number: the number of the cell among the clients' cells.
        clients: the client of each node; None to ask the nodes.
    """
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, _: Any) -> None:
        there = GridTrainer(grid, number)
        there.meet(clients)
        found(train_remotely(there, cell, seed))

    return app


def client_app(cell: Callable[[int], Mapping[str, Any]], seed: int) -> ClientApp:
    """A client app that trains client ``partition-id`` of cells, with data of its own in each node.

    Args:
        cell: by its number, as `PlannedCell.canonical` writes it.
    """
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp

    app, nodes = ClientApp(), dict[Key, ClientProcess]()

    @app.query()
    def who(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        return Message(RecordDict({ASKED: ConfigRecord({"client": client})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, asked = int(context.node_config["partition-id"]), message.content.config_records[ASKED]
        number, turn = int(asked["cell"]), int(asked["turn"])
        if (client, number) not in nodes:
            nodes[client, number] = ClientProcess([cell(number)], seed)
        model = message.content.array_records[MODEL][VECTOR].numpy()
        row = nodes[client, number].train(0, client, turn, model)
        told = {ASKED: ConfigRecord({"client": client, "turn": turn}), MODEL: ArrayRecord({VECTOR: Array(row)})}
        return Message(RecordDict(told), reply_to=message)

    return app


class GridTrainer(RemoteTrainer):
    """A trainer with clients in the nodes of a Grid.

    Args:
        grid: Flower's connection to the nodes.
        cell: the number of the cell to train.
    """

    def __init__(self, grid: Grid, cell: int) -> None:
        super().__init__()
        self._grid, self._cell = grid, cell
        self._nodes: Mapping[int, int] = {}
        self._under_way: dict[str, int] = {}  # by the number of a message, whose it is
        self._answers: list[Any] = []

    def meet(self, clients: Mapping[int, int] | None = None) -> None:
        """Learn which client each node is, from the nodes unless it is given."""
        from flwr.app import Message, RecordDict

        if clients is None:
            asked = [Message(RecordDict(), node, "query") for node in self._grid.get_node_ids()]
            answers = [self._good(one, one.metadata.src_node_id) for one in self._grid.send_and_receive(asked)]
            clients = {
                one.metadata.src_node_id: int(one.content.config_records[ASKED]["client"])  # type: ignore[arg-type]
                for one in answers
            }
        self._nodes = {client: node for node, client in clients.items()}

    def send(self, trainings: Sequence[tuple[Key, Tensor]]) -> None:
        from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

        asked = [
            Message(
                RecordDict(
                    {
                        ASKED: ConfigRecord({"cell": self._cell, "turn": turn}),
                        MODEL: ArrayRecord({VECTOR: Array(model.numpy())}),
                    }
                ),
                self._nodes[client],
                "train",
            )
            for (client, turn), model in trainings
        ]
        sent = list(self._grid.push_messages(asked)) if asked else []
        if lost := len(asked) - len(list(filter(None, sent))):
            raise ConfigError(f"conform: {lost} of {len(asked)} nodes did not take their messages.")
        self._under_way.update(zip(sent, (client for (client, _), _ in trainings), strict=True))

    def receive(self) -> tuple[Key, NDArray[Any]]:
        began = time.monotonic()
        while not self._answers:
            self._answers = list(self._grid.pull_messages(sorted(self._under_way)))
            if not self._answers and time.monotonic() - began > PATIENCE:
                raise ConfigError(f"conform: no node has answered for {PATIENCE:g} s.")
            if not self._answers:
                time.sleep(PAUSE)
        answer = self._answers.pop(0)
        told = self._good(answer, self._under_way.pop(answer.metadata.reply_to_message_id)).content
        asked = told.config_records[ASKED]
        return (int(asked["client"]), int(asked["turn"])), told.array_records[MODEL][VECTOR].numpy()

    @staticmethod
    def _good(answer: Any, client: int) -> Any:
        """The answer of a client, checked; a report of the SuperLink on a lost node has the SuperLink as its source."""
        if answer.has_error():
            why = " ".join(answer.error.reason.split())[:300].rstrip(".")
            raise ConfigError(f"conform: node {client} did not come to its end: {why}.")
        return answer
