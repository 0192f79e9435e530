"""Times, names and configurations as they are stored, with their bounds; numbers: `fedguard.metrics.quantities`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from fedguard.retired import renew_key_text, renew_position

#: Configuration of all stored types: a number is no text, and no number is infinite.
STRICT = ConfigDict(strict=True, allow_inf_nan=False)

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
#: Anything, of a bounded depth.
Anything = Annotated[dict[str, Any], AfterValidator(shallow)]
