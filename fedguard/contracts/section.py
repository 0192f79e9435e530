"""What sections of a suite have in common. Contracts that a suite fills in are its sections."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

#: A number of rounds, epochs or steps. A larger one is a typing error, and its training would never end.
Many = Annotated[int, Field(ge=1, le=1_000_000)]


class Section(BaseModel):
    """A part of a suite; an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants")
