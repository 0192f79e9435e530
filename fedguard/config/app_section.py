"""An existing app in a suite: its section, and what stands in a record for the sections that it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedguard.config.sections import Section
from fedguard.contracts.training import Many

#: The defense that is an app's own strategy, whatever it does
OWN = "own"

#: The sections of a cell that an app replaces
BROUGHT = ("task", "training", "protocol", "server", "evaluation", "architecture", "network")


class AppTrainingSection(Section):
    """What the nodes of an app train, and on which data. Attacks on privacy need it and are scored against it.

    A number may be given as the key of the app's run configuration that holds it.

    Args:
        model: ``module:function`` in the app's folder that returns its `torch.nn.Module`; a class works too.
        data: ``module:function`` that takes the partition of a node and the number of partitions. It returns two pairs ``(x,
            y)``: the examples on which the node trains, and examples on which no node trains.
        lr: learning rate of the local SGD on the mean cross-entropy.
        batch_size: examples per local step; null takes all examples of the node.
        local_epochs: passes of a node over its examples in a round.
        local_steps: local steps of a node in a round, instead of epochs.
    """

    model: Annotated[str, Field(min_length=1)]
    data: Annotated[str, Field(min_length=1)]
    lr: Annotated[float, Field(gt=0)] | str
    batch_size: Annotated[int, Field(ge=1)] | str | None = None
    local_epochs: Many | str = 1
    local_steps: Many | str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> AppTrainingSection:
        if self.local_steps is not None and self.local_epochs != 1:
            raise ValueError("local_steps replaces local_epochs; expected one of them; got both")
        return self


class AppSection(Section):
    """An existing Flower app that is evaluated unchanged, as the folder that contains it.

    Args:
        folder: folder of the app's pyproject.toml, relative to the working directory of the command.
        set: values that replace those of its run configuration, by flat key.
        metric: name under which the app reports accuracy; by default a metric with ``acc`` in its name.
        engine: where the app runs: in one process (``inline``), in Flower's ``simulation`` on Ray, or as a ``deployment`` of
            real processes on this machine.
        training: what its nodes train and on which data; used by attacks on privacy only.
    """

    folder: Annotated[str, Field(min_length=1)]
    set: dict[str, bool | int | float | str] = Field(default_factory=dict)
    metric: str | None = None
    engine: Literal["inline", "simulation", "deployment"] = "inline"
    training: AppTrainingSection | None = None

    @property
    def name(self) -> str:
        """Name of the app's folder."""
        return Path(self.folder).resolve().name

    def spec(self, *, observed: bool) -> dict[str, Any]:
        """Part of a cell's identity, without the default engine, and without the training if nobody attacks privacy."""
        usual = {"engine"} if self.engine == "inline" else set()
        return self.model_dump(mode="json", exclude=usual if observed else {*usual, "training"})


def describe_app() -> dict[str, Any]:
    """The content of a record for the sections that an app replaces."""
    return {
        "task": {
            "data": {"name": "flower"},
            "partition": {"name": "app"},
            "model": {"name": "app"},
            "partition_seed": None,
        },
        "training": {"rounds": 0, "algorithm": "app"},
        "architecture": "flower",
    }


def without_description(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cell from the content of a record: without `describe_app`, and with the app's own strategy as a word.

    Settings without an app are returned unchanged.
    """
    if data.get("app") is None:
        return dict(data)
    ours = describe_app()
    told = {key: value for key, value in data.items() if key not in ours or value != ours[key]}
    return {**told, "defense": OWN} if told.get("defense", [{"name": OWN}]) == [{"name": OWN}] else told
