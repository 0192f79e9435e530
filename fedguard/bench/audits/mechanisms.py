"""Mechanisms of the user's own: what an address names or Python gives becomes a `BlackBoxMechanism`.

known by its type    what an adapter knows, see `fedguard.privacy.blackbox.adapters`
function             called with a list of arrays, returns a list of arrays, or (arrays, what leaves beside them)
class or factory     without arguments: a new instance for each call
object               copied for each call, so that its state is the one in which it was given, generators aside
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedguard.arguments import of_kind, real_number, whole_numbers
from fedguard.bench.running.limit import TrialTimeout, at_most
from fedguard.contracts.audit import Reals
from fedguard.errors import ConfigError, InputError, brief, oneline, require
from fedguard.modules import load_module
from fedguard.privacy.blackbox.adapters.contract import AccountedEvent, CanaryTraining, ForeignRelease, copy_fresh
from fedguard.privacy.blackbox.adapters.recognize import adapt
from fedguard.privacy.blackbox.audit import audit_mechanism
from fedguard.privacy.blackbox.claim import EpsilonClaim
from fedguard.privacy.blackbox.lives import changes_with_calls
from fedguard.privacy.blackbox.mechanism import Arrays, BlackBoxMechanism, Release, Released, Shape
from fedguard.privacy.blackbox.one_run import audit_event, audit_training
from fedguard.privacy.blackbox.verdict import MechanismAudit

#: Shapes of an update if none are given: a small network of four layers.
SHAPES: tuple[Shape, ...] = ((5, 5), (8,), (4, 5), (5,))
#: Seconds that a new process may take before it calls anything, on a busy machine.
START = 60.0
#: Most coordinates of an update that is audited.
MOST_COORDINATES = 10_000_000
_ADDRESS = re.compile(r"(?P<place>.+?):(?P<name>[A-Za-z_][\w.]*)(?P<item>\[\d+\])?")


class OwnMechanism(BlackBoxMechanism):
    """A function, class or object of the user's own.

    Args:
        make: makes a new instance, a callable that takes a list of arrays.
        address: where a new process finds it; None if it cannot.
        limit: seconds for one call.
        foreign: what an adapter read from it.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Callable[..., Any]],
        shapes: Sequence[Shape],
        *,
        address: str | None = None,
        defined_in: tuple[str, int] | None = None,
        limit: float = 120.0,
        foreign: ForeignRelease | None = None,
    ) -> None:
        self.name, self.shapes, self.defined_in = name, tuple(shapes), defined_in
        self._make, self._address, self._limit = make, address, limit
        self._stateful: bool | None = None
        if foreign is not None:
            self.claim, self.facts, self.scalars = foreign.claim, foreign.facts, foreign.scalars
            self._stateful = foreign.stateful
            self.variants = {
                words: OwnMechanism(f"{name}: {words}", one.make, shapes, limit=limit, foreign=one)
                for words, one in foreign.variants.items()
            }

    def fresh(self) -> Release:
        with at_most(self._limit):
            return self._release_of(self._make())

    def is_stateful(self, arrays: Arrays) -> bool:
        if self._stateful is not None:
            return self._stateful
        with at_most(self._limit):
            function = self._make()
        return changes_with_calls(function, self._release_of(function), arrays)

    def _release_of(self, function: Callable[..., Any]) -> Release:
        def release(arrays: Arrays) -> Released:
            process = os.getpid()
            try:
                with at_most(self._limit):
                    return as_released(function(list(arrays)))
            finally:
                if os.getpid() != process:  # a child that the mechanism forked must not go on with the audit
                    os._exit(0)

        return release

    def first_release_elsewhere(self, arrays: Arrays) -> Reals | None:
        if self._address is None:
            return None
        asked = json.dumps({"address": self._address, "arrays": [array.tolist() for array in arrays]})
        command = [sys.executable, "-m", "fedguard.bench.audits.first_release"]
        try:
            done = subprocess.run(
                command, input=asked, capture_output=True, text=True, timeout=START + self._limit, check=False
            )
            return np.asarray(json.loads(done.stdout), np.float64)
        except (subprocess.TimeoutExpired, ValueError):  # it tells nothing then
            return None


def as_released(found: Any) -> Released:
    """What a function returned: arrays, one array, or a pair of arrays and a mapping.

    Raises:
        InputError: it holds no numbers.
    """
    beside: Mapping[str, Any] = {}
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping):
        found, beside = found
    if isinstance(found, Mapping):
        found = list(found.values())
    if not isinstance(found, (list, tuple)):
        found = [found]
    arrays = tuple(np.asarray(one.detach().cpu() if hasattr(one, "detach") else one) for one in found)
    for array in arrays:
        if array.dtype.kind not in "biuf":
            raise InputError(f"expected arrays of numbers; got {brief(array.dtype)}.")
    return Released(arrays, beside)


def find_mechanism(address: str) -> Any:
    """The object at an address: a file or module, a colon, a name, and perhaps an item such as ``[0]``.

    Raises:
        ConfigError: there is none.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ConfigError(f"--mechanism: expected FILE.py:NAME or MODULE:NAME; got {brief(address)}.")
    place, name, item = match["place"], match["name"], match["item"]
    path = Path(place)
    if path.suffix == ".py" and not path.is_file():
        raise ConfigError(f"--mechanism: {place}: no such file.")
    try:
        module = load_module(path.stem, path.parent) if path.suffix == ".py" else importlib.import_module(place)
    except Exception as error:
        raise ConfigError(f"--mechanism: {place}: importing it raised {oneline(error)}.") from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
            raise ConfigError(
                f"--mechanism: {place} has no {name}; it has {', '.join(names) or 'nothing that can be called'}."
            )
        found = getattr(found, part)
    if item is None:
        return found
    try:
        return found[int(item[1:-1])]
    except (TypeError, IndexError, KeyError):
        raise ConfigError(f"--mechanism: {place}:{name} has no item {item}.") from None


def as_mechanism(
    found: Any, *, shapes: Sequence[Shape] | None = None, address: str | None = None, limit: float = 120.0
) -> BlackBoxMechanism | CanaryTraining | AccountedEvent:
    """A `BlackBoxMechanism` of an object, or what an adapter makes of a training or of an event of an accountant.

    Raises:
        ConfigError: it cannot be called, or shapes are invalid.
    """
    if isinstance(found, BlackBoxMechanism):
        return found
    given = check_shapes(SHAPES if shapes is None else shapes)
    foreign = adapt(found, given)
    name = address or getattr(found, "__qualname__", None) or type(found).__qualname__
    if isinstance(foreign, ForeignRelease):
        own = foreign.shapes or given
        place = _place(found)
        return OwnMechanism(name, foreign.make, own, address=address, defined_in=place, limit=limit, foreign=foreign)
    if foreign is not None:
        return foreign
    if not callable(found):
        raise ConfigError(
            f"--mechanism: expected something that can be called with a list of arrays; got {brief(found)}."
        )
    if inspect.isclass(found):
        required = [
            one.name
            for one in inspect.signature(found).parameters.values()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        require(
            not required,
            f"--mechanism: {found.__name__} is a class that needs {', '.join(required)}: point at an instance, or at a "
            "function without arguments that makes one.",
        )
        make: Callable[[], Callable[..., Any]] = cast("Callable[[], Callable[..., Any]]", found)
    elif inspect.isroutine(found):
        make = lambda: found  # noqa: E731
    else:
        make = lambda: copy_fresh(found)  # noqa: E731
    return OwnMechanism(name, make, given, address=address, defined_in=_place(found), limit=limit)


def check_shapes(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes, if an update of them can be audited."""
    if not isinstance(shapes, (list, tuple)) or not shapes:
        raise ConfigError(
            f"shapes: expected the lengths of each array, such as [(784, 32), (32,)]; got {brief(shapes)}."
        )
    found = tuple(whole_numbers(shape, f"shapes[{place}]", 1) for place, shape in enumerate(shapes))
    size = sum(math.prod(shape) for shape in found)
    require(size <= MOST_COORDINATES, f"shapes: expected at most {MOST_COORDINATES:,} coordinates; got {size:,}.")
    return found


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """``784x32,32`` as ((784, 32), (32,)).

    Raises:
        ConfigError: it is none.
    """
    if not re.fullmatch(r"\d+(x\d+)*(,\d+(x\d+)*)*", text.replace(" ", "")):
        raise ConfigError(f"--shapes: expected lengths such as 784x32,32; got {brief(text)}.")
    return check_shapes([tuple(map(int, part.split("x"))) for part in text.replace(" ", "").split(",")])


def audit_own(
    found: Any,
    claim: EpsilonClaim | str | Mapping[str, Any] | None = None,
    *,
    shapes: Sequence[Shape] | None = None,
    address: str | None = None,
    budget: float = 120.0,
    **settings: Any,
) -> MechanismAudit:
    """`audit_mechanism` of an object of the user's own.

    Raises:
        ConfigError: the object or a setting is invalid, or a call takes longer than the budget.
        InputError: it raises on ordinary updates.
    """
    budget = real_number(budget, "budget: CPU seconds", 1, 1e6)
    mechanism = as_mechanism(found, shapes=shapes, address=address, limit=budget)
    of_kind(
        claim,
        "claim",
        (str, Mapping, EpsilonClaim, type(None)),
        "a text such as epsilon=8, per=release, a mapping, or None",
    )
    parsed = EpsilonClaim.parse(claim) if isinstance(claim, (str, Mapping)) else claim
    try:
        with quiet():
            if isinstance(mechanism, CanaryTraining):
                with at_most(budget):
                    return audit_training(mechanism, parsed, address, seed=settings.get("seed", 0), place=_place(found))
            if isinstance(mechanism, AccountedEvent):
                return audit_event(mechanism, parsed, address, settings.get("rounds", 50))
            return audit_mechanism(mechanism, parsed, budget=budget, **settings)
    except TrialTimeout:
        name = address or getattr(mechanism, "name", "the training")
        words = (
            f"{name}: one call took longer than the budget of {budget:g} seconds: it hangs, or needs a larger budget."
        )
        raise ConfigError(words) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Thousands of calls log thousands of lines."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _place(found: Any) -> tuple[str, int] | None:
    target = found if inspect.isclass(found) or inspect.isroutine(found) else type(found)
    try:
        file = inspect.getsourcefile(target)
        return None if file is None else (file, inspect.getsourcelines(target)[1])
    except (TypeError, OSError):
        return None
