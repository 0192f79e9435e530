"""A search over directions and strengths against the known rule, in Gram space; FedGuard's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.search import STRETCH, STRETCHES, Objective, RuleOracle, SearchingAttack, spread, strongest
from fedguard.contracts import NonNegativeInt, PoisonView
from fedguard.errors import PreconditionError
from fedguard.kernels import distances_from, gram_matrix, length

#: Number of sampled coordinates for lengths and principal directions; these only set the scale and start of the search.
SAMPLE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class GramSearch(SearchingAttack):
    """The update that harms this round's aggregate most, over combinations of the honest updates and two directions.

    $b = mu + s * p$, the same for all malicious clients. First the search tries every p of $-sigma$, $-mu$, $-sign(mu)$ and
    the two top principal directions of the honest updates at a few strengths of both signs. It also tries every honest
    update itself, as `mimic` sends it. Then it searches the strength along the two best directions. Last it adds ``steps``
    random combinations of all directions to the best step and keeps those with a gain; the stride grows on success and
    shrinks on failure. Directions are scaled to the root mean square of $|x_i - mu|$, so strengths are in multiples of it.

    It takes some 130 probes and one for each honest update, and five full calls for rules without weights. The result is no
    worse than $mu$ and its reversal $-mu$.

    Args:
        objective: ``deviation`` maximizes $|R - mu|$, ``progress`` minimizes $<R, mu> / |mu|^2$.
        steps: random combinations tried.
    """

    name = "gram_search"
    source = "FedGuard; cf. Allouah et al., AISTATS 2023, and Shejwalkar & Houmansadr, NDSS 2021"
    magnitudes = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

    objective: Objective = "deviation"
    steps: NonNegativeInt = 40

    def search_update(self, view: PoisonView) -> Tensor:
        mean = view.honest.mean(0)
        asked = RuleOracle(view, [spread(view.honest), mean.sign()], self.objective)
        reversal = -asked.mean
        try:
            steps, strength = _directions(view.honest, asked)
            starts = [*self._lines(asked, steps), *(asked.unit(i) for i in range(len(view.honest)))]
            ranked = sorted(starts, key=asked.score, reverse=True)
            climbed = self._hill_climb(view, asked, ranked[0], steps, strength)
            return asked.vector(asked.best([climbed, *ranked[:2], reversal, asked.mean]))
        except PreconditionError:
            return asked.vector(reversal)  # too few updates for the rule: the server abandons the round

    def strength(self, view: PoisonView, crafted: Tensor) -> float:
        mean = view.honest.mean(0)
        scale = float(distances_from(view.honest, mean).square().mean().sqrt())
        return length(crafted[0] - mean) / scale if scale > 0 else 0.0

    def _lines(self, asked: RuleOracle, steps: Sequence[Tensor]) -> list[Tensor]:
        """The best combinations along the two most promising directions."""

        def promise(step: Tensor) -> float:
            return max(asked.score(asked.mean + sign * s * step) for s in (0.5, 2.0, 8.0) for sign in (1, -1))

        rows = []
        for step in sorted(steps, key=promise, reverse=True)[:2]:
            found = strongest(lambda s, step=step: asked.score(asked.mean + s * step), self.magnitudes)  # type: ignore[misc]
            rows += [asked.mean + s * step for s in found]
        return rows

    def _hill_climb(
        self,
        view: PoisonView,
        asked: RuleOracle,
        row: Tensor,
        steps: Sequence[Tensor],
        strength: Callable[[Tensor], float],
    ) -> Tensor:
        """``row`` plus the random combinations with a gain, none beyond the range of the strengths."""
        if not steps:
            return row
        draw, basis = view.rng.numpy(), torch.stack([*steps])
        best, stride, limit = asked.score(row), 0.5, max(self.magnitudes) * STRETCH**STRETCHES
        for _ in range(self.steps):
            mixture = torch.from_numpy(draw.standard_normal(len(basis))) @ basis
            moved = asked.mean + (row - asked.mean) * (1 + stride * float(draw.standard_normal())) + stride * mixture
            if strength(moved) <= limit and (gained := asked.score(moved)) > best:
                row, best, stride = moved, gained, stride * 1.5
            else:
                stride *= 0.85
        return row


def _directions(honest: Tensor, asked: RuleOracle) -> tuple[list[Tensor], Callable[[Tensor], float]]:
    """The steps to try, each as long as the honest rows' spread, and the strength of any combination in these units."""
    h, thin = len(honest), max(1, honest.shape[1] // SAMPLE)
    sample = honest[:, ::thin]
    mean = sample.mean(0)
    inner = gram_matrix(sample, [spread(sample), mean.sign()])
    # gram_matrix is taken about a central update; its last row is the origin, to which this shifts back
    plain = (inner - inner[-1:] - inner[:, -1:] + inner[-1, -1])[:-1, :-1]
    centring = torch.eye(h, dtype=torch.float64) - 1 / h
    # Doubly centered, so that the reference of the Gram matrix does not matter and no mean is subtracted in float32
    centered = centring @ inner[:h, :h] @ centring
    scale = float(centered.diagonal().mean().clamp(min=0).sqrt())
    steps = [-asked.unit(h), -asked.mean, -asked.unit(h + 1)]
    for eigenvector in torch.linalg.eigh(centered).eigenvectors.T.flip(0)[:2]:
        row = torch.zeros_like(asked.mean)
        row[:h] = centring @ eigenvector
        steps.append(row)
    lengths = [float(step @ plain @ step) for step in steps]
    # Directions that are 0 but for rounding, such as a second principal one of two rows, would be scaled up from noise
    floor = 1e-12 * max(lengths)
    steps = [step * scale / length**0.5 for step, length in zip(steps, lengths, strict=True) if length > floor]

    def strength(row: Tensor) -> float:
        step = row - asked.mean
        return float((step @ plain @ step).clamp(min=0).sqrt()) / max(scale, 1e-300)

    return steps, strength
