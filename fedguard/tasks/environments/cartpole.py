"""CartPole: balance a pole on a cart (Barto, Sutton & Anderson, 1983), as gymnasium's CartPole-v1 has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Choices, Environment, Step

GRAVITY, CART, POLE, LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MASS, MOMENT = POLE + CART, POLE * LENGTH
FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360


@dataclass(frozen=True)
class Carts:
    """float64 ``[B, 4]``: position, velocity, angle, angular velocity; and int64 ``[B]``: steps since the start."""

    x: NDArray[np.float64]
    steps: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class CartPole(Environment):
    """Push a cart left or right so that the pole on it stays up: a reward of 1 for each step, for 500 steps at most.

    The state is $(x, v, theta, omega)$, and a push of $F = 10$ or $-10$ N accelerates the pole by
    $alpha = (g sin theta - p cos theta) / (l (4/3 - m cos^2 theta / M))$ with $p = (F + m l omega^2 sin theta) / M$, and the
    cart by $a = p - m l alpha cos theta / M$; each is stepped by Euler's method for .02 s. An episode ends where $|x| > 2.4$ m
    or $|theta| > 12$ degrees, and is cut off after 500 steps. It counts as solved at a mean return of 475 over 100 episodes.
    """

    name = "cartpole"
    source = "Barto, Sutton and Anderson, Neuronlike Adaptive Elements, IEEE SMC 1983; gymnasium's CartPole-v1"
    best: ClassVar[float] = 500.0
    limit: ClassVar[int] = 500

    @property
    def bounds(self) -> tuple[float, float]:
        return 1.0, float(self.limit)

    @property
    def shape(self) -> tuple[int, ...]:
        return (4,)

    @property
    def actions(self) -> Choices:
        return Choices(2)

    def start_episodes(self, copies: int, rng: np.random.Generator) -> Carts:
        return Carts(rng.uniform(-0.05, 0.05, (copies, 4)), np.zeros(copies, np.int64))

    def observe_state(self, state: Carts) -> NDArray[np.float32]:
        return state.x.astype(np.float32)

    def take_step(self, state: Carts, actions: NDArray[Any]) -> Step:
        x, v, theta, omega = state.x.T
        force = np.where(actions == 1, FORCE, -FORCE)
        cos, sin = np.cos(theta), np.sin(theta)
        push = (force + MOMENT * np.square(omega) * sin) / MASS
        alpha = (GRAVITY * sin - cos * push) / (LENGTH * (4.0 / 3.0 - POLE * np.square(cos) / MASS))
        a = push - MOMENT * alpha * cos / MASS
        now = np.stack([x + SECONDS * v, v + SECONDS * a, theta + SECONDS * omega, omega + SECONDS * alpha], axis=1)
        over = (np.abs(now[:, 0]) > FARTHEST) | (np.abs(now[:, 2]) > STEEPEST)
        steps = state.steps + 1
        return Step(Carts(now, steps), np.ones(len(now)), over, steps >= self.limit)

    def restart_episodes(self, state: Carts, over: NDArray[np.bool_], rng: np.random.Generator) -> Carts:
        x, steps = state.x.copy(), np.where(over, 0, state.steps)
        x[over] = rng.uniform(-0.05, 0.05, (int(over.sum()), 4))
        return Carts(x, steps)
