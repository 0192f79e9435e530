"""A recurrent state-space model with an actor and a critic on its states: the network of PlaNet and Dreamer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fedguard.contracts import Model, PositiveInt, WorldModel

#: The least spread of a state's entry.
LEAST = 0.1


@dataclass(frozen=True, kw_only=True)
class RSSM(Model):
    r"""States with a part that follows from the past and a part that is drawn, and all that is told of them.

    $h_t = GRU(h_{t-1}, f(z_{t-1}, a_{t-1}))$; prior $z_t ~ N(m_p(h_t), s_p(h_t))$, posterior
    $z_t ~ N(m_q(h_t, e_t), s_q(h_t, e_t))$ of what the encoder makes of the observation, $e_t = E(symlog(x_t))$ with
    $symlog(x) = sign(x) log(1 + |x|)$. From $s_t = (h_t, z_t)$ five perceptrons predict observation,
    reward, whether the episode continues, the policy's outputs, and the value. Spreads are $log(1 + exp(o)) + .1$, and layers
    are followed by SiLU.

    An actor uses the posterior's mean. Each episode starts from h, z and a of 0, so h is the same in each first step.

    Args:
        fixed: H, the numbers of h.
        chance: Z, the numbers of z.
        inside: the width of the layers between.
    """

    name = "rssm"
    source = "Hafner et al., Learning Latent Dynamics for Planning from Pixels, ICML 2019"
    recurrent = True
    imagines = True

    fixed: PositiveInt = 48
    chance: PositiveInt = 12
    inside: PositiveInt = 64

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return _RSSM(prod(shape), self.fixed, self.chance, self.inside, classes - 1)


class _RSSM(WorldModel):
    def __init__(self, inputs: int, fixed: int, chance: int, inside: int, outputs: int) -> None:
        super().__init__()
        self.fixed, self.chance, self.memory = fixed, chance, fixed + chance + outputs
        state = fixed + chance
        self.encoder = nn.Sequential(nn.Linear(inputs, inside), nn.SiLU())
        self.mixer = nn.Sequential(nn.Linear(chance + outputs, inside), nn.SiLU())
        self.of_input, self.of_fixed = nn.Linear(inside, 3 * fixed), nn.Linear(fixed, 3 * fixed)
        self.of_prior, self.of_posterior = (_layers(size, inside, 2 * chance) for size in (fixed, fixed + inside))
        self.decoder = _layers(state, inside, inside, inputs)
        self.reward, self.end, self.critic = (_last(_layers(state, inside, inside, 1), 0.0) for _ in range(3))
        self.actor = _last(_layers(state, inside, inside, outputs), 0.01)

    def advance_state(self, state: Tensor, heard: Tensor) -> Tensor:
        h, z, size = state[..., : self.fixed], state[..., self.fixed :], self.fixed
        given, kept = self.of_input(self.mixer(torch.cat([z, heard], -1))), self.of_fixed(h)
        gates = torch.sigmoid(given[..., : 2 * size] + kept[..., : 2 * size])
        reset, update = gates[..., :size], gates[..., size:]
        new = torch.tanh(given[..., 2 * size :] + reset * kept[..., 2 * size :])
        now: Tensor = new + update * (h - new)
        return now

    def prior(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return _normal(self.of_prior(h))

    def posterior(self, h: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        return _normal(self.of_posterior(torch.cat([h, self.encoder(read)], -1)))

    def reads(self, x: Tensor) -> Tensor:
        return x.sign() * x.abs().log1p()

    def predict_observation(self, state: Tensor) -> Tensor:
        found: Tensor = self.decoder(state)
        return found

    def predict_reward(self, state: Tensor) -> Tensor:
        found: Tensor = self.reward(state)
        return found.squeeze(-1)

    def lasts(self, state: Tensor) -> Tensor:
        found: Tensor = self.end(state)
        return found.squeeze(-1)

    def remember_actions(self, memory: Tensor, heard: Tensor) -> Tensor:
        return torch.cat([memory[..., : self.fixed + self.chance], heard], -1)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, starts: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        if starts is not None:
            raise NotImplementedError(
                "rssm takes each action as input: unroll it step by step, with `remember_actions` between"
            )
        before = x.new_zeros(len(x), self.memory) if memory is None else memory
        size = self.fixed + self.chance
        h = self.advance_state(before[..., :size], before[..., size:])
        state = torch.cat([h, self.posterior(h, self.reads(x.flatten(1)))[0]], -1)
        told = torch.cat([self.actor(state), self.critic(state)], -1)
        return told if memory is None else (told, torch.cat([state, before[..., size:]], -1))


def _normal(outputs: Tensor) -> tuple[Tensor, Tensor]:
    mean, spread = outputs.chunk(2, -1)
    return mean, softplus(spread) + LEAST


def _layers(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def _last(layers: nn.Sequential, size: float) -> nn.Sequential:
    """A perceptron; the weights of its last layer start with the given spread, its biases at 0."""
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.normal_(last.weight, std=size)
    nn.init.zeros_(last.bias)
    return layers
