"""Secure aggregation as it ran, and what everything cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any
from xml.etree.ElementTree import Element

from fedguard.app.report.elements import el, folded, listed, table
from fedguard.app.report.records import ran, with_setting

from fedguard.bench.profile import SHOWN, Profile, meanings
from fedguard.bench.record import Record
from fedguard.bench.run import Run


def sums(run: Run) -> list[Element]:
    """For each mode: who sees what, among how many an update is hidden, how exact the sums were, what was lost."""
    modes: dict[str, list[Record]] = {}
    for _, record in ran(run):
        if record["result"]["secure_aggregation"]:
            card = record["threat_card"]
            noise = "" if card["privacy"] == "none" else f", {card['privacy']} noise"
            modes.setdefault(f"{card['secure_aggregation']}{noise}", []).append(record)
    if not modes:
        return []
    words = [f"{mode}: {said}" for mode, found in modes.items() for said in _in_words(found)]
    rows = [_mode(mode, [record["result"]["secure_aggregation"] for record in found]) for mode, found in modes.items()]
    heads = ["mode", "hidden among, at least", "error of the mean", "sums lost", "sent by a client", "sent to a client"]
    caption = (
        "What was measured. Hidden: clients in the smallest sum, colluders not counted. Error: in lengths of the mean, the "
        "median of the trials. Sent: bytes in one sum"
    )
    lost = dict.fromkeys(
        f"{mode}: {record['result']['secure_aggregation']['why_aborted']}"
        for mode, found in modes.items()
        for record in found
        if record["result"]["secure_aggregation"].get("why_aborted")
    )
    why = [el("h4", "Why sums were lost"), listed(lost)] if lost else []
    return [listed(words), table(caption, heads, rows, "lr"), *why]


def _in_words(found: Sequence[Record]) -> dict[str, None]:
    return dict.fromkeys(str(protocol["in_words"]) for one in found if (protocol := one["threat_card"]["protocol"]))


def _mode(mode: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    hidden = [one["anonymity"] for one in found if one["anonymity"] is not None]
    errors = [one["error"]["mean"] for one in found if one["error"]]
    lost, all_sums = sum(one["aborted_sessions"] for one in found), sum(one["sessions"] for one in found)
    up, down = ([one[key] for one in found if one.get(key) is not None] for key in ("bytes_up", "bytes_down"))
    return [
        mode,
        str(min(hidden)) if hidden else "-",
        f"{median(errors):.1g}" if errors else "-",
        f"{lost} of {all_sums}",
        f"{mean(up):,.0f}" if up else "-",
        f"{mean(down):,.0f}" if down else "-",
    ]


def costs(run: Run) -> list[Element]:
    """Seconds, bytes and memory, by defense and setting."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for swept, record in ran(run):
        found.setdefault(with_setting(swept["defense"], run, swept), []).append(record["cost"])
    rows = [_cost(name, its) for name, its in found.items()]
    if not rows:
        return [el("p", "Nothing ran, so nothing was spent.")]
    seconds = sum(record["cost"]["seconds"] for record in run.records.values() if record["cost"])
    heads = ["defense", "trials", "seconds", "CPU seconds", "updates sent, MB", "protocol sent, MB", "peak memory, MB"]
    return [
        el("p", f"All trials together took {seconds:,.0f} s, each on one thread; the corners are among them."),
        table("Means over trials; of the memory, the largest", heads, rows, "lr"),
        el(
            "p",
            "Seconds depend on the machine and on what else ran on it, bytes do not. The memory is that of the worker process, "
            "the largest until the trial's end, which earlier trials may have caused. MB: 10⁶ bytes, over all clients and "
            "rounds.",
            class_="note",
        ),
        folded("Where the time went", *stages) if (stages := _stages(run.profile())) else el("p"),
    ]


def _stages(profile: Profile) -> list[Element]:
    """Where the time went, over all trials."""
    left_out = [el("p", profile.without())] if profile.without() else []
    if profile.whole is None:
        return left_out
    known = meanings()
    rows = [
        [
            row["stage"].replace("_", " "),
            f"{100 * row['share']:.1f}",
            f"{row['ms_per_round']:,.2f}",
            f"{row['seconds_per_trial']:,.3f}",
            f"{row['cpu_seconds_per_trial']:,.3f}",
            known.get(row["stage"], ""),
        ]
        for row in profile.whole.rows(SHOWN)
    ]
    heads = ["stage", "share, %", "ms per round", "s per trial", "CPU s per trial", "what it is"]
    caption = f"Where the time went: {profile.whole.words()}"
    return [*left_out, table(caption, heads, rows, "lrrrrl")]


def _cost(name: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    memory = [one["worker_peak_memory_bytes"] for one in found if one["worker_peak_memory_bytes"] is not None]
    return [
        name,
        str(len(found)),
        f"{mean(one['seconds'] for one in found):.2f}",
        f"{mean(one['cpu_seconds'] for one in found):.2f}",
        f"{mean(one['update_bytes_sent'] for one in found) / 1e6:.2f}",
        f"{mean(one['protocol_bytes_sent'] for one in found) / 1e6:.2f}",
        f"{max(memory) / 1e6:.0f}" if memory else "-",
    ]
