"""FedGuard's secure aggregation between processes: a SuperLink, SuperNodes, and a process for each message."""

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

from fedguard.flower.secagg import BYTES, RECORD
from fedguard.secagg import messages as protocol_messages
from fedguard.secagg.codec import Phase, read_header
from fedguard.secagg.keys import Identity
from tests.flower.conftest import killed
from tests.flower.sums_app.sums.client_app import LENGTH, NODES, update

APP = Path(__file__).parent / "sums_app"


def ran(federation, **config):
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
    told, wire = ran(federation, twice=True)
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
        told, wire = ran(federation)
    stays = [place for place in range(NODES) if place != victim]
    (one,) = told["rounds"]
    assert one["included"] == stays and one["total"] == plain_sum(stays, 1)
    assert len(one["said"]) == 1 and "node" in one["said"][0]
    assert sorted(masked(wire)) == [(1, place) for place in stays]
    assert not bare(wire, range(NODES), 1)
