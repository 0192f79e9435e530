"""A search for secrets in the traces of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag

from fedguard.attacks.protocol.means.traces import LogCollector, blobs, numbers, reachable, render_error, render_object
from fedguard.secagg import codec, keys, messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import SHARE_BYTES, Phase
from fedguard.secagg.contest import Arena, Claim, Party, ProtocolAttack
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.shamir import combine


class LeakyReprClient(Client):
    """Planted: its repr shows all attributes, as a dataclass's would."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


@dataclass
class Evidence:
    """The traces of a session that its malicious server collects.

    Attributes:
        server: with all messages that it received.
        traffic: every message.
        masked: the masked input of each client.
        texts: by client, its representations, its errors and the log messages.
        memory: by client, the byte strings in its memory after the session.
        stored: number of clients with a state that could be stored.
    """

    server: ProtocolServer
    traffic: list[bytes] = field(default_factory=list)
    masked: dict[int, RingVector] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    memory: dict[int, list[bytes]] = field(default_factory=dict)
    stored: int = 0

    def unknown(self) -> set[bytes]:
        """Byte strings in texts and memory that were not sent over the network."""
        texts = {text for texts in self.texts.values() for text in texts}
        found = {blob for text in texts for blob in blobs(text)}
        found |= {blob for held in self.memory.values() for blob in held}
        traffic = b"".join(self.traffic)
        return {blob for blob in found if len(blob) >= keys.SECRET_BYTES and blob not in traffic}


@dataclass(frozen=True, kw_only=True)
class SecretSearch(ProtocolAttack):
    """The server collects all that sessions leave behind, tries every byte string in it as a secret, and opens inputs.

    It reads the representations of clients and errors, logs of all levels and crash reports with local variables, at every
    step and after malformed messages. It asks for the state to be stored, and it seizes the memory of clients after their
    session has ended or aborted. It recognizes self-mask seeds and shares by their commitments, private keys by their
    public keys, and agreed keys by the packets that they decrypt; t shares make a secret. An array in a client's memory may
    be its input itself.
    """

    name = "secret_search"
    source = "folklore; CWE-532 (secrets in logs), CWE-226 (memory that is not cleared)"
    number: ClassVar[int] = 19
    by = "server"
    stopped_by = (
        "secrets have no repr and no stored form, no error or its traceback quotes them, and they are wiped when they have "
        "served"
    )
    weak = LeakyReprClient
    clients: ClassVar[int] = 6
    colluders: ClassVar[int] = 0
    length: ClassVar[int] = 17

    def mount(self, arena: Arena) -> Claim:
        sums: dict[frozenset[int], RingVector] = {}
        story, broken, texts, tried, stored = [], list[str](), 0, 0, 0
        for last, words in _ENDINGS.items():
            evidence = self._session(arena, last)
            unknown = evidence.unknown()
            opened = SecretOpenings(evidence.server, unknown)
            inputs = opened.inputs(evidence.masked) or _arrays(arena, evidence)
            sums |= {frozenset({client}): vector for client, vector in inputs.items()}
            broken += [f"after {words}: {opened}"] if opened else []
            story.append(f"{words}: {len(unknown)} byte strings that nobody sent; {opened}, {len(inputs)} inputs")
            texts += sum(map(len, evidence.texts.values()))
            tried += len(unknown)
            stored += evidence.stored
        return Claim(
            sums=sums,
            broken=broken,
            figures={"texts": texts, "byte_strings": tried, "states_stored": stored},
            story=story,
        )

    def _session(self, arena: Arena, last: Phase | None) -> Evidence:
        """A session that the server relays honestly, up to a message that makes clients abort."""
        server, parties = arena.server(), arena.parties()
        evidence = Evidence(server, texts={client: [] for client in parties})
        mail: Mapping[int, bytes] = dict.fromkeys(parties, server.hello())
        while mail:
            for client, data in mail.items():
                bent = _corrupt_message(data) if codec.read_header(data).phase is last else data
                answer = self._probe_client(parties[client], bent, evidence)
                if answer is None:
                    continue
                server.receive(answer)
                message = messages.unpack(answer).message
                if isinstance(message, messages.MaskedInput):
                    evidence.masked[client] = np.frombuffer(message.vector, arena.config.dtype)
            mail = {} if codec.read_header(next(iter(mail.values()))).phase is last else server.close()
        for client, party in parties.items():
            seized = party.seize_client()
            evidence.memory[client] = list(reachable(seized))
            try:
                evidence.texts[client].append(repr(seized.__reduce_ex__(4)))
                evidence.stored += 1
            except TypeError as error:
                evidence.texts[client].append(render_error(error))
        return evidence

    def _probe_client(self, party: Party, data: bytes, evidence: Evidence) -> bytes | None:
        """A client's answer; its representations, errors and log messages go to ``evidence``."""
        answer, texts = None, evidence.texts[party.id]
        with LogCollector() as listener:
            for message in (b"", data[:-1], evidence.server.hello(), data):
                texts.append(render_object(party))
                try:
                    answer = party.receive(message)
                    evidence.traffic += [message, answer]
                except ProtocolError as error:
                    evidence.traffic.append(message)
                    texts.append(render_error(error))
        texts.extend([*listener.texts, render_object(party)])
        return answer


class SecretOpenings:
    """The secrets of a session that byte strings open, as the relaying server can verify.

    Attributes:
        seeds, mask_secrets: the secrets found, by client.
    """

    def __init__(self, server: ProtocolServer, unknown: Iterable[bytes]) -> None:
        self._server, self._directory, self._sent = server, server._directory, server._shares
        self.seeds: dict[int, bytes] = {}
        self.mask_secrets: dict[int, bytes] = {}
        self._shares: dict[tuple[int, bytes], dict[int, int]] = {}
        size = keys.SECRET_BYTES
        for blob in unknown:
            if len(blob) == size:
                self._try_agreed(blob)
            for start in range(len(blob) - size + 1):
                self._try_secret(blob[start : start + size])
            for start in range(len(blob) - SHARE_BYTES + 1):
                self._try_share(blob[start : start + SHARE_BYTES])
        for shares in self._shares.values():
            if len(shares) >= server.config.threshold:
                self._try_secret(combine(shares).to_bytes(SHARE_BYTES, "little")[:size])

    def inputs(self, masked: Mapping[int, RingVector]) -> dict[int, RingVector]:
        """The inputs of the clients with both secrets found."""
        return {
            client: self._input(client, masked[client])
            for client in self.seeds.keys() & self.mask_secrets.keys() & masked.keys()
        }

    def _input(self, client: int, masked: RingVector) -> RingVector:
        sid, size, directory = self._server.sid, self._server.config.key_bytes, self._directory
        pair, vector = keys.KeyPair(self.mask_secrets[client]), masked.copy()
        masks = [(keys.self_mask_key(sid, self.seeds[client], client, size), -1)]
        for v in directory.among(client, self._server.shared):
            agreed = pair.agree(directory.entries[v].mask_key)
            key = keys.pairwise_mask_key(sid, agreed, directory.mask(client), directory.mask(v), size)
            masks.append((key, -1 if client < v else 1))
        add_masks(vector, masks)
        return vector

    def _try_secret(self, piece: bytes) -> None:
        """Try a byte string as a self-mask seed, and as a private key."""
        public = keys.KeyPair(piece).public
        for client, entry in self._directory.entries.items():
            if (
                client in self._sent
                and keys.seed_commitment(self._server.sid, client, piece) == self._sent[client][0].seed
            ):
                self.seeds[client] = piece
            if public == entry.mask_key:
                self.mask_secrets[client] = piece
            if public == entry.encryption_key:
                for v in self._directory.neighbors[client]:
                    self._try_agreed(bytes(keys.KeyPair(piece).agree(self._directory.entries[v].encryption_key)))

    def _try_agreed(self, piece: bytes) -> None:
        """Try a byte string as the agreed secret that encrypts shares between two clients."""
        directory = self._directory
        for owner, (share, _) in self._sent.items():
            for holder, packet in zip(directory.neighbors[owner], share.packets, strict=True):
                ends = directory.encryption(owner), directory.encryption(holder)
                key = keys.share_key(self._server.sid, piece, *ends)
                try:
                    plain = keys.decrypt_share(key, packet.cipher, directory.share_header(owner, holder))
                except InvalidTag:
                    continue
                self._keep(owner, holder, b"b", plain[:SHARE_BYTES])
                self._keep(owner, holder, b"s", plain[SHARE_BYTES:])

    def _try_share(self, piece: bytes) -> None:
        """Try a byte string as a share of any secret with any holder."""
        for owner, (share, _) in self._sent.items():
            for holder, packet in zip(self._directory.neighbors[owner], share.packets, strict=True):
                for kind, committed in ((b"b", packet.seed_share), (b"s", packet.key_share)):
                    if keys.share_commitment(self._server.sid, owner, holder, kind, piece) == committed:
                        self._keep(owner, holder, kind, piece)

    def _keep(self, owner: int, holder: int, kind: bytes, share: bytes) -> None:
        self._shares.setdefault((owner, kind), {})[holder + 1] = int.from_bytes(share, "little")

    def __bool__(self) -> bool:
        return bool(self.seeds or self.mask_secrets or self._shares)

    def __str__(self) -> str:
        shares = sum(map(len, self._shares.values()))
        return f"{len(self.seeds)} seeds, {len(self.mask_secrets)} mask keys, {shares} shares"


#: The message that the server replaces by one that makes clients abort; None for a complete session.
_ENDINGS = {
    None: "a session to its end",
    Phase.SURVIVORS: "one that clients abort when they are shown survivors",
    Phase.QUORUM: "one that they abort when they are shown the quorum",
}


def _corrupt_message(data: bytes) -> bytes:
    """A replacement of this message that makes a client abort."""
    header = codec.read_header(data)
    nobody = (
        messages.Survivors(frozenset(), ()) if header.phase is Phase.SURVIVORS else messages.Quorum(frozenset(), ())
    )
    return messages.pack(header, nobody)


def _arrays(arena: Arena, evidence: Evidence) -> dict[int, RingVector]:
    """By client, an array of the length of an input, in its texts or its memory, that is not its masked input."""
    dtype, size = arena.config.dtype, arena.config.length
    found: dict[int, RingVector] = {}
    for client, masked in evidence.masked.items():
        rows = [
            np.array(row, np.uint64) for text in evidence.texts[client] for row in numbers(text) if len(row) == size
        ]
        held = [np.frombuffer(blob, dtype) for blob in evidence.memory[client] if len(blob) == size * dtype.itemsize]
        others = [row.astype(dtype) for row in (*held, *rows) if not np.array_equal(row.astype(dtype), masked)]
        found |= {client: others[0]} if others else {}
    return found
