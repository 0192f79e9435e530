"""The convolutional engine: it equals a plain loop over automatic differentiation, and knows which networks it can train."""

from __future__ import annotations

import dataclasses
from types import MethodType

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.contracts import Examples, LocalPlan, Model
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.compute import USUAL_MEMORY, Compute
from fedguard.tasks.engines import conv
from fedguard.tasks.engines.conv import ConvEngine
from fedguard.tasks.engines.conv_shapes import conv_shapes
from fedguard.tasks.network import FlatNetwork

CLASSES = 5


def model(name, shape):
    return load_registry().build("model", name).build(shape, CLASSES)


def pooled(pool, kernel=3, padding=0, channels=3):
    """Two convolutions with few channels, the ReLU after one pooling and before the other, on 14 x 13."""
    sides = [14, 13]
    for _ in range(2):
        sides = [(side + 2 * padding - kernel + 1) // 2 for side in sides]
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel, padding=padding),
        nn.ReLU(),
        pool(2),
        nn.Conv2d(channels, 6, kernel, padding=padding),
        *((nn.MaxPool2d(2), nn.ReLU()) if pool is nn.MaxPool2d else (nn.ReLU(), pool(2))),
        nn.Flatten(),
        nn.Linear(6 * sides[0] * sides[1], CLASSES),
    )


#: Network and the images that it takes.
NETWORKS = {
    "lenet5": lambda: (model("lenet5", (1, 28, 28)), (1, 28, 28)),
    "lenet5, small color images": lambda: (model("lenet5", (3, 9, 8)), (3, 9, 8)),
    "lenet5, a column left out": lambda: (model("lenet5", (2, 14, 17)), (2, 14, 17)),
    "fedavg_cnn": lambda: (model("fedavg_cnn", (1, 12, 12)), (1, 12, 12)),
    "fedavg_cnn, rows left out": lambda: (model("fedavg_cnn", (3, 7, 10)), (3, 7, 10)),
    "average pooling": lambda: (pooled(nn.AvgPool2d), (1, 14, 13)),
    "average pooling, many channels": lambda: (pooled(nn.AvgPool2d, channels=32), (1, 14, 13)),
    "even kernel": lambda: (pooled(nn.MaxPool2d, kernel=2, padding=1), (1, 14, 13)),
    "odd padding": lambda: (pooled(nn.MaxPool2d, kernel=3, padding=1, channels=2), (1, 14, 13)),
    "much padding": lambda: (pooled(nn.MaxPool2d, kernel=3, padding=3), (1, 14, 13)),
    "one pixel": lambda: (pooled(nn.MaxPool2d, kernel=1), (1, 14, 13)),
    "without pooling": lambda: (
        nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 2), nn.ReLU(), nn.Flatten(), nn.Linear(150, 8), nn.ReLU(),
            nn.Linear(8, CLASSES),
        ),
        (1, 8, 8),
    ),
}  # fmt: skip

PLANS = {
    "epochs, momentum": LocalPlan(lr=0.1, batch_size=4, epochs=3, momentum=0.8),
    "fedsgd": LocalPlan(lr=1.0, batch_size=4, steps=1),
    "full batches": LocalPlan(lr=0.1, epochs=2),
    "prox": LocalPlan(lr=0.1, batch_size=4, epochs=2, prox=0.7),
    "prox, momentum, corrections": LocalPlan(lr=0.1, batch_size=4, epochs=2, prox=0.7, momentum=0.5),
    "corrections": LocalPlan(lr=0.1, batch_size=4, epochs=2),
}

#: Examples of each client.
SIZES = (9, 1, 4, 13)


def flat_of(module):
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def plain_loop(module, start, examples, batches, plan, correction):
    """What one client moves by, from the definition: one gradient of everything after the other."""
    parameters = list(module.parameters())
    w, velocity = start.clone(), torch.zeros_like(start)
    for batch in batches:
        rows = torch.from_numpy(batch[batch >= 0])
        for parameter, part in zip(parameters, w.split([p.numel() for p in parameters]), strict=True):
            parameter.data = part.view_as(parameter).clone()
        loss = cross_entropy(module(examples.x[rows]), examples.y[rows])
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, parameters)])
        gradient = gradient + plan.prox * (w - start) + correction
        velocity = plan.momentum * velocity + gradient
        w = w - plan.lr * velocity
    return w - start


def scene(network, dtype=torch.float64, sizes=SIZES, pixels=torch.randn):
    torch.manual_seed(0)
    module, shape = network()
    module = module.to(dtype)
    draw = torch.Generator().manual_seed(1)
    parts = [
        Examples(pixels(size, *shape, generator=draw).to(dtype), torch.randint(CLASSES, (size,), generator=draw))
        for size in sizes
    ]
    return module, shape, parts


def both(scene, plan, clients=None, memory=USUAL_MEMORY):
    """What the clients move by, as the engine and as the plain loop find it."""
    clients = range(len(scene[2])) if clients is None else clients
    return by_the_engine(scene, plan, clients, memory), by_the_loop(scene, plan, clients)


def schedules(scene, plan, clients):
    return [schedule(plan, len(scene[2][client]), Rng(client).numpy()) for client in clients]


def by_the_engine(scene, plan, clients, memory):
    module, shape, parts = scene
    start = flat_of(module)
    engine = ConvEngine(conv_shapes(module, shape), parts, Compute(memory=memory))
    found = torch.full((len(clients), len(start)), torch.nan, dtype=start.dtype)
    engine.train(start, clients, schedules(scene, plan, clients), plan, found)
    return found


def by_the_loop(scene, plan, clients):
    module, _, parts = scene
    start = flat_of(module)
    none = torch.zeros_like(start)
    expected = [
        plain_loop(module, start, parts[client], batches, plan, (plan.corrections or {}).get(client, none))
        for client, batches in zip(clients, schedules(scene, plan, clients), strict=True)
    ]
    for parameter, part in zip(module.parameters(), start.split([p.numel() for p in module.parameters()]), strict=True):
        parameter.data = part.view_as(parameter).clone()
    return torch.stack(expected)


def corrected(plan, dim, dtype=torch.float64):
    """The plan with corrections for two of the clients."""
    draw = torch.Generator().manual_seed(2)
    return dataclasses.replace(
        plan, corrections={client: torch.randn(dim, generator=draw, dtype=dtype) / 30 for client in (0, 2)}
    )


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
def test_equals_the_plain_loop_for_clients_of_unequal_size(network):
    found, expected = both(scene(network), PLANS["epochs, momentum"])
    assert (found - expected).abs().max() < 1e-10
    assert (expected.norm(dim=1) > 1e-2).all()


@pytest.mark.parametrize("network", ["lenet5, small color images", "fedavg_cnn, rows left out"])
@pytest.mark.parametrize("name", PLANS)
def test_equals_the_plain_loop_under_every_plan(network, name):
    set_up = scene(NETWORKS[network])
    plan = PLANS[name]
    if "corrections" in name:
        plan = corrected(plan, len(flat_of(set_up[0])))
    found, expected = both(set_up, plan)
    assert (found - expected).abs().max() < 1e-10


@pytest.mark.parametrize("network", ["lenet5", "fedavg_cnn"])
def test_equals_the_plain_loop_in_float32(network):
    found, expected = both(scene(NETWORKS[network], torch.float32), LocalPlan(lr=0.1, batch_size=4, epochs=1))
    assert ((found - expected).norm(dim=1) < 1e-5 * expected.norm(dim=1)).all()


@pytest.mark.parametrize("network", ["lenet5, a column left out", "even kernel", "fedavg_cnn", "average pooling"])
def test_equal_pixels_share_nothing_and_the_first_takes_all(network):
    """As in torch. Pictures of two shades, under kernels of whole numbers, make windows with many equal maxima."""

    def two_shades(*shape, generator):
        return torch.randint(2, shape, generator=generator)

    module, shape, parts = scene(NETWORKS[network], pixels=two_shades)
    with torch.no_grad():
        for layer in module:
            if isinstance(layer, nn.Conv2d):
                layer.weight.copy_((layer.weight * 20).round() / 8)
    found, expected = both((module, shape, parts), LocalPlan(lr=0.01, batch_size=4, steps=1))
    assert (found - expected).abs().max() < 1e-10


@pytest.mark.parametrize("network", ["lenet5, small color images", "fedavg_cnn, rows left out"])
def test_chunks_and_threads_change_nothing(network, monkeypatch):
    set_up = scene(NETWORKS[network], sizes=(6, 3, 11, 5, 2, 7))
    plan = LocalPlan(lr=0.1, batch_size=4, epochs=2, momentum=0.5)
    clients = (5, 0, 2, 3, 1)
    expected = by_the_loop(set_up, plan, clients)
    for together, memory, threads in ((1, 1 << 30, 1), (2, 1 << 30, 2), (100, 1 << 30, 1), (100, 4, 2)):
        monkeypatch.setattr(conv, "TOGETHER", together)
        torch.set_num_threads(threads)
        try:
            found = by_the_engine(set_up, plan, clients, memory)
        finally:
            torch.set_num_threads(1)
        assert (found - expected).abs().max() < 1e-10


def test_knows_the_networks_that_it_can_train():
    for network in NETWORKS.values():
        assert conv_shapes(*network()) is not None


def test_other_networks_are_not_its():
    def ending(size):
        return nn.Flatten(), nn.Linear(size, CLASSES)

    shared = nn.Conv2d(1, 1, 3, padding=1)
    others = [
        nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)),
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), *ending(18)),
        nn.Sequential(nn.Conv2d(1, 2, 3, dilation=2), nn.ReLU(), *ending(32)),
        nn.Sequential(nn.Conv2d(1, 2, (3, 1)), nn.ReLU(), *ending(96)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.ReLU(), *ending(128)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.ReLU(), *ending(128)),
        nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU(), *ending(72)),
        nn.Sequential(nn.Conv2d(1, 2, 3), *ending(72)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), *ending(72)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.ReLU(), *ending(18)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3), *ending(8)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2, stride=1), *ending(50)),
        nn.Sequential(nn.Conv2d(1, 2, 4), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True), *ending(18)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Dropout(), *ending(72)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), *ending(72)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4), nn.Linear(4, CLASSES)),
        nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), *ending(64)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(2), nn.Linear(36, CLASSES)),
    ]
    for network in others:
        assert conv_shapes(network, (1, 8, 8)) is None, network


def hooked(network, layer):
    layer.register_forward_hook(lambda _, given, made: 2 * made)
    return network


def doubled(network):
    network.forward = MethodType(lambda self, x: 2 * nn.Sequential.forward(self, x), network)
    return network


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


SHARED = nn.Linear(6, 6)
#: Networks that look like those that an engine knows and are others.
DISGUISED = {
    "a class of its own": lambda: Doubled(nn.Flatten(), nn.Linear(6, CLASSES)),
    "a hook": lambda: hooked(network := nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES)), network[1]),
    "a hook on the whole": lambda: hooked(network := nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES)), network),
    "another forward": lambda: doubled(nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES))),
    "a layer twice": lambda: nn.Sequential(
        nn.Flatten(), SHARED, nn.ReLU(), SHARED, nn.ReLU(), nn.Linear(6, CLASSES)
    ),
    "a convolution with a hook": lambda: hooked(
        network := nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, CLASSES)), network[0]
    ),
}  # fmt: skip


class Given(Model):
    """A model of the user's own that builds what it was given."""

    name = "given"

    def __init__(self, make):
        self.make = make

    def build(self, shape, classes):
        return self.make()


@pytest.mark.parametrize("name", DISGUISED)
def test_a_network_that_only_looks_known_is_trained_as_what_it_is(name):
    shape = (1, 2, 3) if "convolution" not in name else (1, 3, 2)
    network = FlatNetwork(Given(DISGUISED[name]), shape, CLASSES, Rng(0))
    draw = torch.Generator().manual_seed(1)
    part = Examples(torch.randn(7, *shape, generator=draw), torch.randint(CLASSES, (7,), generator=draw))
    plan, out = LocalPlan(lr=0.1, batch_size=3, epochs=2), torch.empty(1, network.dim)
    start = network.flat.clone()
    Cohort(network, [part]).train(start, [0], plan, Rng(5), out)
    expected = plain_loop(
        network.module, start, part, schedule(plan, 7, Rng(5).child("client", 0).numpy()), plan, torch.zeros_like(start)
    )
    assert (out[0] - expected).norm() < 1e-5 * expected.norm()
