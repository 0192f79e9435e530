"""What was run: the suite, its code and data, the measured heterogeneity of the data, and refused cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element

from fedguard.bench.pages.elements import bullet_list, facts, table
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import SHARE, Metric


def what_was_run(run: Run) -> list[Element]:
    """The suite, the environment of the records, and the data."""
    return [facts(_suite(run)), facts(_makers(run)), *_data(run)]


def _suite(run: Run) -> Iterator[tuple[str, str]]:
    rows = run.rows()
    counts = Counter(row["status"] for row in rows)
    trials = ", ".join(f"{count} {status}" for status, count in counts.items())
    damaged = f"; {len(run.broken)} records are damaged and count as missing" if run.broken else ""
    yield "suite", str(run.manifest["name"])
    yield "started", datetime.fromtimestamp(run.manifest["started"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield "attacks", ", ".join(dict.fromkeys(row["attack"] for row in rows))
    yield "defenses", ", ".join(dict.fromkeys(row["defense"] for row in rows))
    for key in run.swept:
        yield key, "; ".join(dict.fromkeys(str(row[key]) for row in rows))
    yield "seeds", f"{', '.join(map(str, run.seeds))} ({len(run.seeds)})"
    yield "trials", f"{len(rows)}: {trials}{damaged}"
    yield "defenses tuned", "on seeds and attacks of their own" if run.manifest.get("tuning") else "no"


def _makers(run: Run) -> Iterator[tuple[str, str]]:
    """The environments of the records; if values differ, all of them."""
    environments = [record["environment"] for record in run.records.values() if record["status"] == "ok"]
    names = {
        "fedguard": "FedGuard",
        "git_commit": "commit",
        "code": "digest of the code",
        "data": "digest of the data",
        "torch": "torch",
        "python": "Python",
        "platform": "platform",
        "device": "device",
    }
    for key, name in names.items():
        values = dict.fromkeys(_plain(one.get(key)) for one in environments)
        yield name, "; ".join(values) or "nothing ran"
    yield "version of results", str(run.manifest["results_version"])


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {digest}" for name, digest in value.items())
    return "not known" if value is None else str(value)


def _data(run: Run) -> Iterator[Element]:
    """The data of each partition, with their measured heterogeneity."""
    alike: dict[tuple[str, ...], list[CompletedRecord]] = {}
    for record in run.ran.values():
        task, card = record["config"]["task"], record["threat_card"]
        drawn = "".join(f", {size} {part}" for part, size in card.get("subset", {}).items())
        place = (task["data"]["name"] + drawn, task["model"]["name"], card["partition"], str(card["clients"]))
        alike.setdefault(place, []).append(record)
    if alike:
        heads = [
            "data",
            "model",
            "partition",
            "clients",
            "label distance",
            "gradient dissimilarity",
            "examples of a client",
        ]
        rows = [(*place, *_summarize_dissimilarity(found)) for place, found in alike.items()]
        yield table("Data, and how far the clients' data were measured to be apart", heads, rows, "lllrrrr")
        yield bullet_list(
            [
                "Label distance: how far a client's shares of labels are from everybody's, on average; 0 alike, 1 disjoint.",
                "Gradient dissimilarity: the mean squared distance of the clients' first gradients from their mean, in squared "
                "lengths of that mean.",
            ]
        )


def _summarize_dissimilarity(found: Sequence[CompletedRecord]) -> Iterator[str]:
    """Means over seeds, each seed once; the data of an existing app are unknown."""
    by_seed = {record["seed"]: one for record in found if (one := record["threat_card"]["dissimilarity"]) is not None}
    if not by_seed:
        yield from ("not measured",) * 3
        return
    distances = [one["label_distance"] for one in by_seed.values()]
    gradients = [one["gradient_dissimilarity"] for one in by_seed.values()]
    for values, bounds in ((distances, SHARE), (gradients, None)):
        known = Metric(title="", unit="", bounds=bounds)
        yield known.format_estimate(known.estimate(values))
    least = min(one["smallest_client"] for one in by_seed.values())
    most = max(one["largest_client"] for one in by_seed.values())
    yield f"{least} to {most}"
