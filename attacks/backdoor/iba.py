"""IBA (Nguyen et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedguard.attacks.backdoor.base import Planting, check_target, drawn
from fedguard.attacks.backdoor.neurotoxin import spared, sparing
from fedguard.contracts import (
    DataView,
    LocalPlan,
    PoisonView,
    PositiveFloat,
    PositiveInt,
    ProperFraction,
    Share,
    Sight,
    State,
    Trigger,
)
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True, eq=False)
class GeneratedNoise(Trigger):
    """A change of each input, made for it by a small network, that is at most ``epsilon`` in each value.

    x' = clip(x + epsilon * (high - low) * tanh(W_2 relu(W_1 x + b_1) + b_2)).

    Args:
        generator: float32, W_1 ``[hidden, p]``, b_1, W_2 ``[p, hidden]`` and b_2 in one, for inputs of p values.
        hidden: width of its one hidden layer.
        epsilon: bound on the change, as a share of the range of values.
    """

    name = "generated_noise"

    generator: Tensor
    hidden: int
    epsilon: float

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        low, high = value_range
        flat = x.flatten(1)
        p = flat.shape[1]
        w1, b1, w2, b2 = torch.split(self.generator.to(x.dtype), [self.hidden * p, self.hidden, p * self.hidden, p])
        noise: Tensor = ((flat @ w1.view(-1, p).T + b1).relu() @ w2.view(p, -1).T + b2).tanh()
        return (x + self.epsilon * (high - low) * noise.view_as(x)).clamp(low, high)


@dataclass(frozen=True, kw_only=True)
class IBA(Planting):
    """Makes a faint trigger for each input with a generator, fits that to the model, and spares the busy parameters.

    Before each round the generator g minimises $L(x + g(x), target)$ under the global model, with $|g(x)| <= epsilon$ in
    each value, going on from the round before. Then each malicious client trains on partly triggered data, where the
    parameters that the last aggregate moved most stay as they are, and sends what comes out. The source's generator is an
    autoencoder of convolutions, here one hidden layer, for inputs of any shape; it tells busy parameters from a longer
    history.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        epsilon: bound on the change of a value, as a share of the range of values.
        hidden: width of the generator's hidden layer.
        batch: number of examples the generator is fitted to, drawn anew in each round from all malicious clients.
        steps, lr: Adam steps on the generator in each round, and their step size.
        top: share of the parameters that count as busy; left open here as in `neurotoxin`.
    """

    name = "iba"
    source = "Nguyen et al., IBA: Towards Irreversible Backdoor Attacks in Federated Learning, NeurIPS 2023"
    needs = (Sight.OWN_DATA | Sight.MODEL,)
    every_round = True

    epsilon: Share = 0.2
    hidden: PositiveInt = 32
    batch: PositiveInt = 64
    steps: PositiveInt = 20
    lr: PositiveFloat = 0.01
    top: ProperFraction = 0.05

    def planted(self, state: State) -> Trigger | None:
        return self._trigger(state["generator"]) if "generator" in state else None

    def prepare(self, view: DataView) -> State:
        check_target(self.name, self.target, view)
        x = drawn(view, self.batch).x
        target = torch.full((len(x),), self.target)
        start = view.state.get("generator")
        generator = self._initial(x[0].numel(), view.rng.child("generator")) if start is None else start.clone()
        generator.requires_grad_()
        descent = torch.optim.Adam([generator], lr=self.lr)
        for _ in range(self.steps):
            logits = view.predict(view.model, self._trigger(generator).apply(x, view.value_range))
            (generator.grad,) = torch.autograd.grad(cross_entropy(logits, target), generator)
            descent.step()
        return {**view.state, "generator": generator.detach()}

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        return sparing(super().plan(plan, view), view, self.top)

    def craft(self, view: PoisonView) -> Tensor:
        return spared(view, self.top)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return {**view.state, "model": view.model}

    def _trigger(self, generator: Tensor) -> GeneratedNoise:
        return GeneratedNoise(generator=generator, hidden=self.hidden, epsilon=self.epsilon)

    def _initial(self, p: int, rng: Rng) -> Tensor:
        """Normal weights of a size that keeps the signal's, zero biases."""
        draw = rng.torch()
        w1 = torch.randn(self.hidden * p, generator=draw) / p**0.5
        w2 = torch.randn(p * self.hidden, generator=draw) / self.hidden**0.5
        return torch.cat([w1, torch.zeros(self.hidden), w2, torch.zeros(p)])
