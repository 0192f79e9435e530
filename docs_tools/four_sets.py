"""The tables of `docs/four_data_sets.md` and of the README: figures of runs, kept in `examples/results/figures.json`.

`python -m docs_tools.four_sets RUN ...` reads these run folders, writes that file and prints what the documents show of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedguard.bench.results.run import Run
from fedguard.errors import InputError
from fedguard.metrics.figures import FIGURES

FIGURES_FILE = Path(__file__).parents[1] / "examples" / "results" / "figures.json"


def require_all(run: Run) -> None:
    """Raise `InputError` if a trial of the run is missing, refused or failed."""
    gaps = [row for row in run.rows() if row["status"] != "ok"]
    if gaps:
        first = f"{gaps[0]['attack']} against {gaps[0]['defense']}, seed {gaps[0]['seed']}, is {gaps[0]['status']}"
        raise InputError(
            f"{run.name}: expected every trial of the run; got {len(gaps)} without figures: {first}. Run it again."
        )


def condense(run: Run) -> dict[str, Any]:
    """What is kept of a run: each trial's final accuracy and backdoor success by seed, the verdict, CPU minutes, code and data.

    A run with swept keys has a verdict for each of their values, and none is kept.

    Raises:
        InputError: a trial is missing, refused or failed.
    """
    require_all(run)
    records = list(run.ran.values())
    return {
        "seeds": run.seeds,
        "trials": len(records),
        "cpu_minutes": round(sum(record["cost"]["cpu_seconds"] or 0 for record in records) / 60, 1),
        "chance": records[0]["result"]["chance"],
        "verdict": "" if run.swept else str(run.verdict()),
        "code": records[0]["environment"]["code"],
        "data": records[0]["environment"]["data"],
        "cells": list(_cells(run)),
    }


def _cells(run: Run) -> Iterator[dict[str, Any]]:
    """Each cell's final accuracy and backdoor success by seed, and its accuracy with the statistics of other fates."""
    cells: dict[tuple[str, ...], dict[str, Any]] = {}
    keys = ["attack", "defense", *run.swept]
    for row in run.rows():
        own = cells.setdefault(tuple(str(row[key]) for key in keys), {key: str(row[key]) for key in keys})
        for name in ("final_accuracy", "attack_success"):
            if row[name] is not None:
                own.setdefault(name, []).append(row[name])
        compared = run.ran[row["cell"], row["seed"]]["result"].get("statistics", {}).get("compared", {})
        for fate, accuracy in compared.items():
            own.setdefault("compared", {}).setdefault(fate, []).append(accuracy)
    yield from cells.values()


def accuracy_table(figures: Mapping[str, Any]) -> str:
    """Attacks by defenses in Markdown: final accuracy in %, mean over seeds with its 95 % interval.

    Args:
        figures: as `condense` returns them.
    """
    return markdown(_table(figures, "final_accuracy"))


def backdoor_table(figures: Mapping[str, Any]) -> str:
    """The same of the success of backdoors, for the attacks that plant one."""
    return markdown(_table(figures, "attack_success"))


def transposed_accuracy_table(figures: Mapping[str, Any]) -> str:
    """Defenses by attacks: fewer lines than `accuracy_table`."""
    return markdown(
        [
            ("defense", *rest) if row == "attack" else (row, *rest)
            for row, *rest in zip(*_table(figures, "final_accuracy"), strict=True)
        ]
    )


def _table(figures: Mapping[str, Any], metric: str) -> list[list[str]]:
    """Rows of texts; the first holds the headings, and each further one an attack."""
    cells = {(one["attack"], one["defense"]): one[metric] for one in figures["cells"] if metric in one}
    columns = list(dict.fromkeys(defense for _, defense in cells))
    known = FIGURES[metric]
    attacks = dict.fromkeys(attack for attack, _ in cells)
    texts = {place: known.format_estimate(known.estimate(values)) for place, values in cells.items()}
    return [
        ["attack", *(f"`{one}`" for one in columns)],
        *([f"`{attack}`", *(texts[attack, one] for one in columns)] for attack in attacks),
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of texts in Markdown, whose first row holds the headings."""
    first, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (first, ["---"] * len(first), *others))


def _shown(name: str, figures: Mapping[str, Any]) -> str:
    """What the documents show of one run."""
    backdoors = any("attack_success" in one for one in figures["cells"])
    parts = [
        f"{name}: {figures['trials']} trials, {figures['cpu_minutes']} CPU minutes",
        accuracy_table(figures),
        *([backdoor_table(figures)] if backdoors else []),
        figures["verdict"],
    ]
    return "\n\n".join(parts) + "\n\n"


def main(paths: Sequence[str]) -> None:
    """Condense these run folders, beside what the file holds of others."""
    kept = json.loads(FIGURES_FILE.read_text()) if FIGURES_FILE.is_file() else {}
    for path in paths:
        run = Run.open(path)
        kept[run.name] = condense(run)
        sys.stdout.write(_shown(run.name, kept[run.name]))
    FIGURES_FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
