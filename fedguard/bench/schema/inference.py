"""What an attack on the clients' privacy found, target by target; see `fedguard.bench.inference` and `fedguard.metrics`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from fedguard.bench.schema.types import Change, Count, Number, Share


class Given(TypedDict):
    """What the attack was given."""

    sees: list[str]
    round: Count | None
    rounds: Count
    accuracy_of_the_model: Share
    vector: str
    examples: Count
    local_steps: Count
    labels: bool
    candidates: Count | None
    transforms: list[str]
    worker_momentum: NotRequired[Number]


class Spread(TypedDict):
    """Over the inputs of one target; the half width of a 95 % interval is None for a single one."""

    mean: Number
    half_width: Number | None
    values: list[Number]


class Rate(TypedDict):
    """A share with its interval; both None where it cannot be told, and why."""

    value: Share | None
    interval: Annotated[list[Share], Field(min_length=2, max_length=2)] | None
    why: NotRequired[str]


class Scores(TypedDict):
    """Ascending."""

    members: list[float]
    non_members: list[float]


class Rebuilt(TypedDict):
    """One target of a reconstruction: lengths of lists are numbers of inputs, psnr and gain are dB."""

    clients: list[Count]
    images: Count
    claimed: Count
    not_finite: Count
    matching: list[Count | None]
    psnr: Spread
    ssim: Spread | None
    exact: Count
    label_accuracy: Share | None
    baselines: dict[str, Number]
    best_baseline: str
    gain: Spread
    recovered: Share


class Recognised(TypedDict):
    """One target of a membership inference."""

    clients: list[Count]
    members: Count
    non_members: Count
    not_numbers: Count
    auc: Rate
    tpr_at_1_percent: Rate
    tpr_at_01_percent: Rate
    roc: list[Annotated[list[Share], Field(min_length=2, max_length=2)]]
    scores: NotRequired[Scores]


class Labelled(TypedDict):
    """One target whose labels were inferred."""

    clients: list[Count]
    examples: Count
    claimed: Count
    accuracy: Share
    exact: bool
    count_error: list[int]
    trivial: Share
    gain: Change


class Suspected(TypedDict):
    """One client of whom a property was inferred."""

    clients: list[Count]
    score: Number
    holds: bool


class _Attack(TypedDict):
    """Of every goal.

    Attributes:
        server: whether it follows the protocol.
        score: the figures over all targets; None where one has none.
    """

    attack: str
    server: Literal["malicious", "curious"]
    given: Given
    score: dict[str, Number | None]


class Reconstruction(_Attack):
    """Inputs were rebuilt."""

    goal: Literal["reconstruction"]
    targets: list[Rebuilt]


class Membership(_Attack):
    """Examples were told from others."""

    goal: Literal["membership"]
    targets: list[Recognised]


class Labels(_Attack):
    """Labels were inferred."""

    goal: Literal["labels"]
    targets: list[Labelled]


class Property(_Attack):
    """A property of clients' data was inferred."""

    goal: Literal["property"]
    targets: list[Suspected]


Inference = Annotated[Reconstruction | Membership | Labels | Property, Field(discriminator="goal")]
