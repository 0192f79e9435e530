"""The output of `explain` and of `list --json`, taken from the algorithms themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from fedguard.bench.docstrings import meaning, plain
from fedguard.bench.explain.settings import settings
from fedguard.bench.explain.toy import picture_of
from fedguard.bench.terminal.printed import Printed
from fedguard.contracts import (
    Algorithm,
    Architecture,
    Defense,
    FederatedAlgorithm,
    InferenceAttack,
    Masking,
    PoisonAttack,
    Sight,
    first_met,
    needs_in_words,
)
from fedguard.contracts.rules import AggregationRule
from fedguard.errors import UnknownName
from fedguard.registry import KINDS, Registry, load_registry
from fedguard.secagg.contest import ProtocolAttack
from fedguard.visibility import derive_exposure

#: The kinds with visibility requirements.
SEEING = ("attack", "inference", "defense")


def entries(known: Registry, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Every algorithm of these kinds, for machines."""
    return [_entry(known, kind, cls) for kind, cls in known.classes(kinds)]


class Explanation(Printed):
    """The full explanation of an algorithm.

    Raises:
        UnknownName: nothing has this name.
    """

    columns = 100

    def __init__(self, known: Registry, name: str) -> None:
        self._found = algorithms(known, name)
        if not self._found:
            raise UnknownName(
                "name",
                name,
                [cls.name for _, cls in known.classes()],
                remedy=" For one of your own modules, add --plugin MODULE.",
            )

    def __repr__(self) -> str:
        return str(self)

    def __rich__(self) -> RenderableType:
        return Group(*(part for cls in self._found for part in _explain_algorithm(cls)))


def algorithms(known: Registry, name: str) -> list[type[Algorithm]]:
    """The algorithms of this name; several kinds may share a name."""
    return [known.get(kind, name) for kind in KINDS if name in known.names(kind)]


def parameters(cls: type[Algorithm]) -> list[dict[str, str]]:
    """Name, type, default and meaning of each parameter, formulae between ``$``."""
    return [
        {"name": one.name, "type": one.type, "default": one.default, "meaning": one.meaning} for one in settings(cls)
    ]


def _entry(known: Registry, kind: str, cls: type[Algorithm]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": cls.name,
        "kind": kind,
        "summary": cls.summary(),
        "needs": [alternative.names() for alternative in cls.needs],
        "source": cls.source,
        "origin": known.origin(kind, cls.name),
        "parameters": [row | {"meaning": plain(row["meaning"])} for row in parameters(cls)],
    }
    if issubclass(cls, Defense):
        slope, offset = cls.min_rows
        entry |= {
            "stage": stage_of(cls),
            "min_updates": {"per_f": slope, "plus": offset},
            "breakdown": cls.breakdown,
            "cost": cls.cost,
        }
    if kind in SEEING:
        entry["runs_under"] = list(runs_under(cls))
    if issubclass(cls, Masking):
        entry |= {"words": cls.words, "masked": cls.masked, "cost": cls.cost}
    if issubclass(cls, PoisonAttack | InferenceAttack):
        entry["goal"] = cls.goal
    if issubclass(cls, InferenceAttack):
        entry |= {"watches": cls.watches, "server": "malicious" if cls.active else "curious"}
    return entry


def _explain_algorithm(cls: type[Algorithm]) -> Iterator[RenderableType]:
    yield Text(f"{cls.name} ({cls.kind})", "bold")
    yield Text("")
    yield Text(_reflow_docstring(plain(_complete_docstring(cls))))
    yield Text("")
    known = Table(box=None, show_header=False, pad_edge=False)
    known.add_column(style="bold", no_wrap=True)
    known.add_column()
    for name, value in facts(cls):
        known.add_row(name, Text(value))
    yield known
    if rows := parameters(cls):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("parameter", "type", "default"):
            table.add_column(heading)
        for row in rows:
            table.add_row(*(Text(row[key]) for key in ("name", "type", "default")))
        yield table
    if picture := picture_of(cls):
        yield from (Text(""), picture, Text(""))
    if cls.kind == "noise":
        yield Markdown(f"In a suite: `protocol.privacy: {{name: {cls.name}, ...}}`")
    if cls.kind == "masking":
        yield Markdown(f"In a suite: `protocol.secure_aggregation: {{name: {cls.name}, ...}}`")
    if cls.kind == "algorithm":
        beside = "".join(f", {field.name}: ..." for field in cls.fields())
        yield Markdown(f"In a suite: `training: {{algorithm: {cls.name}{beside}}}`")
    if cls.kind in SEEING:
        yield Markdown(f"In a suite: `{'attack' if cls.kind == 'inference' else cls.kind}: {cls.name}`")


def _complete_docstring(cls: type[Algorithm]) -> str:
    """The docstring of an algorithm, with its base classes' descriptions of inherited parameters."""
    own = inspect.getdoc(cls) or ""
    brought = [
        f"    {field.name}: {meaning(cls, field.name)}"
        for field in cls.fields()
        if not re.search(rf"^    (?:[\w-]+, )*{field.name}[:,]", own, flags=re.M) and meaning(cls, field.name)
    ]
    if not brought:
        return own
    return "\n".join([own, *(() if "\nArgs:" in own else ("", "Args:")), *brought])


def _reflow_docstring(docstring: str) -> str:
    """A docstring with each paragraph and each parameter in one line, to be wrapped at the width of the terminal."""
    lines: list[str] = []
    for line in docstring.splitlines():
        indent = len(line) - len(line.lstrip())
        goes_on = bool(lines) and lines[-1].strip() and line.strip() and indent != 4 and not lines[-1].endswith("Args:")
        if goes_on:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines)


def facts(cls: type[Algorithm]) -> Iterator[tuple[str, str]]:
    """Facts about an algorithm beside its docstring and parameters, as (name, value)."""
    yield "source", cls.source or "-"
    if cls.kind in SEEING:
        yield "needs to see", needs_in_words(cls.needs)
        yield "under masks", _under_masks(cls)
    if issubclass(cls, Masking):
        yield "who sees what", cls.words
        yield "hides", cls.hides.words()
        yield "cost", cls.cost
    if issubclass(cls, FederatedAlgorithm):
        yield "clients keep", cls.keeps
        yield "told beside updates", cls.tells
    if issubclass(cls, PoisonAttack | InferenceAttack):
        yield "goal", cls.goal
    if issubclass(cls, InferenceAttack):
        watched = {"round": "one round", "training": "every round", "model": "the final model"}
        yield "watches", watched[cls.watches]
        yield "server", "malicious: it sends another model" if cls.active else "curious"
    if issubclass(cls, ProtocolAttack):
        yield "by", {"both": "server and clients together"}.get(cls.by, cls.by)
        yield "stopped by", cls.stopped_by
        if cls.outside:
            yield "a limit", cls.outside
    if issubclass(cls, Defense):
        yield "stage", stage_of(cls)
        slope, offset = cls.min_rows
        yield "needs n", f">= {slope}f + {offset}" if slope else f">= {offset}"
        if cls.proven_rows:
            yield "proven for n", ">= {}f + {}".format(*cls.proven_rows)
        yield "breaks down at", cls.breakdown
        yield "cost", cls.cost
        if cls.grid:
            tried = (f"{parameter} = {', '.join(map(str, values))}" for parameter, values in cls.grid.items())
            yield "tuning tries", "; ".join(tried)
    if issubclass(cls, AggregationRule) and cls.min_rows[0] and not inspect.isabstract(cls):
        bound = cls().kappa(20, 4)
        yield "kappa, n = 20, f = 4", f"at most {bound:.2f}" if bound is not None else "no published bound"


def runs_under(cls: type[Algorithm]) -> dict[str, Sight]:
    """The modes of secure aggregation in which it can run, and the needs that it then sees."""
    server = load_registry().get("architecture", "server")
    assert issubclass(server, Architecture)
    runs = {}
    for mode in modes().values():
        exposure = derive_exposure(server.exposes, mode, root_data=True, statistics=True)
        shown = exposure.clients if issubclass(cls, PoisonAttack) else exposure.server & ~mode.kept_from_rules
        sees = first_met(cls.needs, shown)
        if sees is not None:
            runs[mode.name] = sees
    return runs


def modes() -> dict[str, type[Masking]]:
    """The modes of secure aggregation, by name."""
    return {cls.name: cls for _, cls in load_registry().classes(["masking"]) if issubclass(cls, Masking)}


def works_with(needs: Sequence[Sequence[str]], sees: Sequence[str]) -> bool:
    """Whether this visibility covers what an entry ``needs``; whoever sees each update can also compute sums."""
    return first_met(tuple(Sight.parse(way) for way in needs), Sight.parse(sees)) is not None


def _under_masks(cls: type[Algorithm]) -> str:
    """In which modes of secure aggregation it can run, and what an attack then sees."""
    runs = {mode: sees for mode, sees in runs_under(cls).items() if modes()[mode].masked}
    if not runs:
        return "refused: they hide what it needs"
    attack = issubclass(cls, PoisonAttack | InferenceAttack)
    seen = f"; it sees {next(iter(runs.values())).words()}" if attack else ""
    return f"runs under {', '.join(runs)}{seen}"


def stage_of(cls: type[Defense]) -> str:
    """``client transform``, ``mixing``, ``weight rule``, ``coordinate rule`` or ``matrix rule``."""
    stages = {
        "ClientTransform": "client transform",
        "Mixing": "mixing",
        "WeightRule": "weight rule",
        "CoordinateRule": "coordinate rule",
        "MatrixRule": "matrix rule",
    }
    return next(stages[base.__name__] for base in cls.__mro__ if base.__name__ in stages)
