"""The reader's composition, as a suite that runs unchanged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from fedguard.app.data import LAB


@dataclass(frozen=True)
class ChosenPart:
    """The name of an algorithm or a form, with the parameters that were set."""

    name: str
    given: Mapping[str, Any]

    @property
    def spec(self) -> str:
        """``alie(z=1.5)``."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"{self.name}({given})" if given else self.name


@dataclass(frozen=True)
class Composition:
    """One cell.

    Attributes:
        defense: client transforms, mixings and a rule, in their order.
        mode: the secure aggregation mode; noise: the mechanism of privacy; algorithm: the federated algorithm.
        architecture: who waits for whom; there: the availability of devices.
        sections: values that are set in the other sections of a suite, by their dotted names.
        beside_mean: whether the mean is run too. An ensemble of attacks would have to choose again against it.
    """

    data: ChosenPart
    model: ChosenPart
    partition: ChosenPart
    algorithm: ChosenPart
    attack: ChosenPart
    defense: tuple[ChosenPart, ...]
    mode: ChosenPart
    noise: ChosenPart
    architecture: ChosenPart
    there: ChosenPart
    sections: Mapping[str, Mapping[str, Any]]
    seeds: Any
    beside_mean: bool = True

    def suite(self) -> dict[str, Any]:
        """The suite: the cell, the same without attack, and both with the mean, so that all four controls are seen."""
        task = {"data": self.data.spec, "model": self.model.spec, "partition": self.partition.spec}
        training = {"algorithm": self.algorithm.name, **self.algorithm.given}
        content: dict[str, Any] = {"task": task, "training": training}
        if self.architecture.spec != "server":
            content["architecture"] = self.architecture.spec
        for name, given in self.sections.items():
            if given:
                _below(content, name).update(given)
        if self.there.name != "always":
            _below(content, "network")["availability"] = self.there.spec
        if self.mode.name != "none":
            _below(content, "protocol")["secure_aggregation"] = self.mode.spec
        if self.noise.name != "none":
            _below(content, "protocol")["privacy"] = {"kind": self.noise.name, **self.noise.given}
        defense = " >> ".join(stage.spec for stage in self.defense)
        content["seeds"] = self.seeds
        content["matrix"] = {
            "attack": list(dict.fromkeys(["none", self.attack.spec])),
            "defense": list(dict.fromkeys(["mean", defense] if self.beside_mean else [defense])),
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:6]
        return {"schema": 1, "name": f"{LAB}{self.attack.name}-{self.defense[-1].name}-{digest}", **content}


def as_yaml(suite: Mapping[str, Any]) -> str:
    """The suite as a file, with the command that runs it."""
    text = yaml.safe_dump(dict(suite), sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return f"# fedguard run {suite['name']}.yaml\n{text}"


def _below(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The mapping at a dotted name, created if it is missing."""
    for part in name.split("."):
        content = content.setdefault(part, {})
    return content
