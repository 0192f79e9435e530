"""The set-up of a cell of given parts, which no suite has written."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fedguard.config.algorithms import build_algorithm, build_fate
from fedguard.config.protocol import masking
from fedguard.contracts import Cell, Participation, Protocol, Setup, Training
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification


def parts_of_protocol(protocol: Protocol) -> dict[str, Any]:
    """A protocol, with the mode and the noise that it names."""
    known = load_registry()
    mode, noise = masking(protocol.secure_aggregation, known, ""), known.build("noise", protocol.privacy)
    return {"protocol": protocol, "masking": mode, "noise": noise}


def cell_of_parts(**parts: Any) -> Cell:
    """A cell; what ``parts`` lack is that of a suite that says nothing, with the algorithm that their training names."""
    known, training = load_registry(), parts.get("training", Training())
    algorithm = build_algorithm(training, known, {})[0]
    return Cell(
        **{
            "data": known.build("data", "digits"),
            "model": known.build("model", "softmax"),
            "clients": Participation(),
            "training": training,
            "algorithm": algorithm,
            **parts_of_protocol(parts.get("protocol", Protocol())),
            "statistics": build_fate(training, algorithm, parts.get("pipeline", known.pipeline("mean")), known)[0],
            "availability": known.build("availability", "always"),
            "pipeline": known.pipeline("mean"),
            **parts,
        }
    )


def setup_of_parts(task: Classification, rng: Rng, malicious: Collection[int] = (), **parts: Any) -> Setup:
    """A set-up of ``task``; ``parts`` are those of its cell."""
    cell = cell_of_parts(**{"model": task.model, "attacking": len(malicious), **parts})
    return Setup(cell=cell, task=task, rng=rng, malicious=frozenset(malicious))
