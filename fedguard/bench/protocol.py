"""What card, check and record say of a cell's protocol: who sees what, among how many, and what the noise proves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from fedguard.architectures.masking.decoding import smallest_of_design
from fedguard.config import Cell
from fedguard.config.protocol import session
from fedguard.contracts import DistributedNoise, GroupTested, RoundReport
from fedguard.metrics.masking import masked
from fedguard.privacy.distributed import DistributedDP
from fedguard.secagg.encoding import Encoding
from fedguard.visibility import PROTOCOLS

#: What figures under a norm bound rest on.
IDEALISED = (
    "idealised: proofs that no update is longer than norm_bound are assumed, not run, and their cost is not counted "
    "(RoFL, Lycklama et al., IEEE S&P 2023; ACORN, Bell et al., USENIX Security 2023)"
)
#: What makes a masked trial repeat.
SEEDED = "keys and masks come from the operating system; rounding and noise from the trial's seed, so that it repeats"


def protocol_card(cell: Cell) -> dict[str, Any] | None:
    """What a threat card says of the protocol; None without masks.

    Returns:
        in_words: who sees what;
        session: clients of one (of the smallest group), neighbours, threshold, quorum, and survivors that it needs;
        anonymity: the fewest clients in any sum that the server can form if nobody drops out, less those that may collude;
        kept_by_protocol: to how few honest ones a server can bring that down that lies about who dropped out; None for
        group tests, whose sums overlap, so that the promise of one session is not that of all.
    """
    protocol = cell.config.protocol
    if not protocol.masked:
        return None
    chosen = session(protocol, cell.participation)
    size = protocol.session(cell.participation.expected, cell.participation.most)
    return {
        "in_words": PROTOCOLS[protocol.mode].words,
        "colluding": size.colluders,
        "dropout": dataclasses.asdict(protocol.dropout) if protocol.dropout.rate > 0 else None,
        "session": {
            "clients": size.expected,
            "neighbours": chosen.degree,
            "threshold": chosen.threshold,
            "quorum": chosen.quorum,
            "survivors": chosen.survivors,
        },
        "anonymity": _smallest_sum(cell, size.expected) - size.colluders,
        "kept_by_protocol": None if protocol.mode == "group_testing" else chosen.anonymity,
        "norm_bound": protocol.norm_bound,
        "labels": [SEEDED] + [IDEALISED] * (protocol.norm_bound is not None),
    }


def protocol_in_words(cell: Cell) -> list[str]:
    """The same for `fedguard check`, a line each; none without masks."""
    card, protocol = protocol_card(cell), cell.config.protocol
    if card is None:
        return []
    one = card["session"]
    lines = [
        f"Secure aggregation, {protocol.mode}: {card['in_words']}",
        f"Sessions of {one['clients']} clients: {one['neighbours']} neighbours, {one['threshold']} shares rebuild a secret, "
        f"{one['quorum']} signatures before one is given; at least {one['survivors']} must survive, else the sum is lost.",
        f"Hidden among {card['anonymity']}: the smallest sum, less the {card['colluding']} that may collude with the server."
        + (f" If it lies about dropouts, among {kept}." if (kept := card["kept_by_protocol"]) else ""),
    ]
    if card["dropout"]:
        rate, step = protocol.dropout.rate, protocol.dropout.at
        lines.append(f"Dropouts: {100 * rate:g} % of the clients in each round, silent from {step} on.")
    return lines + [label[0].upper() + label[1:] + "." for label in card["labels"][1:]]


def encoding_in_words(cell: Cell) -> str | None:
    """How exact the sums are, for `fedguard check`; None without masks."""
    protocol = cell.config.protocol
    if not protocol.masked:
        return None
    encoding = Encoding(**dataclasses.asdict(protocol.fixed_point))
    clients = protocol.session(cell.participation.expected, cell.participation.most).expected
    off = encoding.error(clients, 1).typical / clients
    return (
        f"Encoding, {encoding.bits} bits{' after a rotation' if encoding.rotate else ''} in a ring of {encoding.ring}: one "
        f"coordinate of the mean of {clients} is off by {off:.1g} (standard deviation), and cut beyond {encoding.clip:g}."
    )


def sums(cell: Cell, reports: Sequence[RoundReport], hostile: Collection[int]) -> dict[str, Any] | None:
    """What a record says of the sums: `fedguard.metrics.masking.masked`, the mode, the parameters and what it rests on."""
    found, card = masked(reports, hostile), protocol_card(cell)
    if found is None or card is None:
        return None
    return {"mode": cell.config.protocol.mode, **found, "parameters": card["session"], "labels": card["labels"]}


def privacy_spent(cell: Cell, reports: Sequence[RoundReport], dim: int) -> dict[str, Any] | None:
    """What the noise proves, with all that it rests on; None without noise.

    Returns:
        epsilon (None where nothing is proven) with its meaning; contributors: who surely added noise in the worst round;
        may_withhold: how many clients of a sum are not counted on; most_hostile: how many stood in one sum indeed.
    """
    protocol, noise = cell.config.protocol, cell.config.protocol.privacy
    if not isinstance(noise, DistributedNoise):
        return None
    size = protocol.session(cell.participation.expected, cell.participation.most)
    rounds = [one.masked.contributors for one in reports if one.masked and one.masked.contributors is not None]
    scale = Encoding(**dataclasses.asdict(protocol.fixed_point)).scale
    plan = DistributedDP(**noise.parameters)
    spent = (
        dataclasses.asdict(plan.spent(rounds, expected=size.honest, dim=dim, scale=scale)) if rounds else {"value": 0.0}
    )
    epsilon = spent.pop("value")
    sums = [len(one.hostile & set(row)) for one in reports for row in one.behind]
    return {
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        **spent,
        "mechanism": noise.mechanism,
        "noise_multiplier": noise.noise_multiplier,
        "clip": noise.clip,
        "rounds": len(rounds),
        "expected_contributors": size.honest,
        "contributors": min(rounds, default=None),
        "may_withhold": size.colluders,
        "most_hostile": max(sums, default=0),
    }


def _smallest_sum(cell: Cell, smallest: int) -> int:
    """The fewest clients in a sum that the server can form of what it sees."""
    plan = cell.config.protocol.secure_aggregation
    if not isinstance(plan, GroupTested):
        return smallest
    tests = plan.group_testing
    return smallest_of_design(cell.participation.total, tests.tests, tests.memberships)
