"""The result of a training: what a record holds of it, inference aside."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from fedguard.bench.schema.card import Session
from fedguard.bench.schema.inference import Inference
from fedguard.bench.schema.types import Amount, Change, Count, Number, Share


class Curve(TypedDict):
    """What was evaluated, round by round; None is a loss that is not finite, and the success of no backdoor."""

    round: list[Count]
    accuracy: list[Share]
    backdoor: list[Share | None]
    loss: list[float | None]


class Rounds(TypedDict):
    """Numbers of rounds, and of updates in them; see `fedguard.metrics.trajectory.summarise`."""

    total: Count
    updates: Count
    not_finite: Count
    too_large: NotRequired[Count]
    abandoned: Count
    why_abandoned: str | None
    worst_hostile_share: Share
    outvoted: Count
    silent: Count


class Aggregate(TypedDict):
    """The largest kappa that a round showed; means of the cosine with the honest mean and of the malicious updates' length."""

    kappa: Number | None
    cosine: Number | None
    hostile_length: Number | None


class Excluded(TypedDict):
    """The honest client that was excluded most often, and the share of its rounds in which it was."""

    client: Count
    share: Share


class Filter(TypedDict):
    """How well a rule that gives some updates no weight finds the malicious ones."""

    precision: Share | None
    recall: Share | None
    honest_excluded: Share | None
    most_excluded: Excluded | None


class Effect(TypedDict):
    """What the attack left of the rule's progress, beside the most harmful of its siblings."""

    none: Number
    attack: Number
    sibling: Number
    by: str


class Minority(TypedDict):
    """An honest client with rare classes."""

    client: Count
    classes: list[Count]
    excluded: Share | None
    accuracy: Share | None


class Corners(TypedDict):
    """Final accuracies without attack, with silent colluders and with the attack; under the plain mean and the defense."""

    clean_mean: Share | None
    clean_defense: Share | None
    attack_mean: Share | None
    attack_defense: Share | None
    silent_mean: NotRequired[Share | None]
    silent_defense: NotRequired[Share | None]


class References(TypedDict):
    """What a server with clean data reaches alone; ``oracle_mean``: earlier versions' name of the corner ``silent_mean``."""

    root_only: NotRequired[Share | None]
    oracle_mean: NotRequired[Share | None]


class Durability(TypedDict):
    """How many rounds a backdoor outlived the attack."""

    rounds: Count
    survived: bool


class Off(TypedDict):
    """How far decoded sums were off, in lengths of the true mean."""

    mean: Amount
    max: Amount


class LeftOut(TypedDict):
    """How many clients the protocol had left out in the end."""

    hostile: Count
    honest: Count


class Sums(TypedDict):
    """See `fedguard.metrics.masking.masked`."""

    mode: str
    rounds: Count
    sessions: Count
    aborted_sessions: Count
    why_aborted: str | None
    aborted_rounds: Count
    survivors: Amount
    anonymity: int | None
    error: Off | None
    clipped: Share
    bytes_up: Amount
    bytes_down: Amount
    left_out: LeftOut
    parameters: Session
    labels: list[str]


class Level(TypedDict):
    """One privacy level of DP-SGD."""

    epsilon: Amount | None
    clip: Amount
    noise_multiplier: Amount


class Clips(TypedDict):
    """Of adaptive clipping."""

    first: Amount
    least: Amount
    most: Amount


class Privacy(TypedDict):
    """What noise proves, with all that it rests on; see `fedguard.bench.protocol.privacy_spent`."""

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
    levels: NotRequired[list[Level]]
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


class Score(TypedDict):
    """One attack of an ensemble: over how many selection seeds, and the accuracy that it left."""

    attack: str
    seeds: Count
    accuracy: Share | None
    failed: bool


class Saturation(TypedDict):
    """See `fedguard.bench.selection.saturation`."""

    families: Count
    curve: list[Number]
    last_gain: Number
    further: Number


class WorstCase(TypedDict):
    """How the worst of an ensemble was chosen; see `fedguard.bench.selection.Selection.report`."""

    ensemble: str
    chosen: str | None
    selection_seeds: list[Count]
    selection_accuracy: Share | None
    scores: list[Score]
    given_up: Count
    closest_given_up: Change | None
    saturation: Saturation | None


class Result(TypedDict):
    """What came out; see `fedguard.metrics.trajectory.summarise` and `fedguard.bench.trial`. None is what does not apply."""

    final_accuracy: Share
    best_accuracy: Share
    worst_class_accuracy: Share
    class_accuracy: list[Share | None]
    diverged: bool
    curve: Curve
    rounds: Rounds
    aggregate: Aggregate
    filter: Filter | None
    attack_notes: dict[str, float]
    attack_effect: NotRequired[Effect | None]
    chance: Share
    minority: list[Minority]
    secure_aggregation: Sums | None
    privacy: Privacy | None
    corners: Corners
    accuracy_drop: Change | None
    absence: NotRequired[Change | None]
    harm: NotRequired[Change | None]
    robustness_tax: Change | None
    references: References
    inference: Inference | None
    attack_success: Change | None
    attack_success_raw: Share | None
    attack_success_clean: Share | None
    durability: Durability | None
    worst_case: NotRequired[WorstCase]
