"""The cost of the run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from xml.etree.ElementTree import Element

from fedguard.app.report.records import with_setting
from fedguard.bench.pages.elements import el, fold_content, table
from fedguard.bench.records.schema.record import Cost
from fedguard.bench.results.profile import SHOWN, Profile, meanings
from fedguard.bench.results.run import Run


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
