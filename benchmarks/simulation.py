"""Client updates per second: FedGuard's cohort beside the plain loop of examples/plain_loop.py, in alternation."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import torch
from measure import alternate, arguments, keep

from fedguard.contracts import Examples, LocalPlan
from fedguard.registry import registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.engines.conv_shapes import conv_shapes
from fedguard.tasks.network import Network

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from plain_loop import local_sgd

#: Model, number of clients, and images of 28 x 28 that each has.
DENSE = [
    (model, *sizes)
    for model in ("softmax", "mlp")
    for sizes in ((50, 200), (50, 100), (10, 200), (200, 100), (10, 600))
]
CONVOLUTIONAL = [("lenet5", 10, 200), ("lenet5", 50, 200), ("fedavg_cnn", 4, 200), ("fedavg_cnn", 10, 200)]
PLAN = LocalPlan(lr=0.05, batch_size=20, epochs=1)


def compare(model: str, clients: int, size: int, repeats: int) -> dict[str, float]:
    """Updates per second of CPU time of both, their ratio, and the ratio by the clock on the wall."""
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

    jobs = {"cohort": lambda: cohort.train(start, range(clients), PLAN, Rng(0), out), "plain loop": loop}
    seconds, wall = alternate(jobs, repeats), alternate(jobs, repeats, time.perf_counter)
    rates = {name: clients / value for name, value in seconds.items()}
    figures = {
        **rates,
        "ratio": rates["cohort"] / rates["plain loop"],
        "wall ratio": wall["plain loop"] / wall["cohort"],
    }
    if work := multiplications(network):
        figures["share of sgemm"] = rates["cohort"] * size * work / sgemm_rate(repeats)
    return figures


def multiplications(network: Network) -> int:
    """Of one step on one example of a convolutional network: forward, back, and the gradient of the weights; else 0."""
    shapes = conv_shapes(network.module, network.shape)
    if shapes is None:
        return 0
    forward = []
    for layer in shapes.convolutions:
        rows, columns = (side + 2 * layer.padding - layer.kernel + 1 for side in layer.size)
        forward.append(rows * columns * layer.numel)
    forward += [given * made for given, made in itertools.pairwise(shapes.widths)]
    return 3 * sum(forward) - forward[0]  # nothing lies below the first


def sgemm_rate(repeats: int) -> float:
    """Multiplications per second of CPU time in a product of two 1024 x 1024 matrices."""
    left, right = torch.rand(2, 1024, 1024)
    return 10 * 1024**3 / alternate({"sgemm": lambda: [left @ right for _ in range(10)]}, repeats)["sgemm"]


def main() -> None:
    options = arguments(__doc__)
    figures = []
    smoke = [(model, 2, 20) for model in ("softmax", "mlp", "lenet5", "fedavg_cnn")]
    for model, clients, size in smoke if options.smoke else DENSE + CONVOLUTIONAL:
        found = compare(model, clients, size, 1 if options.smoke else 5)
        figures.append({"model": model, "clients": clients, "images": size, **found})
        print(
            f"{model:12} {clients:4} x {size:3} {found['cohort']:8.0f} updates/s, plain loop {found['plain loop']:8.0f}, "
            f"ratio {found['ratio']:5.1f}, by the wall {found['wall ratio']:5.1f}"
            + (f", {found['share of sgemm']:.0%} of sgemm" if "share of sgemm" in found else ""),
            flush=True,
        )
    keep(options.json, figures)


if __name__ == "__main__":
    main()
