"""FedPer: the last layer is each client's own (Arivazhagan et al., Federated Learning with Personalization Layers, 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedguard.algorithms.personal import Coordinates, PersonalAlgorithm
from fedguard.contracts import Task
from fedguard.contracts.tasks import select_trained
from fedguard.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class FedPer(PersonalAlgorithm):
    """Each client trains the shared layers and a last layer of its own, and sends what the shared ones moved by.

    Updates keep their length d; the part of the last layer is 0 in everybody's update. The global model keeps its initial last
    layer, from which each client starts too. The clients train one by one, since each starts from another model.

    A model is evaluated at each honest client, whether the client has trained yet or not. There the test examples are weighed
    by the client's shares of the labels, as if it had test examples of its own. This measures how a client does on its own
    labels, but not differences in how the clients' inputs look. Metrics are means over these clients; the loss weighs all test
    examples alike.
    """

    name = "fedper"
    source = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"
    keeps = "its last layer"

    def coordinates(self, task: Task) -> Coordinates:
        size = last_layer(task.module, task.shape)
        require(
            size < task.dim,
            "fedper: expected a model with layers below the last, which are shared; got one layer. Use mlp, or fedavg.",
        )
        return slice(task.dim - size, task.dim)


def last_layer(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of parameters of the layer that runs last; they are at the end of the flat vector.

    Raises:
        ConfigError: they are not at the end, since another layer was made after it or shares them.
    """
    ran: list[nn.Module] = []
    trained = list(select_trained(module).values())
    layers = [part for part in module.modules() if _own(part)]
    hooks = [layer.register_forward_pre_hook(lambda layer, _: ran.append(layer)) for layer in layers]
    try:
        with torch.no_grad():
            module(torch.zeros(1, *shape))
    finally:
        for hook in hooks:
            hook.remove()
    own = _own(ran[-1])
    if [id(one) for one in own] != [id(one) for one in trained[-len(own) :]]:
        raise ConfigError(
            "fedper: expected a network whose last layer is made last and shares no parameters; got another. Make it at the "
            "end of __init__, or use fedavg."
        )
    return sum(parameter.numel() for parameter in own)


def _own(layer: nn.Module) -> list[nn.Parameter]:
    """The trained parameters of the layer itself."""
    return [parameter for parameter in layer.parameters(recurse=False) if parameter.requires_grad]
