"""The messages of one step of secure aggregation, and the cost of a round over the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedguard.bench.explain.session import ProtocolStep, SessionCost
from fedguard.bench.pages.blocks import Chart, Heading, Key, TableBlock

#: Widths of a page, of one panel of two, and of a narrow page
_WIDE, _PANEL, _NARROW = 760, 460, 290

_Layer = dict[str, Any]


def flow(step: ProtocolStep, clients: int) -> Chart:
    """The messages of one step: the server above, clients in a row below, those without a message hollow."""
    middle, party = (clients - 1) / 2, [event.receiver if step.from_server else event.sender for event in step.events]
    silent = [client for client in range(clients) if client not in party]
    lines = [
        {"client": client, "x2": middle, "way": "refused" if event.error else "arrives", "bytes": event.size}
        for client, event in zip(party, step.events, strict=True)
    ]
    circles = [{"at": client, "label": str(client), "silent": client in silent} for client in range(clients)]
    refused = sum(1 for event in step.events if event.error)
    names = [tuple("server" if one is None else f"client {one}" for one in (event.sender, event.receiver))
             for event in step.events]  # fmt: skip
    rows = [[*ends, f"{event.size:,}", event.error or "-"] for ends, event in zip(names, step.events, strict=True)]
    heads = [Heading("from"), Heading("to"), Heading("bytes", number=True), Heading("refused, because")]
    ends = f"{'to' if step.from_server else 'from'} client{'s' * (len(silent) > 1)}"
    others = f"; none {ends} {', '.join(map(str, silent))}" if silent else ""
    said = f"{len(step.events)} messages{f', {refused} of them refused' if refused else ''}{others}."
    keys = [Key("bar", "blue", "message"), *([Key("bar", "orange", "refused message")] if refused else [])]
    return Chart(
        _draw_flow(lines, circles, middle, _WIDE), _draw_flow(lines, circles, middle, _NARROW), f"{step.kind}: {said}",
        TableBlock(heads, rows, f"The messages of {step.kind}"),
        f"{step.kind}: {'the server to clients' if step.from_server else 'clients to the server'}",
        said, "", [*keys, Key("ring", "gray", "client without a message")],
    )  # fmt: skip


def _draw_flow(lines: list[_Layer], circles: list[_Layer], middle: float, width: int) -> _Layer:
    x: _Layer = {"type": "quantitative", "axis": None, "scale": {"domain": [-0.5, 2 * middle + 0.5], "nice": False}}
    up, down = {"value": 30}, {"value": 150}
    ways = {"domain": ["arrives", "refused"]}
    color = {"field": "way", "scale": {**ways, "range": ["var(--blue)", "var(--orange)"]}, "legend": None}
    dash = {"field": "way", "scale": {**ways, "range": [[1, 0], [5, 4]]}, "legend": None}
    tooltip = [{"field": name, "type": "nominal"} for name in ("client", "bytes", "way")]
    route = {
        "x": {**x, "field": "client"},
        "x2": {"field": "x2"},
        "y": down,
        "y2": up,
        "color": color,
        "strokeDash": dash,
    }
    at = {"x": {**x, "field": "at"}, "y": down}
    fill = {"condition": {"test": "datum.silent", "value": "var(--ground)"}, "value": "var(--gray)"}
    mark = {"type": "point", "size": 220, "stroke": "var(--gray)", "strokeWidth": 2, "opacity": 1}
    text = {"type": "text", "dy": 24, "color": "var(--faint)", "fontSize": 12}
    server: _Layer = {"data": {"values": [{}]}}
    above = {"x": {**x, "datum": middle}, "y": up}
    return {
        "width": width,
        "height": 190,
        "layer": [
            {"data": {"values": lines}, "mark": {"type": "rule", "strokeWidth": 2},
             "encoding": {**route, "tooltip": tooltip}},
            {"data": {"values": circles}, "mark": mark, "encoding": {**at, "fill": fill}},
            {"data": {"values": circles}, "mark": text, "encoding": {**at, "text": {"field": "label"}}},
            {**server, "mark": {**mark, "fill": "var(--gray)"}, "encoding": above},
            {**server, "mark": {**text, "dy": -20, "text": "server"}, "encoding": above},
        ],
    }  # fmt: skip


def cost(costs: Sequence[SessionCost]) -> Chart:
    """Bytes that one client sends and receives over the number of clients, on the complete and on the sparse graph."""
    heads = (
        "neighbors",
        "shares that rebuild a secret",
        "fewest honest inputs in a sum",
        "bytes sent",
        "bytes received",
    )
    rows = [
        [
            f"{one.clients}, {one.graph}",
            str(one.neighbors),
            str(one.threshold),
            str(one.anonymity),
            f"{one.up:,}",
            f"{one.down:,}",
        ]
        for one in costs
    ]
    columns = [Heading("clients, graph"), *(Heading(name, number=True) for name in heads)]
    complete, sparse = ([one for one in costs if one.graph == graph] for graph in ("complete", "sparse"))
    ends = "; ".join(
        f"on the {one[0].graph} graph a client sends {one[0].up / 1000:,.1f} kB among {one[0].clients}, "
        f"{one[-1].up / 1000:,.1f} kB among {one[-1].clients}" for one in (complete, sparse) if one
    )  # fmt: skip
    return Chart(
        _draw_cost(costs, 2, _PANEL), _draw_cost(costs, 1, _NARROW - 20), f"{ends[0].upper()}{ends[1:]}.",
        TableBlock(columns, rows, "The cost of a round for one client"),
        "Kilobytes in a round over the number of clients", "Both axes are logarithmic.", "",
        [Key("dot", "blue", "complete graph"), *([Key("square", "orange", "sparse graph")] if sparse else [])],
    )  # fmt: skip


def _draw_cost(costs: Sequence[SessionCost], columns: int, width: int) -> _Layer:
    rows = [
        {"clients": one.clients, "graph": one.graph, "neighbors": one.neighbors, "way": way, "kB": count / 1000}
        for one in costs
        for way, count in (("a client sends", one.up), ("a client receives", one.down))
    ]
    graphs = {"domain": ["complete", "sparse"]}
    sizes = sorted({one.clients for one in costs})
    x = {"type": "log", "domain": [sizes[0], sizes[-1]], "padding": 12, "nice": False}
    encoding = {
        "x": {"field": "clients", "type": "quantitative", "scale": x, "axis": {"values": sizes, "grid": False}},
        "y": {
            "field": "kB",
            "type": "quantitative",
            "scale": {"type": "log"},
            "axis": {"title": "kB in a round", "values": [10**power for power in range(-1, 6)]},
        },
        "color": {"field": "graph", "scale": {**graphs, "range": ["var(--blue)", "var(--orange)"]}, "legend": None},
        "tooltip": [{"field": name, "type": "nominal"} for name in ("way", "clients", "graph", "neighbors", "kB")],
    }
    shape = {"field": "graph", "scale": {**graphs, "range": ["circle", "square"]}, "legend": None}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    header = {"title": None, "labelColor": "var(--ink)", "labelFontSize": 13, "labelAnchor": "start"}
    return {
        "data": {"values": rows}, "columns": columns, "spacing": 24,
        "facet": {"field": "way", "type": "nominal", "sort": ["a client sends", "a client receives"], "header": header},
        "spec": {"width": width, "height": 260, "layer": [
            {"mark": {"type": "line", "strokeWidth": 2.2}, "encoding": encoding},
            {"mark": point, "encoding": {**encoding, "shape": shape}},
        ]},
    }  # fmt: skip
