"""The reference of the suite file: every key with type, default and meaning, from the schema that reads it."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs_tools.algorithms import built_in
from docs_tools.markup import code, inline, page, paragraphs, table
from fedguard.bench.docstrings import meaning, prose
from fedguard.config.schema import Suite
from fedguard.contracts.participation import CountOrFraction, CountOrSites
from fedguard.contracts.specs import Spec

#: Types that a few words describe better than their parts.
_WORDS = {
    CountOrFraction: "a count, or a fraction in [0, 1]",
    CountOrSites: "a count, a fraction in [0, 1], or a list of names",
    Spec: "a name, or a mapping with `name` and parameters",
    list[Spec]: "a list of such stages",
    Any: "anything that the key takes",
    dict[str, list[Any]]: "lists of values by dotted key",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    types.NoneType: "null",
}

_FIRST = """A suite is a mapping in YAML. Every key has a default, so an empty file is a suite; an unknown key is an error that
names the nearest. `fedguard init` writes a file to start from, `fedguard check` says what a file would do, and every run
keeps the suite with all defaults spelled out in `config.resolved.yaml`. Only `true` and `false` are booleans, so `off` and
`no` stay words; `1e-5` is a number; a key that stands twice is an error.

`matrix` takes any dotted key with a list of values; the product of the lists is the suite."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A mapping that ``key`` accepts; ``form`` distinguishes several such mappings."""

    key: str
    kind: type
    form: str = ""

    @property
    def title(self) -> str:
        return f"{self.key} ({self.form})" if self.form else self.key or "At the top"

    @property
    def anchor(self) -> str:
        return "--".join(part for part in (self.key.replace(".", "-"), self.form.replace(" ", "-")) if part) or "top"


def pages() -> dict[str, str]:
    """``reference/suite.md``."""
    parts = [_written(section) for section in _sections(Section("", Suite))]
    return {"reference/suite.md": page("The suite file", _FIRST, *parts)}


def _sections(section: Section) -> Iterator[Section]:
    """A section, and its subsections."""
    yield section
    for name, hint in _hints(section.kind).items():
        for inner in _within(section, name, hint):
            yield from _sections(inner)


def _within(section: Section, name: str, hint: Any) -> list[Section]:
    """The mappings that a key accepts."""
    found = _kinds(hint)
    key = f"{section.key}.{name}".strip(".")
    if key == "protocol.privacy":
        return [Section(key, cls, f"kind {cls.name}") for _, cls in built_in("noise") if cls.fields()]
    if key == "protocol.secure_aggregation":
        return [Section(key, cls, cls.name) for _, cls in built_in("masking") if cls.fields()]
    if key == "network.availability":
        return [Section(key, cls, f"name {cls.name}") for _, cls in built_in("availability") if cls.fields()]
    if key == "evaluation.evasion":
        return [Section(key, cls, f"name {cls.name}") for _, cls in built_in("evasion")]
    if key == "training.algorithm":
        return [Section("training", cls, cls.name) for _, cls in built_in("algorithm") if cls.fields()]
    forms = [_form(kind) for kind in found]
    if len(set(forms)) < len(forms):  # alike but for their names
        forms = [kind.__name__.lower() for kind in found]
    return [Section(key, kind, form if len(found) > 1 else "") for kind, form in zip(found, forms, strict=True)]


def _kinds(hint: Any) -> list[type]:
    if isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)):
        return [hint]
    return [kind for part in get_args(hint) for kind in _kinds(part)]


def _form(kind: type) -> str:
    """The key that only this mapping has among the mappings that the same key accepts."""
    return next(iter(_hints(kind)))


def _hints(kind: type) -> dict[str, Any]:
    """Every key of a section as a suite spells it, with its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    if issubclass(kind, BaseModel):
        return {field.alias or name: hints[name] for name, field in kind.model_fields.items()}
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _written(section: Section) -> str:
    rows = []
    for name, hint in _hints(section.kind).items():
        inner = _within(section, name, hint)
        links = " or ".join(f'<a href="#{one.anchor}">{html.escape(one.form or "its keys")}</a>' for one in inner)
        words = " or ".join(part for part in (inline(type_in_words(hint)), links and f"a mapping: {links}") if part)
        default, said = _default(section.kind, name), _meaning(section.kind, name)
        rows.append([code(name), words, code(default) if default else "", inline(re.sub(r"\bNone\b", "null", said))])
    heading = f"## {section.title} {{ #{section.anchor} }}"
    return "\n\n".join(
        [heading, paragraphs(prose(section.kind.__doc__ or "")), table(["key", "type", "default", "meaning"], rows)]
    )


def type_in_words(hint: Any) -> str:
    """``whole number, at least 1, or null``; mappings with keys of their own are left out."""
    known = next((words for one, words in _WORDS.items() if hint == one), None)
    if known is not None or _kinds(hint) == [hint]:
        return known or ""
    return _composed(get_origin(hint), get_args(hint))


def _composed(origin: Any, parts: tuple[Any, ...]) -> str:
    """The words for a composite type."""
    if origin is Literal:
        return " or ".join(f"`{_yaml(part)}`" for part in parts)
    if origin is Annotated:
        limits = (word for constraint in parts[1:] for word in _limits(constraint))
        return ", ".join(part for part in (type_in_words(parts[0]), *limits) if part)
    if origin in (tuple, list):
        return f"a list of {_plural(type_in_words(parts[0])) or 'mappings'}"
    return f"by {type_in_words(parts[0])}" if origin is dict else _any_of(parts)


def _plural(words: str) -> str:
    return words.replace("whole number", "whole numbers", 1).replace("text", "names", 1)


def _any_of(parts: tuple[Any, ...]) -> str:
    if set(get_args(Spec)) <= set(parts):
        rest = tuple(part for part in parts if part not in get_args(Spec))
        return ", or ".join(word for word in (_WORDS[Spec], *map(type_in_words, rest)) if word)
    return " or ".join(word for word in map(type_in_words, parts) if word)


def _limits(constraint: Any) -> Iterator[str]:
    """A constraint in words."""
    if isinstance(constraint, FieldInfo):
        for one in constraint.metadata:
            yield from _limits(one)
    for kind, attribute, words in (
        (annotated_types.Ge, "ge", "at least"), (annotated_types.Gt, "gt", "above"), (annotated_types.Le, "le", "at most"),
        (annotated_types.Lt, "lt", "below"), (annotated_types.MinLen, "min_length", "not empty: at least"),
    ):  # fmt: skip
        if isinstance(constraint, kind):
            yield f"{words} {getattr(constraint, attribute):g}"


def _default(kind: type, name: str) -> str:
    """The default as a suite spells it; empty for a mapping with its own defaults."""
    if issubclass(kind, BaseModel):
        field = next(one for key, one in kind.model_fields.items() if (one.alias or key) == name)
        value = "required" if field.is_required() else field.get_default(call_default_factory=True)
    else:
        given = next(one for one in dataclasses.fields(kind) if one.name == name)
        value = given.default_factory() if given.default_factory is not dataclasses.MISSING else given.default
        value = "required" if value is dataclasses.MISSING else value
    return "" if isinstance(value, BaseModel) or dataclasses.is_dataclass(value) else _yaml(value)


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _meaning(kind: type, name: str) -> str:
    """The description of a key in its section's docstring; the summary of the section if the key is one."""
    said, inner = meaning(kind, name), _kinds(_hints(kind)[name])
    if said or not inner:
        return said
    return (inner[0].__doc__ or "").strip().partition("\n")[0]
