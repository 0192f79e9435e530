"""Inverting Gradients with a client's running statistics as a prior (after Yin et al., CVPR 2021)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase

from fedguard.attacks.inference.inversion.inverting_gradients import InvertingGradients
from fedguard.contracts import InferenceView, PositiveFloat, Sight
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class StatisticsPrior(InvertingGradients):
    r"""Inverting Gradients for layers that normalize by the batch, with the batch's statistics as a further term.

    A client that starts from the statistics s and sends s' after k steps reveals its batches' own, with the layer's momentum
    m: $s_B = (s' - (1 - m)^k s) / (1 - (1 - m)^k)$, exactly for one step. The attack adds

    $weight \cdot mean_c [ (\mu_c(x) - \mu_{B,c})^2 / v_{B,c} + (v_c(x) / v_{B,c} - 1)^2 ]$

    over all channels c of the network, with the means $\mu_c(x)$ and variances $v_c(x)$ of the candidate batch under the model
    that was sent. Gradients are computed as the client computes them: each example depends on its batch.

    Args:
        weight: of the term.
    """

    name = "statistics_prior"
    source = "Yin et al., See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021"
    needs = (Sight.EACH_UPDATE | Sight.STATISTICS | Sight.MODEL,)

    weight: PositiveFloat = 1.0

    def check(self, view: InferenceView) -> None:
        super().check(view)
        if not _layers(view):
            raise PreconditionError(
                "expected a network with layers that keep running statistics of batches; this one has none. Use "
                "inverting_gradients."
            )

    def prior(self, view: InferenceView) -> Callable[[Tensor], Tensor]:
        means, variances = _of_the_batch(view)
        spread = variances.clamp(min=1e-5)

        def penalty(x: Tensor) -> Tensor:
            mean, variance = vmap(lambda batch: _measure(view, batch))(x)
            return self.weight * ((mean - means).square() / spread + (variance / spread - 1).square()).mean(1)

        return penalty


def _layers(view: InferenceView) -> list[_NormBase]:
    found = [part for part in view.module.modules() if isinstance(part, _NormBase) and part.training]
    return [part for part in found if part.running_mean is not None]


def _of_the_batch(view: InferenceView) -> tuple[Tensor, Tensor]:
    """float32 ``[c]`` each: means and variances of the client's batch, channel by channel."""
    means, variances = [], []
    parts = torch.split(view.statistics[-1], [n for one in _layers(view) for n in [one.num_features] * 2], dim=1)
    for place, layer in enumerate(_layers(view)):
        left = (1 - (layer.momentum or 0.0)) ** view.steps
        mean, variance = ((after - left * before) / (1 - left) for before, after in parts[2 * place : 2 * place + 2])
        means.append(mean)
        variances.append(variance)
    return torch.cat(means), torch.cat(variances)


def _measure(view: InferenceView, x: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a candidate batch ``[B, *shape]``, under the model that was sent."""
    trained = [name for name, one in view.module.named_parameters() if one.requires_grad]
    sizes = {name: one.shape for name, one in view.module.named_parameters() if one.requires_grad}
    weights = dict(zip(trained, torch.split(view.model, [shape.numel() for shape in sizes.values()]), strict=True))
    seen: list[Tensor] = []
    hooks = [layer.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for layer in _layers(view)]
    try:
        functional_call(view.module, {name: one.view(sizes[name]) for name, one in weights.items()}, (x,))
    finally:
        for hook in hooks:
            hook.remove()
    by_channel = [one.transpose(0, 1).flatten(1) for one in seen]
    return torch.cat([one.mean(1) for one in by_channel]), torch.cat([one.var(1) for one in by_channel])
