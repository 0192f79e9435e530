"""Trainings on canaries and events of accountants, as audits of mechanisms: the same verdicts, JSON and exit codes.

One run with many canaries is judged as `fedguard.privacy.audit` does: the rates of one test bound epsilon for any law; what
they show if the trade-off curve is Gaussian counts only where no sampling bends it.
"""

from __future__ import annotations

import math
import time

import numpy as np

from fedguard.contracts import Epsilon
from fedguard.errors import ConfigError
from fedguard.privacy.audit import audit
from fedguard.privacy.blackbox.adapters.contract import AccountedEvent, CanaryTraining
from fedguard.privacy.blackbox.claim import EpsilonClaim
from fedguard.privacy.blackbox.law import ShownBound
from fedguard.privacy.blackbox.two_sample import LowerBound, for_one
from fedguard.privacy.blackbox.verdict import MechanismAudit, MechanismVerdict, RelationBounds

#: Delta if nothing is claimed.
DELTA = 1e-5


def audit_training(
    found: CanaryTraining, claim: EpsilonClaim | None, address: str | None, *, seed: int, place: tuple[str, int] | None
) -> MechanismAudit:
    """One run of a training; see `fedguard.privacy.audit.audit`.

    Args:
        claim: of the whole run; by default what the training's own accountant says.
    """
    began = time.process_time()
    subject = found.subject if claim is None else _Claimed(found, claim)
    one = audit(subject, canaries=found.canaries // 2, delta=DELTA, seed=seed)
    told = subject.claim
    if claim is None and told is not None:
        claim = EpsilonClaim(epsilon=told.value, delta=told.delta, relation="add_remove", unit=told.unit)
    rates = one.bound.rates or (1.0, 1.0)
    delta = one.bound.delta
    each_way = [float(for_one(np.asarray(a), np.asarray(b), delta)) for a, b in (rates, rates[::-1])]
    proven = LowerBound(max(each_way), delta, 1, "score of a canary", *rates)
    gaussian = claim is not None and claim.law == "gaussian"
    shown = ShownBound("gaussian", one.bound.epsilon, one.bound.epsilon, 1) if gaussian else None
    bounds = RelationBounds(
        relation="add_remove",
        calls=1,
        pairs=(f"{one.canaries} records, each in or out of one run",),
        proven=proven,
        proven_rounds=proven,
        shown=shown,
        exact=None,
        exact_rounds=None,
        most_provable=math.log((1 - delta) / max(1e-12, 1 - 0.025 ** (2 / one.canaries))),
    )
    return MechanismAudit(
        name=address or one.subject,
        claim=claim,
        facts=None,
        verdict=one.verdict,
        words=one.words,
        findings=(),
        bounds=(bounds,),
        unpaid=(),
        rounds=1,
        seed=seed,
        seconds=time.process_time() - began,
        defined_in=place,
    )


class _Claimed:
    """A subject under the user's claim instead of its own."""

    curve = None

    def __init__(self, found: CanaryTraining, claim: EpsilonClaim) -> None:
        self.name, self.observe = found.subject.name, found.subject.observe
        self.claim = Epsilon(
            value=claim.epsilon,
            delta=claim.delta,
            unit=claim.unit,
            relation=claim.relation_to_judge,
            sampling="none" if claim.law == "gaussian" else "unknown",
            view="the model",
            accountant="the claim",
            bound=True,
            assumptions=(),
        )


def audit_event(found: AccountedEvent, claim: EpsilonClaim | None, address: str | None, rounds: int) -> MechanismAudit:
    """The exact epsilon of an event beside the claim; nothing is called, so nothing is proven."""
    began = time.process_time()
    delta = claim.over(1)[1] if claim else DELTA
    try:
        one, many = found.epsilon(1, delta), found.epsilon(rounds, delta)
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"--mechanism: {found.describe}: its accountant raised {error}.") from error
    bounds = RelationBounds(
        relation="add_remove",
        calls=0,
        pairs=(),
        proven=LowerBound(0.0, delta, 1),
        proven_rounds=LowerBound(0.0, delta, rounds),
        shown=None,
        exact=one,
        exact_rounds=many,
        most_provable=0.0,
    )
    verdict: MechanismVerdict = "no guarantee claimed" if claim is None else "not judged"
    beside = "" if claim is None else f", beside {claim.epsilon:.4g} as claimed"
    return MechanismAudit(
        name=address or found.describe,
        claim=claim,
        facts=None,
        verdict=verdict,
        words=f"Arithmetic alone, no call: epsilon = {one:.4g} at delta = {delta:g}{beside}.",
        findings=(),
        bounds=(bounds,),
        unpaid=(),
        rounds=rounds,
        seed=0,
        seconds=time.process_time() - began,
        defined_in=None,
    )
