"""Attacks that go round the masks rather than through them: models, Sybils, sums of sums, the graph, keys that are too few."""

import math
from dataclasses import replace
from functools import cache, partial
from itertools import islice

import numpy as np
import pytest

from fedguard.attacks.protocol.differencing import Differencing
from fedguard.attacks.protocol.disaggregation import Disaggregation
from fedguard.attacks.protocol.graph_grinding import GraphGrinding
from fedguard.attacks.protocol.mask_reuse import MaskReuse
from fedguard.attacks.protocol.means.inputs import draw_fixed_point, to_signed_integers
from fedguard.attacks.protocol.model_per_client import ModelPerClient
from fedguard.attacks.protocol.seed_search import SeedSearch, fold_key
from fedguard.attacks.protocol.sybils import Sybils, skellam
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.secagg.client import Client
from fedguard.secagg.contest import ContestResult, contest
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.parameters import sparse
from fedguard.secagg.session import SessionConfig
from fedguard.secagg.simulation import Settings

DEFEATED = (ModelPerClient, GraphGrinding, SeedSearch, MaskReuse)
LIMITS = (Sybils, Differencing, Disaggregation)
SEEDS = (b"one", b"two")
#: What becomes of an attack does not hang on its keys: other ones are tried where there is time.
EACH_SEED = pytest.mark.parametrize("seed", [SEEDS[0], pytest.param(SEEDS[1], marks=pytest.mark.slow)])


@cache
def found(attack, seed: bytes, weak: bool = False) -> ContestResult:
    return contest(attack(), weak=weak, entropy=expand_seed(seed))


def errors(finding: ContestResult) -> set[str]:
    return {complaint.partition(" ")[0] for complaint in finding.stopped_by}


@pytest.mark.parametrize("attack", [*DEFEATED, *LIMITS])
def test_each_is_known_by_its_name_and_says_what_it_is(attack):
    assert load_registry().get("protocol", attack.name) is attack
    assert attack.source and attack.stopped_by and attack.by in ("server", "client", "both")
    assert bool(attack.outside) == (attack in LIMITS) and (attack.weak is None) == (attack in LIMITS)


def test_their_numbers_are_those_of_the_specification():
    numbers = {attack.name: attack.number for attack in (*DEFEATED, *LIMITS)}
    assert numbers == {
        "model_per_client": 8,
        "sybils": 9,
        "differencing": 10,
        "disaggregation": 11,
        "graph_grinding": 12,
        "seed_search": 13,
        "mask_reuse": 14,
    }


@EACH_SEED
@pytest.mark.parametrize("attack", DEFEATED)
def test_ours_withstands(attack, seed):
    finding = found(attack, seed)
    assert finding.verdict == "defeated" and finding.learned.startswith("nothing")


@EACH_SEED
@pytest.mark.parametrize("attack", DEFEATED)
def test_a_planted_weakness_gives_the_input_of_one_client(attack, seed):
    """The referee compares with the true input, element by element."""
    finding = found(attack, seed, weak=True)
    assert finding.verdict == "succeeded" and finding.learned.startswith("the sum of clients [")
    assert "," not in finding.learned.partition("]")[0]


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (ModelPerClient, {"ModelMismatch", "BadSignature", "TooFewSurvivors"}),
        (GraphGrinding, {"PolicyViolation", "BadSurvivorSet"}),
        (SeedSearch, set()),
        (MaskReuse, {"RosterTampered"}),
        (Sybils, set()),
        (Differencing, {"AlreadyAnswered", "InconsistentSurvivors"}),
        (Disaggregation, set()),
    ],
)
def test_what_honest_clients_complain_of(attack, expected):
    assert errors(found(attack, SEEDS[0])) == expected


@EACH_SEED
@pytest.mark.parametrize("attack", LIMITS)
def test_what_masks_do_not_promise(attack, seed):
    finding = found(attack, seed)
    assert finding.verdict == "limit" and finding.learned.startswith("the sum of clients [0]")


# --- a model per client


def test_every_way_to_bring_two_models_into_one_session_fails_by_itself():
    finding = found(ModelPerClient, SEEDS[0])
    ends = [line.rpartition(": ")[2] for line in finding.story[1:]]
    assert ends == [
        "ModelMismatch of clients 1, 2, 3, 4, 5, 6, and TooFewSurvivors",
        "ModelMismatch of client 0, and a sum of zeros",
        "ModelMismatch of clients 0, 1, 2, 3, 4, 5, 6, and TooFewSurvivors",
        "ModelMismatch",
        "BadSignature",
        "TooFewSurvivors",
    ]


# --- Sybils


@EACH_SEED
def test_of_the_noise_only_the_victims_own_is_left(seed):
    """256 draws: the root of their mean square has a spread of 4.4 %."""
    figures = found(Sybils, seed).figures
    assert figures["sybils"] == 7 and figures["colluders_withstood"] == 1
    assert figures["noise_left_rms"] == pytest.approx(4096, rel=0.2)
    assert figures["noise_planned"] / 4096 == pytest.approx(math.sqrt(7))
    assert figures["input_rms"] == pytest.approx(2**19 / math.sqrt(3), rel=0.15)


def test_skellam_noise_has_the_moments_of_its_law():
    """E = 0, variance = sigma^2, fourth central moment = 3 sigma^4 + sigma^2."""
    drawn = skellam(3.0)(200_000, expand_seed(b"skellam")).astype(float)
    assert abs(drawn.mean()) < 5 * 3 / math.sqrt(len(drawn))
    assert drawn.var() == pytest.approx(9, rel=0.02)
    assert (drawn**4).mean() == pytest.approx(3 * 81 + 9, rel=0.05)


# --- differencing


@EACH_SEED
def test_one_session_gives_one_sum_however_its_clients_are_split(seed):
    assert found(Differencing, seed).figures == {"sessions": 2, "sums_within_one_session": 1, "splits_tried": 6}


class CarelessClient(Client):
    """Reveals its shares whoever has signed."""

    def _unmask(self, header, quorum):
        return self._reveal_shares()


class CarelessDifferencing(Differencing):
    weak = CarelessClient


def test_without_the_quorum_one_session_would_give_two():
    finding = contest(CarelessDifferencing(), weak=True, entropy=expand_seed(SEEDS[0]))
    assert finding.figures["sums_within_one_session"] == 2


# --- disaggregation

DEALT = {2: partial(Disaggregation, groups=2), 3: partial(Disaggregation, groups=3), 4: Disaggregation}


@EACH_SEED
@pytest.mark.parametrize("groups", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_ranks_of_fixed_and_of_redrawn_groups(groups, seed):
    finding = found(DEALT[groups], seed)
    figures = finding.figures
    assert finding.verdict == "limit"
    assert figures["rank_fixed"] == groups and figures["single_inputs_fixed"] == 0
    assert figures["rank_redrawn"] == figures["single_inputs_redrawn"] == 12
    assert figures["rounds_needed_at_least"] == math.ceil(11 / (groups - 1))
    assert figures["rounds_needed_redrawn"] >= figures["rounds_needed_at_least"]
    assert figures["rank_redrawn"] <= 1 + figures["rounds_needed_redrawn"] * (groups - 1)
    assert figures["moving_error_rms"] == pytest.approx(figures["moving_error_expected"], rel=0.5)


def test_groups_that_hide_nothing_or_do_not_divide_the_clients_are_refused():
    for groups in (1, 5, 6, 12):
        with pytest.raises(ConfigError, match="groups"):
            Disaggregation(groups=groups)


# --- graph grinding


def surrounded(n: int, colluders: int, degree: int, least: int) -> float:
    """P[Hyp(n - 1, colluders, degree) >= least]: a client and its neighbors, drawn without putting back."""
    total = 0.0
    for i in range(least, degree + 1):
        total += math.comb(colluders, i) * math.comb(n - 1 - colluders, degree - i)
    return total / math.comb(n - 1, degree)


@EACH_SEED
def test_rings_are_as_bad_as_the_hypergeometric_law_says(seed):
    """75,776 neighborhoods; those of one ring hang together, so the spread of a share is some times the binomial one."""
    figures = found(GraphGrinding, seed).figures
    assert figures["rings_tried"] == 2048
    assert figures["log2_chance_per_ring"] == pytest.approx(math.log2(37 * surrounded(48, 11, 12, 11)))
    assert figures["log2_chance_of_all_tries"] == pytest.approx(figures["log2_chance_per_ring"] + 11)
    assert figures["log2_chance_of_all_tries"] < -14
    assert figures["share_with_6_or_more_expected"] == pytest.approx(surrounded(48, 11, 12, 6))
    assert figures["share_with_6_or_more_measured"] == pytest.approx(surrounded(48, 11, 12, 6), rel=0.15)
    hours = 2 ** -figures["log2_chance_per_ring"] / figures["rings_per_second"] / 3600
    assert figures["hours_until_one_is_expected"] == pytest.approx(hours)


class LooseRing(Settings):
    def parameters(self, clients):
        return sparse(clients, self.colluding, self.dropping, security=3)


class LooseGrinding(GraphGrinding):
    settings = LooseRing(colluding=0.23, dropping=0)

    def _foreseen(self, arena):
        return [], ""

    def _ways(self, arena, figures):
        return islice(super()._ways(arena, figures), 2, None)


def test_a_ring_of_too_few_bits_falls_to_the_last_colluders_keys():
    """Nothing but its size stands in the way: after so many keys as the law says, real clients lose their inputs.

    The tries are geometric. Times the chance of one they have mean 1 and spread 1, over 8 contests 0.35.
    """
    tries = []
    for i in range(8):
        finding = contest(LooseGrinding(tries=2**13), entropy=expand_seed(b"loose %d" % i))
        assert finding.verdict == "succeeded" and "lie open" in finding.story[-1]
        tries.append(finding.figures["rings_tried"] * 37 * surrounded(48, 11, 6, 5))
    assert 0.4 < np.mean(tries) < 2


class IndifferentClient(Client):
    """Takes any degree."""

    def __init__(self, *facts, **others):
        super().__init__(*facts, **others)
        self._policy = replace(self._policy, degree=len(self._roster) - 1)


class DenserGraph(GraphGrinding):
    weak = IndifferentClient
    clients, colluders = 26, 5
    settings = LooseGrinding.settings


def test_a_graph_with_more_neighbors_at_the_same_threshold_would_open_everything():
    finding = contest(DenserGraph(), weak=True, entropy=expand_seed(SEEDS[0]))
    assert finding.verdict == "succeeded" and finding.story[2].startswith("the complete graph")
    refused = found(GraphGrinding, SEEDS[0]).stopped_by
    assert "degree: expected 12 neighbors; the server proposes 47" in refused[0]


# --- seed search


def test_folding_is_the_exclusive_or_of_the_pieces():
    key = bytes(range(1, 17))
    assert fold_key(key, 16)[:2] == bytes([1 ^ 3 ^ 5 ^ 7 ^ 9 ^ 11 ^ 13 ^ 15, 2 ^ 4 ^ 6 ^ 8 ^ 10 ^ 12 ^ 14 ^ 16])
    assert fold_key(key, 16)[2:] == bytes(14)
    assert fold_key(key, 32)[:4] == bytes([1 ^ 5 ^ 9 ^ 13, 2 ^ 6 ^ 10 ^ 14, 3 ^ 7 ^ 11 ^ 15, 4 ^ 8 ^ 12 ^ 16])


@EACH_SEED
def test_the_search_goes_through_all_seeds_and_says_how_long_more_would_take(seed):
    figures = found(SeedSearch, seed).figures
    rate = figures["seeds_per_second"]
    assert figures["seeds_tried"] == 2**16
    assert figures["hours_for_2^32_seeds"] == pytest.approx(2**32 / rate / 3600)
    assert figures["years_for_2^128_keys"] == pytest.approx(2**128 / rate / 31_557_600)
    assert found(SeedSearch, seed, weak=True).figures["seeds_tried"] <= 2**16


def test_encoded_inputs_fill_their_bits_and_no_more():
    drawn = to_signed_integers(
        draw_fixed_point(SessionConfig(length=4096, members=3, degree=2, threshold=2, quorum=2), expand_seed(b"drawn"))
    )
    assert drawn.min() < -0.99 * 2**19 and drawn.min() >= -(2**19)
    assert 0.99 * 2**19 < drawn.max() < 2**19
    assert abs(drawn.mean()) < 5 * 2**19 / math.sqrt(3 * 4096)


# --- mask reuse


@EACH_SEED
def test_keys_are_fresh_though_the_session_is_the_same(seed):
    assert found(MaskReuse, seed).figures["clients_with_the_same_keys"] == 0
    assert found(MaskReuse, seed, weak=True).figures["clients_with_the_same_keys"] == 7
