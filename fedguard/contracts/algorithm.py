"""What everything with a name in the registry has in common."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from fedguard.contracts.ranges import Check, check_of
from fedguard.contracts.sight import Needs, Sight
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError, brief


class Algorithm:
    """Base of attacks, defenses, data sets, partitions and models.

    A subclass is a frozen, keyword-only dataclass: its fields are the parameters a suite may set, and their types say in which
    range each may be. Its docstring starts with one line that says what it does; then come the formula and the parameters.
    """

    kind: ClassVar[str]
    #: The paper's name in snake_case, by which suites refer to it
    name: ClassVar[str]
    #: Paper, venue and year.
    source: ClassVar[str] = ""
    #: What it must see: alternatives, the preferred one first; rules, mixings and attacks have to declare it
    needs: ClassVar[Needs] = (Sight.NOTHING,)
    #: Parameters added in later versions, with the values that reproduce the earlier version: specs leave these out
    later: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        """Check the range of each parameter. A class that checks combinations of parameters calls this first.

        Raises:
            ConfigError: a parameter is out of the range in its type, or a float is not finite.
        """
        cls: type = type(self)
        for parameter, check in _checks(cls):
            if fault := check(getattr(self, parameter)):
                at, expected, got = fault
                raise ConfigError(f"{self.name}: {parameter}{at}: expected {expected}; got {brief(got)}.")

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @classmethod
    @cache
    def fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The parameters, as dataclass fields; none for a class that is not a dataclass."""
        return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()

    @classmethod
    @cache
    def types(cls) -> Mapping[str, Any]:
        """The parameters' types with their ranges, resolved in the modules that define them, which may be unloaded by now."""
        return {
            name: hint
            for base in reversed(cls.__mro__)
            if "__dataclass_fields__" in vars(base)
            for name, hint in inspect.get_annotations(
                base, globals=vars(base)["__init__"].__globals__, eval_str=True
            ).items()
        }

    @classmethod
    def stands_in(cls) -> str | None:
        """The file that defines it, relative to the working directory; None for FedGuard's own."""
        if cls.__module__.partition(".")[0] == "fedguard":
            return None
        try:
            file = Path(inspect.getfile(cls)).resolve()
        except (TypeError, OSError):  # made while a session ran
            return f"module {cls.__module__}"
        return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)

    def parameters(self) -> dict[str, Any]:
        """Every parameter with its value, defaults included."""
        return {field.name: getattr(self, field.name) for field in self.fields()}

    @property
    def modules(self) -> frozenset[str]:
        """The top-level modules whose code it runs."""
        return frozenset({type(self).__module__.partition(".")[0]})

    def spec(self) -> dict[str, Any]:
        """``{"name": ..., every parameter}``: JSON that rebuilds this object and enters a cell's identity.

        Parameters in `later` with the value listed there are left out, so that older cells keep their identity.
        """
        values = {
            key: value.spec()
            if isinstance(value, Algorithm)
            else str(value)
            if isinstance(value, UserFunction)
            else value
            for key, value in self.parameters().items()
        }
        return {"name": self.name, **{key: value for key, value in values.items() if self.later.get(key, ...) != value}}

    def __str__(self) -> str:
        given = [
            f"{field.name}={_short(getattr(self, field.name))}"
            for field in self.fields()
            if getattr(self, field.name) != _default(field)
        ]
        return f"{self.name}({', '.join(given)})" if given else self.name


@cache
def _checks(cls: Any) -> tuple[tuple[str, Check], ...]:
    """The parameters that have a check, each with it."""
    types = cls.types()
    return tuple((field.name, check) for field in cls.fields() if (check := check_of(types[field.name])))


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
