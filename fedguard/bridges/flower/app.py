"""An app's folder: its project file, and the components that it names."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict
from flwr.serverapp import ServerApp

from fedguard.errors import ConfigError

_App = TypeVar("_App", ServerApp, ClientApp)


@dataclass(frozen=True)
class FlowerApp:
    """An app's folder, as its pyproject.toml describes it.

    Attributes:
        folder: the folder of pyproject.toml.
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
            settings: override the app's own run configuration, by flat keys.

        Raises:
            ConfigError: there is no app, or its configuration lacks a key of ``settings``.
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
        # Flower, too, overrides only keys that the project file declares
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
            ConfigError: a component cannot be imported, or has the wrong type.
        """
        return self.server_app(), self.client_app()

    def server_app(self) -> ServerApp:
        """Import the server's side; see `load`."""
        return self._import_app(self.server, ServerApp)

    def client_app(self) -> ClientApp:
        """Import the clients' side; see `load`."""
        return self._import_app(self.client, ClientApp)

    def _import_app(self, reference: str, kind: type[_App]) -> _App:
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))
        module, _, name = reference.partition(":")
        try:
            one = getattr(importlib.import_module(module), name)
        except Exception as error:  # whatever a user's module raises
            raise ConfigError(
                f"{self.folder}: {reference} cannot be imported: {type(error).__name__}: {error}."
            ) from error
        if not isinstance(one, kind):
            raise ConfigError(f"{self.folder}: {reference}: expected a {kind.__name__}; got {type(one).__name__}.")
        return one


class ImportedClientApp(ClientApp):
    """An app's client side, imported where it is called, so that it can be sent to another process.

    Args:
        app: the folder, as the other process sees it.
    """

    def __init__(self, app: FlowerApp) -> None:
        super().__init__()
        self._app = app

    def __call__(self, message: Message, context: Context) -> Message:
        own = configure_context(context, self._app.config)
        try:
            return self._app.client_app()(message, own)
        finally:
            # Flower stores the context that it passed in, and an app may have replaced the state of the copy
            context.state = own.state


def configure_context(context: Context, config: Mapping[str, Any]) -> Context:
    """A copy of the context with a run's configuration; some engines make the original's read-only."""
    return Context(
        run_id=context.run_id,
        node_id=context.node_id,
        node_config=context.node_config,
        state=context.state,
        run_config=dict(config),
    )
