"""The server of secure aggregation: it relays, adds up, and removes the masks of the sum; bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

import numpy as np

from fedguard.errors import require
from fedguard.secagg import codec, errors, keys, merkle, messages
from fedguard.secagg.codec import SERVER, Header, Phase
from fedguard.secagg.directory import Directory
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.messages import Message, ReceivedMessage
from fedguard.secagg.session import Roster, SessionConfig, proposal_id
from fedguard.secagg.shamir import PRIME, combine
from fedguard.secagg.transitions import SERVER as TABLE
from fedguard.secagg.transitions import TRUSTED_SERVER, ServerState


class ProtocolServer:
    """The server in one session; `transitions` says what it does when.

    Args:
        config: the configuration that it proposes.
        roster: the pinned identities of all clients.
        model_hash: 32 bytes, the hash of the model that it sent out.
        entropy: source of the session's nonce.

    Raises:
        ConfigError: a configuration that does not fit the number of clients.

    Attributes:
        proposal: identifier of the proposal.
        sid: identifier of the session, once the keys are collected.
        shared: U2, the clients that sent shares.
        included: U3, the clients with an input in the sum.
        total: the sum of the inputs of U3 in the ring, once the state is DONE.
        blamed: errors that did not stop the round, such as a bad share among enough good ones.
    """

    def __init__(
        self, config: SessionConfig, roster: Roster, *, round: int, model_hash: bytes, entropy: Entropy = system
    ) -> None:
        unfit = config.unfit(len(roster))
        require(unfit is None, f"{unfit}.")
        self._busy = Lock()
        self.config, self.state, self._roster, self._round = config, ServerState.ADVERTISING, roster, round
        self._nonce, self._model_hash = entropy(32), model_hash
        self.proposal = proposal_id(config, round, model_hash, self._nonce, roster)
        self.sid = b""
        self.shared: frozenset[int] = frozenset()
        self.included: frozenset[int] = frozenset()
        self.total: RingVector | None = None
        self.blamed: list[errors.ProtocolError] = []
        self._table = TABLE if config.attested else TRUSTED_SERVER
        self._sum = config.zeros()
        self._expected: Collection[int] = range(len(roster))
        self._advertised: dict[int, tuple[messages.KeyAdvertisement, bytes]] = {}
        self._public: set[bytes] = set()
        self._shares: dict[int, tuple[messages.ShareSubmission, bytes]] = {}
        self._added: dict[int, bytes] = {}
        self._attested: dict[int, bytes] = {}
        self._revealed: dict[int, tuple[bytes, ...]] = {}

    def hello(self) -> bytes:
        """The proposal, for all clients."""
        return self._message(messages.Hello(self.config.pack(), self._nonce))

    @property
    def awaits(self) -> Phase:
        """The phase of the messages that this state collects. Raises `AlreadyAnswered` at the end."""
        return self._row[0]

    @property
    def _row(self) -> tuple[Phase, str, str, ServerState]:
        if self.state not in self._table:
            raise self._error(errors.AlreadyAnswered, "the session is over")
        return self._table[self.state]

    @property
    def answered(self) -> Collection[int]:
        """The clients that have answered in this state."""
        answered: Mapping[ServerState, Collection[int]] = {
            ServerState.ADVERTISING: self._advertised,
            ServerState.SHARING: self._shares,
            ServerState.MASKING: self._added,
            ServerState.ATTESTING: self._attested,
            ServerState.UNMASKING: self._revealed,
        }
        return answered.get(self.state, ())

    def receive(self, data: bytes) -> None:
        """Take a client's message. Threads take turns.

        Raises:
            IllegalMessage: the message does not belong here.
            ProtocolAbort: the message proves that its sender cheats or fails. Either way the state stays as it was, and the
                sender counts as dropped unless a better message arrives.
        """
        with self._alone():
            try:
                # Header, then length, then body: a stranger cannot make the server parse megabytes
                header = codec.read_header(data)
                _, action, _, _ = self._row
                self._check_header(header)
                most = messages.longest(header.phase, self.config, len(self._roster))
                received = messages.unpack(data, most)
            except codec.UnreadableMessage as error:
                raise self._error(errors.MalformedMessage, str(error)) from None
            self._check(received)
            getattr(self, f"_{action}")(received)  # by a name from the table of transitions, never from a message

    def close(self) -> dict[int, bytes]:
        """End a state with the clients that have answered, and return the next message for each of them.

        Empty at the end, when `total` is set.

        Raises:
            TooFewSurvivors, BadSecret: the round cannot be finished, and yields nothing but the error.
            AlreadyAnswered: the session is over.
        """
        with self._alone():
            _, _, action, after = self._row
            try:
                replies: Mapping[int, Message] = getattr(self, f"_{action}")()
            except BaseException:
                self.state = ServerState.ABORTED
                raise
            self.state = after
            return {client: self._message(reply) for client, reply in replies.items()}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Admit one thread at a time, and strip errors of the local variables of the frames that they came through."""
        with self._busy:
            try:
                yield
            except BaseException as error:
                errors.forget_locals(error)
                raise

    def _check_header(self, header: Header) -> None:
        """Check that a message belongs to this session, by its header alone. No client of the roster is blamed for it."""
        client = header.sender
        if client not in self._roster:
            raise self._error(errors.BadSignature, f"client {client} is not in the pinned roster", client)
        if header != self._header(header.phase, client):
            message = f"client {client} answers another session, or was shown other keys"
            raise self._error(errors.ReplayOrWrongRound, message)

    def _check(self, received: ReceivedMessage) -> None:
        """Check that a message of this session belongs to this state, and is signed by its sender.

        What is not signed anybody can make up, and what was signed for another phase anybody can repeat: neither blames the
        sender.
        """
        header, phase = received.header, self.awaits
        client, message = header.sender, received.message
        content = messages.signature_payload(header, message)
        if not keys.verify_signature(self._roster.identities[client], received.signature, content):
            raise self._error(errors.BadSignature, f"the message is not signed by client {client}")
        # After the signature, so that a client is blamed for another model only where it signed one
        if isinstance(message, messages.KeyAdvertisement) and message.model_hash != self._model_hash:
            raise self._error(errors.ModelMismatch, f"client {client} holds another model", client)
        if header.phase < phase or client in self.answered:
            raise self._error(errors.AlreadyAnswered, f"client {client} sends {header.phase.name} too late or twice")
        if header.phase > phase or client not in self._expected:
            raise self._error(errors.ReplayOrWrongRound, f"client {client} sends {header.phase.name} uncalled", client)

    def _keep_keys(self, received: ReceivedMessage) -> None:
        """R0: refuse what would make the honest clients stop."""
        # Clients abort on these entries. Passed on, a single bad one would end the session for all of them
        assert isinstance(received.message, messages.KeyAdvertisement)
        client, entry = received.header.sender, received.message
        if entry.config_hash != self.config.hash():
            raise self._error(errors.ModelMismatch, f"client {client} holds another configuration", client)
        fresh = {entry.encryption_key, entry.mask_key}
        if not all(map(keys.canonical, fresh)):
            message = f"client {client} advertises a key that is not in its canonical form, below 2^255 - 19"
            raise self._error(errors.BadPublicKey, message, client)
        if not all(map(keys.usable, fresh)):
            raise self._error(errors.BadPublicKey, f"client {client} advertises a point of low order", client)
        if len(fresh) < 2 or fresh & self._public:  # whoever reads along can be faster with a copy: that names nobody
            raise self._error(errors.RosterTampered, f"client {client} advertises a key that is listed elsewhere")
        self._public |= fresh
        self._advertised[client] = entry, received.signature

    def _roster_of_keys(self) -> Mapping[int, Message]:
        """R0 -> all keys to all clients that advertised."""
        # With fewer, each client would abort by itself
        self._expected = self._enough(self._advertised, "advertised keys", self.config.members)
        entries = {client: entry for client, (entry, _) in sorted(self._advertised.items())}
        self._directory = Directory(self.proposal, self.config, self._round, entries)
        self.sid = self._directory.sid
        roster = messages.KeyRoster(tuple((client, *self._advertised[client]) for client in entries))
        return dict.fromkeys(entries, roster)

    def _keep_shares(self, received: ReceivedMessage) -> None:
        assert isinstance(received.message, messages.ShareSubmission)
        client, got = received.header.sender, len(received.message.packets)
        # The server cannot open packets; it checks their number, since it assigns them to neighbors by position
        if got != len(self._directory.neighbors[client]):
            raise self._error(errors.MalformedMessage, f"client {client} sends {got} packets", client)
        self._shares[client] = received.message, received.signature

    def _deliveries(self) -> Mapping[int, Message]:
        """R1 -> to each client the packets that its neighbors made for it."""
        # Only U2 goes on: a client that did not share could never be unmasked, so its input must not be added
        self._expected = self.shared = self._enough(self._shares, "shared keys")
        mail: dict[int, list[messages.Delivery]] = {client: [] for client in self.shared}
        for u in sorted(self.shared):
            share, signature = self._shares[u]
            paths = merkle.paths(share.leaves())
            for v, packet, path in zip(self._directory.neighbors[u], share.packets, paths, strict=True):
                if v in mail:
                    mail[v].append(messages.Delivery(u, packet, share.seed, path, signature))
        return {client: messages.ShareDistribution(self.shared, tuple(packets)) for client, packets in mail.items()}

    def _add_input(self, received: ReceivedMessage) -> None:
        assert isinstance(received.message, messages.MaskedInput)
        client, masked = received.header.sender, received.message
        if masked.shared_hash != codec.set_hash(self.shared):
            raise self._error(errors.InconsistentSurvivors, f"client {client} received other shares", client)
        expected = self.config.length * self.config.ring // 8
        if len(masked.vector) != expected:
            message = f"client {client} sends {len(masked.vector)} bytes; expected {expected}"
            raise self._error(errors.BadMaskedInput, message, client)
        # Added at once and dropped: memory holds one vector instead of one per client. Each client is added once, since
        # `_check` refuses whoever has answered in this state
        self._sum += np.frombuffer(masked.vector, self.config.dtype.newbyteorder("<"))
        self._added[client] = masked.vector_hash + received.signature

    def _survivors(self) -> Mapping[int, Message]:
        """R2 -> U3 to all of its members, each with the proofs of its neighbors."""
        self._expected = self.included = self._enough(self._added, "masked inputs")
        proofs = {
            client: tuple(self._added[v] for v in self._directory.among(client, self.included))
            for client in sorted(self.included)
        }
        return {client: messages.Survivors(self.included, proof) for client, proof in proofs.items()}

    def _keep_signature(self, received: ReceivedMessage) -> None:
        assert isinstance(received.message, messages.Attestation)
        client, told = (
            received.header.sender,
            messages.Attestation(codec.set_hash(self.shared), codec.set_hash(self.included)),
        )
        # Kept, it would make every honest client refuse the quorum
        if received.message != told:
            raise self._error(errors.InconsistentSurvivors, f"client {client} attests other survivors", client)
        self._attested[client] = received.signature

    def _quorum(self) -> Mapping[int, Message]:
        """R3 -> the signatures, to all clients that gave one."""
        # Clients in U3 that did not attest stay in the sum: their self masks are rebuilt from the shares of others
        self._expected = self._enough(self._attested, "attestations")
        signatures = tuple(signature for _, signature in sorted(self._attested.items()))
        return dict.fromkeys(sorted(self._attested), messages.Quorum(frozenset(self._attested), signatures))

    def _keep_revealed(self, received: ReceivedMessage) -> None:
        assert isinstance(received.message, messages.UnmaskingShares)
        client, shares = received.header.sender, received.message.shares
        expected = len(self._directory.among(client, self.shared))
        if len(shares) != expected:
            message = f"client {client} reveals {len(shares)} shares; expected {expected}"
            raise self._error(errors.BadShare, message, client)
        self._revealed[client] = shares

    def _sum_of_inputs(self) -> Mapping[int, Message]:
        """R4 -> rebuild the masks that are left in the sum, and remove them."""
        shares = self._shares_by_owner()
        # The list comes first: a bad secret of any owner raises before the sum is touched
        add_masks(self._sum, [mask for owner in sorted(self.shared) for mask in self._masks_of(owner, shares[owner])])
        self.total = self._sum
        return {}

    def _shares_by_owner(self) -> dict[int, dict[int, int]]:
        """For each owner of a secret, the revealed shares by their points (holder's id + 1)."""
        found: dict[int, dict[int, int]] = {owner: {} for owner in self.shared}
        for holder, shares in sorted(self._revealed.items()):
            for owner, share in zip(self._directory.among(holder, self.shared), shares, strict=True):
                place = self._directory.neighbors[owner].index(holder)
                packet = self._shares[owner][0].packets[place]
                kind, committed = (b"b", packet.seed_share) if owner in self.included else (b"s", packet.key_share)
                value = int.from_bytes(share, "little")
                # One wrong share spoils the whole interpolation, and nothing in the result says which: each is compared
                # with its signed commitment, and left out if it differs
                if value < PRIME and keys.share_commitment(self.sid, owner, holder, kind, share) == committed:
                    found[owner][holder + 1] = value
                else:
                    message = f"client {holder} reveals a share of client {owner} that is not the one it was given"
                    self.blamed.append(self._error(errors.BadShare, message, holder))
        return found

    def _masks_of(self, owner: int, shares: Mapping[int, int]) -> Iterator[tuple[bytes, int]]:
        """The masks to add for one client of U2: its self mask with a minus, or the pair masks that it did not cancel."""
        if len(shares) < self.config.threshold:
            message = f"a secret of client {owner} needs {self.config.threshold} shares; got {len(shares)}"
            raise self._error(errors.TooFewSurvivors, message)
        # Exactly t, always the lowest points: more would cost time and check nothing, and in a complete graph most owners then
        # have the same points, for which `shamir` caches the Lagrange coefficients
        enough = dict(sorted(shares.items())[: self.config.threshold])
        try:
            secret = combine(enough).to_bytes(keys.SECRET_BYTES, "little")
        except OverflowError:  # from 2^256 up to PRIME: an element of the field, but no secret of 32 bytes
            raise self._bad_secret(owner) from None
        if owner in self.included:
            # Shares may fit their commitments and still lie on no polynomial of degree t - 1 through the secret: that is the
            # owner's doing, and would leave masks in the sum
            if keys.seed_commitment(self.sid, owner, secret) != self._shares[owner][0].seed:
                raise self._bad_secret(owner)
            yield keys.self_mask_key(self.sid, secret, owner, self.config.key_bytes), -1
            return
        pair, directory = keys.KeyPair(secret), self._directory
        if pair.public != directory.entries[owner].mask_key:
            raise self._bad_secret(owner)
        # The sign is the one that the owner would have used: its half of each pair mask, which cancels the half of v
        for v in directory.among(owner, self.included):
            agreed, ends = pair.agree(directory.entries[v].mask_key), (directory.mask(owner), directory.mask(v))
            key = keys.pairwise_mask_key(self.sid, agreed, *ends, self.config.key_bytes)
            yield key, 1 if owner < v else -1

    def _bad_secret(self, owner: int) -> errors.ProtocolError:
        message = f"the shares that client {owner} dealt out do not make the secret that it committed to"
        return self._error(errors.BadSecret, message, owner)

    def _enough(self, clients: Collection[int], what: str, least: int = 0) -> frozenset[int]:
        # threshold + 1: each client needs t neighbors besides itself, or its own secret cannot be rebuilt
        least = max(least, self.config.quorum, self.config.threshold + 1)
        if len(clients) < least:
            raise self._error(errors.TooFewSurvivors, f"{what}: expected at least {least} clients; got {len(clients)}")
        return frozenset(clients)

    def _message(self, message: Message) -> bytes:
        return messages.pack(self._header(message.phase, SERVER), message)

    def _header(self, phase: Phase, sender: int) -> Header:
        named = self.proposal if phase <= Phase.ROSTER else self.sid
        return Header(self.config.suite, phase, named, self._round, sender)

    def _error(self, kind: type[errors.ProtocolError], message: str, party: int | None = None) -> errors.ProtocolError:
        return kind(f"the server was {self.state.value}", message, party)

    def __repr__(self) -> str:
        return f"<Server of session {(self.sid or self.proposal).hex()[:8]}, {self.state.value}>"
