"""Every error of the protocol, reached by a party that cheats or fails; the evidence names the right one."""

import ast
import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest

from fedguard.secagg import codec, errors, keys, messages
from fedguard.secagg.codec import SERVER, Header, Phase
from fedguard.secagg.session import Roster, SessionConfig, SessionPolicy
from fedguard.secagg.transitions import CLIENT, TRUSTED_SERVER, TRUSTING_CLIENT, ClientState
from fedguard.secagg.transitions import SERVER as SERVER_TABLE
from tests.secagg.rounds import MODEL, Round, config


def subclasses(kind):
    return {kind} | {below for child in kind.__subclasses__() for below in subclasses(child)}


def altered(phase: Phase, change, *, sender=None, receiver=None, run=None, sign=True):
    """A tap that replaces the body of one kind of message; what a client sends is signed anew by it."""

    def tap(source, target, data):
        received = messages.unpack(data)
        if received.header.phase is not phase or sender not in (None, source) or receiver not in (None, target):
            return data
        message = change(received.message)
        header = received.header
        if header.sender == SERVER:
            return messages.pack(header, message)
        identity = run.identities[header.sender]
        signature = identity.sign(messages.signature_payload(header, message)) if sign else received.signature
        return messages.pack(header, message, signature)

    return tap


def fails(run: Round, tap, who: int, kind: type, party=None) -> errors.ProtocolError:
    """The first complaint is of this party, of this kind, and blames that one."""
    run.run(tap)
    first, error = run.complaints[0]
    assert (first, type(error), error.party) == (who, kind, party), run.complaints[0]
    assert run.server.total is None or (run.server.total == run.sum(run.server.included)).all()
    if who >= 0:
        gone = issubclass(kind, errors.ProtocolAbort)
        assert (run.clients[who].state is ClientState.ABORTED) == gone
    return error


def edit(**changes):
    return lambda message: dataclasses.replace(message, **changes)


def test_the_tree_is_drawn_as_it_is():
    drawn = {
        line.split("├── ")[-1].split("└── ")[-1].split()[0] for line in errors.__doc__.splitlines() if "── " in line
    }
    assert drawn | {"ProtocolError"} == {kind.__name__ for kind in subclasses(errors.ProtocolError)}


def test_bad_signature_of_a_stranger():
    run = Round()
    stranger = keys.Identity(run.entropy)

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if sender == 2 and received.header.phase is Phase.ADVERTISE:
            header = dataclasses.replace(received.header, sender=9)
            return messages.pack(
                header, received.message, stranger.sign(messages.signature_payload(header, received.message))
            )
        return data

    fails(run, tap, -1, errors.BadSignature, 9)


def test_bad_signature_of_keys_that_the_server_made_up():
    run = Round()

    def forge(roster):
        entries = [
            (
                i,
                dataclasses.replace(entry, mask_key=keys.KeyPair(run.entropy(32)).public) if i == 2 else entry,
                signature,
            )
            for i, entry, signature in roster.entries
        ]
        return messages.KeyRoster(tuple(entries))

    fails(run, altered(Phase.ROSTER, forge, receiver=0), 0, errors.BadSignature)


def test_a_server_that_alters_a_model_hash_gets_nobody_blamed_for_another_model():
    def forge(roster):
        entries = {i: (entry, signature) for i, entry, signature in roster.entries}
        entries[2] = dataclasses.replace(entries[2][0], model_hash=bytes(32)), entries[2][1]
        return messages.KeyRoster(tuple((i, *pair) for i, pair in entries.items()))

    fails(Round(), altered(Phase.ROSTER, forge, receiver=0), 0, errors.ModelMismatch)


def test_bad_signature_of_a_packet():
    run = Round()

    def forge(shares):
        first = shares.deliveries[0]
        forged = dataclasses.replace(first, packet=dataclasses.replace(first.packet, key_share=bytes(32)))
        return dataclasses.replace(shares, deliveries=(forged, *shares.deliveries[1:]))

    fails(run, altered(Phase.SHARES, forge, receiver=3), 3, errors.BadSignature)


def test_an_unknown_client_among_the_keys():
    run = Round()

    def add(roster):
        entry, signature = roster.entries[0][1:]
        return messages.KeyRoster((*roster.entries, (7, entry, signature)))

    fails(run, altered(Phase.ROSTER, add, receiver=0), 0, errors.BadSignature, 7)


@pytest.mark.parametrize("change", ["altered", "missing"])
def test_roster_tampered(change):
    def tamper(roster):
        entries = {i: (entry, signature) for i, entry, signature in roster.entries}
        if change == "altered":
            entries[0] = (dataclasses.replace(entries[0][0], mask_key=bytes(31) + b"\x09"), entries[0][1])
        else:
            del entries[0]
        return messages.KeyRoster(tuple((i, *pair) for i, pair in entries.items()))

    fails(Round(), altered(Phase.ROSTER, tamper, receiver=0), 0, errors.RosterTampered)


def copies_keys(run):
    """Client 2 repeats the keys of client 1 in its own name."""

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if sender == 1 and received.header.phase is Phase.ADVERTISE:
            run.copied = received.message
        if sender == 2 and received.header.phase is Phase.ADVERTISE:
            content = messages.signature_payload(received.header, run.copied)
            return messages.pack(received.header, run.copied, run.identities[2].sign(content))
        return data

    return tap


def lenient(run):
    """A server that lets all keys pass, as one in collusion would."""

    def keep(received):
        run.server._advertised[received.header.sender] = received.message, received.signature

    run.server._keep_keys = keep
    return run


def test_a_key_in_two_places():
    run = Round()
    fails(run, copies_keys(run), -1, errors.RosterTampered)
    assert (run.server.total == run.sum([0, 1, 3])).all()
    run = lenient(Round())
    fails(run, copies_keys(run), 0, errors.RosterTampered)


@pytest.mark.parametrize("key", ["encryption_key", "mask_key"])
@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), bytes.fromhex("ec" + "ff" * 30 + "7f")])
def test_bad_public_key(key, point):
    run = Round()
    fails(run, altered(Phase.ADVERTISE, edit(**{key: point}), sender=3, run=run), -1, errors.BadPublicKey, 3)
    assert (run.server.total == run.sum([0, 1, 2])).all()
    run = lenient(Round())
    low = altered(Phase.ADVERTISE, edit(**{key: point}), sender=3, run=run)

    def its_own_eyes(sender, receiver, data):  # client 3 itself is in the plot, and says nothing
        return None if receiver == 3 and codec.read_header(data).phase is Phase.ROSTER else low(sender, receiver, data)

    fails(run, its_own_eyes, 0, errors.BadPublicKey, 3)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"round": 2}, "expected the server in round 1"),
        ({"sid": bytes(32)}, "another session"),
        ({"suite": 2}, "another session"),
        ({"phase": Phase.QUORUM}, "has no place here"),
        ({"sender": 1}, "expected the server"),
    ],
)
def test_replay_or_wrong_round_leaves_a_client_as_it_was(change, why):
    run = Round()

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if receiver == 0 and received.header.phase is Phase.SHARES:
            bent = dataclasses.replace(received.header, **change)
            message = messages.Quorum(frozenset(), ()) if "phase" in change else received.message
            with pytest.raises(errors.ReplayOrWrongRound, match=why):
                run.clients[0].receive(messages.pack(bent, message, bytes(64) if bent.sender != SERVER else b""))
            assert run.clients[0].state is ClientState.SHARED
        return data

    run.run(tap)
    assert run.complaints == [] and (run.server.total == run.sum(range(4))).all()


@pytest.mark.parametrize("change", [{"round": 2}, {"sid": bytes(32)}, {"suite": 2}])
def test_replay_or_wrong_round_at_the_server(change):
    run = Round()

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if sender == 1 and received.header.phase is Phase.SHARE:
            header = dataclasses.replace(received.header, **change)
            content = messages.signature_payload(header, received.message)
            return messages.pack(header, received.message, run.identities[1].sign(content))
        return data

    fails(run, tap, -1, errors.ReplayOrWrongRound)


def test_a_client_that_left_cannot_come_back():
    run = Round(5)

    def tap(sender, receiver, data):
        phase = codec.read_header(data).phase
        if sender == 1 and phase is Phase.SHARE:
            return None
        if sender == 0 and phase is Phase.MASKED:
            late = Header(run.config.suite, Phase.MASKED, run.server.sid, 1, 1)
            message = messages.MaskedInput(codec.set_hash(run.server.shared), bytes(20))
            with pytest.raises(errors.ReplayOrWrongRound, match="uncalled") as caught:
                run.server.receive(
                    messages.pack(late, message, run.identities[1].sign(messages.signature_payload(late, message)))
                )
            assert caught.value.party == 1
        return data

    run.run(tap)
    assert (run.server.total == run.sum([0, 2, 3, 4])).all()


def test_model_mismatch_seen_by_a_client_with_another_model():
    run = Round()
    run.clients[0] = run.client(0, model_hash=bytes(32))
    fails(run, lambda s, r, data: data, 0, errors.ModelMismatch)


def test_model_mismatch_seen_by_the_others_and_by_the_server():
    def other_model(run):
        return altered(Phase.ADVERTISE, edit(model_hash=bytes(32)), sender=2, run=run)

    run = Round()
    fails(run, other_model(run), -1, errors.ModelMismatch, 2)
    run = Round()
    run.server._check = lambda received: None  # a server that lets another model pass
    fails(run, other_model(run), 0, errors.ModelMismatch, 2)


def test_config_mismatch_seen_by_the_server():
    run = Round()
    fails(run, altered(Phase.ADVERTISE, edit(config_hash=bytes(32)), sender=2, run=run), -1, errors.ModelMismatch, 2)


@pytest.mark.parametrize(
    ("weaker", "why"),
    [
        ({"threshold": 1}, "threshold: expected at least 2; the server proposes 1"),
        ({"quorum": 1}, "quorum: expected at least 3"),
        ({"suite": 1}, "suite: expected at least 2"),
        ({"length": 6}, "length: expected 5 ring elements"),
        ({"degree": 2}, "degree: expected 3 neighbors"),
        ({"ring": 32}, "ring: expected at least 64"),
        ({"attested": False}, "consistency round"),
        ({"context": b"c" * 32}, "another encoding"),
    ],
)
def test_policy_violation(weaker, why):
    run = Round(ring=64, suite=2)
    policy = SessionPolicy.like(run.config)
    run = Round(**{"ring": 64, "suite": 2, **weaker})
    run.clients = [run.client(i, policy=policy) for i in range(4)]
    assert why in fails(run, lambda s, r, data: data, 0, errors.PolicyViolation).message


def test_policy_violation_by_a_roster_that_is_too_small():
    run = Round()
    run.clients[0] = run.client(0, policy=dataclasses.replace(SessionPolicy.like(run.config), members=5))
    assert "members: expected at least 5" in fails(run, lambda s, r, data: data, 0, errors.PolicyViolation).message


def bent_shares(run, culprit, change):
    """Client ``culprit`` builds its packets wrongly, and signs them properly."""
    honest = run.clients[culprit]._packet
    run.clients[culprit]._packet = lambda v, shares: change(honest, v, shares)


def test_a_share_that_does_not_open():
    run = Round()
    bent_shares(run, 1, lambda make, v, shares: dataclasses.replace(make(v, shares), cipher=bytes(82)))
    fails(run, lambda s, r, data: data, 0, errors.ShareDecryptError, 1)


def test_a_share_other_than_the_one_committed_to():
    run = Round()

    def lie(make, v, shares):
        return dataclasses.replace(make(v, shares), seed_share=make(v, (shares[0] ^ 1, shares[1])).seed_share)

    bent_shares(run, 1, lie)
    assert "committed to another" in fails(run, lambda s, r, data: data, 0, errors.ShareDecryptError, 1).message


def test_a_share_outside_the_field():
    run = Round()
    bent_shares(run, 1, lambda make, v, shares: make(v, (2**256 + 297, shares[1])))
    fails(run, lambda s, r, data: data, 0, errors.ShareDecryptError, 1)


def test_a_client_that_was_shown_fewer_keys_is_not_blamed_for_its_shares():
    """The server shows client 0 a shorter roster: its shares cannot open, and nobody else takes it for a cheat."""

    def shorter(roster):
        return messages.KeyRoster(tuple(entry for entry in roster.entries if entry[0] != 4))

    fails(Round(5), altered(Phase.ROSTER, shorter, receiver=0), -1, errors.ReplayOrWrongRound)
    run = Round(12, degree=4, threshold=3, quorum=7, members=8)

    def among_twelve(roster):
        return messages.KeyRoster(tuple(entry for entry in roster.entries if entry[0] != 11))

    fails(run, altered(Phase.ROSTER, among_twelve, receiver=0), -1, errors.ReplayOrWrongRound)
    run = Round(12, degree=4, threshold=3, quorum=7, members=8)
    check = run.server._check  # a server in the plot hands the packets on
    run.server._check = lambda received: None if received.header.phase is Phase.SHARE else check(received)
    run.run(altered(Phase.ROSTER, among_twelve, receiver=0))
    blamed = {error.party for _, error in run.complaints}
    assert run.complaints and blamed == {None}


def test_too_few_survivors_seen_by_the_server():
    def tap(sender, receiver, data):
        return None if sender in (1, 2) and codec.read_header(data).phase is Phase.SHARE else data

    error = fails(Round(), tap, -1, errors.TooFewSurvivors)
    assert "shared keys: expected at least 3 clients; got 2" in error.message


@pytest.mark.parametrize(("phase", "field"), [(Phase.SHARES, "shared"), (Phase.SURVIVORS, "included")])
def test_too_few_survivors_seen_by_a_client(phase, field):
    def shrink(message):
        few = frozenset([0, 1])
        kept = {"deliveries": message.deliveries[:1]} if field == "shared" else {}
        return dataclasses.replace(message, **{field: few}, **kept)

    fails(Round(), altered(phase, shrink, receiver=0), 0, errors.TooFewSurvivors)


def test_too_few_members_though_a_quorum():
    """A server that leaves out honest clients before the graph is drawn, so that its colluders weigh more."""

    def fewer(roster):
        return messages.KeyRoster(tuple(entry for entry in roster.entries if entry[0] != 3))

    run = Round(5, members=5)
    fails(run, altered(Phase.ROSTER, fewer, receiver=0), 0, errors.TooFewSurvivors)


def test_too_few_neighbors_though_enough_clients():
    """On a sparse graph a client counts its own neighbors."""
    run = Round(12, degree=4, threshold=3, quorum=7)

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if receiver == 0 and received.header.phase is Phase.SURVIVORS:
            near = run.clients[0]._directory.neighbors[0]
            included = received.message.included - set(near[:2])
            return messages.pack(received.header, messages.Survivors(included, ()))
        return data

    assert "and 3 neighbors; got 10 and 2" in fails(run, tap, 0, errors.TooFewSurvivors).message


@pytest.mark.parametrize("phase", [Phase.SHARES, Phase.SURVIVORS])
@pytest.mark.parametrize("change", ["stranger", "self missing"])
def test_bad_survivor_set(phase, change):
    field = "shared" if phase is Phase.SHARES else "included"

    def bend(message):
        clients = getattr(message, field)
        return dataclasses.replace(message, **{field: clients | {9} if change == "stranger" else clients - {0}})

    fails(Round(), altered(phase, bend, receiver=0), 0, errors.BadSurvivorSet)


def test_packets_that_are_not_those_of_the_set():
    def withhold(shares):
        return dataclasses.replace(shares, deliveries=shares.deliveries[1:])

    fails(Round(), altered(Phase.SHARES, withhold, receiver=0), 0, errors.BadSurvivorSet)


def test_inconsistent_survivors_where_the_quorum_is_missing():
    run = Round()
    few = altered(Phase.QUORUM, lambda q: messages.Quorum(frozenset([0, 1]), q.signatures[:2]), receiver=0, run=run)
    fails(run, few, 0, errors.InconsistentSurvivors)


def test_inconsistent_survivors_where_a_signature_is_counted_twice():
    def twice(quorum):
        return messages.Quorum(frozenset([0, 1, 2]), (quorum.signatures[0], quorum.signatures[0], quorum.signatures[1]))

    fails(Round(), altered(Phase.QUORUM, twice, receiver=0), 0, errors.InconsistentSurvivors)


def test_inconsistent_survivors_where_an_outsider_signs():
    def outsider(quorum):
        return messages.Quorum(quorum.signers | {9}, (*quorum.signatures, bytes(64)))

    fails(Round(), altered(Phase.QUORUM, outsider, receiver=0), 0, errors.InconsistentSurvivors)


def test_inconsistent_survivors_where_clients_were_shown_different_sets():
    run = Round(5)

    def fewer(survivors):
        return messages.Survivors(survivors.included - {4}, survivors.proofs[:-1])

    fails(run, altered(Phase.SURVIVORS, fewer, receiver=0), -1, errors.InconsistentSurvivors, 0)


@pytest.mark.parametrize("change", ["left out", "of another", "vector", "signature"])
def test_inconsistent_survivors_where_a_neighbor_has_not_signed_its_input(change):
    bent = {
        "left out": lambda proofs: proofs[1:],
        "of another": lambda proofs: (proofs[1], *proofs[1:]),
        "vector": lambda proofs: (bytes(32) + proofs[0][32:], *proofs[1:]),
        "signature": lambda proofs: (proofs[0][:32] + bytes(64), *proofs[1:]),
    }[change]
    run = Round()
    lie = altered(Phase.SURVIVORS, lambda m: messages.Survivors(m.included, bent(m.proofs)), receiver=0)
    fails(run, lie, 0, errors.InconsistentSurvivors)


@pytest.mark.parametrize("attested", [True, False])
def test_inconsistent_survivors_where_a_neighbor_masked_for_fewer(attested):
    """A server that tells client 0 of fewer shares, and accepts its input nonetheless: no share of its seed leaves."""
    run = Round(5, attested=attested, quorum=3 if attested else 0)
    run.server._add_input = accepting(run.server)

    def fewer(shares):
        left = tuple(delivery for delivery in shares.deliveries if delivery.owner != 4)
        return messages.ShareDistribution(shares.shared - {4}, left)

    run.run(altered(Phase.SHARES, fewer, receiver=0))
    assert {type(error) for who, error in run.complaints if who >= 0} <= {
        errors.InconsistentSurvivors,
        errors.BadSurvivorSet,
    }
    assert {who for who, _ in run.complaints if who > 0} == {1, 2, 3, 4} and run.server.total is None


def accepting(server):
    honest = type(server)._add_input

    def add_input(received):
        told = dataclasses.replace(received.message, shared_hash=codec.set_hash(server.shared))
        honest(server, dataclasses.replace(received, message=told))

    return add_input


def test_inconsistent_inputs_where_clients_were_told_of_different_shares():
    run = Round(5)

    def fewer(shares):
        left = tuple(delivery for delivery in shares.deliveries if delivery.owner != 4)
        return messages.ShareDistribution(shares.shared - {4}, left)

    fails(run, altered(Phase.SHARES, fewer, receiver=0), -1, errors.InconsistentSurvivors, 0)


def test_already_answered():
    run = Round()

    def again(sender, receiver, data):
        phase = codec.read_header(data).phase
        if receiver == 0 and phase in (Phase.QUORUM, Phase.SURVIVORS):
            before = run.clients[0].state
            answer = run.clients[0].receive(data)
            with pytest.raises(errors.AlreadyAnswered):
                run.clients[0].receive(data)
            assert run.clients[0].state is CLIENT[before, phase][1]
            run.server.receive(answer)
            with pytest.raises(errors.AlreadyAnswered):
                run.server.receive(answer)
            return None
        return data

    run.run(again)
    assert (run.server.total == run.sum(range(4))).all() and run.complaints == []
    with pytest.raises(errors.AlreadyAnswered, match="the session is over"):
        run.server.receive(
            messages.pack(Header(1, Phase.UNMASK, run.server.sid, 1, 0), messages.UnmaskingShares(()), bytes(64))
        )


def test_an_aborted_client_answers_no_more():
    run = Round()
    fails(run, altered(Phase.SHARES, edit(shared=frozenset([1, 2, 3])), receiver=0), 0, errors.BadSurvivorSet)
    proposed, named = messages.Hello(run.config.pack(), bytes(32)), messages.Survivors(frozenset(range(4)), ())
    for message, sid in ((named, run.server.sid), (proposed, run.server.proposal)):
        with pytest.raises(errors.AlreadyAnswered):
            run.clients[0].receive(messages.pack(Header(1, message.phase, sid, 1, SERVER), message))


@pytest.mark.parametrize("bend", [lambda b: b[:-1], lambda b: b + b"\x00"])
def test_bad_masked_input(bend):
    run = Round()

    def tap(vector):
        return messages.MaskedInput(vector.shared_hash, bend(bytes(vector.vector)))

    fails(run, altered(Phase.MASKED, tap, sender=2, run=run), -1, errors.BadMaskedInput, 2)
    assert (run.server.total == run.sum([0, 1, 3])).all()


def test_bad_share_names_who_revealed_it_and_the_sum_stands():
    run = Round(5)

    def lie(unmask):
        return messages.UnmaskingShares((bytes([unmask.shares[0][0] ^ 1]) + unmask.shares[0][1:], *unmask.shares[1:]))

    run.run(altered(Phase.UNMASK, lie, sender=3, run=run))
    assert [(type(error), error.party) for error in run.server.blamed] == [(errors.BadShare, 3)]
    assert (run.server.total == run.sum(range(5))).all()


def test_a_wrong_number_of_revealed_shares():
    run = Round()
    fails(
        run,
        altered(Phase.UNMASK, lambda u: messages.UnmaskingShares(u.shares[1:]), sender=2, run=run),
        -1,
        errors.BadShare,
        2,
    )


def test_bad_seed_names_its_owner():
    run = Round()
    honest = run.clients[2]._share

    def other_seed(header, roster):
        share = honest(header, roster)
        return dataclasses.replace(share, seed=bytes(32))

    run.clients[2]._share = other_seed
    fails(run, lambda s, r, data: data, -1, errors.BadSecret, 2)


def test_bad_mask_key_names_its_owner():
    """Client 2 advertises one mask key, deals out another, and drops out: its masks cannot be taken off."""
    run = Round()
    advertise = run.clients[2]._advertise

    def other_key(header, hello):
        own = advertise(header, hello)
        run.clients[2]._mask.secret[:] = run.entropy(32)
        return own

    run.clients[2]._advertise = other_key
    fails(
        run,
        lambda s, r, data: None if s == 2 and codec.read_header(data).phase is Phase.MASKED else data,
        -1,
        errors.BadSecret,
        2,
    )


def test_malformed_messages_leave_a_client_as_it_was():
    run = Round()
    hello = run.server.hello()
    bad = [b"", hello[:10], hello[:-1], hello + b"\x00", b"\x01" + hello[1:], hello[:2] + b"\x63" + hello[3:]]
    config = struct.pack("<BBIIIII?32s", 3, 32, 5, 3, 3, 2, 3, True, bytes(32))
    bad.append(hello[:43] + config + hello[-32:])
    for data in bad:
        with pytest.raises(errors.MalformedMessage):
            run.clients[0].receive(data)
        assert run.clients[0].state is ClientState.NEW
    with pytest.raises(errors.MalformedMessage):
        run.server.receive(run.client(0).receive(hello)[:50])
    assert (run.run().server.total == run.sum(range(4))).all()


@pytest.mark.parametrize(
    "body",
    [
        b"\x01\x00\x00\x00\x00" + bytes(4),  # a bit map that is not in its shortest form
        b"\xff\xff\xff\xff",  # more clients than bytes
        b"\x00\x00\x00\x00\x01\x00\x00\x00" + bytes(5),  # a delivery that is cut short
    ],
)
def test_bodies_have_one_form_only(body):
    head = Header(1, Phase.SHARES, bytes(32), 1, SERVER).pack()
    with pytest.raises(codec.UnreadableMessage):
        messages.unpack(head + body)


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 1)])
def test_a_roster_lists_each_client_once_in_ascending_order(order):
    entry = messages.KeyAdvertisement(*(bytes([number]) * 32 for number in range(4)))
    roster = messages.KeyRoster(tuple((client, entry, bytes(messages.SIGNATURE_BYTES)) for client in order))
    data = Header(1, Phase.ROSTER, bytes(32), 1, SERVER).pack() + roster.body()
    if order == (1, 2):
        assert messages.unpack(data).message == roster
    else:
        with pytest.raises(codec.UnreadableMessage, match="ascending order"):
            messages.unpack(data)


def test_lists_that_claim_more_than_they_hold():
    head = Header(1, Phase.QUORUM, bytes(32), 1, SERVER).pack()
    with pytest.raises(codec.UnreadableMessage):
        messages.unpack(head + codec.pack_clients([1]) + b"\xff\xff\xff\x7f")


def test_the_tables_are_whole():
    """Each state but the last leads on; each action exists; client and server tell the same story."""
    from fedguard.secagg.client import Client
    from fedguard.secagg.server import ProtocolServer

    for table in (CLIENT, TRUSTING_CLIENT):
        state = ClientState.NEW
        phases = []
        while state is not ClientState.DONE:
            [(phase, (action, after))] = [(p, row) for (s, p), row in table.items() if s is state]
            assert hasattr(Client, f"_{action}")
            phases.append(phase)
            state = after
        assert phases == sorted(phases) and len(phases) == len(table)
    for table in (SERVER_TABLE, TRUSTED_SERVER):
        assert all(hasattr(ProtocolServer, f"_{name}") for row in table.values() for name in row[1:3])
        assert [row[0] for row in table.values()] == sorted(row[0] for row in table.values())


def test_a_trusted_server_may_leave_out_the_consistency_round():
    run = Round(quorum=0, attested=False)
    assert (run.run().server.total == run.sum(range(4))).all() and run.complaints == []


def test_configurations_that_cannot_be():
    from fedguard.errors import ConfigError

    for bad in ({"length": 0}, {"ring": 16}, {"suite": 3}, {"threshold": 0}, {"context": b""}):
        with pytest.raises(ConfigError):
            config(4, **bad)
    with pytest.raises(ConfigError, match="is listed twice"):
        Roster((bytes(32), bytes(32)))
    assert SessionConfig.unpack(config(4).pack()) == config(4)
    assert bytes(32) != MODEL and config(4).dtype == np.uint32


def test_every_error_is_expected_by_a_test():
    """Each kind that is raised is named in a call of `fails`, in `pytest.raises` or in a comparison of this file."""
    tree, expected = ast.parse(Path(__file__).read_text()), set()
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and ast.unparse(node.func) in ("fails", "pytest.raises")
        if called or isinstance(node, ast.Compare):
            expected |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    raised = {kind.__name__ for kind in subclasses(errors.ProtocolError) if not kind.__subclasses__()}
    assert raised <= expected, raised - expected
