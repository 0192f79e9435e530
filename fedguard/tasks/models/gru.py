"""A network with a memory, for actors: a gated recurrent unit before policy and value (Cho et al., EMNLP 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from fedguard.contracts import Model, PositiveInt, RecurrentNetwork


@dataclass(frozen=True, kw_only=True)
class GRU(Model):
    r"""A layer, a gated recurrent unit, and outputs of what it remembers: the policy's, and last the value's.

    $x_t = tanh(E s_t + e)$; $r_t, z_t = sigma(W x_t + w + U h_{t-1} + u)$, each with weights of its own;
    $c_t = tanh(W x_t + w + r_t (U h_{t-1} + u))$; $h_t = (1 - z_t) c_t + z_t h_{t-1}$. Outputs are linear in $h_t$. Each
    episode starts with $h_0 = 0$.

    Args:
        memory: M, how many numbers it remembers.
        inside: the width of the layer before.
        remembers: whether $h_{t-1}$ is what was before; else it is 0 in every step, and the network of the same size has no
            memory.
    """

    name = "gru"
    source = "Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP 2014"
    recurrent = True

    memory: PositiveInt = 32
    inside: PositiveInt = 32
    remembers: bool = True

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return _GRU(prod(shape), self.inside, self.memory, classes, self.remembers)


class _GRU(RecurrentNetwork):
    def __init__(self, inputs: int, inside: int, memory: int, outputs: int, remembers: bool) -> None:
        super().__init__()
        self.memory, self.remembers = memory, remembers
        self.encoder = nn.Sequential(nn.Linear(inputs, inside), nn.Tanh())
        self.of_input, self.of_memory = nn.Linear(inside, 3 * memory), nn.Linear(memory, 3 * memory)
        self.outputs = nn.Linear(memory, outputs)

    def _step(self, given: Tensor, memory: Tensor) -> Tensor:
        """What is remembered after a step ``[B, M]``, of what its input says ``[B, 3 M]`` and what was remembered before."""
        size = self.memory
        if not self.remembers:
            memory = torch.zeros_like(memory)
        kept = self.of_memory(memory)
        gates = torch.sigmoid(given[..., : 2 * size] + kept[..., : 2 * size])
        reset, update = gates[..., :size], gates[..., size:]
        new = torch.tanh(given[..., 2 * size :] + reset * kept[..., 2 * size :])
        now: Tensor = new + update * (memory - new)
        return now

    def forward(
        self, x: Tensor, memory: Tensor | None = None, starts: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        if memory is None:
            given = self.of_input(self.encoder(x.flatten(1)))
            found: Tensor = self.outputs(self._step(given, given.new_zeros(len(x), self.memory)))
            return found
        if starts is None:
            now = self._step(self.of_input(self.encoder(x.flatten(1))), memory)
            return self.outputs(now), now
        given = self.of_input(self.encoder(x.flatten(2)))
        memories = []
        for step, start in zip(given, starts[..., None], strict=True):
            memory = self._step(step, memory.masked_fill(start, 0.0))
            memories.append(memory)
        kept = torch.stack(memories)
        return self.outputs(kept), kept
