"""Mechanisms of integer noise, by name."""

from __future__ import annotations

from fedguard.errors import UnknownName
from fedguard.privacy.mechanisms.base import Mechanism
from fedguard.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from fedguard.privacy.mechanisms.skellam import Skellam

MECHANISMS: dict[str, type[Mechanism]] = {kind.name: kind for kind in (Skellam, DiscreteGaussian)}

__all__ = ["MECHANISMS", "DiscreteGaussian", "Mechanism", "Skellam", "mechanism_named"]


def mechanism_named(name: str) -> type[Mechanism]:
    """The class of that name.

    Raises:
        UnknownName: there is none.
    """
    if name not in MECHANISMS:
        raise UnknownName("mechanism", name, MECHANISMS)
    return MECHANISMS[name]
