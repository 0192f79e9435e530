"""Candidate settings of a defense, made from the grids of its stages, in an order that covers the grids early.

First the setting as it is configured; then one parameter at a time, by turns, each parameter's values far apart first;
then combinations of several changes in a golden-ratio walk, which spreads over the product of all values and meets each
combination once. Nothing is drawn, so a larger budget only adds to what a smaller one tried.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import Any

from fedguard.contracts import Algorithm, Defense, Pipeline
from fedguard.errors import ConfigError, UnknownName

#: Combinations looked at in search of valid ones.
_LOOK_AT = 10_000


@dataclass(frozen=True)
class Axis:
    """One parameter of one stage. ``values`` begins with the configured one."""

    stage: int
    parameter: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Candidates:
    """The settings of one defense, the configured one first.

    Attributes:
        pipelines: the settings, all different.
        tunable: whether any stage has a grid.
        invalid: number of settings skipped because their parameters exclude each other.
    """

    pipelines: tuple[Pipeline, ...]
    tunable: bool
    invalid: int

    @classmethod
    def of(cls, pipeline: Pipeline, budget: int) -> Candidates:
        """At most ``budget`` settings of a pipeline.

        Raises:
            UnknownName: a grid names a parameter that its defense does not have.
        """
        axes = _axes(pipeline)
        found, invalid = {identity(pipeline): pipeline}, 0
        for setting in _order(axes):
            if len(found) >= budget:
                break
            try:
                changed = _apply_setting(pipeline, axes, setting)
            except ConfigError:
                invalid += 1
                continue
            found.setdefault(identity(changed), changed)
        return cls(tuple(found.values()), bool(axes), invalid)


def as_text(known: Algorithm | Pipeline) -> str:
    """``nnm >> krum(m=2)``: an attack or a defense as a suite can say it, to the last digit."""
    stages = known.stages if isinstance(known, Pipeline) else (known,)
    if all(_read_back(getattr(stage, name)) for stage in stages for name in _list_overrides(stage)):
        return str(known)
    return " >> ".join(_literal(stage) for stage in stages)


def _read_back(value: Any) -> bool:
    """Whether a label, which may round its values, describes this setting in full."""
    if isinstance(value, float):
        return float(f"{value:g}") == value
    return value is None or isinstance(value, int | tuple | list)


def _list_overrides(algorithm: Algorithm) -> list[str]:
    """The parameters that differ from their defaults."""
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in algorithm.fields()
    }
    return [name for name, default in defaults.items() if getattr(algorithm, name) != default]


def _literal(algorithm: Algorithm) -> str:
    spec = algorithm.spec()
    given = [f"{name}={spec[name]!r}" for name in _list_overrides(algorithm)]
    return f"{algorithm.name}({', '.join(given)})" if given else algorithm.name


def identity(known: Algorithm | Pipeline) -> str:
    """A text that is equal for equal settings, however they are written."""
    return json.dumps(known.spec(), sort_keys=True)


def _axes(pipeline: Pipeline) -> list[Axis]:
    axes = []
    for number, stage in enumerate(pipeline.stages):
        parameters = [field.name for field in stage.fields()]
        for parameter, values in stage.grid.items():
            if parameter not in parameters:
                raise UnknownName(f"parameter in the grid of {stage.name}", parameter, parameters)
            configured = stage.spec()[parameter]
            start = values.index(configured) if configured in values else None
            spread = [values[index] for index in _far_apart(len(values), start)]
            axes.append(Axis(number, parameter, (configured, *spread)))
    return [axis for axis in axes if len(axis.values) > 1]


def _far_apart(count: int, start: int | None) -> Iterator[int]:
    """0 ... count - 1 without ``start``: always the one farthest from those before it; from the middle without a start."""
    before, left = ([] if start is None else [start]), [index for index in range(count) if index != start]
    while left:
        near = {index: min((abs(index - other) for other in before), default=0) for index in left}
        following = max(left, key=lambda index: near[index]) if before else count // 2
        yield following
        left.remove(following)
        before.append(following)


def _order(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Settings as one index per axis, 0 being the configured value."""
    for step in itertools.count(1):
        turn = [number for number, axis in enumerate(axes) if step < len(axis.values)]
        if not turn:
            break
        yield from (tuple(step if number == axis else 0 for axis in range(len(axes))) for number in turn)
    sizes = [len(axis.values) for axis in axes]
    total = math.prod(sizes)
    stride = round(total * (math.sqrt(5) - 1) / 2)
    while math.gcd(stride, total) > 1:
        stride += 1
    for place in range(1, min(total, _LOOK_AT)):
        rest, setting = place * stride % total, []
        for size in sizes:
            rest, index = divmod(rest, size)
            setting.append(index)
        if sum(index > 0 for index in setting) > 1:
            yield tuple(setting)


def _apply_setting(pipeline: Pipeline, axes: Sequence[Axis], setting: Sequence[int]) -> Pipeline:
    stages: list[Defense] = list(pipeline.stages)
    for number, stage in enumerate(stages):
        changes = {
            axis.parameter: axis.values[index]
            for axis, index in zip(axes, setting, strict=True)
            if axis.stage == number and index
        }
        if changes:
            stages[number] = type(stage)(**{**stage.parameters(), **changes})
    return Pipeline(tuple(stages))
