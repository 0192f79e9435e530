"""Masks: published keystreams, integers by hand, and nothing that depends on how the vector is cut."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given
from hypothesis import strategies as st

from fedguard.errors import InputError
from fedguard.secagg import masks
from fedguard.secagg.masks import add_mask, add_masks, keystream

KEYS = {16: bytes(range(16)), 32: bytes(range(100, 132))}
DTYPES = [np.uint32, np.uint64]


@pytest.fixture(scope="module", autouse=True, params=["GCM", "CTR", "the faster"])
def engine(request):
    """Everything below holds for both ways to make the stream, and for the one that wins the race here."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "the faster":
            patch.setattr(masks, "_gcm_is_faster", lambda size: request.param == "GCM")
            patch.setattr(masks, "_SHORT", 0)
        yield


def counter_mode(key: bytes, counter: int, count: int) -> bytes:
    """Counter mode by its definition, one block at a time, from the bare block cipher."""
    cipher, blocks = Cipher(AES(key), ECB()).encryptor(), -(-count // 16)
    stream = b"".join(cipher.update(((counter + i) % 2**128).to_bytes(16, "big")) for i in range(blocks))
    return stream[:count]


def masked_by_hand(values: list[int], stream: bytes, sign: int, bits: int) -> list[int]:
    size = bits // 8
    words = [int.from_bytes(stream[size * i : size * (i + 1)], "little") for i in range(len(values))]
    return [(value + sign * word) % 2**bits for value, word in zip(values, words, strict=True)]


def ring(count: int, dtype: type, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, count, dtype, endpoint=True)


# McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)" (2005), appendix B. With a zero key and a zero nonce the
# hash key is AES(0), the tag of the empty text AES(1), and the ciphertext of a zero block AES(2).
GCM = {
    16: "66e94bd4ef8a2c3b884cfa59ca342b2e58e2fccefa7e3061367f1d57a4e7455a0388dace60b6a392f328c2b971b2fe78",
    32: "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738bcea7403d4d606b6e074ec5d3baf39d18",
}

# NIST SP 800-38A (2001), F.5.1 and F.5.5. The counter of these vectors is not zero, so they check the twin, and the twin
# checks the keystream.
SP_800_38A = {
    "2b7e151628aed2a6abf7158809cf4f3c": "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
    "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4": "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59a"
    "ca84e990cacaf5c52b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
}
COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
PLAINTEXT = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)


@pytest.mark.parametrize("size", [16, 32])
def test_keystream_of_the_zero_key_is_the_published_one(size):
    assert keystream(bytes(size), 48).hex() == GCM[size]


@pytest.mark.parametrize(("key", "ciphertext"), SP_800_38A.items())
def test_counter_mode_gives_the_vectors_of_nist(key, ciphertext):
    stream = counter_mode(bytes.fromhex(key), COUNTER, len(PLAINTEXT))
    assert bytes(a ^ b for a, b in zip(stream, PLAINTEXT, strict=True)).hex() == ciphertext


@pytest.mark.parametrize("key", [*KEYS.values(), *map(bytes.fromhex, SP_800_38A)])
@pytest.mark.parametrize("count", [0, 1, 16, 31, 32, 33, 5000])
def test_keystream_is_counter_mode_from_zero(key, count):
    assert keystream(key, count) == counter_mode(key, 0, count)  # 5000 bytes: the counter carries into its second byte


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    values=st.lists(st.integers(0, 2**64 - 1), max_size=40),
    key=st.sampled_from([16, 32]),
    sign=st.sampled_from([1, -1]),
)
def test_a_mask_is_the_keystream_added_word_by_word(dtype, values, key, sign):
    bits = np.iinfo(dtype).bits
    values = [value % 2**bits for value in values]
    vector = np.array(values, dtype)
    add_mask(vector, KEYS[key], sign)
    stream = counter_mode(KEYS[key], 0, len(values) * bits // 8)
    assert vector.dtype == dtype
    assert vector.tolist() == masked_by_hand(values, stream, sign, bits)


@pytest.mark.parametrize(("dtype", "first"), [(np.uint32, 0xD44BE966), (np.uint64, 0x3B2C8AEFD44BE966)])
def test_sums_wrap_around(dtype, first):
    """The zero key's stream begins 66 e9 4b d4 ef 8a 2c 3b, read from its least significant byte."""
    vector = np.array([np.iinfo(dtype).max], dtype)
    add_mask(vector, bytes(16), 1)
    assert vector.tolist() == [first - 1]
    vector[:] = 0
    add_mask(vector, bytes(16), -1)
    assert vector.tolist() == [2 ** np.iinfo(dtype).bits - first]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_one_adds_and_the_other_subtracts_cancels_in_the_sum(dtype):
    """Three clients, a key per pair, the lower id adds: no vector is the input, and the sum is the sum of the inputs."""
    inputs = [ring(1003, dtype, client) for client in range(3)]
    sent = [own.copy() for own in inputs]
    for low, high in [(0, 1), (0, 2), (1, 2)]:
        key = bytes([low, high] * 8)
        add_mask(sent[low], key, 1)
        add_mask(sent[high], key, -1)
    assert all((masked == own).mean() < 0.01 for masked, own in zip(sent, inputs, strict=True))
    modulus = 2 ** np.iinfo(dtype).bits
    columns = zip(*(own.tolist() for own in inputs), strict=True)
    assert (sent[0] + sent[1] + sent[2]).tolist() == [sum(column) % modulus for column in columns]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [8, 16, 24, 40, 4096, 3 << 16, 1 << 20])
def test_the_size_of_a_block_does_not_matter(dtype, block):
    """Whole blocks, a part of one, and blocks at whose end a cipher block is cut."""
    start = ring(1501 if block < 4096 else 150_001, dtype)
    keyed = [(KEYS[16], 1), (KEYS[32], -1), (bytes(16), -1)]
    expected = start.copy()
    for key, sign in keyed:
        words = np.frombuffer(keystream(key, start.nbytes), np.dtype(dtype).newbyteorder("<")).astype(dtype)
        expected = expected + words if sign == 1 else expected - words
    vector = start.copy()
    masks._add(vector, keyed, block)
    assert np.array_equal(vector, expected)


def test_many_masks_are_one_after_the_other_in_any_order():
    keyed, found = [(KEYS[16], 1), (KEYS[32], -1), (bytes(32), 1)], set()
    for order in permutations(keyed):
        together, single = ring(70_000, np.uint32), ring(70_000, np.uint32)
        add_masks(together, (pair for pair in order))
        for key, sign in order:
            add_mask(single, key, sign)
        found |= {together.tobytes(), single.tobytes()}
    assert len(found) == 1
    untouched = ring(10, np.uint32)
    add_masks(untouched, [])
    assert np.array_equal(untouched, ring(10, np.uint32))


@given(bit=st.integers(0, 255))
def test_each_bit_of_a_key_counts(bit):
    """About half of the bits of the mask turn over: 1024 +- 5 * 22.6 of 2048."""
    other = (int.from_bytes(KEYS[32], "little") ^ (1 << bit)).to_bytes(32, "little")
    change = int.from_bytes(keystream(KEYS[32], 256), "little") ^ int.from_bytes(keystream(other, 256), "little")
    assert abs(change.bit_count() - 1024) < 114


def test_keys_of_one_checksum_have_masks_of_their_own():
    """A generator that is seeded with the XOR of the key's words would give one mask for all of these."""
    words = [KEYS[16][4 * i : 4 * i + 4] for i in range(4)]
    assert len({keystream(b"".join(order), 16) for order in permutations(words)}) == 24


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.zeros(4, np.int64), r"uint32 or uint64 \[d\]; got int64 \[4\]"),
        (np.zeros(4, np.float32), r"got float32 \[4\]"),
        (np.zeros(4, np.dtype(np.uint32).newbyteorder()), r"got [<>]u4 \[4\]"),
        (np.zeros((2, 2), np.uint32), r"got uint32 \[2, 2\]"),
        ([1, 2, 3], "got list"),
        (np.zeros(8, np.uint32)[::2], "got a strided one. Pass vector.copy()"),
        (np.frombuffer(bytes(16), np.uint32), "got a read-only one. Pass vector.copy()"),
    ],
)
def test_a_vector_that_cannot_be_masked_in_place_is_refused(vector, message):
    before = np.array(vector).tolist()
    with pytest.raises(InputError, match=message):
        add_mask(vector, KEYS[16], 1)
    assert np.array(vector).tolist() == before


@pytest.mark.parametrize("bad", [(b"", 1), (bytes(15), 1), (bytes(24), 1), (bytes(16), 0), (bytes(16), 2)])
def test_a_bad_key_or_sign_leaves_the_vector_as_it_was(bad):
    vector = ring(100, np.uint32)
    with pytest.raises(InputError, match="A mask key has 16 bytes|The sign of a mask"):
        add_masks(vector, [(KEYS[16], 1), bad])
    assert np.array_equal(vector, ring(100, np.uint32))
    if len(bad[0]) != 16:
        with pytest.raises(InputError, match=rf"got {len(bad[0])}\."):
            keystream(bad[0], 1)
