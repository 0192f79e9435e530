"""R-GAP (Zhu & Blaschko, ICLR 2021)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedguard.attacks.inference.layers import Layer, calls, chain, inputs, last_dense, layer
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Reconstruction
from fedguard.errors import PreconditionError

#: A ReLU's output up to this share of the largest counts as 0.
SILENT = 1e-5
#: Lengths of the logits' gradient that are tried; |p - e_y| is at most the root of 2.
LENGTHS = torch.logspace(-8, 0.16, 4000, dtype=torch.float64)
#: Number of fitting lengths that are followed down to the input.
TRIES = 4


@dataclass(frozen=True, kw_only=True)
class RGAP(InferenceAttack):
    """Goes back from the logits to the input, layer by layer, each by one linear system.

    Layer i has output $z_i$, known from the layer above if the activation can be inverted, and slope $s_i = dL/dz_i$. Its
    input $x_i$ solves $W_i x_i = z_i - b_i$ and the linear equations by which $dL/dW_i$ depends on $x_i$ and $s_i$; then
    $s_{i-1} = W_i^T s_i$ times the activation's slope. In the last layer $dL/dW = s x^T$ has rank one. s is the bias
    gradient; without a bias its length follows from $s = softmax(W x) - e_y$. If several lengths fit, the attack takes the
    input with the nearest gradient. The result is exact if each system determines its unknowns; convolutions followed by
    ReLU often leave some open.

    It needs one example, and a sequence of dense and convolution layers, with or without biases, and ReLU, LeakyReLU,
    Sigmoid, Tanh or Flatten between them. The linear systems are dense: the attack is meant for small networks.
    """

    name = "r_gap"
    source = "Zhu & Blaschko, R-GAP: Recursive Gradient Attack on Privacy, ICLR 2021"
    goal = "reconstruction"
    needs = ONE_VECTOR

    def check(self, view: InferenceView) -> None:
        if view.count != 1:
            raise PreconditionError(f"r_gap: expected one example; got {view.count}. Set a batch size of 1.")
        last_dense(view)
        for module in chain(view):
            zeros = isinstance(module, nn.Conv2d) and module.padding_mode == "zeros"
            steep = isinstance(module, nn.LeakyReLU) and module.negative_slope > 0
            if not zeros and not steep and type(module) not in (nn.Linear, nn.Flatten, nn.Identity, *INVERSES):
                raise PreconditionError(
                    "r_gap: expected dense and zero-padded convolution layers, with ReLU, LeakyReLU, Sigmoid or Tanh between "
                    f"them; got {type(module).__name__}. Use the model mlp."
                )

    def infer(self, view: InferenceView) -> Reconstruction:
        self.check(view)
        tries = [self._back(view, slope) for slope in top_slopes(last_dense(view), view)]
        return Reconstruction(min(tries, key=lambda x: _mismatch(view, x)))

    def _back(self, view: InferenceView, slope: Tensor) -> Tensor:
        """float32 ``[1, *shape]``: the input, if dL/dlogits is ``slope`` (float64 ``[C]``)."""
        model, gradient = view.model.double(), view.gradient.double()
        seen, _ = calls(view, torch.zeros(1, *view.shape))
        x = torch.full_like(slope, torch.nan)
        for call in reversed(seen):
            module, shape = call.module, call.given.shape[1:]
            x, slope = x.view(call.gave.shape[1:]), slope.view(call.gave.shape[1:])
            if isinstance(module, nn.Linear | nn.Conv2d):
                x, slope = through(layer(view, module), model, gradient, x, slope, shape)
            elif isinstance(module, nn.LeakyReLU):
                rate = torch.where(x > 0, 1.0, module.negative_slope)
                x, slope = x / rate, slope * rate
            elif type(module) in INVERSES:
                x, rate = INVERSES[type(module)](x)
                slope = slope * rate
        return inputs(view, x.reshape(1, -1))


def top_slopes(last: Layer, view: InferenceView) -> list[Tensor]:
    """float64 ``[C]`` each: candidates for dL/dlogits: the bias gradient, else the lengths that fit some label best."""
    gradient, weight = view.gradient.double(), last.weight(view.model.double())
    if last.module.bias is not None:
        return [last.bias(gradient)]
    left, sizes, right = torch.linalg.svd(last.weight(gradient), full_matrices=False)
    found = []
    for direction in (left[:, 0], -left[:, 0]):
        y = int(direction.argmin())  # of s = p - e_y the one negative entry

        def misfit(lengths: Tensor, s: Tensor = direction, y: int = y) -> Tensor:
            x = sizes[0] * (right[0] * (s @ left[:, 0])) / lengths[:, None]
            residual = (x @ weight.T).softmax(1) - lengths[:, None] * s
            residual[:, y] -= 1
            length: Tensor = residual.norm(dim=1)
            return length

        errors = misfit(LENGTHS)
        lowest = (errors[1:-1] <= errors[:-2]) & (errors[1:-1] <= errors[2:])
        for at in (lowest.nonzero()[:, 0] + 1).tolist():
            near = LENGTHS[at - 1 : at + 2]
            for _ in range(4):  # each pass looks more closely around the best
                near = torch.linspace(float(near[0]), float(near[-1]), 201, dtype=torch.float64)
                best = int(misfit(near)[1:-1].argmin()) + 1
                near = near[best - 1 : best + 2]
            found.append((float(misfit(near)[1]), near[1] * direction))
    found.sort(key=lambda pair: pair[0])
    return [slope for _, slope in found[:TRIES]] or [left[:, 0]]


def _mismatch(view: InferenceView, x: Tensor) -> float:
    """The distance of the gradient of x from the observed one, for the label that fits best."""
    model = view.model.clone().requires_grad_()
    loss = nn.functional.log_softmax(view.predict(model, x), 1)[0]
    return min(
        float((torch.autograd.grad(-loss[y], model, retain_graph=True)[0] - view.gradient).norm())
        for y in range(view.classes)
    )


def through(
    at: Layer, model: Tensor, gradient: Tensor, z: Tensor, slope: Tensor, shape: torch.Size
) -> tuple[Tensor, Tensor]:
    """The input of a layer and dL/d of it, from its output ``z`` (nan where unknown) and the ``slope`` there.

    Returns:
        float64 ``shape`` both.
    """
    weight, bias, outer = at.weight(model), at.bias(model), at.weight(gradient)
    eye = torch.eye(shape.numel(), dtype=torch.float64)
    if isinstance(at.module, nn.Linear):
        forward, known = weight, z - bias if len(bias) else z
        size = slope.norm().clamp(min=1e-300)
        backward, shown = size * eye, slope @ outer / size  # the normal form of s_j x = dL/dW_j for all j
    else:
        module = at.module
        images = eye.view(-1, *shape)

        def linear(x: Tensor, weight: Tensor) -> Tensor:
            return nn.functional.conv2d(x, weight, None, module.stride, module.padding, module.dilation, module.groups)

        forward = linear(images, weight).flatten(1).T
        known = (z - bias[:, None, None] if len(bias) else z).flatten()
        backward = torch.func.vmap(
            lambda x: torch.func.grad(lambda weight: (linear(x[None], weight)[0] * slope).sum())(weight).flatten(),
            out_dims=1,
        )(images)
        shown = outer.flatten()
    rows = ~known.isnan()
    blocks = [(forward[rows], known[rows]), (backward, shown)]
    # Both systems at the same weight: dL/dW may be many orders of magnitude smaller than W
    scales = [1 / block.norm().clamp(min=1e-300) for block, _ in blocks]
    left = torch.cat([scale * block for scale, (block, _) in zip(scales, blocks, strict=True)])
    right = torch.cat([scale * value for scale, (_, value) in zip(scales, blocks, strict=True)])
    # gelsd gives the shortest solution of a system without full rank, as ReLU and strides leave it
    x = torch.linalg.lstsq(left, right[:, None], driver="gelsd").solution[:, 0]
    return x.view(shape), (forward.T @ slope.flatten()).view(shape)


def _relu(out: Tensor) -> tuple[Tensor, Tensor]:
    active = out > SILENT * out.max()
    return out.where(active, torch.nan), active.double()


def _sigmoid(out: Tensor) -> tuple[Tensor, Tensor]:
    # In a saturated unit rounding has reached 0 or 1, where the inverse is infinite
    out = out.clamp(1e-12, 1 - 1e-12)
    return out.logit(), out * (1 - out)


def _tanh(out: Tensor) -> tuple[Tensor, Tensor]:
    out = out.clamp(-1 + 1e-12, 1 - 1e-12)
    return out.atanh(), 1 - out**2


#: For each activation: its output -> its input, nan if the output does not determine it, and its slope there.
INVERSES: dict[type[nn.Module], Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    nn.ReLU: _relu,
    nn.Sigmoid: _sigmoid,
    nn.Tanh: _tanh,
}
