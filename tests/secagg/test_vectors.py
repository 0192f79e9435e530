"""Published vectors, a frozen round, and the round's keys and masks computed a second time from the specification."""

import hashlib
import hmac
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedguard.secagg import codec, keys, messages
from fedguard.secagg.codec import Phase
from tests.secagg.rounds import MODEL, Round

HEAD = 43  # bytes of a header
FROZEN = Path(__file__).parent / "frozen_round.json"


def test_x25519_of_rfc_7748_section_6_1():
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    alice_public = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    pair = keys.KeyPair(bob)
    assert pair.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert pair.agree(alice_public).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_ed25519_of_rfc_8032_section_7_1():
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    identity = keys.Identity(lambda count: secret)
    assert identity.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b"
    )
    assert identity.sign(b"").hex() == signature
    assert keys.verify_signature(identity.public, bytes.fromhex(signature), b"")
    assert not keys.verify_signature(identity.public, bytes.fromhex(signature), b"x")


def test_hkdf_of_rfc_5869_appendix_a_1():
    material, salt, info = bytes([0x0B] * 22), bytes(range(0x0D)), bytes(range(0xF0, 0xFA))
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert keys._derive_key(salt, material, info, 42).hex() == expected
    assert hkdf(salt, material, info, 42).hex() == expected


def hkdf(salt, material, info, size):
    """RFC 5869, as it stands there."""
    key = hmac.digest(salt, material, "sha256")
    block = output = b""
    for i in range(1, -(-size // 32) + 1):
        block = hmac.digest(key, block + info + bytes([i]), "sha256")
        output += block
    return output[:size]


def stream(key, count, width):
    """Counter mode by hand: the cipher applied to each counter."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    data = b"".join(cipher.update(i.to_bytes(16, "big")) for i in range(count * width // 16 + 1))
    return [int.from_bytes(data[i * width : (i + 1) * width], "little") for i in range(count)]


def digest(phase, body):
    """What a client signs of a message beside its header: of packets the root of a tree, of a masked input two hashes."""
    if phase is Phase.SHARE:
        seed, packets = body[:32], [body[i : i + 146] for i in range(36, len(body), 146)]
        level = [hashlib.sha256(b"\x00" + packet + seed).digest() for packet in packets]
        level += [bytes(32)] * (4 - len(level))
        while len(level) > 1:
            level = [hashlib.sha256(b"\x01" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=True)]
        return level[0]
    if phase is Phase.MASKED:
        return hashlib.sha256(body[:32] + hashlib.sha256(body[40:]).digest()).digest()
    return hashlib.sha256(body).digest()


@pytest.mark.parametrize("facts", [{"seed": b"frozen"}, {"suite": 2, "ring": 64, "length": 7}])
def test_session_keys_signatures_and_masked_inputs_from_the_specification(facts):
    """Who signs what under which name, and what clients mask, computed again with other means than the package's.

    One of the two rounds is the frozen one, in which client 3's masked input does not arrive.
    """
    masked, secrets, said = {}, {}, {}
    run = Round(4, **facts)
    suite, width, length = run.config.suite, run.config.ring // 8, run.config.length

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if sender >= 0:
            said[received.header.phase, sender] = data
        if sender >= 0 and received.header.phase is Phase.SHARE:
            client = run.clients[sender]
            secrets[sender] = bytes(client._seed), bytes(client._mask.secret), client._mask.public
        if sender >= 0 and received.header.phase is Phase.MASKED:
            masked[sender] = np.frombuffer(received.message.vector, f"<u{width}").tolist()
            return None if sender == 3 else data
        return data

    run.run(tap)
    nonce = run.server._nonce
    config = struct.pack("<BBIIIIIB32s", suite, 8 * width, length, 3, 3, 2, 3, 1, bytes(32))
    head = b"FedGuard/secagg/v2/proposal" + struct.pack("<BII", 2, 1, 4)
    proposal = hashlib.sha256(head + config + MODEL + nonce + b"".join(i.public for i in run.identities)).digest()
    fresh = b"".join(struct.pack("<I", u) + said[Phase.ADVERTISE, u][HEAD:-64] for u in range(4))
    sid = hashlib.sha256(b"FedGuard/secagg/v2/session" + proposal + fresh).digest()
    assert (proposal, sid) == (run.server.proposal, run.server.sid)
    assert all(len(fresh) == 4 * (4 + 128) and secrets[u][2] in fresh for u in range(4))
    for (phase, u), data in said.items():
        head = struct.pack("<BBB32sII", 2, suite, phase, proposal if phase is Phase.ADVERTISE else sid, 1, u)
        body, signature = data[HEAD:-64], data[-64:]
        assert data[:HEAD] == head
        content = b"FedGuard/secagg/v2/signed" + head + digest(phase, body)
        Ed25519PublicKey.from_public_bytes(run.identities[u].public).verify(signature, content)
    assert len(said) == 4 * 5 - 2 and sorted(masked) == [0, 1, 2, 3]
    for u in range(4):
        seed, secret, _ = secrets[u]
        masks = [(hkdf(sid, seed, b"FedGuard/secagg/v2/self" + struct.pack("<I", u), 16 * suite), 1)]
        for v in set(range(4)) - {u}:
            agreed = X25519PrivateKey.from_private_bytes(secret).exchange(
                X25519PublicKey.from_public_bytes(secrets[v][2])
            )
            lo, hi = min(u, v), max(u, v)
            info = b"FedGuard/secagg/v2/mask" + struct.pack("<II", lo, hi) + secrets[lo][2] + secrets[hi][2]
            masks.append((hkdf(sid, agreed, info, 16 * suite), 1 if u < v else -1))
        streams = [(stream(key, length, width), sign) for key, sign in masks]
        expected = [
            (int(run.inputs[u][i]) + sum(sign * words[i] for words, sign in streams)) % 2 ** (8 * width)
            for i in range(length)
        ]
        assert masked[u] == expected


def frozen_round() -> dict:
    """Every message of one round of four clients with injected entropy, in which the last one drops out at masked_input."""
    sent = []

    def tap(sender, receiver, data):
        if sender == 3 and codec.read_header(data).phase is Phase.MASKED:
            return None
        sent.append([sender, receiver, codec.read_header(data).phase.name, hashlib.sha256(data).hexdigest()])
        return data

    run = Round(4, seed=b"frozen").run(tap)
    return {"sid": run.server.sid.hex(), "sum": run.server.total.tolist(), "messages": sent}


def test_a_frozen_round():
    """A change of any byte of the protocol shows here; it needs a new version of the protocol."""
    assert frozen_round() == json.loads(FROZEN.read_text())


def test_labels_are_different():
    from fedguard.secagg import directory, graph, messages, session

    labels = [keys.MASK, keys.SELF, keys.SHARE, keys.SEED, keys.SHARED, directory.GRAPH, directory.SESSION]
    labels += [session._PROPOSAL, messages._SIGNED, graph._LABEL]
    assert all(re.match(rb"FedGuard/secagg/v\d/", label) for label in labels) and len(set(labels)) == len(labels)
