"""Messages about invalid suites: one line with the location, what was expected and what came."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ValidationError,
)

from fedguard.config.document import Document, Key, format_key
from fedguard.contracts.specs import explain_fault, misread
from fedguard.errors import ConfigError, UnknownName, brief

Validated = TypeVar("Validated", bound=BaseModel)


def validate_data(model: type[Validated], data: Mapping[str, Any], document: Document, at: Key = ()) -> Validated:
    """Validate ``data`` as a ``model``; messages name ``at`` as the location, if it is given.

    Raises:
        ConfigError: one line with file, line, key, the expected value and the actual one.
    """
    try:
        made = model.model_validate(data)
    except ValidationError as error:
        raise _explain_error(model, error, data, document, at) from None
    # pydantic converts silently: "lr: true" would be a learning rate of 1
    for key, value in misread(data, made):
        raise ConfigError(f"{place_of(document, at, key)}: expected a number; got {brief(value)}.")
    return made


def _explain_error(
    model: type[BaseModel], error: ValidationError, data: Mapping[str, Any], document: Document, at: Key
) -> ConfigError:
    """The first of pydantic's errors, in our words."""
    errors = error.errors()
    # An unknown key is reported first, since a misspelled key is often the cause of the other errors
    first = min(errors, key=lambda one: one["type"] not in _UNKNOWN)
    key = _without_branches(first["loc"], data)
    where = place_of(document, at, key)
    if first["type"] in _UNKNOWN:
        return UnknownName("key", str(first["loc"][-1]), _keys_at(model, first["loc"][:-1]), where)
    said = explain_fault(first)
    if first["type"] == "value_error":
        came = "" if "; got" in said or isinstance(first["input"], dict) else f"; got {brief(first['input'])}"
        return ConfigError(f"{where}: {said}{came}.")
    # The branches of a union have one error each
    branches = [
        explain_fault(one).removeprefix("expected ") for one in errors if _without_branches(one["loc"], data) == key
    ]
    came = "nothing" if first["type"] == "missing" else brief(first["input"])
    return ConfigError(f"{where}: expected {' or '.join(dict.fromkeys(branches))}; got {came}.")


#: pydantic's names for a key that does not exist, in a model and in a dataclass
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def place_of(document: Document, at: Key, key: Key) -> str:
    """Location of an error about ``key``: under a swept value, the location of the value and the key beside it."""
    where = document.where(at or key)
    return f"{where} ({format_key(key)})" if at and key and key[-1] != at[-1] else where


def _without_branches(loc: Key, data: Any) -> Key:
    """pydantic's location without the names of union branches: only parts that lead somewhere in the data, or that it lacks."""
    key: list[str | int] = []
    for part in loc:
        listed = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if listed or (isinstance(data, Mapping) and part in data):
            data = data[part]
            key.append(part)
        elif isinstance(data, Mapping) and part == loc[-1] and not _is_branch(part):
            key.append(part)
    return tuple(key)


def _is_branch(part: str | int) -> bool:
    """Whether a part of pydantic's location may be the name of a union branch instead of a key."""
    return isinstance(part, str) and (not part.isidentifier() or part in ("str", "int", "float") or part[0].isupper())


def _keys_at(model: Any, key: Key) -> Iterable[str]:
    """The valid keys in the section ``key`` of a model; the location may contain union branches."""
    sections = [model]
    for part in key:
        if isinstance(part, int):
            continue  # the items of a list are alike
        if _is_branch(part):
            sections = [section for section in sections if section.__name__ == part] or sections
            continue
        hints = [get_type_hints(section).get(str(part)) for section in sections]
        kinds = [kind for hint in hints for kind in (hint, *get_args(hint))]
        sections = [kind for kind in kinds if hasattr(kind, "model_fields") or dataclasses.is_dataclass(kind)]
    return [name for section in sections for name in _keys(section)]


def _keys(section: Any) -> list[str]:
    if dataclasses.is_dataclass(section):
        return [field.name for field in dataclasses.fields(section)]
    return [field.alias or name for name, field in section.model_fields.items()]
