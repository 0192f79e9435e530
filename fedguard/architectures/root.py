"""Updates and losses on the server's clean root data, and losses on a client's own examples."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import ROOT, Setup


def root_update(setup: Setup, model: Tensor, round: int) -> Tensor:
    """float32 ``[d]``: the update that honest training on the root data gives, from ``model`` (float32 ``[d]``)."""
    rng, out = setup.rng.child("round", round), torch.empty(1, len(model))
    return setup.task.local_updates(model, [ROOT], setup.cell.plan, rng, out)[0]


def root_loss(setup: Setup, model: Tensor) -> float:
    """Mean loss of ``model`` (float32 ``[d]``) on the root data; in nats if it is a cross-entropy."""
    return loss_on(setup, ROOT, model)


def loss_on(setup: Setup, client: int, model: Tensor) -> float:
    """Mean loss of ``model`` (float32 ``[d]``) on a client's own examples."""
    examples = setup.task.examples(client)
    return float(setup.task.loss(setup.task.logits(model, examples.x), examples.y))
