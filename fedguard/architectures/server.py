"""One server and many clients in synchronous rounds: FedSGD, FedAvg (McMahan et al., AISTATS 2017) and its kin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.masking import Received, masking
from fedguard.architectures.measured import excluded, measured
from fedguard.architectures.optimizers import ServerStep
from fedguard.architectures.root import root_loss, root_update
from fedguard.architectures.rule_context import KnownToColluders, noise_of, rule_context
from fedguard.architectures.watch import ANOTHER_MODEL, Watch, watching
from fedguard.architectures.wire import leave
from fedguard.contracts import Architecture, ClientNoise, Exposure, Pipeline, RoundReport, Setup, Sight, State, Watched
from fedguard.errors import PreconditionError
from fedguard.mapped import round_buffer
from fedguard.privacy.central import CentralDP, ClippedByServer, central


class Server(Architecture):
    """A server that sends the model to some clients, collects their updates, aggregates them and moves the model.

    w <- w + server_lr * v with v <- server_momentum * v + R(x_1 ... x_n), unless the algorithm (`fedguard.architectures.local`)
    or a server optimizer (`fedguard.contracts.training`) says otherwise. Without masks the server sees each update, and
    colluders who tap the wire see the honest ones; what it has of them under masks is told in `fedguard.architectures.masking`.
    A server that is trusted to add noise for the clients' privacy clips and sums the updates itself, see
    `fedguard.privacy.central`.
    """

    name = "server"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        training, clock = setup.training, setup.clock
        clients, masked = Clients(setup), masking(setup)
        model = setup.task.initial_model(setup.rng.child("model"))
        server = ServerStep(training, model)
        states: tuple[State, ...] = ()
        private = _trusted(setup)
        noise = private.start() if private else None
        buffer: Tensor | None = None

        for round in range(1, training.rounds + 1):
            chosen = setup.participation.choose(setup.rng.child("participation", round), round)
            buffer = round_buffer(len(chosen), len(model), setup.memory, buffer)
            watch = watching(setup, model, round)
            given = watch.sent if watch else model
            clip = noise.clip if noise else None
            known = partial(KnownToColluders, _known(setup, clip), given, round, states)
            wire = clients.send(given, round, chosen, known, buffer)
            with clock.stage("aggregation"):
                sent = leave(setup, given, round, wire)
            if watch:
                with clock.stage("inference"):
                    watch.see(sent)
            with clock.stage("masking" if setup.protocol.masked else "other"):
                received = masked.receive(sent)
            result: Aggregate | str = ANOTHER_MODEL
            with clock.stage("aggregation"):
                if private and noise:
                    vector, noise = private.release(received.rows, noise, setup.rng.child("privacy", round))
                    result = Aggregate(vector, None, ())
                elif given is model:
                    result = _aggregate(setup, model, round, received, states)
            if isinstance(result, Aggregate):
                states = result.states
                arrived = [client for behind in received.behind for client in behind]
                with clock.stage("model"):
                    model = server.moved(model, clients.local.settle(result.vector, arrived))
            yield RoundReport(
                round=round,
                model=model,
                clients=received.clients,
                hostile=wire.hostile & set(received.clients),
                behind=received.behind,
                told=received.told,
                not_finite=tuple(client for client in sent.not_finite if client not in sent.lost),
                too_large=tuple(client for client in sent.too_large if client not in sent.lost),
                silent=tuple(client for client in sent.clients if client in sent.lost),
                chosen=chosen,
                clip=clip,
                excluded=excluded(result, received),
                abandoned=None if isinstance(result, Aggregate) else result,
                **_figures(setup, clients, model, result, received, setup.due(round)),
                effect=clients.effect if setup.due(round) else None,
                notes=clients.notes(),
                masked=received.masked,
                watched=_watched(setup, watch, received, result, model),
            )


def _aggregate(
    setup: Setup, model: Tensor, round: int, received: Received, states: tuple[State, ...]
) -> Aggregate | str:
    """The aggregate, or the reason why this round is abandoned."""
    if not received.behind:
        return received.why
    root = root_update(setup, model, round) if Sight.ROOT_DATA in setup.rule_sees else None
    context = rule_context(setup, model, round, received.told).narrowed(
        "server",
        setup.rule_sees,
        clients=None if received.masked else tuple(client for (client,) in received.behind),
        samples=received.samples,
        noise=None if received.masked else noise_of(setup, [client for (client,) in received.behind]),
        root=root,
        root_loss=partial(root_loss, setup),
    )
    try:
        return aggregate(setup.pipeline, received.rows, context, states)
    except PreconditionError as error:
        return str(error)


def _trusted(setup: Setup) -> CentralDP | None:
    """How the server hides the clients, where it is trusted to."""
    noise = setup.protocol.privacy
    return central(noise, setup.participation, setup.training.rounds) if isinstance(noise, ClientNoise) else None


def _known(setup: Setup, clip: float | None) -> Setup:
    """The set-up as the colluders know it: a server that clips does so to their updates too."""
    if clip is None:
        return setup
    return replace(setup, pipeline=Pipeline((ClippedByServer(bound=clip), setup.pipeline.rule)))


def _figures(
    setup: Setup, clients: Clients, model: Tensor, result: Aggregate | str, received: Received, due: bool
) -> dict[str, Any]:
    """The backdoor as it now is, and in rounds in which it is due, what the new model and the aggregate are worth."""
    planted = clients.planted()
    if not due:
        return {"evaluation": None, "kappa": None, "cosine": None, "backdoor": None, "planted": planted}
    with setup.clock.stage("evaluation"):
        evaluation = clients.local.evaluate(model)
        backdoor = setup.task.backdoor_success(model, *planted) if planted else None
    with setup.clock.stage("measuring"):
        found = measured(result, received)
    return {"evaluation": evaluation, "backdoor": backdoor, "planted": planted, **found}


def _watched(
    setup: Setup, watch: Watch | None, received: Received, result: Aggregate | str, model: Tensor
) -> Watched | None:
    if watch is None:
        return None
    with setup.clock.stage("inference"):
        return watch.watched(received, result, model)
