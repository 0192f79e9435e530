"""What may be set and what it means: the parameters of an algorithm, and the keys of a suite beside its algorithms."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel

from fedguard.bench.docstrings import meaning
from fedguard.config.document import parse_yaml
from fedguard.config.sections import (
    EvaluationSection,
    ObserverSection,
    ServerSection,
)
from fedguard.contracts import (
    Algorithm,
    Dropout,
    FixedPoint,
    Links,
    Network,
    Participation,
    Protocol,
    Speeds,
    Stragglers,
    ThreatModel,
    Training,
)
from fedguard.contracts.ranges import type_in_words, without_ranges
from fedguard.errors import ConfigError
from fedguard.registry import load_registry

#: The sections of a suite with plain values as keys.
SECTIONS: dict[str, type] = {
    "clients": Participation,
    "training": Training,
    "threat": ThreatModel,
    "observer": ObserverSection,
    "server": ServerSection,
    "evaluation": EvaluationSection,
    "network": Network,
    "network.compute": Speeds,
    "network.compute.slow": Stragglers,
    "network.link": Links,
    "protocol": Protocol,
    "protocol.dropout": Dropout,
    "protocol.encoding": FixedPoint,
}


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        type: in words: ``float | None``.
        default: in words; ``required`` if there is none.
        meaning: one or two sentences; empty if the docstring has none.
        choices: the allowed values, if they can be listed.
        several: whether it takes several of the choices.
    """

    name: str
    type: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    several: bool = False


def settings(of: type) -> Sequence[Setting]:
    """The settings of an algorithm or a section, in its order."""
    return _settings(of)


@cache
def _settings(of: type) -> tuple[Setting, ...]:
    hints = typing.get_type_hints(of, include_extras=True)
    return tuple(
        Setting(name, type_in_words(hints[name]), default, meaning(of, name), *_choices(without_ranges(hints[name])))
        for name, default in _fields(of)
    )


def value_of(text: str) -> Any:
    """Typed text as a suite would read it; text that is no YAML stays text."""
    try:
        value = parse_yaml(text)[0]
    except ConfigError:
        return text
    return None if value == "None" else value


def _fields(of: type) -> Iterator[tuple[str, str]]:
    if issubclass(of, BaseModel):
        yield from ((name, str(field.default)) for name, field in of.model_fields.items())
    elif dataclasses.is_dataclass(of):
        yield from ((field.name, _default(field)) for field in dataclasses.fields(of))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return str(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else str(field.default)


def _choices(hint: Any) -> tuple[tuple[str, ...], bool]:
    """The values that a hint allows, and whether several may be chosen."""
    if inspect.isclass(hint) and issubclass(hint, Algorithm):
        return tuple(load_registry().names(hint.kind)), False
    if typing.get_origin(hint) is Literal:
        return tuple(str(choice) for choice in typing.get_args(hint)), False
    inner: Sequence[Any] = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and inner and typing.get_origin(inner[0]) is Literal:
        return tuple(str(choice) for choice in typing.get_args(inner[0])), True
    return (), False
