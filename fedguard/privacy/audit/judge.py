"""Does the code keep the epsilon that it prints? Canaries bound epsilon from below, residuals test the noise.

    a claim that is true       lower bound <= epsilon <= the accountant's upper bound
    a claim that is refuted    lower bound > the accountant's upper bound

No audit proves privacy. An audit without findings has found nothing with these canaries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedguard.arguments import at_least, is_real, whole_number
from fedguard.contracts import Epsilon
from fedguard.contracts.audit import Check, Curve, Subject
from fedguard.errors import UnknownName, brief, require
from fedguard.privacy.audit.clopper_pearson import clopper_pearson
from fedguard.privacy.audit.contract import FAMILY, Audit, Bound, Method, Scores, Verdict
from fedguard.privacy.audit.fdp_one_run import fdp_one_run
from fedguard.privacy.audit.gdp_split import gdp_split
from fedguard.privacy.audit.one_run import one_run
from fedguard.privacy.audit.one_shot import one_shot
from fedguard.privacy.audit.residuals import residual_checks
from fedguard.rng import MOST_SEED, Rng

#: Deltas at which a claimed curve is compared with the rates of a test: of the rates' size, not in the tail.
DELTAS = (0.4, 0.2, 0.1, 0.03, 0.01)
#: exp() of a larger epsilon overflows.
LARGEST = 700.0

#: The most canaries of an audit, whose scores are all held in memory
MOST_CANARIES = 10_000_000

METHODS: dict[str, Method] = {
    "gdp_split": gdp_split,
    "clopper_pearson": clopper_pearson,
    "one_run": one_run,
    "fdp_one_run": fdp_one_run,
    "one_shot": one_shot,
}


def audit(
    subject: Subject,
    *,
    method: str = "gdp_split",
    canaries: int = 1000,
    confidence: float = 0.95,
    delta: float = 1e-5,
    seed: int = 0,
    training: Sequence[Check] = (),
) -> Audit:
    """Run code on canaries and compare the lower bound on epsilon with its claim.

    Correct code gets the verdict "violated" with probability at most ``1 - confidence`` in all: 0.0001 by each check, 0.0025 by
    all checks (`FAMILY`), and the rest by the bound. (If less than half would be left for the bound, it gets half.)

    Args:
        subject: see `fedguard.privacy.audit.subjects`.
        method: the method that turns scores into a lower bound, one of `METHODS`.
        canaries: expected number of canaries that are in, and out: a fair coin decides for each of twice as many.
        confidence: confidence of the verdict, see above.
        delta: the delta of the bound if nothing is claimed; else the delta of the claim counts.
        seed: seed of the coins and of all draws of the subject.
        training: checks of a training with this code, see `fedguard.privacy.audit.training`.

    Raises:
        UnknownName: no such method.
        ConfigError: too few canaries.
    """
    check_audit_settings(method, canaries, confidence, seed)
    rng = Rng(seed).child("audit")
    # Coins and noise from different streams: dependent ones would void the bound.
    included = rng.child("coins").numpy().random(2 * canaries) < 0.5
    values, seen = subject.observe(included, rng.child("subject"))
    scores = Scores(values=np.asarray(values, float), included=included)
    claim = subject.claim
    error = 1 - confidence
    bound = METHODS[method](scores, claim.delta if claim else delta, 1 - max(error - FAMILY, error / 2))
    checks = (*(residual_checks(seen) if seen else ()), *training)
    claimed = claim.value if claim and math.isfinite(claim.value) else None
    refutation = "" if claim is None or claimed is None else _refute_claim(claim, subject.curve, bound)
    verdict, words = _judge_claim(claim if claimed is not None else None, bound, refutation, checks)
    return Audit(
        subject=subject.name,
        claimed=claimed,
        claim=claim.describe() if claim else "nothing",
        bound=bound,
        canaries=2 * canaries,
        refuted=bool(refutation),
        checks=checks,
        verdict=verdict,
        words=words,
    )


def check_audit_settings(method: str, canaries: int, confidence: float, seed: int) -> None:
    """Refuse settings with which no audit can run, before anything runs.

    Raises:
        UnknownName: no such method.
        ConfigError: too few canaries, or a confidence out of range.
        InputError: not a seed.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise UnknownName("audit method", method, METHODS)
    at_least(10, canaries, "canaries", MOST_CANARIES)
    number = is_real(confidence)
    require(number and 0.5 <= confidence < 1, f"confidence: expected from 0.5 to below 1; got {brief(confidence)}.")
    whole_number(seed, "seed", 0, MOST_SEED)


def _judge_claim(
    claim: Epsilon | None, bound: Bound, refutation: str, checks: tuple[Check, ...]
) -> tuple[Verdict, str]:
    if claim is None:
        return "no guarantee claimed", "There is nothing to hold the canaries against."
    failed = [f"{check.name}: {check.words} (p = {check.p_value:.1g})" for check in checks if not check.passed]
    if refutation:
        failed = [f"{refutation} ({bound.confidence:.0%} confidence)", *failed]
    if failed:
        return "violated", f"The code does not do what the accountant reckons with: {'; '.join(failed)}."
    # Only now, after what refutes: an estimate beside failed checks must not hide them.
    if bound.kind == "estimate" or (bound.assumes and bound.rates is None and not _gaussian(claim)):
        why = "an estimate" if bound.kind == "estimate" else "it assumes a shape that sampling bends"
        return (
            "not judged",
            f"{bound.method} reads {bound.epsilon:.4g} beside {claim.value:.4g}, which proves nothing: {why}.",
        )
    if bound.assumes and not _gaussian(claim):
        return (
            "consistent",
            f"the canaries do not contradict epsilon = {claim.value:.4g} (accountant); they would show {bound.epsilon:.4g} if "
            f"{bound.assumes}.",
        )
    return "consistent", f"epsilon is between {bound.epsilon:.4g} (canaries) and {claim.value:.4g} (accountant)."


def _refute_claim(claim: Epsilon, curve: Curve | None, bound: Bound) -> str:
    """Why the claim cannot be true; empty if it is not refuted."""
    if bound.kind == "estimate":
        return ""
    if not bound.assumes or _gaussian(claim):
        shown = f"the canaries show epsilon >= {bound.epsilon:.4g}, above {claim.value:.4g}"
        return shown if bound.epsilon > claim.value else ""
    if bound.rates is None:
        return ""
    fpr, fnr = bound.rates
    for delta in DELTAS if curve else (claim.delta,):
        epsilon = curve(delta) if curve else claim.value
        # Both orders must hold, and as exp(epsilon) is at least 1 the smaller rate times it is the stronger condition.
        if min(fpr, fnr) * math.exp(min(epsilon, LARGEST)) + max(fpr, fnr) < 1 - delta:
            return (
                f"the canaries are told apart with FPR <= {fpr:.3f} and FNR <= {fnr:.3f}, which is too well for epsilon = "
                f"{epsilon:.4g} at delta = {delta:g}, as is claimed along with {claim.value:.4g} at {claim.delta:g}"
            )
    return ""


def _gaussian(claim: Epsilon) -> bool:
    """Whether the trade-off curve of the claim is Gaussian, because no random sampling bends it."""
    return claim.sampling in ("none", "cyclic")
