"""What several kinds of noise check alike."""

from __future__ import annotations

from typing import Protocol

from fedguard.errors import require


class Asked(Protocol):
    """Who asks for noise: so much of it, or as much as an epsilon takes."""

    @property
    def noise_multiplier(self) -> float | None: ...

    @property
    def epsilon(self) -> float | None: ...


def require_one(asked: Asked, where: str = "privacy") -> None:
    """Raise `ConfigError` unless either the noise multiplier or epsilon is given."""
    given = [one for one in (asked.noise_multiplier, asked.epsilon) if one is not None]
    require(
        len(given) == 1,
        f"{where}: expected exactly one of noise_multiplier and epsilon; got {'both' if given else 'neither'}.",
    )
