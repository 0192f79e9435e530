"""FLDetector (Zhang et al., KDD 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from fedguard.contracts import Gram, NonNegativeInt, PositiveInt, RuleContext, Sight, State, WeightRule
from fedguard.defenses.aggregators.clusters import clusters_by_gap, kmeans


@dataclass(frozen=True, kw_only=True)
class FLDetector(WeightRule):
    """Predicts each client's update from its last one, and drops the clients whose updates keep breaking the prediction.

    The prediction is $x_i' + H (w - w_i')$ with $x_i'$ and $w_i'$ the client's last update and the model it started from, w
    the model now, and H the L-BFGS estimate from the last ``window`` steps of the model and changes of the aggregate;
    updates replace the source's gradients, and their opposite sign cancels. A client's score is the mean over its last
    ``window`` predictions of its share $d_i / (sum_j d_j)$ of the round's distances $d_i = |prediction - x_i|$. If the gap
    statistic finds more than one cluster among the scores, k-means forms two, and the cluster with the higher scores is left
    out. The result is the mean of the rest.

    Clients with fewer than ``window`` scores are neither judged nor left out, so the first ``window`` + 1 rounds are means. The
    source's program predicts nothing in its first 20 rounds (``wait``), removes detected clients permanently and restarts
    the training. Here each round is judged by its scores, so a client that turns honest is admitted again.

    The source's clients compute full gradients. If honest clients draw small batches, malicious clients that all send one
    smooth vector are the more consistent ones, and the honest majority is left out. The source does not bound the number of
    clients that are left out, and neither does this rule.

    Args:
        window: N, rounds.
        clusters: the largest number of clusters that the gap statistic tries.
        references: number of sets of uniform scores for the gap statistic.
        gap: ``log_of_mean`` compares with the logarithm of their mean spread, as the source's program does; ``mean_of_logs``
            with the mean of the logarithms, as the gap statistic is defined.
        wait: rounds of the training without predictions; 20 in the source's program.
    """

    name = "fl_detector"
    source = "Zhang et al., FLDetector: Detecting Malicious Clients via Checking Model-Updates Consistency, KDD 2022"
    needs = (Sight.EACH_UPDATE | Sight.MODEL,)
    by_blocks = False
    min_rows = (2, 1)
    breakdown = "f < n/2, if malicious updates are less consistent than honest ones"
    cost = "O((n + window) d): predictions, made twice; the last update of every client is kept"
    reads_clients = True
    grid: ClassVar = {"window": (5, 10, 20)}

    window: PositiveInt = 10
    clusters: Annotated[int, Ge(2)] = 7
    references: PositiveInt = 10
    gap: Literal["log_of_mean", "mean_of_logs"] = "log_of_mean"
    wait: NonNegativeInt = 0

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        kept = torch.ones(gram.n, dtype=torch.bool)
        scores = self._scores(gram, context)[list(context.clients)]
        judged = ~scores.isnan().any(1)
        if int(judged.sum()) > 1:
            kept[judged] = ~self._malicious(scores[judged].mean(1), context)
        return kept.double() / kept.sum()

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        old, clients = context.state, torch.tensor(context.clients)
        # The round of each client's last update; rounds count from 1, so 0 is a client not seen yet
        known = _pad_rows(old.get("seen", torch.zeros(0, dtype=torch.long)), int(clients.max()) + 1, 0)
        seen = known.index_fill(0, clients, context.round)
        updates = _pad_rows(old.get("updates", torch.zeros(0, len(aggregate))), len(seen), 0.0)
        updates[clients] = gram.vectors
        starts = old.get("starts", torch.zeros(0, dtype=torch.long))
        # A model is kept as long as some client's last update started from it: one d-vector per such round, not per client
        needed = torch.isin(starts, seen)
        models = old.get("models", torch.zeros(0, len(aggregate)))
        kept: dict[str, Tensor] = {
            "seen": seen,
            "updates": updates,
            "starts": torch.cat([starts[needed], torch.tensor([context.round])]),
            "models": torch.cat([models[needed], context.model[None]]),
            # A rule keeps nothing between weights() and here, so the scores are computed again
            "scores": self._scores(gram, context),
            "model": context.model,
            "aggregate": aggregate,
        }
        if "model" in old:
            for name, change in (
                ("steps", context.model - old["model"]),
                ("changes", aggregate - old["aggregate"]),
            ):
                before = old.get(name, change[None][:0])
                kept[name] = torch.cat([before, change[None]])[-self.window :]
        return kept

    def _scores(self, gram: Gram, context: RuleContext) -> Tensor:
        """float64 ``[clients, window]``: each client's last shares of the distances; NaN if there are fewer."""
        clients = torch.tensor(context.clients)
        old = context.state.get("scores", torch.zeros(0, self.window, dtype=torch.float64))
        scores = _pad_rows(old, int(clients.max()) + 1, torch.nan)
        # A Hessian takes two models and two aggregates, so nothing can be predicted in the first two rounds
        if "steps" not in context.state or context.round <= self.wait:
            return scores
        seen = context.state["seen"]
        rows = torch.tensor([client < len(seen) and int(seen[client]) > 0 for client in context.clients])
        if not bool(rows.any()):
            return scores
        distances = self._distances(gram.vectors, rows, clients, context)
        shares = distances / distances.sum().clamp(min=1e-300)
        scores[clients[rows]] = torch.cat([scores[clients[rows], 1:], shares[:, None]], 1)
        return scores

    def _distances(self, updates: Tensor, rows: Tensor, clients: Tensor, context: RuleContext) -> Tensor:
        """float64 ``[rows]``: distances of the updates of clients seen before from their predictions."""
        state = context.state
        moved = {
            start: hessian_product(state["steps"], state["changes"], context.model - model)
            for start, model in zip(state["starts"].tolist(), state["models"], strict=True)
        }
        distances = []
        for row in rows.nonzero()[:, 0].tolist():
            client = int(clients[row])
            prediction = state["updates"][client].double() + moved[int(state["seen"][client])]
            distances.append((updates[row].double() - prediction).norm())
        return torch.stack(distances)

    def _malicious(self, scores: Tensor, context: RuleContext) -> Tensor:
        """bool ``[n]``: the upper of two clusters of the ``scores`` (float64 ``[n]``), if they form more than one."""
        points = scores[:, None]
        of_mean = self.gap == "log_of_mean"
        if clusters_by_gap(points, self.clusters, self.references, context.rng.torch(), of_mean=of_mean) == 1:
            return torch.zeros_like(scores, dtype=torch.bool)
        # Two clusters however many the gap statistic finds, as in the source: it only says whether to look
        labels = kmeans(points[None], 2, context.rng.child("clusters").torch())[0][0]
        return labels == labels[scores.argmax()]


def hessian_product(steps: Tensor, changes: Tensor, vector: Tensor) -> Tensor:
    """float64 ``[d]``: H ``vector`` by the compact L-BFGS formula (Byrd, Nocedal & Schnabel, Mathematical Programming 1994).

    With S the ``steps`` and Y the ``changes`` (``[k, d]``, oldest first), sigma = y_k.s_k / s_k.s_k, D and L the diagonal
    and the strict lower triangle of S Y^T: H = sigma I - [sigma S, Y]^T [[sigma S S^T, L], [L^T, -D]]^-1 [sigma S, Y].
    Pairs without a step of the model are left out, and collinear pairs share the weight of one of them.
    """
    moved = steps.abs().amax(1) > 0
    s, y, v = steps[moved].double(), changes[moved].double(), vector.double()
    if len(s) == 0:
        return torch.zeros_like(v)
    sigma = (y[-1] @ s[-1]) / (s[-1] @ s[-1])
    products = s @ y.T
    lower = products.tril(-1)
    middle = torch.cat(
        [torch.cat([sigma * s @ s.T, lower], 1), torch.cat([lower.T, -products.diagonal().diag()], 1)],
    )
    # pinv cuts off small eigenvalues relative to the largest: without a unit diagonal it would drop short steps as collinear
    scale = middle.diagonal().abs().sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    weights = torch.linalg.pinv(middle / scale[:, None] / scale, hermitian=True) @ (
        torch.cat([sigma * (s @ v), y @ v]) / scale
    )
    weights = weights / scale
    product: Tensor = sigma * v - sigma * (weights[: len(s)] @ s) - weights[len(s) :] @ y
    return product


def _pad_rows(rows: Tensor, count: int, fill: float) -> Tensor:
    """A copy of ``rows``, lengthened with ``fill`` to ``count`` rows."""
    more = max(0, count - len(rows))
    return torch.cat([rows, rows.new_full((more, *rows.shape[1:]), fill)])
