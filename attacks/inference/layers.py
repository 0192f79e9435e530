"""The layers' positions in the flat vector, and the inputs revealed by the first layer's gradient.

A dense layer's weight gradient is dL/dZ^T X and its bias gradient dL/dZ^T 1, over the examples of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from fedguard.contracts import InferenceView, OneLogit
from fedguard.contracts.tasks import select_trained
from fedguard.errors import PreconditionError

#: Maximum root mean square difference, as a share of the value range, of two readings of the same input.
AGREE = 1e-5
#: Maximum relative error at which a single input explains the gradient that it was read from.
EXPLAINED = 1e-3


@dataclass(frozen=True)
class Layer:
    """A layer, and the offset of its parameters in the flat vector: first the weight, then the bias if it has one."""

    module: nn.Linear | nn.Conv2d
    offset: int

    def weight(self, vector: Tensor) -> Tensor:
        """The weight's part of a vector ``[d]``, in its own shape; a view, so that it can be written to."""
        weight = self.module.weight
        return vector[self.offset : self.offset + weight.numel()].view(weight.shape)

    def bias(self, vector: Tensor) -> Tensor:
        """``[o]``: the bias's part of a vector ``[d]``; a view, empty without a bias."""
        start = self.offset + self.module.weight.numel()
        return vector[start : start + (0 if self.module.bias is None else len(self.module.bias))]


@dataclass(frozen=True)
class SingleLogitLayer(Layer):
    """The last layer of a network with one logit, as the layer of `OneLogit`'s two: row 0 has minus the gradient of row 1.

    ``dL/dz = p - y``; of the logits 0 and z the first has ``(1 - p) - (1 - y)``. It applies to gradients only.
    """

    def weight(self, vector: Tensor) -> Tensor:
        row = super().weight(vector)
        return torch.cat([-row, row])

    def bias(self, vector: Tensor) -> Tensor:
        row = super().bias(vector)
        return torch.cat([-row, row])


@dataclass(frozen=True)
class Call:
    """One call of a module without children: its input and its output."""

    module: nn.Module
    given: Tensor
    gave: Tensor


def calls(view: InferenceView, x: Tensor, model: Tensor | None = None) -> tuple[list[Call], Tensor]:
    """The calls of the innermost modules on the input ``x``, in order; and the logits.

    Without a ``model`` (``[d]``) the network's weights are zeros.
    """
    seen: list[Call] = []
    leaves = [module for module in view.module.modules() if not list(module.children())]
    hooks = [
        leaf.register_forward_hook(lambda module, given, gave: seen.append(Call(module, given[0], gave)))
        for leaf in leaves
    ]
    try:
        with torch.no_grad():
            logits = view.module(x) if model is None else view.predict(model, x)
    finally:
        for hook in hooks:
            hook.remove()
    return seen, logits


def chain(view: InferenceView) -> list[nn.Module]:
    """The innermost modules in the order of their calls, if the network is a plain sequence of them.

    Raises:
        PreconditionError: the network does more.
    """
    if isinstance(view.module, OneLogit):
        raise PreconditionError(
            "expected a logit for each class; this network has one, which means two classes (binary cross-entropy). "
            "Give it two outputs, or use dlg, inverting_gradients or analytic."
        )
    x = _sample(view)
    seen, logits = calls(view, x)
    ends = [x, *(call.gave for call in seen)]
    starts = [*(call.given for call in seen), logits]
    if not all(end is start for end, start in zip(ends, starts, strict=True)):
        raise PreconditionError(
            "expected a network that is a plain row of modules, as nn.Sequential is; this one does more. Use the model mlp."
        )
    return [call.module for call in seen]


def layer(view: InferenceView, module: nn.Linear | nn.Conv2d) -> Layer:
    """This layer, with its offset in the flat vector."""
    offset = 0
    for parameter in select_trained(view.module).values():
        if parameter is module.weight:
            return Layer(module, offset)
        offset += parameter.numel()
    raise PreconditionError(
        "expected a layer that is trained; its weights are frozen, and no update tells of them. Train it, or take dlg."
    )


def first_dense(view: InferenceView) -> Layer:
    """The dense layer with a bias that is applied to the input itself.

    Raises:
        PreconditionError: the network begins with another layer.
    """
    x = _sample(view)
    seen, _ = calls(view, x)
    first, _ = _first_two(seen)
    if (
        first is None
        or not isinstance(first.module, nn.Linear)
        or first.module.bias is None
        or not torch.equal(first.given, x.flatten(1))
    ):
        raise PreconditionError(
            "expected a network that begins with a dense layer with bias on the flat input; this one begins with "
            f"{'no layer' if first is None else type(first.module).__name__}. Use the model mlp or softmax."
        )
    return layer(view, first.module)


def first_call(view: InferenceView) -> tuple[Call | None, Call | None]:
    """The call of the first layer with parameters, if it is on the flat input itself; and the call of its output."""
    x = _sample(view)
    first, following = _first_two(calls(view, x)[0])
    return (None, None) if first is None or not torch.equal(first.given, x.flatten(1)) else (first, following)


def _first_two(seen: list[Call]) -> tuple[Call | None, Call | None]:
    """The first call of a module with parameters, and the one that gets its output."""
    first = next((call for call in seen if list(call.module.parameters())), None)
    return first, next((call for call in seen if first is not None and call.given is first.gave), None)


def first_relu(view: InferenceView) -> tuple[Layer, list[nn.Module]]:
    """The first dense layer, followed by a ReLU, and the modules after the ReLU.

    Raises:
        PreconditionError: the network begins in another way, or is no plain sequence of modules.
    """
    first = first_dense(view)
    modules = chain(view)
    rest = modules[modules.index(first.module) + 1 :]
    if not rest or not isinstance(rest[0], nn.ReLU):
        raise PreconditionError(
            "expected a ReLU after the first dense layer; found "
            f"{type(rest[0]).__name__ if rest else 'none, that layer gives the logits'}. Use the model mlp."
        )
    return first, rest[1:]


def last_dense(view: InferenceView) -> Layer:
    """The dense layer that gives the logits; for a network with one logit a `SingleLogitLayer`, with two rows.

    Raises:
        PreconditionError: the network ends with another layer.
    """
    seen, logits = calls(view, _sample(view))
    one = isinstance(view.module, OneLogit)
    if (
        not seen
        or not isinstance(seen[-1].module, nn.Linear)
        or not (torch.equal(seen[-1].gave, logits[:, 1:]) if one else seen[-1].gave is logits)
    ):
        raise PreconditionError("expected a network that ends with a dense layer, whose outputs are the logits.")
    last = layer(view, seen[-1].module)
    return SingleLogitLayer(last.module, last.offset) if one else last


def rows(view: InferenceView) -> tuple[Tensor, Tensor, Tensor]:
    """float64 ``[k, i]``, ``[k]``: the first dense layer's gradient in neurons where it is not 0; int64: these neurons."""
    first, gradient = first_dense(view), view.gradient.double()
    weight, bias = first.weight(gradient), first.bias(gradient)
    used = weight.any(1) & (bias != 0)
    return weight[used], bias[used], used.nonzero()[:, 0]


def readings(view: InferenceView, weight: Tensor, bias: Tensor, neurons: Tensor) -> Tensor:
    """float32 ``[<= B, *shape]``: the inputs revealed by ``weight / bias``, the most certain first.

    A neuron that one example alone activates reveals it exactly; a neuron that several activate reveals a mixture. The
    order is: first the readings that explain the gradient that they were read from, then those on which most neurons agree
    (all neurons of an example agree, mixtures differ), then those within the value range, then those with the larger
    gradient.

    Args:
        weight, bias: float64 ``[k, i]`` and ``[k]``: gradients of k neurons on the input.
        neurons: int64 ``[k]``: their indices.
    """
    if not len(bias):
        return inputs(view, weight)
    low, high = view.value_range
    order = bias.abs().argsort(descending=True)
    x = weight[order] / bias[order, None]
    outside = ((x - high).clamp(min=0) + (low - x).clamp(min=0)).sum(1)
    order, x = order[outside.argsort(stable=True)], x[outside.argsort(stable=True)]
    # Distances by matrix products would lose the small ones that count here to cancellation
    near = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") <= AGREE * (high - low) * sqrt(x.shape[1])
    # An explained reading outranks any number of neurons that agree, since these are at most len(x)
    sure = near.sum(1) + len(x) * explains_bias(view, x, bias[order], neurons[order])
    found: list[Tensor] = []
    left = torch.ones(len(x), dtype=torch.bool)
    for row in sure.argsort(descending=True, stable=True).tolist():
        if left[row] and len(found) < view.count:
            found.append(x[near[row]].mean(0))
            left &= ~near[row]
    return inputs(view, torch.stack(found))


def explains_bias(view: InferenceView, x: Tensor, bias: Tensor, neurons: Tensor) -> Tensor:
    """bool ``[k]``: whether an input ``[k, i]`` alone would give this bias gradient ``[k]`` in these neurons ``[k]``.

    The loss of one example (x, y) has the gradient (p(x) - e_y) dlogits / dz_i in neuron i, and its share in the mean over
    n clients with B examples each is 1 / (n B). A mixture matches none of the classes y, except by chance. If clients took
    several steps, or noise was added, no input matches.
    """
    seen: list[Tensor] = []

    def watch(_module: nn.Module, _given: object, z: Tensor) -> Tensor:
        seen.append(z.requires_grad_())
        return z.clone()  # what comes after may change it in place

    hook = first_dense(view).module.register_forward_hook(watch)
    try:
        logits = view.predict(view.model, inputs(view, x))
    finally:
        hook.remove()
    slopes = [torch.autograd.grad(one.sum(), seen[0], retain_graph=True)[0] for one in logits.unbind(1)]
    at = torch.stack([slope.gather(1, neurons[:, None])[:, 0] for slope in slopes], 1).double()  # [k, C]
    left = (logits.detach().double().softmax(1) * at).sum(1, keepdim=True) - at
    shares = torch.tensor(sorted({len(view.counts) * count for count in view.counts}), dtype=torch.float64)
    error = (left[:, :, None] / shares - bias[:, None, None]).abs() / bias.abs()[:, None, None]
    return error.flatten(1).amin(1) < EXPLAINED


def inputs(view: InferenceView, x: Tensor) -> Tensor:
    """float32 ``[k, *shape]``: flat candidates ``[k, i]`` as inputs, within the value range."""
    return x.clamp(*view.value_range).to(torch.get_default_dtype()).view(-1, *view.shape)


def _sample(view: InferenceView) -> Tensor:
    """Two inputs without equal or ordered values, so that any operation on them changes them."""
    generator = view.rng.child("layers").torch()
    return torch.rand(2, *view.shape, generator=generator) - 0.5
