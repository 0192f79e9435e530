"""FedSECA (Benjamin et al., 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedguard.contracts import ROWS, Gram, MatrixRule, RuleContext, State
from fedguard.defenses.aggregators.meamed import middle
from fedguard.kernels import column_blocks, sort_rows


@dataclass(frozen=True, kw_only=True)
class FedSECA(MatrixRule):
    """Elects the sign of each coordinate by weighted vote, and averages what agrees with it of shortened, thinned updates.

    Election: $omega_ij = mean_k sign(x_ik) sign(x_jk)$; the concordance ratio of update i is $rho_i = max(0, mean_j
    sign(omega_ij))$; the elected sign is $s_k = sign(sum_i rho_i sign(x_ik))$, and there is none
    if the votes tie. Averaging: $y_i = x_i min(1, M / |x_i|)$ with M the median length, $|y_ik|$ cut to the median of the
    $|y_jk|$ over j, and set to 0 where $|x_ik|$ is below the $gamma$ quantile of the $|x_i.|$: the thinned update. Then
    $a_k$ is the mean of the $y_ik$ with $s_k y_ik > 0$, or 0 if there is none. The result is $v <- beta v + (1 - beta) a$,
    from $v = 0$.

    In the source's equation 4 all signs vote, as here. In its authors' program, which made its published results, only the
    remaining coordinates of the thinned updates vote: $s_k = sign(sum_i rho_i sign(y_ik))$.

    Args:
        vote: ``raw`` votes by the signs of the updates, as in the equation; ``thinned`` as in the program.
        gamma: the share of each update that is set to 0.
        beta: momentum of the server across rounds; 0.5 as in the source's experiments.
    """

    name = "fedseca"
    source = "Benjamin et al., FedSECA: Sign Election and Coordinate-wise Aggregation of Gradients, CVPR Workshops 2025"
    needs = ROWS
    estimates_mean = False
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): the concordances; one sort of each column"
    grid: ClassVar = {"gamma": (0.5, 0.7, 0.9), "beta": (0.0, 0.5, 0.9), "vote": ("raw", "thinned")}

    vote: Literal["raw", "thinned"] = "raw"
    gamma: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta: Annotated[float, Ge(0), Lt(1)] = 0.5

    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        n, d = updates.shape
        norms = torch.stack([row.double().norm() for row in updates])
        shorten = (norms.quantile(0.5) / norms).clamp(max=1).nan_to_num(nan=1.0).to(updates.dtype)[:, None]
        # The gamma quantile is between two magnitudes, of which the larger is the smallest one kept; the slack is for a
        # gamma (d - 1) that rounding lifts above a whole number.
        first = math.ceil(self.gamma * (d - 1) - 1e-9)
        smallest = torch.stack([row.abs().kthvalue(first + 1).values for row in updates])[:, None]
        # n rho_i are whole numbers, and so are the sums of votes: exact in float32 below 2^24, so that a tie is one.
        votes = (n * concordance_ratios(updates)).round().to(updates.dtype if n < 1 << 12 else torch.float64)
        aggregate = torch.empty(d, dtype=updates.dtype)
        for block in column_blocks(n, d):
            rows = updates[:, block]
            shortened = rows * shorten
            most = middle(sort_rows(shortened.abs()))
            thinned = torch.where(rows.abs() >= smallest, shortened.clamp(-most, most), 0.0)
            voting = rows if self.vote == "raw" else thinned
            agreeing = thinned.sign() == (votes @ voting.sign().to(votes.dtype)).sign()
            # A tied vote has sign 0 and so has a thinned coordinate: without this line they would agree, and dilute the mean
            agreeing &= thinned != 0
            aggregate[block] = torch.where(agreeing, thinned, 0.0).sum(0) / agreeing.sum(0).clamp(min=1)
        momentum = context.state.get("momentum", torch.zeros(()))
        return self.beta * momentum + (1 - self.beta) * aggregate

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        return {"momentum": aggregate}


def concordance_ratios(updates: Tensor) -> Tensor:
    """float64 ``[n]``: max(0, mean_j sign(omega_ij)): the share of agreeing updates less the share of disagreeing ones."""
    n, d = updates.shape
    agreement = torch.zeros(n, n, dtype=torch.float64)
    for block in column_blocks(n, d):
        signs = updates[:, block].sign()
        agreement += signs @ signs.T  # whole numbers below 2^24, exact in float32
    return agreement.sign().mean(1).clamp(min=0)
