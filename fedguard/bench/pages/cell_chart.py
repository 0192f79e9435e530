"""The charts of a cell: where the score went, curves over the training, and the accuracy of each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedguard.bench.pages.blocks import Chart, Heading, Key, TableBlock, decimal
from fedguard.bench.pages.cell_scores import CellScores, ScoreStep
from fedguard.bench.records.record import curve
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.records.schema.result import Axis, Measured
from fedguard.metrics.figures import FIGURES, SHARE
from fedguard.metrics.stats import ENOUGH, Estimate, estimate

#: Widths of half a page and of a narrow one; room for a number with its interval, and for the name of a step
_HALF, _NARROW, _NUMBER, _NAME = 520, 318, 150, 140

#: Points of a curve, and seeds with a line or a column of their own
_POINTS, _SEEDS = 150, 10

_Layer = dict[str, Any]


class Measure(NamedTuple):
    """A quantity of a curve: its title with the unit, the factor of a record's value, and the axis if it is fixed."""

    title: str
    scale: float = 100.0
    domain: tuple[float, float] | None = (0, 100)


#: Measures by their name in a record's curve
MEASURES: dict[Measured, Measure] = {
    "accuracy": Measure("test accuracy in %"),
    "returns": Measure("mean return of an episode", 1.0, None),
    "backdoor": Measure("backdoor success in %"),
    "loss": Measure("test loss in nats", 1.0, None),
}

#: Horizontal axes of a curve, with their titles
AXES: dict[Axis, str] = {
    "round": "round",
    "steps": "steps of environments",
    "updates": "updates that reached the server",
    "seconds": "simulated seconds",
    "bytes_up": "bytes that the devices sent",
    "joules": "joules that the devices spent",
}


# ---------------------------------------------------------------------------------------------- where the score went


def waterfall(scores: CellScores, headline: str) -> Chart:
    """From the score without attack to what is left: the cost of the defense, of silence, and of the attack itself."""
    steps, metric = list(scores.steps()), scores.metric
    seeds = len(scores.records)
    spread = (
        f"95 % intervals over {seeds} seeds" if seeds >= ENOUGH else f"{seeds} seed{'s' * (seeds > 1)}: no intervals"
    )
    keys = [Key("square", "blue", "score"), Key("square", "orange", "lost")]
    keys += [Key("square", "green", "gained")] if any(step.found.mean < 0 for step in steps if not step.total) else []
    return Chart(
        _draw_steps(steps, scores, narrow=False),
        _draw_steps(steps, scores, narrow=True),
        headline,
        _table_of_steps(steps, scores),
        "Where the return went" if not metric.unit else "Where the accuracy went",
        f"{metric.heading[0].upper()}{metric.heading[1:]}, paired by seed; {spread}.",
        "",
        keys if len(steps) > 1 else keys[:1],
    )


def _say(step: ScoreStep, scores: CellScores) -> str:
    """``67.4 [50.9, 80.4]``; of a loss ``-20.1 [-39.8, -0.4]``: its change, with the ends in ascending order."""
    if step.total:
        return scores.metric.format_estimate(step.found)
    low, high = (None if end is None else -end for end in (step.found.high, step.found.low))
    text = scores.loss.format_estimate(Estimate(-step.found.mean, low, high, step.found.seeds))
    return text.replace("-", "\N{MINUS SIGN}")


def _draw_steps(steps: Sequence[ScoreStep], scores: CellScores, *, narrow: bool) -> _Layer:
    scale = scores.metric.scale
    rows: list[_Layer] = []
    for number, step in enumerate(steps):
        ends = (0.0, step.end) if step.total else (step.end, steps[number - 1].end)
        token = "blue" if step.total else "orange" if step.found.mean >= 0 else "green"
        rows.append({"name": step.name, "from": scale * ends[0], "to": scale * ends[1], "color": f"var(--{token})",
                     "said": _say(step, scores)})  # fmt: skip
    values = [end for row in rows for end in (row["from"], row["to"])]
    domain = [0, 100] if scores.metric.unit else [min(0.0, *values), max(0.0, *values)]
    width = _NARROW - _NUMBER if narrow else _HALF - _NUMBER - _NAME
    names: _Layer = {"title": None, "labelFontSize": 13, "labelColor": "var(--ink)", "labelLimit": _NAME}
    y: _Layer = {"field": "name", "type": "nominal", "sort": None, "axis": None if narrow else names,
                 "scale": {"paddingInner": 0.6 if narrow else 0.35}}  # fmt: skip
    x: _Layer = {"field": "from", "type": "quantitative", "scale": {"domain": domain, "nice": False},
                 "axis": {"title": scores.metric.unit or None, "tickCount": 5}}  # fmt: skip
    bar = {"type": "bar", "cornerRadius": 2}
    color = {"field": "color", "type": "nominal", "scale": None}
    text = {"type": "text", "align": "left", "fontWeight": 600, "fontSize": 12.5}
    layers: list[_Layer] = [
        {"mark": bar, "encoding": {"y": y, "x": x, "x2": {"field": "to"}, "color": color}},
        {"mark": text, "encoding": {"y": y, "x": {"value": width + 8}, "text": {"field": "said"}}},
    ]
    if narrow:
        name = {"type": "text", "align": "left", "dy": -20, "fontSize": 13}
        layers.append({"mark": name, "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "name"}}})
    step_height = 48 if narrow else 42
    return {"width": width, "height": {"step": step_height}, "data": {"values": rows}, "layer": layers}


def _table_of_steps(steps: Sequence[ScoreStep], scores: CellScores) -> TableBlock:
    seeds = [record["seed"] for record in scores.records] if len(scores.records) <= _SEEDS else []
    unit = f", {scores.metric.unit}" if scores.metric.unit else ""
    signs = [scores.metric.scale if step.total else -scores.metric.scale for step in steps]
    rows: list[list[str | float | None]] = [
        [step.name, _say(step, scores), *(sign * one for one in step.values[: len(seeds)])]
        for step, sign in zip(steps, signs, strict=True)
    ]
    columns = [
        Heading("step"),
        Heading(f"mean{unit}", number=True),
        *(Heading(f"seed {seed}", number=True) for seed in seeds),
    ]
    return TableBlock(columns, rows, "From the score without attack to what is left, seed by seed")


# --------------------------------------------------------------------------------------------------- over the training


def axes(records: Sequence[CompletedRecord]) -> list[Axis]:
    """The horizontal axes that the curves of all these records have."""
    return [name for name in AXES if all(name in record["result"]["curve"] for record in records)]


def measures(records: Sequence[CompletedRecord]) -> list[Measured]:
    """The measures of which any of these records has a value."""
    return [name for name in MEASURES if any(curve(record, name) for record in records)]


def curves(groups: Mapping[str, Sequence[CompletedRecord]], measure: Measured, over: Axis) -> Chart:
    """A measure over the training: the mean of each group with its interval, and single seeds as thin lines.

    Args:
        groups: records by their name; the first is the cell.
    """
    known = MEASURES[measure]
    colors = dict(zip(groups, ("orange", "blue", "gray"), strict=False))
    seeds, means = [], []
    for name, records in groups.items():
        lines = {record["seed"]: _points(record, measure, over) for record in records}
        step = max(1, max(map(len, lines.values()), default=1) // _POINTS)
        for seed, line in list(lines.items())[: 0 if len(lines) == 1 else _SEEDS]:
            few = list(line.values())[::-step][::-1]
            seeds += [{"group": name, "seed": seed, "at": at, "one": known.scale * one} for at, one in few]
        means += list(_means(name, list(lines.values()), measure, step))
    most = max((len(records) for records in groups.values()), default=0)
    about = "One seed" if most == 1 else "Mean over seeds" + (", with its 95 % interval as a band" * (most >= ENOUGH))
    drawn = [draw_curves([*seeds, *means], colors, measure, over, width) for width in (_HALF - 60, _NARROW - 50)]
    ends = [(name, [row for row in means if row["group"] == name]) for name in groups]
    said = "; ".join(f"{name} ends at {rows[-1]['mean']:.3g}" for name, rows in ends if rows)
    return Chart(
        drawn[0],
        drawn[1],
        f"{known.title[0].upper()}{known.title[1:]} over {AXES[over]}: {said}.",
        _table_of_curves(ends, known, over),
        "Over the training" if measure in ("accuracy", "returns") else f"{known.title[0].upper()}{known.title[1:]}",
        f"{about}{'; thin lines are single seeds' if seeds else ''}.",
        "",
        [Key("bar", colors[name], name) for name in groups],
    )


def _points(record: CompletedRecord, measure: Measured, over: Axis) -> dict[float, tuple[float, float]]:
    """The place on the axis and the value of each evaluation, by its round."""
    rounds = [at for at, _ in curve(record, measure)]
    return dict(zip(rounds, curve(record, measure, over), strict=True))


def _means(
    name: str, lines: Sequence[Mapping[float, tuple[float, float]]], measure: Measured, step: int
) -> Iterator[dict[str, Any]]:
    """The mean at each evaluation that all seeds have, by its round."""
    known = MEASURES[measure]
    shared = [at for at in lines[0] if all(at in line for line in lines)] if lines else []
    for round in shared[::-step][::-1]:
        points = [line[round] for line in lines]
        found = estimate([value for _, value in points], SHARE if known.domain else None)
        row = {"group": name, "at": sum(at for at, _ in points) / len(points), "mean": known.scale * found.mean}
        if found.low is not None and found.high is not None:
            row |= {"low": known.scale * found.low, "high": known.scale * found.high}
        yield row


def draw_curves(rows: Sequence[_Layer], colors: Mapping[str, str], measure: Measured, over: Axis, width: int) -> _Layer:
    known = MEASURES[measure]
    axis: _Layer = {
        "title": AXES[over],
        "grid": False,
        "tickCount": 5,
        **({"tickMinStep": 1} if over == "round" else {"format": "~s"}),
    }
    x = {"field": "at", "type": "quantitative", "axis": axis, "scale": {"zero": False, "nice": False}}
    scale: _Layer = {"domain": list(known.domain), "nice": False} if known.domain else {"zero": False}

    def y(field: str) -> _Layer:
        return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": known.title, "tickCount": 5}}

    ranges = {"domain": list(colors), "range": [f"var(--{color})" for color in colors.values()]}
    color = {"field": "group", "type": "nominal", "legend": None, "scale": ranges}
    tooltip = [{"field": name, "type": "quantitative"} for name in ("at", "mean")]

    def layer(field: str, mark: _Layer, **encoding: Any) -> _Layer:
        shown = {"x": x, "y": y(field), "color": color, **encoding}
        return {"transform": [{"filter": f"isValid(datum.{field})"}], "mark": mark, "encoding": shown}

    point = {"filled": True, "size": 30} if len([row for row in rows if "mean" in row]) <= 4 * len(colors) else False
    return {
        "width": width,
        "height": 230,
        "data": {"values": list(rows)},
        "layer": [
            layer("low", {"type": "area", "opacity": 0.14}, y2={"field": "high"}),
            layer("one", {"type": "line", "strokeWidth": 1, "opacity": 0.45}, detail={"field": "seed"}),
            layer("mean", {"type": "line", "strokeWidth": 2.4, "point": point}, tooltip=tooltip),
        ],
    }


def _table_of_curves(ends: Sequence[tuple[str, Sequence[_Layer]]], known: Measure, over: Axis) -> TableBlock:
    """The mean of each group at up to a dozen evaluations of the first."""
    first = ends[0][1]
    step = max(1, len(first) // 12)
    rows: list[list[str | float | None]] = []
    for at, row in list(enumerate(first))[::-step][::-1]:
        cells = [_format_point(points[at]) if at < len(points) else None for _, points in ends]
        rows.append([f"{row['at']:g}", *cells])
    columns = [Heading(AXES[over], number=True), *(Heading(name, number=True) for name, _ in ends)]
    return TableBlock(columns, rows, f"{known.title[0].upper()}{known.title[1:]} over {AXES[over]}")


def _format_point(row: Mapping[str, Any]) -> str:
    return decimal(row["mean"]) + (f" [{decimal(row['low'])}, {decimal(row['high'])}]" if "low" in row else "")


# ------------------------------------------------------------------------------------------------------------ by class


def classes(records: Sequence[CompletedRecord], clean: Sequence[CompletedRecord]) -> Chart | None:
    """The final accuracy of each class: the cell, its control without attack, and single seeds; None if it is unknown."""
    own, before = _by_class(records), _by_class(clean)
    rows: list[_Layer] = []
    cells: list[list[str | float | None]] = []
    for number, values in own.items():
        if not values:
            cells.append([number, "no test examples", *([None] if clean else [])])
            continue
        rows.append({"class": number, "mean": 100 * sum(values) / len(values)})
        cells.append([number, _accuracy(values)])
        if clean:
            rows[-1] |= {"clean": 100 * sum(before[number]) / len(before[number])} if before.get(number) else {}
            cells[-1].append(_accuracy(before[number]) if before.get(number) else None)
        rows += [{"class": number, "one": 100 * value} for value in values[: _SEEDS * (len(values) > 1)]]
    means = [row for row in rows if "mean" in row]
    if not means:
        return None
    lowest = min(means, key=lambda row: float(row["mean"]))
    heads = [
        Heading("class"),
        *(Heading(f"{name}, %", number=True) for name in ("this cell", *(["no attack"] if clean else []))),
    ]
    keys = [Key("dot", "orange", "this cell"), *([Key("ring", "blue", "no attack")] if clean else [])]
    return Chart(
        _draw_classes(rows, _HALF - 60),
        _draw_classes(rows, _NARROW - 50),
        f"Final accuracy of {len(own)} classes: the lowest mean is {lowest['mean']:.1f} % (class {lowest['class']}).",
        TableBlock(heads, cells, "Final accuracy of each class"),
        "By class",
        "Mean over seeds; ticks are single seeds." if len(records) > 1 else "One seed.",
        "",
        keys,
    )


def _by_class(records: Sequence[CompletedRecord]) -> dict[str, list[float]]:
    columns = zip(*(record["result"]["class_accuracy"] for record in records), strict=True)
    return {str(number): [one for one in values if one is not None] for number, values in enumerate(columns)}


def _accuracy(values: Sequence[float]) -> str:
    return FIGURES["final_accuracy"].format_estimate(FIGURES["final_accuracy"].estimate(values))


def _draw_classes(rows: Sequence[_Layer], width: int) -> _Layer:
    order = list(dict.fromkeys(row["class"] for row in rows))
    x = {
        "field": "class",
        "type": "nominal",
        "sort": order,
        "axis": {"title": "class", "labelAngle": 0, "labelOverlap": True},
    }

    def y(field: str) -> _Layer:
        axis = {"title": "accuracy in %", "tickCount": 5}
        return {"field": field, "type": "quantitative", "scale": {"domain": [0, 100], "nice": False}, "axis": axis}

    def layer(field: str, mark: _Layer, **encoding: Any) -> _Layer:
        only = [{"filter": f"isValid(datum.{field})"}]
        return {"transform": only, "mark": mark, "encoding": {"x": x, "y": y(field), **encoding}}

    ring = {
        "type": "point",
        "size": 60,
        "strokeWidth": 2,
        "color": "var(--blue)",
        "fill": "var(--ground)",
        "opacity": 1,
    }
    layers = [
        layer("clean", {"type": "rule", "strokeWidth": 2, "color": "var(--line)"}, y2={"field": "mean"}),
        layer("one", {"type": "tick", "thickness": 1.5, "size": 12, "color": "var(--orange)", "opacity": 0.7}),
        layer("clean", ring),
        layer("mean", {"type": "point", "filled": True, "size": 75, "color": "var(--orange)", "opacity": 1}),
    ]
    return {"width": width, "height": 200, "data": {"values": list(rows)}, "layer": layers}
