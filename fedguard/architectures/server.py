"""One server and many clients in synchronous rounds: FedSGD, FedAvg (McMahan et al., AISTATS 2017) and its kin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.optimizers import ServerStep
from fedguard.architectures.release import release_aggregate, report_round
from fedguard.architectures.rule_context import ColluderPipeline, clipping
from fedguard.architectures.times import SynchronousClock
from fedguard.architectures.watch import ANOTHER_MODEL, RoundRecorder, watching
from fedguard.architectures.wire import leave
from fedguard.contracts import (
    Architecture,
    Cell,
    Exposure,
    Fate,
    ReceivedRound,
    RoundObservation,
    RoundReport,
    Setup,
    Sight,
    State,
)
from fedguard.memmap import round_buffer


class Server(Architecture):
    """A server that sends the model to some clients, collects their updates, aggregates them and moves the model.

    $w <- w + server_lr * v$ with $v <- server_momentum * v + R(x_1, ..., x_n)$, unless the algorithm
    (`fedguard.algorithms`) or a server optimizer (`fedguard.contracts.optimizers`) says otherwise. Without masks the
    server sees each update, and malicious clients that eavesdrop see the honest ones. What the server sees under masks is
    described in `fedguard.architectures.masking`. A server that is trusted to add noise clips and sums the updates itself,
    see `fedguard.privacy.central`.
    """

    name = "server"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )

    def reasons(self, cell: Cell) -> Iterator[str]:
        if cell.network is not None and cell.network.loses:
            yield (
                "server asks network for times alone, and waits for every update. Leave out network.link.loss and "
                "network.availability and set protocol.dropout, or use google."
            )

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        training, stopwatch = setup.cell.training, setup.stopwatch
        clients, receiver = Clients(setup), setup.cell.protocol.secure_aggregation.receiver(setup)
        model = setup.task.initial_model(setup.rng.child("model"))
        server = ServerStep(training, model)
        states: tuple[State, ...] = ()
        private = setup.cell.protocol.privacy.at_server(setup.cell)
        noise = private.start() if private else None
        buffer: Tensor | None = None
        times = SynchronousClock(setup, model, self) if setup.cell.network else None

        for round in range(1, training.rounds + 1):
            chosen = setup.choose_clients(round)
            buffer = round_buffer(len(chosen), len(model), setup.memory, buffer)
            watch = watching(setup, model, round)
            given = watch.sent if watch else model
            clip = noise.clip if noise else None
            known = partial(ColluderPipeline, clipping(setup, clip), given, round, states)
            wire = clients.send(given, round, chosen, known, buffer)
            with stopwatch.stage("aggregation"):
                sent = leave(setup, given, round, wire)
            if watch:
                with stopwatch.stage("inference"):
                    watch.see(sent)
            with stopwatch.stage("masking" if setup.cell.protocol.masked else "other"):
                received = receiver.receive(sent)
            result: Aggregate | str = ANOTHER_MODEL
            with stopwatch.stage("aggregation"):
                if private and noise:
                    vector, noise = private.release(received.rows, noise, setup.noise_rng.child("privacy", round))
                    result = Aggregate(vector, None, ())
                elif given is model:
                    result = release_aggregate(setup, model, round, received, states)
            if isinstance(result, Aggregate):
                states = result.states
                arrived = [client for behind in received.behind for client in behind]
                with stopwatch.stage("model"):
                    model = server.apply_update(model, clients.local.settle(result.vector, arrived, model))
            yield report_round(
                setup,
                clients,
                model,
                round,
                sent,
                received,
                result,
                setup.due(round),
                chosen=chosen,
                clip=clip,
                watched=_observe_round(setup, watch, received, result, model),
                moment=times.after(chosen, round, len(received.clients), sent.of_fate(Fate.SILENT)) if times else None,
            )


def _observe_round(
    setup: Setup, watch: RoundRecorder | None, received: ReceivedRound, result: Aggregate | str, model: Tensor
) -> RoundObservation | None:
    if watch is None:
        return None
    with setup.stopwatch.stage("inference"):
        return watch.observe_round(received, result, model)
