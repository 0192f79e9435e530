"""The privacy guarantee in a record."""

from __future__ import annotations

from typing import NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from fedguard.bench.records.schema.types import STRICT
from fedguard.metrics.quantities import Amount, Count, Share


class PrivacyLevelRecord(TypedDict):
    """One privacy level of DP-SGD.

    Attributes:
        epsilon: of this level.
        clip: the length to which gradients are cut.
        noise_multiplier: the noise's deviation, in clips.
    """

    epsilon: Amount | None
    clip: Amount
    noise_multiplier: Amount


class Clips(TypedDict):
    """Of adaptive clipping.

    Attributes:
        first, least, most: the length to which updates were cut.
    """

    first: Amount
    least: Amount
    most: Amount


class ClientMetric(TypedDict):
    """A metric over honest clients.

    Attributes:
        least, median, most: of them.
    """

    least: Amount | None
    median: Amount | None
    most: Amount | None


class Ledger(TypedDict):
    """The releases of each honest client in simulated time; see `fedguard.privacy.ledger`.

    Attributes:
        counted: ``as it ran``: counts the actual updates, not the ones that a plan allows.
        clients: number of clients.
        releases: trainings that have ended, for noise of the clients' own; noisy sums that hold the client, for a server's.
        shift: sensitivity of all noisy sums together to one client, in clips.
        epsilon: by shift; the largest is reported.
    """

    counted: str
    clients: Count
    releases: ClientMetric
    shift: NotRequired[ClientMetric]
    epsilon: NotRequired[ClientMetric]


@with_config(ConfigDict(extra="allow", **STRICT))
class Privacy(TypedDict):
    """The guarantee of the noise with its assumptions, and further facts of its kind; see
    `fedguard.contracts.noise.PrivacyGuarantee`.

    Attributes:
        kind: of noise.
        epsilon, delta: the guarantee; null without one.
        why: the reason if there is no guarantee.
        unit, relation: what is hidden, and which two data sets are neighbors.
        sampling, view: who takes part, and what the adversary sees.
        accountant, bound: the accountant, and whether its result is a bound rather than exact.
        assumptions: in words.
        mechanism: of the noise.
        noise_multiplier, clip: standard deviation of the noise in clips, and the clipping length.
        rounds, steps_in_a_round: number of composed rounds and steps.
        units: number of units to be hidden.
        levels: the privacy levels, if there are several.
        sample_rate: of a batch, or a round.
        divided_by: what the sum is divided by.
        clips: of adaptive clipping.
        bit_noise: the deviation of the noise on its counts.
        bands: of a matrix mechanism.
        expected_contributors, contributors: clients in a sum, as planned, and the fewest there were.
        ledger: the releases of each client, in simulated time.
        may_withhold, most_hostile: clients that may leave out their noise, and the most malicious ones in a round.
    """

    kind: str
    epsilon: Amount | None
    why: str | None
    delta: NotRequired[Share]
    unit: NotRequired[str]
    relation: NotRequired[str]
    sampling: NotRequired[str]
    view: NotRequired[str]
    accountant: NotRequired[str]
    bound: NotRequired[bool]
    assumptions: NotRequired[list[str]]
    mechanism: str
    noise_multiplier: Amount | None
    clip: Amount | None
    rounds: Count
    units: NotRequired[Count]
    levels: NotRequired[list[PrivacyLevelRecord]]
    sample_rate: NotRequired[Share]
    divided_by: NotRequired[Count | None]
    steps_in_a_round: NotRequired[Count]
    clips: NotRequired[Clips | None]
    bit_noise: NotRequired[Amount | None]
    bands: NotRequired[Count]
    expected_contributors: NotRequired[Count]
    contributors: NotRequired[Count | None]
    may_withhold: NotRequired[Count]
    most_hostile: NotRequired[Count]
    ledger: NotRequired[Ledger]
