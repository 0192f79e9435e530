"""What card, check and record say of a cell's protocol: who sees what, among how many, and what the noise proves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from fedguard.bench.records.schema.result import Sums
from fedguard.config import Cell
from fedguard.contracts import RoundReport, Setup, Spent
from fedguard.metrics.masking import masked
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.planning import planned

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
        kept_by_protocol: to how few honest ones a server can bring that down that lies about who dropped out; None where
        sums overlap, so that the promise of one session is not that of all.
    """
    protocol = cell.protocol
    if not protocol.masked:
        return None
    chosen = planned(cell.federation)
    size = cell.federation.size
    return {
        "in_words": cell.mode.words,
        "colluding": size.colluders,
        "dropout": dataclasses.asdict(protocol.dropout) if protocol.dropout.rate > 0 else None,
        "session": {
            "clients": size.expected,
            "neighbours": chosen.degree,
            "threshold": chosen.threshold,
            "quorum": chosen.quorum,
            "survivors": chosen.survivors,
        },
        "anonymity": cell.mode.smallest_sum(cell.federation) - size.colluders,
        "kept_by_protocol": None if cell.mode.overlapping else chosen.anonymity,
        "norm_bound": protocol.norm_bound,
        "labels": [SEEDED] + [IDEALISED] * (protocol.norm_bound is not None),
    }


def protocol_in_words(cell: Cell) -> list[str]:
    """The same for `fedguard check`, and the noise that is added for privacy, a line each."""
    return _masks_in_words(cell) + noise_in_words(cell)


def noise_in_words(cell: Cell) -> list[str]:
    """What the noise hides from whom, how much of it there is, and what stands outside of it; nothing without noise."""
    if not cell.protocol.private:
        return []
    malicious = cell.malicious if cell.attack else 0
    words = cell.noise.in_words(dataclasses.replace(cell.federation, malicious=malicious))
    return [f"{words} Examples are prepared by {cell.data.preparation.in_words}."]


def _masks_in_words(cell: Cell) -> list[str]:
    card, protocol = protocol_card(cell), cell.protocol
    if card is None:
        return []
    one = card["session"]
    lines = [
        f"Secure aggregation, {cell.mode.name}: {card['in_words']}",
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
    protocol = cell.protocol
    if not protocol.masked:
        return None
    encoding = Encoding(**dataclasses.asdict(protocol.fixed_point))
    clients = cell.federation.size.expected
    off = encoding.error(clients, 1).typical / clients
    return (
        f"Encoding, {encoding.bits} bits{' after a rotation' if encoding.rotate else ''} in a ring of {encoding.ring}: one "
        f"coordinate of the mean of {clients} is off by {off:.1g} (standard deviation), and cut beyond {encoding.clip:g}."
    )


def sums(cell: Cell, reports: Sequence[RoundReport], malicious: Collection[int]) -> Sums | None:
    """What a record says of the sums."""
    found, card = masked(reports, malicious), protocol_card(cell)
    if found is None or card is None:
        return None
    return {"mode": cell.mode.name, **found, "parameters": card["session"], "labels": card["labels"]}


def privacy_spent(cell: Cell, setup: Setup, reports: Sequence[RoundReport]) -> dict[str, Any] | None:
    """What the noise proves, with all that it rests on; None without noise.

    Returns:
        epsilon (None where nothing is proven, and why) with its meaning; units: how many records or clients there are;
        kind, noise_multiplier and clip, found or given, and what else belongs to the kind of noise.
    """
    noise, task = cell.noise, setup.task
    if noise.unit is None:
        return None
    whole = setup.federation
    spent = noise.spent(cell.architecture.sessions(whole) if cell.protocol.masked else whole, reports, task.dim)
    units = noise.units(cell.participation.total, sum(task.sizes))
    found = {"kind": noise.name, **_proven(spent), **spent.facts, "units": units}
    if "assumptions" in found:
        found["assumptions"] = (*found["assumptions"], f"examples are prepared by {cell.data.preparation.in_words}")
    return found


def _proven(spent: Spent) -> dict[str, Any]:
    """The figure with its meaning, as JSON; 0 for what was never released."""
    if spent.epsilon is None:
        return {"epsilon": None if spent.why else 0.0, "why": spent.why}
    facts = dataclasses.asdict(spent.epsilon)
    value = facts.pop("value")
    why = spent.why or (None if math.isfinite(value) else "no guarantee: so little noise proves nothing")
    return {"epsilon": None if why else value, "why": why, **facts}
