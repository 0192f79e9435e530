"""BASGD against its paper as a plain loop, and what its buffers are for: whoever answers quickly still spoils one row only."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from fedguard.simulated.barriers import Barrier, covers
from tests.simulated.scenes import STRAGGLER, releases
from tests.systems.scenes import cell, models, off, reports, scene
from tests.systems.test_asynchronous import CLOSE, QUICK, UNEVEN, course


@pytest.mark.parametrize("buffers", [1, 3, 10])
def test_an_aggregate_takes_place_as_soon_as_no_buffer_is_empty(buffers):
    found = releases(STRAGGLER, covers(buffers), 10, 200)
    for release in found:
        into = [one.client % buffers for one in release.arrivals]
        assert set(into) == set(range(buffers))
        assert into.count(into[-1]) == 1  # it was the last that was missing
    more = sum(len(release.arrivals) for release in found) / 200
    assert more == 1 if buffers == 1 else more > buffers


def test_without_buffers_any_devices_will_do():
    assert Barrier(count=3, fresh=False).are_buffers_full([7, 7, 7])
    assert not covers(3).are_buffers_full([0, 1, 3, 4]) and covers(3).are_buffers_full([0, 1, 5])


def loop(made, setup, count: int, buffers: int, rule) -> list[torch.Tensor]:
    """Yang & Li, Algorithm 2: h_b <- the mean of what came into buffer b; w <- w + rule(h)."""
    kept = [setup.task.initial_model(setup.rng.child("model"))]
    for release in islice(course(made, setup), count):
        into: dict[int, list[torch.Tensor]] = {buffer: [] for buffer in range(buffers)}
        for one in release.arrivals:
            out, rng = torch.empty(1, setup.task.dim), setup.rng.child("round", one.turn)
            setup.task.local_updates(kept[one.version], [one.client], setup.local_plan, rng, out)
            into[one.client % buffers].append(out[0].double())
        means = torch.stack([sum(rows) / len(rows) for rows in into.values()])
        kept.append((kept[-1].double() + rule(means)).float())
    return kept


RULES = {"mean": lambda rows: rows.mean(0), "median": lambda rows: rows.quantile(0.5, dim=0)}


@pytest.mark.parametrize("defense", RULES)
@pytest.mark.parametrize("buffers", [3, 4])
def test_basgd_is_its_papers(buffers, defense):
    settings: dict[str, Any] = {"network": UNEVEN, "clients": {"total": 8}, "defense": defense}
    made, setup = scene(f"basgd(buffers={buffers})", 1, **settings)
    found = list(made.architecture.run(setup))
    theirs = loop(made, setup, sum(one.moment.releases for one in found), buffers, RULES[defense])
    assert (found[-1].model - theirs[-1]).norm() / (theirs[-1] - theirs[0]).norm() < CLOSE
    rows = [row for one in found for row in one.behind]
    assert all(len({client % buffers for client in row}) == 1 for row in rows)
    assert any(len(row) > 1 for row in rows)
    assert all(len(one.clients) >= 8 for one in found)  # a round holds the updates of one of server
    other = loop(made, setup, sum(one.moment.releases for one in found), buffers, lambda rows: rows[:-1].mean(0))
    assert (other[-1] - theirs[-1]).norm() > 100 * CLOSE


@pytest.mark.parametrize("defense", ["mean", "median"])
def test_a_buffer_for_each_is_the_server_where_all_are_equally_fast(defense):
    assert off(models("basgd(buffers=6)", defense=defense), models(defense=defense)) < CLOSE


FLOOD: dict[str, Any] = {"network": QUICK, "clients": {"total": 10, "malicious": 2}, "defense": "median", "attack": "sign_flip(scale=3)"}  # fmt: skip


def test_quick_malicious_clients_spoil_one_buffer_each_and_outvote_nobody():
    """They answer at once, so most updates are theirs."""
    found = list(reports("basgd(buffers=5)", 2, **FLOOD))
    sent = [client in one.malicious for one in found for client in one.clients]
    assert sum(sent) > 0.6 * len(sent)
    assert all(one.moment.outvoted == 0 for one in found)
    assert {one.assumed_f for one in found} <= {2 * one.moment.releases for one in found}
    flooded = list(reports("fedbuff(buffer=5)", 2, **FLOOD))
    assert sum(one.moment.outvoted for one in flooded) > 0.5 * sum(one.moment.releases for one in flooded)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_median_of_buffers_holds_where_one_of_a_common_buffer_falls(seed):
    training = {"rounds": 16}
    *_, held = reports("basgd(buffers=5)", seed, **FLOOD, training=training)
    *_, fell = reports("fedbuff(buffer=5)", seed, **FLOOD, training=training)
    assert held.evaluation.accuracy > 0.6 > 0.3 > fell.evaluation.accuracy


def test_dropped_updates_are_held_against_those_who_sent_them():
    settings = {**FLOOD, "attack": "nan", "network": UNEVEN}
    found = [one for one in reports("basgd(buffers=10)", 2, **settings) if one.moment.releases == 1]
    assert {len(set(one.not_finite)) for one in found} == {2}
    for one in found:
        assert one.assumed_f == 0 and len(one.behind) == 8
        assert not any(one.malicious & set(row) for row in one.behind)


@pytest.mark.parametrize(
    ("changes", "why", "remedy"),
    [
        ({"architecture": "basgd(buffers=7)"}, "stays empty for ever", "Lower buffers to 6."),
        ({"defense": "median", "attack": "ipm", "clients": {"malicious": 2}, "architecture": "basgd(buffers=4)"}, "n >= 2f + 1, with f = 2", "raise their number."),
        ({"defense": "foolsgold"}, "foolsgold needs each client's update", "Use server"),
        ({"defense": "weighted_mean"}, "a client may be behind two", "Use server."),
        ({"defense": "asyncfilter"}, "no update has an age of its own", "fedbuff"),
        ({"protocol": {"secure_aggregation": "full"}}, "adds up what comes into each buffer", "Set secure_aggregation: none, or use fedbuff."),
    ],
)  # fmt: skip
def test_it_is_refused_in_one_line(changes, why, remedy):
    reasons = cell(**{"architecture": "basgd", **changes}).verdict.reasons
    (reason,) = (reason for reason in reasons if why in reason)
    assert remedy in reason and "\n" not in reason
