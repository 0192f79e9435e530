"""Property inference: does a client hold a class? Clients with labels of their own mix, and an attacker with clean data."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedguard.attacks.inference.property_inference import PropertyInference
from fedguard.contracts import Examples, InferenceView, LocalPlan, Sight
from fedguard.errors import ConfigError, NotObservable, PreconditionError
from fedguard.inference import inference_view
from fedguard.metrics.membership import auc
from fedguard.rng import Rng
from tests.inference.scenes import SEES, digits, flat, gradient, mlp, trained

LABEL = 3


def dealt(clients: int = 24, each: int = 30, seed: int = 0) -> tuple[Examples, list[Examples]]:
    """200 root examples; clients of the rest, of three classes each: every second one has class `LABEL` among them."""
    examples = digits(1437, seed=seed)
    root, rest = examples[torch.arange(200)], examples[torch.arange(200, 1437)]
    draw, parts = torch.Generator().manual_seed(seed), []
    for client in range(clients):
        classes = torch.randperm(10, generator=draw)
        classes = classes[classes != LABEL][:3]
        if client % 2 == 0:
            classes[0] = LABEL
        own = torch.isin(rest.y, classes).nonzero()[:, 0]
        part = rest[own[torch.randperm(len(own), generator=draw)[:each]]]
        assert bool((part.y == LABEL).any()) == (client % 2 == 0)
        parts.append(part)
    return root, parts


def view_of(
    victim: int, updates: Tensor, root: Examples | None, *, plan: LocalPlan, count: int = 30, **more
) -> InferenceView:
    module = mlp(64, 32, 10)
    model = flat(module)
    values = {"sees": SEES | Sight.ROOT_DATA, "rng": Rng(0), **more}
    return inference_view(
        "the server", values.pop("sees"), module, models=torch.stack([model, model]), updates=updates[None], root=root,
        shape=(1, 8, 8), classes=10, plan=plan, counts=(count,), victim=victim, **values,
    )  # fmt: skip


ONE_STEP = LocalPlan(lr=1.0, steps=1)
EPOCHS = LocalPlan(lr=0.2, epochs=2, batch_size=10)


def sent(parts: list[Examples], plan: LocalPlan) -> Tensor:
    module = mlp(64, 32, 10)
    if plan.steps == 1:
        return torch.stack([-gradient(module, part) for part in parts])
    return torch.stack([trained(module, part, lr=0.2, epochs=2, batch=10) for part in parts])


@pytest.mark.parametrize("plan", [ONE_STEP, EPOCHS], ids=["gradient", "epochs"])
def test_an_update_tells_whether_its_client_holds_the_class(plan):
    root, parts = dealt(clients=10)
    updates, attack = sent(parts, plan), PropertyInference(label=LABEL, simulated=60)
    scores = torch.tensor([attack.infer(view_of(i, updates, root, plan=plan)).score for i in range(len(parts))])
    truth = torch.tensor([attack.holds(part) for part in parts])
    assert truth.sum() == 5
    assert auc(scores, truth)["value"] > 0.93


def test_an_update_of_noise_tells_nothing():
    root, parts = dealt(clients=16)
    updates = sent(parts, ONE_STEP)
    updates = updates + 100 * updates.norm() * torch.randn(updates.shape, generator=torch.Generator().manual_seed(0))
    attack = PropertyInference(label=LABEL, simulated=30)
    scores = torch.tensor([attack.infer(view_of(i, updates, root, plan=ONE_STEP)).score for i in range(len(parts))])
    low, high = auc(scores, torch.arange(len(parts)) % 2 == 0)["interval"]
    assert low <= 0.5 <= high


@pytest.mark.slow
def test_another_property_is_another_question():
    """The same updates, asked for another class, tell who holds that one, and no longer who holds the first."""
    root, parts = dealt(clients=16)
    other = next(
        label for label in range(10) if label != LABEL and sum(bool((part.y == label).any()) for part in parts) >= 4
    )
    updates, attack = sent(parts, ONE_STEP), PropertyInference(label=other)
    scores = torch.tensor([attack.infer(view_of(i, updates, root, plan=ONE_STEP)).score for i in range(len(parts))])
    assert auc(scores, torch.tensor([attack.holds(part) for part in parts]))["value"] > 0.9
    assert auc(scores, torch.tensor([bool((part.y == LABEL).any()) for part in parts]))["value"] < 0.8


def test_holding_one_example_is_holding_the_class():
    attack = PropertyInference(label=7)
    x = torch.zeros(3, 1, 8, 8)
    assert attack.holds(Examples(x, torch.tensor([1, 7, 2]))) and not attack.holds(Examples(x, torch.tensor([1, 0, 2])))


@pytest.mark.parametrize("count", [1, 5, 300])
def test_simulated_clients_have_the_property_or_not(count):
    """Of each, as many examples as the victim has, from the root data; classes mixed as by Dirichlet(1, ..., 1)."""
    root, _ = dealt()
    attack = PropertyInference(label=LABEL)
    view = view_of(0, torch.zeros(1, 1), root, plan=ONE_STEP, count=count)
    for number in range(40):
        rows = attack._rows(view, number % 2 == 0, number)
        assert len(rows) == count and attack.holds(root[rows]) == (number % 2 == 0)


def test_class_shares_are_uniform_on_the_simplex():
    """Of Dirichlet(1, ..., 1) in ten classes a share has mean 1/10 and variance 9/1100; counts of 300 add p (1 - p) / 300."""
    root, _ = dealt()
    view = view_of(0, torch.zeros(1, 1), root, plan=ONE_STEP, count=300)
    attack = PropertyInference(label=LABEL)
    shares = torch.stack(
        [torch.bincount(root.y[attack._rows(view, True, number)], minlength=10) / 300 for number in range(400)]
    ).double()
    assert torch.allclose(shares.mean(0), torch.full((10,), 0.1, dtype=torch.float64), atol=0.02)
    assert float(shares.var(0).mean()) == pytest.approx(9 / 1100, rel=0.12)


def test_the_same_seed_gives_the_same_score():
    root, parts = dealt(clients=2)
    updates, attack = sent(parts, EPOCHS), PropertyInference(label=LABEL, simulated=20)
    first = attack.infer(view_of(0, updates, root, plan=EPOCHS)).score
    assert first == attack.infer(view_of(0, updates, root, plan=EPOCHS)).score
    assert {attack.infer(view_of(0, updates, root, plan=EPOCHS, rng=Rng(seed))).score for seed in (1, 2, 3)} != {first}


def test_an_update_that_is_not_finite_tells_nothing():
    root, parts = dealt(clients=2)
    updates = sent(parts, ONE_STEP) * torch.tensor([[torch.nan], [torch.inf]])
    attack = PropertyInference(label=LABEL, simulated=4)
    assert [attack.infer(view_of(i, updates, root, plan=ONE_STEP)).score for i in range(2)] == [0.5, 0.5]


def test_it_needs_clean_data_with_the_class_and_without():
    root, parts = dealt(clients=2)
    updates = sent(parts, ONE_STEP)
    attack = PropertyInference(label=LABEL)
    attack.check(view_of(0, updates, root, plan=ONE_STEP))
    for kept in (root.y == LABEL, root.y != LABEL):
        with pytest.raises(PreconditionError, match=r"expected root data of class 3 and of others; got classes"):
            attack.check(view_of(0, updates, root[kept], plan=ONE_STEP))
    with pytest.raises(NotObservable):
        attack.infer(view_of(0, updates, root, plan=ONE_STEP, sees=SEES))


@pytest.mark.parametrize("build", [lambda: PropertyInference(label=-1), lambda: PropertyInference(simulated=3)])
def test_parameters_that_make_no_sense_are_refused(build):
    with pytest.raises(ConfigError, match="expected"):
        build()
