"""The encoding: exact arithmetic written out, the law of its rounding, and a budget that is neither too tight nor too wide."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedguard as fg
from fedguard.errors import ConfigError, InputError
from fedguard.secagg.encoding import Encoding, OverflowBudgetError
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.masks import keystream

SEED = bytes(range(32))
RINGS = {32: np.uint32, 64: np.uint64}


def entropy(number: int = 0):
    return expand_seed(number.to_bytes(8, "little"))


def normal(d: int, number: int = 0) -> np.ndarray:
    return np.random.default_rng(number).normal(size=d)


def summed(encoding: Encoding, vectors, weights=None, number: int = 0):
    """The decoded sum of honest encodings."""
    weights = weights or [1] * len(vectors)
    total = np.zeros(encoding.length(len(vectors[0])), RINGS[encoding.ring])
    for client, (vector, weight) in enumerate(zip(vectors, weights, strict=True)):
        total += encoding.encode(vector, weight=weight, seed=SEED, entropy=entropy(1000 * number + client))
    return encoding.decode(total, dim=len(vectors[0]), seed=SEED)


# One vector.


@pytest.mark.parametrize("ring", RINGS)
def test_by_hand(ring):
    """4 bits over [-7, 7] are steps of 1: integers stay, what is beyond is clipped, two's complement, the weight last."""
    encoding = Encoding(bits=4, clip=7.0, ring=ring)
    encoded = encoding.encode(np.array([3.0, -2.0, 7.9, -9.0, 0.0]), seed=SEED)
    assert encoded.dtype == RINGS[ring]
    assert encoded.tolist() == [3, 2**ring - 2, 7, 2**ring - 7, 0, 1]


@pytest.mark.parametrize(
    ("bits", "clip", "ring", "weight", "dtype"),
    [(20, 4.0, 32, 1, np.float32), (20, 4.0, 64, 3, np.float64), (2, 0.3, 32, 5, np.float64), (45, 1.0, 64, 4, np.float64)],
)  # fmt: skip
def test_each_coordinate_is_rounded_as_its_bits_say(bits, clip, ring, weight, dtype):
    """Coordinate by coordinate in exact fractions, over more than one block: up if its 32 bits are below the fraction."""
    encoding, d = Encoding(bits=bits, clip=clip, ring=ring, largest_weight=5), 40_000
    vector = (3 * normal(d)).astype(dtype)
    vector[:3] = 0, clip, -clip
    encoded = encoding.encode(vector, weight=weight, seed=SEED, entropy=entropy())
    draws = np.frombuffer(keystream(entropy()(32), 4 * d), "<u4").tolist()
    steps = 2 ** (bits - 1) - 1
    scale, most = Fraction(steps) / Fraction(clip) * Fraction(weight, 5), Fraction(steps * weight, 5)
    near = 0
    for value, draw, got in zip(vector.tolist(), draws, encoded[:-1].tolist(), strict=True):
        exact = min(max(Fraction(value) * scale, -most), most)
        low = exact.numerator // exact.denominator
        expected = low + (Fraction(draw, 2**32) < exact - low)
        signed = got - 2**ring if got >= 2 ** (ring - 1) else got
        near += signed != expected
        assert abs(signed - expected) <= 1
    assert near <= 1 + d * 2 ** (bits - 50)  # where a fraction and its draw differ by less than float64's rounding


def test_rounding_is_unbiased():
    """z-test per fraction: of N coordinates at k + f the share that goes up is f, also below zero."""
    encoding, count = Encoding(bits=11, clip=1023.0), 200_000
    for number, value in enumerate([0.001, 0.1, 0.25, 0.5, 0.9, 5.3, -0.25, -0.5, -7.9, 1022.75, -1022.75]):
        encoded = encoding.encode(np.full(count, value), seed=SEED, entropy=entropy(number))
        values = encoded.view(np.int32)[:-1].astype(float)
        fraction = value - math.floor(value)
        assert set(values) == {math.floor(value), math.ceil(value)}
        assert abs(values.mean() - value) < 4.5 * math.sqrt(fraction * (1 - fraction) / count)


@given(bits=st.integers(2, 31), number=st.integers(0, 1000))
def test_integers_pass_unchanged(bits, number):
    """At S = 1 every whole number in the range is sent as it is, whatever the random bits."""
    steps = 2 ** (bits - 1) - 1
    encoding = Encoding(bits=bits, clip=float(steps))
    values = np.random.default_rng(number).integers(-steps, steps + 1, 500).astype(float)
    values[:2] = steps, -steps
    encoded = encoding.encode(values, seed=SEED, entropy=entropy(number))
    assert encoded.view(np.int32)[:-1].tolist() == values.tolist()


@given(bits=st.integers(2, 31), clip=st.floats(1e-6, 1e6), weight=st.integers(0, 7))
def test_no_honest_coordinate_leaves_its_range(bits, clip, weight):
    """Whatever the clip, S C is a whole number that the largest inputs reach and do not exceed."""
    encoding = Encoding(bits=bits, clip=clip, largest_weight=7)
    vector = np.array([clip, -clip, np.nextafter(clip, 0), 3 * clip, -3e38, 0.0])
    encoded = encoding.encode(vector, weight=weight, seed=SEED).view(np.int32)
    assert np.abs(encoded[:-1].astype(int)).max() <= math.ceil(Fraction(encoding.steps * weight, 7))
    assert encoded[-1] == weight
    if weight == 7:
        assert encoded[[0, 1, 3, 4]].tolist() == [encoding.steps, -encoding.steps, encoding.steps, -encoding.steps]


def test_the_random_bits_are_asked_for_once_and_decide_the_rounding():
    asked = []

    def counted(count: int) -> bytes:
        asked.append(count)
        return entropy()(count)

    encoding, vector = Encoding(bits=3), normal(5000)
    first = encoding.encode(vector, seed=SEED, entropy=counted)
    assert asked == [32]
    np.testing.assert_array_equal(first, encoding.encode(vector, seed=SEED, entropy=entropy()))
    assert (first != encoding.encode(vector, seed=SEED, entropy=entropy(1))).any()
    assert (encoding.encode(vector, seed=SEED) != encoding.encode(vector, seed=SEED)).any()


def test_the_input_is_left_alone():
    for rotated in (False, True):
        vector = normal(100).astype(np.float32)
        kept = vector.copy()
        Encoding(clip=0.5, rotate=rotated).encode(vector, seed=SEED)
        np.testing.assert_array_equal(vector, kept)


# Sums.


@given(
    n=st.integers(1, 12), d=st.integers(1, 200), bits=st.integers(2, 26), clip=st.sampled_from([0.1, 1.0, 7.3]),
    ring=st.sampled_from([32, 64]), number=st.integers(0, 10_000),
)  # fmt: skip
def test_a_sum_is_the_sum_of_the_clipped_inputs(n, d, bits, clip, ring, number):
    vectors = list(np.random.default_rng(number).normal(size=(n, d)))
    encoding = Encoding(bits=bits, clip=clip, ring=ring)
    encoding.check(n)
    total, weights = summed(encoding, vectors, number=number)
    expected = sum(np.clip(vector, -clip, clip) for vector in vectors)
    assert weights == n
    assert np.abs(total - expected).max() <= encoding.error(n, d).worst * (1 + 1e-9)


@given(n=st.integers(1, 6), d=st.integers(1, 300), bits=st.integers(2, 26), number=st.integers(0, 10_000))
def test_with_the_rotation_too(n, d, bits, number):
    """Where the clip is as wide as the longest vector it cuts nothing, and the rotation must cancel."""
    vectors = list(np.random.default_rng(number).normal(size=(n, d)))
    encoding = Encoding(bits=bits, clip=max(map(np.linalg.norm, vectors)), rotate=True)
    total, _ = summed(encoding, vectors, number=number)
    assert np.abs(total - sum(vectors)).max() <= encoding.error(n, d).worst * (1 + 1e-9)


@given(
    weights=st.lists(st.integers(0, 1000), min_size=1, max_size=8), number=st.integers(0, 10_000), rotated=st.booleans()
)
def test_the_weighted_mean_is_that_of_floats(weights, number, rotated):
    vectors = list(np.random.default_rng(number).uniform(-1, 1, (len(weights), 50)))
    encoding = Encoding(bits=24, clip=8.0, rotate=rotated, largest_weight=1000)
    encoding.check(len(weights))
    total, weight = summed(encoding, vectors, weights, number=number)
    assert weight == sum(weights)
    expected = sum(weight * vector for weight, vector in zip(weights, vectors, strict=True))
    assert np.abs(total - expected).max() <= encoding.error(len(weights), 50).worst
    if weight:
        np.testing.assert_allclose(total / weight, np.average(vectors, axis=0, weights=weights), atol=8e-3 / weight * 8)


def test_a_client_of_weight_zero_adds_nothing():
    encoding = Encoding(largest_weight=10)
    assert not encoding.encode(normal(40), weight=0, seed=SEED).any()


# The size of the error.


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("weight", [1, 6])
def test_the_typical_error_is_that_of_uniform_fractions(rotated, weight):
    n, d = 12, 60_000
    encoding = Encoding(bits=12, clip=8.0, rotate=rotated, largest_weight=6)
    vectors = [normal(d, client) for client in range(n)]
    total, _ = summed(encoding, vectors, [weight] * n)
    errors = total - weight * sum(vectors)
    typical = math.sqrt(n / 6) * 6 * 8.0 / 2047
    assert encoding.error(n, d).typical == pytest.approx(typical)
    assert errors.std() == pytest.approx(typical, rel=5 / math.sqrt(2 * d))
    assert abs(errors.mean()) < 4.5 * typical / math.sqrt(d)


def test_the_largest_error_is_that_of_halves():
    n, d = 9, 60_000
    encoding = Encoding(bits=8, clip=127.0)
    total, _ = summed(encoding, [np.full(d, 0.5)] * n)
    assert encoding.error(n, d).largest == pytest.approx(math.sqrt(9) / 2)
    assert (total - n / 2).std() == pytest.approx(1.5, rel=5 / math.sqrt(2 * d))
    assert np.abs(total - n / 2).max() <= encoding.error(n, d).worst == 9


def test_coordinates_far_below_a_step_move_less_than_the_typical_error():
    n, d, x = 9, 60_000, 0.004
    encoding = Encoding(bits=8, clip=127.0, largest_weight=3)
    total, _ = summed(encoding, [np.full(d, x)] * n, [3] * n)
    assert total.std() == pytest.approx(math.sqrt(n * x) * 3, rel=0.05)
    assert total.std() < encoding.error(n, d).typical / 3


def test_each_bit_more_halves_the_error():
    errors = [Encoding(bits=bits).error(10, 100).typical for bits in (10, 11)]
    assert errors[0] / errors[1] == pytest.approx(1023 / 511)


def test_the_worst_error_of_a_rotated_sum_is_the_l1_norm_of_a_row():
    """All coordinates off by one step, with the signs of a row of H / sqrt(m): one coordinate is off by sqrt(m) steps."""
    d = 64
    encoding = Encoding(bits=8, clip=127.0, rotate=True)
    unit = np.eye(d)[5]
    off = np.rint(encoding.encode_raw(1000 * unit * math.sqrt(d), seed=SEED).view(np.int32)[:-1] / 1000)
    total = np.append(off, 1).astype(np.int32).view(np.uint32)
    decoded, _ = encoding.decode(total, dim=d, seed=SEED)
    assert encoding.error(1, d).worst == pytest.approx(8)
    assert decoded[5] == pytest.approx(8)


# What the clip cuts.


def test_the_share_that_is_cut():
    vector = np.array([0.0, 1.0, -1.0, 1.5, -7.0])
    assert Encoding(clip=1.0).clip_fraction(vector, seed=SEED) == 0.4
    assert Encoding(clip=7.0).clip_fraction(vector, seed=SEED) == 0


def test_a_spike_fits_a_small_range_once_it_is_rotated():
    """The clip comes after the rotation: a spike of 3 in 1024 coordinates is 3 / 32 everywhere, and comes back whole."""
    spike = 3 * np.eye(1024)[17]
    plain, rotated = Encoding(clip=0.1), Encoding(clip=0.1, rotate=True)
    assert (plain.clip_fraction(spike, seed=SEED), rotated.clip_fraction(spike, seed=SEED)) == (1 / 1024, 0)
    assert summed(plain, [spike])[0][17] == pytest.approx(0.1)
    assert summed(rotated, [spike])[0][17] == pytest.approx(3, abs=1e-4)
    assert Encoding(clip=0.09, rotate=True).clip_fraction(spike, seed=SEED) == 1
    assert summed(Encoding(clip=0.09, rotate=True), [spike])[0][17] == pytest.approx(0.09 * 32)


def test_normal_updates_are_cut_as_their_distribution_says():
    share = Encoding(clip=1.0).clip_fraction(normal(100_000), seed=SEED)
    assert share == pytest.approx(math.erfc(1 / math.sqrt(2)), abs=0.005)


# The budget.


@pytest.mark.parametrize(("bits", "ring"), [(27, 32), (31, 32), (30, 32), (53, 64)])
@pytest.mark.parametrize("tail", [0, 1000, 2**28])
def test_the_budget_is_the_formula(bits, ring, tail):
    """n (ceil(S C) + 1) + tail <= 2^(l-1) - 1, each n by adding up."""
    encoding, needed, refused = Encoding(bits=bits, clip=0.7, ring=ring), tail, 0
    for n in range(1, 2500):
        needed += math.ceil(Fraction(2 ** (bits - 1) - 1)) + 1
        if needed <= 2 ** (ring - 1) - 1:
            encoding.check(n, tail)
        else:
            refused += 1
            with pytest.raises(OverflowBudgetError):
                encoding.check(n, tail)
    assert refused > 0


@pytest.mark.parametrize(("bits", "ring"), [(27, 32), (24, 32), (53, 64), (50, 64)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_honest_sums_fit_as_far_as_the_budget_goes_and_wrap_beyond(bits, ring, sign):
    encoding = Encoding(bits=bits, clip=2.0, ring=ring)
    most = (2 ** (ring - 1) - 1) // 2 ** (bits - 1)
    encoding.check(most)
    one = encoding.encode(np.full(3, sign * 5.0), seed=SEED)
    total, weight = encoding.decode(one * RINGS[ring](most), dim=3, seed=SEED)
    assert weight == most
    np.testing.assert_allclose(total, sign * 2.0 * most, rtol=1e-12)
    beyond = 2 ** (ring - 1) // (2 ** (bits - 1) - 1) + 1  # the first n whose sum is out of range
    with pytest.raises(OverflowBudgetError):
        encoding.check(beyond)
    wrapped, _ = encoding.decode(one * RINGS[ring](beyond), dim=3, seed=SEED)
    assert (np.sign(wrapped) == -sign).all()


@pytest.mark.parametrize("ring", RINGS)
def test_the_weights_have_a_budget_too(ring):
    room = 2 ** (ring - 1) - 1
    Encoding(bits=4, ring=ring, largest_weight=room // 9).check(9)
    with pytest.raises(OverflowBudgetError, match="Lower largest_weight to"):
        Encoding(bits=4, ring=ring, largest_weight=room // 9 + 1).check(9)


@pytest.mark.parametrize(
    ("values", "clients", "tail"),
    [
        ({"bits": 31}, 20, 0),
        ({"bits": 20}, 5000, 0),
        ({"bits": 20}, 3500, 2**29),
        ({"bits": 20, "largest_weight": 2**28}, 20, 0),
        ({"bits": 53, "ring": 64}, 5000, 2**60),
    ],
)
def test_each_mend_that_the_error_names_is_the_largest_that_would_do(values, clients, tail):
    with pytest.raises(OverflowBudgetError) as caught:
        Encoding(**values).check(clients, tail)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    remedies = {
        "bits": r"[Ll]ower bits to (\d+)",
        "largest_weight": r"[Ll]ower largest_weight to (\d+)",
        "clients": r"[Ll]ower the number of clients to (\d+)",
    }
    found = {name: int(match[1]) for name, pattern in remedies.items() if (match := re.search(pattern, message))}
    assert found
    for name, value in found.items():
        repaired = {**values, "clients": clients, name: value}
        Encoding(**{key: repaired[key] for key in values}).check(repaired["clients"], tail)
        repaired[name] = value + 1
        with pytest.raises(OverflowBudgetError):
            Encoding(**{key: repaired[key] for key in values}).check(repaired["clients"], tail)
    if "set ring: 64" in message:
        Encoding(**{**values, "ring": 64}).check(clients, tail)
    else:
        assert values.get("ring") == 64


def test_noise_that_fills_the_ring_leaves_nothing_to_lower_but_itself():
    with pytest.raises(OverflowBudgetError, match="Lower bits, weights and noise"):
        Encoding(ring=64).check(5, 2**63)


# Malicious clients.


@pytest.mark.parametrize(("ring", "top"), [(32, 2**31 - 1), (64, 2**63 - 1024)])
def test_a_raw_encoding_saturates_at_the_ring_and_nowhere_else(ring, top):
    encoding = Encoding(bits=5, clip=15.0, ring=ring)  # S = 1
    vector = np.array([16.0, -1e6, 2.0**30, 1e300, -1e300, 1e308, float(top), -(2.0 ** (ring - 1))])
    encoded = encoding.encode_raw(vector, seed=SEED).view(f"int{ring}").tolist()
    assert encoded == [16, -1_000_000, 2**30, top, -(2 ** (ring - 1)), top, top, -(2 ** (ring - 1)), 1]
    assert encoding.encode_raw(vector[:2], weight=-3, seed=SEED).view(f"int{ring}").tolist() == [-48, 3_000_000, -3]
    weights = [
        encoding.encode_raw(vector, weight=weight, seed=SEED).view(f"int{ring}")[-1] for weight in (10**30, -(10**30))
    ]
    assert weights == [top, -(2 ** (ring - 1))]


def test_what_overflows_only_once_it_is_scaled_saturates():
    encoded = Encoding(clip=1e-6).encode_raw(np.array([1e308, -1e308]), seed=SEED).view(np.int32)
    assert encoded[:2].tolist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize("rotated", [False, True])
def test_one_raw_client_moves_the_sum_as_far_as_it_likes(rotated):
    encoding, vectors = Encoding(rotate=rotated), [0.1 * normal(300, client) for client in range(4)]
    malicious = 50.0 * normal(300, 9)
    total = sum(encoding.encode(vector, seed=SEED) for vector in vectors) + encoding.encode_raw(malicious, seed=SEED)
    decoded, weight = encoding.decode(total, dim=300, seed=SEED)
    assert weight == 5
    np.testing.assert_allclose(decoded, sum(vectors) + malicious, rtol=0, atol=encoding.error(5, 300).worst)


def test_raw_clients_can_wrap_the_sum_around():
    encoding = Encoding(bits=5, clip=15.0)
    one = encoding.encode_raw(np.full(2, 1e30), seed=SEED)
    assert encoding.decode(one + one, dim=2, seed=SEED)[0].tolist() == [-2, -2]  # 2 (2^31 - 1) mod 2^32


def test_a_malicious_weight_can_cancel_the_others():
    encoding = Encoding(largest_weight=5)
    total = encoding.encode(normal(3), weight=5, seed=SEED) + encoding.encode_raw(normal(3), weight=-6, seed=SEED)
    assert encoding.decode(total, dim=3, seed=SEED)[1] == -1


# What is refused.


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"bits": 1}, "bits: expected from 2 to 53; got 1."),
        ({"bits": 54}, "bits: expected from 2 to 53; got 54."),
        ({"clip": 0.0}, "clip: expected a positive number; got 0.0."),
        ({"clip": math.inf}, "clip: expected a positive number; got inf."),
        ({"clip": math.nan}, "clip: expected a positive number; got nan."),
        ({"ring": 16}, "ring: expected 32 or 64 bits; got 16."),
        ({"largest_weight": 0}, "largest_weight: expected at least 1; got 0."),
    ],
)
def test_bad_parameters(values, said):
    with pytest.raises(ConfigError) as caught:
        Encoding(**values)
    assert str(caught.value) == said


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(rotated, bad):
    vector = normal(10)
    vector[3] = bad
    encoding = Encoding(rotate=rotated)
    for act in (encoding.encode, encoding.encode_raw, encoding.clip_fraction):
        with pytest.raises(InputError, match=r"^vector: expected finite numbers; got NaN, infinity .*\.$"):
            act(vector, seed=SEED)


def test_what_overflows_in_the_rotation_is_refused():
    with pytest.raises(InputError, match="expected finite numbers"):
        Encoding(rotate=True).encode_raw(np.full(8, 1e308), seed=SEED)


@pytest.mark.parametrize("vector", [np.zeros((2, 2)), np.zeros(0), np.zeros(3, int), np.float64(1.0)])
def test_what_is_no_vector_is_refused(vector):
    with pytest.raises(InputError, match=r"^vector: expected floating numbers \[d\]; got .*\.$"):
        Encoding().encode(vector, seed=SEED)


@pytest.mark.parametrize("weight", [-1, 4])
def test_a_weight_out_of_range_is_refused(weight):
    with pytest.raises(InputError, match=rf"^weight: expected from 0 to largest_weight = 3; got {weight}\.$"):
        Encoding(largest_weight=3).encode(normal(4), weight=weight, seed=SEED)


@pytest.mark.parametrize("total", [np.zeros(3, np.uint32), np.zeros(4, np.uint64), np.zeros((2, 2), np.uint32)])
def test_a_total_of_another_shape_or_ring_is_refused(total):
    with pytest.raises(InputError, match=r"^total: expected 4 elements of uint32; got .*\.$"):
        Encoding().decode(total, dim=3, seed=SEED)


def test_no_remedy_leaves_fewer_clients_than_a_session_has():
    """A sum of two fits, of which each would know the other's input."""
    with pytest.raises(OverflowBudgetError, match="Lower bits to 29, or set ring: 64") as caught:
        fg.secure_sum([np.full(2, 0.5, np.float32)] * 4, bits=31)
    assert "number of clients" not in str(caught.value)
    with pytest.raises(OverflowBudgetError, match="lower the number of clients to 3"):
        fg.secure_sum([np.full(2, 0.5, np.float32)] * 4, bits=30)
