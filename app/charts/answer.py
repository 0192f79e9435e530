"""The chart of the overview: each defense without attack, and under its worst attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.results.answer import NOUNS
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES

#: Height of a defense, in pixels
_ROW = 30

#: Suffixes of the measures' names, with colors and shapes; the first two are prefixed by accuracy or normalized return
MEASURES = {
    "without attack": (COLORS[0], "circle"),
    "under the worst attack": (COLORS[3], "square"),
    "inputs on which the strongest backdoor fails": (COLORS[4], "triangle-up"),
}
_CLEAN, _WORST, _BACKDOOR = MEASURES


def spans(run: Run, setting: str) -> list[dict[str, Any]]:
    """One row for each defense and measure with a value, in percent: defense, measure, percent, attack."""
    return [row for defense in run.table().defenses for row in _span(run, setting, defense)]


def _span(run: Run, setting: str, defense: str) -> Iterator[dict[str, Any]]:
    final, backdoors, noun = run.table(run.share), run.table("attack_success"), NOUNS[run.share]
    clean = final.blocks.get(setting, {}).get("none", {}).get(defense)
    if clean and clean.estimate:
        yield {
            "defense": defense,
            "measure": f"{noun} {_CLEAN}",
            "percent": 100 * max(0.0, clean.estimate.mean),
            "attack": "none",
        }
    for table, measure in ((final, f"{noun} {_WORST}"), (backdoors, _BACKDOOR)):
        worst = table.worst(setting, defense) if setting in table.blocks and defense in table.defenses else None
        if worst and worst.estimate:
            attack = next(name for name, row in table.blocks[setting].items() if row.get(defense) is worst)
            # a success is counted above that of a clean model, and may be below it
            share = worst.estimate.mean if FIGURES[table.figure].more_is_better else 1 - worst.estimate.mean
            yield {"defense": defense, "measure": measure, "percent": 100 * min(1.0, max(0.0, share)), "attack": attack}


def answer(rows: Sequence[dict[str, Any]], ranked: bool = True) -> alt.LayerChart:
    """A line for each defense from its lowest to its highest value, the highest mean on top; else in the suite's order."""
    table = pd.DataFrame(rows, columns=["defense", "measure", "percent", "attack"])
    least = table.assign(
        percent=table["percent"].where(~table["measure"].str.endswith(_CLEAN))
    )  # not what stands before any attack
    kept = least.groupby("defense", sort=False)["percent"].min().sort_values(ascending=False, kind="stable")
    known = {one: style for end, style in MEASURES.items() for one in table["measure"].unique() if one.endswith(end)}
    plain: dict[str, Any] = {
        "ticks": False,
        "domain": False,
        "labelLimit": 300,
        "labelFontSize": 12,
        "labelFlush": False,
    }
    base = alt.Chart(table).encode(
        y=alt.Y(
            "defense:N",
            sort=list(kept.index) if ranked else list(dict.fromkeys(table["defense"])),
            title=None,
            axis=alt.Axis(**plain),
        ),
        tooltip=tooltips("defense:N", "measure:N", alt.Tooltip("percent:Q", format=".1f", title="%"), "attack:N"),
    )
    along = alt.Scale(domain=[0, 100])
    lines = base.mark_rule(strokeWidth=3, color="#8C8C8C", opacity=0.6).encode(
        x=alt.X("min(percent):Q", scale=along, title="%", axis=alt.Axis(tickCount=5, labelFlush=False)),
        x2=alt.X2("max(percent):Q"),
        tooltip=alt.value(None),
    )
    colors = alt.Color(
        "measure:N",
        title=None,
        scale=alt.Scale(domain=[*known], range=[color for color, _ in known.values()]),
        legend=alt.Legend(orient="top", labelLimit=400, columns=3),
    )
    shapes = alt.Shape(
        "measure:N", scale=alt.Scale(domain=[*known], range=[shape for _, shape in known.values()]), title=None
    )
    points = base.mark_point(size=110, filled=True, opacity=1).encode(
        x=alt.X("percent:Q", scale=along), color=colors, shape=shapes
    )
    chart: alt.LayerChart = (lines + points).properties(height=alt.Step(_ROW), width="container", autosize="fit-x")
    return chart
