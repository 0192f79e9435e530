"""Client updates per second: FedGuard's cohort beside the plain loop of examples/plain_loop.py, in alternation."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from measure import alternate, arguments, keep

from fedguard.contracts import Examples, LocalPlan
from fedguard.registry import registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.network import Network

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from plain_loop import local_sgd

#: Model -> number of clients, each with `SIZE` images of 28 x 28.
MODELS = {"softmax": 50, "mlp": 50, "lenet5": 10, "fedavg_cnn": 4}
SIZE = 200
PLAN = LocalPlan(lr=0.05, batch_size=20, epochs=1)


def compare(model: str, clients: int, size: int, repeats: int) -> dict[str, float]:
    """Updates per second of both, and their ratio."""
    draw = torch.Generator().manual_seed(0)
    parts = [
        Examples(torch.rand(size, 1, 28, 28, generator=draw), torch.randint(10, (size,), generator=draw))
        for _ in range(clients)
    ]
    network = Network(registry().build("model", model), (1, 28, 28), 10, Rng(0))
    cohort, start, out = Cohort(network, parts), network.flat.clone(), torch.empty(clients, network.dim)
    plain = registry().build("model", model).build((1, 28, 28), 10)
    batches = [schedule(PLAN, size, Rng(0).child("client", client).numpy()).tolist() for client in range(clients)]

    def loop() -> None:
        for part, own in zip(parts, batches, strict=True):
            local_sgd(plain, start, (part.x, part.y), own, PLAN.lr, 0.0)

    seconds = alternate(
        {"cohort": lambda: cohort.train(start, range(clients), PLAN, Rng(0), out), "plain loop": loop}, repeats
    )
    rates = {name: clients / value for name, value in seconds.items()}
    return {**rates, "ratio": rates["cohort"] / rates["plain loop"]}


def main() -> None:
    options = arguments(__doc__)
    figures = []
    for model, clients in MODELS.items():
        found = compare(model, 2, 20, 1) if options.smoke else compare(model, clients, SIZE, 3)
        figures.append({"model": model, **found})
        print(
            f"{model:12} {found['cohort']:8.0f} updates/s, plain loop {found['plain loop']:8.0f}, "
            f"ratio {found['ratio']:5.1f}"
        )
    keep(options.json, figures)


if __name__ == "__main__":
    main()
