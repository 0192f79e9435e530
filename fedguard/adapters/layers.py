"""Low-rank adapters put beside the linear layers of a network that has none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedguard.errors import ConfigError


class LowRankLinear(nn.Module):
    """A frozen linear layer with a trained adapter: $y = W x + b + s B A x$, with B = 0 at first.

    Args:
        base: the layer, whose weight and bias are frozen.
        rank: r, of A ``[r, inputs]`` and B ``[outputs, r]``.
        scaling: s.
    """

    folded: nn.Parameter | None

    def __init__(self, base: nn.Linear, rank: int, scaling: float) -> None:
        super().__init__()
        self.scaling = scaling
        self.weight, self.bias = base.weight.requires_grad_(False), base.bias
        if base.bias is not None:
            base.bias.requires_grad_(False)
        # Layers of their own, since gradients of single examples are found layer by layer; A is drawn as torch draws layers
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

        self.register_parameter("folded", None)

    def keep_folded(self) -> None:
        """From now on the layer adds a matrix F to W, which its server moves and no training does."""
        # Three dimensions, since F is no factor of an adapter
        self.register_parameter("folded", nn.Parameter(torch.zeros_like(self.weight)[None]))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.lora_B(self.lora_A(x))
        weight = self.weight
        if self.folded is not None:
            # A gradient of 0 instead of none, which engines would take for an error
            weight = weight + self.folded[0].detach() + 0 * self.folded[0]
        return linear(x, weight, self.bias) + self.scaling * added


def add_adapters(module: nn.Module, rank: int, scaling: float, targets: Sequence[str]) -> None:
    """Freeze a network, put an adapter beside each targeted linear layer, and leave its last linear layer trained.

    Args:
        targets: whole names of linear layers, or their last parts; all but the last layer if empty. The last layer, which
            names the classes, is trained as a whole unless it is a target.

    Raises:
        ConfigError: there is no such layer, or the rank is no smaller than a layer's sizes.
    """
    layers = {name: part for name, part in module.named_modules() if type(part) is nn.Linear}
    last = next(reversed(layers), None)
    chosen = [name for name in layers if _matches(name, targets)] if targets else [one for one in layers if one != last]
    missing = [one for one in targets if not any(_matches(name, [one]) for name in layers)]
    if missing or not chosen:
        lacks = f"no linear layer {missing[0]}" if missing else "no linear layer before its last"
        raise ConfigError(
            f"training.adapters: the network has {lacks}; its linear layers are {', '.join(layers) or 'none'}. Name some of "
            "them in training.adapters.targets, or use mlp or transformer."
        )
    for name in chosen:
        if rank > (most := min(layers[name].in_features, layers[name].out_features)):
            raise ConfigError(f"training.adapters: rank: expected at most {most}, for layer {name}; got {rank}.")
    module.requires_grad_(False)
    if last is not None:
        layers[last].requires_grad_(True)
    for name in chosen:
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, LowRankLinear(layers[name], rank, scaling))


def _matches(name: str, targets: Sequence[str]) -> bool:
    return any(name == one or name.endswith(f".{one}") for one in targets)
