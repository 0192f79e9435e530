"""Times, names and configurations as they are stored, with their bounds; numbers: `fedguard.metrics.quantities`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field

from fedguard.retired import (
    RETIRED_FIELDS,
    renew_check,
    renew_flag,
    renew_key_text,
    renew_metric,
    renew_position,
    renew_spec,
    renew_value,
)


def _all_names(field: str) -> str | AliasChoices:
    """The names under which a field is stored: today's, and that of schema 1."""
    old = [one for one, new in RETIRED_FIELDS.items() if new == field]
    return AliasChoices(field, *old) if old else field


#: Configuration of all stored types: a number is no text, and no number is infinite. Fields of schema 1 are read as today's.
STRICT = ConfigDict(strict=True, allow_inf_nan=False, alias_generator=AliasGenerator(validation_alias=_all_names))

#: The schema that is written. Documents of schema 1, which differs in names alone, are read as documents of this one.
SCHEMA: Literal[2] = 2
Schema = Annotated[Literal[2], BeforeValidator(lambda stored: SCHEMA if stored == 1 else stored)]

#: How deep a configuration may be nested.
DEEPEST = 32

#: Seconds since 1970.
Time = Annotated[float, Field(ge=0, le=2.5e11)]
#: The name of a folder.
CellId = Annotated[str, Field(pattern=r"^[\w-]{1,64}$")]


def shallow(value: Any, depth: int = 0) -> Any:
    """The value; raises ValueError where it is nested deeper than `DEEPEST`, or holds a number that is not finite."""
    if depth > DEEPEST:
        raise ValueError(f"expected at most {DEEPEST} levels")
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            if isinstance(one, dict | list):
                shallow(one, depth + 1)
            elif isinstance(one, float) and not abs(one) <= 1e308:
                raise ValueError("expected finite numbers")
    return value


#: A key of the matrix, and the value of each in words; both under today's names, whatever version stored them.
SweptKey = Annotated[str, AfterValidator(renew_key_text)]
SweptValues = Annotated[dict[str, str], AfterValidator(renew_position)]
#: A metric.
MetricName = Annotated[str, AfterValidator(renew_metric)]
#: A red flag.
FlagName = Annotated[str, AfterValidator(renew_flag)]
#: A trivial guess.
GuessName = Annotated[str, AfterValidator(renew_check)]
#: A cell in words.
CellLabel = Annotated[str, AfterValidator(renew_spec)]
#: A mode of secure aggregation.
Mode = Annotated[str, AfterValidator(partial(renew_value, "protocol.secure_aggregation"))]
#: Anything, of a bounded depth.
Anything = Annotated[dict[str, Any], AfterValidator(shallow)]
