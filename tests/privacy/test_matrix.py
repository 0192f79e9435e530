"""Correlated noise: the matrix, how far a client moves it, and what it does to the models."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from fedguard.privacy.matrix import correlate_noise, sensitivity, square_root


def toeplitz(coefficients, rounds) -> np.ndarray:
    """The lower triangular matrix C, entry by entry."""
    matrix = np.zeros((rounds, rounds))
    for row, column in itertools.product(range(rounds), repeat=2):
        if 0 <= row - column < len(coefficients):
            matrix[row, column] = coefficients[row - column]
    return matrix


def noise_of(bands, rounds) -> np.ndarray:
    """C^-1, from the recursion on unit vectors."""
    rows: list[torch.Tensor] = []
    for fresh in torch.eye(rounds, dtype=torch.float64):
        rows.insert(0, correlate_noise(fresh, rows[: bands - 1], square_root(bands)))
    return torch.stack(rows[::-1]).numpy()


def test_the_whole_square_root_times_itself_is_the_matrix_of_prefix_sums():
    assert square_root(6) == pytest.approx([math.comb(2 * j, j) / 4**j for j in range(6)])
    root = toeplitz(square_root(12), 12)
    assert np.allclose(root @ root, np.tril(np.ones((12, 12))))


@pytest.mark.parametrize("bands", [1, 2, 3, 8])
def test_the_recursion_gives_noise_of_covariance_inverse_of_c_transposed_c(bands):
    c, inverse = toeplitz(square_root(bands), 8), noise_of(bands, 8)
    assert np.allclose(inverse @ inverse.T, np.linalg.inv(c.T @ c))
    assert np.allclose(c @ inverse, np.eye(8))


@pytest.mark.parametrize("bands", [1, 2, 3, 4])
def test_no_schedule_with_rounds_apart_moves_more_than_the_sensitivity(bands):
    """Every set of rounds that are ``bands`` apart, and every choice of signs, of 9 rounds."""
    rounds, worst = 9, 0.0
    c = toeplitz(square_root(bands), rounds)
    for count in range(1, -(-rounds // bands) + 1):
        for pattern in itertools.combinations(range(rounds), count):
            if any(later - earlier < bands for earlier, later in itertools.pairwise(pattern)):
                continue
            for signs in itertools.product((1.0, -1.0), repeat=count):
                moved = float(np.linalg.norm(c[:, pattern] @ np.array(signs)))
                assert moved <= sensitivity(square_root(bands), count) + 1e-12
                worst = max(worst, moved / sensitivity(square_root(bands), count))
    assert worst == pytest.approx(1.0)  # so it is not too large either


def test_rounds_closer_than_the_bands_would_move_more():
    c = toeplitz(square_root(3), 9)
    assert np.linalg.norm(c[:, [0, 2]].sum(1)) > 1.05 * sensitivity(square_root(3), 2)


def test_at_the_same_cost_correlated_noise_harms_the_models_less():
    """Mean squared error of the prefix sums, of 64 rounds with a turn every 8th, over the squared sensitivity."""
    rounds, turns, sums = 64, 8, np.tril(np.ones((64, 64)))

    def harm(bands):
        return np.square(sums @ noise_of(bands, rounds)).sum() * sensitivity(square_root(bands), turns) ** 2

    figures = [harm(bands) for bands in (1, 2, 4, 8)]
    assert figures == sorted(figures, reverse=True)
    assert figures[-1] < 0.4 * figures[0]
