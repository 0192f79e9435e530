"""Every engine equals a plain loop: ragged clients, momentum, several epochs, FedProx's pull and SCAFFOLD's corrections."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedguard.contracts import DPSGD, Examples, LocalPlan
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.compute import Compute
from fedguard.tasks.engines.dense import DenseEngine
from fedguard.tasks.engines.module import ModuleEngine
from fedguard.tasks.engines.parallel import spread
from fedguard.tasks.network import FlatNetwork

PLANS = {
    "epochs, momentum": LocalPlan(lr=0.3, batch_size=4, epochs=2, momentum=0.9),
    "one epoch": LocalPlan(lr=0.3, batch_size=4, epochs=1),
    "one step": LocalPlan(lr=1.0, batch_size=4, steps=1),
    "one step on all": LocalPlan(lr=1.0, steps=1),
    "few steps": LocalPlan(lr=0.2, batch_size=4, steps=3),
    "many steps, momentum": LocalPlan(lr=0.2, batch_size=3, steps=16, momentum=0.5),
}


@pytest.fixture(autouse=True)
def as_before():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def plain_loop(
    module: nn.Module, start, part: Examples, batches, plan: LocalPlan, correction, loss=nn.functional.cross_entropy
) -> torch.Tensor:
    """What one client moves by: SGD as the papers write it, on one flat vector."""
    weights, velocity = start.clone(), torch.zeros_like(start)
    for batch in batches:
        rows = [row for row in batch.tolist() if row >= 0]
        nn.utils.vector_to_parameters(weights.clone(), module.parameters())
        module.zero_grad()
        loss(module(part.x[rows]), part.y[rows]).backward()
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])
        velocity = plan.momentum * velocity + gradient + plan.prox * (weights - start) + correction
        weights = weights - plan.lr * velocity
    return weights - start


def deal(sizes, shape=(1, 8, 8), classes=10, seed=1) -> list[Examples]:
    draw = torch.Generator().manual_seed(seed)
    return [
        Examples(torch.rand(size, *shape, generator=draw), torch.randint(classes, (size,), generator=draw))
        for size in sizes
    ]


def batches_of(plan: LocalPlan, parts):
    return [schedule(plan, len(part), Rng(client).numpy()) for client, part in enumerate(parts)]


def expected_updates(module, start, parts, plan: LocalPlan) -> torch.Tensor:
    none = torch.zeros_like(start)
    return torch.stack(
        [
            plain_loop(module, start, part, batches, plan, (plan.corrections or {}).get(client, none))
            for client, (part, batches) in enumerate(zip(parts, batches_of(plan, parts), strict=True))
        ]
    )


def trained(engine, start, parts, plan: LocalPlan) -> torch.Tensor:
    out = torch.full((len(parts), len(start)), torch.nan)
    engine.train(start, range(len(parts)), batches_of(plan, parts), plan, out)
    return out


def altered(plan: LocalPlan, dim: int, how: str) -> LocalPlan:
    """The plan with FedProx's pull, with corrections for two clients of the first three, or both."""
    draw = torch.Generator().manual_seed(7)
    if "prox" in how:
        plan = replace(plan, prox=0.7)
    if "corrections" in how:
        plan = replace(plan, corrections={client: torch.randn(dim, generator=draw) / 10 for client in (0, 2)})
    return plan


@pytest.mark.parametrize(
    "how",
    ["plain", *(pytest.param(one, marks=pytest.mark.slow) for one in ("prox", "corrections")), "prox and corrections"],
)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
@pytest.mark.parametrize(
    ("hidden", "sizes"), [((), (5, 40, 17, 40)), ((24, 12), (5, 40, 17, 40)), ((20,), (3, 1, 2, 9))]
)
def test_dense_engine_equals_the_plain_loop(hidden, sizes, plan, how, float64):
    """In both forms of the first layer, in one chunk and one for each client, in one thread and two, and once more."""
    parts = deal(sizes)
    network = FlatNetwork(load_registry().build("model", f"mlp(hidden={hidden})"), (1, 8, 8), 10, Rng(0))
    start = network.flat.clone()
    plan = altered(plan, len(start), how)
    expected = expected_updates(network.module, start, parts, plan)
    for examples_in_delta_form, memory, threads in ((10**6, 1 << 28, 1), (10**6, 4, 2), (0, 1 << 28, 2), (0, 4, 1)):
        torch.set_num_threads(threads)
        engine = DenseEngine(network.widths, parts, Compute(memory=memory))
        engine._delta_up_to = examples_in_delta_form
        for _ in range(2):
            assert (trained(engine, start, parts, plan) - expected).abs().max() < 1e-10


NETWORKS = {
    "mlp(hidden=(20,))": ((1, 8, 8), 10),
    "lenet5": ((1, 16, 16), 10),
    "resnet20(width=4, groups=2)": ((3, 8, 8), 10),
    "transformer(width=8, heads=2, layers=1)": ((6,), 12),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", ["plain", "prox and corrections"])
@pytest.mark.parametrize("plan", ["epochs, momentum", "one epoch"])
@pytest.mark.parametrize("model", NETWORKS)
def test_general_engine_equals_the_plain_loop(model, plan, how, threads, float64):
    shape, classes = NETWORKS[model]
    parts = deal((5, 9, 1, 6), shape, classes)
    if model.startswith("transformer"):
        parts = [part.replace(x=(part.x * classes).floor()) for part in parts]
    network = FlatNetwork(load_registry().build("model", model), shape, classes, Rng(0))
    start = network.flat.clone()
    local = altered(replace(PLANS[plan], lr=0.05), len(start), how)
    expected = expected_updates(network.module, start, parts, local)
    torch.set_num_threads(threads)
    engine = ModuleEngine(network, parts)
    for _ in range(2):
        assert (trained(engine, start, parts, local) - expected).abs().max() < 1e-10
    assert expected.abs().max() > 1e-3


def test_engines_equal_the_plain_loop_in_float32():
    for model in ("softmax", "mlp"):
        parts = deal((30, 12, 25))
        network = FlatNetwork(load_registry().build("model", model), (1, 8, 8), 10, Rng(0))
        start, plan = network.flat.clone(), LocalPlan(lr=0.1, batch_size=5, epochs=1)
        expected = expected_updates(network.module, start, parts, plan)
        for engine in (DenseEngine(network.widths, parts, network.compute), ModuleEngine(network, parts)):
            error = (trained(engine, start, parts, plan) - expected).norm(dim=1) / expected.norm(dim=1)
            assert error.max() < 1e-5


def test_the_clients_may_be_any_in_any_order(float64):
    """A correction belongs to a client's number, not to its place in the round."""
    parts = deal((5, 40, 17, 33))
    network = FlatNetwork(load_registry().build("model", "mlp(hidden=(20,))"), (1, 8, 8), 10, Rng(0))
    start = network.flat.clone()
    plan = altered(LocalPlan(lr=0.2, batch_size=4, epochs=1), len(start), "corrections")
    expected = expected_updates(network.module, start, parts, plan)
    chosen = [2, 1, 3]
    for engine in (DenseEngine(network.widths, parts, network.compute), ModuleEngine(network, parts)):
        out = torch.empty(3, len(start))
        engine.train(start, chosen, [batches_of(plan, parts)[client] for client in chosen], plan, out)
        assert (out - expected[chosen]).abs().max() < 1e-10


def test_a_strong_pull_holds_a_client_where_it_started(float64):
    """With lr mu = 1 and no momentum, a step forgets where the client is: w = start - lr g."""
    parts = deal((12,))
    network = FlatNetwork(load_registry().build("model", "softmax"), (1, 8, 8), 10, Rng(0))
    start = network.flat.clone()
    plan = LocalPlan(lr=1e-6, prox=1e6, batch_size=4, epochs=3)
    moved = trained(DenseEngine(network.widths, parts, network.compute), start, parts, plan)
    last = LocalPlan(lr=1e-6, batch_size=4, steps=1)
    out = torch.empty_like(moved)
    DenseEngine(network.widths, parts, network.compute).train(start, [0], [batches_of(plan, parts)[0][-1:]], last, out)
    assert (moved - out).abs().max() < 1e-4 * out.abs().max()


def test_private_training_refuses_what_it_does_not_account_for():
    parts = deal((20,))
    network = FlatNetwork(load_registry().build("model", "softmax"), (1, 8, 8), 10, Rng(0))
    private = LocalPlan(lr=0.1, batch_size=5, epochs=1, private=DPSGD(sample_rate=0.25, levels=((1.0, 1.0),)))
    out = torch.empty(1, network.dim)
    for plan in (replace(private, prox=0.1), replace(private, corrections={0: torch.zeros(network.dim)})):
        with pytest.raises(ConfigError, match="private training: expected steps on the clients' own loss"):
            Cohort(network, parts).train(network.flat.clone(), [0], plan, Rng(0), out)


def test_jobs_are_spread_over_threads_of_one_torch_thread_each():
    for threads in (1, 2):
        torch.set_num_threads(threads)
        seen: list[int] = []
        spread(lambda _, seen=seen: seen.append(torch.get_num_threads()), range(8))
        assert seen == [1] * 8
        assert torch.get_num_threads() == threads

    def fails(job: int) -> None:
        if job == 5:
            raise ConfigError("job 5")

    with pytest.raises(ConfigError, match="job 5"):
        spread(fails, range(8))
    with pytest.raises(ConfigError, match="expected more than 0 bytes; got 0"):
        Compute(memory=0)


MEASURE = """
import json, re
import torch
torch.set_num_threads(2)
from fedguard.contracts import DPSGD, Examples, LocalPlan
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.network import FlatNetwork

clients, size = 400, 200
x, y = torch.rand(size, 256), torch.arange(size) % 10
network = FlatNetwork(load_registry().build("model", "mlp(hidden=(100,))"), (256,), 10, Rng(0))
cohort = Cohort(network, [Examples(x, y) for _ in range(clients)])
out, start = torch.ones(clients, network.dim), network.flat.clone()
plan = LocalPlan(lr=0.1, batch_size=20, epochs=1, momentum=0.9)
network.compute.memory = 1 << 20
cohort.train(start, range(40), plan, Rng(0), out[:40])  # threads and libraries take some of their own
memory = lambda kind: int(re.search(kind + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
before = memory("VmRSS")
for megabytes in (64, 4096):  # the peak of the first is below that of the second, or the test fails
    network.compute.memory = megabytes << 20
    for _ in range(2):
        cohort.train(start, range(clients), plan, Rng(0), out)
    print(json.dumps(memory("VmHWM") - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.slow
def test_peak_memory_stays_within_the_limit():
    """400 clients, whose Gram matrices alone take 61 MiB, in 64 MiB and with room for all."""
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    little, much = map(json.loads, done.stdout.splitlines())
    assert little < 64 < much / 2, (little, much)


OWN_STARTS = {
    "softmax": (1, 8, 8),
    "mlp(hidden=(24,12))": (1, 8, 8),
    "lenet5": (1, 16, 16),  # narrow: several clients in a chunk
    "fedavg_cnn": (1, 12, 12),  # wide: one
    "resnet20(width=4, groups=2)": (3, 8, 8),
}


@pytest.mark.parametrize("memory", [4, 1 << 28])
@pytest.mark.parametrize("how", ["plain", "prox and corrections"])
@pytest.mark.parametrize("plan", ["epochs, momentum", "one step"])
@pytest.mark.parametrize("model", OWN_STARTS)
def test_each_client_may_start_from_a_model_of_its_own(model, plan, how, memory, float64):
    """A row of starts for each client, in an order that is not that of their numbers."""
    shape, chosen = OWN_STARTS[model], [2, 0, 3]
    parts = deal((5, 9, 70 if shape == (1, 8, 8) else 20, 6), shape)
    network = FlatNetwork(load_registry().build("model", model), shape, 10, Rng(0), Compute(memory=memory))
    starts = torch.stack(
        [network.flat + 0.05 * torch.randn(network.dim, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    )
    plans = {**PLANS, "one step": LocalPlan(lr=1.0, batch_size=3, steps=1)}
    local, rng = altered(replace(plans[plan], lr=0.05), network.dim, how), Rng(5)
    out, none = torch.full_like(starts, torch.nan), torch.zeros(network.dim)
    Cohort(network, parts).train(starts, chosen, local, rng, out)
    for row, start, client in zip(out, starts, chosen, strict=True):
        batches = schedule(local, len(parts[client]), rng.child("client", client).numpy())
        correction = (local.corrections or {}).get(client, none)
        expected = plain_loop(network.module, start, parts[client], batches, local, correction)
        assert expected.abs().max() > 1e-3
        assert (row - expected).abs().max() < 1e-10


def test_equal_starts_are_one_start_and_private_clients_have_their_own_too():
    parts = deal((5, 40, 17))
    network = FlatNetwork(load_registry().build("model", "mlp(hidden=(20,))"), (1, 8, 8), 10, Rng(0))
    start, cohort = network.flat.clone(), Cohort(network, parts)
    private = DPSGD(sample_rate=0.25, levels=((1.0, 1.0),))
    for plan in (LocalPlan(lr=0.1, batch_size=4, epochs=1), LocalPlan(lr=0.1, batch_size=5, epochs=1, private=private)):
        one, each, alone = torch.empty(3, network.dim), torch.empty(3, network.dim), torch.empty(1, network.dim)
        cohort.train(start, range(3), plan, Rng(1), one)
        cohort.train(start.repeat(3, 1), range(3), plan, Rng(1), each)
        assert torch.equal(one, each)
        shifted = start + 0.1
        cohort.train(torch.stack([start, shifted, start]), range(3), plan, Rng(1), each)
        cohort.train(shifted, [1], plan, Rng(1), alone)
        assert torch.allclose(each[1], alone[0], atol=1e-6) and not torch.allclose(each[1], one[1], atol=1e-3)
        assert torch.allclose(each[[0, 2]], one[[0, 2]], atol=1e-6)
