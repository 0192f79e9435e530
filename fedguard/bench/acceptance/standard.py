"""The standard by which a submission is judged: data, read from ``standards/YEAR.yaml``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedguard.errors import ConfigError, UnknownName

FOLDER = Path(__file__).parent / "standards"
Count = Annotated[int, Field(strict=True, ge=1)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Size(_Part):
    """The size of a round: n updates of d coordinates."""

    n: Count
    d: Count


class TestedSize(Size):
    """A size of the evaluation, and one beside it that no rule can expect."""

    __test__ = False
    disguised: Size


class LargeRound(Size):
    """The round by whose CPU seconds and memory a rule is judged."""

    cpu_seconds: Amount
    gib: Amount


class Comparisons(_Part):
    """On how many inputs a rule is compared with the rules of the catalog."""

    random: Count
    adversarial: Count


class ContractChecks(_Part):
    """What the checks of the contract try; the comments of the YAML file say what each value is."""

    n: Count
    f: Annotated[int, Field(strict=True, ge=0)]
    dims: Annotated[tuple[Count, ...], Field(min_length=1)]
    draws: Annotated[int, Field(strict=True, ge=8)]
    large: LargeRound
    tested: tuple[TestedSize, ...]
    tested_ratio: Annotated[float, Field(gt=1)]
    sameness: Comparisons
    check_seconds: Amount
    process_gib: Amount


class TrainingCell(_Part):
    """A setting in which a rule is trained with; its metrics count for the rank, or are only shown."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    counts: bool
    suite: dict[str, Any]


class Trainings(_Part):
    """What the trainings try; the comments of the YAML file say what each value is."""

    seeds: Annotated[int, Field(strict=True, ge=3)]
    worst: dict[str, Any]
    backdoors: tuple[str, ...]
    repeats_within: Annotated[float, Field(ge=0, lt=1)]
    cells: Annotated[tuple[TrainingCell, ...], Field(min_length=1)]


class _Content(_Part):
    standard: Annotated[str, Field(pattern=r"^\d{4}\.\d+$")]
    contracts: ContractChecks
    trainings: Trainings


@dataclass(frozen=True)
class Standard:
    """A standard.

    Attributes:
        name: such as ``2026.0``.
        digest: SHA-256 of the file.
        contracts: what the checks of the contract try.
        trainings: in which settings, and under which attacks, a rule is trained with.
    """

    name: str
    digest: str
    contracts: ContractChecks
    trainings: Trainings


def load_standard(name: str) -> Standard:
    """The standard of a year, such as ``2026``, or the one in a YAML file.

    Raises:
        UnknownName: there is no standard of this year.
        ConfigError: the file cannot be read, or is no standard.
    """
    known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if name not in known:
            raise UnknownName("standard", name, known, "--standard")
        path = FOLDER / f"{name}.yaml"
    try:
        content = path.read_bytes()
        found = _Content.model_validate(yaml.safe_load(content))
    except OSError as error:
        raise ConfigError(f"--standard: {path}: cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--standard: {path}: expected YAML; {str(error).splitlines()[0]}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"--standard: {path}: {place}: {first['msg']}.") from None
    return Standard(found.standard, hashlib.sha256(content).hexdigest(), found.contracts, found.trainings)
