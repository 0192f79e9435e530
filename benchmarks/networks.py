"""What a round of local training costs with networks that people bring, in units of a plain loop over the same batches."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from measure import alternate, arguments, keep
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.adapters.factors import Factors
from fedguard.adapters.model import AdaptedModel
from fedguard.contracts import Examples, LocalPlan, LocalStatistics, Model
from fedguard.contracts.tasks import Tokens, select_trained
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.network import FlatNetwork
from fedguard.tasks.statistics import join_single

PLAN = LocalPlan(lr=0.05, batch_size=16, epochs=1)
WORDS, LENGTH = 78, 32


def loop(network: FlatNetwork, parts: list[Examples], start: Tensor, out: Tensor) -> None:
    """The updates of all clients by torch's own SGD, one client after the other."""
    for client, (part, row) in enumerate(zip(parts, out, strict=True)):
        module = copy.deepcopy(network.module).train()
        trained = list(select_trained(module).values())
        nn.utils.vector_to_parameters(start.clone(), trained)
        sgd = torch.optim.SGD(trained, lr=PLAN.lr)
        batches = schedule(PLAN, len(part), Rng(1).child("client", client).numpy())
        for batch in join_single(batches, network.name) if network.couples else batches:
            rows = torch.from_numpy(batch[batch >= 0])
            sgd.zero_grad()
            cross_entropy(module(part.x[rows]), part.y[rows]).backward()
            sgd.step()
        row.copy_(nn.utils.parameters_to_vector(trained).detach() - start)


def cohort(network: FlatNetwork, parts: list[Examples], start: Tensor, out: Tensor) -> Callable[[], object]:
    """The same by FedGuard, with running statistics if the network has any."""
    trained, clients = Cohort(network, parts), list(range(len(parts)))
    layout = network.statistics
    statistics = LocalStatistics(layout.initial, torch.empty(len(parts), layout.size)) if layout.size else None
    return lambda: trained.train(start, clients, PLAN, Rng(1), out, statistics)


def main() -> None:
    options = arguments(__doc__)
    clients, examples = (2, 20) if options.smoke else (5, 80)
    known, draw = load_registry(), torch.Generator().manual_seed(0)
    images: dict[str, Model] = {
        "lenet5": known.build("model", "lenet5"),
        "fedavg_cnn": known.build("model", "fedavg_cnn"),
        "resnet8, BatchNorm": known.build("model", {"name": "resnet8", "norm": "batch"}),
        "resnet8, GroupNorm": known.build("model", "resnet8"),
    }
    encoder = known.build("model", {"name": "transformer", "width": 64, "layers": 2})
    scenes = {name: (FlatNetwork(model, (1, 28, 28), 10, Rng(0)), None) for name, model in images.items()}
    adapted = FlatNetwork(
        AdaptedModel(model=encoder, form=Factors(rank=8)), (LENGTH,), WORDS, Rng(0), tokens=Tokens(WORDS)
    )
    scenes["transformer, adapters"] = (adapted, Tokens(WORDS))
    figures = []
    for name, (network, tokens) in scenes.items():
        shape = (clients, examples, *network.shape)
        x = torch.rand(shape, generator=draw) if tokens is None else torch.randint(1, WORDS, shape, generator=draw)
        y = torch.randint(network.classes, (clients, examples), generator=draw)
        parts = [Examples(*pair) for pair in zip(x.float(), y, strict=True)]
        start, ours, theirs = network.flat.clone(), torch.empty(clients, network.dim), torch.empty(clients, network.dim)
        jobs = {"cohort": cohort(network, parts, start, ours), "loop": lambda: loop(network, parts, start, theirs)}  # noqa: B023
        seconds = alternate(jobs, repeats=1 if options.smoke else 7, warm_ups=2)
        away = float((ours - theirs).norm() / theirs.norm())
        row = {"network": name, "d": network.dim, "clients": clients, "examples": examples}
        figures.append(row | {"ratio": seconds["cohort"] / seconds["loop"], "seconds": seconds["cohort"], "away": away})
        ratio = figures[-1]["ratio"]
        print(f"{name:24} d = {network.dim:9,} {ratio:5.2f} of {seconds['loop']:.2f} s, off by {away:.0e}")
        if not away < 1e-4:
            raise SystemExit(f"{name}: the loop's updates are others, off by {away:.0e}; expected less than 1e-4.")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
