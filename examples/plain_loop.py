"""Federated training as a plain loop: one client after the other, one torch optimiser each, and nothing of FedGuard.

It is the twin of FedGuard's training core: slow, obvious, and equal to it (a test compares them to 1e-5). Run it to see
FedAvg on scikit-learn's digits:

    python examples/plain_loop.py
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Shard = tuple[Tensor, Tensor]
Batches = Sequence[Sequence[int]]


def get_flat(model: nn.Module) -> Tensor:
    """The parameters as one vector [d]."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def set_flat(model: nn.Module, flat: Tensor) -> None:
    """Put a vector [d] back into the parameters."""
    offset = 0
    for parameter in model.parameters():
        parameter.data = flat[offset : offset + parameter.numel()].view_as(parameter).clone()
        offset += parameter.numel()


def local_sgd(model: nn.Module, start: Tensor, shard: Shard, batches: Batches, lr: float, momentum: float) -> Tensor:
    """FedAvg's client: SGD over these batches; what it moved by, [d]."""
    set_flat(model, start)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    x, y = shard
    for batch in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[list(batch)]), y[list(batch)]).backward()
        optimizer.step()
    return get_flat(model) - start


def negative_gradient(model: nn.Module, start: Tensor, shard: Shard, batches: Batches) -> Tensor:
    """FedSGD's client: the negative gradient of its one batch, [d]."""
    set_flat(model, start)
    x, y = shard
    (batch,) = batches
    model.zero_grad()
    nn.functional.cross_entropy(model(x[list(batch)]), y[list(batch)]).backward()
    return -torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters() if parameter.grad is not None])


def federate(
    model: nn.Module,
    start: Tensor,
    shards: Sequence[Shard],
    rounds: int,
    chosen: Callable[[int], Sequence[int]],
    batches: Callable[[int, int], Batches],
    algorithm: str = "fedavg",
    lr: float = 0.1,
    momentum: float = 0.0,
    worker_momentum: float = 0.0,
    server_lr: float = 1.0,
    server_momentum: float = 0.0,
) -> list[Tensor]:
    """The global model [d] after each round of averaging.

    Args:
        chosen: the clients of a round (from 1).
        batches: the batches of one client in one round, as lists of example numbers.
    """
    global_model, velocity = start.clone(), torch.zeros_like(start)
    kept = [torch.zeros_like(start) for _ in shards]
    history = []
    for round in range(1, rounds + 1):
        updates = []
        for client in chosen(round):
            if algorithm == "fedsgd":
                update = negative_gradient(model, global_model, shards[client], batches(round, client))
            else:
                update = local_sgd(model, global_model, shards[client], batches(round, client), lr, momentum)
            if worker_momentum > 0:
                kept[client] = worker_momentum * kept[client] + (1 - worker_momentum) * update
                update = kept[client]
            updates.append(update)
        velocity = server_momentum * velocity + sum(updates) / len(updates)
        step = server_lr * lr if algorithm == "fedsgd" else server_lr
        global_model = global_model + step * velocity
        history.append(global_model)
    return history


def main() -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images, labels = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    train, test, clients = range(1437), range(1437, 1797), 20
    shards = [(images[client:1437:clients], labels[client:1437:clients]) for client in range(clients)]
    draw = random.Random(0)

    def batches(_round: int, client: int) -> Batches:
        order = draw.sample(range(len(shards[client][1])), len(shards[client][1]))
        return [order[start : start + 16] for start in range(0, len(order), 16)]

    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    for round, flat in enumerate(
        federate(model, get_flat(model), shards, 20, lambda round: range(clients), batches, momentum=0.9), start=1
    ):
        set_flat(model, flat)
        accuracy = (model(images[list(test)]).argmax(1) == labels[list(test)]).float().mean()
        print(f"round {round:2d}  {len(train)} training examples on {clients} clients  test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
