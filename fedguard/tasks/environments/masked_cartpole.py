"""CartPole without velocities, for which an actor needs a memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.tasks.environments.cartpole import CartPole, Carts


@dataclass(frozen=True, kw_only=True)
class MaskedCartPole(CartPole):
    """CartPole of which an actor sees position and angle alone, and no velocities: one look does not say where it goes."""

    name = "masked_cartpole"
    source = "Kapturowski et al., Recurrent Experience Replay in Distributed RL, ICLR 2019: partial observation"

    @property
    def shape(self) -> tuple[int, ...]:
        return (2,)

    def observe_state(self, state: Carts) -> NDArray[np.float32]:
        return state.x[:, [0, 2]].astype(np.float32)
