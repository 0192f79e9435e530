"""Checks that record, client and distributed noise share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fedguard.contracts import Cell
from fedguard.errors import require


class NoiseRequest(Protocol):
    """A request for noise: a given multiplier, or the least noise that keeps an epsilon."""

    @property
    def noise_multiplier(self) -> float | None: ...

    @property
    def epsilon(self) -> float | None: ...


def require_one(asked: NoiseRequest, where: str = "privacy") -> None:
    """Raise `ConfigError` unless either the noise multiplier or epsilon is given."""
    given = [one for one in (asked.noise_multiplier, asked.epsilon) if one is not None]
    require(
        len(given) == 1,
        f"{where}: expected exactly one of noise_multiplier and epsilon; got {'both' if given else 'neither'}.",
    )


def most_releases(cell: Cell) -> int | None:
    """Most updates of one client that a training can release; None if nothing bounds their number."""
    # In simulated time speeds decide who sends when, so the schedule of rounds bounds nothing.
    if cell.meeting is not None:
        return cell.meeting.most
    return cell.clients.participations(cell.training.rounds)


def no_bound(asked: NoiseRequest, cell: Cell) -> Iterator[str]:
    """Why noise cannot be calibrated to an epsilon: the number of updates of a client is unknown before the run."""
    if asked.epsilon is not None and most_releases(cell) is None:
        yield (
            "privacy.epsilon: nothing bounds how often a quick client sends here, so no noise is known to be enough before the "
            "run. Set privacy.noise_multiplier, of which the record says what was spent, or clients.most_trainings, after "
            "which a client stops; or use parameter_server, google or server."
        )
