"""The tables of `docs/cross_silo.md`: figures of `examples/cross_silo.yaml`, kept in `examples/results/cross_silo.json`.

`python -m docs_tools.cross_silo RUN` reads this run folder, writes that file and prints what the document shows of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs_tools.four_sets import markdown, require_all
from fedguard.bench.results.in_weight import weight_breakdowns
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES

FIGURES_FILE = Path(__file__).parents[1] / "examples" / "results" / "cross_silo.json"
#: The suite's partitions, by the first word of their text
PARTITIONS = {"iid": "alike", "inner_dirichlet": "skewed"}
SITES = ("site 1", "site 2", "site 6")


def condense(run: Run) -> dict[str, Any]:
    """What is kept of the run: each trial's final accuracy by seed, CPU minutes, and breakdown in weight.

    Raises:
        InputError: a trial is missing, refused or failed.
    """
    require_all(run)
    cells: dict[tuple[str, str, str, str], list[float]] = {}
    for row in run.rows():
        partition = PARTITIONS[row["task.partition"].partition("(")[0]]
        site = "" if row["attack"] == "none" else row["clients.malicious"]
        cells.setdefault((partition, site, row["attack"], row["defense"]), []).append(row["final_accuracy"])
    records = list(run.ran.values())
    return {
        "seeds": run.seeds,
        "trials": len(records),
        "cpu_minutes": round(sum(record["cost"]["cpu_seconds"] or 0 for record in records) / 60, 1),
        "chance": records[0]["result"]["chance"],
        "code": records[0]["environment"]["code"],
        "in_weight": weight_breakdowns(run),
        "cells": [
            # Without an attack the position is there once for each site, and the trial the same
            dict(zip(("partition", "site", "attack", "defense"), key, strict=True))
            | {"final_accuracy": values[: len(run.seeds)]}
            for key, values in cells.items()
        ],
    }


def accuracy_table(figures: Mapping[str, Any], partition: str) -> str:
    """Rules by who lies, in Markdown: final accuracy in % under the worst attack, mean over seeds with its 95 % interval."""
    rules = list(dict.fromkeys(one["defense"] for one in figures["cells"]))
    return markdown(
        [
            ["defense", "nobody lies", *(f"{site} lies" for site in SITES)],
            *([f"`{rule}`", *(_worst(figures, partition, site, rule) for site in ("", *SITES))] for rule in rules),
        ]
    )


def _worst(figures: Mapping[str, Any], partition: str, site: str, rule: str) -> str:
    """The interval of the attack with the lowest mean."""
    known, where = FIGURES["final_accuracy"], (partition, site, rule)
    found = [
        known.estimate(one["final_accuracy"])
        for one in figures["cells"]
        if (one["partition"], one["site"], one["defense"]) == where
    ]
    return known.format_estimate(min(found, key=lambda one: one.mean))


def weight_table(figures: Mapping[str, Any]) -> str:
    """Rules by what sets of sites can do to them, in Markdown."""
    rows = figures["in_weight"]
    return markdown(
        [
            ["defense", "least weight that breaks it", "of", *(f"site {site + 1}" for site in range(6))],
            *([f"`{row['defense']}`", *_least(row), *map(_pull, row["pull"])] for row in rows),
        ]
    )


def _least(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["least"] is None:
        return "none found", ""
    numbers = ", ".join(name.split()[1] for name in row["sites"])
    return f"{100 * row['least']:.1f} %", f"site{'s' * (len(row['sites']) > 1)} {numbers}"


def _pull(pull: float | None) -> str:
    return "no bound" if pull is None else f"{pull:.2f}"


def main(paths: Sequence[str]) -> None:
    """Condense the run folder, write the file and print the tables."""
    figures = condense(Run.open(paths[0]))
    FIGURES_FILE.write_text(json.dumps(figures, indent=1) + "\n")
    tables = [accuracy_table(figures, one) for one in PARTITIONS.values()]
    sys.stdout.write("\n\n".join([*tables, weight_table(figures), f"{figures['cpu_minutes']} CPU minutes"]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
