"""examples/package_texts.py: descriptions, sections and maintainers out of an index of packages, and words as tokens."""

from __future__ import annotations

import importlib.util

import pytest

from tests.root import ROOT

INDEX = """\
Package: chess-data
Source: chess (1.2)
Maintainer: Ada <ada@example.org>
Description: Boards, for chess
Section: games
Tag: game::board,
 Section: not a field

Package: chess
Maintainer: Bob <bob@example.org>
Description: the game of chess
Section: games

Package: no-section
Maintainer: Ada <ada@example.org>
Description: nothing

Package: piano
Maintainer: Ada <ada@example.org>
Section: sound
Description: a piano, a piano"""


@pytest.fixture(scope="module")
def script():
    found = importlib.util.spec_from_file_location("package_texts", ROOT / "examples" / "package_texts.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_source_package_counts_once_and_continued_lines_are_no_fields(script):
    assert list(script.described(INDEX.splitlines(keepends=True))) == [
        ("Boards, for chess", "games", "Ada <ada@example.org>"),
        ("a piano, a piano", "sound", "Ada <ada@example.org>"),
    ]


def test_tokens_are_the_most_frequent_words_behind_padding_and_unknown(script):
    model = script.tokenizer(["a Piano, a piano", "a board"])["model"]
    assert model["vocab"] == {"[PAD]": 0, "[UNK]": 1, "a": 2, "piano": 3, ",": 4, "board": 5}


def test_the_network_of_the_suite_has_a_row_for_each_token(script):
    """`mean_of_words` holds as many embeddings as the tokenizer has tokens, and leaves out its padding."""
    text = (ROOT / "examples" / "results" / "small_networks.py").read_text()
    assert f"vocabulary: int = {script.VOCABULARY}" in text
    assert script.tokenizer([])["model"]["vocab"]["[PAD]"] == 0
    assert "\nPADDING = 0\n" in text


def test_the_tokenizer_is_one_that_tokenizers_reads(script, tmp_path):
    tokenizers = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed (pip install 'fedguard[language]')"
    )
    import json

    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(script.tokenizer(["the game of chess", "the board"])))
    read = tokenizers.Tokenizer.from_file(str(path))
    assert read.encode("The CHESS piano").ids == [2, 4, 1]  # the words that occur once are in the order of the alphabet
