"""A client of secure aggregation: bytes in, bytes out. It trusts the server with nothing but the sum."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection
from threading import Lock
from typing import NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag

from fedguard.errors import ConfigError, ContractError
from fedguard.secagg import codec, errors, keys, merkle, messages
from fedguard.secagg.checkpoint import BETWEEN, ClientCheckpoint, seal, unseal
from fedguard.secagg.codec import SHARE_BYTES, Header, Phase
from fedguard.secagg.directory import Directory
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.messages import Message, Packet
from fedguard.secagg.session import Roster, SessionConfig, SessionPolicy, proposal_id
from fedguard.secagg.shamir import PRIME, split
from fedguard.secagg.transitions import CLIENT, TRUSTING_CLIENT, ClientState


class Client:
    """One client in one session; `transitions` says what it does when.

    Args:
        id: the client's index in the roster.
        identity: its long-term key.
        roster: the pinned identities of all clients.
        policy: the least that it accepts of a session.
        round: the round that it expects.
        model_hash: 32 bytes, the hash of the model that it received.
        vector: maps the session id to the input, uint32 or uint64 ``[length]``. Called once, when the input is masked.
        entropy: source of its keys, its self-mask seed and the coefficients of its shares.

    Attributes:
        proposal: identifier of the proposal, once the client has accepted it.
        sid: identifier of the session, once the roster of keys has arrived.
    """

    def __init__(
        self,
        id: int,
        identity: keys.Identity,
        roster: Roster,
        policy: SessionPolicy,
        *,
        round: int,
        model_hash: bytes,
        vector: Callable[[bytes], RingVector],
        entropy: Entropy = system,
    ) -> None:
        self._answering = Lock()
        self.id, self.state, self.proposal, self.sid = id, ClientState.NEW, b"", b""
        self._identity, self._roster, self._policy = identity, roster, policy
        self._round, self._model_hash, self._entropy = round, model_hash, entropy
        self._table = CLIENT if policy.attested else TRUSTING_CLIENT
        self._shared: frozenset[int] = frozenset()
        self._included: frozenset[int] = frozenset()
        # First the wipe, which declares all secrets as empty, then the input, which a wipe replaces
        self._wipe()
        self._vector: Callable[[bytes], RingVector] = vector

    def receive(self, data: bytes) -> bytes:
        """The answer to a message of the server.

        The client answers one message at a time: it refuses messages that another thread, or the callback of its own
        input, delivers meanwhile. Errors are raised without the local variables of the frames that they came through.

        Raises:
            IllegalMessage: the message does not belong here; the state stays as it was.
            ProtocolAbort: a party cheats or failed; the client wipes its secrets and answers no more.
        """
        # Refused, not queued: the input's callback runs inside an answer, so waiting for the lock there would never end
        if not self._answering.acquire(blocking=False):
            raise self._error(errors.AlreadyAnswered, "a message while another one is being answered")
        try:
            return self._answer(data)
        except BaseException as error:
            errors.forget_locals(error)
            raise
        finally:
            self._answering.release()

    def close(self) -> None:
        """Wipe the secrets, and abort the session unless it is over."""
        with self._answering:
            self._wipe()
            if self.state is not ClientState.DONE:
                self.state = ClientState.ABORTED

    def keep(self) -> bytes:
        """The sealed state from which another process can resume; empty if no session is in progress.

        The caller must not let two processes resume from the same bytes; see `kept`.
        """
        with self._answering:
            if self.state not in BETWEEN:
                return b""
            # Masked means wiped: the key pairs and the seed are zeros by now, and writing zeros would look like secrets
            own = () if self._vector is _refuse_reuse else (self._encryption.secret, self._mask.secret, self._seed)
            directory: Directory | None = getattr(self, "_directory", None)
            kept = ClientCheckpoint(
                self.state,
                self.proposal,
                self.sid,
                self._config.pack(),
                tuple(map(bytes, own)),
                directory.entries if directory else {},
                self._shared,
                self._included,
                {v: (bytes(of_seed), bytes(of_key)) for v, (of_seed, of_key) in self._held.items()},
            )
            return seal(self._identity.keeping_key(), kept.pack(), self._bound, self._entropy)

    def go_on(self, sealed: bytes) -> None:
        """Resume in this process from the state that `keep` returned.

        Raises:
            AlreadyAnswered: this client is in a session already.
            MalformedMessage: the state was altered, or belongs to another client or round.
        """
        with self._answering:
            if self.state is not ClientState.NEW:
                raise self._error(errors.AlreadyAnswered, "it is in a session, and cannot go on with another")
            try:
                kept = ClientCheckpoint.unpack(unseal(self._identity.keeping_key(), sealed, self._bound))
            except codec.UnreadableMessage as error:
                raise self._error(errors.MalformedMessage, str(error)) from None
            self.state, self.proposal, self.sid = kept.state, kept.proposal, kept.sid
            self._config = SessionConfig.unpack(kept.config)
            self._table = CLIENT if self._config.attested else TRUSTING_CLIENT
            self._shared, self._included = kept.shared, kept.included
            # bytearrays, so that a later wipe can overwrite them
            self._held.update({v: (bytearray(one), bytearray(other)) for v, (one, other) in kept.held.items()})
            if kept.entries:
                self._directory = Directory(self.proposal, self._config, self._round, kept.entries)
            # No secrets: the input was masked before. A second vector under the same masks would reveal the difference
            if not kept.secrets:
                self._vector = _refuse_reuse
                return
            self._fresh(*kept.secrets)
            # Agreed secrets follow from the kept keys, so they are computed again and never written
            if kept.entries:
                self._agree()

    @property
    def _bound(self) -> bytes:
        """Associated data of a sealed state: round, index of this client, model and roster."""
        place = struct.pack("<II", self._round, self.id)
        return place + self._model_hash + hashlib.sha256(b"".join(self._roster.identities)).digest()

    def _answer(self, data: bytes) -> bytes:
        """Header and length are judged before the body is read."""
        try:
            header = codec.read_header(data)
            action, after = self._transition(header)
            # Before HELLO there is no configuration from which a longest message follows; HELLO itself has a fixed length
            most = messages.longest(header.phase, self._config, len(self._roster)) if self.proposal else None
            received = messages.unpack(data, most).message
        except codec.UnreadableMessage as error:
            raise self._error(errors.MalformedMessage, str(error)) from None
        try:
            # The name is from the table of transitions, which is data and says what happens in words; never from a message.
            answer: Message = getattr(self, f"_{action}")(header, received)
        except errors.IllegalMessage:
            raise
        except BaseException:
            self._wipe()
            self.state = ClientState.ABORTED
            raise
        # Before anything leaves: a failure below loses the answer, but never allows a second one
        self.state = after
        if after is ClientState.DONE:
            self._wipe()
        header = self._header(answer.phase, self.id)
        return messages.pack(header, answer, self._identity.sign(messages.signature_payload(header, answer)))

    def _transition(self, header: Header) -> tuple[str, ClientState]:
        """The action for a message and the state after it, if the message belongs to this point of this session."""
        if header.round != self._round or header.sender != codec.SERVER:
            sender = "the server" if header.sender == codec.SERVER else f"client {header.sender}"
            message = f"expected the server in round {self._round}; got {sender} in round {header.round}"
            raise self._error(errors.ReplayOrWrongRound, message)
        if self.proposal and header != self._header(header.phase, codec.SERVER):
            raise self._error(errors.ReplayOrWrongRound, "a message of another session")
        if (self.state, header.phase) not in self._table:
            awaited = [phase for state, phase in self._table if state is self.state]
            # A phase ahead of ours was skipped or belongs to another table; one behind ours was answered already
            later = bool(awaited) and header.phase > min(awaited)
            kind = errors.ReplayOrWrongRound if later else errors.AlreadyAnswered
            raise self._error(kind, f"a message {header.phase.name} has no place here")
        return self._table[self.state, header.phase]

    def _advertise(self, header: Header, hello: messages.Hello) -> Message:
        """R0: check the proposal, and make fresh keys for it."""
        try:
            config = SessionConfig.unpack(hello.config)
        except (ConfigError, struct.error) as error:
            raise self._error(errors.MalformedMessage, str(error)) from None
        if refusal := self._policy.refuses(config, len(self._roster)):
            raise self._error(errors.PolicyViolation, refusal)
        # Computed from what this client holds itself, so that a match proves the same model, round and roster
        proposal = proposal_id(config, self._round, self._model_hash, hello.nonce, self._roster)
        if (header.sid, header.suite) != (proposal, config.suite):
            raise self._error(errors.ModelMismatch, "the server holds another model, configuration or roster")
        self.proposal, self._config = proposal, config
        # The policy has accepted config.attested, so the server cannot choose the table without R3 by itself
        self._table = CLIENT if config.attested else TRUSTING_CLIENT
        self._fresh(*(self._entropy(keys.SECRET_BYTES) for _ in range(3)))
        return self._own

    def _fresh(self, encryption: bytes, mask: bytes, seed: bytes) -> None:
        """Set the session's secrets, 32 bytes each, and the advertisement of their public keys."""
        self._encryption, self._mask, self._seed = keys.KeyPair(encryption), keys.KeyPair(mask), bytearray(seed)
        public = self._encryption.public, self._mask.public
        self._own = messages.KeyAdvertisement(*public, self._model_hash, self._config.hash())

    def _share(self, header: Header, roster: messages.KeyRoster) -> Message:
        """R1: check all advertised keys, and share the client's own secrets among its neighbors."""
        # Before the directory: sid and graph must follow only from keys that their owners signed
        self._check_keys(roster)
        entries = {client: entry for client, entry, _ in roster.entries}
        self._directory = Directory(self.proposal, self._config, self._round, entries)
        self.sid = self._directory.sid
        self._check_enough(entries, "advertised keys", self._config.members)
        neighbors = self._agree()
        # The encryption key is not shared: whoever rebuilt it could read the shares that others sent to this client
        secrets = [int.from_bytes(secret, "little") for secret in (self._seed, self._mask.secret)]
        # Points are id + 1, since the polynomial at 0 is the secret itself
        dealt = split(secrets, self._config.threshold, [v + 1 for v in neighbors], self._entropy)
        packets = tuple(self._packet(v, shares) for v, shares in zip(neighbors, dealt, strict=True))
        return messages.ShareSubmission(keys.seed_commitment(self.sid, self.id, self._seed), packets)

    def _agree(self) -> tuple[int, ...]:
        """Agree on secrets with all neighbors, and return their ids."""
        neighbors = self._directory.neighbors[self.id]
        for v in neighbors:
            advertised = self._directory.entries[v]
            try:
                self._agreed[v] = (
                    self._encryption.agree(advertised.encryption_key),
                    self._mask.agree(advertised.mask_key),
                )
            except ValueError:
                raise self._error(errors.BadPublicKey, f"client {v} advertised a point of low order", v) from None
        return neighbors

    def _check_keys(self, roster: messages.KeyRoster) -> None:
        # Compared, not only verified: an older advertisement of this client verifies too if the server repeats its nonce
        if [entry for client, entry, _ in roster.entries if client == self.id] != [self._own]:
            raise self._error(errors.RosterTampered, "this client's own keys were left out or altered")
        for client, entry, signature in roster.entries:
            if client not in self._roster:
                raise self._error(errors.BadSignature, f"client {client} is not in the pinned roster", client)
            signed = self._is_signed(client, Phase.ADVERTISE, entry.digest(), signature)
            if (entry.model_hash, entry.config_hash) != (self._own.model_hash, self._own.config_hash):
                message = f"client {client} holds another model or configuration"
                raise self._error(errors.ModelMismatch, message, client if signed else None)
            if not signed:  # the server may have made it up: that names nobody
                raise self._error(errors.BadSignature, f"the keys of client {client} are not signed by it")
            # Two encodings of one point would pass the test for repeated keys below
            if not (keys.canonical(entry.encryption_key) and keys.canonical(entry.mask_key)):
                message = f"client {client} advertised a key that is not in its canonical form, below 2^255 - 19"
                raise self._error(errors.BadPublicKey, message, client)
        # One key, one owner: two pairs of clients must not agree on the same secret
        public = [key for _, entry, _ in roster.entries for key in (entry.encryption_key, entry.mask_key)]
        if len(set(public)) < len(public):
            raise self._error(errors.RosterTampered, "one public key is listed in two places")

    def _packet(self, v: int, shares: tuple[int, ...]) -> Packet:
        """Packet for neighbor v: a share of b and one of the mask key, encrypted, and a commitment to each."""
        directory, (of_seed, of_key) = self._directory, (share.to_bytes(SHARE_BYTES, "little") for share in shares)
        key = keys.share_key(self.sid, self._agreed[v][0], directory.encryption(self.id), directory.encryption(v))
        return Packet(
            keys.encrypt_share(key, of_seed + of_key, directory.share_header(self.id, v)),
            keys.share_commitment(self.sid, self.id, v, b"b", of_seed),
            keys.share_commitment(self.sid, self.id, v, b"s", of_key),
        )

    def _mask_input(self, header: Header, shares: messages.ShareDistribution) -> Message:
        """R2: keep the neighbors' shares, and send the input under the pair masks of all neighbors in U2."""
        self._check_set(shares.shared, self._directory.entries, "shared keys")
        self._shared = shares.shared
        partners = self._directory.among(self.id, shares.shared)
        # Exactly one share of each partner: R4 reveals one for each, and tells them apart by their position alone
        if [delivery.owner for delivery in shares.deliveries] != partners:
            message = "the packets are not those of the neighbors that are said to have shared"
            raise self._error(errors.BadSurvivorSet, message)
        for delivery in shares.deliveries:
            self._held[delivery.owner] = self._decrypt_shares(delivery)
        masked = self._input()
        # The self mask b protects against a server that calls this client dropped, has its mask key rebuilt, and then
        # receives this input late: pair masks alone would be removable (Bonawitz et al. 2017, section 4)
        add_masks(masked, [self._self_mask(), *(self._pairwise_mask(v) for v in partners)])
        # Only the neighbors' shares are needed from here on: memory that is stolen later does not unmask this message
        self._wipe(keep_shares=True)
        # Byte order of the wire; no copy on little-endian machines
        little = masked.astype(masked.dtype.newbyteorder("<"), copy=False)
        return messages.MaskedInput(codec.set_hash(shares.shared), little.data.cast("B"))

    def _decrypt_shares(self, delivery: messages.Delivery) -> tuple[bytearray, bytearray]:
        """The two shares of a neighbor, after checks of its signature, the decryption and its commitments."""
        u, packet, directory = delivery.owner, delivery.packet, self._directory
        # The index is computed, not received: a packet for another neighbor leads to another root
        place = directory.neighbors[u].index(self.id)
        root = merkle.climb(packet.leaf(delivery.seed), place, delivery.path)
        if not self._is_signed(u, Phase.SHARE, root, delivery.signature):
            raise self._error(errors.BadSignature, f"the packet of client {u} is not signed by it")
        # The signature comes first, so that a packet that does not open is proof against u and not against the server
        key = keys.share_key(self.sid, self._agreed[u][0], directory.encryption(u), directory.encryption(self.id))
        try:
            plain = keys.decrypt_share(key, packet.cipher, directory.share_header(u, self.id))
        except InvalidTag:
            raise self._error(errors.ShareDecryptError, f"the share of client {u} does not open", u) from None
        of_seed, of_key = plain[:SHARE_BYTES], plain[SHARE_BYTES:]
        committed = (
            keys.share_commitment(self.sid, u, self.id, b"b", of_seed),
            keys.share_commitment(self.sid, u, self.id, b"s", of_key),
        )
        # 33 bytes hold more than PRIME: a committed share out of range would be refused by the server, and this holder blamed
        in_field = all(int.from_bytes(share, "little") < PRIME for share in (of_seed, of_key))
        if committed != (packet.seed_share, packet.key_share) or not in_field:
            raise self._error(errors.ShareDecryptError, f"client {u} committed to another share than it sent", u)
        return bytearray(of_seed), bytearray(of_key)

    def _input(self) -> RingVector:
        """A copy of the input, to be masked in place."""
        vector, expected = self._vector(self.sid), f"{self._config.dtype} [{self._config.length}]"
        if not isinstance(vector, np.ndarray):
            raise ContractError(f"client {self.id}: expected an input of {expected}; got {type(vector).__name__}.")
        if vector.dtype != self._config.dtype or vector.shape != (self._config.length,):
            got = f"{vector.dtype} {list(vector.shape)}"
            raise ContractError(f"client {self.id}: expected an input of {expected}; got {got}.")
        return vector.copy()

    def _self_mask(self) -> tuple[bytes, int]:
        return keys.self_mask_key(self.sid, self._seed, self.id, self._config.key_bytes), 1

    def _pairwise_mask(self, v: int) -> tuple[bytes, int]:
        """The AES key of the pair mask with v, and its sign: + for the smaller id, - for the larger."""
        mine, other = self._directory.mask(self.id), self._directory.mask(v)
        key = keys.pairwise_mask_key(self.sid, self._agreed[v][1], mine, other, self._config.key_bytes)
        return key, 1 if self.id < v else -1

    def _attest(self, header: Header, survivors: messages.Survivors) -> Message:
        """R3: sign, once, the sets U2 and U3 that the server has shown to this client."""
        self._check_survivors(survivors)
        return self._attestation()

    def _attestation(self) -> messages.Attestation:
        return messages.Attestation(codec.set_hash(self._shared), codec.set_hash(self._included))

    def _unmask(self, header: Header, quorum: messages.Quorum) -> Message:
        """R4: reveal one share of each neighbor, once a quorum has signed the same survivors."""
        # A quorum of distinct members of U3. Two quorums share an honest client, which signs once, so no other set of
        # survivors can have a quorum: nobody reveals b of a client while another reveals its mask key
        signers, needed = sorted(quorum.signers), self._config.quorum
        if len(signers) < needed or len(quorum.signatures) != len(signers) or not quorum.signers <= self._included:
            message = f"expected signatures of {needed} included clients; got {len(quorum.signatures)}"
            raise self._error(errors.InconsistentSurvivors, message)
        told = self._attestation().digest()
        for client, signature in zip(signers, quorum.signatures, strict=True):
            if not self._is_signed(client, Phase.ATTEST, told, signature):
                message = f"client {client} has not signed the survivors that this client was shown"
                raise self._error(errors.InconsistentSurvivors, message)
        return self._reveal_shares()

    def _unmask_trusting(self, header: Header, survivors: messages.Survivors) -> Message:
        """R4 without R3: reveal the shares for the survivors that the server names."""
        self._check_survivors(survivors)
        return self._reveal_shares()

    def _check_survivors(self, survivors: messages.Survivors) -> None:
        """Check that each neighbor in U3 masked its input for the U2 that this client was shown.

        A neighbor that was shown a smaller U2 left pair masks out: once its seed is revealed, nothing may hide its input.
        """
        self._check_set(survivors.included, self._shared, "masked inputs")
        near, shared = self._directory.among(self.id, survivors.included), codec.set_hash(self._shared)
        if len(survivors.proofs) != len(near):
            message = f"expected proofs of {len(near)} neighbors; got {len(survivors.proofs)}"
            raise self._error(errors.InconsistentSurvivors, message)
        for v, proof in zip(near, survivors.proofs, strict=True):
            digest = messages.digest_masked_input(shared, proof[:32])
            if not self._is_signed(v, Phase.MASKED, digest, proof[32:]):
                message = f"client {v} has not signed a masked input for those who shared, as this client was told"
                raise self._error(errors.InconsistentSurvivors, message)
        self._included = survivors.included

    def _reveal_shares(self) -> messages.UnmaskingShares:
        """For each neighbor in U2, the share of b if its input is included, else the share of its mask key."""
        # Never both: with b and the mask key of one client, the server could unmask its input alone
        held = sorted(self._held.items())
        return messages.UnmaskingShares(tuple(bytes(shares[v not in self._included]) for v, shares in held))

    def _check_set(self, clients: frozenset[int], before: Collection[int], what: str) -> None:
        # Sets only shrink: a client that is added late has no shares with this one, or no masked input
        if not clients <= set(before):
            extra = sorted(clients - set(before))
            raise self._error(errors.BadSurvivorSet, f"{what}: clients {extra} were not there before")
        if self.id not in clients:
            raise self._error(errors.BadSurvivorSet, f"{what}: this client itself is missing")
        self._check_enough(clients, what, self._config.quorum)

    def _check_enough(self, clients: Collection[int], what: str, least: int) -> None:
        """Check what the session promises: at least ``least`` clients, and a threshold of this client's neighbors."""
        near, config = len(self._directory.among(self.id, clients)), self._config
        if len(clients) < least or near < config.threshold:
            raise self._error(
                errors.TooFewSurvivors,
                f"{what}: expected {least} clients and {config.threshold} neighbors; got {len(clients)} and {near}",
            )

    def _is_signed(self, client: int, phase: Phase, digest: bytes, signature: bytes) -> bool:
        """Whether a client of the roster has signed a message of this session."""
        # The header is rebuilt from this client's own facts: a signature of another session, round or phase does not verify
        content = messages.payload_from_digest(self._header(phase, client), digest)
        return keys.verify_signature(self._roster.identities[client], signature, content)

    def _header(self, phase: Phase, sender: int) -> Header:
        named = self.proposal if phase <= Phase.ROSTER else self.sid
        return Header(self._config.suite, phase, named, self._round, sender)

    def _error(self, kind: type[errors.ProtocolError], message: str, party: int | None = None) -> errors.ProtocolError:
        return kind(f"client {self.id}, {self.state.value}", message, party)

    def _wipe(self, keep_shares: bool = False) -> None:
        """Forget secrets as far as Python can: overwrite our own copies, drop references to those of libraries."""
        # getattr: an abort may come before a secret exists
        for pair in (getattr(self, "_encryption", None), getattr(self, "_mask", None)):
            if pair is not None:
                pair.wipe()
        seed: bytearray = getattr(self, "_seed", bytearray())
        seed[:] = bytes(len(seed))
        for secret in (secret for agreed in getattr(self, "_agreed", {}).values() for secret in agreed):
            secret[:] = bytes(len(secret))
        self._agreed: dict[int, tuple[bytearray, bytearray]] = {}
        self._vector = _refuse_reuse
        if not keep_shares:
            for share in (share for shares in getattr(self, "_held", {}).values() for share in shares):
                share[:] = bytes(len(share))
            self._held: dict[int, tuple[bytearray, bytearray]] = {}

    def __repr__(self) -> str:
        return f"<Client {self.id}, {self.state.value}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client holds secrets, and is pickled by nobody.")


def _refuse_reuse(sid: bytes) -> NoReturn:
    """Replacement for an input that was masked or given up, so that the client holds no reference to it."""
    raise AssertionError(f"session {sid.hex()[:8]}: the input was asked for a second time.")
