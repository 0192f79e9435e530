"""The record of a trial: one that ran has a result, one that was refused or failed a reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from fedguard.bench.schema.card import MeasuredCard, ThreatCard
from fedguard.bench.schema.result import Result
from fedguard.bench.schema.types import STRICT, Amount, CellId, Count, Time, shallow


class Stage(TypedDict):
    """What one stage of the rounds took."""

    seconds: Amount
    cpu_seconds: Amount
    calls: Count


class Cost(TypedDict):
    """What a trial took; earlier versions did not measure its stages."""

    seconds: Amount
    cpu_seconds: Amount
    stages: NotRequired[dict[str, Stage]]
    worker_peak_memory_bytes: Count | None
    worker_memory_limit_bytes: NotRequired[Count | None]
    update_bytes_sent: Count
    protocol_bytes_sent: Count
    protocol_bytes_received: Count


Environment = TypedDict(
    "Environment",
    {
        "fedguard": str,
        "torch": str,
        "numpy": str,
        "scipy": str,
        "scikit-learn": str,
        "python": str,
        "platform": str,
        "device": str,
        "threads": Count,
        "git_commit": str | None,
        "code": NotRequired[dict[str, str]],
        "data": NotRequired[str | None],
        "changed": NotRequired[list[str]],
        "started": Time,
    },
)
"""What made a record: versions and machine, digests of the code by module and of the data, and when; ``changed`` is what the
trial altered that later ones in its process would have found."""


class Flag(TypedDict):
    """A red flag: its name, its number in the evaluation protocol, and what it says."""

    flag: str
    number: Count
    said: str


@with_config(ConfigDict(extra="allow", **STRICT))
class Named(TypedDict):
    """An algorithm with its parameters."""

    name: str


@with_config(ConfigDict(extra="allow", **STRICT))
class Task(TypedDict):
    """Data, partition and model; ``partition_seed`` is None where each seed deals anew."""

    data: Named
    partition: Named
    model: Named
    partition_seed: Count | None


@with_config(ConfigDict(extra="allow", **STRICT))
class Training(TypedDict):
    """The training; lengths in rounds."""

    rounds: Count


@with_config(ConfigDict(extra="allow", **STRICT))
class Config(TypedDict):
    """The canonical configuration of a cell, of which this is what readers ask for."""

    task: Task
    clients: dict[str, Any]
    training: Training
    attack: Literal["none"] | Named
    defense: list[Named]


@with_config(STRICT)
class _Record(TypedDict):
    """Of every record; ``cell`` and ``seed`` say where it is stored."""

    schema: Literal[1]
    cell: CellId
    seed: Count
    label: str
    results_version: Count
    flags: list[Flag]
    environment: Environment
    units: NotRequired[dict[str, str]]
    config: Annotated[Config, AfterValidator(shallow)]
    sha256: str


@with_config(STRICT)
class Ran(_Record):
    """A trial that ran."""

    status: Literal["ok"]
    reason: str | None
    threat_card: MeasuredCard
    result: Result
    cost: Cost


@with_config(STRICT)
class NotRun(_Record):
    """A trial that may not run, or that failed."""

    status: Literal["refused", "failed"]
    reason: str
    threat_card: ThreatCard
    result: None
    cost: None


def _fits_together(record: Any) -> Any:
    """What is told twice is told alike."""
    if record["status"] == "ok":
        result, goal = record["result"], record["threat_card"]["goal"]
        curve = result["curve"]
        if len({len(curve[name]) for name in ("round", "accuracy", "backdoor", "loss")}) > 1:
            raise ValueError("result.curve: expected as many rounds as figures")
        found = result["inference"]
        if found is not None and found["goal"] != goal:
            raise ValueError(f"threat_card.goal: expected {found['goal']}, as the result has it")
        if found is None and goal in ("reconstruction", "membership", "labels", "property"):
            raise ValueError(f"result.inference: expected what a {goal} attack found")
    return record


RECORD: TypeAdapter[Ran | NotRun] = TypeAdapter(
    Annotated[Annotated[Ran | NotRun, Field(discriminator="status")], AfterValidator(_fits_together)]
)
