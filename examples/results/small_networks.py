"""The networks of the suites in this folder: small enough that a trial takes seconds on one core."""

from __future__ import annotations

from torch import Tensor, nn

#: What fills up short texts: the first token of the tokenizer that `package_texts.py` writes.
PADDING = 0


def strided_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two convolutions that halve height and width, and a dense layer: 5,386 parameters on 28 x 28 gray images.

    ``[B, channels, height, width]`` to logits ``[B, classes]``.
    """
    channels, *sides = shape
    rows, columns = ((((side - 5) // 2 + 1) - 3) // 2 + 1 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, classes),
    )


def next_character(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Embeddings of the characters side by side, and a hidden layer (Bengio et al., JMLR 2003).

    ``[B, length]`` to logits ``[B, classes]``.
    """
    return _NextCharacter(shape[0], classes)


def mean_of_words(shape: tuple[int, ...], classes: int) -> nn.Module:  # noqa: ARG001
    """The mean of the embeddings of a text's words, and a dense layer (Joulin et al., EACL 2017).

    ``[B, length]`` to logits ``[B, classes]``.
    """
    return _MeanOfWords(classes)


class _NextCharacter(nn.Module):
    def __init__(self, length: int, classes: int, width: int = 16, hidden: int = 96) -> None:
        super().__init__()
        self.characters = nn.Embedding(classes, width)
        self.hidden = nn.Linear(length * width, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(self.characters(x.long()).flatten(1)).relu())
        return logits


class _MeanOfWords(nn.Module):
    def __init__(self, classes: int, vocabulary: int = 2000, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        there = (x != PADDING)[..., None]
        total = (self.words(x.long()) * there).sum(1)
        logits: Tensor = self.head(total / there.sum(1).clamp(min=1))
        return logits
