"""A module with other parameters in place of its own: as `torch.func.functional_call` has it, to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedguard.tasks.network import apply_module, flatten, holding


class Tied(nn.Module):
    """Two layers of one weight, which both modules call theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).tanh()).tanh())


def by_torch(module: nn.Module, model: Tensor, x: Tensor) -> Tensor:
    named = dict(module.named_parameters())
    parts = torch.split(model, [parameter.numel() for parameter in named.values()])
    views = {name: part.view(own.shape) for (name, own), part in zip(named.items(), parts, strict=True)}
    return functional_call(module, views, (x,))


def outputs(way: Callable[..., Tensor], module: nn.Module, models: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Of one model, of several at once, and the gradients of these."""
    of_each = vmap(lambda one: way(module, one, x))(models)
    return way(module, models[0], x), of_each, vmap(grad(lambda one: way(module, one, x).square().sum()))(models)


@pytest.mark.parametrize(
    "module", [Tied(), nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), nn.Linear(5, 3)]
)
def test_outputs_and_gradients_are_those_of_torchs(module):
    draw = torch.Generator().manual_seed(0)
    own = flatten(module)
    before = own.clone()
    for _ in range(20):
        models, x = torch.randn(4, len(own), generator=draw), torch.randn(6, 5, generator=draw)
        for found, wanted in zip(
            outputs(apply_module, module, models, x), outputs(by_torch, module, models, x), strict=True
        ):
            assert torch.equal(found, wanted)
    assert torch.equal(own, before)


def test_a_module_has_its_own_again_afterwards_also_after_an_error():
    module = Tied()
    own = list(module.parameters())
    flat = flatten(module)

    def fails() -> None:
        with holding(module, torch.zeros_like(flat)):
            assert not module(torch.ones(1, 5)).any() and module.second.weight is module.first.weight
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    for wrong in (flat[:-1], torch.zeros(len(flat) + 1)):
        with pytest.raises(RuntimeError):
            apply_module(module, wrong, torch.ones(1, 5))
    assert all(one is other for one, other in zip(own, module.parameters(), strict=True))
    flat.zero_()
    assert not module(torch.ones(1, 5)).any()
