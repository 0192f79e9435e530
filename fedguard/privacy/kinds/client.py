"""Client-level differential privacy at a trusted server: the noise of `fedguard.privacy.central`, as a suite asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from fedguard.contracts import (
    Cell,
    Check,
    Lab,
    Meeting,
    Noise,
    Participation,
    PrivacyGuarantee,
    RoundReport,
    Sight,
    Subject,
)
from fedguard.errors import require
from fedguard.privacy.accounting import check_delta
from fedguard.privacy.audit.subjects import CentralLevel
from fedguard.privacy.audit.watching import audit_server_noise
from fedguard.privacy.central import AdaptiveClip, CentralDP, schedule, sensitivity_over
from fedguard.privacy.kinds.common import most_releases, no_bound, require_one
from fedguard.privacy.ledger import finite, honest, shifts, spread, sums_with
from fedguard.privacy.planned import least_noise

#: Most rounds of an audit on canaries.
AUDITED_ROUNDS = 50


@dataclass(frozen=True, kw_only=True)
class Bands:
    """The key of correlated noise in a suite.

    Args:
        bands: number of consecutive rounds with noise that partly cancels.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    bands: Annotated[int, Ge(1)]


@dataclass(frozen=True, kw_only=True)
class ClientNoise(Noise):
    """A trusted server clips each update and adds noise to their sum, so that each client is hidden in what it publishes.

    Exactly one of ``noise_multiplier`` and ``epsilon`` is given.

    Args:
        clip: the largest length of an update, or how it is found.
        noise_multiplier: standard deviation over the clip of the noise that is drawn in a round.
        epsilon: the most that all rounds may spend; the noise is found from it.
        delta: of the (epsilon, delta) that is reported.
        noise: drawn anew in each round, or correlated over rounds, which takes ``clients.sampling: cyclic``.
    """

    name = "client"
    source = "McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018"
    unit = "client"
    added_by = "server"
    words = "a trusted server adds noise to the sum of the clipped updates, so that each client is hidden"
    in_time = True

    clip: Annotated[float, Gt(0)] | AdaptiveClip = 1.0
    noise_multiplier: Annotated[float, Gt(0)] | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    noise: Literal["independent"] | Bands = "independent"

    @property
    def bands(self) -> int:
        return self.noise.bands if isinstance(self.noise, Bands) else 1

    def check(self, cell: Cell) -> None:
        check_delta(self.delta, cell.clients.total, "client")
        require_one(self)
        self._check_bands(cell.clients)
        if isinstance(self.clip, AdaptiveClip):
            self.at_server(cell).sum_noise  # noqa: B018  raises where the count takes too much

    def _check_bands(self, clients: Participation) -> None:
        if self.bands == 1:
            return
        require(
            not isinstance(self.clip, AdaptiveClip),
            "privacy.clip: correlated noise takes a fixed clip, since the noise of one round is taken back in others; got an "
            "adaptive one. Set a number, or noise: independent.",
        )
        require(
            # Closer participations share rows of C: their columns are not orthogonal, and the sensitivity would be larger.
            self.bands <= clients.separation,
            f"privacy.noise.bands: expected at most the {clients.separation} rounds from one participation of a client to its "
            f"next; got {self.bands}. Set clients.sampling: cyclic with clients.per_round of at most "
            f"{clients.total // self.bands}, or lower bands.",
        )

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.masking.masked:
            yield (
                "the server adds the noise to updates that it clips, and under masks it sees none. Let the clients add the "
                "noise themselves (privacy: {name: distributed}), or set secure_aggregation: none."
            )
        # Of other rules the sensitivity to one client is unknown; a median may jump by more than C / n.
        if cell.pipeline.mixings or cell.pipeline.rule.name != "mean":
            yield (
                f"the noise is made for the sensitivity of a mean, and {cell.pipeline} is another rule, for which it proves "
                "nothing. Use mean, or privacy: {name: record}."
            )
        yield from no_bound(self, cell)
        if cell.meeting and self.bands > 1:
            yield (
                "the noise of one round is taken back in others, which counts the rounds between two of a client's, and in "
                "simulated time these follow from speeds. Leave out privacy.noise, or use server."
            )
        if cell.training.server_optimizer:
            yield "the audit of the noise follows a server with momentum, and server_optimizer moves another way. Leave it out."

    def in_words(self, cell: Cell) -> str:
        found, meeting = self.at_server(cell), cell.meeting
        clip = "an adaptive clip" if isinstance(self.clip, AdaptiveClip) else f"clip {self.clip:g}"
        bands = f", correlated over {self.bands} rounds" if self.bands > 1 else ""
        sampled = f"clients' sampling: {cell.clients.scheme}"
        planned = ""
        if meeting:
            sampled = "no sampling hides anybody: each client's releases are counted as they happen"
            most = most_releases(cell)
            if most is not None:
                value = found.account_shift(math.sqrt(most * meeting.in_one), self.delta).value
                planned = f" At most {most} updates of a client count, so at most epsilon = {value:.4g}."
                if meeting.if_all_arrive:
                    planned += (
                        " Where the network loses updates there may be more, and noise for an epsilon is found by the course, "
                        "before anything is trained."
                    )
        return (
            "Privacy, client: a trusted server clips each update and adds noise to their sum: one client is hidden from all "
            f"who see the models ({sampled}). Noise: z = {found.noise_multiplier:.4g} and {clip}{bands}.{planned}"
        )

    def at_server(self, cell: Cell) -> CentralDP:
        return central(self, cell.clients, cell.training.rounds, cell.meeting)

    def of_mean(self, cell: Cell, dim: int) -> float:
        """``z_d C / m`` with m clients in a round; with an adaptive clip C is the first clip."""
        mechanism = self.at_server(cell)
        return mechanism.sum_noise * mechanism.start().clip / mechanism.expected

    def account_privacy(self, cell: Cell, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        """Epsilon of one client in the published models."""
        private = self.at_server(cell)
        # Clips may be published: each follows from noisy counts that the epsilon already covers.
        clips = [one.clip for one in reports if one.clip is not None]
        facts = {
            "mechanism": "gaussian",
            "noise_multiplier": private.noise_multiplier,
            "clip": clips[-1] if clips else None,
            "clips": {"first": clips[0], "least": min(clips), "most": max(clips)} if clips else None,
            "bit_noise": private.bit_noise if isinstance(self.clip, AdaptiveClip) else None,
            "bands": self.bands,
            "divided_by": private.expected,
            "rounds": len(reports),
        }
        if cell.meeting is not None:
            return self._account_releases(cell, private, reports, facts)
        # By the rounds that ran, not by those that were planned: a training may have stopped early.
        epsilon = private.account_rounds(cell.clients, len(reports), self.delta) if reports else None
        return PrivacyGuarantee(epsilon=epsilon, why=_explain_collusion(cell), facts=facts)

    def _account_releases(
        self, cell: Cell, private: CentralDP, reports: Sequence[RoundReport], facts: Mapping[str, Any]
    ) -> PrivacyGuarantee:
        """Epsilon of the worst honest client, by the releases that happened."""
        clients, moved = honest(reports, cell.clients.total), shifts(reports)
        shift = spread(moved, clients)
        each = {which: private.account_shift(one, self.delta) for which, one in shift.items() if one}
        ledger = {
            "counted": "as it ran",
            "clients": len(clients),
            "releases": spread(sums_with(reports), clients),
            "shift": shift,
            "epsilon": {which: finite(each[which].value) if which in each else 0.0 for which in shift},
        }
        epsilon = each.get("most")
        return PrivacyGuarantee(epsilon=epsilon, why=_explain_collusion(cell), facts={**facts, "ledger": ledger})

    def subjects(self, cell: Cell, lab: Lab) -> Iterator[Subject]:
        mechanism, clients = self.at_server(cell), cell.clients
        if cell.meeting is not None:  # whoever is there counts in full
            clients = Participation(total=clients.total)
        # The claim is computed for as many rounds as the canaries see, or the bound would be held against too large an epsilon.
        rounds = min(cell.training.rounds, AUDITED_ROUNDS)
        yield CentralLevel(
            mechanism=mechanism,
            clients=clients,
            rounds=rounds,
            claim=mechanism.account_rounds(clients, rounds, self.delta),
            curve=lambda delta: mechanism.account_rounds(clients, rounds, delta).value,
        )

    def audit_rounds(self, cell: Cell, lab: Lab) -> tuple[Check, ...]:
        return audit_server_noise(lab, cell, self.at_server(cell))


@lru_cache(maxsize=64)
def central(noise: ClientNoise, clients: Participation, rounds: int, meeting: Meeting | None = None) -> CentralDP:
    """The mechanism of a suite; if the suite sets an epsilon, with the least noise that keeps it.

    In simulated time the noise is for a client with the most updates that the plan allows, at weight 1. With k updates, at most
    j in one sum, D^2 is at most j k: $j^2$ for each of k / j sums (`fedguard.privacy.ledger`).

    Raises:
        ConfigError: an epsilon that no noise reaches.
    """
    multiplier = noise.noise_multiplier
    if meeting is not None:
        if multiplier is None:
            # Sampling is none: arrival times are public. Steps count j^2 per full sum, the worst way to pack k updates.
            assert noise.epsilon is not None and meeting.most is not None  # `no_bound`
            asked = {"epsilon": noise.epsilon, "delta": noise.delta}
            multiplier = least_noise(**asked, sample_rate=1.0, steps=meeting.most * meeting.in_one, sampling="none")
        return CentralDP(noise_multiplier=multiplier, expected=meeting.updates, clip=noise.clip)
    if multiplier is None:
        assert noise.epsilon is not None  # `ClientNoise.check`
        # Calibrated at sensitivity 1 and scaled after: noise over sensitivity is all that an accountant sees.
        one = least_noise(epsilon=noise.epsilon, delta=noise.delta, **schedule(clients, rounds, noise.bands))
        multiplier = one * sensitivity_over(rounds, clients, noise.bands)
    return CentralDP(noise_multiplier=multiplier, expected=clients.expected, clip=noise.clip, bands=noise.bands)


def _explain_collusion(cell: Cell) -> str | None:
    """Why no guarantee holds: malicious clients put their knowledge of other clients into their updates."""
    if not cell.attacking:
        return None
    # A malicious update then is a function of honest ones and clipped by itself: one client moves several rows.
    if Sight.HONEST_UPDATES in cell.attack_sees:
        return (
            "no guarantee: the malicious clients put what they see of the honest updates into their own, which the noise "
            "is not made for. Take honest_updates from threat.knowledge"
        )
    # Amplification needs a secret cohort; an update that depends on its size may show it in the aggregate.
    if cell.meeting is None and cell.clients.scheme in ("poisson", "fixed"):
        return (
            "no guarantee: the malicious clients know how many take part, and what they send may tell of it, while the "
            "amplification rests on its secrecy. Let all clients take part, or take turns"
        )
    return None
