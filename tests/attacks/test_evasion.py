"""Attacks at test time: against closed forms of linear models, within their bounds, and beside poisoning in a suite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import fedguard as fg
from fedguard.api import lay_out
from fedguard.attacks.evasion.gradients import ascent
from fedguard.contracts import EvasionAttack, Examples
from fedguard.errors import ConfigError, ContractError, NotAllowed
from fedguard.metrics.evasion import measure_evasion
from fedguard.registry import load_registry
from fedguard.rng import Rng

WIDE, UNIT = (-100.0, 100.0), (0.0, 1.0)
NAMES = ["fgsm", "pgd", "pgd(steps=1, starts=1)"]


def task(weights: torch.Tensor, value_range: tuple[float, float]) -> SimpleNamespace:
    """A linear model W x of two classes, as far as `measure_evasion` looks at a task."""
    return SimpleNamespace(
        predictor=lambda _: lambda model, x: x.flatten(1) @ model.view_as(weights).T, value_range=value_range
    )


def plane(n: int = 400, d: int = 12) -> tuple[torch.Tensor, Examples]:
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(2, d, generator=generator)
    x = torch.randn(n, 1, 3, d // 3, generator=generator)
    noise = torch.randn(n, 2, generator=generator)
    return weights, Examples(x, (x.flatten(1) @ weights.T + noise).argmax(1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("norm", "order"), [("linf", 1), ("l2", 2)])
def test_a_linear_model_holds_where_its_margin_is_beyond_the_dual_norm(name, norm, order):
    """$min_z (w_y - w_k)(z) = margin - eps |w_y - w_k|_*$: l1 is the dual of linf, and l2 of itself."""
    weights, test = plane()
    attack = load_registry().build(
        "evasion", f"{name.rstrip(')')}{', ' if '(' in name else '('}norm='{norm}', eps=0.002)"
    )
    scores = test.x.flatten(1) @ weights.T
    margin = scores.gather(1, test.y[:, None]) - scores.gather(1, 1 - test.y[:, None])
    holds = margin[:, 0] > 0.4 * torch.linalg.vector_norm(weights[0] - weights[1], order)
    found = measure_evasion(attack, task(weights, WIDE), test, weights.flatten(), Rng(0))
    assert found["clean"] == pytest.approx((margin > 0).double().mean().item())
    assert found["accuracy"] == pytest.approx(holds.double().mean().item(), abs=0.003)
    assert 0.1 < found["accuracy"] < found["clean"] - 0.1
    assert found["examples"] == len(test) and found["attack"] == str(attack)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_range_of_values_is_kept_and_helps_the_model(norm):
    """With inputs in [0, 1] the best change of each coordinate under linf is known: to the bound, or to the end of the range."""
    weights, test = plane()
    inside = test.replace(x=test.x.sigmoid().round())  # corners of the cube, from which half of all steps lead out
    free, bound = (
        measure_evasion(
            load_registry().build("evasion", spec), task(weights, given), inside, weights.flatten(), Rng(0)
        )["accuracy"]
        for spec, given in ((f"pgd(norm='{norm}', eps=0.001)", WIDE), (f"pgd(norm='{norm}', eps=0.2)", UNIT))
    )
    assert bound > free + 0.02
    if norm == "linf":
        toward = (weights[1 - inside.y] - weights[inside.y]).view_as(inside.x).sign()
        worst = (inside.x + 0.2 * toward).clamp(0, 1).flatten(1) @ weights.T
        right = (worst.argmax(1) == inside.y) & ((inside.x.flatten(1) @ weights.T).argmax(1) == inside.y)
        assert bound == pytest.approx(right.double().mean().item(), abs=0.003)


def test_the_further_starts_of_pgd_lie_anywhere_in_the_cube():
    """Uniform in each coordinate, above the input and below it, and another place for each start and each input."""
    x, asked = torch.full((300, 1, 2, 4), 0.5), []

    def logits(z):
        asked.append(z.detach().flatten(1))
        return z.flatten(1)[:, :2]

    attack = load_registry().build("evasion", "pgd(eps=0.1, steps=1, starts=4)")
    attack.perturb(logits, x, torch.zeros(300).long(), UNIT, Rng(0))
    first, *others = asked[::2]  # each start is looked at, and then its one step
    assert torch.equal(first, x.flatten(1)) and len(others) == 3
    for start in others:
        place = (start - 0.5) / 0.1
        assert float(place.abs().max()) <= 1 + 1e-5
        assert float(place.mean(0).abs().max()) < 4 / math.sqrt(3 * 300)  # four standard errors
        assert float(place.std()) == pytest.approx(1 / math.sqrt(3), rel=0.03)
        assert float(torch.corrcoef(place.T).sub(torch.eye(8)).abs().max()) < 0.25
    together = torch.stack([start.flatten() for start in others])
    assert float(torch.corrcoef(together).sub(torch.eye(3)).abs().max()) < 0.1


@dataclass(frozen=True, kw_only=True)
class Careless(EvasionAttack):
    """Does what it must not."""

    name = "careless"
    how: str

    def perturb(self, logits, x, y, value_range, rng):
        if self.how == "in place":
            return x.add_(0.01)
        if self.how == "not a number":
            return x * math.nan
        return {"too far": x + 0.102, "out of the range": x - 0.05, "another shape": x[:1]}[self.how]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("too far", r"a change of 0\.102, beyond 0\.1"),
        ("out of the range", "inputs beyond the range of values, 0 to 1"),
        ("in place", "changed the inputs in place"),
        ("not a number", "a change of nan, beyond"),
        ("another shape", "perturb"),
    ],
)
def test_an_attack_that_cheats_is_named(how, said):
    weights, test = plane()
    test = test.replace(x=test.x.sigmoid().round() * 0.5)
    with pytest.raises(ContractError, match=f"careless.*{said}"):
        measure_evasion(Careless(how=how, eps=0.1), task(weights, UNIT), test, weights.flatten(), Rng(0))


@dataclass(frozen=True, kw_only=True)
class Helpful(EvasionAttack):
    """Moves inputs to where the model is right."""

    name = "helpful"

    def perturb(self, logits, x, y, value_range, rng):
        return self.within(x - self.radius(value_range) * self.uphill(ascent(logits, x, y)[1]), x, value_range)


def test_what_was_wrong_before_the_change_stays_wrong():
    weights, test = plane()
    found = measure_evasion(Helpful(eps=0.1), task(weights, WIDE), test, weights.flatten(), Rng(0))
    assert found["accuracy"] == found["clean"] < 0.95


SUITE = {
    "name": "tested",
    "task": {"model": "mlp(hidden=(16,))"},
    "clients": {"total": 6, "malicious": 1},
    "training": {"rounds": 4, "lr": 0.2},
    "seeds": 1,
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean"]},
}


def test_poisoning_and_evasion_stand_side_by_side(tmp_path):
    found = []
    for number, spec in enumerate(("fgsm(eps=0.05)", "pgd(eps=0.05)", {"name": "pgd", "eps": 0.15})):
        run = fg.run({**SUITE, "evaluation": {"evasion": spec}}, store=tmp_path, name=str(number), jobs=1)
        told = {record["threat_card"]["attack"]: record["result"]["evasion"] for record in run.records.values()}
        rows = {row["attack"]: row["evasion_accuracy"] for row in run.rows()}
        assert rows == {"none": told[None]["accuracy"], "sign_flip": told["sign_flip"]["accuracy"]}
        found.append(told)
    quick, slow, far = found
    for attack in (None, "sign_flip"):
        assert len({one[attack]["clean"] for one in found}) == 1  # the same model
        assert far[attack]["accuracy"] < slow[attack]["accuracy"] - 0.05
        assert slow[attack]["accuracy"] <= quick[attack]["accuracy"] < quick[attack]["clean"] - 0.05


def test_a_cell_is_another_one_under_an_attack_at_test_time_and_the_same_one_without():
    plain = [cell.id for cell in lay_out(SUITE)[1].cells]
    assert [cell.id for cell in lay_out({**SUITE, "evaluation": {"every": 1}})[1].cells] == plain
    changed = [cell.id for cell in lay_out({**SUITE, "evaluation": {"evasion": "pgd"}})[1].cells]
    assert not {*plain} & {*changed}
    assert [cell.id for cell in lay_out({**SUITE, "evaluation": {"evasion": "pgd(eps=0.1)"}})[1].cells] == changed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"task": {"data": "python_topics", "model": "transformer(width=8, heads=1, layers=1)"}},
            "tokens by number",
        ),
        ({"training": {"algorithm": "fedper", "rounds": 1}}, "under fedper there is one for each client"),
    ],
)
def test_what_has_no_one_model_or_no_small_changes_is_refused(changes, said, tmp_path):
    with pytest.raises(NotAllowed, match=said):
        fg.run({**SUITE, **changes, "evaluation": {"evasion": "pgd"}}, store=tmp_path, jobs=1)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("pdg", "evaluation.evasion: unknown evasion 'pdg'. Did you mean 'pgd'"),
        ("pgd(eps=0)", "evaluation.evasion: .*eps: .*got 0"),
        ("pgd(norm='l1')", "evaluation.evasion: .*norm"),
        ("sign_flip", "unknown evasion 'sign_flip'. Expected one of: fgsm, pgd"),
    ],
)
def test_mistakes_are_one_line(spec, said):
    with pytest.raises(ConfigError, match=said) as refused:
        lay_out({**SUITE, "evaluation": {"evasion": spec}})
    assert "\n" not in str(refused.value)
