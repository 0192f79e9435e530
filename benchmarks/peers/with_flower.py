"""The round as Flower's `run_simulation` trains it, on its ray backend with one client per core at a time.

Its default of two cores for each client would leave one client at a time on two cores. Arguments: how many clients.
"""

from __future__ import annotations

import logging
import sys

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor
from work import Task, serve

server_app = ServerApp()


class Flower:
    def __init__(self, grid: Grid, task: Task) -> None:
        clients = len(task.x)
        self._strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self._grid, self._config = grid, ConfigRecord({"task": task.path})
        self._arrays = ArrayRecord(task.module.state_dict())

    def run(self, rounds: int) -> None:
        given = {"grid": self._grid, "initial_arrays": self._arrays, "train_config": self._config}
        self._arrays = self._strategy.start(**given, num_rounds=rounds).arrays

    def model(self) -> dict[str, Tensor]:
        return self._arrays.to_torch_state_dict()


@server_app.main()
def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
    serve(lambda task: Flower(grid, task))


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    one = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=int(sys.argv[1]), backend_config=one)
