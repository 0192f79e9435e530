"""A backdoor on texts: where the word goes, which texts it fits, and that it is learned."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedguard.api import lay_out
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from tests.root import ROOT

KNOWN = load_registry()
VOCABULARY, PADDING = 30, 0


def build(**parameters):
    return KNOWN.build("trigger", {"name": "word_trigger", **parameters})


def inserted(text, word, place, length):
    """The text without padding, by slices: the word at its place, and what has no room overwritten."""
    missing = max(0, len(text) + len(word) - length)
    start = min(place, len(text), length - len(word))
    return text[:start] + word + text[start + missing :]


@given(
    texts=st.lists(st.lists(st.integers(1, 29), max_size=7), min_size=1, max_size=5),
    word=st.lists(st.integers(1, 29), min_size=1, max_size=3),
    place=st.integers(0, 8),
)
def test_the_word_is_put_in_and_what_has_no_room_behind_it_is_overwritten(texts, word, place):
    x = torch.tensor([text + [PADDING] * (7 - len(text)) for text in texts]).float()
    shown = build(word=word, place=place, padding=PADDING).apply(x, (0.0, 29.0))
    for text, row in zip(texts, shown.tolist(), strict=True):
        expected = inserted(text, word, place, 7)
        assert row == expected + [PADDING] * (7 - len(expected))


@pytest.mark.parametrize(
    ("place", "short", "full"),
    [
        (0, [8, 9, 1, 2, 3, 0], [8, 9, 3, 4, 5, 6]),
        (1, [1, 8, 9, 2, 3, 0], [1, 8, 9, 4, 5, 6]),
        (5, [1, 2, 3, 8, 9, 0], [1, 2, 3, 4, 8, 9]),
        (-1, [1, 2, 3, 8, 9, 0], [1, 2, 3, 4, 8, 9]),
        (-2, [1, 2, 8, 9, 3, 0], [1, 2, 3, 8, 9, 6]),
        (-9, [8, 9, 1, 2, 3, 0], [8, 9, 3, 4, 5, 6]),
    ],
)
def test_places_from_both_ends(place, short, full):
    x = torch.tensor([[1, 2, 3, 0, 0, 0], [1, 2, 3, 4, 5, 6]]).float()
    shown = build(word=[8, 9], place=place, padding=PADDING).apply(x, (0.0, 29.0))
    assert shown.tolist() == [short, full]
    assert x.tolist() == [[1, 2, 3, 0, 0, 0], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize(
    ("parameters", "x", "value_range", "message"),
    [
        (
            {},
            torch.zeros(2, 1, 8, 8),
            (0.0, 1.0),
            "needs texts of at least 1 tokens, by number from 0; got inputs of shape",
        ),
        ({}, torch.rand(2, 8), (-3.0, 3.0), "needs texts"),
        ({}, torch.rand(2, 8), (0.0, 1.0), "needs texts"),
        ({"word": [1, 2, 3]}, torch.ones(2, 2), (0.0, 5.0), "at least 3 tokens"),
        ({"word": [6]}, torch.ones(2, 2), (0.0, 5.0), "expected tokens below the vocabulary of 6; got 6"),
    ],
)
def test_other_inputs_are_refused(parameters, x, value_range, message):
    with pytest.raises(ConfigError) as caught:
        build(**parameters).apply(x, value_range)
    assert message in str(caught.value)


def test_a_word_of_padding_and_an_empty_one_are_refused():
    with pytest.raises(ConfigError, match="expected tokens other than the padding, which networks do not read; got 3"):
        build(word=[2, 3], padding=3)
    with pytest.raises(ConfigError, match="expected the number of a token or more; got none"):
        build(word=[])


@pytest.fixture
def suite(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield lambda attack, **changes: {
        "name": "words",
        "task": {"data": "own_tokens:reviews", "model": "own_tokens:network"},
        "clients": {"total": 6, "malicious": 2},
        "training": {"rounds": 3, "local_epochs": 1, "batch_size": 16, "lr": 0.5},
        "evaluation": {"every": 3},
        "seeds": 1,
        "matrix": {"attack": [attack], "defense": ["mean"]},
        **changes,
    }
    sys.modules.pop("own_tokens", None)


def planted(word):
    return {"name": "backdoor", "target": 1, "trigger": {"name": "word_trigger", **word}}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ({"word": [59], "place": 0, "padding": PADDING}, None),
        ({"word": [59], "place": 0}, None),  # overwrites the first word, whatever the length
        ({"word": [59], "place": -1}, "puts tokens behind the padding, token 0, in "),
        ({"word": [59], "place": 9}, "puts tokens behind the padding, token 0, in "),
        ({"word": [0], "place": 1}, "puts tokens behind the padding, token 0, in "),
        ({"word": [60]}, "below the vocabulary of 60"),
    ],
)
def test_a_word_that_no_network_reads_is_refused_before_anything_runs(suite, word, message):
    cell = lay_out(suite(planted(word)))[1].cells[-1]
    found = refusals([cell], (0,))
    assert (message is None) == (not found)
    assert message is None or message in found[cell.id]


def test_pixels_are_refused_with_the_reason(suite):
    cell = lay_out(suite(planted({}), task={"data": "digits", "model": "softmax"}))[1].cells[-1]
    assert "needs texts of at least 1 tokens" in refusals([cell], (0,))[cell.id]


def test_the_word_is_learned(suite):
    cell = lay_out(suite(planted({"word": [59, 58, 57], "padding": PADDING})))[1].cells[-1]
    record, _ = run_trial(cell, 0, {})
    found = record["result"]
    assert found["attack_success_raw"] > 0.3 and found["attack_success_clean"] < 0.1
    assert found["final_accuracy"] > 0.9
