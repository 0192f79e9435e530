"""Subjects of an audit: the code that a training uses, run on canaries instead of clients or examples.

A canary client sends an update along its own coordinate, many times longer than the clip; a canary example has an input that no
other example has. So along a canary's direction a release holds its clipped share, if it was in, and independent noise: one
run gives as much evidence as thousands of runs with one canary each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import binom
from torch import Tensor

from fedguard.contracts import Epsilon, Examples, LocalPlan, Participation
from fedguard.contracts.audit import Curve, Flags, Reals, Transcript
from fedguard.privacy.audit.integers import FINE, to_normal
from fedguard.privacy.central import AdaptiveClip, CentralDP, CentralState
from fedguard.privacy.distributed import DistributedDP
from fedguard.rng import Rng
from fedguard.secagg.entropy import Entropy, expand_seed

#: How many times longer than the clip an update is.
LONG = 1e6
#: How far a model moves by one clipped gradient of DP-SGD: LONG times that is nothing to a logit.
TINY = 1e-10
#: Single draws that test the distribution, about: enough to detect noise that is cut at three standard deviations.
BARE = 12_000
#: Rounds with a second release on other data.
AGAIN = 3
#: What the clients of one round send, float32 [n, d] with zeros of those that are left out -> what is released, [d].
Release: TypeAlias = Callable[[Tensor, Rng], Tensor]
#: That, with what the server carries on.
_Released: TypeAlias = tuple[Tensor, CentralState]
#: A client's examples, the model, how it trains -> what it moves by, float32 [d].
Train: TypeAlias = Callable[[Examples, Tensor, LocalPlan, Rng], Tensor]
#: How a client trains, how many examples it has -> which of them each step takes, -1 for none.
Batches: TypeAlias = Callable[[LocalPlan, int, np.random.Generator], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Rounds in which all clients take part: any function from their updates to a release.

    Args:
        release: the code under audit.
        clip: C, the length to which updates are clipped, as claimed.
        noise: standard deviation of the noise on each coordinate of the sum, as claimed.
        claim: epsilon of all rounds together, as claimed.
        divisor: public divisor of the noisy sum.
        clients: clients of one release; None puts all canaries into one. A canary that is out sends zeros.
        dim: d, at least the number of clients of a release; None for exactly this number.
        rounds: number of rounds with the same canaries.
        curve: the claim at other deltas; for a mechanism that is not Gaussian.
        grid: largest change of a release by rounding to a grid.
        bare: single draws of the noise, transformed to N(0, 1) by their own law; for noise that is not Gaussian.
    """

    name: str = "release"
    release: Release
    clip: float
    noise: float
    claim: Epsilon | None
    divisor: float = 1.0
    clients: int | None = None
    dim: int | None = None
    rounds: int = 1
    curve: Curve | None = None
    grid: float = 0.0
    bare: Callable[[Rng], Reals] | None = None

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript]:
        size = self.clients or len(included)
        groups = [included[start : start + size] for start in range(0, len(included), size)]
        shown = [self._group(group, size, rng.child("group", number)) for number, group in enumerate(groups)]
        dim = self.dim or size
        truth = np.zeros((len(groups), self.rounds, dim))
        for number, group in enumerate(groups):
            truth[number, :, : len(group)] = group * self.clip / self.divisor
        found = [one[:, : len(group)].sum(axis=0) for one, group in zip(shown, groups, strict=True)]
        seen = Transcript(
            releases=np.concatenate(shown, axis=1),
            truth=np.concatenate(list(truth), axis=1),
            noise=self.noise / self.divisor,
            gaussian=self.noise / self.divisor >= FINE * self.grid,
            bare=self.bare(rng.child("bare")) if self.bare else None,
            positions=np.tile(np.arange(dim), len(groups)),
            elsewhere=self._elsewhere(size, dim, rng.child("data")),
        )
        return np.concatenate(found) * self.divisor / self.clip, seen

    def _elsewhere(self, size: int, dim: int, rng: Rng) -> float | None:
        """Difference of the noise when one more client sends half a clip; None if draws do not follow ``rng``."""
        less, more = torch.zeros(2, size, dim)
        more[0, 0] = self.clip / 2
        without, again, moved = (self.release(rows, rng).double().numpy() for rows in (less, less, more))
        # A foreign release may draw from the system; then the difference of two calls says nothing.
        if not np.array_equal(without, again):
            return None
        moved[0] -= self.clip / 2 / self.divisor
        off = np.abs(moved - without).max() - self.grid
        return float(max(off, 0.0) * self.divisor / self.noise)

    def _group(self, included: Flags, size: int, rng: Rng) -> Reals:
        """float64 ``[rounds, d]``."""
        rows = torch.zeros(size, self.dim or size)
        rows[: len(included), : len(included)] = torch.diag(torch.from_numpy(included).float()) * (LONG * self.clip)
        return np.stack([self.release(rows, rng.child("round", t)).double().numpy() for t in range(self.rounds)])


def release_distributed_noise(
    plan: DistributedDP, *, contributors: int, dim: int, scale: float, rounds: int
) -> Releases:
    """Distributed noise, as honest clients encode it; see `DistributedDP.for_round` for the arguments."""
    one = plan.for_round(contributors=contributors, dim=dim, scale=scale)

    def release(rows: Tensor, rng: Rng) -> Tensor:
        total = np.zeros(dim, np.int64)
        for client, row in enumerate(rows.numpy()):
            total += one.encode(row, _entropy(rng.child("client", client)))
        return torch.from_numpy(total / scale)

    def bare(rng: Rng) -> Reals:
        """Noise of clients with an input of zeros, which rounding does not change."""
        some = [one.encode(np.zeros(dim), _entropy(rng.child("client", client))) for client in range(-(-BARE // dim))]
        sigma = plan.noise_multiplier * plan.clip * scale / math.sqrt(contributors)
        return to_normal(np.concatenate(some), plan.mechanism, sigma, rng.child("coins").numpy())

    return Releases(
        name=f"distributed noise, {plan.mechanism}",
        release=release,
        clip=plan.clip,
        noise=plan.noise_multiplier * plan.clip,
        claim=plan.account_rounds([contributors] * rounds, expected=contributors, dim=dim, scale=scale),
        clients=contributors,
        dim=dim,
        rounds=rounds,
        grid=1 / scale,
        bare=bare,
    )


def _entropy(rng: Rng) -> Entropy:
    return expand_seed(rng.entropy().to_bytes(16, "little"))


@dataclass(frozen=True, kw_only=True)
class CentralLevel:
    """Noise that a trusted server adds to the sum of clipped updates, with its sampling of clients.

    All values are in clips, by the clip that the mechanism publishes. The auditor first undoes a correlation of the noise: with
    c_j as in `fedguard.privacy.matrix`, row t becomes sum_j c_j row_(t-j), which has independent noise. The score is the part
    along the canary's direction, in the rounds in which it could have taken part.

    Args:
        mechanism: the code under audit.
        clients: share and sampling scheme of the clients; their number becomes the number of canaries, or a few more.
        claim, curve: claimed epsilon of all rounds; the same at other deltas.
    """

    name: str = "client-level noise at the server"
    mechanism: CentralDP
    clients: Participation
    rounds: int
    claim: Epsilon | None
    curve: Curve | None = None

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript]:
        people, canaries = self._people(len(included)), len(included)
        mechanism = self._among(people)
        state = mechanism.start()
        length = LONG * state.clip
        releases, truth, could = np.zeros((3, self.rounds, canaries))
        drawn, counts, off = np.zeros((self.rounds, people.total), bool), [], []
        for t in range(self.rounds):
            chosen = np.array(people.choose(rng.child("participation", t), t + 1), int)
            own = chosen[chosen < canaries]
            came = own[included[own]]
            rows = torch.zeros(len(came), canaries)
            rows[torch.arange(len(came)), torch.from_numpy(came)] = length
            clip, before, draws = state.clip, state, rng.child("release", t)
            released, state = mechanism.release(rows, before, draws)
            if t < AGAIN and len(came):
                # Same state and same stream: all that may differ is what the missing update contributed.
                fewer = mechanism.release(rows[1:], before, draws)
                off.append(self._off(people.expected, came[0], before, (released, state), fewer))
            releases[t] = released.double().numpy() * people.expected / clip
            truth[t, came] = 1.0
            # In a secret cohort the adversary does not know the rounds of a canary; public turns it does know.
            could[t, own if people.scheme == "cyclic" else slice(None)] = 1.0
            drawn[t, chosen] = True
            if isinstance(mechanism.clip, AdaptiveClip):
                counts.append(count_residual(mechanism.clip, clip, state.clip, rows, people.expected))
        releases, truth, could = (independent(rows, mechanism.bands) for rows in (releases, truth, could))
        seen = Transcript(
            releases=releases,
            truth=truth,
            noise=sum_noise(mechanism),
            elsewhere=max(off) / sum_noise(mechanism) if off else None,
            counts=np.array(counts) / mechanism.bit_noise,
            drawn=drawn if self.claim and self.claim.sampling in ("fixed", "poisson") else None,
            rate=people.expected / people.total,
            fixed=people.scheme == "fixed",
        )
        return (releases * could).sum(axis=0) / np.sqrt(np.maximum((could**2).sum(axis=0), 1e-9)), seen

    def _off(self, expected: int, client: int, before: CentralState, more: _Released, fewer: _Released) -> float:
        """Difference, in clips, of the noise of a release or of its count with one more long update."""
        apart = (more[0] - fewer[0]).double() * expected / before.clip
        apart[client] -= 1.0
        law, count = self.mechanism.clip, 0.0
        if isinstance(law, AdaptiveClip):  # one update beyond the clip lowers the count by a half
            count = abs(math.log(more[1].clip / fewer[1].clip) / law.lr * expected - 0.5)
        return max(float(apart.abs().max()), count)

    def _among(self, people: Participation) -> CentralDP:
        """The mechanism for these clients, with its count noise fixed, which otherwise follows their number."""
        clip = self.mechanism.clip
        if isinstance(clip, AdaptiveClip):
            clip = replace(clip, bit_noise=self.mechanism.bit_noise)
        return replace(self.mechanism, expected=people.expected, clip=clip)

    def _people(self, canaries: int) -> Participation:
        """As many clients as canaries, or the next number at which the same share is a whole number."""
        expected, total = self.clients.expected, self.clients.total
        step = total // math.gcd(expected, total)
        people = step * -(-canaries // step)
        return replace(self.clients, total=people, per_round=people * expected // total)


def sum_noise(mechanism: CentralDP) -> float:
    """z_d by the auditor's own arithmetic: z^-2 less the share of the count behind an adaptive clip, to the power -1/2."""
    return float((mechanism.noise_multiplier**-2 - (2 * mechanism.bit_noise) ** -2) ** -0.5)


def independent(rows: Reals, bands: int) -> Reals:
    """float64 ``[rounds, d]``: C times the rows, so that noise of C^-1 Z becomes Z; with one band nothing changes."""
    found = np.zeros_like(rows)
    for j in range(min(bands, len(rows))):
        found[j:] += binom(2 * j, j) / 4**j * rows[: len(rows) - j]
    return found


def count_residual(law: AdaptiveClip, before: float, after: float, updates: Tensor, expected: int) -> float:
    """Noise of the count of short updates (float32 ``[n, d]``), from the change of the clip from ``before`` to ``after``."""
    below = law.quantile - math.log(after / before) / law.lr
    true = float((updates.double().norm(dim=1) <= before).sum())
    return (below - 0.5) * expected + len(updates) / 2 - true


@dataclass(frozen=True, kw_only=True)
class RecordLevel:
    """DP-SGD in a client with the canaries as examples: softmax regression of two classes, one input for each canary.

    At p = 1/2 a canary's gradient is ``(-1, 1) / sqrt(2)`` in its input's two weights, in every step: the learning
    rate is so small that p stays at 1/2. The sum of the two weights then moves by noise alone, which gives the residuals; so do
    the biases, up to a millionth.

    Args:
        train: the code under audit; the model has 2 (m + 1) parameters, weights first.
        batches: the sampling under audit, with which ``train`` chooses its batches.
        plan: its ``batch_size``, ``steps`` and ``private`` count, with the first level of ``private``.
        claim, curve: claimed epsilon of all rounds; the same at other deltas.
    """

    name: str = "record-level DP-SGD"
    train: Train
    batches: Batches
    plan: LocalPlan
    rounds: int
    claim: Epsilon | None
    curve: Curve | None = None

    def observe(self, included: Flags, rng: Rng) -> tuple[Reals, Transcript]:
        private, divisor = self.plan.private, self.plan.batch_size
        assert private is not None and divisor is not None  # else `train` refuses
        (clip, noise), q, m = private.level(0), private.sample_rate, len(included)
        plan = replace(self.plan, lr=TINY * divisor / clip, momentum=0.0)
        which = torch.from_numpy(np.flatnonzero(included))
        x = torch.zeros(len(which), m)
        x[torch.arange(len(which)), which] = LONG
        examples, model = Examples(x, torch.zeros(len(which), dtype=torch.int64)), torch.zeros(2 * (m + 1))
        moved, biases, drawn = np.zeros((self.rounds, 2, m)), np.zeros((self.rounds, 2)), []
        for t in range(self.rounds):
            draws = rng.child("round", t)
            step = self.train(examples, model, plan, draws).double().numpy() / TINY
            moved[t], biases[t] = step[: 2 * m].reshape(2, m), step[2 * m :]
            taken = self.batches(plan, len(which), draws.child("client", 0).numpy())
            drawn += [np.isin(np.arange(len(which)), batch) for batch in taken]
        bare, elsewhere = self._single(plan, m, rng.child("single"))
        seen = Transcript(
            releases=np.concatenate([moved.sum(axis=1) / math.sqrt(2), biases], axis=1),
            truth=np.zeros((self.rounds, m + 2)),
            noise=noise * math.sqrt(plan.private_steps(q)),
            bare=bare,
            layers=(m, 2),
            elsewhere=elsewhere,
            drawn=np.stack(drawn) if q < 1 else None,
            rate=q,
        )
        return (moved[:, 0] - moved[:, 1]).sum(axis=0) / math.sqrt(2), seen

    def _single(self, plan: LocalPlan, m: int, rng: Rng) -> tuple[Reals, float]:
        """Single steps on one example: their noise on all coordinates, and the largest difference of the noise if the
        example is another one, both over the claimed standard deviation."""
        assert plan.private is not None  # else `train` refuses
        _, noise = plan.private.level(0)
        plan, found, off = replace(plan, steps=1, epochs=None), [], 0.0
        for t in range(-(-BARE // (2 * m + 2))):
            draws, rest = rng.child(t), []
            taken = int((self.batches(plan, 1, draws.child("client", 0).numpy()) >= 0).sum())
            for own in (0, 1):
                x = torch.zeros(1, m)
                x[0, own] = LONG
                one = Examples(x, torch.zeros(1, dtype=torch.int64))
                moved = self.train(one, torch.zeros(2 * (m + 1)), plan, draws).double().numpy() / TINY
                moved[[own, m + own]] -= taken * math.sqrt(0.5) * np.array([1, -1])
                rest.append(moved / noise)
            found.append(rest[0])
            off = max(off, float(np.abs(rest[1] - rest[0]).max()))
        return np.concatenate(found), off
