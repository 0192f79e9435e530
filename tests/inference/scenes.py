"""A client, a server that watches it, and the truth beside: plain autograd and SGD, nothing of the library's training."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.contracts import ClientContext, Dataset, Examples, InferenceView, LocalPlan, Sight
from fedguard.inference import inference_view
from fedguard.rng import Rng
from fedguard.tasks.data.digits import Digits
from fedguard.tasks.network import apply

SEES = Sight.EACH_UPDATE | Sight.SUM | Sight.MODEL


def digits(count: int, seed: int = 0, *, labels: str = "any") -> Examples:
    """``count`` digits drawn at random; ``labels="distinct"``: of different classes; ``"one"``: all of one class."""
    train = loaded().train
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    if labels == "distinct":
        order = torch.stack([order[train.y[order] == label][0] for label in torch.randperm(10)[:count]])
    if labels == "one":
        order = order[train.y[order] == train.y[order[0]]]
    return train[order[:count]]


@cache
def loaded() -> Dataset:
    return Digits().load()


def mlp(*widths: int, seed: int = 0, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Flatten, Linear, activation, ..., Linear with torch's own initialisation."""
    layers: list[nn.Module] = [nn.Flatten()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def flat(module: nn.Module) -> Tensor:
    """float32 ``[d]``: the parameters in order."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def gradient(module: nn.Module, examples: Examples) -> Tensor:
    """float32 ``[d]``: of the mean loss."""
    loss = cross_entropy(module(examples.x), examples.y)
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(module.parameters()))])


def trained(module: nn.Module, examples: Examples, *, lr: float, epochs: int, batch: int, seed: int = 0) -> Tensor:
    """float32 ``[d]``: what plain SGD from the module's weights moves by; each epoch in a fresh order."""
    import copy

    module = copy.deepcopy(module)
    start, generator = flat(module), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(examples), generator=generator).split(batch):
            parts = torch.autograd.grad(
                cross_entropy(module(examples.x[rows]), examples.y[rows]), list(module.parameters())
            )
            with torch.no_grad():
                for parameter, part in zip(module.parameters(), parts, strict=True):
                    parameter.sub_(lr * part)
    return flat(module) - start


def client(module: nn.Module, examples: Examples, seed: int = 0) -> ClientContext:
    """What a client knows that took one step on ``examples``."""
    return ClientContext(
        "test",
        Sight.OWN_DATA | Sight.MODEL,
        round=1,
        rng=Rng(seed),
        examples=examples,
        value_range=(0.0, 1.0),
        model=flat(module),
        module=module,
        predict=lambda model, x: apply(module, model, x),
        plan=LocalPlan(lr=1.0, steps=1),
    )


@dataclass(frozen=True)
class Scene:
    """Some clients who hold ``parts``, and a network.

    Attributes:
        plan: one step on all of a client's examples by default, so that an update is the negative gradient.
        sees: what the server sees; without EACH_UPDATE only the mean of all.
    """

    module: nn.Module
    parts: tuple[Examples, ...]
    plan: LocalPlan = field(default_factory=lambda: LocalPlan(lr=1.0, steps=1))
    sees: Sight = SEES
    seed: int = 0

    def sent(self, module: nn.Module | None = None) -> Tensor:
        """float32 ``[n, d]``: what the clients send when they get ``module``."""
        module = module or self.module
        if self.plan.steps == 1:
            return torch.stack([-self.plan.lr * gradient(module, part) for part in self.parts])
        return torch.stack(
            [
                trained(
                    module, part, lr=self.plan.lr, epochs=self.plan.epochs or 1, batch=self.plan.batch_size or len(part)
                )
                for part in self.parts
            ]
        )

    def view(self, *, updates: Tensor | None = None, **more: Any) -> InferenceView:
        """What the server sees; ``updates`` in place of the true ones (noisy, transformed, or under a tampered model)."""
        sent = self.sent() if updates is None else updates
        model = flat(self.module)
        each = Sight.EACH_UPDATE in self.sees
        values: dict[str, Any] = {
            "models": torch.stack([model, model + sent.mean(0)]),
            "updates": sent[None],
            "aggregates": sent.mean(0)[None],
            "counts": (len(self.parts[0]),) if each else tuple(map(len, self.parts)),
            "shape": tuple(self.parts[0].x.shape[1:]),
            "classes": 10,
            "plan": self.plan,
            "rng": Rng(self.seed),
        }
        return inference_view("the server", self.sees, self.module, **{**values, **more})


def psnr(x: Tensor, truth: Tensor) -> Tensor:
    """float64 ``[B]``: 10 log10(1 / MSE) of each image beside the truth in the same row, for values in [0, 1]."""
    error = (x.double() - truth.double()).flatten(1).square().mean(1)
    return -10 * error.clamp(min=1e-12).log10()
