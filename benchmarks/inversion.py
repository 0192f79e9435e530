"""What restarts of an inversion cost: ten side by side, in units of one."""

from __future__ import annotations

import torch
from measure import alternate, arguments, keep
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.attacks.inference.inversion.dlg import DLG
from fedguard.attacks.inference.inversion.grad_inversion import GradInversion
from fedguard.attacks.inference.inversion.idlg import IDLG
from fedguard.attacks.inference.inversion.inverting_gradients import InvertingGradients
from fedguard.attacks.inference.inversion.local_simulation import LocalSimulation
from fedguard.contracts import InferenceView, LocalPlan, Sight
from fedguard.inference import inference_view
from fedguard.tasks.data.digits import Digits
from fedguard.tasks.network import flatten

RESTARTS = 10


def watched(module: nn.Module, count: int, plan: LocalPlan) -> InferenceView:
    """What a server sees of a client with ``count`` digits; its update is one gradient, which costs are blind to."""
    train = Digits().load().train
    loss = cross_entropy(module(train.x[:count]), train.y[:count])
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(module.parameters()))])
    model = flatten(module)
    return inference_view(
        "benchmark",
        Sight.EACH_UPDATE | Sight.MODEL,
        module,
        models=torch.stack([model, model - plan.lr * gradient]),
        updates=-plan.lr * gradient[None, None],
        shape=(1, 8, 8),
        classes=10,
        plan=plan,
        counts=(count,),
    )


def main() -> None:
    options = arguments(__doc__)
    torch.manual_seed(0)
    networks = {
        "mlp 64-32-10": nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10)),
        "two convolutions": nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Sigmoid(),
            nn.Conv2d(8, 16, 3, padding=1, stride=2),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(256, 10),
        ),
    }
    iterations = 5 if options.smoke else 50
    figures = []
    print(f"four digits, {iterations} iterations: {RESTARTS} restarts in units of one")
    for network, module in networks.items():
        for attack in (DLG, IDLG, InvertingGradients, GradInversion, LocalSimulation):
            epochs = {"epochs": 3, "batch_size": 2} if attack is LocalSimulation else {"steps": 1}
            view = watched(module, 4, LocalPlan(lr=0.1, **epochs))
            jobs = {
                str(restarts): lambda attack=attack, view=view, restarts=restarts: attack(
                    iterations=iterations, restarts=restarts
                ).infer(view)
                for restarts in (1, RESTARTS)
            }
            seconds = alternate(jobs, repeats=1 if options.smoke else 5)
            ratio = seconds[str(RESTARTS)] / seconds["1"]
            figures.append({"network": network, "attack": attack.name, "ratio": ratio, "seconds": seconds["1"]})
            print(f"{network:18} {attack.name:20} {ratio:5.2f} of {1000 * seconds['1']:.0f} ms")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
