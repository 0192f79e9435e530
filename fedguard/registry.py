"""Finds every algorithm by its name: the built-in ones, and those of plug-ins.

Built-in algorithms are listed in tables (``attacks/__init__.py``, ``defenses/__init__.py``, ``fedguard/tasks/__init__.py``). A
package adds its own by entry points in the groups ``fedguard.attacks``, ``fedguard.defenses``, ``fedguard.data`` ...; a suite
adds those of a module that it names under ``plugins:``. A plug-in that cannot be loaded, or that uses an existing name, is an
error at once. So no result is ever computed with the wrong algorithm.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fedguard import contracts
from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.ranges import list_in_words, without_ranges
from fedguard.contracts.sight import Sight
from fedguard.contracts.specs import Spec, at, explain_fault, misread, split_pipeline, split_spec
from fedguard.contracts.user_function import FAILURES, UserFunction
from fedguard.errors import ConfigError, PluginError, UnknownName, brief
from fedguard.modules import load_module

if TYPE_CHECKING:
    from fedguard.contracts import Pipeline

#: kind -> (its contracts, the table of the built-in ones, the entry-point group); names, since most contracts load torch
KINDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "attack": (("contracts:PoisonAttack", "contracts:Ensemble"), "fedguard.attacks:CATALOGUE", "fedguard.attacks"),
    "inference": (("contracts:InferenceAttack",), "fedguard.attacks:INFERENCE", "fedguard.inference"),
    "protocol": (("secagg.contest:ProtocolAttack",), "fedguard.attacks:PROTOCOL", "fedguard.protocol_attacks"),
    "evasion": (("contracts:EvasionAttack",), "fedguard.attacks:EVASION", "fedguard.evasions"),
    "trigger": (("contracts:Trigger",), "fedguard.attacks:TRIGGERS", "fedguard.triggers"),
    "defense": (("contracts:Defense",), "fedguard.defenses:CATALOGUE", "fedguard.defenses"),
    "data": (("contracts:Data", "contracts:Environment"), "fedguard.tasks:DATA", "fedguard.data"),
    "partition": (("contracts:Partition",), "fedguard.tasks:PARTITIONS", "fedguard.partitions"),
    "model": (("contracts:Model",), "fedguard.tasks:MODELS", "fedguard.models"),
    "algorithm": (("contracts:FederatedAlgorithm",), "fedguard.algorithms:ALGORITHMS", "fedguard.algorithms"),
    "statistics": (("contracts:StatisticsFate",), "fedguard.statistics:FATES", "fedguard.statistics"),
    "adapters": (("adapters.form:AdapterForm",), "fedguard.adapters:FORMS", "fedguard.adapters"),
    "masking": (("contracts:Masking",), "fedguard.architectures.masking:MASKINGS", "fedguard.maskings"),
    "noise": (("contracts:Noise",), "fedguard.privacy.kinds:NOISES", "fedguard.noises"),
    "architecture": (("contracts:Architecture",), "fedguard.architectures:ARCHITECTURES", "fedguard.architectures"),
    "availability": (
        ("contracts:Availability",),
        "fedguard.simulated.availability:AVAILABILITIES",
        "fedguard.availabilities",
    ),
}

#: Origin of FedGuard's own algorithms
BUILT_IN = "built in"


@dataclass(frozen=True)
class Entry:
    """One name: its class or the location of its class, and its origin."""

    target: str | type[Algorithm]
    origin: str

    @property
    def place(self) -> str:
        """``module:attribute``."""
        return self.target if isinstance(self.target, str) else f"{self.target.__module__}:{self.target.__qualname__}"


@dataclass(frozen=True)
class Registry:
    """Known algorithms, by kind and name. A registry never changes: `with_modules` makes another one.

    Attributes:
        entries: kind -> name -> entry.
        folder: folder in which the user's own modules are looked up, in addition to Python's path.
    """

    entries: Mapping[str, Mapping[str, Entry]]
    folder: Path | None = None

    def with_modules(self, names: Sequence[str], folder: Path | None = None, places: Sequence[str] = ()) -> Registry:
        """The registry with the algorithms of modules added, which are in ``folder`` or installed.

        Args:
            places: for messages, where each of them is named.

        Raises:
            PluginError: a module cannot be imported or defines no algorithm, or a name is taken twice.
        """
        entries = {kind: dict(known) for kind, known in self.entries.items()}
        for name, where in itertools.zip_longest(names, places, fillvalue="plugins"):
            for cls in _algorithms(name, folder, where):
                _add(entries, cls.kind, cls.name, Entry(cls, f"module {name}"))
        return Registry(entries, folder)

    def names(self, kind: str) -> list[str]:
        """The known names of one kind, the built-in ones first, in the order of their tables."""
        return list(self.entries[kind])

    def classes(self, kinds: Sequence[str] | None = None) -> Iterator[tuple[str, type[Algorithm]]]:
        """(kind, class) of every known algorithm of these kinds."""
        for kind in kinds or KINDS:
            for name in self.names(kind):
                yield kind, self.get(kind, name)

    def origin(self, kind: str, name: str) -> str:
        """`BUILT_IN`, or the package or module that brought the name. Raises UnknownName if there is no such name."""
        return self._entry(kind, name).origin

    def get(self, kind: str, name: str, where: str = "") -> type[Algorithm]:
        """The class of a name.

        Raises:
            UnknownName: no such name.
            PluginError: the class cannot be loaded or breaks its contract.
        """
        entry = self._entry(kind, name, where)
        try:
            cls = _resolve(entry.target) if isinstance(entry.target, str) else entry.target
        except FAILURES as error:
            raise PluginError(
                f"{kind} {name!r} from {entry.origin} cannot be loaded from {entry.place!r}: {_oneline(error)}. "
                "Fix the plug-in, or uninstall it."
            ) from error
        wanted: tuple[type[Algorithm], ...] = tuple(_resolve(f"fedguard.{contract}") for contract in KINDS[kind][0])
        if not (inspect.isclass(cls) and issubclass(cls, wanted)):
            names = " or ".join(contract.__name__ for contract in wanted)
            raise PluginError(
                f"{kind} {name!r} from {entry.origin}: expected a class derived from {names}; got {cls!r}."
            )
        found: type = cls
        if lacking := _lacking(found):
            raise PluginError(
                f"{kind} {name!r} from {entry.origin} ({cls.stands_in()}): expected a class with the methods of "
                f"{cls.__mro__[1].__name__}; {cls.__name__} lacks {', '.join(lacking)}."
            )
        if issubclass(cls, (contracts.Defense, contracts.PoisonAttack, contracts.InferenceAttack)):
            _check_needs(f"{kind} {name!r} from {entry.origin}", cls)
        if getattr(cls, "name", None) != name:
            raise PluginError(
                f"{kind} {name!r} from {entry.origin}: expected a class with name = {name!r}; "
                f"got {cls.__name__} with name = {getattr(cls, 'name', None)!r}."
            )
        return cls

    def _entry(self, kind: str, name: str, where: str = "") -> Entry:
        entries = self.entries[kind]
        if name not in entries:
            raise UnknownName(kind, name, entries, where)
        return entries[name]

    def build(self, kind: str, spec: Spec, where: str = "") -> Any:
        """Build an algorithm from ``"name"``, ``"name(parameter=value)"`` or ``{"name": ..., "parameter": ...}``.

        Args:
            where: location of the spec, for messages (``suite.yaml: matrix.attack[2]``).

        Raises:
            ConfigError: unknown names or parameters, or values of the wrong type.
        """
        name, given = split_spec(kind, spec, where)
        cls = self.get(kind, name, where)
        known = [field.name for field in cls.fields()]
        values = {}
        for parameter, value in given.items():
            if parameter not in known:
                raise UnknownName(f"parameter of {name}", parameter, known, where)
            values[parameter] = self._value(cls, parameter, value, where)
        required = [field.name for field in cls.fields() if field.default is field.default_factory]  # MISSING both
        if missing := [parameter for parameter in required if parameter not in values]:
            told = f"{name}: expected {', '.join(missing)}, which {'have' if missing[1:] else 'has'} no default"
            raise ConfigError(at(where, f"{told}: {name}({', '.join(f'{one}=...' for one in missing)})."))
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(at(where, str(error))) from None
        except FAILURES as error:
            if self.origin(kind, name) == BUILT_IN:
                raise
            told = f"{kind} {name!r} ({cls.stands_in()}): cannot be made: {_oneline(error)}. Fix its class."
            raise PluginError(at(where, told)) from error

    def pipeline(self, spec: Spec | Sequence[Spec] | Pipeline, where: str = "") -> Pipeline:
        """Build a defense from ``"nnm >> trimmed_mean"``, from the spec of a single stage, or from a list of specs."""
        if isinstance(spec, contracts.Pipeline):
            return spec
        if isinstance(spec, Mapping) and set(spec) == {"name"}:
            spec = str(spec["name"])
        stages = split_pipeline(spec, where) if isinstance(spec, str) else [spec] if isinstance(spec, Mapping) else spec
        if not isinstance(stages, Sequence):
            raise ConfigError(at(where, f"expected a defense such as 'nnm >> trimmed_mean'; got {brief(spec)}."))
        built = tuple(self.build("defense", stage, where) for stage in stages)
        try:
            pipeline = contracts.Pipeline(built)
            pipeline.rule  # noqa: B018  raises where the pipeline has no rule
        except ConfigError as error:
            raise ConfigError(at(where, str(error))) from None
        return pipeline

    def _part(self, cls: type[Algorithm], parameter: str, wanted: type[Algorithm], value: Any, where: str) -> Algorithm:
        """A parameter that is an algorithm itself."""
        part: Algorithm = value if isinstance(value, Algorithm) else self.build(wanted.kind, value, where)
        if not isinstance(part, wanted):
            raise ConfigError(at(where, f"{cls.name}: {parameter}: expected a {wanted.__name__}; got {part}."))
        return part

    def _value(self, cls: type[Algorithm], parameter: str, value: Any, where: str) -> Any:
        hint = cls.types()[parameter]
        for part in get_args(hint) if isinstance(hint, UnionType) else (hint,):  # a class, or a class or None
            if inspect.isclass(part) and issubclass(part, Algorithm) and value is not None:
                return self._part(cls, parameter, part, value, where)
        if hint is UserFunction and isinstance(value, str):
            try:
                return UserFunction(value, self.folder)
            except ConfigError as error:
                raise ConfigError(at(where, f"{cls.name}: {parameter}: {error}")) from None
        owner: type = cls
        try:
            made = _reader(owner, parameter).validate_python(value)
            said = "a number" if any(misread(value, made)) else ""
        except ValidationError as error:
            said, place, value = _explain_faults(owner, parameter, error.errors())
            parameter = ".".join(map(str, (parameter, *place)))
        if said:
            raise ConfigError(at(where, f"{cls.name}: {parameter}: expected {said}; got {brief(value)}."))
        return made


@cache
def load_registry() -> Registry:
    """The algorithms of FedGuard and of installed packages.

    Raises:
        PluginError: an algorithm of a package cannot be loaded, or uses an existing name.
    """
    entries: dict[str, dict[str, Entry]] = {}
    points = entry_points()
    for kind, (_, table, group) in KINDS.items():
        entries[kind] = {name: Entry(target, BUILT_IN) for name, target in _resolve(table).items()}
        for point in points.select(group=group):
            origin = f"package {point.dist.name} {point.dist.version}" if point.dist else "an entry point"
            _add(entries, kind, point.name, Entry(f"{point.module}:{point.attr}", origin))
            Registry(entries).get(kind, point.name)
    return Registry(entries)


#: Name of `load_registry` in earlier versions
installed = load_registry


def _add(entries: dict[str, dict[str, Entry]], kind: str, name: str, entry: Entry) -> None:
    known = entries[kind].get(name)
    if known is not None and known.place != entry.place:
        raise PluginError(
            f"{kind} {name!r} is taken twice: by {known.origin} ({known.place}) and by {entry.origin} ({entry.place}). "
            "Rename one, or uninstall it."
        )
    entries[kind][name] = entry


@cache
def _reader(cls: type[Algorithm], parameter: str) -> TypeAdapter[Any]:
    """The reader of a parameter's values, cached because pydantic takes longer to build it than to use it."""
    return TypeAdapter(without_ranges(cls.types()[parameter]), config={"allow_inf_nan": False})


def _explain_faults(
    cls: type[Algorithm], parameter: str, errors: Sequence[ErrorDetails]
) -> tuple[str, list[str | int], Any]:
    """What a parameter expected, at which place in its value, and what came there; a union has errors for each of its types."""

    def place(error: ErrorDetails) -> list[str | int]:
        keys = error["loc"][:-1] if error["type"] == "missing" else error["loc"]
        types = ("int", "float", "str", "bool")  # names of a union's branches
        return [key for key in keys if isinstance(key, int) or (key.isidentifier() and key not in types)]

    def words(error: ErrorDetails) -> str:
        said = explain_fault(error)
        listed = said == "a list" or error["type"] in ("missing", "too_long")
        return list_in_words(cls.types()[parameter]) if listed and not place(error) else said

    first = errors[0]
    branches = dict.fromkeys(words(one) for one in errors if place(one) == place(first))
    return " or ".join(branches), place(first), first["input"]


@cache
def _lacking(cls: type) -> tuple[str, ...]:
    """The abstract methods of its contract that a class does not implement."""
    return tuple(one for one in dir(cls) if getattr(inspect.getattr_static(cls, one), "__isabstractmethod__", False))


def _check_needs(whose: str, cls: type[Algorithm]) -> None:
    """Raise PluginError if a class does not declare what it has to see, or in another form."""
    needs = cls.needs
    if not isinstance(needs, tuple) or not needs or not all(isinstance(one, Sight) for one in needs):
        raise PluginError(
            f"{whose} ({cls.stands_in()}): needs: expected a tuple of alternatives, each a Sight, such as (Sight.SUM,); got "
            f"{brief(needs)}."
        )


def _algorithms(name: str, folder: Path | None, where: str) -> list[type[Algorithm]]:
    """The algorithms that a module of the user defines."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise PluginError(f"{where}: expected the name of a module, such as my_rules or my.rules; got {brief(name)}.")
    try:
        module = load_module(name, folder)
    except FAILURES as error:
        raise PluginError(
            f"{where}: module {name!r} cannot be imported: {_oneline(error)}. Fix it, or take it out of `plugins`."
        ) from error
    found = [
        cls for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and issubclass(cls, Algorithm) and "name" in cls.__dict__
    ]  # fmt: skip
    if not found:
        raise PluginError(
            f"{where}: module {name!r} defines no algorithm: expected a class with a `name`, derived from a contract."
        )
    for cls in found:
        if not isinstance(cls.name, str):
            raise PluginError(
                f"{where}: module {name!r}: {cls.__name__}: expected a word as its name; got {brief(cls.name)}."
            )
        try:
            cls.types()
        except FAILURES as error:
            raise PluginError(
                f"{where}: module {name!r}: {cls.__name__}: the types of its parameters cannot be read: {_oneline(error)}. "
                "Import what they name."
            ) from error
    return found


def _resolve(target: str) -> Any:
    """The object behind ``"module:attribute"``."""
    module, _, attribute = target.partition(":")
    found = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _oneline(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
