"""What binds what: each key, commitment, identifier and signature depends on every fact that it is said to depend on."""

import dataclasses
from itertools import combinations

import pytest
from cryptography.exceptions import InvalidTag

from fedguard.secagg import keys, merkle, messages
from fedguard.secagg.codec import Header, Phase
from fedguard.secagg.directory import Directory
from fedguard.secagg.session import Roster, proposal_id
from tests.secagg.rounds import config

A, B, C = (bytes([i]) * 32 for i in (1, 2, 3))


def share_key(*facts):
    """A key of an AEAD, by what it makes of nothing."""
    return keys.encrypt_share(keys.share_key(*facts), bytes(32), b"")


def variants(function, facts, changes):
    """What comes out for these facts, and with one of them changed at a time."""
    found = {"as it is": function(*facts)}
    for place, other in changes:
        found[f"{place}: {other!r}"] = function(*facts[:place], other, *facts[place + 1 :])
    return found


def all_different(found):
    same = [(one, other) for (one, a), (other, b) in combinations(found.items(), 2) if a == b]
    assert not same


@pytest.mark.parametrize(
    ("function", "facts", "changes"),
    [
        (
            keys.pairwise_mask_key,
            (A, B, (1, A), (2, B), 16),
            [(0, B), (1, C), (2, (0, A)), (2, (1, C)), (3, (3, B)), (3, (2, C))],
        ),
        (keys.self_mask_key, (A, B, 1, 16), [(0, B), (1, C), (2, 2)]),
        (
            share_key,
            (A, B, (1, A), (2, B)),
            [(0, B), (1, C), (2, (0, A)), (2, (1, C)), (3, (3, B)), (3, (2, C))],
        ),
    ],
)
def test_every_fact_is_in_the_key(function, facts, changes):
    all_different(variants(function, facts, changes))


def test_both_ends_derive_one_mask_and_each_direction_has_its_share_key():
    one, other = (1, A), (2, B)
    assert keys.pairwise_mask_key(A, B, one, other, 32) == keys.pairwise_mask_key(A, B, other, one, 32)
    assert share_key(A, B, one, other) != share_key(A, B, other, one)


@pytest.mark.parametrize(
    ("function", "facts", "changes"),
    [
        (keys.seed_commitment, (A, 1, B), [(0, B), (1, 2), (2, C)]),
        (keys.share_commitment, (A, 1, 2, b"b", B), [(0, B), (1, 3), (2, 3), (3, b"s"), (4, C)]),
    ],
)
def test_every_fact_is_in_the_commitment(function, facts, changes):
    all_different(variants(function, facts, changes))


def test_a_share_opens_under_its_header_alone():
    key, header = keys.share_key(A, B, (1, A), (2, B)), b"from 1 to 2"
    cipher = keys.encrypt_share(key, b"share", header)
    assert keys.decrypt_share(key, cipher, header) == b"share" and b"share" not in cipher
    for wrong in (b"", b"from 1 to 3", header + b"\x00"):
        with pytest.raises(InvalidTag):
            keys.decrypt_share(key, cipher, wrong)
    for place in range(len(cipher)):
        bent = cipher[:place] + bytes([cipher[place] ^ 1]) + cipher[place + 1 :]
        with pytest.raises(InvalidTag):
            keys.decrypt_share(key, bent, header)


def entry(key=A, mask=B, model=A, about=B):
    return messages.KeyAdvertisement(key, mask, model, about)


def directory(proposal=A, round=1, **entries):
    return Directory(proposal, config(4), round, {1: entry(), 2: entry(C, A), **entries})


def test_the_header_of_a_share_tells_everything_that_it_belongs_to():
    plain = directory()
    others = [directory(proposal=B), directory(round=2), Directory(A, config(4, suite=2), 1, plain.entries)]
    found = {str(i): one.share_header(1, 2) for i, one in enumerate([plain, *others])}
    all_different({**found, "back": plain.share_header(2, 1), "another": plain.share_header(1, 3)})


def test_every_fact_is_in_the_session():
    """What is proposed, with every number of the configuration; and then every fresh key, and whose it is."""
    plain, roster = config(4), Roster((A, B, C))
    changed = {
        "length": 6, "members": 4, "degree": 2, "threshold": 3, "quorum": 4, "suite": 2, "ring": 64, "attested": False,
        "context": B,
    }  # fmt: skip
    assert set(changed) == {field.name for field in dataclasses.fields(plain)}
    facts = (plain, 1, A, B, roster)
    changes = [(0, dataclasses.replace(plain, **{name: value})) for name, value in changed.items()]
    changes += [(1, 2), (2, C), (3, C), (4, Roster((A, C, B))), (4, Roster((A, B)))]
    all_different(variants(proposal_id, facts, changes))

    own = {1: entry(), 2: entry(C, A)}
    bent = [{**own, 1: entry(**{name: C})} for name in ("key", "mask", "model", "about")]
    others = [own, *bent, {1: own[2], 2: own[1]}, {1: own[1]}, {**own, 3: entry(B, C)}, {1: own[1], 3: own[2]}]
    sids = {str(i): Directory(A, plain, 1, entries).sid for i, entries in enumerate(others)}
    all_different({**sids, "another proposal": Directory(B, plain, 1, own).sid})


PACKETS = tuple(messages.Packet(bytes([i]) * 82, A, B) for i in range(3))
MESSAGES = [
    (entry(), {"encryption_key": C, "mask_key": C, "model_hash": C, "config_hash": C}),
    (messages.ShareSubmission(A, PACKETS), {"seed": B, "packets": PACKETS[::-1]}),
    *(
        (messages.ShareSubmission(A, PACKETS), {"packets": (dataclasses.replace(PACKETS[0], **change), *PACKETS[1:])})
        for change in ({"cipher": b"\x09" * 82}, {"seed_share": C}, {"key_share": C})
    ),
    (messages.MaskedInput(A, B), {"shared_hash": B, "vector": C}),
    (messages.Attestation(A, B), {"shared_hash": C, "included_hash": C}),
    (messages.UnmaskingShares((bytes(33), bytes(32) + b"\x01")), {"shares": (bytes(32) + b"\x01", bytes(33))}),
]


@pytest.mark.parametrize(("message", "changes"), MESSAGES, ids=lambda value: type(value).__name__)
def test_every_field_of_a_message_is_signed(message, changes):
    header = Header(1, message.phase, A, 1, 2)
    found = {"as it is": messages.signature_payload(header, message)}
    for name, value in changes.items():
        found[name] = messages.signature_payload(header, dataclasses.replace(message, **{name: value}))
    for name, value in {"suite": 2, "phase": Phase.HELLO, "sid": B, "round": 2, "sender": 3}.items():
        found[name] = messages.signature_payload(dataclasses.replace(header, **{name: value}), message)
    all_different(found)


def test_every_message_of_a_client_is_in_the_table_above():
    kinds = [kind for kind in messages.Message.__subclasses__() if kind.__module__ == messages.__name__]
    signed = {kind for kind in kinds if kind.phase % 2 == 0}
    assert {type(message) for message, _ in MESSAGES} == signed


def test_a_node_is_no_leaf():
    """Else a node's two children could be handed on as a packet."""
    leaves = [merkle.leaf(A), merkle.leaf(B)]
    assert merkle.root(leaves) != merkle.leaf(b"".join(leaves))


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_packet_has_its_place(count):
    leaves = [merkle.leaf(bytes([i])) for i in range(count)]
    for place, path in enumerate(merkle.paths(leaves)):
        found = [merkle.climb(leaves[place], other, path) == merkle.root(leaves) for other in range(count)]
        assert found == [other == place for other in range(count)]
