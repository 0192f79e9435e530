"""How much the clients' data differ: declared by the partition, measured here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedguard.contracts import LocalPlan, Task
from fedguard.contracts.tasks import NOT_ASKED
from fedguard.rng import Rng

#: Up to this number of clients all gradients are measured; of more clients, this number is drawn at random
MEASURED = 500
#: Up to this number of examples of a client all are measured; of more examples, this number is drawn at random: one pass over
#: a client with many costs as much as a round, and takes memory for all of them at once
EXAMPLES = 1024
#: Gradients held at a time by default, in floats: 256 MiB
HELD = 64 << 20
#: Parts of the drawn clients; leaving out one after the other gives the standard error (jackknife)
PARTS = 10


def dissimilarity(task: Task, rng: Rng, held: int = HELD) -> dict[str, float | int]:
    """Measures of heterogeneity over all clients of a task.

    Args:
        held: floats of gradients that are held at a time.

    Returns:
        label_distance: mean over clients of the total variation distance between a client's label distribution and the pooled
            one, in [0, 1]; of the labels of all tokens, if each has one.
        gradient_dissimilarity: ``mean_i |g_i - g|^2 / |g|^2`` of the clients' gradients at the initial model, g their mean
            (the relative form of G^2 in Karimireddy et al., ICLR 2022). With more than `MEASURED` clients it is estimated from
            a sample, corrected for the bias of the sample's own mean. For a client with more than `EXAMPLES` examples
            a sample of these is taken, whose error is part of the distance.
        gradient_examples: only then: the number of its examples, `EXAMPLES`.
        gradient_clients, gradient_error: only if it is estimated: the number of sampled clients, and the standard error.
        smallest_client, median_client, largest_client: numbers of examples.
    """
    clients = range(len(task.sizes))
    labels = (task.examples(client).y for client in clients)
    counts = torch.stack([torch.bincount(y[y != NOT_ASKED], minlength=task.classes) for y in labels]).double()
    shares = counts / counts.sum(1, keepdim=True)
    pooled = counts.sum(0) / counts.sum()
    sizes = sorted(task.sizes)
    return {
        "label_distance": float((shares - pooled).abs().sum(1).mean() / 2),
        **_of_gradients(task, rng, held),
        **({"gradient_examples": EXAMPLES} if sizes[-1] > EXAMPLES else {}),
        "smallest_client": sizes[0],
        "median_client": sizes[len(sizes) // 2],
        "largest_client": sizes[-1],
    }


def _of_gradients(task: Task, rng: Rng, held: int) -> dict[str, float | int]:
    model, total = task.initial_model(rng.child("model")), len(task.sizes)
    if total <= MEASURED:
        return {"gradient_dissimilarity": _relative(_measure_gradients(task, model, range(total), rng, held), total)}
    drawn = rng.child("clients").numpy().choice(total, MEASURED, replace=False)
    parts = [_measure_gradients(task, model, drawn[part::PARTS].tolist(), rng, held) for part in range(PARTS)]
    without = torch.tensor([_relative(_pool_gradients(parts[:k] + parts[k + 1 :]), total) for k in range(PARTS)])
    left_out = 1 - MEASURED / total  # nothing is uncertain where all clients are drawn
    return {
        "gradient_dissimilarity": _relative(_pool_gradients(parts), total),
        "gradient_clients": MEASURED,
        "gradient_error": float((without.var(correction=0) * (PARTS - 1) * left_out).sqrt()),
    }


class _Gradients(NamedTuple):
    """For some clients: their number, the mean of their gradients (float32 ``[d]``), and the mean squared distance from it."""

    clients: int
    mean: Tensor
    spread: Tensor


def _measure_gradients(task: Task, model: Tensor, clients: Sequence[int], rng: Rng, held: int) -> _Gradients:
    """The clients' gradients, computed in chunks that fit the memory limit."""
    plan, step = LocalPlan(lr=1.0, batch_size=EXAMPLES, steps=1), max(1, held // task.dim)
    found = []
    for begin in range(0, len(clients), step):
        now = clients[begin : begin + step]
        gradients = torch.empty(len(now), task.dim)
        task.local_updates(model, now, plan, rng.child("dissimilarity"), gradients)
        mean = gradients.mean(0)
        found.append(_Gradients(len(now), mean, gradients.sub_(mean).square_().sum(1).mean()))
        if len(found) > 1:
            found = [_pool_gradients(found)]
    return found[0]


def _pool_gradients(parts: Sequence[_Gradients]) -> _Gradients:
    clients = sum(part.clients for part in parts)
    mean = sum((part.mean * (part.clients / clients) for part in parts), torch.zeros(()))
    around = [(part.spread + (part.mean - mean).square().sum()) * (part.clients / clients) for part in parts]
    return _Gradients(clients, mean, torch.stack(around).sum())


def _relative(found: _Gradients, total: int) -> float:
    """``spread / |mean|^2`` among ``total`` clients, of which these were drawn."""
    length = found.mean.square().sum()
    if found.clients == total:
        return float(found.spread / length)
    spread = found.spread * (found.clients / (found.clients - 1) * (total - 1) / total)
    # E |sample mean|^2 exceeds |mean|^2 by the sampling variance; at most half is subtracted, so that it stays positive
    strays = spread / found.clients * ((total - found.clients) / (total - 1))
    return float(spread / torch.maximum(length - strays, length / 2))
