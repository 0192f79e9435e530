"""Releases of each client if no sampling hides who takes part: asynchronous servers, over-selection, first K of N.

Speeds, which are public, determine who sends when. So nothing amplifies: each release counts in full.

Noise at the server. Sum t publishes $sum_i w_i clip(u_i) + N(0, (z C)^2)$. The weights follow from the ages of the updates
(staleness) and are public. A client with several updates in one sum, each at most C long, moves it by up to $C d_t$, with
$d_t$ the sum of their weights, since they may all point the same way: two updates of weight 1 in one buffer cost as much as
four in four buffers. All sums together are one Gaussian mechanism:

    D = sqrt(d_1^2 + ... + d_T^2),      noise multiplier z / D,      and so mu = D / z

A client with one update of weight 1 in each of R sums has D = sqrt(R), as in R rounds in which all take part.

Noise in each client's own training. Whatever follows the noise, including the weight of an update, is post-processing. So only
the client's trainings are counted.

Source: Dong, Roth and Su, Gaussian Differential Privacy, JRSS B 2022 (composition of Gaussian mechanisms is exact).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from fedguard.contracts import RoundReport
from fedguard.privacy.accounting import Event
from fedguard.privacy.gaussian import gaussian_event

#: What counting each client's releases rests on.
PUBLIC_TIMES = (
    "who sends when, and from which model, is public and does not follow from anybody's examples; no sampling of clients is "
    "counted on"
)


def trainings(reports: Sequence[RoundReport]) -> Counter[int]:
    """Completed trainings of each client, whatever became of their updates, since somebody may have seen them."""
    moments = [one.moment for one in reports if one.moment is not None]
    return Counter(one.client for moment in moments for one in moment.trainings)


def shifts(reports: Sequence[RoundReport]) -> dict[int, float]:
    """For each client, D: by how many clips it moves all released noisy sums together."""
    squares: dict[int, float] = {}
    for one in reports:
        for weights in one.moment.weighed if one.moment else ():
            for client, weight in weights.items():
                # weight is d_t, all weights of the client in one sum: the sums have independent noise, so their squares add up.
                squares[client] = squares.get(client, 0.0) + weight**2
    return {client: math.sqrt(square) for client, square in squares.items()}


def sums_with(reports: Sequence[RoundReport]) -> Counter[int]:
    """For each client, the number of noisy sums that contain its updates."""
    moments = [one.moment for one in reports if one.moment is not None]
    return Counter(client for moment in moments for weights in moment.weighed for client in weights)


def honest(reports: Sequence[RoundReport], clients: int) -> list[int]:
    """The clients that never acted for an attack; malicious clients have no guarantee."""
    acted = frozenset[int]().union(*(one.malicious for one in reports))
    return [client for client in range(clients) if client not in acted]


def spread(counts: Mapping[int, float], clients: Collection[int]) -> dict[str, Any]:
    """Least, median and largest count of these clients; a client without a count has 0."""
    values = [counts.get(client, 0) for client in clients]
    return {"least": min(values, default=0), "median": median(values) if values else 0, "most": max(values, default=0)}


def finite(epsilon: float) -> float | None:
    """Epsilon for a record; None for no guarantee."""
    return epsilon if math.isfinite(epsilon) else None


def shift_event(noise_multiplier: float, shift: float, assumptions: tuple[str, ...]) -> Event:
    """All noisy sums of a training in simulated time as one event; one client moves them by ``shift`` clips together.

    Args:
        noise_multiplier: z, standard deviation over the clip of the noise on each sum.
        shift: D, more than 0.
    """
    # Gaussian mechanisms compose exactly, so sums of different weights are one release of D clips against noise of z clips.
    one = gaussian_event(
        noise_multiplier=noise_multiplier / shift,
        sample_rate=1.0,
        steps=1,
        sampling="none",
        unit="client",
        view="the published models",
        assumptions=(
            *assumptions,
            PUBLIC_TIMES,
            f"updates are cut to a length of C, and a client moves all sums together by at most {shift:.6g} C, against noise "
            f"of {noise_multiplier:.6g} C on each: its updates in one sum add up by their weights",
        ),
    )
    return replace(one, assumptions=one.assumptions[1:])  # the first speaks of a single sum
