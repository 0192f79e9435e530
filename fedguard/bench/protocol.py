"""What card, check and record say of a cell's protocol: who sees what, among how many, and what the noise proves."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from fedguard.architectures.masking.decoding import smallest_of_design
from fedguard.config import Cell
from fedguard.config.protocol import session
from fedguard.contracts import (
    AdaptiveClip,
    ClientNoise,
    DistributedNoise,
    GroupTested,
    RecordNoise,
    RoundReport,
    SessionSize,
    Sight,
    Task,
)
from fedguard.metrics.masking import masked
from fedguard.privacy import record
from fedguard.privacy.accounting import Epsilon, parallel
from fedguard.privacy.central import central
from fedguard.privacy.planned import distributed
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
    """The same for `fedguard check`, and the noise that is added for privacy, a line each."""
    return _masks_in_words(cell) + noise_in_words(cell)


def noise_in_words(cell: Cell) -> list[str]:
    """What each kind of noise hides from whom, how much of it there is, and what stands outside of it."""
    return [f"{line} Examples are prepared by {cell.data.preparation.in_words}." for line in _noise_in_words(cell)]


def _noise_in_words(cell: Cell) -> list[str]:
    noise, clients, training = cell.config.protocol.privacy, cell.participation, cell.config.training
    if isinstance(noise, RecordNoise):
        private, steps = record.dp_sgd(noise, training, clients), record.steps_in_a_round(noise, training)
        levels = [f"z = {z:.4g} and clip {clip:g}" for clip, z in private.levels]
        return [
            f"Privacy, record: each client trains by DP-SGD, {steps} steps a round on each example with q = "
            f"{noise.sample_rate:g}: one example is hidden from all who see its updates. Noise: {'; '.join(levels)}."
        ]
    if isinstance(noise, ClientNoise):
        found = central(noise, clients, training.rounds)
        clip = "an adaptive clip" if isinstance(noise.clip, AdaptiveClip) else f"clip {noise.clip:g}"
        bands = f", correlated over {noise.bands} rounds" if noise.bands > 1 else ""
        return [
            "Privacy, client: a trusted server clips each update and adds noise to their sum: one client is hidden from all "
            f"who see the models (clients' sampling: {clients.scheme}). Noise: z = {found.noise_multiplier:.4g} "
            f"and {clip}{bands}."
        ]
    if isinstance(noise, DistributedNoise):
        size = _size(cell)
        amount = "as much as it takes" if noise.noise_multiplier is None else f"z = {noise.noise_multiplier:.4g}"
        bound = f" for epsilon = {noise.epsilon:g} at delta = {noise.delta:g}" if noise.epsilon is not None else ""
        return [
            f"Privacy, distributed: {noise.mechanism} noise, shared out among {size.honest} clients of a session and added "
            f"before the masks: one client is hidden from all who see the sums. Noise: {amount}{bound} and clip {noise.clip:g}."
        ]
    return []


def _masks_in_words(cell: Cell) -> list[str]:
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


def privacy_spent(cell: Cell, reports: Sequence[RoundReport], task: Task) -> dict[str, Any] | None:
    """What the noise proves, with all that it rests on; None without noise.

    Returns:
        epsilon (None where nothing is proven, and why) with its meaning; units: how many records or clients there are;
        kind, noise_multiplier and clip, found or given, and what else belongs to the kind of noise.
    """
    noise = cell.config.protocol.privacy
    if noise == "none":
        return None
    if isinstance(noise, RecordNoise):
        found = _of_records(cell, noise, reports)
    elif isinstance(noise, ClientNoise):
        found = _of_clients(cell, noise, reports)
    else:
        found = _of_sums(cell, noise, reports, task.dim)
    found["units"] = sum(task.sizes) if isinstance(noise, RecordNoise) else cell.participation.total
    if "assumptions" in found:
        found["assumptions"] = (*found["assumptions"], f"examples are prepared by {cell.data.preparation.in_words}")
    return found


def _proven(kind: str, spent: Epsilon | None) -> dict[str, Any]:
    """The figure with its meaning, as JSON; None stands for what was never released."""
    if spent is None:
        return {"kind": kind, "epsilon": 0.0, "why": None}
    facts = dataclasses.asdict(spent)
    value = facts.pop("value")
    why = None if math.isfinite(value) else "no guarantee: so little noise proves nothing"
    return {"kind": kind, "epsilon": _finite(value), "why": why, **facts}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _of_records(cell: Cell, noise: RecordNoise, reports: Sequence[RoundReport]) -> dict[str, Any]:
    """The worst over parties, and over levels; malicious clients are promised nothing."""
    training, clients = cell.config.training, cell.participation
    hostile = frozenset[int]().union(*(one.hostile for one in reports))
    taken = Counter(client for one in reports for client in one.chosen if client not in hostile)
    spent = record.spent(noise, training, clients, taken)
    private = record.dp_sgd(noise, training, clients)
    levels = [
        {
            "epsilon": _finite(spent[number].value) if number in spent else None,
            "clip": clip,
            "noise_multiplier": multiplier,
        }
        for number, (clip, multiplier) in enumerate(private.levels)
    ]
    return {
        **_proven("record", parallel(list(spent.values()), clients.total) if spent else None),
        "mechanism": "dp_sgd",
        "noise_multiplier": min(multiplier for _, multiplier in private.levels),
        "clip": max(clip for clip, _ in private.levels),
        "levels": levels,
        "sample_rate": noise.sample_rate,
        "divided_by": training.batch_size,
        "steps_in_a_round": record.steps_in_a_round(noise, training),
        "rounds": max(taken.values(), default=0),
    }


def _of_clients(cell: Cell, noise: ClientNoise, reports: Sequence[RoundReport]) -> dict[str, Any]:
    """What the published models tell of one client; nothing is proven where others put what they saw of it into theirs."""
    private = central(noise, cell.participation, cell.config.training.rounds)
    spent = private.spent(cell.participation, len(reports), noise.delta) if reports else None
    found = _proven("client", spent)
    hostile = cell.attack is not None and cell.hostile > 0
    if hostile and cell.participation.scheme in ("poisson", "fixed"):
        found |= {
            "epsilon": None,
            "why": "no guarantee: the colluders know how many take part, and what they send may tell of it, while the "
            "amplification rests on its secrecy. Let all clients take part, or take turns",
        }
    if hostile and Sight.HONEST_UPDATES in cell.verdict.attack_sees:
        found |= {
            "epsilon": None,
            "why": "no guarantee: the colluders put what they see of the honest updates into their own, which the noise is not "
            "made for. Take honest_updates from threat.knowledge",
        }
    clips = [one.clip for one in reports if one.clip is not None]
    return {
        **found,
        "mechanism": "gaussian",
        "noise_multiplier": private.noise_multiplier,
        "clip": clips[-1] if clips else None,
        "clips": {"first": clips[0], "least": min(clips), "most": max(clips)} if clips else None,
        "bit_noise": private.bit_noise if isinstance(noise.clip, AdaptiveClip) else None,
        "bands": noise.bands,
        "divided_by": private.expected,
        "rounds": len(reports),
    }


def _size(cell: Cell) -> SessionSize:
    """Of a session with the cell's malicious clients, who add no noise."""
    clients, hostile = cell.participation, cell.hostile if cell.attack else 0
    return cell.config.protocol.session(clients.expected, clients.most, hostile)


def _of_sums(cell: Cell, noise: DistributedNoise, reports: Sequence[RoundReport], dim: int) -> dict[str, Any]:
    """What the sums tell of one client.

    Returns:
        among others contributors: who surely added noise in the worst round; may_withhold: how many clients of a sum are not
        counted on; most_hostile: how many stood in one sum indeed.
    """
    protocol = cell.config.protocol
    size = _size(cell)
    rounds = [one.masked.contributors for one in reports if one.masked and one.masked.contributors is not None]
    scale = Encoding(**dataclasses.asdict(protocol.fixed_point)).scale
    planned = cell.config.training.rounds
    plan = distributed(noise, rounds=planned, contributors=size.honest, dim=dim, scale=scale)
    spent = plan.spent(rounds, expected=size.honest, dim=dim, scale=scale) if rounds else None
    return {
        **_proven("distributed", spent),
        "mechanism": noise.mechanism,
        "noise_multiplier": plan.noise_multiplier,
        "clip": noise.clip,
        "rounds": len(rounds),
        "expected_contributors": size.honest,
        "contributors": min(rounds, default=None),
        "may_withhold": size.withholding,
        "most_hostile": max((len(one.hostile & set(row)) for one in reports for row in one.behind), default=0),
    }


def _smallest_sum(cell: Cell, smallest: int) -> int:
    """The fewest clients in a sum that the server can form of what it sees."""
    plan = cell.config.protocol.secure_aggregation
    if not isinstance(plan, GroupTested):
        return smallest
    tests = plan.group_testing
    return smallest_of_design(cell.participation.total, tests.tests, tests.memberships)
