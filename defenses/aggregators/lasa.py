"""LASA: layer-adaptive sparsified aggregation (Xu et al., WACV 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedguard.contracts import ROWS, MatrixRule, PositiveFloat, RuleContext


@dataclass(frozen=True, kw_only=True)
class LASA(MatrixRule):
    """Shortens and thins out the updates, and averages each layer over those usual there in length and in sign.

    (1) $x_i min(1, M / |x_i|)$ with M the median length. (2) Of each update the ``sparsity`` smallest magnitudes become 0.
    (3) For each layer l, with $a_i = |x_i^l|$ and the sign purity $rho_i = (1 + sum_k sign(x_ik^l) / (sum_k
    |sign(x_ik^l)|)) / 2$: the result is the mean of $x_i^l$ over the i with $|a_i - median a| < lambda_n std(a)$ and
    $|rho_i - median rho| < lambda_s std(rho)$, or over all i if there is none. A layer is one parameter tensor. The source's
    code thins out weights only; here it is unknown which tensors are biases, so all coordinates are treated alike.

    Args:
        sparsity: the share of each update that becomes 0.
        lambda_n, lambda_s: filtering radius of the lengths and of the signs, in standard deviations.
    """

    name = "lasa"
    source = "Xu et al., Achieving Byzantine-Resilient FL via Layer-Adaptive Sparsified Model Aggregation, WACV 2025"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(nd): a selection in each update, and a copy of all"
    grid: ClassVar = {"sparsity": (0.1, 0.3, 0.5, 0.7), "lambda_n": (1.0, 1.5, 2.0), "lambda_s": (1.0, 1.5, 2.0)}

    sparsity: Annotated[float, Ge(0), Lt(1)] = 0.3
    lambda_n: PositiveFloat = 1.0
    lambda_s: PositiveFloat = 1.0

    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        norms = torch.stack([row.double().norm() for row in updates])
        shorten = (norms.quantile(0.5) / norms).clamp(max=1).nan_to_num(nan=1.0)
        # Thinned before shortened, unlike (1) and (2): a positive factor changes no order of magnitudes
        thinned = torch.stack([thin(row, self.sparsity) * float(by) for row, by in zip(updates, shorten, strict=True)])
        return torch.cat([self._layer(layer) for layer in torch.split(thinned, list(context.layers), 1)])

    def _layer(self, layer: Tensor) -> Tensor:
        lengths = torch.stack([row.double().norm() for row in layer])
        signs = layer.sign()
        purity = (1 + signs.sum(1).double() / signs.abs().sum(1).double().clamp(min=1)) / 2
        benign = _usual(lengths, self.lambda_n) & _usual(purity, self.lambda_s)
        return layer[benign].mean(0) if bool(benign.any()) else layer.mean(0)


def thin(row: Tensor, sparsity: float) -> Tensor:
    """``row`` (``[d]``) with its floor(``sparsity`` * d) smallest magnitudes set to 0; of equal ones the first."""
    # A product such as 0.29 * 100 is rounded to just below the whole number that is meant
    dropped = int(sparsity * len(row) + 1e-9)
    if dropped == 0:
        return row
    magnitudes = row.abs()
    last = magnitudes.kthvalue(dropped).values
    kept = magnitudes > last
    # An update of one magnitude, such as of signs, would lose all if every value that ties with the last one went
    (tied,) = (magnitudes == last).nonzero(as_tuple=True)
    kept[tied[dropped - int((magnitudes < last).sum()) :]] = True
    return torch.where(kept, row, 0.0)


def _usual(values: Tensor, radius: float) -> Tensor:
    """bool ``[n]``: values within ``radius`` standard deviations of the median, up to rounding; all if they are equal."""
    away = (values - values.quantile(0.5)).abs()
    # Without spread the strict inequality of the source would reject even updates at the median
    return (away < radius * values.std(correction=0) * (1 - 1e-9)) | (away == 0)
