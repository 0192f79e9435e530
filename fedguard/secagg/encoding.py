"""Real vectors as ring vectors: clip, scale, round at random, wrap.

    z = round(S * (w / W) * clip(x, -C, C))  in Z_2^l, two's complement,      S = (2^(bits - 1) - 1) / C

and the weight w itself in one more coordinate. Rounding goes up with the probability of the fraction, so that
E[z] = S (w / W) x. Then n honest inputs add up to S / W * sum_u w_u x_u, exactly except for the rounding, provided that the
sum of the n largest inputs cannot wrap around, which `Encoding.check` ensures before anything runs.

With the rotation, x is first rotated and then clipped: the coordinates that are sent must fit the ring, and those of a rotated
vector of [-C, C]^d reach C sqrt(m).

Source: Bonawitz et al. 2017 (sums in a ring), Suresh et al. 2017 (stochastic rounding and rotation), Kairouz et al. 2021.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError, InputError, brief, require
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.masks import RingVector, keystream
from fedguard.secagg.rotation import rotate, rotate_back

Vector = NDArray[np.floating[Any]]

#: Beyond this, float64 does not resolve a step.
_MOST_BITS = 53
#: The ring's two's complement range in float64, which has no number between 2^63 - 1024 and 2^63.
_RANGE = {32: (-(2.0**31), 2.0**31 - 1), 64: (-(2.0**63), 2.0**63 - 1024)}
_SIGNED = {32: np.int32, 64: np.int64}
_UNSIGNED = {32: np.uint32, 64: np.uint64}
#: Coordinates per block; its scratch memory fits the second-level cache of a core.
_BLOCK = 1 << 15


class OverflowBudgetError(ConfigError):
    """The sum of the largest honest inputs, or of the weights, could wrap around the ring."""


class RoundingError(NamedTuple):
    """How far rounding alone moves one coordinate of a decoded sum, in the unit of the input.

    Attributes:
        typical: standard deviation if the fractions are uniform, as for coordinates of many steps: ``sqrt(n / 6) W / S``. For
            coordinates far smaller than a step it is less, at the full weight W about ``sqrt(n W |x| / S)``.
        largest: standard deviation if every fraction is one half, the maximum: ``sqrt(n) / 2 * W / S``.
        worst: bound on every sum: ``n W / S``; times ``sqrt(d)`` with the rotation, since its rows have at most that l1 norm.
    """

    typical: float
    largest: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How the parties of a session write real vectors as ring vectors, and read the sum.

    Args:
        bits: bits of one client's coordinate, with its sign.
        clip: C, the largest absolute value of a coordinate that is sent.
        rotate: whether vectors are rotated before they are clipped.
        ring: l, bits of a ring element: 32 or 64.
        largest_weight: W, the largest weight of a client.
    """

    bits: int = 20
    clip: float = 4.0
    rotate: bool = False
    ring: int = 32
    largest_weight: int = 1

    def __post_init__(self) -> None:
        require(isinstance(self.bits, int | np.integer), f"bits: expected a whole number; got {brief(self.bits)}.")
        require(2 <= self.bits <= _MOST_BITS, f"bits: expected from 2 to {_MOST_BITS}; got {brief(self.bits)}.")
        require(0 < self.clip < math.inf, f"clip: expected a positive number; got {self.clip}.")
        fine = self.steps / sys.float_info.max
        require(
            self.clip > fine,
            f"clip: expected more than {fine:.3g}, or a step is finer than a float64; got {self.clip}.",
        )
        require(self.ring in (32, 64), f"ring: expected 32 or 64 bits; got {self.ring}.")
        require(self.largest_weight >= 1, f"largest_weight: expected at least 1; got {self.largest_weight}.")

    @property
    def steps(self) -> int:
        """S C, the largest honest coordinate in the ring."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def scale(self) -> float:
        """S, ring units per unit of the input."""
        return self.steps / self.clip

    def check(self, clients: int, noise_tail: int = 0) -> None:
        """Check that no honest sum wraps: ``n max(S C + 1, W) + tail <= 2^(l - 1) - 1``.

        Args:
            clients: n.
            noise_tail: bound on the absolute value of the summed noise, in ring units.

        Raises:
            OverflowBudgetError: a sum could wrap; the message says what to change.
        """
        # A sum that fits the ring must fit a float64 once it is decoded
        if clients * self.largest_weight > sys.float_info.max / self.clip:
            raise OverflowBudgetError(
                f"clip: the sum of {clients} clients with weights up to {self.largest_weight} and numbers up to "
                f"{self.clip:.3g} is more than a float64 holds. Lower clip."
            )
        room, largest = 2 ** (self.ring - 1) - 1, max(self.steps + 1, self.largest_weight)
        needed = clients * largest + noise_tail
        if needed <= room:
            return
        remedies = []
        share = (room - noise_tail) // clients  # what one client may take
        # b = share.bit_length() bits make S C + 1 = 2^(b - 1) <= share
        if share >= max(2, self.largest_weight):
            remedies.append(f"lower bits to {share.bit_length()}")
        elif share >= self.steps + 1:
            remedies.append(f"lower largest_weight to {share}")
        if room - noise_tail >= 3 * largest:  # fewer clients are no session
            remedies.append(f"lower the number of clients to {(room - noise_tail) // largest}")
        if self.ring == 32 and needed < 2**63:
            remedies.append("set ring: 64")
        raise OverflowBudgetError(
            f"{self.bits} bits, weights up to {self.largest_weight} and noise up to {noise_tail}: the sum of {clients} "
            f"clients may reach {needed}, expected at most {room} in a ring of {self.ring} bits. "
            f"{(', or '.join(remedies) or 'lower bits, weights and noise').capitalize()}."
        )

    def length(self, dim: int) -> int:
        """Ring elements that are sent for a vector of ``dim`` coordinates: those, and the weight."""
        return dim + 1

    def encode(self, vector: Vector, *, weight: int = 1, seed: bytes, entropy: Entropy = system) -> RingVector:
        """uint32 or uint64 ``[d + 1]``: an honest client's input.

        Args:
            vector: floating ``[d]``.
            weight: w, from 0 to W.
            seed: of the rotation; the same for all clients of a session.
            entropy: 32 bytes of it decide the rounding.

        Raises:
            InputError: not a vector of finite numbers, or a weight out of range.
        """
        if not 0 <= weight <= self.largest_weight:
            raise InputError(f"weight: expected from 0 to largest_weight = {self.largest_weight}; got {weight}.")
        most = self.steps * (weight / self.largest_weight)
        return self._round_vector(vector, weight, -most, most, seed, entropy)

    def encode_raw(self, vector: Vector, *, weight: int = 1, seed: bytes, entropy: Entropy = system) -> RingVector:
        """uint32 or uint64 ``[d + 1]``: what a malicious client can put into the sum instead, since nobody sees its input.

        Nothing is clipped by C, and the weight, which still multiplies the vector, is any integer. Values outside the ring
        saturate at -2^(l-1) or 2^(l-1) - 1 (for l = 64 at 2^63 - 1024, the largest float64 below); the sum with the other
        inputs may then wrap around.

        Raises:
            InputError: not a vector of finite numbers. The ring has no infinity and no NaN.
        """
        low, high = _RANGE[self.ring]
        return self._round_vector(vector, min(max(weight, int(low)), int(high)), low, high, seed, entropy)

    def decode(self, total: RingVector, *, dim: int, seed: bytes) -> tuple[NDArray[np.float64], int]:
        """The weighted sum ``sum_u w_u x_u`` (float64 ``[d]``) and the sum of the weights.

        Both are as the clients sent them: one malicious weight can make the sum of the weights zero or negative.

        Raises:
            InputError: a ring vector of another length or ring.
        """
        if total.shape != (self.length(dim),) or total.dtype != _UNSIGNED[self.ring]:
            raise InputError(
                f"total: expected {self.length(dim)} elements of uint{self.ring}; got {total.dtype} {list(total.shape)}."
            )
        signed = total.view(_SIGNED[self.ring])
        values = signed[:-1] * (self.largest_weight / self.scale)
        return (rotate_back(values, seed) if self.rotate else values), int(signed[-1])

    def error(self, clients: int, dim: int) -> RoundingError:
        """How far rounding moves a coordinate of the sum of ``clients`` vectors of ``dim`` coordinates."""
        step = self.largest_weight / self.scale
        spread = math.sqrt(dim) if self.rotate else 1.0
        return RoundingError(math.sqrt(clients / 6) * step, math.sqrt(clients) / 2 * step, clients * step * spread)

    def clip_fraction(self, vector: Vector, *, seed: bytes) -> float:
        """The share of coordinates that clipping changes."""
        return float((np.abs(self._rotate_vector(vector, seed)) > self.clip).mean())

    def _rotate_vector(self, vector: Vector, seed: bytes) -> Vector:
        """The vector before clipping and scaling: floating ``[d]``, finite."""
        if vector.ndim != 1 or vector.size == 0 or vector.dtype.kind != "f":
            raise InputError(f"vector: expected floating numbers [d]; got {vector.dtype} {list(vector.shape)}.")
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            values = rotate(vector, seed) if self.rotate else vector
        if not np.isfinite(values).all():
            raise InputError("vector: expected finite numbers; got NaN, infinity or what overflows in the rotation.")
        return values

    def _round_vector(
        self, vector: Vector, weight: int, low: float, high: float, seed: bytes, entropy: Entropy
    ) -> RingVector:
        """``z`` between low and high, and the weight; block by block, so that memory holds little besides input and output."""
        values = self._rotate_vector(vector, seed)
        # 32 fresh bits for each coordinate: reused ones would correlate the rounding errors
        draws = np.frombuffer(keystream(entropy(32), 4 * values.size), "<u4")
        # float64, also for float32 vectors: S C has up to 53 bits
        factor = np.float64(self.scale * (weight / self.largest_weight))
        out = np.empty(self.length(values.size), _UNSIGNED[self.ring])
        for start in range(0, values.size, _BLOCK):
            block = slice(start, min(start + _BLOCK, values.size))
            with np.errstate(over="ignore"):  # it saturates
                fraction = np.clip(values[block] * factor, low, high)
            whole = np.floor(fraction)
            fraction -= whole
            whole += draws[block] * 2.0**-32 < fraction  # up with probability f, to within 2^-32; integers never move
            out[block] = whole.astype(np.int64)
        out[-1] = weight % 2**self.ring
        return out
