"""The protocol as a whole: exact sums, whoever drops out; and never a wrong one."""

import itertools
import os
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedguard.errors import ConfigError, ContractError, UnknownName
from fedguard.secagg.codec import STEPS, Phase, read_header
from fedguard.secagg.simulation import ProtocolSimulation, Settings
from fedguard.secagg.transitions import ClientState, ServerState
from tests.secagg.rounds import Round

STEP_NAMES = list(STEPS)


def expected_sum_of(n: int, silent: tuple[int, ...], threshold: int, quorum: int) -> list[int] | None:
    """From the promise: who is in the sum, or None for an abort. ``silent[i]`` is the first step that i leaves out."""
    heard = [[i for i in range(n) if silent[i] > step] for step in range(5)]
    if any(len(heard[step]) < max(quorum, threshold + 1) for step in range(4)):
        return None
    answered = heard[4]
    if any(len(set(answered) - {owner}) < threshold for owner in heard[1]):
        return None
    return heard[2]


def run_pattern(n: int, silent: tuple[int, ...]) -> None:
    federation = ProtocolSimulation(Settings(colluding=0, dropping=0))
    inputs = np.random.default_rng(n).integers(0, 2**32, (n, 3), dtype=np.uint32)
    drop = {name: [i for i in range(n) if silent[i] == step] for step, name in enumerate(STEP_NAMES)}
    outcome = federation.run(round=1, clients=range(n), length=3, vector=lambda i, sid: inputs[i], drop=drop)
    expected = expected_sum_of(n, silent, outcome.config.threshold, outcome.config.quorum)
    if expected is None:
        assert outcome.total is None and outcome.included == () and "TooFewSurvivors" in outcome.aborted, silent
    else:
        assert outcome.included == tuple(expected) and outcome.aborted is None, silent
        assert outcome.total.tolist() == [sum(map(int, column)) % 2**32 for column in inputs[expected].T], silent


def test_exact_sum_for_every_dropout_pattern_of_three_clients():
    for silent in itertools.product(range(6), repeat=3):
        run_pattern(3, silent)


@pytest.mark.parametrize("n", [4, 5, 6])
def test_exact_sum_for_every_number_of_dropouts_at_every_step(n):
    """Patterns up to the order of clients, of many some; who stands where is drawn anew for each."""
    draw = random.Random(n)
    patterns = list(itertools.combinations_with_replacement(range(6), n))
    for silent in patterns if n < 5 else draw.sample(patterns, 40):
        run_pattern(n, tuple(draw.sample(silent, n)))


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 5, 6])
def test_exact_sum_for_every_dropout_pattern(n):
    """All 6^n patterns: which client falls silent at which of the five steps, or never.

    The short form takes one in 7 of five clients, one in 97 of six: no factor of 6, so that each client comes to each step.
    """
    stride = {4: 1, 5: 7, 6: 97}[n] if os.environ.get("ANCHOR_SEEDS") == "1" else 1
    for silent in itertools.islice(itertools.product(range(6), repeat=n), 0, None, stride):
        run_pattern(n, silent)


@pytest.mark.parametrize(("ring", "suite"), [(32, 1), (32, 2), (64, 1), (64, 2)])
def test_rings_and_suites(ring, suite):
    run = Round(5, ring=ring, suite=suite, length=33).run()
    assert run.complaints == [] and (run.server.total == run.sum(range(5))).all()


@pytest.mark.slow
def test_hundred_clients_of_whom_ten_drop_out():
    inputs = np.random.default_rng(0).integers(0, 2**32, (100, 4), dtype=np.uint32)
    dropped = {"share_keys": range(3), "masked_input": range(3, 7), "unmask": range(7, 10)}
    outcome = ProtocolSimulation().run(
        round=1, clients=range(100), length=4, vector=lambda i, sid: inputs[i], drop=dropped
    )
    assert outcome.included == tuple(range(7, 100))
    assert outcome.total.tolist() == (inputs[7:].astype(object).sum(0) % 2**32).tolist()


@pytest.mark.slow
def test_thousand_clients_on_the_sparse_graph():
    inputs = np.random.default_rng(0).integers(0, 2**32, (1000, 4), dtype=np.uint32)
    outcome = ProtocolSimulation().run(
        round=1, clients=range(1000), length=4, vector=lambda i, sid: inputs[i], drop={"masked_input": range(100)}
    )
    assert (outcome.config.degree, outcome.config.threshold) == (64, 41)
    assert outcome.total.tolist() == (inputs[100:].astype(object).sum(0) % 2**32).tolist()


def test_sparse_graph_with_dropouts_at_every_step():
    inputs = np.random.default_rng(0).integers(0, 2**32, (120, 4), dtype=np.uint32)
    dropped = {"advertise_keys": [3], "share_keys": [7], "masked_input": [9, 40], "consistency": [50], "unmask": [60]}
    outcome = ProtocolSimulation().run(
        round=1, clients=range(120), length=4, vector=lambda i, sid: inputs[i], drop=dropped
    )
    assert outcome.config.degree < 119
    included = sorted(set(range(120)) - {3, 7, 9, 40})
    assert outcome.included == tuple(included)
    assert outcome.total.tolist() == (inputs[included].astype(object).sum(0) % 2**32).tolist()


def test_masked_input_tells_nothing_by_itself():
    """Equal inputs look as different as random ones: bits of the masked inputs are fair, and no two rows agree."""
    seen = {}

    def tap(sender, receiver, data):
        if sender >= 0 and read_header(data).phase is Phase.MASKED:
            seen[sender] = np.frombuffer(data[-64 - 4 * 4096 : -64], np.uint32)
        return data

    run = Round(4, length=4096)
    run.inputs[:] = 0
    run.run(tap)
    assert (run.server.total == 0).all()
    rows = np.stack([seen[i] for i in range(4)])
    ones = np.unpackbits(rows.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 4 * 0.5 / (rows.size * 32) ** 0.5
    assert all((rows[i] == rows[j]).sum() <= 1 for i in range(4) for j in range(i))


@given(st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_the_order_of_messages_does_not_matter(dropped, draw):
    def order(clients):
        return draw.sample(clients, len(clients))

    def tap(sender, receiver, data):
        return None if sender == dropped and read_header(data).phase is Phase.MASKED else data

    run = Round(5).run(tap, order)
    assert run.complaints == [] and (run.server.total == run.sum(set(range(5)) - {dropped})).all()


@given(st.integers(0, 39), st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_in_any_message_is_a_named_error_and_never_a_wrong_sum(number, where):
    count = itertools.count()

    def tap(sender, receiver, data):
        if next(count) != number:
            return data
        bit = int(where * 8 * len(data))
        return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]

    run = Round(4).run(tap)
    assert next(count) > number or run.server.total is None
    assert run.complaints
    if run.server.total is not None:
        assert (run.server.total == run.sum(run.server.included)).all()


def test_two_sessions_of_the_same_federation_share_no_key():
    federation = ProtocolSimulation(Settings(colluding=0))
    first, second = (
        federation.run(round=1, clients=range(4), length=2, vector=lambda i, sid: np.zeros(2, np.uint32)) for _ in "ab"
    )
    assert first.sid != second.sid


def test_parties_of_the_protocol_cannot_be_pickled():
    run = Round(4).run()
    for party in (run.clients[0], run.identities[0], ProtocolSimulation()):
        with pytest.raises(TypeError, match="is pickled"):
            pickle.dumps(party)


def test_clients_that_are_done_or_aborted_hold_no_secret():
    run = Round(4)
    secrets = []

    def tap(sender, receiver, data):
        if sender == 0 and read_header(data).phase is Phase.SHARE:
            client = run.clients[0]
            secrets.extend([client._seed, client._mask.secret, client._encryption.secret])
        if receiver == 0 and read_header(data).phase is Phase.QUORUM:
            secrets.extend(share for pair in run.clients[0]._held.values() for share in pair)
        return data

    run.run(tap)
    assert run.clients[0].state is ClientState.DONE and len(secrets) == 3 + 2 * 3
    assert all(not any(secret) for secret in secrets)
    assert run.clients[0]._agreed == {} and run.clients[0]._held == {}


def test_what_a_caller_does_wrong_is_said():
    federation = ProtocolSimulation(Settings(colluding=0))
    zero = np.zeros(2, np.uint32)
    with pytest.raises(UnknownName, match="masked_input"):
        federation.run(round=1, clients=range(4), length=2, vector=lambda i, sid: zero, drop={"masked_inputs": [1]})
    with pytest.raises(ConfigError, match=r"drop: expected clients of .* at 'unmask'; got \[9\]"):
        federation.run(round=1, clients=range(4), length=2, vector=lambda i, sid: zero, drop={"unmask": [9]})
    with pytest.raises(ConfigError, match="at least 3 clients"):
        federation.run(round=1, clients=range(2), length=2, vector=lambda i, sid: zero)
    with pytest.raises(ConfigError, match="is listed twice"):
        federation.run(round=1, clients=[1, 1, 2], length=2, vector=lambda i, sid: zero)
    with pytest.raises(ContractError, match=r"expected an input of uint32 \[2\]; got uint64 \[2\]"):
        federation.run(round=1, clients=range(4), length=2, vector=lambda i, sid: zero.astype(np.uint64))


def test_states_after_a_round():
    run = Round(4).run()
    assert run.server.state is ServerState.DONE and {client.state for client in run.clients} == {ClientState.DONE}
    assert repr(run.clients[1]) == "<Client 1, done>" and run.server.sid.hex()[:8] in repr(run.server)
