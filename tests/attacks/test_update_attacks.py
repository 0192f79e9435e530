"""Attacks on the update: the papers' formulae as plain loops, and what a search against a known rule must find."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist, fmean, median, stdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedguard as fg
import tests.reference as reference
from fedguard.aggregation import KnownPipeline
from fedguard.architectures.server import Server
from fedguard.attacks.search import STRETCH, STRETCHES, largest, strongest
from fedguard.contracts import BENIGN_SAMPLE, Examples, PoisonAttack, Sight, Training
from fedguard.errors import ConfigError, NotAllowed
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.architectures.test_training import deal, set_up
from tests.attacks.test_attacks import build, data_view, view
from tests.table import context, normal, run

LIMIT = STRETCH**STRETCHES
SEES = {Sight.HONEST_UPDATES, Sight.MODEL}


def rows_of(updates) -> list[list[float]]:
    return updates.double().tolist()


def minus(a, b):
    return [p - q for p, q in zip(a, b, strict=True)]


def dot(a, b) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def sigma(rows):
    return [stdev(column) for column in zip(*rows, strict=True)]


def supportive(n, f) -> float:
    s = n // 2 + 1 - f
    return NormalDist().inv_cdf((n - f - s) / (n - f))


#: The rules as loops, with the share of the answer that the last f rows make up (None for rules without weights).


def _krum(rows, f):
    scores = reference.krum_scores(rows, f)
    return rows[scores.index(min(scores))], float(scores.index(min(scores)) >= len(rows) - f)


def _multi_krum(rows, f):
    scores = reference.krum_scores(rows, f)
    best = sorted(range(len(rows)), key=lambda i: scores[i])[: len(rows) - f]
    return reference.mean([rows[i] for i in best]), sum(i >= len(rows) - f for i in best) / len(best)


def _nnm_krum(rows, f):
    near = [
        sorted(range(len(rows)), key=lambda j: (reference.distance_squared(row, rows[j]), j))[: len(rows) - f]
        for row in rows
    ]
    mixed = [reference.mean([rows[j] for j in group]) for group in near]
    scores = reference.krum_scores(mixed, f)
    chosen = scores.index(min(scores))
    return mixed[chosen], sum(j >= len(rows) - f for j in near[chosen]) / len(near[chosen])


RULES = {
    "mean": lambda rows, f: (reference.mean(rows), f / len(rows)),
    "krum": _krum,
    "multi_krum": _multi_krum,
    "nnm >> krum": _nnm_krum,
    "median": lambda rows, f: (reference.median(rows, f), None),
    "trimmed_mean": lambda rows, f: (reference.trimmed_mean(rows, f), None),
    "nnm >> trimmed_mean": lambda rows, f: (reference.trimmed_mean(reference.nnm(rows, f), f), None),
}


def damage(rule, honest, malicious) -> float:
    """``|R - mu|`` by the loops, for malicious rows that are sent beside the honest ones."""
    answer, _ = RULES[rule](honest + malicious, len(malicious))
    return reference.norm(minus(answer, reference.mean(honest)))


# Probes.


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_a_probe_tells_what_the_rule_would_answer(rule, seed):
    """Deviation, progress and malicious weight of rounds that are materialised row by row; each client sends its own."""
    h, f, d = 8, 3, 12
    honest, directions = normal(h, d, seed, center=0.3), normal(2, d, seed + 100)
    known = view(honest, f=f, rule=rule).rule
    draw = torch.Generator().manual_seed(seed)
    for scale in (0.3, 1.0, 30.0):
        coefficients = scale * torch.randn(f, h + 2, generator=draw, dtype=torch.float64) / h
        material = rows_of(honest) + rows_of(directions)
        malicious = [[dot(row, column) for column in zip(*material, strict=True)] for row in coefficients.tolist()]
        answer, share = RULES[rule](rows_of(honest) + malicious, f)
        mu = reference.mean(rows_of(honest))
        probe = known.probes(honest, directions, f)(coefficients)
        assert probe.deviation == pytest.approx(reference.norm(minus(answer, mu)), rel=1e-4, abs=1e-4)
        assert probe.progress == pytest.approx(dot(answer, mu) / dot(mu, mu), rel=1e-3, abs=1e-3)
        assert probe.malicious_weight == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize("rule", ["centered_clipping(tau=2)", "geometric_median", "fltrust", "clip >> mean"])
def test_a_probe_of_a_rule_with_anchors_agrees_with_the_rule_on_the_rows_themselves(rule):
    """Both ways run through the package, but one through coefficients and one through vectors."""
    honest, directions = normal(7, 20, 3, center=0.2), normal(1, 20, 4)
    known = view(honest, f=2, rule=rule).rule
    coefficients = torch.zeros(2, 8, dtype=torch.float64)
    coefficients[:, -1], coefficients[0, 0] = -2.5, 1.5
    malicious = (coefficients @ torch.cat([honest, directions]).double()).float()
    answer, mu = known(torch.cat([honest, malicious])).double(), honest.double().mean(0)
    probe = known.probes(honest, directions, 2)(coefficients)
    assert probe.deviation == pytest.approx(float((answer - mu).norm()), rel=1e-4)
    assert probe.progress == pytest.approx(float(answer @ mu / (mu @ mu)), rel=1e-3)


@pytest.mark.parametrize(
    "rule", ["mean", "geometric_median", "median", "trimmed_mean", "nnm >> mean", "sign_guard", "lasa"]
)
def test_a_round_without_honest_rows_is_probed_around_zero(rule):
    directions = normal(2, 20, 4)
    coefficients = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [3.0, 1.0]], dtype=torch.float64)
    rows = (coefficients @ directions.double()).float()
    known = KnownPipeline(load_registry().pipeline(rule), lambda n, rows: context(n, 1, dim=20))
    probe = known.probes(directions[:0], directions, 3)(coefficients)
    answer = known(rows).double()
    assert probe.deviation == pytest.approx(float(answer.norm()), rel=1e-4) and probe.progress == 0


def test_a_probe_of_a_coordinate_rule_estimates_from_a_sample():
    """Where all coordinates have the same law, a sample of a few thousand tells the deviation to some percent."""
    honest = normal(9, 5 * 4096, 3, center=0.4)
    malicious = honest.mean(0) - 3 * honest.std(0)
    answer = run("median", torch.cat([honest, malicious.expand(3, -1)]), f=3).vector
    coefficients = torch.cat([torch.full((9,), 1 / 9), torch.tensor([-3.0])]).double().expand(3, -1)
    probe = view(honest, f=3, rule="median").rule.probes(honest, honest.std(0)[None], 3)(coefficients)
    mu = honest.mean(0)
    assert probe.deviation == pytest.approx(float((answer - mu).norm()), rel=0.03)
    assert probe.progress == pytest.approx(float(answer @ mu / (mu @ mu)), abs=0.03)


# The search itself.


@given(peak=st.floats(-7, 7), width=st.floats(0.5, 3))
def test_the_search_finds_a_smooth_peak(peak, width):
    asked = []

    def score(s):
        asked.append(s)
        return -(abs((s - peak) / width) ** 1.5)

    best, other = strongest(score, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0))
    assert best == pytest.approx(peak, abs=0.03 * max(abs(peak), 0.25))
    assert score(best) >= score(other)
    assert len(set(asked)) == len(asked) - 2 <= 30  # none is asked twice by the search


@given(edge=st.floats(0.3, 7.9), sign=st.sampled_from((1, -1)))
def test_the_search_climbs_to_the_edge_of_a_cliff(edge, sign):
    """As against Krum: more is better until nothing is let in."""
    best, _ = strongest(
        lambda s: abs(s) if 0 <= sign * s <= edge else 0.1 if sign * s > edge else 0, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    )
    assert 0.97 * edge <= sign * best <= edge


def test_the_search_leaves_its_range_before_it_says_that_this_was_the_end():
    magnitudes = (1.0, 2.0)
    assert strongest(lambda s: -abs(s - 50), magnitudes)[0] == pytest.approx(50, rel=0.02)
    assert strongest(lambda s: -abs(s + 50), magnitudes)[0] == pytest.approx(-50, rel=0.02)
    assert strongest(lambda s: s, magnitudes)[0] == 2 * LIMIT
    assert strongest(lambda s: abs(s - 0.5), magnitudes, signs=(1,))[0] == 2 * LIMIT
    assert abs(strongest(lambda s: min(abs(s), 1.5), magnitudes)[0]) <= 2  # a plateau is no end
    assert strongest(lambda s: 0.0, magnitudes)[0] == 0


def test_the_search_looks_at_a_second_hill():
    """The hill of the wrong sign looks better on the grid, and is lower."""

    def score(s):
        return 1.0 if s == -2 else 3 - 10 * abs(s - 2.9) if s > 2.5 else 0.9 - abs(s - 2) if s > 0 else 0.0

    assert score(2) < score(-2)
    assert strongest(score, (0.5, 1.0, 2.0, 4.0))[0] > 2.5


@given(edge=st.floats(0.2, 500))
def test_the_largest_admitted_strength(edge):
    assert largest(lambda s: s <= edge, (0.125, 1.0, 8.0)) == pytest.approx(edge, rel=0.02)
    assert largest(lambda s: False, (1.0, 2.0)) == 0
    assert largest(lambda s: True, (1.0, 2.0)) == 2 * LIMIT


# opt_alie and opt_ipm.


@pytest.mark.parametrize("rule", ["trimmed_mean", "krum", "nnm >> krum"])
@pytest.mark.parametrize("seed", range(3))
def test_opt_alie_does_no_less_damage_than_any_fixed_strength(rule, seed):
    honest, f = normal(12, 20, seed, center=0.2), 4
    rows = rows_of(honest)
    crafted = rows_of(fg.craft("opt_alie", honest, f=f, defense=rule))
    fixed = [sign * z for z in (0.25, 0.5, 1, 1.5, 2, 4, 8) for sign in (1, -1)]
    worst = max(damage(rule, rows, [reference.alie(rows, z)] * f) for z in (*fixed, supportive(16, f)))
    assert damage(rule, rows, crafted) >= worst * (1 - 1e-5)


def test_opt_alie_sends_mu_plus_z_sigma_and_says_which_z():
    honest, attack, state = normal(12, 9, 5, center=0.5), build("opt_alie"), {}
    assert attack.notes(state) == {}
    rows = rows_of(honest)
    for rule, ended in (("krum", 0), ("mean", 1), ("median", 0)):
        seen = view(honest, f=4, rule=rule, state=state)
        crafted = attack.craft(seen)
        state = attack.remember(seen, crafted)
        strength = attack.notes(state)["strength"]
        assert crafted[0].tolist() == pytest.approx(reference.alie(rows, strength), rel=1e-3, abs=1e-3)
        assert torch.equal(crafted, crafted[:1].expand(4, -1))
        assert (abs(strength) == pytest.approx(8 * LIMIT)) == bool(ended)
    assert attack.notes(state)["at_boundary"] == pytest.approx(1 / 3)


def test_opt_ipm_against_the_mean_knows_no_end_and_says_so():
    """``|R - mu|`` = f/n |tau + 1| |mu|: it grows with tau, so the longest step tried is the best."""
    honest, attack = normal(9, 6, 1), build("opt_ipm")
    ratio = reference.norm(sigma(rows_of(honest))) / reference.norm(reference.mean(rows_of(honest)))
    seen = view(honest, f=3, rule="mean")
    state = attack.remember(seen, attack.craft(seen))
    assert attack.notes(state) == {"strength": pytest.approx(8 * LIMIT * ratio - 1, rel=1e-4), "at_boundary": 1.0}


@pytest.mark.parametrize("seed", range(4))
def test_opt_ipm_against_krum_is_the_largest_strength_that_krum_selects(seed):
    """Krum returns an honest row or -tau * mu, so beyond the best honest row the selected |tau + 1| is what counts."""
    honest, f = normal(9, 6, seed, center=0.35), 4
    rows = rows_of(honest)
    mu = reference.mean(rows)

    def harm(tau):
        return damage("krum", rows, [[-tau * m for m in mu]] * f)

    def edge(sign):
        """The largest selected tau of one sign, by a scan and bisection."""
        selected = [t / 8 for t in range(200) if _krum(rows + [[-sign * t / 8 * m for m in mu]] * f, f)[1] == 1]
        low = max(selected, default=0.0)
        high = low + 1 / 8
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if _krum(rows + [[-sign * middle * m for m in mu]] * f, f)[1] == 1 else (low, middle)
            )
        return sign * low

    expected = max(edge(1), edge(-1), key=lambda tau: harm(tau))
    seen = view(honest, f=f, rule="krum")
    attack = build("opt_ipm")
    found = attack.notes(attack.remember(seen, attack.craft(seen)))
    assert harm(expected) > 1.2 * max(reference.norm(minus(row, mu)) for row in [reference.krum(rows, f)])
    assert found["strength"] == pytest.approx(expected, rel=0.02)
    assert found["at_boundary"] == 0


@pytest.mark.parametrize("name", ["opt_alie", "opt_ipm", "gram_search", "agr_tailored(direction='std')"])
def test_a_search_that_a_sample_of_coordinates_misleads_falls_back_on_the_simple_attack(name):
    """Where the honest updates differ only off the sample, every probe of a coordinate rule says that nothing can be done."""
    d = 3 * 4096
    honest = torch.zeros(9, d)
    unseen = torch.randperm(d, generator=Rng(0).child("probes").torch())[4096:]
    honest[:, unseen] = normal(9, d - 4096, 2, center=0.5)
    mean = honest.mean(0)
    probes = view(honest, f=3, rule="trimmed_mean").rule.probes(honest, honest.std(0)[None], 3)
    blind = torch.zeros(3, 10, dtype=torch.float64)
    blind[:, -1] = 4
    assert probes(blind).deviation == 0
    simple = {
        "opt_alie": lambda: mean + supportive(12, 3) * honest.std(0),
        "agr_tailored(direction='std')": lambda: mean - honest.std(0),
    }.get(name, lambda: -mean)()

    def moved(malicious):
        answer = run("trimmed_mean", torch.cat([honest, malicious.expand(3, -1)]), f=3).vector
        return float((answer - mean).norm())

    crafted = fg.craft(load_registry().build("attack", name), honest, f=3, defense="trimmed_mean")
    assert moved(simple) > 0.1
    assert moved(crafted[0]) >= moved(simple) * 0.999


@pytest.mark.parametrize("name", ["opt_alie", "opt_ipm", "gram_search", "agr_tailored"])
def test_a_search_against_a_rule_that_cannot_run_does_not_stop_the_training(name):
    crafted = build(name).craft(view(normal(2, 6), f=4, rule="trimmed_mean"))  # 6 updates of which 4 may be malicious
    assert crafted.shape == (4, 6)
    assert crafted.isfinite().all()
    nobody = view(normal(2, 6)[:0], f=4, rule="trimmed_mean")
    attack = build(name)
    assert not attack.craft(nobody).any()
    assert attack.remember(nobody, attack.craft(nobody)) == {}


def test_who_does_not_know_the_rule_cannot_search():
    with pytest.raises(NotAllowed, match="the server's rule"):
        fg.craft("opt_alie", normal(4, 3), f=1)


# gram_search.


@pytest.mark.parametrize("rule", ["krum", "nnm >> krum", "trimmed_mean", "multi_krum"])
@pytest.mark.parametrize("objective", ["deviation", "progress"])
def test_gram_search_beats_every_simple_attack_at_its_own_objective(rule, objective):
    honest, f = normal(10, 15, 7, center=0.25), 3
    rows = rows_of(honest)
    mu = reference.mean(rows)

    def gain(malicious):
        answer, _ = RULES[rule](rows + malicious, f)
        return reference.norm(minus(answer, mu)) if objective == "deviation" else -dot(answer, mu) / dot(mu, mu)

    simple = [[-tau * m for m in mu] for tau in (0.1, 0.4, 0.8, 1, 1.2, 2, 5, 10, 20, 64)]
    simple += [reference.alie(rows, sign * z) for z in (0.5, 1.5, 4, 8) for sign in (1, -1)]
    simple += [rows[0], rows[5]]
    crafted = fg.craft("gram_search", honest, f=f, defense=rule, objective=objective)
    assert torch.equal(crafted, crafted[:1].expand(f, -1))
    assert gain(rows_of(crafted)) >= max(gain([row] * f) for row in simple) * (1 - 1e-5)


def test_gram_search_gains_by_its_random_combinations():
    better = 0
    for seed in range(4):
        honest = normal(10, 15, seed, center=0.25)
        plain, more = (fg.craft("gram_search", honest, f=3, defense="nnm >> krum", steps=steps) for steps in (0, 80))
        with_plain, with_more = (damage("nnm >> krum", rows_of(honest), rows_of(c)) for c in (plain, more))
        assert with_more >= with_plain * (1 - 1e-5)
        better += with_more > 1.01 * with_plain
    assert better >= 2


def test_gram_search_says_its_strength_in_spreads_and_when_there_is_no_end():
    honest, attack = normal(10, 15, 7, center=0.25), build("gram_search")
    mu = reference.mean(rows_of(honest))
    for rule in ("krum", "mean"):
        seen = view(honest, f=3, rule=rule)
        crafted = attack.craft(seen)
        notes = attack.notes(attack.remember(seen, crafted))
        scale = math.sqrt(fmean(reference.distance_squared(row, mu) for row in rows_of(honest)))
        away = reference.norm(minus(rows_of(crafted)[0], mu)) / scale
        assert notes["strength"] == pytest.approx(away, rel=1e-4)
        assert notes["at_boundary"] == (rule == "mean")


# The choice of a direction.

DIRECTED = pytest.mark.parametrize("name", ["min_max", "min_sum", "agr_tailored"])


def progress(rule, honest, malicious) -> float:
    """``<R, mu> / |mu|^2`` by the loops."""
    mu = reference.mean(honest)
    return dot(RULES[rule](honest + malicious, len(malicious))[0], mu) / dot(mu, mu)


def unlike(seed, h=9, d=24) -> torch.Tensor:
    """Updates that agree a little in every coordinate and differ much more in a third of them: -sigma leads sideways."""
    return normal(h, d, seed, center=0.3) * torch.tensor([4.0, 0.6, 0.6] * (d // 3)) + 0.2


@DIRECTED
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_direction_leaves_the_known_rule_the_least_progress(name, rule, seed):
    honest = unlike(seed)
    ways = {way: fg.craft(name, honest, f=3, defense=rule, direction=way) for way in ("std", "unit", "sign")}
    left = {way: progress(rule, rows_of(honest), rows_of(crafted)) for way, crafted in ways.items()}
    chosen = progress(rule, rows_of(honest), rows_of(fg.craft(name, honest, f=3, defense=rule)))
    assert chosen == pytest.approx(min(left.values()), rel=1e-4, abs=1e-4)


@DIRECTED
def test_the_directions_differ_so_that_a_choice_can_fail(name):
    """The three are not one, each is the best somewhere, and the step that is longest or deviates most is not the choice."""
    best, deviating = set(), 0
    for rule in ("krum", "median", "trimmed_mean", "nnm >> krum"):
        for seed in range(4):
            rows = rows_of(unlike(seed))
            sent = {
                way: rows_of(fg.craft(name, unlike(seed), f=3, defense=rule, direction=way))
                for way in ("std", "unit", "sign")
            }
            left = {way: progress(rule, rows, malicious) for way, malicious in sent.items()}
            moved = {way: damage(rule, rows, malicious) for way, malicious in sent.items()}
            best.add(min(left, key=left.get))
            deviating += max(moved, key=moved.get) != min(left, key=left.get) and max(left.values()) > 0.1 + min(
                left.values()
            )
    assert len(best) >= 2
    assert deviating >= 3


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
@pytest.mark.parametrize("seed", range(4))
def test_who_does_not_know_the_rule_chooses_by_the_mean(name, seed):
    """<b, mu> is all that the mean's progress depends on; the rule is there, and is not read."""
    honest = unlike(seed)
    mu = reference.mean(rows_of(honest))
    blind = view(honest, f=3, rule="krum", sees=Sight.HONEST_UPDATES)
    ways = [dot(rows_of(fg.craft(name, honest, f=3, direction=way))[0], mu) for way in ("std", "unit", "sign")]
    assert dot(rows_of(build(name).craft(blind))[0], mu) == pytest.approx(min(ways), rel=1e-4)


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_a_given_direction_asks_for_no_rule(name):
    assert build(name).needs == (Sight.HONEST_UPDATES | Sight.RULE, *BENIGN_SAMPLE) == type(build(name)).needs
    for direction in ("std", "unit", "sign"):
        assert build(name, direction=direction).needs == BENIGN_SAMPLE
    assert {str(one) for one in build(name, direction="std").siblings()} == {
        f"{name}(direction={other})" for other in ("unit", "sign")
    }


@pytest.mark.parametrize("weights", [(1, 1, 0, 1), (0, 1, 0, 3), (2, 0, 1, 0.5), (0, 0, 0, 1), (1, 0, 0, 0)])
@pytest.mark.parametrize("length", [1.0, 2.5])
def test_a_mixed_step_goes_along_its_mixture_as_far_as_min_max_may(weights, length):
    honest, model = normal(7, 9, 3, center=0.4), normal(1, 9, 5)[0]
    rows, w = rows_of(honest), model.double().tolist()
    mu = reference.mean(rows)
    signs = [math.copysign(1, m) for m in mu]
    parts = list(zip(weights, (mu, signs, sigma(rows), w), strict=True))
    way = [-sum(weight * part[k] / reference.norm(part) for weight, part in parts) for k in range(9)]
    bound = reference.min_max_by_bisection(rows, way)
    expected = [m + length * (b - m) for m, b in zip(mu, bound, strict=True)]
    parameters = dict(zip(("unit", "sign", "std", "back"), weights, strict=True))
    crafted = fg.craft("mixed_step", honest, f=2, model=model, length=length, **parameters)
    assert crafted[1].tolist() == pytest.approx(expected, abs=5e-5)


# agr_tailored, min_sum, fang.


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
def test_agr_tailored_takes_the_largest_step_that_krum_selects(direction):
    honest, f = normal(9, 7, 2, center=0.3), 4
    rows = rows_of(honest)
    mu, spread = reference.mean(rows), sigma(rows)
    way = {"std": spread, "unit": mu, "sign": [math.copysign(1, m) for m in mu]}[direction]
    step = [-w * reference.norm(spread) / reference.norm(way) for w in way]

    def selected(gamma):
        return _krum(rows + [[m + gamma * s for m, s in zip(mu, step, strict=True)]] * f, f)[1] == 1

    low = max(g / 16 for g in range(400) if selected(g / 16))
    high = low + 1 / 16
    for _ in range(30):
        low, high = ((low + high) / 2, high) if selected((low + high) / 2) else (low, (low + high) / 2)
    seen = view(honest, f=f, rule="krum")
    attack = build("agr_tailored", direction=direction)
    notes = attack.notes(attack.remember(seen, attack.craft(seen)))
    assert low > 0.1
    assert notes == {"strength": pytest.approx(low, rel=0.005), "at_boundary": 0}


@pytest.mark.parametrize("seed", [2, 5])
def test_agr_tailored_is_not_content_with_less_than_an_equal_vote(seed):
    """Multi-Krum may let in some of the malicious rows: the largest step at which they make up f/n of the answer, by a scan."""
    honest, f = normal(8, 7, seed, center=0.3), 4
    rows, n = rows_of(honest), 12
    mu, spread = reference.mean(rows), sigma(rows)

    def share(gamma):
        row = [m - gamma * s for m, s in zip(mu, spread, strict=True)]
        scores = reference.krum_scores(rows + [row] * f, f)  # copies of one row share the places that are left to them
        ahead = sum(score < scores[-1] * (1 - 1e-9) for score in scores[:8])
        return min(max(n - f - ahead, 0), f) / (n - f)

    steps = [g / 64 for g in range(1, 640)]
    least, half = (max(g for g in steps if share(g) >= part * f / n) for part in (1, 0.5))
    assert half > least * 1.02  # so that one can be taken for the other
    seen = view(honest, f=f, rule="multi_krum")
    attack = build("agr_tailored", direction="std")
    found = attack.notes(attack.remember(seen, attack.craft(seen)))["strength"]
    assert least - 1e-3 <= found <= least + 1 / 64


def test_agr_tailored_against_a_coordinate_rule_deviates_most_and_against_the_mean_knows_no_end():
    honest = normal(9, 7, 2, center=0.3)
    rows = rows_of(honest)
    crafted = rows_of(fg.craft("agr_tailored", honest, f=3, defense="median", direction="std"))
    grid = [reference.alie(rows, -g / 4) for g in range(1, 60)]
    assert damage("median", rows, crafted) >= max(damage("median", rows, [row] * 3) for row in grid) * (1 - 1e-5)
    seen = view(honest, f=3, rule="mean")
    for direction in ("std", "chosen"):
        attack = build("agr_tailored", direction=direction)
        notes = attack.notes(attack.remember(seen, attack.craft(seen)))
        assert notes == {"strength": pytest.approx(32 * LIMIT, rel=1e-4), "at_boundary": 1}


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
@pytest.mark.parametrize("seed", range(3))
def test_min_sum_agrees_with_the_bisection_of_the_source(direction, seed):
    honest = normal(7, 5, seed)
    rows = rows_of(honest)
    mu = reference.mean(rows)
    p = {
        "std": [-s for s in sigma(rows)],
        "unit": [-m / reference.norm(mu) for m in mu],
        "sign": [-math.copysign(1, m) for m in mu],
    }[direction]
    bound = max(sum(reference.distance_squared(a, b) for b in rows) for a in rows)

    def crafted(gamma):
        return [m + gamma * q for m, q in zip(mu, p, strict=True)]

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        fits = sum(reference.distance_squared(crafted(middle), row) for row in rows) <= bound
        low, high = (middle, high) if fits else (low, middle)
    assert fg.craft("min_sum", honest, f=1, direction=direction)[0].tolist() == pytest.approx(crafted(low), abs=1e-4)


def test_fang_in_coordinate_form_fills_the_intervals_of_the_source():
    """All four: against a rising or a falling coordinate, with the extreme value above or below zero."""
    honest = torch.tensor([[1.0, -3, -2, 4], [2, 5, -4, -9]])
    crafted = fg.craft("fang", honest, f=4000, b=3.0)
    for column, (low, high) in zip(crafted.T, [(1 / 3, 1), (-9, -3), (-2, -2 / 3), (4, 12)], strict=True):
        assert low <= float(column.min()) and float(column.max()) <= high + 1e-6
        assert float(column.mean()) == pytest.approx((low + high) / 2, rel=0.02)
        assert len(column.unique()) > 3000


@pytest.mark.parametrize("start", ["squared", "printed"])
@pytest.mark.parametrize("seed", range(4))
def test_fang_in_krum_form_halves_from_a_bound_until_krum_selects(seed, start):
    h, f, d = 11, 4, 6
    honest = normal(h, d, seed, center=0.3)
    rows, n = rows_of(honest), h + f
    mu = reference.mean(rows)
    s = [math.copysign(1, m) for m in mu]
    near = []
    for i, row in enumerate(rows):
        others = sorted(reference.distance_squared(row, other) for j, other in enumerate(rows) if j != i)
        near.append(sum(o if start == "squared" else math.sqrt(o) for o in others[: n - f - 2]))
    bound = min(near) / ((n - 2 * f - 1) * (d if start == "squared" else math.sqrt(d)))
    strength = (math.sqrt(bound) if start == "squared" else bound) + max(map(reference.norm, rows)) / math.sqrt(d)
    first = strength
    while _krum(rows + [[-strength * q for q in s]] * f, f)[1] == 0:
        strength /= 2
        assert strength > 1e-5
    crafted = rows_of(fg.craft("fang", honest, f=f, form="krum", epsilon=0.001, start=start))
    assert crafted[0] == pytest.approx([-strength * q for q in s], rel=1e-4)
    away = [reference.norm(minus(row, crafted[0])) for row in crafted[1:]]
    assert all(0 < distance <= 0.001 * 1.01 for distance in away)
    assert len(set(away)) == f - 1
    assert _krum(rows + crafted, f)[1] == 1
    assert strength < first


# Attacks with a memory.


def model_rounds(attack, models, honest=None, **facts):
    """What the attack sends in each round, for global models that are given."""
    sent, state = [], {}
    for round, model in enumerate(models, start=1):
        rows = normal(5, len(model), round) if honest is None else honest[round - 1]
        seen = view(rows, state=state, round=round).restrict(
            "test", Sight.HONEST_UPDATES | Sight.MODEL, model=model, **facts
        )
        crafted = attack.craft(seen)
        state = attack.remember(seen, crafted)
        sent.append(crafted)
    return sent, state


def rop(m, mu, ones, angle, z, pi, lamb):
    """The source's crafted gradient, from the last aggregated gradient (None at first) and the mean of the benign ones."""
    u = mu if m is None else [lamb * p + (1 - lamb) * q for p, q in zip(m, mu, strict=True)]
    m = [0.0] * len(mu) if m is None else m
    share = dot(ones, u) / dot(u, u)
    across = [k - share * v for k, v in zip(ones, u, strict=True)]
    sin, cos = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    q = [sin * a / reference.norm(across) + cos * v / reference.norm(u) for a, v in zip(across, u, strict=True)]
    return [pi * a + (1 - pi) * b + z * v for a, b, v in zip(m, mu, q, strict=True)]


def test_rop_is_the_crafted_gradient_of_its_source_as_an_update():
    """An update is minus lr K times a gradient; so is what the attack sends, at every angle and strength."""
    honest = [normal(5, 6, seed, center=0.4) for seed in range(2)]
    models = [normal(1, 6, 8)[0], normal(1, 6, 9)[0]]
    for angle, z, pi, lamb, eta in (
        (270.0, None, 1.0, 0.9, 1.0),
        (90.0, 2.0, 0.3, 0.5, 0.06),
        (180.0, 0.7, 1.0, 0.9, 3.0),
    ):
        attack = build("rop", angle=angle, z=z, pi=pi, lamb=lamb)
        sent, _ = model_rounds(attack, models, honest, server_lr=0.5, local_lr=eta)
        for round in range(2):
            mu = [-v / eta for v in reference.mean(rows_of(honest[round]))]
            moved = [-(b - a) / 0.5 / eta for a, b in zip(*map(torch.Tensor.tolist, models), strict=True)]
            b = rop(moved if round else None, mu, [1.0] * 6, angle, z or supportive(7, 2), pi, lamb)
            assert sent[round][1].tolist() == pytest.approx([-eta * v for v in b], abs=1e-5)


def test_rop_at_270_degrees_raises_all_parameters_as_its_source_does():
    """Beside updates that all but cancel, what it sends is z times lr K along all-ones, upwards."""
    honest = torch.tensor([[1e-3, -1e-3, 1e-3, -1e-3]]).expand(4, -1)
    sent, _ = model_rounds(build("rop", angle=270), [torch.zeros(4)], [honest], local_lr=0.2)
    assert sent[0][0].tolist() == pytest.approx([0.2 / 2] * 4, abs=1e-6)


@pytest.mark.parametrize("by_layer", [False, True])
def test_hybrid_sparse_hits_all_biases_and_the_salient_weights_and_keeps_its_mask(by_layer):
    """Weights of 24 and 8, of which the second are larger; biases of 6 and 2. A fifth of 32 are 7, of each by itself 5 and 2."""
    attack = build("hybrid_sparse", share=0.2, strong=5.0, z=0.1, by_layer=by_layer)
    honest = [normal(5, 40, seed, center=0.4) for seed in range(2)]
    models = [normal(1, 40, 8)[0], normal(1, 40, 9)[0]]
    models[0][30:38] *= 100
    models[0][24:30] = 0  # as biases are at first, which have no saliency
    sent, _ = model_rounds(attack, models, honest, layers=(24, 6, 8, 2), ranks=(2, 1, 4, 1))
    mu = reference.mean(rows_of(honest[0]))
    saliency = [abs(w * m) for w, m in zip(models[0].tolist(), mu, strict=True)]
    masked = {*range(24, 30), 38, 39}
    for weights in [range(24), range(30, 38)] if by_layer else [[*range(24), *range(30, 38)]]:
        masked |= set(sorted(weights, key=lambda k: -saliency[k])[: math.ceil(0.2 * len(weights))])
    assert len(masked & {*range(24)}) == (5 if by_layer else 0) and len(masked) == 8 + 7
    for round in range(2):
        rows = rows_of(honest[round])
        weak, strong = reference.alie(rows, -0.1), reference.alie(rows, -5.0)
        expected = [strong[k] if k in masked else weak[k] for k in range(40)]
        assert sent[round][0].tolist() == pytest.approx(expected, abs=1e-4)


def test_an_attack_knows_which_parameters_are_biases():
    """Weights have two dimensions here, and biases one."""
    told = []

    class Curious(PoisonAttack):
        name, needs = "curious", (Sight.NOTHING,)

        def craft(self, view):
            told.append(dict(zip(view.layers, view.ranks, strict=True)))
            return torch.zeros(view.f, view.dim)

    setup = set_up(
        deal("mlp(hidden=(5,))", "iid", clients=4), Training(rounds=1), attack=Curious(), malicious=(2,), told=1
    )
    list(Server().run(setup))
    assert told == [{64 * 5: 2, 5: 1, 5 * 10: 2, 10: 1}]


def test_poisoned_fl_follows_the_loop_of_its_source():
    d, every = 30, 3
    models = [m.double() for m in normal(9, d, 5).cumsum(0)]
    attack = build("poisoned_fl", scale=4.0, every=every, decay=0.7, least=2.5, doubt=0.05)
    sent, state = model_rounds(attack, [m.float() for m in models], server_lr=0.5)
    s, c, k, tested, scales = state["signs"].tolist(), 4.0, None, models[0].tolist(), []
    assert set(s) == {-1.0, 1.0}
    assert not sent[0].any()
    needed = d / 2 + 1.6448536 * math.sqrt(d) / 2
    for t in range(1, 9):
        g = [(b - a) / 0.5 for a, b in zip(models[t - 1].tolist(), models[t].tolist(), strict=True)]
        length = reference.norm(g)
        k = sent[t - 1][0].double().tolist()
        of_k = reference.norm(k) or 1.0
        size = [abs(a - length * b / of_k) for a, b in zip(g, k, strict=True)]
        if t % every == 0:
            aligned = sum((b - a) * q > 0 for a, b, q in zip(tested, models[t].tolist(), s, strict=True))
            c = c if aligned > needed or c * 0.7 < 2.5 else 0.7 * c
            tested = models[t].tolist()
        scales.append(c)
        expected = [c * length * v / reference.norm(size) * q for v, q in zip(size, s, strict=True)]
        assert sent[t][1].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert len(set(scales)) == 2  # it fell once, and then stood at its floor
    assert attack.notes(state) == {"scale": pytest.approx(2.8)}


def test_poisoned_fl_keeps_its_scale_while_the_model_goes_its_way():
    attack = build("poisoned_fl", every=2)
    first = view(normal(4, 200)).restrict("test", Sight.MODEL)
    state = attack.remember(first, attack.craft(first))
    for round in range(2, 8):
        model = (round - 1) * state["signs"]
        seen = view(normal(4, 200), state=state, round=round).restrict("test", Sight.MODEL, model=model)
        crafted = attack.craft(seen)
        state = attack.remember(seen, crafted)
        assert bool((crafted[0] * state["signs"] >= 0).all())
    assert attack.notes(state) == {"scale": 8.0}


@pytest.mark.parametrize(("with_it", "expected"), [(59, 8.0), (58, 5.6)])
def test_poisoned_fl_asks_whether_more_coordinates_moved_its_way_than_chance_would_move(with_it, expected):
    """Of 100 coordinates 50 + 1.6449 * 5 = 58.2 must, in the rounds since the last test; those that stood still count half."""
    attack = build("poisoned_fl", every=2, doubt=0.05)
    model, state = torch.zeros(100), {}
    for round in range(1, 6):
        seen = view(normal(4, 100), state=state, round=round).restrict("test", Sight.MODEL, model=model)
        state = attack.remember(seen, attack.craft(seen))
        move = state["signs"].clone()
        if (
            round == 3
        ):  # the third and fourth change make the second window; the first one went all its way, and further
            move[with_it:] *= -1
            move[0] = 0  # stands still: half of it counts, so 58 make 57.5 and 59 make 58.5
        model = model + move * (10 if round < 3 else 1 if round == 3 else 0)
    assert attack.notes(state)["scale"] == pytest.approx(expected)


def test_delta_weights_sends_the_last_change_of_the_model():
    models = [torch.tensor([0.0, 1]), torch.tensor([1.0, 3]), torch.tensor([1.0, 2])]
    sent, state = model_rounds(build("delta_weights"), models, server_lr=0.5)
    assert [rows.tolist() for rows in sent] == [[[0, 0]] * 2, [[2, 4]] * 2, [[0, -2]] * 2]
    late = view(normal(3, 2), state=state, round=7).restrict("test", Sight.MODEL, model=torch.tensor([9.0, 2]))
    assert build("delta_weights").craft(late)[0].tolist() == [2, 0]  # the mean change of four rounds
    noisy = build("delta_weights", noise=0.5).craft(view(normal(3, 20_000)))
    assert float(noisy.std()) == pytest.approx(0.5, abs=0.01)
    assert not torch.equal(noisy[0], noisy[1])


def test_free_riders_disguise_fades_as_a_power_of_the_round():
    rider = build("free_rider", noise=2.0, decay=0.5)
    for round in (1, 4, 16):
        noise = rider.craft(view(normal(2, 20_000), round=round))
        assert float(noise.std()) == pytest.approx(2 / math.sqrt(round), rel=0.03)


# Attacks on filters.


@pytest.mark.parametrize("seed", range(4))
def test_cge_adaptive_is_kept_among_the_shortest(seed):
    honest, f = normal(9, 6, seed), 3
    rows = rows_of(honest)
    crafted = rows_of(fg.craft("cge_adaptive", honest, f=f))
    norms = [reference.norm(row) for row in rows + crafted]
    kept = sorted(range(12), key=lambda i: norms[i])[: 12 - f]
    assert {9, 10, 11} <= set(kept)
    assert norms[9] > sorted(norms[:9])[5]  # more than the six shortest honest ones: as long as may be
    mu = reference.mean(rows)
    assert dot(crafted[0], mu) == pytest.approx(-norms[9] * reference.norm(mu), rel=1e-5)


def test_cge_adaptive_with_a_majority_stays_below_every_honest_update():
    honest = normal(3, 6)
    assert float(fg.craft("cge_adaptive", honest, f=5)[0].norm()) < float(honest.norm(dim=1).min())


@pytest.mark.parametrize("seed", range(4))
def test_sign_guard_adaptive_reverses_all_that_the_signs_allow(seed):
    """Against every other way to deal out as many signs, on few enough coordinates to try them all."""
    honest = normal(5, 7, seed, center=0.4)
    honest[honest.abs() < 0.1] = 0
    rows = rows_of(honest)
    mu = reference.mean(rows)
    crafted = rows_of(fg.craft("sign_guard_adaptive", honest, f=2, parts=1))[1]
    positive = int(median(sum(v > 0 for v in row) for row in rows))
    negative = min(int(median(sum(v < 0 for v in row) for row in rows)), 7 - positive)
    assert (sum(v > 0 for v in crafted), sum(v < 0 for v in crafted)) == (positive, negative)
    assert reference.norm(crafted) == pytest.approx(median(map(reference.norm, rows)), rel=1e-5)
    scale = max(abs(v) for v in crafted) / max(abs(m) for m, v in zip(mu, crafted, strict=True) if v)
    assert [abs(v) for v in crafted if v] == pytest.approx(
        [scale * abs(m) for m, v in zip(mu, crafted, strict=True) if v], rel=1e-4
    )
    least = min(
        dot([q * abs(m) for q, m in zip(signs, mu, strict=True)], mu)
        for signs in itertools.product((-1, 0, 1), repeat=7)
        if (signs.count(1), signs.count(-1)) == (positive, negative)
    )
    assert dot(crafted, mu) == pytest.approx(scale * least, rel=1e-4, abs=1e-5)


def test_sign_guard_adaptive_looks_honest_in_every_run_of_coordinates():
    """Ten runs of four: those whose honest values are all positive stay so, in the others signs are dealt out the other way."""
    honest = normal(5, 40, 3, spread=0.3, center=0.0)
    honest[:, :12] = honest[:, :12].abs()
    crafted = fg.craft("sign_guard_adaptive", honest, f=2, parts=10)[0]
    for first in range(0, 40, 4):
        run, rows = crafted[first : first + 4].tolist(), rows_of(honest[:, first : first + 4])
        positive = int(median(sum(v > 0 for v in row) for row in rows))
        assert sum(v > 0 for v in run) == positive
        mu = reference.mean(rows)
        assert {k for k in range(4) if run[k] > 0} == set(sorted(range(4), key=lambda k: mu[k])[:positive])
    whole = fg.craft("sign_guard_adaptive", honest, f=2, parts=1)[0]
    assert (whole[:12] < 0).any() and not (crafted[:12] < 0).any()


def test_sybils_send_one_update_many_times():
    own = normal(4, 9)
    crafted = build("sybil", scale=3.0, decorrelated=False).craft(view(normal(6, 9), f=4, own=own))
    assert torch.allclose(crafted, 3 * own.mean(0).expand(4, -1))
    labels = build("sybil").poison(Examples(torch.zeros(3, 1), torch.tensor([0, 4, 9])), data_view()).y
    assert labels.tolist() == [9, 5, 0]


def test_decorrelated_sybils_are_orthogonal_in_every_round_and_over_all_rounds_and_lose_nothing():
    attack, state, total = build("sybil"), {}, torch.zeros(5, 300)
    drift = normal(1, 300, 1)
    for round in range(1, 9):
        own = drift + normal(5, 300, round + 50, spread=0.3, center=0.0)
        seen = view(normal(6, 300), f=5, own=own, state=state, round=round)
        crafted = attack.craft(seen)
        state = attack.remember(seen, crafted)
        assert torch.allclose(crafted.mean(0), own.mean(0), atol=1e-4)
        cosines = torch.nn.functional.cosine_similarity(crafted[:, None], crafted[None], dim=2)
        assert float((cosines - torch.eye(5)).abs().max()) < 1e-3
        total += crafted
    cosines = torch.nn.functional.cosine_similarity(total[:, None], total[None], dim=2)
    assert float((cosines - torch.eye(5)).abs().max()) < 0.1
    few = build("sybil", decorrelated=True).craft(view(normal(6, 3), f=5, own=normal(5, 3)))
    assert few.isfinite().all()
    assert torch.allclose(few.mean(0), normal(5, 3).mean(0), atol=1e-5)


# Plain ones.


def test_random_updates_are_uniform_and_each_colluder_draws_its_own():
    sent = fg.craft("random_update", normal(2, 30_000), f=2, scale=2.0)
    assert float(sent.abs().max()) <= 2
    assert float(sent.std()) == pytest.approx(2 / math.sqrt(3), rel=0.02)
    assert float((sent.abs() < 1).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert not torch.equal(sent[0], sent[1])


def test_zeros_and_infinity():
    assert not fg.craft("zeros", normal(2, 5), f=3).any()
    assert bool((fg.craft("infinity", normal(2, 5), f=3) == math.inf).all())


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("fang(b=1)", "fang: b: expected more than 1"),
        ("fang(epsilon=-1)", "fang: epsilon"),
        ("fang(threshold=0)", "fang: threshold"),
        ("rop(z=0)", "rop: z"),
        ("rop(pi=2)", "rop: pi"),
        ("rop(lamb=-1)", "rop: lamb"),
        ("hybrid_sparse(share=0)", "hybrid_sparse: share"),
        ("poisoned_fl(scale=0)", "poisoned_fl: scale"),
        ("poisoned_fl(every=0)", "poisoned_fl: every"),
        ("poisoned_fl(decay=0)", "poisoned_fl: decay"),
        ("poisoned_fl(least=-1)", "poisoned_fl: least"),
        ("poisoned_fl(doubt=1)", "poisoned_fl: doubt"),
        ("cge_adaptive(margin=0)", "cge_adaptive: margin"),
        ("random_update(scale=0)", "random_update: scale"),
        ("sybil(scale=0)", "sybil: scale"),
        ("gram_search(steps=-1)", "gram_search: steps"),
        ("delta_weights(noise=-1)", "delta_weights: noise"),
        ("free_rider(decay=-1)", "free_rider: decay"),
        ("mixed_step(back=-1)", "mixed_step: back: expected at least 0"),
        ("mixed_step(unit=0, sign=0, back=0)", "not all 0"),
        ("mixed_step(length=0)", "mixed_step: length: expected more than 0"),
    ],
)
def test_wrong_parameters_are_refused(attack, message):
    with pytest.raises(ConfigError, match=message):
        load_registry().build("attack", attack)
