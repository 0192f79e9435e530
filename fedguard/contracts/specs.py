"""How a suite names an algorithm: a name, a call with parameters, a mapping, a pipeline. Text is parsed and never executed."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from fedguard.errors import ConfigError, brief
from fedguard.retired import note_renamed, renew_spec

Spec = str | Mapping[str, Any]

#: The algorithm behind ``module:function``, by kind
OWN = {"data": "function", "model": "module"}

#: Values of each kind that pydantic names, in words
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping of its keys",
    "dataclass": "a mapping of its keys",
}

#: What Python's parser raises on text that is not Python, malicious text included
_NO_LITERAL = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


def name_spec(given: Any) -> Any:
    """A spec in which ``{fate: weighted, ...}`` is ``{name: weighted, ...}``, and ``{form: product, ...}`` as well."""
    if isinstance(given, Mapping):
        # A swept form stands beside the name to which the suite's own form was turned
        own = [given[key] for key in ("fate", "form") if key in given]
        rest = {key: value for key, value in given.items() if key not in ("fate", "form")}
        return {**rest, "name": own[0]} if own else rest
    return given


def split_spec(kind: str, spec: Spec, where: str = "") -> tuple[str, dict[str, Any]]:
    """The name and the given parameters of a spec. A mapping may have ``kind`` instead of ``name``.

    ``openml:NAME`` is data of openml.org; ``module:function`` is the user's own data or model. Names of earlier versions are
    accepted, with a line on standard error; those in a suite were renewed before.
    """
    if isinstance(spec, str) and kind in OWN and (of := re.fullmatch(r"\s*([\w.]+):(\S+)\s*", spec)):
        if kind == "data" and of[1] == "openml":
            return "openml", {"dataset": of[2]}
        return OWN[kind], {"target": f"{of[1]}:{of[2]}"}
    if isinstance(spec, str):
        spec = _call(_parse(spec, where), spec, where)
    renamed: list[tuple[str, str]] = []
    spec = renew_spec(spec, renamed)
    note_renamed(renamed)
    if isinstance(spec, str):
        return spec, {}
    if not isinstance(spec, Mapping):
        raise ConfigError(
            at(where, f"expected a name from `fedguard list {kind}`, or a mapping with `name`; got {brief(spec)}.")
        )
    rest = dict(spec)
    name = rest.pop("name", None) or rest.pop("kind", None)
    if not isinstance(name, str):
        raise ConfigError(
            at(where, f"expected a mapping with a `name` from `fedguard list {kind}`; got {brief(dict(spec))}.")
        )
    return name, rest


def split_pipeline(text: str, where: str) -> list[Spec]:
    """``"nnm >> trimmed_mean"`` as specs."""
    stages: list[Spec] = []
    node = _parse(text, where)
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift):
        stages.insert(0, _call(node.right, text, where))
        node = node.left
    return [_call(node, text, where), *stages]


def misread(given: Any, made: Any, key: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Strings and booleans that pydantic has read as numbers, each with its key: ``lr: true`` is a mistake, not 1.

    Args:
        given: the content of a file: mappings, lists and scalars.
        made: the model, dataclass or value that was made of it.
    """
    if isinstance(given, bool | str):
        if isinstance(made, int | float) and not isinstance(made, bool):
            yield key, given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            yield from misread(
                value, made.get(name) if isinstance(made, Mapping) else getattr(made, name, None), (*key, name)
            )
    elif isinstance(given, list | tuple) and isinstance(made, list | tuple) and len(given) == len(made):
        for index, (value, below) in enumerate(zip(given, made, strict=True)):
            yield from misread(value, below, (*key, index))


def explain_fault(error: ErrorDetails) -> str:
    """What one of pydantic's errors expected, in our words: ``a whole number`` instead of ``a valid integer``."""
    kind, _, fault = error["type"].partition("_")
    if fault in ("type", "parsing", "parsing_size", "from_float") and kind in _EXPECTED:
        return _EXPECTED[kind]
    limits = error.get("ctx", {})
    if error["type"] in ("too_short", "too_long"):
        most = error["type"] == "too_long"
        count = limits["max_length" if most else "min_length"]
        return f"at {'most' if most else 'least'} {count} value{'s' * (count != 1)}"
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return {"missing": "a value, since it has no default", "finite_number": "a finite number"}.get(error["type"], said)


def at(where: str, message: str) -> str:
    """A message with its location, if known."""
    return f"{where}: {message}" if where else message


def _parse(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except _NO_LITERAL:
        raise _spec_error(text, where) from None


def _call(node: ast.expr, text: str, where: str) -> Spec:
    """``alie`` or ``alie(z=1.5)`` as a spec; values are Python literals, and nothing is executed."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise _spec_error(text, where)
    spec: dict[str, Any] = {"name": node.func.id}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _spec_error(text, where)
        if keyword.arg in spec:
            raise ConfigError(
                at(where, f"{node.func.id}: expected each parameter once; {keyword.arg} is given twice. Leave out one.")
            )
        try:
            spec[keyword.arg] = _read_literal(keyword.value)
        except _NO_LITERAL:
            got = brief(ast.get_source_segment(text.strip(), keyword.value))
            raise ConfigError(
                at(
                    where,
                    f"{node.func.id}: expected a number, a word in quotes or a list for {keyword.arg}; got {got}.",
                )
            ) from None
    return spec


#: ``null``, ``true`` and ``false`` of YAML, and what Python has for them
_YAML_WORDS = {"null": None, "true": True, "false": False}


def _read_literal(node: ast.expr) -> Any:
    """A Python literal, in which YAML's words are literals too."""
    whole = ast.Expression(copy.deepcopy(node))
    for part in [one for one in ast.walk(whole) if isinstance(one, ast.Name) and one.id in _YAML_WORDS]:
        part.id = repr(_YAML_WORDS[part.id])
    return ast.literal_eval(ast.unparse(whole))


def _spec_error(text: str, where: str) -> ConfigError:
    return ConfigError(
        at(where, f"expected 'name', 'name(parameter=value)' or such names joined by '>>'; got {brief(text)}.")
    )
