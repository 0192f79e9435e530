"""Attacks outside of a suite: `reconstruct` hands over the gradient as it is, and refuses what cannot be attacked so."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.attacks.inference.layers import last_dense
from fedguard.contracts import (
    ONE_VECTOR,
    InferenceAttack,
    Labels,
    LocalPlan,
    Membership,
    Model,
    Reconstruction,
    Sight,
)
from fedguard.errors import ConfigError, ContractError, InputError, NotAllowed, PreconditionError, UnknownName
from fedguard.reconstruction import reconstruct, score_reconstruction
from fedguard.rng import Rng
from fedguard.tasks.network import FlatNetwork
from tests.inference.scenes import digits, flat, mlp, trained

SHAPE = (1, 8, 8)


@dataclass(frozen=True, kw_only=True)
class FirstLayer(InferenceAttack):
    """x = dW_i / db_i for the unit with the largest bias gradient."""

    name = "first_layer"
    needs = ONE_VECTOR
    goal = "reconstruction"

    def infer(self, view):
        outputs, inputs = next(view.module.parameters()).shape
        weight = view.gradient[: outputs * inputs].view(outputs, inputs)
        bias = view.gradient[outputs * inputs :][:outputs]
        unit = bias.abs().argmax()
        return Reconstruction((weight[unit] / bias[unit]).view(1, *view.shape))


@dataclass(frozen=True, kw_only=True)
class LastBias(InferenceAttack):
    """The class with the smallest gradient of the last bias."""

    name = "last_bias"
    needs = ONE_VECTOR
    goal = "labels"

    def infer(self, view):
        return Labels(view.gradient[-view.classes :].argmin()[None])


class Recorder(InferenceAttack):
    """Keeps its view, and claims nothing."""

    name, goal = "recorder", "reconstruction"
    needs = ONE_VECTOR

    def __init__(self, claim=None):
        self.claim = claim

    def infer(self, view):
        self.view = view
        return Reconstruction(torch.empty(0, *view.shape)) if self.claim is None else self.claim


def variant(**attributes):
    return type("Variant", (Recorder,), {"name": "variant", **attributes})()


def gradients(model, examples):
    return torch.autograd.grad(cross_entropy(model(examples.x), examples.y), list(model.parameters()))


def test_a_digit_is_read_from_the_gradient_of_the_first_layer():
    model, example = mlp(64, 32, 10), digits(1)
    parts = gradients(model, example)
    claim = reconstruct(FirstLayer(), model, parts, shape=SHAPE)
    result = score_reconstruction(claim, example.x, example.y)
    assert result["exact"] == 1
    assert result["psnr"]["mean"] > 100
    assert result["gain"]["mean"] > 80
    as_vector = reconstruct(FirstLayer(), model, torch.cat([part.flatten() for part in parts]), shape=SHAPE)
    assert torch.equal(claim.x, as_vector.x)


def test_a_label_is_read_from_the_last_bias():
    model, example = mlp(64, 32, 10), digits(1)
    assert torch.equal(reconstruct(LastBias(), model, gradients(model, example), shape=SHAPE).y, example.y)


def test_the_view_is_the_gradient_and_what_the_server_knows():
    model, batch, attack = mlp(64, 10), digits(3), Recorder()
    parts = gradients(model, batch)
    reconstruct(attack, model, parts, shape=SHAPE, batch_size=3, labels=batch.y, value_range=(-1.0, 2.0), seed=5)
    view = attack.view
    sent = torch.cat([part.flatten() for part in parts])
    assert torch.equal(view.gradient, sent)
    assert torch.equal(view.target, -sent)
    assert torch.equal(view.model, flat(model))
    assert torch.equal(view.models[-1], flat(model) - sent)
    assert (view.classes, view.shape, view.count, view.steps) == (10, SHAPE, 3, 1)
    assert view.value_range == (-1.0, 2.0)
    assert torch.equal(view.labels, batch.y)
    assert torch.equal(view.predict(view.model, batch.x), model(batch.x))


def test_the_draws_of_an_attack_come_from_the_seed():
    draws = []
    for seed in (5, 5, 6):
        attack = Recorder()
        reconstruct(attack, MODEL, GRADIENT, shape=SHAPE, seed=seed)
        draws.append(attack.view.rng.numpy().random())
    assert draws[0] == draws[1] != draws[2]


def test_the_model_is_left_as_it_was():
    class Vandal(Recorder):
        def infer(self, view):
            for parameter in view.module.parameters():
                parameter.data.fill_(7.0)
            view.models.fill_(7.0)
            return super().infer(view)

    model, example = mlp(64, 10), digits(1)
    before, parts = flat(model).clone(), gradients(model, example)
    reconstruct(Vandal(), model, parts, shape=SHAPE)
    assert torch.equal(flat(model), before)
    assert all(torch.equal(one, other) for one, other in zip(parts, gradients(model, example), strict=True))


def test_local_training_is_the_model_before_less_the_model_after():
    model, batch, attack = mlp(64, 10), digits(4), Recorder()
    moved = trained(model, batch, lr=0.1, epochs=2, batch=2)
    plan = LocalPlan(lr=0.1, epochs=2, batch_size=2)
    reconstruct(attack, model, -moved, shape=SHAPE, batch_size=4, plan=plan)
    assert torch.equal(attack.view.target, moved)
    assert attack.view.steps == 4
    assert torch.allclose(attack.view.gradient, -moved / 0.4)


def test_root_data_are_seen_where_they_are_needed():
    attack = variant(needs=(Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA,))
    model, example = mlp(64, 10), digits(1)
    with pytest.raises(NotAllowed, match="needs .*a clean data set at the server; here it sees"):
        reconstruct(attack, model, gradients(model, example), shape=SHAPE)
    root = digits(5, seed=1)
    reconstruct(attack, model, gradients(model, example), shape=SHAPE, root=root)
    assert torch.equal(attack.view.root.x, root.x)


def test_batch_norm_with_fixed_statistics_is_attacked():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)).eval()
    example = digits(1)
    claim = reconstruct(FirstLayer(), model, gradients(model, example), shape=SHAPE)
    assert score_reconstruction(claim, example.x)["exact"] == 1


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (variant(goal="membership"), "variant tells membership of candidates, not inputs or labels"),
        (variant(goal="property"), "variant tells property"),
        (variant(active=True), "variant sends the client a model of its own"),
        (variant(watches="training"), "variant watches a whole training"),
        (variant(watches="model"), "variant needs the final model"),
        (variant(needs=(Sight.TRANSCRIPT,)), "variant needs every message of the protocol; here it sees"),
    ],
)
def test_attacks_that_need_more_are_refused(attack, said):
    model, example = mlp(64, 10), digits(1)
    with pytest.raises(NotAllowed) as error:
        reconstruct(attack, model, gradients(model, example), shape=SHAPE)
    assert said in str(error.value)
    assert str(error.value).endswith("Such attacks run in a suite: fedguard.run.")


def test_shadow_models_are_refused_when_they_are_asked_for():
    class Shadow(Recorder):
        def infer(self, view):
            view.train([digits(3)], view.rng)

    with pytest.raises(InputError, match="run the attack in a suite"):
        reconstruct(Shadow(), mlp(64, 10), gradients(mlp(64, 10), digits(1)), shape=SHAPE)


MODEL = mlp(64, 10)
GRADIENT = gradients(MODEL, digits(2))
TWO_LABELS = torch.tensor([1, 2])


def one_logit(*, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Sigmoid(), nn.Linear(24, 1, bias=bias))


def binary(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    loss = nn.functional.binary_cross_entropy_with_logits(network(x)[:, 0], y.float())
    return torch.autograd.grad(loss, list(network.parameters()))


@pytest.mark.parametrize("y", [0, 1])
def test_a_network_with_one_logit_is_inverted_by_binary_cross_entropy(y):
    """Cross-entropy over its single output would be 0 whatever goes in; here the input comes back, with its label."""
    network, x, labels = one_logit(), digits(1, seed=7).x, torch.tensor([y])
    sent = binary(network, x, labels)
    for attack in (
        "dlg(iterations=100)",
        "idlg(iterations=100)",
        "inverting_gradients(iterations=100, restarts=1)",
        "analytic",
    ):
        claim = reconstruct(attack, network, sent, shape=SHAPE)
        assert score_reconstruction(claim, x)["psnr"]["mean"] > 30, attack
        assert claim.y is None or claim.y.tolist() == [y]
    told = reconstruct("inverting_gradients(iterations=100, restarts=1)", network, sent, shape=SHAPE, labels=1 - labels)
    assert score_reconstruction(told, x)["psnr"]["mean"] < 30  # told the wrong label, it fits the wrong loss
    for attack in ("labels_idlg", "labels_negative_bias", "labels_yin", "labels_llg", "labels_bias_corrected"):
        assert reconstruct(attack, network, sent, shape=SHAPE).y.tolist() == [y], attack


def test_the_labels_of_a_batch_with_one_logit_are_counted():
    """Three ones and four zeros: the mean of p - y is -dL/db, and p is about what the untrained network says of anything."""
    network, x, labels = one_logit(), digits(7, seed=2).x, torch.tensor([1, 0, 0, 1, 0, 1, 0])
    sent = binary(network, x, labels)
    found = reconstruct("labels_bias_corrected", network, sent, shape=SHAPE, batch_size=7)
    assert sorted(found.y.tolist()) == [0, 0, 0, 0, 1, 1, 1]


def test_the_view_of_one_logit_is_that_of_two():
    """``dL/dlogits`` of 0 and z, by autograd of the cross-entropy over both, is the rows that the last layer is read by."""
    network, x, labels, attack = one_logit(), digits(5, seed=4).x, torch.tensor([1, 0, 1, 1, 0]), Recorder()
    sent = binary(network, x, labels)
    for classes in (None, 1, 2):
        reconstruct(attack, network, sent, shape=SHAPE, batch_size=5, labels=labels, classes=classes)
        assert attack.view.classes == 2
    view = attack.view
    logits = view.predict(view.model, x).requires_grad_()
    assert torch.allclose(logits, torch.stack([torch.zeros(5), network(x)[:, 0]], 1))
    (slopes,) = torch.autograd.grad(cross_entropy(logits, labels), logits)
    last = last_dense(view)
    assert torch.allclose(last.bias(view.gradient), slopes.sum(0), atol=1e-6)
    assert torch.allclose(last.weight(view.gradient), slopes.T @ network[:3](x), atol=1e-6)


def test_a_model_of_a_suite_with_one_logit_is_refused_with_the_reason():
    class Single(Model):
        name, source = "single", "a test"

        def build(self, shape, classes):
            return one_logit()

    with pytest.raises(
        ConfigError, match=r"expected logits of shape \[2, 2\].*got \[2, 1\].*each has a logit of its own"
    ):
        FlatNetwork(Single(), SHAPE, 2, Rng(0))


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("r_gap", "this network has one, which means two classes"),
        ("spear", "this network has one, which means two classes"),
    ],
)
def test_what_asks_for_a_logit_of_each_class_says_so(attack, said):
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 70), nn.ReLU(), nn.Linear(70, 1))
    x, labels = digits(1).x, torch.tensor([1])
    with pytest.raises(PreconditionError, match=said):
        reconstruct(attack, network, binary(network, x, labels), shape=SHAPE)
    with pytest.raises(InputError, match=r"expected logits of shape \[2, 3\].*got \[2, 1\]"):
        reconstruct("dlg", network, binary(network, x, labels), shape=SHAPE, classes=3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gradient": GRADIENT[:1]}, "gradient: expected a tensor for each of the model's 2 parameters"),
        ({"gradient": (GRADIENT[0].T, GRADIENT[1])}, "gradient: expected a tensor for each"),
        ({"gradient": (GRADIENT[0], None)}, "got ['shape [10, 64]', 'NoneType']"),
        ({"gradient": torch.zeros(7)}, "gradient: expected the shape [650]"),
        ({"gradient": torch.full((650,), float("nan"))}, "gradient: expected finite numbers"),
        ({"shape": (63,)}, "model: expected to take inputs of shape [B, 63]"),
        ({"classes": 9}, "expected logits of shape [2, 9] for two inputs; got [2, 10]"),
        ({"model": nn.Sequential(nn.Unflatten(1, (1, 1)))}, "expected logits of shape [2, classes]"),
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"labels": TWO_LABELS}, "labels: expected int64 of shape [1] in 0 to 9; got shape [2]"),
        ({"labels": TWO_LABELS + 8, "batch_size": 2}, "labels: expected labels in 0 to 9; got 10"),
        ({"labels": torch.tensor([-1])}, "labels: expected labels in 0 to 9; got -1"),
        ({"gradient": torch.zeros(650)}, "gradient: expected numbers other than 0; got only zeros"),
        ({"labels": TWO_LABELS.float(), "batch_size": 2}, "of torch.float32"),
        ({"model": mlp(64, 10).double()}, "expected float32 parameters on the CPU"),
        ({"attack": nn.Identity()}, "attack: expected a name or an InferenceAttack"),
        ({"steps": 3}, "parameters go with the name of an attack; got steps"),
    ],
)
def test_what_does_not_fit_is_refused(changes, said):
    given = {"attack": FirstLayer(), "model": MODEL, "gradient": GRADIENT, "shape": SHAPE, **changes}
    with pytest.raises(InputError) as error:
        reconstruct(**given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("layer", "named"), [(nn.BatchNorm1d(64), "1 (BatchNorm1d)"), (nn.Dropout(0.5), "1 (Dropout)")]
)
def test_a_model_that_computes_something_else_each_time_is_refused(layer, named):
    model = nn.Sequential(nn.Flatten(), layer, nn.Linear(64, 10))
    statistics = [buffer.clone() for buffer in model.buffers()]
    parts = [torch.zeros_like(parameter) for parameter in model.parameters()]
    with pytest.raises(InputError) as error:
        reconstruct(FirstLayer(), model, parts, shape=SHAPE)
    assert named in str(error.value)
    assert "model.eval()" in str(error.value)
    assert all(torch.equal(one, other) for one, other in zip(statistics, model.buffers(), strict=True))


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (Membership(torch.zeros(3)), "expected a claim of reconstruction; got Membership"),
        (Labels(torch.zeros(1, dtype=torch.int64)), "expected a claim of reconstruction; got Labels"),
        (Reconstruction(torch.zeros(1, 64)), "expected floats of shape [B, 1, 8, 8]"),
        (Reconstruction(torch.zeros(2, 1, 8, 8)), "at most as many as examples, 1; got 2"),
        (Reconstruction(torch.zeros(1, 1, 8, 8), torch.zeros(1)), "claimed labels: expected int64"),
    ],
)
def test_what_an_attack_must_not_claim(claim, said):
    with pytest.raises(ContractError) as error:
        reconstruct(Recorder(claim), MODEL, GRADIENT, shape=SHAPE)
    assert said in str(error.value)


def test_an_attack_is_asked_first_whether_it_can_work():
    class Picky(Recorder):
        def check(self, view):
            raise PreconditionError("expected another network")

    picky = Picky()
    with pytest.raises(PreconditionError, match="expected another network"):
        reconstruct(picky, MODEL, GRADIENT, shape=SHAPE)
    assert not hasattr(picky, "view")


def test_an_unknown_name_is_told():
    with pytest.raises(UnknownName, match="no_such_attack"):
        reconstruct("no_such_attack", MODEL, GRADIENT, shape=SHAPE)


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ((torch.zeros(2, *SHAPE), torch.zeros(3, dtype=torch.int64)), "truth_y: expected a tensor of one row for each"),
        ((torch.zeros(0, *SHAPE), None), "truth_x: expected"),
        (([[1.0]], None), "truth_x: expected a tensor of one row for each example, and at least one; got"),
    ],
)
def test_a_truth_that_is_none_is_refused(truth, said):
    with pytest.raises(InputError) as error:
        score_reconstruction(Reconstruction(torch.zeros(1, *SHAPE)), *truth)
    assert said in str(error.value)


def test_a_value_range_upside_down_is_refused():
    with pytest.raises(InputError, match="value_range"):
        score_reconstruction(Reconstruction(torch.zeros(1, *SHAPE)), torch.zeros(1, *SHAPE), value_range=(1.0, 0.0))


def test_the_reference_gives_mean_baselines():
    batch, reference = digits(3), digits(100, seed=1)
    result = score_reconstruction(Reconstruction(batch.x, batch.y), batch.x, batch.y, reference=reference)
    assert set(result["baselines"]) == {"constant_color", "data_mean", "class_mean"}
    assert 5 < result["baselines"]["constant_color"] < result["baselines"]["class_mean"] < 30
