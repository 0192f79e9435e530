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
from fedguard.architectures.masking.plain import PlainReceiver
from fedguard.architectures.rounds import RoundPlan
from fedguard.architectures.systems.parameter_server import by_ranges
from fedguard.architectures.systems.peers import ELEMENT, HASH, PeerRun, Peers
from fedguard.contracts import (
    Cell,
    Exposure,
    Pipeline,
    PositiveInt,
    ReceivedRound,
    SentRound,
    Setup,
    Sight,
    State,
)
from fedguard.contracts.channels import ACCUSATIONS, CHECKS, PARTIAL_SUMS
from fedguard.contracts.lying import Channels
from fedguard.contracts.wire import UNUSABLE
from fedguard.kernels import all_finite

#: Largest relative difference of a repeated computation: a node trained alone rounds differently than in a batch.
_OFF = 1e-3
#: Largest difference of a sum of pulls due to rounding in float32, relative to the sum of their lengths.
_ROUNDING = 1e-5


@dataclass(frozen=True, kw_only=True)
class BTARD(Peers):
    """Node j aggregates part j of all updates by the rule, and some nodes check others, whom a lie costs their place.

    $w <- w + server_lr * (R(x_1^1, ..., x_n^1), ..., R(x_1^n, ..., x_n^n))$ with part j of each update at node j, and R the
    rule; the source's is `centered_clipping`.

    Before parts are sent, each node sends all others a hash of each part, and later a hash of its aggregated part, so that no
    node can change either afterwards. Then ``validators`` nodes are drawn in public, and as many others for them to check. A
    validator repeats the training of its node from the same batches, and aggregates the node's part again. If a result differs
    from the commitment, it accuses the node. All nodes then repeat the computation; the majority bans the accused, or the
    accuser if nothing is wrong. If a node sends nothing, its word is against another's, and both are banned. A banned node
    takes no part in later rounds; its earlier influence stays in the model.

    A malicious validator never accuses another malicious node. With m validators, each of f malicious nodes among n is found
    in a round with probability $(m / n) (n - f) / (n - 1)$, and a single one after $n / m$ rounds on average. If half of the
    nodes or more are malicious, the majority bans the honest ones.

    To repeat a training a node needs the examples: every node has the examples of all, as in the source, and none are private.

    With ``sums`` nodes check all parts in each round without repeating anything. A random direction $z_j$ is drawn after the
    parts are sent, and each node i sends all others $s_ij = <z_j, D_ij>$ for its pull on part j,
    $D_ij = (x_i^j - c_j) min(1, tau / |x_i^j - c_j|)$. If $sum_i s_ij$ is not $n <z_j, v_j - c_j>$ for the aggregate $v_j$
    that node j claims, all nodes repeat that part, and node j is banned. A node that lies about its own $s_jj$ by the same
    amount passes, and is left to the validators.

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
    def channels(self) -> Channels:  # type: ignore[override]
        """Nodes believe each other's aggregated parts, accusations and, with ``sums``, pulls, until a check refutes them."""
        return frozenset({PARTIAL_SUMS, ACCUSATIONS, CHECKS} if self.sums else {PARTIAL_SUMS, ACCUSATIONS})

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; parameters that are False are left out."""
        return {key: value for key, value in super().spec().items() if value is not False}

    @property
    def shows_others(self) -> str:
        return "Every node has the examples of all, to repeat what others train, and reads each update."

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.inference is not None:
            yield f"every node of btard has the examples of all, and {cell.inference.name} need infer nothing. Use all_reduce."
        if 2 * self.validators > cell.clients.total:
            yield (
                f"{self.validators} validators check {self.validators} other nodes, and there are {cell.clients.total} in "
                "all. Lower validators of btard."
            )
        if cell.private:
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
    """One training, with the nodes that are banned."""

    def __init__(self, system: BTARD, setup: Setup) -> None:
        super().__init__(setup, system.channels)
        self._system, self._receiver = system, PlainReceiver(setup)
        self._banned: frozenset[int] = frozenset()
        self._wrong: frozenset[int] = frozenset()
        self._seen: frozenset[int] = frozenset()
        self._caught: frozenset[int] = frozenset()
        self._parts = 0

    def nodes(self, round: int) -> Sequence[int]:
        return [node for node in super().nodes(round) if node not in self._banned]

    def visible_states(self) -> tuple[State, ...]:
        """None: the copy of malicious nodes is one rule on all coordinates, and has no state of the parts."""
        return ()

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        return self._receiver.receive(sent)

    def aggregate(self, plan: RoundPlan, received: ReceivedRound) -> Aggregate | str:
        sent, round = received.sent, plan.round
        nodes = sent.clients
        states = self.states if self._parts == len(nodes) else ()  # parts that are cut anew remember nothing
        self._parts, self._wrong, self._seen, self._caught = len(nodes), frozenset(), frozenset(), frozenset()
        if not received.behind:
            return received.why
        result = by_ranges(self.setup, self.model, round, received, states, len(nodes))
        if isinstance(result, str) or not sent.added:
            return result
        vector = result.vector.clone()
        parts = dict(zip(nodes, butterfly(len(nodes)).cuts(len(vector)), strict=True))
        for node, added in sent.added.items():
            # The attack adds to a sum of n updates, and a part is their mean
            vector[parts[node]] += added[parts[node]] / len(nodes)
        self._seen = frozenset(node for node, part in parts.items() if not all_finite(vector[part]))
        # A malicious majority would vote that nothing is wrong with the part
        if self._system.sums and self._honest_majority(round, nodes):
            self._caught = self._off(round, sent, received.rows, parts, vector, states) - self._seen
            for node in self._caught:
                # All have repeated the part, so the honest nodes go on with the true one
                vector[parts[node]] = result.vector[parts[node]]
        # After the repair: left are the lies that no sum has shown, for the validators to find
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
        """Nodes with a part that does not agree with the sum of the claimed pulls on it.

        In float64: the two sums nearly cancel, and float32 would lose more than `_ROUNDING`. A part that is not finite passes,
        since comparisons with NaN are False; the caller has it in ``_seen``.
        """
        found, tau = set[int](), _radius(self.setup.cell.pipeline)
        for number, (node, part) in enumerate(parts.items()):
            state = states[number] if states else {}
            center = state.get("center", torch.zeros_like(vector[part])).double()
            pulls = clip_deviations(rows[:, part], center, tau)
            draw = self.setup.rng.child("check", round, node).numpy().normal(size=len(center))
            z = torch.from_numpy(draw / np.linalg.norm(draw))
            told, due = float((pulls @ z).sum()), len(rows) * float(z @ (vector[part].double() - center))
            # The liar adds to its own claimed pull what it has added to the part, so that both sides of the check agree
            if node in sent.added and self.setup.report(CHECKS, node, False, round):
                told += float(z @ sent.added[node][part].double())
            if abs(told - due) > _ROUNDING * float(pulls.norm(dim=1).sum()):
                found.add(node)
        return frozenset(found)

    def _honest_majority(self, round: int, nodes: Collection[int]) -> bool:
        return 2 * len(self.setup.acting(round) & set(nodes)) < len(nodes)

    def ban_nodes(self, round: int, sent: SentRound, nodes: Sequence[int]) -> tuple[int, ...]:
        hostile = self.setup.acting(round)
        majority = self._honest_majority(round, nodes)
        out = {*sent.of_fate(*UNUSABLE), *self._seen, *self._caught}
        # Nobody can prove whether a message was not sent or not received: the silent node and one validator go together,
        # so that silence costs the malicious side at least as much as the honest one
        for silent in sorted(set(nodes) - {*sent.clients}):
            missed = [
                node for node in self._shuffle_validators(round, nodes) if node in sent.clients and node not in out
            ]
            out |= {silent, *missed[:1]}
        for checker, checked in self.checks(round, nodes):
            # A banned validator cannot accuse, and a node that has sent nothing has no result to compare
            if {checker, checked} & out or checked not in sent.senders:
                continue
            guilty = self._guilty(checked, round, sent)
            slander = self.setup.report(ACCUSATIONS, checker, False, round)
            if accuses(checker in hostile, checked in hostile, guilty, slander):
                out.add(resolve_accusation(checker, checked, guilty, hostile, majority))
        self._banned |= out
        return tuple(sorted(out))

    def checks(self, round: int, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Pairs of validator and checked node in a round, drawn in public."""
        order, m = self._shuffle_validators(round, nodes), min(self._system.validators, len(nodes) // 2)
        return list(zip(order[:m], order[m : 2 * m], strict=True))

    def _shuffle_validators(self, round: int, nodes: Sequence[int]) -> list[int]:
        order: list[int] = self.setup.rng.child("validators", round).numpy().permutation(sorted(nodes)).tolist()
        return order

    def _guilty(self, node: int, round: int, sent: SentRound) -> bool:
        """Whether a node's update does not follow from its examples, or its part not from the rule."""
        again = torch.empty(1, len(sent.model))
        self.clients.train_honest(sent.model, round, (node,), again)
        return node in self._wrong or _differs(sent.updates[sent.senders.index(node)], again[0])

    def exchange(self, nodes: Sequence[int], round: int) -> float:
        """Seconds of the parts, to their node and back; of the hashes to all; of the validators' requests and training."""
        n, d, checks = len(nodes), len(self.model), self.checks(round, nodes)
        # A hash of each of the n parts, and one of the aggregated part, to n - 1 others
        hashes = dict.fromkeys(nodes, (n - 1) * (n + 1) * HASH)
        seconds = self.carry(butterfly(n), d, nodes) + self.send_at_once(hashes, hashes)
        if self._system.sums:  # of each part its pull's length, and its product with the direction
            told = dict.fromkeys(nodes, (n - 1) * n * 2 * ELEMENT)
            seconds += self.send_at_once(told, told)
        if not checks:
            return seconds
        part = 4 * -(-d // n)
        asked = {node: part * sum(node != checker for checker, _ in checks) for node in nodes}
        got = {checker: part * (n - 1) for checker, _ in checks}
        seconds += self.send_at_once(asked, got)
        return seconds + max(self.world.compute(checker, round, task=checked) for checker, checked in checks)


def _radius(pipeline: Pipeline) -> float | None:
    """Largest length of a pull, None for the median of all; 0 if pulls do not sum to the aggregate of this pipeline."""
    told = pipeline.rule.spec()
    if told["name"] == "mean":
        return inf
    clips = told["name"] == "centered_clipping" and told["steps"] == 1
    return told["tau"] if clips else 0.0


def clip_deviations(rows: Tensor, center: Tensor, tau: float | None) -> Tensor:
    """float64 ``[n, b]``: the pull of each node's part on the aggregate, from the center, clipped to length tau.

    Args:
        tau: largest length; the median of the distances if None.
    """
    away = rows.double() - center
    lengths = away.norm(dim=1)
    most = float(lengths.quantile(0.5)) if tau is None else tau
    # A part at the center has length 0, and the quotient is 0 / 0 if the median is 0 as well
    shorter: Tensor = away * (most / lengths).clamp(max=1).nan_to_num(nan=1.0)[:, None]
    return shorter


def accuses(hostile_checker: bool, hostile_checked: bool, guilty: bool, slander: bool) -> bool:
    """Whether a validator accuses the node: an honest one if something is wrong, a malicious one never a malicious node."""
    return not hostile_checked and slander if hostile_checker else guilty


def resolve_accusation(
    accuser: int, accused: int, guilty: bool, hostile: Collection[int], honest_majority: bool
) -> int:
    """Which of the two is banned after all nodes have repeated the computation and voted."""
    if honest_majority:
        return accused if guilty else accuser
    return accuser if accused in hostile else accused


def _differs(one: Tensor, other: Tensor) -> bool:
    # Relative and in float64; an update of length 0 tolerates no difference
    return float((one.double() - other.double()).norm()) > _OFF * float(other.double().norm())
