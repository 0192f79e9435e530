"""DP-SGD (Abadi et al., CCS 2016): per-sample gradients, clipping and noise by Opacus, client by client."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor

from fedguard.contracts import Examples, LocalPlan
from fedguard.contracts.tasks import select_trained
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.tasks.engines.by_example import hold, largest_batch
from fedguard.tasks.network import FlatNetwork, duplicate


class PrivateEngine:
    """DP-SGD: ``g = (sum_j min(1, C / |g_j|) g_j + N(0, (z C)^2 I)) / B`` over the examples of a batch, then plain SGD on g.

    The sum is divided by the plan's ``batch_size`` B, which is public, and never by a number of examples. Neither the noise
    nor the step size therefore reveals how much data a client has, and a step on an empty batch is noise alone. Momentum is
    post-processing of private gradients. Opacus clips by ``C / (|g_j| + 1e-6)``, so no clipped gradient exceeds C.
    """

    def __init__(self, network: FlatNetwork, parts: Sequence[Examples]) -> None:
        # Refused at once: if examples see each other, C does not bound what one of them changes, and epsilon means nothing
        hold(network)
        # The hooks for per-sample gradients must not slow down or change anybody else's use of the network
        module, self._flat = duplicate(network.module, parts[0].x.device)
        self._network, self._parts, self._loss = network, parts, network.loss
        self._module = GradSampleModule(module, loss_reduction="sum")

    def train(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[NDArray[np.int64]],
        plan: LocalPlan,
        out: Tensor,
        streams: Sequence[Rng],
    ) -> None:
        """Write each client's update into its row of ``out``; noise comes from `noise_stream`."""
        if plan.private is None or plan.batch_size is None or plan.adjust is not None or plan.project is not None:
            raise ConfigError(
                "private training: expected a public batch_size and unchanged steps; got none, or steps that a client alters."
            )
        if plan.prox or plan.corrections:
            raise ConfigError(
                "private training: expected steps on the clients' own loss; got a proximal term or corrections, whose privacy "
                "nobody has accounted for. Train by plain FedAvg or FedSGD."
            )
        # With the likely size the verdict is the same in all rounds; a larger batch is drawn about once in a billion steps
        drawn = max(((schedule >= 0).sum(1).max(initial=0) for schedule in schedules), default=0)
        likely = largest_batch(map(len, self._parts), plan.private.sample_rate)
        hold(self._network, max(int(drawn), likely))
        sgd = torch.optim.SGD(select_trained(self._module).values(), lr=plan.lr, momentum=plan.momentum)
        starts = model.expand(len(clients), -1)
        for row, start, client, schedule, stream in zip(out, starts, clients, schedules, streams, strict=True):
            clip, noise_multiplier = plan.private.level(client)
            sgd.state.clear()  # momentum starts from 0
            # B and not the number that was drawn, which is private; the noise has a stream of its own, apart from the batches'
            optimizer = _Optimizer(
                sgd,
                noise_multiplier=noise_multiplier,
                max_grad_norm=clip,
                expected_batch_size=plan.batch_size,
                generator=noise_stream(plan, stream).torch(),
            )
            self._flat.copy_(start)
            self._descend(self._parts[client], schedule, optimizer)
            if plan.one_step:  # its noisy gradient; momentum starts from 0
                # Not a difference of two models: it would round the step to the precision of the weights
                gradients = [parameter.grad.reshape(-1) for parameter in optimizer.params]
                torch.mul(torch.cat(gradients), -plan.lr, out=row)
            else:
                torch.sub(self._flat, start, out=row)

    def _descend(self, examples: Examples, schedule: NDArray[np.int64], optimizer: DPOptimizer) -> None:
        with warnings.catch_warnings():  # that the inputs need no gradient
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            for batch in schedule:
                # An empty batch takes its step too: skipping it would reveal that no example was drawn
                rows = torch.from_numpy(batch[batch >= 0]).to(examples.x.device)
                optimizer.zero_grad(set_to_none=True)
                # The sum: a mean would scale each example's gradient by the number drawn, and the bound C would no longer hold
                torch.autograd.backward(self._loss(self._module(examples.x[rows]), examples.y[rows], "sum"))
                optimizer.step()


class _Optimizer(DPOptimizer):  # type: ignore[misc]  # opacus tells no types
    """Opacus's optimizer, with noise drawn in main memory for any device, and without gradients that are not finite.

    Opacus requires generator and gradients on one device; elsewhere the noise is drawn here and moved there.

    An example with a gradient that is not finite adds nothing. No factor clips such a gradient, and an update of NaN would
    reveal the example: a malicious server can choose a model at which it alone overflows.
    """

    def clip_and_accumulate(self) -> None:
        samples = self.grad_samples
        if len(samples[0]):
            # Over all parameters: zeroing one of them alone would leave the rest of the example's gradient in the sum.
            # Before clipping, as its factor, 0 or NaN, times infinity is NaN
            odd = ~torch.stack([one.flatten(1).isfinite().all(1) for one in samples]).all(0)
            for one in samples:
                one[odd] = 0
        super().clip_and_accumulate()

    def add_noise(self) -> None:
        if self.params[0].device.type == "cpu":
            super().add_noise()
            return
        for parameter in self.params:
            noise = gaussian(parameter.shape, self.noise_multiplier * self.max_grad_norm, self.generator)
            parameter.grad = (parameter.summed_grad + noise.to(parameter.device)).view_as(parameter)


def gaussian(shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
    """Noise in main memory, equal to what Opacus draws there."""
    return torch.normal(0.0, std, shape, generator=generator)


def noise_stream(plan: LocalPlan, stream: Rng) -> Rng:
    """The stream of a client's noise, given the ``stream`` of its batches."""
    return (stream if plan.noise is None else plan.noise.child(*stream.path)).child("noise")
