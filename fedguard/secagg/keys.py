"""Keys: who a client is, and what two clients derive from each other's public keys.

Every derived key has a label of its own and is bound to the session (the salt) and to its owners (ids and public keys).
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import NoReturn, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedguard.secagg.entropy import Entropy, system

# One label for each use (HKDF info or hash prefix): equal inputs under two uses must never give equal outputs
MASK = b"FedGuard/secagg/v2/mask"
SELF = b"FedGuard/secagg/v2/self"
SHARE = b"FedGuard/secagg/v2/share"
SEED = b"FedGuard/secagg/v2/seed"
SHARED = b"FedGuard/secagg/v2/shared"
KEPT = b"FedGuard/secagg/v2/kept"

SECRET_BYTES = 32
#: Secret bytes; a bytearray of them can be wiped.
Secret: TypeAlias = bytes | bytearray
_NONCE = bytes(12)
#: Any secret key detects a point of low order: X25519 clears the cofactor, so the result is zero for each of them.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(SECRET_BYTES))


class Identity:
    """A client's long-term Ed25519 key."""

    def __init__(self, entropy: Entropy = system) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(entropy(SECRET_BYTES))
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(message)

    def keeping_key(self) -> bytes:
        """The AES-256 key under which a client's state is sealed between two messages; see `kept`."""
        return HKDF(SHA256(), 32, None, KEPT).derive(self._key.private_bytes_raw())

    def __repr__(self) -> str:
        return f"<Identity {self.public.hex()[:8]}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("no private key is pickled.")


@lru_cache(maxsize=65536)
def verify_signature(identity: bytes, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` (64 bytes) over ``message`` was made by ``identity``.

    Results are cached: parties that share a process check the same signatures.
    """
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, message)
    except InvalidSignature:
        return False
    return True


class KeyPair:
    """A fresh X25519 key pair of one session. The secret can be wiped."""

    def __init__(self, secret: bytes) -> None:
        self.secret = bytearray(secret)
        self._key: X25519PrivateKey | None = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytearray:
        """X25519: 32 bytes that only the owners of the two key pairs can compute, in a form that can be wiped.

        Raises:
            ValueError: ``public`` is a point of low order, for which the agreed secret is always zero.
        """
        assert self._key is not None, "the key was wiped"
        return bytearray(self._key.exchange(X25519PublicKey.from_public_bytes(public)))

    def wipe(self) -> None:
        """Forget the secret as far as Python can: overwrite our copy, and drop the reference to the library's."""
        self.secret[:] = bytes(len(self.secret))
        self._key = None

    def __repr__(self) -> str:
        return f"<KeyPair {self.public.hex()[:8]}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("no private key is pickled.")


def canonical(public: bytes) -> bool:
    """Whether an X25519 key is in canonical form, a number below 2^255 - 19. Other forms of a point would pass as new keys."""
    # RFC 7748 has receivers ignore bit 255 and reduce: each point has further encodings, all of them accepted by `agree`
    return int.from_bytes(public, "little") < 2**255 - 19


def usable(public: bytes) -> bool:
    """Whether a secret can be agreed with the owner of this key, that is, whether it is no point of low order."""
    try:
        _PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def pairwise_mask_key(sid: bytes, agreed: Secret, one: tuple[int, bytes], other: tuple[int, bytes], size: int) -> bytes:
    """The AES key of the mask between two clients, each given as (id, public mask key): the same for both."""
    # Sorted, since both ends must derive one key; share keys are not, since there each direction has its own
    (lo, key_lo), (hi, key_hi) = sorted((one, other))
    return _derive_key(sid, agreed, MASK + _ids(lo, hi) + key_lo + key_hi, size)


def self_mask_key(sid: bytes, seed: Secret, client: int, size: int) -> bytes:
    """The AES key of the mask that a client adds for itself, from its 32-byte seed b."""
    # Bound to its owner: a seed that another client copies gives that one another mask
    return _derive_key(sid, seed, SELF + _ids(client), size)


def share_key(sid: bytes, agreed: Secret, sender: tuple[int, bytes], receiver: tuple[int, bytes]) -> AESGCM:
    """The AEAD under which ``sender`` hands shares to ``receiver``, each given as (id, public encryption key).

    One key per direction and session, used once: so the nonce may be zero.
    """
    # AES-256 in every suite: the suite is about the speed of masks, and a packet has a few dozen bytes
    info = SHARE + _ids(sender[0], receiver[0]) + sender[1] + receiver[1]
    return AESGCM(_derive_key(sid, agreed, info, 32))


def encrypt_share(key: AESGCM, plain: bytes, header: bytes) -> bytes:
    """AES-256-GCM with ``header`` as associated data; 16 bytes longer than ``plain``."""
    return key.encrypt(_NONCE, plain, header)


def decrypt_share(key: AESGCM, cipher: bytes, header: bytes) -> bytes:
    """The inverse of `encrypt_share`. Raises `cryptography.exceptions.InvalidTag` if anything was altered."""
    return key.decrypt(_NONCE, cipher, header)


def seed_commitment(sid: bytes, client: int, seed: Secret) -> bytes:
    """SHA-256 that binds a client to its self-mask seed, which is uniform and so stays hidden."""
    # No blinding: a hash hides 32 uniform bytes. Owner and session keep commitments of others from being copied
    return hashlib.sha256(SEED + sid + _ids(client) + bytes(seed)).digest()


def share_commitment(sid: bytes, owner: int, holder: int, kind: bytes, share: bytes) -> bytes:
    """SHA-256 that binds the owner of a secret to the share it gave to ``holder``; ``kind`` is b"b" or b"s"."""
    return hashlib.sha256(SHARED + sid + _ids(owner, holder) + kind + share).digest()


def _ids(*clients: int) -> bytes:
    return struct.pack(f"<{len(clients)}I", *clients)


def _derive_key(sid: bytes, material: Secret, info: bytes, size: int) -> bytes:
    # sid as salt: it contains all fresh keys, so that no key repeats between sessions whatever the server replays
    return HKDF(SHA256(), size, sid, info).derive(material)
