"""Synthetic(alpha, beta): clients with models and inputs that differ by a chosen amount (Li et al., MLSys 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, NonNegativeFloat, NonNegativeInt, PositiveInt, Preparation
from fedguard.rng import Rng
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset


@dataclass(frozen=True, kw_only=True)
class Synthetic(Data):
    """Natural clients k with ``y = argmax softmax(W_k x + b_k)``, of 60 inputs and 10 classes.

    $W_k, b_k ~ N(u_k, 1)$ with $u_k ~ N(0, alpha)$; $x ~ N(v_k, Sigma)$ with $Sigma_jj = j^-1.2$, $v_k ~ N(B_k, 1)$
    and $B_k ~ N(0, beta)$. A client has 50 examples and more, $50 + lognormal(4, 2)$ of them, at most ``largest``. A
    class with a single example is left out.

    Args:
        alpha: variance of $u_k$. By the source's definition $u_k$ is added to all of $W_k$ and $b_k$ alike, so it shifts
            all logits by the same and changes no label: clients differ in their models as much at 0.
        beta: variance of $B_k$, the level of a client's inputs. At 0 clients still differ by $v_k$.
        clients: how many natural clients there are.
        largest: the most examples of one client.
        seed: of all draws.
    """

    name = "synthetic"
    source = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020"

    alpha: NonNegativeFloat = 1.0
    beta: NonNegativeFloat = 1.0
    clients: PositiveInt = 30
    largest: Annotated[int, Ge(50)] = 1000
    seed: NonNegativeInt = 0

    @property
    def preparation(self) -> Preparation:
        return Preparation(
            "records",
            "the range of the inputs and which classes there are",
            "Take other data, such as npz with both given.",
        )

    def load(self) -> Dataset:
        parts = [self.client(number) for number in range(self.clients)]
        x, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        owners = np.repeat(np.arange(self.clients), [len(y) for _, y in parts])
        kept = np.bincount(labels, minlength=10)[labels] >= 2  # one of them to learn from, one for testing
        y = np.unique(labels[kept], return_inverse=True)[1]
        span = float(np.float32(x.min())), float(np.float32(x.max()))
        x = x.astype(np.float32)
        return assemble_dataset("synthetic", RawExamples(x[kept], y, owners[kept]), value_range=span)

    def client(self, number: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Inputs ``[N, 60]`` and labels ``[N]`` of one natural client, which do not depend on how many there are."""
        draw = Rng(self.seed).child("synthetic", number).numpy()
        size = int(min(self.largest, 50 + draw.lognormal(4, 2)))
        model, inputs = draw.normal(0, self.alpha**0.5), draw.normal(0, self.beta**0.5)
        weight, bias = draw.normal(model, 1, (60, 10)), draw.normal(model, 1, 10)
        center, deviation = draw.normal(inputs, 1, 60), np.arange(1, 61) ** -0.6
        x = center + draw.normal(size=(size, 60)) * deviation
        return x, (x @ weight + bias).argmax(1)
