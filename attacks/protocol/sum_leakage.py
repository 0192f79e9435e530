"""The information in the exact sum itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr

from fedguard.attacks.protocol.means.network import ProtocolNetwork
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig

Reals = NDArray[np.float64]

#: Encoding of inputs that are standard normal in each coordinate.
ENCODING = Encoding(bits=24, clip=8.0)
_SEED = bytes(32)


@dataclass(frozen=True, kw_only=True)
class SumLeakage(ProtocolAttack):
    """The server knows some vectors of which one is a client's input, and asks the sum which of them it is.

    It takes the vector c with the largest $<c, s> / |c|$. For independent standard normal inputs of d coordinates and n
    honest survivors, this score is $|c| + N(0, n - 1)$ where c is in the sum s, and $N(0, n)$ in a round where it is not,
    so that a round with c scores higher than a round without it with probability

        $AUC = Pr[N(0, 1) < |c| / sqrt(2n - 1)] = F_{t(d)}(sqrt(d / (2n - 1)))$        Student's t, d degrees of freedom

    which n brings down to $1/2$ only where it is larger than d. The sum tells $1/2 log_2(n / (n - 1))$ bits of each
    coordinate of an input; $s / n$, the best guess at it, explains $1 / n$ of its variance.

    Args:
        suspects: the vectors that the server knows.
        coordinates: d of the simulations.
        trials: simulated rounds for each number of survivors.
    """

    name = "sum_leakage"
    source = (
        "folklore; membership in a published sum: Homer et al., PLoS Genetics 2008; the closed form is derived here"
    )
    number: ClassVar[int] = 20
    by = "server"
    stopped_by = "nothing but noise in the sum: distributed differential privacy"
    outside = "masks hide all but the sum, and the sum is what the server is meant to have"
    length: ClassVar[int] = 1025

    suspects: Annotated[int, Ge(2)] = 64
    coordinates: Annotated[int, Ge(1)] = 16
    trials: Annotated[int, Ge(1)] = 2000

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        """Standard normal coordinates, encoded."""
        values = _rng(entropy).standard_normal(config.length - 1)
        return ENCODING.encode(values, seed=_SEED, entropy=entropy)

    def mount(self, arena: Arena) -> Claim:
        victim, n = arena.honest[0], len(arena.honest)
        total = ProtocolNetwork.of(arena).run().server.total
        assert total is not None, "a session in which nobody drops out has a sum"
        for client in arena.colluders:
            total = total - arena.input(client)
        known, dim = arena.lineup(victim, self.suspects), arena.config.length - 1
        scores = score_vectors(_read(total), np.stack([_read(vector) for vector in known]))
        best, second = np.sort(scores)[[-1, -2]]
        figures = {"best_score": float(best), "second_score": float(second)}
        story = [
            f"the server knows {self.suspects} vectors of {dim} coordinates, one of which is the input of client {victim}",
            f"the sum of {n} honest clients scores {best:.1f} with one of them, and at most {second:.1f} with the others",
            f"on {self.coordinates} coordinates, a known vector in the sum is told from one that is not:",
        ]
        for survivors in (2, 8, 32, 128):
            measured = estimate_auc(survivors, self.coordinates, self.trials, _rng(arena.entropy))
            expected = membership_auc(survivors, self.coordinates)
            figures |= {f"auc_{survivors}_survivors": measured, f"auc_{survivors}_survivors_closed_form": expected}
            bits = bits_per_coordinate(survivors)
            story.append(
                f"{survivors} survivors: AUC {measured:.3f}, closed form {expected:.3f}; {bits:.4f} bits a coordinate"
            )
        needed = survivors_for(0.6, 10**6)
        story.append(f"to bring the AUC down to 0.6 on a million coordinates takes {needed:.2g} survivors")
        chosen = known[int(np.argmax(scores))]
        return Claim(sums={frozenset({victim}): chosen, frozenset(arena.honest): total}, figures=figures, story=story)


def membership_auc(survivors: int, coordinates: int) -> float:
    """The probability that a round with a known vector outscores one without, for normal inputs: F_t(d)(sqrt(d / (2n - 1)))."""
    return float(stdtr(coordinates, math.sqrt(coordinates / (2 * survivors - 1))))


def survivors_for(auc: float, coordinates: int) -> float:
    """The number of survivors that brings the AUC down to ``auc``, for many coordinates, where Student's t is normal."""
    return float((coordinates / ndtri(auc) ** 2 + 1) / 2)


def bits_per_coordinate(survivors: int) -> float:
    """Mutual information of one normal input and the sum of n."""
    return math.log2(survivors / (survivors - 1)) / 2


def score_vectors(total: Reals, known: Reals) -> Reals:
    """``<c, s> / |c|`` for each row c of ``known`` (float64 ``[m, d]``)."""
    scores: Reals = known @ total / np.linalg.norm(known, axis=1)
    return scores


def estimate_auc(survivors: int, coordinates: int, trials: int, rng: np.random.Generator) -> float:
    """`membership_auc` estimated by pairs of rounds: one with the known vector in the sum, and one without."""
    wins = 0
    for _ in range(trials):
        known, *others = rng.standard_normal((survivors, coordinates))
        without = rng.standard_normal((survivors, coordinates))
        member, stranger = (score_vectors(np.sum(rows, 0), known[None]) for rows in ([known, *others], without))
        wins += bool(member > stranger)
    return wins / trials


def _read(vector: RingVector) -> Reals:
    values, _ = ENCODING.decode(vector, dim=len(vector) - 1, seed=_SEED)
    return values


def _rng(entropy: Entropy) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(entropy(16), "little"))
