"""A trial's inference: what the server saw of the training, what it claims of the data, and how near that is to the truth.

The attack gets a view and returns a claim; only here do claim and truth meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedguard.config import Cell
from fedguard.contracts import (
    Examples,
    Inference,
    InferenceAttack,
    InferenceView,
    Labels,
    LocalPlan,
    Membership,
    Observer,
    Property,
    Reconstruction,
    RoundReport,
    Setup,
    Sight,
    Watched,
)
from fedguard.errors import ContractError, require
from fedguard.inference import inference_view
from fedguard.metrics.labels import label_score
from fedguard.metrics.membership import auc, membership
from fedguard.metrics.reconstruction import score as reconstruction_score
from fedguard.privacy.record import private_plan
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.network import Network
from fedguard.tasks.shadows import Shadows

#: Takes the pictures of one target: its name, what was claimed, and the truth.
Album = Callable[[str, Reconstruction, Examples], None]


@dataclass(frozen=True)
class Target:
    """Whose data an attack is about, and what of them it is to find.

    Attributes:
        clients: one client, or those that are hidden in one sum.
        truth: the examples that they used in the watched round, or hold.
        candidates, members: of a membership inference, whom it is asked about, and which of these were trained on.
    """

    clients: tuple[int, ...]
    truth: Examples
    candidates: Examples | None = None
    members: Tensor | None = None


class Curious:
    """The server of one trial that infers.

    Args:
        setup: of the trial; its seed decides who is attacked and who is asked about.
    """

    def __init__(self, cell: Cell, setup: Setup, task: Classification) -> None:
        assert cell.inference is not None
        self._cell, self._setup, self._task = cell, setup, task
        self._attack: InferenceAttack = cell.inference
        self._sees, self._wants = cell.verdict.inference_sees, cell.config.observer
        self._rng = setup.rng.child("inference")

    @property
    def observer(self) -> Observer | None:
        """How it touches the training."""
        if self._attack.watches == "model":
            return None
        one = self._attack.watches == "round"
        return Observer(self._wants.round if one else None, self._tampered if self._attack.active else None)

    def check(self) -> None:
        """Raise `PreconditionError` where the attack cannot work here, before anything is trained."""
        model = self._task.initial_model(self._setup.rng.child("model"))
        self._attack.check(self._made(self._targets[0], model[None], 0))
        if self._attack.goal == "property":
            held = [self._attack.holds(target.truth) for target in self._targets]
            require(
                0 < sum(held) < len(held),
                f"{self._attack.name}: expected clients with the property and others without; {sum(held)} of {len(held)} "
                "have it. Choose another property or partition.",
            )

    def inferred(self, reports: Sequence[RoundReport], model: Tensor, album: Album) -> dict[str, Any]:
        """What the attack claims, compared with the truth.

        Args:
            reports: of the whole training.
            model: float32 ``[d]``: the final model.

        Returns:
            attack, goal, server; given: what it was given; targets: the score of each; score: their means.
        """
        watched = [report.watched for report in reports if report.watched is not None]
        targets = [self._behind(target, watched) for target in self._targets]
        found: list[dict[str, Any]] = []
        given: dict[str, Any] = {}
        for number, target in enumerate(target for target in targets if target.clients and len(target.truth)):
            view = self._view(target, watched, model, number)
            given = given or self._given(view, watched, model)
            claim = self._attack.infer(view)
            found.append({"clients": list(target.clients), **self._score(claim, target, number, album)})
        return {
            "attack": str(self._attack),
            "goal": self._attack.goal,
            "server": "malicious" if self._attack.active else "curious",
            "given": given,
            "targets": found,
            "score": headline(self._attack.goal, found),
        }

    @cached_property
    def _alone(self) -> bool:
        """Whether it attacks clients one by one."""
        return Sight.EACH_UPDATE in self._sees and self._attack.watches != "model"

    @cached_property
    def _targets(self) -> list[Target]:
        """The targets as they are known before the training; who is hidden in a sum shows in the round."""
        present = self._setup.participation.choose(
            self._setup.rng.child("participation", self._wants.round), self._wants.round
        )
        clients = present if self._attack.watches == "round" else tuple(range(len(self._task.sizes)))
        chosen = [clients[i] for i in self._rng.child("victims").numpy().permutation(len(clients)).tolist()]
        if self._attack.goal != "property":
            chosen = chosen[: self._wants.victims]
        groups = [(client,) for client in chosen] if self._alone else [tuple(clients)]
        return [self._target(group, number) for number, group in enumerate(groups)]

    def _target(self, clients: tuple[int, ...], number: int) -> Target:
        truth = joined([self._used(client) for client in clients])
        if self._attack.goal != "membership":
            return Target(clients, truth)
        rng = self._rng.child("candidates", number)
        inside, outside = alike(truth, self._task.dataset.test, self._wants.candidates, rng)
        order = torch.randperm(len(inside) + len(outside), generator=rng.child("order").torch())
        return Target(clients, truth, joined([inside, outside])[order], order < len(inside))

    def _used(self, client: int) -> Examples:
        """What a client used in the watched round; all it has, where the attack looks at more than a round."""
        if self._attack.watches != "round" or self._attack.goal in ("membership", "property"):
            return self._task.examples(client)
        rng = self._setup.rng.child("round", self._wants.round)
        return self._task.examples_used(client, self._plan, rng)

    @cached_property
    def _plan(self) -> LocalPlan:
        return private_plan(self._setup)

    def _behind(self, target: Target, watched: Sequence[Watched]) -> Target:
        """The target without those whose update never left them; under masks, those in one sum alone."""
        if not watched or self._attack.watches != "round":
            return target
        (one,) = watched
        there = tuple(client for client in target.clients if client in one.clients)
        if not self._alone and there:
            row = next((row for row in one.behind if there[0] in row), ()) if self._setup.protocol.masked else there
            there = tuple(client for client in row if client in there)
        return target if there == target.clients else self._target(there, 0) if there else Target((), target.truth)

    def _view(self, target: Target, watched: Sequence[Watched], model: Tensor, number: int) -> InferenceView:
        """Of the watched rounds those from which the server has something of the target."""
        client = target.clients[0]
        seen = [
            one for one in watched if (client in one.clients if self._alone else self._hiding(one, client) is not None)
        ]
        updates = victim_first(seen, client) if seen and self._alone else None
        means = [mean for one in seen if (mean := self._hiding(one, client)) is not None]
        aggregates = torch.stack(means) if means else None
        models = [one.sent for one in seen] + [seen[-1].after if seen else model]
        return self._made(target, torch.stack(models), number, updates, aggregates)

    def _hiding(self, one: Watched, client: int) -> Tensor | None:
        """float32 ``[d]``: what the server sees that has a client's update in it; None where a round came to nothing.

        Over sums of several clients it is the first client's.
        """
        if self._cell.trusted_server:
            return one.aggregate
        if self._setup.protocol.masked:
            return next((mean for mean, row in zip(one.rows, one.behind, strict=True) if client in row), None)
        return one.updates.mean(0) if len(one.updates) else None

    def _made(
        self,
        target: Target,
        models: Tensor,
        number: int,
        updates: Tensor | None = None,
        aggregates: Tensor | None = None,
    ) -> InferenceView:
        return inference_view(
            "the server",
            self._sees,
            self._network.module,
            models=models,
            updates=updates,
            aggregates=aggregates,
            shape=self._task.shape,
            classes=self._task.classes,
            value_range=self._task.value_range,
            plan=self._plan,
            counts=[used for client in target.clients if (used := len(self._used(client)))],
            labels=target.truth.y if self._wants.labels else None,
            candidates=target.candidates,
            root=self._task.root,
            adapt=self._setup.pipeline.adapt(self._network.module),
            train=self._shadows,
            rng=self._rng.child("attack", number),
        )

    def _tampered(self, model: Tensor) -> Tensor:
        """What a malicious server sends instead of the model: one for all its victims, and with all candidates in mind."""
        asked = [target.candidates for target in self._targets if target.candidates is not None]
        first = replace(self._targets[0], candidates=joined(asked) if asked else None)
        view = self._made(first, model[None], 0)
        return self._attack.tamper(view).detach()

    @cached_property
    def _network(self) -> Network:
        """One of the same kind, which has never seen an example."""
        return Network(self._task.model, self._task.shape, self._task.classes, Rng(0))

    @cached_property
    def _shadows(self) -> Shadows:
        initial = self._task.initial_model(self._setup.rng.child("model"))
        return Shadows.like(self._network, initial, self._setup.training, self._task)

    def _given(self, view: InferenceView, watched: Sequence[Watched], model: Tensor) -> dict[str, Any]:
        """What the attack was given, for the record: without it no figure means anything."""
        sent = watched[0].sent if watched else model
        one = self._attack.watches == "round"
        return {
            "sees": self._sees.names(),
            "round": self._wants.round if one else None,
            "rounds": len(watched),
            "accuracy_of_the_model": self._task.evaluate(sent).accuracy,
            "vector": ("one client's update" if self._alone else f"the mean of {len(view.counts)} clients' updates"),
            "examples": view.count,
            "local_steps": view.steps,
            "labels": self._wants.labels,
            "candidates": len(view.candidates) if view.candidates else None,
            "transforms": [str(stage) for stage in self._setup.pipeline.transforms],
        }

    def _score(self, claim: Inference, target: Target, number: int, album: Album) -> dict[str, Any]:
        """How near a claim is to the truth."""
        goal, truth = self._attack.goal, target.truth
        if goal == "reconstruction" and isinstance(claim, Reconstruction):
            album(f"target-{number}", claim, truth)
            score = reconstruction_score(
                claim, truth.x, truth.y, value_range=self._task.value_range, reference=self._task.dataset.test
            )
            return {**score, "recovered": score["exact"] / score["images"]}
        if goal == "labels" and isinstance(claim, Labels):
            return label_score(claim, truth.y, classes=self._task.classes)
        if goal == "membership" and isinstance(claim, Membership) and target.members is not None:
            return membership(claim.scores, target.members)
        if goal == "property" and isinstance(claim, Property):
            return {"score": claim.score, "holds": self._attack.holds(truth)}
        raise ContractError(f"{self._attack.name} broke its contract: a {goal} attack returned {type(claim).__name__}.")


#: By goal, the figures that a record's ``score`` holds, and where one target has them.
HEADLINES: dict[str, dict[str, tuple[str, ...]]] = {
    "reconstruction": {
        "psnr": ("psnr", "mean"),
        "ssim": ("ssim", "mean"),
        "gain": ("gain", "mean"),
        "label_accuracy": ("label_accuracy",),
        "recovered": ("recovered",),
    },
    "labels": {"label_accuracy": ("accuracy",), "gain": ("gain",)},
    "membership": {"auc": ("auc", "value"), "tpr": ("tpr_at_1_percent", "value")},
}


def headline(goal: str, found: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean over targets of each figure; None where a target has none.

    A property is told of each client; how well, shows over all of them.
    """
    if goal == "property":
        scores = torch.tensor([one["score"] for one in found], dtype=torch.float64)
        value: float | None = auc(scores, torch.tensor([one["holds"] for one in found]))["value"]
        return {"auc": value}
    figures: dict[str, float | None] = {}
    for name, path in HEADLINES[goal].items():
        values = [at(one, path) for one in found]
        known = [value for value in values if value is not None]
        figures[name] = math.fsum(known) / len(known) if known and len(known) == len(values) else None
    return figures


def at(one: Mapping[str, Any], path: Sequence[str]) -> float | None:
    """The number at a path of a target's score; None where there is none."""
    value: Any = one
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def joined(parts: Sequence[Examples]) -> Examples:
    """All examples of several parts, in order."""
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def alike(members: Examples, others: Examples, most: int, rng: Rng) -> tuple[Examples, Examples]:
    """Members and others with the same shares of each class, at most so many of either.

    A client's labels differ from those of all examples; whoever is asked about both as they are tells them apart by the class
    alone, which is no membership. Of class c there are ``m_c = min(members, others)`` members, and ``floor(r m_c)`` others,
    with the largest r that all classes allow.
    """
    classes = sorted(set(members.y.tolist()))
    counts = {c: (int((members.y == c).sum()), int((others.y == c).sum())) for c in classes}
    kept = {c: min(both) for c, both in counts.items()}
    ratio = min((counts[c][1] / kept[c] for c in classes if kept[c]), default=0.0)

    def drawn(examples: Examples, share: Mapping[int, int], name: str) -> Examples:
        order = torch.randperm(len(examples), generator=rng.child(name).torch())
        rows = torch.cat([order[examples.y[order] == c][: share[c]] for c in classes])
        return examples[rows[torch.randperm(len(rows), generator=rng.child(name, "cut").torch())[:most]]]

    return drawn(members, kept, "in"), drawn(others, {c: int(ratio * kept[c]) for c in classes}, "out")


def victim_first(watched: Sequence[Watched], victim: int) -> Tensor:
    """float32 ``[T, n, d]``: the updates of each round, the victim's in row 0, of as many clients as each round has."""
    n = min(len(one.clients) for one in watched)
    rounds = []
    for one in watched:
        others = sorted((client, row) for row, client in enumerate(one.clients) if client != victim)
        rows = [one.clients.index(victim), *(row for _, row in others)][:n]
        rounds.append(one.updates[rows])
    return torch.stack(rounds)
