"""Settings in which no two things are alike, beside plain loops: what equal ones would hide."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.detag import mean_update
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import Parcel
from fedguard.architectures.systems.parameter_server import _within
from fedguard.contracts import LocalTraining, Network, Speeds
from fedguard.contracts.network import Links
from fedguard.rng import Rng
from fedguard.simulated.barriers import buffer_barrier, covers
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.fractions import Deadline, Fractions
from fedguard.simulated.world import World
from tests.gossip.test_gossip_formulae import EXACT, NODES, ROUNDS, Quadratics, gradients, mix, ours, plus
from tests.simulated.scenes import Timetable
from tests.systems.scenes import reports, scene
from tests.systems.test_asynchronous import UNEVEN, course

# Who is at work.


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_push_counts_for_one_of_those_at_work(share):
    """Of eight clients two or four are at work: each update moves the model by a half or a quarter of it."""
    clients = {"total": 8, "per_round": share}
    made, setup = scene("parameter_server(consistency='eventual')", clients=clients, network=UNEVEN)
    models, at_work = [setup.task.initial_model(setup.rng.child("model"))], round(share * 8)
    for release in islice(course(made, setup), 3 * at_work):
        (one,) = release.arrivals
        out = torch.empty(1, setup.task.dim)
        setup.task.local_updates(
            models[one.version], [one.client], setup.local_plan, setup.rng.child("round", one.turn), out
        )
        models.append(models[-1] + out[0] / at_work)
    found = [one.model for one in islice(made.architecture.aggregates(setup), 3 * at_work)]
    for theirs, ours_ in zip(models[1:], found, strict=True):
        assert (ours_ - theirs).norm() < 1e-5 * (theirs - models[0]).norm()


# What a node keeps.


@pytest.mark.parametrize("weight", [0.3, 0.7])
@pytest.mark.parametrize("graph", ["star", "exponential", "one_peer_exponential"])
def test_sgp_keeps_what_it_is_told_to(graph, weight):
    """Push-sum with P = k S + (1 - k) I, S in equal shares for those that hear a node, and itself."""
    nodes = Quadratics(graph)
    x, w, theirs = list(nodes.start.numpy()), np.ones(NODES), []
    for turn in range(ROUNDS):
        heard = (nodes.topology.at(turn) != 0) | np.eye(NODES, dtype=bool)
        p = np.array(
            [
                [weight * heard[i, j] / heard[:, j].sum() + (1 - weight) * (i == j) for j in range(NODES)]
                for i in range(NODES)
            ]
        )
        z = [x[i] / w[i] for i in range(NODES)]
        x, w = mix(p, plus(x, gradients(nodes, turn, z))), p @ w
        theirs.append([x[i] / w[i] for i in range(NODES)])
    found = ours(f"sgp(weight={weight})", Quadratics(graph))
    assert np.abs(found - np.array(theirs)).max() < EXACT * np.abs(theirs).max()


@pytest.mark.parametrize("system", ["defacto(phase=3)", "detag(phase=3)"])
def test_the_trainings_of_a_phase_are_on_batches_of_their_own(system):
    """Four examples a step: the mean of three updates from three draws, those of trainings 1, 2, 3 and then 4, 5, 6."""
    made, setup = scene(system, training={"local_steps": 1, "batch_size": 4})
    nodes = Nodes(setup, made.architecture.topology(6), broadcast=False)
    nodes.begin(1)
    for first in (1, 4):
        found = mean_update(nodes, nodes.start, 3)
        for i in range(6):
            rows = []
            for k in range(first, first + 3):
                out = torch.empty(1, setup.task.dim)
                setup.task.local_updates(nodes.start[i], [i], setup.local_plan, setup.rng.child("round", k), out)
                rows.append(out[0])
            assert (rows[0] - rows[1]).norm() > 0.1 * rows[0].norm()
            assert torch.allclose(found[i], sum(rows) / 3, atol=1e-6)


# Messages.

#: A graph in which no node hears as many as hear it.
LINKS = {(1, 0), (2, 1), (3, 2), (0, 3), (0, 1), (0, 2)}
UP, DOWN, LATENCY, STEP = 200.0, 90.0, 3.0, 5.0


def test_a_message_shares_the_link_up_with_what_its_node_sends_and_the_link_down_with_what_the_other_hears(tmp_path):
    """latency + sends x bytes / up + hears x bytes / down, both, and nobody goes on before the last that it hears."""
    file = tmp_path / "graph.csv"
    file.write_text("node,neighbor\n" + "".join(f"{node},{source}\n" for node, source in sorted(LINKS)))
    slow = {"compute": {"seconds": STEP / 32}, "link": {"latency": LATENCY, "up": UP, "down": DOWN}}
    training = {"rounds": 3, "local_steps": 1, "batch_size": 32}
    system = {"name": "sgp", "graph": "file", "file": str(file)}
    found = [one.moment.seconds for one in reports(system, clients={"total": 4}, network=slow, training=training)]
    sends = [sum(source == i for _, source in LINKS) for i in range(4)]
    hears = [sum(node == i for node, _ in LINKS) for i in range(4)]
    assert sends != hears
    clocks, theirs = [0.0] * 4, []
    for _ in range(3):
        began = [clock + STEP for clock in clocks]
        clocks = list(began)
        for node, source in LINKS:
            takes = LATENCY + sends[source] * 2600 / UP + hears[node] * 2600 / DOWN
            clocks[node] = max(clocks[node], began[source] + takes)
        theirs.append(max(clocks))
    assert found == pytest.approx(theirs)


NARROW = {
    "compute": {"seconds": 0.01},
    "link": {"latency": 0.25, "up": 100.0, "down": 40.0, "spread": 0.8, "joules": 0.003},
}


def narrow(system: Any) -> tuple[Any, Any, list[float], list[float]]:
    """A training on `NARROW` links, and the bandwidths of its nodes up and down by the law of the links."""
    made, setup = scene(system, network=NARROW, training={"local_steps": 1, "batch_size": 32})
    factors = np.exp(0.8 * setup.rng.child("network", "bandwidths").numpy().normal(0.0, 1.0, 6))
    return made.architecture, setup, (100.0 * factors).tolist(), (40.0 * factors).tolist()


def test_messages_of_a_step_take_the_latency_and_the_busiest_direction_of_a_link():
    system, setup, up, down = narrow("all_reduce")
    run = system.start(setup)
    for sent, received in (({0: 700, 1: 30}, {2: 9, 4: 1}), ({0: 1}, {3: 500, 5: 400}), ({}, {})):
        busy = [0.0] + [size / up[node] for node, size in sent.items()]
        busy += [size / down[node] for node, size in received.items()]
        assert run.send_at_once(sent, received) == pytest.approx(0.25 + max(busy))
    assert (run.world.spent.bytes_up, run.world.spent.bytes_down) == (731, 910)
    assert run.world.spent.joules == pytest.approx(0.003 * (731 + 910))


def test_room_of_a_link_is_what_fits_if_all_send_to_all():
    system, setup, up, down = narrow("dlion")
    room = Nodes(setup, system.topology(6), broadcast=False).traffic.room(7.0)
    for i, j in product(range(6), range(6)):
        assert room[i, j] == pytest.approx(7.0 / (5 / up[j] + 5 / down[i]))


def test_what_queues_waits_for_the_bytes_before_it_and_not_for_their_latency():
    system, setup, up, down = narrow({"name": "ako", "parts": 2, "wait": False})
    traffic, sizes = Nodes(setup, system.topology(6), broadcast=False).traffic, (70, 900, 5)
    found = [traffic.queue_parcels(Parcel(0, size, lambda rows: rows)) for size in sizes]
    for j in range(6):
        free = 0.0
        for arrivals, size in zip(found, sizes, strict=True):
            busy = {i: 5 * size / up[j] + 5 * size / down[i] for i in range(6) if i != j}
            assert [arrivals[i, j] for i in busy] == pytest.approx([free + 0.25 + seconds for seconds in busy.values()])
            free += max(busy.values())
    assert traffic.world.spent.bytes_up == traffic.world.spent.bytes_down == 30 * sum(sizes)


def test_examples_that_move_go_up_one_link_and_down_another_with_a_latency_for_each():
    """Device 0 does not stay, so 1 gets its 500 bytes: from 0 at 100 bytes a second, and then to 1 at 40."""
    there = [(20.0 * k, 20.0 * k + 1.0) for k in range(9)]
    link = Links(latency=0.25, up=100.0, down=40.0, joules=0.003)
    world = World(Network(link=link, availability=Timetable({0: there})), [4.0, 2.0], 40, Rng(0))
    law = Deadline(seconds=100.0, least=0.1, trusted=2, history=4)
    fractions = Fractions(law, world, [500, 70], Rng(1))
    for device, work in enumerate((4.0, 2.0)):
        messages = 0.5 + 40 / 100 + 40 / 40
        fractions.note(device, LocalTraining(device, 0.0, 0.0, share=0.5), messages + 3.0 * work)
    ready = []
    for round in range(3):
        fractions.open([0, 1], 20.0 * round)
        ready.append(dict(fractions.jobs(1)).get(0))
    assert ready == [None, pytest.approx(20 + 0.5 + 5 + 12.5), 40.0]  # the copy stays
    assert (world.spent.bytes_up, world.spent.bytes_down) == (500, 500)
    assert world.spent.joules == pytest.approx(0.003 * 1000)


def test_two_vectors_in_one_message_wait_once(tmp_path):
    """`dsgt` on a ring: at once 2 x 2,600 bytes and a latency; in turn a latency for each, and one vector in the first round."""
    slow = {"compute": {"seconds": STEP / 32}, "link": {"latency": LATENCY, "up": UP}}
    training, vector = {"rounds": 3, "local_steps": 1, "batch_size": 32}, 2 * 2600 / UP
    found = {
        order: [one.moment for one in reports({"name": "dsgt", "order": order}, network=slow, training=training)]
        for order in ("at_once", "adapt_first")
    }
    at_once = [(round + 1) * (STEP + LATENCY + 2 * vector) for round in range(3)]
    in_turn = [(round + 1) * STEP + (2 * round + 1) * (LATENCY + vector) for round in range(3)]
    assert [one.seconds for one in found["at_once"]] == pytest.approx(at_once)
    assert [one.seconds for one in found["adapt_first"]] == pytest.approx(in_turn)
    assert [one.bytes_up for one in found["at_once"]] == [6 * 2 * 2 * 2600 * (round + 1) for round in range(3)]
    assert [one.bytes_up for one in found["adapt_first"]] == [6 * 2 * 2600 * (2 * round + 1) for round in range(3)]


# Ranges.


def krum(rows: torch.Tensor, f: int) -> torch.Tensor:
    """Blanchard et al., 2017."""
    n = len(rows)
    scores = [sorted(float((one - other).square().sum()) for other in rows)[1 : n - f - 1] for one in rows.double()]
    return rows[min(range(n), key=lambda i: sum(scores[i]))]


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_rule_on_ranges_of_a_drawn_order(shuffled):
    system = {"name": "parameter_server", "ranges": 7, "shuffled": shuffled}
    clients = {"total": 8, "malicious": 2}
    made, setup = scene(system, clients=clients, defense="krum", task={"partition": "dirichlet(alpha=0.5)"})
    start, rows = setup.task.initial_model(setup.rng.child("model")), torch.empty(8, setup.task.dim)
    setup.task.local_updates(start, list(range(8)), setup.local_plan, setup.rng.child("round", 1), rows)
    keys = np.arange(setup.task.dim)
    if shuffled:
        keys = setup.rng.child("coordinates").numpy().permutation(setup.task.dim)
    theirs, chosen = start.clone(), set()
    for part in np.array_split(keys, 7):
        made_of = krum(rows[:, part], 2)
        chosen |= {i for i in range(8) if torch.equal(rows[i, part], made_of)}
        theirs[part] += made_of
    first = next(iter(made.architecture.run(setup)))
    assert len(chosen) > 1 and torch.allclose(first.model, theirs, atol=1e-6)


def test_layers_of_a_range_are_what_lies_of_each_in_it():
    layers, order = (4, 7, 2, 7), torch.from_numpy(np.random.default_rng(1).permutation(20))
    of = [0] * 4 + [1] * 7 + [2] * 2 + [3] * 7
    for keys in (order[:9], order[9:], torch.arange(3, 12), torch.arange(12, 20)):
        counts = [sum(of[key] == layer for key in keys.tolist()) for layer in range(4)]
        assert _within(layers, keys) == tuple(count for count in counts if count)


# Neighbors.


@pytest.mark.parametrize("shards", [1, 2])
def test_in_order_neighbors_hold_classes_side_by_side(shards):
    def classes(**further: Any) -> list[set[int]]:
        task = {"partition": {"name": "label_sorted", "shards": shards, **further}}
        _, setup = scene(clients={"total": 10}, task=task)
        return [set(setup.task.examples(client).y.tolist()) for client in range(10)]

    found = classes(in_order=True)
    assert all(max(one) <= min(other) for one, other in pairwise(found))
    drawn = classes()
    assert any(max(one) > min(other) for one, other in pairwise(drawn))
    assert classes(in_order=False) == drawn


# Who stays.


@pytest.mark.parametrize(("least", "moves"), [(0.7, True), (0.4, False)])
def test_decaf_counts_on_who_stays(least, moves):
    """Device 0 stays for every second round: it would do all of its work, and half of that is expected to come."""
    there = [(20.0 * k, 20.0 * k + (19.0 if k % 2 else 2.0)) for k in range(20)]
    network = Network(compute=Speeds(seconds=1.0), availability=Timetable({0: there}))
    world = World(network, [4.0, 2.0], 1000, Rng(0).child("network"))
    law = Deadline(seconds=10.0, least=least, trusted=2, history=4)
    fractions = Fractions(law, world, [500] * 2, Rng(1))
    for device, work in enumerate((4.0, 2.0)):
        fractions.note(device, LocalTraining(device, 0.0, 0.0), seconds=work)
    for round in range(12):
        fractions.open([0, 1], 20.0 * round)
        if round > 5:
            by = {client: device for device in (0, 1) for client, _ in fractions.jobs(device)}
            assert by == {0: 1 if moves else 0, 1: 1}


# What is held.


@pytest.mark.parametrize("barrier", [buffer_barrier(2), buffer_barrier(3), covers(2)])
def test_what_a_quick_device_sends_meanwhile_waits_for_the_next_aggregates(barrier):
    """Device 0 answers four times as fast as three others, and counts once in an aggregate: none of its trainings is lost."""
    world = World(Network(compute=Speeds(seconds=1.0)), [0.25, 0.9, 1.0, 1.1], 1000, Rng(0).child("network"))
    found = ServerSimulation(
        world, replace(barrier, once=True), 4, lambda _: range(4), Rng(1).child("course")
    ).releases()
    turns: dict[int, list[int]] = {}
    for release in islice(found, 40):
        devices = [one.client for one in release.arrivals]
        assert len(set(devices)) == len(devices)
        for one in release.arrivals:
            turns.setdefault(one.client, []).append(one.turn)
    assert all(of_one == list(range(1, len(of_one) + 1)) for of_one in turns.values())
    assert len(turns[0]) == 40  # it is in each of them


def test_under_masks_every_update_of_a_quick_client_is_in_a_session():
    """Beside the same on real clients: what comes twice for one buffer is in the next one."""
    masked: dict[str, Any] = {"protocol": {"secure_aggregation": "full"}, "training": {"rounds": 6}}
    quick = {"compute": {"seconds": 0.01, "spread": 1.0}, "link": {"latency": 0.01}}
    made, setup = scene("fedbuff(buffer=3)", network=quick, clients={"total": 6}, **masked)
    arrived: dict[int, int] = {}
    ended: dict[int, int] = {}
    for one in made.architecture.run(setup):
        for client in (client for row in one.behind for client in row):
            arrived[client] = arrived.get(client, 0) + 1
        for span in one.moment.trainings:
            ended[span.client] = ended.get(span.client, 0) + 1
    # What has ended and is in no session yet still waits: of three clients in each buffer the quickest is in all.
    assert max(arrived.values()) >= 12 and all(arrived.get(client, 0) <= count for client, count in ended.items())
    assert sum(ended.values()) > sum(arrived.values())
