"""Distributed differential privacy: the noise of `fedguard.privacy.distributed`, as a suite asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Lt
from numpy.typing import NDArray

from fedguard.contracts import (
    Cell,
    Check,
    Epsilon,
    Lab,
    Noise,
    PrivacyGuarantee,
    RoundReport,
    SessionSize,
    Subject,
    SumNoise,
)
from fedguard.errors import require
from fedguard.privacy.accounting import check_delta
from fedguard.privacy.audit import subjects
from fedguard.privacy.audit.shares import NoiseAllocation
from fedguard.privacy.audit.watching import audit_noise_shares
from fedguard.privacy.calibration import calibrate, minimum
from fedguard.privacy.distributed import DistributedDP, NoisyRound
from fedguard.privacy.kinds.common import most_releases, no_bound
from fedguard.privacy.ledger import PUBLIC_TIMES, honest, spread, sums_with
from fedguard.secagg.encoding import Encoding

#: Most rounds of an audit on canaries; a round takes a thousand times as long as a round with noise at the server.
AUDITED_ROUNDS = 2
#: Length of the audited vectors, unless the model is smaller or a session has more clients.
AUDITED_DIM = 256


@dataclass(frozen=True, kw_only=True)
class DistributedNoise(Noise):
    """Each client adds its share of the noise before it is masked, so that the sum alone has differential privacy.

    Args:
        mechanism: the distribution of the integer noise.
        clip: the largest length of an honest client's update.
        noise_multiplier: standard deviation of the summed noise over the clip; None takes the least with which the expected
            contributors keep all rounds within epsilon.
        delta: of the (epsilon, delta) that is reported.
        epsilon: the most that all rounds may spend: a sum with too few contributors for that is never opened. None: no bound.
    """

    name = "distributed"
    source = "Kairouz et al., The Distributed Discrete Gaussian Mechanism for Federated Learning, ICML 2021"
    unit = "client"
    words = "each client adds its share of the noise before the masks"
    in_time = True

    mechanism: Literal["skellam", "discrete_gaussian"] = "skellam"
    clip: Annotated[float, Gt(0)] = 1.0
    noise_multiplier: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    epsilon: Annotated[float, Gt(0)] | None = None

    @property
    def sum_clip(self) -> float:
        return self.clip

    def check(self, cell: Cell) -> None:
        check_delta(self.delta, cell.clients.total, "client")
        require(
            self.noise_multiplier is not None or self.epsilon is not None,
            "privacy: expected noise_multiplier or epsilon; got neither.",
        )
        require(
            cell.masking.masked,
            "privacy: distributed noise is added under masks, and secure_aggregation is off: the server would see each update "
            "with too little noise. Set secure_aggregation: full.",
        )
        require(
            # Differences of overlapping sums show a few clients with the noise of those few alone.
            not cell.masking.overlapping,
            "privacy: a test shows several sums over each client, for which the noise is not made. Set secure_aggregation: "
            "full.",
        )

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        yield from no_bound(self, cell)
        if cell.pipeline.rule.by_samples:
            yield f"the noise is made for clients that count alike, and {cell.pipeline.rule.name} weighs them. Use mean."

    def in_words(self, cell: Cell) -> str:
        amount = "as much as it takes" if self.noise_multiplier is None else f"z = {self.noise_multiplier:.4g}"
        bound = f" for epsilon = {self.epsilon:g} at delta = {self.delta:g}" if self.epsilon is not None else ""
        return (
            f"Privacy, distributed: {self.mechanism} noise, shared out among {cell.size.honest} clients of a session and "
            f"added before the masks: one client is hidden from all who see the sums. Noise: {amount}{bound} and clip "
            f"{self.clip:g}."
        )

    def in_sums(self, cell: Cell, size: SessionSize, dim: int, scale: float) -> NoiseShare:
        require(
            size.honest >= 1,
            f"privacy: of {size.expected} clients in a session {size.colluders} may collude and others drop out, so nobody is "
            "sure to add noise. Lower colluding or dropout.rate, or take fewer groups.",
        )
        return NoiseShare(self, _rounds(cell), size, dim, scale)

    def of_mean(self, cell: Cell, dim: int) -> float:
        """Each of m clients adds the share with which k honest ones alone would reach z C: ``z C / sqrt(k m)``."""
        z = self._share(cell, dim).plan.noise_multiplier
        return z * self.clip / math.sqrt(cell.size.honest * cell.clients.expected)

    def account_privacy(self, cell: Cell, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        """Epsilon of one client in the sums.

        Facts include contributors: clients that surely added noise in the worst round; may_withhold: clients of a sum that are
        assumed to add none; most_hostile: the largest number of malicious clients in one sum.
        """
        share = self._share(cell, dim)
        rounds = [one.masked.contributors for one in reports if one.masked and one.masked.contributors is not None]
        facts = {
            "mechanism": self.mechanism,
            "noise_multiplier": share.plan.noise_multiplier,
            "clip": self.clip,
            "rounds": len(rounds),
            "expected_contributors": share.size.honest,
            "contributors": min(rounds, default=None),
            "may_withhold": share.size.colluders + share.size.malicious,
            "most_hostile": max((len(one.malicious & set(row)) for one in reports for row in one.behind), default=0),
        }
        if cell.meeting is not None:
            return _account_sums(share, cell, reports, rounds, facts)
        # Fixed and Poisson cohorts are no secret here, so every client is charged with every round.
        if cell.clients.scheme == "cyclic":
            return PrivacyGuarantee(epsilon=_of_turns(share, cell, reports), facts=facts)
        return PrivacyGuarantee(epsilon=share.account_rounds(rounds) if rounds else None, facts=facts)

    def subjects(self, cell: Cell, lab: Lab) -> Iterator[Subject]:
        share = self._share(cell, lab.task.dim)
        yield subjects.release_distributed_noise(
            share.plan,
            contributors=share.size.honest,
            # A canary takes a coordinate of its own, so there are at least as many as clients of a session.
            dim=max(min(share.dim, AUDITED_DIM), share.size.honest),
            scale=share.scale,
            rounds=min(share.rounds, AUDITED_ROUNDS),
        )

    def audit_rounds(self, cell: Cell, lab: Lab) -> tuple[Check, ...]:
        def shares(dim: int, layers: tuple[int, ...]) -> NoiseAllocation:
            share = self._share(cell, dim)
            return NoiseAllocation(plan=share.plan, contributors=share.size.honest, scale=share.scale, layers=layers)

        return audit_noise_shares(lab, cell, self.clip, shares)

    def _share(self, cell: Cell, dim: int) -> NoiseShare:
        return NoiseShare(self, _rounds(cell), cell.size, dim, _scale(cell))


@dataclass(frozen=True)
class NoiseShare(SumNoise):
    """The noise of one client in a session.

    Attributes:
        rounds: number of rounds that epsilon covers.
        size: size of the session.
        dim, scale: as in `DistributedDP.for_round`.
    """

    noise: DistributedNoise
    rounds: int
    size: SessionSize
    dim: int
    scale: float

    @cached_property
    def plan(self) -> DistributedDP:
        """The noise of all clients together; if the suite sets only an epsilon, the least noise that keeps it.

        Raises:
            ConfigError: an epsilon that no noise reaches.
        """
        return plan_noise(self.noise, rounds=self.rounds, contributors=self.size.honest, dim=self.dim, scale=self.scale)

    @property
    def clip(self) -> float:  # type: ignore[override]
        return self.noise.clip

    @cached_property
    def one(self) -> NoisyRound:
        """A client's encoding in one round."""
        return self.plan.for_round(contributors=self.size.honest, dim=self.dim, scale=self.scale)

    def encode(self, vector: NDArray[np.floating[Any]], entropy: Callable[[int], bytes]) -> NDArray[np.int64]:
        return self.one.encode(vector, entropy)

    def noise_tail(self, clients: int) -> int:
        return self.one.noise_tail(clients)

    @property
    def fewest(self) -> int:
        if (bound := self.noise.epsilon) is None:
            return 0
        expected = self.size.honest
        return minimum(self.plan, epsilon=bound, rounds=self.rounds, expected=expected, dim=self.dim, scale=self.scale)

    def account_rounds(self, rounds: Sequence[int]) -> Epsilon:
        """The epsilon of all rounds together, given the contributors of each."""
        return self.plan.account_rounds(rounds, expected=self.size.honest, dim=self.dim, scale=self.scale)


def _account_sums(
    share: NoiseShare,
    cell: Cell,
    reports: Sequence[RoundReport],
    contributors: Sequence[int],
    facts: dict[str, Any],
) -> PrivacyGuarantee:
    """In simulated time: epsilon of the client in the most sums, each charged with the fewest contributors of any sum."""
    clients, sums = honest(reports, cell.clients.total), sums_with(reports)
    most = max((sums[client] for client in clients), default=0)
    ledger = {"counted": "as it ran", "clients": len(clients), "releases": spread(sums, clients)}
    # Which sums a client was in is not matched with their contributors: the fewest of any sum bounds them all from above.
    epsilon = share.account_rounds([min(contributors)] * most) if contributors and most else None
    if epsilon is not None:
        epsilon = replace(epsilon, assumptions=(*epsilon.assumptions, PUBLIC_TIMES))
    return PrivacyGuarantee(epsilon=epsilon, facts={**facts, "ledger": ledger})


def _of_turns(share: NoiseShare, cell: Cell, reports: Sequence[RoundReport]) -> Epsilon | None:
    """If clients take public turns: the largest epsilon over clients, each by the sums of its own turns."""
    sums: dict[int, tuple[int, ...]] = {}
    for one in reports:
        if one.masked and one.masked.contributors is not None:
            for client in one.chosen:
                sums[client] = (*sums.get(client, ()), one.masked.contributors)
    # As a set, since clients of one group have the same history, and composing it costs time.
    turns = {tuple(sorted(sums[client])) for client in honest(reports, cell.clients.total) if client in sums}
    return max((share.account_rounds(each) for each in turns), key=lambda epsilon: epsilon.value, default=None)


def _rounds(cell: Cell) -> int:
    """Most sums that contain one client, or the rounds of the training if nothing bounds their number."""
    # Only a plan: where nothing bounds releases, an epsilon is refused before (`no_bound`).
    return most_releases(cell) or cell.training.rounds


@lru_cache(maxsize=64)
def plan_noise(noise: DistributedNoise, *, rounds: int, contributors: int, dim: int, scale: float) -> DistributedDP:
    """The noise that clients share, see `NoiseShare.plan`."""
    given = asdict(noise)
    epsilon, multiplier = given.pop("epsilon"), given.pop("noise_multiplier")
    if multiplier is not None:
        return DistributedDP(**given, noise_multiplier=multiplier)
    return calibrate(
        DistributedDP(**given, noise_multiplier=1.0),
        epsilon=epsilon,
        rounds=rounds,
        contributors=contributors,
        dim=dim,
        scale=scale,
    )


def _scale(cell: Cell) -> float:
    """Ring units per unit of an input."""
    return Encoding(**asdict(cell.fixed_point)).scale
