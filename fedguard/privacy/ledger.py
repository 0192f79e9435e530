"""What each client has released where no sampling hides who takes part: asynchronous servers, over-selection, first K of N.

Who sends when follows from speeds, which are no secret, so that nothing amplifies: each release counts in full.

Noise at the server. Sum t publishes $sum_i w_i clip(u_i) + N(0, (z C)^2)$. The weights follow from the ages of the updates
(staleness) and are public. A client with several updates in one sum, each at most C long, moves it by as much as
$C d_t$ with $d_t$ the sum of their weights, since nothing keeps them from pointing the same way: two updates of weight 1 in one
buffer cost as much as four in four buffers. All sums together are one Gaussian mechanism:

    D = sqrt(d_1^2 + ... + d_T^2),      noise multiplier z / D,      and so mu = D / z

A client that is once in each of R sums at weight 1 has D = sqrt(R), as R rounds in which all take part.

Noise in each client's own training. What happens to an update after the noise, its weight too, is post-processing, so its
trainings are counted, and nothing else.

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
    """For each client, how many of its trainings have ended: whatever became of them, since somebody may have seen them."""
    moments = [one.moment for one in reports if one.moment is not None]
    return Counter(span.client for moment in moments for span in moment.spans)


def shifts(reports: Sequence[RoundReport]) -> dict[int, float]:
    """For each client, by how many clips it moves all noisy sums together: D, by the ledger of what was released."""
    squares: dict[int, float] = {}
    for one in reports:
        for weights in one.moment.weighed if one.moment else ():
            for client, weight in weights.items():
                squares[client] = squares.get(client, 0.0) + weight**2
    return {client: math.sqrt(square) for client, square in squares.items()}


def sums_with(reports: Sequence[RoundReport]) -> Counter[int]:
    """For each client, in how many noisy sums its updates are."""
    moments = [one.moment for one in reports if one.moment is not None]
    return Counter(client for moment in moments for weights in moment.weighed for client in weights)


def honest(reports: Sequence[RoundReport], clients: int) -> list[int]:
    """The clients that never acted for an attack; malicious ones are promised nothing."""
    acted = frozenset[int]().union(*(one.malicious for one in reports))
    return [client for client in range(clients) if client not in acted]


def spread(counts: Mapping[int, float], clients: Collection[int]) -> dict[str, Any]:
    """The least, the median and the most of these clients; one that is not counted has 0."""
    values = [counts.get(client, 0) for client in clients]
    return {"least": min(values, default=0), "median": median(values) if values else 0, "most": max(values, default=0)}


def finite(epsilon: float) -> float | None:
    """For a record: None for no guarantee."""
    return epsilon if math.isfinite(epsilon) else None


def shift_event(noise_multiplier: float, shift: float, assumptions: tuple[str, ...]) -> Event:
    """All noisy sums of a training in simulated time, which one client moves by ``shift`` clips together.

    Args:
        noise_multiplier: z, standard deviation over the clip of the noise on each sum.
        shift: D, more than 0.
    """
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
