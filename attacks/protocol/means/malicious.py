"""A session with a malicious server: it sends any message to any client, and rebuilds every secret that it can."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from fedguard.attacks.protocol.means.relay import Peer
from fedguard.secagg import codec, messages
from fedguard.secagg.contest import Arena
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.keys import SECRET_BYTES, KeyPair, pairwise_mask_key, self_mask_key
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.messages import Message, ReceivedMessage
from fedguard.secagg.session import SessionConfig, SessionPolicy
from fedguard.secagg.shamir import combine

#: The two secrets of a client: the seed of its self mask, and its mask key. Together they open its input.
SEED, KEY = "seed", "key"


class MaliciousServer:
    """A real server for the bookkeeping and real clients, with any messages of the attack between them.

    Attributes:
        server: keeps the keys and the packets of shares.
        told: for each client, the clients that shared according to the server's message to it.
        masked: the masked inputs, and ``proofs``: the content that their senders signed.
        shares: for a client and one of its two secrets, the known shares by evaluation point.
        fates: the outcome of the last message to each client: "answered", or the name of its error.
        named: the clients that honest ones named as cheats.
        taken: in words, the messages that honest clients accepted though they must refuse them.
    """

    def __init__(
        self,
        arena: Arena,
        *,
        round: int = 1,
        config: SessionConfig | None = None,
        policy: SessionPolicy | None = None,
        nonce: bytes | None = None,
        meanwhile: Callable[[int], None] | None = None,
    ) -> None:
        self.server = arena.server(round=round, config=config, nonce=nonce)
        self.config, self.arena, self.round = self.server.config, arena, round
        self.accomplices = {client: arena.accomplice(client, round=round) for client in arena.colluders}
        for accomplice in self.accomplices.values():
            # Colluders accept any proposal of the server, also a weak one that honest clients refuse
            accomplice._policy = SessionPolicy.like(self.config)
        self.peers: dict[int, Peer] = {
            **arena.parties(round=round, policy=policy, meanwhile=meanwhile),
            **self.accomplices,
        }
        self.told: dict[int, frozenset[int]] = {}
        self.masked: dict[int, RingVector] = {}
        self.proofs: dict[int, bytes] = {}
        self.shares: dict[tuple[int, str], dict[int, int]] = {}
        self.fates: dict[int, str] = {}
        self.named: set[int] = set()
        self.taken: list[str] = []
        self._known: dict[tuple[int, str], bytes] = {}

    def ask(self, client: int, message: Message | bytes) -> ReceivedMessage | None:
        """A client's answer, if it gives one."""
        try:
            answer = self.peers[client].receive(self.pack(message))
        except ProtocolError as error:
            self.fates[client] = type(error).__name__
            if client not in self.accomplices and error.party is not None:
                self.named.add(error.party)
            return None
        self.fates[client] = "answered"
        return messages.unpack(answer)

    def must_refuse(self, clients: Collection[int], what: str) -> str:
        """Record whether any of these clients answered the last message, described by ``what``; return the outcome in words."""
        took = [client for client in clients if self.fates[client] == "answered"]
        if took:
            self.taken.append(f"honest clients {took} answered to: {what}")
        return f"{what}: {self.fate(clients)}"

    def ask_all(self, mail: Mapping[int, Message | bytes]) -> dict[int, ReceivedMessage]:
        """The answers, without the clients that refuse."""
        answers = {client: self.ask(client, message) for client, message in mail.items()}
        return {client: answer for client, answer in answers.items() if answer is not None}

    def fate(self, clients: Iterable[int]) -> str:
        """The outcome of the last message to these clients, such as ``clients 0, 1 answered; client 2: BadSignature``."""
        groups: dict[str, list[int]] = {}
        for client in sorted(clients):
            groups.setdefault(self.fates[client], []).append(client)
        return "; ".join(
            f"client{'s' * (len(who) > 1)} {', '.join(map(str, who))}{'' if fate == 'answered' else ':'} {fate}"
            for fate, who in groups.items()
        )

    def pack(self, message: Message | bytes) -> bytes:
        """A message of the server in this session; bytes are one already."""
        if isinstance(message, bytes):
            return message
        return messages.pack(self.server._header(message.phase, codec.SERVER), message)

    def sign_as_colluder(self, colluder: int, message: Message) -> bytes:
        """A colluder's signature over any message that the server chooses."""
        header = self.accomplices[colluder]._header(message.phase, colluder)
        return self.arena.identity(colluder).sign(messages.signature_payload(header, message))

    def advertise(self) -> dict[int, bytes]:
        """An honest R0; returns the roster of keys for each client."""
        return self._collect_answers(dict.fromkeys(self.peers, self.server.hello()))

    def share(self, rosters: Mapping[int, Message | bytes]) -> dict[int, messages.ShareDistribution]:
        """R1 with these rosters; returns the packets for each client."""
        mail = self._collect_answers(rosters)
        for client, accomplice in self.accomplices.items():
            self._known[client, SEED] = bytes(accomplice._seed)
            self._known[client, KEY] = bytes(accomplice._mask.secret)
        return {client: messages.unpack(data).message for client, data in mail.items()}  # type: ignore[misc]

    def _collect_answers(self, mail: Mapping[int, Message | bytes]) -> dict[int, bytes]:
        for answer in self.ask_all(mail).values():
            self.server.receive(messages.pack(answer.header, answer.message, answer.signature))
        return self.server.close()

    def mask(self, packets: Mapping[int, messages.ShareDistribution]) -> None:
        """R2: distribute packets, and store the masked inputs and the shares that colluders received."""
        for client, answer in self.ask_all(packets).items():
            message = answer.message
            assert isinstance(message, messages.MaskedInput)
            self.told[client] = packets[client].shared
            self.masked[client] = np.frombuffer(message.vector, self.config.dtype)
            self.proofs[client] = message.vector_hash + answer.signature
        for client, accomplice in self.accomplices.items():
            for owner, held in accomplice._held.items():
                for kind, share in zip((SEED, KEY), held, strict=True):
                    self.keep(owner, kind, client, share)

    def survivors(self, client: int, included: frozenset[int]) -> messages.Survivors:
        """A message with these survivors for a client, with the signatures of its neighbors among them."""
        near = self.server._directory.among(client, included)
        return messages.Survivors(included, tuple(self.proofs.get(v, bytes(messages.PROOF_BYTES)) for v in near))

    def attest(self, clients: Iterable[int], included: frozenset[int]) -> dict[int, bytes]:
        """R3: these clients' signatures over these survivors; colluders sign anything."""
        told = messages.Attestation(codec.set_hash(self.server.shared), codec.set_hash(included))
        signatures = {client: self.sign_as_colluder(client, told) for client in clients if client in self.accomplices}
        honest = [client for client in clients if client not in self.accomplices]
        for client, answer in self.ask_all({client: self.survivors(client, included) for client in honest}).items():
            signatures[client] = answer.signature
        return dict(sorted(signatures.items()))

    def unmask(
        self, questions: Mapping[int, Message | bytes], included: frozenset[int], dropped: Collection[int] = ()
    ) -> None:
        """R4: store the shares that clients reveal for these survivors; also for survivors reported as ``dropped``."""
        for client, answer in self.ask_all(questions).items():
            assert isinstance(answer.message, messages.UnmaskingShares)
            # A client reveals its shares in the order of the owners that it was told of, so a wrong set would shift them
            owners = self.server._directory.among(client, self.told[client])
            for owner, share in zip(owners, answer.message.shares, strict=False):
                self.keep(owner, SEED if owner in included else KEY, client, share)
            for owner, share in zip(sorted(dropped), answer.message.shares[len(owners) :], strict=False):
                self.keep(owner, KEY, client, share)

    def keep(self, owner: int, kind: str, holder: int, share: bytes | bytearray) -> None:
        """Store a share."""
        self.shares.setdefault((owner, kind), {})[holder + 1] = int.from_bytes(share, "little")

    def secret(self, owner: int, kind: str) -> bytes | None:
        """One of a client's two secrets, if enough shares of it are known."""
        shares = self.shares.get((owner, kind), {})
        if (owner, kind) not in self._known and len(shares) >= self.config.threshold:
            enough = dict(sorted(shares.items())[: self.config.threshold])
            self._known[owner, kind] = combine(enough).to_bytes(SECRET_BYTES, "little")
        return self._known.get((owner, kind))

    def recover_sum(self, clients: Collection[int]) -> RingVector | None:
        """The sum of these clients' inputs, if enough shares are known to remove all masks that do not cancel."""
        total, masks = self.config.zeros(), []
        for client in clients:
            seed = self.secret(client, SEED)
            if seed is None or client not in self.masked:
                return None
            total += self.masked[client]
            masks.append((self_mask_key(self.server.sid, seed, client, self.config.key_bytes), -1))
            # Masks between two clients of the sum cancel; the partners are those that this client was told of, which may
            # differ
            for partner in self.server._directory.among(client, self.told[client] - set(clients)):
                key = self._pairwise(client, partner)
                if key is None:
                    return None
                # The lower number added the pairwise mask and the higher one subtracted it; here the sign is reversed
                masks.append((key, -1 if client < partner else 1))
        add_masks(total, masks)
        return total

    def strip_masks(self, client: int, kind: str) -> RingVector:
        """A masked input less its self mask or its pairwise masks, as far as they are known."""
        vector, seed, near = self.masked[client].copy(), self.secret(client, SEED), self.told[client]
        if kind == SEED:
            masks = [] if seed is None else [(self_mask_key(self.server.sid, seed, client, self.config.key_bytes), -1)]
        else:
            partners = self.server._directory.among(client, near)
            found = [(partner, self._pairwise(client, partner)) for partner in partners]
            masks = [(key, -1 if client < partner else 1) for partner, key in found if key is not None]
        add_masks(vector, masks)
        return vector

    def _pairwise(self, client: int, partner: int) -> bytes | None:
        """The key of the mask between two clients, from the mask key of either."""
        directory = self.server._directory
        for owner, other in ((client, partner), (partner, client)):
            secret = self.secret(owner, KEY)
            if secret is not None:
                agreed = KeyPair(secret).agree(directory.entries[other].mask_key)
                ends = directory.mask(owner), directory.mask(other)
                return pairwise_mask_key(self.server.sid, agreed, *ends, self.config.key_bytes)
        return None


def withheld(packets: messages.ShareDistribution, owners: Collection[int]) -> messages.ShareDistribution:
    """The same packets without these owners; the owners are not listed as sharing either."""
    left = tuple(delivery for delivery in packets.deliveries if delivery.owner not in owners)
    return messages.ShareDistribution(packets.shared - set(owners), left)


def quorum(signatures: Mapping[int, bytes]) -> messages.Quorum:
    """The signatures as a message to clients."""
    signers = sorted(signatures)
    return messages.Quorum(frozenset(signers), tuple(signatures[client] for client in signers))
