"""The plane of a round, held against points that are known, and against the vectors themselves."""

from __future__ import annotations

import numpy as np
import pytest

from fedguard.metrics.plane import center, find_plane, variance_share


def gram(rows) -> np.ndarray:
    rows = np.asarray(rows, float)
    return rows @ rows.T


def turned(points, d: int = 9, seed: int = 0) -> np.ndarray:
    """Points of a plane as vectors ``[n, d]``, in a random position about the origin."""
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, 2)))[0]
    return np.asarray(points, float) @ basis.T


def test_points_of_a_plane_are_found_again():
    """Honest mean (2, 0): the unit is 2. The rest varies most across it."""
    points = [[2, 3], [2, -3], [2, 0], [-2, 1]]
    plane = find_plane(gram(turned(points)), np.array([True, True, True, False]))
    sign = np.sign(plane.points[0, 1])
    assert np.allclose(plane.points * [1, sign], np.array(points) / 2)
    assert plane.unit == pytest.approx(4)
    assert variance_share(gram(turned(points)), plane.points, plane.unit) == pytest.approx(1)


def test_points_of_a_line_have_nothing_across_it():
    rows = turned([[1, 0], [2, 0], [3, 0], [-5, 0]])
    plane = find_plane(gram(rows), np.array([True, True, True, False]))
    assert np.allclose(plane.points, [[0.5, 0], [1, 0], [1.5, 0], [-2.5, 0]])
    assert not plane.axes[1].any()


def test_the_axes_are_orthogonal_vectors_of_one_unit_and_give_the_points():
    rows = np.random.default_rng(1).normal(size=(7, 40)) + 0.3
    honest = np.arange(7) < 5
    plane = find_plane(gram(rows), honest)
    x, y = plane.axes @ rows
    assert np.allclose(x, rows[:5].mean(0)) and plane.unit == pytest.approx(x @ x)
    assert y @ y == pytest.approx(plane.unit) and abs(x @ y) < 1e-9 * plane.unit
    assert np.allclose(plane.points, rows @ np.stack([x, y]).T / plane.unit)


def test_across_is_the_direction_of_most_variance():
    rows = np.random.default_rng(2).normal(size=(8, 30)) * np.linspace(3, 0.1, 30)
    plane = find_plane(gram(rows), np.ones(8, bool))
    mean = rows.mean(0) / np.linalg.norm(rows.mean(0))
    rest = rows - np.outer(rows @ mean, mean)
    top = np.linalg.svd(rest - rest.mean(0), compute_uv=False)[0] ** 2
    assert plane.points[:, 1].var() * 8 * plane.unit == pytest.approx(top)


def test_variance_share_of_a_known_spectrum():
    """Deviations of length 1 along the mean, 3 and 2 across it: 1 + 9 of 14 are in the plane."""
    rows = 10 * np.eye(4)[0] + np.concatenate(
        [length * np.array([v, -v]) for length, v in zip((1, 3, 2), np.eye(4), strict=False)]
    )
    plane = find_plane(gram(rows), np.ones(6, bool))
    assert variance_share(gram(rows), plane.points, plane.unit) == pytest.approx(10 / 14)


def test_a_further_row_is_placed_but_chooses_nothing():
    rows = np.random.default_rng(3).normal(size=(6, 20))
    whole, some = find_plane(gram(rows), np.ones(5, bool)), find_plane(gram(rows[:5]), np.ones(5, bool))
    assert np.allclose(np.abs(whole.points[:5]), np.abs(some.points))


@pytest.mark.parametrize(
    "points",
    [[[0, 0], [0, 0]], [[1, 2], [-1, -2]], [[3, 1]], [[1, 0], [1, 0], [1, 0]], [[1e-18, 0], [3e-18, 0]]],
    ids=["all zero", "they cancel", "one update", "all alike", "tiny"],
)
def test_lopsided_rounds(points):
    products = gram(turned(points))
    plane = find_plane(products, np.ones(len(points), bool))
    assert np.isfinite(plane.points).all() and plane.unit > 0
    assert 0 <= variance_share(products, plane.points, plane.unit) <= 1

    def distances(rows, unit):
        return unit * (np.diag(rows)[:, None] + np.diag(rows) - 2 * rows)

    assert np.allclose(distances(gram(plane.points), plane.unit), distances(products, 1)), "they all lie in a plane"


def test_without_honest_updates_the_mean_is_that_of_all():
    rows = turned([[1, 1], [3, -1]])
    assert np.allclose(find_plane(gram(rows), np.zeros(2, bool)).points[:, 0], [0.5, 1.5])


def test_centered_products_are_those_about_the_mean():
    rows = np.random.default_rng(4).normal(size=(5, 3))
    assert np.allclose(center(gram(rows)), gram(rows - rows.mean(0)))
