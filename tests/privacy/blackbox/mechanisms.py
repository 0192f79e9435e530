"""Mechanisms that keep an epsilon of 4 for any two updates, and the same with one planted fault each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedguard.privacy.blackbox.claim import EpsilonClaim
from fedguard.privacy.blackbox.mechanism import BlackBoxMechanism, Released

#: Lopsided: four layers of which one has a single number.
SHAPES = ((3, 4), (7,), (1,), (2, 3))
GAUSSIAN = EpsilonClaim(epsilon=4, delta=1e-5, relation="replace", law="gaussian")
PURE = EpsilonClaim(epsilon=4, relation="replace")
#: Two updates of length 1 are at most 2 apart.
SIGMA = 2 / GAUSSIAN.mu
B = 2 / 4

Function = Callable[[list[np.ndarray]], object]


class Given(BlackBoxMechanism):
    """A function that is made anew for each call."""

    def __init__(self, make: Callable[[], Function], shapes: tuple[tuple[int, ...], ...] = SHAPES) -> None:
        self.name, self.shapes, self._make = "given", shapes, make

    def fresh(self):
        function = self._make()

        def release(arrays):
            found = function(list(arrays))
            arrays, beside = found if isinstance(found, tuple) else (found, {})
            return Released(tuple(arrays), beside)

        return release


def clip(update, most=1.0, order=2):
    length = float(np.linalg.norm(np.concatenate([one.ravel() for one in update]).astype(np.float64), order))
    return [one * min(1.0, most / max(length, 1e-12)) for one in update]


class Faults:
    """All mechanisms of one generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def noise(self, update, scale=SIGMA):
        return [one + self.rng.normal(0, scale, one.shape) for one in update]

    def laplace(self, update):
        return [one + self.rng.laplace(0, B, one.shape) for one in update]

    # Right ones

    def gaussian(self, update):
        return self.noise(clip(update))

    def laplace_l1(self, update):
        return self.laplace(clip(update, order=1))

    def on_a_grid(self, update):
        """Rounding after the noise is post-processing."""
        return [np.round(one * 64) / 64 for one in self.gaussian(update)]

    def skipping(self, update):
        """Sends nothing in half of the calls, whatever the update."""
        return [np.zeros_like(one) for one in update] if self.rng.random() < 0.5 else self.gaussian(update)

    def constant(self, update):
        return [np.full(one.shape, 0.25) for one in update]

    def randomized_response(self, update):
        """The sign of the first number, told truly with probability e^4 / (1 + e^4), in each layer as one number."""
        truth = 1.0 if update[0].flat[0] > 0 else -1.0
        keep = self.rng.random() < math.exp(4) / (1 + math.exp(4))
        return [np.full((1,), truth if keep else -truth)]

    # Wrong ones

    def half(self, update):
        return self.noise(clip(update), SIGMA / 2)

    def each_layer(self, update):
        return self.noise([clip([one])[0] for one in update])

    def signed_zeros(self, update):
        """Sends nothing in half of the calls, but its zeros keep the signs of the update."""
        return [one * 0 for one in update] if self.rng.random() < 0.5 else self.gaussian(update)

    def clipped_after(self, update):
        return clip(self.noise(update))

    def no_clip(self, update):
        return self.noise(update)

    def bare_layer(self, update):
        clipped = clip(update)
        return [*self.noise(clipped[:-1]), clipped[-1]]

    def coins(self, update):
        return [one + SIGMA * self.rng.choice([-1.0, 1.0], one.shape) for one in clip(update)]

    def laplace_l2(self, update):
        return self.laplace(clip(update))

    def sometimes_bare(self, update):
        return clip(update) if self.rng.random() < 0.05 else self.gaussian(update)

    def scaled(self, update):
        """The noise follows the length of the update."""
        return self.noise(clip(update), SIGMA * (0.5 + min(2.0, float(np.abs(update[0]).max()))))

    def identity(self, update):
        return update

    def tells_loss(self, update):
        return self.gaussian(update), {"loss": float(np.abs(update[0]).sum()), "version": 3}

    def raises_beyond(self, update):
        if max(float(np.abs(one).max()) for one in update) > 50:
            raise ValueError("too long")
        return self.gaussian(update)

    def clipped_each_value(self, update):
        return self.noise([np.clip(one, -1, 1) for one in update])

    def noisy_half(self, update):
        """Noise on a random half of the numbers."""
        return [one + self.rng.normal(0, SIGMA, one.shape) * self.rng.integers(0, 2, one.shape) for one in clip(update)]

    def scalars_left(self, update):
        return [one if one.ndim == 0 else self.rng.normal(0, SIGMA, one.shape) + one for one in clip(update)]

    def floats_alone(self, update):
        """Arrays of whole numbers are taken for counters and left as they are."""
        noisy = self.gaussian([one.astype(np.float64) for one in update])
        return [one if one.dtype.kind == "i" else other for one, other in zip(update, noisy, strict=True)]

    def seeded(self):
        generator = np.random.default_rng(7)
        return lambda update: [one + generator.normal(0, SIGMA, one.shape) for one in clip(update)]

    def repeating(self):
        drawn: list[np.ndarray] = []

        def release(update):
            clipped = clip(update)
            drawn.extend([] if drawn else [self.rng.normal(0, SIGMA, one.shape) for one in clipped])
            return [one + noise for one, noise in zip(clipped, drawn, strict=True)]

        return release


class Living:
    """Mechanisms that their calls change; each is made anew for each sample."""

    drawn = np.random.default_rng()

    def __init__(self):
        self.calls = 0

    def __call__(self, update):
        self.calls += 1
        return [one + self.drawn.normal(0, self.scale(), one.shape) for one in clip(update)]

    def scale(self):
        raise NotImplementedError


class Growing(Living):
    """Right: the noise grows."""

    def scale(self):
        return SIGMA * (1 + self.calls / 10)


class Exhausted(Living):
    """Right: after ten calls it sends nothing."""

    def scale(self):
        return SIGMA

    def __call__(self, update):
        return [np.zeros_like(one) for one in update] if self.calls >= 10 else super().__call__(update)


class Fading(Living):
    """Wrong: the noise falls to a tenth."""

    def scale(self):
        return SIGMA * max(0.1, 1 - self.calls / 10)


class Forgetful(Living):
    """Wrong: after thirty calls there is no noise."""

    def scale(self):
        return SIGMA if self.calls <= 30 else 0.0


class Reusing(Living):
    """Wrong: each second call has the noise of the call before, with the other sign."""

    kept: Sequence[np.ndarray] = ()

    def __call__(self, update):
        self.calls += 1
        if self.calls % 2:
            self.kept = [self.drawn.normal(0, SIGMA, one.shape) for one in update]
        sign = 1 if self.calls % 2 else -1
        return [one + sign * noise for one, noise in zip(clip(update), self.kept, strict=True)]
