"""What may be set and what it means: the parameters of an algorithm, and the keys of a suite beside its algorithms."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal

from pydantic import BaseModel

from fedguard.config.document import parse_yaml
from fedguard.config.schema import ClientsSection, EvaluationSection, ObserverSection, ServerSection, ThreatSection
from fedguard.contracts import (
    Algorithm,
    ClientNoise,
    DistributedNoise,
    Dropout,
    FixedPoint,
    Groups,
    GroupTesting,
    Protocol,
    RecordNoise,
    Training,
)
from fedguard.errors import ConfigError
from fedguard.registry import registry

#: The sections of a suite whose keys are plain values.
SECTIONS: dict[str, type] = {
    "clients": ClientsSection,
    "training": Training,
    "threat": ThreatSection,
    "observer": ObserverSection,
    "server": ServerSection,
    "evaluation": EvaluationSection,
    "protocol": Protocol,
    "protocol.dropout": Dropout,
    "protocol.encoding": FixedPoint,
}
#: The forms of ``protocol.secure_aggregation`` and of ``protocol.privacy``, with what each takes.
MODES: dict[str, type | None] = {"off": None, "full": None, "groups": Groups, "group_testing": GroupTesting}
NOISES: dict[str, type | None] = {
    "none": None,
    "record": RecordNoise,
    "client": ClientNoise,
    "distributed": DistributedNoise,
}


@dataclass(frozen=True)
class Setting:
    """One thing that may be set.

    Attributes:
        type: in words: ``float | None``.
        default: in words; ``required`` where there is none.
        meaning: one or two sentences; empty where the docstring says none.
        choices: the values that it may have, where they can be listed.
        several: whether it takes several of the choices.
    """

    name: str
    type: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    several: bool = False


def settings(of: type) -> list[Setting]:
    """What may be set in an algorithm or a section, in its order. The ``kind`` that names a form is left out."""
    hints = typing.get_type_hints(of)
    return [
        Setting(name, _type(hints[name]), default, meaning(of, name), *_choices(hints[name]))
        for name, default in _fields(of)
        if name != "kind"
    ]


def prose(docstring: str) -> str:
    """A docstring without its sections of arguments and attributes."""
    return re.split(r"^(?:Args|Attributes|Raises|Returns):$", inspect.cleandoc(docstring), maxsplit=1, flags=re.M)[
        0
    ].strip()


def meaning(of: type, name: str) -> str:
    """What the docstring of a class, or of the base that brought the name, says of it."""
    said = (_meanings(base.__dict__.get("__doc__") or "").get(name) for base in of.__mro__)
    return next((text for text in said if text), "")


def value_of(text: str) -> Any:
    """What somebody typed, as a suite would read it; text that is no YAML stays text."""
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


def _type(hint: Any) -> str:
    if inspect.isclass(hint):
        return "None" if hint is NoneType else hint.__name__
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return " | ".join(_type(one) for one in typing.get_args(hint))
    return str(hint).replace("typing.", "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return str(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else str(field.default)


def _choices(hint: Any) -> tuple[tuple[str, ...], bool]:
    """The values that a hint allows, and whether several may be chosen."""
    if inspect.isclass(hint) and issubclass(hint, Algorithm):
        return tuple(registry().names(hint.kind)), False
    if typing.get_origin(hint) is Literal:
        return tuple(str(choice) for choice in typing.get_args(hint)), False
    inner: Sequence[Any] = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and inner and typing.get_origin(inner[0]) is Literal:
        return tuple(str(choice) for choice in typing.get_args(inner[0])), True
    return (), False


def _meanings(docstring: str) -> dict[str, str]:
    """By name, what stands under ``Args:`` or ``Attributes:``."""
    found: dict[str, str] = {}
    sections = re.split(r"^(\w+):$", inspect.cleandoc(docstring), flags=re.M)
    for heading, body in zip(sections[1::2], sections[2::2], strict=True):
        if heading in ("Args", "Attributes"):
            for names, said in re.findall(r"^    ([\w, ]+): (.*(?:\n {5,}.*)*)", body, flags=re.M):
                found |= {name.strip(): " ".join(said.split()) for name in names.split(",")}
    return found
