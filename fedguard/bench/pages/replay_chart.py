"""The chart of a round replay: clients, aggregate and honest mean in the plane, with the accuracy beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedguard.bench.pages.blocks import Chart, Heading, Key, TableBlock
from fedguard.bench.results.replay import RoundInPlane

#: Widths of the plane and of the accuracy beside it, and of a narrow page; heights
_WIDE, _BESIDE, _NARROW, _HEIGHT = 600, 380, 290, 400

#: Area of a mark of weight 1/n, without any weight, and the largest
_AREA, _EMPTY, _MOST = 110.0, 34.0, 1400.0

#: Rounds beside each other, and of them in a line
_ROUNDS, _COLUMNS = 6, 3

_Layer = dict[str, Any]

#: What is drawn, in this order from below: its shape, color, and meaning
_ROLES: Mapping[str, tuple[str, str, str]] = {
    "model": ("square", "gray", "model before the round"),
    "honest": ("circle", "blue", "benign client"),
    "malicious": ("triangle-up", "orange", "malicious client"),
    "mean": ("circle", "ink", "honest mean"),
    "aggregate": ("diamond", "green", "aggregate"),
}
_KEYS = [
    Key("dot", "blue", "benign client"), Key("triangle", "orange", "malicious client"),
    Key("diamond", "green", "aggregate"), Key("ring", "ink", "honest mean"), Key("square", "gray", "model before the round"),
]  # fmt: skip


def chart(rounds: Sequence[RoundInPlane], chosen: int, scores: Mapping[int, float], axes: str, cell: str) -> Chart:
    """One round.

    Args:
        chosen: its index.
        cell: attack and defense.
        scores: accuracy in percent, or return, by evaluated round.
    """
    one, view = rounds[chosen], _View(rounds, axes)
    rows = view.rows(one)
    beyond = sum(row["beyond"] for row in rows)
    weight = (
        "area: weight in the aggregate, hollow: none" if one.kept.weights is not None else "the rule has no weights"
    )
    about = f"{cell}; {weight}; {100 * one.explained:.0f} % of the updates' variance is in the plane."
    title = f"round {one.kept.round}"
    return Chart(
        {
            "hconcat": [view.plane(rows, _WIDE, _HEIGHT, title), _accuracy(scores, one.kept.round, _BESIDE, 240)],
            "spacing": 40,
        },
        {
            "vconcat": [view.plane(rows, _NARROW, 320, title), _accuracy(scores, one.kept.round, _NARROW, 140)],
            "spacing": 24,
        },
        _alt(one),
        _table(one),
        f"The updates of round {one.kept.round}",
        about,
        f"{beyond} marks lie beyond the edge, and are drawn on it." if beyond else "",
        _KEYS,
    )


def small_multiples(rounds: Sequence[RoundInPlane], axes: str, cell: str) -> Chart:
    """Some rounds beside each other, from the first to the last."""
    picked = sorted({round(at) for at in np.linspace(0, len(rounds) - 1, min(_ROUNDS, len(rounds)))})
    view, some = _View(rounds, axes), [rounds[at] for at in picked]
    rows = [{**row, "round": f"round {one.kept.round}"} for one in some for row in view.rows(one)]
    names = [f"round {one.kept.round}" for one in some]

    def facet(columns: int, width: float) -> _Layer:
        title = {"title": None, "labelColor": "var(--ink)", "labelFontSize": 13, "labelAnchor": "start"}
        height = min(width * view.height / view.width, 1.2 * width)
        drawn = view.layers(width, height)
        return {
            "data": {"values": rows}, "columns": columns, "spacing": 24,
            "facet": {"field": "round", "type": "nominal", "sort": names, "header": title},
            "spec": {"width": width, "height": height, "layer": drawn},
        }  # fmt: skip

    explained = [f"{100 * one.explained:.1f}" for one in some]
    table = TableBlock(
        [Heading(head, number=True) for head in ("round", "variance kept, %")],
        [[str(one.kept.round), said] for one, said in zip(some, explained, strict=True)],
        "Rounds beside each other",
    )
    return Chart(
        facet(_COLUMNS, 330), facet(1, _NARROW), _alt(some[-1]), table, "Rounds beside each other",
        f"{cell}; {len(some)} rounds with the same axes and scales.", "", _KEYS,
    )  # fmt: skip


def _alt(one: RoundInPlane) -> str:
    """The finding of a round."""
    where = "nothing was aggregated"
    if one.progress is not None:
        where = f"the aggregate fell at {one.progress:.2f} of the way to the honest mean"
    weight = one.malicious_weight
    has = "" if weight is None or not one.malicious else f"; malicious clients have {100 * weight:.1f} % of the weight"
    return (
        f"In round {one.kept.round}, with {one.malicious} malicious of {len(one.kept.clients)} updates, {where}{has}."
    )


def _table(one: RoundInPlane) -> TableBlock:
    """The clients of a round, malicious ones first."""
    n = len(one.kept.clients)
    weights: Sequence[float | None] = [None] * n if one.kept.weights is None else one.kept.weights.tolist()
    rows = [
        [str(client), "malicious" if bad else "benign", None if weight is None else f"{100 * weight:.1f}", *_format(place, far)]
        for client, bad, weight, place, far in zip(
            one.kept.clients, one.kept.malicious.tolist(), weights, one.points.tolist(), one.distances.tolist(), strict=True
        )
    ]  # fmt: skip
    rows.sort(key=lambda row: row[1] == "benign")
    if one.aggregate is not None and one.missed is not None:
        rows.append(["aggregate", "", None, *_format(one.aggregate, one.missed)])
    heads = ("client", "who", "weight, %", "x", "y", "from the honest mean")
    about = f"Round {one.kept.round}: where each client's update is; the last column is the true distance, in all coordinates"
    return TableBlock([Heading(head, number=head not in ("client", "who")) for head in heads], rows, about)


def _format(place: Sequence[float], distance: float) -> list[str]:
    return [f"{value:.2f}" for value in (*place, distance)]


class _View:
    """The part of the plane that is drawn: the same in all rounds, and without the outermost updates if they are far off."""

    def __init__(self, rounds: Sequence[RoundInPlane], axes: str) -> None:
        self.mean = "the first round's honest mean" if axes == "first" else "the honest mean"
        marks = np.array([[0.0, 0.0], [1.0, 0.0], *(one.aggregate for one in rounds if one.aggregate)])
        points = np.concatenate([marks, *(one.points for one in rounds)])
        bound = max(1.5, 3 * float(np.quantile(np.abs(points), 0.9)))
        low, high = np.clip(points, -bound, bound).min(0), np.clip(points, -bound, bound).max(0)
        middle, half = (low + high) / 2, np.maximum((high - low) / 2, 0.5) * 1.08
        self.low, self.high = middle - half, middle + half
        self.width, self.height = (self.high - self.low).tolist()

    def rows(self, one: RoundInPlane) -> list[_Layer]:
        """The marks of a round, the lower ones first."""
        n, weights = len(one.kept.clients), one.kept.weights
        benign = ~one.kept.malicious
        mean = one.points[benign if benign.any() else slice(None)].mean(0).tolist()
        found = [self._row("model", "model before the round", (0.0, 0.0), 50)]
        for at in range(n):
            weight = None if weights is None else float(weights[at])
            area = _AREA if weight is None else min(_EMPTY + _AREA * abs(weight) * n, _MOST)
            role = "malicious" if one.kept.malicious[at] else "honest"
            hollow = weight is not None and abs(weight) < 1e-9
            found.append(self._row(role, f"client {one.kept.clients[at]}", one.points[at].tolist(), area, hollow))
        found.append(self._row("mean", "honest mean", mean, 130, True))
        if one.aggregate is not None:
            found.append(self._row("aggregate", "aggregate", one.aggregate, 170))
        return sorted(found, key=lambda row: (list(_ROLES).index(row["role"]), -row["area"]))

    def _row(self, role: str, name: str, place: Sequence[float], area: float, hollow: bool = False) -> _Layer:
        x, y = np.clip(place, self.low, self.high).tolist()
        beyond = (x, y) != tuple(place)
        return {
            "role": role,
            "name": name,
            "x": x,
            "y": y,
            "area": area,
            "fill": 0.0 if hollow else 0.55,
            "beyond": beyond,
        }

    def plane(self, rows: Sequence[_Layer], width: int, height: int, title: str) -> _Layer:
        return {
            "data": {"values": list(rows)}, "width": width, "height": height, "title": {"text": title},
            "layer": self.layers(width, height),
        }  # fmt: skip

    def layers(self, width: float, height: float) -> list[_Layer]:
        """The marks, and a line to the aggregate. One unit is as long up as along."""
        unit = max(self.width / width, self.height / height)
        x, y = (
            [middle - unit * size / 2, middle + unit * size / 2]
            for middle, size in zip((self.low + self.high) / 2, (width, height), strict=True)
        )
        titles = {"x": f"along {self.mean}, in its lengths", "y": "across it"}
        place = {
            key: {
                "field": key,
                "type": "quantitative",
                "scale": {"domain": domain, "nice": False},
                "axis": {"title": titles[key]},
            }
            for key, domain in (("x", x), ("y", y))
        }
        line = {
            "transform": [{"filter": "datum.role === 'aggregate'"}],
            "mark": {"type": "rule", "color": "var(--green)", "strokeWidth": 2},
            "encoding": {**place, "x2": {"datum": 0}, "y2": {"datum": 0}},
        }
        return [line, *self._marks(place)]

    def _marks(self, place: Mapping[str, Any]) -> Iterator[_Layer]:
        for role, (shape, color, _) in _ROLES.items():
            yield {
                "transform": [{"filter": f"datum.role === '{role}'"}],
                "mark": {
                    "type": "point", "shape": shape, "filled": False, "stroke": f"var(--{color})", "fill": f"var(--{color})",
                    "strokeWidth": 2 if role in ("mean", "aggregate") else 1.3,
                },
                "encoding": {
                    **place,
                    "size": {"field": "area", "type": "quantitative", "scale": None, "legend": None},
                    "fillOpacity": {"field": "fill", "type": "quantitative", "scale": None, "legend": None},
                    "tooltip": {"field": "name", "type": "nominal"},
                },
            }  # fmt: skip


def _accuracy(scores: Mapping[int, float], round: int, width: int, height: int) -> _Layer:
    """The accuracy over the rounds, with a line at the chosen one."""
    rows = [{"round": at, "score": value} for at, value in scores.items()]
    shares = all(0 <= value <= 100 for value in scores.values())
    x = {
        "field": "round",
        "type": "quantitative",
        "axis": {"title": "round", "tickMinStep": 1},
        "scale": {"nice": False},
    }
    y = {"field": "score", "type": "quantitative", "axis": {"title": "accuracy, %" if shares else "mean return"}}
    scale = {"scale": {"domain": [0, 100]}} if shares else {}
    here = {
        "data": {"values": [{"round": round}]},
        "mark": {"type": "rule", "color": "var(--ink)", "strokeDash": [4, 3]},
    }
    return {
        "data": {"values": rows}, "width": width, "height": height,
        "layer": [
            {"mark": {"type": "line", "color": "var(--blue)", "strokeWidth": 2}, "encoding": {"x": x, "y": {**y, **scale}}},
            {**here, "encoding": {"x": x}},
        ],
    }  # fmt: skip
