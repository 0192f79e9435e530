"""One form for each message: every byte counts, and whatever else comes is refused before it costs anything."""

import dataclasses

import pytest

from fedguard.secagg import codec, errors, keys, messages
from fedguard.secagg.codec import SERVER, Header, Phase
from fedguard.secagg.session import SessionConfig
from fedguard.secagg.transitions import ClientState
from tests.secagg.rounds import Round, config

FROM_SERVER = [Phase.HELLO, Phase.ROSTER, Phase.SHARES, Phase.SURVIVORS, Phase.QUORUM]
FROM_CLIENT = [Phase.ADVERTISE, Phase.SHARE, Phase.MASKED, Phase.ATTEST, Phase.UNMASK]


def flipped(data: bytes, byte: int) -> bytes:
    """With one bit of this byte turned over; which one goes round with the place."""
    return data[:byte] + bytes([data[byte] ^ 1 << byte % 8]) + data[byte + 1 :]


def until(phase: Phase, client: int = 0) -> tuple[Round, bytes]:
    """The same round every time, up to a message to or from a client; with that message."""
    run, found = Round(3, length=3), []

    def tap(sender, receiver, data):
        if client in (sender, receiver) and codec.read_header(data).phase is phase:
            found.append(data)
            raise StopIteration
        return data

    with pytest.raises(StopIteration):
        run.run(tap)
    return run, found[0]


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("phase", FROM_SERVER, ids=lambda phase: phase.name)
def test_a_client_refuses_a_message_of_which_any_byte_is_another(phase, every):
    """Where a client gives up, the next byte takes a round of its own: of every five, one is tried where time is short."""
    run, data = until(phase)
    before = run.clients[0].state
    for byte in range(0, len(data), every):
        if run.clients[0].state is not before:
            run, again = until(phase)
            assert again == data
        with pytest.raises(errors.ProtocolError):
            run.clients[0].receive(flipped(data, byte))
    run, _ = until(phase)
    run.clients[0].receive(data)


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("phase", FROM_CLIENT, ids=lambda phase: phase.name)
def test_a_server_refuses_a_message_of_which_any_bit_is_another(phase, bits):
    """Of each byte one bit, which goes round with the place, or all."""
    run, data = until(phase)
    for byte in range(len(data)):
        for bit in range(byte, byte + bits):
            bent = bytes([data[byte] ^ 1 << bit % 8])
            with pytest.raises(errors.ProtocolError):
                run.server.receive(data[:byte] + bent + data[byte + 1 :])
    run.server.receive(data)


@pytest.mark.parametrize("phase", [Phase.HELLO, *FROM_CLIENT])
def test_what_is_read_is_written_the_same(phase):
    _, data = until(phase)
    received = messages.unpack(data)
    assert messages.pack(received.header, received.message, received.signature) == data


def test_a_flag_has_two_forms_and_not_256():
    """One byte of HELLO was malleable: whatever is not zero was true, and was hashed as 1."""
    packed = config(4).pack()
    [flag] = [i for i, (a, b) in enumerate(zip(packed, config(4, attested=False).pack(), strict=True)) if a != b]
    run = Round(4)
    hello = run.server.hello()
    for value in range(256):
        data = packed[:flag] + bytes([value]) + packed[flag + 1 :]
        if value < 2:
            assert SessionConfig.unpack(data).pack() == data
            continue
        with pytest.raises(errors.MalformedMessage, match="attested: expected 0 or 1"):
            run.clients[0].receive(hello.replace(packed, data))
    assert run.clients[0].state is ClientState.NEW


def test_a_set_of_half_a_million():
    """As a flood would bring it; bit by bit from one long integer it took seconds."""
    data = b"\xff" * 2**16
    read = codec.Reader(memoryview(len(data).to_bytes(4, "little") + data)).clients()
    assert read == frozenset(range(2**19)) and codec.pack_clients(read) == len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize("clients", [set(), {0}, {7}, {8}, {0, 9, 63}, {1000}])
def test_sets_in_plain_loops(clients):
    bits = sum(1 << client for client in clients)
    expected = bits.to_bytes(-(-bits.bit_length() // 8), "little")
    packed = codec.pack_clients(clients)
    assert packed == len(expected).to_bytes(4, "little") + expected
    assert codec.Reader(memoryview(packed)).clients() == clients


class Untouched(messages.Message):
    """A body that must not be read."""

    @classmethod
    def read(cls, reader):
        raise AssertionError("the body was read")


@pytest.mark.parametrize("change", [{"sid": bytes(32)}, {"round": 9}, {"suite": 2}, {"phase": Phase.QUORUM}])
def test_the_header_is_judged_before_the_body(change, monkeypatch):
    run, data = until(Phase.SHARES)
    header = dataclasses.replace(codec.read_header(data), **change)
    monkeypatch.setattr(messages, "_KINDS", dict.fromkeys(Phase, Untouched))
    with pytest.raises(errors.ReplayOrWrongRound):
        run.clients[0].receive(header.pack() + data[codec.HEADER_BYTES :])
    if "phase" not in change:
        header = dataclasses.replace(header, phase=Phase.SHARE, sender=1)
        with pytest.raises(errors.ReplayOrWrongRound):
            run.server.receive(header.pack() + data[codec.HEADER_BYTES :])


def test_the_length_is_judged_before_the_body(monkeypatch):
    """At most twice what roster and configuration allow, for each kind of message."""
    for phase in FROM_SERVER[1:]:
        run, data = until(phase)
        most = messages.longest(phase, run.config, 3)
        assert len(data) <= most // 2
        with monkeypatch.context() as patch:
            patch.setattr(messages, "_KINDS", dict.fromkeys(Phase, Untouched))
            with pytest.raises(errors.MalformedMessage, match=f"at most {most} bytes of {phase.name}; got {most + 1}"):
                run.clients[0].receive(data + bytes(most + 1 - len(data)))
    for phase in FROM_CLIENT:
        run, data = until(phase)
        most = messages.longest(phase, run.config, 3)
        assert len(data) <= most // 2
        with monkeypatch.context() as patch:
            patch.setattr(messages, "_KINDS", dict.fromkeys(Phase, Untouched))
            with pytest.raises(errors.MalformedMessage, match=f"at most {most} bytes of {phase.name}"):
                run.server.receive(data + bytes(most + 1 - len(data)))


def test_honest_messages_of_a_sparse_graph_are_short_enough():
    run, seen = Round(40, degree=8, threshold=5, quorum=25), set()

    def tap(sender, receiver, data):
        phase = codec.read_header(data).phase
        seen.add(phase)
        assert 2 * len(data) <= messages.longest(phase, run.config, 40) or phase is Phase.HELLO
        return data

    assert (run.run(tap).server.total == run.sum(range(40))).all() and seen == set(Phase)


@pytest.mark.parametrize("data", [None, 5, "abc", [], bytearray(50), memoryview(bytes(50))])
def test_what_are_no_bytes(data):
    run = Round(4)
    for party in (run.clients[0], run.server):
        with pytest.raises(errors.MalformedMessage, match=f"expected bytes; got {type(data).__name__}"):
            party.receive(data)


@pytest.mark.parametrize("degree", [1, 3])
def test_an_odd_degree_is_refused_by_both_sides(degree):
    from fedguard.errors import ConfigError
    from fedguard.secagg.server import ProtocolServer
    from fedguard.secagg.session import SessionPolicy, proposal_id
    from tests.secagg.rounds import MODEL

    odd = config(6, degree=degree, threshold=1)
    run = Round(6)
    with pytest.raises(ConfigError, match=f"even number of neighbors, or all 5 others; got {degree}"):
        ProtocolServer(odd, run.roster, round=1, model_hash=MODEL)
    client = run.client(0, policy=SessionPolicy.like(odd))
    header = Header(1, Phase.HELLO, proposal_id(odd, 1, MODEL, bytes(32), run.roster), 1, SERVER)
    with pytest.raises(errors.PolicyViolation, match="even number of neighbors"):
        client.receive(messages.pack(header, messages.Hello(odd.pack(), bytes(32))))


def test_a_policy_has_no_defaults_for_what_makes_it_safe():
    from fedguard.secagg.session import SessionPolicy

    with pytest.raises(TypeError, match="members.*threshold.*quorum.*degree.*length.*context"):
        SessionPolicy()


@pytest.mark.parametrize("field", ["encryption_key", "mask_key"])
@pytest.mark.parametrize("seen_by", ["server", "client"])
def test_a_key_in_another_form_is_named(field, seen_by):
    """With the top bit set it is the same point, and passed as a key of its own."""
    run = Round(5)

    def tap(sender, receiver, data):
        received = messages.unpack(data)
        if sender != 4 or received.header.phase is not Phase.ADVERTISE:
            return data
        first = getattr(run.server._advertised[0][0], field)
        entry = dataclasses.replace(received.message, **{field: first[:31] + bytes([first[31] | 0x80])})
        signature = run.identities[4].sign(messages.signature_payload(received.header, entry))
        if seen_by == "client":  # a server in the plot lets it pass
            run.server._advertised[4] = entry, signature
            return None
        return messages.pack(received.header, entry, signature)

    run.run(tap)
    who, error = run.complaints[0]
    assert (who, type(error), error.party) == (0 if seen_by == "client" else -1, errors.BadPublicKey, 4)
    assert "canonical" in error.message


def test_canonical_keys_are_the_numbers_below_the_prime():
    prime = 2**255 - 19
    for number in (0, 1, prime - 1, prime, prime + 1, 2**255 - 1, 2**255, 2**256 - 1):
        assert keys.canonical(number.to_bytes(32, "little")) == (number < prime)
