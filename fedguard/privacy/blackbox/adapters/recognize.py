"""Which adapter an object belongs to: by the packages of its type and of what it holds, or by a function's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from fedguard.errors import ConfigError, oneline
from fedguard.privacy.blackbox.adapters.contract import Adapted, Adapter
from fedguard.privacy.blackbox.mechanism import Shape

_ROOM = "fedguard.privacy.blackbox.adapters"
#: Package: modules of adapters for its types, tried in this order.
ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "flwr": ("flower_strategies", "flower_mods"),
    "nvflare": ("nvflare_filters",),
    "opacus": ("opacus_training",),
    "diffprivlib": ("diffprivlib_mechanisms",),
    "opendp": ("opendp_measurements",),
    "dp_accounting": ("accounting_events",),
}
#: Arguments by which a function of the user's own is recognized: the adapter's module.
SIGNATURES: Mapping[tuple[str, ...], str] = {
    ("msg", "ctxt", "call_next"): "flower_mods",
    ("msg", "context", "call_next"): "flower_mods",
    ("message", "context", "call_next"): "flower_mods",
    ("records", "seed"): "training_loops",
}


def adapt(found: Any, shapes: Sequence[Shape]) -> Adapted | None:
    """What an audit can call, of an object of a known package; None if the object is of no such package.

    Raises:
        ConfigError: an adapter knows the object and cannot use it.
    """
    for module in _modules(found):
        try:
            adapter: Adapter = import_module(f"{_ROOM}.{module}").adapt
        except ImportError as error:
            raise ConfigError(
                f"--mechanism: {_name(found)} needs a package that is missing: {oneline(error)}."
            ) from error
        adapted = adapter(found, shapes)
        if adapted is not None:
            return adapted
    return None


def _name(found: Any) -> str:
    return str(getattr(found, "__qualname__", type(found).__qualname__))


def _modules(found: Any) -> Iterator[str]:
    if inspect.isroutine(found):
        named = SIGNATURES.get(_arguments(found))
        yield from ADAPTERS.get(_package(found), (named,) if named else ())
        return
    packages = dict.fromkeys(_package(one) for part in _parts(found) for one in type(part).__mro__)
    for package in packages:
        yield from ADAPTERS.get(package, ())


def _parts(found: Any) -> tuple[Any, ...]:
    """The object, and what it holds if it is a list, such as the engine, optimizer and loader of a training."""
    if isinstance(found, Mapping):
        return (found, *found.values())
    return (found, *found) if isinstance(found, (list, tuple)) else (found,)


def _package(one: Any) -> str:
    return str(getattr(one, "__module__", "") or "").partition(".")[0]


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()
