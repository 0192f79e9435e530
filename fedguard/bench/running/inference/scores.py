"""Claims compared with the truth: the score of each target, and the metrics of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedguard.bench.running.inference.targets import InferenceTarget
from fedguard.contracts import (
    Examples,
    Inference,
    InferenceAttack,
    Labels,
    Membership,
    Property,
    Reconstruction,
)
from fedguard.contracts.inference import RecoveredText
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ContractError
from fedguard.metrics.figures import number_at
from fedguard.metrics.labels import label_score
from fedguard.metrics.membership import auc, membership, pool_membership
from fedguard.metrics.reconstruction import score as reconstruction_score
from fedguard.metrics.texts import text_score

#: By goal, the figures that a record's ``score`` holds, and where one target has them.
HEADLINES: dict[str, dict[str, tuple[str, ...]]] = {
    "reconstruction": {
        "psnr": ("psnr", "mean"),
        "ssim": ("ssim", "mean"),
        "gain": ("gain", "mean"),
        "label_accuracy": ("label_accuracy",),
        "recovered": ("recovered",),
        "revealed": ("revealed_share",),
    },
    "labels": {"label_accuracy": ("accuracy",), "gain": ("gain",)},
    "membership": {"auc": ("auc", "value")},
    "text": {name: (name,) for name in ("recall", "precision", "gain", "rouge_l", "rank")},
}


def score_claim(
    attack: InferenceAttack,
    claim: Inference,
    target: InferenceTarget,
    *,
    count: int,
    classes: int,
    value_range: tuple[float, float],
    reference: Examples,
    tokens: Tokens | None = None,
) -> dict[str, Any]:
    """The score of a claim against the truth.

    Args:
        count: number of examples given to the attack, and so the most that it may claim, even if the number is too large.
        reference: examples other than the truth, for the mean baselines.
        tokens: of what inputs consist that are texts.

    Raises:
        ContractError: a claim of another kind than the attack's goal.
    """
    goal, truth = attack.goal, target.truth
    if goal == "reconstruction" and isinstance(claim, Reconstruction):
        x, y = (truth.x.mean(0, keepdim=True), None) if claim.mean else (truth.x, truth.y)
        most = 1 if claim.mean else count
        found = reconstruction_score(claim, x, y, value_range=value_range, reference=reference, most=most)
        shares = {"recovered": found["exact"] / found["images"], "revealed_share": found["revealed"] / found["images"]}
        return {**found, **shares}
    if goal == "labels" and isinstance(claim, Labels):
        return label_score(claim, truth.y, classes=classes, most=count)
    if goal == "membership" and isinstance(claim, Membership) and target.members is not None:
        return membership(claim.scores, target.members)
    if goal == "text" and isinstance(claim, RecoveredText) and tokens is not None:
        return text_score(claim, truth.x, tokens, reference.x, most=count)
    if goal == "property" and isinstance(claim, Property):
        return {"score": claim.score, "holds": attack.holds(truth)}
    raise ContractError(f"{attack.name} broke its contract: a {goal} attack returned {type(claim).__name__}.")


def headline(goal: str, found: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean over targets of each metric; None if a target lacks it.

    A property is inferred for each client, so its score is taken over all clients. The rate of members found at few false
    alarms is taken over all candidates together.
    """
    if goal == "property":
        scores = torch.tensor([one["score"] for one in found], dtype=torch.float64)
        holds = torch.tensor([one["holds"] for one in found], dtype=torch.bool)
        return {"auc": auc(scores, holds)["value"]}
    figures: dict[str, float | None] = {}
    for name, path in HEADLINES[goal].items():
        values = [number_at(one, path) for one in found]
        known = [value for value in values if value is not None]
        figures[name] = math.fsum(known) / len(known) if known and len(known) == len(values) else None
    if goal == "membership":
        together = pool_membership(found)
        figures["tpr"] = together["tpr_at_1_percent"]["value"]
        figures["tpr_01"] = together["tpr_at_01_percent"]["value"]
    return figures
