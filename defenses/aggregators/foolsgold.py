"""FoolsGold (Fung et al., RAID 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, PositiveFloat, RuleContext, Sight, State, WeightRule
from fedguard.kernels import column_blocks


@dataclass(frozen=True, kw_only=True)
class FoolsGold(WeightRule):
    """Distrusts clients whose updates, added up over all rounds, point the same way as another's.

    With $H_i$ the sum of all that client i ever sent and $s_ij = cos(H_i, H_j)$, $v_i = max_j s_ij$: pardoning takes $s_ij$
    to $s_ij v_i / v_j$ if $v_j > v_i$; then $a_i = 1 - max_j s_ij$, $a_i <- a_i / (max a)$, and $a_i <- kappa (ln(a_i /
    (1 - a_i)) + 1/2)$, clamped to [0, 1]. $R(x) = sum_i a_i x_i / (sum_j a_j)$. If all clients look alike, none is trusted,
    and the model stays as it is. The rule looks for Sybils: a lone attacker resembles no other client, and gains weight.

    The source takes the sum of the $a_i x_i$, for which its step size is chosen. Divided by the sum of the $a_i$, the step is
    about as long as the step of the mean. The source's weights of features by their share in the output layer are left out,
    and negative $s_ij$ count as 0.

    Args:
        confidence: $kappa$, which sets how sharply the weights separate.
    """

    name = "foolsgold"
    source = "Fung et al., The Limitations of Federated Learning in Sybil Settings, RAID 2020"
    needs = (Sight.EACH_UPDATE,)
    by_blocks = False
    breakdown = "any number of Sybils that act alike; none that do not"
    cost = "O(n^2 d), and the sum of each client's updates: float32 [clients, d]"
    reads_clients = True
    grid: ClassVar = {"confidence": (0.5, 1.0, 2.0)}

    confidence: PositiveFloat = 1.0

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        similar = _similarities(gram.vectors, context).fill_diagonal_(0).clamp(0, 1)
        most = similar.max(dim=1).values
        pardon = torch.where(most[None, :] > most[:, None], most[:, None] / most[None, :], 1.0)
        # Pardoning: a client that resembles a more suspicious one is probably honest, so only its side of the pair shrinks
        trust = 1 - (similar * pardon).max(dim=1).values
        if trust.max() < 1e-7:  # all the same but for rounding
            return torch.zeros(gram.n, dtype=torch.float64)
        # The logit is infinite at 0 and 1, and the clamp brings both back; the most trusted weighs 1, so the sum is not 0
        trust = (self.confidence * (torch.logit(trust / trust.max()) + 0.5)).clamp(0, 1)
        return trust / trust.sum()

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        known = context.state["clients"].tolist() if context.state else []
        clients = [*known, *(client for client in context.clients if client not in known)]
        history = torch.zeros(len(clients), gram.vectors.shape[1], dtype=gram.vectors.dtype)
        history[: len(known)] = context.state.get("history", history[:0])
        history.index_add_(0, torch.tensor([clients.index(client) for client in context.clients]), gram.vectors)
        return {"clients": torch.tensor(clients), "history": history}


def _similarities(updates: Tensor, context: RuleContext) -> Tensor:
    """float64 ``[n, n]``: cosines of the sums of all updates of these clients, including this round; 0 for a sum of zeros."""
    known = context.state["clients"].tolist() if context.state else []
    again = [row for row, client in enumerate(context.clients) if client in known]
    places = [known.index(context.clients[row]) for row in again]
    inner = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for block in column_blocks(len(updates), updates.shape[1]):
        sums = updates[:, block].to(torch.float64, copy=True)  # float64 would be the updates themselves
        if again:
            sums[again] += context.state["history"][places, block]
        inner += sums @ sums.T
    norms = inner.diagonal().sqrt()
    return (inner / norms[:, None] / norms).nan_to_num(nan=0.0)
