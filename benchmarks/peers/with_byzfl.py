"""The round as ByzFL's `Client` and `Server` train it, in the order of its `benchmark/train.py` with FedAvg.

Left out of that loop: evaluation, files, and the attack. The data are tensors in memory, without the transformations that
its examples have.
"""

from __future__ import annotations

import copy

from byzfl import Client, DataDistributor, Server
from byzfl.fed_framework import models
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from work import Task, serve


class ByzFL:
    def __init__(self, task: Task) -> None:
        models.Given = lambda: copy.deepcopy(task.module)  # it knows models by their name in this file
        clients, images = task.y.shape
        self._steps = -(-images // task.batch)
        given = {"model_name": "Given", "device": "cpu", "optimizer_name": "SGD", "learning_rate": task.lr}
        given |= {"weight_decay": 0.0, "milestones": [], "learning_rate_decay": 1.0}
        honest = {"loss_name": "CrossEntropyLoss", "LabelFlipping": False, "nb_labels": 10, "momentum": 0.0}
        loaders = self._loaders(task, clients, images)
        self._clients = [
            Client({**given, **honest, "training_dataloader": loader, "store_per_client_metrics": False})
            for loader in loaders
        ]
        aggregator = {"aggregator_info": {"name": "Average", "parameters": {}}, "pre_agg_list": []}
        self._server = Server({**given, **aggregator, "test_loader": loaders[0]})  # never tested, but it wants one

    def _loaders(self, task: Task, clients: int, images: int) -> list[DataLoader]:
        """Those of its distributor, with our choice of who has what."""
        data = TensorDataset(task.x.flatten(0, 1), task.y.flatten())
        whole = {"data_loader": DataLoader(data), "data_distribution_name": "iid", "nb_honest": clients}
        distributor = DataDistributor({**whole, "batch_size": task.batch})
        return distributor.idx_to_dataloaders([range(i * images, (i + 1) * images) for i in range(clients)])

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            weights = []
            for client in self._clients:
                client.compute_model_update(self._steps)
                weights.append(client.get_flat_parameters())
            self._server.update_model_with_weights(weights)
            new = self._server.get_dict_parameters()
            for client in self._clients:
                client.set_model_state(new)

    def model(self) -> dict[str, Tensor]:
        return self._server.get_dict_parameters()


if __name__ == "__main__":
    serve(ByzFL)
