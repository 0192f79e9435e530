"""Honest minorities: whether rules exclude the only clients with a class, and whether the class is learned."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Count, Share

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport, Task

#: Largest number of minorities in a record
MOST = 200


class Minority(TypedDict):
    """An honest client with rare classes.

    Attributes:
        client: its number.
        classes: its rare classes.
        excluded: share of its rounds in which it was excluded.
        accuracy: accuracy on these classes.
    """

    client: Count
    classes: list[Count]
    excluded: Share | None
    accuracy: Share | None


def minorities(
    task: Task, reports: Sequence[RoundReport], malicious: Collection[int], class_accuracy: Sequence[float | None]
) -> list[Minority]:
    """Each honest client that holds a class which fewer than a quarter of all clients hold.

    A client holds a class if it has at least one example of it. Clients that are malicious or faulty in this training are never
    among the results, whether or not they act, though they count as holders of their classes.

    Args:
        task: with the original data, before any client tampered with them.
        malicious: the malicious clients of the training.
        class_accuracy: the final accuracy on each class; None for a class without test examples.

    Returns:
        each such client, in the order of their numbers; if there are more than `MOST`, those most often excluded.
    """
    import torch

    n = len(task.sizes)
    labels = [task.examples(client).y.cpu() for client in range(n)]
    if labels[0].dim() > 1:  # of tokens, none of which is a class
        return []
    holders = torch.arange(n).repeat_interleave(torch.tensor(list(map(len, labels))))
    held = torch.zeros(n, task.classes, dtype=torch.bool)
    held[holders, torch.cat(labels)] = True
    rare = held & (held.sum(0) < n / 4)
    candidates = [client for client in rare.any(1).nonzero()[:, 0].tolist() if client not in malicious]
    excluded = _exclusion_rates(reports)
    if len(candidates) > MOST:
        candidates = sorted(sorted(candidates, key=lambda client: -excluded.get(client, -1.0))[:MOST])
    found: list[Minority] = []
    for client in candidates:
        classes = rare[client].nonzero()[:, 0].tolist()
        accuracy = _mean([class_accuracy[label] for label in classes])
        found.append({"client": client, "classes": classes, "excluded": excluded.get(client), "accuracy": accuracy})
    return found


def _exclusion_rates(reports: Sequence[RoundReport]) -> dict[int, float]:
    """By client, the share of the rounds with a judged update of this client in which the update got no weight."""
    judged: Counter[int] = Counter()
    out: Counter[int] = Counter()
    for report in reports:
        if report.excluded is not None:
            here = set(report.clients).difference(report.not_finite)
            judged.update(here)
            out.update(here.intersection(report.excluded))
    return {client: out[client] / rounds for client, rounds in judged.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
