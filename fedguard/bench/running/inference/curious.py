"""The privacy adversary of one trial, a server or nodes: its view of the watched rounds, and its claims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedguard.bench.running.inference.adversary_nodes import AdversaryNodes, where_known
from fedguard.bench.running.inference.scores import headline, score_claim
from fedguard.bench.running.inference.targets import InferenceTarget, InferenceTargets, join_examples
from fedguard.config import PlannedCell
from fedguard.contracts import (
    Examples,
    InferenceAttack,
    InferenceView,
    LocalPlan,
    Observer,
    Reconstruction,
    RoundObservation,
    Setup,
    Sight,
)
from fedguard.errors import PreconditionError
from fedguard.inference import inference_view
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.network import FlatNetwork
from fedguard.tasks.shadows import Shadows

#: Takes the pictures of one target: its name, what was claimed, and the truth.
Album = Callable[[str, Reconstruction, Examples], None]


class PrivacyAdversary:
    """The privacy adversary of one trial: the server, or nodes.

    Args:
        setup: setup of the trial; its seed determines victims and candidates.
    """

    def __init__(self, cell: PlannedCell, setup: Setup, task: Classification) -> None:
        assert cell.inference is not None
        self._cell, self._setup, self._task = cell, setup, task
        self._attack: InferenceAttack = cell.inference
        self._sees, self._wants = cell.verdict.inference_sees, cell.config.observer
        self._rng = setup.rng.child("inference")
        self._seat = AdversaryNodes(cell, setup) if cell.lookers else None
        if self._seat is not None:
            self._sees = self._seat.sees
        self._alone = Sight.EACH_UPDATE in self._sees and self._attack.watches != "model"
        shares = self._seat.shares if self._seat else None
        self._targets = InferenceTargets(
            self._attack, self._alone, self._wants, setup, task, self._rng, cell.architecture, shares
        )

    @property
    def observer(self) -> Observer | None:
        """How it touches the training."""
        if self._seat is not None:
            return self._seat.observer
        if self._attack.watches == "model":
            return None
        one = self._attack.watches == "round"
        return Observer(self._wants.round if one else None, self._tamper_model if self._attack.active else None)

    @property
    def plan(self) -> LocalPlan:
        """The local training of a client that the adversary assumes for a round."""
        return self._targets.plan

    def check(self) -> None:
        """Raise `PreconditionError` where the attack cannot work here, before anything is trained."""
        targets = self._targets.planned
        if not targets and self._seat is not None:
            raise PreconditionError(self._seat.nothing)
        if not targets:
            raise PreconditionError(
                f"{self._attack.name}: expected clients in round {self._wants.round}; nobody takes part in it. Choose another "
                "observer.round."
            )
        model = self._task.initial_model(self._setup.rng.child("model"))
        self._attack.check(self._build_view(targets[0], model[None], 0))
        if self._attack.goal == "property":
            held = [self._attack.holds(target.truth) for target in targets]
            if not 0 < sum(held) < len(held):
                raise PreconditionError(
                    f"{self._attack.name}: expected clients with the property and others without; {sum(held)} of {len(held)} "
                    "have it. Choose another property or partition."
                )

    def run_attack(self, every: Sequence[RoundObservation], model: Tensor, album: Album) -> dict[str, Any]:
        """What the attack claims, compared with the truth.

        Args:
            every: the watched rounds.
            model: float32 ``[d]``: the final model.

        Returns:
            attack, goal, server; given: what it was given; targets: the score of each that the server saw anything of;
            score: their means.
        """
        if self._seat is not None and every:
            model = every[-1].after
        found: list[dict[str, Any]] = []
        given: dict[str, Any] | None = None
        for number, planned in enumerate(self._targets.planned):
            watched = every if self._seat is None else self._seat.select_rounds(every, planned.clients)
            target, rounds = self._select_rounds(planned, watched)
            if not len(target.truth) or (not rounds and self._attack.watches != "model"):
                continue
            if not rounds and self._attack.watches != "model":
                continue
            view = self._view(target, rounds, model, number)
            given = given or self._describe_inputs(view, rounds, model)
            claim = self._attack.infer(view)
            score = score_claim(
                self._attack,
                claim,
                target,
                count=view.count,
                classes=self._task.classes,
                value_range=self._task.value_range,
                reference=self._task.dataset.test,
                tokens=self._task.dataset.tokens,
            )
            if isinstance(claim, Reconstruction):
                album(f"target-{number}", claim, target.truth)
            found.append({"clients": list(target.clients), **score})
        return {
            "attack": str(self._attack),
            "goal": self._attack.goal,
            "server": "malicious" if self._attack.active else "curious",
            **({"seat": self._seat.describe_nodes()} if self._seat else {}),
            "given": given,
            "targets": found,
            "score": headline(self._attack.goal, found),
        }

    def _select_rounds(
        self, planned: InferenceTarget, watched: Sequence[RoundObservation]
    ) -> tuple[InferenceTarget, list[RoundObservation]]:
        """The target as the adversary meets it, and the rounds, or aggregates, with any vector of its clients."""
        if self._attack.watches != "round":
            return planned, [one for one in watched if self._has(one, planned.clients)]
        for one in watched:
            target = self._targets.restrict_target(planned, one)
            if target is not None and self._has(one, target.clients):
                return target, [one]
        return planned, []

    def _has(self, one: RoundObservation, clients: Collection[int]) -> bool:
        """Whether the adversary has any vector of these clients from a round."""
        if self._alone:
            return bool(set(clients) & set(one.sent.senders))
        return self._hiding(one, clients) is not None

    def _hiding(self, one: RoundObservation, clients: Collection[int]) -> Tensor | None:
        """float32 ``[d]``: the mean over all sums that contain these clients' updates; None if there is none."""
        if self._cell.trusted_server:
            return one.aggregate
        if self._seat is not None:
            return one.rows[0]
        rows = [row for row, behind in enumerate(one.behind) if set(behind) & set(clients)]
        sizes = torch.tensor([float(len(one.behind[row])) for row in rows])
        return sizes @ one.rows[rows] / sizes.sum() if rows else None

    def _view(
        self, target: InferenceTarget, rounds: Sequence[RoundObservation], model: Tensor, number: int
    ) -> InferenceView:
        """The attack's view of these rounds; the factor of the workers' momentum is undone as if each update was the first."""
        updates = aggregates = None
        sent = [one.sent.model for one in rounds]
        if rounds and self._alone:
            seen = list(self._updates_of(target.clients[0], rounds))
            n = min(len(one.sent.senders) for one in rounds)
            updates = torch.stack([rows[:n] for rows, _, _ in seen])
            aggregates = torch.stack([mean for _, mean, _ in seen])
            sent = [start for _, _, start in seen]
        elif means := [mean for one in rounds if (mean := self._hiding(one, target.clients)) is not None]:
            aggregates = torch.stack(means)
        models = [*sent, rounds[-1].after if rounds else model]
        victim = target.clients[0]
        known = [
            torch.stack([one.statistics, one.sent.statistics[victim]])
            for one in (rounds if self._alone else ())
            if one.statistics is not None and victim in one.sent.statistics
        ]
        fresh = 1 / (1 - self._setup.cell.training.worker_momentum)
        return self._build_view(
            target,
            torch.stack(models),
            number,
            None if updates is None else fresh * updates,
            None if aggregates is None else fresh * aggregates,
            torch.stack(known) if known and len(known) == len(rounds) else None,
        )

    def _updates_of(self, victim: int, rounds: Sequence[RoundObservation]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each update of the victim, the aggregate in which it arrived.

        An aggregate in simulated time may hold several updates of a client; an attack on one round observes the first.

        Yields:
            float32 ``[n, d]``, the updates as they were sent, the victim's in row 0; ``[d]``, their mean; ``[d]``, the model
            that the victim trained from.
        """
        for one in rounds:
            own = [row for row, client in enumerate(one.sent.senders) if client == victim]
            if self._attack.watches == "round" and (first := self._targets.find_row(one, victim)) is not None:
                own = [first]
            order = sorted(range(len(one.sent.senders)), key=lambda row: one.sent.senders[row])
            sent = self._cell.architecture.unscale_updates(one)
            for row in own:
                start = one.sent.trainings[row].start if one.sent.trainings else None
                rows = sent[[row, *(other for other in order if other != row)]]
                yield rows, sent.mean(0), one.sent.model if start is None else start

    def _build_view(
        self,
        target: InferenceTarget,
        models: Tensor,
        number: int,
        updates: Tensor | None = None,
        aggregates: Tensor | None = None,
        statistics: Tensor | None = None,
    ) -> InferenceView:
        known = self._seat.known.get(target.clients) if self._seat else None
        return inference_view(
            self._seat.party if self._seat else "the server",
            self._sees,
            self._network.module,
            models=models,
            updates=updates,
            aggregates=aggregates,
            statistics=statistics,
            shape=self._task.shape,
            classes=self._task.classes,
            value_range=self._task.value_range,
            plan=self._targets.plan,
            counts=self._targets.counts(target, self._cell.trusted_server),
            labels=target.truth.y if self._wants.labels else None,
            candidates=target.candidates,
            noise=self._noise,
            root=self._seat.examples(self._task) if self._seat else self._task.root,
            adapt=where_known(self._setup.cell.pipeline.adapt(self._network.module), known),
            train=self._shadows,
            rng=self._rng.child("attack", number),
        )

    @property
    def _noise(self) -> float:
        """The noise in the view; the factor of the workers' momentum is undone here, too."""
        if self._seat is not None or (self._alone and not self._cell.trusted_server):
            return 0.0  # noise of a mean is in no single update, and what nodes solve for is theirs to know
        return self._noise_of_mean / (1 - self._setup.cell.training.worker_momentum)

    @property
    def _noise_of_mean(self) -> float:
        """Standard deviation of the noise in each coordinate of a round's mean: public, so shadow models know it too."""
        cell = self._setup.cell
        return cell.noise.of_mean(cell, self._task.dim)

    def _tamper_model(self, model: Tensor) -> Tensor:
        """The model that a malicious server sends instead: one for all its victims, made with all candidates."""
        targets = self._targets.planned
        if not targets:
            return model
        asked = [target.candidates for target in targets if target.candidates is not None]
        first = replace(targets[0], candidates=join_examples(asked) if asked else None)
        return self._attack.tamper(self._build_view(first, model[None], 0)).detach()

    @cached_property
    def _network(self) -> FlatNetwork:
        """One of the same kind, which has never seen an example."""
        task = self._task
        return FlatNetwork(
            task.model, task.shape, task.classes, Rng(0), task.network.compute, tokens=task.dataset.tokens
        )

    @cached_property
    def _shadows(self) -> Shadows:
        initial = self._task.initial_model(self._setup.rng.child("model"))
        return Shadows.like(self._network, initial, self._setup, self._noise_of_mean)

    def _describe_inputs(
        self, view: InferenceView, rounds: Sequence[RoundObservation], model: Tensor
    ) -> dict[str, Any]:
        """The knowledge given to the attack, for the record: without it, its scores cannot be interpreted."""
        sent = rounds[0].sent.model if rounds else model
        return {
            "sees": self._sees.names(),
            "round": self._wants.round if self._attack.watches == "round" else None,
            "rounds": len(rounds),
            "accuracy_of_the_model": self._task.evaluate(sent).accuracy,
            "vector": self._vector(view),
            "examples": view.count,
            "local_steps": view.steps,
            "labels": self._wants.labels,
            "candidates": len(view.candidates) if view.candidates else None,
            "transforms": [str(stage) for stage in self._setup.cell.pipeline.transforms],
            "worker_momentum": self._setup.cell.training.worker_momentum,
        }

    def _vector(self, view: InferenceView) -> str:
        if self._attack.watches == "model":
            return "the final model alone"
        if self._alone:
            return "one client's update"
        if self._seat is not None:
            return self._seat.vector
        if self._cell.trusted_server:
            return "the noisy step of the published model"
        return f"the mean of {len(view.counts)} clients' updates"
