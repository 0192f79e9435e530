"""Record-level differential privacy: the noise of each party's DP-SGD, and its guarantee.

Each step is a Gaussian mechanism on a Poisson sample of a client's examples (Abadi et al., CCS 2016). All steps of all rounds
in which the client takes part are composed. Clients have disjoint examples, so the largest epsilon of the clients counts, not
the sum. An observer of the updates knows who took part, so sampling of clients amplifies nothing here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Le, Lt

from fedguard.contracts import (
    DPSGD,
    Cell,
    Check,
    Epsilon,
    FederatedAlgorithm,
    Lab,
    LocalPlan,
    Noise,
    PrivacyGuarantee,
    RoundReport,
    Subject,
)
from fedguard.errors import require
from fedguard.privacy.accountants import total_epsilon
from fedguard.privacy.accounting import Event, parallel
from fedguard.privacy.audit.subjects import RecordLevel
from fedguard.privacy.audit.watching import audit_local_steps
from fedguard.privacy.gaussian import gaussian_event
from fedguard.privacy.kinds.common import most_releases, no_bound, require_one
from fedguard.privacy.ledger import PUBLIC_TIMES, honest, spread, trainings
from fedguard.privacy.planned import ASSUMPTIONS, least_noise

#: Most steps of an audit on canaries, unless one round has more.
AUDITED_STEPS = 50


@dataclass(frozen=True, kw_only=True)
class PrivacyLevel:
    """The privacy level of one party: a noise multiplier or an epsilon.

    Args:
        noise_multiplier: standard deviation of a step's noise over the clip.
        epsilon: upper bound on the epsilon of all rounds.
        clip: clip of this party; None for the common clip.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    noise_multiplier: Annotated[float, Gt(0)] | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    clip: Annotated[float, Gt(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordNoise(Noise):
    """Each client trains by DP-SGD, so that each of its examples is hidden from all who see its updates.

    Exactly one of ``noise_multiplier`` and ``epsilon`` is given, here or in each level. ``training.batch_size`` is what the
    noisy sum of a step is divided by, and an epoch has ``round(1 / sample_rate)`` steps: both are public.

    Args:
        clip: the largest length of one example's gradient.
        noise_multiplier: standard deviation of a step's noise over the clip.
        epsilon: the most that all rounds may spend on a client that takes part in each; the noise is found from it.
        delta: of the (epsilon, delta) that is reported.
        sample_rate: q, the probability with which each example is in a step's batch.
        levels: parties that ask for different noise: client i takes number i modulo their number. Who takes which is public.
    """

    name = "record"
    source = "Abadi et al., Deep Learning with Differential Privacy, CCS 2016"
    unit = "record"
    in_time = True
    words = (
        "each client adds noise in each step of its training, so that its examples are hidden; a record's epsilon is not a "
        "client's"
    )

    clip: Annotated[float, Gt(0)] = 1.0
    noise_multiplier: Annotated[float, Gt(0)] | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    sample_rate: Annotated[float, Gt(0), Le(1)] = 0.1
    levels: tuple[PrivacyLevel, ...] = ()

    @property
    def parties(self) -> tuple[PrivacyLevel, ...]:
        """The levels with their clips; one level for all clients if none is given."""
        levels = self.levels or (PrivacyLevel(noise_multiplier=self.noise_multiplier, epsilon=self.epsilon),)
        return tuple(replace(level, clip=level.clip or self.clip) for level in levels)

    @property
    def differs(self) -> bool:
        return bool(self.levels)

    def check(self, cell: Cell) -> None:
        require(
            cell.training.batch_size is not None,
            "privacy: training.batch_size is what a step's noisy sum is divided by, and must not tell how many examples a "
            "client has; got none. Set training.batch_size.",
        )
        if not self.levels:
            require_one(self)
            return
        require(
            self.noise_multiplier is None and self.epsilon is None,
            "privacy: expected noise_multiplier or epsilon in each of the levels; got it beside them too. Leave that out.",
        )
        for number, level in enumerate(self.levels):
            require_one(level, f"privacy.levels[{number}]")

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        yield from no_bound(next((level for level in self.parties if level.epsilon is not None), self), cell)
        # Counts of examples are released without noise: add/remove neighbors differ in them.
        if cell.pipeline.rule.by_samples:
            yield (
                f"{cell.pipeline.rule.name} is told how many examples each client has, which the noise does not hide. Use mean."
            )
        if looking := cell.pipeline.looking_at_data:
            yield (
                f"{' and '.join(looking)} looks at a client's examples beside DP-SGD, which the noise does not hide. Leave it "
                "out."
            )
        # As batch normalization does: one example then changes the gradients of all others, each within its clip.
        if not cell.model.by_example:
            yield (
                f"{cell.model} gives an example another gradient in another batch, so that clipping does not bound what one "
                "adds. Use another model."
            )

    def beyond(self, algorithm: FederatedAlgorithm) -> str | None:
        if algorithm.plain_steps:
            return None
        return f"DP-SGD takes the steps of fedavg and fedsgd, and {algorithm.name} takes others. Use fedavg or fedsgd."

    def in_words(self, cell: Cell) -> str:
        private, steps = dp_sgd(self, cell), steps_in_a_round(self, cell)
        levels = [f"z = {z:.4g} and clip {clip:g}" for clip, z in private.levels]
        return (
            f"Privacy, record: each client trains by DP-SGD, {steps} steps a round on each example with q = "
            f"{self.sample_rate:g}: one example is hidden from all who see its updates. Noise: {'; '.join(levels)}."
        )

    def local_plan(self, cell: Cell) -> LocalPlan:
        return replace(cell.plan, private=dp_sgd(self, cell))

    def account_privacy(self, cell: Cell, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        """The largest epsilon over parties and levels; malicious clients have no guarantee."""
        promised, meeting = honest(reports, cell.clients.total), cell.meeting
        # Whoever was asked to train counts: an update that never arrived may have been seen on its way.
        asked = Counter(client for one in reports for client in one.chosen)
        ended = asked if meeting is None else trainings(reports)
        taken = Counter({client: ended[client] for client in promised if client in ended})
        found = epsilon_by_level(self, cell, taken)
        private = dp_sgd(self, cell)
        levels = [
            {
                "epsilon": found[number].value if number in found and math.isfinite(found[number].value) else None,
                "clip": clip,
                "noise_multiplier": multiplier,
            }
            for number, (clip, multiplier) in enumerate(private.levels)
        ]
        facts = {
            "mechanism": "dp_sgd",
            "noise_multiplier": min(multiplier for _, multiplier in private.levels),
            "clip": max(clip for clip, _ in private.levels),
            "levels": levels,
            "sample_rate": self.sample_rate,
            "divided_by": cell.training.batch_size,
            "steps_in_a_round": steps_in_a_round(self, cell),
            "rounds": max(taken.values(), default=0),
        }
        if meeting is not None:
            counted = {"counted": "as it ran", "clients": len(promised), "releases": spread(taken, promised)}
            facts["ledger"] = counted
        return PrivacyGuarantee(
            epsilon=parallel(list(found.values()), cell.clients.total) if found else None, facts=facts
        )

    def subjects(self, cell: Cell, lab: Lab) -> Iterator[Subject]:
        """One for each level."""
        steps = steps_in_a_round(self, cell)
        rounds = max(1, min(most_releases(cell) or cell.training.rounds, AUDITED_STEPS // steps))
        for number, level in enumerate(dp_sgd(self, cell).levels):
            event = step_event(self, level[1], steps * rounds)
            yield RecordLevel(
                name="record-level DP-SGD" + (f", level {number}" if self.levels else ""),
                train=lab.train,
                batches=lab.batches,
                plan=replace(cell.plan, private=DPSGD(sample_rate=self.sample_rate, levels=(level,))),
                rounds=rounds,
                claim=total_epsilon([event], self.delta),
                curve=partial(_curve, event),
            )

    def audit_rounds(self, cell: Cell, lab: Lab) -> tuple[Check, ...]:
        steps = steps_in_a_round(self, cell)
        return audit_local_steps(lab, cell, self.local_plan(cell), steps, len(self.parties))


def dp_sgd(noise: RecordNoise, cell: Cell) -> DPSGD:
    """Clip and noise of each level; for a level with an epsilon, the least noise that keeps it.

    Raises:
        ConfigError: an epsilon that no noise reaches.
    """
    # Trainings count, not updates that arrive: a lost update may have been seen on its way.
    most = cell.clients.participations(cell.training.rounds) if cell.meeting is None else cell.meeting.trainings
    return _least_noise(noise, steps_in_a_round(noise, cell), most)


@lru_cache(maxsize=64)
def _least_noise(noise: RecordNoise, steps: int, most: int | None) -> DPSGD:
    """As `dp_sgd`, for ``steps`` steps in a round and at most ``most`` rounds of one client."""
    found = []
    for level in noise.parties:
        multiplier = level.noise_multiplier
        if multiplier is None:
            assert level.epsilon is not None and most is not None  # `RecordNoise.check` and `no_bound`
            multiplier = least_noise(
                epsilon=level.epsilon,
                delta=noise.delta,
                sample_rate=noise.sample_rate,
                steps=steps * most,
                sampling="poisson",
            )
        found.append((level.clip or noise.clip, multiplier))
    return DPSGD(sample_rate=noise.sample_rate, levels=tuple(found))


def steps_in_a_round(noise: RecordNoise, cell: Cell) -> int:
    """Local steps of one client in one round."""
    return cell.plan.private_steps(noise.sample_rate)


def step_event(noise: RecordNoise, multiplier: float, steps: int, besides: tuple[str, ...] = ()) -> Event:
    """``steps`` steps of DP-SGD as an event."""
    return gaussian_event(
        noise_multiplier=multiplier,
        sample_rate=noise.sample_rate,
        steps=steps,
        sampling="poisson",
        unit="record",
        relation="add/remove",
        view="each client's updates",
        assumptions=(*ASSUMPTIONS, "malicious clients are promised nothing", *besides),
    )


def epsilon_by_level(noise: RecordNoise, cell: Cell, rounds: Mapping[int, int]) -> dict[int, Epsilon]:
    """By level, the epsilon of its client with the most rounds; levels without clients are omitted.

    Args:
        rounds: for each honest client, the number of rounds in which it took part.
    """
    # Clients are not sampled in secret: whoever sees updates knows who sent them, so only the sampling of examples amplifies.
    private, local = dp_sgd(noise, cell), steps_in_a_round(noise, cell)
    besides = (PUBLIC_TIMES,) if cell.meeting is not None else ()
    most: dict[int, int] = {}
    for client, count in rounds.items():
        level = client % len(private.levels)
        most[level] = max(most.get(level, 0), count)
    events = {
        level: step_event(noise, private.levels[level][1], local * most[level], besides) for level in sorted(most)
    }
    return {level: total_epsilon([event], noise.delta) for level, event in events.items()}


def _curve(event: Event, delta: float) -> float:
    return total_epsilon([event], delta).value
