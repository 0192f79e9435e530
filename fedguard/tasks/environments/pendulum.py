"""Pendulum: swing a pole up and keep it there, as gymnasium's Pendulum-v1 has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Box, Environment, Step

GRAVITY, MASS, LENGTH, SECONDS, SPEED, TORQUE = 10.0, 1.0, 1.0, 0.05, 8.0, 2.0


@dataclass(frozen=True)
class Poles:
    """float64 ``[B, 2]``: angle from upright and angular velocity; and int64 ``[B]``: steps since the start."""

    x: NDArray[np.float64]
    steps: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Pendulum(Environment):
    """Swing a pole up by a torque that is too weak to lift it, for 200 steps.

    The reward of a step is $-(theta^2 + .1 omega^2 + .001 u^2)$ at the angle $theta$ in $[-pi, pi)$ from upright, with the
    torque $u$ in $[-2, 2]$; then $omega <- omega + (3 g sin theta / (2 l) + 3 u / (m l^2)) dt$, at most 8 either way, and
    $theta <- theta + omega dt$ with $dt = .05$ s. Observed are $(cos theta, sin theta, omega)$. No episode ends by itself: all
    are cut off.
    """

    name = "pendulum"
    source = "gymnasium's Pendulum-v1"
    best: ClassVar[float] = 0.0
    limit: ClassVar[int] = 200

    @property
    def bounds(self) -> tuple[float, float]:
        return -self.limit * (math.pi**2 + 0.1 * SPEED**2 + 0.001 * TORQUE**2), 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return (3,)

    @property
    def actions(self) -> Box:
        return Box(1, -TORQUE, TORQUE)

    def start_episodes(self, copies: int, rng: np.random.Generator) -> Poles:
        return Poles(_draw_state(copies, rng), np.zeros(copies, np.int64))

    def observe_state(self, state: Poles) -> NDArray[np.float32]:
        angle, omega = state.x.T
        return np.stack([np.cos(angle), np.sin(angle), omega], axis=1).astype(np.float32)

    def take_step(self, state: Poles, actions: NDArray[Any]) -> Step:
        angle, omega = state.x.T
        u = np.clip(actions[:, 0], -TORQUE, TORQUE)
        from_top = ((angle + np.pi) % (2 * np.pi)) - np.pi
        costs = from_top**2 + 0.1 * omega**2 + 0.001 * (u**2)
        faster = omega + (3 * GRAVITY / (2 * LENGTH) * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * u) * SECONDS
        faster = np.clip(faster, -SPEED, SPEED)
        steps = state.steps + 1
        now = Poles(np.stack([angle + faster * SECONDS, faster], axis=1), steps)
        return Step(now, -costs, np.zeros(len(costs), bool), steps >= self.limit)

    def restart_episodes(self, state: Poles, over: NDArray[np.bool_], rng: np.random.Generator) -> Poles:
        x, steps = state.x.copy(), np.where(over, 0, state.steps)
        x[over] = _draw_state(int(over.sum()), rng)
        return Poles(x, steps)


def _draw_state(copies: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.uniform([-math.pi, -1.0], [math.pi, 1.0], (copies, 2))
