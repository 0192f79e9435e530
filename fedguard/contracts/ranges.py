"""The ranges of parameters, which are part of their types: ``scale: Annotated[float, Gt(0)] = 1.0``.

A range is written with `annotated_types`: Gt, Ge, Lt, Le, Interval and MultipleOf for numbers, MinLen for tuples. It may stand
within a union or a tuple. Floats are finite besides.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import BaseMetadata, Ge, Gt, Interval, Le, Lt, MinLen, MultipleOf

PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
#: A positive part of something, or all of it
Share = Annotated[float, Gt(0), Le(1)]
#: A positive part of something, but not all of it
ProperFraction = Annotated[float, Gt(0), Lt(1)]
#: From nothing to all of something
Fraction = Annotated[float, Ge(0), Le(1)]


class Fault(NamedTuple):
    """A violation of a range.

    Attributes:
        at: position in the value: ``.1`` is the second element of a tuple.
        expected: the expected range, in words.
        got: the actual value.
    """

    at: str
    expected: str
    got: Any


#: The fault of a value; None if it has none
Check = Callable[[Any], Fault | None]


class _Bound(NamedTuple):
    """One kind of bound: in words, as a sign between a number and it, and as a test of (bound, number)."""

    words: str
    sign: str
    keeps: Callable[[Any, Any], bool]


_BRACKETS = {">": "(", ">=": "[", "<": ")", "<=": "]"}
_BOUNDS = {
    Gt: _Bound("more than", ">", operator.lt),
    Ge: _Bound("at least", ">=", operator.le),
    Lt: _Bound("less than", "<", operator.gt),
    Le: _Bound("at most", "<=", operator.ge),
}


def check_of(hint: Any) -> Check | None:
    """The check of values of this type; None for a type without floats or ranges."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is float:
        return _number(hint, ())
    if origin is Annotated:
        limits = _limits(args[1:])
        if get_origin(args[0]) is tuple:
            return _tuple(get_args(args[0]), limits)
        return _number(args[0], limits) if limits else check_of(args[0])
    if origin is tuple:
        return _tuple(args, ())
    return _union(args) if origin in (Union, types.UnionType) else None


def without_ranges(hint: Any) -> Any:
    """The same type without its ranges; its other annotations are kept."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        others = [one for one in args[1:] if not _limits([one])]
        return functools.reduce(lambda made, one: Annotated[made, one], others, without_ranges(args[0]))
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(without_ranges, args))
    return tuple.__class_getitem__(tuple(map(without_ranges, args))) if origin is tuple else hint


def type_in_words(hint: Any) -> str:
    """``float > 0``, ``0 < float <= 1``, ``int >= 1 | None``, ``tuple[float >= 0, ...], at least 2 values``."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _describe_range(type_in_words(args[0]), _limits(args[1:]))
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_in_words, args))
    if origin is tuple:
        return f"tuple[{', '.join(map(type_in_words, args))}]"
    if hint is Ellipsis:
        return "..."
    if isinstance(hint, type):
        return "None" if hint is types.NoneType else hint.__name__
    return str(hint).replace("typing.", "")


def list_in_words(hint: Any) -> str:
    """``a list of 2 whole numbers``, ``a list of texts``: what a tuple of a type may be."""
    hints = [one for part in (hint, *get_args(hint)) for one in (part, *get_args(part)) if get_origin(one) is tuple]
    items = get_args(without_ranges(hints[0])) if hints else ()
    kinds = {int: "whole numbers", float: "numbers", str: "texts"}
    count = "" if not items or Ellipsis in items else f"{len(items)} "
    return f"a list of {count}{kinds.get(items[0], 'values') if items else 'values'}"


def _limits(metadata: Sequence[Any]) -> list[BaseMetadata]:
    """The limits in the annotations of a type, lower ones first."""
    single = itertools.chain.from_iterable(one if isinstance(one, Interval) else (one,) for one in metadata)
    order = [*_BOUNDS, MultipleOf, MinLen]
    return sorted((one for one in single if type(one) in order), key=lambda one: order.index(type(one)))


def _bounds(limits: Sequence[BaseMetadata]) -> Iterator[tuple[_Bound, Any]]:
    """The bounds on a number, each with its kind."""
    for limit in limits:
        if type(limit) in _BOUNDS:
            yield _BOUNDS[type(limit)], getattr(limit, type(limit).__name__.lower())


def _number(kind: type, limits: Sequence[BaseMetadata]) -> Check:
    floating, words = kind is float, _describe_limits(limits)
    tests: list[Callable[[Any], bool]] = [partial(bound.keeps, at) for bound, at in _bounds(limits)]
    tests += [partial(_divides, limit.multiple_of) for limit in limits if isinstance(limit, MultipleOf)]

    def check(value: Any) -> Fault | None:
        try:
            if floating and not math.isfinite(value):
                return Fault("", "a finite number", value)
            for test in tests:
                if not test(value):
                    return Fault("", words, value)
        except (TypeError, OverflowError):
            return Fault("", words, value)
        return None

    return check


def _divides(factor: Any, value: Any) -> bool:
    return bool(value % factor == 0)


def _tuple(items: Sequence[Any], limits: Sequence[BaseMetadata]) -> Check | None:
    checks = [check_of(item) for item in items if item is not Ellipsis]
    least, words = _least(limits), _describe_limits(limits)
    if not least and not any(checks):
        return None

    def check(value: Any) -> Fault | None:
        if not isinstance(value, tuple | list) or len(value) < least:
            return Fault("", words, value)
        for index, item in enumerate(value):
            of_item = checks[index % len(checks)]
            if of_item and (fault := of_item(item)):
                return fault._replace(at=f".{index}{fault.at}")
        return None

    return check


def _least(limits: Sequence[BaseMetadata]) -> int:
    return max((limit.min_length for limit in limits if isinstance(limit, MinLen)), default=0)


def _union(parts: Sequence[Any]) -> Check | None:
    """The check of a value of one of several types; the first of them with a check describes what was expected."""
    checks = [of_part for part in parts if (of_part := check_of(part))]
    others = tuple(cls for part in parts if check_of(part) is None for cls in _classes(part))

    def check(value: Any) -> Fault | None:
        if isinstance(value, others):
            return None
        faults = [of_part(value) for of_part in checks]
        return None if None in faults else faults[0]

    return check if checks else None


def _classes(part: Any) -> Iterator[type]:
    """The classes of the values of a type."""
    if get_origin(part) is Literal:
        yield from map(type, get_args(part))
    elif isinstance(cls := get_origin(part) or part, type):
        yield cls


def _describe_limits(limits: Sequence[BaseMetadata]) -> str:
    """``more than 0``, ``a number in (0, 1]``, ``at least 4 and a multiple of 2``, ``at least 1 value``."""
    bounds = list(_bounds(limits))
    words = [f"{bound.words} {at}" for bound, at in bounds]
    if len(bounds) == 2:
        (low, least), (high, most) = bounds
        words = [f"a number in {_BRACKETS[low.sign]}{least}, {most}{_BRACKETS[high.sign]}"]
    words += [f"a multiple of {limit.multiple_of}" for limit in limits if isinstance(limit, MultipleOf)]
    if least := _least(limits):
        words.append(f"at least {least} value" + "s" * (least > 1))
    return " and ".join(words) or "a number"


def _describe_range(kind: str, limits: Sequence[BaseMetadata]) -> str:
    """A type between its bounds."""
    bounds = list(_bounds(limits))
    if len(bounds) == 2:
        (low, least), (high, most) = bounds
        kind = f"{least} {low.sign.replace('>', '<')} {kind} {high.sign} {most}"
    elif bounds:
        kind = f"{kind} {bounds[0][0].sign} {bounds[0][1]}"
    rest = [limit for limit in limits if type(limit) not in _BOUNDS]
    return ", ".join([kind, _describe_limits(rest)]) if rest else kind
