"""Zeno++ (Xie et al., ICML 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, NonNegativeFloat, RuleContext, Sight, WeightRule


@dataclass(frozen=True, kw_only=True)
class ZenoPlusPlus(WeightRule):
    """Takes what points as the server's own clean update does.

    Updates that pass are scaled to the length of that update. With g the server's update and $y_i = (|g| / |x_i|) x_i$, the
    score of $x_i$ is $<g, y_i> - rho |y_i|^2$. $R(x) = (1/n)$ times the sum of the $y_i$ with a score of at least
    $-epsilon$; other updates count as 0. Updates replace the source's steps $-gamma v$, so its rho is $gamma rho$ and
    its epsilon is $epsilon / gamma^2$ of these. The source's server computes g only now and then; here g is always computed at
    the current model. Since all updates get one length, staleness weights of the architecture have no effect.

    Args:
        rho: the smallest cosine of $x_i$ and g that passes if epsilon is 0.
        epsilon: slack of the score, in squared units of the updates: all updates pass once g is short.
    """

    name = "zeno_plus_plus"
    source = "Xie et al., Zeno++: Robust Fully Asynchronous SGD, ICML 2020"
    needs = (Sight.EACH_UPDATE | Sight.ROOT_DATA,)
    breakdown = "any f, if the root data are clean and representative"
    cost = "O(n^2 d): one Gram matrix; one more client's training for each aggregate"
    grid: ClassVar = {"rho": (0.0, 0.05, 0.2)}

    rho: NonNegativeFloat = 0.05
    epsilon: NonNegativeFloat = 0.0

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"root": context.root}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        norms, root_norm = gram.norms(), float(context.root.double().norm())
        # An update of zeros would become infinite; with a scale of 0 it may pass and moves nothing
        scale = (root_norm / norms).nan_to_num(nan=0.0, posinf=0.0)
        scores = scale * gram.products_with("root") - self.rho * (scale * norms).square()
        return torch.where(scores >= -self.epsilon, scale, 0.0) / gram.n
