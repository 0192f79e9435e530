"""The protocol of a cell for card, check and record: who sees what, the anonymity set, and the guarantee of the noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from fedguard.architectures.masking.moments import moments_encoding
from fedguard.bench.records.schema.result import MaskingRecord
from fedguard.config import PlannedCell
from fedguard.contracts import Data, Examples, PrivacyGuarantee, RoundReport, Setup
from fedguard.metrics.masking import summarize_sessions
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.planning import plan_session
from fedguard.tasks.classification import Classification
from fedguard.tasks.data.copies import copies

#: What figures under a norm bound rest on.
IDEALISED = (
    "idealised: proofs that no update is longer than norm_bound are assumed, not run, and their cost is not counted "
    "(RoFL, Lycklama et al., IEEE S&P 2023; ACORN, Bell et al., USENIX Security 2023)"
)
#: What makes a masked trial repeat, by whether its noise is secret.
REPEATS = {
    False: "keys and masks come from the operating system; rounding and noise from the trial's seed, so that it repeats",
    True: "keys, masks and noise come from the operating system; it cannot be repeated",
}
#: Where noise for privacy comes from, by whether it is secret: what a record says, and what that means for who publishes it.
DRAWN_FROM = {False: "seed", True: "operating system"}
NOISE_IS_SECRET = {
    False: (
        "the noise is drawn from the trial's seed, so that whoever has this record draws it again, and a simulation that is "
        "published has no privacy left: the figure is the mechanism's (--secret-noise draws from the operating system)"
    ),
    True: (
        "the noise, and each draw of a sampling that is counted on, came from the operating system and is stored nowhere: the "
        "record is not reproducible"
    ),
}

#: What no single record can know.
ONE_TRAINING = (
    "this training is the only one on these records: settings that were chosen among others, such as the cells of a matrix, "
    "have their epsilons added up"
)


def noise_drawn(cell: PlannedCell) -> bool:
    """Whether a training draws noise for privacy, accounted for or not, as far as is known before it runs."""
    return cell.private or bool(cell.pipeline.transforms)


def protocol_card(cell: PlannedCell, secret_noise: bool = False) -> dict[str, Any] | None:
    """The protocol in a threat card; None without masks.

    Returns:
        in_words: who sees what;
        session: clients of one (of the smallest group), neighbors, threshold, quorum, and survivors that it needs;
        anonymity: the fewest clients in any sum that the server can form if nobody drops out, less those that may collude;
        kept_by_protocol: the fewest honest clients in any sum if the server lies about dropouts; None if sums overlap, since
        a guarantee of one session then does not hold for all of them together.
    """
    protocol = cell.protocol
    if not cell.masking.masked:
        return None
    chosen = plan_session(cell.in_sessions)
    size = cell.in_sessions.size
    return {
        "in_words": cell.masking.words,
        "colluding": size.colluders,
        "dropout": dataclasses.asdict(protocol.dropout) if protocol.dropout.rate > 0 else None,
        "session": {
            "clients": size.expected,
            "neighbors": chosen.degree,
            "threshold": chosen.threshold,
            "quorum": chosen.quorum,
            "survivors": chosen.survivors,
        },
        "anonymity": cell.masking.smallest_sum(cell.in_sessions) - size.colluders,
        "kept_by_protocol": None if cell.masking.overlapping else chosen.anonymity,
        "norm_bound": protocol.norm_bound,
        "labels": [REPEATS[secret_noise and noise_drawn(cell)]] + [IDEALISED] * (protocol.norm_bound is not None),
    }


def protocol_in_words(cell: PlannedCell) -> list[str]:
    """The same for `fedguard check`, and the noise that is added for privacy, a line each."""
    return _masks_in_words(cell) + noise_in_words(cell)


def noise_in_words(cell: PlannedCell) -> list[str]:
    """What the noise hides from whom, its amount, and what it does not cover; empty without noise."""
    if not cell.private:
        return []
    attacking = cell.malicious if cell.attack else 0
    words = cell.noise.in_words(dataclasses.replace(cell.in_sessions, attacking=attacking))
    prepared = f"Examples are prepared by {_describe_preparation(cell)}."
    return [" ".join([f"{words} {prepared}", *_record_in_words(cell), *_first_model_in_words(cell)])]


def _describe_preparation(cell: PlannedCell) -> str:
    """By what examples are prepared, and whether that is somebody's word."""
    known = cell.data.preparation
    own = type(cell.data).__module__.startswith("fedguard.")
    return known.in_words + (
        "" if own or known.origin == "records" else " (so its author declares, and nobody can check it)"
    )


def _record_in_words(cell: PlannedCell) -> list[str]:
    """What one record is, if the noise hides records and the data set says so; else empty."""
    if cell.noise.unit != "record" or not isinstance(cell.data, Data) or not cell.data.record:
        return []
    return [
        f"A record is {cell.data.record}; to hide all that a client holds, take privacy: {{name: client}}, with the partition "
        "natural where a client is to be a person."
    ]


def _first_model_in_words(cell: PlannedCell) -> list[str]:
    """What an epsilon assumes of a first model that was read from a file; empty without one."""
    file = cell.training.first_model
    if file is None:
        return []
    return [f"The first model, {file}, is assumed to be public: no record of a client went into it."]


def copies_in_words(cell: PlannedCell, parts: Sequence[Examples]) -> list[str]:
    """What is not hidden about a person with several equal examples, or examples at several clients; else empty."""
    unit = cell.noise.unit
    if unit is None or cell.config.task.shared:  # what each client holds a copy of is public
        return []
    found = copies(parts)
    most = found.most if unit == "record" else found.holders
    if most < 2:
        return []
    where = f"of one there are {most}" if unit == "record" else f"one is at {most} clients"
    return [
        f"Of {found.examples} train examples {found.copied} stand there more than once, and {where}: the noise hides one "
        f"{unit} at a time, and who is behind k of them has (k epsilon, k e^((k - 1) epsilon) delta) at most."
    ]


def _masks_in_words(cell: PlannedCell) -> list[str]:
    card, protocol = protocol_card(cell), cell.protocol
    if card is None:
        return []
    one = card["session"]
    lines = [
        f"Secure aggregation, {cell.masking.name}: {card['in_words']}",
        f"Sessions of {one['clients']} clients: {one['neighbors']} neighbors, {one['threshold']} shares rebuild a secret, "
        f"{one['quorum']} signatures before one is given; at least {one['survivors']} must survive, else the sum is lost.",
        f"Hidden among {card['anonymity']}: the smallest sum, less the {card['colluding']} that may collude with the server."
        + (f" If it lies about dropouts, among {kept}." if (kept := card["kept_by_protocol"]) else ""),
    ]
    if card["dropout"]:
        rate, step = protocol.dropout.rate, protocol.dropout.at
        lines.append(f"Dropouts: {100 * rate:g} % of the clients in each round, silent from {step} on.")
    return lines + [label[0].upper() + label[1:] + "." for label in card["labels"][1:]]


def encoding_in_words(cell: PlannedCell) -> str | None:
    """How exact the sums are, for `fedguard check`; None without masks."""
    if not cell.masking.masked:
        return None
    encoding = Encoding(**dataclasses.asdict(cell.fixed_point))
    clients = cell.in_sessions.size.expected
    off = encoding.error(clients, 1).typical / clients
    return (
        f"Encoding, {encoding.bits} bits{' after a rotation' if encoding.rotate else ''} in a ring of {encoding.ring}: one "
        f"coordinate of the mean of {clients} is off by {off:.1g} (standard deviation), and cut beyond {encoding.clip:g}."
    )


def sums(
    cell: PlannedCell, reports: Sequence[RoundReport], malicious: Collection[int], secret_noise: bool = False
) -> MaskingRecord | None:
    """The secure aggregation part of a record."""
    found, card = summarize_sessions(reports, malicious), protocol_card(cell, secret_noise)
    if found is None or card is None:
        return None
    return {"mode": cell.masking.name, **found, "parameters": card["session"], "labels": card["labels"]}


def moments_in_words(cell: PlannedCell) -> str:
    """How running statistics travel under masks, for `fedguard check`."""
    encoding, clients = moments_encoding(cell, 1), cell.in_sessions.size.expected
    off = encoding.error(clients, 1).typical / clients
    return (
        "Under masks they travel in the same vector as the update, as moments relative to the last global statistics, and the "
        f"server sees their sums alone: one moment of the mean of {clients} is off by {off:.1g} (standard deviation), and cut "
        f"at {encoding.clip:g} standard deviations, or {encoding.clip:g} times the variance."
    )


def privacy_spent(cell: PlannedCell, setup: Setup, reports: Sequence[RoundReport]) -> dict[str, Any] | None:
    """The guarantee of the noise, with its assumptions; None without noise.

    Returns:
        epsilon (None where nothing is proven, and why) with its meaning; units: how many records or clients there are;
        kind, noise_multiplier and clip, found or given, and what else belongs to the kind of noise.
    """
    noise, task = cell.noise, setup.task
    if noise.unit is None:
        return None
    whole = setup.cell
    spent = noise.account_privacy(
        cell.architecture.sessions(whole) if cell.masking.masked else whole, reports, task.dim
    )
    units = noise.units(cell.clients.total, sum(task.sizes))
    found = {"kind": noise.name, **_proven(spent), **spent.facts, "units": units}
    if "assumptions" in found:
        found["assumptions"] = (
            NOISE_IS_SECRET[setup.secret],
            *found["assumptions"],
            ONE_TRAINING,
            *map(_format_list_item, _record_in_words(cell)),
            *map(_format_list_item, _first_model_in_words(cell)),
            *map(
                _format_list_item,
                copies_in_words(cell, setup.task.parts if isinstance(setup.task, Classification) else ()),
            ),
            f"examples are prepared by {_describe_preparation(cell)}",
        )
    return found


def _format_list_item(sentence: str) -> str:
    """A sentence as a line of a list."""
    return sentence[0].lower() + sentence[1:].rstrip(".")


def _proven(spent: PrivacyGuarantee) -> dict[str, Any]:
    """The figure with its meaning, as JSON; 0 for what was never released."""
    if spent.epsilon is None:
        return {"epsilon": None if spent.why else 0.0, "why": spent.why}
    facts = dataclasses.asdict(spent.epsilon)
    value = facts.pop("value")
    why = spent.why or (None if math.isfinite(value) else "no guarantee: so little noise proves nothing")
    return {"epsilon": None if why else value, "why": why, **facts}
