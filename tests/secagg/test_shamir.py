"""Secret sharing: polynomials by a plain loop, a known answer, perfect secrecy, uniform shares."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedguard.errors import ConfigError
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.shamir import PRIME, SHARE_BYTES, combine, split

secrets_ = st.integers(0, PRIME - 1)


def scripted(*numbers):
    """Entropy that hands these numbers out, 33 bytes each, and nothing more."""
    stream = b"".join(number.to_bytes(SHARE_BYTES, "little") for number in numbers)

    def draw(count):
        nonlocal stream
        assert count <= len(stream), "more entropy was asked for than the script has"
        block, stream = stream[:count], stream[count:]
        return block

    return draw


def polynomial_value(coefficients, x):
    """Lowest power first; each power written out."""
    return sum(coefficient * pow(x, power, PRIME) for power, coefficient in enumerate(coefficients)) % PRIME


def polynomial_through(nodes):
    """Coefficients, lowest first, of the one polynomial of degree < len(nodes) through them: Newton's differences."""
    xs = list(nodes)
    differences = [nodes[x] for x in xs]
    for order in range(1, len(xs)):
        for i in range(len(xs) - 1, order - 1, -1):
            slope = (differences[i] - differences[i - 1]) * pow(xs[i] - xs[i - order], -1, PRIME)
            differences[i] = slope % PRIME
    coefficients = [0]
    for x, difference in zip(reversed(xs), reversed(differences), strict=True):
        shifted = [0, *coefficients]  # times (X - x), plus the difference
        coefficients = [(a - x * b) % PRIME for a, b in zip(shifted, [*coefficients, 0], strict=True)]
        coefficients[0] = (coefficients[0] + difference) % PRIME
    return coefficients[: len(xs)]


def is_prime(number, bases=(2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)):
    """Miller and Rabin."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        power = pow(base, odd, number)
        squares = [power]
        for _ in range(twos):
            squares.append(squares[-1] ** 2 % number)
        if squares[-1] != 1 or any(after == 1 and before not in (1, number - 1) for before, after in pairwise(squares)):
            return False
    return True


def test_the_modulus_is_the_first_prime_that_holds_every_32_byte_secret():
    assert [n for n in range(2, 60) if is_prime(n, bases=range(1, n))] == [
        2,
        3,
        5,
        7,
        11,
        13,
        17,
        19,
        23,
        29,
        31,
        37,
        41,
        43,
        47,
        53,
        59,
    ]
    assert is_prime(PRIME)
    assert not any(is_prime(number) for number in range(2**256 + 1, PRIME, 2))
    assert PRIME < 2 ** (8 * SHARE_BYTES)


def test_known_answer_by_hand():
    # 42 + 7 x + 3 x^2 and 5 + x + 2 x^2; coefficients are drawn from the highest power down
    shares = split([42, 5], 3, [1, 2, 3, 10], scripted(3, 7, 2, 1))
    assert shares == [(52, 8), (68, 15), (90, 26), (412, 215)]
    assert combine({1: 52, 2: 68, 3: 90}) == 42
    assert combine({10: 215, 3: 26, 1: 8}) == 5


@given(st.data())
def test_shares_are_values_of_the_drawn_polynomial(data):
    points = data.draw(st.lists(st.integers(1, PRIME - 1) | st.integers(1, 200), min_size=1, max_size=8, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    drawn = data.draw(st.lists(st.lists(secrets_, min_size=threshold, max_size=threshold), max_size=3))
    script = [coefficient for polynomial in drawn for coefficient in reversed(polynomial[1:])]
    shares = split([polynomial[0] for polynomial in drawn], threshold, points, scripted(*script))
    assert shares == [tuple(polynomial_value(polynomial, x) for polynomial in drawn) for x in points]


@given(st.data())
def test_any_threshold_of_the_shares_rebuild_the_secret(data):
    secrets = data.draw(st.lists(secrets_, min_size=1, max_size=3))
    points = data.draw(st.lists(st.integers(1, 2**32), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = dict(zip(points, split(secrets, threshold, points), strict=True))
    chosen = data.draw(st.permutations(points))[: data.draw(st.integers(threshold, len(points)))]
    for i, secret in enumerate(secrets):
        assert combine({x: shares[x][i] for x in chosen}) == secret


def test_every_subset_of_a_small_sharing():
    secret, threshold, points = 2**255 + 12345, 3, range(1, 7)
    shares = dict(zip(points, split([secret], threshold, points, expand_seed(b"subsets")), strict=True))
    for size in range(1, 7):
        for chosen in combinations(points, size):
            assert (combine({x: shares[x][0] for x in chosen}) == secret) == (size >= threshold)


@given(secret=secrets_, other=secrets_, threshold=st.integers(2, 7), seed=st.binary(max_size=4))
def test_fewer_shares_than_the_threshold_fit_every_secret_equally(secret, other, threshold, seed):
    """For any other secret there is one choice of coefficients, as likely as the true one, with the same t - 1 shares."""
    points = range(1, threshold + 1)
    shares = split([secret], threshold, points, expand_seed(seed))
    seen = {x: share for x, (share,) in zip(points, shares[:-1], strict=False)}
    constant, *others = polynomial_through({0: other, **seen})
    assert constant == other
    again = split([other], threshold, points, scripted(*reversed(others)))
    assert again[:-1] == shares[:-1]
    assert combine({x: share for x, (share,) in zip(points, again, strict=True)}) == other


@pytest.mark.parametrize("secret", [0, 1, 2**256 - 1, PRIME - 1])
def test_shares_are_uniform_whatever_the_secret(secret):
    entropy, draws = expand_seed(b"uniform"), 4096
    single, pair = [0] * 16, [0] * 16
    for _ in range(draws):
        (one,), (two,), _ = split([secret], 3, [1, 2, 3], entropy)
        single[16 * one // PRIME] += 1
        pair[4 * (4 * one // PRIME) + 4 * two // PRIME] += 1
    assert chisquare(single).pvalue > 1e-4
    assert chisquare(pair).pvalue > 1e-4


def test_coefficients_are_drawn_again_where_the_remainder_would_be_biased():
    unbiased = 2 ** (8 * SHARE_BYTES) // PRIME * PRIME
    # 3 of 4 lie beyond the last full turn; 255 PRIME - 1 is the last that counts
    shares = split([0], 2, [1, 2], scripted(unbiased, 9))
    assert shares == [(9,), (18,)]
    assert split([0], 2, [1, 2], scripted(2**264 - 1, unbiased + 5, 7)) == [(7,), (14,)]
    assert split([0], 2, [1, 2], scripted(unbiased - 1)) == [(PRIME - 1,), (PRIME - 2,)]


def test_every_secret_has_a_polynomial_of_its_own():
    first, second = zip(*split([7, 7], 2, [1, 2], expand_seed(b"own")), strict=True)
    assert first[0] != second[0]
    assert (first[1] - first[0]) % PRIME != (second[1] - second[0]) % PRIME


def test_the_operating_system_is_asked_by_default():
    assert split([7], 2, [1, 2]) != split([7], 2, [1, 2])


@pytest.mark.parametrize(
    ("secrets", "threshold", "points", "message"),
    [
        ([1], 0, [1, 2], "threshold"),
        ([1], -1, [1, 2], "threshold"),
        ([1], 3, [1, 2], "add points"),
        ([1], 1, [], "at least one point"),
        ([1], 2, [1, 2, 1], "distinct"),
        ([1], 2, [0, 1], "is the secret"),
        ([1], 2, [-1, 1], "is the secret"),
        ([1], 2, [1, PRIME], "is the secret"),
        ([PRIME], 2, [1, 2], "secret"),
        ([-1], 2, [1, 2], "secret"),
    ],
)
def test_bad_sharings_are_refused(secrets, threshold, points, message):
    with pytest.raises(ConfigError, match=message):
        split(secrets, threshold, points)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({}, "at least one point"),
        ({0: 5, 1: 6}, "is the secret"),
        ({1: 6, PRIME + 1: 7}, "is the secret"),
        ({1: 6, 2: PRIME}, "share"),
        ({1: 6, 2: -1}, "share"),
    ],
)
def test_bad_shares_are_refused(shares, message):
    with pytest.raises(ConfigError, match=message):
        combine(shares)


def test_messages_do_not_tell_secrets():
    secret = PRIME + 123456789
    with pytest.raises(ConfigError) as from_split:
        split([1, secret], 2, [1, 2])
    with pytest.raises(ConfigError) as from_combine:
        combine({1: secret, 2: 1})
    for raised in (from_split, from_combine):
        assert str(secret) not in str(raised.value)
        assert "123456789" not in str(raised.value)
