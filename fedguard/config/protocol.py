"""Whether a protocol can run with this number of clients, and which of its settings have an effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedguard.contracts import BEFORE_THE_INPUT, Cell, Masking
from fedguard.contracts.specs import Spec
from fedguard.errors import ConfigError, UnknownName
from fedguard.registry import Registry
from fedguard.secagg.planning import check_sessions


def masking(spec: Spec, known: Registry, where: str) -> Masking:
    """The secure aggregation mode of a suite.

    A mapping may omit ``name``. ``{group_testing: {tests: 8}}`` gives the parameters under the name of the mode. In ``{groups:
    5, redraw: false}`` the parameter with the name of the mode selects it.

    Raises:
        ConfigError: unknown names or parameters, or values of the wrong type.
    """
    if isinstance(spec, Mapping) and spec and not {"name", "kind"} & set(spec):
        rest, names = dict(spec), known.names("masking")
        name = next((key for key in rest if key in names), None)
        if name is None:
            raise UnknownName("masking", next(iter(rest)), names, where)
        below = rest.pop(name) if isinstance(rest[name], Mapping) else {}
        spec = {"name": name, **below, **rest}
    found: Masking = known.build("masking", spec, where)
    return found


def check(cell: Cell, where: str) -> None:
    """Check that the protocol can keep its guarantees: `fedguard.secagg.planning.check_sessions`.

    Args:
        where: location of the protocol, for messages.

    Raises:
        ConfigError: it cannot keep them.
    """
    try:
        check_sessions(cell)
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None


def effective(cell: Cell) -> dict[str, Any]:
    """The settings that have an effect, as JSON from which the protocol can be built again."""
    kept, protocol = {"secure_aggregation": cell.masking.setting, "privacy": cell.noise.setting}, cell.protocol
    at, masked = protocol.dropout.at, cell.masking.masked
    if protocol.dropout.rate > 0 and (masked or at in BEFORE_THE_INPUT):
        kept["dropout"] = {"rate": protocol.dropout.rate, "at": at if masked else "masked_input"}
    if masked:
        encoding = asdict(protocol.encoding)
        if cell.noise.sum_clip is not None:
            del encoding["clip"]
        kept |= {"colluding": protocol.colluding, "encoding": encoding}
        if protocol.norm_bound is not None:
            kept["norm_bound"] = protocol.norm_bound
    return kept
