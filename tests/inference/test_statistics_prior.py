"""Running statistics as a prior of gradient matching: what the term is, and what it tells beside the gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedguard.attacks.inference.inversion.statistics_prior import StatisticsPrior
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import LocalPlan
from fedguard.errors import PreconditionError
from fedguard.inference import inference_view
from tests.inference.scenes import digits, flat
from tests.inference.test_batch_statistics import BASE, GRANTED, cell

QUICK = "restarts=1, tv=(0.01,)"


def smooth(shape, classes):
    """Convolutions without biases, which batch normalization would take away."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, momentum=0.2), nn.Sigmoid(),
        nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Sigmoid(), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


def view_of(module, examples, sent):
    before = torch.cat([torch.cat([one.running_mean, one.running_var]) for one in (module[1], module[4])])
    model = flat(module)
    module.train()(examples.x)
    after = torch.cat([torch.cat([one.running_mean, one.running_var]) for one in (module[1], module[4])])
    return inference_view(
        "the server", GRANTED, module, models=torch.stack([model, model]), updates=sent.expand(1, 1, -1), shape=(1, 8, 8),
        classes=10, plan=LocalPlan(lr=0.1, steps=1), counts=(len(examples),), labels=examples.y,
        statistics=torch.stack([before, after])[None],
    )  # fmt: skip


def test_the_term_is_0_for_the_batch_that_was_sent_and_a_loop_s_for_others():
    torch.manual_seed(3)
    module, examples = smooth((1, 8, 8), 10), digits(4)
    with torch.no_grad():
        module[1].running_mean.uniform_(-2, 2)
    view = view_of(module, examples, torch.zeros(len(flat(module))))
    other = torch.rand_like(examples.x)
    found = StatisticsPrior(weight=0.5).prior(view)(torch.stack([examples.x, other]))
    assert found[0] < 1e-6
    terms = []
    for upto in (1, 4):
        true, tried = (module[:upto](x).transpose(0, 1).flatten(1) for x in (examples.x, other))
        mean, variance = true.mean(1), true.var(1)
        terms.append(((tried.mean(1) - mean) ** 2 / variance + (tried.var(1) / variance - 1) ** 2).detach())
    assert found[1] == pytest.approx(0.5 * float(torch.cat(terms).mean()), rel=1e-3)


def test_a_network_without_running_statistics_is_refused():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    view = inference_view(
        "the server", GRANTED, module, models=torch.zeros(2, 650), updates=torch.zeros(1, 1, 650), shape=(1, 8, 8),
        classes=10, plan=LocalPlan(lr=0.1, steps=1), counts=(2,), statistics=torch.zeros(1, 2, 0),
    )  # fmt: skip
    with pytest.raises(PreconditionError, match="running statistics of batches"):
        StatisticsPrior().check(view)


def made(attack, **changes):
    task = {"model": {"name": "module", "target": "tests.inference.test_statistics_prior:smooth"}}
    return cell(
        attack=attack, task={**BASE["task"], **task}, training={"batch_size": 4}, observer={"victims": 1}, **changes
    )


@pytest.mark.parametrize("changes", [
    {"protocol": {"secure_aggregation": "full"}, "clients": {"total": 8}},
    {"attack": "inverting_gradients"},
])  # fmt: skip
def test_it_needs_the_client_s_own_statistics(changes):
    attack = changes.pop("attack", f"statistics_prior({QUICK})")
    one = made(attack, **changes)
    if not one.verdict.reasons:
        with pytest.raises(PreconditionError, match="does not know the batch"):
            set_up(one, 0, Workbench().task(one, 0))
    else:
        assert "hides it" in one.verdict.reasons[0]


@pytest.mark.slow
def test_the_statistics_give_what_normalization_by_batches_has_hidden():
    """At least 20 dB above the same attack with a weight that counts for nothing."""
    scores = []
    for weight in (1e-9, 1.0):
        attack = f"statistics_prior(weight={weight}, iterations=150, polish=60, {QUICK})"
        scores.append(run_trial(made(attack), 0, {})[0]["result"]["inference"]["score"]["psnr"])
    assert scores[1] > 40 > 20 > scores[0], scores
