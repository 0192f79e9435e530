"""Charts of a cell without a server, or in simulated time: the graph of nodes, and which client trained when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedguard.bench.pages.blocks import Chart, Heading, Key, TableBlock
from fedguard.bench.pages.cell_chart import draw_curves
from fedguard.bench.records.schema import NodeMetrics, Timeline

#: With more links than this none are drawn; rounds with a line at their end; clients that are drawn
_LINKS, _ROUNDS, _CLIENTS = 600, 60, 60

#: Colors by the fate of an update
_FATES = {"arrived": "green", "late": "orange", "lost": "bad", "interrupted": "violet"}

_Layer = dict[str, Any]


def graph(found: NodeMetrics, seed: int) -> Chart:
    """Circles are honest nodes, larger with their accuracy; crosses are malicious ones."""
    points = lay_out_nodes(found)
    spots = {row["node"]: row for row in points}
    lines = [
        {"x": spots[a]["x"], "y": spots[a]["y"], "x2": spots[b]["x"], "y2": spots[b]["y"], "kB": kilobytes}
        for (a, b), kilobytes in link_traffic(found).items()
    ]
    worst, best = 100 * found["worst"], 100 * found["best"]
    said = (
        f"The worst of {len(found['honest'])} honest nodes ends with {worst:.1f} %, the best with {best:.1f} %. The mean of "
        f"their models has {100 * found['mean_model']:.1f} %, and no node has it."
    )
    rows: list[list[str | float | None]] = [[str(row["node"]), row["who"], row["accuracy"]] for row in points]
    keys = [Key("dot", "blue", "honest node; darker: more accurate")]
    keys += [Key("diamond", "orange", "malicious node")] if found["malicious"] else []
    return Chart(
        _draw_graph(points, lines, 460),
        _draw_graph(points, lines, 300),
        said,
        TableBlock([Heading("node"), Heading("who"), Heading("accuracy, %", number=True)], rows, "The nodes"),
        "The nodes",
        f"Seed {seed}. {said}",
        "Wider links carry more bytes." if "traffic" in found else "",
        keys,
    )


def _draw_graph(points: list[_Layer], lines: list[_Layer], width: int) -> _Layer:
    def at(field: str) -> _Layer:
        return {"field": field, "type": "quantitative", "axis": None}

    known = [row["accuracy"] for row in points if row["accuracy"] is not None]
    links: _Layer = {"x": at("x"), "y": at("y"), "x2": {"field": "x2"}, "y2": {"field": "y2"}}
    if len({line["kB"] for line in lines}) > 1:
        size = {"domainMin": 0, "range": [0.5, 6]}
        links["size"] = {"field": "kB", "type": "quantitative", "legend": None, "scale": size}
    shade = {"domain": [min(known), max(*known, min(known) + 1e-6)], "range": [0.25, 1]}
    dark = {"field": "accuracy", "type": "quantitative", "legend": None, "scale": shade}
    tips = [{"field": name} for name in ("node", "who", "accuracy")]
    place = {"x": at("x"), "y": at("y"), "tooltip": tips}
    honest = {"type": "point", "filled": True, "size": 260, "color": "var(--blue)", "stroke": "var(--blue)"}
    bad = {"type": "point", "shape": "diamond", "filled": True, "size": 220, "color": "var(--orange)", "opacity": 1}
    layers: list[_Layer] = [
        {
            "data": {"values": lines},
            "mark": {"type": "rule", "color": "var(--gray)", "opacity": 0.5},
            "encoding": links,
        },
        {
            "transform": [{"filter": "datum.who == 'honest'"}],
            "mark": honest,
            "encoding": {**place, "fillOpacity": dark},
        },
        {"transform": [{"filter": "datum.who == 'malicious'"}], "mark": bad, "encoding": place},
    ]
    return {"width": width, "height": 300, "data": {"values": points}, "layer": layers}


def over_rounds(found: NodeMetrics, rounds: Sequence[int], seed: int) -> Chart:
    """The best and the worst node at each evaluation, and the mean of their models."""
    known = found["curve"]
    lines = {"worst node": known["worst"], "best node": known["best"], "mean of the models": known["mean_model"]}
    colors = dict(zip(lines, ("orange", "blue", "gray"), strict=True))
    points = [
        {"group": name, "at": at, "mean": 100 * value}
        for name, values in lines.items()
        for at, value in zip(rounds, values, strict=True)
    ]
    rows: list[list[str | float | None]] = [
        [str(at), *(100 * values[number] for values in lines.values())] for number, at in enumerate(rounds)
    ]
    ends = ", ".join(f"{name} {100 * values[-1]:.1f} %" for name, values in lines.items())
    heads = [Heading(name, number=True) for name in ("round", *lines)]
    return Chart(
        draw_curves(points, colors, "accuracy", "round", 460),
        draw_curves(points, colors, "accuracy", "round", 270),
        f"At the end: {ends}.",
        TableBlock(heads, rows, "Accuracy of the nodes over the rounds, %"),
        "The nodes over the training",
        f"Seed {seed}.",
        "",
        [Key("bar", color, name) for name, color in colors.items()],
    )


def link_traffic(found: NodeMetrics) -> dict[tuple[int, int], float]:
    """Kilobytes by link, both directions together; 0 if all links are alike."""
    both: dict[tuple[int, int], float] = {}
    for (a, b), sent in zip(found["links"], found.get("traffic", [0] * len(found["links"])), strict=True):
        pair = (min(a, b), max(a, b))
        both[pair] = both.get(pair, 0.0) + sent / 1000
    return both if len(both) <= _LINKS else {}


def lay_out_nodes(found: NodeMetrics) -> list[dict[str, Any]]:
    """One row for each node: node, who, final accuracy in % (None for malicious nodes), x, y."""
    import networkx

    drawing: networkx.Graph[int] = networkx.Graph([(a, b) for a, b in found["links"]])
    drawing.add_nodes_from([*found["honest"], *found["malicious"]])
    if found["links"]:
        start = networkx.spectral_layout(drawing)  # a ring as a ring
        apart = len({tuple(place.round(6)) for place in start.values()}) == len(start)
        places = networkx.kamada_kawai_layout(drawing, pos=start if apart else None)
    else:
        places = networkx.circular_layout(drawing)
    accuracy = dict(zip(found["honest"], found["accuracy"], strict=True))
    return [
        {
            "node": node,
            "who": "honest" if node in accuracy else "malicious",
            "accuracy": 100 * accuracy[node] if node in accuracy else None,
            "x": float(places[node][0]),
            "y": float(places[node][1]),
        }
        for node in sorted(drawing.nodes)
    ]


def timeline(found: Timeline, seed: int) -> Chart:
    """A row for each client, malicious ones first, with a bar for each training, colored by the fate of its update."""
    order = _order(found)
    columns = zip(found["client"], found["began"], found["ended"], found["fate"], strict=True)
    bars: list[_Layer] = [
        {"client": _name(found, client), "began": began, "ended": ended, "fate": fate}
        for client, began, ended, fate in columns
        if client in order[:_CLIENTS]
    ]
    counts = {fate: found["fate"].count(fate) for fate in _FATES if fate in found["fate"]}
    shown, total = len(found["client"]), found["total"]
    first = "All" if shown == total else f"The first {shown} of {total}"
    said = f"{first} trainings: {', '.join(f'{number} {fate}' for fate, number in counts.items())}"
    few = f" The first {_CLIENTS} of {len(order)} clients are drawn." if len(order) > _CLIENTS else ""
    return Chart(
        _draw_timeline(found, bars, 900),
        _draw_timeline(found, bars, 230),
        f"{said}.",
        TableBlock(
            [Heading("update"), Heading("trainings")], [[fate, str(number)] for fate, number in counts.items()], said
        ),
        "Who trained when",
        f"Seed {seed}. {said}, each from the download of the model until its update arrived or nobody waited any more.{few}",
        "No bar: idle, waiting or offline. Lines end the rounds, where they are few.",
        [Key("square", _FATES[fate], fate) for fate in counts],
    )


def _draw_timeline(found: Timeline, bars: list[_Layer], width: int) -> _Layer:
    along = {"title": "simulated seconds", "tickCount": 6}
    x = {"field": "began", "type": "quantitative", "axis": along, "scale": {"nice": False, "zero": True}}
    rows = [_name(found, client) for client in _order(found)[:_CLIENTS]]
    y = {"field": "client", "type": "nominal", "sort": rows, "axis": {"title": "client", "labelOverlap": False}}
    scale = {"domain": list(_FATES), "range": [f"var(--{color})" for color in _FATES.values()]}
    color = {"field": "fate", "type": "nominal", "legend": None, "scale": scale}
    tips = [{"field": name} for name in ("client", "fate", "began", "ended")]
    ends = [{"end": end} for end in (found["rounds"] if len(found["rounds"]) <= _ROUNDS else [])]
    layers: list[_Layer] = [
        {
            "data": {"values": ends},
            "mark": {"type": "rule", "color": "var(--line)"},
            "encoding": {"x": {**x, "field": "end"}},
        },
        {
            "mark": {"type": "bar", "height": 11},
            "encoding": {"x": x, "x2": {"field": "ended"}, "y": y, "color": color, "tooltip": tips},
        },
    ]
    return {"width": width, "height": {"step": 16}, "data": {"values": bars}, "layer": layers}


def _order(found: Timeline) -> list[int]:
    return sorted(set(found["client"]), key=lambda client: (client not in found["malicious"], client))


def _name(found: Timeline, client: int) -> str:
    return f"{client} malicious" if client in found["malicious"] else str(client)
