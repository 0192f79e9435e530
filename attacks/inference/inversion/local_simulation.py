"""Inversion through a simulation of the local training (after Geiping et al. 2020 and Dimitrov et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedguard.attacks.inference.inversion.inverting_gradients import InvertingGradients
from fedguard.attacks.inference.inversion.matching import Update, mean_loss
from fedguard.contracts import InferenceView


@dataclass(frozen=True, kw_only=True)
class LocalSimulation(InvertingGradients):
    """Inverting Gradients for updates of several steps: the dummy images are trained on, and what comes out is compared.

    min over x of $1 - cos(theta_K(x) - theta_0, update) + tv * TV(x)$, $theta_(k+1) = theta_k - lr * grad L(theta_k,
    batch_k)$, differentiated through all K local steps. Epochs, batch size, step size and momentum follow the plan. The
    order in which a client drew its examples is unknown: each epoch uses the same order, so batches are right up to the
    mixing of examples between them. With one local step the attack is Inverting Gradients.
    """

    name = "local_simulation"
    source = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022"

    def update(self, view: InferenceView) -> Update:
        def simulate_update(x: Tensor, targets: Tensor) -> Tensor:
            counts = list(view.counts)
            parts = zip(torch.split(x, counts), torch.split(targets, counts), strict=True)
            return torch.stack([train_on_dummies(view, *part) for part in parts]).mean(0)

        return vmap(simulate_update)


def train_on_dummies(view: InferenceView, x: Tensor, targets: Tensor) -> Tensor:
    """``[d]``: the change of one client's model on ``x`` (``[n, *shape]``), by SGD after the plan."""
    plan, n = view.plan, len(x)
    batches = torch.split(torch.arange(n), plan.batch_size or n)
    steps = plan.steps or (plan.epochs or 1) * len(batches)
    model, velocity = view.model, torch.zeros_like(view.model)
    for rows in islice(cycle(batches), steps):
        weights = model.new_full((len(rows),), 1 / len(rows))
        gradient = grad(lambda at, rows=rows, weights=weights: mean_loss(view, at, x[rows], targets[rows], weights))(
            model
        )
        velocity = plan.momentum * velocity + gradient
        model = model - plan.lr * velocity
    return model - view.model
