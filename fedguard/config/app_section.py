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
    """An existing Flower app or NVFlare job that is evaluated unchanged, as the folder that contains it.

    Args:
        folder: folder of a Flower app's pyproject.toml, relative to the working directory of the command.
        nvflare: folder of an NVFlare job's meta.json, in place of ``folder``.
        sites: number of sites of an NVFlare job: ``clients.total``.
        malicious: names of the malicious sites of an NVFlare job, such as ``[site-1]``; by default they are drawn by the seed.
        set: values over a Flower app's run configuration by flat key, or of an NVFlare controller's arguments.
        metric: name under which the app reports accuracy; by default a metric with ``acc`` in its name.
        engine: where the app runs: in one process (``inline``), in Flower's ``simulation`` on Ray, or as a ``deployment`` of
            real processes on this machine.
        training: what its nodes train and on which data; used by attacks on privacy only.
    """

    folder: Annotated[str, Field(min_length=1)] | None = None
    nvflare: Annotated[str, Field(min_length=1)] | None = None
    sites: Annotated[int, Field(strict=True, ge=1)] | None = None
    malicious: tuple[str, ...] | None = None
    set: dict[str, bool | int | float | str] = Field(default_factory=dict)
    metric: str | None = None
    engine: Literal["inline", "simulation", "deployment"] = "inline"
    training: AppTrainingSection | None = None

    @model_validator(mode="after")
    def _consistent(self) -> AppSection:
        if (self.folder is None) == (self.nvflare is None):
            got = "neither" if self.folder is None else "both"
            raise ValueError(f"expected app.folder, of a Flower app, or app.nvflare, of an NVFlare job; got {got}")
        if self.nvflare is not None and (self.engine != "inline" or self.training is not None):
            what = "training" if self.engine == "inline" else "engine"
            raise ValueError(f"{what} is of a Flower app; an NVFlare job runs in its simulator. Leave {what} out")
        if self.nvflare is None and (self.sites is not None or self.malicious is not None):
            raise ValueError(
                "sites and malicious are of an NVFlare job; for a Flower app say clients: {total, malicious}"
            )
        return self

    @property
    def framework(self) -> str:
        """Whose app it is: ``flower`` or ``nvflare``."""
        return "flower" if self.nvflare is None else "nvflare"

    @property
    def path(self) -> str:
        """The folder of the app or job, as it is written."""
        return self.nvflare or self.folder or ""

    @property
    def name(self) -> str:
        """Name of the app's folder."""
        return Path(self.path).resolve().name

    @property
    def nodes_in_words(self) -> str:
        """Who takes part: ``nodes of the Flower app NAME``."""
        return f"{'nodes of the Flower app' if self.nvflare is None else 'sites of the NVFlare job'} {self.name}"

    def spec(self, *, observed: bool) -> dict[str, Any]:
        """Part of a cell's identity, without the default engine, and without the training if nobody attacks privacy."""
        # The number of sites is clients.total
        left = {"sites", "nvflare", "malicious"} if self.nvflare is None else {"sites", "folder"}
        left |= {"engine"} if self.engine == "inline" else set()
        return self.model_dump(mode="json", exclude=left if observed else {*left, "training"})


def read_sites(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with ``app.sites`` and the number of ``app.malicious`` in ``clients``, where those are not given there."""
    app, clients = data.get("app"), data.get("clients", {})
    if not isinstance(app, Mapping) or not isinstance(clients, Mapping):
        return dict(data)
    told = {
        "total": app.get("sites"),
        "malicious": len(names) if isinstance(names := app.get("malicious"), list) else None,
    }
    return {**data, "clients": {**{key: value for key, value in told.items() if value is not None}, **clients}}


def describe_app(framework: str) -> dict[str, Any]:
    """The content of a record for the sections that an app of a framework replaces."""
    return {
        "task": {
            "data": {"name": framework},
            "partition": {"name": "app"},
            "model": {"name": "app"},
            "partition_seed": None,
        },
        "training": {"rounds": 0, "algorithm": "app"},
        "architecture": framework,
    }


def without_description(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cell from the content of a record: without `describe_app`, and with the app's own strategy as a word.

    Settings without an app are returned unchanged.
    """
    if data.get("app") is None:
        return dict(data)
    ours = describe_app("flower" if data["app"].get("nvflare") is None else "nvflare")
    told = {key: value for key, value in data.items() if key not in ours or value != ours[key]}
    return {**told, "defense": OWN} if told.get("defense", [{"name": OWN}]) == [{"name": OWN}] else told
