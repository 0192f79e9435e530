"""A clip that shrinks with age: against a plain loop, by what it bounds, and in a training."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

import pytest

from tests.systems.scenes import cell, reports
from tests.systems.test_asynchronous import UNEVEN
from tests.systems.test_rules_in_time import length, played, stream


def plain(releases: list[list[dict]], bound: float | None, slope: float, window: int) -> list[list[float]]:
    """One aggregate after the other; lengths as they were before they were scaled for their age."""
    seen: list[float] = []
    found = []
    for rows in releases:
        lengths = [length(row["update"], [0.0] * 5) for row in rows]
        seen += [one for _, one in sorted(zip((row["at"] for row in rows), lengths, strict=True))]
        seen = seen[-max(window, len(rows)) :]
        limit = median(seen) if bound is None else bound
        found.append(
            [
                min(1.0, limit / (1 + row["staleness"]) ** slope / one) / len(rows)
                for row, one in zip(rows, lengths, strict=True)
            ]
        )
    return found


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(("bound", "slope", "window"), [(None, 0.5, 50), (None, 1.0, 3), (0.4, 0.5, 50), (1.5, 2.0, 5)])
def test_it_is_a_clip_at_the_bound_times_the_age(rows, bound, slope, window):
    releases = stream(12, 5, rows=rows, seed=rows)
    found = played(f"staleness_clipping(bound={bound}, slope={slope}, window={window}) >> mean", releases)
    expected = plain(releases, bound, slope, window)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    other = plain(releases, bound, slope + 0.5, window)
    assert any(ours != pytest.approx(theirs, rel=1e-3) for ours, theirs in zip(expected, other, strict=True))


def test_what_is_long_moves_the_model_by_no_more_than_its_age_allows():
    row = {"client": 0, "start": [0.0] * 5, "update": [1e6, 0.0, 0.0, 0.0, 0.0], "at": 0, "scale": 1.0}
    moved = []
    for age in (0, 1, 3, 15):
        ((weight,),) = played("staleness_clipping(bound=0.5) >> mean", [[{**row, "staleness": age}]])
        moved.append(weight * 1e6)
    assert moved == pytest.approx([0.5 / math.sqrt(1 + age) for age in (0, 1, 3, 15)])
    assert all(after < before for before, after in pairwise(moved))


def test_a_short_update_is_kept_whole_however_old():
    row = {
        "client": 0,
        "start": [0.0] * 5,
        "update": [0.1, 0.0, 0.0, 0.0, 0.0],
        "at": 0,
        "scale": 0.25,
        "staleness": 15,
    }
    assert played("staleness_clipping(bound=0.5) >> mean", [[row]]) == [[1.0]]


def test_at_slope_zero_it_is_a_clip_in_a_training_of_unscaled_buffers():
    settings = {"network": UNEVEN, "training": {"rounds": 2}}
    models = [
        list(reports("fedbuff(buffer=4, scaled=False)", defense=f"{rule} >> mean", **settings))[-1].model
        for rule in ("clip(bound=0.2)", "staleness_clipping(bound=0.2, slope=0)", "staleness_clipping(bound=0.2)")
    ]
    assert models[0].equal(models[1]) and not models[0].allclose(models[2], atol=1e-3)


def test_it_is_refused_where_no_update_has_an_age_and_behind_masks():
    (reason,) = cell("server", defense="staleness_clipping >> mean").verdict.reasons
    assert "here no update has an age of its own" in reason and "fedbuff" in reason
    masked = cell("fedbuff(buffer=5)", defense="staleness_clipping >> mean", protocol={"secure_aggregation": "full"})
    assert any("hides it" in reason for reason in masked.verdict.reasons)


@pytest.mark.slow
def test_it_bounds_a_reversed_mean_and_costs_what_is_old():
    """It bounds as `clip` does, and takes from honest old updates, too: no gain over one bound for all where the quick attack."""

    def final(defense: str, attack: str, seed: int, system: str) -> float:
        crowd = {"network": UNEVEN, "clients": {"total": 10, "malicious": 2}, "evaluation": {"every": 25}}
        training = {"rounds": 25, "batch_size": 200, "lr": 0.5}
        *_, last = reports(system, seed, defense=defense, attack=attack, training=training, **crowd)
        return last.evaluation.accuracy

    buffer, eventual, reverse = "fedbuff(buffer=10)", "parameter_server(consistency='eventual')", "sign_flip(scale=5)"
    assert final("mean", reverse, 1, buffer) < 0.2
    assert final("staleness_clipping >> mean", reverse, 1, buffer) > 0.75
    assert final("clip >> mean", reverse, 1, buffer) > 0.8
    assert final("mean", "none", 1, eventual) - final("staleness_clipping(slope=1) >> mean", "none", 1, eventual) > 0.15
