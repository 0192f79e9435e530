"""The attack tailored to the known rule (Shejwalkar & Houmansadr, NDSS 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.directions import Direction, DirectionAttack, harmful
from fedguard.attacks.search import RuleOracle, SearchingAttack, along, largest, spread, strongest_row
from fedguard.contracts import PoisonView
from fedguard.errors import PreconditionError
from fedguard.kernels import length


@dataclass(frozen=True, kw_only=True)
class AGRTailored(DirectionAttack, SearchingAttack):
    """The longest step in a harmful direction that the known rule still lets in.

    $b = mu + gamma * p$ with the largest $gamma$ such that the malicious rows make up at least $f/n$ of the aggregate, the
    share of f equal votes: Krum then selects one of them, Multi-Krum nearly all. If a rule has no weights, $gamma > 0$
    maximizes $|R - mu|$, which is the source's form for the median and the trimmed mean. The source requires Multi-Krum to
    select all f and treats no smooth rule; a share of $f/n$ covers both. It halves its step around a first guess; here
    $gamma$ is searched over $2^-3 ... 2^5$ or more, then by halving between the last two.

    Args:
        direction: p: ``std`` $-sigma$, ``unit`` $-mu$, ``sign`` $-sign(mu)$, the latter two scaled to the length of $sigma$,
            so that $gamma$ is in standard deviations; ``chosen`` takes in each round the direction with the least progress
            $<R, mu> / |mu|^2$ after its longest step.
    """

    name = "agr_tailored"
    source = "Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"
    magnitudes = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

    def search_update(self, view: PoisonView) -> Tensor:
        asked = RuleOracle(view, self._steps(view.honest))
        steps = [asked.unit(len(view.honest) + i) for i in range(len(self.directions))]
        try:
            rows = [asked.mean + self._longest(view, asked, step) for step in steps]
            return asked.vector(asked.with_objective("progress").best(rows) if len(rows) > 1 else rows[0])
        except PreconditionError:
            return asked.vector(asked.mean + steps[0])  # too few updates for the rule: the server abandons the round

    def strength(self, view: PoisonView, crafted: Tensor) -> float:
        """gamma: all steps have the length of sigma, so the projection is largest for the step that was taken."""
        return max(along(crafted[0], view.honest.mean(0), step) for step in self._steps(view.honest))

    def _longest(self, view: PoisonView, asked: RuleOracle, step: Tensor) -> Tensor:
        """gamma * ``step``."""
        vote = view.f / view.n
        if asked.probe(asked.mean).malicious_weight is None:
            return strongest_row(asked, asked.mean, step, self.magnitudes, 1.0, signs=(1,)) - asked.mean

        def passes_rule(gamma: float) -> bool:
            share = asked.probe(asked.mean + gamma * step).malicious_weight
            # The tolerance keeps rounding from rejecting a share that is f/n exactly, as under the plain mean
            return share is not None and share >= vote * (1 - 1e-6)

        return largest(passes_rule, self.magnitudes) * step

    def _steps(self, honest: Tensor) -> list[Tensor]:
        return [_as_long_as_sigma(name, honest) for name in self.directions]


def _as_long_as_sigma(name: Direction, honest: Tensor) -> Tensor:
    way, sigma = harmful(name, honest), spread(honest)
    own = length(way)
    scaled: Tensor = way * (length(sigma) / own) if own > 0 else torch.zeros_like(way)
    return scaled
