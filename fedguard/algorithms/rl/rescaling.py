"""Value rescaling: a network learns large returns on a compressed scale (Pohlen et al., 2018)."""

from __future__ import annotations

from torch import Tensor

#: Bounds the slope of the inverse.
EPSILON = 1e-3


def rescale_values(x: Tensor) -> Tensor:
    r"""$h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x$ with $epsilon = 10^{-3}$; any shape.

    Source: Pohlen et al., Observe and Look Further, 2018; Kapturowski et al., ICLR 2019, section 2.3.
    """
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + EPSILON * x


def invert_rescaling(y: Tensor) -> Tensor:
    r"""$h^{-1}(y) = sign(y) (((sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)$; any shape.

    It is computed in float64: in float32 a difference of two numbers near 1 over $2 epsilon$ costs three digits.

    Source: Pohlen et al., Observe and Look Further, 2018, proposition A.2.
    """
    wide = y.double()
    root = ((1 + 4 * EPSILON * (wide.abs() + 1 + EPSILON)).sqrt() - 1) / (2 * EPSILON)
    return (wide.sign() * (root.square() - 1)).to(y.dtype)
