"""Who sees what: the vocabulary that rules, attacks, architectures and threat models share.

A rule and an attack declare what they need, an architecture and its protocol what they expose, and a threat model what it
grants. `fedguard.visibility` compares them before anything runs. A `View` carries only the result.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, overload

from pydantic import Field

from fedguard.errors import NotObservable, PluginError

T = TypeVar("T")


class Sight(enum.Flag):
    """One thing that a party of the training can see."""

    NOTHING = 0
    SUM = enum.auto()
    GROUP_SUMS = enum.auto()
    EACH_UPDATE = enum.auto()
    HONEST_UPDATES = enum.auto()
    OWN_DATA = enum.auto()
    MODEL = enum.auto()
    RULE = enum.auto()
    ROOT_DATA = enum.auto()
    TRANSCRIPT = enum.auto()
    MASKED = enum.auto()
    WEIGHTS = enum.auto()
    TIMES = enum.auto()
    GRAPH = enum.auto()
    TRAJECTORIES = enum.auto()
    OBSERVATIONS = enum.auto()
    STATISTICS = enum.auto()

    @cache
    def with_implied(self) -> Sight:
        """Who sees each update can add them up: EACH_UPDATE implies GROUP_SUMS implies SUM."""
        sight = self
        if Sight.EACH_UPDATE in sight:
            sight |= Sight.GROUP_SUMS
        if Sight.GROUP_SUMS in sight:
            sight |= Sight.SUM
        return sight

    def names(self) -> list[str]:
        """The members in lower case, in the order of definition: the form used in suites and records."""
        return [member.name.lower() for member in Sight if member.value and member in self and member.name]

    def words(self) -> str:
        """The members in plain English: ``the global model and the server's rule``."""
        parts = [_WORDS[member] for member in Sight if member.value and member in self]
        if not parts:
            return "nothing"
        return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]

    @classmethod
    def parse(cls, names: Iterable[str]) -> Sight:
        """The union of the members with these lower-case names; the rule is called ``defense`` in suites."""
        sight = cls.NOTHING
        for name in names:
            sight |= cls["RULE" if name == "defense" else name.upper()]
        return sight


_WORDS = {
    Sight.SUM: "the sum of the updates",
    Sight.GROUP_SUMS: "the sums over groups of clients",
    Sight.EACH_UPDATE: "each client's update",
    Sight.HONEST_UPDATES: "the honest clients' updates",
    Sight.OWN_DATA: "the malicious clients' own data and clean updates",
    Sight.MODEL: "the global model",
    Sight.RULE: "the server's rule and its parameters",
    Sight.ROOT_DATA: "a clean data set at the server",
    Sight.TRANSCRIPT: "every message of the protocol",
    Sight.MASKED: "the masked inputs",
    Sight.WEIGHTS: "each client's number of examples",
    Sight.TIMES: "when each update came and how old its model is",
    Sight.GRAPH: "the weights of the graph",
    Sight.TRAJECTORIES: "what each actor observed, did and was rewarded with",
    Sight.OBSERVATIONS: "each observation of an actor as it is made",
    Sight.STATISTICS: "each client's running statistics",
}

#: What every participant sees, if it exists
PUBLIC = Sight.GRAPH
#: What nobody sees under masks
SINGLE_UPDATES = Sight.EACH_UPDATE | Sight.HONEST_UPDATES
#: What a server sees under masks, in every mode
MASKED_SUM = Sight.SUM | Sight.MASKED | Sight.TRANSCRIPT

#: What an algorithm needs: alternatives in order of preference, each a set of sights; ``()`` is never satisfied
Needs = tuple[Sight, ...]


class UndeclaredNeeds:
    """The `needs` of a class that has not declared any: reading them raises an error that says what to write.

    A class without a declaration must not run as if it needed nothing: under masks a rule would get the single remaining row,
    and be the plain mean.

    Args:
        write: what to write, a sentence.
    """

    def __init__(self, write: str) -> None:
        self._write = write

    def __get__(self, instance: object, owner: type) -> Needs:
        """Raises PluginError: the class declares nothing."""
        kind, name = getattr(owner, "kind", "algorithm"), getattr(owner, "name", owner.__name__)
        file = owner.stands_in() if hasattr(owner, "stands_in") else None
        raise PluginError(
            f"{kind} {name!r}{f' ({file})' if file else ''}: expected `needs`, what {owner.__name__} has to see; it declares "
            f"none. {self._write}"
        )


def first_met(needs: Needs, available: Sight) -> Sight | None:
    """The first alternative in ``needs`` that ``available`` covers, or None."""
    available = available.with_implied()
    return next((alternative for alternative in needs if alternative in available), None)


def needs_in_words(needs: Needs) -> str:
    """``the honest clients' updates, or else the malicious clients' own data and clean updates``."""
    return ", or else ".join(alternative.words() for alternative in needs)


@dataclass(frozen=True)
class Exposure:
    """What an architecture under its protocol lets the two sides see."""

    server: Sight
    clients: Sight


#: What a threat model may grant
Knowledge = Literal["honest_updates", "own_data", "model", "defense"]


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """What the malicious clients know, and when they act (rounds from 1).

    Args:
        knowledge: what the threat model grants them, pooled. They see it only as far as the protocol shows it.
        first_round: first round in which they act.
        last_round: last round in which they act; null for the last round of the training.
        every: they act in every k-th round from the first.
        stays: whether they never drop out: network.link.loss, network.availability and protocol.dropout then spare them, but
            not honest clients.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    knowledge: tuple[Knowledge, ...] = get_args(Knowledge)
    first_round: Annotated[int, Field(strict=True, ge=1)] = 1
    last_round: Annotated[int, Field(strict=True, ge=1)] | None = None
    every: Annotated[int, Field(strict=True, ge=1)] = 1
    stays: bool = False

    @property
    def grants(self) -> Sight:
        return Sight.parse(self.knowledge)

    def acts(self, round: int) -> bool:
        """Whether the malicious clients act in this round (from 1)."""
        since = round - self.first_round
        return since >= 0 and since % self.every == 0 and (self.last_round is None or round <= self.last_round)


class SightField(Generic[T]):
    """A field of a `View` that exists only if ``sight`` is granted; otherwise reading it raises `NotObservable`."""

    def __init__(self, sight: Sight, meaning: str) -> None:
        self.sight, self.__doc__ = sight, meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, view: None, owner: type) -> SightField[T]: ...
    @overload
    def __get__(self, view: View, owner: type) -> T: ...
    def __get__(self, view: View | None, owner: type) -> SightField[T] | T:
        if view is None:
            return self
        if self.name not in view._values:
            needed = "|".join(f"Sight.{name.upper()}" for name in self.sight.names())
            raise NotObservable(
                f"{view.party} read {self.name!r} ({self.sight.words()}), but sees only {view.granted.words()}. "
                f"Declare {needed} in `needs`, and grant it in the threat model."
            )
        value: T = view._values[self.name]
        return value


class View:
    """What one party sees at one moment, and nothing more.

    A view drops values of `SightField` fields that are not granted when it is built, so they are absent rather than hidden. A
    view cannot be changed; `restrict` makes one for a party that sees less.
    """

    party: str
    granted: Sight
    _values: Mapping[str, Any]

    def __init__(self, party: str, granted: Sight, **values: Any) -> None:
        granted = granted.with_implied()
        kind: type = type(self)
        kept: dict[str, Any] = {}
        for name, value in values.items():
            field = _field(kind, name)
            if not isinstance(field, SightField):
                object.__setattr__(self, name, value)
            elif field.sight in granted and value is not None:
                kept[name] = value
        object.__setattr__(self, "party", party)
        object.__setattr__(self, "granted", granted)
        object.__setattr__(self, "_values", kept)

    def restrict(self, party: str, granted: Sight, **values: Any) -> Self:
        """The same view for one ``party`` that sees no more than ``granted``, with some values changed."""
        facts = {name: value for name, value in self.__dict__.items() if name not in ("party", "granted", "_values")}
        return type(self)(party, granted & self.granted, **{**facts, **self._values, **values})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a view cannot be changed (tried to set {name!r})")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.party}: {self.granted.words()}>"


@cache
def _field(view: type, name: str) -> Any:
    for cls in view.__mro__:
        if name in cls.__dict__:
            return cls.__dict__[name]
        if name in inspect.get_annotations(cls):
            return None
    raise TypeError(f"{view.__name__} has no field {name!r}")
