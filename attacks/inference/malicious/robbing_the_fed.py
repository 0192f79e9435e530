"""Robbing the Fed (Fowl et al., ICLR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedguard.attacks.inference.layers import Layer, first_relu, layer, readings
from fedguard.contracts import ONE_VECTOR_AND_ROOT, InferenceAttack, InferenceView, Reconstruction, Sight
from fedguard.errors import PreconditionError

#: Standard deviation of h under the guess below, so small that the logits hardly depend on h and no example's loss is 0.
LENGTH = 0.1
#: Number of points of the kernel around each root example.
KERNEL = 50
#: Weight of the guess, in root examples.
GUESS = 10


@dataclass(frozen=True, kw_only=True)
class RobbingTheFed(InferenceAttack):
    """Makes the first layer a ruler, so that an input that is alone between two of its marks can be read off.

    All k neurons measure $h(x) = <v, x>$ along a random direction v, and neuron i passes the excess over the i-th of k
    quantiles of h: $W_i = v$, $b_i = -c_i$. (Mean brightness, $v = 1/n$, takes few values on images of few gray levels, and
    ties are never alone.) The next layer treats all neurons alike. Then the gradients of neurons i and $i + 1$ differ by
    the examples with $c_i < h(x) <= c_{i+1}$, and a single example is $x = (dL/dW_i - dL/dW_{i+1}) / (dL/db_i -
    dL/db_{i+1})$. An example is alone with probability $(1 - 1/k)^(B - 1)$. Secure aggregation does not help: the bins
    separate the inputs, whoever sent them.

    It needs Flatten, dense layer with bias, ReLU, dense layer. The quantiles are taken on the server's root data if it has
    any, smoothed by a normal kernel since it may have fewer than k examples. Otherwise they are taken on a guess: a normal
    distribution around the middle of the value range, as wide as for independent inputs at its ends. With root data the
    guess counts as ten more examples.
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
        direction = torch.randn(weight.shape[1], generator=view.rng.child("robbing_the_fed").torch())
        direction -= direction.mean()  # the ground of an image moves no mark
        marks, spread = _marks(view, direction, len(weight))
        weight.copy_((LENGTH / spread * direction).expand_as(weight))
        first.bias(model).copy_(-LENGTH / spread * marks)
        # Any column shared by all neurons would do: 1/k keeps the logits small, the signs keep dL/dZ from cancelling.
        after.copy_((1 - 2 * (torch.arange(len(after)) % 2))[:, None] / len(weight))
        return model

    def infer(self, view: InferenceView) -> Reconstruction:
        first, _ = imprint(view)
        gradient = view.gradient.double()
        weight, bias = first.weight(gradient), first.bias(gradient)
        bins, counts = -weight.diff(dim=0), -bias.diff()
        # The last neuron has no next one to subtract: it holds the examples above the last mark
        bins, counts = torch.cat([bins, weight[-1:]]), torch.cat([counts, bias[-1:]])
        # What rounding leaves in an empty bin is far below one example's share.
        used = counts.abs() > 1e-4 * counts.abs().max()
        return Reconstruction(readings(view, bins[used], counts[used], used.nonzero()[:, 0]))


def _marks(view: InferenceView, direction: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """float32 ``[k]``: the ascending quantiles 0, 1/k, ..., (k - 1)/k of h, the first below all values; its deviation."""
    low, high = view.value_range
    least = (low * direction.clamp(min=0) + high * direction.clamp(max=0)).sum()
    middle, spread = (low + high) / 2 * direction.sum(), (high - low) / 2 * direction.norm()
    marks = middle + spread * torch.special.ndtri(torch.arange(k) / k)
    if Sight.ROOT_DATA in view.granted and len(view.root) > 1:
        h = view.root.x.flatten(1) @ direction
        width = 1.06 * h.std() * len(h) ** -0.2  # Silverman's rule
        guess = middle + spread * _normal(GUESS * KERNEL)
        ordered = torch.cat([(h[:, None] + width * _normal(KERNEL)).flatten(), guess]).sort().values
        marks = ordered[torch.arange(k) * len(ordered) // k]
    # Quantile 0 of a normal distribution is -inf; the first mark must be finite and below every possible h
    marks[0] = 2 * least - middle - spread
    return marks, spread


def _normal(count: int) -> Tensor:
    """float32 ``[count]``: ascending, one for each of ``count`` equal parts of a standard normal distribution."""
    points: Tensor = torch.special.ndtri((torch.arange(count) + 0.5) / count)
    return points


def imprint(view: InferenceView) -> tuple[Layer, Layer]:
    """The layer that becomes the ruler, and the layer that reads it."""
    first, rest = first_relu(view)
    if not rest or not isinstance(rest[0], nn.Linear):
        raise PreconditionError(
            "robbing_the_fed: expected another dense layer after the first and its ReLU. Use the model mlp."
        )
    return first, layer(view, rest[0])
