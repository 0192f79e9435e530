"""Finished sums that change on their way: nodes whose models part, and a hash that tells."""

from __future__ import annotations

import pytest
import torch

from fedguard.architectures.systems.sums import SplitRun
from tests.systems.scenes import cell, models, reports, scene

ONE = {"attack": "split_brain", "clients": {"malicious": 1}, "training": {"rounds": 1}}
LONG = {"attack": "split_brain", "clients": {"malicious": 1}, "training": {"rounds": 10}}


def run_of(system, seed=0, **settings):
    """The run of a training that is over, its wires, and its reports."""
    made, setup = scene(system, seed, **settings)
    run = made.architecture.start(setup)
    wires = []
    received = run.receive_updates

    def kept(sent):
        wires.append((sent, sent.updates.clone()))
        return received(sent)

    run.receive_updates = kept
    return run, wires, list(run.reports()), setup


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("malicious", [1, 2])
def test_in_a_ring_who_comes_after_a_liar_has_another_chunk(seed, malicious):
    """Chunk c is finished at node c - 1 and handed on to c, c + 1, ... c - 2: a plain walk."""
    run, ((sent, updates),), _, setup = run_of("all_reduce", seed, **ONE | {"clients": {"malicious": malicious}})
    n, start = 6, setup.task.initial_model(setup.rng.child("model"))
    honest = updates[[row for row, node in enumerate(sent.senders) if node not in setup.malicious]]
    lie = -2 * n / malicious * honest.mean(0)
    sizes = [650 // n + (chunk < 650 % n) for chunk in range(n)]
    for chunk in range(n):
        cut = slice(sum(sizes[:chunk]), sum(sizes[: chunk + 1]))
        value = updates[:, cut].sum(0)
        for hop in range(n):
            node = (chunk - 1 + hop) % n
            assert torch.allclose(run.starts[node][cut] - start[cut], value / n, atol=1e-6), (chunk, node)
            value = value + lie[cut] * (node in setup.malicious)


def test_honest_nodes_end_with_different_models_and_none_of_them_learns():
    for system in ("all_reduce", "all_reduce(topology='hierarchical', group=3)"):
        *_, last = reports(system, **LONG)
        *_, clean = reports(system, **LONG | {"attack": "none"})
        assert clean.evaluation.accuracy > 0.8 and clean.nodes is None
        assert last.nodes.consensus > 1 and max(last.nodes.accuracy) < 0.5
        assert len(last.nodes.honest) == 5


def test_each_node_trains_from_its_own_model():
    run, wires, _, setup = run_of("all_reduce", **ONE)
    own = run.starts.clone()
    _, (_, (sent, updates)), _, _ = run_of("all_reduce", **ONE | {"training": {"rounds": 2}})
    for node in set(range(6)) - setup.malicious:
        out = torch.empty(1, 650)
        setup.task.local_updates(own[node], (node,), setup.cell.plan, setup.rng.child("round", 2), out)
        assert torch.allclose(updates[sent.senders.index(node)], out[0], atol=1e-6)


def test_a_hash_tells_that_sums_differ_and_nobody_moves():
    found = list(reports("all_reduce(hashes=True)", **LONG))
    assert {report.abandoned for report in found} == {"the nodes' sums differ, as their hashes tell"}
    assert torch.equal(found[-1].model, models("all_reduce")[0])
    assert found[-1].nodes.consensus < 1e-6 and not any(report.banned for report in found)


@pytest.mark.parametrize("system", ["ring", "hierarchical", "reduce_broadcast"])
def test_where_nobody_lies_all_hashes_are_one(system):
    """Whatever the order of additions: each chunk is added up once, and handed on as it is. A hash costs 32 bytes to each."""
    group = {"group": 3} if system == "hierarchical" else {}
    plain, hashed = ({"name": "all_reduce", "topology": system, **group, **words} for words in ({}, {"hashes": True}))
    assert torch.equal(models(hashed), models(plain))
    bytes_up = [list(reports(one, training={"rounds": 1}))[-1].moment.bytes_up for one in (hashed, plain)]
    assert bytes_up[0] - bytes_up[1] == 6 * 5 * 32


def test_without_lies_nodes_of_their_own_are_the_nodes_of_one_model(monkeypatch):
    """The run that keeps a model for each node, with momentum at the server and at the client, and examples that count."""
    from fedguard.attacks.poisoning.split_brain import SplitBrain

    monkeypatch.setattr(SplitBrain, "hand_on", lambda self, nothing, view, crafted: nothing)
    settings = {
        "training": {"server_momentum": 0.5, "worker_momentum": 0.5, "rounds": 4},
        "task": {"partition": {"kind": "dirichlet", "alpha": 0.3}},
        "defense": "weighted_mean",
    }
    run, _, found, _ = run_of("all_reduce", **ONE | settings)
    assert isinstance(run, SplitRun)
    plain = models("all_reduce", **settings)
    for node in range(6):
        assert torch.allclose(run.starts[node], plain[-1], atol=1e-6)
    assert found[-1].nodes.consensus < 1e-5


def test_what_is_not_finite_is_no_sum(monkeypatch):
    from fedguard.attacks.poisoning.split_brain import SplitBrain

    monkeypatch.setattr(SplitBrain, "hand_on", lambda self, nothing, view, crafted: torch.full_like(crafted, torch.nan))
    (report,) = reports("all_reduce", **ONE)
    assert report.abandoned == "a node handed on a sum that was not finite"


@pytest.mark.parametrize(
    "system",
    [
        "server",
        "btard",
        "all_reduce(masks=20)",
        "all_reduce(topology='all_to_all')",
        "all_reduce(topology='reduce_broadcast')",
    ],
)
def test_it_is_refused_where_nobody_hands_sums_on(system):
    reasons = cell(system, attack="split_brain", clients={"malicious": 1}).verdict.reasons
    assert any("lies about the finished sums that its nodes hand on" in reason for reason in reasons)


def test_hashes_of_what_nobody_hands_on_are_refused():
    (reason,) = cell("all_reduce(topology='all_to_all', hashes=True)").verdict.reasons
    assert "Leave out hashes" in reason


def test_hashes_that_are_off_are_no_part_of_a_cell():
    assert cell("all_reduce(hashes=False)").id == cell("all_reduce").id != cell("all_reduce(hashes=True)").id
    assert cell("btard(sums=False)").id == cell("btard").id != cell("btard(sums=True)").id
