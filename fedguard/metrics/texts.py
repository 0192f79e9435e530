"""How much of the texts of a batch was recovered: the tokens, and their order where it was claimed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedguard.contracts.inference import RecoveredText
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ContractError


def text_score(
    claim: RecoveredText, x: Tensor, tokens: Tokens, reference: Tensor, most: int | None = None
) -> dict[str, Any]:
    """Compare claimed tokens with the true texts; padding counts nowhere.

    Args:
        x: ``[B, length]``: the true texts, as tokens by number.
        reference: ``[N, length]``: texts other than the truth, for the blind guess.
        most: number of texts that the attacker assumed, if larger than B.

    Returns:
        texts: B; tokens, claimed: number of different tokens of the truth, and of the claim;
        recall: share of the former that is claimed; precision: share of the latter that is true, 0 if nothing is claimed;
        f1: their harmonic mean; trivial: f1 of claiming as many of the most frequent tokens as are true; gain: f1 - trivial;
        rouge_l: mean over the true texts of `rouge_l` with the claimed one, by the one-to-one matching with the largest sum;
            None if no order was claimed;
        rank: as claimed.

    Raises:
        ContractError: another type or shape, more texts than allowed, or numbers outside the vocabulary.
    """
    claimed = _check_claimed_text(claim.tokens, tokens, max(len(x), most or 0))
    true, found = _distinct(x.long(), tokens), _distinct(claimed, tokens)
    hits = len(true & found)
    f1 = 2 * hits / (len(true) + len(found)) if true or found else 0.0
    usual = reference.long().flatten().bincount(minlength=tokens.vocabulary)
    if tokens.padding is not None:
        usual[tokens.padding] = -1
    trivial = len(true & set(usual.argsort(descending=True, stable=True)[: len(true)].tolist())) / max(len(true), 1)
    return {
        "texts": len(x),
        "tokens": len(true),
        "claimed": len(found),
        "recall": hits / max(len(true), 1),
        "precision": hits / max(len(found), 1),
        "f1": f1,
        "trivial": trivial,
        "gain": f1 - trivial,
        "rouge_l": _match_texts(claimed, x.long(), tokens) if claimed.dim() == 2 else None,
        "rank": claim.rank,
    }


def rouge_l(claimed: list[int], true: list[int]) -> float:
    """``2 l / (m + n)`` for texts of m and n tokens with a longest common subsequence of l (Lin, 2004)."""
    row = [0] * (len(true) + 1)
    for one in claimed:
        above = row
        row = [0]
        for place, other in enumerate(true):
            row.append(above[place] + 1 if one == other else max(above[place + 1], row[place]))
    return 2 * row[-1] / (len(claimed) + len(true)) if claimed or true else 1.0


def _match_texts(claimed: Tensor, x: Tensor, tokens: Tokens) -> float:
    from scipy.optimize import linear_sum_assignment

    texts = [[token for token in text if token != tokens.padding] for text in x.tolist()]
    said = [[token for token in text if token != tokens.padding] for text in claimed.tolist()]
    scores = torch.tensor([[rouge_l(one, text) for one in said] for text in texts]).view(len(texts), len(said))
    return float(scores[linear_sum_assignment(scores.numpy(), maximize=True)].sum()) / len(texts)


def _distinct(numbers: Tensor, tokens: Tokens) -> set[int]:
    return set(numbers.flatten().tolist()) - {tokens.padding}


def _check_claimed_text(claimed: Tensor, tokens: Tokens, most: int) -> Tensor:
    if claimed.dim() not in (1, 2) or claimed.dtype != torch.int64:
        raise ContractError(
            f"claimed tokens: expected int64 of shape [k] or [B, length]; got {claimed.dtype} of shape {list(claimed.shape)}."
        )
    if claimed.dim() == 2 and len(claimed) > most:
        raise ContractError(
            f"claimed texts: expected at most {most}; got {len(claimed)}. Choose among them in `infer`."
        )
    if claimed.numel() and not 0 <= int(claimed.min()) <= int(claimed.max()) < tokens.vocabulary:
        raise ContractError(
            f"claimed tokens: expected 0 to {tokens.vocabulary - 1}; got {int(claimed.min())} to {int(claimed.max())}."
        )
    return claimed
