"""BTARD: an all-reduce whose nodes check each other (Gorbunov et al., ICML 2022)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.collectives.butterfly import butterfly
from fedguard.architectures.systems.parameter_server import by_ranges
from fedguard.architectures.systems.peers import ELEMENT, HASH, PeerRun, Peers
from fedguard.contracts import (
    Combination,
    Exposure,
    Pipeline,
    PlainReceiver,
    PositiveInt,
    ReceivedRound,
    SentRound,
    Setup,
    Sight,
    State,
)
from fedguard.contracts.returned import check_return
from fedguard.kernels import all_finite

#: How far a computation that is repeated may be off, over its length.
_OFF = 1e-3
#: How far a sum of pulls may be off for rounding in float32, over their lengths.
_ROUNDING = 1e-5


@dataclass(frozen=True, kw_only=True)
class BTARD(Peers):
    """Node j aggregates part j of all updates by the rule, and some nodes check others, whom a lie costs their place.

    $w <- w + server_lr * (R(x_1^1, ..., x_n^1), ..., R(x_1^n, ..., x_n^n))$ with part j of each update at node j, and R the
    rule; the source's is `centered_clipping`.

    Before parts are sent, each node tells all others a hash of each part, and then one of what it made of its own: so nobody
    can change what it has said. Then ``validators`` nodes are drawn in public, and as many others that they check: a validator
    trains again what its node should have trained, from the same batches, and aggregates that node's part again. If one of
    them is not what was committed to, it accuses; then all repeat the computation, and by majority the accused is banned, or
    the accuser if nothing is wrong. Where a node sends nothing, it is one's word against another's, and both are banned. Who
    is banned has no part in later rounds; what it did before stays in the model.

    A malicious validator finds nothing wrong with another one. So each of f malicious nodes among n is found in a round with
    the chance $(m / n) (n - f) / (n - 1)$ of m validators, and a lone one after $n / m$ rounds on average. Where half of
    the nodes or more are malicious, the majority bans the honest ones.

    To train again one needs the examples: every node has those of all, as in the source, and no node's are private.

    With ``sums`` nodes check all parts in each round, without repeating anything. A random direction $z_j$ is drawn once the
    parts are out, and each node i tells all $s_ij = <z_j, D_ij>$, $D_ij = (x_i^j - c_j) min(1, tau / |x_i^j - c_j|)$ its
    pull on part j. Where $sum_i s_ij$ is not $n <z_j, v_j - c_j>$ for what node j says it made of them, $v_j$, all repeat that
    part, and node j is banned. A node that lies about its own $s_jj$ by as much passes, and is left to the validators.

    Args:
        validators: m; half of all nodes at most.
        sums: whether parts are checked by sums: of `mean`, or of `centered_clipping` in one step.
    """

    name = "btard"
    source = "Gorbunov et al., Secure Distributed Training at Scale, ICML 2022"
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )
    validators: PositiveInt = 1
    sums: bool = False

    @property
    def believes(self) -> frozenset[str]:  # type: ignore[override]
        """What nodes make of parts, tell of their checks, and say of others."""
        return frozenset({"adds", "accuses", "covers"} if self.sums else {"adds", "accuses"})

    def spec(self) -> dict[str, Any]:
        """As for any algorithm, but for what is not switched on."""
        return {key: value for key, value in super().spec().items() if value is not False}

    @property
    def shows_others(self) -> str:
        return "Every node has the examples of all, to repeat what others train, and reads each update."

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.inference is not None:
            yield f"every node of btard has the examples of all, and {cell.inference.name} need infer nothing. Use all_reduce."
        if 2 * self.validators > cell.clients.total:
            yield (
                f"{self.validators} validators check {self.validators} other nodes, and there are {cell.clients.total} in "
                "all. Lower validators of btard."
            )
        if cell.protocol.private:
            yield "the validators of btard train on the examples of others, which no noise hides from them. Use all_reduce."
        if cell.training.worker_momentum:
            yield (
                "a validator of btard repeats a node's training, and does not have its momentum. Set "
                "training.worker_momentum: 0."
            )
        if self.sums and (cell.pipeline.mixings or _radius(cell.pipeline) == 0):
            yield (
                f"sums of btard tell whether pulls add up, and under {cell.pipeline} they need not. Use mean, or "
                "centered_clipping with steps: 1, or leave out sums."
            )
        whole = [stage.name for stage in cell.pipeline.stages if (Sight.MODEL | Sight.ROOT_DATA) & cell.rule_sees]
        if whole:
            yield f"{' and '.join(whole)} works with the whole model, of which each node of btard has a part. Use all_reduce."

    def start(self, setup: Setup) -> PeerRun:
        return CheckedRun(self, setup)


class CheckedRun(PeerRun):
    """One training, with who is banned."""

    def __init__(self, system: BTARD, setup: Setup) -> None:
        super().__init__(setup)
        self._system, self._receiver = system, PlainReceiver(setup)
        self._banned: frozenset[int] = frozenset()
        self._wrong: frozenset[int] = frozenset()
        self._seen: frozenset[int] = frozenset()
        self._caught: frozenset[int] = frozenset()
        self._parts = 0

    def nodes(self, round: int) -> Sequence[int]:
        return [node for node in super().nodes(round) if node not in self._banned]

    def visible_states(self) -> tuple[State, ...]:
        """The copy that malicious nodes have is of one rule on all coordinates, which remembers nothing of the parts."""
        return ()

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        return self._receiver.receive(sent)

    def aggregate(self, round: int, sent: SentRound, received: ReceivedRound) -> Aggregate | str:
        nodes = sent.clients
        states = self.states if self._parts == len(nodes) else ()  # parts that are cut anew remember nothing
        self._parts, self._wrong, self._seen, self._caught = len(nodes), frozenset(), frozenset(), frozenset()
        if not received.behind:
            return received.why
        result = by_ranges(self.setup, self.model, round, received, states, len(nodes))
        if isinstance(result, str) or not sent.wire.added:
            return result
        vector = result.vector.clone()
        parts = dict(zip(nodes, butterfly(len(nodes)).cuts(len(vector)), strict=True))
        for node, added in sent.wire.added.items():
            vector[parts[node]] += added[parts[node]] / len(nodes)
        self._seen = frozenset(node for node, part in parts.items() if not all_finite(vector[part]))
        if self._system.sums and self._honest_majority(round, nodes):
            self._caught = self._off(round, sent, received.rows, parts, vector, states) - self._seen
            for node in self._caught:
                vector[parts[node]] = result.vector[parts[node]]
        self._wrong = frozenset(node for node, part in parts.items() if _differs(vector[part], result.vector[part]))
        if self._seen:
            return f"the part of {len(self._seen)} of {len(nodes)} nodes was not finite"
        return Aggregate(vector, None, result.states)

    def _off(
        self,
        round: int,
        sent: SentRound,
        rows: Tensor,
        parts: Mapping[int, slice],
        vector: Tensor,
        states: tuple[State, ...],
    ) -> frozenset[int]:
        """The nodes whose part is not what the nodes' pulls on it add up to, as they tell."""
        found, tau, attack = set[int](), _radius(self.setup.pipeline), self.setup.attack
        covered = attack is not None and check_return(attack, "covers", attack.covers(), bool)
        for number, (node, part) in enumerate(parts.items()):
            state = states[number] if states else {}
            centre = state.get("centre", torch.zeros_like(vector[part])).double()
            pulls = clip_deviations(rows[:, part], centre, tau)
            draw = self.setup.rng.child("check", round, node).numpy().normal(size=len(centre))
            z = torch.from_numpy(draw / np.linalg.norm(draw))
            told, due = float((pulls @ z).sum()), len(rows) * float(z @ (vector[part].double() - centre))
            if covered and node in sent.wire.added:
                told += float(z @ sent.wire.added[node][part].double())
            if abs(told - due) > _ROUNDING * float(pulls.norm(dim=1).sum()):
                found.add(node)
        return frozenset(found)

    def _honest_majority(self, round: int, nodes: Collection[int]) -> bool:
        return 2 * len(self.setup.acting(round) & set(nodes)) < len(nodes)

    def ban_nodes(self, round: int, sent: SentRound, nodes: Sequence[int]) -> tuple[int, ...]:
        hostile = self.setup.acting(round)
        majority = self._honest_majority(round, nodes)
        out = {*sent.not_finite, *self._seen, *self._caught}
        for silent in sorted(set(nodes) - set(sent.clients)):
            missed = [
                node for node in self._shuffle_validators(round, nodes) if node in sent.clients and node not in out
            ]
            out |= {silent, *missed[:1]}
        for checker, checked in self.checks(round, nodes):
            if {checker, checked} & out or checked not in sent.wire.clients:
                continue
            guilty = self._guilty(checked, round, sent)
            if accuses(checker in hostile, checked in hostile, guilty, self._slander()):
                out.add(resolve_accusation(checker, checked, guilty, hostile, majority))
        self._banned |= out
        return tuple(sorted(out))

    def checks(self, round: int, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Who checks whom in a round, as all draw it together."""
        order, m = self._shuffle_validators(round, nodes), min(self._system.validators, len(nodes) // 2)
        return list(zip(order[:m], order[m : 2 * m], strict=True))

    def _shuffle_validators(self, round: int, nodes: Sequence[int]) -> list[int]:
        order: list[int] = self.setup.rng.child("validators", round).numpy().permutation(sorted(nodes)).tolist()
        return order

    def _slander(self) -> bool:
        attack = self.setup.attack
        return attack is not None and check_return(attack, "accuses", attack.accuses(), bool)

    def _guilty(self, node: int, round: int, sent: SentRound) -> bool:
        """Whether its update is not what its examples give, or its part not what the rule gives."""
        again = torch.empty(1, len(sent.model))
        self.clients.train_honest(sent.model, round, (node,), again)
        return node in self._wrong or _differs(sent.wire.updates[sent.wire.clients.index(node)], again[0])

    def exchange(self, nodes: Sequence[int], round: int) -> float:
        """The parts, there and back; the hashes, to all; then what the validators ask for, and their own training."""
        n, d, checks = len(nodes), len(self.model), self.checks(round, nodes)
        hashes = dict.fromkeys(nodes, (n - 1) * (n + 1) * HASH)
        seconds = self.carry(butterfly(n), d, nodes) + self.world.step(hashes, hashes)
        if self._system.sums:  # of each part its pull's length, and its product with the direction
            told = dict.fromkeys(nodes, (n - 1) * n * 2 * ELEMENT)
            seconds += self.world.step(told, told)
        if not checks:
            return seconds
        part = 4 * -(-d // n)
        asked = {node: part * sum(node != checker for checker, _ in checks) for node in nodes}
        got = {checker: part * (n - 1) for checker, _ in checks}
        return seconds + self.world.step(asked, got) + max(self.world.compute(checked, round) for _, checked in checks)


def _radius(pipeline: Pipeline) -> float | None:
    """How far a row pulls at most, None for the median of all, where pulls add up to the aggregate; 0 where they do not."""
    told = pipeline.rule.spec()
    if told["name"] == "mean":
        return inf
    clips = told["name"] == "centered_clipping" and told["steps"] == 1
    return told["tau"] if clips else 0.0


def clip_deviations(rows: Tensor, centre: Tensor, tau: float | None) -> Tensor:
    """float64 ``[n, b]``: what each node's part pulls its aggregate by, from the center: none longer than tau.

    Args:
        tau: the median of the distances if None.
    """
    away = rows.double() - centre
    lengths = away.norm(dim=1)
    most = float(lengths.quantile(0.5)) if tau is None else tau
    shorter: Tensor = away * (most / lengths).clamp(max=1).nan_to_num(nan=1.0)[:, None]
    return shorter


def accuses(hostile_checker: bool, hostile_checked: bool, guilty: bool, slander: bool) -> bool:
    """Whether a validator accuses whom it checks: an honest one if something is wrong, a malicious one never its own."""
    return not hostile_checked and slander if hostile_checker else guilty


def resolve_accusation(
    accuser: int, accused: int, guilty: bool, hostile: Collection[int], honest_majority: bool
) -> int:
    """Who of the two is banned, once all have repeated the computation and said what came out."""
    if honest_majority:
        return accused if guilty else accuser
    return accuser if accused in hostile else accused


def _differs(one: Tensor, other: Tensor) -> bool:
    return float((one.double() - other.double()).norm()) > _OFF * float(other.double().norm())
