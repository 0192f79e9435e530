"""What the parties of one round agree on beforehand, and its identifier."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from fedguard.errors import require
from fedguard.secagg.masks import RingVector
from fedguard.secagg.parameters import Parameters

VERSION = 2
#: Suite number -> bytes of an AES key: AES-128-CTR masks, or AES-256-CTR masks.
SUITES = {1: 16, 2: 32}
_PROPOSAL = b"FedGuard/secagg/v2/proposal"
_CONFIG = struct.Struct("<BBIIIIIB32s")


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """How a session is run: the same for all parties, and hashed into the session's identifier.

    Args:
        length: ring elements of one input.
        members: the fewest clients that must advertise keys.
        degree: k, the number of neighbors with which a client exchanges masks and shares.
        threshold: t, the number of shares that rebuild a secret.
        quorum: signatures over the survivors that a client requires before it reveals a share.
        suite: 1 for AES-128 masks, 2 for AES-256 masks.
        ring: bits of a ring element, 32 or 64.
        attested: with the consistency round. Without it the server is trusted to show all clients the same survivors.
        context: SHA-256 of everything else that the parties must agree on, such as clip and scale of the encoding.
    """

    length: int
    members: int
    degree: int
    threshold: int
    quorum: int
    suite: int = 1
    ring: int = 32
    attested: bool = True
    context: bytes = bytes(32)

    def __post_init__(self) -> None:
        require(self.length >= 1, f"length: expected at least 1 ring element; got {self.length}.")
        require(self.suite in SUITES, f"suite: expected 1 (AES-128) or 2 (AES-256); got {self.suite}.")
        require(self.ring in (32, 64), f"ring: expected 32 or 64 bits; got {self.ring}.")
        require(len(self.context) == 32, f"context: expected 32 bytes; got {len(self.context)}.")
        positive = min(self.members, self.degree, self.threshold) >= 1 and self.quorum >= 0
        require(positive, "members, degree and threshold: expected at least 1; quorum: at least 0.")

    @classmethod
    def of(cls, parameters: Parameters, length: int, **others: int | bytes) -> SessionConfig:
        """The configuration of a session with these parameters (`fedguard.secagg.parameters.choose`)."""
        return cls(
            length=length,
            members=parameters.members,
            degree=parameters.degree,
            threshold=parameters.threshold,
            quorum=parameters.quorum,
            attested=parameters.attested,
            **others,  # type: ignore[arg-type]
        )

    @property
    def key_bytes(self) -> int:
        """Bytes of a mask's AES key."""
        return SUITES[self.suite]

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Of ring vectors in memory."""
        return np.dtype(np.uint32 if self.ring == 32 else np.uint64)

    def zeros(self) -> RingVector:
        """The neutral ring vector."""
        return np.zeros(self.length, self.dtype)

    def pack(self) -> bytes:
        """The canonical form."""
        return _CONFIG.pack(
            self.suite,
            self.ring,
            self.length,
            self.members,
            self.degree,
            self.threshold,
            self.quorum,
            self.attested,
            self.context,
        )

    @classmethod
    def unpack(cls, data: bytes) -> SessionConfig:
        """The configuration behind a canonical form.

        Raises:
            ConfigError: values out of range.
            struct.error: another number of bytes.
        """
        suite, ring, length, members, degree, threshold, quorum, attested, context = _CONFIG.unpack(data)
        # Any other byte would be a second form of True, and the hash of the configuration is of its bytes
        require(attested in (0, 1), f"attested: expected 0 or 1; got {attested}.")
        return cls(
            suite=suite,
            ring=ring,
            length=length,
            members=members,
            degree=degree,
            threshold=threshold,
            quorum=quorum,
            attested=bool(attested),
            context=context,
        )

    def unfit(self, clients: int) -> str | None:
        """Why no graph can be drawn among this number of clients, or None."""
        # A ring joins each member to degree / 2 on either side
        if self.degree < clients - 1 and self.degree % 2:
            return f"degree: expected an even number of neighbors, or all {clients - 1} others; got {self.degree}"
        return None

    def hash(self) -> bytes:
        """SHA-256 of the canonical form."""
        return hashlib.sha256(self.pack()).digest()


CONFIG_BYTES = _CONFIG.size


@dataclass(frozen=True)
class Roster:
    """The pinned long-term identities: client i signs with the Ed25519 key ``identities[i]`` (32 bytes)."""

    identities: tuple[bytes, ...]

    def __post_init__(self) -> None:
        # One identity under two ids would count twice toward every quorum and threshold
        require(len(set(self.identities)) == len(self.identities), "roster: an identity is listed twice.")
        require(all(len(key) == 32 for key in self.identities), "roster: expected Ed25519 public keys of 32 bytes.")

    def __len__(self) -> int:
        return len(self.identities)

    def __contains__(self, client: int) -> bool:
        return 0 <= client < len(self.identities)


@dataclass(frozen=True, kw_only=True)
class SessionPolicy:
    """The least that a client accepts, whatever the server proposes.

    What is safe depends on how many clients there are and how many of them may collude, so the fields that decide it have no
    defaults: `SessionPolicy.like` takes them from a configuration that was made for these clients (`SessionConfig.of`).

    Args:
        members, threshold, quorum: the smallest accepted values.
        degree: the only accepted number of neighbors. With more, a threshold of colluders may be among them; with fewer, the
            graph is cut more easily.
        length: ring elements of its input.
        context: hash of the encoding that it will use.
        suite: the weakest accepted suite.
        ring: the smallest accepted ring, in bits.
        attested: whether it insists on the consistency round.
    """

    members: int
    threshold: int
    quorum: int
    degree: int
    length: int
    context: bytes
    suite: int = 1
    ring: int = 32
    attested: bool = True

    @classmethod
    def like(cls, config: SessionConfig) -> SessionPolicy:
        """The policy of a client that learned these parameters out of band and accepts no weaker ones."""
        return cls(
            members=config.members,
            threshold=config.threshold,
            quorum=config.quorum,
            degree=config.degree,
            length=config.length,
            suite=config.suite,
            ring=config.ring,
            attested=config.attested,
            context=config.context,
        )

    def refuses(self, config: SessionConfig, clients: int) -> str | None:
        """Why a session is unacceptable, or None."""
        for name, least, got in (
            # The pinned roster caps what a proposal can promise
            ("members", self.members, min(config.members, clients)),
            ("threshold", self.threshold, config.threshold),
            # Without R3 nobody signs; whether that is accepted is decided below
            ("quorum", self.quorum, config.quorum if config.attested else self.quorum),
            ("suite", self.suite, config.suite),
            ("ring", self.ring, config.ring),
        ):
            if got < least:
                return f"{name}: expected at least {least}; the server proposes {got}"
        if config.degree != self.degree:
            return f"degree: expected {self.degree} neighbors; the server proposes {config.degree}"
        # Equal, not at least: another length or encoding would make this client send something else than it meant
        if config.length != self.length:
            return f"length: expected {self.length} ring elements; the server proposes {config.length}"
        if self.attested and not config.attested:
            return "expected the consistency round; the server proposes to leave it out"
        if config.context != self.context:
            return "the server proposes another encoding than this client's"
        return config.unfit(clients)


def proposal_id(config: SessionConfig, round: int, model_hash: bytes, nonce: bytes, roster: Roster) -> bytes:
    """SHA-256(label, version, configuration, round, model hash, server nonce, identities): 32 bytes.

    Each party computes it from what it holds itself, so that parties with different models share no key. It names what is
    agreed on before anybody has made a key; with all fresh keys it becomes the session's identifier (`Directory.sid`).
    """
    # All parts have fixed lengths or a counted number, so that no two proposals have the same bytes
    head = struct.pack("<BII", VERSION, round, len(roster))
    parts = (_PROPOSAL, head, config.pack(), model_hash, nonce, *roster.identities)
    return hashlib.sha256(b"".join(parts)).digest()
