"""A search over rings until the colluders surround a victim."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from fedguard.attacks.protocol.means.relay import Peer, Relay
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Header
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.directory import Directory
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.graph import neighbors
from fedguard.secagg.keys import SECRET_BYTES, KeyPair, pairwise_mask_key, self_mask_key
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.messages import Hello, KeyAdvertisement, Message, pack, signature_payload, unpack
from fedguard.secagg.parameters import Parameters, sparse, tails
from fedguard.secagg.session import SessionConfig, SessionPolicy
from fedguard.secagg.shamir import combine
from fedguard.secagg.simulation import Settings
from fedguard.secagg.transitions import ServerState

#: With it, the ring of a `NonceDirectory` of all clients puts colluders on 11 of the 12 places around an honest one. Found
#: once for all sessions, by counting up: 41 million rings, two and a half minutes on one core.
NONCE = (1099553026520).to_bytes(32, "little")
_GRAPH = b"FedGuard/secagg/v1/graph"


class SmallRing(Settings):
    """A ring for few clients, bad for some client with probability 2^-24 at most, where 2^-41 is the default."""

    def parameters(self, clients: int) -> Parameters:
        return sparse(clients, self.colluding, self.dropping, security=24)


@dataclass(frozen=True)
class NonceDirectory(Directory):
    """A directory whose graph follows from the server's nonce alone, so that it is known before anybody's keys are."""

    nonce: bytes

    @cached_property
    def neighbors(self) -> Mapping[int, tuple[int, ...]]:
        seed = hashlib.sha256(_GRAPH + self.nonce).digest()
        return neighbors(seed, tuple(self.entries), self.config.degree)

    @classmethod
    def of(cls, directory: Directory, nonce: bytes) -> NonceDirectory:
        """The same clients and keys, on another graph."""
        return cls(directory.proposal, directory.config, directory.round, directory.entries, nonce)


class NonceGraphClient(Client):
    """Planted: it draws the graph from the server's nonce, and from nothing else."""

    def _advertise(self, header: Header, hello: Hello) -> Message:
        self._nonce = hello.nonce
        return super()._advertise(header, hello)

    @property
    def _directory(self) -> Directory:
        return self._drawn

    @_directory.setter
    def _directory(self, directory: Directory) -> None:
        self._drawn = NonceDirectory.of(directory, self._nonce)


@dataclass(frozen=True, kw_only=True)
class GraphGrinding(ProtocolAttack):
    """Server and colluders steer the graph until a threshold of colluders stands around a victim, and holds its secrets.

    Each fresh key has to change the graph, otherwise the graph would be known before the key. First the attack checks this.
    Then the server proposes the complete graph, at a threshold that was chosen for a sparse graph. It also sends a nonce
    for which the graph would be bad, if the graph depended on the nonce alone. Last, one colluder waits with its keys until
    it has seen all other keys, and tries key after key:

        $"chance per ring" <= "honest clients" * Pr[Hyp(n - 1, A, k) >= t]$,      tries needed: about its inverse

    Only the size of the parameters stops the last way, and each doubling of the tries costs one bit of security
    (``grinding`` of `fedguard.secagg.parameters.choose`).

    Args:
        tries: number of keys that the waiting colluder tries while the others wait.
    """

    name = "graph_grinding"
    source = "folklore; that a sparse graph must not be the server's choice: Bell et al., CCS 2020"
    number: ClassVar[int] = 12
    by = "both"
    stopped_by = (
        "clients insist on the degree; the graph is drawn from all fresh keys; and so many colluders around one client "
        "are too rare to be found by trying"
    )
    weak = NonceGraphClient
    clients: ClassVar[int] = 48
    colluders: ClassVar[int] = 11
    settings: ClassVar[Settings] = SmallRing(colluding=0.23, dropping=0)
    #: Number of colluders around one client at which the tail is frequent enough to be counted.
    crowd: ClassVar[int] = 6

    tries: int = 2**11

    def mount(self, arena: Arena) -> Claim:
        parameters = arena.parameters
        story = [
            f"{parameters.corrupted} of {parameters.clients} clients collude, each has {parameters.degree} neighbors; "
            f"{parameters.threshold} colluders around one client hold its secrets"
        ]
        figures: dict[str, float] = {}
        known, told = self._foreseen(arena)
        story.append(told)
        for way, relay in self._ways(arena, figures):
            try:
                relay.run(ServerState.ATTESTING)
            except ProtocolError as error:
                story.append(f"{way}: {relay.refusals() or 'nobody objects'}, and {type(error).__name__}")
                continue
            sums = self._unmask_victims(arena, relay)
            opened = f"the inputs of clients {sorted(min(sums))} lie open" if sums else "nobody is surrounded"
            story.append(f"{way}: nobody objects; {opened}")
            if sums:
                return Claim(sums=sums, broken=known, figures=figures, story=story)
        return Claim(broken=known, figures=figures, story=story)

    def _foreseen(self, arena: Arena) -> tuple[list[str], str]:
        """Whose fresh keys do not move the graph: who chooses all else could know it without them, and search at leisure."""
        relay = Relay(arena.server(), _peers(arena))
        try:
            relay.step()
        except ProtocolError as error:
            return [], f"no graph is drawn: {type(error).__name__}"
        directory, still = relay.server._directory, []
        for client, entry in directory.entries.items():
            for field in ("encryption_key", "mask_key"):
                others = {**directory.entries, client: replace(entry, **{field: arena.entropy(SECRET_BYTES)})}
                if replace(directory, entries=others).neighbors == directory.neighbors:
                    still.append(f"the {field} of client {client}")
        known = [f"the graph is drawn without {still[0]}, and {len(still) - 1} keys more"] if still else []
        return known, f"{len(still)} of {2 * len(directory.entries)} fresh keys leave the graph as it is"

    def _ways(self, arena: Arena, figures: dict[str, float]) -> Iterator[tuple[str, Relay]]:
        """Sessions up to the choice of the graph, each with fresh parties."""
        complete = replace(arena.config, degree=arena.parameters.clients - 1)
        yield "the complete graph at the same threshold", Relay(arena.server(config=complete), _peers(arena, complete))

        server = arena.server(nonce=NONCE)
        relay = Relay(server, _peers(arena))
        relay.step()
        server._directory = NonceDirectory.of(server._directory, NONCE)
        yield "a nonce that was chosen for its graph", relay

        relay, found, started = Relay(arena.server(), _peers(arena)), Counter[int](), time.perf_counter()
        last = arena.colluders[-1]
        relay.step(lambda client, answer: self._ground(arena, relay, answer, found) if client == last else answer)
        # Each ring tried adds one count for every honest client
        rings = found.total() // len(arena.honest)
        figures |= self._figures(arena, found, rings, rings / (time.perf_counter() - started))
        yield (
            f"{rings} keys of client {last}, which has seen all others' (at most {max(found)} colluders around one)",
            relay,
        )

    def _ground(self, arena: Arena, relay: Relay, answer: bytes, found: Counter[int]) -> bytes:
        """The advertisement with a suitable key, or the last one tried; ``found`` counts the colluders around clients."""
        received, server = unpack(answer), relay.server
        assert isinstance(received.message, KeyAdvertisement)
        client, entries = received.header.sender, {v: entry for v, (entry, _) in server._advertised.items()}
        for _ in range(self.tries):
            drawn = arena.entropy(SECRET_BYTES)
            point = drawn[:-1] + bytes([drawn[-1] & 0x7F])  # below 2^255, as clients insist
            entries[client] = replace(received.message, mask_key=point)
            around = _around(arena, Directory(server.proposal, arena.config, arena.round, entries))
            found.update(around.values())
            if max(around.values()) >= arena.config.threshold:
                break
        accomplice = relay.peers[client]
        assert isinstance(accomplice, Client)
        accomplice._own = entries[client]
        signature = arena.identity(client).sign(signature_payload(received.header, entries[client]))
        return pack(received.header, entries[client], signature)

    def _unmask_victims(self, arena: Arena, relay: Relay) -> dict[frozenset[int], RingVector]:
        """The inputs of surrounded clients: the colluders hold a threshold of shares of both their secrets."""
        directory, threshold, sums = relay.server._directory, arena.config.threshold, {}
        memories = {client: peer._held for client, peer in relay.peers.items() if isinstance(peer, Client)}
        for victim, colluders in _around(arena, directory).items():
            if colluders >= threshold:
                held = [(u + 1, memories[u][victim]) for u in directory.among(victim, memories)][:threshold]
                shares = ({x: int.from_bytes(pair[kind], "little") for x, pair in held} for kind in (0, 1))
                sums[frozenset({victim})] = _remove_masks(relay, victim, *(combine(points) for points in shares))
        return sums

    def _figures(self, arena: Arena, found: Counter[int], rings: int, rate: float) -> dict[str, float]:
        """The counts, with the closed form."""
        parameters, honest = arena.parameters, len(arena.honest)
        ways, total = tails(parameters.clients - 1, parameters.corrupted, parameters.degree)
        # A union bound over the honest clients
        chance = honest * ways[parameters.threshold] / total
        crowded = sum(count for around, count in found.items() if around >= self.crowd)
        return {
            "rings_tried": rings,
            "rings_per_second": rate,
            "log2_chance_per_ring": math.log2(chance),
            "log2_chance_of_all_tries": math.log2(chance * rings),
            "hours_until_one_is_expected": 1 / chance / rate / 3600,
            "hours_for_2^41_rings": 2**41 / rate / 3600,
            f"share_with_{self.crowd}_or_more_measured": crowded / found.total(),
            f"share_with_{self.crowd}_or_more_expected": ways[self.crowd] / total,
        }


def _peers(arena: Arena, config: SessionConfig | None = None) -> dict[int, Peer]:
    """The honest clients, and colluders that accept the proposal."""
    peers: dict[int, Peer] = {**arena.parties()}
    for client in arena.colluders:
        peers[client] = accomplice = arena.accomplice(client)
        accomplice._policy = SessionPolicy.like(config or arena.config)
    return peers


def _around(arena: Arena, directory: Directory) -> dict[int, int]:
    """The number of colluders around each honest client."""
    return {client: len(directory.among(client, arena.colluders)) for client in arena.honest}


def _remove_masks(relay: Relay, victim: int, seed: int, secret: int) -> RingVector:
    """A masked input without its masks, from the seed of its self mask and its mask key."""
    server, directory, vector = relay.server, relay.server._directory, relay.masked[victim].copy()
    pair, size = KeyPair(secret.to_bytes(SECRET_BYTES, "little")), server.config.key_bytes
    masks = [(self_mask_key(server.sid, seed.to_bytes(SECRET_BYTES, "little"), victim, size), -1)]
    for v in directory.neighbors[victim]:
        agreed = pair.agree(directory.entries[v].mask_key)
        key = pairwise_mask_key(server.sid, agreed, directory.mask(victim), directory.mask(v), size)
        masks.append((key, -1 if victim < v else 1))
    add_masks(vector, masks)
    return vector
