"""Ako: one block of what is unsent in each round, beside the loops of its paper, by its bytes, and under lies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import Parcel, block
from fedguard.contracts import PoisonAttack, Sight
from tests.gossip.test_gossip_formulae import DIM, EXACT, NODES, ROUNDS, STEP, Quadratics, ours, server
from tests.systems.scenes import cell, models, off, reports, scene

ROUNDING = 1e-5


class Exact(Quadratics):
    """Nodes in float64 that hear parcels, too: each a plain loop over who hears whom."""

    def of_parcels(self, updates, parcel: Parcel, *, models, matrix=None, queued=False):
        assert torch.equal(updates, parcel.packed(updates))
        matrix = self.matrix if matrix is None else matrix
        self.exchanges += 1
        rows = [sum(matrix[i, j] * updates[j] for j in range(NODES)) for i in range(NODES)]
        return torch.stack(rows)


def paper(nodes: Exact, parts: int) -> np.ndarray:
    """Each worker at once makes 1/n of its own update, and sends each other one the last updates of a block."""
    x, made, found = nodes.start.numpy().copy(), [], []
    ends = np.cumsum([len(one) for one in np.array_split(np.arange(DIM), parts)])
    for turn in range(ROUNDS):
        made.append([nodes.gradient(turn, i, x[i]) for i in range(NODES)])
        x = x + np.array(made[-1]) / NODES
        number = turn % parts
        for c in range(ends[number - 1] if number else 0, ends[number]):
            for i in range(NODES):
                for j in range(NODES):
                    if j != i:
                        x[i, c] += sum(updates[j][c] for updates in made[-parts:]) / NODES
        found.append(x.copy())
    return np.array(found)


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 7])
def test_it_is_the_loop_of_its_paper(parts):
    theirs = paper(Exact("complete"), parts)
    assert np.abs(ours(f"ako(parts={parts})", Exact("complete")) - theirs).max() < EXACT * np.abs(theirs).max()


class Overheard(Exact):
    """Writes down what is trained and what is sent."""

    def __init__(self) -> None:
        super().__init__("complete")
        self.trained: list[torch.Tensor] = []
        self.sent: list[torch.Tensor] = []

    def updates(self, models):
        self.trained.append(super().updates(models))
        return self.trained[-1]

    def of_parcels(self, updates, parcel, **others):
        self.sent.append(updates)
        return super().of_parcels(updates, parcel, **others)


def test_what_a_rule_judges_is_as_long_as_an_update():
    """The mean of those that a block is the sum of: one in the first round, then two, then three."""
    nodes = Overheard()
    ours("ako(parts=3)", nodes)
    for turn, sent in enumerate(nodes.sent):
        last = nodes.trained[max(0, turn - 2) : turn + 1]
        want = block(DIM, 3, turn % 3).packed(sum(last) / len(last))
        assert torch.allclose(sent, want, rtol=0, atol=EXACT)


def test_one_block_is_the_synchronous_server():
    theirs = server(Exact("complete"))
    end = ours("ako(parts=1)", Exact("complete"))[-1]
    assert np.abs(end - theirs[-1]).max() < EXACT * np.abs(theirs[-1] - 3.0).max()
    assert np.abs(ours("ako(parts=2)", Exact("complete"))[-1] - theirs[-1]).max() > STEP / 100


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, ROUNDING),
        ({"training": {"worker_momentum": 0.5}}, ROUNDING),
        ({"attack": "label_flip", "clients": {"malicious": 1}}, ROUNDING),
        ({"defense": "median"}, 1e-4),
        ({"attack": "sign_flip", "clients": {"total": 7, "malicious": 2}, "defense": "trimmed_mean"}, 1e-4),
    ],
)
def test_real_nodes_with_one_block_are_the_server(settings, most):
    assert off(models({"name": "ako", "parts": 1}, **settings), models(**settings)) < most


@pytest.mark.parametrize(("dim", "parts"), [(10, 1), (10, 3), (650, 7), (3, 5)])
def test_blocks_hold_each_coordinate_once_and_differ_by_one_at_most(dim, parts):
    rows = torch.arange(1.0, dim + 1).repeat(2, 1)
    blocks = [block(dim, parts, number) for number in range(parts)]
    assert torch.equal(sum(one.packed(rows) for one in blocks), rows)
    sizes = [one.size for one in blocks]
    assert sizes == [4 * int((one.packed(rows)[0] != 0).sum()) for one in blocks]
    assert max(sizes) - min(sizes) <= 4


@pytest.mark.parametrize("parts", [1, 2, 5, 10])
def test_a_step_sends_one_of_so_many_parts_of_a_full_exchange(parts):
    """Eight workers, 650 parameters of four bytes: each sends 18.2, 9.1, 3.64, 1.82 kB a step to its seven peers."""
    steps = 10
    *_, last = reports({"name": "ako", "parts": parts}, clients={"total": 8}, training={"rounds": steps})
    assert last.moment.bytes_up == last.moment.bytes_down
    assert last.moment.bytes_up / steps / 8 == 7 * 650 * 4 / parts
    assert last.nodes.messages == steps * 8 * 7


def test_a_message_takes_as_long_as_its_block():
    """Seven blocks of 2,600 / p bytes over a link of 100 bytes a second, and a second on the way."""
    slow = {"compute": {"seconds": 0}, "link": {"latency": 1, "up": 100}}
    for parts in (1, 10):
        *_, last = reports({"name": "ako", "parts": parts}, clients={"total": 8}, network=slow)
        assert last.moment.seconds == pytest.approx(4 * (1 + 7 * 26 / parts))


class Everywhere(PoisonAttack):
    """Sends a large number in each coordinate, and how often it has been at work here before."""

    name = "everywhere"
    needs = (Sight.HONEST_UPDATES,)

    def craft(self, view):
        return torch.full((view.f, view.dim), 100.0 + float(view.state.get("times", torch.zeros(()))))

    def remember(self, view, crafted):
        return {"times": view.state.get("times", torch.zeros(())) + 1}


def lied_to(defense: str = "mean", broadcast: bool = False) -> tuple[Nodes, int]:
    """Six nodes of which the third lies everywhere; and their dimension."""
    from dataclasses import replace

    made, setup = scene(
        {"name": "ako", "broadcast": broadcast}, attack="sign_flip", clients={"malicious": 1}, defense=defense
    )
    setup = replace(setup, attack=Everywhere(), malicious=frozenset({2}), attack_sees=Sight.HONEST_UPDATES)
    found = Nodes(setup, made.architecture.topology(6), broadcast)
    found.begin(1)
    return found, setup.task.dim


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_lie_has_to_fit_into_the_block_and_liars_remember_each_block(broadcast):
    found, dim = lied_to(broadcast=broadcast)
    zeros = torch.zeros(6, dim)
    for times in range(2):
        for number in (0, 3):
            parcel = block(dim, 4, number)
            made = found.of_parcels(zeros, parcel, models=zeros)
            want = parcel.packed(torch.full((1, dim), (100.0 + times) / 6))[0]
            assert torch.allclose(made[0], want, rtol=1e-5)


def test_a_rule_judges_the_block_at_each_node():
    found, dim = lied_to("median")
    updates = torch.randn(6, dim, generator=torch.Generator().manual_seed(1))
    parcel = block(dim, 4, 1)
    made = found.of_parcels(parcel.packed(updates), parcel, models=torch.zeros(6, dim))
    rows = np.array([np.full(dim, 100.0) if node == 2 else updates[node].numpy() for node in range(6)])
    want = parcel.packed(torch.from_numpy(np.median(rows, axis=0))[None]).numpy()[0]
    for node in (0, 1, 3, 4, 5):
        assert np.allclose(made[node].numpy(), want, atol=1e-5)


def test_a_rule_withstands_lies_about_blocks():
    changes = {
        "clients": {"total": 8, "malicious": 2},
        "attack": "sign_flip(scale=10)",
        "training": {"rounds": 20, "lr": 0.1},
    }
    system = {"name": "ako", "parts": 4}
    *_, fooled = reports(system, **changes)
    *_, held = reports(system, defense="trimmed_mean", **changes)
    assert min(held.nodes.accuracy) > 0.85 > 0.5 > max(fooled.nodes.accuracy)


@pytest.mark.parametrize("changes", [{"graph": "ring"}, {"weight": 0.5}])
def test_where_workers_would_drift_apart_it_is_refused(changes):
    reasons = " ".join(cell({"name": "ako", **changes}).verdict.reasons)
    assert "sends updates and never models" in reasons and "Set graph: complete and weight: 1" in reasons


def test_the_narrower_the_links_the_smaller_the_best_block():
    """Simulated seconds to an accuracy of 85 %. Who sends what does not depend on the links: three runs tell for all."""
    rounds, target = 90, 0.85
    needed, bytes_a_step = {}, {}
    for parts in (1, 2, 10):
        found = list(
            reports(
                {"name": "ako", "parts": parts},
                clients={"total": 8},
                training={"rounds": rounds, "lr": 0.2, "local_steps": 1, "batch_size": 32},
                network={"compute": {"seconds": 0.001}},
            )
        )
        below = [report.round for report in found if report.evaluation.accuracy < target]
        needed[parts], bytes_a_step[parts] = max(below) + 1, found[-1].moment.bytes_up / rounds / 8
    assert needed[10] <= rounds

    def best(bandwidth: float) -> int:
        """Seconds of a round: 32 examples of a millisecond, and seven messages one after the other."""
        return min(needed, key=lambda parts: needed[parts] * (0.032 + bytes_a_step[parts] / bandwidth))

    assert [best(bandwidth) for bandwidth in (1e8, 1e6, 1e4)] == [1, 2, 10]


# Workers that do not wait.

#: In which step (from 0) all messages of the block of each step have arrived.
ARRIVED = (0, 1, 5, 5, 6, 9, 9, 9, 30, 31, 32, 33)


class Late(Exact):
    """Blocks arrive when they do."""

    def __init__(self) -> None:
        super().__init__("complete")
        self.sent = 0

    def queued(self, parcel):
        self.sent += 1
        return float(ARRIVED[self.sent - 1])

    @property
    def earliest(self):
        return float(self.taken - 1)


def unpaced(nodes: Exact, parts: int) -> np.ndarray:
    """Each worker makes 1/n of its own updates at once; the others' blocks count in the step in which all have arrived."""
    x, made, found = nodes.start.numpy().copy(), [], []
    ends = [0, *np.cumsum([len(one) for one in np.array_split(np.arange(DIM), parts)])]
    for turn in range(ROUNDS):
        made.append([nodes.gradient(turn, i, x[i]) for i in range(NODES)])
        x = x + np.array(made[-1]) / NODES
        for step in range(turn + 1):
            if max(ARRIVED[step], step) != turn:
                continue
            number = step % parts
            for c in range(ends[number], ends[number + 1]):
                for i in range(NODES):
                    for j in range(NODES):
                        if j != i:
                            x[i, c] += sum(one[j][c] for one in made[max(0, step + 1 - parts) : step + 1]) / NODES
        found.append(x.copy())
    return np.array(found)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_blocks_that_come_late_count_when_they_come(parts):
    theirs = unpaced(Exact("complete"), parts)
    assert (
        np.abs(ours({"name": "ako", "parts": parts, "wait": False}, Late()) - theirs).max()
        < EXACT * np.abs(theirs).max()
    )
    assert np.abs(paper(Exact("complete"), parts)[-1] - theirs[-1]).max() > STEP / 100


def test_with_links_that_take_no_time_waiting_makes_no_difference():
    for parts in (1, 3):
        even = {"network": {}, "training": {"local_steps": 2, "batch_size": 16}}
        patient, others = (models({"name": "ako", "parts": parts, "wait": wait}, **even) for wait in (True, False))
        assert off(others, patient) < ROUNDING


@pytest.mark.parametrize(("parts", "grows"), [(1, True), (2, True), (10, False)])
def test_a_queue_grows_by_what_sending_takes_longer_than_computing(parts, grows):
    """Eight workers, a step of 32 ms, seven messages of 2,600 / p bytes over 300 kB/s: 60.7, 30.3 or 6.1 ms. And 25 ms on the way."""
    computing, link = 0.032, {"up": 300_000 if parts != 2 else 150_000, "latency": 0.025}
    rounds = 12
    *_, last = reports(
        {"name": "ako", "parts": parts, "wait": False},
        clients={"total": 8},
        training={"rounds": rounds, "local_steps": 1, "batch_size": 32},
        network={"compute": {"seconds": 0.001}, "link": link},
    )
    sending = 7 * 2600 / parts / link["up"]
    free = 0.0
    for step in range(1, rounds + 1):
        free = max(free, step * computing) + sending
    assert last.nodes.backlog == pytest.approx(free - rounds * computing, rel=1e-3)
    assert (last.nodes.backlog > 3 * sending) == grows
    assert last.moment.seconds == pytest.approx(rounds * computing)  # nobody waits
    assert last.moment.bytes_up == rounds * 8 * 7 * 2600 / parts


def test_what_is_waiting_for_is_no_part_of_a_cell_that_waits():
    assert cell("ako").id == cell("ako(wait=True)").id != cell("ako(wait=False)").id
    assert "wait" not in cell("ako").canonical["architecture"]
