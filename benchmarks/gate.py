"""How often the gate calls a change worse that is none, and how often it sees one that is.

The judging code itself (`fedguard.bench.gate.judge`), with drawn figures in the place of trainings. 60 cells, 3 seeds of the
suite, 8 fresh ones, a margin of 2 points. A figure differs between two runs with the same seed by normal noise whose standard
deviation is said in points: a change that is none still moves the order of sums or draws. 2 points is the design's noise.
"Ruined" is the share of trainings that lose 50 points besides, in either run, as one that collapses now and then does.

The naive rule calls it worse if any cell's mean drop over the suite's seeds exceeds the margin. "By the suite, any size" is the
test over the whole suite without its other condition, a mean drop above a quarter of the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from measure import arguments, keep
from numpy.typing import NDArray

from fedguard.bench.gate.baseline import Baseline
from fedguard.bench.gate.judge import judge
from fedguard.bench.gate.snapshot import Snapshot, SnapshotCell, SnapshotPosition
from fedguard.bench.gate.stages import BROAD_LEVEL
from fedguard.bench.gate.verdict import GateVerdict
from fedguard.config.schema import GateSection
from fedguard.rng import Rng

CELLS, MARGIN = 60, 0.02
SEEDS, FRESH = tuple(range(3)), tuple(range(20_000, 20_008))

#: Standard deviations of a difference, in points: two runs that each have noise of 2 points differ by 2.83, if nothing is
#: shared; pairing takes away what the seed brings to both. With each, the share of ruined trainings.
NOISES = ((1.5, 0.0), (2.0, 0.0), (2.83, 0.0), (2.0, 0.05))
RUIN = 0.5
#: What a change does: by how many points it lowers one cell, and all cells.
CHANGES = {
    "none": (0.0, 0.0),
    "10 points in one cell": (0.1, 0.0),
    "6 points in one cell": (0.06, 0.0),
    "4 points in one cell": (0.04, 0.0),
    "1 point in every cell": (0.0, 0.01),
    "0.4 points in every cell": (0.0, 0.004),
}


def snapshot(values: NDArray[np.float64], seeds: Sequence[int]) -> Snapshot:
    """A run whose cells have these accuracies, ``[cells, seeds]``."""
    cells = {
        f"{number:012d}": SnapshotCell.model_construct(
            config={},
            status="ok",
            reason=None,
            data=None,
            values={"final_accuracy": dict(zip(seeds, row, strict=True))},
        )
        for number, row in enumerate(values.tolist())
    }
    return Snapshot.model_construct(
        suite="drawn",
        fedguard="",
        results_version=0,
        commit=None,
        code={},
        environment={},
        gate=GateSection(audit=False),
        seeds=SEEDS,
        positions=tuple(
            SnapshotPosition.model_construct(swept={"attack": "none", "defense": key}, cell=key) for key in cells
        ),
        cells=cells,
    )


def draw(number: int, noise: float, ruined: float, change: str) -> tuple[GateVerdict, bool, int]:
    """One change: the gate's verdict, that of the naive rule, and how many cells were flagged."""
    rng = Rng(number).child("gate", change, str(noise), str(ruined)).numpy()
    one, every = CHANGES[change]
    before = 0.8 + 0.05 * rng.standard_normal((CELLS, len(SEEDS) + len(FRESH)))
    after = before - every + noise / 100 * rng.standard_normal(before.shape)
    after[0] -= one
    before = before - RUIN * (rng.random(before.shape) < ruined)
    after = after - RUIN * (rng.random(after.shape) < ruined)
    flagged: list[str] = []

    def confirm(cells: Sequence[str], seeds: Sequence[int]) -> Snapshot:
        flagged.extend(cells)
        return snapshot(after[:, len(SEEDS) :], seeds)

    base = Baseline(created=0.0, confirmation=FRESH, snapshot=snapshot(before, SEEDS + FRESH))
    run = snapshot(after[:, : len(SEEDS)], SEEDS)
    verdict = judge(run, base, confirm=confirm, now=0.0)
    drops = (before - after)[:, : len(SEEDS)].mean(1)
    return verdict, bool((drops > MARGIN).any()), len(flagged)


def measure(noise: float, ruined: float, change: str, changes: int) -> dict[str, Any]:
    """Shares of changes, over ``changes`` of them."""
    found = [draw(number, noise, ruined, change) for number in range(changes)]
    judged = [verdict for verdict, _, _ in found]
    cell = "0" * 12
    figure = {
        "noise": noise,
        "ruined": ruined,
        "change": change,
        "gate": float(np.mean([verdict.exit_code == 3 for verdict in judged])),
        "by cells": float(np.mean([verdict.counts["regressed"] > 0 for verdict in judged])),
        "by the cell": float(np.mean([_named(verdict, cell) for verdict in judged])),
        "by the suite": float(
            np.mean([any(one.verdict == "regressed" for one in verdict.broad) for verdict in judged])
        ),
        "by the suite, any size": float(
            np.mean([any((one.p_value or 1) < BROAD_LEVEL for one in verdict.broad) for verdict in judged])
        ),
        "naive": float(np.mean([naive for _, naive, _ in found])),
        "cells run again": float(np.mean([count for _, _, count in found])),
        "changes": changes,
    }
    print(
        f"{change:26} noise {noise:g}, ruined {ruined:g}: "
        + "  ".join(f"{key} {figure[key]:.3g}" for key in list(figure)[3:]),
        flush=True,
    )
    return figure


def _named(verdict: GateVerdict, cell: str) -> bool:
    return any(one.cell == cell and one.verdict == "regressed" for one in verdict.judgments)


def main() -> None:
    options = arguments(__doc__ or "")
    changes = 10 if options.smoke else 1000
    keep(options.json, [measure(*noise, change, changes) for change in CHANGES for noise in NOISES])


if __name__ == "__main__":
    main()
