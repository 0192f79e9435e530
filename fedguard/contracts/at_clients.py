"""Evaluation where each client has a model, or running statistics, of its own: then there is no global model to evaluate."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from fedguard.contracts.tasks import Evaluation, Task, Trigger
from fedguard.errors import require


def evaluate_at_clients(
    task: Task,
    honest: Collection[int],
    model_of: Callable[[int], Tensor],
    statistics: Tensor | None,
    trained: Collection[int] = (),
) -> Evaluation:
    """The means over honest clients of what each one's model does on its own labels.

    At client i a test example of class c counts with weight $p_ic / N_c$: $p_ic$ is the share of c among the client's training
    examples and $N_c$ the number of test examples of c. This measures how a client does on its own labels, but not differences
    in how clients' inputs look. The loss weighs all test examples alike.

    Args:
        honest: the clients at which it is evaluated.
        model_of: the model of a client, float32 ``[d]``.
        statistics: of all, float32 ``[s]``, or of each client, ``[clients, s]``; None for a network without them.
        trained: the clients that have a model of their own; all others have the same one.

    Raises:
        ConfigError: each token has a label, so that clients have no shares of classes.
    """
    require(
        task.examples(0).y.dim() == 1,
        "evaluation at clients: expected one label of each example, by whose classes clients differ; each token has one. Take "
        "data with targets: last, or an algorithm with one model for all.",
    )

    def evaluate(client: int) -> Evaluation:
        own = statistics[client] if statistics is not None and statistics.dim() == 2 else statistics
        return task.evaluate(model_of(client), own)

    alike = statistics is None or statistics.dim() == 1
    waiting = [client for client in honest if client not in trained and alike]
    common = evaluate(waiting[0]) if waiting else None
    found = [common if common is not None and client in waiting else evaluate(client) for client in honest]
    counts = torch.stack(
        [torch.bincount(task.examples(client).y, minlength=task.classes) for client in honest]
    ).double()
    shares = counts / counts.sum(1, keepdim=True)
    by_class = torch.tensor([one.class_accuracy for one in found], dtype=torch.float64)
    shares = shares * by_class.isfinite()  # no test example of a class: it counts nowhere
    right = shares * by_class.nan_to_num()
    accuracy = right.sum(1) / shares.sum(1)
    accuracy = accuracy[accuracy.isfinite()]
    return Evaluation(
        loss=sum(one.loss for one in found) / len(found),
        accuracy=float(accuracy.mean()),
        class_accuracy=tuple((right.sum(0) / shares.sum(0)).tolist()),
        elsewhere=sum(one.accuracy for one in found) / len(found),
        worst=float(accuracy.min()),
    )


def backdoor_success(
    task: Task, honest: Collection[int], model: Tensor, backdoor: tuple[Trigger, int], statistics: Tensor | None
) -> float:
    """`Task.backdoor_success`; the mean over honest clients, if each has statistics of its own (``[clients, s]``)."""
    own = [statistics]
    if statistics is not None and statistics.dim() == 2:
        own = [statistics[client] for client in honest]
    return sum(task.backdoor_success(model, *backdoor, one) for one in own) / len(own)
