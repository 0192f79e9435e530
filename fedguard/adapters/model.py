"""A model of a suite, with low-rank adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fedguard.adapters.form import AdapterForm
from fedguard.contracts import Model
from fedguard.contracts.tasks import Reduction


@dataclass(frozen=True, kw_only=True)
class AdaptedModel(Model):
    """The networks of a model, of which only adapters are trained, and what else the form leaves trained.

    It has the identity of its model; the form belongs to the training.

    Args:
        model: the model without adapters that a suite names.
        form: what is sent of the adapters.
    """

    model: Model
    form: AdapterForm

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.model.name)

    @property
    def modules(self) -> frozenset[str]:
        return self.model.modules

    @property
    def by_example(self) -> bool:
        return self.model.by_example

    @property
    def by_cross_entropy(self) -> bool:
        return self.model.by_cross_entropy

    def loss(self, logits: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        return self.model.loss(logits, y, reduction)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return self.form.adapt(self.model.build(shape, classes))

    def spec(self) -> dict[str, Any]:
        return self.model.spec()

    def __str__(self) -> str:
        return str(self.model)


def form_of(model: Model) -> AdapterForm | None:
    """The form of a model's adapters; None for a model without any."""
    return model.form if isinstance(model, AdaptedModel) else None
