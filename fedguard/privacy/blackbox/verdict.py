"""The result of a black-box audit: bounds of four kinds, never mixed, a verdict, and what the claim leaves unpaid."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters, Relation
from fedguard.privacy.blackbox.law import ShownBound
from fedguard.privacy.blackbox.lives import LifeBounds
from fedguard.privacy.blackbox.structure import StructuralFinding
from fedguard.privacy.blackbox.two_sample import LowerBound

MechanismVerdict: TypeAlias = Literal[
    "consistent", "violated", "no claim can be made", "no guarantee claimed", "not judged"
]

#: Exit codes of `fedguard audit --mechanism`.
EXIT_CODES = {"consistent": 0, "violated": 3}
#: Allowed excess of an exact epsilon over the claim: accountants differ by so much.
ROUNDING = 0.01


@dataclass(frozen=True, kw_only=True)
class RelationBounds:
    """All bounds under one relation.

    Attributes:
        calls: with each input of a pair.
        pairs: the pairs of inputs that were judged, in words.
        proven, proven_rounds: lower bounds for any law, at 95 % together, for one release and for R.
        shown: lower bounds at 95 % if the noise has the law that it seems to have; None if it has none of the known ones.
        exact, exact_rounds: by the mechanism's parameters; None of a black box.
        most_provable: the largest epsilon that this number of calls can prove for one release.
        lives: bounds for instances that make R releases in a row, of a mechanism that its calls change; else None.
    """

    relation: Relation
    calls: int
    pairs: tuple[str, ...]
    proven: LowerBound
    proven_rounds: LowerBound
    shown: ShownBound | None
    exact: float | None
    exact_rounds: float | None
    most_provable: float
    lives: LifeBounds | None = None

    @property
    def least(self) -> float:
        """The largest epsilon of one release that is proven, shown or exact."""
        return max(self.proven.epsilon, self.shown.epsilon if self.shown else 0.0, self.exact or 0.0)


@dataclass(frozen=True)
class Unpaid:
    """One thing that the claim does not cover, with its epsilon if it has one."""

    code: str
    words: str
    epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """The audit of one mechanism.

    Attributes:
        claim: what is claimed; None for nothing.
        findings: by structure alone.
        bounds: under the relation that may refute the claim, then under others.
        rounds: R.
        seconds: CPU time of all calls and bounds.
        defined_in: file and line of the code.
    """

    name: str
    claim: EpsilonClaim | None
    facts: NoiseParameters | None
    verdict: MechanismVerdict
    words: str
    findings: tuple[StructuralFinding, ...]
    bounds: tuple[RelationBounds, ...]
    unpaid: tuple[Unpaid, ...]
    rounds: int
    seed: int
    seconds: float
    defined_in: tuple[str, int] | None

    @property
    def doubtful(self) -> bool:
        """Whether nothing is proven against the claim, and the bound by the law that the noise seems to have exceeds it."""
        return self.verdict == "consistent" and self.claim is not None and _exceeds_by_law(self.claim, self.bounds[0])

    @property
    def exit_code(self) -> int:
        """0 consistent, 3 violated, 4 if nothing is claimed, can be claimed, or could be judged."""
        return EXIT_CODES.get(self.verdict, 4)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values; an infinite epsilon is the word ``inf``."""
        found: dict[str, Any] = _finite({**asdict(self), "exit_code": self.exit_code})
        return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return "inf" if isinstance(value, float) and not math.isfinite(value) else value


def judge(
    claim: EpsilonClaim | None, findings: tuple[StructuralFinding, ...], bounds: tuple[RelationBounds, ...], rounds: int
) -> tuple[MechanismVerdict, str]:
    """The verdict with its sentence. Only structure and proven bounds refute; shown ones do if the claim names their law."""
    refuting = [one.words for one in findings if one.refutes]
    if claim is None:
        if refuting:
            return "no claim can be made", f"No finite epsilon fits it: {'; '.join(refuting)}."
        return "no guarantee claimed", "Nothing is claimed: the bounds say how much it leaks at least."
    reasons = refuting + _refutations(claim, bounds, rounds)
    if reasons:
        return "violated", f"The mechanism does not keep {claim.describe()}: {'; '.join(reasons)}."
    if not bounds:
        return "not judged", "No call could be made within the budget."
    main = bounds[0]
    if main.shown is not None and _exceeds_by_law(claim, main):
        return "consistent", (
            f"Nothing is proven against the claim, but it is violated if the noise is {main.shown.law}, as it looks: "
            f"epsilon >= {main.shown.epsilon:.3g}. Name law={main.shown.law} in the claim to have this judged."
        )
    return "consistent", (
        f"{main.calls} calls with each input do not contradict the claim; at most epsilon = {main.most_provable:.2g} could "
        "be proven with them for one release."
    )


def _exceeds_by_law(claim: EpsilonClaim, one: RelationBounds) -> bool:
    return one.shown is not None and one.shown.epsilon > claim.over(1)[0]


def _refutations(claim: EpsilonClaim, bounds: tuple[RelationBounds, ...], rounds: int) -> list[str]:
    found = []
    for one in bounds[:1]:  # the relation of the claim
        for bound in (one.proven, one.proven_rounds, *([one.lives.proven] if one.lives else [])):
            most = claim.over(bound.rounds)[0]
            if bound.epsilon > most:
                when = "one release" if bound.rounds == 1 else f"{bound.rounds} rounds"
                found.append(f"epsilon >= {bound.epsilon:.3g} is proven for {when}, where the claim gives {most:.3g}")
        if one.shown is not None and claim.law == one.shown.law:
            if one.shown.epsilon > claim.over(1)[0]:
                found.append(
                    f"epsilon >= {one.shown.epsilon:.3g} for one release, with the {claim.law} noise that it names"
                )
            elif one.shown.over_rounds > claim.over(rounds)[0]:
                found.append(f"epsilon >= {one.shown.over_rounds:.3g} over {rounds} rounds, with the {claim.law} noise")
        life = one.lives.shown if one.lives else None
        if life is not None and claim.law == life.law and life.epsilon > claim.over(rounds)[0]:
            found.append(
                f"epsilon >= {life.epsilon:.3g} for {rounds} calls of one instance, with the {claim.law} noise that it names"
            )
    return found


def list_untested_lives(rounds: int) -> tuple[Unpaid, ...]:
    """Calls change the mechanism, and too few lives fit the budget."""
    words = f"its calls change it, and lives of {rounds} calls do not fit the budget: only first releases were judged"
    return (Unpaid("life", words),)


def list_unpaid_variant(
    claim: EpsilonClaim | None, words: str, found: RelationBounds, main: RelationBounds
) -> tuple[Unpaid, ...]:
    """What a client leaks that claims something beside its update."""
    most = claim.over(1)[0] if claim else main.least
    return (Unpaid("weights", words, found.least),) if found.least > (1 + ROUNDING) * most else ()


def list_unpaid(
    claim: EpsilonClaim | None, findings: tuple[StructuralFinding, ...], bounds: tuple[RelationBounds, ...], rounds: int
) -> tuple[Unpaid, ...]:
    """What the claim does not cover."""
    found = [Unpaid(one.code, one.words) for one in findings]
    if claim is None or not bounds:
        return tuple(found)
    main = bounds[0]
    if claim.per == "release" and rounds > 1:
        least = main.exact_rounds if main.exact_rounds is not None else main.proven_rounds.epsilon
        found.append(Unpaid("rounds", f"the claim is about one release; {rounds} of them have more", least))
    for other in bounds[1:]:
        if other.least > claim.over(1)[0]:
            words = f"under the relation {other.relation} it has more than is claimed"
            found.append(Unpaid("relation", words, other.least))
    if main.exact is not None and main.exact > (1 + ROUNDING) * claim.over(1)[0]:
        found.append(Unpaid("formula", "its own parameters give more than is claimed", main.exact))
    return tuple(found)
