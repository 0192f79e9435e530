"""Each parameter's range is part of its type, and refused in the same words wherever a value comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Interval, Le, Lt, MinLen, MultipleOf
from rich.console import Console

from fedguard.bench.explain.catalogue import Explanation
from fedguard.bench.explain.settings import settings
from fedguard.contracts import Algorithm, NonNegativeFloat, PositiveInt, ProperFraction
from fedguard.contracts.ranges import check_of, type_in_words, without_ranges
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError, PluginError
from fedguard.registry import load_registry

#: What has no default.
GIVEN = {"dataset": "d", "folder": "f", "file": "f", "groups": 2, "label": "l", "target": UserFunction("math:sqrt"),
         "id": "CartPole-v1", "good": 475.0, "tokenizer": "t"}  # fmt: skip
#: Where another parameter forbids what the range allows.
FORBIDDEN = {
    ("crfl", "cap"),
    ("dreaming", "candidates"),
    ("feature_collision", "base"),
    ("feature_collision", "victim"),
    ("grad_defense", "slices"),
    ("pairwise_flip", "source_class"),
    ("pairwise_flip", "target_class"),
    ("resnet8", "width"),
    ("resnet20", "width"),
    ("transformer", "width"),
}


def ends(kind: type, limits: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """The numbers just outside of a range, and its first and last."""
    step = next((limit.multiple_of for limit in limits if isinstance(limit, MultipleOf)), 1)
    outside, inside = [], []
    for limit in limits:
        for closed, cls, sign in (("ge", Ge, 1), ("gt", Gt, 1), ("le", Le, -1), ("lt", Lt, -1)):
            if isinstance(limit, cls):
                at = kind(getattr(limit, closed))
                up, down = (
                    (math.nextafter(at, sign * math.inf), math.nextafter(at, -sign * math.inf))
                    if kind is float
                    else (at + sign * step, at - sign * step)
                )
                outside.append(down if cls in (Ge, Le) else at)
                inside.append(at if cls in (Ge, Le) else up)
    return outside, inside


def tried(hint: Any, usual: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """For each range in a type, the values just outside and those just inside."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and get_origin(args[0]) is tuple:
        least = next(limit.min_length for limit in args[1:] if isinstance(limit, MinLen))
        yield [usual[: least - 1]], [usual[:least]]
        yield from tried(args[0], usual)
    elif origin is Annotated:
        yield ends(args[0], args[1:])
    elif origin is tuple:
        others = () if usual is None else usual[1:]
        for outside, inside in tried(args[0], usual):
            yield [(one, *others) for one in outside], [(one, *others) for one in inside]
    else:
        for arg in args:
            yield from tried(arg, usual)


def ranges() -> Iterator[tuple[str, type[Algorithm], str, list[Any], list[Any]]]:
    for kind, cls in load_registry().classes():
        for field in cls.fields():
            for outside, inside in tried(cls.types()[field.name], field.default):
                if outside:
                    yield kind, cls, field.name, outside, inside


RANGES = [pytest.param(*one, id=f"{one[0]}-{one[1].name}-{one[2]}") for one in ranges()]


def required(cls: type[Algorithm]) -> dict[str, Any]:
    return {
        one.name: GIVEN[one.name] for one in cls.fields() if one.default is MISSING and one.default_factory is MISSING
    }


def refused(kind: str, cls: type[Algorithm], parameter: str, value: Any) -> str | None:
    """What is said of a value, in Python and to a suite alike; None where it is accepted."""
    given = {**required(cls), parameter: value}
    spelled = {name: str(one) if isinstance(one, UserFunction) else one for name, one in given.items()}
    in_python = said(partial(cls, **given))
    assert in_python == said(partial(load_registry().build, kind, {"name": cls.name, **spelled}))
    return in_python


def said(make: Callable[[], Any]) -> str | None:
    try:
        make()
    except ConfigError as error:
        return str(error)
    return None


def test_there_are_many():
    assert len(RANGES) > 200


@pytest.mark.parametrize(("kind", "cls", "parameter", "outside", "inside"), RANGES)
def test_a_range_is_kept_in_python_and_in_suites(kind, cls, parameter, outside, inside):
    for value in outside:
        words = refused(kind, cls, parameter, value)
        assert words is not None and words.startswith(f"{cls.name}: {parameter}") and "expected " in words
    for value in inside if (cls.name, parameter) not in FORBIDDEN else ():
        assert refused(kind, cls, parameter, value) is None


def floats() -> list[tuple[str, type[Algorithm], str]]:
    return [
        (kind, cls, name)
        for kind, cls in load_registry().classes()
        for name, hint in cls.types().items()
        if name in [field.name for field in cls.fields()] and without_ranges(hint) in (float, float | None)
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_are_finite(value):
    assert len(floats()) > 80
    for kind, cls, name in floats():
        assert refused(kind, cls, name, value) == f"{cls.name}: {name}: expected a finite number; got {value}."


@pytest.mark.parametrize(
    ("hint", "value", "fault"),
    [
        (Annotated[float, Gt(0)], 0.0, "expected more than 0"),
        (Annotated[float, Gt(0)], "much", "expected more than 0"),
        (Annotated[int, Ge(1)], 0, "expected at least 1"),
        (Annotated[int, Lt(3)], 3, "expected less than 3"),
        (Annotated[int, Le(3)], 4, "expected at most 3"),
        (Annotated[float, Interval(ge=0, lt=1)], 1.0, "expected a number in [0, 1)"),
        (Annotated[float, Lt(1), Gt(0)], 1.0, "expected a number in (0, 1)"),
        (Annotated[int, MultipleOf(2), Ge(4)], 5, "expected at least 4 and a multiple of 2"),
        (Annotated[float, Gt(0)] | None, -1.0, "expected more than 0"),
        (Literal["auto"] | Annotated[float, Gt(0)], -1.0, "expected more than 0"),
        (tuple[NonNegativeFloat, ...], (0.0, -1.0), ".1 expected at least 0"),
        (tuple[str, PositiveInt] | None, ("a", 0), ".1 expected at least 1"),
        (Annotated[tuple[str, ...], MinLen(1)], (), "expected at least 1 value"),
        (Annotated[tuple[str, ...], MinLen(2)], ("a",), "expected at least 2 values"),
        (float, 10**400, "expected a number"),
    ],
)
def test_faults(hint, value, fault):
    check = check_of(hint)
    assert check is not None
    found = check(value)
    assert found is not None
    assert f"{found.at} expected {found.expected}".strip() == fault


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Annotated[float, Gt(0)] | None, None),
        (Literal["auto"] | Annotated[float, Gt(0)], "auto"),
        (Annotated[float, Gt(0)] | tuple[NonNegativeFloat, ...], (0.0,)),
        (Annotated[int, MultipleOf(2), Ge(4)], 6),
        (float, 10**300),
    ],
)
def test_what_is_in_range(hint, value):
    assert check_of(hint)(value) is None


@pytest.mark.parametrize(
    "hint", [int, str, bool | None, Literal["a", "b"], tuple[str, ...], Annotated[int, "a note"], Any]
)
def test_types_without_ranges_are_not_checked(hint):
    assert check_of(hint) is None


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[float, Gt(0)], "float > 0"),
        (ProperFraction | None, "0 < float < 1 | None"),
        (Annotated[int, Interval(ge=2, le=9)], "2 <= int <= 9"),
        (Annotated[int, Ge(4), MultipleOf(2)], "int >= 4, a multiple of 2"),
        (Annotated[tuple[NonNegativeFloat, ...], MinLen(1)], "tuple[float >= 0, ...], at least 1 value"),
        (Literal["a"], "Literal['a']"),
    ],
)
def test_types_in_words(hint, words):
    assert type_in_words(hint) == words


def test_other_notes_stay():
    assert without_ranges(Annotated[int, Ge(1), "a note"] | None) == Annotated[int, "a note"] | None


def test_what_explain_shows():
    shown = {one.name: one.type for one in settings(load_registry().get("defense", "centered_clipping"))}
    assert shown == {"tau": "float > 0 | None", "steps": "int >= 1"}


def test_explain_prints_what_stands_in_brackets(capsys):
    Console(width=200).print(Explanation(load_registry(), "inverting_gradients"))
    assert "tuple[float >= 0, ...], at least 1 value" in capsys.readouterr().out


RULE = """
from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import ROWS, {}, WeightRule


@dataclass(frozen=True, kw_only=True)
class Mine(WeightRule):
    name, needs = "mine", ROWS
    power: {} = 1.0

    def weights(self, gram, context):
        return gram.norms()
"""


def test_a_module_whose_name_another_has_taken_keeps_its_ranges(tmp_path):
    known = []
    for folder, hint in (("a", "PositiveFloat"), ("b", "NonNegativeFloat")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(RULE.format(hint, hint))
        known.append(load_registry().with_modules(["mine"], tmp_path / folder))
    with pytest.raises(ConfigError, match=r"^mine: power: expected more than 0; got 0\.0\.$"):
        known[0].build("defense", "mine(power=0)")
    assert known[1].build("defense", "mine(power=0)").power == 0


def test_a_plugin_with_an_unknown_type_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(RULE.format("Share", "Unknown"))
    with pytest.raises(
        PluginError, match="module 'mine': Mine: the types of its parameters cannot be read: NameError: name 'Unk"
    ):
        load_registry().with_modules(["mine"], tmp_path)
