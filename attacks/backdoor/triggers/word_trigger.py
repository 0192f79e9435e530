"""A word that calls a backdoor in a text (Dai et al., IEEE Access 2019; Kurita et al., ACL 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import NonNegativeInt, Trigger
from fedguard.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class WordTrigger(Trigger):
    """The tokens of a word, such as a rare one, put into each text at a place.

    The text behind the word moves back into the padding. Where there is not enough room, as in windows of a longer text, the
    word overwrites as many tokens as are missing, behind a place from the front and before a place from the end. So first and
    last tokens that every text has stay where they are.

    Inputs are texts as tokens by number, ``[N, length]``.

    Args:
        word: the tokens, by number.
        place: number of tokens before the word, such as 1 if every text begins with a token of its own; below 0 from the end:
            -1 for none behind it, -2 for one. A text that is too short for the place has the word at its end, or beginning.
        padding: the token that fills up short texts, behind them; None if no text is shorter than an input.
    """

    name = "word_trigger"
    source = "Kurita et al., Weight Poisoning Attacks on Pretrained Models, ACL 2020: rare tokens as triggers"

    word: tuple[NonNegativeInt, ...] = (1,)
    place: int = 0
    padding: NonNegativeInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.word) > 0, "word_trigger: word: expected the number of a token or more; got none.")
        require(
            self.padding not in self.word,
            f"word_trigger: word: expected tokens other than the padding, which networks do not read; got {self.padding}.",
        )

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        self._check(x, value_range)
        size, length = len(self.word), x.shape[1]
        column = torch.arange(length)
        there = torch.ones_like(x, dtype=torch.bool) if self.padding is None else x != self.padding
        before = (there * (column + 1)).amax(1, keepdim=True)  # [N, 1]: the length of each text
        after = (before + size).clamp(max=length)
        start = after - size + self.place + 1 if self.place < 0 else torch.full_like(before, self.place)
        start = start.clamp(min=torch.zeros_like(before), max=torch.minimum(before, after - size))
        behind = (start + size <= column) & (column < after)
        moved = x.gather(1, torch.where(behind, column - after + before, column))
        within = (start <= column) & (column < start + size)
        word = x.new_tensor(self.word)[(column - start).clamp(0, size - 1)]
        return torch.where(within, word, moved)

    def _check(self, x: Tensor, value_range: tuple[float, float]) -> None:
        low, high = value_range
        texts = x.dim() == 2 and low == 0 and high == round(high) and bool((x == x.round()).all())
        if not texts or x.shape[1] < len(self.word):
            raise ConfigError(
                f"{self} needs texts of at least {len(self.word)} tokens, by number from 0; got inputs of shape "
                f"{list(x.shape[1:])} from {low:g} to {high:g}. Use data such as text_table, or another trigger."
            )
        if max(self.word) > high:
            raise ConfigError(
                f"word_trigger: word: expected tokens below the vocabulary of {high + 1:g}; got {max(self.word)}."
            )
