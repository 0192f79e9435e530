"""Trials, architectures and secure aggregation between processes: a SuperLink, SuperNodes, and a process for each message.

All that needs the tests' one deployment stands here, since `--dist loadfile` gives a file to one process of pytest-xdist.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

import tomli_w
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as Proto
from scipy import stats

from fedguard.bench.conformance.conform import cell_of, compare_with_simulation
from fedguard.bench.conformance.deployed import DeploymentEngine
from fedguard.bridges.flower.secagg import BYTES, RECORD
from fedguard.errors import ConfigError
from fedguard.secagg import messages as protocol_messages
from fedguard.secagg.codec import Phase, read_header
from fedguard.secagg.keys import Identity
from tests.flower.conftest import DEPLOYED, killed
from tests.flower.sums_app.sums.client_app import LENGTH, NODES, update
from tests.flower.trials import judged, ran

APP = Path(__file__).parent / "sums_app"


def test_a_deployment_is_the_same_trial(federation, tmp_path, inline_result):
    """A SuperLink and its SuperNodes, attacked, defended and judged; to the last bit what it is in one process."""
    result, run = ran("deployment", tmp_path, on=federation)
    assert result == inline_result and result["rounds"]["updates"] == DEPLOYED and result["app"]["malicious"]
    assert judged(run) == (["below 99.9 %"], [])


def test_a_supernode_that_dies_in_the_middle_is_named_and_the_others_go_on(federation, tmp_path):
    """Somebody looks at the messages of those who are left."""
    with killed(federation, 1, "Receiving: train message"):
        result, run = ran("deployment", tmp_path, "labels_llg", "own", on=federation)
    assert {*(one["clients"][0] for one in result["inference"]["targets"])} == {0, 2, 3}
    assert result["inference"]["score"]["label_accuracy"] > 0.8
    assert result["app"]["lost"] == [{"node": 1, "round": 1, "how": "was killed by SIGKILL"}]
    assert (result["rounds"]["updates"], result["rounds"]["silent"]) == (DEPLOYED - 1, 1)
    assert result["final_accuracy"] > 0.2  # the others have trained and measured
    (flags,) = [record["flags"] for record in run.ran.values()]
    assert "1 of 4 nodes stopped answering: node 1 from round 1 on (its process was killed by SIGKILL)" in str(flags)


@pytest.mark.parametrize(("architecture", "rounds"), [("server", 1), ("fedasync", 2)])
def test_a_deployed_server_is_the_simulated_one(federation, architecture, rounds):
    """Under attack; where it does not wait for its nodes, the simulation follows the order in which answers came."""
    engine, cell = DeploymentEngine(federation), cell_of(architecture, "ipm", "mean", DEPLOYED, rounds)
    one = compare_with_simulation(engine, architecture, cell, *engine.run([cell], 0), 0)
    assert one.passed and one.same_bits
    assert one.order is None if architecture == "server" else len(one.order) >= rounds * DEPLOYED


def test_a_supernode_that_dies_ends_a_deployed_conformance_with_one_line(federation):
    engine, cell = DeploymentEngine(federation), cell_of("server", None, "mean", DEPLOYED, 1)
    with killed(federation, 2, "Receiving: train message"), pytest.raises(ConfigError) as said:
        engine.run([cell], 0)
    told = str(said.value)
    assert told.startswith("conform: node 2 did not come to its end: ") and "\n" not in told
    assert told.endswith("The process of node 2 was killed by SIGKILL.")


def summed(federation, **config):
    """The app, with a roster of fresh identities: what its server tells, and all bytes that it saw."""
    place = federation.place()
    secrets = [os.urandom(32) for _ in range(NODES)]
    identities = [Identity(lambda _, secret=secret: secret) for secret in secrets]
    for folder, secret in zip([*federation.homes, place], [*secrets, b""], strict=True):
        (folder / "identity").write_bytes(secret)
        (folder / "roster").write_bytes(b"".join(one.public for one in identities))
    by_place = {number: node for node, number in federation.partitions.items()}
    (place / "nodes.json").write_text(json.dumps([by_place[number] for number in range(NODES)]))
    shutil.copytree(APP, place / "app", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((place / "app" / "pyproject.toml").read_text())
    project["tool"]["flwr"]["app"]["config"] |= {"place": str(place), **config}
    (place / "app" / "pyproject.toml").write_text(tomli_w.dumps(project))
    told = federation.run(place / "app", place / "told.json")
    return told, list(seen(place / "wire"))


def seen(path):
    """The messages that the server sent and got, as they travel."""
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:4], "little")
        yield data[4 : 4 + size]
        data = data[4 + size :]


def masked(wire):
    """By round and client, what it sent in the place of its input: uint32 ``[LENGTH]``."""
    found = {}
    for data in wire:
        message = message_from_proto(Proto.FromString(data))
        bare = message.content.config_records[RECORD].get(BYTES, b"") if message.has_content() else b""
        if bare and read_header(bare).phase is Phase.MASKED:
            header, one = read_header(bare), protocol_messages.unpack(bare, None).message
            found[header.round, header.sender] = np.frombuffer(one.vector, "<u4")
    return found


def uniform(vectors):
    """By chi-square on the bytes of all elements; honest vectors fail one in a million times."""
    counts = np.bincount(np.concatenate(vectors).view(np.uint8), minlength=256)
    return stats.chisquare(counts).pvalue > 1e-6


def plain_sum(places, round):
    return sum(update(place, round).astype(np.uint64) for place in places).tolist()


def bare(wire, places, round):
    """Clients of whom 8 numbers in a row stand in a message as they are."""
    rows = {place: update(place, round) for place in places}
    return {
        place
        for place, row in rows.items()
        if any(row[at : at + 8].astype("<u4").tobytes() in data for data in wire for at in range(0, LENGTH, 8))
    }


def test_the_server_sees_masked_vectors_alone_and_gets_the_plain_sum(federation):
    """And a node that it asks twice at once answers once, whatever processes Flower starts side by side."""
    told, wire = summed(federation, twice=True)
    (one,) = told["rounds"]
    assert one == {"total": plain_sum(range(NODES), 1), "included": list(range(NODES)), "said": []}
    found = masked(wire)
    assert sorted(found) == [(1, place) for place in range(NODES)]
    assert uniform(list(found.values())) and not bare(wire, range(NODES), 1)
    assert uniform([found[1, 0] - found[1, place] for place in range(1, NODES)])  # no mask in common
    assert all(vector.max() > 2**30 for vector in found.values())  # inputs are below 1000
    refused = [one for one in told["twice"] if one != "answered"]
    assert len(told["twice"]) == 3 and len(refused) == 2
    assert any("a message of another session" in one for one in refused)
    assert any("round 1 is over" in one for one in refused)
    kept = [path for home in federation.homes for path in (home / "kept").glob("*.kept")]
    rows = [update(place, 1).tobytes() for place in range(NODES)]
    assert len(kept) >= NODES and not any(row[:32] in path.read_bytes() for row in rows for path in kept)


def test_a_node_that_is_killed_before_it_gives_its_input_is_recovered(federation):
    """Its SuperNode dies, as a machine that loses its power does, when it was asked for the masked input."""
    victim = 2
    with killed(federation, victim, "Receiving: train.secagg message", times=3):
        told, wire = summed(federation)
    stays = [place for place in range(NODES) if place != victim]
    (one,) = told["rounds"]
    assert one["included"] == stays and one["total"] == plain_sum(stays, 1)
    assert len(one["said"]) == 1 and "node" in one["said"][0]
    assert sorted(masked(wire)) == [(1, place) for place in stays]
    assert not bare(wire, range(NODES), 1)
