"""Labels from the last layer: the rules of the papers, on gradients whose labels are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.attacks.inference.labels.bias_corrected import BiasCorrection
from fedguard.attacks.inference.labels.counts import LabelCounts
from fedguard.attacks.inference.labels.idlg import IDLGLabels
from fedguard.attacks.inference.labels.last_layer import multiset
from fedguard.attacks.inference.labels.llg import LLG
from fedguard.attacks.inference.labels.negative_bias import NegativeBias
from fedguard.attacks.inference.labels.yin import YinLabels
from fedguard.contracts import Examples, LocalPlan, Sight
from fedguard.errors import PreconditionError
from tests.inference.scenes import Scene, digits, flat, mlp, trained

EACH, SECURE_SUM = Sight.EACH_UPDATE | Sight.MODEL, Sight.SUM | Sight.MODEL
MANY = [NegativeBias(), YinLabels(), LLG(), BiasCorrection(), LabelCounts()]


def labeled(*labels: int, seed: int = 0) -> Examples:
    """Digits that are said to be of these classes."""
    return Examples(digits(len(labels), seed).x, torch.tensor(labels))


def undecided() -> nn.Sequential:
    """A network that gives each class .1 whatever it sees, so that the gradient is known by hand."""
    module = mlp(64, 30, 10)
    with torch.no_grad():
        module[-1].weight.zero_()
        module[-1].bias.zero_()
    return module


def somewhat_trained(epochs: int = 2) -> nn.Sequential:
    module = mlp(64, 100, 10)
    moved = flat(module) + trained(module, digits(600, 5), lr=0.1, epochs=epochs, batch=20)
    nn.utils.vector_to_parameters(moved, module.parameters())
    return module


def common(found: Tensor, truth: Tensor) -> float:
    """Size of the intersection of the two multisets, over that of the second."""
    rest, hits = found.tolist(), 0
    for label in truth.tolist():
        if label in rest:
            rest.remove(label)
            hits += 1
    return hits / len(truth)


# what holds for all of them


@pytest.mark.parametrize("attack", MANY, ids=lambda attack: attack.name)
@pytest.mark.parametrize("sees", [EACH, SECURE_SUM])
@pytest.mark.parametrize("size", [1, 4, 25])
def test_as_many_labels_are_claimed_as_there_are_examples(attack, sees, size):
    scene = Scene(mlp(64, 30, 10), (digits(size, 1), digits(size, 2)), sees=sees)
    view = scene.view()
    attack.check(view)
    found = attack.infer(view).y
    assert found.shape == (view.count,)
    assert found.dtype == torch.int64
    assert set(found.tolist()) <= set(range(10))


@pytest.mark.parametrize("attack", MANY, ids=lambda attack: attack.name)
def test_labels_are_claimed_even_of_an_update_of_zeros(attack):
    module = mlp(64, 30, 10)
    found = attack.infer(Scene(module, (digits(4),)).view(updates=torch.zeros(1, len(flat(module))))).y
    assert found.shape == (4,)
    assert set(found.tolist()) <= set(range(10))


@pytest.mark.parametrize("attack", [IDLGLabels(), *MANY], ids=lambda attack: attack.name)
def test_networks_that_do_not_end_in_a_dense_layer_are_refused(attack):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    with pytest.raises(PreconditionError, match="ends with a dense layer"):
        attack.check(Scene(module, (digits(1),)).view())


@pytest.mark.parametrize("attack", [NegativeBias(), BiasCorrection(), LabelCounts()], ids=lambda attack: attack.name)
def test_those_that_read_the_bias_refuse_a_layer_without(attack):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    with pytest.raises(PreconditionError, match="last layer with bias"):
        attack.check(Scene(module, (digits(2),)).view())


# labels_idlg


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_idlg_is_right_on_every_single_example(bias, activation):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), activation(), nn.Linear(30, 10, bias=bias))
    for seed in range(40):
        examples = digits(1, seed)
        assert torch.equal(IDLGLabels().infer(Scene(module, (examples,)).view()).y, examples.y)


def test_idlg_refuses_batches_and_two_classes_without_a_bias():
    with pytest.raises(PreconditionError, match="expected one example; got 2"):
        IDLGLabels().check(Scene(mlp(64, 30, 10), (digits(2),)).view())
    two = nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False))
    with pytest.raises(PreconditionError, match="or three classes"):
        IDLGLabels().check(Scene(two, (labeled(0),)).view(classes=2))


# by hand: p_c = .1, so dL/db_c = .1 - N_c / B


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((3,), [3]),
        ((3, 3, 3, 7), [3, 3, 7, 7]),  # -.65, -.15: both occur, how often does not show
        ((0, 1, 2, 3), [0, 1, 2, 3]),
        ((5, 5, 5), [5, 5, 5]),
    ],
)
def test_negative_bias_claims_the_classes_below_zero_the_lowest_first(labels, expected):
    found = NegativeBias().infer(Scene(undecided(), (labeled(*labels),)).view())
    assert found.y.sort().values.tolist() == expected


@pytest.mark.parametrize("labels", [(3,), (3, 3, 3, 7), (0, 1, 2, 3), (5,) * 8, (1, 1, 2, 2, 2, 9, 9, 9, 9, 0)])
@pytest.mark.parametrize("attack", [BiasCorrection(), LabelCounts()], ids=lambda attack: attack.name)
def test_bias_corrected_counts_duplicates_exactly_where_the_prediction_is_known(attack, labels):
    plan = LocalPlan(lr=0.5, steps=1)
    found = attack.infer(Scene(undecided(), (labeled(*labels),), plan=plan).view())
    assert found.y.sort().values.tolist() == sorted(labels)


def test_shares_are_rounded_by_the_largest_remainders():
    """Of 4: 2, 1.2, .8 and less than nothing."""
    shares = torch.tensor([0.5, 0.3, 0.2, -0.1], dtype=torch.float64)
    assert multiset(shares, 4).tolist() == [0, 0, 1, 2]
    assert multiset(shares, 1).tolist() == [0]


# laws on networks as they come


def test_what_negative_bias_claims_occurs_for_certain():
    for module in (mlp(64, 100, 10), somewhat_trained()):
        for seed in range(20):
            examples = digits(8, seed)
            assert set(NegativeBias().infer(Scene(module, (examples,)).view()).y.tolist()) <= set(examples.y.tolist())


def test_yin_is_right_on_distinct_labels_and_misses_duplicates():
    module = mlp(64, 100, 10)
    for seed in range(10):
        torch.manual_seed(seed)
        examples = digits(6, labels="distinct")
        assert common(YinLabels().infer(Scene(module, (examples,)).view()).y, examples.y) == 1
    one = digits(6, labels="one")
    assert common(YinLabels().infer(Scene(module, (one,)).view()).y, one.y) == pytest.approx(1 / 6)


@pytest.mark.parametrize("labels", ["any", "distinct", "one"])
def test_llg_and_bias_corrected_are_right_on_an_untrained_network_duplicates_included(labels):
    module, root = mlp(64, 100, 10), digits(300, 77)
    for attack in (LLG(), BiasCorrection()):
        hits = []
        for seed in range(10):
            examples = digits(8, seed, labels=labels)
            view = Scene(module, (examples,), sees=EACH | Sight.ROOT_DATA).view(root=root)
            hits.append(common(attack.infer(view).y, examples.y))
        assert sum(hits) / len(hits) > 0.97


def llg_as_in_the_paper(module: nn.Module, observed: Tensor, root: Examples, batch: int, classes: int) -> list[int]:
    """Wainakh et al., algorithm 1 with LLG+ estimates, by one backward pass for each class."""
    weight = list(module.parameters())[-2]

    def sums(y: Tensor) -> Tensor:
        return torch.autograd.grad(cross_entropy(module(root.x), y), weight)[0].sum(1)

    impact, offset = 0.0, torch.zeros(classes)
    for label in range(classes):
        g = sums(torch.full_like(root.y, label))
        impact += float(g[label]) / batch / classes * (1 + 1 / classes)
        for other in range(classes):
            if other != label:
                offset[other] += g[other] / (classes - 1)
    g, found = observed.clone(), []
    for label in range(classes):
        if observed[label] < 0:
            found.append(label)
            g[label] -= impact
    g -= offset
    while len(found) < batch:
        label = int(g.argmin())
        found.append(label)
        g[label] -= impact
    return sorted(found)


@pytest.mark.parametrize("batch", [10, 24])
def test_llg_is_the_algorithm_of_the_paper(batch):
    root = digits(100, 77)
    for module in (mlp(64, 50, 10), somewhat_trained()):
        for seed in range(5):
            examples = digits(batch, seed)
            weight = list(module.parameters())[-2]
            observed = torch.autograd.grad(cross_entropy(module(examples.x), examples.y), weight)[0].sum(1)
            view = Scene(module, (examples,), sees=EACH | Sight.ROOT_DATA).view(root=root)
            expected = llg_as_in_the_paper(module, observed, root, batch, 10)
            assert LLG().infer(view).y.sort().values.tolist() == expected


def test_counts_follow_the_prediction_through_local_training_where_the_sent_model_does_not():
    plan, root = LocalPlan(lr=0.1, batch_size=10, epochs=2), digits(300, 77)
    scene = Scene(mlp(64, 100, 10), (digits(50),), plan=plan, sees=EACH | Sight.ROOT_DATA)
    hits = {LabelCounts: 0.0, BiasCorrection: 0.0}
    for seed in range(10):
        examples = digits(50, seed)
        view = replace(scene, parts=(examples,)).view(root=root)
        for attack in hits:
            hits[attack] += common(attack().infer(view).y, examples.y) / 10
    assert hits[LabelCounts] > 0.97
    assert hits[LabelCounts] > hits[BiasCorrection] + 0.02


def test_counts_of_one_step_are_those_of_the_bias():
    for seed in range(5):
        view = Scene(somewhat_trained(1), (digits(12, seed),)).view()
        assert torch.equal(LabelCounts().infer(view).y, BiasCorrection().infer(view).y)
