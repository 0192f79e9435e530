"""Membership inference: the papers' scores as plain loops, and what must hold where members are known."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.attacks.inference.membership import signals
from fedguard.attacks.inference.membership.fed_mia import FedMIA
from fedguard.attacks.inference.membership.gradient_cosine import GradientCosine
from fedguard.attacks.inference.membership.least_squares import (
    LeastSquares,
    NormalEquations,
    most_likely,
    noise_variance,
    solve_ridge,
)
from fedguard.attacks.inference.membership.lira import LiRA
from fedguard.attacks.inference.membership.loss_threshold import LossThreshold
from fedguard.attacks.inference.membership.nasr_active import NasrActive
from fedguard.attacks.inference.membership.nasr_passive import NasrPassive
from fedguard.attacks.inference.membership.rmia import RMIA
from fedguard.attacks.inference.membership.signals import halves, local_updates, shadow_sets
from fedguard.contracts import DPSGD, Examples, InferenceView, LocalPlan, Sight
from fedguard.errors import ConfigError, InputError, NotObservable
from fedguard.inference import inference_view
from fedguard.metrics.membership import auc
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.network import FlatNetwork
from tests.inference.scenes import SEES, Scene, digits, flat, gradient, mlp, trained

ON_MODELS = (LossThreshold(), LiRA(), LiRA(online=False), LiRA(shadows=8), RMIA(), RMIA(online=False))
ON_UPDATES = (GradientCosine(), LeastSquares(), FedMIA(), FedMIA(measure="loss"), NasrPassive(), NasrActive())


def loaded(module: nn.Module, model: Tensor) -> nn.Module:
    """The module with these parameters."""
    nn.utils.vector_to_parameters(model.clone(), list(module.parameters()))
    return module


def relabeled(examples: Examples, share: float, seed: int) -> Examples:
    """A share of the labels drawn afresh from all ten."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 10, (len(examples),), generator=generator)
    return examples.replace(y=torch.where(torch.rand(len(examples), generator=generator) < share, drawn, examples.y))


def shuffled(members: Examples, others: Examples, seed: int = 0) -> tuple[Examples, Tensor]:
    """Candidates in random order, and who is a member."""
    both = Examples(torch.cat([members.x, others.x]), torch.cat([members.y, others.y]))
    order = torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))
    return both[order], order < len(members)


def final(module: nn.Module, model: Tensor, candidates: Examples, train=None) -> InferenceView:
    """The view of who has the final model alone."""
    scene = Scene(module, (candidates,), sees=Sight.MODEL)
    more = {} if train is None else {"train": train}
    return scene.view(models=model[None], candidates=candidates, **more)


def watched(module: nn.Module, models: Tensor, updates: Tensor, candidates: Examples, **more) -> InferenceView:
    """The view of a training: models ``[T + 1, d]``, updates ``[T, n, d]``."""
    values = {"plan": LocalPlan(lr=1.0, steps=1), "counts": (4,), "rng": Rng(0), "sees": SEES, **more}
    return inference_view(
        "the server", values.pop("sees"), module, models=models, updates=updates, aggregates=updates.mean(1),
        shape=(1, 8, 8), classes=10, candidates=candidates, **values,
    )  # fmt: skip


# The scores, as plain loops


def one_loss(module: nn.Module, model: Tensor, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(cross_entropy(loaded(module, model)(x[None]).double(), y[None]))


def random_models(count: int, seed: int = 5) -> tuple[nn.Module, Tensor]:
    module = mlp(64, 6, 10, seed=1)
    start = flat(module)
    return module, start + 0.3 * torch.randn(count, len(start), generator=torch.Generator().manual_seed(seed))


def test_the_loss_score_is_the_log_probability():
    module, (model,) = random_models(1)
    candidates = digits(9)
    scores = LossThreshold().infer(final(module, model, candidates)).scores
    expected = [-one_loss(module, model, x, y) for x, y in zip(candidates.x, candidates.y, strict=True)]
    assert scores.dtype == torch.float64 and scores.tolist() == pytest.approx(expected, rel=1e-5)


class Recorded:
    """Stands for training: gives fixed models, and keeps what it was asked to train on."""

    def __init__(self, models: Tensor) -> None:
        self.models, self.parts = models, []

    def __call__(self, parts, rng) -> Tensor:
        self.parts = list(parts)
        assert len(parts) == len(self.models)
        return self.models

    def trained_on(self, x: Tensor) -> list[bool]:
        return [any(torch.equal(x, other) for other in part.x) for part in self.parts]


@pytest.mark.parametrize("center", ["mean", "median"])
@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("shadows", [8, 64])
def test_lira_is_the_ratio_of_two_normals(shadows, online, center):
    """Own variances from 64 models on, below that their mean over all candidates."""
    middle = {"mean": statistics.fmean, "median": statistics.median}[center]
    module, models = random_models(shadows + 1)
    candidates, train = digits(12), Recorded(models[1:])
    attack = LiRA(shadows=shadows, online=online, center=center)
    scores = attack.infer(final(module, models[0], candidates, train)).scores
    inside, outside, phi = [], [], []
    for x, y in zip(candidates.x, candidates.y, strict=True):
        values = [math.exp(-one_loss(module, model, x, y)) for model in models]
        values = [math.log(p / (1 - p)) for p in values]
        member = train.trained_on(x)
        phi.append(values[0])
        inside.append(torch.tensor([value for value, of in zip(values[1:], member, strict=True) if of]))
        outside.append(torch.tensor([value for value, of in zip(values[1:], member, strict=True) if not of]))
        assert len(inside[-1]) == shadows - len(outside[-1]) == (4 if shadows == 8 else 48)  # of 12 records, 6 or 9
    for number in range(12):
        within = inside if shadows < 64 else inside[number : number + 1]
        without = outside if shadows < 64 else outside[number : number + 1]
        spread_in = math.sqrt(sum(float(values.var()) for values in within) / len(within))
        spread_out = math.sqrt(sum(float(values.var()) for values in without) / len(without))
        out = (middle(outside[number].tolist()), spread_out)
        if online:
            expected = norm.logpdf(phi[number], middle(inside[number].tolist()), spread_in) - norm.logpdf(
                phi[number], *out
            )
            assert float(scores[number]) == pytest.approx(expected, rel=1e-3, abs=1e-3)
        else:
            assert norm.cdf(float(scores[number])) == pytest.approx(norm.cdf(phi[number], *out), rel=1e-3, abs=1e-6)


def test_rmia_counts_the_pairs():
    module, models = random_models(5)
    candidates, train = digits(15), Recorded(models[1:])
    scores = RMIA(shadows=4).infer(final(module, models[0], candidates, train)).scores
    ratio = []
    for x, y in zip(candidates.x, candidates.y, strict=True):
        p = [math.exp(-one_loss(module, model, x, y)) for model in models]
        ratio.append(p[0] / (sum(p[1:]) / 4))
    expected = [sum(mine / other >= 1 for j, other in enumerate(ratio) if j != i) / 14 for i, mine in enumerate(ratio)]
    assert scores.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
def test_rmia_offline_guesses_what_training_on_the_candidate_would_do(a):
    """pbar is ((1 + a) mean_out + 1 - a) / 2, and z runs over the other candidates."""
    module, models = random_models(5)
    candidates, train = digits(15), Recorded(models[1:])
    scores = RMIA(shadows=4, online=False, a=a).infer(final(module, models[0], candidates, train)).scores
    ratio = []
    for x, y in zip(candidates.x, candidates.y, strict=True):
        p, *shadow = [math.exp(-one_loss(module, model, x, y)) for model in models]
        out = [value for value, of in zip(shadow, train.trained_on(x), strict=True) if not of]
        assert len(out) == 2
        ratio.append(p / (((1 + a) * statistics.fmean(out) + 1 - a) / 2))
    expected = [sum(mine / other >= 1 for j, other in enumerate(ratio) if j != i) / 14 for i, mine in enumerate(ratio)]
    assert scores.tolist() == pytest.approx(expected)


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a.double() @ b.double() / (a.double().norm() * b.double().norm()))


def by_hand(module: nn.Module, model: Tensor, update: Tensor, candidates: Examples) -> list[float]:
    rows = torch.arange(len(candidates)).split(1)
    return [cosine(-gradient(loaded(module, model), candidates[row]), update) for row in rows]


def a_training(rounds: int = 3, n: int = 4) -> tuple[nn.Module, Tensor, Tensor]:
    module, models = random_models(rounds + 1)
    return module, models, torch.randn(rounds, n, models.shape[1], generator=torch.Generator().manual_seed(8))


@pytest.mark.parametrize("sees", [SEES, Sight.SUM | Sight.MODEL])
def test_the_cosine_score_is_the_mean_over_rounds(sees):
    module, models, updates = a_training()
    candidates = digits(7)
    scores = GradientCosine().infer(watched(module, models, updates, candidates, victim=2, sees=sees)).scores
    shown = updates[:, 2] if sees is SEES else updates.mean(1)
    rounds = [by_hand(module, model, update, candidates) for model, update in zip(models[:-1], shown, strict=True)]
    assert scores.tolist() == pytest.approx([sum(values) / 3 for values in zip(*rounds, strict=True)], abs=1e-5)


def rows_by_hand(module: nn.Module, model: Tensor, candidates: Examples) -> Tensor:
    """float64 ``[N, d]``: minus the gradient of each candidate, one by one."""
    each = [-gradient(loaded(module, model), candidates[row]) for row in torch.arange(len(candidates)).split(1)]
    return torch.stack(each).double()


@pytest.mark.parametrize("sees", [SEES, Sight.SUM | Sight.MODEL])
@pytest.mark.parametrize("steps", [1, 5])
def test_least_squares_is_ridge_regression_on_the_candidates_gradients(steps, sees):
    """Of each round by itself, as ``argmin |u - G^T a|^2 + rho |a|^2`` by a QR of the augmented rows; then the sum of rounds.

    Of five steps the gradients are those at ``model + 2/5 update``, the mean of where the steps were taken.
    """
    module, models, updates = a_training()
    updates, candidates = 0.05 * updates, digits(7)
    plan = LocalPlan(lr=0.1, steps=steps, batch_size=3)
    view = watched(module, models, updates, candidates, victim=2, sees=sees, plan=plan)
    scores = LeastSquares(ridge=0.3).infer(view).scores
    shown = updates[:, 2] if sees is SEES else updates.mean(1)
    expected = torch.zeros(7, dtype=torch.float64)
    for model, update in zip(models[:-1], shown, strict=True):
        rows = rows_by_hand(module, model + (0.4 * update if steps == 5 else 0), candidates)
        rho = 0.3 * float(rows.square().sum(1).mean())
        stacked = torch.cat([rows.T, math.sqrt(rho) * torch.eye(7, dtype=torch.float64)])
        expected += torch.linalg.lstsq(stacked, torch.cat([update.double(), torch.zeros(7)])).solution
    assert scores.tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-6)


def test_rounds_of_one_step_on_all_examples_are_one_regression():
    """There each round weighs the same examples alike: the rows of all rounds stand side by side."""
    module, models, updates = a_training()
    candidates = digits(6)
    scores = LeastSquares(ridge=0.1).infer(watched(module, models, updates, candidates, victim=1)).scores
    rows = torch.cat([rows_by_hand(module, model, candidates) for model in models[:-1]], dim=1)
    rho = 0.1 * float(rows.square().sum(1).mean())
    expected = torch.linalg.solve(
        rows @ rows.T + rho * torch.eye(6, dtype=torch.float64), rows @ updates[:, 1].double().flatten()
    )
    assert scores.tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("least", [0.0, 4.0])
def test_the_ridge_is_the_one_under_which_the_update_is_most_likely(least):
    """Held beside the density of a normal vector with the whole covariance ``sigma^2 (I + G^T G / rho)`` written out."""
    draw = torch.Generator().manual_seed(4)
    rows = torch.randn(5, 30, generator=draw, dtype=torch.float64) * torch.tensor([9.0, 5, 2, 1, 0.1])[:, None]
    update = rows.T @ torch.tensor([1.0, 0, 0.5, 0, 1.0]).double() + 0.7 * torch.randn(30, generator=draw).double()
    gram = rows @ rows.T
    values, vectors = torch.linalg.eigh(gram)
    rho = most_likely(values, vectors.T @ (rows @ update), float(update @ update), 30, least)

    def likelihood(ratio: float) -> float:
        shape = np.eye(30) + (rows.T @ rows).numpy() / ratio
        variance = max(float(update.numpy() @ np.linalg.solve(shape, update.numpy())) / 30, least)
        return float(multivariate_normal(np.zeros(30), variance * shape).logpdf(update.numpy()))

    best = max(likelihood(rho * factor) for factor in np.logspace(-3, 3, 61))
    assert likelihood(rho) > best - 0.05
    assert likelihood(10 * rho) < best - 0.1 and likelihood(rho / 10) < best - 0.1
    equations = NormalEquations(gram, rows @ update, float(update @ update), 30)
    expected = torch.linalg.solve(gram + rho * torch.eye(5, dtype=torch.float64), rows @ update)
    assert torch.allclose(solve_ridge(equations, least), expected, rtol=1e-8)


def test_known_noise_is_that_of_dp_sgd_and_of_the_mean():
    """Three steps of lr z C / B each, over two clients with levels of their own, and what a server adds."""
    module, (model,) = random_models(1)
    plan = LocalPlan(lr=0.5, steps=3, batch_size=8, private=DPSGD(sample_rate=0.2, levels=((2.0, 1.5), (1.0, 4.0))))
    view = watched(module, model[None], torch.zeros(1, 2, len(model)), digits(2), plan=plan, counts=(40, 40), noise=0.3)
    draws = np.random.default_rng(0)
    mean = np.zeros(200_000)
    for clip, noise in ((2.0, 1.5), (1.0, 4.0)):
        for _ in range(3):
            mean += 0.5 * draws.normal(0, clip * noise, len(mean)) / 8 / 2
    mean += draws.normal(0, 0.3, len(mean))
    assert noise_variance(view) == pytest.approx(float(mean.var()), rel=0.02)


def test_least_squares_clips_the_rows_as_dp_sgd_does():
    module, models, updates = a_training(rounds=1)
    candidates = digits(6)
    plan = LocalPlan(lr=0.5, steps=1, batch_size=8, private=DPSGD(sample_rate=0.2, levels=((0.5, 0.0),)))
    scores = LeastSquares(ridge=0.1).infer(watched(module, models, updates, candidates, plan=plan)).scores
    rows = rows_by_hand(module, models[0], candidates)
    assert (rows.norm(dim=1) > 0.5).any()
    rows = rows * (0.5 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
    rho = 0.1 * float(rows.square().sum(1).mean())
    expected = torch.linalg.solve(
        rows @ rows.T + rho * torch.eye(6, dtype=torch.float64), rows @ updates[0, 0].double()
    )
    assert scores.tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-6)


def test_least_squares_in_blocks_is_that_of_all_at_once(monkeypatch):
    module, models, updates = a_training()
    view = watched(module, models, updates, digits(11), plan=LocalPlan(lr=0.1, epochs=1, batch_size=3))
    whole = LeastSquares().infer(view).scores
    monkeypatch.setattr(signals, "BLOCK_FLOATS", 3 * models.shape[1])
    assert torch.allclose(LeastSquares().infer(view).scores, whole, rtol=1e-6)


@pytest.mark.parametrize("measure", ["cosine", "loss"])
def test_fed_mia_holds_the_victim_beside_the_others(measure):
    module, models, updates = a_training()
    updates = 0.02 * updates
    candidates = digits(5)
    scores = FedMIA(measure=measure).infer(watched(module, models, updates, candidates, victim=1)).scores
    expected = torch.zeros(5)
    for model, sent in zip(models[:-1], updates, strict=True):
        measured = [
            by_hand(module, model, update, candidates)
            if measure == "cosine"
            else [-one_loss(module, model + update, x, y) for x, y in zip(candidates.x, candidates.y, strict=True)]
            for update in sent
        ]
        for i in range(5):
            others = torch.tensor([measured[client][i] for client in (0, 2, 3)], dtype=torch.float64)
            expected[i] += norm.cdf(measured[1][i], float(others.mean()), float(others.std())) / 3
    assert scores.tolist() == pytest.approx(expected.tolist(), abs=2e-4)


def test_nasr_active_climbs_and_compares_with_the_common_fall():
    module, (model,) = random_models(1)
    candidates, attack = digits(6), NasrActive(ascent=0.2, steps=2)
    sent = attack.tamper(watched(module, model[None], torch.zeros(1, 1, len(model)), candidates))
    expected = model
    for _ in range(2):
        expected = expected + 0.2 * gradient(loaded(module, expected), candidates)
    assert torch.allclose(sent, expected, atol=1e-6)
    assert gradient(loaded(module, model), candidates) @ (sent - model) > 0
    update = 0.1 * torch.randn(len(model), generator=torch.Generator().manual_seed(2))
    scores = attack.infer(watched(module, torch.stack([sent, model]), update[None, None], candidates)).scores
    common = gradient(loaded(module, sent), candidates)
    along = sent + (update @ common) / (common @ common) * common
    for i, (x, y) in enumerate(zip(candidates.x, candidates.y, strict=True)):
        difference = one_loss(module, along, x, y) - one_loss(module, sent + update, x, y)
        assert float(scores[i]) == pytest.approx(difference, abs=1e-4)


# What the attackers build


@pytest.mark.parametrize("count", [10, 11])
def test_each_candidate_is_in_half_of_the_halves(count):
    inside = halves(6, count, Rng(0))
    assert inside.sum(0).tolist() == [3] * count
    assert all(int(half.sum()) in (count // 2, count - count // 2) for half in inside)
    assert len({tuple(half.tolist()) for half in inside}) == 6
    assert not torch.equal(inside, halves(6, count, Rng(1)))


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(400, 300, 300), (400, 390, 300), (400, 200, 200), (400, 120, 100), (400, 1000, 300), (401, 201, 200)],
)
def test_shadow_models_see_about_as_many_records_as_the_model_under_attack(count, size, expected):
    """And each candidate is in as many sets as any other, with 16 sets and more on either side."""
    inside = shadow_sets(64, count, size, Rng(0))
    assert inside.shape == (64, count)
    assert float((inside.sum(1) - expected).abs().max()) <= 1
    (often,) = set(inside.sum(0).tolist())
    assert 16 <= often <= 48
    assert len({tuple(row.tolist()) for row in inside}) == 64


@pytest.mark.parametrize(
    "plan",
    [
        LocalPlan(lr=0.5, steps=1),
        LocalPlan(lr=0.1, epochs=2, batch_size=4, momentum=0.9),
        LocalPlan(lr=0.1, steps=3, batch_size=4),
    ],
)
def test_simulated_clients_train_by_the_plan(plan):
    """SGD as a loop, over the batches that the same generator draws."""
    module = mlp(64, 6, 10)
    model, parts = flat(module), (digits(10, seed=1), digits(10, seed=2))
    view = watched(module, model[None], torch.zeros(1, 1, len(model)), parts[0], plan=plan)
    x, y = torch.stack([part.x for part in parts]), torch.stack([part.y for part in parts])
    moved = local_updates(view, model, x, y, Rng(3))
    draw = Rng(3).torch()
    if plan.epochs:
        batches = [rows for _ in range(2) for rows in torch.randperm(10, generator=draw).split(4)]
    else:
        batches = [torch.randperm(10, generator=draw)[: plan.batch_size] for _ in range(plan.steps)]
    for part, update in zip(parts, moved, strict=True):
        at, velocity = model, torch.zeros_like(model)
        for rows in batches:
            velocity = plan.momentum * velocity + gradient(loaded(module, at), part[rows])
            at = at - plan.lr * velocity
        assert torch.allclose(update, at - model, atol=1e-5)


# What must hold


def memorized(members: Examples) -> tuple[nn.Module, Tensor]:
    module = mlp(64, 64, 10)
    return module, flat(module) + trained(module, members, lr=0.3, epochs=60, batch=10)


def shadows(module: nn.Module):
    """Each set of examples learned by plain SGD, as `memorized` learns its own."""

    def train(parts, rng) -> Tensor:
        return torch.stack(
            [
                flat(module) + trained(module, part, lr=0.3, epochs=60, batch=10, seed=number)
                for number, part in enumerate(parts)
            ]
        )

    return train


@pytest.mark.parametrize(
    "attack", [LossThreshold(), LiRA(shadows=8), LiRA(shadows=8, online=False), RMIA(shadows=4)], ids=str
)
def test_a_model_that_memorized_gives_its_members_away(attack):
    """All labels are noise, so only a model that was trained on one can know it."""
    noise = relabeled(digits(80), 1.0, seed=3)
    candidates, truth = shuffled(noise[torch.arange(40)], noise[torch.arange(40, 80)])
    module, model = memorized(noise[torch.arange(40)])
    scores = attack.infer(final(module, model, candidates, shadows(module))).scores
    assert auc(scores, truth)["value"] > 0.95


@pytest.mark.parametrize("attack", ON_MODELS, ids=str)
def test_an_untrained_model_tells_nothing(attack):
    module, models = random_models(65)
    train = lambda parts, rng: models[: len(parts)]  # noqa: E731
    noise = relabeled(digits(400), 1.0, seed=3)
    candidates, truth = shuffled(noise[torch.arange(200)], noise[torch.arange(200, 400)])
    low, high = auc(attack.infer(final(module, models[-1], candidates, train)).scores, truth)["interval"]
    assert low <= 0.5 <= high


def small_clients(attack, *, clients: int = 6, each: int = 4, sees: Sight = SEES, noise: float = 0.0):
    """One round of clients with few examples and labels of noise each; AUC of client 0's members."""
    module, examples = mlp(64, 32, 10), relabeled(digits(clients * each + 60, seed=2), 1.0, seed=1)
    parts = tuple(examples[torch.arange(i * each, (i + 1) * each)] for i in range(clients))
    candidates, truth = shuffled(parts[0], examples[torch.arange(clients * each, clients * each + 60)])
    model = flat(module)
    if attack.active:
        model = attack.tamper(watched(module, model[None], torch.zeros(1, 1, len(model)), candidates))
    sent = torch.stack([-gradient(loaded(module, model), part) for part in parts])
    sent = sent + noise * torch.randn(sent.shape, generator=torch.Generator().manual_seed(9))
    view = watched(
        module, torch.stack([model, model + sent.mean(0)]), sent[None], candidates, sees=sees, counts=(each,)
    )
    return auc(attack.infer(view).scores, truth)


@pytest.mark.parametrize("attack", ON_UPDATES, ids=str)
def test_the_update_of_a_client_with_four_examples_gives_them_away(attack):
    assert small_clients(attack)["value"] > 0.85


@pytest.mark.parametrize("attack", ON_UPDATES, ids=str)
def test_an_update_of_noise_tells_nothing(attack):
    low, high = small_clients(attack, noise=1e3)["interval"]
    assert low <= 0.5 <= high


def test_least_squares_reads_a_sum_of_clients_that_a_cosine_does_not():
    """Seven clients of 30 examples and a network that explains no single one: all in the sum are asked about at once."""
    examples, module = digits(320, seed=3), mlp(64, 24, 10, seed=2)
    parts = tuple(examples[torch.arange(30 * i, 30 * (i + 1))] for i in range(7))
    candidates, truth = shuffled(examples[torch.arange(210)], examples[torch.arange(210, 320)])
    plan = LocalPlan(lr=0.1, epochs=1, batch_size=10)
    scene = Scene(module, parts, plan=plan, sees=Sight.SUM | Sight.MODEL)
    view = scene.view(candidates=candidates)
    found = {
        str(attack): auc(attack.infer(view).scores, truth)["value"] for attack in (GradientCosine(), LeastSquares())
    }
    assert found["gradient_cosine"] < 0.6 and found["least_squares"] > 0.75
    alone = Scene(module, parts[:1], plan=plan).view(candidates=candidates)
    own = torch.zeros_like(truth)
    order = torch.randperm(320, generator=torch.Generator().manual_seed(0))
    own[order < 30] = True
    assert auc(LeastSquares().infer(alone).scores, own)["value"] > 0.97


def test_a_sum_of_full_gradients_tells_every_member():
    """One step on all examples: the sum is exactly linear in who is in it, and as many parameters as candidates solve it."""
    examples, module = digits(150, seed=6), mlp(64, 16, 10, seed=2)
    parts = tuple(examples[torch.arange(20 * i, 20 * (i + 1))] for i in range(5))
    candidates, truth = shuffled(examples[torch.arange(100)], examples[torch.arange(100, 150)])
    view = Scene(module, parts, sees=Sight.SUM | Sight.MODEL).view(candidates=candidates)
    assert auc(LeastSquares().infer(view).scores, truth)["value"] > 0.99


@pytest.mark.parametrize("attack", [GradientCosine(), NasrPassive(), NasrActive()], ids=str)
def test_a_sum_hides_more_than_it_shows(attack):
    alone = small_clients(attack, clients=20)["value"]
    hidden = small_clients(attack, clients=20, sees=Sight.SUM | Sight.MODEL)["value"]
    assert hidden < alone - 0.1


def test_the_gradient_of_one_example_is_that_example():
    module = mlp(64, 16, 10)
    members, others = digits(1, seed=4), digits(50, seed=5)
    candidates, truth = shuffled(members, others)
    scores = GradientCosine().infer(Scene(module, (members,)).view(candidates=candidates)).scores
    assert float(scores[truth]) == pytest.approx(1.0, abs=1e-5) and float(scores[~truth].max()) < 0.999


def test_the_cosine_sees_what_clients_do_before_they_send():
    """Signs alone are sent; one who compares signs with signs finds the example again."""
    module = mlp(64, 16, 10)
    member = digits(1, seed=4)
    signs = lambda dummy, observed: (dummy.sign(), observed)  # noqa: E731
    sent = -gradient(module, member).sign()[None]
    scene = Scene(module, (member,))
    naive = GradientCosine().infer(scene.view(updates=sent, candidates=member)).scores
    adaptive = GradientCosine().infer(scene.view(updates=sent, candidates=member, adapt=signs)).scores
    assert float(adaptive) == pytest.approx(1.0, abs=1e-5) and float(naive) < 0.9


@pytest.mark.parametrize("attack", [LossThreshold(), GradientCosine(), LeastSquares(), FedMIA(), NasrActive()], ids=str)
def test_the_order_of_the_candidates_means_nothing(attack):
    module, models, updates = a_training()
    candidates = digits(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    scores = attack.infer(watched(module, models, updates, candidates)).scores
    again = attack.infer(watched(module, models, updates, candidates[order])).scores
    assert torch.allclose(scores[order], again, atol=1e-4)


@pytest.mark.parametrize("attack", [*ON_MODELS, *ON_UPDATES], ids=str)
def test_the_same_seed_gives_the_same_scores(attack):
    module, models, updates = a_training()
    candidates = digits(10)
    train = lambda parts, rng: random_models(len(parts))[1]  # noqa: E731
    view = watched(module, models, updates, candidates, train=train)
    scores = attack.infer(view).scores
    assert scores.shape == (10,) and scores.dtype == torch.float64
    assert torch.equal(scores, attack.infer(view).scores)


@pytest.mark.parametrize("attack", ON_UPDATES, ids=str)
def test_a_training_that_diverged_tells_nothing(attack):
    module, models, updates = a_training()
    candidates, truth = digits(10), torch.arange(10) < 5
    scores = attack.infer(watched(module, models * torch.nan, updates * torch.nan, candidates)).scores
    assert auc(scores, truth)["value"] == 0.5


# What is refused


def test_fed_mia_needs_to_see_the_others():
    module, models, updates = a_training()
    with pytest.raises(NotObservable):
        FedMIA().infer(watched(module, models, updates, digits(3), sees=Sight.SUM | Sight.MODEL))
    with pytest.raises(InputError, match=r"3 clients or more.*got 2"):
        FedMIA().infer(watched(module, models, updates[:, :2], digits(3)))


def test_without_candidates_there_is_nothing_to_ask():
    module, (model,) = random_models(1)
    with pytest.raises(InputError, match="candidates: expected"):
        LossThreshold().infer(Scene(module, (digits(2),)).view(models=model[None]))


@pytest.mark.parametrize(
    "build",
    [
        lambda: LiRA(shadows=2), lambda: LiRA(shadows=7), lambda: RMIA(shadows=0), lambda: RMIA(shadows=3), lambda: RMIA(a=2.0),
        lambda: NasrPassive(simulated=1), lambda: NasrActive(ascent=0.0), lambda: NasrActive(steps=0),
    ],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused(build):
    with pytest.raises(ConfigError, match="expected"):
        build()


# The figures on digits with 20 % label noise


def network() -> FlatNetwork:
    return FlatNetwork(MLP(hidden=(64,)), (1, 8, 8), 10, Rng(0))


def cohort_training(net: FlatNetwork, plan: LocalPlan):
    def train(parts, rng) -> Tensor:
        start, moved = net.flat.clone(), torch.empty(len(parts), net.dim)
        Cohort(net, parts).train(start, range(len(parts)), plan, rng, moved)
        return start + moved

    return train


@pytest.mark.slow
def test_figures_of_a_final_model():
    """700 members, 100 epochs: LOSS .67, LiRA .79, RMIA .78."""
    noisy = relabeled(digits(1400), 0.2, seed=0)
    candidates, truth = shuffled(noisy[torch.arange(700)], noisy[torch.arange(700, 1400)])
    net = network()
    train = cohort_training(net, LocalPlan(lr=0.5, epochs=100, batch_size=32))
    (model,) = train([candidates[truth]], Rng(99))
    view = final(net.module, model, candidates, train)
    area = {str(attack): auc(attack.infer(view).scores, truth)["value"] for attack in (LossThreshold(), LiRA(), RMIA())}
    assert 0.62 < area["loss"] < 0.71
    assert 0.74 < area["lira"] < 0.83 and 0.73 < area["rmia"] < 0.82
    assert min(area["lira"], area["rmia"]) > area["loss"] + 0.06


@pytest.mark.slow
def test_figures_of_a_round():
    """Ten clients of 70, one full-batch step each, mean over five draws: the cosine of one client .65, of the sum .54."""
    alone, hidden = [], []
    for seed in range(5):
        noisy = relabeled(digits(1400, seed=seed), 0.2, seed=seed)
        module = mlp(64, 64, 10, seed=seed)
        parts = tuple(noisy[torch.arange(70 * i, 70 * (i + 1))] for i in range(10))
        others = noisy[torch.arange(700, 1400)]
        everybody, truth = shuffled(noisy[torch.arange(700)], others)
        candidates, mine = shuffled(parts[0], others)
        alone.append(
            auc(GradientCosine().infer(Scene(module, parts).view(candidates=candidates)).scores, mine)["value"]
        )
        masked = Scene(module, parts, sees=Sight.SUM | Sight.MODEL).view(candidates=everybody)
        hidden.append(auc(GradientCosine().infer(masked).scores, truth)["value"])
    one, many = sum(alone) / 5, sum(hidden) / 5
    assert 0.59 < one < 0.67 and 0.49 < many < 0.56
    assert one > many + 0.06
