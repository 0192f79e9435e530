"""One secure sum of reals or integers: the whole protocol in one process, behind one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.arguments import is_whole, real_number
from fedguard.errors import InputError, brief, require
from fedguard.secagg.encoding import Encoding, OverflowBudgetError, RoundingError
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.masks import RingVector
from fedguard.secagg.simulation import Drop, MessageEvent, ProtocolSimulation, Settings

#: The smallest accepted maximum of the inputs: from here on, a step is a normal float64 for every number of bits.
_SMALLEST = 2.0**-970


@dataclass(frozen=True)
class SecureSum:
    """What the server learns, and the cost of communication.

    Attributes:
        sum: ``sum_u w_u x_u`` over the survivors: float64 ``[d]``, or int64 if the inputs were integers.
        weight: ``sum_u w_u``.
        survivors: the clients with an input in the sum.
        rounding: how far rounding moves a coordinate of the sum; zeros for integers.
        encoding: encoding of the inputs.
        transcript: every message in order, with its size.
        bytes_sent: total of all clients, in bytes.
        bytes_received: total of all clients, in bytes.
    """

    sum: NDArray[Any]
    weight: int
    survivors: tuple[int, ...]
    rounding: RoundingError
    encoding: Encoding
    transcript: tuple[MessageEvent, ...]
    bytes_sent: int
    bytes_received: int

    @property
    def mean(self) -> NDArray[np.float64]:
        """``sum / weight``. Raises `InputError` if all survivors have weight 0."""
        if self.weight == 0:
            raise InputError("mean: the weights of all survivors are 0, and there is no mean of nothing.")
        return self.sum / self.weight


def secure_sum(
    inputs: NDArray[Any],
    weights: Sequence[int] | None = None,
    *,
    drop: Drop | None = None,
    clip: float | None = None,
    bits: int | None = None,
    rotate: bool = False,
    settings: Settings | None = None,
    entropy: Entropy = system,
) -> SecureSum:
    """Sum the rows of ``inputs`` without revealing any of them: see `fedguard.secure_sum`.

    Raises:
        InputError: not a matrix of finite numbers, numbers too large or too small for the encoding, or weights that are not
            integers from 0.
        ConfigError: too few clients, or an unknown step.
        OverflowBudgetError: a sum might not fit the ring.
        ProtocolError: too many clients dropped out.
    """
    settings = Settings() if settings is None else settings
    require(isinstance(settings, Settings), f"settings: expected a Settings; got {brief(settings)}.")
    require(isinstance(rotate, bool), f"rotate: expected True or False; got {brief(rotate)}.")
    clip = None if clip is None else real_number(clip, "clip", 0, above=True)
    require(bits is None or is_whole(bits), f"bits: expected a whole number; got {brief(bits)}.")
    inputs = np.asarray(inputs)
    with np.errstate(over="ignore"):  # what a float64 does not hold is refused
        fits = inputs.ndim == 2 and 0 not in inputs.shape and inputs.dtype.kind in "fiub"
        rows = inputs.astype(np.float64) if fits else np.array(np.nan)
    if not np.isfinite(rows).all():
        raise InputError(f"inputs: expected finite numbers [n, d]; got {inputs.dtype} {list(inputs.shape)}.")
    clients, dim = inputs.shape
    claimed, whole = _weights(weights, clients), inputs.dtype.kind != "f"
    if whole:
        require(
            clip is None and bits is None and not rotate and max(claimed) <= 1,
            "inputs: whole numbers are summed as they are. Pass floats for weights, clip, bits or rotate.",
        )
        encoding = _of_whole(inputs, settings.ring)
    else:
        encoding = _of_real(rows, max(1, *claimed), clip, bits, rotate, settings.ring)
        encoding.check(clients)

    def vector(client: int, sid: bytes) -> RingVector:
        return encoding.encode(rows[client], weight=claimed[client], seed=sid, entropy=entropy)

    outcome = ProtocolSimulation(settings, entropy).run(
        round=1, clients=range(clients), length=encoding.length(dim), vector=vector, drop=drop
    )
    if outcome.error is not None or outcome.total is None:
        raise outcome.error or AssertionError("a round without sum and without error")
    total, weight = encoding.decode(outcome.total, dim=dim, seed=outcome.sid)
    # Integers come from the ring itself: decoding goes through float64, exact only up to 2^53
    return SecureSum(
        outcome.total[:-1].astype(np.int64 if settings.ring == 64 else np.int32).astype(np.int64) if whole else total,
        weight,
        outcome.included,
        RoundingError(0.0, 0.0, 0.0) if whole else encoding.error(len(outcome.included), dim),
        encoding,
        outcome.transcript,
        outcome.bytes_up,
        outcome.bytes_down,
    )


def _weights(weights: Sequence[int] | None, clients: int) -> list[int]:
    """The weights, one for each client."""
    if weights is None:
        return [1] * clients
    try:
        claimed = [int(weight) for weight in weights]
        right = len(claimed) == clients and min(claimed) >= 0 and claimed == list(weights)
    except (TypeError, ValueError, OverflowError):  # words, NaN, infinity
        right = False
    if not right:
        raise InputError(f"weights: expected {clients} whole numbers from 0; got {brief(weights)}.")
    return claimed


def _of_whole(inputs: NDArray[Any], ring: int) -> Encoding:
    """One step per unit, and room for ``n`` numbers of the largest size. Computed in Python integers, which do not wrap."""
    # -int(min), since the absolute value of the smallest int64 overflows. At least 1, for inputs of zeros only
    largest, clients = max(int(inputs.max()), -int(inputs.min()), 1), len(inputs)
    most = min((2 ** (ring - 1) - 1) // clients - 1, 2**52 - 1)
    if largest > most:
        raise OverflowBudgetError(
            f"inputs: expected whole numbers up to {most} in size, so that the sum of {clients} fits a ring of {ring} bits and "
            f"each a float64; got {largest}. {'Scale' if ring == 64 else 'Set ring: 64, or scale'} the inputs down."
        )
    bits = largest.bit_length() + 1
    return Encoding(bits=max(2, bits), clip=2 ** (max(2, bits) - 1) - 1, ring=ring)


def _of_real(
    rows: NDArray[np.float64], heaviest: int, clip: float | None, bits: int | None, rotate: bool, ring: int
) -> Encoding:
    """The encoding with the most bits that fit the ring. The default clip is the largest input, raised to a power of two."""
    # A client's share of the ring, as in `Encoding.check`
    room = (2 ** (ring - 1) - 1) // len(rows)
    bits = min(53, max(2, room.bit_length())) if bits is None else int(bits)
    if clip is None:
        largest = float(np.abs(rows).max())
        if rotate and largest > 0:  # a rotated row may have its length in one coordinate, whose square could overflow
            largest *= float(np.linalg.norm(rows / largest, axis=1).max())
        if not math.isfinite(largest) or Fraction(largest) * len(rows) * heaviest > 2**1023:
            raise InputError(
                f"inputs: expected numbers, and with rotate rows, whose weighted sum is no longer than {2.0**1023:.3g}, for "
                f"float64; got {len(rows)} rows, with weights up to {heaviest}, of up to {largest:.3g}. Scale them down."
            )
        if 0 < largest < _SMALLEST:
            raise InputError(
                f"inputs: expected {_SMALLEST:.3g} or more in the largest number, or a step is finer than a float64; got "
                f"{largest:.3g}. Scale them up."
            )
        # Not by log2, which rounds: just above a large power of two it gives that power, which is below the input
        mantissa, exponent = math.frexp(largest)
        clip = 1.0 if largest == 0 else 2.0 ** (exponent - (mantissa == 0.5))
    return Encoding(bits=bits, clip=clip, rotate=rotate, ring=ring, largest_weight=heaviest)
