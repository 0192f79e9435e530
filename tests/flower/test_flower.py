"""Flower apps, attacked and defended: against plain loops over the app's own functions, and what is refused.

All of it needs Flower, in its own versions of packages: `make test-flower`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.supercore.task_identity import TaskIdentity

import fedguard as fg
from fedguard.bridges.flower.app import FlowerApp
from fedguard.bridges.flower.inline import InlineGrid, run_inline
from fedguard.bridges.flower.serving import _results
from fedguard.bridges.jobs import TrialRequest
from fedguard.bridges.trial import run_trial
from fedguard.errors import ConfigError, InputError, NotAllowed
from fedguard.flower import FedGuardStrategy, GuardedGrid, malicious_mod, under_attack
from fedguard.guard import Guard
from fedguard.rng import Rng

APP = Path(__file__).parent / "app"
NODES, ROUNDS = 6, 2
SETTINGS = {"num-server-rounds": ROUNDS, "local-epochs": 1, "lr": 0.1, "batch-size": 32}


def asked(**more) -> TrialRequest:
    told = {"app": str(APP), "settings": SETTINGS, "attack": None, "defense": None, "f": 0, "nodes": NODES, "seed": 0}
    return TrialRequest(**{**told, **more})


@pytest.fixture(scope="module")
def app():
    return FlowerApp.read(APP, SETTINGS)


@pytest.fixture(scope="module")
def parts(app):
    return app.load()


def final(server: ServerApp, client: ClientApp, seed: int = 0, nodes: int = NODES) -> dict[str, torch.Tensor]:
    with _results() as results:
        grid = run_inline(server, client, nodes=nodes, config=SETTINGS, seed=seed)
    assert not grid.raised
    return {name: array.numpy() for name, array in results[-1].arrays.items()}


def seeded(*names, seed: int = 0) -> None:
    """Torch's stream as a node or the server finds it; the app draws from no other but the server's, of Python's."""
    start = Rng(seed).child(*names).entropy()
    random.seed(start)
    torch.manual_seed(start % 2**63)


def by_hand(parts, combine, seed: int = 0):
    """FedAvg as plain loops over the app's own training, with what the server makes of the nodes' updates put in."""
    from digits.task import Net, load_data, train

    torch.manual_seed(0)  # as the app's server does before it makes the first model
    model = {name: value.clone() for name, value in Net().state_dict().items()}
    nodes = list(range(NODES))
    for number in range(ROUNDS):
        updates, counts = {}, {}
        for node in nodes:
            seeded("node", node, "train", number, seed=seed)
            net = Net()
            net.load_state_dict(model)
            data, _ = load_data(node, NODES)
            train(net, data, 1, 0.1, 32)
            updates[node] = {name: value - model[name] for name, value in net.state_dict().items()}
            counts[node] = len(data[0])
        moved = combine([updates[node] for node in nodes], [counts[node] for node in nodes])
        model = {name: model[name] + moved[name] for name in model}
    return model


def near(found, model) -> bool:
    return all(torch.allclose(torch.from_numpy(found[name]), model[name], atol=2e-6) for name in model)


def stacked(updates, name):
    return torch.stack([update[name] for update in updates]).double()


def weighted(updates, counts):
    total = sum(counts)
    return {
        name: sum(count * update[name] for update, count in zip(updates, counts, strict=True)) / total
        for name in updates[0]
    }


def test_without_attack_the_app_is_what_it_was(parts):
    server, client = parts
    assert near(final(server, client), by_hand(parts, weighted))
    assert near(final(under_attack(server), client), by_hand(parts, weighted))


def malicious_of(seed: int) -> list[int]:
    seen = []
    server, client = FlowerApp.read(APP, SETTINGS).load()
    run_inline(under_attack(server, f=2, seed=seed, hear=seen.append), client, nodes=NODES, config=SETTINGS, seed=seed)
    return sorted(node - 2 for node in seen[0].malicious)


def test_inner_product_manipulation_at_the_grid(parts):
    server, client = parts
    bad = malicious_of(0)
    assert len(bad) == 2

    def attacked(updates, counts):
        good = [update for node, update in enumerate(updates) if node not in bad]
        sent = {name: -5 * sum(update[name] for update in good) / len(good) for name in updates[0]}
        return weighted([sent if node in bad else update for node, update in enumerate(updates)], counts)

    found = final(under_attack(server, attack="ipm(tau=5)", f=2), client)
    assert near(found, by_hand(parts, attacked))
    assert not near(found, by_hand(parts, weighted))


def test_a_rule_stands_before_the_strategy(parts):
    server, client = parts
    bad = malicious_of(0)

    def defended(updates, counts):
        good = [update for node, update in enumerate(updates) if node not in bad]
        sent = {name: -5 * sum(update[name] for update in good) / len(good) for name in updates[0]}
        rows = [sent if node in bad else update for node, update in enumerate(updates)]
        return {name: stacked(rows, name).quantile(0.5, 0).float() for name in updates[0]}

    found = final(under_attack(server, attack="ipm(tau=5)", defense="median", f=2), client)
    assert near(found, by_hand(parts, defended))


def test_the_strategy_is_the_rule_at_the_grid(parts):
    server, client = parts
    own = ServerApp()

    @own.main()
    def main(grid, context):
        from digits.task import Net

        torch.manual_seed(0)
        strategy = FedGuardStrategy(defense="nnm >> trimmed_mean", f=2)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=ROUNDS)

    with_strategy = final(under_attack(own, attack="ipm(tau=5)", f=2), client)
    at_the_grid = final(under_attack(server, attack="ipm(tau=5)", defense="nnm >> trimmed_mean", f=2), client)
    assert near(with_strategy, {name: torch.from_numpy(value) for name, value in at_the_grid.items()})


def test_a_malicious_mod_sees_its_own_update_alone(app, parts):
    from digits.client_app import train_here

    server, _ = parts
    mod = malicious_mod("sign_flip")
    client = ClientApp(mods=[])

    @client.train()
    def train_or_lie(message, context):
        if context.node_config["partition-id"] == 3:
            return mod(message, context, train_here)
        return train_here(message, context)

    @client.evaluate()
    def evaluate_here(message, context):
        from digits.task import Net

        Net()
        return Message(RecordDict({"metrics": MetricRecord({"eval_acc": 0.5, "num-examples": 1})}), reply_to=message)

    def lied(updates, counts):
        updates = [*updates]
        updates[3] = {name: -value for name, value in updates[3].items()}
        return weighted(updates, counts)

    assert near(final(server, client), by_hand(parts, lied))
    with pytest.raises(NotAllowed, match="opt_ipm needs"):
        malicious_mod("opt_ipm")
    with pytest.raises(NotAllowed, match="acts on the clients' data"):
        malicious_mod("label_flip")


def test_what_malicious_nodes_report_counts_for_nothing(app, parts):
    """The curve is that of the honest nodes alone, by the app's own test on the model that the attack has left."""
    found = run_trial(asked(attack="ipm", f=2))
    from digits.task import Net, load_data, test

    server, client = parts
    model = final(under_attack(server, attack="ipm", f=2), client)
    net = Net()
    net.load_state_dict({name: torch.from_numpy(value) for name, value in model.items()})
    honest = [node for node in range(NODES) if node not in found["malicious"]]
    told = [(len(load_data(node, NODES)[1][0]), test(net, load_data(node, NODES)[1])[1]) for node in honest]
    assert found["accuracy"][-1] == pytest.approx(sum(n * a for n, a in told) / sum(n for n, _ in told))
    assert found["where"] == "the honest nodes" and found["metric"] == "eval_acc"
    assert found["rounds"] == ROUNDS and found["updates"] == ROUNDS * NODES and found["hostile_share"] == 2 / NODES


class Answers(InlineGrid):
    """Nodes that answer with what they are told to."""

    def __init__(self, contents):
        super().__init__(ClientApp(), len(contents), {})
        self._contents = contents

    def _answer(self, message):
        return Message(self._contents[message.metadata.dst_node_id - 2], reply_to=message)


def arrays(*values: float) -> RecordDict:
    return RecordDict(
        {"arrays": ArrayRecord({"w": fl(values)}), "metrics": MetricRecord({"num-examples": 10, "loss": 0.5})}
    )


def fl(values):
    from flwr.app import Array

    return Array(torch.tensor(values).numpy())


@pytest.fixture(autouse=True)
def identity():
    """Messages belong to a run, which Flower's own processes would name."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def answers(grid, kind: str = "train", *values: float):
    sent = RecordDict({"arrays": ArrayRecord({"w": fl(values or (0.0, 0.0))}), "config": ConfigRecord({})})
    return list(grid.send_and_receive([Message(sent, node, kind) for node in grid.get_node_ids()]))


def test_the_old_name_of_the_assumed_f_works_with_a_warning(parts):
    server, _ = parts
    with pytest.warns(DeprecationWarning, match=r"under_attack\(told=...\) is now under_attack\(assumed_f=...\)"):
        under_attack(server, defense="median", f=2, told=1)


def guarded(contents, defended=True, **arguments) -> GuardedGrid:
    return GuardedGrid(Answers(contents), Guard(**arguments), defended=defended)


def values_of(replies):
    return [message.content["arrays"]["w"].numpy().tolist() for message in replies]


def test_every_reply_becomes_the_robust_aggregate_and_evaluations_stay():
    grid = guarded([arrays(1.0, 1), arrays(2.0, 2), arrays(99.0, -99)], defense="median", assumed_f=1)
    assert values_of(answers(grid, "train", 0.0, 0.0)) == [[2, 1]] * 3
    assert values_of(answers(grid, "evaluate")) == [[1, 1], [2, 2], [99, -99]]
    assert grid.rounds == 1


def test_a_claim_of_a_malicious_node_reaches_the_apps_own_strategy():
    grid = guarded([arrays(1.0, 1)] * 4, defended=False, attack="inflated_samples(factor=9)", f=1)
    claims = [message.content["metrics"]["num-examples"] for message in answers(grid)]
    assert sorted(claims) == [10, 10, 10, 90]


def test_the_model_stays_where_the_rule_cannot_run():
    grid = guarded([arrays(1.0, 1)] * 4, defense="krum", f=2)
    assert values_of(answers(grid, "train", 5.0, 5.0)) == [[5, 5]] * 4
    assert "krum needs" in grid.abandoned[0]


def test_masked_replies_are_refused():
    masked = RecordDict(
        {"secaggplus": ConfigRecord({"stage": "collect"}), "metrics": MetricRecord({"num-examples": 1})}
    )
    with pytest.raises(NotAllowed, match="Secure aggregation is at work: its messages are masked"):
        answers(guarded([masked] * 3, defense="krum", f=0))
    with pytest.raises(NotAllowed, match="expected one ArrayRecord; got 0"):
        answers(guarded([RecordDict({"metrics": MetricRecord({"a": 1})})] * 3, defense="mean"))
    own = FedGuardStrategy(defense="median", f=1)
    own.configure_train(1, ArrayRecord({"w": fl((0.0, 0.0))}), ConfigRecord({}), Answers([arrays(1.0, 1)] * 3))


def test_training_behind_the_grids_back_is_refused():
    grid = guarded([arrays(1.0, 1)] * 3, defense="mean")
    sent = Message(arrays(0.0, 0), 2, "train")
    with pytest.raises(NotAllowed, match="push_messages"):
        grid.push_messages([sent])
    with pytest.raises(NotAllowed, match="got both"):
        grid.send_and_receive([sent, Message(arrays(0.0, 0), 3, "evaluate")])


@pytest.mark.parametrize(
    ("contents", "arguments", "error", "said"),
    [
        ([arrays(1.0, 1, 1), arrays(1.0, 1)], {}, InputError, "the reply of node 2, w: expected floats of shape"),
        ([arrays(1.0, 1)] * 3, {"f": 3}, InputError, "expected fewer malicious nodes than there are, 3; got 3"),
    ],
)
def test_mistakes_of_nodes_are_one_line(contents, arguments, error, said):
    with pytest.raises(error, match=said):
        answers(guarded(contents, **arguments))


def test_a_node_that_fails_is_left_to_the_strategy():
    client = ClientApp()

    @client.train()
    def fails(message, context):
        if context.node_id == 2:
            raise RuntimeError("no such luck")
        return Message(message.content, reply_to=message)

    inner = InlineGrid(client, 3, {})
    replies = answers(GuardedGrid(inner, Guard(defense="median", assumed_f=1), defended=True))
    assert [message.has_error() for message in replies] == [False, False, True]
    assert "no such luck" in inner.raised[0]


def test_apps_that_lack_something_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"expected a Flower app's project file"):
        FlowerApp.read(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ConfigError, match=r"expected \[tool.flwr.app.components\]"):
        FlowerApp.read(tmp_path)
    with pytest.raises(ConfigError, match="'rounds': expected one of batch-size"):
        FlowerApp.read(APP, {"rounds": 3})
    with pytest.raises(ConfigError, match="metric: expected one of eval_acc, eval_loss; got f1"):
        run_trial(asked(nodes=2, metric="f1"))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nserverapp = "nowhere_at_all:app"\nclientapp = "nowhere_at_all:app"\n'
    )
    with pytest.raises(ConfigError, match="nowhere_at_all:app cannot be imported: ModuleNotFoundError"):
        FlowerApp.read(tmp_path).load()


def test_the_same_seed_gives_the_same_model(parts):
    server, client = parts
    first, again, other = (
        final(under_attack(server, attack="alie", f=2, seed=seed), client, seed) for seed in (3, 3, 4)
    )
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


def test_guard_and_grid_agree_with_the_array_functions():
    rows = torch.randn(5, 3)
    expected = fg.aggregate("geometric_median", rows, f=1)
    assert torch.allclose(fg.Guard(defense="geometric_median", assumed_f=1).step(torch.zeros(3), list(rows)), expected)


@pytest.mark.parametrize("statistics", ["weighted", "pooled", "joined"])
def test_a_strategy_keeps_running_statistics_apart(statistics):
    """A network with BatchNorm: parameters by the rule, statistics by their fate; joined, one far mean decides for krum."""
    sent = {
        "w": torch.zeros(3),
        "n.running_mean": torch.zeros(2),
        "n.running_var": torch.ones(2),
        "n.num_batches_tracked": torch.tensor(0),
    }
    claims, weights = (3.0, 1.0, 4.0, 2.0), (0.5, 0.1, 0.0, 0.12)
    states = [
        {
            "w": torch.full((3,), weights[k]),
            "n.running_mean": torch.tensor([40.0 if k == 1 else 0.1 * k, 1.0]),
            "n.running_var": torch.tensor([1.0 + k, 2.0]),
            "n.num_batches_tracked": torch.tensor(k),
        }
        for k in range(4)
    ]
    client = ClientApp()

    @client.train()
    def train(message, context):
        k = [*grid.get_node_ids()].index(context.node_id)
        content = {"arrays": ArrayRecord(states[k]), "metrics": MetricRecord({"num-examples": claims[k]})}
        return Message(RecordDict(content), reply_to=message)

    grid = InlineGrid(client, 4, {})
    strategy = FedGuardStrategy(defense="krum", f=1, statistics=statistics, fraction_train=1.0)
    asked = strategy.configure_train(1, ArrayRecord(sent), ConfigRecord({}), grid)
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(asked))
    found = {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}
    # By parameters alone 1 and 3 are close; krum takes one of them. Joined, 1 is far, and 3 has another nearest.
    shares = torch.tensor(claims) / sum(claims)
    means = torch.stack([state["n.running_mean"] for state in states])
    variances = torch.stack([state["n.running_var"] for state in states])
    if statistics == "joined":
        assert float(found["n.running_mean"][0]) < 1
        return
    assert float(found["w"][0]) in (pytest.approx(0.1), pytest.approx(0.12))
    assert torch.allclose(found["n.running_mean"], shares @ means)
    pooled = shares @ (variances + means**2) - (shares @ means) ** 2
    assert torch.allclose(found["n.running_var"], shares @ variances if statistics == "weighted" else pooled)
