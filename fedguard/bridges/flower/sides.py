"""The two sides of a deployed app, in the processes of SuperLink and SuperNodes; each message starts one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedguard.bridges.flower.app import FlowerApp, ImportedClientApp
from fedguard.bridges.flower.node import SeededClientApp
from fedguard.errors import FedGuardError, NotAllowed

#: Files of a deployment's own folder: the request, and the answer.
ASKED, TOLD = "asked.json", "told.json"


def server_side(folder: Path, home: Path) -> ServerApp:
    """The server app that a SuperLink runs: the app's own, at FedGuard's Grid. It always writes a file at its end."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # Here, since a SuperNode imports this module too, once for each message, and needs none of it
        from fedguard.bridges.flower.serving import serve_app
        from fedguard.bridges.jobs import TrialRequest

        told = json.loads((home / ASKED).read_text())
        asked, read = TrialRequest(**told["asked"]), FlowerApp(folder, **told["parts"])
        try:
            answer: dict[str, Any] = {"found": serve_app(asked, read, grid, context, dict(told["nodes"]))}
        except FedGuardError as error:
            answer = {"refused": isinstance(error, NotAllowed), "reason": str(error)}
        except Exception as error:
            answer = {"refused": False, "reason": f"the app's server raised: {type(error).__name__}: {error}"}
            raise
        finally:
            # Renamed when complete: `deployment` polls for the name and reads at once
            (home / f"{TOLD}.new").write_text(json.dumps(answer))
            (home / f"{TOLD}.new").replace(home / TOLD)

    return app


def client_side(folder: Path, home: Path) -> ClientApp:
    """The client app that a SuperNode runs: the app's own, seeded."""
    told = json.loads((home / ASKED).read_text())
    return SeededClientApp(ImportedClientApp(FlowerApp(folder, **told["parts"])), told["asked"]["seed"])
