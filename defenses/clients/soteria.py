"""Soteria (Sun et al., CVPR 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedguard.contracts import ClientContext, ClientTransform, Share
from fedguard.contracts.tasks import select_trained
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Soteria(ClientTransform):
    """Each honest client leaves out of one dense layer's update what its representation tells most of the input.

    The layer's input r(x) is the representation. The columns of the layer's weight update that belong to the ``share`` of
    its entries with the largest $sum_x |r_i(x)| / |dr_i/dx|$ become 0; a dead entry $(0 / 0)$ counts as 0. The sum runs
    over the examples that the client trained on, at the model that it started from. All other layers are sent as they are.
    No formal guarantee. An attacker leaves the layer's weights out of the comparison (Balunovic et al., ICLR 2022).

    Args:
        share: of the entries that are pruned.
        layer: which of the network's dense layers, counted from 0; negative numbers count from the last.
    """

    name = "soteria"
    source = "Sun et al., Soteria: Provable Defense Against Privacy Leakage in Federated Learning, CVPR 2021"
    reads_data = True
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd), and a backward pass per entry of the representation at the clients"

    share: Share = 0.8
    layer: int = -1

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        layer, start = self._locate_layer(context.module)
        scores = _scores(_representation(context.module, layer, context.model, context.examples.x))
        pruned = scores.topk(round(self.share * len(scores))).indices
        sent = update.clone()
        sent[start : start + layer.weight.numel()].view(layer.weight.shape)[:, pruned] = 0
        return sent

    def adapt(self, dummy: Tensor, observed: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
        layer, start = self._locate_layer(module)
        rest = torch.ones_like(observed)
        rest[start : start + layer.weight.numel()] = 0
        return dummy * rest, observed * rest

    def _locate_layer(self, module: nn.Module) -> tuple[nn.Linear, int]:
        """The layer, and the index of its first weight in an update."""
        trained = list(select_trained(module).values())
        layers = [part for part in module.modules() if isinstance(part, nn.Linear) and part.weight.requires_grad]
        if not -len(layers) <= self.layer < len(layers):
            raise ConfigError(
                f"soteria: layer: expected one of the network's {len(layers)} dense layers; got {self.layer}."
            )
        layer, start = layers[self.layer], 0
        for parameter in trained:
            if parameter is layer.weight:
                break
            start += parameter.numel()
        return layer, start


def _representation(module: nn.Module, layer: nn.Linear, model: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The input of ``layer`` (``[B, m]``), and the network inputs ``[B, *shape]`` by which it can be differentiated."""
    shapes: Mapping[str, nn.Parameter] = select_trained(module)
    parts = torch.split(model, [parameter.numel() for parameter in shapes.values()])
    weights = {name: part.view(shapes[name].shape) for name, part in zip(shapes, parts, strict=True)}
    given: list[Tensor] = []
    x = x.detach().clone().requires_grad_()
    hook = layer.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    try:
        functional_call(module, weights, (x,))
    finally:
        hook.remove()
    return given[0], x


def _scores(of: tuple[Tensor, Tensor]) -> Tensor:
    """``[m]``: sum over the examples of ``|r_i| / |dr_i/dx|``."""
    representation, x = of
    scores = []
    for entry in representation.unbind(1):
        # Each example's entry depends on that example alone, so one backward pass of the sum serves the whole batch
        (slope,) = torch.autograd.grad(entry.sum(), x, retain_graph=True)
        ratio = entry.detach().abs() / slope.flatten(1).norm(dim=1)
        # An entry that no input moves but that is not 0 has an infinite ratio, which becomes the largest float: pruned first
        scores.append(ratio.nan_to_num(nan=0.0).sum())
    return torch.stack(scores)
