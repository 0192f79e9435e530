"""Low-rank adapters in their forms: what is trained, what a rule sees, and what the model is after a round."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.adapters.factors import Factors
from fedguard.adapters.frozen_a import FrozenA
from fedguard.adapters.layers import LowRankLinear
from fedguard.adapters.model import AdaptedModel, form_of
from fedguard.adapters.pairs import find_pairs, place_pairs, place_parameters
from fedguard.adapters.product import Product
from fedguard.adapters.products import FactorStack, factor_bias, inner_products
from fedguard.adapters.stacked import Stacked
from fedguard.aggregation import aggregate
from fedguard.contracts import DPSGD, Examples, LocalPlan, Model, RuleContext, Sight
from fedguard.errors import ConfigError, InputError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.network import FlatNetwork

SHAPE, CLASSES, RANK, ALPHA, N, F = (2, 3), 3, 2, 5.0, 7, 2
FORMS = {"factors": Factors, "frozen_a": FrozenA, "product": Product, "stacked": Stacked}


class Given(Model):
    name = "given"

    def __init__(self, make) -> None:
        self.make = make

    def build(self, shape, classes):
        return self.make()


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 3))


def network_of(form) -> FlatNetwork:
    return FlatNetwork(AdaptedModel(model=Given(plain), form=form), SHAPE, CLASSES, Rng(0))


def examples(n, seed=1) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    return Examples(torch.randn(n, *SHAPE, generator=draw), torch.randint(CLASSES, (n,), generator=draw))


class Scene:
    """A network with two adapters of lopsided sizes, a model in the midst of a training, and updates of clients."""

    def __init__(self, form=None, seed=0, same_a=False) -> None:
        self.form = form or Product(rank=RANK, alpha=ALPHA)
        self.module = network_of(self.form).module
        draw = torch.Generator().manual_seed(seed)
        self.d = sum(p.numel() for p in self.module.parameters() if p.requires_grad)
        self.model = torch.randn(self.d, generator=draw)
        self.updates = 0.3 * torch.randn(N, self.d, generator=draw) + 0.2
        self.updates[-F:] *= 5
        self.places = place_pairs(self.module, self.form.find_pairs(self.module))
        for place in self.places if same_a else ():
            self.updates[:, place.a] = 0

    def split(self, vector):
        """(A, B) of each adapter, and the other coordinates, all in float64."""
        rest = torch.ones(self.d, dtype=torch.bool)
        pairs = []
        for place in self.places:
            rest[place.a] = rest[place.b] = False
            pair = place.pair
            a, b = vector[place.a].double(), vector[place.b].double()
            pairs.append((a.view(pair.rank, pair.inputs), b.view(pair.outputs, pair.rank)))
        return pairs, vector[rest].double()

    def dense(self, vector):
        """What a model adds to its layers' weights, and its other coordinates: one long vector, as nobody computes it."""
        pairs, rest = self.split(vector)
        return torch.cat([*(ALPHA / RANK * (b @ a).reshape(-1) for a, b in pairs), rest])

    def changes(self):
        """float64 ``[n, D]``: what each client changes, as products of their factors."""
        return torch.stack([self.dense(self.model + u) - self.dense(self.model) for u in self.updates])

    def gauged(self, factors):
        """The same adapters, each client's written with a factor of its own."""
        updates = self.updates.clone()
        for row, c in zip(updates, factors, strict=True):
            for place in self.places:
                row[place.a] = c * (self.model[place.a] + row[place.a]) - self.model[place.a]
                row[place.b] = (self.model[place.b] + row[place.b]) / c - self.model[place.b]
        return updates

    def aggregate(self, rule, updates=None):
        rows = self.form.rows(self.module, self.model, self.updates if updates is None else updates)
        return aggregate(load_registry().pipeline(rule), rows, context_of())


def context_of():
    return RuleContext("server", Sight.EACH_UPDATE | Sight.SUM, f=F, round=1, rng=Rng(3))


GAUGES = (1.0, -100.0, 0.01, 30.0, -1.0, 7.0, 1e3)
RULES = ("mean", "krum", "geometric_median", "median", "trimmed_mean", "nnm >> trimmed_mean", "nnm >> mean", "cge")


# ---- What is trained.


def test_pairs_are_found_by_name_with_the_scaling_of_their_layer():
    """As peft names them: the adapter's own name follows, and ``scaling`` has one number for each."""
    layer, network = nn.Module(), nn.Module()
    layer.base_layer, layer.scaling = nn.Linear(5, 4).requires_grad_(False), {"default": 1.5, "other": 9.0}
    layer.lora_A = nn.ModuleDict({"default": nn.Linear(5, 2, bias=False)})
    layer.lora_B = nn.ModuleDict({"default": nn.Linear(2, 4, bias=False)})
    network.query = layer
    (pair,) = find_pairs(network)
    assert (pair.a, pair.b) == ("query.lora_A.default.weight", "query.lora_B.default.weight")
    assert (pair.rank, pair.inputs, pair.outputs, pair.scaling) == (2, 5, 4, 1.5)
    assert pair.base == "query.base_layer.weight"
    del layer.lora_A
    with pytest.raises(ConfigError, match="lora_B.default.weight has no lora_A beside it"):
        find_pairs(network)
    layer.lora_A = nn.ModuleDict({"default": nn.Linear(5, 9, bias=False)})
    layer.lora_B["default"] = nn.Linear(9, 4, bias=False)
    with pytest.raises(ConfigError, match="expected a rank of at most 4; got 9"):
        find_pairs(network)
    layer.lora_A = nn.ModuleDict({"default": nn.Linear(5, 3, bias=False)})
    layer.lora_B["default"] = nn.Linear(2, 4, bias=False)
    with pytest.raises(ConfigError, match=r"got \[3, 5\] and \[4, 2\]"):
        find_pairs(network)


@pytest.mark.parametrize(("alpha", "scaling"), [(ALPHA, ALPHA / RANK), (None, 1.0)])
def test_a_layer_adds_its_scaled_product(alpha, scaling):
    network = network_of(Factors(rank=RANK, alpha=alpha))
    own = dict(network.module.named_parameters())
    torch.nn.init.normal_(own["1.lora_B.weight"], generator=torch.Generator().manual_seed(4))
    x = examples(5).x
    weight = own["1.weight"] + scaling * own["1.lora_B.weight"] @ own["1.lora_A.weight"]
    hidden = (x.flatten(1) @ weight.T + own["1.bias"]).relu()
    hidden = (hidden @ own["3.weight"].T + own["3.bias"]).relu()  # its B is still 0
    torch.testing.assert_close(network.module(x), hidden @ own["5.weight"].T + own["5.bias"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("form", "sent"), [("factors", "ABAB"), ("product", "ABAB"), ("frozen_a", "BB")])
def test_d_counts_adapters_and_the_last_layer(form, sent):
    network = network_of(FORMS[form](rank=RANK))
    sizes = {"A": (RANK * 6, RANK * 9), "B": (9 * RANK, 4 * RANK)}
    seen = {"A": iter(sizes["A"]), "B": iter(sizes["B"])}
    assert network.layers == (*(next(seen[one]) for one in sent), 12, 3)


def test_the_frozen_weights_are_the_same_for_every_seed_and_the_factors_are_drawn():
    form = Factors(rank=RANK)
    one, other = (FlatNetwork(AdaptedModel(model=Given(plain), form=form), SHAPE, CLASSES, Rng(0)) for _ in range(2))
    assert one.digest_frozen() == other.digest_frozen() is not None
    drawn = FlatNetwork(AdaptedModel(model=Given(plain), form=form), SHAPE, CLASSES, Rng(9)).flat
    assert not torch.equal(one.flat, drawn)


@pytest.mark.parametrize("form", FORMS)
def test_training_equals_a_plain_loop_and_leaves_the_frozen_weights(form):
    network, parts = network_of(FORMS[form](rank=RANK, alpha=ALPHA)), [examples(n, seed=n) for n in (11, 5)]
    plan, out = LocalPlan(lr=0.3, batch_size=4, epochs=2, momentum=0.5), torch.empty(2, network.dim)
    before = network.digest_frozen()
    start = network.flat.clone() + 0.1
    Cohort(network, parts).train(start, [0, 1], plan, Rng(5), out)
    for client, (part, update) in enumerate(zip(parts, out, strict=True)):
        module = copy.deepcopy(network.module)
        trained = [p for p in module.parameters() if p.requires_grad]
        nn.utils.vector_to_parameters(start.clone(), trained)
        sgd = torch.optim.SGD(trained, lr=plan.lr, momentum=plan.momentum)
        for batch in schedule(plan, len(part), Rng(5).child("client", client).numpy()):
            rows = torch.from_numpy(batch[batch >= 0])
            sgd.zero_grad()
            cross_entropy(module(part.x[rows]), part.y[rows]).backward()
            sgd.step()
        torch.testing.assert_close(update, nn.utils.parameters_to_vector(trained) - start, rtol=1e-5, atol=1e-6)
    assert network.digest_frozen() == before


@pytest.mark.parametrize("form", ["factors", "frozen_a"])
def test_private_gradients_of_single_examples_equal_a_loop(form):
    """What a bound of 1e-3 leaves of each example's gradient adds up to the step."""
    pytest.importorskip("opacus")
    network, part = network_of(FORMS[form](rank=RANK, alpha=ALPHA)), examples(8)
    plan = LocalPlan(lr=1.0, batch_size=4, steps=1, private=DPSGD(sample_rate=0.9, levels=((1e-3, 0.0),)))
    start, out = network.flat.clone() + 0.1, torch.empty(1, network.dim)
    Cohort(network, [part]).train(start, [0], plan, Rng(5), out)
    (batch,) = schedule(plan, 8, Rng(5).child("client", 0).numpy())
    expected, module = torch.zeros(network.dim), copy.deepcopy(network.module)
    trained = [p for p in module.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(start.clone(), trained)
    for row in batch[batch >= 0].tolist():
        loss = cross_entropy(module(part.x[row : row + 1]), part.y[row : row + 1])
        gradient = torch.cat([one.reshape(-1) for one in torch.autograd.grad(loss, trained)])
        expected -= gradient * min(1.0, 1e-3 / float(gradient.norm())) / 4
    torch.testing.assert_close(out[0], expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rank": 2, "targets": ("7",)}, "no linear layer 7; its linear layers are 1, 3, 5"),
        ({"rank": 5}, "rank: expected at most 4, for layer 3; got 5"),
        ({}, "no parameters named lora_A and lora_B. Set rank"),
    ],
)
def test_adapters_that_cannot_be_put_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        Factors(**given).adapt(plain())


def test_a_network_with_adapters_of_its_own_gets_no_others():
    own = Factors(rank=RANK).adapt(plain())
    with pytest.raises(ConfigError, match="the network has 2 adapters of its own; got 3"):
        Factors(rank=3).adapt(own)
    with pytest.raises(ConfigError, match="alpha and targets"):
        Factors(alpha=3.0).adapt(own)
    FrozenA().adapt(own)
    assert [name for name, p in own.named_parameters() if p.requires_grad] == [
        "1.lora_B.weight", "3.lora_B.weight", "5.weight", "5.bias",
    ]  # fmt: skip


def test_targets_say_which_layers_get_an_adapter():
    module = Factors(rank=RANK, targets=("3", "5")).adapt(plain())
    assert [pair.layer for pair in find_pairs(module)] == ["3", "5"]
    assert not module[5].weight.requires_grad  # the last layer is a target itself


# ---- What a rule sees.


def test_inner_products_are_those_of_the_matrices():
    scene = Scene()
    rows = scene.form.rows(scene.module, scene.model, scene.updates)
    dense = scene.changes()
    expected = torch.zeros(N + 1, N + 1, dtype=torch.float64)
    for i, j in itertools.product(range(N), repeat=2):
        expected[i, j] = sum(float(p) * float(q) for p, q in zip(dense[i], dense[j], strict=True))
    torch.testing.assert_close(rows.products([]), expected, rtol=1e-5, atol=1e-5 * float(expected.max()))
    torch.testing.assert_close(rows.distances(None), dense.norm(dim=1), rtol=1e-5, atol=0)


def test_rows_that_differ_little_keep_their_distance():
    """The difference of two products loses its digits; the product of differences does not."""
    scene = Scene()
    scene.updates = 1e-6 * scene.updates
    inner = scene.form.rows(scene.module, scene.model.double(), scene.updates.double()).products([])
    scene.model, scene.updates = scene.model.double(), scene.updates.double()
    dense = scene.changes()
    torch.testing.assert_close(inner[:-1, :-1], dense @ dense.T, rtol=1e-5, atol=1e-5 * float(inner.max()))


@pytest.mark.parametrize("rule", RULES)
def test_no_clients_gauge_changes_a_rule_on_products(rule):
    """A fault that this finds: a rule that sees factors. The mean of factors is another one, see below."""
    scene = Scene()
    scene.model, scene.updates = scene.model.double(), scene.updates.double()
    one, other = scene.aggregate(rule), scene.aggregate(rule, scene.gauged(GAUGES))
    before, after = (scene.dense(scene.model + result.vector) for result in (one, other))
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5 * float(before.abs().max()))
    if one.weights is not None:
        torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-7)


def test_a_gauge_changes_every_rule_on_factors_that_is_no_selection():
    scene = Scene(Factors(rank=RANK, alpha=ALPHA))
    for rule in ("mean", "median", "trimmed_mean", "nnm >> trimmed_mean"):
        one, other = scene.aggregate(rule), scene.aggregate(rule, scene.gauged(GAUGES))
        before, after = (scene.dense(scene.model + result.vector) for result in (one, other))
        assert (after - before).norm() > 0.2 * before.norm(), rule


@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "nnm >> trimmed_mean"])
def test_a_rule_by_coordinates_reads_the_entries_of_the_products(rule, monkeypatch):
    monkeypatch.setattr("fedguard.adapters.products.BLOCK_BYTES", 8 * N * 9)  # one output of a layer at a time
    scene = Scene(Product(rank=4, alpha=ALPHA * 2))  # of the rank of the narrower layer, which loses nothing there
    dense = scene.changes()
    if rule.startswith("nnm"):
        distances = torch.cdist(dense, dense)
        dense = torch.stack([dense[distances[i].argsort()[: N - F]].mean(0) for i in range(N)])
    ordered = dense.sort(0).values
    expected = scene.dense(scene.model) + (ordered[N // 2] if rule == "median" else ordered[F : N - F].mean(0))
    found = scene.dense(scene.model + scene.aggregate(rule).vector)
    first = 9 * 6
    wide, narrow = expected[:first].view(9, 6), slice(first, None)
    u, s, v = np.linalg.svd(wide.numpy())
    cut = torch.from_numpy(u[:, :4] * s[:4] @ v[:4])
    torch.testing.assert_close(found[:first].view(9, 6), cut, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[narrow], expected[narrow], rtol=1e-4, atol=1e-4)


def test_a_rule_that_needs_the_matrix_or_an_anchor_says_so():
    scene = Scene()
    rows = scene.form.rows(scene.module, scene.model, scene.updates)
    with pytest.raises(InputError, match="'sign_guard' reads rows as a whole"):
        rows.whole("sign_guard")
    with pytest.raises(InputError, match="a rule with an anchor"):
        rows.products([scene.model])


# ---- What the model is after a round.


@pytest.mark.parametrize("rule", ["mean", "krum", "geometric_median", "cge"])
def test_the_product_is_the_best_one_of_its_rank(rule):
    """Faults that this finds: weights that are forgotten, a wrong scaling, and what is left of the model's own product."""
    scene = Scene()
    result = scene.aggregate(rule)
    after, others = scene.split(scene.model + result.vector)
    before, _ = scene.split(scene.model)
    theirs = [scene.split(scene.model + update)[0] for update in scene.updates]
    for layer, (a, b) in enumerate(after):
        old = before[layer][1] @ before[layer][0]
        whole = old.clone()
        for weight, client in zip(result.weights.tolist(), theirs, strict=True):
            whole += weight * (client[layer][1] @ client[layer][0] - old)
        u, s, v = np.linalg.svd(whole.numpy())
        best = torch.from_numpy(u[:, :RANK] * s[:RANK] @ v[:RANK])
        torch.testing.assert_close(b @ a, best, rtol=1e-4, atol=1e-4 * float(best.abs().max()))
    rest = scene.split(scene.model)[1] + sum(
        weight * scene.split(update)[1] for weight, update in zip(result.weights.tolist(), scene.updates, strict=True)
    )
    torch.testing.assert_close(others, rest, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def folded_of(scene, vector):
    """(F + s B A) of each layer, and what else is trained, as a loop finds them by name."""
    module = copy.deepcopy(scene.module)
    nn.utils.vector_to_parameters(vector.float(), [one for one in module.parameters() if one.requires_grad])
    layers = [part for part in module.modules() if isinstance(part, LowRankLinear)]
    return torch.cat([
        *((one.folded[0] + ALPHA / RANK * one.lora_B.weight @ one.lora_A.weight).reshape(-1) for one in layers),
        module[-1].weight.reshape(-1), module[-1].bias,
    ]).double()  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_stacked_loses_nothing_and_begins_anew(rule):
    """The weights move by the rule's answer on whole products; B is 0 then, A stays, and what a client says of F is nothing."""
    scene = Scene(Stacked(rank=RANK, alpha=ALPHA))
    layers = {place.pair.layer: place for place in scene.places}
    at = place_parameters(scene.module)
    before = folded_of(scene, scene.model)
    honest = scene.updates.clone()
    for name in layers:
        honest[:, at[f"{name}.folded"]] = 0
    changes = torch.stack([folded_of(scene, scene.model + one) - before for one in honest])
    expected = aggregate(load_registry().pipeline(rule), changes.float(), context_of())
    found = scene.aggregate(rule)  # with what clients may not send still in their updates
    after = scene.model + found.vector
    scale = float(before.abs().max())
    torch.testing.assert_close(folded_of(scene, after), before + expected.vector.double(), rtol=1e-4, atol=1e-4 * scale)
    for place in layers.values():
        assert after[place.b].abs().max() < 1e-6 and torch.equal(after[place.a], scene.model[place.a])


@pytest.mark.parametrize("rule", RULES)
def test_no_clients_gauge_changes_a_rule_on_stacked_products(rule):
    scene = Scene(Stacked(rank=RANK, alpha=ALPHA))
    scene.model, scene.updates = scene.model.double(), scene.updates.double()
    one, other = scene.aggregate(rule), scene.aggregate(rule, scene.gauged(GAUGES))
    torch.testing.assert_close(other.vector, one.vector, rtol=1e-5, atol=1e-5 * float(one.vector.abs().max()))


def test_stacked_needs_layers_of_its_own():
    module = Stacked(rank=RANK).adapt(plain())
    with pytest.raises(ConfigError, match="stacked folds results into the layers"):
        Stacked().adapt(module)


def test_the_difference_of_the_squares_of_a_and_b_stays():
    """As under a descent on small steps. A fault that this finds: factors of equal length, which train at another pace."""
    scene = Scene()
    (a, b), (new_a, new_b) = (
        scene.split(scene.model)[0][0],
        scene.split(scene.model + scene.aggregate("mean").vector)[0][0],
    )
    kept = float(a.square().sum() - b.square().sum()) / RANK
    torch.testing.assert_close(
        new_a @ new_a.T - new_b.T @ new_b, kept * torch.eye(RANK, dtype=torch.float64), rtol=1e-4, atol=1e-4
    )


def test_where_nobody_moves_a_the_mean_product_is_the_mean_of_b():
    """`frozen_a` equals `product` under the mean."""
    scene = Scene(same_a=True)
    found = scene.dense(scene.model + scene.aggregate("mean").vector)
    expected = scene.dense(scene.model + scene.updates.mean(0))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    apart = Scene()
    moved = apart.dense(apart.model + apart.updates.mean(0)) - apart.dense(apart.model + apart.aggregate("mean").vector)
    assert moved.norm() > 0.01


def test_the_bias_of_factors_is_that_of_a_plain_loop():
    scene = Scene(Factors(rank=RANK, alpha=ALPHA))
    away = size = 0.0
    for layer in range(2):
        pairs = [scene.split(scene.model + update)[0][layer] for update in scene.updates]
        mean = sum(b @ a for a, b in pairs) / N
        apart = (sum(b for _, b in pairs) / N) @ (sum(a for a, _ in pairs) / N)
        away, size = away + float((apart - mean).square().sum()), size + float(mean.square().sum())
    found = scene.form.bias(scene.module, scene.model, scene.updates)
    assert found == pytest.approx((away / size) ** 0.5, rel=1e-5)
    assert Product(rank=RANK).bias(scene.module, scene.model, scene.updates) is None
    same = Scene(Factors(rank=RANK, alpha=ALPHA), same_a=True)
    assert same.form.bias(same.module, same.model, same.updates) == pytest.approx(0, abs=1e-12)
    assert factor_bias((), scene.model, scene.updates) is None
    gauged = scene.form.bias(scene.module, scene.model, scene.gauged(GAUGES))
    assert gauged > 10 * found


def test_inner_products_of_one_row_are_its_square():
    scene = Scene()
    stack = FactorStack.of(scene.places[0], scene.model, scene.updates[:1])
    left, right = stack.changes()
    assert float(inner_products(left, right)) == pytest.approx(float((left[0] @ right[0]).square().sum()), rel=1e-9)


def test_a_model_without_adapters_has_no_form():
    assert form_of(Given(plain)) is None
    adapted = AdaptedModel(model=load_registry().build("model", "mlp(hidden=[8])"), form=Factors(rank=2))
    assert form_of(adapted) == Factors(rank=2)
    assert adapted.spec() == adapted.model.spec() and str(adapted) == str(adapted.model) and adapted.by_cross_entropy
