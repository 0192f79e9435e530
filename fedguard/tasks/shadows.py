"""Shadow models: what a federation would have learned from other examples, trained with its public settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedguard.contracts import DPSGD, Cell, Examples, LocalPlan, Setup
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.network import FlatNetwork


@dataclass(frozen=True)
class Shadows:
    """Trains models on any sets of examples, all at once, from the federation's own initial model.

    One set of examples is one client here. It takes as many steps as a client of the federation takes over all rounds. A batch
    is the same share of its examples as the batches of a round are of all clients' examples. Noise is as strong as on the
    federation's mean: noise of DP-SGD in each step, noise of a round spread over the round's steps. No client's update is
    clipped, since there are no clients. The object holds none of the federation's examples, since attackers receive it.

    Attributes:
        network: a network of the federation's architecture.
        initial: float32 ``[d]``.
        cell: the federation's.
        plan: how a client trains in a round.
        usual: mean number of examples of a client.
        clients: number of clients.
        together: number of clients in a round.
        noise: standard deviation, in each coordinate, of the noise on a round's mean.
    """

    network: FlatNetwork = field(repr=False)
    initial: Tensor = field(repr=False)
    cell: Cell
    plan: LocalPlan
    usual: float
    clients: int
    together: int
    noise: float

    @classmethod
    def like(cls, network: FlatNetwork, initial: Tensor, setup: Setup, noise: float = 0.0) -> Shadows:
        """Shadows of a trial's federation."""
        sizes, clients = setup.task.sizes, setup.cell.clients
        usual, together = sum(sizes) / len(sizes), min(clients.expected, len(sizes))
        return cls(network, initial, setup.cell, setup.local_plan, usual, len(sizes), together, noise)

    def __call__(self, parts: Sequence[Examples], rng: Rng) -> Tensor:
        """float32 ``[k, d]``: one model for each of k sets of examples."""
        cohort = Cohort(self.network, parts)
        moved = torch.empty(len(parts), len(self.initial))
        for size in sorted(set(cohort.sizes)):
            alike = [number for number, other in enumerate(cohort.sizes) if other == size]
            out = torch.empty(len(alike), len(self.initial))
            cohort.train(self.initial, alike, self._plan(size, rng.child("noise", size)), rng, out)
            moved[alike] = out
        return self.initial + moved

    def _plan(self, size: int, rng: Rng) -> LocalPlan:
        """The plan of the whole training on ``size`` examples."""
        cell, plan = self.cell, self.plan
        batch = min(plan.batch_size or self.usual, self.usual)
        local = plan.steps or (plan.epochs or 1) * math.ceil(self.usual / batch)
        if plan.private is not None:
            local = plan.private_steps(plan.private.sample_rate)
        share = size * self.together / (self.usual * self.clients)  # of the examples that a round's clients hold
        together = max(1, round(share * batch))
        whole = replace(
            plan,
            lr=cell.algorithm.lr_alone(cell.training),
            epochs=None,
            steps=cell.training.rounds * local,
            batch_size=together,
        )
        if plan.private is not None:
            return replace(whole, private=self._private(plan.private, share))
        if self.noise:
            std, draw = cell.server_step * self.noise / math.sqrt(local), rng.torch()
            return replace(whole, project=lambda at, _start: at + std * torch.randn(len(at), generator=draw))
        return whole

    def _private(self, private: DPSGD, share: float) -> DPSGD:
        """DP-SGD with a batch of ``share B`` and the noise of a mean over m clients, ``sqrt(mean_i (z_i C_i)^2 / m) / B``."""
        clip = max(clip for clip, _ in private.levels)
        strength = math.sqrt(sum((clip * noise) ** 2 for clip, noise in private.levels) / len(private.levels))
        multiplier = strength / clip * share / math.sqrt(self.together)
        rate = private.sample_rate * self.together / self.clients
        return DPSGD(sample_rate=rate, levels=((clip, multiplier),))
