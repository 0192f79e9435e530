"""A Flower app in one process: real server app, strategy, client apps and messages; no process for each message."""

from __future__ import annotations

import importlib
import random
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.task_identity import TaskIdentity

from fedguard.errors import ConfigError

#: What Flower calls the server's node; and a message's error where a client app raised.
SERVER, RAISED = 1, 2


@dataclass(frozen=True)
class FlowerApp:
    """An app's folder, as its pyproject.toml describes it.

    Attributes:
        folder: that holds pyproject.toml.
        server, client: ``module:attribute``.
        config: the run's configuration, flat.
    """

    folder: Path
    server: str
    client: str
    config: dict[str, Any]

    @classmethod
    def read(cls, folder: str | Path, settings: Mapping[str, Any] | None = None) -> FlowerApp:
        """Read an app's folder.

        Args:
            settings: put over the app's own run configuration, by its flat keys.

        Raises:
            ConfigError: there is no app, or a key that its configuration has not.
        """
        path = Path(folder) / "pyproject.toml"
        try:
            told = tomllib.loads(path.read_text())
            app = told["tool"]["flwr"]["app"]
            server, client = app["components"]["serverapp"], app["components"]["clientapp"]
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: expected a Flower app's project file; {error}.") from None
        except (KeyError, TypeError):
            raise ConfigError(
                f"{path}: expected [tool.flwr.app.components] with serverapp and clientapp. Make an app with `flwr new`."
            ) from None
        config = dict(flatten_dict(app.get("config")))
        for key, value in (settings or {}).items():
            if key not in config:
                raise ConfigError(
                    f"{path}: run configuration {key!r}: expected one of {', '.join(sorted(config)) or 'none'}."
                )
            config[key] = value
        return cls(Path(folder).resolve(), server, client, config)

    def load(self) -> tuple[ServerApp, ClientApp]:
        """Import both of its components.

        Raises:
            ConfigError: a component cannot be imported, or is something else.
        """
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))
        found: list[Any] = []
        for reference, kind in ((self.server, ServerApp), (self.client, ClientApp)):
            module, _, name = reference.partition(":")
            try:
                one = getattr(importlib.import_module(module), name)
            except Exception as error:  # whatever a user's module raises
                raise ConfigError(
                    f"{self.folder}: {reference} cannot be imported: {type(error).__name__}: {error}."
                ) from error
            if not isinstance(one, kind):
                raise ConfigError(f"{self.folder}: {reference}: expected a {kind.__name__}; got {type(one).__name__}.")
            found.append(one)
        return found[0], found[1]


class InlineGrid(Grid):
    """A Grid whose nodes are in this process, and answer one after another in the order of their numbers.

    Each message passes through Flower's wire format in both directions, so that nobody shares memory. A client app that
    raises answers with Flower's error, as its own engines have it.

    Args:
        client: the client app.
        nodes: how many; node k has ``partition-id`` k - 2 of ``num-partitions``, since the server is node 1.
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

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            self._sent += 1
            name = str(self._sent)
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
            with _as_node(context.node_id):
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
        raise NotImplementedError("Runs are kept by a SuperLink, which is not here.")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)


@contextmanager
def _as_node(number: int) -> Iterator[None]:
    """Flower keeps in the process who it is."""
    TaskIdentity.task_id = TaskIdentity.run_id = 1
    TaskIdentity.node_id = number
    try:
        yield
    finally:
        TaskIdentity.node_id = SERVER


def run_inline(server: ServerApp, client: ClientApp, *, nodes: int, config: Mapping[str, Any], seed: int) -> InlineGrid:
    """Run an app to its end, in this process.

    Args:
        nodes: how many.
        seed: of Python's, numpy's and torch's own streams, from which apps draw.

    Returns:
        the Grid, with what client apps raised.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the app's own draws come from there
    torch.manual_seed(seed)
    grid = InlineGrid(client, nodes, config)
    context = Context(run_id=1, node_id=SERVER, node_config={}, state=RecordDict(), run_config=dict(config))
    with _as_node(SERVER):
        server(grid, context)
    return grid
