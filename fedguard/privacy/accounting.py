"""Privacy accounting: what was released describes itself as events, an accountant adds them up.

    epsilon(delta) = min over a of  sum_i rdp_i(a) + log((a - 1) / a) - (log delta + log a) / (a - 1)

Rényi divergences of independent releases add up (Mironov 2017); the conversion is opacus's, after Balle et al. 2020.
What an accountant does not understand is refused. It never counts as zero.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError, require

Reals: TypeAlias = NDArray[np.float64]

#: Orders at which divergences are added up: dense where usual epsilons lie, wide enough for tiny and for huge ones.
ORDERS: Reals = np.unique(
    np.concatenate([1 + np.geomspace(0.01, 1, 20), np.arange(2, 129), np.geomspace(128, 2**16, 64).round()])
)


class UnsupportedEvent(ConfigError):
    """An event that an accountant cannot interpret."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that was released, as its mechanism describes it.

    Args:
        mechanism: its name.
        rdp: float64 ``[k]`` orders above 1 -> bounds on the Rényi divergence, float64 ``[k]``; None where none is known.
        count: how often it happened.
        unit: whose presence is hidden: "client" or "record".
        relation: what neighbouring inputs are: "add/remove" or "replace".
        sampling: how units were chosen: "none", or the scheme whose amplification ``rdp`` contains.
        view: what the adversary sees.
        assumptions: what must hold besides, each a sentence.
    """

    mechanism: str
    rdp: Callable[[Reals], Reals] | None
    count: int = 1
    unit: str
    relation: str
    sampling: str
    view: str
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """A privacy loss, with all that it means."""

    value: float
    delta: float
    unit: str
    relation: str
    sampling: str
    view: str
    accountant: str
    assumptions: tuple[str, ...]

    def describe(self) -> str:
        """The figure and its meaning, a line each."""
        lines = [
            f"epsilon = {self.value:.4g} at delta = {self.delta:g}",
            f"unit: {self.unit}",
            f"relation: {self.relation}",
            f"sampling: {self.sampling}",
            f"adversary view: {self.view}",
            f"accountant: {self.accountant}",
        ]
        return "\n".join([*lines, *(f"assumes: {assumption}" for assumption in self.assumptions)])


@dataclass(frozen=True, kw_only=True)
class RDPAccountant:
    """Adds up Rényi divergences at fixed orders."""

    name: str = field(default="RDP (opacus, conversion of Balle et al. 2020)", init=False)

    def spent(self, events: Sequence[Event], delta: float) -> Epsilon:
        """What all the events together cost, at ``delta``.

        Raises:
            ConfigError: no events, or events of different units, relations, sampling or views; or a delta not in (0, 1).
            UnsupportedEvent: an event without Rényi divergences.
        """
        require(0 < delta < 1, f"delta: expected between 0 and 1; got {delta}.")
        require(len(events) > 0, "events: expected at least one; an empty history has no unit and no relation.")
        meaning = {(event.unit, event.relation, event.sampling, event.view) for event in events}
        require(
            len(meaning) == 1,
            "events: expected the same unit, relation, sampling and view for all; got "
            f"{'; '.join(', '.join(one) for one in sorted(meaning))}. Account for each kind by itself.",
        )
        total = np.zeros_like(ORDERS)
        for event in events:
            if event.rdp is None:
                raise UnsupportedEvent(
                    f"{event.mechanism}: its Rényi divergence is not known, so {type(self).__name__} cannot count it. "
                    "Use an accountant that can."
                )
            total += event.count * event.rdp(ORDERS)
        unit, relation, sampling, view = meaning.pop()
        return Epsilon(
            value=converted(total, delta),
            delta=delta,
            unit=unit,
            relation=relation,
            sampling=sampling,
            view=view,
            accountant=self.name,
            assumptions=tuple(dict.fromkeys(text for event in events for text in event.assumptions)),
        )


def converted(rdp: Reals, delta: float) -> float:
    """The epsilon for Rényi divergences at `ORDERS` (float64, the same length); infinite where they are."""
    from opacus.accountants.analysis.rdp import get_privacy_spent

    if not np.isfinite(rdp).any():
        return math.inf
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)  # then the bound is loose, not wrong
        value, _ = get_privacy_spent(orders=ORDERS, rdp=rdp, delta=delta)
    return max(0.0, float(value))
