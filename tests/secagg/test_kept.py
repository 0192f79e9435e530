"""Clients whose process ends with each answer: they go on from sealed bytes, once, and say what they would have said."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import threading
import time

import numpy as np
import pytest

from fedguard.bridges.flower.keeping import turn
from fedguard.secagg import keys
from fedguard.secagg.checkpoint import BETWEEN, ClientCheckpoint, seal, unseal
from fedguard.secagg.codec import Phase, UnreadableMessage, read_header
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.errors import AlreadyAnswered, MalformedMessage, ProtocolError
from fedguard.secagg.keys import Identity
from fedguard.secagg.session import Roster
from fedguard.secagg.transitions import ClientState
from tests.secagg.rounds import Round


class Anew(Round):
    """Before each message every client is thrown away, and another goes on from what it kept."""

    def run(self, tap=lambda sender, receiver, data: data, **named):
        self.seen = []

        def between(sender, receiver, data):
            if sender == -1:
                old = self.clients[receiver]
                if old.state in BETWEEN:
                    sealed = old.keep()
                    self.seen.append((old.state, sealed))
                    old.close()
                    self.clients[receiver] = self.client(receiver)
                    self.clients[receiver].go_on(sealed)
            return tap(sender, receiver, data)

        return super().run(between, **named)

    def opened(self, who, sealed):
        return ClientCheckpoint.unpack(unseal(self.identities[who].keeping_key(), sealed, self.clients[who]._bound))


@pytest.mark.parametrize("attested", [True, False])
def test_a_round_of_clients_that_are_made_anew_for_each_message_has_the_same_sum(attested):
    one = Anew(5, attested=attested).run()
    assert one.complaints == [] and np.array_equal(one.server.total, one.sum(range(5)))
    expected = set(BETWEEN) - (set() if attested else {ClientState.ATTESTED})
    assert {state for state, _ in one.seen} == expected


@pytest.mark.parametrize("phase", [Phase.SHARE, Phase.MASKED, Phase.ATTEST, Phase.UNMASK])
def test_a_client_that_drops_is_recovered(phase):
    def tap(sender, receiver, data):
        return None if sender == 2 and read_header(data).phase >= phase else data

    one = Anew(6).run(tap)
    stays = set(range(6)) - ({2} if phase <= Phase.MASKED else set())
    assert set(one.server.included) == stays and np.array_equal(one.server.total, one.sum(stays))


def test_what_is_kept_holds_no_secret_bare_and_after_the_mask_none_at_all():
    bare = []

    class Watched(Anew):
        def client(self, i, **changed):
            return super().client(i, **{"entropy": self.drawn, **changed})

        def drawn(self, size):
            bare.append(self.entropy(size))
            return bare[-1]

    one = Watched(4).run()
    secrets = [secret for secret in bare if len(secret) == keys.SECRET_BYTES]
    assert len(secrets) >= 3 * 4
    assert not any(secret in sealed for secret in secrets for _, sealed in one.seen)
    masked = [one.opened(i % 4, sealed) for i, (state, sealed) in enumerate(one.seen) if state is ClientState.MASKED]
    assert len(masked) == 4 and all(not kept.secrets and len(kept.held) == 3 for kept in masked)
    inputs = [row.tobytes() for row in one.inputs]
    assert not any(row in kept.pack() for row in inputs for kept in masked)


def test_kept_bytes_are_of_one_form():
    one = Anew(4).run()
    for number, (_, sealed) in enumerate(one.seen):
        kept = one.opened(number % 4, sealed)
        assert (
            ClientCheckpoint.unpack(kept.pack()) == kept and ClientCheckpoint.unpack(kept.pack()).pack() == kept.pack()
        )
        for spoilt in (kept.pack() + b"\0", kept.pack()[:-1], b"\x09" + kept.pack()[1:]):
            with pytest.raises(UnreadableMessage):
                ClientCheckpoint.unpack(spoilt)


def begun():
    """A round whose client 1 has advertised its keys, and what it kept."""
    one = Round(4)
    one.clients[1].receive(one.server.hello())
    return one, one.clients[1].keep()


@pytest.mark.parametrize("other", ["altered", "cut", "place", "identity", "round", "model", "roster"])
def test_what_was_altered_or_is_anothers_is_refused(other):
    one, sealed = begun()
    data = {"altered": sealed[:-1] + bytes([sealed[-1] ^ 1]), "cut": sealed[:5]}.get(other, sealed)
    changed = {
        "identity": {"identity": Identity(one.entropy)},
        "round": {"round": 2},
        "model": {"model_hash": bytes(32)},
    }
    if other == "roster":
        one.roster = Roster((*one.roster.identities[:3], Identity(one.entropy).public))
    if other == "place":
        one.identities[2] = one.identities[1]
    client = one.client(2 if other == "place" else 1, **changed.get(other, {}))
    with pytest.raises(MalformedMessage, match="what was kept of this client was altered, or is another"):
        client.go_on(data)
    assert client.state is ClientState.NEW


def test_one_in_a_session_does_not_go_on_with_another():
    one, sealed = begun()
    with pytest.raises(AlreadyAnswered, match="it is in a session"):
        one.clients[1].go_on(sealed)


def test_nothing_is_kept_of_who_has_not_begun_or_is_done():
    one = Round(4)
    assert one.clients[0].keep() == b""
    one.run()
    assert [client.keep() for client in one.clients] == [b""] * 4
    other, _ = begun()
    other.clients[1].close()
    assert other.clients[1].keep() == b""


def test_a_client_that_went_on_says_a_thing_once():
    one, sealed = begun()
    client = one.client(1)
    client.go_on(sealed)
    with pytest.raises(ProtocolError, match="HELLO has no place here"):
        client.receive(one.server.hello())


def test_seals_differ_and_open_with_their_key_alone():
    key = Identity().keeping_key()
    assert len(key) == 32 and key != Identity().keeping_key()
    one, other = seal(key, b"state", b"bound"), seal(key, b"state", b"bound")
    assert one != other and unseal(key, one, b"bound") == b"state"
    for spoilt in ((Identity().keeping_key(), one, b"bound"), (key, one, b"else")):
        with pytest.raises(UnreadableMessage):
            unseal(*spoilt)


def hkdf(secret, label):
    """RFC 5869 with SHA-256, no salt, one block."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, label + b"\x01", "sha256")


def test_the_key_of_the_seal_comes_from_the_identitys_secret_and_from_nothing_that_others_know():
    """By its formula, of a known secret; and what a client keeps opens under that, and under nothing made of what is public."""
    label, drawn = b"FedGuard/secagg/v2/kept", expand_seed(b"round")
    _, secret = drawn(keys.SECRET_BYTES), drawn(keys.SECRET_BYTES)  # of clients 0 and 1
    one, sealed = begun()
    owner, bound = one.identities[1], one.clients[1]._bound
    assert Identity(lambda _: secret).public == owner.public and owner.keeping_key() == hkdf(secret, label)
    assert unseal(hkdf(secret, label), sealed, bound)
    public = [owner.public, bound, label, bytes(32), b"", *(identity.public for identity in one.identities)]
    known = [*public, *(first + second for first in public for second in public)]
    made = [
        key for fact in known for key in (fact, hkdf(fact, label), hkdf(label, fact), hashlib.sha256(fact).digest())
    ]
    for key in {key for key in made if len(key) == 32}:
        with pytest.raises(UnreadableMessage):
            unseal(key, sealed, bound)


def test_turns_are_taken_one_after_the_other_and_what_was_written_is_there(tmp_path):
    said = []

    def second():
        with turn(tmp_path / "node", 1, 7) as slot:
            said.append((slot.round, slot.sealed))

    with turn(tmp_path / "node", 1, 7) as slot:
        assert (slot.round, slot.sealed) == (-1, b"")
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.2)
        assert said == []
        slot.write(3, b"sealed")
    other.join()
    assert said == [(3, b"sealed")]
    with turn(tmp_path / "node", 2, 7) as slot:
        assert slot.round == -1
    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "node", *(tmp_path / "node").iterdir()]} == {0}


def test_what_is_kept_is_on_the_disk_under_its_name_before_anybody_answers(tmp_path, monkeypatch):
    """The file before it takes its name, and the folder after that: else a machine that goes down comes back with the old state."""
    seen, path, sync = [], tmp_path / "secagg-1-2.kept", os.fsync

    def synced(handle):
        seen.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    with turn(tmp_path, 1, 2) as slot:
        slot.write(0, b"sealed")
    assert seen == [(False, False), (True, True)]
    with turn(tmp_path, 1, 2) as slot:
        assert (slot.round, slot.sealed) == (0, b"sealed")
