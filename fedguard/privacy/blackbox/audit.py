"""`audit_mechanism`: structure first, then a search for neighbors that are told apart, then bounds on fresh calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedguard.arguments import at_least, real_number, whole_number
from fedguard.errors import InputError, oneline
from fedguard.privacy.blackbox.claim import EpsilonClaim, Relation
from fedguard.privacy.blackbox.features import Features, Recorder
from fedguard.privacy.blackbox.law import ShownBound, lower_bound_by_law
from fedguard.privacy.blackbox.lives import FEWEST as FEWEST_LIVES
from fedguard.privacy.blackbox.lives import MOST as MOST_LIVES
from fedguard.privacy.blackbox.lives import measure_lives
from fedguard.privacy.blackbox.mechanism import BlackBoxMechanism, Outcome, call
from fedguard.privacy.blackbox.pairs import Pair, neighbors
from fedguard.privacy.blackbox.scores import fit_scores
from fedguard.privacy.blackbox.structure import NEEDS_NO_SAMPLES, find_structure
from fedguard.privacy.blackbox.two_sample import LowerBound, TwoSample, largest_provable
from fedguard.privacy.blackbox.verdict import (
    MechanismAudit,
    RelationBounds,
    Unpaid,
    judge,
    list_unpaid,
    list_unpaid_variant,
    list_untested_lives,
)
from fedguard.rng import MOST_SEED, Rng

#: Probability with which any bound may fail: half of it for proven bounds, half for shown ones.
RISK = 0.05
#: Pairs that are judged, in different directions, each at its share of the risk.
JUDGED_PAIRS = 2
#: Calls with each input in the search, and for the judgment.
PILOT, FEWEST, MOST = (16, 200), 80, 200_000
#: Share of a failure (an atom, a missing tail) that the plan of calls wants to see.
MASS = 0.05
#: Delta if nothing is claimed.
DELTA = 1e-5
#: Shares of the budget for the search and for the judgment.
SEARCH, JUDGMENT = 0.2, 0.7
#: Shares of the budget for lives of many calls, and for each claim that one client makes beside its update.
OF_LIVES, OF_VARIANT = 0.3, 0.15
#: Share of an update that stands for none, for a mechanism that raises on exactly 0.
NEXT_TO_NOTHING = 1e-6
MOST_ROUNDS = 10_000
#: Share of the largest effect from which on another direction is judged for its L1 length.
NEAR = 0.6


@dataclass(frozen=True)
class _Settings:
    claim: EpsilonClaim | None
    rounds: int
    clip: float
    samples: int | None
    budget: float
    rng: Rng
    nothing: float = 0.0

    @property
    def delta(self) -> float:
        return self.claim.over(1)[1] if self.claim else DELTA

    @property
    def delta_over(self) -> float:
        """The delta at which the claim has an epsilon for all rounds; any, if it has none for so many."""
        epsilon, delta = self.claim.over(self.rounds) if self.claim else (math.inf, DELTA)
        return delta if math.isfinite(epsilon) else DELTA

    def plan_lives(self, seconds: float) -> int:
        """Lives with each of two inputs that the budget allows; 0 if they are too few to tell anything."""
        lives = int(min(OF_LIVES * self.budget / (seconds * 2 * self.rounds), MOST_LIVES))
        return lives if lives >= FEWEST_LIVES else 0

    def plan(self, seconds: float, relations: int, spent: float) -> int:
        """Calls with each input: enough to see a failure of mass `MASS` against the claim, within the budget."""
        if self.samples is not None:
            return self.samples
        inputs = 2 * JUDGED_PAIRS * relations
        affordable = max(0.0, JUDGMENT * self.budget - spent) / (seconds * inputs)
        epsilon = min(self.claim.over(1)[0] if self.claim else 4.0, 12.0)
        wanted = max(4.4 * math.exp(epsilon) / MASS * 8 / 5, 4000.0)
        return int(max(FEWEST, min(wanted, affordable, MOST)))


def audit_mechanism(
    mechanism: BlackBoxMechanism,
    claim: EpsilonClaim | None = None,
    *,
    rounds: int = 50,
    clip: float = 1.0,
    samples: int | None = None,
    budget: float = 120.0,
    seed: int = 0,
    before: Callable[[str], None] = lambda words: None,
) -> MechanismAudit:
    """Audit a mechanism that only can be called.

    A mechanism that keeps its claim is called violated with a probability of at most 5 %. One that does not may pass: an
    audit proves no privacy.

    Args:
        claim: what it promises; by default `BlackBoxMechanism.claim`.
        rounds: R, the number of releases over which a bound is given beside the bound for one.
        clip: presumed length to which it clips, which only scales the inputs of the search.
        samples: calls with each input; by default as many as the claim needs and the budget allows.
        budget: CPU seconds.
        seed: of the inputs; the mechanism's own noise is its own.
        before: called with each step, in words.

    Raises:
        InputError: it raises on ordinary updates, or leaves something that holds no numbers.
    """
    at_least(1, rounds, "rounds", MOST_ROUNDS)
    clip = real_number(clip, "clip", 0, 1e12, above=True)
    budget = real_number(budget, "budget: CPU seconds", 1, 1e6)
    if samples is not None:
        at_least(FEWEST, samples, "samples", MOST)
    whole_number(seed, "seed", 0, MOST_SEED)
    claim = claim or mechanism.claim
    settings = _Settings(claim, rounds, clip, samples, budget, Rng(seed).child("mechanism"))
    began = time.process_time()
    before("calling it a few times")
    seconds = _require_callable(mechanism, settings)
    ordinary = _ordinary_pair(mechanism, settings)
    findings = tuple(find_structure(mechanism, ordinary))
    known = any(one.code in NEEDS_NO_SAMPLES for one in findings)
    if call(mechanism.fresh(), mechanism.arrays(np.zeros(mechanism.size))).vector is None:
        settings = replace(settings, nothing=NEXT_TO_NOTHING)
    relations = () if known else _relations(claim)
    stateful = not known and rounds > 1 and mechanism.is_stateful(mechanism.arrays(ordinary.x))
    bounds = tuple(
        _measure(
            mechanism,
            relation,
            settings,
            seconds,
            len(relations),
            time.process_time() - began,
            before,
            settings.plan_lives(seconds) if stateful and relation == relations[0] else 0,
        )
        for relation in relations
    )
    findings += tuple(one for bound in bounds if bound.lives for one in bound.lives.findings)
    unpaid = list_unpaid(claim, findings, bounds, rounds)
    if stateful and not bounds[0].lives:
        unpaid += list_untested_lives(rounds)
    if relations:
        unpaid += tuple(_measure_variants(mechanism, settings, bounds[0], seconds, before))
    verdict, words = judge(claim, findings, bounds, rounds)
    return MechanismAudit(
        name=mechanism.name,
        claim=claim,
        facts=mechanism.facts,
        verdict=verdict,
        words=words,
        findings=findings,
        bounds=bounds,
        unpaid=unpaid,
        rounds=rounds,
        seed=seed,
        seconds=time.process_time() - began,
        defined_in=mechanism.defined_in,
    )


def _relations(claim: EpsilonClaim | None) -> tuple[Relation, ...]:
    """The relation that may refute the claim first; under the stronger one bounds are only given beside it."""
    first: Relation = claim.relation_to_judge if claim else "zero_out"
    return ("replace",) if first == "replace" else (first, "replace")


def _ordinary_pair(mechanism: BlackBoxMechanism, settings: _Settings) -> Pair:
    """Two inputs that differ in all coordinates, one of them long enough for any clip to act."""
    direction = settings.rng.child("ordinary").numpy().uniform(0.5, 1.5, mechanism.size)
    x = settings.clip * direction / np.linalg.norm(direction)
    return Pair("all coordinates", "an ordinary update and its half", x, x / 2)


def _require_callable(mechanism: BlackBoxMechanism, settings: _Settings) -> float:
    """CPU seconds of one call with a new instance, at least 1 microsecond."""
    arrays = mechanism.arrays(_ordinary_pair(mechanism, settings).x)
    began = time.process_time()
    try:
        mechanism.fresh()(tuple(array.copy() for array in arrays))
    except Exception as error:
        shapes = ", ".join("x".join(map(str, shape)) or "()" for shape in mechanism.shapes)
        raise InputError(
            f"{mechanism.name}: expected a release of an update with arrays of shapes {shapes}; it raised {oneline(error)}. "
            "Check --shapes, and that it takes a list of arrays."
        ) from error
    call(mechanism.fresh(), arrays)
    return max((time.process_time() - began) / 2, 1e-6)


def _measure(
    mechanism: BlackBoxMechanism,
    relation: Relation,
    settings: _Settings,
    seconds: float,
    relations: int,
    spent: float,
    before: Callable[[str], None],
    lives: int = 0,
    known: Collection[str] = (),
) -> RelationBounds:
    before(f"searching neighbors under {relation}")
    began = time.process_time()
    pairs = list(neighbors(mechanism, relation, settings.clip, settings.rng, settings.nothing))
    pairs = [pair for pair in pairs if pair.words in known] or pairs
    pilot = int(np.clip(SEARCH * settings.budget / (seconds * 2 * len(pairs) * relations), *PILOT))
    chosen = _search(mechanism, pairs, pilot)
    seconds = max((time.process_time() - began) / (2 * pilot * len(pairs)), 1e-6)
    n = settings.plan(seconds, relations, spent)
    # The risk of proven bounds is shared with the bounds of lives
    risk, lived = RISK / 2 / len(chosen), None
    if lives:
        before(f"{lives} lives of {settings.rounds} calls with each of two inputs")
        risk /= 2
        lived = measure_lives(
            mechanism, chosen[0], lives, settings.rounds, settings.claim, settings.delta_over, RISK / 4
        )
    before(f"{n} calls with each of {2 * len(chosen)} inputs under {relation}")
    proven, proven_rounds = LowerBound(0.0, settings.delta, 1), LowerBound(0.0, settings.delta_over, settings.rounds)
    seen: ShownBound | None = None
    for pair in chosen:
        x, y = _sample(mechanism, pair, n)
        tests = TwoSample(x, y, delta=settings.delta, rounds=settings.rounds, over=settings.delta_over, risk=risk)
        proven = max(proven, tests.judge(), key=lambda one: one.epsilon)
        proven_rounds = max(proven_rounds, tests.judge_rounds(), key=lambda one: one.epsilon)
        law = lower_bound_by_law(
            *tests.holdout, delta=settings.delta, over=settings.delta_over, rounds=settings.rounds, risk=risk
        )
        if law is not None and (seen is None or law.epsilon > seen.epsilon):
            seen = law
    facts = mechanism.facts
    return RelationBounds(
        relation=relation,
        calls=n,
        pairs=tuple(pair.words for pair in chosen),
        proven=proven,
        proven_rounds=proven_rounds,
        shown=seen,
        exact=facts.epsilon(relation, 1, settings.delta) if facts else None,
        exact_rounds=facts.epsilon(relation, settings.rounds, settings.delta_over) if facts else None,
        most_provable=largest_provable(n, settings.delta, risk),
        lives=lived,
    )


def _measure_variants(
    mechanism: BlackBoxMechanism,
    settings: _Settings,
    main: RelationBounds,
    seconds: float,
    before: Callable[[str], None],
) -> Iterator[Unpaid]:
    """What a client leaks that claims something beside its update, where that is more than else, or than is claimed."""
    shorter = replace(settings, budget=OF_VARIANT * settings.budget)
    for words, variant in mechanism.variants.items():
        bounds = _measure(variant, main.relation, shorter, seconds, 1, 0.0, before, known=main.pairs)
        yield from list_unpaid_variant(settings.claim, words, bounds, main)


def _sample(mechanism: BlackBoxMechanism, pair: Pair, calls: int) -> tuple[Features, Features]:
    """Calls with each of both inputs, alternating, each on a new instance."""
    recorder = Recorder(pair, calls)
    sides: tuple[list[Features], list[Features]] = ([], [])
    inputs = mechanism.arrays(pair.x), mechanism.arrays(pair.y)
    for start in range(0, calls, 256):  # outcomes are whole updates: few are held at a time
        held: tuple[list[Outcome], list[Outcome]] = ([], [])
        for _ in range(min(256, calls - start)):
            for outcomes, arrays in zip(held, inputs, strict=True):
                outcomes.append(call(mechanism.fresh(), arrays))
        for parts, outcomes in zip(sides, held, strict=True):
            parts.append(recorder.record(outcomes))
    return _join(sides[0]), _join(sides[1])


def _join(parts: Sequence[Features]) -> Features:
    return Features(
        *(np.concatenate(columns) for columns in zip(*(vars(part).values() for part in parts), strict=True))
    )


def _search(mechanism: BlackBoxMechanism, pairs: Sequence[Pair], calls: int) -> list[Pair]:
    """The pair that is told apart best, and another one in a direction as different from it in L1 as possible.

    For inputs of one Euclidean length, Gaussian noise tells no direction from another; Laplace noise does, by their L1 length.
    """
    effects = {pair: _effect(*_sample(mechanism, pair, calls)) for pair in pairs}
    ranked = sorted(pairs, key=lambda pair: -effects[pair])
    first = ranked[0]
    others = [pair for pair in ranked if pair.direction != first.direction]
    near = [pair for pair in others if effects[pair] >= NEAR * effects[first]] or others[:1]
    return [first, *sorted(near, key=lambda pair: -abs(math.log(pair.spread / first.spread)))[: JUDGED_PAIRS - 1]]


def _effect(x: Features, y: Features) -> float:
    """The largest difference of a score's means over its deviation, on the half of the calls that fitted nothing."""
    half = len(x) // 2
    scores = fit_scores(x.slice(0, half), y.slice(0, half))
    found = 0.0
    for score in scores.values():
        one, two = score(x.slice(half, len(x))), score(y.slice(half, len(y)))
        gap = float(one.mean() - two.mean())
        deviation = math.sqrt((one.var() + two.var()) / 2)
        found = max(found, gap / (deviation + abs(gap) / 20 + 1e-300))  # at most 20, for scores that never err
    return found
