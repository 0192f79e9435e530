"""Texts in a table: tokens, padding, clients, and one line for each thing that is wrong."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
import torch

from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError, FedGuardError, MissingExtra, UnknownName
from fedguard.registry import load_registry

WORDS = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "game": 4, "not": 5}
ROWS = [
    ("good game", "up", "ann"),
    ("bad game", "down", "bob"),
    ("not good game ever", "down", "ann"),
    ("bad", "down", "cy"),
]


class _Tokenizer:
    """What `text_table` uses of tokenizers' own: words apart by spaces."""

    padding, length, filled = None, None, None

    @classmethod
    def from_file(cls, path):
        read = cls()
        read.words = json.loads(Path(path).read_text())["model"]["vocab"]
        return read

    def get_vocab(self, with_added_tokens):
        return self.words

    def enable_truncation(self, length):
        self.length = length

    def enable_padding(self, length, pad_id, pad_token):
        self.padding = {"pad_id": pad_id, "pad_token": pad_token, "length": length}

    def no_truncation(self):
        self.length = None

    def no_padding(self):
        self.padding = None

    def encode(self, text):
        ids = [self.words.get(word, self.words["[UNK]"]) for word in text.split()][: self.length]
        if self.padding:
            ids += [self.padding["pad_id"]] * (self.padding["length"] - len(ids))
        return SimpleNamespace(ids=ids)


@pytest.fixture
def double(monkeypatch):
    """A double of tokenizers, which needs no package."""
    made = ModuleType("tokenizers")
    made.Tokenizer = _Tokenizer
    monkeypatch.setitem(sys.modules, "tokenizers", made)


@pytest.fixture(params=["double", "tokenizers"])
def package(request):
    """The package tokenizers, or its double."""
    if request.param == "tokenizers":
        pytest.importorskip("tokenizers", reason="tokenizers is not installed (pip install 'fedguard[language]')")
    else:
        request.getfixturevalue("double")


def write(folder, rows=ROWS, suffix="csv", words=WORDS):
    frame = pd.DataFrame(rows * 5, columns=["text", "label", "client"]).assign(unused=[None] * len(rows) * 5)
    file = folder / f"texts.{suffix}"
    frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file)
    model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None}
    content |= {"pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return {"file": str(file), "tokenizer": str(folder / "tokenizer.json"), "length": 3}


def build(**given):
    return load_registry().build("data", {"name": "text_table", **given})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_texts_become_numbers_of_tokens(tmp_path, package, suffix):
    found = build(**write(tmp_path, suffix=suffix), client="client").load()
    assert found.tokens == Tokens(6, 0) and found.shape == (3,) and found.value_range == (0.0, 5.0)
    assert found.classes == 2 and len(found.train) + len(found.test) == 20
    rows = {
        (tuple(x), y, c)
        for part in (found.train, found.test)
        for x, y, c in zip(part.x.tolist(), part.y.tolist(), part.client.tolist(), strict=True)
    }
    # down is class 0 and up 1; ann, bob and cy are clients 0 to 2; the third text is cut, the last is filled up
    assert rows == {((2, 4, 0), 1, 0), ((3, 4, 0), 0, 1), ((5, 2, 4), 0, 0), ((3, 0, 0), 0, 2)}
    assert found.train.x.dtype == torch.float32


def test_it_tells_how_many_texts_are_cut(tmp_path, package):
    (line,) = build(**write(tmp_path)).describe()
    assert line == (
        "text: texts of 1 to 4 tokens, of a vocabulary of 6; 5 of 20 are cut at 3, and token 0 fills up shorter ones"
    )


def test_the_vocabulary_is_given_and_the_classes_may_be(tmp_path):
    assert build(**write(tmp_path)).preparation.origin == "records"
    given = build(**write(tmp_path), classes=["up", "down", "sideways"])
    assert given.preparation.in_words == "the vocabulary and the classes, which are given"


def test_declared_classes_need_no_example(tmp_path, package):
    assert build(**write(tmp_path), classes=["up", "down", "sideways"]).load().classes == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"file": "."}, "expected a file; this is a folder"),
        ({"tokenizer": "nowhere.json"}, "nowhere.json: no such file"),
        ({"text": "txt"}, "unknown column 'txt'"),
        ({"padding": "[EOS]"}, "padding: expected a token of its vocabulary that fills up short texts; [EOS] is none"),
        ({"rows": [*ROWS, ("", "up", "ann")]}, "column 'text' has none in 5, first in row 5 below the header"),
        (
            {"words": {"[UNK]": 0, "good": 1}},
            "padding: expected a token of its vocabulary that fills up short texts; it names",
        ),
        ({"content": "{"}, "expected a tokenizer.json, as Tokenizer.save writes it"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, package, changes, message):
    written = {key: changes[key] for key in ("rows", "words") if key in changes}
    given = write(tmp_path, **written)
    if "content" in changes:
        (tmp_path / "tokenizer.json").write_text(changes["content"])
    elif not written:
        given |= changes
    with pytest.raises((ConfigError, UnknownName)) as caught:
        build(**given).load()
    assert message.lower() in str(caught.value).lower() and "\n" not in str(caught.value)


def test_a_text_without_any_token_is_refused(tmp_path, double):
    given = write(tmp_path, [*ROWS, ("[PAD]", "up", "ann")])
    with pytest.raises(ConfigError, match="expected a token of .* in each text; row 5 below the header has none"):
        build(**given).load()


def test_without_the_package_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        MissingExtra,
        match=re.escape("needs tokenizers, which is not installed. Install it: pip install 'fedguard[language]'"),
    ):
        build(**write(tmp_path)).load()
    assert issubclass(MissingExtra, FedGuardError)
