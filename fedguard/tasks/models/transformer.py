"""A small transformer that names the next character (Vaswani et al., NeurIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fedguard.contracts import Model, PositiveInt
from fedguard.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class Transformer(Model):
    """Embeddings of characters and places, blocks of attention and a dense part, and logits of the next character.

    Each position attends to itself and to earlier positions. Layer normalization precedes each part (Xiong et al., ICML
    2020). The logits are read off the last position, or off each. Inputs are characters by number, ``[length]``, below the
    number of classes.

    Args:
        width: of the embeddings.
        heads: of the attention.
        layers: number of blocks.
        answers: ``last`` for the token that follows the text, ``each`` for the one that follows each of its tokens.
    """

    name = "transformer"
    source = "Vaswani et al., Attention Is All You Need, NeurIPS 2017"

    later: ClassVar = {"answers": "last"}

    width: PositiveInt = 64
    heads: PositiveInt = 4
    layers: PositiveInt = 2
    answers: Literal["last", "each"] = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.width % self.heads == 0,
            f"transformer: width: expected a multiple of heads = {self.heads}; got {self.width}.",
        )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ConfigError(
                f"transformer needs texts [length], such as data text has; got inputs of shape {list(shape)}."
            )
        network = _Network(shape[0], classes, self.width, self.heads, self.layers)
        network.last = self.answers == "last"
        return network


class _Network(nn.Module):
    def __init__(self, length: int, classes: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        characters = nn.Embedding(classes, width)
        self.places = _PositionalEmbedding(length, width)
        self.characters = characters
        self.blocks = nn.ModuleList(_TransformerBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.last = True

    def forward(self, x: Tensor) -> Tensor:
        signal = self.places(self.characters(x.long()))
        for block in self.blocks:
            signal = block(signal)
        logits: Tensor = self.head(self.norm(signal[:, -1] if self.last else signal))
        return logits


class _PositionalEmbedding(nn.Module):
    """Adds an embedding of each position; a layer of its own, since per-example gradients are found layer by layer."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, signal: Tensor) -> Tensor:
        return signal + self.weight


class _TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.dense_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        seen = scores.masked_fill(later, -torch.inf).softmax(-1) @ value
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        thought: Tensor = self.dense(self.dense_norm(x))
        return x + thought
