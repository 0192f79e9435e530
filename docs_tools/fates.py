"""The tables of running statistics in `docs/statistics.md`: figures of runs, kept in `examples/results/statistics.json`.

`python -m docs_tools.fates RUN ...` reads these run folders, writes that file and prints the tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from docs_tools.four_sets import FIGURES_FILE, accuracy_table, condense
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES

KEPT_FILE = FIGURES_FILE.with_name("statistics.json")

KEY = "training.statistics"


#: A run of one cell whose training differs, by the run beside which it is shown, and its row there
APART = {
    "fashion_statistics": {"fashion_frozen": "`frozen`, in training as well", "fashion_fedbn": "`algorithm: fedbn`"}
}


def fates_table(name: str, kept: Mapping[str, Any]) -> str:
    """Fates in Markdown, the highest accuracy first: final accuracy in % of one training, with its 95 % interval.

    Args:
        name: a run of one cell with ``evaluation.statistics``.
        kept: all figures, by run. Runs that stand `APART` have the last rows.
    """
    (cell,) = kept[name]["cells"]
    found = {kept[name]["fate"]: cell["final_accuracy"], **cell["compared"]}
    rows = [(f"`{fate}`", found[fate]) for fate in sorted(found, key=lambda fate: -sum(found[fate]))]
    apart = APART.get(name, {}).items()
    rows += [(said, kept[run]["cells"][0]["final_accuracy"]) for run, said in apart if run in kept]
    known = FIGURES["final_accuracy"]
    lines = [f"| {said} | {known.format_estimate(known.estimate(values))} |" for said, values in rows]
    return "\n".join(["| statistics | accuracy |", "| --- | --- |", *lines])


def lies_table(figures: Mapping[str, Any]) -> str:
    """Statistics and rules on updates by attacks in Markdown: final accuracy in %, with its 95 % interval."""
    known = FIGURES["final_accuracy"]
    cells = figures["cells"]
    attacks = list(dict.fromkeys(one["attack"] for one in cells))
    rows = list(dict.fromkeys((one[KEY], one["defense"]) for one in cells))
    several = len({defense for _, defense in rows}) > 1
    texts = {
        (one[KEY], one["defense"], one["attack"]): known.format_estimate(known.estimate(one["final_accuracy"]))
        for one in cells
    }
    head = ["statistics", *(["rule on updates"] if several else []), *(f"`{one}`" for one in attacks)]
    lines = [
        [f"`{fate}`", *([f"`{defense}`"] if several else []), *(texts[fate, defense, one] for one in attacks)]
        for fate, defense in rows
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *lines))


def tables(kept: Mapping[str, Any]) -> dict[str, str]:
    """The table of each run that has one, by its name."""
    apart = {run for runs in APART.values() for run in runs}
    return {
        name: fates_table(name, kept) if "fate" in figures else _other_table(figures)
        for name, figures in kept.items()
        if name not in apart
    }


def _other_table(figures: Mapping[str, Any]) -> str:
    return lies_table(figures) if KEY in figures["cells"][0] else accuracy_table(figures)


def keep(run: Run) -> dict[str, Any]:
    """What is kept of a run: as `condense`, and the fate of a run that compares fates."""
    figures = condense(run)
    if any("compared" in cell for cell in figures["cells"]):
        record = next(iter(run.ran.values()))
        figures["fate"] = record["result"]["statistics"]["fate"]
    return figures


def main(paths: Sequence[str]) -> None:
    """Keep the figures of these run folders, beside what the file holds of others."""
    kept = json.loads(KEPT_FILE.read_text()) if KEPT_FILE.is_file() else {}
    for run in map(Run.open, paths):
        kept[run.name] = keep(run)
    for name, table in tables(kept).items():
        sys.stdout.write(f"{name}: {kept[name]['cpu_minutes']} CPU minutes\n\n{table}\n\n")
    KEPT_FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
