"""A private training holds the network to its contract by behavior: each example's gradient is its own, and all of it is clipped.

What is right and wrong is written down here network by network; that those which pass train by DP-SGD as a plain loop does, and
that the others move the clipped sum by more than the clip, is shown of one each.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPGRU
from torch import nn
from torch.nn import functional

from fedguard import api
from fedguard.bench.audits.cells import audit_suite
from fedguard.bench.running.procedures import refusals
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import DPSGD, Examples, LocalPlan, Model
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError, NotAllowed
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.engines import private
from fedguard.tasks.engines.by_example import hold, largest_batch
from fedguard.tasks.network import FlatNetwork, duplicate
from fedguard.tasks.statistics import ConstantNorm

SHAPE, CLASSES = (3, 4), 3


class Own(nn.Module):
    """Two layers, and what ``between`` makes of what lies between them."""

    def __init__(self, between, layer=None, before=None):
        super().__init__()
        self.first, self.last = nn.Linear(math.prod(SHAPE), 8), nn.Linear(8, CLASSES)
        self.between, self.before, self.layer, self.seen = between, before, layer, 0.0

    def forward(self, x):
        x = x.flatten(1)
        x = self.before(x) if self.before else x
        return self.last(self.between(self, self.first(x)))


class Gate(nn.Module):
    """Nothing passes at the start."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return x * self.weight


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inside, self.last = kind(4, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.last(self.inside(x)[0][:, -1])


class Slope(torch.autograd.Function):
    """The identity, whose gradients are brought to length 1, all of a batch together."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return slope / slope.norm().clamp(min=1e-9)


def centered(x):
    return x - x.mean(0)


def remembering(net, h):
    out = (h - net.seen).relu()
    net.seen = 0.9 * net.seen + 0.1 * h.detach().mean()
    return out


def tied():
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), first)


def fitted():
    """A layer with statistics and weights of its own."""
    layer = nn.BatchNorm1d(4)
    for number, values in enumerate((layer.running_mean, layer.running_var, layer.weight.data, layer.bias.data)):
        values.copy_(torch.linspace(0.5, 2.0 + number, 4))
    return layer


def attended(h):
    return (h @ h.T).softmax(-1) @ h


#: Networks whose examples see each other, or of which Opacus misses a part; a word of the reason.
WRONG = {
    "mean": (lambda: Own(lambda _, h: centered(h).relu()), "see each other"),
    "mean of the inputs": (lambda: Own(lambda _, h: h.relu(), before=centered), "see each other"),
    "mean without gradient": (lambda: Own(lambda _, h: h - h.mean(0).detach()), "see each other"),
    "a little of the next": (lambda: Own(lambda _, h: h + 1e-3 * h.roll(1, 0)), "see each other"),
    "largest input": (lambda: Own(lambda _, h: h, before=lambda x: x / (x.abs().max() / 20).clamp(min=1)), "see each other"),
    "attention over the batch": (lambda: Own(lambda _, h: attended(h)), "see each other"),
    "behind a gate that is 0": (lambda: Own(lambda n, h: h + n.layer(centered(h)), layer=Gate()), "see each other"),
    "behind two gates that are 0": (
        lambda: Own(lambda n, h: h + n.layer(centered(h)), nn.Sequential(Gate(), Gate())), "see each other"
    ),
    "in training mode": (lambda: Own(lambda n, h: centered(h) if n.training else h), "see each other"),
    "from 12 examples": (lambda: Own(lambda _, h: centered(h) if len(h) >= 12 else h), "a batch of 16"),
    "from 60 examples": (lambda: Own(lambda _, h: centered(h) if len(h) >= 60 else h), "a batch of 60"),
    "gradients alone": (lambda: Own(lambda _, h: Slope.apply(h)), "see each other"),
    "remembers": (lambda: Own(remembering), "remembers batches, or draws"),
    "draws": (lambda: Own(lambda _, h: h + torch.rand(())), "remembers batches, or draws"),
    "BatchNorm": (lambda: Own(lambda n, h: n.layer(h), nn.BatchNorm1d(8, track_running_stats=False)), "more than 1 value"),
    "in place": (lambda: Own(lambda n, h: n.layer(h), nn.ReLU(inplace=True)), r"ReLU\(inplace=False\)"),
    "GRU": (lambda: Recurrent(nn.GRU), "DPGRU"),
    "weight_norm": (
        lambda: Own(lambda n, h: n.layer(h), nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))), "Leave out weight_norm"
    ),
    "InstanceNorm": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 1), nn.InstanceNorm1d(4, affine=True), nn.Flatten(), nn.Linear(16, CLASSES)),
        "empty batch",
    ),
    "view": (lambda: Own(lambda _, h: h, before=lambda x: x.view(len(x), -1)), "empty batch"),
    "a weight again": (
        lambda: Own(lambda n, h: functional.linear(n.layer(h).relu(), n.layer.weight), nn.Linear(8, 8)), "calling the layer"
    ),
    "a weight without its layer": (
        lambda: Own(lambda n, h: functional.linear(h, n.layer.weight), nn.Linear(8, 8)), "calling the layer"
    ),
}  # fmt: skip
RIGHT = {
    "LayerNorm": lambda: Own(lambda n, h: n.layer(h), nn.LayerNorm(8)),
    "GroupNorm": lambda: nn.Sequential(
        nn.Conv1d(3, 4, 1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "BatchNorm with constants": lambda: nn.Sequential(
        nn.Conv1d(3, 4, 1), ConstantNorm(fitted()), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "DPGRU": lambda: Recurrent(DPGRU),
    "a layer twice, tied weights": lambda: Own(lambda n, h: n.layer(h), tied()),
    "a parameter of its own": lambda: Own(lambda n, h: n.layer(h).tanh(), Gate()),
    "input changed in place": lambda: Own(lambda _, h: h.relu(), before=lambda x: x.sub_(0.5)),
    "a constant in float32": lambda: Own(lambda _, h: h @ torch.eye(8), before=None),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Made(Model):
    name = "made"
    make: object = None

    def __str__(self):
        return "made"

    def build(self, shape, classes):
        return self.make()


def network(make):
    return FlatNetwork(Made(make=make), SHAPE, CLASSES, Rng(0))


@pytest.mark.parametrize("name", WRONG)
def test_a_network_that_breaks_the_contract_is_refused_with_the_reason(name):
    make, said = WRONG[name]
    with pytest.raises(ConfigError, match=said) as caught:
        hold(network(make), 60)
    assert str(caught.value).startswith(
        "model made cannot be trained by DP-SGD, which clips the gradient of each example: "
    )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", RIGHT)
def test_a_network_that_keeps_it_trains_as_a_plain_loop_does(name):
    """With q = 1 and hardly any noise a step is the sum of clipped gradients, one example after the other by autograd."""
    made = network(RIGHT[name])
    x = torch.randn(9, *SHAPE, generator=Rng(1).torch())
    x[4] *= 300
    examples = Examples(x, torch.arange(9) % CLASSES)
    own, out = made.flat.clone(), torch.empty(1, made.dim)
    plan = LocalPlan(lr=1.0, batch_size=1, steps=1, private=DPSGD(sample_rate=1.0, levels=((0.7, 1e-9),)))
    Cohort(made, [examples]).train(own, [0], plan, Rng(2), out)
    expected = torch.zeros(made.dim)
    for row in range(9):
        at = own.clone().requires_grad_()
        loss = functional.cross_entropy(made(at, x[[row]].clone()), examples.y[[row]])
        (gradient,) = torch.autograd.grad(loss, at)
        expected -= gradient * min(1.0, 0.7 / float(gradient.norm()))
    assert torch.allclose(out[0], expected, atol=1e-4)


def test_one_record_moves_the_sum_of_a_network_that_mixes_by_many_clips_and_nobody_trains_it(monkeypatch):
    make = WRONG["mean of the inputs"][0]
    x = torch.randn(24, *SHAPE, generator=Rng(0).torch())
    x[0] *= 100
    y = torch.arange(24) % CLASSES

    def clipped(rows):
        module = GradSampleModule(duplicate(network(make).module, torch.device("cpu"))[0], loss_reduction="sum")
        functional.cross_entropy(module(x[rows].requires_grad_()), y[rows], reduction="sum").backward()
        each = torch.cat([p.grad_sample.flatten(1) for p in module.parameters()], 1)
        return (each / each.norm(dim=1, keepdim=True).clamp(min=1)).sum(0)

    rows = torch.arange(24)
    assert float((clipped(rows) - clipped(rows[1:])).norm()) > 5
    with pytest.raises(ConfigError, match="see each other"):
        private.PrivateEngine(network(make), [Examples(x, y)])


def test_a_batch_larger_than_any_before_is_tried_before_it_is_trained_on():
    made = network(WRONG["from 60 examples"][0])
    examples = Examples(torch.randn(70, *SHAPE), torch.arange(70) % CLASSES)
    plan = LocalPlan(lr=1.0, batch_size=1, steps=1, private=DPSGD(sample_rate=1.0, levels=((0.7, 1.0),)))
    with pytest.raises(ConfigError, match="a batch of 64"):
        Cohort(made, [examples]).train(made.flat.clone(), [0], plan, Rng(2), torch.empty(1, made.dim))
    few = Cohort(made, [examples[torch.arange(40)]])
    few.train(made.flat.clone(), [0], plan, Rng(2), torch.empty(1, made.dim))


def test_the_likely_largest_batch_is_that_of_the_largest_client():
    assert largest_batch([3, 100], 1.0) == 100 and largest_batch([], 0.5) == 0
    assert 30 < largest_batch([10, 100], 0.1) < 45  # 10 and six standard deviations of 3


@pytest.mark.parametrize(
    ("loss", "fine"),
    [
        (lambda z, y: functional.cross_entropy(z, y, reduction="sum"), True),
        (lambda z, y: functional.cross_entropy(z, y, weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum"), True),
        (lambda z, y: functional.cross_entropy(z, y), False),  # a mean: the others make a share small
        (lambda z, y: functional.cross_entropy(z - z.mean(0), y, reduction="sum"), False),
        (lambda z, y: functional.cross_entropy(z, y, reduction="sum") ** 2 / 100, False),
        (lambda z, y: functional.cross_entropy(z, y, reduction="none").topk(max(1, len(y) // 2)).values.sum(), False),
    ],
)  # fmt: skip
def test_a_loss_that_is_no_sum_over_examples_is_refused(loss, fine):
    class Lossy(Made):
        def loss(self, logits, y, reduction="mean"):
            return loss(logits, y)

    made = FlatNetwork(Lossy(make=RIGHT["LayerNorm"]), SHAPE, CLASSES, Rng(0))
    if fine:
        hold(made)
    else:
        with pytest.raises(ConfigError, match="its loss"):
            hold(made)


@pytest.mark.parametrize(
    "model", ["softmax", "mlp(hidden=[8])", "svm", "lenet5", "resnet20(width=4)", "precode(hidden=[8], beta=0)"]
)
def test_the_built_in_networks_keep_it(model):
    made = FlatNetwork(load_registry().build("model", model), (1, 8, 8), 10, Rng(0))
    hold(made, 20)


def test_the_transformer_keeps_it_with_characters():
    made = FlatNetwork(
        load_registry().build("model", "transformer(width=8, heads=2, layers=1)"), (6,), 11, Rng(0), tokens=Tokens(11)
    )
    made.value_range = (0.0, 10.0)
    hold(made, 20)


def test_the_weight_of_the_kl_term_of_precode_is_found_by_behavior_too():
    with pytest.raises(ConfigError, match="see each other"):
        hold(FlatNetwork(load_registry().build("model", "precode(hidden=[8], bottleneck=4)"), (1, 8, 8), 10, Rng(0)))


@pytest.fixture
def mixing(tmp_path, monkeypatch):
    """A suite of a network of one's own that takes off the mean of its batch."""
    (tmp_path / "nets_that_mix.py").write_text(
        "import math\nfrom torch import nn\n\n\nclass Mixing(nn.Module):\n"
        "    def __init__(self, shape, classes):\n        super().__init__()\n"
        "        self.out = nn.Linear(math.prod(shape), classes)\n\n"
        "    def forward(self, x):\n        x = x.flatten(1)\n        return self.out(x - x.mean(0))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return {
        "task": {"data": "wine", "model": "nets_that_mix:Mixing"},
        "clients": {"total": 6},
        "training": {"rounds": 2, "batch_size": 8},
    }


def test_a_cell_is_refused_before_it_runs_and_only_beside_dp_sgd(mixing):
    def cell(privacy):
        return build_cell(CellConfig.model_validate({**mixing, "protocol": {"privacy": privacy}}), load_registry())

    record = cell({"kind": "record", "noise_multiplier": 1.0})
    (reason,) = refusals([record], 0).values()
    assert "nets_that_mix:Mixing" in reason and "see each other" in reason
    assert refusals([cell("none"), cell({"kind": "client", "noise_multiplier": 1.0})], 0) == {}


def test_an_audit_leaves_such_a_cell_out_and_says_why(mixing):
    record = {"kind": "record", "noise_multiplier": 1.0}
    suite = {"name": "mixing", "seeds": 1, **mixing, "protocol": {"privacy": record}}
    with pytest.raises(NotAllowed, match="nothing to audit may run: .*see each other"):
        audit_suite(api.lay_out(suite)[1], canaries=50)
    told = []
    both = {**suite, "matrix": {"task.model": ["softmax", "nets_that_mix:Mixing"]}}
    (found,) = audit_suite(api.lay_out(both)[1], canaries=50, before=told.append)
    assert found.audit.verdict == "consistent" and "softmax" in found.cells[0]
    assert [one for one in told if one.startswith("left out") and "nets_that_mix" in one and "see each other" in one]
