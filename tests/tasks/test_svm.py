"""The support vector machine: its loss and gradient against loops, what trains by it, and what takes a loss for cross-entropy."""

from __future__ import annotations

import itertools
import os
from statistics import fmean

import pytest
import torch
from torch import Tensor

import fedguard as fg
from fedguard.architectures.root import root_loss
from fedguard.contracts import ROOT, LocalPlan
from fedguard.contracts.tasks import DPSGD
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import schedule
from fedguard.tasks.models.svm import SVM
from tests.root import ROOT as CHECKOUT
from tests.systems.scenes import cell, reports, scene

EXAMPLE = CHECKOUT / "examples" / "decaf_svm.yaml"

INPUTS, CLASSES = 6, 4


def hinge(logits: Tensor, y: Tensor) -> Tensor:
    """Crammer and Singer's loss, one example after the other; autograd follows it."""
    losses = []
    for row, label in zip(logits, y.tolist(), strict=True):
        nearest = max(row[j] for j in range(len(row)) if j != label)
        losses.append(max(0 * row[label], 1 + nearest - row[label]))
    return torch.stack(losses).mean()


def gradient_by_hand(w: list[list[float]], b: list[float], x: list[list[float]], y: list[int]) -> list[float]:
    """Of the mean loss, weights before biases: x goes to the nearest class and from the own one, where the margin is broken."""
    at_w, at_b = [[0.0] * len(w[0]) for _ in w], [0.0] * len(b)
    for one, label in zip(x, y, strict=True):
        z = [sum(p * q for p, q in zip(row, one, strict=True)) + bias for row, bias in zip(w, b, strict=True)]
        nearest = max((j for j in range(len(z)) if j != label), key=lambda j: z[j])
        if 1 + z[nearest] - z[label] > 0:
            for j, sign in ((nearest, 1 / len(x)), (label, -1 / len(x))):
                at_b[j] += sign
                at_w[j] = [old + sign * value for old, value in zip(at_w[j], one, strict=True)]
    return [*itertools.chain.from_iterable(at_w), *at_b]


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_the_loops_in_float64(seed):
    draw = torch.Generator().manual_seed(seed)
    w, b = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((CLASSES, INPUTS), (CLASSES,)))
    x = torch.randn(9, INPUTS, generator=draw, dtype=torch.float64)
    y = torch.randint(CLASSES, (9,), generator=draw)
    module = SVM().build((INPUTS,), CLASSES).double()
    for parameter, value in zip(module.parameters(), (w, b), strict=True):
        parameter.data = value
    loss = SVM().loss(module(x), y)
    found = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(module.parameters()))])
    expected = torch.tensor(gradient_by_hand(w.tolist(), b.tolist(), x.tolist(), y.tolist()), dtype=torch.float64)
    assert float((found - expected).abs().max()) < 1e-14 and float(expected.norm()) > 0.1
    logits = module(x).detach()
    assert loss.item() == pytest.approx(hinge(logits, y).item(), rel=1e-14)
    assert SVM().loss(logits, y, "sum").item() == pytest.approx(9 * loss.item(), rel=1e-14)


def test_known_answers():
    """Beyond the margin nothing; at it nothing; between, what is missing; on the wrong side more than 1; one class pays, not all."""
    logits = torch.tensor([[3.0, 1.0, 1.0], [2.0, 1.0, 0.0], [1.5, 1.0, 1.4], [0.0, 2.0, 2.0]], requires_grad=True)
    losses = [SVM().loss(row[None], torch.tensor([0])).item() for row in logits]
    assert losses == pytest.approx([0.0, 0.0, 0.9, 3.0])
    SVM().loss(logits[:1], torch.tensor([0])).backward()
    assert logits.grad.abs().sum() == 0


def test_it_learns_and_its_loss_is_the_hinge():
    made, setup = scene(task={"model": "svm"}, training={"rounds": 6}, server={"root_data": 30})
    *_, last = made.architecture.run(setup)
    test = setup.task.dataset.test
    assert last.evaluation.accuracy > 0.85
    assert last.evaluation.loss == pytest.approx(float(hinge(setup.task.logits(last.model, test.x), test.y)), rel=1e-5)
    root = setup.task.examples(ROOT)
    assert root_loss(setup, last.model) == pytest.approx(
        float(hinge(setup.task.logits(last.model, root.x), root.y)), rel=1e-5
    )


def test_it_begins_as_softmax_does_and_goes_another_way():
    one, other = (next(reports(task={"model": model})).model for model in ("svm", "softmax"))
    (_, at_one), (_, at_other) = (scene(task={"model": model}) for model in ("svm", "softmax"))
    starts = [setup.task.initial_model(Rng(0)) for setup in (at_one, at_other)]
    assert torch.equal(*starts) and float((one - other).norm()) > 0.01


def test_private_steps_clip_each_examples_hinge():
    """One step with next to no noise, against the clipped gradients of the examples one by one."""
    _, setup = scene(task={"model": "svm"})
    task, start = setup.task, setup.task.initial_model(Rng(0))
    plan = LocalPlan(lr=0.5, batch_size=20, steps=1, private=DPSGD(sample_rate=0.2, levels=((0.3, 1e-9),)))
    (update,) = task.local_updates(start, [0], plan, Rng(1), torch.empty(1, task.dim))
    examples, total = task.examples(0), torch.zeros_like(start)
    (batch,) = schedule(plan, len(examples), Rng(1).child("client", 0).numpy())
    for row in batch[batch >= 0].tolist():
        at = start.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(hinge(task.logits(at, examples.x[[row]]), examples.y[[row]]), at)
        total += gradient * min(1.0, 0.3 / max(float(gradient.norm()), 1e-12))
    assert float((update + 0.5 * total / 20).abs().max()) < 1e-6 and float(total.norm()) > 0.1


@pytest.mark.parametrize(
    "changes",
    [{"attack": "analytic"}, {"attack": "inverting_gradients"}, {"defense": "grad_defense >> mean"}],
    ids=["analytic", "inverting_gradients", "grad_defense"],
)
def test_who_works_out_gradients_of_cross_entropy_is_refused(changes):
    (reason,) = (one for one in cell(task={"model": "svm"}, **changes).verdict.reasons if "cross-entropy" in one)
    assert "and svm has another loss. Use softmax or mlp." in reason
    assert not any("cross-entropy" in one for one in cell(task={"model": "softmax"}, **changes).verdict.reasons)


@pytest.mark.parametrize("name", sorted(set(load_registry().names("model")) - {"svm", "module"}))
def test_the_other_models_have_cross_entropy(name):
    """Bit by bit what torch has: their records are what they were."""
    model = load_registry().build("model", name)
    draw = torch.Generator().manual_seed(0)
    logits, y = torch.randn(7, CLASSES, generator=draw), torch.randint(CLASSES, (7,), generator=draw)
    assert model.by_cross_entropy
    assert torch.equal(model.loss(logits, y), torch.nn.functional.cross_entropy(logits, y))


@pytest.mark.slow
def test_the_example_shows_that_a_share_of_the_work_pays_under_the_hinge_too(tmp_path):
    """In the short form (ANCHOR_SEEDS=1) on two of its five seeds."""
    seeds = 2 if os.environ.get("ANCHOR_SEEDS") == "1" else 5
    run = fg.run(EXAMPLE, store=tmp_path, jobs=1, overrides=[f"seeds={seeds}"])
    final: dict[tuple[str, ...], list[float]] = {}
    for swept, record in run.trials():
        place = tuple(swept[key].partition("(")[0] for key in ("task.model", "architecture", "attack", "defense"))
        final.setdefault(place, []).append(record["result"]["final_accuracy"])
    assert len(final) == 16 and {len(values) for values in final.values()} == {seeds}
    mean = {place: fmean(values) for place, values in final.items()}
    for model in ("softmax", "svm"):
        assert mean[model, "decaf", "none", "mean"] > mean[model, "google", "none", "mean"] + 0.1
        assert mean[model, "decaf", "sign_flip", "mean"] < mean[model, "decaf", "none", "mean"] - 0.05
