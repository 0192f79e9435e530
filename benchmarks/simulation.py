"""Client updates per second: FedGuard's cohort beside the plain loop of examples/plain_loop.py, in alternation.

With ``--device cuda`` the cohort on the CPU beside the same one on the GPU instead.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import torch
from measure import alternate, arguments, keep

from fedguard.contracts import Examples, LocalPlan
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.compute import Compute
from fedguard.tasks.engines.conv_shapes import conv_shapes
from fedguard.tasks.network import FlatNetwork

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
    network, parts = federation(model, clients, size)
    cohort, start, out = Cohort(network, parts), network.flat.clone(), torch.empty(clients, network.dim)
    plain = load_registry().build("model", model).build((1, 28, 28), 10)
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


def federation(model: str, clients: int, size: int, device: str = "cpu") -> tuple[FlatNetwork, list[Examples]]:
    """A network, and the clients' random images."""
    draw = torch.Generator().manual_seed(0)
    parts = [
        Examples(torch.rand(size, 1, 28, 28, generator=draw), torch.randint(10, (size,), generator=draw))
        for _ in range(clients)
    ]
    return FlatNetwork(load_registry().build("model", model), (1, 28, 28), 10, Rng(0), Compute(device)), parts


def on_a_gpu(model: str, clients: int, size: int, repeats: int) -> dict[str, float]:
    """Updates per second by the wall on the CPU and on the GPU, and the ratio of the times CPU : GPU."""
    network, parts = federation(model, clients, size)
    start, out, cohorts = network.flat.clone(), torch.empty(clients, network.dim), dict[str, Cohort]()
    for name in ("cpu", "cuda"):
        cohorts[name] = Cohort(federation(model, clients, size, name)[0], parts)
    jobs = {
        name: lambda cohort=cohort: cohort.train(start, range(clients), PLAN, Rng(0), out)
        for name, cohort in cohorts.items()
    }
    wall = alternate(jobs, repeats, time.perf_counter)
    return {**{name: clients / value for name, value in wall.items()}, "CPU : GPU": wall["cpu"] / wall["cuda"]}


def multiplications(network: FlatNetwork) -> int:
    """Of one step on one example, as the plain loop does it: forward, back, and the gradient of the weights; 0 if unknown."""
    shapes, forward = conv_shapes(network.module, network.shape), list[int]()
    for layer in shapes.convolutions if shapes else ():
        rows, columns = (side + 2 * layer.padding - layer.kernel + 1 for side in layer.size)
        forward.append(rows * columns * layer.numel)
    widths = shapes.widths if shapes else network.widths or ()
    forward += [given * made for given, made in itertools.pairwise(widths)]
    if not forward:
        return 0
    return 3 * sum(forward) - forward[0]  # nothing lies below the first


def sgemm_rate(repeats: int) -> float:
    """Multiplications per second of CPU time in a product of two 1024 x 1024 matrices."""
    left, right = torch.rand(2, 1024, 1024)
    return 10 * 1024**3 / alternate({"sgemm": lambda: [left @ right for _ in range(10)]}, repeats)["sgemm"]


def compare_devices(cases: list[tuple[str, int, int]], repeats: int) -> list[dict[str, Any]]:
    """Print the CPU beside the GPU, and hand the figures on; where there is no GPU, say so."""
    if not torch.cuda.is_available():
        print("CPU : GPU is not measured: no CUDA device.")
        return []
    figures, gpu = [], Compute("cuda").name
    for model, clients, size in cases:
        found = on_a_gpu(model, clients, size, repeats)
        figures.append({"model": model, "clients": clients, "images": size, "gpu": gpu, **found})
        print(
            f"{model:12} {clients:4} x {size:3} CPU {found['cpu']:8.0f} updates/s, {gpu} {found['cuda']:8.0f}, "
            f"CPU : GPU {found['CPU : GPU']:5.1f}, by the wall",
            flush=True,
        )
    return figures


def main() -> None:
    options = arguments(__doc__, device="cuda: the ratio CPU : GPU of the same cohort instead")
    figures = []
    smoke = [(model, 2, 20) for model in ("softmax", "mlp", "lenet5", "fedavg_cnn")]
    cases, repeats = (smoke, 1) if options.smoke else (DENSE + CONVOLUTIONAL, 5)
    if options.device == "cuda":
        keep(options.json, compare_devices(cases, repeats))
        return
    for model, clients, size in cases:
        found = compare(model, clients, size, repeats)
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
