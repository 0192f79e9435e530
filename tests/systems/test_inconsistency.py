"""Does it matter that updates are old? At equal numbers of updates: not where data are alike, and much where they are not."""

from __future__ import annotations

import pytest

import fedguard as fg
from tests.root import ROOT

SUITE = ROOT / "examples" / "inconsistency.yaml"


def final(seeds: int, rounds: int, tmp_path) -> dict[tuple[str, str], float]:
    """Final accuracy by partition and by whether anybody waits, mean over seeds."""
    settings = [
        f"seeds={seeds}",
        f"training.rounds={rounds}",
        "matrix.architecture=[server, {name: parameter_server, consistency: eventual}]",
    ]
    run = fg.run(SUITE, store=tmp_path, overrides=settings, jobs=1)
    assert not run.with_status("failed") and not run.with_status("refused")
    assert len({record["result"]["rounds"]["updates"] for record in run.records.values()}) == 1
    found: dict[tuple[str, str], list[float]] = {}
    for row in run.rows("final_accuracy"):
        found.setdefault((row["task.partition"], row["architecture"]), []).append(row["final_accuracy"])
    return {key: sum(values) / len(values) for key, values in found.items()}


@pytest.mark.parametrize(("seeds", "rounds"), [(1, 20), pytest.param(3, 40, marks=pytest.mark.slow)])
def test_old_updates_cost_nothing_where_data_are_alike_and_much_where_they_are_sorted_by_label(seeds, rounds, tmp_path):
    found = final(seeds, rounds, tmp_path)
    loss = {
        partition: found[partition, "server"]
        - next(v for (p, a), v in found.items() if p == partition and a != "server")
        for partition in ("iid", "label_sorted")
    }
    assert abs(loss["iid"]) < 0.03
    assert loss["label_sorted"] > 0.05
