"""One server and many clients: FedSGD and FedAvg in synchronous rounds (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.architectures.clients import Clients, Wire
from fedguard.contracts import ROOT, Architecture, Exposure, RoundReport, RuleContext, Setup, Sight, State
from fedguard.errors import PreconditionError
from fedguard.kernels import finite_rows


class Server(Architecture):
    """A server that sends the model to some clients, collects their updates, aggregates them and moves the model.

    w <- w + server_lr * v with v <- server_momentum * v + R(x_1 ... x_n). Without masking the server sees each update,
    and colluders who tap the wire see the honest ones.
    """

    name = "server"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        training = setup.training
        clients = Clients(setup)
        model = setup.task.initial_model(setup.rng.child("model"))
        velocity = torch.zeros_like(model)
        states: tuple[State, ...] = ()
        buffer = torch.empty(0)

        for round in range(1, training.rounds + 1):
            chosen = setup.participation.choose(setup.rng.child("participation", round))
            buffer.resize_(len(chosen), len(model))
            guess = _Rule(setup, round, states)
            wire = clients.send(model, round, chosen, guess, buffer)
            wire, not_finite = drop_not_finite(wire)
            # An honest update is finite, so each dropped one was among the hostile ones that the server reckons with.
            told = max(0, setup.told_among(len(chosen)) - len(not_finite))
            result = _aggregate(setup, model, round, wire, told, states)
            if isinstance(result, Aggregate):
                states = result.states
                velocity = training.server_momentum * velocity + result.vector
                model = model + training.server_step * velocity
            due = round == training.rounds or round % setup.evaluate_every == 0
            yield RoundReport(
                round=round,
                model=model,
                received=len(chosen),
                hostile=len(wire.hostile),
                told=told,
                not_finite=not_finite,
                abandoned=None if isinstance(result, Aggregate) else result,
                evaluation=setup.task.evaluate(model) if due else None,
            )


def drop_not_finite(wire: Wire) -> tuple[Wire, tuple[int, ...]]:
    """Drop updates with NaN or infinity by moving the last rows into their places; say which clients sent them."""
    finite = finite_rows(wire.updates).tolist()
    clients, kept = list(wire.clients), len(wire.clients)
    for row in reversed(range(len(finite))):
        if not finite[row]:
            kept -= 1
            wire.updates[row] = wire.updates[kept]
            clients[row], clients[kept] = clients[kept], clients[row]
    return Wire(wire.updates[:kept], tuple(clients[:kept]), wire.hostile), tuple(sorted(clients[kept:]))


def _aggregate(
    setup: Setup, model: Tensor, round: int, wire: Wire, told: int, states: tuple[State, ...]
) -> Aggregate | str:
    """The aggregate, or the reason why this round is abandoned."""
    if not wire.clients:
        return "no update reached the server"
    root: Tensor | None = None
    if Sight.ROOT_DATA in setup.rule_sees:
        rng, out = setup.rng.child("round", round), torch.empty(1, len(model))
        root = setup.task.local_updates(model, [ROOT], setup.training.plan(), rng, out)[0]
    context = RuleContext(
        "server",
        setup.rule_sees,
        f=told,
        round=round,
        rng=setup.rng.child("rule", round),
        state={},
        clients=wire.clients,
        samples=torch.tensor([setup.task.sizes[client] for client in wire.clients], dtype=torch.float64),
        root=root,
    )
    try:
        return aggregate(setup.pipeline, wire.updates, context, states)
    except PreconditionError as error:
        return str(error)


class _Rule:
    """The colluders' copy of the server's rule: all but its random draws and its root data."""

    def __init__(self, setup: Setup, round: int, states: tuple[State, ...]) -> None:
        self._setup, self._round, self._states = setup, round, states

    def __call__(self, updates: Tensor) -> Tensor:
        context = RuleContext(
            "colluders' copy of the rule",
            self._setup.rule_sees & ~Sight.ROOT_DATA,
            f=self._setup.told_among(len(updates)),
            round=self._round,
            rng=self._setup.rng.child("attack", "rule", self._round),
            state={},
        )
        return aggregate(self._setup.pipeline, updates, context, self._states).vector
