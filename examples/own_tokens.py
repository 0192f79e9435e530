"""Texts and a network of one's own, for own_tokens.yaml: adapters of low rank beside frozen weights, and padding left out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedguard.contracts import Dataset, Examples
from fedguard.contracts.tasks import Tokens

PADDING, VOCABULARY, LENGTH, WIDTH, RANK = 0, 60, 10, 32, 4


def reviews() -> Dataset:
    """Made-up texts of 4 to 10 words: class 1 where words 1 to 10 outnumber words 11 to 20; the others mean nothing."""
    draw = np.random.default_rng(0)
    x = draw.integers(21, VOCABULARY, (1600, LENGTH))
    y = np.arange(1600) % 2
    telling = draw.permuted(np.tile(np.arange(LENGTH) < 4, (1600, 1)), axis=1) | (np.arange(LENGTH) < 2)
    x[telling] = draw.integers(1, 11, telling.sum()) + 10 * (1 - np.repeat(y, telling.sum(1)))
    x[np.arange(LENGTH) >= draw.integers(4, LENGTH + 1, (1600, 1))] = PADDING
    all_of_them = Examples(torch.from_numpy(x).float(), torch.from_numpy(y))
    rows = torch.arange(1600)
    return Dataset(
        all_of_them[rows < 1200], all_of_them[rows >= 1200], 2, (0.0, VOCABULARY - 1.0), Tokens(VOCABULARY, PADDING)
    )


class Adapter(nn.Module):
    """A frozen matrix W with B A of low rank beside it: W x + B A x. B is 0 at the start (Hu et al., LoRA, ICLR 2022)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.down = nn.Linear(weight.shape[1], RANK, bias=False)
        self.up = nn.Linear(RANK, weight.shape[0], bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.up(self.down(x))


class Reader(nn.Module):
    """Frozen embeddings, attention with adapters, the mean over words, and a head that is trained."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(7)  # stands for a pretrained encoder, which is the same whatever the seed
        self.words = nn.Embedding.from_pretrained(torch.randn(VOCABULARY, WIDTH, generator=draw))
        query, value = torch.randn(2, WIDTH, WIDTH, generator=draw) / WIDTH**0.5
        self.query, self.value = Adapter(query), Adapter(value)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        there = x != PADDING
        signal = self.words(x)
        scores = self.query(signal) @ signal.transpose(1, 2) / WIDTH**0.5
        signal = signal + scores.masked_fill(~there[:, None], -1e9).softmax(-1) @ self.value(signal)
        mean = (signal * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)
        logits: Tensor = self.head(mean)
        return logits


def network(shape: tuple[int, ...], classes: int) -> nn.Module:  # noqa: ARG001
    """``[B, 10]`` to logits ``[B, 2]``."""
    return Reader(classes)
