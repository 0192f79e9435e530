"""Black-box audits: what does a mechanism that only can be called prove, show or break of the epsilon that it claims?

claim.py       what is claimed: epsilon and delta, of what, under which relation, and what follows for R rounds
mechanism.py   what is audited: shapes, fresh instances, one guarded call
pairs.py       neighboring inputs, and which of them are told apart best
features.py    what is kept of each call, as numbers
scores.py      tests between two inputs, fitted on samples that are then thrown away
two_sample.py  bounds on epsilon for any law, for one release and over R rounds
law.py         bounds on epsilon if the noise has the law that it seems to have
structure.py   noise that is missing, repeats, is seeded, or has other values for other inputs
adapters/      objects of other packages, recognized by their type
lives.py       mechanisms that change with their calls
one_run.py     trainings on canaries and events of accountants, with the same verdicts
audit.py       plan, search, judgment
verdict.py     the result, in words and as JSON
"""

from typing import TYPE_CHECKING

from fedguard.lazy import lazy_names

if TYPE_CHECKING:
    from fedguard.privacy.blackbox.audit import audit_mechanism
    from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters
    from fedguard.privacy.blackbox.mechanism import BlackBoxMechanism
    from fedguard.privacy.blackbox.verdict import MechanismAudit

__all__ = ["BlackBoxMechanism", "EpsilonClaim", "MechanismAudit", "NoiseParameters", "audit_mechanism"]

__getattr__ = lazy_names(__name__)
