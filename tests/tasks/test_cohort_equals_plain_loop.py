"""The cohort equals the plain loop: each model of the registry under each algorithm, for clients of very unequal size.

Both lists are read where the package keeps them, so a model or an algorithm that is added is tested here as well. A model that
cannot be built without parameters, or takes neither of `SHAPES`, needs a row in `SPECS`; an algorithm needs its paper's loop in
`PAPERS`.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn

from fedguard.algorithms import ALGORITHMS
from fedguard.architectures.server import Server
from fedguard.config.algorithms import build_algorithm
from fedguard.contracts import Dataset, Examples, LocalPlan, Participation, Training
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.cohort import schedule
from fedguard.tasks.network import FlatNetwork
from tests.algorithms import test_algorithms as papers
from tests.tasks.test_cohort import plain_loop
from tests.tasks.test_svm import hinge

CLASSES = 5
#: Examples of each client.
SIZES = (1, 14, 4, 7)
#: Inputs: whole numbers that can be read as characters, and images of two channels.
SHAPES = ((6,), (2, 8, 9))
#: Models by name, where another form than the default is quicker, or none is built without parameters.
SPECS = {
    "mlp": "mlp(hidden=(7, 5))",
    "resnet20": "resnet20(width=4, groups=2)",
    "transformer": "transformer(width=8, heads=2, layers=2)",
    "precode": "precode(hidden=(6,), bottleneck=4)",
    "module": f'module(target="{__name__}:own_network")',
}
#: How the clients may train. Each algorithm is tried with those that it does not forbid.
FORMS = (
    {"batch_size": 4, "local_epochs": 2, "momentum": 0.6},
    {"batch_size": 5, "local_steps": 4},
    {"batch_size": 64, "local_steps": 3, "momentum": 0.6},
    {"batch_size": None},
)


def loss_of(model: str):
    """(logits, labels) -> the mean loss that a model trains by."""
    return hinge if model == "svm" else nn.functional.cross_entropy


class Gated(nn.Module):
    """A network that no engine knows: two weights that share a tensor, a gate, and no layer in the usual order."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(4, classes)
        self.first, self.gate = nn.Linear(inputs, 4), nn.Linear(inputs, 4)
        self.gate.bias = self.first.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)) * torch.sigmoid(self.gate(x)))


def own_network(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Gated(shape[0], classes)


@dataclass(frozen=True)
class Checked(Classification):
    """A task that holds each of its updates against the plain loop: once with room, once with two threads and no memory."""

    compared: list[LocalPlan] = field(default_factory=list)

    def local_updates(self, model, clients, plan, rng, out, statistics=None):
        assert plan.adjust is None and plan.project is None and plan.private is None
        super().local_updates(model, clients, plan, rng, out)
        cramped = torch.full_like(out, torch.nan)
        threads, memory = torch.get_num_threads(), self.network.compute.memory
        torch.set_num_threads(2)
        self.network.compute.memory = 4
        super().local_updates(model, clients, plan, rng, cramped)
        torch.set_num_threads(threads)
        self.network.compute.memory = memory
        module, none = copy.deepcopy(self.module), torch.zeros_like(model)
        for client, row, other in zip(clients, out, cramped, strict=True):
            batches = schedule(plan, self.sizes[client], rng.child("client", client).numpy())
            correction = (plan.corrections or {}).get(client, none)
            expected = plain_loop(
                module, model, self.parts[client], batches, plan, correction, loss_of(self.model.name)
            )
            assert float(expected.norm()) > 1e-4
            assert float((row - expected).abs().max()) < 1e-10, client
            assert float((other - expected).abs().max()) < 1e-10, client
            self.compared.append(plan)
        return out


@pytest.fixture(autouse=True)
def float64():
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)


def network_of(name: str) -> Classification:
    """A task for the model: a few examples at each client, on inputs that the model takes."""
    model = load_registry().build("model", SPECS.get(name, name))
    for shape in SHAPES:
        try:
            network = FlatNetwork(model, shape, CLASSES, Rng(0))
        except ConfigError:
            continue
        draw = torch.Generator().manual_seed(3)
        parts = []
        for size in (*SIZES, 20):
            x = torch.rand(size, *shape, generator=draw) * (CLASSES - 1)
            y = torch.randint(CLASSES, (size,), generator=draw)
            parts.append(Examples(x.round() if len(shape) == 1 else x, y))
        dataset = Dataset(parts[0], parts[-1], CLASSES, (0.0, CLASSES - 1.0))
        return Checked(dataset, tuple(parts[:-1]), None, model, network)
    raise AssertionError(f"model {name} takes neither of {SHAPES}: give it a row in SPECS, or add a shape")


#: Algorithms whose clients bring nothing from one round to the next: one round shows all.
FORGETFUL = ("fedsgd", "fedavg", "fedprox", "fednova")


def trainings(algorithm: str) -> list[Training]:
    """Of two rounds, or one where a second is as the first; those of `FORMS` that go with the algorithm."""
    rounds = 1 if algorithm in FORGETFUL else 2
    made = [Training(algorithm=algorithm, rounds=rounds, lr=0.05, **form) for form in FORMS]
    return [training for training in made if _goes(training)]


def _goes(training: Training) -> bool:
    try:
        build_algorithm(training, load_registry(), {})
    except ConfigError:
        return False
    return True


#: Algorithms of clients that hold examples.
ON_EXAMPLES = [name for name in ALGORITHMS if not load_registry().get("algorithm", name).acts]

#: Models of clients that hold examples, which have nothing to remember from one to the next.
OF_EXAMPLES = [name for name in load_registry().names("model") if not load_registry().get("model", name).recurrent]

#: What cannot be: a network of one layer, and one whose last layer is made first and which shares a tensor; and networks without
#: layers that normalize over batches (those with some: tests/architectures/test_personal_statistics.py).
REFUSED = {("softmax", "fedper"), ("svm", "fedper"), ("module", "fedper"), *((model, "fedbn") for model in OF_EXAMPLES)}


#: Models that are quickly tried in one form alone, another one under each algorithm, and slowly in all.
DEAR = ("fedavg_cnn", "lenet5", "resnet20", "transformer")


def _forms():
    """(model, algorithm, the form in which it is tried, or None for all)."""
    for model, (number, algorithm) in itertools.product(OF_EXAMPLES, enumerate(ON_EXAMPLES)):
        if model in DEAR:
            yield pytest.param(model, algorithm, number, id=f"{algorithm}-{model}-quickly")
        yield pytest.param(
            model, algorithm, None, id=f"{algorithm}-{model}", marks=[pytest.mark.slow] if model in DEAR else []
        )


@pytest.mark.parametrize(("model", "algorithm", "form"), list(_forms()))
def test_each_update_equals_the_plain_loop(model, algorithm, form):
    task = network_of(model)
    if (model, algorithm) in REFUSED:
        with pytest.raises(ConfigError, match=f"{algorithm}: expected"):
            next(Server().run(papers.set_up(task, trainings(algorithm)[0])))
        return
    tried = trainings(algorithm)
    assert tried, algorithm
    if form is not None:
        tried = [tried[form % len(tried)]]
    for training in tried:
        setup = papers.set_up(task, training, participation=Participation(total=len(SIZES), per_round=3))
        before = len(task.compared)
        for report in Server().run(setup):
            assert len(report.chosen) == 3
        assert len(task.compared) == before + 3 * training.rounds
    if algorithm in ("scaffold", "feddyn"):
        assert any(plan.corrections for plan in task.compared)
    if algorithm in ("fedprox", "feddyn"):
        assert all(plan.prox for plan in task.compared)


def fedsgd(federation, rounds):
    x, models = federation.start, []
    for round, (sampled, _) in enumerate(rounds, start=1):
        gradients = [federation.gradient(x, *batch) for i in sampled for batch in federation.batches(round, i)]
        assert len(gradients) == len(sampled)
        x = x - federation.lr * sum(gradients) / len(gradients)
        models.append(x)
    return models


def last_layer(federation) -> int:
    """Numbers of a weight and a bias at the end of the network."""
    *_, weight, bias = federation.module.parameters()
    return weight.numel() + bias.numel()


#: Each algorithm as its paper has it.
PAPERS = {
    "fedsgd": fedsgd,
    "fedavg": lambda federation, rounds: papers.fedprox(federation, rounds, 0.0),
    "fedprox": lambda federation, rounds: papers.fedprox(federation, rounds, 0.1),
    "scaffold": papers.scaffold,
    "fednova": papers.fednova,
    "feddyn": lambda federation, rounds: papers.feddyn(federation, rounds, 0.1),
    "fedper": lambda federation, rounds: papers.fedper(federation, rounds, last_layer(federation)),
}


@pytest.mark.parametrize(
    ("model", "algorithm"),
    [pair for pair in itertools.product(OF_EXAMPLES, ON_EXAMPLES) if pair not in REFUSED],
)
def test_a_whole_training_equals_the_papers_loop(model, algorithm):
    task = network_of(model)
    plain = Classification(task.dataset, task.parts, None, task.model, task.network)
    # the papers' loops have no momentum, but FedNova's
    training = next(one for one in trainings(algorithm) if not one.momentum or algorithm == "fednova")
    training = training.model_copy(update={"rounds": 2})
    setup = papers.set_up(plain, training, participation=Participation(total=len(SIZES), per_round=3))
    ours, rounds = papers.ran(setup)
    theirs = PAPERS[algorithm](papers.Federation(setup, loss_of(model)), rounds)
    assert papers.furthest(ours, theirs) < 1e-10
    assert float((ours[-1] - setup.task.initial_model(setup.rng.child("model"))).norm()) > 1e-3


def test_a_planted_fault_is_found():
    """The comparison above can fail: a plan whose pull gets lost on the way to the engine."""

    class Forgetful(Checked):
        def local_updates(self, model, clients, plan, rng, out, statistics=None):
            none = replace(plan, prox=0.0)
            found = Classification.local_updates(self, model, clients, none, rng, torch.empty_like(out))
            module = copy.deepcopy(self.module)
            for client, row in zip(clients, found, strict=True):
                batches = schedule(plan, self.sizes[client], rng.child("client", client).numpy())
                expected = plain_loop(module, model, self.parts[client], batches, plan, torch.zeros_like(model))
                assert float((row - expected).abs().max()) < 1e-10, client
            return out

    task = network_of("softmax")
    forgetful = Forgetful(**{one.name: getattr(task, one.name) for one in dataclasses.fields(task)})
    training = trainings("fedprox")[0]
    with pytest.raises(AssertionError):
        list(Server().run(papers.set_up(forgetful, training)))
