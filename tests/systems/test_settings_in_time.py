"""What a suite may say of single devices and nodes: which are slow, which never drop out, who is in a buffer once, who stands where."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from fedguard.bench.running.card import describe_threat
from fedguard.contracts import Fate, Network, Speeds, Stragglers
from fedguard.contracts.network import Links
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.simulated.world import World, least_seconds
from tests.simulated.scenes import Timetable
from tests.systems.scenes import cell, reports, scene

# Which device is slow.

PACES = (1.0, 4.0, 0.5, 2.0, 1.0, 7.0)


def seconds_of(**compute: Any) -> list[float]:
    """Of a training of each client in the first round, of 32 examples of a second."""
    training = {"local_steps": 1, "batch_size": 32, "rounds": 1}
    (found,) = reports("parameter_server", network={"compute": {"seconds": 1.0, **compute}}, training=training)
    return [span.ended - span.began for span in sorted(found.moment.trainings, key=lambda span: span.client)]


def test_each_device_takes_as_long_as_is_said_of_it():
    assert seconds_of(paces=list(PACES)) == pytest.approx([32 * pace for pace in PACES])
    slow = seconds_of(slow={"devices": [1, 4], "factor": 3})
    assert slow == pytest.approx([32, 96, 32, 32, 96, 32])
    both = seconds_of(paces=list(PACES), slow={"devices": [0], "factor": 10})
    assert both == pytest.approx([320, *(32 * pace for pace in PACES[1:])])


def test_what_a_training_takes_at_least_counts_paces():
    """Below 1 they make a device quicker: a window is refused only where nobody could answer."""
    network = Network(
        compute=Speeds(seconds=1.0, paces=(0.25, 3.0), slow=Stragglers(devices=(1,), factor=2.0)),
        link=Links(latency=1.0),
    )
    assert least_seconds(network, [8.0, 8.0], 100) == pytest.approx([2 + 2, 2 + 48])
    world = World(network, [8.0, 8.0], 100, Rng(0))
    assert [world.train(device, 1, 0.0)[0] for device in (0, 1)] == pytest.approx([4, 50])
    assert world.rates == pytest.approx([4, 1 / 6])


def test_a_cell_in_which_nothing_is_said_of_single_devices_is_what_it_was():
    plain = cell("fedbuff").canonical
    assert "paces" not in plain["network"]["compute"] and "devices" not in plain["network"]["compute"]["slow"]
    assert "stays" not in plain["threat"] and "once" not in plain["architecture"]
    assert cell("fedbuff").id == cell("fedbuff(once=False)").id != cell("fedbuff(once=True)").id
    paced = [cell("fedbuff", network={"compute": {"paces": paces}}).id for paces in ([1] * 6, list(PACES))]
    assert len({*paced, cell("fedbuff", network={}).id}) == 3


@pytest.mark.parametrize(
    ("compute", "says"),
    [
        ({"paces": [1, 2]}, r"paces: expected one number for each of the 6 clients; got 2"),
        ({"slow": {"devices": [6]}}, r"slow.devices: expected numbers from 0 to 5, of 6 clients; got 6"),
        ({"slow": {"devices": [1], "share": 0.5}}, r"Leave out one of the two"),
        ({"slow": {"devices": [1], "lasting": False}}, r"Leave out one of the two"),
    ],
)
def test_what_is_said_of_other_devices_is_refused(compute, says):
    with pytest.raises(ConfigError, match=says):
        cell("fedbuff", network={"compute": compute})


# Malicious devices that never drop out.

LOSSY = {"compute": {"seconds": 0.1, "jitter": 0.3}, "link": {"loss": 0.4}}
ATTACK: dict[str, Any] = {"attack": "sign_flip", "clients": {"total": 20, "malicious": 5}}


def lost(**threat: Any) -> tuple[set[int], frozenset[int]]:
    made, setup = scene("google(over=1.3, window=100, least=0.2)", network=LOSSY, threat=threat, **ATTACK)
    return {client for one in made.architecture.run(setup) for client in one.of_fate(Fate.LOST)}, setup.malicious


def test_of_devices_that_stay_nothing_is_lost():
    gone, malicious = lost()
    assert gone & malicious and gone - malicious
    gone, malicious = lost(stays=True)
    assert not gone & malicious and gone


def test_over_selection_as_published_where_honest_devices_drop_out_and_malicious_ones_do_not():
    """Of 130 % asked the malicious f all come, first of all; of the others 60 %: a share of f / (f + .6 (1 - f)) if all count."""
    system, asked = "google(over=1.25, window=1000, least=0.1)", {"total": 200, "per_round": 0.4, "malicious": 50}
    rounds = list(
        reports(
            system,
            attack="sign_flip",
            clients=asked,
            network={**LOSSY, "malicious_pace": 0.1},
            threat={"stays": True},
            training={"rounds": 40},
            task={"partition": "iid"},
        )
    )
    told = sum(len(one.malicious) for one in rounds)
    came = sum(len(one.clients) for one in rounds)
    assert told / came == pytest.approx(0.25 / (0.25 + 0.6 * 0.75), abs=0.03)


def test_devices_that_stay_are_there_whatever_the_others_do():
    away = Network(
        compute=Speeds(seconds=1.0), availability=Timetable({0: [(5.0, 6.0)], 1: [(5.0, 6.0)]}), link=Links(loss=0.9)
    )
    world = World(away, [10.0, 10.0], 100, Rng(0), steady=frozenset({1}))
    assert [world.presence.wait(device, 0.0) for device in (0, 1)] == [5.0, 0.0]
    assert [world.train(device, 1, 5.0) for device in (0, 1)] == [(1.0, False), (10.0, True)]
    assert any(world.loses(0, turn) for turn in range(9)) and not any(world.loses(1, turn) for turn in range(99))


@pytest.mark.parametrize("stays", [False, True])
def test_dropout_of_the_protocol_spares_them_too(stays):
    threat = {"stays": stays}
    made, setup = scene(protocol={"dropout": {"rate": 0.6}}, threat=threat, network={}, **ATTACK)
    silent = {client for one in made.architecture.run(setup) for client in one.of_fate(Fate.SILENT)}
    assert silent - setup.malicious and bool(silent & setup.malicious) != stays
    assert ("never drop out" in describe_threat(made.threat, 1, 2, made.threat.grants)) == stays


# Once in a buffer.

QUICK = {"compute": {"seconds": 0.001, "paces": [1, 9, 9, 9, 9, 9]}}


def test_a_client_is_once_in_a_buffer_and_none_of_its_updates_is_lost():
    made, setup = scene("fedbuff(buffer=4, once=True)", network=QUICK, training={"rounds": 12})
    counts = [0] * 6
    for one in islice(made.architecture.aggregates(setup), 15):
        clients = [client for (client,) in one.behind]
        assert len(set(clients)) == 4
        for client in clients:
            counts[client] += 1
    assert counts[0] == 15  # the quick one is in each, with what it sent in turn
    twice, setup = scene("fedbuff(buffer=4)", network=QUICK, training={"rounds": 12})
    assert any(len(set(one.behind)) < 4 for one in twice.architecture.aggregates(setup))


def test_rules_that_look_up_clients_run_where_each_is_behind_one_row():
    assert "may be behind two" in " ".join(cell("fedbuff(buffer=4)", defense="weighted_mean").verdict.reasons)
    assert not cell("fedbuff(buffer=4, once=True)", defense="weighted_mean").verdict.reasons
    (reason,) = cell("fedbuff(buffer=7, once=True)").verdict.reasons
    assert "7 updates of 6 clients never meet in one. Lower buffer" in reason


# Where a malicious node stands.


def heard_by(at: list[int] | None, **settings: Any) -> tuple[int, set[int]]:
    """How many hear the malicious node on a star with the middle 0, and which they are."""
    system = {"name": "d_psgd", "graph": "star", **({} if at is None else {"at": at}), **settings}
    found = next(iter(reports(system, attack="sign_flip", clients={"malicious": 1}, training={"rounds": 1})))
    (malicious,) = found.malicious
    those = {node for source, node in found.nodes.links if source == malicious}
    return len(those), those


def test_a_malicious_node_stands_where_it_is_told():
    assert heard_by([0])[0] == 5
    assert all(heard_by([leaf])[0] == 1 for leaf in range(1, 6))


def test_several_stand_in_the_order_of_their_numbers():
    """On a ring at 1, 2 and 4: two of them are neighbors, and the third hears none of them."""
    system = {"name": "d_psgd", "graph": "ring", "at": [4, 1, 2]}
    found = next(
        iter(reports(system, attack="sign_flip", clients={"total": 8, "malicious": 3}, training={"rounds": 1}))
    )
    first, second, third = sorted(found.malicious)
    links = set(found.nodes.links)
    assert (second, third) in links and (first, second) not in links and (first, third) not in links


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"at": [0, 1]}, "expected a place for each of the 1 malicious nodes; got 2"),
        ({"at": [6]}, "expected numbers from 0 to 5, of 6 nodes; got 6"),
        ({"at": [1], "places": "cut"}, "Leave out one of the two"),
    ],
)
def test_places_that_are_not_there_are_refused(settings, says):
    found = cell({"name": "d_psgd", **settings}, attack="sign_flip", clients={"malicious": 1})
    assert says in " ".join(found.verdict.reasons)
    assert not cell({"name": "d_psgd", **settings}).verdict.reasons  # nobody is malicious
