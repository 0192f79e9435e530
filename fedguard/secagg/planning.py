"""Parameters of the sessions of a protocol, and the check before anything runs that they keep its guarantees."""

from __future__ import annotations

from dataclasses import asdict

from fedguard.contracts import Cell, SessionSize
from fedguard.errors import ConfigError, require
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.parameters import Parameters, choose


def plan_session(cell: Cell) -> Parameters:
    """The parameters of the one session of a round, or of the smallest group's.

    Raises:
        ConfigError: no parameters exist for this number of clients, colluders and dropouts.
    """
    size, rate = cell.size, cell.protocol.dropout.rate
    try:
        chosen = choose(size.expected, size.colluding, rate)
    except ConfigError as error:
        raise ConfigError(f"{error} (gamma follows from colluding, and dropout is dropout.rate.)") from None
    check_left(size, rate, chosen.survivors)
    return chosen


def check_left(size: SessionSize, rate: float, needed: int) -> None:
    """Raise `ConfigError` unless ``needed`` clients stay on average if each drops out with probability ``rate``."""
    left = size.expected * (1 - rate)
    require(
        left >= needed,
        f"dropout.rate: a session of {size.expected} clients keeps {left:.3g} on average, and needs {needed} to end. "
        "Lower dropout.rate or colluding, or take larger groups.",
    )


def check_sessions(cell: Cell) -> None:
    """Check that the protocol can keep its guarantees among these clients.

    Raises:
        ConfigError: too few clients in a session, more dropouts than it tolerates, sums that could wrap around the ring
            (`OverflowBudgetError`), noise that does not fit, or settings that exclude each other.
    """
    cell.noise.check(cell)
    cell.masking.check(cell)
    if not cell.masking.masked:
        return
    plan_session(cell)
    encoding, size = Encoding(**asdict(cell.fixed_point)), cell.size
    noise = cell.noise.in_sums(cell, size, 1, encoding.scale)
    # The largest session has the largest sum
    encoding.check(size.most, noise.noise_tail(size.most) if noise else 0)
