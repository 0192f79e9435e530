"""Text, for the task of naming the character that comes next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, require
from fedguard.tasks.data.assembly import Part, assembled, found


@dataclass(frozen=True, kw_only=True)
class Text(Data):
    """Windows of a text file, each labelled with the character that follows; paragraphs are natural clients.

    An input is float32 ``[window]`` of characters by number, for models that take text (`transformer`). The last windows of each
    paragraph are kept for testing, so that no test window overlaps with a train one.

    Args:
        file: a text in UTF-8; an empty line ends a paragraph. Paragraphs that are too short for a window to train on and one to test on
            are left out.
        window: characters in an input.
        stride: characters from one window to the next.
        test: the share of each paragraph kept for testing.
    """

    name = "text"
    source = "the next-character task of McMahan et al., AISTATS 2017"

    file: str
    window: int = 32
    stride: int = 4
    test: float = 0.2

    def __post_init__(self) -> None:
        require(self.window >= 1, f"text: window: expected at least 1 character; got {self.window}.")
        require(self.stride >= 1, f"text: stride: expected at least 1 character; got {self.stride}.")
        require(0 < self.test < 1, f"text: test: expected a share between 0 and 1; got {self.test}.")

    def load(self) -> Dataset:
        path = found(self.file, "file")
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: expected a text in UTF-8: {error}.") from None
        paragraphs = [part for part in (part.strip() for part in content.replace("\r\n", "\n").split("\n\n")) if part]
        return windows(str(path), paragraphs, self.window, self.stride, self.test)


def windows(where: str, documents: Iterable[str], window: int, stride: int, test: float) -> Dataset:
    """The windows of some documents, each a natural client."""
    found: dict[str, tuple[list[str], list[str], list[int]]] = {"train": ([], [], []), "test": ([], [], [])}
    for client, text in enumerate(documents):
        cut = int(len(text) * (1 - test))
        for part, piece in (("train", text[:cut]), ("test", text[cut:])):
            for start in range(0, len(piece) - window, stride):
                for column, value in zip(
                    found[part], (piece[start : start + window], piece[start + window], client), strict=True
                ):
                    column.append(value)  # type: ignore[arg-type]
    if not found["train"][0] or not found["test"][0]:
        raise ConfigError(
            f"{where}: expected paragraphs of more than {window} characters for each part; there is none. Lower window."
        )
    parts = [Part(np.array(x), np.array(y), np.array(clients)) for x, y, clients in found.values()]
    return tokens(where, parts[0], parts[1])


def tokens(where: str, train: Part, test: Part) -> Dataset:
    """Texts of one length as numbers of characters, in the order of Unicode; a label is a character's number as well.

    The classes are the characters of the train part. A test window with another one is left out.
    """
    lengths = np.char.str_len(train.x)
    if lengths.min() != lengths.max():
        raise ConfigError(f"{where}: expected texts of one length; got {lengths.min()} to {lengths.max()} characters.")
    known = np.unique(np.concatenate([_characters(train.x).ravel(), _code(train.y)]))
    kept = np.isin(_characters(test.x), known).all(1) & np.isin(_code(test.y), np.unique(_code(train.y)))
    test = test[np.flatnonzero(kept)]
    parts = [
        Part(np.searchsorted(known, _characters(part.x)), np.searchsorted(known, _code(part.y)), part.client)
        for part in (train, test)
    ]
    return assembled(where, *parts, value_range=(0.0, float(len(known) - 1)), classes=len(known))


def _characters(texts: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """int32 ``[N, length]``: Unicode code points."""
    return texts.astype(str).view(np.int32).reshape(len(texts), -1)


def _code(labels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return labels.astype("U1").view(np.int32)
