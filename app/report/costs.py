"""Sessions of secure aggregation, and the cost of the run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from xml.etree.ElementTree import Element

from fedguard.app.report.records import with_setting
from fedguard.bench.pages.elements import bullet_list, el, fold_content, table
from fedguard.bench.records.schema.record import Cost
from fedguard.bench.records.schema.result import MaskingRecord
from fedguard.bench.results.profile import SHOWN, Profile, meanings
from fedguard.bench.results.run import Run


def sums(run: Run) -> list[Element]:
    """For each mode: what the server sees, the anonymity set, the exactness of the sums, and aborted sessions."""
    modes: dict[str, list[MaskingRecord]] = {}
    words: dict[str, None] = {}
    for _, record in run.trials():
        if sums := record["result"]["secure_aggregation"]:
            card = record["threat_card"]
            noise = f", {card['privacy']} noise" if card["noise"] else ""
            mode = f"{card['secure_aggregation']}{noise}"
            modes.setdefault(mode, []).append(sums)
            if card["protocol"]:
                words[f"{mode}: {card['protocol']['in_words']}"] = None
    if not modes:
        return []
    rows = [_mode(mode, found) for mode, found in modes.items()]
    heads = ["mode", "hidden among, at least", "error of the mean", "sums lost", "sent by a client", "sent to a client"]
    caption = (
        "What was measured. Hidden: clients in the smallest sum, colluders not counted. Error: in lengths of the mean, the "
        "median of the trials. Sent: bytes in one sum"
    )
    lost = dict.fromkeys(
        f"{mode}: {one['why_aborted']}" for mode, found in modes.items() for one in found if one["why_aborted"]
    )
    why = [el("h4", "Why sums were lost"), bullet_list(lost)] if lost else []
    return [bullet_list(words), table(caption, heads, rows, "lr"), *why]


def _mode(mode: str, found: Sequence[MaskingRecord]) -> list[str]:
    hidden = [one["anonymity"] for one in found if one["anonymity"] is not None]
    errors = [one["error"]["mean"] for one in found if one["error"]]
    lost, all_sums = sum(one["aborted_sessions"] for one in found), sum(one["sessions"] for one in found)
    return [
        mode,
        str(min(hidden)) if hidden else "-",
        f"{median(errors):.1g}" if errors else "-",
        f"{lost} of {all_sums}",
        f"{mean(one['bytes_up'] for one in found):,.0f}",
        f"{mean(one['bytes_down'] for one in found):,.0f}",
    ]


def costs(run: Run) -> list[Element]:
    """Seconds, bytes and memory, by defense and setting."""
    found: dict[str, list[Cost]] = {}
    for swept, record in run.trials():
        found.setdefault(with_setting(swept["defense"], run, swept), []).append(record["cost"])
    rows = [_cost(name, its) for name, its in found.items()]
    if not rows:
        return [el("p", "Nothing ran, so nothing was spent.")]
    seconds = sum(record["cost"]["seconds"] for record in run.ran.values())
    heads = ["defense", "trials", "seconds", "CPU seconds", "updates sent, MB", "protocol sent, MB", "peak memory, MB"]
    return [
        el("p", f"All trials together took {seconds:,.0f} s, each on one thread; the controls are among them."),
        table("Means over trials; of the memory, the largest", heads, rows, "lr"),
        el(
            "p",
            "Seconds depend on the machine and on what else ran on it, bytes do not. The memory is the worker process's, "
            "the largest until the trial's end, which earlier trials may have caused. MB: 10⁶ bytes, over all clients and "
            "rounds.",
            class_="note",
        ),
        fold_content("Where the time went", *stages) if (stages := _stages(run.profile())) else el("p"),
    ]


def _stages(profile: Profile) -> list[Element]:
    """Time by stage, over all trials."""
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


def _cost(name: str, found: Sequence[Cost]) -> list[str]:
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
