"""IBA (Nguyen et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedguard.attacks.backdoor.base import BackdoorAttack, check_target, draw_batch, pool_examples
from fedguard.contracts import (
    DataView,
    Examples,
    Fraction,
    LocalPlan,
    PoisonView,
    PositiveFloat,
    PositiveInt,
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
class IBA(BackdoorAttack):
    """Makes a faint trigger for each input with a generator, fits that to the model, and moves quiet parameters only.

    Before each round the generator g minimizes $L(x + g(x), target)$ under the global model, with $|g(x)| <= epsilon_t$ in
    each value, starting from the generator of the round before. The malicious clients train honestly until a share
    ``warmup`` of their triggered inputs is classified as the target. From then on each trains on examples of which a
    ``share`` carries the trigger: on average over its batches this is the source's $alpha L(x, y) + (1 - alpha) L(x + g(x),
    target)$ with $alpha = 1 - share$. Only the share ``quiet`` of the parameters may move: those with the smallest
    gradients on the malicious clients' clean data, summed in absolute value over the rounds.

    The source's bound falls: $epsilon_t = max(epsilon_test, epsilon (1 - decay)^t)$ in round t, and the backdoor is
    measured at epsilon_test. On CIFAR-10 that is ``iba(epsilon=0.3, decay=0.001, epsilon_test=0.05)``; here the bound is
    constant by default. The mask is one of the source's three variants; the others are no mask and a projection. The
    source's generator is an autoencoder of convolutions, fitted to a colluder's own model; here it has one hidden layer,
    for inputs of any shape.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        epsilon: bound on the change of a value, as a share of the range of values, at first.
        decay: relative decrease of the bound per round.
        epsilon_test: the bound at which it stops falling, and at which the backdoor is measured; None measures at the
            bound of the round.
        warmup: share of triggered inputs that must be classified as the target before poisoning starts; 0 starts at once.
        quiet: share of the parameters that may move; 1 for all.
        hidden: width of the generator's hidden layer.
        batch: number of examples for fitting the generator, drawn in each round from all malicious clients.
        steps, lr: Adam steps on the generator in each round, and their step size.
    """

    name = "iba"
    source = "Nguyen et al., IBA: Towards Irreversible Backdoor Attacks in Federated Learning, NeurIPS 2023"
    needs = (Sight.OWN_DATA | Sight.MODEL,)
    every_round = True

    epsilon: Share = 0.2
    decay: Annotated[float, Ge(0), Lt(1)] = 0.0
    epsilon_test: Share | None = None
    warmup: Fraction = 0.85
    quiet: Share = 0.3
    hidden: PositiveInt = 32
    batch: PositiveInt = 64
    steps: PositiveInt = 20
    lr: PositiveFloat = 0.01

    def current_trigger(self, state: State) -> Trigger | None:
        return self._trigger(state["generator"], float(state["epsilon"])) if "generator" in state else None

    def backdoor(self, state: State) -> tuple[Trigger, int] | None:
        if "generator" not in state or self.epsilon_test is None:
            return super().backdoor(state)
        return self._trigger(state["generator"], self.epsilon_test), self.target

    def prepare(self, view: DataView) -> State:
        check_target(self.name, self.target, view)
        x, epsilon = draw_batch(view, self.batch).x, self._epsilon(view.round)
        target = torch.full((len(x),), self.target)
        start = view.state.get("generator")
        generator = self._initial(x[0].numel(), view.rng.child("generator")) if start is None else start.clone()
        generator.requires_grad_()
        descent = torch.optim.Adam([generator], lr=self.lr)
        for _ in range(self.steps):
            logits = view.predict(view.model, self._trigger(generator, epsilon).apply(x, view.value_range))
            (generator.grad,) = torch.autograd.grad(cross_entropy(logits, target), generator)
            descent.step()
        fitted = generator.detach()
        return {
            **view.state,
            "generator": fitted,
            "epsilon": torch.tensor(epsilon, dtype=torch.float64),
            "ready": view.state.get("ready", torch.tensor(False)) | self._reaches(view, self._trigger(fitted, epsilon)),
            "busy": view.state.get("busy", torch.zeros_like(view.model)) + _gradient(view).abs(),
        }

    def poison(self, examples: Examples, view: DataView) -> Examples:
        return super().poison(examples, view) if view.state["ready"] else examples

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        if not view.state["ready"]:
            return plan
        allowed = self._quiet(view.state)
        return replace(super().plan(plan, view), adjust=lambda parameters, start, gradient: gradient * allowed)

    def craft(self, view: PoisonView) -> Tensor:
        # With worker momentum, earlier rounds would put values back into the parameters that may not move
        all_may = torch.ones_like(view.model, dtype=torch.bool)
        return view.own * (self._quiet(view.state) if view.state.get("ready", False) else all_may)

    def _epsilon(self, round: int) -> float:
        return max(self.epsilon_test or 0.0, self.epsilon * (1 - self.decay) ** round)

    def _quiet(self, state: State) -> Tensor:
        """bool ``[d]``: the parameters that may move, including all that tie with the last of them."""
        busy = state["busy"]
        return busy <= busy.kthvalue(max(1, round(self.quiet * len(busy)))).values

    def _reaches(self, view: DataView, trigger: Trigger) -> Tensor:
        """bool: whether enough of the malicious clients' inputs of other classes are classified as the target."""
        pool = pool_examples(view)
        x = pool.x[pool.y != self.target]
        with torch.no_grad():
            found = view.predict(view.model, trigger.apply(x, view.value_range)).argmax(1) == self.target
        return torch.tensor(len(x) == 0 or bool(found.double().mean() >= self.warmup))

    def _trigger(self, generator: Tensor, epsilon: float) -> GeneratedNoise:
        return GeneratedNoise(generator=generator, hidden=self.hidden, epsilon=epsilon)

    def _initial(self, p: int, rng: Rng) -> Tensor:
        """Normal weights scaled to preserve the signal's size, and zero biases."""
        draw = rng.torch()
        w1 = torch.randn(self.hidden * p, generator=draw) / p**0.5
        w2 = torch.randn(p * self.hidden, generator=draw) / self.hidden**0.5
        return torch.cat([w1, torch.zeros(self.hidden), w2, torch.zeros(p)])


def _gradient(view: DataView) -> Tensor:
    """float32 ``[d]``: gradient of the loss on all clean examples of the malicious clients."""
    pool, at = pool_examples(view), view.model.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(view.predict(at, pool.x), pool.y), at)
    return gradient
