"""Texts in a table, as the tokens of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, PositiveInt, Preparation, ProperFraction
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError, MissingExtra, oneline, require
from fedguard.tasks.data.assembly import Classes, RawExamples, assemble_dataset, check_classes
from fedguard.tasks.data.cells import texts
from fedguard.tasks.data.files import require_path, why_not
from fedguard.tasks.data.table import read_columns

#: What tokenizers call the token that fills up short texts.
PADDING = ("[PAD]", "<pad>", "<|pad|>", "<PAD>")


@dataclass(frozen=True, kw_only=True)
class TextTable(Data):
    """A text in each row of a ``.csv`` or ``.parquet`` file, with its label and perhaps its client, for networks of tokens.

    A ``tokenizer.json``, as pretrained models have it, cuts a text into tokens. The first ``length`` are an input ``[length]``,
    with the special tokens that the tokenizer adds; a shorter text is filled up with padding, which a network must not read.
    Needs the package tokenizers.

    Args:
        file: the table; other columns are left out.
        tokenizer: the tokenizer's file.
        length: tokens of an input.
        text: the column of the texts.
        label: the column of the labels, which are texts or numbers.
        client: the column that names the natural client of each row, for the partition ``natural``.
        padding: the token that fills up; by default what the file says, or ``[PAD]``, ``<pad>`` or the like.
        classes: the number of labels, or the labels; by default those in the table.
        test: the share of the rows kept for testing.
    """

    name = "text_table"
    source = "comma-separated values (RFC 4180) or Apache Parquet, and tokenizers of Hugging Face"
    outside = True

    file: str
    tokenizer: str
    length: PositiveInt = 64
    text: str = "text"
    label: str = "label"
    client: str | None = None
    padding: str | None = None
    classes: Classes | None = None
    test: ProperFraction = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)

    @property
    def preparation(self) -> Preparation:
        if self.classes is None:
            return Preparation("records", "the classes", "Give classes.")
        return Preparation("given", "the vocabulary and the classes")

    def load(self) -> Dataset:
        path, tokenizer = require_path(self.file, "file"), self._load_tokenizer()
        frame = read_columns(path, [self.text, self.label, *([self.client] if self.client else [])])
        tokens = self._tokens(tokenizer)
        x = np.array([tokenizer.encode(text).ids for text in texts(frame[self.text])], np.int64)
        empty = np.flatnonzero((x == tokens.padding).all(1))
        require(
            not len(empty),
            f"{path}: expected a token of {self.tokenizer} in each text; row {empty[0] + 1 if len(empty) else 0} below the "
            "header has none. Leave it out, or take the tokenizer of its language.",
        )
        labels = texts(frame[self.label]).to_numpy(str)
        client: NDArray[Any] | None = texts(frame[self.client]).to_numpy(str) if self.client else None
        examples = RawExamples(x, labels, client)
        return assemble_dataset(str(path), examples, share=self.test, classes=self.classes, tokens=tokens)

    def describe(self) -> Iterator[str]:
        path, tokenizer = require_path(self.file, "file"), self._load_tokenizer()
        tokens = self._tokens(tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        column = texts(read_columns(path, [self.text])[self.text])
        lengths = [len(tokenizer.encode(text).ids) for text in column]
        cut = sum(one > self.length for one in lengths)
        yield (
            f"{self.text}: texts of {min(lengths)} to {max(lengths)} tokens, of a vocabulary of {tokens.vocabulary:,}; {cut} "
            f"of {len(lengths)} are cut at {self.length}, and token {tokens.padding} fills up shorter ones"
        )

    def _load_tokenizer(self) -> Any:
        """The tokenizer, which cuts and fills up to ``length``."""
        path = require_path(self.tokenizer, "file")
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra("text_table", "tokenizers", "language") from None
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises Exception itself
            raise ConfigError(
                f"{path}: expected a tokenizer.json, as Tokenizer.save writes it: {why_not(path, error)}."
            ) from None
        known, usual = tokenizer.get_vocab(with_added_tokens=True), (tokenizer.padding or {}).get("pad_token")
        named = [self.padding] if self.padding else [usual, *PADDING]
        token = next((one for one in named if one and one in known), "")
        told = f"{self.padding} is none" if self.padding else "it names none"
        require(
            bool(token),
            f"{path}: padding: expected a token of its vocabulary that fills up short texts; {told}. Give padding, such as an "
            "unused token.",
        )
        try:
            tokenizer.enable_truncation(self.length)
        except Exception as error:  # fewer tokens than the special ones
            raise ConfigError(f"text_table: length: {self.length} is too short: {oneline(error)}.") from None
        tokenizer.enable_padding(length=self.length, pad_id=known[token], pad_token=token)
        return tokenizer

    def _tokens(self, tokenizer: Any) -> Tokens:
        vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        return Tokens(vocabulary, tokenizer.padding["pad_id"])
