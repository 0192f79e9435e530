"""The layout of a suite's matrix: one cell per combination."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.config.apps import AppCell
from fedguard.config.cells import PlannedCell
from fedguard.config.composed import ComposedCell
from fedguard.config.document import Document, Key, format_key, parse_yaml
from fedguard.config.renaming import renew_document, renew_key
from fedguard.config.schema import CellConfig, Suite
from fedguard.config.validation import place_of, validate_data
from fedguard.errors import ConfigError, UnknownName, brief
from fedguard.registry import Registry, load_registry
from fedguard.retired import note_renamed


@dataclass(frozen=True)
class Plan:
    """The cells of a suite.

    Attributes:
        suite: the suite.
        positions: each combination of the matrix: the swept values as text, and the cell. Two combinations may share a cell.
        controls: control cells that other cells need and that are no combination of the matrix.
        known: the algorithms that the suite may name, including its plug-ins.
        source: source of its document.
    """

    suite: Suite
    positions: tuple[tuple[dict[str, str], PlannedCell], ...]
    controls: tuple[PlannedCell, ...]
    known: Registry = dataclasses.field(repr=False)
    source: str | None = None

    @property
    def cells(self) -> list[PlannedCell]:
        """Every cell once, controls before the cells that are compared with them."""
        unique = {cell.id: cell for cell in (*self.controls, *(cell for _, cell in self.positions))}
        # The sort is stable: cells with the same key keep the suite's order
        return sorted(unique.values(), key=lambda cell: (cell.named is not None) + cell.defended)

    def only(self, cells: Container[str]) -> Plan:
        """The plan reduced to the given cells and the controls that they need."""
        kept = tuple(position for position in self.positions if position[1].id in cells)
        return dataclasses.replace(self, positions=kept, controls=_controls([cell for _, cell in kept]))


def build_cell(config: CellConfig, known: Registry, where: Mapping[str, str] | None = None) -> PlannedCell:
    """Build the cell of a training or an app: `PlannedCell.build`."""
    kind = ComposedCell if config.app is None else AppCell
    return kind.build(config, known, where)


def plan(document: Document, suite: Suite, known: Registry | None = None) -> Plan:
    """Lay out the matrix of ``suite``, which was read from ``document``.

    Args:
        known: the algorithms that it may name, in addition to its plug-ins; by default the built-in and the installed ones.

    Raises:
        ConfigError: unknown keys, names or parameters, with their location.
    """
    places = [document.where(("plugins", one)) for one in range(len(suite.plugins))]
    known = (known or load_registry()).with_modules(suite.plugins, document.folder, places)
    for index, attack in enumerate(suite.tuning.attacks if suite.tuning else ()):
        known.build("attack", attack, document.where(("tuning", "attacks", index)))
    base = suite.model_dump(mode="json", by_alias=True, include=set(CellConfig.model_fields))
    positions = []
    for swept, data, where in _combinations(base, suite.matrix, document):
        config = validate_data(CellConfig, data, document, where.get("", ()))
        cell = build_cell(config, known, _places(config, where, document))
        labels = {"attack": str(cell.named or "none"), "defense": cell.defense}
        positions.append(({**{key: labels.get(key) or _short(value) for key, value in swept.items()}, **labels}, cell))
    _seeds_apart(suite, [cell for _, cell in positions])
    _check_tuning_data(suite, [cell for _, cell in positions], document)
    return Plan(suite, tuple(positions), _controls([cell for _, cell in positions]), known, document.source)


def _controls(cells: Sequence[PlannedCell]) -> tuple[PlannedCell, ...]:
    """The control cells that ``cells`` need and that are not among them."""
    known = {cell.id for cell in cells}
    controls: dict[str, PlannedCell] = {}
    ids: dict[str, str] = {}
    for cell in cells:
        # The worst case against the mean would be another ensemble to train
        needed = () if cell.verdict.reasons else [one for one in cell.compared_with.values() if not one.ensemble]
        for control in needed:
            settings = repr(control.config)  # attacks and defenses share controls, and an id takes longer
            id = ids[settings] = ids.get(settings) or control.id
            if id not in known:
                controls[id] = control
    return tuple(controls.values())


def _seeds_apart(suite: Suite, cells: Sequence[PlannedCell]) -> None:
    """Refuse seeds on which an ensemble chose its attack: the choice would bias the result."""
    for cell in cells:
        both = set(cell.ensemble.choose_on() if cell.ensemble else ()) & set(suite.seeds)
        if both:
            raise ConfigError(
                f"seeds: expected none of the seeds on which {cell.adversary} chooses; got {sorted(both)}. Take smaller ones."
            )


def _check_tuning_data(suite: Suite, cells: Sequence[PlannedCell], document: Document) -> None:
    """Refuse a tuning on clients' records under noise: epsilon counts one training only, and the choice reveals more."""
    private = any(cell.private for cell in cells)
    if suite.tuning and suite.tuning.trained_on == "clients" and private:
        raise ConfigError(
            f"{document.where(('tuning',))}: the settings were chosen among trainings on the clients' records, and the epsilon "
            "of protocol.privacy counts one training alone. Tune on public data and declare that (tuning.trained_on: public), "
            "or leave out tuning or protocol.privacy."
        )


def override(document: Document, settings: Sequence[str]) -> Document:
    """Put ``a.b=value`` settings of the command line into the document; values are YAML."""
    document, renamed = renew_document(document)
    data, keys = copy.deepcopy(document.data), set(document.settings)
    names: dict[Key, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected key=value, as in --set training.rounds=10.")
        first, dot, rest = name.partition(".")
        key: Key = (
            (first, rest) if first == "matrix" and dot else tuple(name.split("."))
        )  # a swept key is one, dots and all
        new = renew_key(key)
        renamed += [(name, format_key(new).removeprefix("matrix."))] if new != key else []
        key = new
        if (other := names.setdefault(key, name)) != name:
            raise ConfigError(
                f"--set {name}: expected one name of a key; got {other} beside it, which is the same key."
            )
        _put(data, key, parse_yaml(text, f"--set {name}")[0] if text else "", f"--set {name}")
        keys.add(key)
    found, more = renew_document(dataclasses.replace(document, data=data, settings=frozenset(keys)))
    note_renamed([*renamed, *more])
    return found


def _combinations(
    base: Mapping[str, Any], matrix: Mapping[str, list[Any]], document: Document
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Key]]]:
    """Yield for each combination the swept values, the settings, and the location of each swept value (the last under "")."""
    for key in matrix:
        if key.partition(".")[0] not in CellConfig.model_fields:
            raise UnknownName("key to sweep", key, CellConfig.model_fields, document.where(("matrix", key)))
    for chosen in itertools.product(*(list(enumerate(values)) for values in matrix.values())):
        # A deep copy, because _put writes into nested mappings that all combinations share
        data = copy.deepcopy(dict(base))
        swept, where = {}, {}
        for key, (index, value) in zip(matrix, chosen, strict=True):
            place: Key = ("matrix", key, index)
            _put(data, tuple(key.split(".")), value, document.where(place))
            swept[key] = value
            where[key] = where[""] = place
        yield swept, data, where


def _places(config: CellConfig, where: Mapping[str, Key], document: Document) -> dict[str, str]:
    """Locations of the specs, for messages: in the matrix if they are swept, otherwise at their own key."""
    names = ("attack", "defense", "architecture", "task.data", "task.model", "task.partition", "evaluation.evasion")
    places = {name: document.where(where.get(name, tuple(name.split(".")))) for name in names}
    swept = [place for key, place in where.items() if key.partition(".")[0] == "protocol"]
    for key in ("algorithm", "first_model", "statistics", "adapters", *config.training.own):
        at = where.get(f"training.{key}", where.get("training", ()))
        places[f"training.{key}"] = place_of(document, at, ("training", key))
    trained = [place for key, place in where.items() if key.partition(".")[0] == "training"]
    places["training"] = place_of(document, trained[0] if trained else (), ("training",))
    for name in ("secure_aggregation", "privacy"):
        own = [place for key, place in where.items() if key == "protocol" or key.startswith(f"protocol.{name}")]
        places[f"protocol.{name}"] = document.where(own[0] if own else ("protocol", name))
    there = [place for key, place in where.items() if key == "network" or key.startswith("network.availability")]
    places["network.availability"] = document.where(there[0] if there else ("network", "availability"))
    return {**places, "protocol": document.where(swept[0] if swept else ("protocol",))}


def _put(data: dict[str, Any], key: Key, value: Any, where: str) -> None:
    """Set a dotted key. A plain name on its path, such as ``iid``, becomes a mapping with that name."""
    for part in key[:-1]:
        below = data.setdefault(str(part), {})
        if below is None:
            below = data[str(part)] = {}
        if isinstance(below, str):
            below = data[str(part)] = {"name": below}
        if not isinstance(below, dict):
            raise ConfigError(f"{where}: {format_key(key)} cannot be set: {part!r} is {brief(below)}, not a mapping.")
        data = below
    data[str(key[-1])] = value


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        name = value.get("name", value.get("kind", ""))
        rest = ", ".join(f"{key}={_short(one)}" for key, one in value.items() if key not in ("name", "kind"))
        return f"{name}({rest})" if rest else str(name)
    if isinstance(value, list) and value and all(str(one).startswith("site ") for one in value):
        return " + ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
