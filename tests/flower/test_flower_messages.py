"""Over Flower's messages: FedGuard's secure aggregation, byte for byte, and trainings that agree with the simulation.

All of it needs Flower, in its own versions of packages: `make test-flower`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.serverapp import ServerApp

from fedguard.bench.conformance.conform import ENGINES, conform
from fedguard.bench.conformance.messages import FlowerEngine
from fedguard.bridges.flower.inline import SERVER, InlineGrid, as_node, run_inline
from fedguard.bridges.flower.secagg import BYTES, KIND, RECORD, REFUSED, secagg_client, secagg_sum
from fedguard.errors import ConfigError
from fedguard.secagg import client as protocol_client
from fedguard.secagg import messages as protocol_messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import STEPS, Phase, read_header
from fedguard.secagg.entropy import system
from fedguard.secagg.errors import ProtocolError, TooFewSurvivors
from fedguard.secagg.keys import Identity
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.session import Roster, SessionPolicy
from fedguard.secagg.simulation import ProtocolSimulation, Settings
from fedguard.secagg.transitions import ClientState

NODES, LENGTH = 8, 4096
SETTINGS = Settings(colluding=0.1, dropping=0.3)
MODEL = bytes(range(32))


def inputs(seed: int = 0) -> np.ndarray:
    """uint32 ``[NODES, LENGTH]``: small numbers, as updates are, so that a bare one is easily told from a masked one."""
    return np.random.default_rng(seed).integers(0, 1000, (NODES, LENGTH), dtype=np.uint32)


@dataclass
class Deployment:
    """Nodes that keep their identities, and a wire on which all bytes are seen.

    Args:
        silent: for a node's place, the first kind of its messages that is lost.
        keep: a folder for the nodes' folders, in which each is kept from one message to the next; None for parties that stay.
        fails: places of nodes whose apps raise when they are to give their inputs.
    """

    silent: dict[int, Phase] = field(default_factory=dict)
    keep: Path | None = None
    fails: frozenset[int] = frozenset()
    entropy: object = system
    wire: list[tuple[int, bytes]] = field(default_factory=list)
    parties: list[Client] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.identities = [Identity() for _ in range(NODES)]
        self.roster = Roster(tuple(one.public for one in self.identities))
        self.config = SETTINGS.config(NODES, LENGTH)
        self.vectors = {}
        self.client = secagg_client(self.join, self.keep and (lambda context: self.keep / str(context.node_id)))

    def join(self, context, round: int) -> Client:
        place = int(context.node_config["partition-id"])
        party = Client(
            place,
            self.identities[place],
            self.roster,
            SessionPolicy.like(self.config),
            round=round,
            model_hash=MODEL,
            vector=lambda sid: self.input(round, place),
            entropy=self.entropy,
        )
        self.parties.append(party)
        return party

    def input(self, round: int, place: int) -> np.ndarray:
        if place in self.fails:
            raise RuntimeError("a planted fault")
        return self.vectors[round][place]

    def run(self, vectors: np.ndarray, round: int = 1) -> ProtocolServer:
        """A round, in which a real server app talks to real client apps over a Grid that some messages are lost on."""
        self.vectors[round] = vectors
        server = ProtocolServer(self.config, self.roster, round=round, model_hash=MODEL)
        deployment, raised = self, []

        class Wire(InlineGrid):
            def _answer(self, message):
                deployment.wire.append((round, message_to_proto(message).SerializeToString()))
                reply = super()._answer(message)
                deployment.wire.append((round, message_to_proto(reply).SerializeToString()))
                return reply

            def pull_messages(self, message_ids):
                lost = {place for place, step in deployment.silent.items() if server.awaits >= step}
                return [
                    one
                    for one in super().pull_messages(message_ids)
                    if one.metadata.src_node_id - SERVER - 1 not in lost
                ]

        app = ServerApp()

        @app.main()
        def main(grid, context):
            wire = Wire(deployment.client, NODES, {})
            try:
                deployment.said = secagg_sum(wire, list(wire.get_node_ids()), server)
            except ProtocolError as error:
                raised.append(error)

        run_inline(app, ClientApp(), nodes=NODES, config={}, seed=0)
        if raised:
            raise raised[0]
        return server


def plain_sum(vectors: np.ndarray, places) -> np.ndarray:
    """In the ring of 2^32, as Python's own integers."""
    columns = zip(*(vectors[place].tolist() for place in places), strict=True)
    return np.array([sum(column) % 2**32 for column in columns], dtype=np.uint32)


def masked_inputs(wire) -> dict[tuple[int, int], np.ndarray]:
    """By round and client, the vector that a client sent, wherever it stands in a message: after its header and a hash."""
    found = {}
    for round, data in wire:
        reply = bytes_of(data)
        if reply and read_header(reply).phase is Phase.MASKED:
            message = protocol_messages.unpack(reply, None).message
            found[round, read_header(reply).sender] = np.frombuffer(message.vector, "<u4")
    return found


def bytes_of(data: bytes) -> bytes:
    from flwr.common.serde import message_from_proto
    from flwr.proto.message_pb2 import Message as Proto

    message = message_from_proto(Proto.FromString(data))
    return message.content.config_records[RECORD].get(BYTES, b"")


def advertised_keys(wire) -> list[bytes]:
    keys = []
    for _, data in wire:
        reply = bytes_of(data)
        if reply and read_header(reply).phase is Phase.ADVERTISE:
            entry = protocol_messages.unpack(reply, None).message
            keys += [entry.encryption_key, entry.mask_key]
    return keys


def leaks(wire, vectors: dict[int, np.ndarray]) -> list[str]:
    """What of the inputs a reader of all messages sees: all laws that masked inputs keep, and bytes that stand there bare."""
    said = []
    masked = masked_inputs(wire)
    for (round, client), vector in masked.items():
        if not uniform(vector):
            said.append(f"what client {client} sends in round {round} is not uniform")
        others = [other for (r, c), other in masked.items() if (r, c) > (round, client)]
        if any(not uniform(vector - other) for other in others):
            said.append(f"what client {client} sends in round {round} has a mask of another message")
    keys = advertised_keys(wire)
    if len(set(keys)) < len(keys):
        said.append("a key is used again")
    for round, data in wire:
        for place, vector in enumerate(vectors[round]):
            if any(vector[at : at + 8].astype("<u4").tobytes() in data for at in range(0, LENGTH, 8)):
                said.append(f"8 numbers of client {place} stand bare in a message")
    return said


def uniform(vector: np.ndarray) -> bool:
    """By chi-square on each of the four bytes of the elements; an honest vector fails one in a million times."""
    counts = [np.bincount(vector.view(np.uint8)[place::4], minlength=256) for place in range(4)]
    return all(stats.chisquare(one).pvalue > 1e-6 / 4 for one in counts)


@pytest.mark.parametrize("keep", [False, True])
def test_the_sum_is_the_simulations_to_the_last_bit(keep, tmp_path):
    vectors, deployment = inputs(), Deployment(keep=tmp_path if keep else None)
    server = deployment.run(vectors)
    simulated = ProtocolSimulation(SETTINGS).run(
        round=1, clients=range(NODES), length=LENGTH, vector=lambda client, _: vectors[client], model_hash=MODEL
    )
    assert np.array_equal(server.total, plain_sum(vectors, range(NODES)))
    assert np.array_equal(server.total, simulated.total) and server.total.dtype == simulated.total.dtype
    assert tuple(sorted(server.included)) == simulated.included == tuple(range(NODES))
    assert deployment.said == []
    over = (ClientState.DONE, ClientState.ABORTED)
    assert len(deployment.parties) == NODES * (5 if keep else 1)  # one is made for each message, where they are kept
    assert all(party.state in over for party in deployment.parties[-NODES:])


@pytest.mark.parametrize("step", list(STEPS))
def test_clients_that_drop_between_the_steps(step):
    """Their messages are lost from a step on: in the sum is who masked, as in the simulation."""
    vectors, dropped = inputs(1), {2, 5}
    server = Deployment(silent=dict.fromkeys(dropped, STEPS[step])).run(vectors)
    simulated = ProtocolSimulation(SETTINGS).run(
        round=1,
        clients=range(NODES),
        length=LENGTH,
        vector=lambda client, _: vectors[client],
        model_hash=MODEL,
        drop={step: dropped},
    )
    stays = range(NODES) if STEPS[step] > Phase.MASKED else sorted(set(range(NODES)) - dropped)
    assert tuple(sorted(server.included)) == simulated.included == tuple(stays)
    assert np.array_equal(server.total, simulated.total)
    assert np.array_equal(server.total, plain_sum(vectors, stays))


def test_a_client_that_fails_has_dropped_out_and_is_named():
    vectors, deployment = inputs(2), Deployment(fails=frozenset({3}))
    server = deployment.run(vectors)
    assert 3 not in server.included
    assert np.array_equal(server.total, plain_sum(vectors, server.included))
    assert deployment.said == [f"node {3 + SERVER + 1}: RuntimeError: a planted fault"]


def test_too_few_survivors_give_no_sum():
    silent = dict.fromkeys(range(NODES - 2), Phase.MASKED)
    with pytest.raises(TooFewSurvivors):
        Deployment(silent=silent).run(inputs())


def test_nothing_in_a_message_shows_an_update():
    """Three rounds with the very same inputs, in one of which a client drops."""
    deployment, vectors = Deployment(), {}
    for round in (1, 2, 3):
        deployment.silent = {4: Phase.UNMASK} if round == 2 else {}
        vectors[round] = inputs()
        deployment.run(vectors[round], round)
    assert len(masked_inputs(deployment.wire)) == 3 * NODES
    assert leaks(deployment.wire, vectors) == []


@pytest.mark.parametrize("plant", ["no masks", "one mask for all", "keys of the round before"])
def test_planted_leaks_are_seen(plant, monkeypatch):
    deployment = Deployment()
    if plant == "no masks":
        monkeypatch.setattr(protocol_client, "add_masks", lambda vector, masks: None)
    if plant == "one mask for all":
        real = protocol_client.add_masks
        monkeypatch.setattr(protocol_client, "add_masks", lambda vector, masks: real(vector, [(b"k" * 16, 1)]))
    if plant == "keys of the round before":
        drawn: dict[int, int] = {}

        def same(size: int) -> bytes:
            drawn[size] = drawn.get(size, 0) + 1
            return np.random.default_rng((size, drawn[size])).bytes(size)

        deployment.entropy = same
    vectors = {}
    for round in (1, 2):
        if plant == "keys of the round before":
            drawn.clear()
        vectors[round] = inputs()
        deployment.run(vectors[round], round)
    found = " ".join(leaks(deployment.wire, vectors))
    wanted = {
        "no masks": "stand bare",
        "one mask for all": "a mask of another",
        "keys of the round before": "a key is used again",
    }
    assert wanted[plant] in found


@pytest.mark.parametrize("keep", [False, True])
def test_a_session_is_not_begun_again(keep, tmp_path):
    """A server that names an old round, or begins the same one anew, gets no second masked input."""
    deployment = Deployment(keep=tmp_path if keep else None)
    deployment.run(inputs(), 2)
    for round in (1, 2):
        with pytest.raises(TooFewSurvivors):
            deployment.run(inputs(), round)
    assert len(masked_inputs(deployment.wire)) == NODES


@pytest.mark.parametrize("when", ["a message came twice", "nothing can be written", "the input failed"])
def test_a_party_that_is_kept_answers_once(when, tmp_path, monkeypatch):
    """What it has become lies on the disk before the answer is given: without that there is none."""
    deployment = Deployment(keep=tmp_path, fails=frozenset({0}) if when == "the input failed" else frozenset())
    grid, server = (
        InlineGrid(deployment.client, NODES, {}),
        ProtocolServer(deployment.config, deployment.roster, round=1, model_hash=MODEL),
    )
    deployment.vectors[1] = inputs()

    def asked(data):
        with as_node(SERVER):
            (reply,) = grid.send_and_receive(
                [Message(RecordDict({RECORD: ConfigRecord({BYTES: data})}), SERVER + 1, KIND)]
            )
        return reply.content.config_records[RECORD] if reply.has_content() else None

    if when == "nothing can be written":
        with monkeypatch.context() as patch:
            patch.setattr(
                "fedguard.bridges.flower.keeping.os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full"))
            )
            assert asked(server.hello()) is None
        assert BYTES in asked(server.hello())  # nothing was said, so it may begin
    if when == "a message came twice":
        assert BYTES in asked(server.hello())
        assert "HELLO has no place here" in asked(server.hello())[REFUSED]
    if when == "the input failed":
        with pytest.raises(TooFewSurvivors):
            deployment.silent = dict.fromkeys(range(1, NODES), Phase.MASKED)
            deployment.run(inputs())
        assert "round 1 is over" in asked(server.hello())[REFUSED]


def test_bytes_of_nobody_and_of_another_session_are_refused():
    deployment = Deployment()
    grid = InlineGrid(deployment.client, NODES, {})
    deployment.vectors[1] = inputs()
    for data in (
        b"",
        b"nothing of ours",
        ProtocolServer(deployment.config, deployment.roster, round=1, model_hash=bytes(32)).hello(),
    ):
        with as_node(SERVER):
            asked = Message(RecordDict({RECORD: ConfigRecord({BYTES: data})}), SERVER + 1, KIND)
            (reply,) = grid.send_and_receive([asked])
        assert list(reply.content.config_records[RECORD]) == [REFUSED]


def test_servers_over_messages_agree_with_the_simulation():
    found = conform(["server"], "flower", nodes=3, rounds=3)
    assert [one.attack for one in found] == ["none", "ipm"]
    assert all(one.passed and one.same_bits for one in found)
    assert found[0].real.sha256 != found[1].real.sha256


def test_another_training_than_the_simulations_is_seen(monkeypatch):
    """A node that trains as another client would: the bits differ, and the comparison fails."""
    from fedguard.bench.conformance.remote import ClientProcess

    real = ClientProcess.train
    monkeypatch.setattr(
        ClientProcess,
        "train",
        lambda self, cell, client, turn, model: real(self, cell, 1 if client == 0 else client, turn, model),
    )
    found = conform(["server"], "flower", nodes=3, rounds=2)
    assert not any(one.passed or one.same_bits for one in found)


def test_a_client_app_that_raises_is_one_line(monkeypatch):
    from fedguard.bench.conformance.remote import ClientProcess

    def train(self, *_):
        raise RuntimeError("out of\nluck")

    monkeypatch.setattr(ClientProcess, "train", train)
    with pytest.raises(ConfigError, match="conform: node 0 did not come to its end: RuntimeError: out of luck"):
        conform(["server"], "flower", nodes=2, rounds=1)


def test_what_flower_does_not_run_is_said():
    for architecture in ("d_psgd", "parameter_server"):
        with pytest.raises(ConfigError, match="conform: flower runs server"):
            conform([architecture], "flower")
    assert isinstance(ENGINES["flower"], FlowerEngine)
