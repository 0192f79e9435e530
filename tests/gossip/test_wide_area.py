"""Far links that are used less often and for less, beside plain loops over links; and nodes with unlike numbers of examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.parcels import largest
from tests.gossip.test_ako import Exact
from tests.gossip.test_gossip_formulae import DIM, EXACT, NODES, ROUNDS, ours
from tests.systems.scenes import cell, models, off, reports, scene

ROUNDING = 1e-5
COUNTS = np.array([1.0, 2, 3, 5, 8, 13, 21, 34])


class Sites(Exact):
    """Three sites, of 3, 3 and 2 nodes, with unlike numbers of examples."""

    def __init__(self, sites: int = 3) -> None:
        super().__init__("complete")
        from fedguard.architectures.gossip.wide_area import WideArea

        self.topology = WideArea(sites=sites).topology(NODES)
        self.samples = COUNTS


def paper(nodes: Sites, site: list[int], every: int, most: int, counts: np.ndarray) -> np.ndarray:
    """Each link by itself, with what has not gone through it yet."""
    x, found = nodes.start.numpy().copy(), []
    unsent = {(j, i): np.zeros(DIM) for j in range(NODES) for i in range(NODES) if site[i] != site[j]}
    scale = [NODES * count / counts.sum() for count in counts]
    for turn in range(ROUNDS):
        made = [nodes.gradient(turn, j, x[j]) for j in range(NODES)]
        for i in range(NODES):
            for j in range(NODES):
                if site[i] == site[j]:
                    x[i] += scale[j] * made[j] / NODES
                    continue
                unsent[j, i] += made[j]
                if (turn + 1) % every == 0:
                    for c in sorted(range(DIM), key=lambda c: -abs(unsent[j, i][c]))[:most]:
                        x[i, c] += scale[j] * unsent[j, i][c] / NODES
                        unsent[j, i][c] = 0
        found.append(x.copy())
    return np.array(found)


@pytest.mark.parametrize(("every", "top", "most"), [(1, 1.0, 5), (3, 1.0, 5), (1, 0.4, 2), (3, 0.5, 3), (2, 0.01, 1)])
@pytest.mark.parametrize("by_examples", [True, False])
def test_it_is_its_formula_link_by_link(every, top, most, by_examples):
    theirs = paper(Sites(), [0, 0, 0, 1, 1, 1, 2, 2], every, most, COUNTS if by_examples else np.ones(NODES))
    spec = f"wide_area(sites=3, every={every}, top={top}, by_examples={by_examples})"
    assert np.abs(ours(spec, Sites()) - theirs).max() < EXACT * np.abs(theirs).max()


@pytest.mark.parametrize("sites", [1, 3, 8])
def test_whole_vectors_in_each_round_are_the_synchronous_server_that_weighs_by_examples(sites):
    nodes = Sites(sites)
    x = nodes.start.numpy()[0]
    for turn in range(ROUNDS):
        x = x + sum(COUNTS[i] * nodes.gradient(turn, i, x) for i in range(NODES)) / COUNTS.sum()
    end = ours(f"wide_area(sites={sites}, every=1, top=1)", Sites(sites))[-1]
    assert np.abs(end - x).max() < EXACT * np.abs(x - 3.0).max()


UNLIKE: dict[str, Any] = {"task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}}


@pytest.mark.parametrize(
    ("sites", "settings"),
    [
        (2, {}),
        (2, {"training": {"worker_momentum": 0.5}}),
        (2, {"attack": "label_flip", "clients": {"malicious": 2}}),
        (1, {"attack": "sign_flip", "clients": {"malicious": 2}}),  # of two sites each would hear another lie
        (1, {"attack": "inflated_samples(factor=20)", "clients": {"malicious": 2}}),
    ],
)
@pytest.mark.parametrize("by_examples", [True, False])
def test_real_nodes_are_the_server_with_lies_about_examples_and_updates(sites, settings, by_examples):
    whole = {"name": "wide_area", "sites": sites, "every": 1, "top": 1.0, "by_examples": by_examples}
    theirs = models(defense="weighted_mean" if by_examples else "mean", **UNLIKE, **settings)
    assert off(models(whole, **UNLIKE, **settings), theirs) < ROUNDING


def test_unlike_numbers_of_examples_bias_the_mean_gradient_where_they_do_not_count():
    """A step on all examples of 16 nodes with unlike data, beside one on all examples at one place."""
    step = {"training": {"rounds": 1, "local_steps": 1, "batch_size": 2000}}
    everything = models(clients={"total": 1}, **step)
    found = {
        by_examples: models(
            {"name": "wide_area", "every": 1, "top": 1.0, "by_examples": by_examples},
            clients={"total": 16},
            **UNLIKE,
            **step,
        )
        for by_examples in (True, False)
    }
    assert off(found[True], everything) < ROUNDING
    assert off(found[False], everything) > 0.2


@pytest.mark.parametrize(
    ("dim", "share", "count"), [(10, 0.3, 3), (10, 0.31, 4), (100, 0.07, 7), (10, 0.001, 1), (10, 1, 10)]
)
def test_a_sparse_parcel_holds_the_largest_coordinates(dim, share, count):
    rows = torch.randn(4, dim, generator=torch.Generator().manual_seed(dim))
    parcel = largest(dim, share)
    assert parcel.size == (4 * dim if count == dim else 8 * count)
    for row, packed in zip(rows.tolist(), parcel.packed(rows).tolist(), strict=True):
        kept = sorted(range(dim), key=lambda c: -abs(row[c]))[:count]
        assert packed == [row[c] if c in kept else 0 for c in range(dim)]


def test_bytes_within_sites_and_between_them():
    """Two sites of four: three whole vectors a round from each, and 65 of 650 coordinates to four others in each fourth round."""
    *_, last = reports({"name": "wide_area", "every": 4, "top": 0.1}, clients={"total": 8}, training={"rounds": 9})
    near, far = 9 * 8 * 3, 2 * 8 * 4
    assert last.nodes.messages == near + far
    assert last.moment.bytes_up == last.moment.bytes_down == near * 2600 + far * 65 * 8


def test_a_site_waits_for_the_others_only_when_it_hears_them():
    """A second for each message; computing takes no time. The third round alone goes beyond the sites."""
    seconds = [report.moment.seconds for report in reports({"name": "wide_area", "every": 3})]
    assert seconds == pytest.approx([1, 2, 4, 5])


def test_sites_agree_within_and_part_between_exchanges():
    made, setup = scene({"name": "wide_area", "sites": 2, "every": 2, "top": 1.0}, task=UNLIKE["task"])
    apart = [report.nodes.consensus for report in made.architecture.run(setup)]
    assert apart[0] > 1e-3 and apart[2] > 1e-3
    assert apart[1] < 1e-5 and apart[3] < 1e-5


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"defense": "median"}, "unlike ages"),
    ({}, {"defense": "nnm >> mean"}, "unlike ages"),
    ({}, {"defense": "weighted_mean"}, "unlike ages"),
    ({"graph": "ring"}, {}, "Leave out graph and weight"),
    ({"weight": 0.5}, {}, "Leave out graph and weight"),
    ({"sites": 7}, {}, "expected a client or more at each; got 7 sites, 6 clients"),
    (
        {},
        {
            "protocol": {
                "privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "sample_rate": 0.2}
            }
        },
        "Set by_examples: false",
    ),
]


@pytest.mark.parametrize(("words", "settings", "why"), REFUSED)
def test_what_is_refused(words, settings, why):
    assert why in " ".join(cell({"name": "wide_area", **words}, **settings).verdict.reasons)
