"""Withheld noise, overflow, injection, bad shares, dropouts, leaked secrets, and what a sum tells: ours and planted."""

import base64
import dataclasses
import inspect
import itertools
import json
import logging
import math
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedguard.attacks.protocol import bad_shares, overflow, sum_leakage, withheld_noise
from fedguard.attacks.protocol.bad_shares import BadShares
from fedguard.attacks.protocol.dropout import DropoutPatterns, UnprunedMaskClient
from fedguard.attacks.protocol.means.network import ProtocolNetwork
from fedguard.attacks.protocol.means.traces import LogCollector, blobs, reachable
from fedguard.attacks.protocol.overflow import AGREED, TOO_FINE, Overflow
from fedguard.attacks.protocol.ring_injection import RingInjection
from fedguard.attacks.protocol.secret_search import SecretSearch
from fedguard.attacks.protocol.sum_leakage import SumLeakage, membership_auc
from fedguard.attacks.protocol.withheld_noise import WithheldNoise, gaussian_epsilon
from fedguard.errors import NotObservable
from fedguard.secagg import keys
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Phase, read_header
from fedguard.secagg.contest import Arena, Claim, contest
from fedguard.secagg.encoding import Encoding, OverflowBudgetError
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.errors import TooFewSurvivors
from fedguard.secagg.simulation import ProtocolSimulation, Settings
from tests.secagg.rounds import Round

ENTROPIES = [b"one", b"two"]
#: What becomes of an attack does not hang on its keys: other ones are tried where there is time.
EACH_SEED = pytest.mark.parametrize("seed", [ENTROPIES[0], pytest.param(ENTROPIES[1], marks=pytest.mark.slow)])


@cache
def found(attack, seed=ENTROPIES[0], weak=False):
    return contest(attack, weak=weak, entropy=expand_seed(seed))


def arena_of(attack, seed=b"arena", weak=None) -> Arena:
    return Arena(attack.clients, attack.colluders, attack.length, attack.settings, weak, expand_seed(seed), attack.draw)


@EACH_SEED
@pytest.mark.parametrize(
    ("attack", "stopped"),
    [
        (WithheldNoise(), {"PolicyViolation", "TooFewSurvivors"}),
        (Overflow(), {"PolicyViolation"}),
        (BadShares(), {"ShareDecryptError", "BadSecret", "BadShare", "BadMaskedInput", "BadSignature"}),
        (DropoutPatterns(), {"TooFewSurvivors"}),
        (SecretSearch(), {"BadSurvivorSet", "InconsistentSurvivors"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_ours_stands(attack, stopped, seed):
    finding = found(attack, seed)
    assert (finding.verdict, finding.learned) == ("defeated", "nothing")
    said = " ".join([*finding.story, *finding.stopped_by])
    assert all(name in said for name in stopped), said


@EACH_SEED
@pytest.mark.parametrize(
    ("attack", "learned"),
    [
        (WithheldNoise(), "epsilon = 9"),
        (Overflow(), "took something else for the sum"),
        (BadShares(), "blame the honest clients [0]"),
        (DropoutPatterns(patterns=5), "took something else for the sum"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_planted_weakness_is_found(attack, learned, seed):
    finding = found(attack, seed, weak=True)
    assert finding.verdict == "succeeded" and learned in finding.learned


# ---- 15, withheld noise


def hockey_stick(ratio: float, epsilon: float) -> float:
    """delta of Gaussian noise by quadrature: the integral of max(0, p - e^epsilon q) for unit variance."""
    x = np.linspace(-12, 12 + ratio, 400_001)
    density = [np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (ratio, 0)]
    return float(np.maximum(density[0] - math.exp(epsilon) * density[1], 0).sum() * (x[1] - x[0]))


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0])
def test_the_worth_of_gaussian_noise_is_exact(ratio):
    assert hockey_stick(ratio, gaussian_epsilon(ratio, 1e-5)) == pytest.approx(1e-5, rel=1e-3)
    assert gaussian_epsilon(1e-9, 1e-5) == 0


def test_epsilon_rises_with_each_part_of_the_noise_that_is_missing_and_the_accountant_follows():
    finding = found(WithheldNoise())
    worth, charged, careless = (
        [finding.figures[f"epsilon_{what}"] for what in (f"{kind}_{missing}_missing{more}" for missing in range(3))]
        for kind, more in (("worth", ""), ("charged", ""), ("charged", "_if_colluders_count"))
    )
    for missing in range(3):
        # The noise of 8 - missing of the 8 that were planned: a standard deviation of sqrt((8 - missing) / 8) clips.
        assert worth[missing] == pytest.approx(gaussian_epsilon(math.sqrt(8 / (8 - missing)), 1e-5), rel=0.12)
        assert careless[missing] < worth[missing] < charged[missing] < withheld_noise.TARGET
    assert charged == sorted(charged) and worth == sorted(worth)
    assert finding.figures["fewest_contributors"] == 6
    assert finding.story[-1].endswith("3 honest clients drop out: TooFewSurvivors")


# ---- 16, overflow and injection


def test_the_sum_of_the_largest_fits_or_reads_as_another_number():
    AGREED.check(overflow.Overflow.clients)
    with pytest.raises(OverflowBudgetError, match="Lower bits to 28"):
        TOO_FINE.check(overflow.Overflow.clients)
    assert found(Overflow()).figures["decoded_sum"] == 9
    # 9 (2^28 - 1) - 2^32, in steps of 1 / (2^28 - 1)
    wrapped = found(Overflow(), weak=True).figures["decoded_sum"]
    assert wrapped == pytest.approx((9 * (2**28 - 1) - 2**32) / (2**28 - 1)) and round(wrapped) == -7


@given(st.integers(1, 2000), st.integers(2, 40), st.sampled_from([32, 64]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_the_budget_lets_pass_never_wraps(clients, bits, ring, negative):
    encoding, largest = Encoding(bits=bits, clip=1.0, ring=ring), -1.0 if negative else 1.0
    try:
        encoding.check(clients)
    except OverflowBudgetError:
        assert clients * 2 ** (bits - 1) > 2 ** (ring - 1) - 1
        return
    one = encoding.encode(np.array([largest]), seed=bytes(32), entropy=expand_seed(b"x"))
    total = np.array([int(element) * clients % 2**ring for element in one], one.dtype)
    values, weight = encoding.decode(total, dim=1, seed=bytes(32))
    assert values[0] == pytest.approx(largest * clients) and weight == clients


@pytest.mark.parametrize("exponent", [0, 17, 31])
def test_one_client_shifts_the_sum_at_will_and_nobody_notices(exponent):
    attack = RingInjection(exponent=exponent)
    arena = arena_of(attack)
    claim = attack.mount(arena)
    truth = [int(element) for element in arena.truth(range(8))]
    assert claim.totals[0][1].tolist() == [(element + 2**exponent) % 2**32 for element in truth]
    assert claim.figures["complaints"] == 0
    finding = contest(attack, entropy=expand_seed(b"2"))
    assert finding.verdict == "limit" and "took something else" in finding.learned


# ---- 17, bad shares

#: The cheat's trick -> the error that it meets, and how many inputs are in the sum (None: there is none).
CAUGHT = {
    "GarbledShare": ("ShareDecryptError", 7),
    "OtherShare": ("ShareDecryptError", 7),
    "OutOfFieldShare": ("ShareDecryptError", 7),
    "OffPolynomialShare": ("BadSecret", None),
    "TooFewPackets": ("MalformedMessage", 7),
    "OtherSeed": ("BadSecret", None),
    "OversizedSeed": ("BadSecret", None),
    "OtherMaskKey": ("BadSecret", None),
    "ShortInput": ("BadMaskedInput", 7),
    "OtherSurvivors": ("InconsistentSurvivors", 8),
    "WrongRevealedShares": ("BadShare", 8),
    "TooFewRevealedShares": ("BadShare", 8),
}


@pytest.mark.parametrize("trick", bad_shares.TRICKS, ids=lambda trick: trick.__name__)
def test_the_cheat_is_named_and_nobody_else(trick):
    arena = arena_of(BadShares())
    network = ProtocolNetwork.of(arena, kind=trick).run()
    error, summed = CAUGHT[trick.__name__]
    assert {(type(error).__name__, error.party) for error in network.errors} == {(error, 7)}
    if summed is None:
        assert network.server.total is None
    else:
        included = network.server.included
        assert len(included) == summed and (network.server.total == arena.truth(included)).all()


def test_every_trick_is_in_the_table():
    defined = {
        kind for _, kind in inspect.getmembers(bad_shares, inspect.isclass)
        if issubclass(kind, Client) and kind not in (Client, bad_shares.UncheckedShareClient)
    }  # fmt: skip
    assert defined == set(bad_shares.TRICKS) and {kind.__name__ for kind in defined} == set(CAUGHT)


def test_what_anybody_could_have_sent_names_nobody():
    """Found by this attack: unsigned and repeated messages used to blame the client in whose name they came."""
    finding = found(BadShares())
    forged = [line for line in finding.story if "client 0" in line]
    assert [line.partition(". ")[2] for line in forged] == [
        "BadSignature names nobody; ReplayOrWrongRound names nobody; a sum of 8",
        "RosterTampered names nobody; AlreadyAnswered names nobody; a sum of 6",
        "AlreadyAnswered names nobody; a sum of 8",
        "ReplayOrWrongRound names nobody; a sum of 8",
    ]


def test_a_credulous_client_takes_the_blame_for_shares_that_it_was_given():
    arena = arena_of(BadShares(), weak=bad_shares.UncheckedShareClient)
    network = ProtocolNetwork.of(arena, kind=bad_shares.OtherShare).run()
    assert {(type(error).__name__, error.party) for error in network.errors} == {("BadShare", 0)}


# ---- 18, dropout


def test_a_quorum_that_is_left_gives_the_right_sum_and_one_fewer_none():
    finding = found(DropoutPatterns())
    ends = dict(re.match(r"silent from (\w+) on, (.*)", line).groups() for line in finding.story[:5])
    gone = "1: a sum of 7; 2: a sum of 6; 3: a sum of 5; 4: TooFewSurvivors"
    late = "1: a sum of 8; 2: a sum of 8; 3: a sum of 8; 4: TooFewSurvivors"
    assert ends == {
        "advertise_keys": gone, "share_keys": gone, "masked_input": gone, "consistency": late, "unmask": late,
    }  # fmt: skip
    assert finding.figures["sessions"] == 40 and finding.figures["sums"] >= 15


def test_the_planted_deafness_shows_only_when_somebody_drops_out():
    arena = arena_of(DropoutPatterns(), weak=UnprunedMaskClient)
    server = ProtocolNetwork.of(arena).run().server
    assert (server.total == arena.truth(range(8))).all()


@pytest.mark.parametrize("owner_is_in", [True, False])
@pytest.mark.parametrize("left", [4, 3])
def test_exactly_t_neighbors_are_enough_on_a_sparse_graph_and_one_fewer_are_not(left, owner_is_in):
    """t = 4 of 6 neighbors: ``left`` of those of client 0 reveal their shares, whatever its own input came to."""
    run = Round(14, degree=6, threshold=4, quorum=8, length=3)
    silent = set()

    def tap(sender, receiver, data):
        phase = read_header(data).phase
        if phase is Phase.UNMASK and not silent:
            near, alive = run.server._directory.neighbors, run.server._expected
            choices = itertools.combinations(near[0], 6 - left)
            silent.update(max(choices, key=lambda gone: min(len(alive - set(gone) & set(near[v])) for v in range(14))))
        if phase is Phase.MASKED and sender == 0 and not owner_is_in:
            return None
        return None if phase is Phase.UNMASK and sender in silent else data

    run.run(tap)
    if left == 4:
        included = set(range(14)) if owner_is_in else set(range(1, 14))
        assert run.server.included == included and (run.server.total == run.sum(included)).all()
    else:
        [(who, error)] = run.complaints
        assert run.server.total is None and (who, type(error)) == (-1, TooFewSurvivors)
        assert "client 0 needs 4 shares; got 3" in error.message


# ---- 19, secrets


class NeverWipes(Client):
    def _wipe(self, keep_shares=False):
        super()._wipe(keep_shares) if not hasattr(self, "_agreed") else None


class KeepsItsInput(Client):
    def _input(self):
        self._kept = super()._input()
        return self._kept.copy()


class SaysTooMuchInErrors(Client):
    def _error(self, kind, message, party=None):
        secrets = f"{getattr(self, '_seed', b'').hex()} {self._mask.secret.hex() if hasattr(self, '_mask') else ''}"
        return super()._error(kind, f"{message} {secrets}", party)


class Logs(Client):
    def _share(self, header, roster):
        share = super()._share(header, roster)
        for secret in (self._seed, self._mask.secret):
            logging.getLogger("client").debug("secret %s", base64.b64encode(secret).decode())
        return share


class LogsNumbers(Client):
    def _share(self, header, roster):
        share = super()._share(header, roster)
        for secret in (self._seed, self._encryption.secret):
            logging.getLogger("client").debug("secret %d", int.from_bytes(secret, "big"))
        return share


class LocalsHoldShares(Client):
    def receive(self, data):
        return self._answer(data)  # and does not clear the frames of its errors

    def _check_set(self, clients, before, what):
        held = [bytes(of_seed + of_key) for of_seed, of_key in self._held.values()]  # noqa: F841  for crash reports
        super()._check_set(clients, before, what)


class FewClients(SecretSearch):
    clients = 4


class Storable(Client):
    def __reduce__(self):
        return Client.__new__, (Client,), dict(vars(self))


@pytest.mark.parametrize("kind", [NeverWipes, KeepsItsInput, SaysTooMuchInErrors, Logs, LogsNumbers, LocalsHoldShares])
def test_one_leak_of_any_kind_opens_every_input(kind):
    arena = arena_of(FewClients(), weak=kind)
    sums = FewClients().mount(arena).sums
    assert sorted(map(sorted, sums)) == [[client] for client in range(4)]
    assert all((vector == arena.truth(client)).all() for client, vector in sums.items())


def test_a_talkative_repr_opens_every_input():
    finding = contest(SecretSearch(), weak=True, entropy=expand_seed(b"5"))
    assert finding.verdict == "succeeded" and finding.learned.startswith("the sum of clients [0];")
    assert all("6 seeds, 6 mask keys, 60 shares, 6 inputs" in line for line in finding.story)


def test_nobody_stores_a_client():
    assert FewClients().mount(arena_of(FewClients())).figures["states_stored"] == 0
    assert FewClients().mount(arena_of(FewClients(), weak=Storable)).figures["states_stored"] == 3 * 4


def test_memory_is_out_of_reach_in_the_middle_of_a_session():
    arena = arena_of(SecretSearch())
    party = arena.parties()[0]
    party.receive(arena.server().hello())
    with pytest.raises(NotObservable, match="in the middle of a session"):
        party.seize_client()


@given(st.binary(min_size=32, max_size=33))
@settings(max_examples=50, deadline=None)
def test_the_search_knows_a_secret_in_every_dress(secret):
    dresses = [
        repr(secret), repr(bytearray(secret)), secret.hex(), secret.hex().upper(), f"0x{secret.hex()}",
        str(list(secret)), base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode(),
        repr({1: (secret, b"")}),
    ]  # fmt: skip
    if secret[-1] > 1 and secret[0] > 1:
        dresses += [str(int.from_bytes(secret, "little")), str(int.from_bytes(secret, "big"))]
    for dress in dresses:
        assert secret in set(blobs(f"client 3: key={dress}, state='done'")), dress


def test_the_search_of_memory_looks_everywhere():
    inner = {"a": [memoryview(b"view")], "b": (bytearray(b"array"), {b"set"})}
    pair = keys.KeyPair(bytes(range(32)))

    def closure(default=b"default"):
        return inner, default

    @dataclasses.dataclass
    class Slotted:
        __slots__ = ("hidden",)
        hidden: object

    found = set(reachable({"f": closure, "p": pair, "s": Slotted(2**255 + 7), "n": np.arange(3, dtype=np.uint8)}))
    assert {b"view", b"array", b"set", b"default", b"\x00\x01\x02", (2**255 + 7).to_bytes(32, "little")} <= found
    assert keys.X25519PrivateKey.from_private_bytes(bytes(range(32))).private_bytes_raw() in found
    pair.wipe()
    assert not any(bytes(range(8)) in blob for blob in reachable(pair))


def dressed(secret: bytes) -> list[str]:
    """Every form in which a secret may stand in a text."""
    return [
        secret.decode("latin-1"), repr(secret)[2:-1], secret.hex(), secret.hex().upper(), str(list(secret))[1:-1],
        base64.b64encode(secret).decode().rstrip("="), base64.urlsafe_b64encode(secret).decode().rstrip("="),
        str(int.from_bytes(secret, "little")), str(int.from_bytes(secret, "big")),
    ]  # fmt: skip


def test_no_secret_of_a_whole_federation_stands_in_any_text(monkeypatch):
    """With all secrets known: what was drawn, agreed on, derived and shared, and the inputs."""
    drawn, secrets, texts, traffic = expand_seed(b"federation"), [], [], []

    def recorded(count):
        secrets.append(drawn(count))
        return secrets[-1]

    def spy(name, owner):
        real = getattr(owner, name)

        def spied(*facts, **others):
            secret = real(*facts, **others)
            secrets.append(bytes(secret))  # it may be wiped later
            return secret

        monkeypatch.setattr(owner, name, spied)

    spy("_derive_key", keys)
    spy("agree", keys.KeyPair)
    inputs = np.random.default_rng(3).integers(0, 2**32, (6, 9), dtype=np.uint32)
    with LogCollector() as listener:
        federation = ProtocolSimulation(Settings(colluding=0, dropping=0.1), recorded)
        for dropped in ({}, {"masked_input": [5]}, {"unmask": range(4)}):
            outcome = federation.run(
                round=1,
                clients=range(6),
                length=9,
                vector=lambda client, sid: inputs[client],
                drop=dropped,
                watch=lambda event, data: traffic.append((event, data)),
            )
            record = json.dumps(dataclasses.asdict(outcome), default=str)
            texts += [repr(federation), repr(outcome), str(outcome), record, repr(outcome.error)]
    texts += listener.texts + [repr(event) for event, _ in traffic]
    everything = "\n".join(texts)
    assert outcome.error is not None and len(secrets) > 500
    private = [secret for secret in secrets if len(secret) >= 16] + [row.tobytes() for row in inputs]
    assert not [form for secret in private for form in dressed(secret) if form in everything]
    assert all(str(row.tolist())[1:-1] not in everything for row in inputs)
    # On the network stand the three nonces of the server, and the shares of survivors' seeds; no secret else.
    sent = b"".join(data for _, data in traffic)
    assert sum(secret in sent for secret in secrets if len(secret) == 32) == 3
    assert all(row.tobytes() not in sent for row in inputs)
    leak = everything + repr(secrets[100])
    assert [form for form in dressed(secrets[100]) if form in leak]


# ---- 20, what the sum tells


@pytest.mark.parametrize(("survivors", "coordinates"), [(2, 1), (5, 1), (2, 8), (10, 8), (100, 8), (50, 200)])
def test_the_closed_form_of_membership(survivors, coordinates):
    """Against rounds of sums of whole vectors, all pairs of a round with the known vector and one without."""
    rng, trials = np.random.default_rng(survivors * coordinates), 2000
    known = rng.standard_normal((trials, coordinates))
    length = np.linalg.norm(known, axis=1)
    scores = []
    for inside in (True, False):
        total = np.zeros((trials, coordinates))
        for place in range(survivors):
            total += known if inside and place == 0 else rng.standard_normal((trials, coordinates))
        scores.append((known * total).sum(1) / length)
    measured = float((scores[0] > scores[1]).mean())
    expected = membership_auc(survivors, coordinates)
    assert abs(measured - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_what_the_sum_tells_of_one_input():
    """The best guess at an input is the mean, which explains 1 / n of its variance: I = -1/2 log2(1 - 1/n) bits."""
    rng = np.random.default_rng(1)
    for n in (2, 5, 20):
        inputs = rng.standard_normal((n, 200_000))
        guess = inputs.mean(0)
        explained = 1 - float(((inputs[0] - guess) ** 2).mean())
        assert explained == pytest.approx(1 / n, abs=0.01)
        assert sum_leakage.bits_per_coordinate(n) == pytest.approx(-math.log2(1 - 1 / n) / 2)


def test_more_coordinates_tell_more_and_more_survivors_hide_more():
    table = [[membership_auc(n, d) for d in (1, 10, 100)] for n in (2, 10, 100)]
    assert all(row == sorted(row) for row in table)
    assert all(list(column) == sorted(column, reverse=True) for column in zip(*table, strict=True))
    assert membership_auc(round(sum_leakage.survivors_for(0.6, 10**6)), 10**6) == pytest.approx(0.6, abs=1e-4)


@EACH_SEED
def test_the_sum_of_seven_picks_one_known_vector_out_of_many(seed):
    finding = contest(SumLeakage(trials=500), entropy=expand_seed(seed))
    assert finding.verdict == "limit" and finding.learned.startswith("the sum of clients [0]")
    # |c| = 32 against a spread of sqrt(7): the member stands out, a stranger stays below five spreads
    assert finding.figures["best_score"] == pytest.approx(32, abs=5 * math.sqrt(6) + 2)
    assert finding.figures["second_score"] < 5 * math.sqrt(7)
    for n in (2, 8, 32, 128):
        measured, expected = (finding.figures[f"auc_{n}_survivors{which}"] for which in ("", "_closed_form"))
        assert abs(measured - expected) < 4 * math.sqrt(expected * (1 - expected) / 500)


# ---- the referee


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (lambda arena: Claim(blamed=[0, 7]), "blame the honest clients [0]"),
        (lambda arena: Claim(blamed=[7]), None),
        (lambda arena: Claim(epsilons=[(1.0, 2.0), (2.5, 2.0)]), "epsilon = 2.5 at best, where 2 was charged"),
        (lambda arena: Claim(epsilons=[(1.0, 2.0)]), None),
        (lambda arena: Claim(totals=[((0, 1), arena.truth([0, 1])), ((0,), arena.truth([1]))]), "sum of clients [0]"),
        (lambda arena: Claim(totals=[((0, 1), arena.truth([0, 1]))]), None),
    ],
)
def test_the_referee_judges_blame_noise_and_many_rounds(claim, says):
    class Claiming(DropoutPatterns):
        def mount(self, arena):
            return claim(arena)

    finding = contest(Claiming(), entropy=expand_seed(b"7"))
    assert finding.verdict == ("defeated" if says is None else "succeeded") and (says or "nothing") in finding.learned


def test_a_lineup_holds_the_input_once_and_in_no_telling_place():
    places = []
    for seed in range(60):
        arena = arena_of(DropoutPatterns(), bytes([seed]))
        vectors = arena.lineup(2, 3)
        [place] = [i for i, vector in enumerate(vectors) if (vector == arena.truth([2])).all()]
        places.append(place)
    assert all(places.count(place) > 8 for place in range(3))
