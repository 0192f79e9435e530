"""A job of torch with a lying site and a rule for good, as a recipe of NVFlare exports it; and the same training by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tests.nvflare.trained import DATA

NETWORK = """
import torch


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
"""
SITE = """
import nvflare.client as flare
import torch
from client import accuracy, load
from network import Net

flare.init()
(x, y), (test_x, test_y) = load(int(flare.get_site_name().split("-")[1]) - 1)
x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
test_x, test_y = torch.tensor(test_x, dtype=torch.float32), torch.tensor(test_y)
while flare.is_running():
    received = flare.receive()
    net = Net()
    net.load_state_dict(received.params)
    right = float((net(test_x).argmax(1) == test_y).float().mean())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    flare.send(
        flare.FLModel(params=net.state_dict(), metrics={"accuracy": right}, meta={"NUM_STEPS_CURRENT_ROUND": len(x)})
    )
"""


def exported(folder: Path) -> Path:
    """The folder of the job: the site with half of the examples reverses its update, and the server takes the median."""
    import os
    import sys

    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

    from fedguard.bridges.nvflare.aggregator import FedGuardAggregator
    from fedguard.bridges.nvflare.lying import LyingFilter
    from tests.nvflare.trained import JOB

    source = folder / "source"
    source.mkdir()
    (source / "network.py").write_text(NETWORK)
    (source / "site.py").write_text(SITE)
    (source / "client.py").write_text((JOB / "app" / "custom" / "client.py").read_text())
    before = Path.cwd()
    os.chdir(source)
    sys.path.insert(0, str(source))
    try:
        from network import Net

        recipe = FedAvgRecipe(
            name="torch_digits",
            model=Net(),
            min_clients=6,
            num_rounds=2,
            train_script="site.py",
            aggregator=FedGuardAggregator(defense="median", f=1),
        )
        recipe.add_client_input_filter(LyingFilter("sign_flip", sites=["site-1"]), tasks=["train"])
        recipe.add_client_output_filter(LyingFilter("sign_flip", sites=["site-1"]), tasks=["train"])
        recipe.export(str(folder / "exported"))
    finally:
        os.chdir(before)
        sys.path.remove(str(source))
    return folder / "exported" / "torch_digits"


def trained(first: dict[str, np.ndarray], rounds: int) -> dict[str, np.ndarray]:
    """By plain torch: the model after rounds in which the server takes the median of what sites send."""
    model = {name: torch.tensor(value) for name, value in first.items()}
    for _ in range(rounds):
        sent = []
        for x, y in DATA:
            inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
            weight, bias = (model[name].clone().requires_grad_() for name in ("weight", "bias"))
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy(inputs @ weight.T + bias, labels)
                for one, slope in zip((weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True):
                    one.data -= 0.5 * slope
            sent.append({"weight": weight.detach(), "bias": bias.detach()})
        sent[0] = {name: 2 * model[name] - sent[0][name] for name in model}
        model = {name: middle(torch.stack([one[name] for one in sent])) for name in model}
    return {name: value.numpy() for name, value in model.items()}


def middle(rows: torch.Tensor) -> torch.Tensor:
    """The mean of the two middle values of six."""
    return rows.sort(0).values[2:4].mean(0)
