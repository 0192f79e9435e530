"""Record-level differential privacy: the noise of each party's DP-SGD, and what it proves.

Each step is a Gaussian mechanism on a Poisson sample of a client's examples (Abadi et al., CCS 2016), and all steps of all
rounds in which the client takes part are composed. Clients have different examples, so of several the worst counts, and
never the sum. Whoever sees each update knows who took part: sampling of clients amplifies nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from fedguard.contracts import DPSGD, LocalPlan, Participation, RecordNoise, Setup, Training
from fedguard.privacy.accounting import Epsilon, Event
from fedguard.privacy.gaussian import gaussian_event
from fedguard.privacy.planned import ASSUMPTIONS, least_noise
from fedguard.privacy.planned import spent as spent_on


def private_plan(setup: Setup) -> LocalPlan:
    """What an honest client does in one round, DP-SGD included where the protocol asks for it."""
    plan, noise = setup.training.plan(), setup.protocol.privacy
    if not isinstance(noise, RecordNoise):
        return plan
    return replace(plan, private=dp_sgd(noise, setup.training, setup.participation))


@lru_cache(maxsize=64)
def dp_sgd(noise: RecordNoise, training: Training, clients: Participation) -> DPSGD:
    """The clip and the noise of each level; where an epsilon is asked for, the least noise that keeps it.

    Raises:
        ConfigError: an epsilon that no noise reaches.
    """
    steps = steps_in_a_round(noise, training) * clients.participations(training.rounds)
    found = []
    for level in noise.parties:
        multiplier = level.noise_multiplier
        if multiplier is None:
            assert level.epsilon is not None  # `fedguard.config.protocol.check`
            multiplier = least_noise(
                epsilon=level.epsilon,
                delta=noise.delta,
                sample_rate=noise.sample_rate,
                steps=steps,
                sampling="poisson",
            )
        found.append((level.clip or noise.clip, multiplier))
    return DPSGD(sample_rate=noise.sample_rate, levels=tuple(found))


def steps_in_a_round(noise: RecordNoise, training: Training) -> int:
    """Local steps of one client in one round."""
    return training.plan().private_steps(noise.sample_rate)


def step_event(noise: RecordNoise, multiplier: float, steps: int) -> Event:
    """So many steps of DP-SGD."""
    return gaussian_event(
        noise_multiplier=multiplier,
        sample_rate=noise.sample_rate,
        steps=steps,
        sampling="poisson",
        unit="record",
        relation="add/remove",
        view="each client's updates",
        assumptions=(*ASSUMPTIONS, "malicious clients are promised nothing"),
    )


def spent(
    noise: RecordNoise, training: Training, clients: Participation, rounds: Mapping[int, int]
) -> dict[int, Epsilon]:
    """By the number of its level, what the client spent that took part most often; levels without clients are left out.

    Args:
        rounds: for each honest client, in how many rounds it took part.
    """
    private, local = dp_sgd(noise, training, clients), steps_in_a_round(noise, training)
    most: dict[int, int] = {}
    for client, count in rounds.items():
        level = client % len(private.levels)
        most[level] = max(most.get(level, 0), count)
    events = {level: step_event(noise, private.levels[level][1], local * most[level]) for level in sorted(most)}
    return dict(zip(events, spent_on(list(events.values()), noise.delta), strict=True))
