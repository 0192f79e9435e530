"""What the parts of an audit hand to each other: canaries' scores, what a release looked like, bounds, checks, the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import require
from fedguard.privacy.accounting import Epsilon
from fedguard.rng import Rng

Reals: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]

#: A check fails below this p-value, which holds for all that it compares together (Bonferroni within the check).
SIGNIFICANCE = 1e-4
#: No audit makes more checks than that, so right code fails one of them in at most 0.25 % of audits.
MOST_CHECKS = 25
FAMILY = MOST_CHECKS * SIGNIFICANCE


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What the adversary reads off the releases for each canary: the higher, the more it looks as if it were in.

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
        """Scores of those that were not."""
        return self.values[~self.included]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What a method says of epsilon from below.

    Args:
        epsilon: at ``delta``.
        kind: "bound" holds with the confidence; an "estimate" may be off either way.
        confidence: how often at least the bound is true; None for an estimate.
        mu: the same as a parameter of Gaussian differential privacy, where the method goes by way of it.
        rates: upper bounds on the false positive and the false negative rate of one test, which hold together with the
            confidence, whatever the mechanism.
        assumes: what must hold besides, in words; empty for nothing.
    """

    method: str
    epsilon: float
    delta: float
    kind: Literal["bound", "estimate"]
    confidence: float | None
    mu: float | None = None
    rates: tuple[float, float] | None = None
    assumes: str = ""


#: delta -> epsilon.
Curve: TypeAlias = Callable[[float], float]
#: Scores, delta, confidence -> a bound.
Method: TypeAlias = Callable[[Scores, float, float], Bound]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test of the residual noise against what the mechanism says of itself.

    Args:
        p_value: how likely so large a deviation is if the code does what it says.
        words: what was seen.
    """

    name: str
    p_value: float
    words: str

    @property
    def passed(self) -> bool:
        return self.p_value >= SIGNIFICANCE


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What the auditor, who knows the inputs, compares the releases with.

    Args:
        releases: float64 ``[T, d]``.
        truth: float64 ``[T, d]``: what they would be without noise, by the auditor's own arithmetic.
        noise: standard deviation of the noise on each coordinate, as claimed.
        gaussian: whether the noise of a release is Gaussian; integer noise on a coarse grid is not.
        bare: float64 ``[k]``: single draws of the noise, brought to N(0, 1) by their own law, where releases add up several.
        positions: int64 ``[d]``: the coordinate that each column shows; None where that is its number.
        layers: sizes of the layers in which the coordinates lie, in order; none where there are no layers.
        clients: int64 ``[T]``: whose noise each row shows; None where it is nobody's.
        elsewhere: how far the noise differed with the same seed and other data, over its standard deviation; None where
            that was not tried.
        counts: float64 ``[k]``: the noise of the counts behind an adaptive clip, over the claimed one; None for none.
        drawn: bool ``[k, n]``: who of n was in each of k draws, in their order; None where nobody was drawn.
        rate: q, the chance of each, as claimed.
        fixed: whether each draw is of q n, and not by a toss for each.
    """

    releases: Reals
    truth: Reals
    noise: float
    gaussian: bool = True
    bare: Reals | None = None
    positions: Integers | None = None
    layers: tuple[int, ...] = ()
    clients: Integers | None = None
    elsewhere: float | None = None
    counts: Reals | None = None
    drawn: Flags | None = None
    rate: float = 1.0
    fixed: bool = False


class Subject(Protocol):
    """Code under audit, with what it claims."""

    @property
    def name(self) -> str: ...

    @property
    def claim(self) -> Epsilon | None:
        """What its accountant prints; None where it promises nothing."""
        ...

    @property
    def curve(self) -> Curve | None:
        """What its accountant prints at other deltas; None where that is not known."""
        ...

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript | None]:
        """Run it on the canaries that are in.

        Args:
            included: bool ``[m]``.
            rng: of all its draws.

        Returns:
            the score of every canary, float64 ``[m]``, and what the residuals are tested on, where they can be told.
        """
        ...


Verdict: TypeAlias = Literal["consistent", "violated", "no guarantee claimed", "not judged"]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The accountant's upper bound beside the audit's lower bound.

    Args:
        claimed: epsilon by the accountant; None where nothing is claimed.
        claim: what that figure means, in words.
        bound: what the canaries say.
        canaries: how many took part, in or out.
        refuted: whether the canaries alone contradict the claim, with the bound's confidence.
        checks: of the residual noise.
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
        """The same as JSON takes it."""
        content = asdict(self)
        for check, one in zip(content["checks"], self.checks, strict=True):
            check["passed"] = one.passed
        content["checks"] = list(content["checks"])
        if not math.isfinite(self.bound.epsilon):
            content["bound"]["epsilon"] = None
        return content
