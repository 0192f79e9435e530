"""The rotation, against matrices written out, and its law over the random signs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedguard.secagg.rotation import hadamard, rotate, rotate_back

SEED = bytes(range(32))


def seed_of(number: int) -> bytes:
    return number.to_bytes(32, "little")


def sylvester(m: int) -> np.ndarray:
    """H_m entry by entry: -1 to the number of common one-bits of row and column."""
    return np.array([[(-1) ** (row & column).bit_count() for column in range(m)] for row in range(m)], float)


def matrix_of(d: int, seed: bytes) -> np.ndarray:
    """The rotation as a matrix: its columns are the rotated unit vectors."""
    return np.stack([rotate(unit, seed) for unit in np.eye(d)], axis=1)


@pytest.mark.parametrize("m", [1, 2, 4, 8, 32, 128])
def test_the_fast_transform_is_the_matrix_written_out(m):
    vector = np.random.default_rng(m).normal(size=m)
    np.testing.assert_allclose(hadamard(vector), sylvester(m) @ vector, rtol=0, atol=1e-12)


def test_eight_coordinates_by_hand():
    """Known sums of 1, 2, ..., 8: all added, then with alternating signs of period 2, 4, 8."""
    assert hadamard(np.arange(1.0, 9.0)).tolist() == [36, -4, -8, 0, -16, 0, 0, 0]


def test_for_a_power_of_two_it_is_the_hadamard_matrix_with_random_signs_of_its_columns():
    matrix = matrix_of(8, SEED) * math.sqrt(8)
    signs = matrix[0]  # the first row of H is all ones
    assert set(np.rint(signs)) == {-1.0, 1.0}
    np.testing.assert_allclose(matrix, sylvester(8) * signs, rtol=0, atol=1e-12)


def test_for_another_length_it_is_two_overlapping_windows():
    """d = 6: a signed H_4 / 2 over the first four coordinates, then another over the last four."""
    matrix = matrix_of(6, SEED)
    first, second = np.eye(6), np.eye(6)
    product = matrix * 4  # entries of a product of two matrices of +-1/2 are multiples of 1/4
    np.testing.assert_allclose(product, np.rint(product), rtol=0, atol=1e-12)
    found = 0
    for one in range(16):
        for two in range(16):
            first[:4, :4] = sylvester(4) / 2 * [(-1) ** (one >> bit & 1) for bit in range(4)]
            second[2:, 2:] = sylvester(4) / 2 * [(-1) ** (two >> bit & 1) for bit in range(4)]
            found += np.allclose(second @ first, matrix)
    assert found == 1


@pytest.mark.parametrize("d", [*range(1, 20), 31, 33, 64, 100])
def test_it_is_orthonormal_and_the_way_back_is_its_transpose(d):
    matrix = matrix_of(d, SEED)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(d), rtol=0, atol=1e-12)
    back = np.stack([rotate_back(unit, SEED) for unit in np.eye(d)], axis=1)
    np.testing.assert_allclose(back, matrix.T, rtol=0, atol=1e-12)


@given(d=st.integers(1, 3000), number=st.integers(0, 2**256 - 1), size=st.sampled_from([1e-6, 1.0, 1e6]))
def test_there_and_back(d, number, size):
    vector = size * np.random.default_rng(d).normal(size=d)
    rotated = rotate(vector, seed_of(number))
    assert rotated.shape == (d,)
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(vector), rel=1e-12)
    np.testing.assert_allclose(rotate_back(rotated, seed_of(number)), vector, rtol=0, atol=1e-12 * size)


def test_the_input_is_left_alone_and_float32_is_rotated_in_float64():
    vector = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    before = vector.copy()
    rotated = rotate(vector, SEED)
    assert rotated.dtype == np.float64
    np.testing.assert_array_equal(vector, before)
    kept = rotated.copy()
    np.testing.assert_allclose(rotate_back(rotated, SEED), before, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(rotated, kept)


def test_a_sum_of_rotations_is_the_rotation_of_the_sum():
    one, two = np.random.default_rng(1).normal(size=(2, 777))
    np.testing.assert_allclose(rotate(one, SEED) + rotate(two, SEED), rotate(one + two, SEED), rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [512, 513, 700, 1023])
def test_every_spike_is_spread(d):
    """A spike of length 1 leaves no coordinate above the sub-Gaussian tail: 2 d^2 exp(-t^2 m / 2) = 1e-6."""
    m = 512
    largest = np.abs(matrix_of(d, SEED)).max()
    assert largest <= math.sqrt(2 * math.log(2 * d * d / 1e-6) / m) < 0.4
    if d == m:
        assert largest == pytest.approx(1 / math.sqrt(m))


@pytest.mark.parametrize("d", [256, 300, 511])
@pytest.mark.parametrize("kind", ["constant", "alternating", "spike", "ramp"])
def test_a_coordinate_has_at_most_the_variance_of_the_largest_window(d, kind):
    """Over the signs it has mean 0 and variance at most |x|^2 / m, whatever the vector; for d = m exactly |x|^2 / m.

    Without signs the constant vector, which is a row of H, would all go into one coordinate.
    """
    vector = {
        "constant": np.ones(d),
        "alternating": (-1.0) ** np.arange(d),
        "spike": np.eye(d)[d // 3],
        "ramp": np.linspace(-1, 1, d),
    }[kind]
    m, seeds = 256, 1500
    rotated = np.stack([rotate(vector, seed_of(number)) for number in range(seeds)]) / np.linalg.norm(vector)
    variance = np.mean(rotated**2, axis=0)
    # 512 coordinates: 5 standard errors; the fourth moment of a sub-Gaussian is at most 3 variances squared
    assert (variance <= (1 + 5 * math.sqrt(2 / seeds)) / m).all()
    assert (np.abs(rotated.mean(axis=0)) <= 5 / math.sqrt(m * seeds)).all()
    if d == m:
        assert (variance >= (1 - 5 * math.sqrt(2 / seeds)) / m).all()


def test_the_seed_decides():
    vector = np.random.default_rng(2).normal(size=100)
    np.testing.assert_array_equal(rotate(vector, SEED), rotate(vector, SEED))
    assert not np.allclose(rotate(vector, SEED), rotate(vector, seed_of(1)))
    assert not np.allclose(rotate_back(rotate(vector, SEED), seed_of(1)), vector)
