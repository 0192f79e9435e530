"""A trial of somebody's app: what is asked of a framework, and how what the app measured is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedguard.bridges.seen import AppObserver
from fedguard.errors import ConfigError

#: Evaluations by round: the round, and its metrics.
Curve = list[tuple[int, dict[str, float]]]


class ReadApp(Protocol):
    """An app's folder as it is read, whatever the framework.

    Attributes:
        folder: where its code is.
        config: the run's configuration, flat.
    """

    @property
    def folder(self) -> Path: ...

    @property
    def config(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class TrialRequest:
    """A trial of an app, in a form that JSON can hold.

    Attributes:
        app: the app's folder.
        settings: override its run configuration.
        attack, defense: specs; None for no attack, and for the app's own strategy alone.
        f, nodes: number of malicious nodes, and of all.
        metric: the app's name for its accuracy; None to find it.
        knowledge: what malicious nodes see.
        assumed_f: number of malicious nodes that the rule assumes; the true f by default.
        engine: where it runs, such as ``inline``: one of the framework's.
        looks: fields of the observer of the messages, a `fedguard.bridges.seen.AppObserver`; None for no observer.
        kept: the file for its observations.
        framework: whose app it is: a folder of `fedguard.bridges`.
        malicious: names of the malicious nodes; None to draw them.
    """

    app: str
    settings: Mapping[str, Any]
    attack: str | None
    defense: str | None
    f: int
    nodes: int
    seed: int
    metric: str | None = None
    knowledge: Sequence[str] | None = None
    assumed_f: int | None = None
    engine: str = "inline"
    looks: Mapping[str, Any] | None = None
    kept: str | None = None
    framework: str = "flower"
    malicious: Sequence[str] | None = None

    @property
    def observer(self) -> AppObserver | None:
        """The observer of the messages."""
        return None if self.looks is None else AppObserver(**self.looks)


def find_metric(curve: Curve, wanted: str | None, folder: Path, advice: str) -> tuple[str, str | None]:
    """The app's names of its accuracy and of its loss; None for a loss that nothing or several might be.

    Args:
        curve: what the app measured.
        wanted: its name for accuracy; None for the only one with ``acc`` in its name.
        advice: what to do where nothing was measured.

    Raises:
        ConfigError: no accuracy, or several that might be meant.
    """
    names = sorted({name for _, found in curve for name in found})
    if not names:
        raise ConfigError(
            f"{folder}: expected an app that evaluates; neither its nodes nor its server measured anything. {advice}"
        )
    fitting = (
        [name for name in names if name == wanted] if wanted else [name for name in names if "acc" in name.lower()]
    )
    if len(fitting) != 1:
        got = wanted or " and ".join(fitting) or "none"
        raise ConfigError(f"{folder}: metric: expected one of {', '.join(names)}; got {got}.")
    losses = [name for name in names if "loss" in name.lower()]
    return fitting[0], losses[0] if len(losses) == 1 else None


def read_curve(curve: Curve, wanted: str | None, folder: Path, advice: str) -> dict[str, Any]:
    """metric; and round, accuracy and loss as lists of equal length.

    Raises:
        ConfigError: see `find_metric`; or an accuracy that is not in [0, 1].
    """
    name, loss = find_metric(curve, wanted, folder, advice)
    for _, found in curve:
        if not 0 <= found[name] <= 1:
            raise ConfigError(f"{folder}: {name}: expected an accuracy in [0, 1]; got {found[name]:.4g}.")
    return {
        "metric": name,
        "round": [number for number, _ in curve],
        "accuracy": [found[name] for _, found in curve],
        "loss": [found.get(loss) if loss else None for _, found in curve],
    }
