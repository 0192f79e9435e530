"""How much the clients' data differ: declared by the partition, measured here."""

from __future__ import annotations

import torch

from fedguard.contracts import LocalPlan, Task
from fedguard.rng import Rng


def dissimilarity(task: Task, rng: Rng) -> dict[str, float | int]:
    """Measures of heterogeneity over all clients of a task.

    Returns:
        label_distance: mean over clients of the total variation distance between a client's label distribution and the
            pooled one, in [0, 1].
        gradient_dissimilarity: ``mean_i |g_i - g|^2 / |g|^2`` of the full-batch gradients at the initial model, g their
            mean (the relative form of G^2 in Karimireddy et al., ICLR 2022).
        smallest_client, median_client, largest_client: numbers of examples.
    """
    clients = range(len(task.sizes))
    counts = torch.stack(
        [torch.bincount(task.examples(client).y, minlength=task.classes) for client in clients]
    ).double()
    shares = counts / counts.sum(1, keepdim=True)
    pooled = counts.sum(0) / counts.sum()
    gradients = torch.empty(len(clients), task.dim)
    plan = LocalPlan(lr=1.0, batch_size=None, steps=1)
    task.local_updates(task.initial_model(rng.child("model")), clients, plan, rng.child("dissimilarity"), gradients)
    mean = gradients.mean(0)
    sizes = sorted(task.sizes)
    return {
        "label_distance": float((shares - pooled).abs().sum(1).mean() / 2),
        "gradient_dissimilarity": float((gradients - mean).square().sum(1).mean() / mean.square().sum()),
        "smallest_client": sizes[0],
        "median_client": sizes[len(sizes) // 2],
        "largest_client": sizes[-1],
    }
