"""Defenses: golden values, the papers' formulae as loops, and the laws of the table."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.reference as reference
from fedguard.errors import PreconditionError
from fedguard.kernels import LARGEST, gram_matrix
from fedguard.registry import load_registry
from tests.table import DEFENSES, MAGNITUDES, TIES, context, malicious, normal, run, tied

THREE = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
FIVE = torch.cat([THREE, torch.tensor([[10.0, 11, 12], [100, -50, 7]])])


#: With n = 7 and f = 2: who is nearest to its next two is 35, to its next three 7 (49 + 81 + 100), to its next four 31.
SEVEN = torch.tensor([[31.0], [16], [0], [39], [7], [17], [35]])


@pytest.mark.parametrize(
    ("defense", "updates", "expected"),
    [
        ("geometric_median(nu=0.1, steps=3)", THREE, [3.7879, 4.7879, 5.7879]),
        ("multi_krum", THREE, [4, 5, 6]),  # each as far from its one neighbor: all three share the two places
        ("multi_krum", FIVE, [5.5, 6.5, 7.5]),
        ("trimmed_mean", FIVE, [7, 5, 7.3333]),
        ("median", FIVE[:4], [5.5, 6.5, 7.5]),  # even n: the mean of the middle two
        ("mean", THREE, [4, 5, 6]),
    ],
)
def test_golden_values(defense, updates, expected):
    assert run(defense, updates, f=1).vector.tolist() == pytest.approx(expected, abs=5e-5)


def test_krum_counts_n_f_2_neighbors():
    assert run("krum", SEVEN, f=2).vector.tolist() == [7]
    assert run("krum", SEVEN, f=1).vector.tolist() == [31]
    assert run("krum", SEVEN, f=3).vector.tolist() == [35]


LOOPS = {
    "mean": lambda rows, f: reference.mean(rows),
    "median": reference.median,
    "trimmed_mean": reference.trimmed_mean,
    "krum": reference.krum,
    "multi_krum": reference.multi_krum,
    "geometric_median": reference.geometric_median,
    "geometric_median(nu=0.1, steps=3)": lambda rows, f: reference.geometric_median(rows, f, nu=0.1, steps=3),
    "centered_clipping(tau=0.7, steps=3)": lambda rows, f: reference.centered_clipping(
        rows, [0.0] * len(rows[0]), 0.7, 3
    ),
    "nnm >> mean": lambda rows, f: reference.mean(reference.nnm(rows, f)),
    "nnm >> trimmed_mean": lambda rows, f: reference.trimmed_mean(reference.nnm(rows, f), f),
    "nnm >> krum": lambda rows, f: reference.krum(reference.nnm(rows, f), f),
    "clip(bound=2) >> mean": lambda rows, f: reference.mean(reference.clip(rows, 2.0)),
    "clip(bound=2) >> nnm >> median": lambda rows, f: reference.median(reference.nnm(reference.clip(rows, 2.0), f), f),
}


@pytest.mark.parametrize("defense", LOOPS)
@pytest.mark.parametrize(("n", "f", "d"), [(9, 2, 5), (12, 3, 40), (7, 0, 3)])
def test_agrees_with_the_formula_as_a_loop(defense, n, f, d):
    updates = normal(n, d, seed=n)
    expected = LOOPS[defense](updates.double().tolist(), f)
    assert run(defense, updates, f).vector.tolist() == pytest.approx(expected, abs=2e-5)


def test_fltrust_agrees_with_the_formula_as_a_loop():
    updates, root = normal(8, 6, seed=1, center=0.3), normal(1, 6, seed=2)[0]
    expected = reference.fltrust(updates.double().tolist(), root.double().tolist())
    assert run("fltrust", updates, 2, root=root).vector.tolist() == pytest.approx(expected, abs=1e-6)


def test_fltrust_trusts_nobody_who_points_away():
    root = torch.tensor([1.0, 0, 0])
    updates = torch.tensor([[-1.0, 0, 0], [-2, 1, 0], [-5, 0, 3]])
    assert run("fltrust", updates, 1, root=root).vector.tolist() == [0, 0, 0]


def test_weighted_mean_uses_the_claimed_sizes():
    from fedguard.aggregation import aggregate

    rule = context(3, 0)
    claims = torch.tensor([1.0, 2, 5], dtype=torch.float64)
    seen = rule.restrict("test", rule.granted, samples=claims)
    assert aggregate(load_registry().pipeline("weighted_mean"), THREE, seen).vector.tolist() == pytest.approx(
        [5.5, 6.5, 7.5]
    )


def test_centered_clipping_starts_from_the_last_aggregate():
    from fedguard.aggregation import aggregate

    pipeline, updates = load_registry().pipeline("centered_clipping(tau=0.5)"), normal(6, 4, seed=3)
    first = aggregate(pipeline, updates, context(6, 1))
    second = aggregate(pipeline, updates, context(6, 1), first.states)
    rows = updates.double().tolist()
    expected = reference.centered_clipping(rows, reference.centered_clipping(rows, [0.0] * 4, 0.5, 1), 0.5, 1)
    assert second.vector.tolist() == pytest.approx(expected, abs=1e-6)
    assert not torch.allclose(first.vector, second.vector)


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("lazy", [1, 4, 9])
def test_geometric_median_is_not_held_by_updates_near_its_starting_point(lazy, noise):
    """Free riders send zeros, or nearly: Weiszfeld's steps start there, and must get away again."""
    honest = normal(20 - lazy, 200, seed=1)
    updates = torch.cat([honest, noise * normal(lazy, 200, seed=2, center=0)])
    found = run("geometric_median", updates, lazy).vector.double()
    expected = torch.tensor(
        reference.geometric_median(updates.double().tolist(), lazy, start=honest.double().mean(0).tolist())
    )
    assert (found - expected).norm() < 0.005 * honest.norm(dim=1).mean()


@pytest.mark.parametrize("by", [0.0, -3.0, 20.0])
def test_geometric_median_between_two_equal_halves_does_not_hinge_on_the_start(by):
    """Every point between them is a median; the one that the steps reach first depends on where they begin."""
    ends = normal(2, 6, seed=4)
    updates = ends.repeat_interleave(4, dim=0) + by
    assert torch.allclose(run("geometric_median", updates, 1).vector, ends.mean(0) + by, atol=1e-5)


def test_bucketing_uses_each_update_exactly_once():
    for n in (6, 7):
        matrix = load_registry().build("defense", "bucketing").matrix(type("Gram", (), {"n": n})(), context(n, 1))
        assert matrix.shape == (math.ceil(n / 2), n)
        assert ((matrix > 0).sum(0) == 1).all()
        assert torch.allclose(matrix.sum(1), torch.ones(len(matrix), dtype=torch.float64))


def test_bucketing_draws_from_the_round_and_not_from_the_order():
    updates = normal(8, 3, seed=5)
    draws = {tuple(run("bucketing >> median", updates, 1, seed=seed).vector.tolist()) for seed in range(20)}
    assert len(draws) > 5
    assert torch.equal(run("bucketing >> median", updates, 1).vector, run("bucketing >> median", updates, 1).vector)


# The laws of the table.

CASES = pytest.mark.parametrize("case", DEFENSES, ids=lambda case: case.text)
SHAPES = st.tuples(st.integers(7, 14), st.integers(2, 9), st.integers(0, 2**31))
#: Each example is a draw of all numbers, and a rule that breaks a law breaks it at nearly every one: of the profile's number, a third.
FEW = settings(max_examples=settings().max_examples // 3)


def test_every_defense_stands_in_the_table():
    tested = {stage.name for case in DEFENSES for stage in load_registry().pipeline(case.text).stages}
    assert tested == {cls.name for _, cls in load_registry().classes(["defense"])}


@CASES
@FEW
@given(shape=SHAPES)
def test_input_unchanged_and_result_finite(case, shape):
    n, d, seed = shape
    updates = normal(n, d, seed)
    before = updates.clone()
    result = run(case.text, updates, f=malicious(case, n))
    assert torch.equal(updates, before)
    assert result.vector.shape == (d,)
    assert result.vector.dtype == torch.float32
    assert result.vector.isfinite().all()


@CASES
@FEW
@given(shape=SHAPES)
def test_permutation(case, shape):
    if not case.permutation:
        return
    n, d, seed = shape
    updates, order = normal(n, d, seed), torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    f = malicious(case, n)
    assert torch.allclose(run(case.text, updates, f).vector, run(case.text, updates[order], f).vector, atol=1e-4)


@CASES
@pytest.mark.parametrize("kind", TIES)
def test_permutation_at_exact_ties(case, kind):
    """Which of several equal rows, distances or votes comes first must not decide: that would favor some clients."""
    for seed in range(6 if case.permutation else 0):
        n, d = 5 + (3 * seed) % 9, (1, 2, 3, 9, 40, 400)[seed]
        updates, f = tied(kind, n, d, seed), malicious(case, n)
        scale, root = updates.norm(dim=1).median(), torch.ones(d)
        expected = run(case.text, updates, f, root=root).vector
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        found = run(case.text, updates[order], f, root=root).vector
        assert (found - expected).norm() <= 1e-4 * scale, (n, d, seed)


@CASES
@FEW
@given(shape=SHAPES, by=st.floats(-20, 20))
def test_translation(case, shape, by):
    n, d, seed = shape
    updates, f = normal(n, d, seed), malicious(case, n)
    if case.translation:
        moved = run(case.text, updates + by, f).vector
        assert torch.allclose(moved, run(case.text, updates, f).vector + by, atol=2e-3)


@CASES
@FEW
@given(shape=SHAPES, by=st.floats(0.01, 100))
def test_scale(case, shape, by):
    n, d, seed = shape
    updates, f = normal(n, d, seed), malicious(case, n)
    if case.scale:
        scaled = run(case.text, updates * by, f).vector
        assert torch.allclose(scaled, run(case.text, updates, f).vector * by, rtol=1e-3, atol=1e-3 * by)


@cache
def with_twins() -> list[torch.Tensor]:
    """Nine updates, of which two are all but one; several times."""
    found = []
    for seed in range(12):
        base = normal(1, 650, seed, center=0) * 0.04
        twins = [base, base + normal(1, 650, seed + 100, center=0) * 1e-4]
        rows = torch.cat([normal(1, 650, seed + 200, center=0) * 19, *twins, normal(1, 650, seed + 300, center=0) * 8])
        found.append(
            torch.cat([rows, normal(5, 650, seed + 400, center=0) * 4]) + normal(1, 650, seed + 500, center=0) * 7
        )
    return found


def test_squares_of_twins_about_the_central_update_may_come_out_below_0():
    assert any((gram_matrix(rows[:5]).diagonal() < 0).any() for rows in with_twins())


@CASES
def test_two_updates_that_are_all_but_one_among_long_ones_break_no_rule(case):
    """Their squares about the central one are rounding."""
    for rows in with_twins():
        for updates in (rows[:5], rows):
            try:
                assert run(case.text, updates, malicious(case, len(updates))).vector.isfinite().all()
            except PreconditionError:
                continue


@CASES
@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_scale_at_any_magnitude(case, magnitude):
    """What float32 cannot square must not vanish from a rule, nor make it fail."""
    for seed in range(2):
        updates = normal(9, 5, seed)
        f = malicious(case, 9)
        scaled = run(case.text, updates * magnitude, f).vector
        assert scaled.isfinite().all()
        if case.scale:
            expected = of_normal(case.text, seed, f)
            assert torch.allclose(scaled.double() / magnitude, expected, rtol=1e-3, atol=1e-3)


@cache
def of_normal(text, seed, f):
    """What a pipeline makes of nine updates of length 1 or so."""
    return run(text, normal(9, 5, seed), f).vector.double()


@CASES
@pytest.mark.parametrize("honest_scale", [1e-38, 1e-20, 1.0])
def test_the_largest_values_that_pass_the_guard_break_no_rule(case, honest_scale):
    f = malicious(case, 11)
    for sign in (torch.ones(f, 6), torch.where(normal(f, 6, 3, center=0) > 0, 1.0, -1.0)):
        honest = normal(11 - f, 6, 1) * honest_scale
        result = run(case.text, torch.cat([honest, sign * LARGEST]), f, root=honest.mean(0)).vector
        assert result.isfinite().all()
        if case.resists and (case.scale or honest_scale == 1):
            assert (result - honest.mean(0)).double().norm() <= 10 * honest.double().norm(dim=1).max()


@pytest.mark.parametrize("law", ["translation", "scale"])
def test_the_laws_that_the_table_denies_do_not_hold(law):
    """A table that denied a law by mistake would leave it untested."""
    shapes = ((9, 4), (11, 3))  # a rule that only selects may by chance select the same
    draws = [normal(n, d, seed=seed) for n, d in shapes for seed in range(1, 9)]

    def holds(text, updates, by=50.0):
        changed = updates + by if law == "translation" else updates * by
        plain, result = run(text, updates, 2).vector, run(text, changed, 2).vector
        return torch.allclose(result, plain + by if law == "translation" else plain * by, rtol=1e-3)

    for case in DEFENSES:
        if not getattr(case, law):
            assert not all(holds(case.text, updates) for updates in draws), case.text


@CASES
@FEW
@given(shape=SHAPES)
def test_without_malicious_clients(case, shape):
    n, d, seed = shape
    updates = normal(n, d, seed)
    if case.mean_at_zero:
        result = run(case.text, updates, f=0).vector
        assert torch.allclose(result, updates.mean(0), atol=1e-5)
    if case.translation:  # rules that clip towards the origin may shorten even a unanimous update
        same = run(case.text, updates[:1].expand(n, d).clone(), f=0, root=updates[0]).vector
        assert torch.allclose(same, updates[0], atol=1e-5)


@CASES
@FEW
@given(shape=SHAPES)
def test_result_lies_among_the_updates(case, shape):
    n, d, seed = shape
    updates = normal(n, d, seed)
    if case.hull:
        result = run(case.text, updates, malicious(case, n)).vector
        assert (result >= updates.min(0).values - 1e-4).all()
        assert (result <= updates.max(0).values + 1e-4).all()


@CASES
@FEW
@given(shape=SHAPES, far=st.sampled_from([1e6, 1e12, 1e25]))
def test_far_away_updates_do_not_take_the_result_along(case, shape, far):
    n, d, seed = shape
    f = malicious(case, n)
    honest = normal(n - f, d, seed)
    updates = torch.cat([honest, torch.full((f, d), far)])
    result = run(case.text, updates, f, root=honest.mean(0)).vector
    spread = (honest - honest.mean(0)).norm(dim=1).max() + honest.norm(dim=1).max()
    resists = (result - honest.mean(0)).norm() <= 10 * spread
    assert case.resists is None or bool(resists) == case.resists


@CASES
def test_does_not_hinge_on_the_size_of_the_blocks(case, monkeypatch):
    updates = normal(11, 5000, seed=4)
    whole = run(case.text, updates, 2).vector
    monkeypatch.setattr("fedguard.kernels.BLOCK_BYTES", 1 << 13)
    assert torch.allclose(run(case.text, updates, 2).vector, whole, atol=1e-5)


@CASES
def test_too_many_malicious_clients_are_refused(case):
    pipeline = load_registry().pipeline(case.text)
    slope, offset = max(stage.min_rows for stage in pipeline.stages)
    least = 3 * slope + offset
    if slope == 0:
        pipeline.check(4, 3)
        return
    message = rf"needs n >= {slope}f \+ {offset}, with f = 3: {least} updates; got n = \d+\. "
    with pytest.raises(PreconditionError, match=message):
        pipeline.check(least - 1, 3)


def test_krum_says_where_its_proof_ends():
    krum = load_registry().pipeline("krum")
    assert krum.unproven(11, 4) == []
    assert krum.unproven(10, 4) == [
        "outside its guarantee: krum needs n >= 2f + 3, with f = 4: 11 updates; got n = 10. "
        "Lower f to 3 or raise clients.per_round."
    ]


@pytest.mark.parametrize(
    ("defense", "bound"),
    [
        ("trimmed_mean", 6 / 3 * (1 + 1 / 3)),
        ("median", 4 * (4 / 3) ** 2),
        ("geometric_median", 4 * (4 / 3) ** 2),
        ("krum", 6 * 16 / 11),  # n - f - 2 neighbors; for n - f - 1 it would be 8
        ("nnm >> krum", 8 * 4 / 16 * (6 * 16 / 11 + 1)),
        ("mean", None),
        ("bucketing >> median", None),
    ],
)
def test_published_bounds_on_kappa(defense, bound):
    assert load_registry().pipeline(defense).kappa(20, 4) == (None if bound is None else pytest.approx(bound))


@pytest.mark.parametrize(
    "defense", ["trimmed_mean", "median", "geometric_median", "krum", "nnm >> krum", "nnm >> median"]
)
@given(seed=st.integers(0, 10_000), reach=st.floats(0.1, 30))
def test_stays_within_its_published_kappa(defense, seed, reach):
    """|R(x) - mean_S|^2 <= kappa * mean_S |x_i - mean_S|^2 for the honest set S, wherever the f others are."""
    n, f = 11, 2
    draw = torch.Generator().manual_seed(seed)
    honest = torch.randn(n - f, 3, generator=draw)
    updates = torch.cat([honest, torch.randn(1, 3, generator=draw).expand(f, 3) * reach])
    center = honest.mean(0)
    kappa = load_registry().pipeline(defense).kappa(n, f)
    moved = (run(defense, updates, f).vector - center).square().sum()
    assert moved <= kappa * (honest - center).square().sum(1).mean() + 1e-5


def test_of_one_row_some_rules_make_that_row_and_remember_nothing():
    """By which a server at which nobody waits does without the rule."""
    row, said = torch.randn(1, 9, generator=torch.Generator().manual_seed(1)), []
    for _, cls in load_registry().classes(["defense"]):
        if getattr(cls, "by_graph", False):
            result = run(cls.name, row, 0)
            assert torch.equal(result.vector, row[0]) and result.weights.tolist() == [1.0] and result.states == ({},)
            said.append(cls.name)
    assert said == ["mean"]
