"""Rules over subsets, spectra, norms, directions and root data: the papers' formulae as loops, and what each one promises."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean, median

import numpy as np
import pytest
import torch

from fedguard.aggregation import aggregate
from fedguard.errors import ConfigError, PreconditionError
from fedguard.registry import load_registry
from tests.table import context, normal, run

KNOWN = load_registry()
THREE = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
SHAPES = pytest.mark.parametrize(("n", "f", "d"), [(9, 1, 4), (11, 2, 3), (11, 2, 40), (13, 2, 6), (7, 0, 3)])


def rows_of(updates):
    return updates.double().tolist()


def apart(a, b):
    return math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)))


def length(a):
    return math.sqrt(sum(p * p for p in a))


def mean(rows):
    return [fmean(column) for column in zip(*rows, strict=True)]


def weighted(rows, weights):
    return [sum(w * row[k] for w, row in zip(weights, rows, strict=True)) for k in range(len(rows[0]))]


def play(text, updates, f, *, state=None, **changes):
    """The aggregate of one round, in a context with some values changed; ``state`` is the rule's own."""
    pipeline, n = KNOWN.pipeline(text), len(updates)
    seen = context(n, f, dim=updates.shape[1], root=changes.pop("root", updates.mean(0)))
    states = () if state is None else state
    return aggregate(pipeline, updates, seen.restrict("test", seen.granted, **changes), states)


# The formulae.


def krum_place(rows, f):
    """Where the best Krum score stands; a tie goes to the row with the smallest sum of squared distances to all."""
    distances = [[apart(a, b) ** 2 for b in rows] for a in rows]
    near = max(len(rows) - f - 2, 1)
    scores = [sum(sorted(line)[1 : 1 + near]) for line in distances]
    tied = [i for i, score in enumerate(scores) if score <= min(scores) * (1 + 1e-9)]
    return min(tied, key=lambda i: sum(distances[i]))


def bulyan_selection(rows, f, remap=True):
    pool, chosen = list(range(len(rows))), []
    while len(chosen) < len(rows) - 2 * f:
        place = krum_place([rows[i] for i in pool], f)
        chosen.append(pool[place] if remap else place)
        del pool[place]
    return chosen


def bulyan(rows, f, remap=True):
    chosen = [rows[i] for i in bulyan_selection(rows, f, remap)]
    out = []
    for column in zip(*chosen, strict=True):
        middle = median(column)
        out.append(fmean(sorted(column, key=lambda v: abs(v - middle))[: len(chosen) - 2 * f]))
    return out


def diameter(rows, subset):
    return max((apart(rows[i], rows[j]) for i, j in combinations(subset, 2)), default=0.0)


def mda_subset(rows, f):
    """By plain enumeration; ties as the rule resolves them: the subset that is first in the ranking."""
    size = len(rows) - f
    near = [sum(sorted(apart(a, b) for b in rows)[:size]) for a in rows]
    ranking = sorted(range(len(rows)), key=lambda i: (round(near[i], 6), round(length(rows[i]), 6)))
    place = {row: rank for rank, row in enumerate(ranking)}
    subsets = list(combinations(range(len(rows)), size))
    least = min(diameter(rows, s) for s in subsets)
    tied = [s for s in subsets if diameter(rows, s) <= least * (1 + 1e-6) + 1e-12]
    return min(tied, key=lambda s: sorted(place[i] for i in s)), len(tied)


def mda(rows, f):
    return mean([rows[i] for i in mda_subset(rows, f)[0]])


def top_eigenpair(rows, weights):
    """Of the covariance matrix [d, d] under weights that add up to one."""
    center, d = weighted(rows, weights), len(rows[0])
    covariance = np.zeros((d, d))
    for weight, row in zip(weights, rows, strict=True):
        away = np.array(row) - np.array(center)
        covariance += weight * np.outer(away, away)
    values, vectors = np.linalg.eigh(covariance)
    return float(values[-1]), vectors[:, -1], center


def smea(rows, f):
    size = len(rows) - f
    best = min(combinations(rows, size), key=lambda subset: top_eigenpair(list(subset), [1 / size] * size)[0])
    return mean(list(best))


def monna(rows, f):
    return mean(sorted(rows, key=lambda row: apart(row, rows[0]))[: len(rows) - f])


def caf(rows, f):
    weights, smallest, best = [1.0] * len(rows), math.inf, mean(rows)
    while sum(weights) > len(rows) - 2 * f:
        value, vector, center = top_eigenpair(rows, [w / sum(weights) for w in weights])
        if value < smallest:
            smallest, best = value, center
        scores = [float(vector @ (np.array(row) - np.array(center))) ** 2 for row in rows]
        most = max(score for score, weight in zip(scores, weights, strict=True) if weight > 0)
        weights = [max(0.0, w * (1 - s / most)) if w > 0 else 0.0 for w, s in zip(weights, scores, strict=True)]
    return best


def cge(rows, f):
    return mean(sorted(rows, key=length)[: len(rows) - f])


def huber(rows, threshold):
    """From the mean, by the fixed-point steps of iteratively reweighted least squares."""
    z = mean(rows)
    for _ in range(20_000):
        weights = [min(1.0, threshold / max(apart(row, z), 1e-300)) for row in rows]
        moved = weighted(rows, [w / sum(weights) for w in weights])
        if apart(moved, z) < 1e-13:
            break
        z = moved
    return z


def dnc(rows, f, factor=1.0):
    centered = np.array(rows) - np.array(mean(rows))
    vector = np.linalg.svd(centered, full_matrices=False)[2][0]
    scores = [float(vector @ row) ** 2 for row in centered]
    best = sorted(range(len(rows)), key=lambda i: scores[i])[: len(rows) - int(factor * f)]
    return mean([rows[i] for i in best])


def fedpg_br(rows, f, sigma=None, delta=0.6, batch=16):
    n = len(rows)

    def middle_of(sets):
        return mean([mean([rows[i] for i in members]) for members in sets])

    def kept(radius, count=n // 2 + 1):
        near = [[j for j in range(n) if apart(rows[i], rows[j]) <= radius] for i in range(n)]
        agree = [i for i in range(n) if len(near[i]) >= count]
        if not agree:
            return []
        middle = mean([rows[i] for i in agree])
        away = {i: apart(rows[i], middle) for i in agree}
        return [
            near[i] for i in agree if away[i] <= min(away.values()) + 1e-7
        ]  # two that agree are equally far from their mean

    if sigma is not None:
        first = kept(2 * sigma * math.sqrt(2 * math.log(2 * n / delta) / batch))
        if len({i for members in first for i in members}) >= n - f:
            return middle_of(first)
        if second := kept(2 * sigma):
            return middle_of(second)
    smallest = min(sorted(apart(row, other) for other in rows)[n - f - 1] for row in rows)
    return middle_of(kept(smallest * (1 + 1e-9), n - f))


def foolsgold(histories, rows, confidence=1.0):
    n = len(rows)

    def cosine(a, b):
        return max(0.0, sum(p * q for p, q in zip(a, b, strict=True)) / (length(a) * length(b)))

    similar = [[cosine(histories[i], histories[j]) if i != j else 0.0 for j in range(n)] for i in range(n)]
    most = [max(line) for line in similar]
    for i in range(n):
        for j in range(n):
            if i != j and most[j] > most[i]:
                similar[i][j] *= most[i] / most[j]
    trust = [1 - max(line) for line in similar]
    scaled = []
    for value in trust:
        share = value / max(trust)
        logit = math.inf if share >= 1 else -math.inf if share <= 0 else math.log(share / (1 - share))
        scaled.append(min(1.0, max(0.0, confidence * (logit + 0.5))))
    return weighted(rows, [value / sum(scaled) for value in scaled])


def cosine_clusters(rows):
    """By plain enumeration of all splits in two."""
    n = len(rows)
    unit = [[p / length(row) for p in row] for row in rows]
    cosine = [[sum(p * q for p, q in zip(a, b, strict=True)) for b in unit] for a in unit]
    best, parts = math.inf, None
    for mask in range(1, 2 ** (n - 1)):
        part = [i for i in range(n) if mask >> i & 1]
        rest = [i for i in range(n) if i not in part]
        across = max(cosine[i][j] for i in part for j in rest)
        if across < best:
            best, parts = across, (part, rest)
    return parts


def arc(rows, f):
    n = len(rows)
    bound = sorted((length(row) for row in rows), reverse=True)[math.floor(2 * f / n * (n - f) + 1e-9)]
    return [[p * min(1.0, bound / length(row)) for p in row] for row in rows]


LOOPS = {
    "bulyan": bulyan,
    "mda": mda,
    "smea": smea,
    "monna": monna,
    "caf": caf,
    "cge": cge,
    "huber(threshold=0.8)": lambda rows, f: huber(rows, 0.8),
    "huber(threshold=1000)": lambda rows, f: mean(rows),
    "fedpg_br": fedpg_br,
    **{
        f"fedpg_br(sigma={sigma})": lambda rows, f, sigma=sigma: fedpg_br(rows, f, sigma)
        for sigma in (0.01, 0.7, 1.2, 2.5, 9)
    },
    "fedpg_br(sigma=1.5, delta=0.05, trajectories=40)": lambda rows, f: fedpg_br(rows, f, 1.5, 0.05, 40),
    "dnc": dnc,
    "dnc(filter_factor=1.5)": lambda rows, f: dnc(rows, f, 1.5),
    "foolsgold": lambda rows, f: foolsgold(rows, rows),
    "foolsgold(confidence=0.4)": lambda rows, f: foolsgold(rows, rows, 0.4),
    "arc >> mean": lambda rows, f: mean(arc(rows, f)),
    "arc >> huber(threshold=0.8)": lambda rows, f: huber(arc(rows, f), 0.8),
}


@pytest.mark.parametrize("defense", LOOPS)
@SHAPES
def test_agrees_with_the_formula_as_a_loop(defense, n, f, d):
    for seed in range(3):
        updates = normal(n, d, seed=seed + n, center=0.3)
        updates[:f] = 2 * updates[:f] - 1
        assert run(defense, updates, f).vector.tolist() == pytest.approx(LOOPS[defense](rows_of(updates), f), abs=3e-5)


@pytest.mark.parametrize("defense", ["mda", "monna", "smea", "cge"])
def test_golden_values(defense):
    assert run(defense, THREE, f=1).vector.tolist() == pytest.approx([2.5, 3.5, 4.5], abs=1e-6)


# Bulyan.


def test_bulyan_names_the_row_and_not_its_place_in_the_pool():
    """A case in which a selection that forgets the removed rows gives another answer; the rule gives the right one."""
    updates = normal(11, 5, seed=3)
    rows = rows_of(updates)
    assert sorted(bulyan_selection(rows, 2)) != sorted(bulyan_selection(rows, 2, remap=False))
    assert len(set(bulyan_selection(rows, 2, remap=False))) < 7  # it even chooses some rows twice
    right, wrong = bulyan(rows, 2), bulyan(rows, 2, remap=False)
    assert apart(right, wrong) > 0.05
    assert run("bulyan", updates, 2).vector.tolist() == pytest.approx(right, abs=1e-5)


def test_bulyan_selects_as_the_loop_does_and_stays_among_the_honest():
    """A tight malicious group may enter the selection late, when few are left; the second step leaves it out."""
    from fedguard.defenses.aggregators.bulyan import select_by_krum

    for seed in range(20):
        updates = normal(15, 4, seed=seed)
        updates[[2, 7, 9]] += 8 + seed  # nearer than float32 loses what sets the three apart
        chosen = select_by_krum(gram_of(updates).inner, context(15, 3), lambda: torch.arange(15))
        assert chosen == bulyan_selection(rows_of(updates), 3)
        assert len(set(chosen)) == 9
        honest = updates[[row for row in range(15) if row not in (2, 7, 9)]]
        found = run("bulyan", updates, 3).vector
        assert (found >= honest.min(0).values).all()
        assert (found <= honest.max(0).values).all()


def test_bulyan_second_step_keeps_the_values_closest_to_the_median():
    from fedguard.defenses.aggregators.bulyan import mean_around_median

    for seed in range(30):
        m, count = 5 + seed % 6, 1 + seed % 5
        columns = normal(m, 8, seed=seed).double()
        expected = []
        for column in columns.T.tolist():
            middle = median(column)
            expected.append(fmean(sorted(column, key=lambda v: abs(v - middle))[:count]))
        if m % 2 == 0 and count % 2:  # of the middle two both are equally close
            continue
        found = mean_around_median(columns.sort(dim=0).values, count)
        assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_bulyan_favors_no_side_where_two_values_are_equally_close():
    from fedguard.defenses.aggregators.bulyan import mean_around_median

    ordered = torch.tensor([[-3.0], [-1], [0], [1], [3]])
    for count in (1, 2, 3, 4, 5):
        assert float(mean_around_median(ordered, count)) == 0


def test_bulyan_refuses_fewer_than_4f_plus_3():
    run("bulyan", normal(11, 3), 2)
    with pytest.raises(PreconditionError, match=r"bulyan needs n >= 4f \+ 3, with f = 2: 11 updates; got n = 10"):
        run("bulyan", normal(10, 3), 2)


# Subsets.


@pytest.mark.parametrize("seed", range(40))
def test_mda_is_exact_and_ties_do_not_hinge_on_the_order(seed):
    """On a grid of whole numbers, where ties abound."""
    draw = torch.Generator().manual_seed(seed)
    n, f = 7 + seed % 5, 1 + seed % 3
    updates = torch.randint(-3, 4, (n, 2 + seed % 2), generator=draw).float()
    rows = rows_of(updates)
    found = play("mda", updates, f)
    kept = [row for row, weight in enumerate(found.weights.tolist()) if weight > 0]
    least = min(diameter(rows, subset) for subset in combinations(range(n), n - f))
    assert len(kept) == n - f
    assert diameter(rows, kept) == pytest.approx(least)
    order = torch.randperm(n, generator=draw)
    ranks = {(round(sum(sorted(apart(a, b) for b in rows)[: n - f]), 6), round(length(a), 6)) for a in rows}
    if len(ranks) == len({tuple(row) for row in rows}):  # where the ranking tells all different rows apart
        assert torch.allclose(play("mda", updates[order], f).vector, found.vector, atol=1e-5)
        assert found.vector.tolist() == pytest.approx(mda(rows, f), abs=1e-5)


def test_mda_resolves_ties_between_subsets_that_differ():
    """Two rows lie on either side of a pair that decides the diameter of both subsets."""
    updates = torch.tensor([[0.0, 0], [1, 0], [0.5, 0.8], [0.5, -0.8]])
    _, tied = mda_subset(rows_of(updates), 1)
    assert tied == 2
    updates[3, 1] = -0.79  # still tied in diameter, but now nearer
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        kept = torch.tensor([0.5, -0.79 / 3])
        assert torch.allclose(run("mda", updates[order], 1).vector, kept, atol=1e-6)


def test_mda_finds_the_largest_group_among_many():
    """At n = 60 and f = 29 there are 10^17 subsets."""
    honest = normal(31, 50, seed=1)
    malicious = normal(29, 50, seed=2) + 3
    assert torch.allclose(run("mda", torch.cat([malicious, honest]), 29).vector, honest.mean(0), atol=1e-5)


def test_mda_and_smea_say_where_they_end():
    run("mda", torch.zeros(62, 2), 30)
    with pytest.raises(PreconditionError, match=r"takes f <= 30; got f = 31. Lower f or clients.per_round"):
        run("mda", torch.zeros(64, 2), 31)
    with pytest.raises(PreconditionError, match=r"up to 200,000 of them; n = 30 and f = 10 make 30,045,015. Lower f"):
        run("smea", torch.zeros(30, 2), 10)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_smea_is_exact(spread):
    """Its search leaves most subsets aside; the ones that it returns are the best of all."""
    for seed in range(6):
        updates = normal(12, 3 + 20 * (seed % 2), seed=seed)
        updates[:4] += spread * normal(1, updates.shape[1], seed=seed + 99)
        found = play("smea", updates, 4)
        kept = [row for row, weight in enumerate(found.weights.tolist()) if weight > 0]
        rows = rows_of(updates)

        def top(subset, rows=rows):
            return top_eigenpair([rows[i] for i in subset], [1 / 8] * 8)[0]

        assert top(kept) == pytest.approx(min(map(top, combinations(range(12), 8))), rel=1e-5)


def test_smea_and_mda_take_identical_updates():
    for defense in ("smea", "mda", "caf", "huber", "bulyan", "dnc", "cosine_clustering"):
        updates = torch.cat([torch.ones(8, 3), torch.full((2, 3), 50.0)])
        assert torch.allclose(run(defense, updates[:7], 1).vector, torch.ones(3)), defense
        if defense != "bulyan":
            found = run(defense, updates, 2).vector
            assert torch.allclose(found, torch.ones(3), atol=1e-4) or defense == "cosine_clustering", defense


@pytest.mark.parametrize(
    "defense", ["mda", "smea", "arc >> trimmed_mean", "arc >> geometric_median", "arc >> nnm >> krum"]
)
def test_stays_within_its_published_kappa(defense):
    """Over random rounds, and over ones in which the others stand where they pass for honest."""
    n, f = 9, 2
    kappa = KNOWN.pipeline(defense).kappa(n, f)
    assert kappa is not None
    for seed in range(150):
        draw = torch.Generator().manual_seed(seed)
        honest = torch.randn(n - f, 2, generator=draw) * torch.tensor([1.0, 0.3 if seed % 2 else 1.0])
        honest += 3 * torch.randn(1, 2, generator=draw)
        away = torch.randn(1, 2, generator=draw) * (0.2 + 0.1 * seed)
        updates = torch.cat([honest.mean(0) + away.expand(f, 2) / (1 + seed % 4), honest])
        center = honest.mean(0)
        moved = (run(defense, updates, f).vector - center).square().sum()
        assert moved <= kappa * (honest - center).square().sum(1).mean() + 1e-6


def test_the_variance_test_keeps_honest_means_and_drops_what_lies_beyond():
    """Of means over 16 trajectories, each within sigma of its expectation, the first test fails less than delta; a liar always."""
    n, f, d, sigma = 10, 4, 30, 0.5
    left_out = 0
    for seed in range(200):
        steps = normal(n * 16, d, seed=seed)
        honest = (sigma * steps / steps.norm(dim=1, keepdim=True)).reshape(n, 16, d).mean(1)
        lies = normal(f, d, seed=1000 + seed)
        updates = torch.cat([lies * 2 * sigma / lies.norm(dim=1, keepdim=True), honest[f:]])
        weights = run(f"fedpg_br(sigma={sigma})", updates, f).weights
        assert not weights[:f].any()
        left_out += int((weights[f:] == 0).any())
    assert left_out / 200 <= 0.6


def test_published_bounds_on_kappa():
    assert KNOWN.pipeline("mda").kappa(20, 4) == pytest.approx(8)
    assert KNOWN.pipeline("smea").kappa(20, 4) == pytest.approx(4 * 4 / 16 * (4 / 3) ** 2)
    assert KNOWN.pipeline("arc >> trimmed_mean").kappa(20, 4) == pytest.approx(6 / 3 * (4 / 3) + 2 * 4 / 12)
    for defense in (
        "monna",
        "caf",
        "cge",
        "huber",
        "dnc",
        "fedpg_br",
        "bulyan",
        "zeno",
        "foolsgold",
        "adaptive_clipping >> median",
    ):
        assert KNOWN.pipeline(defense).kappa(20, 4) is None


# MoNNA.


def test_monna_follows_the_client_and_not_the_row():
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    for trusted in range(8):
        updates = normal(8, 4, seed=trusted)
        rows = rows_of(updates)
        expected = mean(sorted(rows, key=lambda row: apart(row, rows[trusted]))[:5])
        text = f"monna(trusted={trusted})"
        assert play(text, updates, 3).vector.tolist() == pytest.approx(expected, abs=1e-6)
        shuffled = play(text, updates[order], 3, clients=tuple(order)).vector
        assert shuffled.tolist() == pytest.approx(expected, abs=1e-6)


def test_monna_has_no_pivot_where_the_trusted_client_is_absent():
    with pytest.raises(PreconditionError, match=r"monna needs the update of client 0.*Let all clients take part"):
        play("monna", normal(5, 3), 1, clients=(3, 4, 6, 8, 9))
    with pytest.raises(ConfigError, match="nnm mixes the rows"):
        KNOWN.pipeline("nnm >> monna")


# Ties for the last places.


def test_updates_that_tie_for_the_last_places_share_them():
    updates = torch.tensor([[1.0, 0], [0, 3], [3, 0], [0, -3], [9, 9]])
    expected = torch.tensor([1 / 3 + 2 / 9 * 3, 0.0])  # one place for the first, two places for three
    assert torch.allclose(run("cge", updates, 2).vector, expected, atol=1e-6)
    assert torch.allclose(run("cge", updates.flip(0), 2).vector, expected, atol=1e-6)


# The filter.


def test_caf_resists_where_the_mean_does_not():
    """f updates shifted along one direction by ten times the honest spread."""
    for seed in range(5):
        honest = normal(16, 30, seed=seed)
        updates = torch.cat([honest + 0, honest[:4] + 10])
        error = (run("caf", updates, 4).vector - honest.mean(0)).norm()
        assert error < 0.3 * (updates.mean(0) - honest.mean(0)).norm()


def test_caf_returns_a_mean_no_more_spread_than_the_plain_one():
    for seed in range(10):
        updates = normal(10, 4, seed=seed)
        found = play("caf", updates, 3).weights
        rows = rows_of(updates)
        assert top_eigenpair(rows, found.tolist())[0] <= top_eigenpair(rows, [0.1] * 10)[0] + 1e-9


# Huber.


@pytest.mark.parametrize("threshold", [0.05, 0.5, 2.0, None])
def test_huber_stands_where_the_pulls_cancel(threshold):
    updates = normal(9, 4, seed=6)
    updates[:2] += 20
    z = rows_of(run(f"huber(threshold={threshold})", updates, 2).vector[None])[0]
    rows = rows_of(updates)
    if threshold is None:
        threshold = min(sorted(apart(a, b) for b in rows)[4] for a in rows)
    pulls = [[min(1.0, threshold / apart(row, z)) * (p - q) for p, q in zip(row, z, strict=True)] for row in rows]
    assert length([sum(column) for column in zip(*pulls, strict=True)]) < 1e-4 * threshold * len(rows)


# DnC.


def test_dnc_on_drawn_coordinates_agrees_with_the_formula():
    """With as many drawn as there are, the draws are all the same and so is the answer."""
    updates = normal(10, 6, seed=4)
    updates[:2] += 3
    for text in ("dnc(sample=6, iterations=4)", "dnc(sample=100)", "dnc(iterations=9)"):
        assert run(text, updates, 2).vector.tolist() == pytest.approx(dnc(rows_of(updates), 2), abs=1e-6)


def test_dnc_keeps_who_passes_every_draw():
    """Row i stands out in coordinate i alone: each draw of one coordinate drops one row."""
    updates = torch.ones(6, 3) + 0.01 * normal(6, 3, seed=1)
    updates[[0, 1, 2], [0, 1, 2]] += 50
    dropped = set()
    for seed in range(12):
        weights = run("dnc(sample=1)", updates, 1, seed=seed).weights
        (out,) = (weights == 0).nonzero()[:, 0].tolist()
        dropped.add(out)
    assert dropped == {0, 1, 2}
    weights = run("dnc(sample=1, iterations=40)", updates, 1).weights
    assert weights.tolist() == pytest.approx([0, 0, 0, 1 / 3, 1 / 3, 1 / 3])


def test_dnc_weighs_who_passes_by_shares_alone_as_one():
    """Coordinate 0 ties rows 0 and 1, which share a place; coordinates 1 and 2 drop rows 0 and 2. Half a row is left."""
    updates = torch.tensor([[1.0, 2, -1], [-1, -1, -1], [0, -1, 2]])
    assert run("dnc(sample=1, iterations=40)", updates, 1).vector.tolist() == pytest.approx([-1, -1, -1])


def test_dnc_leaves_the_model_where_nobody_passes():
    updates = torch.eye(3) * 50 + 0.01 * normal(3, 3)
    assert run("dnc(sample=1, iterations=60)", updates, 1).vector.tolist() == [0, 0, 0]


def test_dnc_refuses_to_drop_everybody():
    with pytest.raises(PreconditionError, match=r"more than 9 updates; got n = 9. Lower filter_factor or f"):
        run("dnc(filter_factor=3)", normal(9, 2), 3)
    run("dnc(filter_factor=2.9)", normal(9, 2), 3)


# FoolsGold.


def test_foolsgold_adds_up_what_each_client_sent():
    """Two rounds, in the second of which one client is absent and another is new."""
    first, second = normal(5, 7, seed=1, center=0.1), normal(5, 7, seed=2, center=0.1)
    before = play("foolsgold", first, 1, clients=(0, 1, 2, 3, 4))
    found = play("foolsgold", second, 1, state=before.states, clients=(6, 3, 2, 1, 0))
    a, b = rows_of(first), rows_of(second)
    add = [
        [p + q for p, q in zip(a[c], row, strict=True)] if c < 5 else row
        for c, row in zip((6, 3, 2, 1, 0), b, strict=True)
    ]
    assert found.vector.tolist() == pytest.approx(foolsgold(add, b), abs=1e-5)
    assert apart(foolsgold(add, b), foolsgold(b, b)) > 1e-3  # the history counts
    (state,) = found.states
    assert state["clients"].tolist() == [0, 1, 2, 3, 4, 6]
    assert torch.allclose(state["history"][4], first[4])
    assert torch.allclose(state["history"][3], first[3] + second[1])
    assert torch.allclose(state["history"][5], second[0])


def test_foolsgold_gives_sybils_nothing():
    honest = normal(6, 60, seed=1, center=0.0)
    sybils = normal(1, 60, seed=2, center=0.0).expand(5, 60) * torch.arange(1, 6)[:, None]
    weights = run("foolsgold", torch.cat([sybils, honest]), 5).weights
    assert weights[:5].abs().max() < 1e-6
    assert weights[5:].min() > 0.1


def test_foolsgold_trusts_nobody_where_all_are_alike():
    assert run("foolsgold", torch.ones(5, 3), 1).vector.tolist() == [0, 0, 0]
    assert torch.equal(run("foolsgold", torch.ones(1, 3), 0).vector, torch.ones(3))
    found = run("foolsgold", torch.cat([torch.zeros(1, 4), normal(4, 4)]), 1)  # zeros have no direction
    assert found.vector.isfinite().all()


# Clusters.


@pytest.mark.parametrize("seed", range(12))
def test_cosine_clustering_finds_the_best_of_all_splits(seed):
    n = 7 + seed % 4
    updates = normal(n, 3 + seed % 3, seed=seed, center=0.4)
    part, rest = cosine_clusters(rows_of(updates))
    larger = part if len(part) > len(rest) else rest if len(rest) > len(part) else range(n)
    expected = mean([rows_of(updates)[i] for i in larger])
    assert run("cosine_clustering", updates, 2).vector.tolist() == pytest.approx(expected, abs=1e-5)


def test_cosine_clustering_drops_who_points_away():
    honest = normal(7, 50, seed=3, spread=0.3)
    updates = torch.cat([-3 * honest[:3], honest])
    assert torch.allclose(run("cosine_clustering", updates, 3).vector, honest.mean(0), atol=1e-6)


def test_cosine_clustering_drops_nobody_without_a_majority():
    updates = torch.tensor([[1.0, 0], [2, 0], [0, 1], [0, 2]])
    assert torch.allclose(run("cosine_clustering", updates, 1).vector, updates.mean(0))
    assert torch.allclose(run("cosine_clustering", torch.eye(5), 1).vector, torch.full((5,), 0.2))


# Clipping.


def test_arc_clips_as_many_as_its_source_says():
    updates = torch.diag(torch.arange(1.0, 11))
    for f, clipped in ((0, 0), (1, 1), (2, 3), (3, 4), (4, 4)):
        lengths = KNOWN.build("defense", "arc").matrix(gram_of(updates), context(10, f)) @ updates.double()
        longest = 10 - clipped
        assert lengths.norm(dim=1).tolist() == pytest.approx([min(i, longest) for i in range(1, 11)])


def test_adaptive_clipping_moves_its_bound_as_its_source_says():
    bound, state = 0.1, None
    for round in range(4):
        updates = normal(9, 5, seed=round, center=0.0)
        rows = rows_of(updates)
        found = play("adaptive_clipping(rate=0.7, quantile=0.4) >> mean", updates, 2, state=state)
        clipped = [[p * min(1.0, bound / length(row)) for p in row] for row in rows]
        assert found.vector.tolist() == pytest.approx(mean(clipped), abs=1e-6)
        share = sum(length(row) <= bound for row in rows) / 9
        bound, state = bound * math.exp(-0.7 * (share - 0.4)), found.states
        assert float(state[0]["bound"]) == pytest.approx(bound)


@pytest.mark.parametrize("initial", [0.01, 100.0])
@pytest.mark.parametrize("quantile", [0.3, 0.8])
def test_adaptive_clipping_reaches_its_quantile(initial, quantile):
    pipeline = KNOWN.pipeline(f"adaptive_clipping(initial={initial}, quantile={quantile}) >> mean")
    lengths = [length(row) for row in rows_of(normal(400, 6, seed=8, center=0.0))]
    expected, states = sorted(lengths)[int(quantile * 400)], ()
    for round in range(120):
        updates = normal(50, 6, seed=100 + round, center=0.0)
        states = aggregate(pipeline, updates, context(50, 5), states).states
    assert float(states[0]["bound"]) == pytest.approx(expected, rel=0.15)


def gram_of(updates):
    from fedguard.contracts import Gram
    from fedguard.kernels import gram_matrix

    return Gram(lambda: gram_matrix(updates), len(updates))


# Root data.


def test_server_learning_adds_its_own_step():
    updates, root = normal(6, 5, seed=1), normal(1, 5, seed=2)[0]
    expected = [m + 0.3 * g for m, g in zip(mean(rows_of(updates)), rows_of(root[None])[0], strict=True)]
    found = play("server_learning(weight=0.3)", updates, 1, root=root)
    assert found.vector.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.2, 5.0])
def test_zeno_agrees_with_the_formula_as_a_loop(rho):
    """The loss is a bowl around a point that the root data name."""
    step, model, target = 0.5, normal(1, 4, seed=9)[0], normal(1, 4, seed=8)[0] * 2

    def loss(parameters):
        return float((parameters.double() - target).square().sum())

    for seed in range(8):
        updates = normal(9, 4, seed=seed, spread=2.0)
        rows, w, t = rows_of(updates), rows_of(model[None])[0], rows_of(target[None])[0]

        def score(row, w=w, t=t):
            moved = [p + step * q for p, q in zip(w, row, strict=True)]
            return apart(w, t) ** 2 - apart(moved, t) ** 2 - rho * length(row) ** 2

        expected = mean(sorted(rows, key=score, reverse=True)[:6])
        found = play(f"zeno(rho={rho})", updates, 3, root_loss=loss, model=model, server_lr=step)
        assert found.vector.tolist() == pytest.approx(expected, abs=1e-5)


def test_zeno_stands_a_majority_and_losses_that_are_no_numbers():
    honest = normal(3, 4, seed=1, spread=0.1)
    updates = torch.cat([torch.full((2, 4), 1e30), -honest, honest])

    def loss(parameters):
        value = float((parameters - 1).square().sum())
        return math.nan if value > 1e6 else value

    found = play("zeno", updates, 5, root_loss=loss, model=torch.zeros(4))
    assert torch.allclose(found.vector, honest.mean(0), atol=1e-6)
    found = play("zeno", updates[2:], 1, root_loss=lambda model: loss(model) if model[0] >= 0 else math.nan)
    good = (updates[2:, 0] >= 0).double()
    assert good.sum() < 5  # more losses are no numbers than may be left out: the last places are shared among those
    assert torch.allclose(found.weights[good > 0], torch.tensor(0.2, dtype=torch.float64))
    assert torch.allclose(found.weights[good == 0], (5 - good.sum()) / 5 / (6 - good.sum()))
    with pytest.raises(PreconditionError, match=r"zeno needs n >= 1f \+ 1, with f = 8: 9 updates; got n = 8"):
        play("zeno", updates, 8, root_loss=loss, model=torch.zeros(4))


# Noise.


def test_weak_dp_clips_averages_and_adds_noise():
    updates = normal(6, 20_000, seed=1)
    rows = updates.double()
    clipped = (rows * (7 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)
    quiet = run("weak_dp(bound=7, noise=0)", updates, 1)
    assert torch.allclose(quiet.vector.double(), clipped, atol=1e-6)
    noise = run("weak_dp(bound=7, noise=0.5)", updates, 1).vector.double() - clipped
    assert abs(float(noise.mean())) < 4 * 0.5 / math.sqrt(20_000)
    assert float(noise.std()) == pytest.approx(0.5, rel=0.03)
    again = run("weak_dp(bound=7, noise=0.5)", updates, 1, seed=1).vector.double() - clipped
    assert abs(float(torch.corrcoef(torch.stack([noise, again]))[0, 1])) < 0.04  # a fresh draw


def test_weak_dp_is_by_default_what_others_compare_with_and_its_noise_is_the_models():
    """Updates shortened to 5; noise of 0.025 in the new model, whatever the server's step."""
    updates, step = normal(6, 20_000, seed=1), 0.2
    rows = updates.double()
    clipped = (rows * 5 / rows.norm(dim=1, keepdim=True)).mean(0)
    noise = step * (play("weak_dp", updates, 1, server_lr=step).vector.double() - clipped)
    assert float(noise.std()) == pytest.approx(0.025, rel=0.03)
    loose = play("weak_dp(bound=None, noise=0)", updates, 1).vector
    usual = rows.norm(dim=1).quantile(0.5)
    assert torch.allclose(
        loose.double(), (rows * (usual / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0), atol=1e-6
    )


@pytest.mark.parametrize(
    ("text", "round", "bound"),
    [
        ("crfl(noise=0)", 1, 2.1),
        ("crfl(noise=0)", 50, 7.0),
        ("crfl(noise=0)", 500, 15.0),
        ("crfl(noise=0, cap=None)", 500, 52.0),
        ("crfl(noise=0, bound=4, growth=0.25, cap=100)", 500, 100.0),
        ("crfl(noise=0, bound=2, growth=0)", 50, 2.0),
    ],
)
def test_the_bound_of_crfl_grows_to_its_cap(text, round, bound):
    """min(0.1 t + 2, 15), as in the source on MNIST."""
    found = play(text, normal(5, 30, seed=1), 1, model=100 * normal(1, 30, seed=5)[0], round=round)
    model = 100 * normal(1, 30, seed=5)[0]
    assert length((model + found.vector).tolist()) == pytest.approx(bound, rel=1e-4)


def test_crfl_may_spare_the_last_rounds_the_noise():
    updates, model = normal(5, 30, seed=1), normal(1, 30, seed=5)[0]
    quiet = play("crfl(noise=0)", updates, 1, model=model, round=9).vector
    for last, noisy in ((10, True), (9, False), (4, False), (None, True)):
        found = play(f"crfl(noise=0.3, last_round={last})", updates, 1, model=model, round=9).vector
        assert (not torch.allclose(found, quiet, atol=1e-5)) == noisy


def test_crfl_bounds_the_new_model():
    step, model = 0.4, 3 * normal(1, 6, seed=5)[0]
    for seed in range(6):
        updates = normal(7, 6, seed=seed)
        found = play("crfl(bound=2, growth=0.5, noise=0)", updates, 1, model=model, server_lr=step, round=3)
        moved = [p + step * q for p, q in zip(rows_of(model[None])[0], mean(rows_of(updates)), strict=True)]
        shortened = [p * min(1.0, 3.5 / length(moved)) for p in moved]
        assert length(moved) > 3.5
        assert (model + step * found.vector).tolist() == pytest.approx(shortened, abs=1e-5)
    near = play("crfl(bound=100, cap=None, noise=0)", updates, 1, model=model, server_lr=step)
    assert near.vector.tolist() == pytest.approx(mean(rows_of(updates)), abs=1e-5)


def test_crfl_adds_noise_to_the_model_and_not_to_the_step():
    step, model = 0.1, torch.zeros(20_000)
    updates = normal(3, 20_000, seed=1)
    quiet = play("crfl(bound=3, noise=0)", updates, 1, model=model, server_lr=step).vector
    noise = step * (play("crfl(bound=3, noise=0.2)", updates, 1, model=model, server_lr=step).vector - quiet)
    assert float(noise.std()) == pytest.approx(0.2, rel=0.03)
    assert abs(float(noise.mean())) < 4 * 0.2 / math.sqrt(20_000)


# Parameters.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("monna(trusted=-1)", "monna: trusted: expected at least 0; got -1"),
        ("huber(threshold=0)", "huber: threshold: expected more than 0; got 0"),
        ("huber(steps=0)", "huber: steps: expected at least 1; got 0"),
        ("dnc(filter_factor=0)", "dnc: filter_factor: expected more than 0; got 0"),
        ("dnc(sample=0)", "dnc: sample: expected at least 1; got 0"),
        ("dnc(iterations=0)", "dnc: iterations: expected at least 1; got 0"),
        ("foolsgold(confidence=0)", "foolsgold: confidence: expected more than 0; got 0"),
        ("server_learning(weight=0)", "server_learning: weight: expected more than 0; got 0"),
        ("zeno(rho=-1)", "zeno: rho: expected at least 0; got -1"),
        ("weak_dp(bound=0)", "weak_dp: bound: expected more than 0; got 0"),
        ("weak_dp(noise=-1)", "weak_dp: noise: expected at least 0; got -1"),
        ("crfl(bound=0)", "crfl: bound: expected more than 0; got 0"),
        ("crfl(growth=-1)", "crfl: growth: expected at least 0; got -1"),
        ("crfl(bound=20)", "crfl: cap: expected at least bound = 20, or null for none; got 15"),
        ("crfl(last_round=0)", "crfl: last_round: expected at least 1; got 0"),
        ("crfl(noise=-1)", "crfl: noise: expected at least 0; got -1"),
        ("adaptive_clipping(initial=0) >> mean", "adaptive_clipping: initial: expected more than 0; got 0"),
        ("adaptive_clipping(quantile=1.5) >> mean", "adaptive_clipping: quantile: expected a number in .0, 1."),
        ("adaptive_clipping(rate=0) >> mean", "adaptive_clipping: rate: expected more than 0; got 0"),
    ],
)
def test_wrong_parameters(text, message):
    with pytest.raises(ConfigError, match=message):
        KNOWN.pipeline(text)


TUNED = ["huber", "dnc", "foolsgold", "server_learning", "zeno", "weak_dp", "crfl", "adaptive_clipping"]


@pytest.mark.parametrize("name", [*TUNED, "centered_clipping", "clip", "bucketing"])
def test_every_value_of_a_grid_can_be_built(name):
    cls = KNOWN.get("defense", name)
    assert cls.grid
    for parameter, values in cls.grid.items():
        assert len(values) > 1
        for value in values:
            built = KNOWN.build("defense", {"name": name, parameter: value})
            assert getattr(built, parameter) == value
