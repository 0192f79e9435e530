"""What each client contributes to the model of a cell, malicious ones too: a Shapley value of each aggregate, added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.masking.plain import PlainReceiver
from fedguard.architectures.release import release_aggregate
from fedguard.architectures.statistics_checks import require_updates_alone
from fedguard.architectures.systems.event_server import EventServer
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell
from fedguard.contracts import Architecture, Environment, Observer, RoundObservation, SentRound, Setup, Sight
from fedguard.errors import ConfigError
from fedguard.metrics.shapley import ShapleyValues, shapley
from fedguard.tasks.compute import computing_in


@dataclass(frozen=True)
class Contribution:
    """The contributions of the clients to one training.

    Attributes:
        shares: the share of each client; shares add up to the gain.
        gain: improvement of the last model over the first.
        malicious: the clients that acted for the attack.
        rounds: the Shapley values of each aggregate that changed the model.
    """

    shares: dict[int, float]
    gain: float
    malicious: frozenset[int]
    rounds: tuple[ShapleyValues, ...]

    @property
    def errors(self) -> dict[int, float]:
        """By client, the standard error over the orders that were drawn, which each aggregate draws anew."""
        squares = dict.fromkeys(self.shares, 0.0)
        for found in self.rounds:
            for client, error in found.errors.items():
                squares[client] += error * error
        return {client: square**0.5 for client, square in squares.items()}

    @property
    def evaluations(self) -> int:
        """Number of coalitions that were valued."""
        return sum(found.evaluations for found in self.rounds)


def contribution(
    cell: PlannedCell,
    seed: int = 0,
    *,
    measure: Literal["accuracy", "loss"] = "accuracy",
    permutations: int = 20,
    tolerance: float = 0.0,
    bench: Workbench | None = None,
    after: Callable[[int], None] = lambda round: None,
) -> Contribution:
    """Who contributed what in a training of ``cell``, by what the test examples say.

    $phi_i = sum_t phi_i(v_t)$ with $v_t(S) = U(w_t + server_lr * R(u_j : j in S)) - U(w_t)$ over the clients of aggregate t,
    and the rule R of the cell; $v_t(S) = 0$ for no clients and where R cannot run on so few. R starts afresh for each
    coalition. The aggregates come from the training that was run, not from a training of S alone. Under an
    attack each client is valued by what it sent: what others sent in answer to it stays.

    In simulated time $u_j$ is weighed by its age, $w_t$ is the model that the aggregate moved, whichever $u_j$ was trained
    from, and a client stands for all its updates in an aggregate. Where each update is an aggregate of its own, nothing is
    drawn: a client's share is what the model gained at its updates.

    Args:
        measure: U: the accuracy in [0, 1], or minus the loss in nats.
        permutations, tolerance: of each round, see `fedguard.metrics.shapley.shapley`.
        after: called with the number of each round when an aggregate of it has been valued.

    Raises:
        ConfigError: a cell that is refused, that has no server which sees single updates, or whose model is not moved by the
            aggregate alone.

    Source: Wang et al., A Principled Approach to Data Valuation for Federated Learning, 2020 (a value for each round).
    """
    _check(cell)
    bench = bench or Workbench()
    with computing_in(cell.training.dtype):
        setup = require_updates_alone(set_up(cell, seed, bench.task(cell, seed)), "contribution")
        setup = replace(setup, observer=Observer(None))
        rng = setup.rng.child("contribution")
        first = setup.task.initial_model(setup.rng.child("model"))
        utility = partial(_utility, setup, measure)
        shares, rounds, last = dict.fromkeys(range(setup.cell.clients.total), 0.0), [], first
        malicious: frozenset[int] = frozenset()
        worth = utility(first)
        for number, report in enumerate(cell.architecture.aggregates(setup), 1):
            (watched,), malicious, last = report.watched, malicious | report.malicious, report.model
            if watched.sent.senders and report.abandoned is None:
                before, worth = worth, utility(last)
                value = partial(_value, cell.architecture, setup, number, watched, utility, before, worth)
                players = tuple(dict.fromkeys(watched.sent.senders))
                found = shapley(value, players, rng.child(number), permutations=permutations, tolerance=tolerance)
                rounds.append(found)
                for client, share in found.shares.items():
                    shares[client] += share
            after(report.round)
        return Contribution(shares, utility(last) - utility(first), malicious, tuple(rounds))


def _value(
    architecture: Architecture,
    setup: Setup,
    number: int,
    watched: RoundObservation,
    utility: Callable[[Tensor], float],
    before: float,
    after: float,
    coalition: frozenset[int],
) -> float:
    """The gain of an aggregate of these clients' updates alone, with the utility before and after the actual aggregate."""
    sent, model = watched.sent, watched.sent.model
    rows = [row for row, client in enumerate(sent.senders) if client in coalition]
    if len(rows) == len(sent.senders):
        return after - before
    kept = SentRound(
        number,
        model,
        sent.updates[rows],
        tuple(sent.senders[row] for row in rows),
        sent.malicious,
        trainings=tuple(sent.trainings[row] for row in rows) if sent.trainings else (),
    )
    received = PlainReceiver(setup).receive(kept)
    in_time = architecture if isinstance(architecture, EventServer) else None
    result = (in_time.aggregate if in_time else release_aggregate)(setup, model, number, received, ())
    if not isinstance(result, Aggregate):
        return 0.0
    vector = result.vector * in_time.gain(setup.cell.clients) if in_time else result.vector
    return utility(model + setup.cell.server_step * vector) - before


def _utility(setup: Setup, measure: str, model: Tensor) -> float:
    evaluation = setup.task.evaluate(model)
    return evaluation.accuracy if measure == "accuracy" else -evaluation.loss


def _check(cell: PlannedCell) -> None:
    for reason in _reasons(cell):
        raise ConfigError(f"contribution: {reason}")


def _reasons(cell: PlannedCell) -> Iterator[str]:
    """Why the value of each client's update cannot be determined."""
    yield from cell.verdict.reasons
    if isinstance(cell.data, Environment):
        yield f"updates are valued by what accuracy gains, and a policy in {cell.data.name} has none. Use a task with examples."
    name, sees = cell.architecture.name, Sight.EACH_UPDATE in cell.architecture.exposes.server
    if not (name == "server" or (isinstance(cell.architecture, EventServer) and sees)):
        yield f"updates are valued by a server that sees each, and {name} has none. Use server, fedbuff or another that has."
    if cell.masking.masked:
        yield (
            "single updates are valued, and secure_aggregation hides them; what a sum is worth would be dealt evenly, "
            "to a poisoner as much as to those whom it harms. Switch it off."
        )
    if cell.trusted_server:
        yield "the server's noise belongs to no client. Use protocol.privacy: none, or noise that clients add."
    training = cell.training
    if training.server_momentum or training.server_optimizer is not None or not cell.algorithm.only_updates:
        yield "the model is moved by more than the aggregate of a round. Use fedavg without server momentum or optimizer."
