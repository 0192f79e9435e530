"""Malicious parties against real ones: what a protocol attack may do, and the referee that knows the truth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Algorithm
from fedguard.errors import NotObservable
from fedguard.secagg.client import Client
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.keys import Identity
from fedguard.secagg.masks import RingVector
from fedguard.secagg.parameters import Parameters
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.session import Roster, SessionConfig, SessionPolicy
from fedguard.secagg.simulation import Settings
from fedguard.secagg.transitions import ClientState

Verdict = Literal["defeated", "succeeded", "limit"]
#: Maps a count to as many random integers, of either sign.
Noise = Callable[[int, Entropy], NDArray[np.int64]]


@dataclass(frozen=True)
class Claim:
    """What an attack claims to have achieved; it does not know whether the claim is true.

    Attributes:
        sums: by set of honest clients, the vector that the attack takes for the sum of their inputs.
        totals: sums that an honest server accepted: the clients that it names as included, and the sum.
        blamed: clients that honest parties blamed.
        broken: events, in words, that the protocol rules out, such as keys that were accepted without a signature or a graph
            that was known before the keys. They count even if no input follows from them here.
        epsilons: of rounds with noise, the epsilon that the noise in the sum is worth at best, and the one that was charged.
        figures: measured quantities, with units in the names.
        story: the course of the attack, line by line.
    """

    sums: Mapping[frozenset[int], RingVector] = field(default_factory=dict)
    totals: Sequence[tuple[Collection[int], RingVector]] = ()
    blamed: Collection[int] = ()
    broken: Sequence[str] = ()
    epsilons: Sequence[tuple[float, float]] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    story: Sequence[str] = ()


@dataclass(frozen=True)
class ContestResult:
    """The judgment of the referee.

    Attributes:
        verdict: ``defeated``; ``succeeded`` if the protocol broke a guarantee; ``limit`` if the attack works, but against
            something that the protocol does not guarantee.
        learned: in words, what the attack learned.
        stopped_by: the errors that the honest parties raised.
    """

    attack: str
    variant: str
    verdict: Verdict
    learned: str
    stopped_by: tuple[str, ...]
    figures: Mapping[str, float]
    story: tuple[str, ...]


class Party:
    """An honest client as a malicious server sees it: bytes in, bytes out, and what it prints of itself in a log."""

    def __init__(self, client: Client, complaints: list[str]) -> None:
        self.id = client.id

        def receive(data: bytes) -> bytes:
            try:
                return client.receive(data)
            except ProtocolError as error:
                complaints.append(str(error))
                raise

        self.receive = receive
        self._client = client

    def seize_client(self) -> Client:
        """The client itself with its memory, as for a thief of the device. Allowed only after the end of its session."""
        if self._client.state not in (ClientState.DONE, ClientState.ABORTED):
            raise NotObservable(
                f"a protocol attack reached into the memory of client {self.id} in the middle of a session."
            )
        return self._client

    def __repr__(self) -> str:
        return repr(self._client)

    def __str__(self) -> str:
        return str(self._client)


class Arena:
    """Clients of one roster: colluders, which the attack controls, and honest clients, which the referee runs.

    Attributes:
        honest, colluders: ids; the colluders are the last ones.
        parameters, config: of the sessions that the honest clients expect.
    """

    round: ClassVar[int] = 1

    def __init__(
        self,
        clients: int,
        colluders: int,
        length: int,
        settings: Settings,
        weak: type[Client] | None,
        entropy: Entropy,
        draw: Callable[[SessionConfig, Entropy], RingVector],
    ) -> None:
        self.settings, self.entropy = settings, entropy
        self.honest = tuple(range(clients - colluders))
        self.colluders = tuple(range(clients - colluders, clients))
        self.parameters: Parameters = settings.parameters(clients)
        self.config: SessionConfig = settings.config(clients, length)
        self.model_hash = entropy(32)
        self.complaints: list[str] = []
        self._identities = [Identity(entropy) for _ in range(clients)]
        self._kind = weak or Client
        self._draw = draw
        self._inputs = {client: draw(self.config, entropy) for client in range(clients)}
        self.roster = Roster(tuple(identity.public for identity in self._identities))

    def identity(self, client: int) -> Identity:
        """The long-term key of a colluder."""
        if client not in self.colluders:
            raise NotObservable(f"a protocol attack reached for the private key of the honest client {client}.")
        return self._identities[client]

    def input(self, client: int) -> RingVector:
        """The input of a colluder."""
        if client not in self.colluders:
            raise NotObservable(f"a protocol attack reached for the input of the honest client {client}.")
        return self._inputs[client]

    def lineup(self, client: int, count: int) -> list[RingVector]:
        """``count`` vectors, among them the input of an honest client; the others have the same distribution.

        This is what an attack may know.
        """
        vectors = [self._draw(self.config, self.entropy) for _ in range(count - 1)]
        vectors.insert(int.from_bytes(self.entropy(8), "little") % count, self._inputs[client].copy())
        return vectors

    def parties(
        self,
        *,
        round: int = 1,
        model_hash: bytes | None = None,
        policy: SessionPolicy | None = None,
        idle: bool = False,
        noise: Noise | None = None,
        meanwhile: Callable[[int], None] | None = None,
        kind: type[Client] | None = None,
    ) -> dict[int, Party]:
        """The honest clients, new for one session; their inputs are the same in all sessions except for the noise.

        Args:
            model_hash: hash of the model that they received; by default the one of all clients.
            policy: their policy; by default it requires the arena's parameters.
            idle: whether the inputs are zeros, as after training that moves nothing: no gradient, or no step.
            noise: what each adds to its input in this session, drawn from the arena's entropy.
            meanwhile: called with a client's id while that client prepares its input: the server may send to it then.
            kind: a class of clients without one of the checks, so that the next check behind it can be tested.
        """
        model = model_hash or self.model_hash
        return {
            client: Party(
                self._client(client, round, model, policy, idle, noise, kind, meanwhile),
                self.complaints,
            )
            for client in self.honest
        }

    def group(self, members: Sequence[int]) -> Arena:
        """An arena of these clients only: its client i is ``members[i]``, with its key and its input."""
        group = copy(self)
        group.honest = tuple(place for place, client in enumerate(members) if client in self.honest)
        group.colluders = tuple(place for place, client in enumerate(members) if client in self.colluders)
        group.parameters = self.settings.parameters(len(members))
        group.config = self.settings.config(len(members), self.config.length)
        group._identities = [self._identities[client] for client in members]
        group._inputs = {place: self._inputs[client] for place, client in enumerate(members)}
        group.roster = Roster(tuple(self.roster.identities[client] for client in members))
        return group

    def accomplice(self, client: int, *, round: int = 1, kind: type[Client] | None = None) -> Client:
        """A colluder that follows the protocol unless the attack changes it; with ``kind``, of a class that does not."""
        self.identity(client)
        return self._client(client, round, self.model_hash, None, kind=kind)

    def server(
        self,
        *,
        round: int = 1,
        config: SessionConfig | None = None,
        model_hash: bytes | None = None,
        nonce: bytes | None = None,
    ) -> ProtocolServer:
        """A server that follows the protocol unless the attack changes it; ``nonce`` replaces the one that it would draw."""
        return ProtocolServer(
            config or self.config,
            self.roster,
            round=round,
            model_hash=model_hash or self.model_hash,
            entropy=self.entropy if nonce is None else lambda count: nonce,
        )

    def _client(
        self,
        client: int,
        round: int,
        model_hash: bytes,
        policy: SessionPolicy | None,
        idle: bool = False,
        noise: Noise | None = None,
        kind: type[Client] | None = None,
        meanwhile: Callable[[int], None] | None = None,
    ) -> Client:
        vector = self.config.zeros() if idle else self._inputs[client]
        if noise is not None:
            vector = vector + noise(len(vector), self.entropy).astype(vector.dtype)
        return (kind or self._kind)(
            client,
            self._identities[client],
            self.roster,
            policy or SessionPolicy.like(self.config),
            round=round,
            model_hash=model_hash,
            vector=partial(_supply_input, vector, partial(meanwhile, client) if meanwhile else None),
            entropy=self.entropy,
        )

    def truth(self, clients: Collection[int]) -> RingVector:
        """For the referee: the sum of these clients' inputs."""
        total = self.config.zeros()
        for client in clients:
            total += self._inputs[client]
        return total


def _supply_input(vector: RingVector, meanwhile: Callable[[], None] | None, _: bytes) -> RingVector:
    """Return an input, after a callback that stands for the time of its preparation."""
    if meanwhile is not None:
        meanwhile()
    return vector


class ProtocolAttack(Algorithm):
    """One way to cheat in secure aggregation, mounted by a malicious server, malicious clients or both.

    A subclass drives the parties of an `Arena` by their messages and returns a `Claim`. It never sees an honest input; only
    the referee decides whether the claim is true.
    """

    kind: ClassVar[str] = "protocol"
    #: Who cheats: ``server``, ``client``, or ``both`` in collusion.
    by: ClassVar[str]
    #: What stops it.
    stopped_by: ClassVar[str]
    #: Why a success breaks no promise of the protocol; empty where it would break one.
    outside: ClassVar[str] = ""
    #: A weakness planted in a client, against which the attack must succeed; None where there is no such variant.
    weak: ClassVar[type[Client] | None] = None
    #: The arena: clients, of which the last ones collude, and ring elements of an input.
    clients: ClassVar[int] = 8
    colluders: ClassVar[int] = 1
    length: ClassVar[int] = 16
    settings: ClassVar[Settings] = Settings(colluding=0.2, dropping=0.2)

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        """The input of a client of the arena: uniform in the ring, unless the attack needs another distribution."""
        width = config.ring // 8
        return np.frombuffer(entropy(width * config.length), f"<u{width}").astype(config.dtype)

    @abstractmethod
    def mount(self, arena: Arena) -> Claim:
        """Attack, and return what it claims. A `ProtocolError` that is not caught means that the attack was stopped."""


def contest(attack: ProtocolAttack, *, weak: bool = False, entropy: Entropy = system) -> ContestResult:
    """Mount an attack, and judge it.

    Args:
        weak: whether the clients have the attack's planted weakness, against which it must succeed.
        entropy: source of all keys and of the inputs.
    """
    arena = Arena(
        attack.clients,
        attack.colluders,
        attack.length,
        attack.settings,
        attack.weak if weak else None,
        entropy,
        attack.draw,
    )
    try:
        claim = attack.mount(arena)
    except ProtocolError as error:
        claim = Claim(story=[f"stopped: {error}"])
    learned, broken = _assess_claim(arena, claim)
    within = attack.outside and not claim.broken  # what the protocol itself rules out is no limit of it
    verdict: Verdict = "defeated" if not broken else "limit" if within else "succeeded"
    variant = "a client with a planted weakness" if weak else "ours"
    complaints = tuple(dict.fromkeys(arena.complaints))
    return ContestResult(attack.name, variant, verdict, learned, complaints, dict(claim.figures), tuple(claim.story))


def _assess_claim(arena: Arena, claim: Claim) -> tuple[str, bool]:
    """What was learned or spoiled, in words, and whether that is more than the protocol allows."""
    # A claim counts only if it equals the truth in every coordinate: a guess of a ring vector is right with chance 2^-(l d)
    right = [clients for clients, vector in claim.sums.items() if np.array_equal(arena.truth(clients), vector)]
    # Sums of `anonymity` honest inputs or more are what every aggregate reveals
    exposed = [clients for clients in right if 0 < len(clients & set(arena.honest)) < arena.parameters.anonymity]
    if exposed:
        fewest = min(exposed, key=len)
        promised = arena.parameters.anonymity
        return f"the sum of clients {sorted(fewest)}; promised are sums of {promised} honest inputs or more", True
    for included, total in claim.totals:
        if not np.array_equal(arena.truth(included), total):
            return f"an honest server took something else for the sum of clients {sorted(included)}", True
    if framed := set(claim.blamed) & set(arena.honest):
        return f"nothing; but honest parties blame the honest clients {sorted(framed)}", True
    if claim.broken:
        return f"nothing yet; but {claim.broken[0]}", True
    for worth, charged in claim.epsilons:
        if worth > charged:
            return f"noise that is worth epsilon = {worth:.3g} at best, where {charged:.3g} was charged", True
    wrong = "nothing: what it took for honest inputs is wrong" if claim.sums else "nothing"
    return ("sums as large as promised" if right else wrong), False
