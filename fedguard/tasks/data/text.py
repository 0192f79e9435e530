"""Text, for the task of naming the character that comes next."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, PositiveInt, Preparation, ProperFraction
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError, require
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset, join_parts
from fedguard.tasks.data.files import check_text, require_path, why_not

#: Which characters of a window are followed by a label: the last one, or each.
Targets: TypeAlias = Literal["last", "each"]


@dataclass(frozen=True, kw_only=True)
class Text(Data):
    """Windows of a text file, each labeled with the character that follows; paragraphs are natural clients.

    An input is float32 ``[window]`` of characters by number, for models that read text (`transformer`). The end of each
    paragraph is kept for testing, so that no test window overlaps with a train one.

    Args:
        file: a text in UTF-8; an empty line, or one of spaces, ends a paragraph. One that is too short for a window gives no
            examples.
        window: characters in an input.
        stride: characters from one window to the next.
        test: the share of each paragraph kept for testing.
        characters: the characters that the text may hold; a window with another one is left out. By default, all of the train
            part.
        targets: ``last`` for one label of a window, the character that follows it; ``each`` for the character that follows each
            of its characters, for a model that answers each (`transformer`).
    """

    name = "text"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017: the next-character task"
    outside = True
    later: ClassVar = {"targets": "last"}

    file: str
    window: PositiveInt = 32
    stride: PositiveInt = 4
    test: ProperFraction = 0.2
    characters: str | None = None
    targets: Targets = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_characters(self.name, self.characters)

    @property
    def preparation(self) -> Preparation:
        if self.characters is None:
            return Preparation("records", "the vocabulary", "Give characters.")
        return Preparation("given", "the vocabulary")

    @property
    def record(self) -> str:
        return window_in_words(self.window, self.stride)

    def load(self) -> Dataset:
        path = require_path(self.file, "file")
        try:
            content = path.read_text(
                encoding="utf-8-sig"
            )  # what a byte order mark begins with is no character of the text
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: expected a text in UTF-8: {why_not(path, error)}.") from None
        check_text(path, content)
        documents = re.split(r"\n\s*\n", content)
        return windows(str(path), documents, self.window, self.stride, self.test, self.characters, self.targets)


def window_in_words(window: int, stride: int) -> str:
    """What an example of text is, and how little of a text one of them is."""
    size, most = window + 1, -(-(window + 1) // stride)
    if most == 1:
        return f"a window of {size} characters, none of which stands in another one; a paragraph fills many"
    return f"a window of {size} characters: a character stands in up to {most} of them, and a paragraph fills many"


def check_characters(owner: str, characters: str | None) -> None:
    """Raise `ConfigError` where these characters are no vocabulary."""
    require(
        characters is None or len(set(characters)) >= 2,
        f"{owner}: characters: expected two different ones or more; got {characters!r}.",
    )


def windows(
    where: str,
    documents: Iterable[str],
    window: int,
    stride: int,
    test: float,
    characters: str | None = None,
    targets: Targets = "last",
) -> Dataset:
    """The windows of some documents, each a natural client.

    Raises:
        ConfigError: the documents are too short, or know a single character.
    """
    parts: tuple[list[RawExamples], list[RawExamples]] = ([], [])
    for client, text in enumerate(documents):
        codes, cut = _codes(text), round(len(text) * (1 - test))
        for part, piece in zip(parts, (codes[:cut], codes[cut:]), strict=True):
            if len(piece) > window:
                seen = sliding_window_view(piece, window + 1)[::stride]
                labels = seen[:, -1] if targets == "last" else seen[:, 1:]
                part.append(RawExamples(seen[:, :-1], labels, np.full(len(seen), client)))
    if not all(parts):
        raise ConfigError(
            f"{where}: expected text of more than {window} characters at a stretch in both parts, train and test; there is "
            "none. Lower window."
        )
    return _encode_characters(where, join_parts(parts[0]), join_parts(parts[1]), characters)


def tokens(where: str, train: RawExamples, test: RawExamples, characters: str | None = None) -> Dataset:
    """Texts of one length as numbers of characters, in the order of Unicode; a label is a character's number as well.

    The classes are the given characters, by default all of the train part. An example with another character is left out.

    Raises:
        ConfigError: texts of different lengths, labels that are no characters, no test example left.
    """
    for part in (train, test):
        kinds = part.x.dtype.kind + part.y.dtype.kind
        if part.x.ndim != 1 or part.x.shape != part.y.shape or kinds != "UU" or set(np.char.str_len(part.y)) != {1}:
            raise ConfigError(f"{where}: expected texts, each with the one character that follows as its label.")
    lengths = {*np.char.str_len(train.x).tolist(), *np.char.str_len(test.x).tolist()}
    if len(lengths) != 1:
        raise ConfigError(
            f"{where}: expected texts of one length; got {min(lengths)} to {max(lengths)} characters. Cut them alike."
        )
    coded = [
        RawExamples(_codes("".join(part.x)).reshape(len(part.x), -1), _codes("".join(part.y)), part.client)
        for part in (train, test)
    ]
    return _encode_characters(where, coded[0], coded[1], characters)


def _encode_characters(where: str, train: RawExamples, test: RawExamples, characters: str | None) -> Dataset:
    """The data set of code points ``[N, length]``, each followed by one ``[N]``, or by one after each, ``[N, length]``."""
    known = np.union1d(train.x, train.y) if characters is None else np.unique(_codes(characters))
    if len(known) < 2:
        raise ConfigError(f"{where}: expected at least two different characters; got {chr(known[0])!r} alone.")
    train, test = (
        part[np.flatnonzero(np.isin(part.x, known).all(1) & np.isin(part.y, known).reshape(len(part.y), -1).all(1))]
        for part in (train, test)
    )
    parts = [
        RawExamples(np.searchsorted(known, part.x), np.searchsorted(known, part.y), part.client)
        for part in (train, test)
    ]
    return assemble_dataset(where, *parts, tokens=Tokens(len(known)), next_token=True)


def _codes(text: str) -> NDArray[np.uint32]:
    """Its characters' numbers in Unicode."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
