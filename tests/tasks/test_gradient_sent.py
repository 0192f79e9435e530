"""A client of one step, as in FedSGD, sends its gradient and no difference of two models, in which large weights swallow it.

All weights are multiplied by s = 100 and the inputs by s^-L for a network of L layers with ReLU, which leaves the logits as
they are: the gradient of each weight becomes s times smaller, where a weight's last digit becomes s times larger. The truth
is the gradient in float64.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedguard.contracts import DPSGD, Examples, LocalPlan
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.engines.conv import ConvEngine
from fedguard.tasks.engines.dense import DenseEngine
from fedguard.tasks.engines.module import ModuleEngine
from fedguard.tasks.network import FlatNetwork
from tests.tasks.test_cohort import deal

SCALE = 100.0
MLP, NARROW, WIDE = "mlp(hidden=(24, 12))", "lenet5", f'module(target="{__name__}:wide")'
PLAIN = LocalPlan(lr=1.0, steps=1, batch_size=12)


def wide(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Too many channels for blocks, and few units, so that none is so near 0 that float32 and float64 disagree on its sign."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 36, 8), nn.ReLU(),
        nn.Linear(8, classes),
    )  # fmt: skip


def scene(model: str, sizes=(90, 12, 30)) -> tuple[FlatNetwork, torch.Tensor, list[Examples]]:
    """A network, a start with large weights, and clients with the small inputs that go with it."""
    shape = (1, 8, 8) if model == MLP else (1, 16, 16)
    network = FlatNetwork(load_registry().build("model", model), shape, 10, Rng(0))
    layers = len(list(network.module.parameters())) // 2
    parts = [part.replace(x=part.x * SCALE**-layers) for part in deal(sizes, shape)]
    scaled = []
    for number, parameter in enumerate(network.module.parameters()):
        power = 1 if number % 2 == 0 else number // 2 + 1 - layers
        scaled.append(parameter.detach().reshape(-1) * SCALE**power)
    return network, torch.cat(scaled), parts


def exact(network: FlatNetwork, start, part: Examples, batch, divisor: int | None = None) -> list[torch.Tensor]:
    """float64: the gradient by tensors; of the summed loss over a divisor where one is given."""
    module = copy.deepcopy(network.module).double()
    nn.utils.vector_to_parameters(start.double(), module.parameters())
    rows = [row for row in batch.tolist() if row >= 0]
    loss = nn.functional.cross_entropy(module(part.x[rows].double()), part.y[rows], reduction="sum")
    return list(torch.autograd.grad(loss / (divisor or len(rows)), list(module.parameters())))


def furthest(update, gradient: list[torch.Tensor], lr: float) -> float:
    """The largest relative error of a tensor."""
    sent = update.double().split([part.numel() for part in gradient])
    errors = [(mine / -lr - part.reshape(-1)).norm() / part.norm() for mine, part in zip(sent, gradient, strict=True)]
    return float(max(errors))


def batches_of(plan: LocalPlan, parts):
    return [schedule(plan, len(part), Rng(client).numpy()) for client, part in enumerate(parts)]


ENGINES = {
    "dense, delta form": (MLP, lambda network, parts: DenseEngine(network.widths, parts, network.compute)),
    "dense, held": (MLP, lambda network, parts: held(DenseEngine(network.widths, parts, network.compute))),
    "conv, blocks": (NARROW, lambda network, parts: Cohort(network, parts)._engine),
    "conv, pixels": (WIDE, lambda network, parts: Cohort(network, parts)._engine),
    "general": (MLP, ModuleEngine),
    "general, convolutions": (NARROW, ModuleEngine),
}


def held(engine: DenseEngine) -> DenseEngine:
    engine._delta_up_to = 0
    return engine


@pytest.mark.parametrize(
    "plan",
    [PLAIN, LocalPlan(lr=1e-5, steps=1, batch_size=12), LocalPlan(lr=1.0, steps=1), LocalPlan(lr=0.5, steps=1, momentum=0.9)],
    ids=["fedsgd", "small step", "full batch", "momentum"],
)  # fmt: skip
@pytest.mark.parametrize("name", ENGINES)
def test_an_update_of_one_step_is_the_gradient_to_float32_precision(name, plan):
    model, build = ENGINES[name]
    network, start, parts = scene(model)
    engine = build(network, parts)
    assert isinstance(engine, ConvEngine) == name.startswith("conv")
    out, batches = torch.full((len(parts), len(start)), torch.nan), batches_of(plan, parts)
    engine.train(start, range(len(parts)), batches, plan, out)
    for update, part, (batch,) in zip(out, parts, batches, strict=True):
        assert furthest(update, exact(network, start, part, batch), plan.lr) < 2e-5


def test_corrections_and_what_a_client_does_to_its_gradient_are_kept():
    network, start, parts = scene(MLP)
    correction = torch.randn(len(start), generator=torch.Generator().manual_seed(1)) * 1e-4
    doubled = LocalPlan(lr=1.0, steps=1, batch_size=12, adjust=lambda _at, _start, gradient: 2 * gradient)
    corrected = LocalPlan(lr=1.0, steps=1, batch_size=12, prox=0.5, corrections={0: correction, 2: -correction})
    (truth,) = [exact(network, start, parts[0], batch) for batch in batches_of(PLAIN, parts)[0]]
    sizes = [part.numel() for part in truth]
    for engine in (ModuleEngine(network, parts), held(DenseEngine(network.widths, parts, network.compute))):
        out = torch.empty(len(parts), len(start))
        engine.train(start, range(len(parts)), batches_of(corrected, parts), corrected, out)
        pulled = correction.double().split(sizes)
        expected = [part + pull.view_as(part) for part, pull in zip(truth, pulled, strict=True)]
        assert furthest(out[0], expected, 1.0) < 2e-5
    out = torch.empty(len(parts), len(start))
    ModuleEngine(network, parts).train(start, range(len(parts)), batches_of(doubled, parts), doubled, out)
    assert furthest(out[0], truth, 2.0) < 2e-5


def test_a_projection_still_ends_where_it_says():
    """What a client projects is a model, so the update leads to the projected model."""
    network, start, parts = scene(MLP)
    plan = LocalPlan(lr=1.0, steps=1, batch_size=12, project=lambda _at, start: start / 2)
    out = torch.empty(len(parts), len(start))
    ModuleEngine(network, parts).train(start, range(len(parts)), batches_of(plan, parts), plan, out)
    assert torch.equal(out[1], -start / 2)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_private_update_of_one_step_is_the_noisy_gradient(momentum):
    """Without noise and with a clip that none reaches; its noise is added to the gradient, so it is as precise."""
    network, start, parts = scene(MLP)
    updates = []
    for lr, noise in ((1.0, 0.0), (1e-5, 0.0), (1.0, 1e-12)):
        private = DPSGD(sample_rate=0.3, levels=((1e9, noise),))
        plan = LocalPlan(lr=lr, steps=1, batch_size=12, private=private, momentum=momentum)
        out = torch.empty(len(parts), len(start))
        Cohort(network, parts).train(start, range(len(parts)), plan, Rng(5), out)
        updates.append(out)
        if not noise:
            for client, part in enumerate(parts):
                (batch,) = schedule(plan, len(part), Rng(5).child("client", client).numpy())
                assert furthest(out[client], exact(network, start, part, batch, 12), lr) < 2e-5
    added = updates[2] - updates[0]
    assert float(added.std()) == pytest.approx(1e-3 / 12, rel=0.1)
