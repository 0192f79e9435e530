"""What each client contributes to the model of a cell, malicious ones too: a Shapley value of each round, added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.release import released
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Cell
from fedguard.contracts import Observer, Received, Setup, Watched, Wire
from fedguard.errors import ConfigError
from fedguard.metrics.shapley import Shares, shapley
from fedguard.rng import Rng


@dataclass(frozen=True)
class Contribution:
    """Who contributed what to one training.

    Attributes:
        shares: by client; they add up to the gain.
        gain: how much better the last model is than the first.
        malicious: the clients that acted for the attack.
        rounds: the Shapley values of each round that changed the model.
    """

    shares: dict[int, float]
    gain: float
    malicious: frozenset[int]
    rounds: tuple[Shares, ...]

    @property
    def errors(self) -> dict[int, float]:
        """By client, the standard error over the orders that were drawn, which each round draws anew."""
        squares = dict.fromkeys(self.shares, 0.0)
        for found in self.rounds:
            for client, error in found.errors.items():
                squares[client] += error * error
        return {client: square**0.5 for client, square in squares.items()}

    @property
    def evaluations(self) -> int:
        """How many coalitions were valued."""
        return sum(found.evaluations for found in self.rounds)


def contribution(
    cell: Cell,
    seed: int = 0,
    *,
    measure: Literal["accuracy", "loss"] = "accuracy",
    permutations: int = 20,
    tolerance: float = 0.0,
    bench: Workbench | None = None,
    after: Callable[[int], None] = lambda round: None,
) -> Contribution:
    """Who contributed what in a training of ``cell``, by what the test examples say.

    $phi_i = sum_t phi_i(v_t)$ with $v_t(S) = U(w_t + server_lr * R(u_j : j in S)) - U(w_t)$ over the clients of round t,
    and the rule R of the cell; $v_t(S) = 0$ for no clients and where R cannot run on so few. R starts afresh for each
    coalition. The rounds are those that were run, not those that S alone would have run. Under an attack each client is
    valued by what it sent: what others sent in answer to it stays.

    Args:
        measure: U: the accuracy in [0, 1], or minus the loss in nats.
        permutations, tolerance: of each round, see `fedguard.metrics.shapley.shapley`.
        after: called with the number of each round when it has been valued.

    Raises:
        ConfigError: a cell that is refused, whose server sees no single updates, or whose model is not moved by the aggregate
            alone.

    Source: Wang et al., A Principled Approach to Data Valuation for Federated Learning, 2020 (a value for each round).
    """
    _check(cell)
    bench = bench or Workbench()
    setup = replace(set_up(cell, seed, bench.task(cell, seed)), observer=Observer(None))
    rng = setup.rng.child("contribution")
    first = setup.task.initial_model(setup.rng.child("model"))
    utility = partial(_utility, setup, measure)
    shares, rounds, last = dict.fromkeys(range(setup.participation.total), 0.0), [], first
    malicious: frozenset[int] = frozenset()
    for report in cell.architecture.run(setup):
        malicious, last = malicious | report.malicious, report.model
        if report.watched is not None and report.abandoned is None:
            found = _of_round(setup, report.round, report.watched, utility, rng, permutations, tolerance)
            rounds.append(found)
            for client, share in found.shares.items():
                shares[client] += share
        after(report.round)
    return Contribution(shares, utility(last) - utility(first), malicious, tuple(rounds))


def _of_round(
    setup: Setup,
    round: int,
    watched: Watched,
    utility: Callable[[Tensor], float],
    rng: Rng,
    permutations: int,
    tolerance: float,
) -> Shares:
    rows = {client: row for row, client in enumerate(watched.clients)}
    before = utility(watched.sent)

    def value(coalition: frozenset[int]) -> float:
        clients = [client for client in watched.clients if client in coalition]
        if len(clients) == len(rows):
            return utility(watched.after) - before
        updates = watched.updates[[rows[client] for client in clients]]
        wire = Wire(updates, tuple(clients), frozenset())
        claims = torch.tensor([setup.task.sizes[client] for client in clients], dtype=torch.float64)
        told = setup.told_among(len(clients))
        received = Received(updates, tuple((client,) for client in clients), claims, told, tuple(clients), wire)
        result = released(setup, watched.sent, round, received, ())
        if not isinstance(result, Aggregate):
            return 0.0
        return utility(watched.sent + setup.training.server_step * result.vector) - before

    return shapley(value, watched.clients, rng.child(round), permutations=permutations, tolerance=tolerance)


def _utility(setup: Setup, measure: str, model: Tensor) -> float:
    evaluation = setup.task.evaluate(model)
    return evaluation.accuracy if measure == "accuracy" else -evaluation.loss


def _check(cell: Cell) -> None:
    for reason in _reasons(cell):
        raise ConfigError(f"contribution: {reason}")


def _reasons(cell: Cell) -> Iterator[str]:
    """Why nobody can say what each client's update was worth."""
    yield from cell.verdict.reasons
    if cell.architecture.name != "server":
        yield f"rounds of server are valued, and the architecture is {cell.architecture.name}. Use server."
    if cell.protocol.masked:
        yield "single updates are valued, and secure_aggregation hides them. Switch it off."
    if cell.trusted_server:
        yield "the server's noise belongs to no client. Use protocol.privacy: none, or noise that clients add."
    training = cell.training
    if training.server_momentum or training.server_optimizer is not None or not training.algorithm.only_updates:
        yield "the model is moved by more than the aggregate of a round. Use fedavg without server momentum or optimizer."
