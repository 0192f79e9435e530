"""ResNet-20, the transformer, and networks of the user's own."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from fedguard.contracts import LocalPlan
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.models.transformer import _TransformerBlock
from fedguard.tasks.network import FlatNetwork

KNOWN = load_registry()


def deal(data, model, partition="iid", clients=4):
    return Classification.deal(
        KNOWN.build("data", data), KNOWN.build("model", model), KNOWN.build("partition", partition), clients, Rng(0)
    )


def test_resnet20_has_the_parameters_and_the_depth_of_its_paper():
    """3x3 convolutions 16, 16 x 6, 32 x 6, 64 x 6, two parameters per channel and normalisation, a dense layer."""
    network = FlatNetwork(KNOWN.build("model", "resnet20"), (3, 32, 32), 10, Rng(0))
    assert network.dim == 269_722
    weighted = [part for part in network.module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert len(weighted) == 20
    sizes = []
    for part in weighted[:-1]:
        part.register_forward_hook(lambda _, given, made: sizes.append(tuple(made.shape[1:])))
    network.module(torch.zeros(1, 3, 32, 32))
    assert sizes == [(16, 32, 32)] * 7 + [(32, 16, 16)] * 6 + [(64, 8, 8)] * 6


def test_a_shortcut_takes_every_second_pixel_and_fills_up_with_zeros():
    """With normalisations of gain 0 a block is the ReLU of its shortcut."""
    network = FlatNetwork(KNOWN.build("model", "resnet20(width=2, groups=1)"), (1, 8, 8), 2, Rng(0))
    block = list(network.module)[6]
    assert block.more == 2
    with torch.no_grad():
        block.second_norm.weight.zero_()
    x = torch.rand(1, 2, 8, 8)
    made = block(x)
    assert torch.equal(made[:, 1:3], x[:, :, ::2, ::2]) and not made[:, 0].any() and not made[:, 3].any()


def test_no_example_is_normalized_by_another():
    network = FlatNetwork(KNOWN.build("model", "resnet20(width=4, groups=2)"), (1, 8, 8), 3, Rng(0)).module.double()
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    assert torch.allclose(network(x)[:1], network(x[:1]), atol=1e-12)


def test_resnet20_learns_digits():
    task = deal("digits", "resnet20(width=8)")
    model = task.initial_model(Rng(0))
    out = torch.empty(1, task.dim)
    moved = task.local_updates(model, [0], LocalPlan(lr=0.03, batch_size=16, epochs=4, momentum=0.9), Rng(0), out)
    assert task.evaluate(model + moved[0]).accuracy > 0.6


@pytest.mark.parametrize(("model", "shape"), [("resnet20", (30,)), ("resnet20", (1, 4, 4)), ("transformer", (1, 8, 8))])
def test_models_refuse_inputs_that_they_cannot_read(model, shape):
    with pytest.raises(ConfigError, match=f"{model} needs"):
        KNOWN.build("model", model).build(shape, 2)


def test_a_transformer_refuses_numbers_that_are_no_characters():
    with pytest.raises(ConfigError, match=r"model transformer: fails on inputs of shape \[13\] from -5.*IndexError"):
        deal("wine", "transformer")


@pytest.mark.parametrize(
    "spec", ["transformer(width=10)", "transformer(layers=0)", "resnet20(width=6)", "resnet20(groups=0)"]
)
def test_wrong_sizes_are_refused(spec):
    with pytest.raises(ConfigError, match="expected"):
        KNOWN.build("model", spec)


def test_a_place_attends_to_no_later_one():
    torch.manual_seed(0)
    block = _TransformerBlock(8, 2).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    before = block(x)
    for place in range(6):
        changed = x.clone()
        changed[0, place] += torch.randn(8)  # a shift of all alike would be normalized away
        differs = (block(changed) - before).abs().amax((0, 2)) > 1e-9
        assert differs.tolist() == [later >= place for later in range(6)]


def test_attention_is_its_formula():
    """``softmax(Q K^T / sqrt(d)) V`` head by head over what came before, in plain loops."""
    torch.manual_seed(0)
    width, heads, length = 6, 2, 4
    block, size = _TransformerBlock(width, heads).double(), width // heads
    x = torch.randn(1, length, width, dtype=torch.float64)
    query, key, value = block.query_key_value(block.attention_norm(x))[0].split(width, dim=1)
    rows = []
    for place in range(length):
        parts = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            scores = torch.stack([query[place, own] @ key[other, own] for other in range(place + 1)]) / size**0.5
            weights = scores.exp() / scores.exp().sum()
            parts.append(sum(weights[other] * value[other, own] for other in range(place + 1)))
        rows.append(torch.cat(parts))
    after = x + block.out(torch.stack(rows))[None]
    assert torch.allclose(block(x), after + block.dense(block.dense_norm(after)), atol=1e-10)


def test_the_order_of_characters_matters_to_a_transformer():
    network = FlatNetwork(KNOWN.build("model", "transformer(width=8, layers=1)"), (4,), 5, Rng(0)).module
    assert not torch.allclose(
        network(torch.tensor([[1.0, 2, 3, 4]])), network(torch.tensor([[2.0, 1, 3, 4]])), atol=1e-4
    )


@pytest.mark.slow
def test_a_transformer_learns_text_better_than_counting_characters():
    task = deal(
        {"name": "python_topics", "topics": 12, "window": 16, "stride": 4}, "transformer(width=48)", "natural", 12
    )
    train, test = task.dataset.train, task.dataset.test
    model = task.initial_model(Rng(0))
    out = torch.empty(12, task.dim)
    for round in range(15):
        plan = LocalPlan(lr=0.25, batch_size=32, steps=20, momentum=0.9)
        task.local_updates(model, range(12), plan, Rng(0).child(round), out)
        model = model + out.mean(0)
    found = task.evaluate(model)
    commonest = float((test.y == train.y.bincount().argmax()).double().mean())
    shares = (train.y.bincount(minlength=task.classes) + 1).double()
    unigram = float(-(shares / shares.sum()).log()[test.y].mean())
    assert found.loss < 0.9 * unigram and found.accuracy > commonest + 0.1


# Networks of the user's own.


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(body):
        (tmp_path / "my_nets.py").write_text(f"import torch\nfrom torch import nn\n\n\n{body}\n")
        sys.modules.pop("my_nets", None)

    yield write
    sys.modules.pop("my_nets", None)


def test_a_network_of_ones_own_is_built_for_the_data_and_trains(mine):
    mine(
        "def build(shape, classes):\n"
        "    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(classes))".replace(
            "LazyLinear(classes)", "Linear(4 * 36, classes)"
        )
    )
    task = deal("digits", "my_nets:build")
    assert task.dim == 4 * 9 + 4 + 144 * 10 + 10
    model = task.initial_model(Rng(0))
    assert torch.equal(model, task.initial_model(Rng(0))) and not torch.equal(model, task.initial_model(Rng(1)))
    out = torch.empty(1, task.dim)
    task.local_updates(model, [0], LocalPlan(lr=0.1, batch_size=16, epochs=5), Rng(0), out)
    assert task.evaluate(model + out[0]).accuracy > 0.6


NETWORK = "class build(nn.Module):\n    def __init__(self, shape, classes):\n        super().__init__()\n        self.last = nn.Linear(13, classes)\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x = 1", "model my_nets:build: cannot be found: .*my_nets.py has no .build."),
        ("def build(shape, classes):\n    return 3", "model my_nets:build: expected a torch.nn.Module; got int"),
        ("def build(shape):\n    return nn.Linear(13, 3)", "model my_nets:build: failed: TypeError"),
        ("def build(shape, classes):\n    return nn.Linear(13, 4)", r"expected logits of shape \[2, 3\] for two inputs; got \[2, 4\]"),
        ("def build(shape, classes):\n    return nn.Linear(12, 3)", r"fails on inputs of shape \[13\] from -5.*RuntimeError: mat1 and mat2"),
        ("def build(shape, classes):\n    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(13, 3)))", "training changes the buffer 0.weight_u"),
        ("def build(shape, classes):\n    return nn.Sequential(nn.Linear(13, 3), nn.Dropout())", "Leave out Dropout"),
        ("def build(shape, classes):\n    return nn.Sequential(nn.Dropout(1e-9), nn.Linear(13, 3))", "Leave out Dropout"),
        ("def build(shape, classes):\n    return nn.Flatten()", "fails on inputs of shape|expected logits"),
        (NETWORK + "        self.idle = nn.Linear(2, 2)\n    def forward(self, x):\n        return self.last(x)", r"idle\.weight is a parameter that forward does not use\. Remove it, or freeze it"),
        (NETWORK + "        self.requires_grad_(False)\n    def forward(self, x):\n        return self.last(x)", "got none that requires a gradient"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_federated_is_refused_with_the_reason(mine, body, said):
    mine(body)
    with pytest.raises(ConfigError, match=said) as caught:
        deal("wine", "my_nets:build")
    assert "\n" not in str(caught.value)


FIRST = """
from pathlib import Path

import torch
from torch import nn


def net(shape, classes):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    module.load_state_dict(torch.load(Path(__file__).with_name("first.pt"), weights_only=True))
    return module
"""


def test_a_first_model_of_the_users_own_is_where_all_seeds_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "first_of_mine.py").write_text(FIRST)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    torch.save(module.state_dict(), tmp_path / "first.pt")
    task = deal("digits", "first_of_mine:net")
    expected = torch.cat([one.detach().flatten() for one in module.parameters()])
    for seed in (0, 5):
        assert torch.equal(task.initial_model(Rng(seed).child("model")), expected)
    sys.modules.pop("first_of_mine")
