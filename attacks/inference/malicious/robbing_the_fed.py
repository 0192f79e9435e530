"""Robbing the Fed (Fowl et al., ICLR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fedguard.attacks.inference.layers import Layer, first_relu, layer, readings
from torch import Tensor, nn

from fedguard.contracts import ONE_VECTOR_AND_ROOT, InferenceAttack, InferenceView, Reconstruction, Sight
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class RobbingTheFed(InferenceAttack):
    """Makes the first layer a ruler, so that an input that is alone between two of its marks can be read off.

    All k neurons measure the same, the mean brightness h(x), and neuron i passes what exceeds the i-th of k quantiles of it:
    W_i = 1/n, b_i = -c_i. The next layer treats all of them alike. Then the gradients of neurons i and i + 1 differ by the
    examples with c_i < h(x) <= c_{i+1}, and of a single one x = (dL/dW_i - dL/dW_{i+1}) / (dL/db_i - dL/db_{i+1}). An example
    is alone with probability (1 - 1/k)^(B - 1). Secure aggregation does not help: the bins tell the inputs apart, whoever
    sent them.

    Needs Flatten, dense layer with bias, ReLU, dense layer. The quantiles are those of the server's root data where it has
    any, else of brightness spread evenly over the value range.
    """

    name = "robbing_the_fed"
    source = "Fowl et al., Robbing the Fed: Directly Obtaining Private Data in FL with Modified Models, ICLR 2022"
    goal = "reconstruction"
    needs = ONE_VECTOR_AND_ROOT
    active = True

    def check(self, view: InferenceView) -> None:
        imprint(view)

    def tamper(self, view: InferenceView) -> Tensor:
        first, second = imprint(view)
        model = view.models[-1].clone()
        weight, after = first.weight(model), second.weight(model)
        weight.fill_(1 / weight.shape[1])
        first.bias(model).copy_(-self._marks(view, len(weight)))
        # Any column shared by all neurons would do: 1/k keeps the logits small, the signs keep dL/dZ from cancelling.
        after.copy_((1 - 2 * (torch.arange(len(after)) % 2))[:, None] / len(weight))
        return model

    def infer(self, view: InferenceView) -> Reconstruction:
        first, _ = imprint(view)
        gradient = view.gradient.double()
        weight, bias = first.weight(gradient), first.bias(gradient)
        bins, counts = -weight.diff(dim=0), -bias.diff()
        bins, counts = torch.cat([bins, weight[-1:]]), torch.cat([counts, bias[-1:]])
        # What rounding leaves in an empty bin is far below one example's share.
        used = counts.abs() > 1e-4 * counts.abs().max()
        return Reconstruction(readings(view, bins[used], counts[used]))

    def _marks(self, view: InferenceView, k: int) -> Tensor:
        """float32 ``[k]``: the ascending quantiles 0, 1/k, ..., (k - 1)/k, the first below all that can occur."""
        low, high = view.value_range
        shares = torch.arange(k) / k
        if Sight.ROOT_DATA in view.granted:
            marks = view.root.x.flatten(1).mean(1).quantile(shares)
        else:
            marks = low + (high - low) * shares
        marks[0] = low - (high - low)
        return marks


def imprint(view: InferenceView) -> tuple[Layer, Layer]:
    """The layer that becomes the ruler, and the one that reads it."""
    first, rest = first_relu(view)
    if not rest or not isinstance(rest[0], nn.Linear):
        raise PreconditionError(
            "robbing_the_fed: expected another dense layer after the first and its ReLU. Use the model mlp."
        )
    return first, layer(view, rest[0])
