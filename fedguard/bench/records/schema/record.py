"""The record of a trial: one that ran has a result, one that was refused or failed a reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from fedguard.bench.records.schema.card import MeasuredCard, ThreatCard
from fedguard.bench.records.schema.result import Result
from fedguard.bench.records.schema.types import STRICT, CellId, CellLabel, FlagName, Schema, Time, shallow
from fedguard.metrics.figures import PRIVACY_GOALS
from fedguard.metrics.quantities import Amount, Count


class StageCost(TypedDict):
    """What one stage of the rounds took.

    Attributes:
        seconds, cpu_seconds: in all rounds.
        calls: how often.
    """

    seconds: Amount
    cpu_seconds: Amount
    calls: Count


class Cost(TypedDict):
    """What a trial took; earlier versions did not measure its stages.

    Attributes:
        seconds, cpu_seconds: of the trial.
        stages: by name; earlier versions did not measure them.
        worker_peak_memory_bytes, worker_memory_limit_bytes: of the process that it ran in; null if unknown, or not limited.
        update_bytes_sent: by all clients in all rounds.
        protocol_bytes_sent, protocol_bytes_received: by all clients for secure aggregation.
    """

    seconds: Amount
    cpu_seconds: Amount
    stages: NotRequired[dict[str, StageCost]]
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
        "drew": NotRequired[list[str]],
        "started": Time,
    },
)
Environment.__doc__ = """What made a record.

Attributes:
    fedguard, torch, numpy, scipy, scikit-learn, python, platform: versions, and the machine.
    device, threads: on which it ran, and on how many.
    git_commit: of the checkout; null outside of one.
    code, data: digests of the code by module, and of the data.
    changed: what the trial altered that later ones in its process would have found.
    drew: whose global generators code of the user's own drew from, which start where the seed says.
    started: in seconds since 1970.
"""


class FlagRecord(TypedDict):
    """A red flag: its name, its number in the evaluation protocol, and what it says.

    Attributes:
        flag: its name.
        number: in the evaluation protocol.
        said: what is doubtful, and what to do.
    """

    flag: FlagName
    number: Count
    said: str


@with_config(ConfigDict(extra="allow", **STRICT))
class AlgorithmSpec(TypedDict):
    """An algorithm with its parameters.

    Attributes:
        name: in the catalog.
    """

    name: str


@with_config(ConfigDict(extra="allow", **STRICT))
class TaskRecord(TypedDict):
    """Data, partition and model; ``partition_seed`` is None where each seed deals anew.

    Attributes:
        data, partition, model: the data set, its partition among clients, and the model.
        partition_seed: null if each seed partitions anew.
    """

    data: AlgorithmSpec
    partition: AlgorithmSpec
    model: AlgorithmSpec
    partition_seed: Count | None


@with_config(ConfigDict(extra="allow", **STRICT))
class TrainingRecord(TypedDict):
    """The training; lengths in rounds.

    Attributes:
        rounds: how many.
    """

    rounds: Count


@with_config(ConfigDict(extra="allow", **STRICT))
class CanonicalConfig(TypedDict):
    """The canonical configuration of a cell, of which this is what readers ask for.

    Attributes:
        task: what is learned.
        clients: how many, and how many are malicious.
        training: how.
        attack: ``none`` if nobody attacks.
        defense: its stages in order.
    """

    task: TaskRecord
    clients: dict[str, Any]
    training: TrainingRecord
    attack: Literal["none"] | AlgorithmSpec
    defense: list[AlgorithmSpec]


@with_config(STRICT)
class _Record(TypedDict):
    """Of every record; ``cell`` and ``seed`` say where it is stored.

    Attributes:
        schema: of this document.
        cell, seed: where it is stored.
        label: the cell in words.
        results_version: of the code.
        flags: red flags that make its results doubtful.
        environment: machine, versions and code that made it.
        units: units of its metrics.
        config: the cell's configuration with every default.
        sha256: of the record with this field empty.
    """

    schema: Schema
    cell: CellId
    seed: Count
    label: CellLabel
    results_version: Count
    flags: list[FlagRecord]
    environment: Environment
    units: NotRequired[dict[str, str]]
    config: Annotated[CanonicalConfig, AfterValidator(shallow)]
    sha256: str


@with_config(STRICT)
class CompletedRecord(_Record):
    """A trial that ran.

    Attributes:
        status: it ran.
        reason: none.
        threat_card: the assumptions under which the result holds.
        result: the result of the training.
        cost: time, memory and bytes.
    """

    status: Literal["ok"]
    reason: str | None
    threat_card: MeasuredCard
    result: Result
    cost: Cost


@with_config(STRICT)
class IncompleteRecord(_Record):
    """A trial that may not run, or that failed.

    Attributes:
        status: it may not run, or it failed.
        reason: why, in words.
        threat_card: as far as the configuration determines it.
        result, cost: none.
    """

    status: Literal["refused", "failed"]
    reason: str
    threat_card: ThreatCard
    result: None
    cost: None


#: What is stored of a trial; its ``status`` tells which of the two it is.
Record = CompletedRecord | IncompleteRecord


def _fits_together(record: Any) -> Any:
    """Check that redundant fields agree."""
    if record["status"] == "ok":
        result, goal = record["result"], record["threat_card"]["goal"]
        if len({len(column) for column in result["curve"].values()}) > 1:
            raise ValueError("result.curve: expected as many rounds as values")
        parties = result.get("parties")
        if parties is not None and len(parties["classes"]) != len(parties["accuracy"]):
            raise ValueError("result.parties: expected an accuracy for each party")
        found = result["inference"]
        if found is not None and found["goal"] != goal:
            raise ValueError(f"threat_card.goal: expected {found['goal']}, as the result has it")
        if found is None and goal in PRIVACY_GOALS:
            raise ValueError(f"result.inference: expected what a {goal} attack found")
    return record


RECORD: TypeAdapter[Record] = TypeAdapter(
    Annotated[Annotated[Record, Field(discriminator="status")], AfterValidator(_fits_together)]
)
