"""How much of a multiset of labels was recovered, compared with the best guess."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedguard.contracts import Labels
from fedguard.errors import ContractError


def label_score(
    claim: Labels | Tensor, truth: Tensor, *, classes: int, prior: Tensor | None = None, most: int | None = None
) -> dict[str, Any]:
    """Compare claimed labels with the true ones, as multisets.

    Args:
        claim: int64, at most B labels, or ``most``; missing labels count as wrong, and so do those above B.
        truth: int64 ``[B]``, each in 0 ... classes - 1.
        prior: float ``[classes]``: shares of the classes known without the update; uniform by default.
        most: number of examples that the attacker assumed, if larger than the true one.

    Returns:
        examples: B; claimed: number of claimed labels;
        accuracy: size of the intersection over B, or over the number of claims if larger; exact: whether the multisets are
            equal;
        count_error: for each class the claimed number less the true one;
        trivial: the accuracy of `blind_guess` on the same labels; gain: accuracy - trivial.

    Raises:
        ContractError: more than B labels, or others than 0 ... classes - 1.
    """
    claimed = check_claimed_labels(claim.y if isinstance(claim, Labels) else claim, max(len(truth), most or 0))
    if len(claimed) and not 0 <= int(claimed.min()) <= int(claimed.max()) < classes:
        raise ContractError(
            f"claimed labels: expected 0 to {classes - 1}; got {int(claimed.min())} to {int(claimed.max())}."
        )
    error = claimed.bincount(minlength=classes) - truth.bincount(minlength=classes)
    accuracy = label_accuracy(claimed, truth)
    trivial = blind_guess(truth, torch.full((classes,), 1 / classes) if prior is None else prior)
    return {
        "examples": len(truth),
        "claimed": len(claimed),
        "accuracy": accuracy,
        "exact": not bool(error.any()),
        "count_error": error.tolist(),
        "trivial": trivial,
        "gain": accuracy - trivial,
    }


def label_accuracy(claimed: Tensor, truth: Tensor) -> float:
    """Size of the intersection of two multisets of labels over the size of the larger one."""
    found = sum(min(int((claimed == label).sum()), int((truth == label).sum())) for label in set(truth.tolist()))
    return found / max(len(claimed), len(truth))


def blind_guess(truth: Tensor, prior: Tensor) -> float:
    """The accuracy of the best guess that does not use the update.

    If B labels are drawn from p, then ``N_c ~ Binomial(B, p_c)`` are of class c. A guess with g_c of them finds ``sum_c
    min(g_c, N_c)``, in expectation ``sum_c sum_{k <= g_c} P[N_c >= k]``. So the best guess takes the B largest of these
    probabilities. It is compared with the true labels, averaged over the ways to break ties.

    Args:
        truth: int64 ``[B]``.
        prior: float ``[classes]``: p.
    """
    from scipy.stats import binom

    size, p = len(truth), prior.double() / prior.sum()
    true = truth.bincount(minlength=len(p))
    worth = torch.from_numpy(binom.sf(torch.arange(size)[:, None].numpy(), size, p[None].numpy()))  # k - 1 by class
    least = worth.flatten().topk(size).values[-1]
    tied = (worth - least).abs() <= 1e-12
    sure = (worth > least) & ~tied
    hits = torch.arange(1, size + 1)[:, None] <= true  # the k-th guess of class c is one of the true labels
    share = (size - int(sure.sum())) / int(tied.sum())
    return float(((sure & hits).sum() + share * (tied & hits).sum()) / size)


def check_claimed_labels(claimed: Tensor, most: int) -> Tensor:
    """Check claimed labels.

    Raises:
        ContractError: not an int64 vector, or more labels than examples.
    """
    if claimed.dim() != 1 or claimed.dtype != torch.int64:
        raise ContractError(
            f"claimed labels: expected int64 of shape [B]; got {claimed.dtype} of shape {list(claimed.shape)}."
        )
    if len(claimed) > most:
        raise ContractError(
            f"claimed labels: expected at most as many as examples, {most}; got {len(claimed)}. Choose among them in `infer`."
        )
    return claimed
