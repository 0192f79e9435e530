"""How strong a noise hides each round's mean: public, and so known to whoever trains shadow models."""

from __future__ import annotations

import math
from dataclasses import asdict

from fedguard.contracts import ClientNoise, DistributedNoise, Setup
from fedguard.privacy.central import central
from fedguard.privacy.planned import distributed
from fedguard.secagg.encoding import Encoding


def round_noise(setup: Setup) -> float:
    """Standard deviation in each coordinate of a round's mean: ``z C / m``, m being the clients of a round.

    Of distributed noise each client adds the share with which the honest ones alone would reach z C. What clients add to
    their own steps (DP-SGD) is not in it. Of an adaptive clip C is the first.
    """
    noise, clients = setup.protocol.privacy, setup.participation
    if isinstance(noise, ClientNoise):
        mechanism = central(noise, clients, setup.training.rounds)
        return mechanism.sum_noise * mechanism.start().clip / clients.expected
    if isinstance(noise, DistributedNoise):
        honest = setup.protocol.session(clients.expected, clients.most).honest
        scale = Encoding(**asdict(setup.protocol.fixed_point)).scale
        plan = distributed(noise, rounds=setup.training.rounds, contributors=honest, dim=setup.task.dim, scale=scale)
        return plan.noise_multiplier * noise.clip / math.sqrt(honest * clients.expected)
    return 0.0
