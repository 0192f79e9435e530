"""One round of secure aggregation, step by step: the real protocol in this process, on numbers that can be checked by eye."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.secagg.codec import HEADER_BYTES, SHARE_BYTES, SIGNATURE_BYTES, STEPS
from fedguard.secagg.messages import PROOF_BYTES, KeyAdvertisement, MaskedInput, Packet, unpack
from fedguard.secagg.parameters import choose
from fedguard.secagg.session import CONFIG_BYTES, SessionConfig
from fedguard.secagg.simulation import Drop, MessageEvent, ProtocolSimulation, Settings

Whole = NDArray[np.uint32]

#: Purpose of each message.
MEANING = {
    "HELLO": "proposes a session: configuration and a nonce",
    "ADVERTISE": "R0: fresh public keys, the hash of its model, signed",
    "ROSTER": "all keys with their signatures",
    "SHARE": "R1: encrypted shares of its two secrets for its neighbors, signed commitments",
    "SHARES": "who shared, and the shares for this client",
    "MASKED": "R2: its input under all masks",
    "SURVIVORS": "whose input has arrived",
    "ATTEST": "R3: its signature on who shared and who is included",
    "QUORUM": "the signatures of the others",
    "UNMASK": "R4: for each neighbor one share, of b if it survived, else of its mask key",
}
#: Of the clients' messages, what the server can read, and what it cannot.
READS = {
    "ADVERTISE": ("public keys, and which model the client holds", "the secret keys, which never leave the client"),
    "SHARE": (
        "for whom each share is, and the commitments to it",
        "the shares: each is encrypted for the neighbor that it is for",
    ),
    "MASKED": (
        "the masked input, ring elements that look like noise",
        "the input: it lacks the seed of the client's own mask, and the keys that it shares with each neighbor",
    ),
    "ATTEST": ("who vouches for which list of survivors", "nothing in it is secret"),
    "UNMASK": (
        "one share of one of the two secrets of each neighbor; with enough of them it opens that secret",
        "the other secret: of a survivor the mask key, of a dropped client the seed of its own mask",
    ),
}


@dataclass(frozen=True)
class ProtocolStep:
    """The messages of one kind.

    Attributes:
        kind: such as ``SHARE``.
        events: in their order.
    """

    kind: str
    events: tuple[MessageEvent, ...]

    @property
    def from_server(self) -> bool:
        return self.events[0].sender is None

    @property
    def bytes(self) -> int:
        return sum(event.size for event in self.events)


@dataclass(frozen=True)
class ProtocolRound:
    """The course of a round.

    Attributes:
        inputs: uint32 ``[n, 3]``: the input of each client.
        masked: by client, the masked input that the server received.
        steps: in their order.
        config: the parameters of the session, under its identifier ``sid``.
        total: the sum that the server learns; None if the round was aborted.
        included: the clients in the sum; aborted: why there is none.
    """

    inputs: Whole
    masked: dict[int, Whole]
    steps: tuple[ProtocolStep, ...]
    sid: bytes
    config: SessionConfig
    total: Whole | None
    included: tuple[int, ...]
    aborted: str | None

    @property
    def expected(self) -> Whole:
        """The sum of the inputs of those who are included, added up in the clear."""
        total: Whole = self.inputs[list(self.included)].sum(0, dtype=np.uint32)
        return total


def play(clients: int, drop: Drop, colluding: float = 0.0) -> ProtocolRound:
    """Run one round among ``clients``; clients in ``drop`` are silent from a step on.

    Client i has (i + 1) times (1, 10, 100). Keys are fresh, so the masked inputs differ each time, and the sum does not.

    Raises:
        ConfigError: too few clients, or an unknown step or client.
    """
    inputs = np.arange(1, clients + 1, dtype=np.uint32)[:, None] * np.array([1, 10, 100], np.uint32)
    steps: dict[str, list[MessageEvent]] = {}
    masked: dict[int, Whole] = {}

    def watch(event: MessageEvent, data: bytes) -> None:
        steps.setdefault(event.kind, []).append(event)
        if event.kind == "MASKED" and event.sender is not None:
            message = unpack(data).message
            assert isinstance(message, MaskedInput)
            masked[event.sender] = np.frombuffer(message.vector, "<u4")

    outcome = ProtocolSimulation(Settings(colluding=colluding, dropping=0)).run(
        round=1, clients=range(clients), length=3, vector=lambda client, sid: inputs[client], drop=drop, watch=watch
    )
    return ProtocolRound(
        inputs,
        masked,
        tuple(ProtocolStep(kind, tuple(events)) for kind, events in steps.items()),
        outcome.sid,
        outcome.config,
        None if outcome.total is None else outcome.total.astype(np.uint32),
        outcome.included,
        outcome.aborted,
    )


@dataclass(frozen=True)
class SessionCost:
    """The cost of a session for each of n clients.

    Attributes:
        graph: ``complete`` or ``sparse``.
        neighbors: number of clients with which each shares keys, masks and shares.
        anonymity: the fewest honest inputs in any sum, whichever clients the server declares dropped.
        up, down: bytes that a client sends and receives without dropouts, its input included.
    """

    clients: int
    graph: str
    neighbors: int
    threshold: int
    anonymity: int
    up: int
    down: int


def costs(sizes: Sequence[int], colluding: float, dropping: float, length: int) -> list[SessionCost]:
    """The cost of a session for each number of clients, on the complete graph and on the sparsest safe graph.

    If no sparse graph is safe, only the complete graph is listed. Bytes follow from the form of the messages.

    Args:
        length: ring elements of 4 bytes in an input.

    Raises:
        ConfigError: too few clients, or too many colluders or dropouts.
    """
    found = []
    for clients in sizes:
        whole = choose(clients, colluding, dropping, complete_up_to=clients)
        ring = choose(clients, colluding, dropping, complete_up_to=0)
        for graph, one in (("complete", whole), ("sparse", ring)):
            if graph == "complete" or not one.complete:
                up, down = traffic(clients, one.degree, length)
                found.append(SessionCost(clients, graph, one.degree, one.threshold, one.anonymity, up, down))
    return found


def traffic(clients: int, neighbors: int, length: int) -> tuple[int, int]:
    """Bytes that a client sends and receives in a round without dropouts."""
    head, listed, marked = HEADER_BYTES, 4, 4 + -(-clients // 8)  # a header, the length of a list, a set of clients
    path = listed + 32 * (neighbors - 1).bit_length()
    up = {
        "ADVERTISE": KeyAdvertisement.BYTES,
        "SHARE": 32 + listed + neighbors * Packet.BYTES,
        "MASKED": 32 + 8 + 4 * length,
        "ATTEST": 2 * 32,
        "UNMASK": listed + neighbors * SHARE_BYTES,
    }
    down = {
        "HELLO": CONFIG_BYTES + 32,
        "ROSTER": listed + clients * (4 + KeyAdvertisement.BYTES + SIGNATURE_BYTES),
        "SHARES": marked + listed + neighbors * (4 + Packet.BYTES + 32 + SIGNATURE_BYTES + path),
        "SURVIVORS": marked + listed + neighbors * PROOF_BYTES,
        "QUORUM": marked + listed + clients * SIGNATURE_BYTES,
    }
    return sum(head + body + SIGNATURE_BYTES for body in up.values()), sum(head + body for body in down.values())


@dataclass(frozen=True)
class SessionMeasurement:
    """One round, all parties in this process.

    Attributes:
        seconds: time of server and clients together, divided by the number of clients.
        up, down: bytes that a client sent and received, on average.
    """

    clients: int
    neighbors: int
    seconds: float
    up: float
    down: float


def measure(clients: int, length: int, colluding: float, dropping: float) -> SessionMeasurement:
    """Run one round of zeros without dropouts, and measure time and bytes.

    Args:
        length: ring elements of 4 bytes in an input.
    """
    zeros = np.zeros(length, np.uint32)
    federation = ProtocolSimulation(Settings(colluding=colluding, dropping=dropping))
    begun = time.perf_counter()
    outcome = federation.run(round=1, clients=range(clients), length=length, vector=lambda client, sid: zeros)
    seconds = time.perf_counter() - begun
    if outcome.error is not None:
        raise outcome.error
    return SessionMeasurement(
        clients, outcome.config.degree, seconds / clients, outcome.bytes_up / clients, outcome.bytes_down / clients
    )


__all__ = [
    "MEANING",
    "READS",
    "STEPS",
    "ProtocolRound",
    "ProtocolStep",
    "SessionCost",
    "SessionMeasurement",
    "costs",
    "measure",
    "play",
    "traffic",
]
