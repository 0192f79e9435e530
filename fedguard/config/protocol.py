"""Whether a protocol can be run among so many clients, and which of its settings have an effect."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedguard.contracts import (
    BEFORE_THE_INPUT,
    DistributedNoise,
    Groups,
    GroupTested,
    GroupTesting,
    Participation,
    Protocol,
)
from fedguard.errors import ConfigError, require
from fedguard.privacy.distributed import DistributedDP
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.parameters import Parameters, choose


def check(protocol: Protocol, clients: Participation, rounds: int, where: str) -> None:
    """See to it that the protocol can keep what it promises.

    Args:
        where: it stands, for messages.

    Raises:
        ConfigError: too few clients in a session, more dropouts than it stands, sums that could wrap around the ring
            (`OverflowBudgetError`), noise that does not fit, or settings that exclude each other.
    """
    try:
        if not protocol.masked:
            _check_plain(protocol)
            return
        if isinstance(protocol.secure_aggregation, Groups):
            _check_groups(protocol, protocol.secure_aggregation, clients)
        if isinstance(protocol.secure_aggregation, GroupTested):
            _check_tests(protocol, protocol.secure_aggregation.group_testing, clients, rounds)
        session(protocol, clients)
        Encoding(**asdict(protocol.fixed_point)).check(
            protocol.session(clients.expected, clients.most).most, _noise_tail(protocol, clients)
        )
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
    settings = asdict(protocol)
    kept = {key: settings[key] for key in ("secure_aggregation", "privacy")}
    at, masked = protocol.dropout.at, protocol.masked
    if protocol.dropout.rate > 0 and (masked or at in BEFORE_THE_INPUT):
        kept["dropout"] = {"rate": protocol.dropout.rate, "at": at if masked else "masked_input"}
    if masked:
        kept |= {"colluding": protocol.colluding, "encoding": settings["encoding"]}
        if protocol.fixed_point != protocol.encoding or isinstance(protocol.privacy, DistributedNoise):
            del kept["encoding"]["clip"]
        if protocol.norm_bound is not None:
            kept["norm_bound"] = protocol.norm_bound
    return kept


def _check_plain(protocol: Protocol) -> None:
    require(
        protocol.privacy == "none",
        "privacy: distributed noise is added under masks, and secure_aggregation is off: the server would see each update "
        "with too little noise. Set secure_aggregation: full.",
    )
    require(
        protocol.norm_bound is None,
        "norm_bound: lengths are proven under masks, and secure_aggregation is off: the server sees them. Use the defense "
        "clip(bound=...) >> mean.",
    )


def _check_groups(protocol: Protocol, plan: Groups, clients: Participation) -> None:
    size = protocol.session(clients.expected, clients.most)
    require(
        size.expected >= size.fewest,
        f"groups: {plan.groups} groups of {clients.expected} clients have {size.expected}, of whom {size.colluders} may "
        f"collude with the server; expected at least {size.fewest} in each. "
        f"Mend: take at most {clients.expected // size.fewest} groups, or lower colluding.",
    )
    require(
        plan.redraw or clients.expected == clients.total,
        f"redraw: groups that stay the same take all clients in each round; got {clients.expected} of {clients.total}. "
        "Set redraw: true, or clients.per_round: 1.0.",
    )


def _check_tests(protocol: Protocol, plan: GroupTesting, clients: Participation, rounds: int) -> None:
    require(
        plan.memberships < plan.tests,
        f"memberships: expected fewer than tests = {plan.tests}, for a client in every group tells nothing; "
        f"got {plan.memberships}.",
    )
    require(plan.round <= rounds, f"round: expected at most training.rounds = {rounds}; got {plan.round}.")
    require(
        clients.expected == clients.total,
        f"group_testing: each client is tested once, so all take part in each round; got {clients.expected} of "
        f"{clients.total}. Set clients.per_round: 1.0.",
    )
    require(
        protocol.privacy == "none",
        "privacy: a test shows several sums over each client, for which the noise is not made. Set secure_aggregation: full.",
    )


def _noise_tail(protocol: Protocol, clients: Participation) -> int:
    """What the noise adds to the largest sum, in ring units, for a single coordinate; 0 without noise."""
    if not isinstance(protocol.privacy, DistributedNoise):
        return 0
    size = protocol.session(clients.expected, clients.most)
    require(
        size.honest >= 1,
        f"privacy: of {size.expected} clients in a session {size.colluders} may collude and others drop out, so nobody is "
        "sure to add noise. Lower colluding or dropout.rate, or take fewer groups.",
    )
    plan = DistributedDP(**protocol.privacy.parameters)
    encoding = Encoding(**asdict(protocol.fixed_point))
    return plan.for_round(contributors=size.honest, dim=1, scale=encoding.scale).noise_tail(size.most)
