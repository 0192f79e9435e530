"""Breakdown in weight, as the records of a run hold it: which sites can together move a rule without bound, and each alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run


def weight_breakdowns(run: Run) -> list[dict[str, Any]]:
    """One row for each defense and profile of weights: defense, f, shares, least, sites and pull; empty if none was measured.

    Keys as in `fedguard.bench.records.schema.result.WeightBreakdownRecord`.
    """
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for swept, found in _list_found(run):
        place = (swept["defense"], found["f"], tuple(round(share, 4) for share in found["shares"]))
        kept = {key: value for key, value in found.items() if key != "evaluations"}
        rows.setdefault(place, {"defense": swept["defense"], **kept})
    return list(rows.values())


def _list_found(run: Run) -> Iterator[tuple[Any, Any]]:
    for swept, record in run.trials():
        if (found := record["result"].get("weight_breakdown")) is not None:
            yield swept, found
