"""How well scores separate members from nonmembers: the area under the curve, and true positives at few false positives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Reals: TypeAlias = NDArray[np.float64]

#: Confidence level of all intervals
CONFIDENCE = 0.95
#: Replaces infinity in a record
LARGEST = 1e308


def membership(scores: Tensor, truth: Tensor) -> dict[str, Any]:
    """Evaluate the scores of a membership inference (larger for a member) against the truth.

    A true positive rate belongs to the lowest threshold that at most 1 % (.1 %) of the nonmembers exceed. A candidate is called
    a member above the threshold, not at it: of equal scores none is, so ties never raise the rate.

    Args:
        scores: ``[N]``; NaN counts as the lowest score, so that it finds nobody.
        truth: bool ``[N]``: who is a member.

    Returns:
        members, non_members: numbers of candidates; not_numbers: number of scores that are NaN;
        auc: see `auc`;
        tpr_at_1_percent, tpr_at_01_percent: value, interval: of Clopper and Pearson, 95 %, over members that could have been
            drawn, given the threshold; both None, with ``why``, if fewer than 100 (1,000) nonmembers cannot resolve the rate;
        roc: ``[false, true]`` positive rates, few, evenly spaced on a logarithmic axis;
        scores: of the members and of the non_members, ascending, as input to `pool_membership`.
    """
    return {**_measure(*_split_scores(scores, truth)), "not_numbers": int(scores.isnan().sum())}


def _measure(members: Reals, others: Reals) -> dict[str, Any]:
    return {
        "members": len(members),
        "non_members": len(others),
        "not_numbers": 0,
        "auc": _area(members, others),
        "tpr_at_1_percent": _tpr(members, others, one_in=100),
        "tpr_at_01_percent": _tpr(members, others, one_in=1000),
        "roc": _roc(members, others),
        "scores": {"members": _list_scores(members), "non_members": _list_scores(others)},
    }


def pool_membership(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`membership` of the candidates of several targets and seeds together, under one threshold for all of them.

    This resolves rates for which no single target has enough nonmembers. It is fair to scores with the same meaning for all
    targets, such as likelihood ratios; other scores find fewer members this way.

    Args:
        found: results of `membership` for each.
    """
    scores = [np.array([v for one in found for v in one["scores"][kind]], float) for kind in ("members", "non_members")]
    return {**_measure(*scores), "not_numbers": sum(one["not_numbers"] for one in found)}


def auc(scores: Tensor, truth: Tensor) -> dict[str, Any]:
    """The probability that a true one scores higher than a false one, ties by half, with an interval of 95 %.

    The interval holds every area A with |auc - A| <= 1.96 SE(A), where

        m n SE(A)^2 = A (1 - A) + (m - 1) (A / (2 - A) - A^2) + (n - 1) (2 A^2 / (1 + A) - A^2)

    for m true and n false ones (Hanley & McNeil 1982). The standard error belongs to the supposed area, not to the observed one
    (Newcombe 2006), so the interval neither leaves [0, 1] nor shrinks to a point at 1.

    Returns:
        value, interval; both None, with ``why``, if all are true or all are false.
    """
    return _area(*_split_scores(scores, truth))


def _area(members: Reals, others: Reals) -> dict[str, Any]:
    from scipy.stats import rankdata

    m, n = len(members), len(others)
    if not (m and n):
        return _nothing(f"expected some of both kinds; got {m} true and {n} false.")
    ranks = rankdata(np.concatenate([members, others]))
    value = float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))
    return {"value": value, "interval": [_end(value, m, n, 0.0), _end(value, m, n, 1.0)]}


def _end(value: float, m: int, n: int, towards: float) -> float:
    """The last area towards 0 or 1 that the value does not exclude."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    z = float(norm.ppf((1 + CONFIDENCE) / 2))

    def excess(area: float) -> float:
        spread = (m - 1) * (area / (2 - area) - area**2) + (n - 1) * (2 * area**2 / (1 + area) - area**2)
        return abs(value - area) - z * math.sqrt(max(0.0, area * (1 - area) + spread) / (m * n))

    return towards if excess(towards) <= 0 else float(brentq(excess, min(max(value, 1e-9), 1 - 1e-9), towards))


def _tpr(members: Reals, others: Reals, *, one_in: int) -> dict[str, Any]:
    """The true positive rate at a false positive rate of at most 1 / ``one_in``."""
    from scipy.stats import binomtest

    if not len(members):
        return _nothing("expected members; got none.")
    if len(others) < one_in:
        return _nothing(f"expected {one_in:,} non-members or more; got {len(others):,}.")
    found = int((members > _threshold(others, len(others) // one_in)).sum())
    interval = binomtest(found, len(members)).proportion_ci(CONFIDENCE, method="exact")
    return {"value": found / len(members), "interval": [float(interval.low), float(interval.high)]}


def _roc(members: Reals, others: Reals, points: int = 25) -> list[list[float]]:
    if not (len(members) and len(others)):
        return []
    alarms = np.unique(np.geomspace(1, len(others), points).round().astype(int))
    rates = [(alarm, float((members > _threshold(others, alarm)).mean())) for alarm in (0, *alarms.tolist())]
    return [[alarm / len(others), rate] for alarm, rate in rates]


def _threshold(others: Reals, alarms: int) -> float:
    """The lowest score that at most ``alarms`` of the others exceed."""
    return -math.inf if alarms >= len(others) else float(np.sort(others)[-1 - alarms])


def _split_scores(scores: Tensor, truth: Tensor) -> tuple[Reals, Reals]:
    import torch

    if scores.shape != truth.shape or scores.dim() != 1 or truth.dtype != torch.bool:
        raise InputError(
            f"scores: expected [N], beside truth bool [N]; got {list(scores.shape)} beside {truth.dtype} {list(truth.shape)}."
        )
    values = scores.detach().double().nan_to_num(-math.inf, math.inf, -math.inf).numpy()
    return values[truth.numpy()], values[~truth.numpy()]


def _list_scores(values: Reals) -> list[float]:
    """Ascending, to nine digits; infinity becomes the largest number that JSON can hold."""
    return [float(f"{value:.9g}") for value in np.nan_to_num(np.sort(values), posinf=LARGEST, neginf=-LARGEST)]


def _nothing(why: str) -> dict[str, Any]:
    return {"value": None, "interval": None, "why": why}
