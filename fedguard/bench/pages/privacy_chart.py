"""The charts of the page on privacy: the ladder of protections, and ROC curves of membership attacks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedguard.bench.audits.suites import CellAudit
from fedguard.bench.pages.blocks import Bar, Chart, Heading, Key, TableBlock, decimal
from fedguard.bench.pages.protections import Leak, Protection
from fedguard.bench.results.disclosure import MembershipResult
from fedguard.bench.terminal.plot import is_logarithmic
from fedguard.metrics.figures import FIGURES, SHARE
from fedguard.metrics.stats import ENOUGH, Estimate, estimate

#: A part of a Vega-Lite specification
Layer = dict[str, Any]

_SERVERS = {"curious": "blue", "malicious": "orange"}

#: Height of a row where names stand beside their rows, and above them
_ROW, _TALL_ROW = 58, 78

#: Colors of curves, in their order
_CURVES = [f"var(--{name})" for name in ("gray", "blue", "violet", "orange", "green")]


def ladder(found: Sequence[Protection], says: str, references: Mapping[str, float], note: str = "") -> Chart:
    """The ladder of protections, a panel for each question that the run asked.

    Args:
        says: the finding, in a sentence.
        references: shares to draw lines at in the panel of accuracy, by their names.
        note: what must be known before the chart is quoted.
    """
    rows = [_row(one) for one in found]
    panels = [panel for panel in (_epsilons(rows), _inputs(rows), _members(rows), _accuracy(rows, references)) if panel]
    seeds = max((one.summary.clean.seeds for one in found if one.summary and one.summary.clean), default=0)
    servers = [name for name in _SERVERS if any(name in one.leaks for one in found)]
    keys = [Key("bar", "violet", "ε that the audit found at least")] if any("found" in row for row in rows) else []
    keys += [Key("ring", "blue", "no attack"), Key("dot", "orange", "worst attack on the training")]
    spread = f"95 % interval over {seeds} seeds" if seeds >= ENOUGH else "range of two seeds" if seeds > 1 else ""
    keys += [Key("bar", "orange", spread)] if spread else []
    wide = [_panel(one, rows, tall=False, first=not at) for at, one in enumerate(panels)]
    return Chart(
        {"hconcat": wide, "spacing": 26} | _data(rows),
        {"vconcat": [_panel(one, rows, tall=True) for one in panels], "spacing": 24} | _data(rows),
        says,
        _table(found, rows, servers),
        "The ladder of protections",
        "From no protection to distributed noise. An ε is a claim with a unit, a relation between neighbors, and a view.",
        " ".join(part for part in (_THRESHOLD if servers else "", note) if part),
        keys,
    )  # fmt: skip


_THRESHOLD = "Rebuilt: nearer than every trivial guess at the same input, such as the mean of the data, by 1 dB."


def _data(rows: Sequence[Layer]) -> Layer:
    return {"data": {"values": list(rows)}}


def _row(one: Protection) -> Layer:
    """A protection in the units of the axes; what it does not have is left out."""
    row: Layer = {"name": one.name, "about": one.about, "lines": f"{one.name}\n{one.about}", "claim_label": one.claim}
    if one.epsilon is not None:
        row |= {"claim": one.asked or one.epsilon}
        unproven = [f"none under {', '.join(one.unproven)}"] if one.unproven else []
        found = [_audit_text(audit, one.epsilon) for audit in one.audits] or ["not audited"]
        row["found_label"] = "; ".join([*unproven, *found])
        known = [bound for audit in one.audits if math.isfinite(bound := audit.audit.bound.epsilon)]
        row |= {"found": max(known)} if known else {}
        row |= {"refuted": any(audit.audit.verdict == "violated" for audit in one.audits)}
    for server, leak in one.leaks.items():
        row |= {f"{server}_label": _leak(leak)} | ({} if leak.share is None else {server: 100 * leak.share})
    if one.auc:
        row |= _ends("auc", one.auc.estimate, one.auc_by_seed, 1.0, FIGURES["membership_auc"].text)
    if any(each["goal"] == "membership" for each in one.rows):
        row.setdefault("auc_label", _status(one, "membership"))
    if one.summary and one.summary.clean:
        row |= _ends("clean", one.summary.clean, ())
    if one.summary and one.summary.worst:
        by_seed = list(one.summary.by_seed.values()) if one.summary.success is None else ()
        row |= _ends("worst", one.summary.worst.estimate, by_seed) | {"attack": one.summary.worst.attack}
    return row


def _audit_text(one: CellAudit, epsilon: float) -> str:
    """What an audit found, with its own claim if that is another one, of fewer rounds than the run's."""
    audit = one.audit
    refuted = ": refuted" if audit.verdict == "violated" else ""
    same = audit.claimed is None or math.isclose(audit.claimed, epsilon, rel_tol=0.02)
    bound = f"{audit.bound.epsilon:.3g}".replace("inf", "∞")
    return f"≥ {bound} found" + ("" if same else f" of {audit.claimed:.3g} audited") + refuted


def _leak(leak: Leak) -> str:
    return leak.status if leak.share is None else f"{decimal(100 * leak.share)} % ({leak.revealed} of {leak.images})"


def _status(one: Protection, goal: str) -> str:
    """Why there is no value."""
    statuses = {row["status"] for row in one.rows if row["goal"] == goal}
    return next((name for name in ("failed", "missing", "refused") if name in statuses), "no value")


def _ends(name: str, found: Estimate, by_seed: Sequence[float], scale: float = 100, text: Any = None) -> Layer:
    """The mean with its interval; of two seeds their range."""
    label = text(found.mean) if text else decimal(scale * found.mean)
    row = {name: scale * found.mean, f"{name}_label": label}
    low, high = found.low, found.high
    if found.seeds < ENOUGH and len(by_seed) > 1:
        low, high = min(by_seed), max(by_seed)
    return row if low is None or high is None else row | {f"{name}_low": scale * low, f"{name}_high": scale * high}


def _table(found: Sequence[Protection], rows: Sequence[Layer], servers: Sequence[str]) -> TableBlock:
    accuracy, auc = FIGURES["final_accuracy"], FIGURES["membership_auc"]
    heads = ["protection", "ε claimed", "ε audited", *(f"rebuilt by a {name} server" for name in servers)]
    heads += ["membership AUC", "no attack, %", "under the worst attack, %", "which"]
    cells: list[list[str | float | None]] = [
        [
            one.label,
            row["claim_label"],
            row.get("found_label", ""),
            *(f"{_leak(leak)} {leak.attack}".strip() if (leak := one.leaks.get(name)) else "" for name in servers),
            f"{auc.format_estimate(one.auc.estimate)} ({one.auc.attack})" if one.auc else row.get("auc_label", ""),
            accuracy.format_estimate(one.summary.clean) if one.summary and one.summary.clean else "",
            accuracy.format_estimate(one.summary.worst.estimate) if one.summary and one.summary.worst else "",
            row.get("attack", ""),
        ]
        for one, row in zip(found, rows, strict=True)
    ]
    bars = [
        Bar(row["worst"], row.get("worst_low"), row.get("worst_high"), row.get("clean")) if "worst" in row else None
        for row in rows
    ]
    kept = [at for at in range(len(heads)) if any(row[at] for row in cells)]
    return TableBlock(
        [Heading(heads[at]) for at in kept],
        [[row[at] for at in kept] for row in cells],
        "What each protection claims, what an audit found, what leaks, and what is left of the accuracy",
        bars=bars,
        legend="● worst attack   ─ 95 % interval or range   ○ no attack",
    )


def _panel(panel: Layer, rows: Sequence[Layer], *, tall: bool, first: bool = False) -> Layer:
    """A panel with its marks, and names beside the first one, or above the rows of each.

    Each panel has all rows, whatever its marks leave out: panels beside each other share them.
    """
    names = [_names(tall)] if tall or first else []
    rules = {"mark": {"type": "rule", "color": "var(--line)", "yOffset": -_TALL_ROW / 2}, "encoding": {"y": _y()}}
    domain = {"domain": [row["name"] for row in rows]}
    layers = [*([rules] if tall else []), *names, *panel["layer"]]
    for layer in layers:
        if "y" in layer["encoding"]:
            layer["encoding"] = {**layer["encoding"], "y": {**_y(), "scale": domain}}
    return {
        "width": 318 if tall else panel["width"],
        "height": {"step": _TALL_ROW if tall else _ROW},
        "title": panel["title"],
        "layer": layers,
    }


def _names(tall: bool) -> Layer:
    text = {"type": "text", "baseline": "middle", "fontSize": 13, "lineBreak": "\n", "lineHeight": 16}
    place: Layer = {"align": "left", "dy": -28} if tall else {"align": "right"}
    x = {"value": 0 if tall else -12}
    return {"mark": text | place, "encoding": {"y": _y(), "x": x, "text": {"field": "name" if tall else "lines"}}}


def _y() -> Layer:
    return {"field": "name", "type": "nominal", "sort": None, "axis": None}


def _x(field: str, domain: Sequence[float], values: Sequence[float], **scale: Any) -> Layer:
    axis = {"title": None, "values": list(values), "labelFlush": False}
    where = {"domain": list(domain), "nice": False, "clamp": True, **scale}
    return {"field": field, "type": "quantitative", "scale": where, "axis": axis}


def _mark(field: str, mark: Layer, x: Layer, **encoding: Any) -> Layer:
    """A mark on the rows that have the field."""
    return {
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "mark": mark,
        "encoding": {"y": _y(), "x": x, **encoding},
    }


def _text(field: str, x: Layer, **mark: Any) -> Layer:
    return _mark(field, {"type": "text", "fontSize": 12, **mark}, x, text={"field": field})


def _epsilons(rows: Sequence[Layer]) -> Layer | None:
    """The claim as a tick, what the audit found at least as a bar."""
    values = [row[key] for row in rows for key in ("claim", "found") if row.get(key)]
    if not values:
        return None
    scale = {"type": "symlog"} if is_logarithmic(values) else {}
    top = 1.25 * max(values)
    ticks = [0, *(10**power for power in range(math.floor(math.log10(top)) + 1))] if scale else []
    axis = {} if ticks else {"values": None, "tickCount": 4}

    def x(field: str) -> Layer:
        found = _x(field, [0, top], ticks, **scale)
        return found | {"axis": {**found["axis"], **axis}}

    color = {"condition": {"test": "datum.refuted", "value": "var(--bad)"}, "value": "var(--violet)"}
    bar = {"type": "bar", "height": 10, "opacity": 0.5}
    layers = [_mark("found", bar, x("found"), color=color)]
    layers += [_mark("claim", {"type": "tick", "thickness": 3, "size": 26, "color": "var(--violet)"}, x("claim"))]
    label = {"type": "text", "align": "left", "dx": 6, "fontWeight": 600}
    layers += [_mark("claim", label, x("claim"), text={"field": "claim_label"})]
    layers += [_text("found_label", {"value": 2}, align="left", dy=21, color="var(--faint)")]
    none = _text("claim_label", {"value": 2}, align="left", fontWeight=600, color="var(--faint)")
    layers += [none | {"transform": [{"filter": "!isValid(datum.claim)"}]}]
    return {
        "width": 215,
        "title": {"text": "ε claimed and audited", "subtitle": "tick: at most; bar: at least"},
        "layer": layers,
    }


def _inputs(rows: Sequence[Layer]) -> Layer | None:
    """A bar for each kind of server, with counts."""
    servers = [name for name in _SERVERS if any(f"{name}_label" in row for row in rows)]
    if not servers:
        return None
    x = {
        "field": "",
        "type": "quantitative",
        "scale": {"domain": [0, 175], "nice": False},
        "axis": {"title": None, "values": [0, 50, 100]},
    }
    layers = []
    for at, server in enumerate(servers):
        offset = 0 if len(servers) == 1 else 18 * at - 9
        bar = {"type": "bar", "height": 12, "color": f"var(--{_SERVERS[server]})", "yOffset": offset}
        layers.append(_mark(server, bar, x | {"field": server}))
        layers.append(_text(f"{server}_label", x | {"field": server}, align="left", dx=5, dy=offset))
        layers[-1]["transform"] = [{"filter": f"isValid(datum.{server})"}]
        nothing = _text(f"{server}_label", {"value": 5}, align="left", dy=offset, color="var(--faint)")
        layers.append(
            nothing | {"transform": [{"filter": f"isValid(datum.{server}_label) && !isValid(datum.{server})"}]}
        )
    below = f"by a {servers[0]} server" if len(servers) == 1 else "curious server above, malicious below"
    title = {"text": "Inputs rebuilt, %", "subtitle": below}
    return {"width": 290, "title": title, "layer": layers}  # fmt: skip


def _members(rows: Sequence[Layer]) -> Layer | None:
    if not any("auc_label" in row for row in rows):
        return None
    lows: list[Any] = [row.get("auc_low", row["auc"]) for row in rows if "auc" in row]
    low = math.floor(10 * min([0.4, *lows])) / 10
    domain, ticks = [low, 1.0], [0.5, 0.75, 1.0]
    x = _x("auc", domain, ticks)
    dot = {"type": "point", "filled": True, "size": 75, "color": "var(--blue)", "opacity": 1}
    nothing = _text("auc_label", {"datum": 0.5}, align="left", dx=6, color="var(--faint)")
    layers = [
        _line([{"at": 0.5}], _x("at", domain, ticks)),
        _mark("auc_low", _BAR | {"color": "var(--blue)"}, _x("auc_low", domain, ticks), x2={"field": "auc_high"}),
        _mark("auc", dot, x),
        _text("auc_label", x, align="left", dx=8, dy=-12) | {"transform": [{"filter": "isValid(datum.auc)"}]},
        nothing | {"transform": [{"filter": "isValid(datum.auc_label) && !isValid(datum.auc)"}]},
    ]  # fmt: skip
    return {"width": 130, "title": {"text": "Membership AUC", "subtitle": "0.5 is chance"}, "layer": layers}


_BAR: Layer = {"type": "rule", "strokeWidth": 6, "opacity": 0.38}


def _line(values: Sequence[Layer], x: Layer) -> Layer:
    return {
        "data": {"values": list(values)},
        "mark": {"type": "rule", "strokeDash": [3, 3], "color": "var(--faint)"},
        "encoding": {"x": x},
    }


def _accuracy(rows: Sequence[Layer], references: Mapping[str, float]) -> Layer | None:
    if not any("clean" in row or "worst" in row for row in rows):
        return None
    domain, ticks = [0, 100], [0, 20, 40, 60, 80, 100]
    ring = {
        "type": "point",
        "size": 70,
        "strokeWidth": 2,
        "color": "var(--blue)",
        "fill": "var(--ground)",
        "opacity": 1,
    }
    dot = {"type": "point", "filled": True, "size": 90, "color": "var(--orange)", "opacity": 1}
    chance = [{"at": 100 * share} for name, share in references.items() if name == "chance"]
    layers = [_line(chance, _x("at", domain, ticks))] if chance else []
    layers += [
        _mark("clean_low", _BAR | {"color": "var(--blue)"}, _x("clean_low", domain, ticks), x2={"field": "clean_high"}),
        _mark(
            "worst_low", _BAR | {"color": "var(--orange)"}, _x("worst_low", domain, ticks), x2={"field": "worst_high"}
        ),
        _mark("clean", ring, _x("clean", domain, ticks)),
        _mark("worst", dot, _x("worst", domain, ticks)),
        _text("clean_label", _x("clean", domain, ticks), dy=-15, color="var(--blue)"),
        _text("worst_label", _x("worst", domain, ticks), align="left", dx=6, dy=14),
    ]
    title = {"text": "Accuracy, %", "subtitle": "dashed: chance" if chance else "without and under attack"}
    return {"width": 220, "title": title, "layer": layers}


def roc(targets: Sequence[tuple[str, MembershipResult]], says: str) -> Chart:
    """True over false positive rates of membership attacks, both axes logarithmic, one panel for each attack.

    Faint lines are single targets. The strong line is the mean over seeds of their mean, with its 95 % interval. The dashed
    line is chance. A rate of 0 is not on such an axis.

    Args:
        targets: each with the name of its protection.
    """
    rows = list(_roc_rows(targets))
    seen = [row[axis] for row in rows for axis in ("false", "true") if row[axis] > 0]
    floor = 10.0 ** math.floor(math.log10(min(seen, default=0.01)))
    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    names = list(dict.fromkeys(name for name, _ in targets))
    legend = {"orient": "bottom", "columns": 1, "labelLimit": 300, "symbolOpacity": 1, "title": None}
    curves = {"domain": names, "range": [_CURVES[at % len(_CURVES)] for at in range(len(names))]}
    color = {"field": "protection", "type": "nominal", "scale": curves, "legend": legend}

    def panel(attack: str, width: int) -> Layer:
        values = [row for row in rows if row["attack"] == attack] + [
            {"kind": "chance", "false": rate, "true": rate} for rate in (floor, 1.0)
        ]
        return {
            "width": width,
            "height": 300,
            "title": attack,
            "data": {"values": values},
            "layer": _roc_layers(floor, color),
        }

    means = [row for row in rows if row["kind"] == "mean"]
    heads = [Heading("attack"), Heading("protection"), Heading("false positives", True), Heading("true positives")]
    cells: list[list[str | float | None]] = [
        [row["attack"], row["protection"], f"{100 * row['false']:.2g} %", row["said"]] for row in means
    ]
    return Chart(
        {"concat": [panel(attack, 420) for attack in attacks], "columns": 2},
        {"vconcat": [panel(attack, 280) for attack in attacks]},
        says,
        TableBlock(heads, cells, "Mean curves over seeds"),
        about="Faint: each target. Strong: the mean over seeds of their mean, with its 95 % interval. Dashed: chance.",
        note="Left of the coarsest resolution, one of the non-members, no rate is known. A rate of 0 is not on this axis.",
    )  # fmt: skip


def _roc_layers(floor: float, color: Layer) -> list[Layer]:
    scale = {"type": "log", "domain": [floor, 1], "clamp": True, "nice": False}

    def axis(field: str, title: str) -> Layer:
        return {
            "field": field,
            "type": "quantitative",
            "scale": scale,
            "axis": {"title": title, "format": "~%", "tickCount": 4},
        }

    x, y = axis("false", "false positive rate"), axis("true", "true positive rate")
    drawn = "datum.true > 0 && datum.false > 0"
    band = {"y": axis("low", "true positive rate"), "y2": {"field": "high"}, "x": x, "color": color}

    line = {"field": "line", "type": "nominal"}

    def layer(kind: str, mark: Layer, **encoding: Any) -> Layer:
        filter_ = {
            "filter": f"datum.kind == '{kind}' && {drawn}" + (" && isValid(datum.low)" if "y2" in encoding else "")
        }
        return {"transform": [filter_], "mark": mark, "encoding": {"x": x, "y": y, **encoding}}

    return [
        layer("chance", {"type": "line", "strokeDash": [4, 4], "color": "var(--faint)"}),
        layer("target", {"type": "line", "opacity": 0.2, "strokeWidth": 1}, color=color, detail=line),
        layer("mean", {"type": "area", "opacity": 0.12}, **band),
        layer("mean", {"type": "line", "strokeWidth": 2.5}, color=color),
    ]  # fmt: skip


def _roc_rows(targets: Sequence[tuple[str, MembershipResult]]) -> Iterator[Layer]:
    """The points of each target, and the mean at evenly spaced rates."""
    alike: dict[tuple[str, str], dict[int, list[list[list[float]]]]] = {}
    for number, (name, target) in enumerate(targets):
        attack, curve = target.place.attack, target.score["roc"]
        if curve:
            alike.setdefault((attack, name), {}).setdefault(target.place.seed, []).append(curve)
        for false, true in curve:
            yield {"attack": attack, "protection": name, "kind": "target", "line": number, "false": false, "true": true}
    for (attack, name), seeds in alike.items():
        for false in _even(curve for curves in seeds.values() for curve in curves):
            means = [math.fsum(_at(curve, false) for curve in curves) / len(curves) for curves in seeds.values()]
            found = estimate(means, SHARE)
            few = " (too few seeds for an interval)" if found.low is None else ""
            row = {"attack": attack, "protection": name, "kind": "mean", "false": false, "true": found.mean}
            ends = {} if found.low is None else {"low": max(found.low, 1e-9), "high": found.high}
            yield row | ends | {"said": f"{FIGURES['membership_tpr'].format_estimate(found)} %{few}"}


def _even(curves: Iterable[list[list[float]]], points: int = 25) -> list[float]:
    """False positive rates from the coarsest resolution of the curves to 1, evenly spaced on a logarithmic axis."""
    start = max(next((false for false, _ in curve if false > 0), 1.0) for curve in curves)
    return [start ** (1 - number / (points - 1)) for number in range(points)]


def _at(curve: Sequence[Sequence[float]], false: float) -> float:
    """The true positive rate at a false positive rate; between points, by randomizing between their thresholds."""
    return float(np.interp(false, [x for x, _ in curve], [y for _, y in curve]))
