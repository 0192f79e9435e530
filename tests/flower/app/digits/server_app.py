"""The server: federated averaging."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = FedAvg()
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=context.run_config["num-server-rounds"]
    )
