"""Charts of the pages on architectures and gossip in `docs/`: the effect of each system, from short runs.

python -m docs_tools.pictures               all of them, into docs/pictures/: a minute or two
python -m docs_tools.pictures google        one of them
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

import fedguard as fg
from docs_tools import exponents
from fedguard.app.charts.colors import COLORS
from fedguard.contracts import Network, Speeds, Stragglers
from fedguard.rng import Rng
from fedguard.simulated.barriers import bsp
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.world import World

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"

#: One device in ten takes five times as long.
STRAGGLER = {"compute": {"seconds": 0.001, "slow": {"share": 0.1, "factor": 5}}, "link": {"latency": 0.05}}
_HEIGHT, _WIDTH = 220, 300

#: Axes with values that are not whole numbers.
_AXES = {"chance to be silent": alt.Axis(format="%")}

Points = pd.DataFrame


def speed_up(store: Path, *shorter: str) -> Points:
    """Workers, the law of their times, and how many times as fast as one of even times without communication."""
    run = fg.run(ROOT / "examples" / "speed_up.yaml", store=store, jobs=1, overrides=shorter)
    found = pd.DataFrame(run.rows())
    found["workers"] = found["clients.total"].astype(int)
    found["times"] = ["exponential" if one == "exponential" else "equal" for one in found["network.compute.jitter"]]
    each = found["simulated_seconds"] / next(iter(run.ran.values()))["result"]["rounds"]["total"]
    alone = each[(found["workers"] == 1) & (found["times"] == "equal")].mean() - 0.5
    found["speed-up"] = alone / each
    means: Points = found.groupby(["workers", "times"], as_index=False)["speed-up"].mean()
    c = 0.5 / alone
    forms = [
        {"workers": n, "times": times, "speed-up": n / (factor(n) + c * n)}
        for times, factor in (("n / (1 + c n)", lambda n: 1.0), ("n / (H_n + c n)", _harmonic))
        for n in sorted(set(means["workers"]))
    ]
    return pd.concat([means, pd.DataFrame(forms)], ignore_index=True)


def google(store: Path, *shorter: str) -> Points:
    """By over-selection: the share of abandoned rounds, and the number of completed rounds per simulated minute."""
    suite = {
        "name": "google",
        "clients": {"total": 60, "per_round": 20},
        "training": {"rounds": 100, "local_steps": 1},
        "network": {"compute": {"jitter": 0.5}, "link": {"loss": 0.1}},
        "evaluation": {"every": 100},
        "matrix": {
            "architecture": [f"google(over={over}, window=1.0, least=0.95)" for over in (1.0, 1.1, 1.2, 1.3, 1.5)]
        },
    }
    found = []
    for over, record in _records(suite, store, shorter):
        rounds, seconds = record["result"]["rounds"], record["result"]["time"]["seconds"]
        place = {"over": float(over.partition("over=")[2].partition(",")[0])}
        found.append({**place, "of": "rounds abandoned, %", "value": 100 * rounds["abandoned"] / rounds["total"]})
        done = rounds["total"] - rounds["abandoned"]
        found.append({**place, "of": "rounds done in a simulated minute", "value": 60 * done / seconds})
    return pd.DataFrame(found)


def parameter_server(store: Path, *shorter: str) -> Points:
    """Test loss over simulated seconds for tau of 0, 4 and infinity, with slowness that lasts and that passes."""
    found = []
    for words, lasting in (("the same device is always slow", True), ("any training may be slow", False)):
        slow = {**STRAGGLER["compute"]["slow"], "lasting": lasting}  # type: ignore[dict-item]
        suite = {
            "name": f"tau {lasting}".replace(" ", "_"),
            "clients": {"total": 10},
            "training": {"rounds": 60, "lr": 0.05, "batch_size": 32},
            "network": {**STRAGGLER, "compute": {"seconds": 0.001, "slow": slow}},
            "matrix": {
                "architecture": [
                    *(f"parameter_server(consistency='bounded', tau={tau})" for tau in (0, 4)),
                    "parameter_server(consistency='eventual')",
                ]
            },
        }
        for system, record in _records(suite, store, shorter):
            tau = "infinity" if "eventual" in system else system.partition("tau=")[2].rstrip(")")
            curve = record["result"]["curve"]
            found += [
                {"tau": tau, "slowness": words, "seconds": seconds, "loss": loss}
                for seconds, loss in zip(curve["seconds"], curve["loss"], strict=True)
                if seconds <= 25
            ]
    return pd.DataFrame(found)


def staleness(store: Path, *shorter: str) -> Points:
    """Staleness of the updates of FedAsync and of FedBuff, in model versions."""
    suite = {
        "name": "staleness",
        "clients": {"total": 20},
        "training": {"rounds": 40, "local_steps": 1},
        "network": {**STRAGGLER, "compute": {**STRAGGLER["compute"], "jitter": 0.3}},
        "evaluation": {"every": 40},
        "matrix": {"architecture": ["fedasync", "fedbuff(buffer=5)"]},
    }
    found = []
    for system, record in _records(suite, store, shorter):
        counts = record["result"]["time"]["staleness"]["counts"]
        found += [
            {"system": system, "staleness": age, "share": 100 * count / sum(counts)} for age, count in enumerate(counts)
        ]
    return pd.DataFrame(found)


def mapreduce(_: Path, rounds: int = 1000) -> Points:
    """Mean seconds of a round of twenty tasks by the number of copies, any task being five times slower by a chance."""
    found = []
    for chance in (0.05, 0.15):
        network = Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=chance, factor=5.0, lasting=False)))
        for copies in range(7):
            world = World(network, [1.0] * 20, 1000, Rng(0).child("network"))
            course = ServerSimulation(world, replace(bsp(20), backups=copies), 20, lambda round: range(20), Rng(0))
            *_, last = islice(course.releases(), rounds)
            found.append({"chance to be slow": f"{chance:.0%}", "copies": copies, "seconds": last.at / rounds})
    return pd.DataFrame(found)


def basgd(store: Path, *shorter: str) -> Points:
    """Accuracy by round where two of ten clients answer at once, with the reverse of what they should send."""
    suite = {
        "name": "flood",
        "clients": {"total": 10, "malicious": 2},
        "training": {"rounds": 30, "algorithm": "fedsgd", "lr": 0.5},
        "network": {"compute": {"spread": 0.5}, "link": {"latency": 0.01}, "malicious_pace": 0.0},
        "matrix": {
            "architecture": ["fedbuff(buffer=5)", "basgd(buffers=5)"],
            "attack": ["sign_flip(scale=5)"],
            "defense": ["mean", "median"],
        },
    }
    found = []
    for place, record in _records(suite, store, shorter, "architecture", "defense"):
        curve = record["result"]["curve"]
        found += [
            {"system": place, "round": round, "accuracy": 100 * accuracy}
            for round, accuracy in zip(curve["round"], curve["accuracy"], strict=True)
        ]
    return pd.DataFrame(found)


def decaf(store: Path, *shorter: str) -> Points:
    """By the deadline: the share of the clients' deadlines that are met, by all of their work or none, and by a share of it."""
    deadlines, rounds = (0.5, 1.0, 2.0, 4.0, 8.0), 30
    suite = {
        "name": "deadlines",
        "task": {"partition": {"kind": "label_sorted", "shards": 2}},
        "clients": {"total": 10},
        "training": {"rounds": rounds, "local_epochs": 1, "batch_size": 16},
        "network": {"compute": {"seconds": 0.01, "spread": 1.0, "jitter": 0.2}, "link": {"latency": 0.1}},
        "evaluation": {"every": rounds},
        "matrix": {
            "architecture": [
                *(f"google(over=1.0, window={seconds}, least=0.05)" for seconds in deadlines),
                *(f"decaf(deadline={seconds})" for seconds in deadlines),
            ]
        },
    }
    found = []
    for system, record in _records(suite, store, shorter):
        seconds = float(
            system.partition("window=" if "google" in system else "deadline=")[2].rstrip(")").partition(",")[0]
        )
        met = 100 * record["result"]["rounds"]["updates"] / (10 * record["result"]["rounds"]["total"])
        who = "all or nothing (google)" if "google" in system else "a share of the work (decaf)"
        found.append({"deadline in seconds": seconds, "a client does": who, "met": met})
    return pd.DataFrame(found)


def homogeneity(store: Path, *shorter: str) -> Points:
    """Accuracy of the nodes of a ring and of the mean of their models, by how alike their data are; means over seeds."""
    run = fg.run(ROOT / "examples" / "homogeneity.yaml", store=store, jobs=1, overrides=shorter)
    found = []
    for row in run.rows():
        system = row["architecture"].partition("(")[0]
        if system == "sgp":  # over links in both directions it is d_psgd
            continue
        data = _ALIKE[row["task.partition"]]
        of = {"the worst node": row["worst_node_accuracy"], "the mean of the models": row["mean_model_accuracy"]}
        if of["the worst node"] is None:  # a server has one model
            of = dict.fromkeys(of, row["final_accuracy"])
        found += [{"system": system, "data": data, "of": name, "accuracy": 100 * one} for name, one in of.items()]
    means: Points = pd.DataFrame(found).groupby(["system", "data", "of"], as_index=False, sort=False)["accuracy"].mean()
    return means


#: Partitions of `homogeneity`, in words.
_ALIKE = {
    "iid": "alike",
    "dirichlet(alpha=1)": "alpha = 1",
    "dirichlet(alpha=0.1)": "alpha = 0.1",
    "label_sorted": "sorted by label",
}


def orderings(store: Path, *shorter: str) -> Points:
    """Accuracy of the nodes of a ring on data sorted by label, along three counts: examples, optimizer steps, exchanges."""
    phase, batch, rounds = 4, 32, 160
    #: By system: local trainings in a round, and exchanges with each neighbor; half of these in the first, without trackers.
    of_round = {"d_psgd": (1, 1), "d2": (1, 1), "dsgt": (1, 2), "detag": (phase, 2 * phase), "defacto": (phase, phase)}
    words = {"d2": {"weight": 0.5}, "detag": {"phase": phase}, "defacto": {"phase": phase}}
    suite = {
        "name": "orderings",
        "task": {"data": "digits", "model": "softmax", "partition": "label_sorted"},
        "clients": {"total": 10},
        "training": {"rounds": rounds, "local_steps": 1, "batch_size": batch, "lr": 0.2},
        "evaluation": {"every": 4},
        "matrix": {"architecture": [{"name": name, **words.get(name, {})} for name in of_round]},
    }
    found = []
    for name, record in _records(suite, store, shorter):
        system = name.partition("(")[0]
        trainings, exchanges = of_round[system]
        counts = {"examples of a node": (trainings * batch, 0), "optimizer steps": (1, 0), "exchanges": (exchanges, 0)}
        if system in ("dsgt", "detag"):
            counts["exchanges"] = exchanges, exchanges // 2
        curve = record["result"]["curve"]
        for count, (each, lacking) in counts.items():
            most = rounds * {"examples of a node": batch, "optimizer steps": 1, "exchanges": 2}[count]
            found += [
                {
                    "system": system,
                    "count": count,
                    "number": max(0, number * each - lacking),
                    "accuracy": 100 * accuracy,
                }
                for number, accuracy in zip(curve["round"], curve["accuracy"], strict=True)
                if number * each <= most
            ]
    return pd.DataFrame(found)


def fate(store: Path, *shorter: str) -> Points:
    """By the chance with which a party is silent: the share of rounds that have a sum, of twelve parties.

    With masks that nobody can take out again, beside the closed form, and with those of ``server``.
    """
    chances, parties = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2), 12
    found = [
        {"chance to be silent": chance, "masks": "fate: (1 - p)^12", "summed": 100 * (1 - chance) ** parties}
        for chance in chances
    ]
    for system, masks, rounds in (("fate", "none", 400), ("server", "full", 40)):
        suite = {
            "name": system,
            "clients": {"total": parties},
            "training": {"rounds": rounds, "local_steps": 1},
            "architecture": system,
            "protocol": {"secure_aggregation": masks},
            "evaluation": {"every": rounds},
            "matrix": {"protocol.dropout.rate": list(chances)},
        }
        for chance, record in _records(suite, store, shorter, "protocol.dropout.rate"):
            summed = 100 - 100 * record["result"]["rounds"]["abandoned"] / rounds
            found.append({"chance to be silent": float(chance), "masks": f"{system}: measured", "summed": summed})
    return pd.DataFrame(found)


def _records(
    suite: Mapping[str, Any], store: Path, shorter: Sequence[str], *keys: str
) -> list[tuple[str, Mapping[str, Any]]]:
    """The records of a suite with one seed, each with the values of some swept keys, by default of the architecture."""
    run = fg.run({"seeds": 1, **suite}, store=store, jobs=1, overrides=list(shorter))
    return [
        (", ".join(position["swept"][key] for key in keys or ("architecture",)), run.ran[position["cell"], 0])
        for position in run.manifest["positions"]
    ]


def _harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def _lines(points: Points, x: str, y: str, color: str, title: str) -> alt.Chart:
    return (
        alt.Chart(points)
        .mark_line()
        .encode(
            x=alt.X(f"{x}:Q", scale=alt.Scale(zero=False), axis=_AXES.get(x, alt.Axis(tickMinStep=1))),
            y=alt.Y(f"{y}:Q", title=title, scale=alt.Scale(zero=y != "loss")),
            color=alt.Color(f"{color}:N", sort=None, scale=alt.Scale(range=COLORS)),
        )
        .properties(width=2 * _WIDTH, height=_HEIGHT)
    )


def _beside_forms(points: Points) -> alt.TopLevelMixin:
    """Points for what was measured, lines for the closed forms; both axes are logarithmic."""
    log, axis = alt.Scale(type="log", nice=False), alt.Axis(values=[1, 2, 4, 8, 16, 32, 64])
    base = alt.Chart(points).encode(
        x=alt.X("workers:Q", scale=log, axis=axis), y=alt.Y("speed-up:Q", scale=log, axis=axis)
    )
    formula = alt.FieldOneOfPredicate(field="times", oneOf=["equal", "exponential"])
    named = alt.Color("times:N", sort=None, scale=alt.Scale(range=COLORS))
    measured = base.transform_filter(formula).mark_point(size=70, filled=True, opacity=1).encode(color=named)
    lines = base.transform_filter(~formula).mark_line(opacity=0.7).encode(color=named)
    return (lines + measured).properties(width=2 * _WIDTH, height=_HEIGHT)


def _panels(chart: alt.Chart, by: str) -> alt.TopLevelMixin:
    return chart.properties(width=_WIDTH).facet(column=alt.Column(f"{by}:N", title=None, sort=None))


def _bars(points: Points) -> alt.TopLevelMixin:
    chart = alt.Chart(points).mark_bar().encode(
        x=alt.X("over:N", title="devices asked for each one needed", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=None), color=alt.value(COLORS[0]),
    )  # fmt: skip
    return _panels(chart.properties(height=_HEIGHT), "of").resolve_scale(y="independent")


def _ages(points: Points) -> alt.TopLevelMixin:
    chart = alt.Chart(points).mark_bar().encode(
        x=alt.X("staleness:O", title="staleness: models since", axis=alt.Axis(values=[*range(0, 100, 5)], labelAngle=0)),
        y=alt.Y("share:Q", title="% of the updates"), color=alt.value(COLORS[0]),
    )  # fmt: skip
    return _panels(chart.properties(height=_HEIGHT), "system")


def _alike(points: Points) -> alt.TopLevelMixin:
    chart = alt.Chart(points).mark_line(point=True).encode(
        x=alt.X("data:N", title=None, sort=list(_ALIKE.values()), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("accuracy:Q", title="accuracy in %", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("system:N", sort=None, scale=alt.Scale(range=COLORS)),
        strokeDash=alt.StrokeDash("system:N", sort=None),
    )  # fmt: skip
    return _panels(chart.properties(height=_HEIGHT), "of")


def _orders(points: Points) -> alt.TopLevelMixin:
    chart = _lines(points, "number", "accuracy", "system", "accuracy of the nodes in %").properties(
        width=_WIDTH * 2 // 3
    )
    panels = [
        chart.transform_filter(alt.FieldEqualPredicate(field="count", equal=count)).encode(
            x=alt.X("number:Q", title=count)
        )
        for count in points["count"].unique()
    ]
    return alt.HConcatChart(hconcat=panels)


def _slopes(points: Points) -> alt.TopLevelMixin:
    """Means over seeds on logarithmic axes, each line with its fitted exponent at its end."""
    log = alt.Scale(type="log", nice=False)
    there = points[points["number"] < math.inf]
    means = there.groupby(["slower", "count", "system", "nodes", "weight"], as_index=False, sort=False)
    found = means[["1 / gap", "number"]].mean()
    fits = exponents.exponents(points)
    ends = found.loc[found.groupby(["slower", "count", "system"])["1 / gap"].idxmax()]
    texts = ends.merge(fits, on=["slower", "count", "system"])
    texts["fitted"] = [f"{one:.2f} ±{half:.2f}" for one, half in zip(texts["exponent"], texts["half"], strict=True)]
    color = alt.Color("system:N", sort=None, scale=alt.Scale(range=COLORS))
    rows = []
    for way in found["slower"].unique():
        panels = []
        for count in found["count"].unique():
            x = alt.X("1 / gap:Q", scale=log, title=f"1 / gap, {way}")
            y = alt.Y("number:Q", scale=log, title=count)
            here, last = (one[(one["slower"] == way) & (one["count"] == count)] for one in (found, texts))
            lines = alt.Chart(here).mark_line(point=True).encode(x=x, y=y, color=color)
            labels = alt.Chart(last).mark_text(align="left", dx=6).encode(x=x, y=y, color=color, text="fitted:N")
            panels.append((lines + labels).properties(width=_WIDTH * 2 // 3, height=_HEIGHT))
        rows.append(alt.HConcatChart(hconcat=panels))
    return alt.VConcatChart(vconcat=rows)


#: How each picture is measured and drawn.
PICTURES: dict[str, tuple[Callable[..., Points], Callable[[Points], alt.TopLevelMixin]]] = {
    "speed_up": (speed_up, _beside_forms),
    "google": (google, _bars),
    "parameter_server": (
        parameter_server,
        lambda points: _panels(_lines(points, "seconds", "loss", "tau", "test loss"), "slowness"),
    ),
    "staleness": (staleness, _ages),
    "mapreduce": (
        mapreduce,
        lambda points: _lines(points, "copies", "seconds", "chance to be slow", "seconds of a round"),
    ),
    "decaf": (
        decaf,
        lambda points: _lines(points, "deadline in seconds", "met", "a client does", "% of the deadlines met"),
    ),
    "homogeneity": (homogeneity, _alike),
    "orderings": (orderings, _orders),
    "exponents": (lambda store: exponents.measured(), _slopes),
    "fate": (
        fate,
        lambda points: _lines(points, "chance to be silent", "summed", "masks", "% of the rounds with a sum"),
    ),
    "basgd": (basgd, lambda points: _lines(points, "round", "accuracy", "system", "test accuracy in %")),
}


def drawn(name: str, store: Path) -> str:
    """A picture as SVG, on a white ground."""
    measured, chart = PICTURES[name]
    return vl_convert.vegalite_to_svg({**chart(measured(store)).to_dict(), "background": "white"})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m docs_tools.pictures", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)} (default: all)")
    asked = parser.parse_args(arguments).names
    if unknown := [name for name in asked if name not in PICTURES]:
        parser.error(f"expected some of {', '.join(PICTURES)}; got {', '.join(unknown)}")
    FOLDER.mkdir(exist_ok=True)
    for name in asked or PICTURES:
        with tempfile.TemporaryDirectory() as store:
            (FOLDER / f"{name}.svg").write_text(drawn(name, Path(store)), encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}.svg\n")


if __name__ == "__main__":
    main()
