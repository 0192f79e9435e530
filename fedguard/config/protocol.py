"""Whether a protocol can be run among so many clients, and which of its settings have an effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedguard.contracts import BEFORE_THE_INPUT, Federation, Masking, Participation, Protocol, Training
from fedguard.errors import ConfigError, UnknownName
from fedguard.registry import Registry, Spec
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.parameters import Parameters, choose


def masking(spec: Spec, known: Registry, where: str) -> Masking:
    """The mode of secure aggregation that a suite asks for.

    A mapping need not say ``name``: ``{group_testing: {tests: 8}}`` holds the parameters under it, and in
    ``{groups: 5, redraw: false}`` the parameter that is called like the mode stands for its name.

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


def check(protocol: Protocol, clients: Participation, training: Training, where: str) -> None:
    """See to it that the protocol can keep what it promises.

    Args:
        where: it stands, for messages.

    Raises:
        ConfigError: too few clients in a session, more dropouts than it stands, sums that could wrap around the ring
            (`OverflowBudgetError`), noise that does not fit, or settings that exclude each other.
    """
    federation = Federation(protocol=protocol, clients=clients, training=training)
    try:
        protocol.privacy.check(federation)
        protocol.secure_aggregation.check(federation)
        if not protocol.masked:
            return
        session(protocol, clients)
        encoding, size = Encoding(**asdict(protocol.fixed_point)), federation.size
        noise = protocol.privacy.in_sums(federation, size, 1, encoding.scale)
        encoding.check(size.most, noise.noise_tail(size.most) if noise else 0)
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None


def session(protocol: Protocol, clients: Participation) -> Parameters:
    """The parameters of the one session of a round, or of the smallest group's.

    Raises:
        ConfigError: there are none for so few clients, so many colluders or dropouts.
    """
    size, rate = protocol.session(clients.expected, clients.most), protocol.dropout.rate
    try:
        chosen = choose(size.expected, size.colluding, rate)
    except ConfigError as error:
        raise ConfigError(f"{error} (gamma follows from colluding, and delta is dropout.rate.)") from None
    size.check_left(rate, chosen.survivors)
    return chosen


def effective(protocol: Protocol) -> dict[str, Any]:
    """The settings that have an effect, as JSON from which the protocol can be built again."""
    kept = {"secure_aggregation": protocol.secure_aggregation.setting, "privacy": protocol.privacy.setting}
    at, masked = protocol.dropout.at, protocol.masked
    if protocol.dropout.rate > 0 and (masked or at in BEFORE_THE_INPUT):
        kept["dropout"] = {"rate": protocol.dropout.rate, "at": at if masked else "masked_input"}
    if masked:
        encoding = asdict(protocol.encoding)
        if protocol.privacy.sum_clip is not None:
            del encoding["clip"]
        kept |= {"colluding": protocol.colluding, "encoding": encoding}
        if protocol.norm_bound is not None:
            kept["norm_bound"] = protocol.norm_bound
    return kept
