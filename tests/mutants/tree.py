"""Edits of the syntax tree: a pattern within a function becomes something else, whatever things are named.

    defenses.aggregators.krum:Krum.weights: max(gram.n - f - 2, 1) --> max(gram.n - f - 1, 1)

The address is a module and, behind the colon, the class or function in it. The pattern is Python, and the one expression, or run of
statements, there that has its form:

- A name stands for any name, the same one each time, so that nothing here changes where something is renamed: names of variables,
  attributes and keywords apart. What Python or torch calls so (`len`, `.clamp`) stands for itself.
- A capital letter alone stands for any expression.
- `...` as a statement stands for any number of statements.

What follows the arrow is written with what was found, and so with today's names; names that the pattern lacks stand for themselves.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

#: Names that stand for themselves.
_BUILTINS = frozenset(dir(builtins)) | {"self", "cls"}
_KNOWN = frozenset().union(*map(dir, (torch, torch.Tensor, math, str, bytes, dict, list, set, int, float, object)))
#: Parts of a node that say nothing about its form.
_IGNORED = ("ctx", "kind", "type_comment", "type_ignores")
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


class PatternError(Exception):
    """A pattern without its one place in the source."""


@dataclass
class _Bound:
    """What the names, capitals and `...` of a pattern stand for."""

    names: dict[tuple[str, str], str] = field(default_factory=dict)
    expressions: dict[str, ast.expr] = field(default_factory=dict)
    runs: list[list[ast.stmt]] = field(default_factory=list)

    def copy(self) -> _Bound:
        return _Bound(dict(self.names), dict(self.expressions), list(self.runs))


def edited(source: str, name: str, pattern: str, replacement: str) -> str:
    """The source of a module with one edit in it.

    Args:
        source: of the module.
        name: dotted, of the class or function in it; empty for the module itself.
        pattern: what is looked for there.
        replacement: what stands there afterwards.

    Raises:
        PatternError: there is no such function, or the pattern has not one place in it; or nothing would change.
    """
    tree = ast.parse(source)
    before = ast.dump(tree)
    found = places(tree, name, pattern)
    if len(found) != 1:
        raise PatternError(
            f"{name or 'the module'}: expected this pattern exactly once; found it {len(found)} times:\n{pattern}"
        )
    (parent, part, at, bound), looked_for = found[0], _parsed(pattern)
    written = _parsed(replacement) if replacement else [ast.Pass()]
    value = getattr(parent, part)
    if isinstance(looked_for, list):
        statements = written if isinstance(written, list) else [ast.Expr(written)]
        value[at : at + _length(looked_for, bound)] = _filled(statements, bound)
    elif isinstance(written, list):
        raise PatternError(f"expected an expression in place of {pattern}; found statements:\n{replacement}")
    elif at is None:
        setattr(parent, part, _filled(written, bound))
    else:
        value[at] = _filled(written, bound)
    ast.fix_missing_locations(tree)
    if ast.dump(tree) == before:
        raise PatternError(f"{name}: nothing would change by {replacement}")
    return ast.unparse(tree) + "\n"


def places(tree: ast.Module, name: str, pattern: str) -> list[tuple[ast.AST, str, int | None, _Bound]]:
    """All places of a pattern in a class or function: the node, its part and the index there, and what the names stand for."""
    looked_for = _parsed(pattern)
    parts = (
        (parent, part, value) for parent in ast.walk(_scope(tree, name)) for part, value in ast.iter_fields(parent)
    )
    return [place for parent, part, value in parts for place in _among(parent, part, value, looked_for)]


def _scope(tree: ast.Module, name: str) -> _Scope:
    found: _Scope = tree
    for part in filter(None, name.split(".")):
        inner = [
            node
            for node in _within(found)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == part
        ]
        if len(inner) != 1:
            raise PatternError(f"expected one {part} in {name}; found {len(inner)}")
        found = inner[0]
    return found


def _within(scope: _Scope) -> Iterator[ast.AST]:
    """All nodes of a scope, without those of the functions and classes in it."""
    todo: list[ast.AST] = [*ast.iter_child_nodes(scope)]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))


def _parsed(text: str) -> ast.expr | list[ast.stmt]:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return ast.parse(text).body


def _among(
    parent: ast.AST, part: str, value: Any, pattern: ast.expr | list[ast.stmt]
) -> Iterator[tuple[ast.AST, str, int | None, _Bound]]:
    """The places of a pattern in one part of a node."""
    if isinstance(pattern, list):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            for at, stop in itertools.combinations(range(len(value) + 1), 2):
                if (bound := _matched(pattern, value[at:stop], _Bound())) is not None:
                    yield parent, part, at, bound
    elif isinstance(value, list):
        for at, one in enumerate(value):
            if isinstance(one, ast.expr) and (bound := _matched(pattern, one, _Bound())) is not None:
                yield parent, part, at, bound
    elif isinstance(value, ast.expr) and (bound := _matched(pattern, value, _Bound())) is not None:
        yield parent, part, None, bound


def _length(pattern: Sequence[ast.stmt], bound: _Bound) -> int:
    runs = iter(bound.runs)
    return sum(len(next(runs)) if _is_run(one) else 1 for one in pattern)


def _matched(pattern: Any, found: Any, bound: _Bound) -> _Bound | None:
    """What the pattern's names stand for; None where the form is another."""
    if isinstance(pattern, list):
        return _matched_lists(pattern, found, bound) if isinstance(found, list) else None
    if not isinstance(pattern, ast.AST):
        same = type(pattern) is type(found) and pattern == found
        return bound if same else None
    if isinstance(pattern, ast.Name) and _is_any(pattern.id):
        if not isinstance(found, ast.expr):
            return None
        known = bound.expressions.setdefault(pattern.id, found)
        return bound if ast.unparse(known) == ast.unparse(found) else None
    if type(pattern) is not type(found):
        return None
    for part, value in ast.iter_fields(pattern):
        if part in _IGNORED:
            continue
        other, role = getattr(found, part), _role(pattern, part)
        if role and isinstance(value, str):
            if not isinstance(other, str) or not _named(role, value, other, bound):
                return None
        elif _matched(value, other, bound) is None:
            return None
    return bound


def _matched_lists(pattern: list[Any], found: list[Any], bound: _Bound) -> _Bound | None:
    if not pattern:
        return None if found else bound
    first, rest = pattern[0], pattern[1:]
    if _is_run(first):
        for length in range(len(found) + 1):
            trial = bound.copy()
            trial.runs.append(found[:length])
            if (done := _matched_lists(rest, found[length:], trial)) is not None:
                bound.names, bound.expressions, bound.runs = done.names, done.expressions, done.runs
                return bound
        return None
    if not found or _matched(first, found[0], bound) is None:
        return None
    return _matched_lists(rest, found[1:], bound)


def _role(node: ast.AST, part: str) -> str:
    """What kind of name a part of a node is, if it is one."""
    if isinstance(node, ast.Attribute):
        return "attribute" if part == "attr" else ""
    if isinstance(node, ast.keyword):
        return "keyword" if part == "arg" else ""
    return "name" if part in ("id", "arg", "name", "asname") else ""


def _named(role: str, name: str, found: str, bound: _Bound) -> bool:
    if is_known(role, name):
        return name == found
    return not is_known(role, found) and bound.names.setdefault((role, name), found) == found


def is_known(role: str, name: str) -> bool:
    return name in (_KNOWN if role == "attribute" else _BUILTINS) or (name.startswith("__") and name.endswith("__"))


def _is_any(name: str) -> bool:
    return len(name) == 1 and name.isupper()


def _is_run(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _filled(node: Any, bound: _Bound, runs: Iterator[list[ast.stmt]] | None = None) -> Any:
    """A replacement, with what its names stand for."""
    runs = iter(bound.runs) if runs is None else runs
    if isinstance(node, list):
        parts = [next(runs, []) if _is_run(one) else [_filled(one, bound, runs)] for one in node]
        return [*itertools.chain.from_iterable(parts)]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.Name) and node.id in bound.expressions:
        return bound.expressions[node.id]
    parts = {}
    for part, value in ast.iter_fields(node):
        role = _role(node, part)
        parts[part] = (
            bound.names.get((role, value), value) if role and isinstance(value, str) else _filled(value, bound, runs)
        )
    return type(node)(**parts)
