"""Privacy accounting: releases describe themselves as events, and an accountant adds them up.

    epsilon(delta) = min over a of  sum_i rdp_i(a) + log((a - 1) / a) - (log delta + log a) / (a - 1)

Rényi divergences of independent releases add up (Mironov 2017); the conversion is opacus's, after Balle et al. 2020.
An accountant refuses an event that it does not understand. Such an event never counts as zero.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedguard.arguments import is_real
from fedguard.contracts import Epsilon
from fedguard.errors import ConfigError, brief, require

Reals: TypeAlias = NDArray[np.float64]

#: Orders at which divergences are added up: opacus's own (1.1, 1.2 ... 10.9, 12 ... 63), and more for tiny and huge epsilons.
ORDERS: Reals = np.unique(
    np.concatenate(
        [
            1 + np.geomspace(0.01, 1, 20),
            np.arange(11, 110) / 10,
            np.arange(2, 129),
            np.geomspace(128, 2**16, 64).round(),
        ]
    )
)


class UnsupportedEvent(ConfigError):
    """An event that an accountant cannot interpret."""


class OutOfRange(ConfigError):
    """An epsilon or a delta beyond what an accountant's arithmetic can carry."""


@dataclass(frozen=True, kw_only=True)
class SubsampledGaussian:
    """N(0, s^2) on a sum that contains the unit with probability q, as one coordinate: s against a shift of 1.

    Args:
        noise_multiplier: s, standard deviation of the noise divided by what the unit can change.
        sample_rate: q; 1 where the unit always takes part.
        replaced: whether another unit takes its place in the neighboring data set, so that neighbors can be exchanged.
    """

    noise_multiplier: float
    sample_rate: float
    replaced: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """A release, as its mechanism describes it.

    Args:
        mechanism: its name.
        rdp: float64 ``[k]`` orders above 1 -> bounds on the Rényi divergence, float64 ``[k]``; None where none is known.
        gaussian: the dominating pair of distributions of this release; None if the pair is not of this kind.
        count: number of such releases.
        unit: the unit that is hidden: "client" or "record".
        relation: neighboring relation: "add/remove" or "replace".
        sampling: how units were chosen: "none", or the scheme with the amplification that ``rdp`` contains.
        view: what the adversary sees.
        assumptions: further conditions of the guarantee, each a sentence.
    """

    mechanism: str
    rdp: Callable[[Reals], Reals] | None
    gaussian: SubsampledGaussian | None = None
    count: int = 1
    unit: str
    relation: str
    sampling: str
    view: str
    assumptions: tuple[str, ...] = ()


class Accountant(ABC):
    """Adds up events. A new one implements `total`, and keeps the laws of `tests/privacy/test_accounting.py`.

    Attributes:
        name: with its source.
        bound: whether its epsilons are proven upper bounds.
        caveats: assumptions that every epsilon of this accountant adds.
    """

    name: ClassVar[str]
    bound: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def total(self, events: Sequence[Event], delta: float) -> float:
        """The epsilon of all the events together.

        Raises:
            UnsupportedEvent: an event that this accountant cannot interpret.
            OutOfRange: the epsilon is beyond the range of its arithmetic.
        """

    def compose_events(self, events: Sequence[Event], delta: float) -> Epsilon:
        """The epsilon of all events together at ``delta``, with its meaning.

        Raises:
            ConfigError: no events, or events of different units, relations, sampling or views; or a delta not in (0, 1).
            UnsupportedEvent, OutOfRange: as `total` does.
        """
        number = is_real(delta)
        require(number and 0 < delta < 1, f"delta: expected between 0 and 1; got {brief(delta)}.")
        require(len(events) > 0, "events: expected at least one; an empty history has no unit and no relation.")
        meaning = {(event.unit, event.relation, event.sampling, event.view) for event in events}
        require(
            len(meaning) == 1,
            "events: expected the same unit, relation, sampling and view for all; got "
            f"{'; '.join(', '.join(one) for one in sorted(meaning))}. Account for each kind by itself.",
        )
        unit, relation, sampling, view = meaning.pop()
        try:
            value = self.total(events, delta)
        except (OverflowError, ZeroDivisionError) as error:
            raise OutOfRange(
                f"epsilon: beyond what {self.name} can compute ({str(error).rstrip('.')}). Raise the noise multiplier."
            ) from error
        return Epsilon(
            value=value,
            delta=delta,
            unit=unit,
            relation=relation,
            sampling=sampling,
            view=view,
            accountant=self.name,
            bound=self.bound,
            assumptions=_distinct(text for event in events for text in event.assumptions) + self.caveats,
        )


class RDPAccountant(Accountant):
    """Adds up Rényi divergences at fixed orders."""

    name = "RDP (opacus, conversion of Balle et al. 2020)"

    def total(self, events: Sequence[Event], delta: float) -> float:
        def sum_rdp(orders: Reals) -> Reals:
            total = np.zeros_like(orders)
            for event in events:
                if event.rdp is None:
                    raise UnsupportedEvent(
                        f"{event.mechanism}: its Rényi divergence is not known, so {type(self).__name__} cannot count it. "
                        "Use an accountant that can."
                    )
                # They add up by order, also if later inputs depend on earlier releases; the conversion comes once, at the end.
                total += event.count * event.rdp(orders)
            return total

        return least(sum_rdp, delta)


def least(rdp: Callable[[Reals], Reals], delta: float, orders: Reals = ORDERS) -> float:
    """The epsilon for the divergences that ``rdp`` gives at ``orders``, by `convert_rdp`.

    At fractional orders, divergences of sampled noise are long series. They are computed only at orders that would give a
    smaller epsilon than the whole orders if there were no divergence at all.
    """
    # The order is chosen after the events, by public parameters alone, so the minimum needs no correction.
    found, unspent = math.inf, np.log((orders - 1) / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    for kind in (orders % 1 == 0, orders % 1 > 0):
        asked = orders[kind & (unspent < found)]
        if len(asked) > 0:
            found = min(found, convert_rdp(rdp(asked), delta, asked))
    return found


def convert_rdp(rdp: Reals, delta: float, orders: Reals = ORDERS) -> float:
    """The epsilon for Rényi divergences at ``orders`` (float64, the same length); infinite if all of them are."""
    from opacus.accountants.analysis.rdp import get_privacy_spent

    if not np.isfinite(rdp).any():
        return math.inf
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)  # then the bound is loose, not wrong
        # Orders of infinite divergence have an infinite epsilon, which is never the smallest as long as one order is finite.
        value, _ = get_privacy_spent(orders=orders, rdp=rdp, delta=delta)
    return max(0.0, float(value))


def check_delta(delta: float, units: int, unit: str) -> None:
    """Refuse a delta that guarantees nothing: delta = 1 / n allows a mechanism that publishes one of n units at random.

    Raises:
        ConfigError: delta is 1 / n or more.
    """
    require(
        delta * units < 1,
        f"delta: expected less than 1 / {units} = {1 / units:.2g}, for to publish one of {units} {unit}s at random would keep "
        f"such a promise; got {delta:g}. Lower delta, best below a tenth of that.",
    )


def parallel(spent: Sequence[Epsilon], parties: int) -> Epsilon:
    """The epsilon of parties with disjoint data: the largest one, since no unit is in the data of two parties.

    The sum would be right for a unit in the data of all parties, and says nothing about disjoint data. Bounds of several
    accountants may be mixed, and all of them are named.

    Args:
        spent: for each kind of party, the epsilon on its own data over the whole training.
        parties: the number of parties.

    Raises:
        ConfigError: no epsilon, or epsilons that differ in meaning.
    """
    require(len(spent) > 0, "spent: expected at least one epsilon; got none.")
    worst = max(spent, key=lambda one: one.value)
    alike = {replace(one, value=0.0, accountant="", assumptions=()) for one in spent}
    require(
        len(alike) == 1,
        "spent: expected the same delta, unit, relation, sampling and view for all, and no estimates among bounds; got "
        f"{'; '.join(sorted(one.describe().partition(' at ')[2].replace(chr(10), ', ') for one in alike))}. "
        "Report each kind by itself.",
    )
    apart = (f"no {worst.unit} is with two of the {parties} parties",) if parties > 1 else ()
    return replace(
        worst,
        accountant=" and ".join(_distinct(one.accountant for one in spent)),
        assumptions=(*_distinct(text for one in spent for text in one.assumptions), *apart),
    )


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
