"""PRECODE: an MLP with a variational bottleneck (Scheliga et al., WACV 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import pi, prod
from typing import Annotated, Any

import torch
from annotated_types import MinLen
from torch import Tensor, nn
from torch.nn.functional import softplus

from fedguard.contracts import Model, NonNegativeFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class PRECODE(Model):
    """Dense layers with ReLU between them, and before the last a bottleneck that samples: a defense that is a model.

    The features h are encoded to $(mu, s) = E h$, sampled as $z = mu + sigma eps$ with $sigma = softplus(s)$ and
    $eps ~ N(0, I)$, and decoded to D z, which the last layer gets. What comes before the bottleneck gets a gradient like
    any other network's: for one example the first layer gives it away as $x = dW/db$. No formal guarantee.

    The noise is a function of the input and of the encoder's biases, so that runs repeat and nothing draws from torch's
    global generator. It is no secret: whoever guesses an input to the last bit can draw its noise too.

    The loss is cross-entropy alone; the term $beta KL(N(mu, sigma^2), N(0, 1))$, mean over the batch, enters as its
    gradient, which the backward pass adds at $mu$ and $sigma$. Gradients of anything but a mean loss hold it too.

    Args:
        hidden: widths of the hidden layers before the bottleneck.
        bottleneck: size of z; the paper's is 256.
        beta: weight of the KL term, in nats.
    """

    name = "precode"
    source = "Scheliga et al., PRECODE: A Generic Model Extension to Prevent Deep Gradient Leakage, WACV 2022"

    hidden: Annotated[tuple[PositiveInt, ...], MinLen(1)] = (200,)
    bottleneck: PositiveInt = 256
    beta: NonNegativeFloat = 1e-3

    @property
    def by_example(self) -> bool:
        """The weight of the KL term is beta over the size of the batch."""
        return self.beta == 0

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for width_in, width_out in pairwise((prod(shape), *self.hidden)):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        return _Sampling(nn.Sequential(*layers), self.hidden[-1], self.bottleneck, classes, self.beta)


class _Sampling(nn.Module):
    """Features, variational bottleneck, last layer."""

    def __init__(self, features: nn.Module, width: int, bottleneck: int, classes: int, beta: float) -> None:
        super().__init__()
        self.features = features
        self.encode, self.decode = nn.Linear(width, 2 * bottleneck), nn.Linear(bottleneck, width)
        self.last = nn.Linear(width, classes)
        self._beta = beta

    def forward(self, x: Tensor) -> Tensor:
        mu, spread = self.encode(self.features(x)).chunk(2, dim=-1)
        sigma = softplus(spread)
        if self._beta > 0:
            mu, sigma = _KLGradient.apply(mu, sigma, self._beta / len(x))  # type: ignore[no-untyped-call]
        noise = gaussian(x.detach().flatten(1), self.encode.bias.detach(), mu.shape[-1])
        logits: Tensor = self.last(self.decode(mu + sigma * noise))
        return logits


class _KLGradient(torch.autograd.Function):
    """The identity on (mu, sigma); its backward pass adds the gradient of ``weight KL(N(mu, sigma^2) || N(0, 1))``.

    KL = sum (mu^2 + sigma^2 - 1) / 2 - log sigma.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(mu: Tensor, sigma: Tensor, weight: float) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return mu.clone(), sigma.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Any) -> None:  # noqa: ARG004
        mu, sigma, ctx.weight = inputs
        ctx.save_for_backward(mu, sigma)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        (mu, sigma), (to_mu, to_sigma) = ctx.saved_tensors, outputs
        return to_mu + ctx.weight * mu, to_sigma + ctx.weight * (sigma - 1 / sigma), None


def gaussian(x: Tensor, salt: Tensor, count: int) -> Tensor:
    """float32 ``[B, count]``: standard normal numbers; each row is a function of that row of ``x [B, p]`` and of ``salt``.

    Both are hashed in integers of 64 bits, which wrap around, and the numbers come from counters (SplitMix64, Steele et
    al. 2014; Box & Muller 1958): tensor operations alone, so that `torch.func` can transform them.
    """
    key = (_hash_values(x) + _hash_values(salt))[..., None]
    bits = _mix_bits(key + torch.arange(1, 2 * count + 1) * _GOLDEN)
    uniform = ((bits >> 11) & ((1 << 53) - 1)).double() / 2**53
    radius, angle = uniform.chunk(2, dim=-1)
    return ((-2 * (1 - radius).log()).sqrt() * (2 * pi * angle).cos()).to(x.dtype)


#: 2^64 over the golden ratio, made odd, as a signed integer.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)


def _hash_values(values: Tensor) -> Tensor:
    """int64 ``[...]`` of ``[..., p]``: values of up to 2^30 in steps of 2^-32."""
    whole = (values.double() * 2**32).round().long()
    places = torch.arange(1, values.shape[-1] + 1) * _GOLDEN
    return _mix_bits(_mix_bits(whole + places).sum(-1))


def _mix_bits(z: Tensor) -> Tensor:
    """The finalizer of SplitMix64, on signed integers."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * (0xBF58476D1CE4E5B9 - (1 << 64))
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * (0x94D049BB133111EB - (1 << 64))
    return z ^ ((z >> 31) & ((1 << 33) - 1))
