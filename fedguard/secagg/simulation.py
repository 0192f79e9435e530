"""Whole rounds in one process: the real server and the real clients, with a loop instead of a network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from fedguard.arguments import MOST_CLIENTS, is_real, is_whole, whole_number
from fedguard.errors import UnknownName, brief, require
from fedguard.secagg.client import Client
from fedguard.secagg.codec import STEPS, Phase, read_header
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.keys import Identity
from fedguard.secagg.masks import RingVector
from fedguard.secagg.parameters import Parameters, choose
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.session import SUITES, Roster, SessionConfig, SessionPolicy
from fedguard.secagg.transitions import ServerState

#: step -> clients that are silent from this step on.
Drop = Mapping[str, Collection[int]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of all sessions of a federation.

    Args:
        ring: bits of a ring element, 32 or 64.
        suite: 1 for AES-128 masks, 2 for AES-256 masks.
        colluding: share of the clients that may collude with a malicious server.
        dropping: share of the clients that may drop out.
        fewest: a session with fewer survivors is aborted, even if the protocol itself would tolerate them; for distributed
            noise that needs this number of contributions.
        attested: whether there is a consistency round; if not, the server is trusted to show all clients the same survivors.
    """

    ring: int = 32
    suite: int = 1
    colluding: float = 0.1
    dropping: float = 0.1
    fewest: int = 0
    attested: bool = True

    def __post_init__(self) -> None:
        require(is_whole(self.ring) and self.ring in (32, 64), f"ring: expected 32 or 64 bits; got {brief(self.ring)}.")
        known = is_whole(self.suite) and self.suite in SUITES
        require(known, f"suite: expected 1 (AES-128) or 2 (AES-256); got {brief(self.suite)}.")
        for name, share in (("colluding", self.colluding), ("dropping", self.dropping)):
            number = is_real(share)
            require(
                number and 0 <= share < 1, f"{name}: expected a share of the clients, in [0, 1); got {brief(share)}."
            )
        whole_number(self.fewest, "fewest", 0, MOST_CLIENTS)
        require(isinstance(self.attested, bool), f"attested: expected True or False; got {brief(self.attested)}.")
        for name in ("ring", "suite", "fewest"):  # numpy's own would overflow where Python's do not
            object.__setattr__(self, name, int(getattr(self, name)))

    def parameters(self, clients: int) -> Parameters:
        """Degree, threshold and quorum for this number of clients. Raises `ConfigError` if there are none."""
        return choose(clients, self.colluding, self.dropping, attested=self.attested)

    def config(self, clients: int, length: int, context: bytes = bytes(32)) -> SessionConfig:
        """The configuration of a session of this number of clients."""
        require(clients >= self.fewest, f"clients: expected at least {self.fewest}; got {clients}.")
        plain = SessionConfig.of(self.parameters(clients), length, suite=self.suite, ring=self.ring, context=context)
        # In the quorum, so that clients enforce it too: a server alone could open a sum with too little noise
        return replace(plain, members=max(plain.members, self.fewest), quorum=max(plain.quorum, self.fewest))


@dataclass(frozen=True)
class MessageEvent:
    """One message on its way, or an error in its place.

    Attributes:
        sender, receiver: a client, or None for the server.
        kind: name of the phase, such as ``SHARE``.
        size: bytes.
        error: the error that the receiver raised.
    """

    sender: int | None
    receiver: int | None
    kind: str
    size: int
    error: str | None = None


#: Called with each message and its bytes.
Watch = Callable[[MessageEvent, bytes], None]


@dataclass(frozen=True)
class SessionOutcome:
    """Outcome of a round.

    Attributes:
        total: the sum of the inputs of ``included`` in the ring; None if the round was aborted.
        included: the clients with an input in the sum.
        error: why there is no sum.
        blamed: errors that did not stop the round.
        transcript: every message in order.
    """

    sid: bytes
    config: SessionConfig
    total: RingVector | None
    included: tuple[int, ...]
    error: ProtocolError | None
    blamed: tuple[str, ...]
    transcript: tuple[MessageEvent, ...]

    @property
    def aborted(self) -> str | None:
        """Why there is no sum, in one line."""
        return None if self.error is None else str(self.error)

    @property
    def bytes_up(self) -> int:
        """Bytes that all clients sent, in total."""
        return sum(event.size for event in self.transcript if event.sender is not None)

    @property
    def bytes_down(self) -> int:
        """Bytes that the server sent."""
        return sum(event.size for event in self.transcript if event.sender is None)


class ProtocolSimulation:
    """Clients with long-term identities, made when a client first takes part."""

    def __init__(self, settings: Settings | None = None, entropy: Entropy = system) -> None:
        self.settings, self._entropy = settings or Settings(), entropy
        self._identities: dict[int, Identity] = {}

    def run(
        self,
        *,
        round: int,
        clients: Sequence[int],
        length: int,
        vector: Callable[[int, bytes], RingVector],
        model_hash: bytes = bytes(32),
        context: bytes = bytes(32),
        drop: Drop | None = None,
        watch: Watch | None = None,
    ) -> SessionOutcome:
        """One round among ``clients``.

        Args:
            length: ring elements of an input.
            vector: maps a client and the session id to the client's input, uint32 or uint64 ``[length]``.
            model_hash: 32 bytes, the hash of the model that the clients received.
            context: SHA-256 of everything else that the parties agree on, such as the encoding.
            drop: by step of the protocol, the clients that drop out there.
            watch: called with every message.

        Raises:
            ConfigError: too few clients, or an unknown step.
        """
        ids = tuple(clients)
        require(len(set(ids)) == len(ids), "clients: one is listed twice.")
        identities = {client: self._identity(client) for client in ids}
        roster = Roster(tuple(identities[client].public for client in ids))
        config = self.settings.config(len(ids), length, context)
        server = ProtocolServer(config, roster, round=round, model_hash=model_hash, entropy=self._entropy)

        def party(place: int, client: int) -> Client:
            return Client(
                place,
                identities[client],
                roster,
                SessionPolicy.like(config),
                round=round,
                model_hash=model_hash,
                vector=lambda sid: vector(client, sid),
                entropy=self._entropy,
            )

        parties = [party(place, client) for place, client in enumerate(ids)]
        silent = silences({} if drop is None else drop, ids)
        transcript: list[MessageEvent] = []

        def record_event(event: MessageEvent, data: bytes) -> None:
            transcript.append(event)
            if watch is not None:
                watch(event, data)

        error = _drive(server, parties, silent, record_event)
        for one in parties:
            one.close()
        return SessionOutcome(
            server.sid,
            config,
            server.total,
            tuple(ids[place] for place in sorted(server.included)) if server.total is not None else (),
            error,
            tuple(map(str, server.blamed)),
            tuple(transcript),
        )

    def _identity(self, client: int) -> Identity:
        if client not in self._identities:
            self._identities[client] = Identity(self._entropy)
        return self._identities[client]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a federation holds private keys, and is pickled by nobody.")


def silences(drop: Drop, clients: Sequence[int]) -> dict[int, Phase]:
    """By index in the roster, for each client that drops out, the first message that it does not send."""
    silent: dict[int, Phase] = {}
    require(isinstance(drop, Mapping), f"drop: expected clients by a step of the protocol; got {brief(drop)}.")
    for step, dropped in drop.items():
        if step not in STEPS:
            raise UnknownName("step of the protocol", step, STEPS)
        listed = isinstance(dropped, Collection) and not isinstance(dropped, str | bytes)
        require(listed, f"drop: expected a list of clients at {step!r}; got {brief(dropped)}.")
        strangers = [client for client in dropped if not is_whole(client) or client not in clients]
        require(not strangers, f"drop: expected clients of {brief(list(clients))} at {step!r}; got {brief(strangers)}.")
        for place, client in enumerate(clients):
            if client in dropped:
                silent[place] = min(STEPS[step], silent.get(place, STEPS[step]))
    return silent


def _drive(
    server: ProtocolServer, parties: Sequence[Client], silent: Mapping[int, Phase], seen: Watch
) -> ProtocolError | None:
    """Deliver messages until there is a sum; return the error if there is none."""
    mail = dict.fromkeys(range(len(parties)), server.hello())
    while server.state is not ServerState.DONE:
        for place, data in mail.items():
            if place not in silent or server.awaits < silent[place]:
                _exchange(server, parties[place], data, seen)
        try:
            mail = server.close()
        except ProtocolError as error:
            return error.with_traceback(None)  # its frames lead to the clients
    return None


def _exchange(server: ProtocolServer, party: Client, data: bytes, seen: Watch) -> None:
    """One message to a client, and its answer back."""
    kind = read_header(data).phase
    try:
        answer = party.receive(data)
    except ProtocolError as error:
        seen(MessageEvent(None, party.id, kind.name, len(data), str(error)), data)
        return
    seen(MessageEvent(None, party.id, kind.name, len(data)), data)
    reply, complaint = read_header(answer).phase.name, None
    try:
        server.receive(answer)
    except ProtocolError as error:
        complaint = str(error)
    seen(MessageEvent(party.id, None, reply, len(answer), complaint), answer)
