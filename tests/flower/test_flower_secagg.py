"""Flower's own SecAgg+, its workflow and its mod: what is attacked where, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp

from fedguard.bridges.flower.inline import run_inline
from fedguard.errors import NotAllowed
from fedguard.flower import FedGuardStrategy, GuardedGrid, malicious_mod, under_attack
from fedguard.guard import Guard

NODES, MODEL = 4, np.array([1.0, -2.0, 0.5], dtype=np.float32)
#: Each node's update and number of examples; every sum of updates with whole numbers as weights is exact enough to be told.
UPDATES = np.array([[0.5, 0.0, 0.25], [0.0, 1.0, -0.5], [-0.25, 0.5, 0.0], [1.0, 1.0, 1.0]], dtype=np.float32)
EXAMPLES = [10, 20, 30, 40]


class Trains(NumPyClient):
    def __init__(self, number):
        self._number = number

    def fit(self, parameters, config):
        return [parameters[0] + UPDATES[self._number]], EXAMPLES[self._number], {}


def client(*, malicious=None):
    """The app's client; one node, or none, has a mod that lies before the mask is put on."""
    lie = malicious_mod("sign_flip")

    def lies(message, context, call_next):
        if context.node_config["partition-id"] == malicious:
            return lie(message, context, call_next)
        return call_next(message, context)

    return ClientApp(
        client_fn=lambda context: Trains(int(context.node_config["partition-id"])).to_client(),
        mods=[secaggplus_mod, lies],
    )


class Keeps(FedAvg):
    """Federated averaging that keeps what it was given and what it made of it."""

    def aggregate_fit(self, server_round, results, failures):
        self.given = [parameters_to_ndarrays(one.parameters)[0] for _, one in results]
        made = super().aggregate_fit(server_round, results, failures)
        self.made = parameters_to_ndarrays(made[0])[0]
        return made


def server(strategy):
    app = ServerApp()

    @app.main()
    def main(grid, context):
        legacy = LegacyContext(context, config=ServerConfig(num_rounds=1), strategy=strategy)
        DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))(grid, legacy)

    return app


def strategy():
    return Keeps(
        initial_parameters=ndarrays_to_parameters([MODEL]),
        min_fit_clients=NODES,
        min_available_clients=NODES,
        fraction_evaluate=0.0,
    )


def ran(app, clients):
    run_inline(app, clients, nodes=NODES, config={}, seed=0)


def mean(updates):
    return MODEL + np.average(updates, axis=0, weights=EXAMPLES)


def test_a_client_lies_before_the_mask_and_the_sum_holds_it():
    honest, lied = strategy(), strategy()
    ran(server(honest), client())
    assert np.allclose(honest.made, mean(UPDATES), atol=1e-4)
    ran(server(lied), client(malicious=3))
    flipped = UPDATES * np.array([[1], [1], [1], [-1]])
    assert np.allclose(lied.made, mean(flipped), atol=1e-4)
    assert not np.allclose(lied.made, honest.made, atol=0.1)
    assert all(np.array_equal(one, lied.given[0]) for one in lied.given)  # one sum, as if each node had sent it


def test_what_nobody_attacks_is_left_as_it_was():
    watched = strategy()
    ran(under_attack(server(watched)), client())
    assert np.allclose(watched.made, mean(UPDATES), atol=1e-4)


@pytest.mark.parametrize("what", [{"attack": "ipm(tau=5)", "f": 1}, {"defense": "median", "f": 1}])
def test_neither_attack_nor_rule_stands_at_a_grid_that_sees_masks(what):
    with pytest.raises(NotAllowed, match="Secure aggregation is at work: its messages are masked, no rule can see"):
        ran(under_attack(server(strategy()), **what), client())


def test_the_grid_sees_no_update_of_any_node():
    """What passes there in the stage of the masked vectors is as good as drawn: none is the update, nor near it."""
    seen = []

    class Listening(GuardedGrid):
        def __init__(self, grid):
            super().__init__(grid, Guard(), defended=False)

        def send_and_receive(self, messages, *, timeout=None):
            replies = list(super().send_and_receive(messages, timeout=timeout))
            seen.extend(record for one in replies for record in one.content.config_records.values())
            return replies

    kept = strategy()
    ran(lambda grid, context: server(kept)(Listening(grid), context), client())
    assert np.allclose(kept.made, mean(UPDATES), atol=1e-4)
    masked = [one[Key.MASKED_PARAMETERS] for one in seen if Key.MASKED_PARAMETERS in one]
    assert len(masked) == NODES
    vectors = [np.concatenate([bytes_to_ndarray(part).ravel() for part in one[1:]]) for one in masked]
    for number, vector in enumerate(vectors):
        near = [np.abs(vector - other).max() for other in vectors[:number]]
        assert vector.shape == MODEL.shape and vector.max() > 2**16 and all(one > 2**16 for one in near)


def test_the_strategy_of_a_rule_refuses_a_workflow():
    with pytest.raises(NotAllowed, match=r"workflow drives it, such as SecAgg\+.s, whose server gets one sum"):
        ran(server(FedGuardStrategy(defense="krum", f=1)), client())
