"""What honest clients do to their examples and updates, beside the formulae as plain loops; and PRECODE, which is a model."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, softplus

from fedguard.architectures.clients import Clients
from fedguard.architectures.server import Server
from fedguard.contracts import ClientContext, Examples, Participation, Setup, Sight, Training
from fedguard.defenses.clients import ats
from fedguard.defenses.clients.ats import ATS
from fedguard.defenses.clients.client_clipping import ClientClipping
from fedguard.defenses.clients.grad_defense import GradDefense
from fedguard.defenses.clients.noise import UpdateNoise
from fedguard.defenses.clients.pruning import Pruning
from fedguard.defenses.clients.sign import Sign
from fedguard.defenses.clients.soteria import Soteria
from fedguard.errors import ConfigError, NotObservable
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.models.precode import PRECODE, _mix_bits, gaussian
from fedguard.tasks.network import FlatNetwork
from tests.inference.scenes import client, digits, gradient, mlp
from tests.parts import setup_of_parts

NOBODY = ClientContext("test", Sight.NOTHING, round=1, rng=Rng(5))
UPDATES = st.tuples(st.integers(1, 40), st.integers(0, 2**31))


def drawn(size_and_seed: tuple[int, int]) -> torch.Tensor:
    size, seed = size_and_seed
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


# Pruning, signs, clipping.


@given(UPDATES, st.floats(0.01, 1))
def test_pruning_sends_exactly_the_k_largest_coordinates(of, keep):
    update = drawn(of)
    sent = Pruning(keep=keep).apply(update, NOBODY).tolist()
    k = max(1, round(keep * len(update)))
    largest = sorted(range(len(update)), key=lambda j: -abs(float(update[j])))[:k]
    assert sent == [float(update[j]) if j in largest else 0.0 for j in range(len(update))]


@given(UPDATES)
def test_signs_have_one_magnitude_the_mean_of_the_updates(of):
    update = drawn(of).index_fill(0, torch.tensor([0]), 0.0)
    magnitude = math.fsum(abs(v) for v in update.tolist()) / len(update)
    expected = [magnitude * ((v > 0) - (v < 0)) for v in update.tolist()]
    assert Sign().apply(update, NOBODY).tolist() == pytest.approx(expected, rel=1e-6)


def test_an_attacker_compares_the_coordinates_that_were_sent():
    dummy, observed = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([0.0, 7.0, 0.0])
    seen, same = Pruning().adapt(dummy, observed, nn.Identity())
    assert seen.tolist() == [[0, 2, 0], [0, 5, 0]]
    assert same.tolist() == observed.tolist()


def test_an_attacker_compares_smoothed_signs():
    dummy, observed = torch.tensor([[3.0, -4.0], [0.0, 0.0]]), torch.tensor([2.0, -2.0])
    seen, same = Sign().adapt(dummy, observed, nn.Identity())
    rms = math.sqrt((9 + 16) / 2)
    assert seen[0].tolist() == pytest.approx([2 * math.tanh(3 / rms), 2 * math.tanh(-4 / rms)])
    assert seen[1].tolist() == [0, 0]
    assert same.tolist() == [2, -2]


def test_an_attacker_clips_as_the_client_does():
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])
    seen, _ = ClientClipping(bound=1).adapt(torch.stack([long, short]), long, nn.Identity())
    for row, update in zip(seen, (long, short), strict=True):
        assert torch.allclose(row, ClientClipping(bound=1).apply(update, NOBODY))
    assert seen.norm(dim=1).tolist() == pytest.approx([1.0, 0.5])


def test_a_pipeline_adapts_stage_by_stage():
    pipeline = load_registry().pipeline("pruning(keep=0.5) >> client_clipping(bound=1) >> mean")
    dummy, observed = torch.tensor([[30.0, 40.0, 5.0]]), torch.tensor([0.0, 1.0, 0.0])
    seen, same = pipeline.adapt(nn.Identity())(dummy, observed)
    assert seen.tolist() == [[0, 1, 0]]
    assert torch.equal(same, observed)
    plain = load_registry().pipeline("mean").adapt(nn.Identity())(dummy, observed)
    assert plain[0] is dummy
    assert plain[1] is observed


# Noise.


def test_noise_is_gaussian_of_the_scale_that_was_asked_for():
    update = torch.randn(20000, generator=torch.Generator().manual_seed(1)) * 3
    rms = math.sqrt(math.fsum(v * v for v in update.tolist()) / len(update))
    for noise, sigma in ((UpdateNoise(scale=0.5), 0.5 * rms), (UpdateNoise(scale=0.5, relative=False), 0.5)):
        added = ((noise.apply(update, NOBODY) - update).double() / sigma).sort().values
        assert abs(float(added.mean())) < 4 / math.sqrt(len(added))
        normal = torch.special.ndtr(added)
        steps = torch.arange(1, len(added) + 1) / len(added)
        assert float((normal - steps).abs().max()) < 1.95 / math.sqrt(len(added))  # Kolmogorov and Smirnov, at 0.1 %
    assert torch.equal(UpdateNoise(scale=0).apply(update, NOBODY), update)


def test_noise_differs_between_clients_rounds_and_stages():
    """A second `noise` in the pipeline must not add the first one's noise again."""
    moved = []
    for text in ("mean", "noise(scale=1, relative=False) >> mean", "noise(scale=1, relative=False) >> " * 2 + "mean"):
        setup = federation(text)
        clients, buffer = Clients(setup), torch.empty(3, setup.task.dim)
        model = setup.task.initial_model(Rng(0))
        rounds = []
        for round in (1, 2):
            sent = clients.send(model, round, range(3), lambda *_: None, buffer)
            rounds.append(sent.updates[torch.tensor(sent.senders).argsort()].clone())
        moved.append(torch.stack(rounds))
    once, again = (moved[1] - moved[0]).flatten(0, 1), (moved[2] - moved[1]).flatten(0, 1)
    assert (
        torch.cat([once, again]).corrcoef().fill_diagonal_(0).abs() < 0.15
    ).all()  # independent: 0.15 is 4 deviations
    assert torch.allclose(torch.cat([once, again]).std(1), torch.ones(12), atol=0.1)


# Soteria.


def test_soteria_prunes_the_columns_of_its_formula_and_nothing_else():
    module, examples = mlp(64, 12, 8, 10, activation=nn.Sigmoid), digits(3)
    update = -gradient(module, examples)
    for layer, first, rows, columns in ((-1, 64 * 12 + 12 + 12 * 8 + 8, 10, 8), (1, 64 * 12 + 12, 8, 12)):
        below = module[: 3 if layer == 1 else 5]
        slopes = torch.autograd.functional.jacobian(lambda x, below=below: below(x).sum(0), examples.x)
        representation = below(examples.x).detach()
        scores = []
        for i in range(columns):
            score = 0.0
            for b in range(len(examples)):
                slope = math.sqrt(math.fsum(v * v for v in slopes[i, b].flatten().tolist()))
                score += abs(float(representation[b, i])) / slope
            scores.append(score)
        pruned = sorted(range(columns), key=lambda i: -scores[i])[: round(0.5 * columns)]
        expected = update.clone()
        for j in range(rows):
            for i in pruned:
                expected[first + j * columns + i] = 0
        sent = Soteria(share=0.5, layer=layer).apply(update, client(module, examples))
        assert torch.equal(sent, expected)


def test_soteria_leaves_every_other_layer_alone_and_dead_entries_to_the_last():
    module, examples = mlp(64, 30, 10), digits(1)
    update = -gradient(module, examples)
    sent = Soteria(share=0.3).apply(update, client(module, examples))
    changed = sent != update
    first, last = 64 * 30 + 30, 64 * 30 + 30 + 30 * 10
    assert changed[first:last].any()
    assert not changed[:first].any()
    assert not changed[last:].any()
    alive = (module[:3](examples.x) > 0).flatten()
    assert 9 <= int(alive.sum()) < 30
    assert int((sent[first:last].view(10, 30)[:, alive] == 0).all(0).sum()) == 9  # of 30 entries, none of them dead


def test_an_attacker_leaves_out_the_layer_that_soteria_defends():
    module = mlp(4, 3, 2)
    dummy, observed = torch.ones(5, 4 * 3 + 3 + 3 * 2 + 2), torch.full((4 * 3 + 3 + 3 * 2 + 2,), 2.0)
    seen, same = Soteria().adapt(dummy, observed, module)
    kept = [1.0] * 15 + [0.0] * 6 + [1.0] * 2
    assert seen.tolist() == [kept] * 5
    assert same.tolist() == [2 * value for value in kept]
    assert Soteria(layer=0).adapt(dummy, observed, module)[0][0].tolist() == [0.0] * 12 + [1.0] * 11


def test_soteria_works_on_convolutional_networks_and_says_where_there_is_no_such_layer():
    network = FlatNetwork(load_registry().build("model", "lenet5"), (1, 8, 8), 10, Rng(0))
    update = torch.ones(network.dim)
    sent = Soteria(layer=0, share=1).apply(update, client(network.module, digits(2)))
    start = sum(network.layers[:4])
    assert torch.equal((sent == 0).nonzero().flatten(), torch.arange(start, start + network.layers[4]))
    with pytest.raises(ConfigError, match="expected one of the network's 3 dense layers; got 3"):
        Soteria(layer=3).apply(update, client(network.module, digits(2)))


# ATS.


def test_warps_move_pixels_as_their_names_say():
    x, one = torch.rand(1, 1, 4, 4), torch.ones(1)
    assert torch.allclose(ats._warp_images(x, ats._flip(one, one)), x.flip(3), atol=1e-6)
    assert torch.allclose(
        ats._warp_images(x, ats._rotate(1.5 * one, one)), x.rot90(1, (2, 3)), atol=1e-6
    )  # of 60 degrees
    moved = ats._warp_images(x, ats._shift(0 * one, one))[0, 0]  # by a quarter of the side: one pixel
    sheared = ats._warp_images(x, ats._shear(4 * one, one))[0, 0]  # row y of [-1, 1] by 4 y / 2: -3, -1, 1, 3 pixels
    for row in range(4):
        for column in range(4):
            below = float(x[0, 0, row + 1, column]) if row < 3 else 0.0
            assert float(moved[row, column]) == pytest.approx(below, abs=1e-6)
            source = column + 2 * row - 3
            beside = float(x[0, 0, row, source]) if 0 <= source < 4 else 0.0
            assert float(sheared[row, column]) == pytest.approx(beside, abs=1e-6)


def transformed(x: torch.Tensor, *policy: str, value_range: tuple[float, float] = (0.0, 1.0)) -> torch.Tensor:
    context = client(mlp(2, 2), digits(1)).restrict("test", Sight.OWN_DATA, value_range=value_range)
    return ATS(policy=policy).prepare(Examples(x, torch.zeros(len(x))), context).x


def test_the_values_of_pointwise_transforms():
    values = [0.0, 0.2, 0.4, 1.0]
    x = torch.tensor(values).view(1, 1, 2, 2)
    assert transformed(x, "posterize").flatten().tolist() == pytest.approx([0.0, 0.0, 1 / 3, 1.0])
    assert transformed(x, "invert").flatten().tolist() == pytest.approx([1.0, 0.8, 0.6, 0.0])
    bright = transformed(x, "brightness").flatten().tolist()
    by = bright[2] - 0.4
    assert 0 < abs(by) <= 0.5
    assert bright == pytest.approx([min(1.0, max(0.0, v + by)) for v in values])
    flatter = transformed(x, "contrast").flatten().tolist()
    slope = (flatter[1] - flatter[0]) / 0.2
    assert 0.25 <= slope < 1
    assert flatter == pytest.approx([0.4 + slope * (v - 0.4) for v in values])


@pytest.mark.parametrize("name", ["rotate", "shear", "shift", "contrast", "brightness"])
def test_every_image_draws_its_own_amounts_and_stays_in_range(name):
    x = digits(1).x.expand(6, -1, -1, -1) * 2 - 1
    made = transformed(x, name, value_range=(-1.0, 1.0))
    assert made.shape == x.shape
    assert made.min() >= -1 - 1e-6
    assert made.max() <= 1 + 1e-6
    assert len({tuple(image.flatten().tolist()) for image in made}) == 6
    assert torch.equal(made, transformed(x, name, value_range=(-1.0, 1.0)))


def test_ats_wants_images_and_known_names():
    with pytest.raises(ConfigError, match=r"ats needs images \[channels, height, width\]; got inputs of shape \[30\]"):
        transformed(torch.zeros(2, 30), "shift")
    with pytest.raises(ConfigError, match="policy"):
        load_registry().build("defense", "ats(policy=('swirl',))")


# GradDefense.


def test_the_slices_of_grad_defense_are_of_equal_sensitivity():
    module, examples = mlp(64, 16, 10, activation=nn.Sigmoid), digits(4)
    sizes = [p.numel() for p in module.parameters()]
    told = []
    for number in range(len(sizes)):
        total = 0.0
        x = examples.x.clone().requires_grad_()
        loss = cross_entropy(module(x), examples.y)
        layer = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)[number]
        (slope,) = torch.autograd.grad(layer.sum(), x)
        for image in slope:
            total += math.sqrt(math.fsum(v * v for v in image.flatten().tolist()))
        told.append(total / len(examples))
    each = [told[layer] / sizes[layer] for layer in range(len(sizes)) for _ in range(sizes[layer])]
    slices = GradDefense(slices=7)._slices(client(module, examples)).tolist()
    assert slices == sorted(slices)
    mass = [math.fsum(t for t, s in zip(each, slices, strict=True) if s == number) for number in range(7)]
    assert mass == pytest.approx([sum(told) / 7] * 7, abs=2 * max(each))


def test_grad_defense_adds_noise_to_the_drawn_slices_alone():
    module, examples = mlp(64, 16, 10), digits(4)
    update, context = -gradient(module, examples), client(module, examples, seed=3)
    defense = GradDefense(slices=8, noisy=3, scale=2.0)
    slices, added = defense._slices(context), defense.apply(update, context) - update
    noisy = sorted({int(s) for s in slices[added != 0]})
    assert len(noisy) == 3
    touched = torch.isin(slices, torch.tensor(noisy))
    assert (added[~touched] == 0).all()
    rms = float(update.square().mean().sqrt())
    assert float(added[touched].std()) == pytest.approx(2 * rms, rel=4 / math.sqrt(2 * int(touched.sum())))
    assert torch.equal(GradDefense(noisy=0).apply(update, context), update)


# PRECODE.


def test_splitmix64_gives_its_published_numbers():
    golden = 0x9E3779B97F4A7C15
    states = [(1234567 + i * golden) % 2**64 for i in range(1, 6)]
    signed = torch.tensor([state - 2**64 if state >= 2**63 else state for state in states])
    assert [value % 2**64 for value in _mix_bits(signed).tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_the_noise_of_precode_is_normal_and_a_function_of_the_row_and_the_biases():
    x, salt = digits(50).x.flatten(1), torch.rand(32, generator=torch.Generator().manual_seed(0))
    noise = gaussian(x, salt, 400)
    ordered = noise.flatten().double().sort().values
    steps = torch.arange(1, len(ordered) + 1) / len(ordered)
    assert float((torch.special.ndtr(ordered) - steps).abs().max()) < 1.95 / math.sqrt(len(ordered))
    assert float(noise.corrcoef().fill_diagonal_(0).abs().max()) < 0.26  # 5 deviations: rows do not know each other
    assert torch.equal(gaussian(x[7:9], salt, 400), noise[7:9])
    nudged = x[:1].clone()
    nudged[0, 3] += 1e-6
    for other in (gaussian(nudged, salt, 400), gaussian(x[:1], salt + 1e-6, 400)):
        assert abs(float(torch.corrcoef(torch.stack([other[0], noise[0]]))[0, 1])) < 0.26


def test_precode_repeats_and_leaves_the_global_generator_alone():
    module, examples = FlatNetwork(PRECODE(hidden=(16,), bottleneck=8), (1, 8, 8), 10, Rng(0)).module, digits(3)
    before = torch.get_rng_state()
    assert torch.equal(module(examples.x), module(examples.x))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_gradient_of_precode_is_that_of_cross_entropy_plus_beta_kl():
    network, examples = FlatNetwork(PRECODE(hidden=(16,), bottleneck=8, beta=0.5), (1, 8, 8), 10, Rng(0)), digits(5)
    named = {name: p.detach().double().requires_grad_() for name, p in network.module.named_parameters()}
    x = examples.x.flatten(1)
    h = (x.double() @ named["features.1.weight"].T + named["features.1.bias"]).relu()
    s = h @ named["encode.weight"].T + named["encode.bias"]
    mu, sigma = s[:, :8], softplus(s[:, 8:])
    z = mu + sigma * gaussian(x, network.module.encode.bias.detach(), 8)
    logits = (z @ named["decode.weight"].T + named["decode.bias"]) @ named["last.weight"].T + named["last.bias"]
    standard = torch.distributions.Normal(torch.zeros(()), torch.ones(()))
    kl = torch.distributions.kl_divergence(torch.distributions.Normal(mu, sigma), standard).sum(1).mean()
    loss = cross_entropy(logits, examples.y) + 0.5 * kl
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(named.values()))])
    assert torch.allclose(network.module(examples.x).double(), logits, atol=1e-5)
    assert torch.allclose(gradient(network.module, examples).double(), expected, atol=1e-6)


def test_torch_can_transform_precode():
    network, examples = FlatNetwork(PRECODE(hidden=(16,), bottleneck=8), (1, 8, 8), 10, Rng(0)), digits(3)
    model = network.flat.clone()

    def loss(model, x, y):
        return cross_entropy(network(model, x[None]), y[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(model, examples.x, examples.y)
    for row, i in zip(each, range(3), strict=True):
        alone = gradient(network.module, examples[torch.tensor([i])])
        assert torch.allclose(row, alone, atol=1e-6)


# In a training.


def federation(
    pipeline: str, *, training: Training | None = None, malicious: tuple[int, ...] = (), **more: str
) -> Setup:
    known = load_registry()
    task = Classification.deal(
        known.build("data", "digits"),
        known.build("model", more.get("model", "mlp(hidden=(16,))")),
        known.build("partition", "iid"),
        3,
        Rng(3),
    )
    return setup_of_parts(
        task,
        Rng(0),
        malicious,
        pipeline=known.pipeline(pipeline),
        attack=known.build("attack", more["attack"]) if "attack" in more else None,
        assumed_f=len(malicious),
        attack_sees=Sight.OWN_DATA,
        rule_sees=Sight.EACH_UPDATE.with_implied(),
        training=training or Training(algorithm="fedsgd", rounds=1, batch_size=None),
        clients=Participation(total=3),
    )


def sent(setup: Setup) -> torch.Tensor:
    """float32 ``[3, d]``: what each client sends in the first round."""
    model = setup.task.initial_model(setup.rng.child("model"))
    buffer = torch.empty(3, setup.task.dim)
    sent = Clients(setup).send(model, 1, range(3), lambda *_: None, buffer)
    return sent.updates[torch.tensor(sent.senders).argsort()].clone()


@pytest.mark.parametrize("batch", [None, 8])
def test_clients_train_on_what_they_prepared(batch):
    """The update is the gradient of the transformed images, found from the transformed images by a plain gradient."""
    setup = federation("ats(policy=('invert',)) >> mean", training=Training(algorithm="fedsgd", batch_size=batch))
    model = setup.task.initial_model(setup.rng.child("model"))
    module = setup.task.module
    for number, update in enumerate(sent(setup)):
        part = setup.task.examples(number)
        used = setup.task.examples_used(number, setup.cell.plan, setup.rng.child("round", 1))
        assert len(used) == (batch or len(part))
        nn.utils.vector_to_parameters(model, module.parameters())
        assert torch.allclose(update, -gradient(module, used.replace(x=1 - used.x)), atol=1e-6)
    assert torch.equal(setup.task.examples(0).x, federation("mean").task.examples(0).x)


def test_malicious_clients_prepare_and_transform_nothing():
    plain, defended = (
        sent(federation(text, malicious=(1,), attack="label_flip"))
        for text in ("mean", "ats >> pruning(keep=0.01) >> mean")
    )
    assert torch.equal(plain[1], defended[1])
    assert ((defended[[0, 2]] != 0).sum(1) == round(0.01 * plain.shape[1])).all()


def test_soteria_scores_the_batch_of_the_step():
    """Beside the same transform, called by hand with the batch."""
    setup = federation("soteria(share=0.4) >> mean", training=Training(algorithm="fedsgd", batch_size=1))
    plain = sent(federation("mean", training=setup.cell.training))
    model = setup.task.initial_model(setup.rng.child("model"))
    for number, (update, before) in enumerate(zip(sent(setup), plain, strict=True)):
        used = setup.task.examples_used(number, setup.cell.plan, setup.rng.child("round", 1))
        nn.utils.vector_to_parameters(model, setup.task.module.parameters())
        expected = Soteria(share=0.4).apply(before, client(setup.task.module, used))
        assert torch.equal(update, expected)
        assert not torch.equal(update, before)


@pytest.mark.parametrize(
    "text", ["pruning", "sign", "noise(scale=0.1)", "soteria(share=0.5)", "ats(policy=('contrast',))", "grad_defense"]
)
def test_training_learns_behind_each_of_them(text):
    setup = federation(f"{text} >> mean", training=Training(rounds=12, local_epochs=2, lr=0.3))
    last = list(Server().run(setup))[-1]
    assert last.evaluation.accuracy > 0.6


@pytest.mark.slow
def test_training_learns_with_precode():
    training = Training(rounds=12, local_epochs=2, lr=0.3)
    setup = federation("mean", training=training, model="precode(hidden=(32,), bottleneck=16)")
    assert list(Server().run(setup))[-1].evaluation.accuracy > 0.6


def test_what_needs_the_network_says_so_where_there_is_none():
    for transform in (Soteria(), GradDefense()):
        with pytest.raises(NotObservable):
            transform.apply(torch.ones(2), NOBODY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pruning(keep=0)", r"keep: expected a number in \(0, 1\]"),
        ("noise(scale=-1)", "scale: expected at least 0"),
        ("soteria(share=0)", r"share: expected a number in \(0, 1\]"),
        ("grad_defense(noisy=11)", "noisy: expected at most 10"),
        ("grad_defense(slices=0, noisy=0)", "slices: expected at least 1"),
    ],
)
def test_parameters_out_of_range(text, message):
    with pytest.raises(ConfigError, match=message):
        load_registry().build("defense", text)
