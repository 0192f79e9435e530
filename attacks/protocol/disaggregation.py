"""Many rounds of group sums, taken apart by linear algebra (Lam et al., ICML 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.attacks.protocol.means.inputs import draw_fixed_point, to_signed_integers
from fedguard.attacks.protocol.means.relay import Relay
from fedguard.attacks.protocol.sybils import skellam
from fedguard.errors import require
from fedguard.secagg.contest import Arena, Claim, Noise, ProtocolAttack
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig
from fedguard.secagg.simulation import Settings

Groups = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Disaggregation(ProtocolAttack):
    """The server keeps the group sums S of many rounds, and who was in which group P, and solves P X = S for the inputs X.

    Each round partitions the clients into G groups of equal size. With new groups in each round the rank of P grows by at
    most G - 1 per round, because the sum over all groups is always the same; with fixed groups it stays at G:

        $rank P <= min(n, 1 + rounds (G - 1))$,      so that $rounds >= (n - 1) / (G - 1)$ for every single input

    If the inputs change by $sigma$ from round to round, least squares finds their means, with error

        $sigma sqrt(size) sqrt(trace((P^T P)^-1) / n)$

    Lam et al. estimate P from device analytics. Here the server knows P, since it forms the groups.

    Args:
        groups: G.
        moves: $sigma$ in the second part, in ring units; the inputs' own is 300,000.
        averaged: rounds of the second part.
    """

    name = "disaggregation"
    source = (
        "Lam, Wei, Brooks, Reddi and Mitzenmacher, Gradient Disaggregation: Breaking Privacy in Federated Learning by "
        "Reconstructing the User Participant Matrix, ICML 2021"
    )
    number: ClassVar[int] = 11
    by = "server"
    stopped_by = "groups that are dealt once and for all; noise; or inputs that change more than they stay"
    outside = "each sum is as large as promised; what many sums say together is not the masks' affair"
    clients: ClassVar[int] = 12
    colluders: ClassVar[int] = 0
    settings: ClassVar[Settings] = Settings(colluding=0, dropping=0)

    groups: int = 4
    moves: float = 30_000.0
    averaged: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = 2 <= self.groups <= self.clients // 3 and self.clients % self.groups == 0
        require(fits, f"disaggregation: groups: expected a divisor of {self.clients} up to a third; got {self.groups}.")

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        return draw_fixed_point(config, entropy)

    def mount(self, arena: Arena) -> Claim:
        n, size, least = self.clients, self.clients // self.groups, math.ceil((self.clients - 1) / (self.groups - 1))
        redrawn = _Sums(arena, self._redraw_groups(arena))
        while redrawn.rank < n:
            redrawn.observe()
        fixed = _Sums(arena, self._repeat_groups())
        for _ in range(redrawn.rounds):
            fixed.observe()
        inputs, sums = redrawn.solution(), {}
        for observed in (redrawn, fixed):
            for client in observed.alone():
                sums[frozenset({client})] = (
                    np.rint(observed.solution()[client]).astype(np.int64).astype(arena.config.dtype)
                )
        moving = _Sums(arena, self._redraw_groups(arena), skellam(self.moves))
        # spread() inverts P^T P, which needs full rank
        while moving.rounds < self.averaged or moving.rank < n:
            moving.observe()
        off = float(np.sqrt(np.mean((moving.solution() - inputs) ** 2)))
        story = [
            f"{n} clients in {self.groups} groups of {size}, dealt anew in each round: after {redrawn.rounds} rounds the sums "
            f"have rank {redrawn.rank}, and each single input follows ({least} rounds at least)",
            f"the same groups in {fixed.rounds} rounds: rank {fixed.rank}, and {len(fixed.alone())} single inputs",
            f"groups dealt anew, inputs that move by {self.moves:.0f}: after {moving.rounds} rounds "
            f"their means follow, off by {off:.0f}",
        ]
        figures = {
            "rounds_needed_redrawn": redrawn.rounds,
            "rounds_needed_at_least": least,
            "rank_redrawn": redrawn.rank,
            "rank_fixed": fixed.rank,
            "single_inputs_redrawn": len(redrawn.alone()),
            "single_inputs_fixed": len(fixed.alone()),
            "moving_rounds": moving.rounds,
            "moving_error_rms": off,
            "moving_error_expected": self.moves * math.sqrt(size) * moving.spread(),
        }
        return Claim(sums=sums, figures=figures, story=story)

    def _repeat_groups(self) -> Iterator[Groups]:
        while True:
            yield np.arange(self.clients).reshape(self.groups, -1).tolist()

    def _redraw_groups(self, arena: Arena) -> Iterator[Groups]:
        generator = np.random.default_rng(int.from_bytes(arena.entropy(16), "little"))
        while True:
            yield generator.permutation(self.clients).reshape(self.groups, -1).tolist()


class _Sums:
    """The server's observations of a federation in groups."""

    def __init__(self, arena: Arena, dealt: Iterator[Groups], noise: Noise | None = None) -> None:
        self._arena, self._dealt, self._noise = arena, dealt, noise
        self.rounds = 0
        self._members: list[NDArray[np.float64]] = []
        self._totals: list[NDArray[np.int64]] = []

    def observe(self) -> None:
        """Observe one more round: a session in each group."""
        self.rounds += 1
        for members in next(self._dealt):
            group = self._arena.group(sorted(members))
            parties = group.parties(round=self.rounds, noise=self._noise)
            total = Relay(group.server(round=self.rounds), parties).run().server.total
            assert total is not None
            self._members.append(np.isin(np.arange(len(self._arena.honest)), members).astype(np.float64))
            self._totals.append(to_signed_integers(total))

    @property
    def rank(self) -> int:
        return int(np.linalg.matrix_rank(np.array(self._members))) if self._members else 0

    def solution(self) -> NDArray[np.float64]:
        """The least squares solution of least norm."""
        return np.linalg.pinv(np.array(self._members)) @ np.array(self._totals, np.float64)

    def alone(self) -> list[int]:
        """The clients whose inputs the sums determine: a unit vector lies in the span of the rows."""
        members = np.array(self._members)
        # pinv(P) P projects on the row space; it keeps the unit vector e_i exactly if P X determines x_i
        return np.flatnonzero(np.diag(np.linalg.pinv(members) @ members) > 1 - 1e-9).tolist()

    def spread(self) -> float:
        """sqrt(trace((P^T P)^-1) / n)"""
        members = np.array(self._members)
        return math.sqrt(np.trace(np.linalg.inv(members.T @ members)) / members.shape[1])
