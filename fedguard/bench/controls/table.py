"""The controls, read from ``controls.yaml``: a schema, and one row for each control."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedguard.metrics.figures import FIGURES

FILE = Path(__file__).parent / "controls.yaml"
Words = Annotated[str, Field(min_length=3)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ControlText(_Row):
    """A standard or law.

    Attributes:
        version: of the text, to which the numbers of its controls belong.
        grade: ``read`` if the text itself was read, ``secondary`` if it is known from summaries.
    """

    name: Words
    version: Words
    url: Annotated[str, Field(pattern=r"^https://\S+$")]
    grade: Literal["read", "secondary"]


class EvidenceSource(_Row):
    """A metric that says something of a control, and the rows of a run where it does: attacked, clean, or all."""

    metric: str
    rows: Literal["attacked", "clean", "all"]

    @model_validator(mode="after")
    def _check_metric(self) -> EvidenceSource:
        if self.metric not in FIGURES:
            raise ValueError(f"unknown metric {self.metric!r}")
        return self


class Control(_Row):
    """One control.

    Attributes:
        text: key of the text that it is in.
        id: its number there, or the subject if it has none.
        asks: what it asks, in FedGuard's words.
        evidence: the metrics that are evidence for it; none if nothing here is.
        not_shown: what they do not show.
    """

    text: str
    id: Words
    asks: Words
    evidence: tuple[EvidenceSource, ...]
    not_shown: Words


class ControlTable(_Row):
    """All controls, and the texts that they are in."""

    version: str
    texts: dict[str, ControlText]
    controls: tuple[Control, ...]

    @model_validator(mode="after")
    def _check_texts(self) -> ControlTable:
        named = {one.text for one in self.controls}
        if named != set(self.texts):
            raise ValueError(f"texts and controls differ in {sorted(named ^ set(self.texts))}")
        return self


@cache
def load_controls() -> ControlTable:
    """The table of the file."""
    return ControlTable.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))
