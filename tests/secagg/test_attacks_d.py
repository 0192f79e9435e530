"""What attacks look for beside inputs: secrets from too few shares, sets that cannot be, keys that are few, graphs that are known."""

import itertools

import numpy as np
import pytest

from fedguard.attacks.protocol.dropout import DropoutPatterns
from fedguard.attacks.protocol.false_sets import FalseSets
from fedguard.attacks.protocol.graph_grinding import GraphGrinding
from fedguard.attacks.protocol.mask_reuse import MaskReuse
from fedguard.attacks.protocol.means.inputs import draw_fixed_point, looks_encoded
from fedguard.attacks.protocol.pooled_shares import PooledShares
from fedguard.attacks.protocol.seed_search import SeedSearch, dimensions
from fedguard.attacks.protocol.sum_leakage import SumLeakage
from fedguard.secagg.contest import Claim, contest
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.session import SessionConfig

#: What becomes of an attack does not hang on its keys: other ones are tried where there is time.
SEEDS = [b"first", pytest.param(b"second", marks=pytest.mark.slow)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("attack", "errors"),
    [(PooledShares, set()), (FalseSets, {"BadSurvivorSet", "TooFewSurvivors", "InconsistentSurvivors"})],
)
def test_ours_withstands(attack, errors, seed):
    finding = contest(attack(), entropy=expand_seed(seed))
    assert (finding.verdict, finding.learned) == ("defeated", "nothing")
    assert {complaint.split()[0] for complaint in finding.stopped_by} == errors


@pytest.mark.parametrize("seed", SEEDS)
def test_one_share_less_opens_an_input(seed):
    finding = contest(PooledShares(), weak=True, entropy=expand_seed(seed))
    assert finding.verdict == "succeeded" and finding.learned.startswith("the sum of clients [0];")
    assert finding.figures == {"shares_pooled": 2, "threshold": 3}


@pytest.mark.parametrize("seed", SEEDS)
def test_who_counts_nobody_takes_sets_that_cannot_be(seed):
    finding = contest(FalseSets(), weak=True, entropy=expand_seed(seed))
    assert finding.verdict == "succeeded" and "answered to: shares of one that has dealt none" in finding.learned
    answered = [line.partition(":")[0] for line in finding.story if line.endswith("answered")]
    assert answered == [
        "shares of one that has dealt none", "shares of others alone", "shares of fewer than a quorum",
        "a survivor that has not shared", "survivors without the one that is asked", "survivors fewer than a quorum",
    ]  # fmt: skip


@pytest.mark.parametrize("attack", [DropoutPatterns, SumLeakage])
def test_what_the_protocol_rules_out_is_no_limit_of_it(attack):
    class Claiming(attack):
        def mount(self, arena):
            return Claim(broken=["a message that nobody signed was taken"])

    finding = contest(Claiming(), entropy=expand_seed(b"broken"))
    assert (finding.verdict, finding.learned) == (
        "succeeded",
        "nothing yet; but a message that nobody signed was taken",
    )


def test_dimensions_are_those_of_the_span():
    """Against all sums of subsets: 2^rank of them are different."""
    draw = expand_seed(b"numbers")
    for count, size in itertools.product((0, 1, 3, 6, 9), (1, 2)):
        numbers = [int.from_bytes(draw(size), "little") & 0b1010111 for _ in range(count)]
        sums = {0}
        for number in numbers:
            sums |= {number ^ one for one in sums}
        assert 2 ** dimensions(numbers) == len(sums)


def test_a_right_number_of_dimensions_and_no_secret_twice():
    figures = contest(SeedSearch(seeds=1), entropy=expand_seed(b"few")).figures
    assert figures["dimensions_of_pairwise_mask_keys"] == figures["dimensions_of_self_mask_keys"] == 128
    assert figures["mask_keys_drawn_twice"] == figures["seeds_drawn_twice"] == 0


def test_every_fresh_key_moves_the_graph():
    assert contest(GraphGrinding(tries=1), entropy=expand_seed(b"keys")).story[1].startswith("0 of 96 fresh keys")


def test_no_pad_serves_twice():
    figures = contest(MaskReuse(), entropy=expand_seed(b"pads")).figures
    assert figures == {"clients_with_the_same_keys": 0, "pairs_with_one_stream": 0}


def test_encoded_inputs_are_told_from_noise():
    config = SessionConfig(length=16, members=3, degree=2, threshold=2, quorum=2)
    assert looks_encoded(draw_fixed_point(config, expand_seed(b"input")))
    assert looks_encoded(np.array([2**19 - 1, 2**32 - 2**19], np.uint32))
    for wrong in (2**19, 2**32 - 2**19 - 1):
        assert not looks_encoded(np.array([0, wrong], np.uint32))
