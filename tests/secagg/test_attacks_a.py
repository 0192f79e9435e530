"""Attacks 1 to 7: each is stopped by the error that it should be, and opens an input where a weakness is planted."""

from functools import cache

import pytest

from fedguard.attacks.protocol.key_substitution import LOW_ORDER, KeySubstitution
from fedguard.attacks.protocol.race import Race
from fedguard.attacks.protocol.replay import Replay
from fedguard.attacks.protocol.retry import Retry
from fedguard.attacks.protocol.second_request import SecondRequest
from fedguard.attacks.protocol.split_survivors import SplitSurvivors
from fedguard.attacks.protocol.split_survivors_trusting import SplitSurvivorsTrusting
from fedguard.attacks.protocol.survivor_and_dropped import SurvivorAndDropped
from fedguard.attacks.protocol.weak_parameters import WeakParameters
from fedguard.attacks.protocol.withheld_shares import WithheldShares
from fedguard.secagg.contest import contest
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.parameters import complete, sparse
from fedguard.secagg.simulation import Settings

SEEDS = [b"first", b"second", b"third"]
#: What becomes of an attack does not hang on its keys: other ones are tried where there is time.
EACH_SEED = pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in SEEDS[1:])]
)
#: The attack, and the errors with which our clients stop it.
STOPPED = {
    SurvivorAndDropped: {"MalformedMessage", "AlreadyAnswered"},
    SplitSurvivors: {"InconsistentSurvivors", "PolicyViolation"},
    SecondRequest: {"AlreadyAnswered"},
    Race: {"AlreadyAnswered", "InconsistentSurvivors", "BadSurvivorSet"},
    KeySubstitution: {"BadSignature", "RosterTampered", "BadPublicKey", "ModelMismatch"},
    Replay: {"ReplayOrWrongRound", "InconsistentSurvivors", "BadSignature", "ShareDecryptError"},
    Retry: {"InconsistentSurvivors"},
    WithheldShares: {"TooFewSurvivors", "BadSurvivorSet", "InconsistentSurvivors"},
    WeakParameters: {"PolicyViolation", "MalformedMessage"},
}


@cache
def found(attack, seed=SEEDS[0], weak=False):
    return contest(attack(), weak=weak, entropy=expand_seed(seed))


def said(finding, start):
    """What a line of the story says after its beginning, which stands once."""
    [line] = [line for line in finding.story if line.startswith(start)]
    return line[len(start) :].lstrip(": ")


@EACH_SEED
@pytest.mark.parametrize("attack", STOPPED, ids=lambda attack: attack.name)
def test_it_is_stopped(attack, seed):
    finding = found(attack, seed)
    assert (finding.verdict, finding.learned) == ("defeated", "nothing")
    assert {complaint.split()[0] for complaint in finding.stopped_by} == STOPPED[attack]


@EACH_SEED
@pytest.mark.parametrize("attack", STOPPED, ids=lambda attack: attack.name)
def test_it_opens_an_input_of_a_client_with_a_planted_weakness(attack, seed):
    finding = found(attack, seed, weak=True)
    assert finding.verdict == "succeeded"
    assert finding.learned.startswith("the sum of clients [") and "," not in finding.learned.split("]")[0]


def test_numbers_and_names():
    assert [attack.number for attack in STOPPED] == [1, 2, 3, 3, 4, 5, 5, 6, 7]
    assert not any(attack.outside for attack in STOPPED) and SplitSurvivorsTrusting.outside


@pytest.mark.parametrize("attack", [SurvivorAndDropped, SecondRequest])
def test_all_give_shares_of_the_one_secret_and_only_colluders_of_the_other(attack):
    """n - 1 holders, of whom one colludes; the weak ones give both."""
    ours, weak = (found(attack, weak=weak) for weak in (False, True))
    assert ours.figures == {"seed_shares": 7, "key_shares": 1}
    assert weak.figures == {"seed_shares": 7, "key_shares": 7}


def test_what_clients_say_to_a_second_request():
    finding = found(SecondRequest)
    others = "clients 1, 2, 3, 4, 5, 6: AlreadyAnswered"
    assert said(finding, "told at once that client 0 dropped out") == others
    assert said(finding, "told, after all is revealed, that client 0 dropped out") == others
    assert said(finding, "shown signatures over these survivors") == others
    assert said(finding, "asked to begin anew") == "clients 0, 1, 2, 3, 4, 5, 6: AlreadyAnswered"


class LooseRing(Settings):
    """A ring for few clients, whatever its chances are."""

    def parameters(self, clients):
        return sparse(clients, self.colluding, self.dropping, security=3)


class RetryOnARing(Retry):
    clients, colluders = 40, 2
    settings = LooseRing(colluding=0.051, dropping=0.05)


@pytest.mark.parametrize("attack", [Retry, RetryOnARing])
def test_a_retry_with_the_same_nonce_is_another_session(attack):
    """Either old signature alone is refused, by each client that is shown it; the weak one is opened by both."""
    ours, weak = (contest(attack(), weak=weak, entropy=expand_seed(b"retry")) for weak in (False, True))
    assert (ours.verdict, weak.verdict) == ("defeated", "succeeded")
    masked, attested = (line.rsplit(": ", 1) for line in ours.story[1:])
    assert masked[1].startswith("InconsistentSurvivors")
    assert attested[1] == "InconsistentSurvivors" and "answered" not in attested[0]
    assert weak.story[1].endswith("answered") and weak.story[2].endswith("answered")


def test_of_two_halves_only_one_has_a_quorum():
    finding = found(SplitSurvivors)
    assert said(finding, "asked for their shares") == (
        "clients 0, 1, 2 answered; clients 3, 4, 5: InconsistentSurvivors"
    )
    assert said(finding, "proposed without the consistency round") == "clients 0, 1, 2, 3, 4, 5, 6: PolicyViolation"


def halves(colluders: int, honest: int) -> type[SplitSurvivorsTrusting]:
    """The attack on a session without attestation, among so many clients."""
    n = colluders + honest
    settings = SplitSurvivorsTrusting.settings.__class__(colluding=colluders / n, dropping=0, attested=False)
    facts = {"clients": n, "colluders": colluders, "settings": settings, "__module__": __name__}
    return type("Halves", (SplitSurvivorsTrusting,), facts)


@pytest.mark.parametrize(("colluders", "honest"), [(2, 6), (1, 6), (3, 8), (2, 12), (0, 6)])
def test_without_the_consistency_round_two_honest_inputs_are_all_that_hides_one(colluders, honest):
    """H even: H - 2 mask keys of H / 2 shares each, from H clients with (H - 2) / 2 each. It comes out even."""
    finding = contest(halves(colluders, honest)(), entropy=expand_seed(b"trusting"))
    parameters = complete(colluders + honest, colluders / (colluders + honest), 0, attested=False)
    assert parameters.threshold - colluders == honest // 2
    assert parameters.degree - parameters.threshold == (honest - 2) // 2
    promised = honest // 2 + 1
    assert finding.verdict == "limit"
    assert finding.figures == {"honest_inputs_in_the_smallest_sum": 2, "promised_by_an_honest_server": promised}
    assert finding.learned.startswith(f"the sum of clients [{honest - 2}, {honest - 1}];")


def test_each_substitution_has_its_error():
    finding = found(KeySubstitution)
    assert said(finding, "the server's keys for all others, signed by nobody") == "BadSignature"
    assert said(finding, "the server's keys for all others, signed by client 7") == "BadSignature"
    assert said(finding, "client 0's keys as client 1's") == "BadSignature"
    assert said(finding, "client 0's keys as client 7's, signed by it") == "RosterTampered"
    for field in ("encryption_key", "mask_key"):
        assert said(finding, f"7 points of low order as client 7's {field}") == "BadPublicKey"


def ladder(u: int, scalar: int) -> int:
    """X25519 as in RFC 7748, section 5, on integers."""
    p = 2**255 - 19
    scalar = scalar & ~7 & (2**255 - 1) | 2**254
    u %= p
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in range(254, -1, -1):
        bit = scalar >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a, c * b
        x3, z3 = (da + cb) ** 2 % p, u * (da - cb) ** 2 % p
        x2, z2 = a * a * b * b % p, (a * a - b * b) * (a * a + 121665 * (a * a - b * b)) % p
    return (x3 if swap else x2) * pow(z3 if swap else z2, p - 2, p) % p


def test_points_of_low_order_are_such():
    numbers = [int.from_bytes(point, "little") for point in LOW_ORDER]
    assert len(set(numbers)) == 7 and all(ladder(u, 0x1234567890ABCDEF << 180) == 0 for u in numbers)
    assert ladder(9, 0x1234567890ABCDEF << 180) != 0


def test_what_is_replayed_meets_its_error():
    finding = contest(Replay(), entropy=expand_seed(b"replay"))
    assert said(finding, "in round 3").endswith("clients 0, 1, 2, 3, 4, 5: InconsistentSurvivors")
    assert said(finding, "each message of round 1 once more in round 2, before the new one") == ", ".join(
        ["ReplayOrWrongRound"] * 5
    )
    assert said(finding, "a packet that was made for another") == "client 6: BadSignature"
    assert said(finding, "two packets with their senders exchanged") == "client 6: BadSignature"
    assert said(finding, "client 7 deals out client 6's packets") == "clients 0, 1, 2, 3, 4, 5, 6: ShareDecryptError"
    nonce = said(finding, "the same nonce again, with old keys of clients [0, 1, 2, 3, 4, 5]")
    assert "client 6 answered" in nonce and nonce.endswith("BadSignature")
    assert finding.figures == {"seed_shares": 1, "key_shares": 1}


@EACH_SEED
def test_withheld_packets(seed):
    """Fewer than t are refused. With t, no neighbor that was withheld gives a share of the victim's seed."""
    finding = contest(WithheldShares(), entropy=expand_seed(seed))
    parameters = WithheldShares.settings.parameters(WithheldShares.clients)
    k, t = parameters.degree, parameters.threshold
    refusals = said(finding, f"handed t - 1 = {t - 1} packets")
    assert refusals.count("TooFewSurvivors") == 2 and refusals.count("BadSurvivorSet") == 1
    assert said(finding, f"handed t = {t}, of ").endswith("answered")
    assert "answered" not in said(finding, "those who hold shares of client")
    assert not parameters.complete and (finding.figures["neighbors"], finding.figures["packets_handed_on"]) == (k, t)
    assert finding.figures["neighbors_that_refuse"] == k - t  # the other t are said to have dropped out, or collude
    weak = contest(WithheldShares(), weak=True, entropy=expand_seed(seed))
    assert weak.figures["neighbors_that_refuse"] == 0


def test_every_proposal_is_refused_or_taken():
    ours, weak = (contest(WeakParameters(), weak=weak, entropy=expand_seed(b"weak")) for weak in (False, True))
    assert ours.figures == {"proposals": 10, "accepted": 0, "inputs_opened": 0}
    assert weak.figures == {"proposals": 10, "accepted": 9, "inputs_opened": 3}
    assert all(line.endswith("clients 0, 1, 2, 3, 4, 5, 6: PolicyViolation") for line in ours.story[:-1])
    assert ours.story[-1].endswith("MalformedMessage") and weak.story[-1].endswith("MalformedMessage")
