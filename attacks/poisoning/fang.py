"""Local model poisoning against Krum and against coordinate-wise rules (Fang et al., USENIX Security 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from fedguard.contracts import NonNegativeFloat, PoisonAttack, PoisonView, PositiveFloat, Sight
from fedguard.kernels import gram_matrix


@dataclass(frozen=True, kw_only=True)
class Fang(PoisonAttack):
    """A step against the way the model would go, shaped for one family of rules.

    $s = sign(mu)$, where $mu$ is the mean of the honest updates.

    ``coordinate``, for median and trimmed mean: if $s_k > 0$, each malicious client draws from the interval below the
    smallest honest value m, $[m/b, m]$ for a positive m and $[b m, m]$ otherwise. If not, it draws from the interval above
    the largest honest value.

    ``krum``: one malicious client sends $-lambda * s$; the others send it plus noise of length up to ``epsilon``. $lambda$
    starts at a bound and is halved until Krum would select $-lambda * s$ among the honest updates and f copies. The bound
    printed in the source is $min_i sum_{j "near" i} |x_i - x_j| / ((n - 2f - 1) sqrt(d)) + max_i |x_i| / sqrt(d)$. It
    follows for a Krum that adds distances. Krum adds squared distances, for which the same argument gives $sqrt(min_i
    sum_{j "near" i} |x_i - x_j|^2 / ((n - 2f - 1) d)) + max_i |x_i| / sqrt(d)$.

    The source states both forms for local models, with values compared to the global model. Here they apply to updates, the
    differences from the global model, as is usual since. The view does not show which rule the server runs, so the form is
    a parameter. Only the source's full knowledge is implemented.

    Args:
        form: ``coordinate`` or ``krum``.
        b: how far beyond the extreme honest value, as a factor.
        epsilon: length, in the units of the updates.
        threshold: $lambda$ at which the halving stops.
        start: where the halving starts: ``squared``, the bound for squared distances, or ``printed``, the source's. The two
            results differ by a factor below 2.
    """

    name = "fang"
    source = "Fang et al., Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX Security 2020"
    needs = (Sight.HONEST_UPDATES,)
    adaptive = True

    form: Literal["coordinate", "krum"] = "coordinate"
    b: Annotated[float, Gt(1)] = 2.0
    epsilon: NonNegativeFloat = 0.01
    threshold: PositiveFloat = 1e-5
    start: Literal["squared", "printed"] = "squared"

    def craft(self, view: PoisonView) -> Tensor:
        if len(view.honest) == 0:
            return torch.zeros(view.f, view.dim)  # nobody is there to be harmed
        return self._beyond(view) if self.form == "coordinate" else self._craft_against_krum(view)

    def _beyond(self, view: PoisonView) -> Tensor:
        rising = view.honest.mean(0) > 0
        near = torch.where(rising, view.honest.amin(0), view.honest.amax(0))
        # Away from zero or towards it, whichever leads out of the honest values.
        far = torch.where((near > 0) == rising, near / self.b, near * self.b)
        sent: Tensor = near + (far - near) * torch.rand(view.f, view.dim, generator=view.rng.torch())
        return sent

    def _craft_against_krum(self, view: PoisonView) -> Tensor:
        away = -view.honest.mean(0).sign()
        strength = _krum_strength(view.honest, away, view.f, self.threshold, printed=self.start == "printed")
        noise = torch.randn(view.f, view.dim, generator=view.rng.torch())
        length = self.epsilon * torch.rand(view.f, 1, generator=view.rng.child("length").torch())
        # The first client sends the crafted update without noise: it is the one that Krum shall select
        length[0] = 0
        sent: Tensor = strength * away + noise * (length / noise.norm(dim=1, keepdim=True))
        return sent


def _krum_strength(honest: Tensor, away: Tensor, f: int, threshold: float, *, printed: bool) -> float:
    """The first lambda of the halving with which Krum selects one of f copies of ``lambda * away``."""
    (h, d), n = honest.shape, len(honest) + f
    inner = gram_matrix(honest, [away])
    # gram_matrix is taken about a central update; its last row is the origin, to which this shifts back
    plain = (inner - inner[-1:] - inner[:, -1:] + inner[-1, -1])[:-1, :-1]
    norms = plain.diagonal()[:h]
    apart = (norms[:, None] + norms[None, :] - 2 * plain[:h, :h]).clamp(min=0).fill_diagonal_(0)
    neighbors = max(n - f - 2, 1)
    near, others = apart.sort(dim=1).values[:, 1 : 1 + neighbors], max(n - 2 * f - 1, 1)
    first = near.sqrt().sum(1).min() / (others * d**0.5) if printed else (near.sum(1).min() / (others * d)).sqrt()
    strength = float(first + norms.max().clamp(min=0).sqrt() / d**0.5)
    while strength > threshold:
        to_copy = (norms - 2 * strength * plain[h, :h] + strength**2 * plain[h, h]).clamp(min=0)
        # A copy has f - 1 others at no distance, an honest update has all f at one.
        score = to_copy.sort().values[: max(neighbors - (f - 1), 0)].sum()
        honest_near = torch.cat([apart, to_copy[:, None].expand(h, f)], dim=1).sort(dim=1).values
        if score < honest_near[:, 1 : 1 + neighbors].sum(1).min():
            return strength
        strength /= 2
    return strength
