"""The kappa-meter: what it must find, what it must not claim, and broken rules that it unmasks."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

import fedguard as fg
import tests.reference as reference
from fedguard.contracts import ROWS, CoordinateRule, MatrixRule, Pipeline, WeightRule
from fedguard.errors import ConfigError, GuaranteeWarning, InputError, NotAllowed, PreconditionError, UnknownName
from fedguard.robustness.kappa import ratio
from fedguard.robustness.shapes import perturb_rows, shapes
from tests.forked import fedguard


def ratio_by_hand(answer: list[float], rows: list[list[float]], honest: tuple[int, ...]) -> float:
    """|R - mean_S|^2 / mean_{i in S} |x_i - mean_S|^2, as the definition stands."""
    d, h = len(rows[0]), len(honest)
    mean = [sum(rows[i][k] for i in honest) / h for k in range(d)]
    spread = sum((rows[i][k] - mean[k]) ** 2 for i in honest for k in range(d)) / h
    return sum((answer[k] - mean[k]) ** 2 for k in range(d)) / spread


LOOPS = {
    "trimmed_mean": reference.trimmed_mean,
    "median": reference.median,
    "krum": reference.krum,
    "nnm >> trimmed_mean": lambda rows, f: reference.trimmed_mean(reference.nnm(rows, f), f),
}


@pytest.mark.parametrize(
    ("rule", "known", "effort"),
    [("trimmed_mean", 1 / 3, 0.02), ("median", 9 / 7, 0.02), ("krum", 2.5, 0.05), ("nnm >> trimmed_mean", 4 / 3, 0.15)],
)
def test_finds_what_is_known_and_the_witness_proves_it(rule, known, effort):
    found = fg.kappa(rule, n=20, f=4, effort=effort)
    assert known * 0.98 <= found.value <= found.upper_bound
    rows, honest = found.witness
    assert rows.dtype == torch.float32
    assert len(honest) == 16
    values = rows.double().tolist()
    assert ratio_by_hand(LOOPS[rule](values, 4), values, honest) == pytest.approx(found.value, rel=0.01)


def test_krum_selects_the_colluders_across_from_a_crowd():
    """By hand: eleven honest rows on a simplex, five in a place on one side of it, four malicious clients on the other side.

    The malicious clients, at t^2 = 15 / 7, have the eleven and each other for neighbors: 11 (1 + t^2) = 10 * 2.2 + 4 (1 +
    t^2), the score of a row on the simplex; the five, at a little more than t, score worse.
    """
    rows = np.zeros((20, 12))
    rows[:11, :11] = np.eye(11) - 1 / 11
    rows[:11] /= np.linalg.norm(rows[0])
    rows[11:16, 11], rows[16:, 11] = -1.58, (15 / 7) ** 0.5 - 1e-3
    values = rows.tolist()
    assert ratio_by_hand(reference.krum(values, 4), values, tuple(range(16))) > 3.1
    assert fg.aggregate("krum", rows, f=4)[11] > 1.4


@pytest.mark.slow
def test_finds_what_is_known_of_multi_krum():
    found = fg.kappa("multi_krum")
    assert found.value >= 1.31 * 0.98
    assert found.upper_bound is None
    assert "no bound is published" in found.verdict


def test_the_trimmed_mean_meets_the_lower_bound_for_any_n_and_f():
    for n, f in ((5, 1), (9, 4), (11, 3), (3, 1)):
        found = fg.kappa("trimmed_mean", n=n, f=f, effort=0.02)
        assert found.lower_bound == f / (n - 2 * f)
        assert found.value == pytest.approx(found.lower_bound, rel=1e-3)
        assert "meets the lower bound" in found.verdict


@pytest.mark.parametrize("rule", ["median", "krum", "multi_krum", "nnm >> median", "bucketing(size=1) >> median"])
@pytest.mark.parametrize(("n", "f"), [(7, 1), (11, 4)])
def test_no_rule_is_below_the_lower_bound(rule, n, f):
    found = fg.kappa(rule, n=n, f=f, effort=0.01)
    assert found.value >= f / (n - 2 * f) * 0.999
    assert "impossible" not in found.verdict


@pytest.mark.parametrize("rule", ["mean", "weighted_mean", "nnm >> mean", "bucketing >> mean", "centered_clipping"])
def test_what_is_not_robust_is_unbounded(rule):
    found = fg.kappa(rule, effort=0.1)
    assert math.isinf(found.value)
    assert "grows without bound" in str(found)
    assert found.evaluations < 500


# Planted faults: each is a small slip in a rule that is sound.


class TrimsOneTooFew(CoordinateRule):
    name, needs = "trims_one_too_few", ROWS

    def reduce(self, block, context):
        return block.sort(dim=0).values[context.f - 1 : len(block) - context.f + 1].mean(0)


class TakesRowZero(CoordinateRule):
    name, needs = "takes_row_zero", ROWS

    def reduce(self, block, context):
        return block[0].clone()


class NearestToZero(WeightRule):
    """Selects, but by length instead of distance."""

    name, needs = "nearest_to_zero", ROWS

    def weights(self, gram, context):
        return torch.nn.functional.one_hot(gram.norms().argmin(), gram.n).double()


class UncenteredKrum(MatrixRule):
    """Krum with |x|^2 + |y|^2 - 2xy in float32, which loses close rows that are far from 0."""

    name, needs = "uncentred_krum", ROWS

    def combine(self, updates, context):
        square = updates.square().sum(1)
        squared = (square[:, None] + square[None] - 2 * updates @ updates.T).clamp(min=0).fill_diagonal_(0)
        scores = squared.sort(dim=1).values[:, : len(updates) - context.f - 1].sum(1)
        return updates[scores.argmin()].clone()


class UpperMedian(CoordinateRule):
    """The upper of the middle two: another median, and as robust."""

    name, needs = "upper_median", ROWS

    def reduce(self, block, context):
        return block.sort(dim=0).values[len(block) // 2]


class BoastingMedian(UpperMedian):
    name = "boasting_median"

    def kappa(self, n, f):
        return 0.5


class BoastingMean(WeightRule):
    name, needs = "boasting_mean", ROWS

    def weights(self, gram, context):
        return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)

    def kappa(self, n, f):
        return 2.0


@pytest.mark.parametrize("rule", [TrimsOneTooFew, TakesRowZero, NearestToZero])
def test_a_broken_rule_is_unbounded(rule):
    found = fg.kappa(Pipeline((rule(),)), effort=0.1)
    assert math.isinf(found.value)
    rows, honest = found.witness
    values = rows.double()
    spread = (values[list(honest)] - values[list(honest)].mean(0)).square().sum(1).mean()
    answer = fg.aggregate(Pipeline((rule(),)), rows, f=4).double()
    assert (answer - values[list(honest)].mean(0)).square().sum() > 1e5 * spread


def test_krum_without_centring_is_found_out():
    broken, sound = (fg.kappa(rule, effort=0.04) for rule in (Pipeline((UncenteredKrum(),)), "krum"))
    assert broken.value > 10 * sound.value


def test_another_median_is_no_fault():
    assert 9 / 7 * 0.98 <= fg.kappa(Pipeline((UpperMedian(),)), effort=0.1).value < 3


def test_a_bound_that_does_not_hold_is_called_out():
    found = fg.kappa(Pipeline((BoastingMedian(),)), effort=0.1)
    assert found.verdict.startswith("above the published bound 0.5: the rule as it is written here is broken")
    found = fg.kappa(Pipeline((BoastingMean(),)), effort=0.1)
    assert "the published bound is 2; so the rule as it is written here is broken" in str(found)


# Edges.


def test_without_malicious_updates():
    assert fg.kappa("mean", n=6, f=0, effort=0.01).value == 0
    assert fg.kappa("trimmed_mean", n=6, f=0, effort=0.01).value == 0
    selects = fg.kappa("krum", n=6, f=0, effort=0.01)
    assert 0.1 < selects.value < 5
    assert selects.lower_bound == 0
    assert fg.kappa("median", n=1, f=0, effort=0.01).value == 0


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(PreconditionError, match=r"kappa is defined for n >= 2f \+ 1, with f = 4: 9 updates; got n = 8"):
        fg.kappa("mean", n=8, f=4)
    with pytest.raises(PreconditionError, match="bulyan needs"):
        fg.kappa("bulyan", n=12, f=4)
    with pytest.raises(NotAllowed, match="fltrust needs"):
        fg.kappa("fltrust")
    with pytest.raises(ConfigError, match="ends without a rule"):
        fg.kappa("nnm")
    with pytest.raises(UnknownName):
        fg.kappa("krumm")
    for wrong in ({"n": 0, "f": 0}, {"f": -1}, {"effort": 0.0}, {"effort": math.nan}):
        with pytest.raises(InputError, match="kappa: "):
            fg.kappa("median", **wrong)


def test_a_published_bound_does_not_count_where_it_is_not_proven():
    with pytest.warns(GuaranteeWarning, match="krum needs n >= 2f"):
        found = fg.kappa("krum", n=7, f=3, effort=0.05)
    assert found.upper_bound is None
    assert math.isinf(found.value)  # three malicious clients in one place have the n - f - 2 = 2 nearest neighbors


def test_the_seed_decides():
    first, again, other = (fg.kappa("median", effort=0.02, seed=seed) for seed in (1, 1, 2))
    assert first.value == again.value
    assert torch.equal(first.witness[0], again.witness[0])
    assert first.witness[1] == again.witness[1]
    assert not torch.equal(first.witness[0], other.witness[0])


def test_parameters_of_a_rule():
    assert fg.kappa("geometric_median", nu=0.5, steps=3, effort=0.03).rule == "geometric_median(steps=3, nu=0.5)"


# Parts.


def test_the_ratio():
    rows = np.array([[0.0, 0], [2, 0], [100, 100]])
    honest = np.array([True, True, False])
    assert ratio(rows, honest, np.array([3.0, 0])) == pytest.approx(4, rel=1e-2)  # (3 - 1)^2 / 1
    same = np.array([[5.0], [5.0], [7.0]])
    assert ratio(same, honest, np.array([5.0 + 1e-6])) == 0  # rounding
    assert ratio(same, honest, np.array([5.1])) == math.inf


def test_the_ratio_after_each_swap():
    from fedguard.robustness.kappa import _after_swaps

    draw = np.random.default_rng(0)
    rows, answer = draw.normal(size=(7, 3)), draw.normal(size=3)
    inside, outside = np.array([0, 2, 3, 5, 6]), np.array([1, 4])
    values = _after_swaps(rows, inside, outside, answer)
    for (i, out), (j, into) in itertools.product(enumerate(inside), enumerate(outside)):
        kept = (*(set(inside.tolist()) - {int(out)}), int(into))
        assert values[i, j] == pytest.approx(ratio_by_hand(answer.tolist(), rows.tolist(), kept), rel=1e-9)


def test_shapes_have_the_rows_they_should_and_are_of_many_kinds():
    draw = np.random.default_rng(0)
    for h, f in ((16, 4), (3, 1), (2, 0), (1, 0)):
        kinds = set()
        for kind, honest, malicious in itertools.islice(shapes(h, f, draw), 240):
            kinds.add(kind)
            assert honest.shape[0] == h
            assert malicious.shape == (f, honest.shape[1])
            assert np.isfinite(honest).all()
            assert np.isfinite(malicious).all()
            rows = np.concatenate([honest, malicious])
            assert perturb_rows(rows, np.arange(h + f) < h, 0.5, draw).shape == rows.shape
        assert len(kinds) >= (30 if h == 16 else 22)


# The command.


def command(*arguments, cwd, code=0):
    done = fedguard("kappa", *arguments, cwd=cwd, columns=80)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_command(tmp_path):
    said = command("median", "-n", "9", "-f", "2", "--effort", "0.02", cwd=tmp_path).stdout.replace("\n", " ")
    assert said.startswith("median, n = 9, f = 2: kappa at least ")
    assert "--json prints it" in said
    assert "kappa is defined for n >= 2f + 1" in command("mean", "-n", "8", cwd=tmp_path, code=2).stderr


def test_the_command_with_a_rule_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fedguard.contracts import ROWS, CoordinateRule\nclass Mine(CoordinateRule):\n    'Takes row 0.'\n"
        "    name, needs = 'mine', ROWS\n    def reduce(self, block, context):\n        return block[0].clone()\n"
    )
    said = json.loads(command("mine", "--plugin", "mine", "--json", cwd=tmp_path).stdout)
    assert said["kappa"] is None
    assert said["unbounded"] is True
    assert said["lower_bound"] == pytest.approx(1 / 3)
    assert len(said["witness"]["updates"]) == 20
    assert len(said["witness"]["honest"]) == 16
