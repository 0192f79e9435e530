"""Ako: one block of what is unsent in each round, beside the loops of its paper, by its bytes, and under lies."""

from __future__ import annotations

from typing import Any

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

    def of_parcels(self, updates, parcel: Parcel, *, models, matrix=None):
        assert torch.equal(updates, parcel.packed(updates))
        matrix = self.matrix if matrix is None else matrix
        self.exchanges += 1
        rows = [sum(matrix[i, j] * updates[j] for j in range(NODES)) for i in range(NODES)]
        return torch.stack(rows)


def paper(nodes: Exact, parts: int, order: list[int] | None = None) -> np.ndarray:
    """Each worker at once makes 1/n of its own update, and sends each other one the last updates of a block."""
    order = list(range(DIM)) if order is None else order
    x, made, found = nodes.start.numpy().copy(), [], []
    ends = np.cumsum([len(one) for one in np.array_split(np.arange(DIM), parts)])
    for turn in range(ROUNDS):
        made.append([nodes.gradient(turn, i, x[i]) for i in range(NODES)])
        x = x + np.array(made[-1]) / NODES
        number = turn % parts
        for place in range(ends[number - 1] if number else 0, ends[number]):
            c = order[place]
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


class Drawn(Exact):
    """Its order of the coordinates is drawn."""

    order = (3, 0, 4, 1, 2)

    def permutation(self):
        return torch.tensor(self.order)


@pytest.mark.parametrize("parts", [2, 3])
def test_blocks_in_a_drawn_order(parts):
    theirs = paper(Exact("complete"), parts, list(Drawn.order))
    found = ours({"name": "ako", "parts": parts, "shuffled": True}, Drawn("complete"))
    assert np.abs(found - theirs).max() < EXACT * np.abs(theirs).max()
    assert np.abs(paper(Exact("complete"), parts) - theirs).max() > STEP / 100


def test_the_order_is_drawn_from_the_seed_of_the_trial_and_no_part_of_a_cell_without_it():
    first, again, other = (models({"name": "ako", "shuffled": True}, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first[-1], models({"name": "ako"}, 0)[-1])
    assert not torch.equal(first, other)
    assert cell("ako").id == cell("ako(shuffled=False)").id != cell("ako(shuffled=True)").id


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
    setup = replace(setup, malicious=frozenset({2})).with_parts(attack=Everywhere(), attack_sees=Sight.HONEST_UPDATES)
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

#: Seconds of a step of each worker, and of a message from each (column) to each (row): no two alike.
STEPS = 1 + 0.14 * np.arange(NODES) / NODES
MESSAGES = 0.3 + np.random.default_rng(3).uniform(0, 4, (NODES, NODES))


class Late(Exact):
    """Workers of unlike speeds, whose blocks arrive when they do. What each makes of them is a plain loop."""

    adds_up = True

    def __init__(self) -> None:
        super().__init__("complete")

    @property
    def clocks(self):
        return self.taken * STEPS

    def queue_parcels(self, parcel):
        arrivals = self.taken * STEPS[None, :] + MESSAGES
        np.fill_diagonal(arrivals, -np.inf)
        return arrivals

    def post_parcels(self, updates, parcel, *, models):
        return updates

    def aggregate_parcels(self, posted, came, *, models):
        rows = torch.zeros_like(posted)
        for i, j in np.argwhere(came):
            rows[i] += posted[j] / NODES
        return rows


def unpaced(nodes: Exact, parts: int) -> np.ndarray:
    """Each makes 1/n of its own updates at once, and of another's block in the first step that it begins after it has come."""
    x, made, found = nodes.start.numpy().copy(), [], []
    ends = [0, *np.cumsum([len(one) for one in np.array_split(np.arange(DIM), parts)])]
    counted = set()
    for turn in range(ROUNDS):
        made.append([nodes.gradient(turn, i, x[i]) for i in range(NODES)])
        x = x + np.array(made[-1]) / NODES
        for i in range(NODES):
            for j in range(NODES):
                for step in range(turn + 1):
                    begins, comes = (turn + 1) * STEPS[i], (step + 1) * STEPS[j] + MESSAGES[i, j]
                    if i == j or (i, j, step) in counted or comes > begins:
                        continue
                    counted.add((i, j, step))
                    number = step % parts
                    for c in range(ends[number], ends[number + 1]):
                        x[i, c] += sum(one[j][c] for one in made[max(0, step + 1 - parts) : step + 1]) / NODES
        found.append(x.copy())
    return np.array(found)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_blocks_that_come_late_count_when_they_come_by_the_clock_of_each(parts):
    theirs = unpaced(Exact("complete"), parts)
    assert (
        np.abs(ours({"name": "ako", "parts": parts, "wait": False}, Late()) - theirs).max()
        < EXACT * np.abs(theirs).max()
    )
    assert np.abs(paper(Exact("complete"), parts)[-1] - theirs[-1]).max() > STEP / 100


#: Half of eight workers take 14 % longer for a step of 32 examples. A block takes up to 7 x 2,600 / p bytes over the link.
UNEVEN: dict[str, Any] = {
    "clients": {"total": 8},
    "training": {"rounds": 58, "local_steps": 1, "batch_size": 32, "lr": 0.2},
    "network": {
        "compute": {"seconds": 0.001, "slow": {"share": 0.5, "factor": 1.14, "lasting": True}},
        "link": {"up": 200_000, "latency": 0.005},
    },
}
LOPSIDED = {**UNEVEN, "task": {"partition": "label_sorted"}}


def run(system: dict[str, Any], **changes: Any):
    """What each node's update came to, by step; its model after each; the seconds of a step of each; and the last report."""
    made, setup = scene(system, **changes)
    nodes, steps = Nodes(setup, made.architecture.topology(8), system.get("broadcast", False)), []
    updates = nodes.updates

    def overheard(models):
        steps.append(updates(models))
        return steps[-1]

    nodes.updates = overheard
    after, states, running = [], [], made.architecture.models(nodes)
    for round in range(1, setup.cell.training.rounds + 1):
        nodes.begin(round)
        after.append(next(running).clone())
        states.append(nodes.report(round, after[-1]))
    seconds = {span.client: span.ended - span.began for span in states[0].moment.trainings}
    made_of = np.array([one.double().numpy() for one in steps])
    return (
        made_of,
        np.array([one.double().numpy() for one in after]),
        np.array([seconds[i] for i in range(8)]),
        states[-1],
        nodes,
    )


def blocks_of(made: np.ndarray, parts: int) -> np.ndarray:
    """float64 [steps, n, d]: what each worker sends after each step."""
    dim, sent = made.shape[2], np.zeros_like(made)
    ends = [0, *np.cumsum([len(one) for one in np.array_split(np.arange(dim), parts)])]
    for step in range(len(made)):
        part = slice(ends[step % parts], ends[step % parts + 1])
        sent[step, :, part] = made[max(0, step + 1 - parts) : step + 1, :, part].sum(0)
    return sent


def comes(seconds: np.ndarray, steps: int, parts: int, up: float = 200_000, latency: float = 0.005) -> np.ndarray:
    """float64 [steps, n]: when the block of each step of each worker is with all others."""
    found, free = np.zeros((steps, 8)), np.zeros(8)
    lengths = [len(one) for one in np.array_split(np.arange(650), parts)]
    for step in range(steps):
        free = np.maximum(free, (step + 1) * seconds) + 7 * 4 * lengths[step % parts] / up
        found[step] = free + latency
    return found


def test_unlike_speeds_beside_a_plain_loop():
    """Own updates over n at once; of each other worker the blocks that have come before the worker's next step."""
    made, after, seconds, _, nodes = run({"name": "ako", "parts": 5, "wait": False}, **LOPSIDED)
    assert seconds.max() == pytest.approx(1.14 * seconds.min())
    sent, arrives = blocks_of(made, 5), comes(seconds, 58, 5)
    for turn in (0, 7, 30, 57):
        for i in range(8):
            x = nodes.start[0].double().numpy() + made[: turn + 1, i].sum(0) / 8
            for j in set(range(8)) - {i}:
                for step in range(turn + 1):
                    if arrives[step, j] <= (turn + 1) * seconds[i]:
                        x = x + sent[step, j] / 8
            assert np.abs(after[turn, i] - x).max() < 1e-4 * np.abs(x).max()


def test_a_rule_judges_the_blocks_of_a_step_once_the_last_has_come_to_the_worker():
    made, after, seconds, _, nodes = run({"name": "ako", "parts": 5, "wait": False}, defense="median", **LOPSIDED)
    sent, arrives = blocks_of(made, 5), comes(seconds, 58, 5)
    for turn in (7, 57):
        for i in range(8):
            x = nodes.start[0].double().numpy()
            judged = [step for step in range(turn + 1) if arrives[step].max() <= (turn + 1) * seconds[i]]
            own = made[: turn + 1, i].sum(0) - sum((sent[step, i] for step in judged), np.zeros(650))
            x = x + own / 8 + sum((np.median(sent[step], axis=0) for step in judged), np.zeros(650))
            assert np.abs(after[turn, i] - x).max() < 1e-4 * np.abs(x).max()
            lag = turn + 1 - len(judged)
            assert lag <= 2 + (turn + 1) * 0.14  # and not more with the square of time


def test_unlike_speeds_cost_next_to_nothing():
    """The lag of a worker that is ahead grows with the time between them, and that of no other."""
    *_, patient = reports({"name": "ako", "parts": 5}, **LOPSIDED)
    *_, others = reports({"name": "ako", "parts": 5, "wait": False}, **LOPSIDED)
    assert min(others.nodes.accuracy) > min(patient.nodes.accuracy) - 0.05
    assert type(others.nodes.backlog) is float  # as records take it


@pytest.mark.parametrize("broadcast", [False, True])
def test_lies_are_made_when_they_are_sent_and_count_when_they_come(broadcast):
    lies = {"attack": "sign_flip(scale=10)", "clients": {"total": 8, "malicious": 2}}
    system = {"name": "ako", "parts": 5, "wait": False, "broadcast": broadcast}
    *_, fooled = reports(system, **{**UNEVEN, **lies})
    *_, held = reports(system, defense="trimmed_mean", **{**UNEVEN, **lies})
    assert min(held.nodes.accuracy) > 0.75 > 0.5 > max(fooled.nodes.accuracy)
    *_, even = reports({**system, "wait": True}, **{**UNEVEN, **lies, "network": {}})
    *_, waiting = reports(system, **{**UNEVEN, **lies, "network": {}})
    assert waiting.nodes.accuracy == pytest.approx(even.nodes.accuracy, abs=0.02)


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
