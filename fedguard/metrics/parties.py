"""Parties with different tasks, each with its own score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Count, Share

if TYPE_CHECKING:
    from torch import Tensor


class Parties(TypedDict):
    """Parties with tasks of their own; see `fedguard.metrics.parties`.

    Attributes:
        classes: of each party.
        accuracy: of each party on its own classes; null without test examples of them.
        worst: the lowest of these.
    """

    classes: list[list[Count]]
    accuracy: list[Share | None]
    worst: Share | None


def parties(
    label_sets: Sequence[Sequence[int]], class_accuracy: Sequence[float | None], test_labels: Tensor
) -> Parties:
    """The accuracy of each party on the test examples of its classes, $sum_c n_c a_c / (sum_c n_c)$.

    Args:
        label_sets: by party, its classes.
        class_accuracy: final, in [0, 1]; None for a class without test examples. If clients have their own models, it is a mean
            over the clients with the class, and so over the party's clients.
        test_labels: int64 ``[N]``, of which class c has n_c.
    """
    counts = test_labels.bincount(minlength=len(class_accuracy)).tolist()
    found = [_of(own, class_accuracy, counts) for own in label_sets]
    known = [accuracy for accuracy in found if accuracy is not None]
    return {"classes": [list(own) for own in label_sets], "accuracy": found, "worst": min(known, default=None)}


def _of(own: Sequence[int], class_accuracy: Sequence[float | None], counts: Sequence[int]) -> float | None:
    right = [(counts[label], accuracy) for label in own if (accuracy := class_accuracy[label]) is not None]
    total = sum(count for count, _ in right)
    return math.fsum(count * accuracy for count, accuracy in right) / total if total else None
