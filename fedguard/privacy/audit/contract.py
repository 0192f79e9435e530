"""Data types of an audit: scores of canaries, bounds, and the audit with its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fedguard.contracts.audit import SIGNIFICANCE, Check, Flags, Reals
from fedguard.errors import require

#: Most checks of an audit; so correct code fails one of them in at most 0.25 % of audits.
MOST_CHECKS = 25
FAMILY = MOST_CHECKS * SIGNIFICANCE


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The adversary's score of each canary: the higher, the more likely the canary was in.

    Args:
        values: float64 ``[m]``.
        included: bool ``[m]``: the coin of each canary, fair and independent of the others.
    """

    values: Reals
    included: Flags

    def __post_init__(self) -> None:
        require(
            self.values.shape == self.included.shape and self.values.ndim == 1,
            f"scores: expected one value and one flag per canary; got {self.values.shape} and {self.included.shape}.",
        )
        few = min(len(self.inside), len(self.outside))
        require(few >= 2, f"canaries: expected at least 2 that are in and 2 that are out; got {few}. Raise canaries.")
        require(bool(np.isfinite(self.values).all()), "scores: expected finite numbers; got NaN or infinity.")

    @property
    def inside(self) -> Reals:
        """Scores of the canaries that were in."""
        return self.values[self.included]

    @property
    def outside(self) -> Reals:
        """Scores of the canaries that were out."""
        return self.values[~self.included]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A lower bound on epsilon, or an estimate, by one method.

    Args:
        epsilon: at ``delta``.
        kind: "bound" holds with the confidence; an "estimate" may be off either way.
        confidence: probability with which the bound holds, at least; None for an estimate.
        mu: the bound on the parameter of Gaussian differential privacy, if the method computes one.
        rates: upper bounds on the false positive and the false negative rate of one test, which hold together with the
            confidence, whatever the mechanism.
        assumes: further assumption, in words; empty for none.
    """

    method: str
    epsilon: float
    delta: float
    kind: Literal["bound", "estimate"]
    confidence: float | None
    mu: float | None = None
    rates: tuple[float, float] | None = None
    assumes: str = ""


#: Scores, delta, confidence -> a bound.
Method: TypeAlias = Callable[[Scores, float, float], Bound]


Verdict: TypeAlias = Literal["consistent", "violated", "no guarantee claimed", "not judged"]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The accountant's upper bound beside the audit's lower bound.

    Args:
        claimed: epsilon by the accountant; None if nothing is claimed.
        claim: meaning of the claimed epsilon, in words.
        bound: the bound by the canaries.
        canaries: number of canaries, in or out.
        refuted: whether the canaries alone contradict the claim, with the bound's confidence.
        checks: tests of the residual noise.
        words: the verdict in a sentence.
    """

    subject: str
    claimed: float | None
    claim: str
    bound: Bound
    canaries: int
    refuted: bool
    checks: tuple[Check, ...]
    verdict: Verdict
    words: str

    def as_dict(self) -> dict[str, Any]:
        """The audit as JSON values."""
        content = asdict(self)
        for check, one in zip(content["checks"], self.checks, strict=True):
            check["passed"] = one.passed
        content["checks"] = list(content["checks"])
        if not math.isfinite(self.bound.epsilon):
            content["bound"]["epsilon"] = None
        return content
