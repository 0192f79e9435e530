"""Which arrays of an app are parameters, which strategy averages them, and by which numbers: beside plain loops.

The app has a BatchNorm: a whole number among its arrays, of which FedAvg makes a fraction. Nodes have unequal numbers of examples.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedXgbBagging,
    QFedAvg,
)
from torch import nn

from fedguard.bridges.flower.inline import SERVER, as_node, run_inline
from fedguard.bridges.flower.serving import _results
from fedguard.bridges.jobs import TrialRequest
from fedguard.bridges.trial import run_trial
from fedguard.errors import InputError
from fedguard.flower import FedGuardStrategy, malicious_mod, under_attack

#: Examples of each node, and how many steps it takes in a round: so that counters differ.
EXAMPLES = (12, 20, 8, 32, 16)
STEPS = (1, 2, 4, 3, 2)
ROUNDS = 3
COUNTER = "1.num_batches_tracked"


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def trained(state: dict[str, torch.Tensor], node: int) -> dict[str, torch.Tensor]:
    model = net()
    model.load_state_dict(state)
    draw = torch.Generator().manual_seed(node)
    x = torch.randn(EXAMPLES[node], 6, generator=draw)
    y = x[:, :3].argmax(1)
    step = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(STEPS[node]):
        step.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        step.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def client(
    key: str = "num-examples", mods=(), lie=lambda node, found: found, fails=lambda node, round: False
) -> ClientApp:
    """The nodes' app.

    Args:
        key: how it calls its number of examples; under another than Flower's, that one is there and says 1.
        lie: what a node sends instead of its content.
    """
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        node = context.node_config["partition-id"]
        if fails(node, message.content["config"]["server-round"]):
            raise RuntimeError("no such luck")
        state = trained(message.content["arrays"].to_torch_state_dict(), node)
        metrics = {"num-examples": 1, key: EXAMPLES[node], "loss": 0.5}
        found = RecordDict({"arrays": ArrayRecord(state), "metrics": MetricRecord(metrics)})
        return Message(lie(node, found), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        net().load_state_dict(message.content["arrays"].to_torch_state_dict())
        metrics = {"num-examples": 1, key: EXAMPLES[context.node_config["partition-id"]], "acc": 0.5}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def server(strategy, counter=None) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid, context):
        initial = ArrayRecord(net().state_dict())
        if counter is not None:
            initial[COUNTER] = Array(counter)
        strategy.start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS)

    return app


def final(strategy, app: ClientApp | None = None, around=lambda server: server, counter=None) -> dict[str, np.ndarray]:
    with _results() as results:
        run_inline(around(server(strategy, counter)), app or client(), nodes=len(EXAMPLES), config={}, seed=0)
    return {name: array.numpy() for name, array in results[-1].arrays.items()}


def averaged(column: list[np.ndarray]) -> np.ndarray:
    """Of whole numbers, too: as FedAvg does."""
    return sum(one * (count / sum(EXAMPLES)) for one, count in zip(column, EXAMPLES, strict=True))


def by_hand(parameter, whole=averaged, rounds: int = ROUNDS) -> dict[str, np.ndarray]:
    """Rounds as a plain loop: what becomes of each column of parameters, ``(before, after of each node, name)``, and of whole numbers."""
    state = {name: value.numpy() for name, value in net().state_dict().items()}
    for _ in range(rounds):
        tensors = {name: torch.from_numpy(np.asarray(value)) for name, value in state.items()}
        nodes = [trained(tensors, node) for node in range(len(EXAMPLES))]
        columns = {name: [node[name].numpy() for node in nodes] for name in state}
        state = {
            name: whole(column) if name == COUNTER else parameter(state[name], column, name)
            for name, column in columns.items()
        }
    return state


def assert_near(found, expected, far: float = 3e-5) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].shape == value.shape, name
        assert np.allclose(found[name], value, rtol=0, atol=far), name


def middle(before, column, name):
    return np.median(np.stack(column), axis=0).astype(np.float32)


def mean_of(before, column, name):
    return averaged(column)


def test_the_app_is_what_it_was_and_its_counter_becomes_a_fraction():
    expected = by_hand(mean_of)
    assert expected[COUNTER] % 1 > 0.01  # the setting shows the fault: it is no whole number
    assert_near(final(FedAvg()), expected)
    assert_near(final(FedAvg(), around=under_attack), expected)


def test_a_rule_at_the_grid_aggregates_parameters_and_leaves_counters_to_the_strategy():
    assert_near(final(FedAvg(), around=lambda one: under_attack(one, defense="median", f=0)), by_hand(middle))


def reversed_at(bad: int, before, column):
    """One node sends the mean update of the others, reversed."""
    others = np.mean([one for node, one in enumerate(column) if node != bad], axis=0)
    return [2 * before - others if node == bad else one for node, one in enumerate(column)]


def as_it_was_sent(message, context, call_next):
    """A node whose counter comes back in the type in which it was sent."""
    kind = message.content["arrays"][COUNTER].numpy().dtype if message.metadata.message_type == "train" else None
    reply = call_next(message, context)
    if kind is not None:
        reply.content["arrays"][COUNTER] = Array(reply.content["arrays"][COUNTER].numpy().astype(kind))
    return reply


@pytest.mark.parametrize(
    ("mods", "counter"),
    [((), None), ((), np.array(0.0)), ([as_it_was_sent], None)],
    ids=["whole numbers", "the server begins with a fraction", "fractions come back"],
)
def test_an_attack_at_the_grid_turns_parameters_alone(mods, counter):
    drawn = []
    found = final(
        *(FedAvg(), client(mods=mods), lambda one: under_attack(one, attack="sign_flip", f=1, hear=drawn.append)),
        counter,
    )
    (bad,) = [node - 2 for node in drawn[0].malicious]

    assert_near(found, by_hand(lambda before, column, name: averaged(reversed_at(bad, before, column))))


def test_a_mod_lies_about_parameters_alone():
    mod = malicious_mod("sign_flip")

    def for_one(message, context, call_next):
        return (
            mod(message, context, call_next)
            if context.node_config["partition-id"] == 3
            else call_next(message, context)
        )

    def flipped(before, column, name):
        return averaged([2 * before - one if node == 3 else one for node, one in enumerate(column)])

    assert_near(final(FedAvg(), client(mods=[for_one])), by_hand(flipped))


def test_in_the_strategy_counters_are_the_lower_median_in_the_nodes_type():
    found = final(FedGuardStrategy(defense="median", f=1))
    expected = by_hand(middle, whole=lambda column: sorted(column)[2])
    assert_near(found, expected)
    assert found[COUNTER].dtype == np.int64 and found[COUNTER] == ROUNDS * 2


def test_weighted_mean_is_fedavg_and_mean_is_not():
    expected = by_hand(mean_of, whole=lambda column: sorted(column)[2])
    assert_near(final(FedGuardStrategy(defense="weighted_mean", f=0)), expected)
    alike = by_hand(lambda before, column, name: np.mean(column, axis=0), whole=lambda column: sorted(column)[2])
    found = final(FedGuardStrategy(defense="mean", f=0))
    assert_near(found, alike)
    assert not np.allclose(found["0.weight"], expected["0.weight"], atol=1e-3)


def momentum(eta: float, beta: float):
    """FedAvgM around the median: ``v = beta v + (w - a)``, ``w = w - eta v``."""
    speed: dict[str, np.ndarray] = {}

    def step(before, column, name):
        apart = before - middle(before, column, name)
        speed[name] = beta * speed[name] + apart if name in speed else apart
        return before - eta * speed[name]

    return step


def adam(eta: float, beta_1: float, beta_2: float, tau: float):
    """FedAdam around the median, as Flower has it: bias corrections with the round's number plus 1, in the step."""
    kept: dict[str, tuple[np.ndarray, np.ndarray, int]] = {}

    def step(before, column, name):
        delta = middle(before, column, name) - before
        m, v, number = kept.get(name, (np.zeros_like(before), np.zeros_like(before), 0))
        m, v, number = beta_1 * m + (1 - beta_1) * delta, beta_2 * v + (1 - beta_2) * delta**2, number + 1
        kept[name] = m, v, number
        rate = eta * np.sqrt(1 - beta_2 ** (number + 1)) / (1 - beta_1 ** (number + 1))
        return before + rate * m / (np.sqrt(v) + tau)

    return step


@pytest.mark.parametrize(
    ("inside", "step"),
    [
        (FedAvgM(server_learning_rate=0.7, server_momentum=0.6), momentum(0.7, 0.6)),
        (FedAdam(eta=0.02, beta_1=0.8, beta_2=0.95, tau=0.01), adam(0.02, 0.8, 0.95, 0.01)),
    ],
    ids=["FedAvgM", "FedAdam"],
)
def test_a_strategy_around_a_rule_steps_from_the_robust_aggregate(inside, step):
    found = final(FedGuardStrategy(inside, defense="median", f=1))
    assert_near(found, by_hand(step, whole=lambda column: sorted(column)[2]), 2e-4)
    assert found[COUNTER] == ROUNDS * 2  # no momentum on a count of batches


def test_fedprox_around_a_rule_asks_nodes_for_its_penalty():
    asked = []

    def hearing(message, context, call_next):
        asked.append(dict(message.content["config"]).get("proximal-mu"))
        return call_next(message, context)

    found = final(FedGuardStrategy(FedProx(proximal_mu=0.25), defense="median", f=1), client(mods=[hearing]))
    assert_near(found, by_hand(middle, whole=lambda column: sorted(column)[2]))
    assert {0.25} <= set(asked)


def test_rules_weigh_by_the_strategys_own_key():
    """Beside it the app has Flower's usual one, by which all nodes are alike."""
    strategy = FedGuardStrategy(defense="weighted_mean", f=0, weighted_by_key="n")
    assert_near(final(strategy, client("n")), by_hand(mean_of, whole=lambda column: sorted(column)[2]))
    at_the_grid = final(
        FedAvg(weighted_by_key="n"),
        client("n"),
        lambda one: under_attack(one, defense="weighted_mean", f=0, weighted_by_key="n"),
    )
    assert_near(at_the_grid, by_hand(mean_of))


def test_lies_about_examples_are_told_by_the_strategys_own_key():
    drawn = []

    def lying(**more):
        return lambda one: under_attack(one, attack="inflated_samples(factor=9)", f=1, hear=drawn.append, **more)

    found = final(FedAvg(weighted_by_key="n"), client("n"), lying(weighted_by_key="n"))
    (bad,) = [node - 2 for node in drawn[0].malicious]
    said = [9 * count if node == bad else count for node, count in enumerate(EXAMPLES)]

    def lied(column):
        return sum(one * (count / sum(said)) for one, count in zip(column, said, strict=True))

    assert_near(found, by_hand(lambda before, column, name: lied(reversed_at(bad, before, column)), whole=lied))


@pytest.mark.parametrize("how", [{"attack": "inflated_samples", "f": 1}, {"defense": "weighted_mean"}])
def test_a_key_that_replies_do_not_have_is_told_where_it_matters(how):
    with pytest.raises(InputError, match=r"expected a metric 'examples', the number of examples.*weighted_by_key"):
        final(FedAvg(), around=lambda one: under_attack(one, **how, weighted_by_key="examples"))
    final(FedAvg(), around=lambda one: under_attack(one, defense="median", f=1, weighted_by_key="examples"))


KEYED = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

COUNTS, ACCURACIES, UPDATES = (1, 2, 30, 4), (0.1, 0.3, 0.8, 0.6), (1.0, 2.0, 4.0, 8.0)
client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    node = context.node_config["partition-id"]
    state = {"w": message.content["arrays"].to_torch_state_dict()["w"] + UPDATES[node]}
    metrics = MetricRecord({"num-examples": 1, "n": COUNTS[node]})
    return Message(RecordDict({"arrays": ArrayRecord(state), "metrics": metrics}), reply_to=message)


@client.evaluate()
def evaluate(message, context):
    node, (w,) = context.node_config["partition-id"], message.content["arrays"].to_torch_state_dict()["w"].tolist()
    metrics = {"num-examples": 1, "n": COUNTS[node], "acc": ACCURACIES[node], "w_loss": w}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@server.main()
def main(grid, context):
    FedAvg(weighted_by_key="n").start(grid=grid, initial_arrays=ArrayRecord({"w": torch.zeros(1)}), num_rounds=1)
"""
PROJECT = """
[project]
name = "keyed"
version = "1.0.0"

[tool.flwr.app.components]
serverapp = "keyed_app_of_mine:server"
clientapp = "keyed_app_of_mine:client"

[tool.flwr.app.config]
rounds = 1
"""


def test_an_app_under_check_is_weighed_as_its_own_strategy_weighs(tmp_path):
    """Rules, lies, and what nodes measure; by Flower's usual key all nodes would be alike."""
    (tmp_path / "keyed_app_of_mine.py").write_text(KEYED)
    (tmp_path / "pyproject.toml").write_text(PROJECT)

    def found(**more):
        told = {"app": str(tmp_path), "settings": {}, "attack": None, "defense": None, "f": 0, "nodes": 4, "seed": 0}
        one = run_trial(TrialRequest(**{**told, **more}))
        return one["malicious"], one["accuracy"][-1], one["loss"][-1]

    counts, accuracies, updates = (1, 2, 30, 4), (0.1, 0.3, 0.8, 0.6), (1.0, 2.0, 4.0, 8.0)

    def weighed(values, by, left_out=()):
        rows = [row for row in range(4) if row not in left_out]
        return sum(by[row] * values[row] for row in rows) / sum(by[row] for row in rows)

    own = weighed(accuracies, counts), weighed(updates, counts)
    for defense in (None, "weighted_mean"):
        assert found(defense=defense)[1:] == pytest.approx(own)
    bad, accuracy, w = found(attack="inflated_samples(factor=7)", f=1)
    others = [update for row, update in enumerate(updates) if row not in bad]
    sent = [-sum(others) / 3 if row in bad else update for row, update in enumerate(updates)]
    said = [7 * count if row in bad else count for row, count in enumerate(counts)]
    assert (accuracy, w) == pytest.approx((weighed(accuracies, counts, bad), weighed(sent, said)))


def test_a_mod_lies_by_the_strategys_own_key_or_says_that_it_cannot():
    mod = malicious_mod("inflated_samples(factor=5)", weighted_by_key="n")

    def for_one(message, context, call_next):
        return (
            mod(message, context, call_next)
            if context.node_config["partition-id"] == 3
            else call_next(message, context)
        )

    said = [5 * count if node == 3 else count for node, count in enumerate(EXAMPLES)]

    def lied(column):
        return sum(one * (count / sum(said)) for one, count in zip(column, said, strict=True))

    def flipped(before, column, name):
        return lied([2 * before - one if node == 3 else one for node, one in enumerate(column)])

    assert_near(final(FedAvg(weighted_by_key="n"), client("n", [for_one])), by_hand(flipped, whole=lied))
    with _results():
        grid = run_inline(server(FedAvg()), client(mods=[mod]), nodes=len(EXAMPLES), config={}, seed=0)
    assert "expected a metric 'n', the number of examples, about which inflated_samples lies" in grid.raised[0]


def test_a_round_with_too_few_replies_is_skipped_and_the_next_goes_on():
    strategy = FedGuardStrategy(defense="trimmed_mean", f=2)  # which needs five of them
    found = final(strategy, client(fails=lambda node, round: node == 1 and round == 2))
    assert len(strategy.skipped) == 1 and "trimmed_mean needs" in strategy.skipped[0]
    whole = final(FedGuardStrategy(defense="trimmed_mean", f=2), client())
    assert found[COUNTER] < whole[COUNTER]  # two rounds of three were trained

    every = FedGuardStrategy(defense="trimmed_mean", f=2)
    with _results() as results:
        run_inline(server(every), client(fails=lambda node, round: node == 1), nodes=len(EXAMPLES), config={}, seed=0)
    assert len(every.skipped) == ROUNDS and not results[-1].arrays


def odd(change):
    """What node 3 sends in place of its content; the rule then reckons with no other malicious one."""

    def lie(node, found):
        if node == 3:
            change(found)
        return found

    return lie


def metrics(**values):
    return lambda found: found.__setitem__("metrics", MetricRecord({**found["metrics"], **values}))


def array(name, value):
    return lambda found: found["arrays"].__setitem__(name, Array(value))


def garbled(found):
    one = found["arrays"]["0.weight"]
    found["arrays"]["0.weight"] = Array(one.dtype, one.shape, one.stype, b"no array at all")


ODD = {
    "no arrays": lambda found: found.pop("arrays"),
    "two records": lambda found: found.__setitem__("more", found["arrays"]),
    "another name": array("0.other", np.zeros(3, np.float32)),
    "another shape": array("0.weight", np.zeros((8, 5), np.float32)),
    "a counter that is a list": array(COUNTER, np.zeros(3, np.int64)),
    "complex": array("0.weight", np.zeros((8, 6), np.complex64)),
    "garbled": garbled,
    "not finite": array("0.weight", np.full((8, 6), np.nan, np.float32)),
    "no number of examples": lambda found: found["metrics"].pop("num-examples"),
    "not a number of examples": metrics(**{"num-examples": float("nan")}),
    "endless examples": metrics(**{"num-examples": 1.7e308}),
    "fewer than none": metrics(**{"num-examples": -5}),
    "a list of examples": metrics(**{"num-examples": [3, 4]}),
    "more metrics": metrics(more=1.0),
    "a longer metric": metrics(loss=[0.5, 0.5]),
}


@pytest.mark.parametrize("kind", ODD)
def test_one_node_that_sends_anything_at_all_does_not_stop_the_training(kind):
    strategy = FedGuardStrategy(defense="trimmed_mean", f=1)
    found = final(strategy, client(lie=odd(ODD[kind])))
    assert strategy.dropped + strategy.guard.dropped == ROUNDS and not strategy.skipped

    def others(before, column, name):
        return np.mean([one for node, one in enumerate(column) if node != 3], axis=0)

    # an update that is not finite is dropped by the rule's guard, and its counter is as good as the others'
    there = list(range(5)) if kind == "not finite" else [0, 1, 2, 4]
    assert_near(
        found, by_hand(others, whole=lambda column: sorted(column[node] for node in there)[(len(there) - 1) // 2])
    )


@pytest.mark.parametrize("value", [2**60, -(2**60)])
def test_a_counter_of_a_malicious_node_reaches_nobody(value):
    found = final(FedGuardStrategy(defense="median", f=1), client(lie=odd(array(COUNTER, np.array(value)))))
    assert found[COUNTER] in (ROUNDS * 2, ROUNDS * 2 + 1, ROUNDS * 3, ROUNDS)


def test_parameters_are_what_most_nodes_hold_as_floats():
    """One node alone sends its counter as a float, in the first round, too, and one its weights as whole numbers."""

    def lie(node, found):
        if node == 0:
            found["arrays"][COUNTER] = Array(np.array(7.5, np.float32))
        if node == 1:
            found["arrays"]["3.bias"] = Array(np.array([1, 0, 2], np.int64))
        return found

    strategy = FedGuardStrategy(defense="median", f=2)
    found = final(strategy, client(lie=lie))
    assert strategy._layout.others == {COUNTER} and found[COUNTER].dtype == np.int64
    assert found["3.bias"].dtype == np.float32 and not strategy.dropped


def test_strategies_that_do_not_average_are_refused():
    for other in (
        QFedAvg(client_learning_rate=0.1),
        FedXgbBagging(),
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 5),
    ):
        with pytest.raises(InputError, match="strategy: expected a FedAvg or one of its kind that averages models"):
            FedGuardStrategy(other, defense="median", f=1)
    with pytest.raises(InputError, match="expected settings for FedAvg or a strategy; got both, fraction_train"):
        FedGuardStrategy(FedAdam(), defense="median", f=1, fraction_train=0.5)


def test_a_round_that_was_not_configured_is_told():
    content = RecordDict({"arrays": ArrayRecord({}), "metrics": MetricRecord({"num-examples": 1})})
    with as_node(SERVER):  # a message takes its run and its sender from the process; no other test must have set them
        asked = Message(RecordDict({"config": ConfigRecord({})}), 2, "train")
        with pytest.raises(InputError, match="expected configure_train before it"):
            FedGuardStrategy(defense="median", f=1).aggregate_train(1, [Message(content, reply_to=asked)])
