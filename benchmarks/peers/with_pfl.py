"""The round as pfl-research's `FederatedAveraging` on its `SimulatedBackend` trains it; under torchrun on many processes.

Its batches are cut once and keep their order.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from work import Task, serve


class Model(nn.Module):
    """What pfl-research asks of a module: its loss, and metrics."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.module(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Pfl:
    def __init__(self, task: Task) -> None:
        np.random.seed(0)  # noqa: NPY002, all processes must draw the same users
        clients, self._done = len(task.x), 0
        parts = [PyTorchTensorDataset((x, y)) for x, y in zip(task.x, task.y, strict=True)]
        users = FederatedDataset(parts.__getitem__, MinimizeReuseUserSampler(range(clients)))
        module = Model(task.module)
        self._model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
        self._backend, self._algorithm = SimulatedBackend(users, users), FederatedAveraging()
        self._plan = NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=task.lr, local_batch_size=task.batch, local_max_grad_norm=None
        )
        self._facts = {"evaluation_frequency": sys.maxsize, "train_cohort_size": clients, "val_cohort_size": None}

    def run(self, rounds: int) -> None:
        """Goes on where it stopped. Its first round evaluates, the others do not."""
        self._done += rounds
        plan = NNAlgorithmParams(central_num_iterations=self._done, **self._facts)
        self._algorithm.run(plan, self._backend, self._model, self._plan, send_metrics_to_platform=False)

    def model(self) -> dict[str, Tensor]:
        return self._model.pytorch_model.module.state_dict()


def shared(questions: Iterator[str]) -> Iterator[str]:
    """The first process reads, all hear; it alone saves the model."""
    first = torch.distributed.get_rank() == 0
    while True:
        heard = [next(questions, None) if first else None]
        torch.distributed.broadcast_object_list(heard)
        if heard[0] is None:
            return
        if first or "model" not in json.loads(heard[0]):
            yield heard[0]


if __name__ == "__main__":
    if torch.distributed.is_initialized():  # by pfl, when it was imported under torchrun
        if torch.distributed.get_rank() > 0:
            os.dup2(2, 1)  # only the first one answers
        serve(Pfl, shared(iter(sys.stdin)))
    else:
        serve(Pfl)
