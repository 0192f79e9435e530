"""FedBN: normalizing layers are each client's own (Li et al., FedBN, ICLR 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.modules.batchnorm import _NormBase

from fedguard.algorithms.personal import Coordinates, PersonalAlgorithm
from fedguard.contracts import CellContext, Task
from fedguard.contracts.tasks import select_trained
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class FedBN(PersonalAlgorithm):
    """Each client keeps its normalizing layers for itself: their weights and biases, and their running statistics.

    Layers that normalize over batches are found by their type. Updates keep their length d; the weights and biases of these
    layers are 0 in everybody's update. Running statistics have the fate ``local``, which is the default here. A network that
    shares the weights and biases, and not the statistics, is ``algorithm: fedavg`` with ``statistics: local`` (SiloBN).

    A model is evaluated at each honest client, on test examples that are weighed by the client's shares of the labels; metrics
    are means over these clients.
    """

    name = "fedbn"
    source = "Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021"
    keeps = "its normalizing layers"
    usual_statistics = "local"

    def reasons(self, cell: CellContext) -> Iterator[str]:
        """The statistics are each client's own, as the weights are."""
        yield from super().reasons(cell)
        if cell.training.statistics not in (None, self.usual_statistics):
            yield (
                f"fedbn keeps normalizing layers at the clients, and training.statistics: {cell.training.statistics} takes "
                "their running statistics from them. Leave training.statistics out, or use fedavg."
            )

    def coordinates(self, task: Task) -> Coordinates:
        kept, place = [], 0
        normalizing = [part for part in task.module.modules() if isinstance(part, _NormBase)]
        own = {id(parameter) for layer in normalizing for parameter in layer.parameters()}
        trained = select_trained(task.module).values()
        for parameter in trained:
            if id(parameter) in own:
                kept.append(torch.arange(place, place + parameter.numel()))
            place += parameter.numel()
        require(
            0 < len(kept) < len(trained),
            "fedbn: expected a network with layers that normalize over batches, and others, which are shared; got "
            f"{len(normalizing)} normalizing layers. Use resnet8(norm='batch'), or fedavg.",
        )
        return torch.cat(kept)
