"""One secure sum of real or whole numbers: the whole protocol in one process, behind one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import InputError, require
from fedguard.secagg.encoding import Encoding, RoundingError
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.masks import RingVector
from fedguard.secagg.simulation import Drop, Event, Federation, Settings


@dataclass(frozen=True)
class SecureSum:
    """What a server learns, and what it cost.

    Attributes:
        sum: ``sum_u w_u x_u`` over the survivors: float64 ``[d]``, or int64 where the inputs were whole numbers.
        weight: ``sum_u w_u``.
        survivors: the clients whose inputs are in the sum.
        rounding: how far rounding moves a coordinate of the sum; zeros for whole numbers.
        encoding: how the inputs were written.
        transcript: every message in order, with its size.
        bytes_sent: by all clients together, in bytes.
        bytes_received: by all clients together, in bytes.
    """

    sum: NDArray[Any]
    weight: int
    survivors: tuple[int, ...]
    rounding: RoundingError
    encoding: Encoding
    transcript: tuple[Event, ...]
    bytes_sent: int
    bytes_received: int

    @property
    def mean(self) -> NDArray[np.float64]:
        """``sum / weight``."""
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
    """Sum the rows of ``inputs`` so that nobody sees one of them: see `fedguard.secure_sum`.

    Raises:
        InputError: not a matrix of finite numbers, or weights that are no whole numbers from 0.
        ConfigError: too few clients, an unknown step, or sums that do not fit the ring.
        ProtocolError: too many clients dropped out.
    """
    settings = settings or Settings()
    if inputs.ndim != 2 or 0 in inputs.shape or inputs.dtype.kind not in "fiub" or not np.isfinite(inputs).all():
        raise InputError(f"inputs: expected finite numbers [n, d]; got {inputs.dtype} {list(inputs.shape)}.")
    clients, dim = inputs.shape
    claimed = [1] * clients if weights is None else [int(weight) for weight in weights]
    if len(claimed) != clients or min(claimed) < 0 or (weights is not None and list(weights) != claimed):
        raise InputError(f"weights: expected {clients} whole numbers from 0; got {weights}.")
    whole = inputs.dtype.kind != "f"
    encoding = _encoding(inputs, max(1, *claimed), clip, bits, rotate, settings.ring, whole)
    encoding.check(clients)
    rows = inputs.astype(np.float64)

    def vector(client: int, sid: bytes) -> RingVector:
        return encoding.encode(rows[client], weight=claimed[client], seed=sid, entropy=entropy)

    outcome = Federation(settings, entropy).run(
        round=1, clients=range(clients), length=encoding.length(dim), vector=vector, drop=drop
    )
    if outcome.error is not None or outcome.total is None:
        raise outcome.error or AssertionError("a round without sum and without error")
    total, weight = encoding.decode(outcome.total, dim=dim, seed=outcome.sid)
    return SecureSum(
        total.round().astype(np.int64) if whole else total,
        weight,
        outcome.included,
        RoundingError(0.0, 0.0, 0.0) if whole else encoding.error(len(outcome.included), dim),
        encoding,
        outcome.transcript,
        outcome.bytes_up,
        outcome.bytes_down,
    )


def _encoding(
    inputs: NDArray[Any], heaviest: int, clip: float | None, bits: int | None, rotate: bool, ring: int, whole: bool
) -> Encoding:
    """As exact as the ring allows. A clip that is not given is the smallest power of two that cuts nothing."""
    room = (2 ** (ring - 1) - 1) // len(inputs)
    if whole:
        given = clip is not None or bits is not None or rotate or heaviest > 1
        require(
            not given, "inputs: whole numbers are summed as they are. Pass floats for weights, clip, bits or rotate."
        )
        bits = int(np.abs(inputs.astype(np.int64)).max()).bit_length() + 1
        return Encoding(bits=max(2, bits), clip=2 ** (max(2, bits) - 1) - 1, ring=ring)
    largest = float(np.linalg.norm(inputs, axis=1).max() if rotate else np.abs(inputs).max())
    fitting = 2.0 ** math.ceil(math.log2(largest)) if largest > 0 else 1.0
    most = min(53, max(2, room.bit_length()))
    return Encoding(
        bits=most if bits is None else bits,
        clip=fitting if clip is None else clip,
        rotate=rotate,
        ring=ring,
        largest_weight=heaviest,
    )
