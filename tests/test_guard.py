"""A training loop that is not ours, attacked and defended where it aggregates."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fedguard as fg
from fedguard.contracts import PoisonAttack, Sight
from fedguard.errors import ConfigError, GuaranteeWarning, InputError, NotAllowed, PreconditionError
from fedguard.states import Layout


def network(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).state_dict()


def vector(state: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.double().reshape(-1) for value in state.values() if value.is_floating_point()])


def clients_of(model: dict[str, torch.Tensor], n: int, seed: int = 1) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    return [
        {
            name: value + 0.1 * torch.randn_like(value) if value.is_floating_point() else value + 1
            for name, value in model.items()
        }
        for _ in range(n)
    ]


def test_without_attack_the_mean_of_the_models():
    model = network()
    clients = clients_of(model, 5)
    found = fg.Guard().step(model, clients)
    assert list(found) == list(model)
    assert torch.allclose(vector(found), torch.stack(list(map(vector, clients))).mean(0), atol=1e-6)
    assert int(found["1.num_batches_tracked"]) == int(model["1.num_batches_tracked"])
    assert all(found[name].dtype == model[name].dtype and found[name].shape == model[name].shape for name in model)


def test_inner_product_manipulation_and_the_median_are_their_formulae():
    model = network()
    clients = clients_of(model, 7)
    start = vector(model)
    updates = [vector(client) - start for client in clients]
    sent = -5 * torch.stack(updates[2:]).mean(0)
    rows = torch.stack([sent, sent, *updates[2:]])
    attacked = fg.Guard(attack="ipm(tau=5)", f=2).step(model, clients)
    assert torch.allclose(vector(attacked), start + rows.mean(0), atol=1e-5)
    defended = fg.Guard(attack="ipm(tau=5)", defense="median", f=2).step(model, clients)
    assert torch.allclose(vector(defended), start + rows.median(0).values, atol=1e-5)
    others = fg.Guard(attack="ipm(tau=5)", f=2).step(model, clients, malicious=(3, 5))
    good = torch.stack([updates[row] for row in (0, 1, 2, 4, 6)])
    assert torch.allclose(vector(others), start + (good.sum(0) - 10 * good.mean(0)) / 7, atol=1e-5)


def test_an_attack_of_ones_own_update_sees_that():
    model, seen = torch.zeros(3), torch.arange(15.0).reshape(5, 3) + 1
    found = fg.Guard(attack="sign_flip", f=1, knowledge=("own_data",)).step(model, list(seen))
    assert torch.allclose(found, (seen[1:].sum(0) - seen[0]) / 5)


def test_rules_and_attacks_remember_from_round_to_round():
    """Centered clipping starts each round where the last one ended, $v + mean((x - v) min(1, tau / |x - v|))$."""
    guard = fg.Guard(defense="centered_clipping(tau=1, steps=1)", f=1)
    model, center = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for step in range(3):
        updates = [model + torch.tensor([3.0 + step, k], dtype=torch.float64) for k in range(4)]
        away = [update - model - center for update in updates]
        center = center + sum(one * min(1, 1 / float(one.norm())) for one in away) / 4
        after = guard.step(model, updates)
        assert torch.allclose(after, model + center, atol=1e-5)
        model = after

    class Counts(PoisonAttack):
        name, needs = "counts", (Sight.NOTHING,)

        def craft(self, view):
            return torch.full((view.f, view.dim), float(view.state.get("round", 0)))

        def remember(self, view, crafted):
            return {"round": view.round}

    guard = fg.Guard(attack=Counts(), f=1)
    said = [float(guard.step(torch.zeros(2), [torch.zeros(2)] * 2)[0]) for _ in range(3)]
    assert said == [0, 0.5, 1]


def test_who_knows_the_rule_finds_what_it_lets_through():
    torch.manual_seed(0)
    model, clients = torch.zeros(30), list(torch.randn(10, 30) * 0.1 + 1)
    guards = {
        knows: fg.Guard(attack="opt_ipm", defense="krum", f=3, knowledge=knows)
        for knows in (("honest_updates", "defense"),)
    }
    for guard in guards.values():
        assert float(guard.step(model, clients).mean()) < 1
    with pytest.raises(NotAllowed, match="needs"):
        fg.Guard(attack="opt_ipm", defense="krum", f=3, knowledge=("own_data",))


def test_what_is_not_finite_is_dropped_and_lowers_f():
    model = torch.zeros(2)
    clients = [torch.tensor([float("nan"), 0]), *torch.tensor([[1.0, 1], [2, 2], [30, 3]])]
    guard = fg.Guard(defense="trimmed_mean", f=2)
    assert guard.step(model, clients).tolist() == [2, 2]
    assert guard.dropped == 1


@pytest.mark.parametrize("attack", ["sign_flip", "ipm(tau=5)", None])
@pytest.mark.parametrize("lost", ["nan", "1e35", "claims"])
def test_a_round_without_honest_updates_is_warned_of(attack, lost):
    value = 1.0 if lost == "claims" else float(lost)
    clients = [torch.ones(2), *[torch.full((2,), value)] * 3]
    samples = [1, -1, float("nan"), float("inf")] if lost == "claims" else None
    guard = fg.Guard(attack=attack, defense="mean", f=1)
    with pytest.warns(GuaranteeWarning, match="round 1: none of the 3 honest updates is left"):
        guard.step(torch.zeros(2), clients, samples=samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard.step(torch.zeros(2), [*clients, torch.ones(2)], samples=None if samples is None else [*samples, 1])


@pytest.mark.parametrize("attack", ["opt_ipm", "min_max", "alie"])
@pytest.mark.parametrize("defense", ["median", "trimmed_mean", "mean"])
def test_an_attack_that_knows_the_rule_acts_in_a_round_without_honest_updates(attack, defense):
    clients = [torch.ones(2), *[torch.full((2,), float("nan"))] * 3]
    with pytest.warns(GuaranteeWarning, match="none of the 3 honest updates is left"):
        assert fg.Guard(attack=attack, defense=defense, f=1).step(torch.zeros(2), clients).isfinite().all()


def test_numpy_and_files_of_safetensors(tmp_path):
    from safetensors.torch import save_file

    model = {name: value for name, value in network().items() if value.is_floating_point()}
    clients = clients_of(model, 4)
    for number, client in enumerate(clients):
        save_file(client, tmp_path / f"{number}.safetensors")
    files = [tmp_path / f"{number}.safetensors" for number in range(4)]
    expected = fg.Guard(defense="median", f=1).step(model, clients)
    from_files = fg.Guard(defense="median", f=1).step(model, files)
    assert all(torch.equal(from_files[name], expected[name]) for name in model)
    in_numpy = fg.Guard(defense="median", f=1).step(
        {name: value.numpy() for name, value in model.items()},
        [{name: value.numpy() for name, value in client.items()} for client in clients],
    )
    assert all(
        isinstance(in_numpy[name], np.ndarray) and np.array_equal(in_numpy[name], expected[name]) for name in model
    )
    together = fg.aggregate("median", files, f=1)
    assert all(
        torch.allclose(together[name], torch.stack([one[name] for one in clients]).quantile(0.5, 0)) for name in model
    )
    crafted = fg.craft("ipm(tau=2)", clients, f=2)
    assert len(crafted) == 2
    assert torch.allclose(
        crafted[1]["0.weight"], -2 * torch.stack([one["0.weight"] for one in clients]).mean(0), atol=1e-6
    )


def test_claims_of_a_malicious_client_reach_the_rule():
    model, clients = torch.zeros(1), [torch.tensor([1.0]), torch.tensor([4.0])]
    honest = fg.Guard(defense="weighted_mean").step(model, clients, samples=[10, 30])
    assert float(honest) == pytest.approx((10 * 1 + 30 * 4) / 40)
    lied = fg.Guard(attack="inflated_samples(factor=9)", defense="weighted_mean", f=1).step(
        model, clients, samples=[10, 30]
    )
    assert float(lied) == pytest.approx((90 * -4 + 30 * 4) / 120)  # what is sent reverses the honest mean


def twice(*lengths):
    """Rounds of one guard with models of these lengths."""
    guard = fg.Guard(defense="centered_clipping(tau=1)")
    for d in lengths:
        guard.step(torch.ones(d), [torch.ones(d)] * 5)


MODEL = {"w": torch.zeros(2), "b": torch.zeros(1)}


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda: fg.Guard(attack="label_flip", f=1), NotAllowed, "label_flip acts on the clients' data"),
        (lambda: fg.Guard(attack="alei", f=1), ConfigError, "unknown attack 'alei'. Did you mean 'alie'"),
        (lambda: fg.Guard(defense="medain"), ConfigError, "unknown defense 'medain'"),
        (lambda: fg.Guard(f=-1), InputError, "expected 0 or more malicious clients; got -1"),
        (lambda: fg.Guard(knowledge=("everything",)), InputError, "knowledge: expected some of honest_updates, own_data"),
        (lambda: fg.Guard().step(MODEL, []), InputError, "clients: expected one model or more"),
        (lambda: fg.Guard().step(MODEL, [{"w": torch.zeros(2)}]), InputError, r"clients\[0\]: .*differs in b"),
        (lambda: fg.Guard().step(MODEL, [{**MODEL, "w": torch.zeros(3)}]), InputError, r"clients\[0\], w: expected floats of shape \[2\]"),
        (lambda: fg.Guard().step(MODEL, [MODEL, "none.safetensors"]), InputError, r"clients\[1\]: expected a file of safetensors"),
        (lambda: fg.Guard().step({"n": torch.tensor(1)}, [MODEL]), InputError, "expected entries of floating point"),
        (lambda: fg.Guard().step(MODEL, [3]), InputError, r"clients\[0\]: expected a state dict; got int"),
        (lambda: fg.Guard(attack="ipm", f=2).step(MODEL, [MODEL] * 2), InputError, "^f: expected fewer than the 2 clients of the round; got 2. Lower f, or pass more clients"),
        (lambda: fg.Guard(f=5).step(MODEL, [MODEL] * 3), InputError, "^f: expected fewer than the 3 clients of the round; got 5"),
        (lambda: fg.Guard(attack="ipm", f=3).step(MODEL, [MODEL] * 3, malicious=[0, 1, 2]), InputError, "^malicious: .*not all of them"),
        (lambda: fg.Guard(defense="smea", f=9).step(MODEL, [MODEL] * 30), PreconditionError, "Lower f or the number of clients"),
        (lambda: fg.Guard(defense="krum", assumed_f=2).step(MODEL, [MODEL] * 3), PreconditionError, "Lower assumed_f to 1 or raise the number of clients"),
        (lambda: fg.Guard(attack="ipm", f=1).step(MODEL, [MODEL] * 4, malicious=(0, 1)), InputError, "at most f = 1 of 4 rows"),
        (lambda: fg.Guard(defense="krum", f=2).step(MODEL, [MODEL] * 3), PreconditionError, "krum needs"),
        (lambda: fg.Guard(defense="fltrust", f=1).step(MODEL, [MODEL] * 4), NotAllowed, "fltrust"),
        (lambda: twice(2, 3), InputError, r"model, model: expected floats of shape \[2\]; got .* of \[3\]"),
        (lambda: fg.aggregate("mean", [{"a": torch.ones(2)}, {"b": torch.ones(2)}]), InputError, r"updates\[1\]: expected the entries of updates\[0\]; it differs in a, b"),
        (lambda: fg.aggregate("mean", [MODEL, [1.0]]), InputError, r"updates: expected state dicts alone; updates\[1\] is a list"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(act, error, said):
    with pytest.raises(error, match=said) as caught:
        act()
    assert "\n" not in str(caught.value)


def test_a_layout_keeps_every_number_in_its_place():
    state = {"a": torch.arange(6.0).reshape(2, 3).half(), "n": torch.tensor(3), "b": torch.tensor(7.0).double()}
    layout = Layout.of(state)
    assert layout.sizes == (6, 1)
    assert layout.vector(state).tolist() == [0, 1, 2, 3, 4, 5, 7]
    back = layout.state(layout.vector(state) + 1, state)
    assert back["a"].dtype == torch.float16 and back["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert back["b"].dtype == torch.float64 and float(back["b"]) == 8 and int(back["n"]) == 3


# ---- Running statistics.

TWO_NORMS = "1.running_mean", "1.running_var", "3.running_mean", "3.running_var"


def normalizing(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2)).state_dict()


def positive(clients):
    """Models of clients whose variances are above 0, as those of honest ones are."""
    return [
        {name: value.abs() + 0.1 if "var" in name else value for name, value in client.items()} for client in clients
    ]


def parameters(state):
    return {name: value for name, value in state.items() if value.is_floating_point() and name not in TWO_NORMS}


def test_apart_from_the_update_statistics_are_their_formula_and_parameters_as_without_any():
    model = normalizing()
    clients, samples = positive(clients_of(model, 6)), [1.0, 5, 2, 2, 7, 3]
    shares = torch.tensor(samples, dtype=torch.float64) / sum(samples)
    means, variances = (
        {name: torch.stack([client[name].double() for client in clients]) for name in TWO_NORMS if what in name}
        for what in ("mean", "var")
    )
    wanted = {name: shares @ rows for name, rows in (means | variances).items()}
    pooled = {
        name: shares @ (rows + means[name.replace("var", "mean")] ** 2) - wanted[name.replace("var", "mean")] ** 2
        for name, rows in variances.items()
    }
    alone = fg.Guard(defense="krum", f=1).step(parameters(model), [parameters(one) for one in clients], samples=samples)
    for fate, expected in (("weighted", wanted), ("pooled", {**wanted, **pooled})):
        found = fg.Guard(defense="krum", f=1, statistics=fate).step(model, clients, samples=samples)
        assert list(found) == list(model)
        assert all(torch.allclose(found[name].double(), expected[name], atol=1e-6) for name in TWO_NORMS), fate
        assert all(torch.equal(found[name], alone[name]) for name in alone), fate
        assert int(found["1.num_batches_tracked"]) == int(model["1.num_batches_tracked"])
    found = fg.Guard(defense="krum", f=1, statistics="weighted(rule='median')").step(model, clients)
    mapped = fg.Guard(defense="krum", f=1, statistics={"fate": "weighted", "rule": "median"}).step(model, clients)
    assert all(torch.equal(mapped[name], found[name]) for name in found)
    assert torch.allclose(found["3.running_var"].double(), variances["3.running_var"].quantile(0.5, 0), atol=1e-6)


def test_arrays_keep_statistics_apart_as_well():
    """Parameters as if there were no statistics, which are their weighted mean by a loop; krum's choice is by parameters."""
    clients, samples = positive(clients_of(normalizing(), 6)), [1.0, 5, 2, 2, 7, 3]
    apart = fg.aggregate("krum", clients, f=1, samples=samples, statistics="weighted")
    alone = fg.aggregate("krum", [parameters(client) for client in clients], f=1)
    assert all(torch.equal(apart[name], alone[name]) for name in alone)
    for name in TWO_NORMS:
        mean = sum(weight * client[name].double() for weight, client in zip(samples, clients, strict=True)) / sum(
            samples
        )
        assert torch.allclose(apart[name].double(), mean, atol=1e-6)
    guarded = fg.aggregate("krum", clients, f=1, statistics={"fate": "weighted", "rule": "median"})
    middle = torch.stack([client[TWO_NORMS[0]] for client in clients]).sort(0).values[2:4].mean(0)
    assert torch.allclose(guarded[TWO_NORMS[0]], middle, atol=1e-6)


def test_a_crafted_state_dict_has_an_attack_s_parameters_and_honest_statistics():
    honest = positive(clients_of(normalizing(), 4))
    crafted = fg.craft("ipm", honest, f=2, tau=5.0, statistics="average")
    assert len(crafted) == 2
    for name, value in crafted[1].items():
        if name in parameters(honest[0]):
            assert torch.allclose(value, -5 * torch.stack([one[name] for one in honest]).mean(0), atol=1e-5)
        elif name in TWO_NORMS:
            assert torch.allclose(value, torch.stack([one[name] for one in honest]).mean(0), atol=1e-6)


def test_statistics_of_arrays_are_state_dicts_entries_and_no_differences():
    with pytest.raises(InputError, match="expected updates as state dicts"):
        fg.aggregate("mean", torch.ones(3, 4), statistics="weighted")
    clients = clients_of(normalizing(), 3)
    for client in clients:
        client["1.running_var"] = client["1.running_var"] - 10
    with pytest.raises(InputError, match="own statistics, not differences"):
        fg.aggregate("mean", clients, statistics="average")


def test_joined_statistics_choose_another_client_and_the_share_of_distances_is_said():
    """Client 2 is nearest to the others by its parameters, and far by its statistics."""
    model = normalizing()
    clients = []
    for number in range(6):
        distance = 0.01 if number == 1 else 0.1 * (number + 1)
        one = {
            name: value + (-1) ** number * distance if value.is_floating_point() else value
            for name, value in model.items()
        }
        clients.append({**one, "1.running_mean": one["1.running_mean"] + (40.0 if number == 2 else 0)})
    apart = fg.Guard(defense="krum", f=1, statistics="weighted").step(model, clients)
    updates = torch.stack([vector(client) - vector(model) for client in clients])
    spread = (updates - updates.mean(0)).square().sum(0)
    own = torch.cat(
        [torch.full((value.numel(),), name in TWO_NORMS) for name, value in model.items() if value.is_floating_point()]
    )
    share = f"10 running statistics among {len(own)} coordinates make up {100 * float(spread[own].sum() / spread.sum()):.0f} %"
    guard = fg.Guard(defense="krum", f=1)
    with pytest.warns(GuaranteeWarning, match=share):
        joined = guard.step(model, clients)
    assert torch.allclose(apart["0.weight"], clients[2]["0.weight"]) and not torch.allclose(
        joined["0.weight"], clients[2]["0.weight"]
    )
    guard.step(joined, clients)  # said once: a second warning would be an error here


def test_a_lie_about_statistics_is_told_and_a_rule_of_their_own_withstands_it():
    model = normalizing()
    clients = positive(clients_of(model, 7))
    honest = fg.Guard(statistics="average").step(model, clients)
    lied = fg.Guard(attack="statistics_lie(factor=100)", f=2, statistics="average").step(
        model, clients, malicious=(2, 5)
    )
    sums = sum((100 if number in (2, 5) else 1) * client["3.running_var"] for number, client in enumerate(clients))
    assert torch.allclose(lied["3.running_var"], sums / 7) and torch.equal(lied["0.weight"], honest["0.weight"])
    guard = fg.Guard(attack="statistics_lie(factor=100)", f=2, statistics="weighted(rule='trimmed_mean')")
    held = guard.step(model, clients, malicious=(2, 5))
    assert (held["3.running_var"] < 2).all() and guard.floored == 0
    below = fg.Guard(attack="statistics_lie(factor=-1)", f=2, statistics="average")
    kept = below.step(model, clients, malicious=(2, 5))
    wanted = sum(client["3.running_var"] for number, client in enumerate(clients) if number not in (2, 5)) / 7
    assert torch.allclose(kept["3.running_var"], wanted) and below.floored == 2 * 5


def test_a_client_whose_statistics_are_not_finite_is_dropped_with_its_update():
    model = normalizing()
    clients = positive(clients_of(model, 5))
    clients[3]["1.running_var"] = torch.tensor([1.0, torch.inf, 1.0])
    guard = fg.Guard(statistics="weighted")
    found = guard.step(model, clients, samples=[1, 2, 3, 4, 5])
    others = fg.Guard(statistics="weighted").step(model, [clients[k] for k in (0, 1, 2, 4)], samples=[1, 2, 3, 5])
    assert guard.dropped == 1 and all(torch.allclose(found[name], others[name], atol=1e-6) for name in others)
    # No attack sees the update that the server drops: the mean that it turns is the others'
    attacked = fg.Guard(attack="ipm(tau=5)", f=1, statistics="average").step(model, clients)
    seen = fg.Guard(attack="ipm(tau=5)", f=1, statistics="average").step(model, [clients[k] for k in (0, 1, 2, 4)])
    assert all(torch.allclose(attacked[name], seen[name], atol=1e-5) for name in seen)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"statistics": "recomputed"}, "recomputed needs more than what clients send in a round. Pass 'weighted'"),
        ({"statistics": "hidden"}, "hidden needs more than what clients send"),
        (
            {"attack": "statistics_lie", "f": 1},
            "which are part of the update here. Pass statistics='weighted' to Guard",
        ),
    ],
)
def test_what_cannot_become_of_statistics_in_a_foreign_loop_is_refused(given, said):
    with pytest.raises(NotAllowed, match=said):
        fg.Guard(**given)


def test_too_few_clients_for_a_rule_on_statistics_is_one_line():
    model = normalizing()
    guard = fg.Guard(f=2, statistics="weighted(rule='trimmed_mean')")
    with pytest.raises(PreconditionError, match="round 1: 4 clients are too few for statistics=weighted"):
        guard.step(model, positive(clients_of(model, 4)))


def test_statistics_are_recognized_by_their_pair():
    lonely = {"w": torch.zeros(2), "a.running_mean": torch.zeros(3), "b.running_var": torch.zeros(3)}
    assert Layout.of(lonely).split()[1] is None
    parameters, own = Layout.of(normalizing()).split()
    assert own is not None and own.names == TWO_NORMS and set(parameters.names).isdisjoint(TWO_NORMS)
    assert own.others == set(normalizing()) - set(TWO_NORMS)
