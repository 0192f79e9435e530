"""Rules by coordinate, by sign, by layer and by cluster: golden values, the papers' formulae as loops, planted attackers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from statistics import fmean, median, pstdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import HDBSCAN, MeanShift

from fedguard.aggregation import aggregate
from fedguard.contracts import Gram, Sight
from fedguard.defenses.aggregators.clusters import (
    clusters_by_gap,
    cosine_distances,
    distances_between,
    hdbscan,
    kmeans,
    mean_shift,
)
from fedguard.defenses.aggregators.deepsight import DeepSight, accept, output_layer, suspicious
from fedguard.defenses.aggregators.fl_detector import hessian_product
from fedguard.defenses.aggregators.rflbat import principal_components
from fedguard.errors import ConfigError, NotObservable, PreconditionError
from fedguard.kernels import gram_matrix
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.table import context, normal, run

MINE = (
    "meamed", "phocas", "sign_sgd", "rlr", "sign_guard", "lasa", "rflbat", "fedseca", "flame", "deepsight", "fl_detector",
)  # fmt: skip

THREE = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
FIVE = torch.cat([THREE, torch.tensor([[10.0, 11, 12], [100, -50, 7]])])

Vector = list[float]


def sign(x: float) -> int:
    return (x > 0) - (x < 0)


def norm(row: Vector) -> float:
    return math.sqrt(sum(x * x for x in row))


def cosine(a: Vector, b: Vector) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True)) / (norm(a) * norm(b))


def clipped(rows: list[Vector]) -> list[Vector]:
    bound = median(norm(row) for row in rows)
    return [[x * min(1.0, bound / norm(row)) for x in row] for row in rows]


def mean(rows: list[Vector]) -> Vector:
    return [fmean(column) for column in zip(*rows, strict=True)]


def kept(text: str, updates: torch.Tensor, f: int, **given) -> list[int]:
    """The rows that a filter gives weight to."""
    return run(text, updates, f, **given).weights.nonzero()[:, 0].tolist()


# Mean around a center.


def mean_around(column: list[Fraction], center: Fraction, f: int) -> Fraction:
    """The n - f nearest, one by one; of equally near ones first the one nearer to zero.

    Where -a and a are left as equals, the mean of two answers: one that prefers -a, and one that prefers a.
    """

    def answer(preferred: int) -> Fraction:
        ordered = sorted(column, key=lambda value: (abs(value - center), abs(value), -preferred * value))
        return sum(ordered[: len(column) - f], Fraction(0)) / (len(column) - f)

    return (answer(1) + answer(-1)) / 2


def trimmed(column: list[Fraction], f: int) -> Fraction:
    inner = sorted(column)[f : len(column) - f]
    return sum(inner) / len(inner)


def exact_median(column: list[Fraction], f: int) -> Fraction:
    return Fraction(median(column))


CENTERS = {"meamed": exact_median, "phocas": trimmed}


@pytest.mark.parametrize("rule", CENTERS)
def test_golden_values_around_a_center(rule):
    assert run(rule, THREE, 1).vector.tolist() == pytest.approx([2.5, 3.5, 4.5])
    assert run(rule, FIVE, 1).vector.tolist() == pytest.approx([5.5, 6.5, 6.25])


@pytest.mark.parametrize("rule", CENTERS)
@pytest.mark.parametrize(("n", "f"), [(3, 1), (7, 3), (8, 2), (9, 4), (10, 0), (10, 4), (13, 5)])
def test_around_a_center_agrees_with_the_formula_as_a_loop(rule, n, f):
    updates = normal(n, 60, seed=n + f)
    columns = [[Fraction(value) for value in column] for column in updates.T.tolist()]
    expected = [float(mean_around(column, CENTERS[rule](column, f), f)) for column in columns]
    assert run(rule, updates, f).vector.tolist() == pytest.approx(expected, abs=1e-5)


@given(values=st.lists(st.integers(-6, 6), min_size=3, max_size=9), f=st.integers(0, 4))
def test_meamed_on_whole_numbers_full_of_ties(values, f):
    f = min(f, (len(values) - 1) // 2)
    column = [Fraction(value) for value in values]
    expected = float(mean_around(column, exact_median(column, f), f))
    result = run("meamed", torch.tensor(values).float()[:, None], f).vector.item()
    assert result == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("rule", CENTERS)
def test_ties_have_no_favorite_sign(rule):
    """A rule that always took the smaller value would answer less than 0 to data that are symmetric about 0."""
    symmetric = torch.tensor([-3.0, -1, 0, 1, 3])[:, None]
    assert run(rule, symmetric, 1).vector.item() == 0
    updates = torch.randint(-4, 5, (9, 500), generator=torch.Generator().manual_seed(0)).float()
    assert torch.allclose(run(rule, -updates, 2).vector, -run(rule, updates, 2).vector, atol=1e-6)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    assert torch.equal(run(rule, updates[order], 2).vector, run(rule, updates, 2).vector)


@pytest.mark.parametrize("rule", CENTERS)
def test_around_a_center_is_unbiased_on_symmetric_noise(rule):
    updates = normal(11, 40_000, seed=3, center=2.0)
    assert abs(run(rule, updates, 3).vector.double().mean() - 2) < 5 * 0.45 / 200  # five standard errors


# Signs.


@pytest.mark.parametrize("n", [5, 8])
def test_sign_sgd_agrees_with_the_formula_as_a_loop(n):
    updates = normal(n, 30, seed=n, center=0.2)
    updates[0, :5] = 0
    rows = updates.double().tolist()
    votes = [sign(sum(sign(x) for x in column)) for column in zip(*rows, strict=True)]
    scale = median(fmean(abs(x) for x in row) for row in rows)
    assert run("sign_sgd", updates, 1).vector.tolist() == pytest.approx([scale * vote for vote in votes], rel=1e-5)
    assert run("sign_sgd(scale=0.5)", updates, 1).vector.tolist() == [0.5 * vote for vote in votes]
    assert {-1, 0, 1} == set(votes)


def test_the_default_scale_brings_the_signs_closest_to_an_update():
    update = normal(1, 50, seed=4)
    error = {
        by: float((update[0] - by * run("sign_sgd", update, 0).vector).square().sum())
        for by in (0.9, 0.99, 1, 1.01, 1.1)
    }
    assert min(error, key=error.get) == 1


def test_a_minority_of_liars_neither_turns_a_sign_nor_sets_the_scale():
    honest = normal(5, 40, seed=5, spread=0.1)
    lies = torch.full((4, 40), -1e9)
    result = run("sign_sgd", torch.cat([honest, lies]), 4).vector
    assert (result > 0).all()
    assert result.max() <= honest.abs().mean(1).max() * 1.0001


def test_rlr_agrees_with_the_formula_as_a_loop():
    updates = normal(9, 40, seed=6, center=0.3)
    for text, theta in (("rlr", 3), ("rlr(theta=0)", 0), ("rlr(theta=7)", 7), ("rlr(theta=10)", 10)):
        expected = []
        for column in updates.double().T.tolist():
            agreed = abs(sum(sign(x) for x in column)) >= theta
            expected.append(fmean(column) if agreed else -fmean(column))
        assert run(text, updates, 2).vector.tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(run("rlr(theta=10)", updates, 2).vector, -updates.mean(0), atol=1e-6)


def test_rlr_walks_away_from_what_only_the_colluders_want():
    honest = torch.tensor([[1.0, 0.01], [1, -0.01], [1, 0.01], [1, -0.01], [1, 0.01], [1, -0.01]])
    malicious = torch.tensor([[1.0, 5], [1, 5]])
    result = run("rlr", torch.cat([honest, malicious]), 2).vector
    assert result[0] == 1
    assert result[1] == pytest.approx(-10 / 8, abs=1e-2)


def test_sign_guard_agrees_with_the_formula_as_a_loop():
    """On all coordinates, with the mean-shift of another library; some updates hold a few zeros, up to one in thirty."""
    unlike = 0
    for seed in range(24):
        updates = normal(10, 60, seed=seed, center=0.5)
        updates[5:, :2] *= (normal(5, 2, seed=seed + 100, center=0.0) > 0) if seed > 11 else 1
        updates[:3] *= -1
        updates[3] *= 20
        updates[4] *= 0.01
        rows = updates.double().tolist()
        usual = median(norm(row) for row in rows)
        plain = [[fmean(sign(x) == s for x in row) for s in (1, 0, -1)] for row in rows]
        most = [max(column) or 1 for column in zip(*plain, strict=True)]
        chosen, other = (
            passing(shares, [norm(row) / usual for row in rows])
            for shares in ([[p / m for p, m in zip(line, most, strict=True)] for line in plain], plain)
        )
        expected = mean([[x * min(1.0, usual / norm(rows[i])) for x in rows[i]] for i in chosen])
        result = run("sign_guard(share=1.0)", updates, 3)
        assert result.weights.nonzero()[:, 0].tolist() == chosen
        assert result.vector.tolist() == pytest.approx(expected, abs=1e-5)
        assert seed > 11 or not set(chosen) & {0, 1, 2, 3, 4}
        unlike += chosen != other
    assert unlike > 3


def passing(shares: list[Vector], lengths: list[float]) -> list[int]:
    """The rows of usual length in the largest cluster of scikit-learn's mean-shift."""
    reach = fmean(sorted(math.dist(a, b) for b in shares)[len(shares) // 2 - 1] for a in shares)
    labels = MeanShift(bandwidth=reach, cluster_all=False).fit(shares).labels_.tolist()
    largest = max(set(labels) - {-1}, key=labels.count)
    return [i for i, length in enumerate(lengths) if 0.1 <= length <= 3 and labels[i] == largest]


def test_sign_guard_looks_at_one_block_of_coordinates_anywhere():
    """Row k is positive in coordinate k alone, so the rows with a share of positive signs are the coordinates looked at."""
    rule, seen, starts = load_registry().build("defense", "sign_guard(share=0.13)"), context(30, 2, dim=30), set()
    for seed in range(250):
        shares = rule._mixtures(torch.eye(30), seen.restrict("test", seen.granted, rng=Rng(seed)))
        looked = (shares[:, 0] > 0).nonzero()[:, 0].tolist()
        assert looked == list(range(looked[0], looked[0] + 4))  # 0.13 * 30, rounded up
        assert shares[looked].tolist() == [pytest.approx([1, 3 / 4, 0])] * 4
        starts.add(looked[0])
    assert starts == set(range(27))


def test_sign_guard_looks_at_a_random_part_of_the_coordinates():
    """Signs that differ in a tenth of the coordinates are seen in some rounds only."""
    updates = normal(9, 50, seed=1, center=8.0)
    updates[:3, :5] *= -1
    seen = [kept("sign_guard", updates, 3, seed=seed) for seed in range(30)]
    assert [3, 4, 5, 6, 7, 8] in seen
    assert list(range(9)) in seen


def test_sign_guard_leaves_the_model_where_nobody_passes():
    """The long ones have usual signs, and those of usual length have not."""
    updates = torch.ones(5, 8)
    updates[:3] *= torch.tensor([100.0, 100, 0.01])[:, None]
    updates[3:] *= -1
    assert run("sign_guard(share=1.0)", updates, 2).vector.tolist() == [0.0] * 8


# Layers.


def lasa(rows: list[Vector], layers: tuple[int, ...], sparsity: float, lambda_n: float, lambda_s: float) -> Vector:
    thinned = []
    for row in clipped(rows):
        dropped = sorted(range(len(row)), key=lambda k: abs(row[k]))[: int(sparsity * len(row))]
        thinned.append([0.0 if k in dropped else x for k, x in enumerate(row)])
    result, start = [], 0
    for size in layers:
        parts = [row[start : start + size] for row in thinned]
        start += size
        lengths = [norm(part) for part in parts]
        purities = [
            0.5 * (1 + sum(sign(x) for x in part) / max(1, sum(abs(sign(x)) for x in part))) for part in parts
        ]  # fmt: skip

        def usual(values, i, radius):
            away = abs(values[i] - median(values))
            return away == 0 or away < radius * pstdev(values)

        benign = [i for i in range(len(parts)) if usual(lengths, i, lambda_n) and usual(purities, i, lambda_s)]
        result += mean([parts[i] for i in benign or range(len(parts))])
    return result


@pytest.mark.parametrize(("n", "d", "layers"), [(9, 40, (24, 8, 6, 2)), (12, 6, (4, 2)), (7, 11, (11,))])
def test_lasa_agrees_with_the_formula_as_a_loop(n, d, layers):
    updates = normal(n, d, seed=n)
    updates[0] *= 10
    for sparsity, lambda_n, lambda_s in ((0.3, 1.0, 1.0), (0.0, 2.0, 0.5), (0.9, 0.3, 0.1)):
        text = f"lasa(sparsity={sparsity}, lambda_n={lambda_n}, lambda_s={lambda_s})"
        expected = lasa(updates.double().tolist(), layers, sparsity, lambda_n, lambda_s)
        assert run(text, updates, 2).vector.tolist() == pytest.approx(expected, abs=1e-5)


def test_lasa_thins_out_no_more_than_its_share_where_magnitudes_tie():
    """Signs have one magnitude: the first half becomes 0, and not all of them."""
    updates = torch.tensor([1.0, -1, 1, -1, -1, 1, -1, 1]).repeat(5, 1)
    assert run("lasa(sparsity=0.5)", updates, 2).vector.tolist() == [0, 0, 0, 0, -1, 1, -1, 1]


def test_lasa_judges_each_layer_by_itself():
    """An update that is malicious in one layer still counts in the others."""
    updates = normal(9, 40, seed=2, spread=0.1)
    updates[0, :24] *= -1
    changed = updates.clone()
    changed[0, 39] += 0.05
    text = "lasa(sparsity=0.0, lambda_n=50.0, lambda_s=2.0)"
    plain, moved = run(text, updates, 1).vector, run(text, changed, 1).vector
    assert torch.allclose(plain[:24], updates[1:, :24].mean(0), atol=2e-2)
    assert (moved - plain)[39] > 0.03 / 9


def fedseca(rows: list[Vector], gamma: float, thinned: bool = False) -> Vector:
    n, d = len(rows), len(rows[0])

    def omega(a, b):
        return fmean(sign(x) * sign(y) for x, y in zip(a, b, strict=True))

    ratios = [max(0.0, fmean(sign(omega(a, b)) for b in rows)) for a in rows]
    shortened, result = clipped(rows), []
    thresholds = []
    for row in rows:
        ordered, place = sorted(abs(x) for x in row), gamma * (d - 1)
        low, part = int(place + 1e-9), max(0.0, place - int(place + 1e-9))
        thresholds.append(ordered[low] + part * (ordered[min(low + 1, d - 1)] - ordered[low]))
    for k in range(d):
        left = [abs(row[k]) >= least - 1e-12 for row, least in zip(rows, thresholds, strict=True)]
        voices = [sign(row[k]) * (stays or not thinned) for row, stays in zip(rows, left, strict=True)]
        elected = sign(sum(round(n * ratio) * voice for ratio, voice in zip(ratios, voices, strict=True)))
        most = median(abs(row[k]) for row in shortened)
        agreeing = []
        for i in range(n):
            value = sign(shortened[i][k]) * min(most, abs(shortened[i][k]))
            if abs(rows[i][k]) >= thresholds[i] - 1e-12 and value * elected > 0:
                agreeing.append(value)
        result.append(fmean(agreeing) if agreeing else 0.0)
    return result


@pytest.mark.parametrize(("n", "d"), [(9, 40), (12, 6), (7, 11)])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_fedseca_agrees_with_the_formula_as_a_loop(n, d, gamma):
    updates = normal(n, d, seed=n, center=0.5)
    expected = fedseca(updates.double().tolist(), gamma)
    assert run(f"fedseca(gamma={gamma}, beta=0.0)", updates, 2).vector.tolist() == pytest.approx(expected, abs=1e-5)
    by_program = fedseca(updates.double().tolist(), gamma, thinned=True)
    found = run(f"fedseca(gamma={gamma}, beta=0.0, vote='thinned')", updates, 2).vector.tolist()
    assert found == pytest.approx(by_program, abs=1e-5)
    assert (by_program != expected) == (gamma > 0.4)


def test_fedseca_carries_momentum():
    pipeline, updates = load_registry().pipeline("fedseca(gamma=0.0, beta=0.75)"), normal(7, 12, seed=1)
    plain = run("fedseca(gamma=0.0, beta=0.0)", updates, 1).vector
    states: tuple = ()
    for factor in (0.25, 0.25 + 0.75 * 0.25):
        result = aggregate(pipeline, updates, context(7, 1, dim=12), states)
        states = result.states
        assert torch.allclose(result.vector, factor * plain, atol=1e-6)


def test_fedseca_gives_no_vote_to_who_disagrees_with_most():
    honest, malicious = normal(6, 200, seed=7, spread=0.3), -normal(4, 200, seed=8, spread=0.3)
    result = run("fedseca(gamma=0.0, beta=0.0)", torch.cat([honest, malicious]), 4).vector
    assert ((result > 0) == (honest.sign().sum(0) > 0)).float().mean() > 0.97


# Clusters.


def test_rflbat_projects_on_the_principal_components():
    updates = normal(12, 30, seed=3)
    gram = Gram(lambda: gram_matrix(updates), 12)
    centered = (updates - updates.mean(0)).double()
    left, values, _ = torch.linalg.svd(centered, full_matrices=False)
    expected = left[:, :2] * values[:2]
    assert torch.allclose(principal_components(gram, 2).abs(), expected.abs(), atol=1e-5)


@pytest.mark.parametrize("malicious", [2, 4, 6, 8])
def test_rflbat_keeps_the_cluster_whose_updates_differ_most(malicious):
    """Even where the malicious clients are the majority."""
    for seed in range(6):
        honest = normal(8, 100, seed=seed, spread=0.5, center=0.3)
        backdoored = normal(malicious, 100, seed=seed + 50, spread=0.4, center=-1.5)
        chosen = kept("rflbat", torch.cat([honest, backdoored]), 0, seed=seed)
        assert chosen and max(chosen) < 8
        order = torch.randperm(8 + malicious, generator=torch.Generator().manual_seed(seed))
        moved = kept("rflbat", torch.cat([honest, backdoored])[order], 0, seed=seed)
        assert sorted(order[moved].tolist()) == chosen


def test_rflbat_drops_outliers_before_and_after_the_clustering():
    """Two updates 30 apart: the sums of the distances, and so the thresholds, as loops."""
    updates = torch.cat([normal(10, 50, seed=1, spread=0.01, center=0.0), torch.zeros(1, 50)])
    updates[10, 0] = 30.0
    plane = principal_components(Gram(lambda: gram_matrix(updates), 11), 2).tolist()
    sums = [sum(math.dist(a, b) for b in plane) for a in plane]
    ratio = sums[10] / median(sums)
    assert 9 < ratio < 10.5
    assert 10 not in kept(f"rflbat(clusters=1, eps1={ratio - 0.2}, eps2=100.0)", updates, 0)
    assert 10 in kept(f"rflbat(clusters=1, eps1={ratio + 0.2}, eps2=100.0)", updates, 0)
    assert 10 not in kept(f"rflbat(clusters=1, eps1=100.0, eps2={ratio - 0.2})", updates, 0)


def majority_by_links(distances: list[list[float]]) -> list[int]:
    """The first group of more than half of the rows that forms while links are added from the shortest on."""
    n = len(distances)
    group, links = list(range(n)), [(distances[i][j], i, j) for i in range(n) for j in range(i)]
    for _, i, j in sorted(links):
        a, b = group[i], group[j]
        group = [b if g == a else g for g in group]
        if group.count(b) > n // 2:
            return [row for row in range(n) if group[row] == b]
    raise AssertionError


def beside(model: torch.Tensor, text: str, updates: torch.Tensor, f: int = 0, **changes):
    """A round under a global model."""
    seen = context(len(updates), f, dim=updates.shape[1])
    return aggregate(
        load_registry().pipeline(text), updates, seen.restrict("test", seen.granted, model=model, **changes)
    )


@pytest.mark.parametrize("n", [2, 3, 6, 7, 20])
@pytest.mark.parametrize("of", ["models", "updates"])
def test_flame_agrees_with_the_formula_as_a_loop(n, of):
    """Links between the models w + x, w from shorter than the updates to far longer; and between the updates, w or not."""
    unlike = 0
    for seed in range(8):
        updates = normal(n, 12, seed=seed, center=0.5) * torch.linspace(0.3, 3, n)[:, None]
        model = normal(1, 12, seed=seed + 50)[0] * (0.1, 1, 30, 1000)[seed % 4]
        rows, w = updates.double().tolist(), model.double().tolist()
        places = {"updates": rows, "models": [[p + q for p, q in zip(w, row, strict=True)] for row in rows]}
        chosen, other = (
            majority_by_links([[1 - cosine(a, b) for b in places[kind]] for a in places[kind]])
            for kind in (of, "updates" if of == "models" else "models")
        )
        expected = mean([clipped(rows)[i] for i in chosen])
        result = beside(model, f"flame(noise=0.0, of='{of}')", updates)
        assert result.weights.nonzero()[:, 0].tolist() == chosen
        assert result.vector.tolist() == pytest.approx(expected, abs=1e-5)
        unlike += chosen != other
    assert unlike > 3 or n < 6


def test_flame_drops_updates_that_are_only_too_long():
    """Seven directions, five of them taken four times as far: beside a model of length 1000 the models tell them apart."""
    ways = normal(12, 40, seed=3, center=0.3)
    updates = ways / ways.norm(dim=1, keepdim=True)
    updates[7:] = 4 * updates[:5]
    model = torch.full((40,), 1000 / math.sqrt(40))
    dropped = beside(model, "flame", updates).weights == 0
    assert dropped[7:].all() and not dropped[:7].any()
    assert not (beside(model, "flame(of='updates')", updates).weights[7:] == 0).all()


def test_flame_asks_for_the_model_only_where_it_looks_at_it():
    seen = context(5, 1, dim=4)
    for sight in (Sight.EACH_UPDATE, Sight.GROUP_SUMS):
        blind, sees = seen.restrict("server", sight), seen.restrict("server", sight | Sight.MODEL)
        with pytest.raises(ConfigError, match="flame needs .* and the global model"):
            aggregate(load_registry().pipeline("flame"), normal(5, 4), blind)
        aggregate(load_registry().pipeline("flame(of='updates')"), normal(5, 4), blind)
        aggregate(load_registry().pipeline("flame"), normal(5, 4), sees)


def test_flame_adds_noise_in_proportion_to_the_median_length():
    updates = normal(9, 50_000, seed=1)
    bound = median(norm(row) for row in updates.double().tolist())
    noises = [
        (run("flame(noise=0.01)", updates, 2, seed=seed).vector - run("flame(noise=0.0)", updates, 2).vector).double()
        for seed in (0, 1)
    ]
    for noise in noises:
        assert noise.std().item() == pytest.approx(0.01 * bound, rel=5 / (2 * 50_000) ** 0.5)
        assert abs(noise.mean().item()) < 5 * 0.01 * bound / 50_000**0.5
    assert abs(torch.corrcoef(torch.stack(noises))[0, 1].item()) < 5 / 50_000**0.5


def test_flame_admits_none_of_a_planted_minority():
    honest, backdoored = normal(12, 80, seed=4, spread=0.7), normal(8, 80, seed=5, spread=0.1, center=-1.0)
    chosen = kept("flame(noise=0.0)", torch.cat([honest, backdoored]), 8)
    assert len(chosen) >= 11
    assert max(chosen) < 12


def test_flame_with_equal_updates_and_with_zeros():
    same = torch.ones(5, 4)
    assert torch.allclose(run("flame(noise=0.0)", same, 2).vector, torch.ones(4))
    assert run("flame", torch.zeros(5, 4), 2).vector.tolist() == [0.0] * 4
    assert run("flame(noise=0.0)", torch.tensor([[1.0, 2]]), 0).vector.tolist() == [1, 2]


def test_deepsight_measures_what_the_output_layer_learned():
    """Energies and threshold exceedings as loops: 3 classes, 4 hidden units, and 10 parameters before them."""
    updates = normal(6, 10 + 12 + 3, seed=1)
    energies, bias = output_layer(updates, (10, 12, 3), 3)
    assert torch.equal(bias, updates[:, -3:].double())
    for row, got in zip(updates.double().tolist(), energies.tolist(), strict=True):
        raw = [(abs(row[22 + c]) + sum(abs(row[10 + 4 * c + h]) for h in range(4))) ** 2 for c in range(3)]
        assert got == pytest.approx([e / sum(raw) for e in raw])
    for layers, classes in (((25,), 3), ((10, 12, 3), 4), ((10, 13, 2), 2)):  # no weights and bias of that many outputs
        energies, bias = output_layer(updates, layers, classes)
        assert torch.equal(bias, updates.double())
        assert torch.allclose(energies, updates.double().square() / updates.double().square().sum(1, keepdim=True))


def test_deepsight_suspects_updates_of_few_labels():
    energies = torch.tensor(
        [[0.25, 0.25, 0.25, 0.25], [0.4, 0.2, 0.2, 0.2], [0.3, 0.3, 0.3, 0.1], [0.98, 0.01, 0.01, 0]]
    )
    exceedings = [sum(e >= max(0.01, 1 / 4) * max(row) for e in row) for row in energies.tolist()]
    assert exceedings == [4, 4, 4, 1]
    assert suspicious(energies).tolist() == [False, False, False, True]


def test_deepsight_drops_clusters_with_a_third_of_suspects():
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, -1, -1])
    suspects = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 0]).bool()
    assert accept(labels, suspects, 1 / 3).tolist() == [False] * 3 + [True] * 4 + [False, True]
    assert accept(labels, suspects, 0.5).tolist() == [True] * 7 + [False, True]


def softmax(logits: Vector) -> Vector:
    powers = [math.exp(x - max(logits)) for x in logits]
    return [p / sum(powers) for p in powers]


def test_deepsight_compares_the_predictions_on_random_inputs():
    """Division differences as loops, for a network of four weights."""
    rule = load_registry().build("defense", {"name": "deepsight", "samples": 40})
    seen = context(5, 1, dim=6)
    seen = seen.restrict("deepsight", seen.granted, model=normal(1, 6, seed=9)[0])
    updates = normal(5, 6, seed=2)
    inputs = torch.rand(40, 2, generator=seen.rng.child("inputs", 1).torch()).double().tolist()
    got = rule._differences(updates, seen, 1)

    def probabilities(model: Vector, z: Vector) -> Vector:
        return softmax([z[0] * model[0] + z[1] * model[1], z[0] * model[2] + z[1] * model[3]])

    before = seen.model.double().tolist()
    for row, ours in zip(updates.double().tolist(), got.tolist(), strict=True):
        after = [m + x for m, x in zip(before, row, strict=True)]
        ratios = [
            [a / b for a, b in zip(probabilities(after, z), probabilities(before, z), strict=True)] for z in inputs
        ]
        assert ours == pytest.approx(mean(ratios), rel=1e-4)


def shifted_network(model: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """4 outputs on 3 inputs: 12 weights, 4 biases."""
    return x @ model[:12].view(4, 3).T + model[12:]


def test_deepsight_drops_a_cluster_trained_on_one_label():
    honest, poisoned = normal(9, 16, seed=1, spread=0.15, center=0.0), torch.zeros(4, 16)
    poisoned[:, :3] = 0.4
    poisoned[:, 12] = 0.5
    poisoned += normal(4, 16, seed=2, spread=0.004, center=0.0)
    honest[:, 12:] += torch.tensor([0.5, -0.5, 0.4, -0.4])
    updates = torch.cat([honest, poisoned])
    seen = context(13, 4)
    seen = seen.restrict(
        "test", seen.granted, layers=(12, 4), shape=(3,), model=torch.zeros(16), predict=shifted_network
    )
    result = aggregate(load_registry().pipeline("deepsight"), updates, seen)
    chosen = result.weights.nonzero()[:, 0].tolist()
    assert chosen == list(range(9))
    assert result.vector.tolist() == pytest.approx(
        [sum(column) / 9 for column in zip(*clipped(updates.double().tolist())[:9], strict=True)], abs=1e-5
    )


@pytest.mark.parametrize(
    ("few", "text", "admitted"),
    [
        (3, "deepsight", 10),  # three of ten in the one cluster are fewer than a third
        (4, "deepsight", 0),
        (4, "deepsight(tau=0.5)", 10),
        (3, "deepsight(one=False)", 7),  # in no cluster, each is judged by itself
        (4, "deepsight(one=False)", 6),
    ],
)
def test_deepsight_may_find_one_cluster_alone(few, text, admitted, monkeypatch):
    """Where nothing tells the updates apart, suspicious ones and others fall or stand together."""
    updates = torch.full((10, 16), 0.1)
    updates[:few, 3:12], updates[:few, 13:] = 0.0, 0.0  # of four outputs they moved one
    seen = context(10, 3)
    seen = seen.restrict(
        "test", seen.granted, layers=(12, 4), shape=(3,), model=torch.zeros(16), predict=shifted_network
    )
    monkeypatch.setattr(DeepSight, "_cluster_distances", lambda rule, distances: torch.zeros_like(distances))
    result = aggregate(load_registry().pipeline(text), updates, seen)
    assert int((result.weights > 0).sum()) == admitted


def test_deepsight_counts_no_pair_as_a_cluster():
    """Groups of 5, 3 and 2: those in none are apart from all, their own group too."""
    places = (
        torch.tensor([0.0, 0, 0, 0, 0, 9, 9, 9, 20, 20])[:, None].double() + 0.01 * normal(10, 1, 2, 1.0, 0.0).double()
    )
    for text, groups in (
        ("deepsight", [5, 3, 1, 1]),
        ("deepsight(cluster=2)", [5, 3, 2]),
        ("deepsight(cluster=4)", [1] * 10),
    ):
        apart = load_registry().build("defense", text)._cluster_distances(distances_between(places))
        expected = 1 - torch.block_diag(*(torch.ones(size, size, dtype=torch.float64) for size in groups))
        assert torch.equal(apart, expected), text


def test_deepsight_and_fl_detector_need_the_model():
    for name in ("deepsight", "fl_detector"):
        seen = context(5, 1, dim=4)
        blind = seen.restrict("server", type(seen.granted).EACH_UPDATE)
        with pytest.raises(ConfigError, match=f"{name} needs each client's update and the global model"):
            aggregate(load_registry().pipeline(name), normal(5, 4), blind)
        with pytest.raises(NotObservable):
            _ = blind.model


# FLDetector.


def bfgs(steps: list[Vector], changes: list[Vector], v: Vector) -> Vector:
    """The same estimate as a chain of rank-two updates of a whole matrix, from sigma I."""

    def dot(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True))

    d = len(v)
    sigma = dot(changes[-1], steps[-1]) / dot(steps[-1], steps[-1])
    matrix = [[sigma * (i == j) for j in range(d)] for i in range(d)]
    for s, y in zip(steps, changes, strict=True):
        bs = [dot(row, s) for row in matrix]
        matrix = [
            [matrix[i][j] - bs[i] * bs[j] / dot(s, bs) + y[i] * y[j] / dot(y, s) for j in range(d)] for i in range(d)
        ]
    return [dot(row, v) for row in matrix]


@pytest.mark.parametrize("pairs", [1, 2, 4])
@pytest.mark.parametrize("direction", [1, -1])
def test_the_estimate_of_the_hessian_equals_the_chain_of_updates(pairs, direction):
    """For gradients, and for updates, which point the other way."""
    draw = torch.Generator().manual_seed(pairs)
    root = torch.randn(6, 6, generator=draw)
    curvature = direction * (root @ root.T + torch.eye(6))
    steps = torch.randn(pairs, 6, generator=draw)
    changes, v = steps @ curvature, torch.randn(6, generator=draw)
    expected = bfgs(steps.double().tolist(), changes.double().tolist(), v.double().tolist())
    got = hessian_product(steps, changes, v)
    assert got.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4 * float(got.abs().max()))
    assert torch.allclose(hessian_product(steps, changes, steps[-1]), changes[-1].double(), atol=1e-4)


def test_the_estimate_of_the_hessian_survives_a_model_that_stood_still():
    steps = torch.tensor([[0.0, 0, 0], [1, 0, 0], [2, 0, 0]])
    changes = torch.tensor([[1.0, 0, 0], [3, 0, 0], [6, 0, 0]])
    assert hessian_product(steps, changes, torch.tensor([2.0, 0, 0])).tolist() == pytest.approx([6, 0, 0])
    assert hessian_product(steps[:1], changes[:1], torch.ones(3)).tolist() == [0, 0, 0]


class Federation:
    """Clients with quadratic losses, some of whom send noise; the model moves by a tenth of the aggregate."""

    def __init__(self, n: int, malicious: set[int], text: str = "fl_detector(window=4)", from_round: int = 1) -> None:
        self.pipeline, self.malicious, self.first = load_registry().pipeline(text), malicious, from_round
        self.goals, self.curvature = normal(n, 8, seed=1, spread=0.5), torch.linspace(0.5, 2, 8)
        self.model, self.states, self.round = torch.zeros(8), (), 0
        self.draw = torch.Generator().manual_seed(3)

    def step(self, clients: list[int]) -> list[int]:
        """The clients left out of this round."""
        self.round += 1
        updates = (self.goals - self.model)[clients] * self.curvature
        for row, client in enumerate(clients):
            if client in self.malicious and self.round >= self.first:
                updates[row] += torch.randn(8, generator=self.draw)
        seen = context(len(clients), 0, dim=8)
        seen = seen.restrict(
            "test", seen.granted, clients=tuple(clients), model=self.model, round=self.round, rng=Rng(self.round)
        )  # fmt: skip
        result = aggregate(self.pipeline, updates, seen, self.states)
        self.states = result.states
        self.model = self.model + 0.1 * result.vector
        return [client for client, weight in zip(clients, result.weights.tolist(), strict=True) if weight == 0]


def test_fl_detector_leaves_out_the_inconsistent_from_the_first_full_window_on():
    """Updates are predicted from round 3 on, so the fourth score of each client falls to round 6."""
    for text, first in (("fl_detector(window=4, references=20, gap='mean_of_logs')", 5), ("fl_detector(window=4)", 6)):
        federation = Federation(10, {2, 5, 9}, text)
        dropped = [federation.step(list(range(10))) for _ in range(14)]
        assert dropped[:first] == [[]] * first
        assert dropped[first:] == [[2, 5, 9]] * (14 - first)


def test_fl_detector_asks_as_often_as_the_program_of_its_source(monkeypatch):
    """At most 7 clusters, 10 sets of references, the logarithm of their mean; and after 20 rounds, where it is told to wait."""
    asked = []

    def spy(points, most, references, draw, *, of_mean=False):
        asked.append((federation.round, most, references, of_mean))
        return 1

    monkeypatch.setattr("fedguard.defenses.aggregators.fl_detector.clusters_by_gap", spy)
    for text, first, of_mean in (
        ("fl_detector(window=4)", 6, True),
        ("fl_detector(window=4, wait=20)", 24, True),
        ("fl_detector(window=4, gap='mean_of_logs')", 6, False),
    ):
        federation = Federation(6, {2}, text)
        for _ in range(26):
            federation.step(list(range(6)))
        assert asked == [(round, 7, 10, of_mean) for round in range(first, 27)], text
        asked.clear()


def test_fl_detector_leaves_out_nobody_where_all_are_alike():
    federation = Federation(10, set(range(10)))
    dropped = [federation.step(list(range(10))) for _ in range(20)]
    assert sum(map(len, dropped)) <= 10  # of the 150 judgments


def test_fl_detector_leaves_out_a_majority_that_is_the_noisier_part():
    """The method's own limit, which its docstring tells: it judges consistency, not who is honest."""
    noisy = set(range(6))
    federation = Federation(10, noisy)
    dropped = [set(federation.step(list(range(10)))) for _ in range(14)]
    assert dropped[5:] == [noisy] * 9


def test_fl_detector_predicts_from_the_model_that_a_client_last_started_from():
    """With one goal for all and the same curvature everywhere the estimate is exact, and so is each prediction."""
    federation = Federation(4, set())
    federation.goals, federation.curvature = federation.goals[:1].expand(4, 8), torch.ones(8)
    for present in ([0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2], [0, 1, 2]):
        federation.step(present)
    everyone = torch.arange(4)
    seen = context(4, 0, dim=8, state=federation.states[-1])
    seen = seen.restrict("test", seen.granted, clients=(0, 1, 2, 3), model=federation.model)
    rule = federation.pipeline.rule
    updates = federation.goals - federation.model
    moved = (federation.model - federation.states[-1]["models"][0]).norm()
    assert moved > 0.1
    assert rule._distances(updates, everyone >= 0, everyone, seen).max() < 1e-4 * moved


def test_fl_detector_notices_clients_that_turn_malicious():
    federation = Federation(8, {1}, from_round=9)
    dropped = [federation.step(list(range(8))) for _ in range(16)]
    assert dropped[12:] == [[1]] * 4


def test_fl_detector_follows_clients_that_take_turns():
    """Each takes part in two rounds of three; the prediction reaches back to the model that it last started from."""
    federation = Federation(12, {0, 7}, from_round=1)
    dropped: list[set[int]] = []
    for round in range(40):
        absent = {round % 3, round % 3 + 3, round % 3 + 6, round % 3 + 9}
        present = [client for client in range(12) if client not in absent]
        dropped.append(set(federation.step(present)))
        held = federation.states[-1]
        assert len(held["models"]) <= 3
    late = dropped[20:]
    assert all(left_out <= {0, 7} for left_out in late)
    assert sum(0 in left_out for left_out in late) >= 12
    assert sum(7 in left_out for left_out in late) >= 12


def test_fl_detector_does_not_hinge_on_the_order_of_the_clients():
    one, other = Federation(9, {4}), Federation(9, {4})
    for round in range(10):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(round)).tolist()
        assert set(one.step(list(range(9)))) == set(other.step(order))
    assert torch.allclose(one.model, other.model, atol=1e-5)


# The clustering behind the filters.


def partition(labels) -> list[int]:
    """Labels renumbered in the order of their first row; -1 stays."""
    seen: dict[int, int] = {}
    return [-1 if label < 0 else seen.setdefault(label, len(seen)) for label in map(int, labels)]


@given(seed=st.integers(0, 10**6), n=st.integers(4, 24), groups=st.integers(1, 4), single=st.booleans())
def test_hdbscan_finds_what_another_library_finds_where_no_distances_tie(seed, n, groups, single):
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, 3, generator=draw) + 4 * torch.randint(groups, (n, 1), generator=draw)
    distances, smallest = distances_between(rows.double()), n // 2 + 1 if single else 2
    theirs = HDBSCAN(
        min_cluster_size=smallest, min_samples=1 if single else smallest, allow_single_cluster=single, metric="precomputed",
        copy=True,
    )  # fmt: skip
    assert partition(hdbscan(distances, smallest, single=single)) == partition(theirs.fit(distances.numpy()).labels_)


@given(seed=st.integers(0, 10**6), n=st.integers(4, 14), smallest=st.integers(2, 5), single=st.booleans())
def test_hdbscan_does_not_hinge_on_the_order_even_where_distances_tie(seed, n, smallest, single):
    draw = torch.Generator().manual_seed(seed)
    distances = torch.randint(4, (n, n), generator=draw).double() / 3
    distances = torch.maximum(distances, distances.T).fill_diagonal_(0)
    order = torch.randperm(n, generator=draw)
    labels, moved = (
        hdbscan(distances, smallest, single=single),
        hdbscan(distances[order][:, order], smallest, single=single),
    )
    assert partition(labels[order]) == partition(moved)


@given(seed=st.integers(0, 10**6), smallest=st.integers(2, 4))
def test_hdbscan_bears_distances_that_rounding_left_lopsided(seed, smallest):
    """Ties that hold in one direction only once made groups overlap, and the hierarchy endless."""
    draw = torch.Generator().manual_seed(seed)
    even = torch.randint(1, 4, (12, 12), generator=draw).double()
    even = torch.maximum(even, even.T)
    lopsided = even + 1e-12 * torch.rand(12, 12, generator=draw, dtype=torch.float64)
    upper = torch.maximum(lopsided, lopsided.T).fill_diagonal_(0)
    assert partition(hdbscan(lopsided.fill_diagonal_(0), smallest)) == partition(hdbscan(upper, smallest))


def test_hdbscan_separates_planted_groups_and_leaves_out_who_stands_alone():
    rows = torch.cat([normal(6, 2, 1, 0.1, 0.0), normal(5, 2, 2, 0.1, 5.0), torch.tensor([[50.0, -50]])])
    assert partition(hdbscan(distances_between(rows.double()), 3)) == [0] * 6 + [1] * 5 + [-1]
    assert hdbscan(torch.zeros(2, 2, dtype=torch.float64), 3).tolist() == [-1, -1]


@given(seed=st.integers(0, 10**6), n=st.integers(4, 24), bandwidth=st.floats(0.2, 4))
def test_mean_shift_finds_what_another_library_finds(seed, n, bandwidth):
    points = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theirs = MeanShift(bandwidth=bandwidth, cluster_all=False).fit(points.numpy()).labels_
    assert partition(mean_shift(points, bandwidth)) == partition(theirs)


def test_kmeans_finds_the_best_of_all_splits():
    for seed in range(5):
        points = normal(9, 2, seed=seed).double()
        labels, spread = kmeans(points[None], 2, torch.Generator().manual_seed(0))

        def within(inside: list[int], points=points) -> float:
            rows = points[inside].tolist()
            return sum(math.dist(row, mean(rows)) ** 2 for row in rows)

        splits = ([[i for i in range(9) if (code >> i) & 1 == side] for side in (0, 1)] for code in range(1, 2**8))
        assert spread.item() == pytest.approx(min(sum(map(within, split)) for split in splits))
        assert sum(within((labels[0] == side).nonzero()[:, 0].tolist()) for side in (0, 1)) == pytest.approx(
            spread.item()
        )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_gap_statistic_counts_planted_clusters(count):
    for seed in range(3):
        points = torch.cat([normal(40, 2, seed + 10 * c, 0.2, 3.0 * c) for c in range(count)]).double()
        assert clusters_by_gap(points, 6, 20, torch.Generator().manual_seed(seed)) == count
    assert clusters_by_gap(torch.ones(5, 2, dtype=torch.float64), 6, 20, torch.Generator()) == 1


def spread_in(points: Vector, k: int) -> float:
    """The least sum of squared distances to the means of k groups: on a line these are runs, so all cuts are tried."""
    ordered, n = sorted(points), len(points)

    def within(run: Vector) -> float:
        return sum((x - fmean(run)) ** 2 for x in run)

    cuts = combinations(range(1, n), k - 1)
    return min(sum(within(ordered[a:b]) for a, b in zip((0, *cut), (*cut, n), strict=True)) for cut in cuts)


def gap_by_loops(points: Vector, references: list[Vector], most: int, of_mean: bool) -> int:
    low, high = min(points), max(points)
    inside, gaps, slacks = [(x - low) / (high - low) for x in points], [], []
    for k in range(1, most + 1):
        spreads = [spread_in(row, k) for row in references]
        expected = math.log(fmean(spreads)) if of_mean else fmean(map(math.log, spreads))
        gaps.append(expected - math.log(spread_in(inside, k)))
        slacks.append(pstdev(map(math.log, spreads)) * math.sqrt(1 + 1 / len(references)))
    return next((k for k in range(1, most) if gaps[k - 1] >= gaps[k] - slacks[k]), most)


def test_the_gap_statistic_agrees_with_the_formula_as_a_loop_in_both_forms():
    """Of the means of logarithms, as it was defined, and of the logarithm of the mean, as in the program of FLDetector."""
    unlike = 0
    for seed in range(80):
        points = normal(8, 1, seed, 1.0, 0.0).double() + torch.arange(8)[:, None] % 2 * (seed % 4)
        references = torch.rand(3, 8, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        counts = []
        for of_mean in (False, True):
            expected = gap_by_loops(points[:, 0].tolist(), references[:, :, 0].tolist(), 4, of_mean)
            draw = torch.Generator().manual_seed(seed)
            assert clusters_by_gap(points, 4, 3, draw, of_mean=of_mean) == expected, seed
            counts.append(expected)
        unlike += counts[0] != counts[1]
    assert unlike


def test_the_gap_statistic_seldom_sees_clusters_in_uniform_points():
    """Without the allowance for chance, s(k), it saw some in 26 of these 60 sets; with it, in 2."""
    alone = 0
    for seed in range(60):
        points = torch.rand(12, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        alone += clusters_by_gap(points, 6, 20, torch.Generator().manual_seed(seed)) == 1
    assert alone >= 50


def test_cosine_distances():
    rows = torch.tensor([[3.0, 0], [0, 2], [-1, 0], [5, 5], [0, 0]]).double()
    half = 1 - math.sqrt(0.5)
    expected = [
        [0, 1, 2, half, 1],
        [1, 0, 1, half, 1],
        [2, 1, 0, 2 - half, 1],
        [half, half, 2 - half, 0, 1],
        [1, 1, 1, 1, 0],
    ]
    assert cosine_distances(rows @ rows.T).tolist() == [pytest.approx(row, abs=1e-12) for row in expected]


# What all of them share.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sign_sgd(scale=0.0)", "scale: expected more than 0"),
        ("rlr(theta=-1)", "theta: expected at least 0"),
        ("sign_guard(lower=1.5)", "lower: expected a number in .0, 1."),
        ("sign_guard(share=0.0)", "share: expected a number in .0, 1."),
        ("sign_guard(quantile=2.0)", "quantile: expected a number in .0, 1."),
        ("lasa(sparsity=1.0)", "sparsity: expected a number in .0, 1."),
        ("lasa(lambda_n=0.0)", "lambda_n: expected more than 0"),
        ("lasa(lambda_s=-1.0)", "lambda_s: expected more than 0"),
        ("rflbat(eps1=1.0)", "eps1: expected more than 1"),
        ("rflbat(eps2=0.5)", "eps2: expected more than 1"),
        ("rflbat(clusters=0)", "clusters: expected at least 1"),
        ("rflbat(references=0)", "references: expected at least 1"),
        ("fedseca(gamma=1.0)", "gamma: expected a number in .0, 1."),
        ("fedseca(beta=1.0)", "beta: expected a number in .0, 1."),
        ("flame(noise=-0.1)", "noise: expected at least 0"),
        ("deepsight(tau=0.0)", "tau: expected a number in .0, 1."),
        ("deepsight(cluster=1)", "cluster: expected at least 2"),
        ("deepsight(seeds=0)", "seeds: expected at least 1"),
        ("deepsight(samples=0)", "samples: expected at least 1"),
        ("fl_detector(window=0)", "window: expected at least 1"),
        ("fl_detector(clusters=1)", "clusters: expected at least 2"),
        ("fl_detector(references=0)", "references: expected at least 1"),
    ],
)
def test_wrong_parameters_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        load_registry().pipeline(text)


@pytest.mark.parametrize("name", MINE)
def test_what_tuning_tries_is_allowed(name):
    cls = load_registry().get("defense", name)
    assert set(cls.grid) <= {field.name for field in cls.fields()}
    for parameter, values in cls.grid.items():
        assert len(values) >= 2
        for value in values:
            built = load_registry().build("defense", {"name": name, parameter: value})
            assert getattr(built, parameter) == value


@pytest.mark.parametrize("name", MINE)
def test_too_few_updates_are_refused(name):
    with pytest.raises(PreconditionError, match="got n = .*(Lower|Raise|Use|Let) "):
        run(name, normal(4, 6) if name != "rflbat" else normal(2, 6), 2)
    if name == "fl_detector":
        with pytest.raises(ConfigError, match="looks up the client behind each row"):
            load_registry().pipeline(f"nnm >> {name}")
    else:
        assert run(f"nnm >> {name}", normal(7, 6), 2).vector.isfinite().all()


@pytest.mark.parametrize("name", ["rflbat", "sign_guard", "flame", "deepsight", "lasa", "fedseca", "sign_sgd"])
@pytest.mark.parametrize("far", [1e6, 1e25])
def test_far_away_updates_do_not_take_a_filter_along(name, far):
    for seed in range(5):
        honest = normal(9, 6, seed)
        result = run(name, torch.cat([honest, torch.full((3, 6), far)]), 3, seed=seed).vector
        assert result.norm() <= honest.norm(dim=1).max()
