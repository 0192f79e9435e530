"""Linear support vector machine for several classes (Crammer and Singer, JMLR 2001)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from torch import Tensor, nn

from fedguard.contracts import Model, Reduction


@dataclass(frozen=True, kw_only=True)
class SVM(Model):
    """One dense layer with bias, as `softmax`, and the hinge loss in place of cross-entropy.

    $l = max(0, 1 + max_{j != y} z_j - z_y)$ of an example with label y and the logits $z = W x + b$, in the form of Crammer and
    Singer: the class that comes nearest is pushed down and the own class up, until the own one leads by 1. Where several come
    equally near, one of them is. An example that is beyond its margin has no gradient.

    There is no penalty on the weights beside it; ``fedprox`` brings one towards the model of the round.
    """

    name = "svm"
    source = (
        "Crammer and Singer, On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines, JMLR 2001"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))

    def loss(self, logits: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        own = logits.gather(1, y[:, None])[:, 0]
        nearest = logits.scatter(1, y[:, None], -inf).max(1).values
        losses = (1 + nearest - own).relu()
        return losses.sum() if reduction == "sum" else losses.mean()
