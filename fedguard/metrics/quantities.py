"""Numbers as records store them, with their bounds. The function that computes a metric defines the field beside it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

#: In [0, 1]; a loss or gain of it; a number or amount of anything, small enough to be squared
Share = Annotated[float, Field(ge=0, le=1)]
Change = Annotated[float, Field(ge=-1, le=1)]
Number = Annotated[float, Field(ge=-1e150, le=1e150)]
Amount = Annotated[float, Field(ge=0, le=1e150)]
Count = Annotated[int, Field(ge=0, le=2**62)]
