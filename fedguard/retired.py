"""Names of earlier versions, and what replaces each: options, commands and arguments.

Whatever accepts or refuses an old name reads these tables: the command line (`fedguard.commands.command`) and the tests.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class RetiredOption:
    """An option of earlier versions.

    Attributes:
        commands: the commands that had it.
        old: the option.
        new: the arguments that replace it; ``{}`` is the place of its value, and an option without value has none.
        accepted: whether the option still works. Where its meaning would change, it is an error that names the new one.
    """

    commands: tuple[str, ...]
    old: str
    new: str
    accepted: bool = True

    @property
    def has_value(self) -> bool:
        return "{}" in self.new

    @property
    def successor(self) -> str:
        """The new option in words: ``--metric``, ``--to csv:FILE``."""
        return self.new.removesuffix(" {}").replace("{}", "FILE")

    def translate(self, value: str) -> list[str]:
        """The arguments that replace the option with this value."""
        return [part.format(value) for part in self.new.split()]


RETIRED_OPTIONS = (
    RetiredOption(("show", "breakdown", "compare"), "--figure", "--metric {}"),
    RetiredOption(("show",), "--svg", "--to svg:{}"),
    RetiredOption(("report",), "--html", "--to html:{}"),
    RetiredOption(("export",), "--csv", "--to csv:{}"),
    RetiredOption(("export",), "--parquet", "--to parquet:{}"),
    RetiredOption(("export", "gate"), "--json", "--to json:{}"),
    RetiredOption(("gate", "conform"), "--markdown", "--to md:{}"),
    RetiredOption(("gate",), "--junit", "--to xml:{}"),
    RetiredOption(("tune",), "--out", "--to yaml:{}"),
    RetiredOption(("flower check",), "--suite", "--to yaml:{}"),
    RetiredOption(("gate",), "--strict", "--fail-on inconclusive"),
    RetiredOption(("lint",), "--strict", "--fail-on flags"),
    RetiredOption(("tune",), "--attacks", "--attack {}"),
    RetiredOption(("run", "flower check"), "--no-cache", "--fresh"),
    RetiredOption(("secagg params", "secagg demo", "kappa"), "--n", "--clients {}"),
    RetiredOption(("flower check",), "--nodes", "--clients {}"),
    RetiredOption(("kappa",), "--f", "--malicious {}"),
    # Elsewhere these options mean something else: a key of the suite, a metric of FedGuard, the delta of differential privacy
    RetiredOption(("flower check",), "--set", "--app-config {}", accepted=False),
    RetiredOption(("flower check",), "--metric", "--app-metric {}", accepted=False),
    RetiredOption(("secagg params",), "--delta", "--dropout {}", accepted=False),
)

#: Commands of earlier versions
RETIRED_COMMANDS = {"trilemma": "privacy"}

#: Options of the plug-in of pytest in earlier versions; in the ini file ``fedguard_strict``
RETIRED_PYTEST = {"--fedguard-strict": "--fedguard-fail-on inconclusive"}

#: Kinds that `fedguard new` wrote in earlier versions
RETIRED_KINDS = {"rule": "defense"}

#: Keys of suites in earlier versions; in every mapping that names an algorithm, `kind:` was another word for `name:`
RETIRED_KEYS = {
    "network.there": "network.availability",
    "gate.metrics.normalised_return": "gate.metrics.normalized_return",
}

#: Values of suites in earlier versions, by key
RETIRED_VALUES: dict[str, dict[str | bool, str]] = {
    "protocol.secure_aggregation": {"off": "none", False: "none"},
    "threat.knowledge": {"rule": "defense"},
}

#: Names of algorithms in earlier versions; the identity of a cell keeps the old one
RETIRED_NAMES = {"false_behaviour": "false_behavior"}

#: Parameters of algorithms in earlier versions, by the algorithm; the identity of a cell keeps the old one
RETIRED_PARAMETERS = {"lira": {"centre": "center"}, "image_folder": {"grey": "gray"}}

#: Values of today that the identity of a cell stores under their old name
STORED_VALUES = {"protocol.secure_aggregation": {"none": "off"}, "threat.knowledge": {"defense": "rule"}}

#: Fields of records, manifests and verdicts in schema 1
RETIRED_FIELDS = {
    "told_f": "assumed_f",
    "told_per_round": "assumed_f_per_round",
    "true_f": "malicious",
    "corners": "controls",
    "neighbours": "neighbors",
    "normalised": "normalized",
    "judgements": "judgments",
}

#: Metrics in earlier versions: in ``gate.metrics``, ``--metric``, baselines and verdicts
RETIRED_METRICS = {"normalised_return": "normalized_return"}

#: Red flags in records of earlier versions
RETIRED_FLAGS = {"told_wrong_f": "wrong_assumed_f", "not_finished": "not_converged", "one_seed": "few_seeds"}

#: Trivial guesses and checks of an audit that records and reports name
RETIRED_CHECKS = {"constant_colour": "constant_color", "normaliser": "normalizer"}

#: Columns of the file of a graph in earlier versions
RETIRED_COLUMNS = {"hears": "neighbor"}

#: Keyword arguments of Python in earlier versions: function or class, its argument, the new one
RETIRED_ARGUMENTS = (
    ("run", "settings", "overrides"),
    ("audit", "settings", "overrides"),
    ("audit", "suite", "subject"),
    ("tune", "settings", "overrides"),
    ("kappa", "rule", "defense"),
    ("craft", "rule", "defense"),
    ("gate", "strict", "fail_on"),
    ("Guard", "told", "assumed_f"),
    ("under_attack", "told", "assumed_f"),
)

#: Values of such arguments, where they are others now
ARGUMENT_VALUES: dict[tuple[str, str], dict[Any, Any]] = {("gate", "strict"): {True: ("inconclusive",), False: ()}}


def accept_retired_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which also accepts its keyword arguments of earlier versions, with a DeprecationWarning."""
    # The class of a constructor
    name = str(getattr(function, "__qualname__", "")).removesuffix(".__init__")
    renamed = {old: new for owner, old, new in RETIRED_ARGUMENTS if owner == name}

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        for old in renamed.keys() & given.keys():
            if renamed[old] in given:
                raise TypeError(f"{name}() got {old}=, the old name of {renamed[old]}=, beside {renamed[old]}=")
            warnings.warn(f"{name}({old}=...) is now {name}({renamed[old]}=...)", DeprecationWarning, stacklevel=2)
            value = given.pop(old)
            values = ARGUMENT_VALUES.get((name, old))
            given[renamed[old]] = values.get(value, value) if values else value
        return function(*args, **given)

    return call


def renew_value(path: str, value: str) -> str:
    """The value of a key under today's name: ``none`` for ``off`` under ``protocol.secure_aggregation``."""
    return RETIRED_VALUES.get(path, {}).get(value, value)


def renew_flag(name: str) -> str:
    """The name of a red flag today."""
    return RETIRED_FLAGS.get(name, name)


def renew_check(name: str) -> str:
    """The name of a trivial guess or of a check of an audit today."""
    return RETIRED_CHECKS.get(name, name)


def renew_spec(spec: Any, renamed: list[tuple[str, str]] | None = None) -> Any:
    """How a suite names an algorithm, under today's names; ``renamed`` gets the old names in it, with the new ones."""
    return _rename_spec(spec, RETIRED_NAMES, RETIRED_PARAMETERS, [] if renamed is None else renamed)


def store_spec(spec: Any) -> Any:
    """How a suite names an algorithm, under the names that the identity of a cell has."""
    names = {new: old for old, new in RETIRED_NAMES.items()}
    parameters = {name: {new: old for old, new in pairs.items()} for name, pairs in RETIRED_PARAMETERS.items()}
    return _rename_spec(spec, names, parameters, [])


def _rename_spec(
    spec: Any, names: Mapping[str, str], parameters: Mapping[str, Mapping[str, str]], renamed: list[tuple[str, str]]
) -> Any:
    """A name, a call, a mapping with a name, or several of them, with other names of algorithms and of their parameters."""
    if isinstance(spec, list | tuple):
        return [_rename_spec(one, names, parameters, renamed) for one in spec]
    if isinstance(spec, Mapping):
        of_it = parameters.get(str(spec.get("name")), {})
        renamed += [(f"{spec['name']}({old}=)", f"{spec['name']}({new}=)") for old, new in of_it.items() if old in spec]
        # The members of an ensemble are specs, too
        return {
            of_it.get(key, key): _rename_spec(value, names, parameters, renamed)
            if key in ("name", "attacks")
            else value
            for key, value in spec.items()
        }
    if isinstance(spec, str):
        for old, new in names.items():
            spec, found = re.subn(rf"\b{old}\b", new, spec)
            renamed += [(old, new)] * found
        for name, pairs in parameters.items():
            for old, new in pairs.items():
                spec, found = re.subn(rf"\b({name}\((?:[^()]*\W)?){old}(?= ?=)", rf"\g<1>{new}", spec)
                renamed += [(f"{name}({old}=)", f"{name}({new}=)")] * found
    return spec


def renew_metric(name: str) -> str:
    """The name of a metric today."""
    return RETIRED_METRICS.get(name, name)


def renew_values(path: str, values: Iterable[str]) -> list[str]:
    """The values that Python hands over for a key, under today's names; an old one gives a DeprecationWarning.

    To be called by a function under `accept_retired_arguments`, whose caller the warning names.
    """
    renamed, found = RETIRED_VALUES[path], list(values)
    for old in dict.fromkeys(value for value in found if value in renamed):
        warnings.warn(f"{path.rpartition('.')[2]}: {old!r} is now {renamed[old]!r}", DeprecationWarning, stacklevel=4)
    return [renamed.get(value, value) for value in found]


def renew_key_text(key: str) -> str:
    """A dotted key of a suite under today's name: ``network.availability.on`` for ``network.there.on``."""
    for old, new in RETIRED_KEYS.items():
        if key == old or key.startswith(f"{old}."):
            return new + key[len(old) :]
    return key


def renew_position(swept: Mapping[str, str]) -> dict[str, str]:
    """A position of a stored matrix under today's names: the value of each swept key, in words.

    Manifests and baselines of earlier versions hold the old ones, in a key (``network.there``), in its value (``off``), or in
    the value of a whole section (``(secure_aggregation=off)``).
    """
    return {renew_key_text(key): _renew_words(key, value) for key, value in swept.items()}


def _renew_words(key: str, words: str) -> str:
    words = renew_spec(words)
    for path, values in RETIRED_VALUES.items():
        section, _, last = path.partition(".")
        if key in (path, section):
            start = "^" if key == path else rf"\b{last}="
            for old, new in values.items():
                words = re.sub(rf"({start}){old}(?=$|[,)])", rf"\g<1>{new}", words)
                words = words.replace(f"'{old}'", f"'{new}'")  # in a list
    for path, new in RETIRED_KEYS.items():
        section, _, last = path.partition(".")
        if key == section:
            words = re.sub(rf"(?<=[( ]){last}=", f"{new.rpartition('.')[2]}=", words)
    return words


def options_of(command: str) -> dict[str, RetiredOption]:
    """The retired options of a command, such as ``fedguard secagg params``, by name."""
    return {row.old: row for row in RETIRED_OPTIONS if any(f" {command}".endswith(f" {one}") for one in row.commands)}


def note_renamed(renamed: Iterable[tuple[str, str]]) -> None:
    """Write a line to standard error for each old name in use, with the new one."""
    for old, new in dict.fromkeys(renamed):
        sys.stderr.write(f"fedguard: {old} is now {new}; the old name works for one more version.\n")
