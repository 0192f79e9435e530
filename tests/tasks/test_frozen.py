"""Frozen parameters: what is trained is what is counted and sent, and nothing else moves."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.api import lay_out
from fedguard.bench.running.code import code_of
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import DPSGD, Dataset, Examples, LocalPlan, Model
from fedguard.contracts.first_model import pin
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.tasks.classification import fitting
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.engines.conv_shapes import conv_shapes
from fedguard.tasks.first_model import read_first_model
from fedguard.tasks.network import FlatNetwork, Predictor, bare, duplicate

SHAPE, CLASSES, TRAINED = (2, 3), 3, 4 * 3 + 3


class Given(Model):
    name = "given"

    def __init__(self, make) -> None:
        self.make = make

    def build(self, shape, classes):
        return self.make()


def freeze(module, first=0):
    """The module with all layers but those from ``first`` on trained."""
    for layer in list(module)[:first]:
        layer.requires_grad_(False)
    return module


def tail(head=None):
    """A network of which the last layer is trained alone."""
    return freeze(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), head or nn.ReLU(), nn.Linear(4, 3)), 3)


def network_of(make=tail) -> FlatNetwork:
    return FlatNetwork(Given(make), SHAPE, CLASSES, Rng(0))


def examples(n, seed=1) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    return Examples(torch.randn(n, *SHAPE, generator=draw), torch.randint(CLASSES, (n,), generator=draw))


def frozen_of(module) -> dict[str, bytes]:
    return {n: p.detach().numpy().tobytes() for n, p in module.named_parameters() if not p.requires_grad}


def plain_client(module, part, batches, plan) -> torch.Tensor:
    """A client as torch trains it: an optimizer over what requires a gradient."""
    module = copy.deepcopy(module)
    trained = [p for p in module.parameters() if p.requires_grad]
    before = torch.cat([p.detach().reshape(-1) for p in trained])
    sgd = torch.optim.SGD(trained, lr=plan.lr, momentum=plan.momentum)
    for batch in batches:
        rows = torch.from_numpy(batch[batch >= 0])
        sgd.zero_grad()
        cross_entropy(module(part.x[rows]), part.y[rows]).backward()
        sgd.step()
    return torch.cat([p.detach().reshape(-1) for p in trained]) - before


def test_d_counts_what_is_trained():
    network = network_of()
    assert network.dim == TRAINED and network.layers == (12, 3)
    assert list(frozen_of(network.module)) == ["1.weight", "1.bias"]


@pytest.mark.parametrize(
    "plan",
    [LocalPlan(lr=0.1, steps=1), LocalPlan(lr=0.3, batch_size=4, epochs=2), LocalPlan(lr=0.1, epochs=3, momentum=0.9)],
)
def test_training_equals_a_plain_loop_and_leaves_frozen_weights_as_they_are(plan):
    """A fault that this finds: an engine that takes the network for one whose parameters are all trained."""
    network, parts = network_of(), [examples(n, seed=n) for n in (11, 8, 2)]
    before = frozen_of(network.module)
    out = torch.empty(len(parts), network.dim)
    Cohort(network, parts).train(network.flat.clone(), range(len(parts)), plan, Rng(5), out)
    for client, (part, update) in enumerate(zip(parts, out, strict=True)):
        batches = schedule(plan, len(part), Rng(5).child("client", client).numpy())
        torch.testing.assert_close(update, plain_client(network.module, part, batches, plan), rtol=1e-6, atol=1e-6)
        assert update.any()
    assert frozen_of(network.module) == before


def test_all_copies_share_the_frozen_weights_and_none_of_the_trained():
    network = network_of()
    own = dict(network.module.named_parameters())
    for copied in (duplicate(network.module, torch.device("cpu"))[0], bare(network.module)):
        for name, parameter in copied.named_parameters():
            assert (parameter.data_ptr() == own[name].data_ptr()) is (not parameter.requires_grad), name
    assert not bare(network.module)[3].weight.any()


def test_a_predictor_computes_with_them():
    network, x = network_of(), examples(5).x
    expected = network.module(x).detach()
    torch.testing.assert_close(Predictor(network)(network.flat.clone(), x), expected)
    torch.testing.assert_close(network.logits(network.flat.clone(), x), expected)


@pytest.mark.parametrize("parts", [(1,), (1, 3)])
def test_no_engine_takes_the_network_for_a_plain_one(parts):
    layers = [nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)]
    plain = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))
    assert network_of(lambda: nn.Sequential(*layers)).widths and conv_shapes(plain, (1, 3, 2))
    layers[1].weight.requires_grad_(False)
    plain[0].bias.requires_grad_(False)
    assert network_of(lambda: nn.Sequential(*layers)).widths is None and conv_shapes(plain, (1, 3, 2)) is None


def test_private_training_clips_what_is_trained():
    plan = LocalPlan(lr=1.0, batch_size=4, steps=1, private=DPSGD(sample_rate=0.9, levels=((1e-3, 0.0),)))
    network, part, out = network_of(), examples(8), torch.empty(1, TRAINED)
    before = frozen_of(network.module)
    Cohort(network, [part]).train(network.flat.clone(), [0], plan, Rng(5), out)
    (batch,) = schedule(plan, 8, Rng(5).child("client", 0).numpy())
    expected = torch.zeros(TRAINED)
    for row in batch[batch >= 0].tolist():
        gradient = -plain_client(network.module, part, [np.array([row])], LocalPlan(lr=1.0, steps=1))
        expected -= gradient * min(1.0, 1e-3 / float(gradient.norm())) / 4
    torch.testing.assert_close(out[0], expected, rtol=1e-3, atol=1e-7)
    assert frozen_of(network.module) == before


def test_a_first_model_holds_what_is_trained(tmp_path):
    network = network_of()
    held = {"3.weight": np.ones((3, 4), np.float32), "3.bias": np.zeros(3, np.float32)}
    np.savez(tmp_path / "first.npz", **held)
    found = read_first_model(pin(str(tmp_path / "first.npz")), network.module)
    assert found.tolist() == [1.0] * 12 + [0.0] * 3


class Moving(nn.Module):
    """Changes a frozen weight at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.ones(6), requires_grad=False), nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(0.9)
        return self.out(x.flatten(1) * self.scale.clone())


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spare, self.out = nn.Linear(2, 2), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x.flatten(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Moving, "scale is frozen (requires_grad=False), and forward changes it all the same"),
        (lambda: freeze(tail(), 4), "expected parameters that are trained; got none that requires a gradient"),
        (
            Unused,
            "spare.weight is a parameter that forward does not use. Remove it, or freeze it: requires_grad=False.",
        ),
    ],
)
def test_what_is_refused(make, message):
    part = examples(6)
    with pytest.raises(ConfigError) as caught:
        fitting(Given(make), Dataset(part, part, CLASSES, (-5.0, 5.0)), None)
    assert message in str(caught.value)


MODULE = """
from pathlib import Path

import numpy as np
import torch
from torch import nn

WEIGHTS = Path(__file__).parent / "weights.npy"


def network(shape, classes):
    first = nn.Linear(13, 4)
    if WEIGHTS.exists():
        first.weight = nn.Parameter(torch.from_numpy(np.load(WEIGHTS)), requires_grad=False)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(4, classes))
"""


@pytest.fixture
def cell_of(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "frozen_of_mine.py").write_text(MODULE)
    suite = {
        "task": {"data": "wine", "model": "frozen_of_mine:network"},
        "clients": {"total": 4},
        "training": {"rounds": 2, "lr": 0.1},
        "seeds": 1,
        "matrix": {"attack": ["none"]},
    }
    yield lambda: lay_out(suite)[1].cells[0]
    sys.modules.pop("frozen_of_mine", None)


def test_a_record_names_its_frozen_weights_and_other_ones_run_again(tmp_path, cell_of):
    assert "frozen weights" not in code_of(cell_of())
    digests = []
    for seed in (0, 0, 1):
        weights = np.random.default_rng(seed).normal(size=(4, 13)).astype(np.float32)
        np.save(tmp_path / "weights.npy", weights)
        digests.append(code_of(cell_of())["frozen weights"])
    assert digests[0] == digests[1] != digests[2]
    record, model = run_trial(cell_of(), 0, {})
    assert record["environment"]["code"]["frozen weights"] == digests[2]
    assert len(model) == 4 + 4 * 3 + 3
    weights = Workbench().task(cell_of(), 0).module[0].weight
    assert weights.numpy().tobytes() == np.load(tmp_path / "weights.npy").tobytes()
