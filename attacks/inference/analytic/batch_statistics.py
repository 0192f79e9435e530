"""The mean input of a batch from running statistics (own): what a layer with batch normalization says of its batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedguard.attacks.inference.layers import Layer, first_call, inputs, layer
from fedguard.contracts import InferenceAttack, InferenceView, Reconstruction, Sight
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class BatchStatistics(InferenceAttack):
    r"""Reads the mean of a client's inputs from the running means that it sends, without any gradient.

    A layer with momentum m sends $\mu' = (1 - m)^k \mu + m \sum_j (1 - m)^{k - 1 - j} \mu_j$ after k local steps. With one
    step, the mean of its batch is $\mu_1 = (\mu' - (1 - m) \mu) / m$. The layer before is dense, so
    $\mu_1 = W \bar x + b$ with the weights that the server has sent, and $\bar x$ is the least-squares solution. With several
    steps the same quotient, with $(1 - m)^k$, gives a weighted mean of the steps' batches, up to the moves of the weights.

    The claim is the mean picture, which is the input itself if B = 1; it is compared with the mean of the true inputs. It
    needs a network that begins with a dense layer with as many units as inputs, then batch normalization.
    """

    name = "batch_statistics"
    source = "own"
    goal = "reconstruction"
    needs = (Sight.EACH_UPDATE | Sight.STATISTICS | Sight.MODEL,)

    def check(self, view: InferenceView) -> None:
        _first_layers(view)

    def infer(self, view: InferenceView) -> Reconstruction:
        dense, norm = _first_layers(view)
        momentum, channels = norm.momentum or 0.0, norm.num_features
        before, after = (one[:channels].double() for one in view.statistics[-1])
        left = (1 - momentum) ** view.steps
        mean = (after - left * before) / (1 - left)
        model = view.model.double()
        if len(bias := dense.bias(model)):
            mean = mean - bias
        picture: Tensor = torch.linalg.lstsq(dense.weight(model), mean[:, None]).solution[:, 0]
        return Reconstruction(inputs(view, picture[None]), mean=True)


def _first_layers(view: InferenceView) -> tuple[Layer, _NormBase]:
    """The dense first layer, and the layer with running statistics behind it.

    Raises:
        PreconditionError: the network begins in another way, or with too few units.
    """
    first, following = first_call(view)
    dense, norm = (None if one is None else one.module for one in (first, following))
    if not isinstance(dense, nn.Linear) or not isinstance(norm, _NormBase) or norm.running_mean is None:
        raise PreconditionError(
            "expected a network that begins with a dense layer on the flat input, then batch normalization with running "
            f"statistics; this one begins with {type(dense).__name__} and {type(norm).__name__}. Use a network such as "
            "nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), ...)."
        )
    if dense.out_features < dense.in_features:
        raise PreconditionError(
            f"expected at least as many units as inputs in the first layer, or many inputs have the same means; got "
            f"{dense.out_features} units for {dense.in_features} inputs. Widen the layer."
        )
    return layer(view, dense), norm
