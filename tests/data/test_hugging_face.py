"""Data sets of the library datasets, from folders that it wrote itself; without the library, its absence in one line."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from fedguard.errors import ConfigError, MissingExtra
from fedguard.registry import load_registry

KNOWN = load_registry()


def build(**given):
    return KNOWN.build("data", {"name": "hugging_face", **given})


def test_without_the_library_one_line_says_what_to_install(tmp_path, monkeypatch):
    usual = builtins.__import__

    def absent(name, *more, **keys):
        if name == "datasets":
            raise ImportError(name)
        return usual(name, *more, **keys)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match=r"hugging_face needs datasets.*fedguard\[hugging_face\]"):
        build(dataset=str(tmp_path)).load()


def test_a_revision_is_a_commit():
    with pytest.raises(ConfigError, match="expected a commit, 40 hexadecimal digits; got 'main'"):
        build(dataset="ylecun/mnist", revision="main")


@pytest.fixture
def folder(tmp_path):
    """Gray images of two clients in two splits, with a class that no example has."""
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    pictures = pytest.importorskip("PIL.Image")
    drawn = np.random.default_rng(3).integers(256, size=(30, 4, 5)).astype(np.uint8)
    columns = {
        "picture": [pictures.fromarray(one) for one in drawn],
        "digit": [n % 3 for n in range(30)],
        "writer": [f"w{n % 4}" for n in range(30)],
        "word": ["a"] * 30,
        "numbers": [[float(n), 2.0] for n in range(30)],
        "ragged": [[1.0] * (1 + n % 2) for n in range(30)],
    }
    features = datasets.Features({
        "picture": datasets.Image(), "digit": datasets.ClassLabel(names=["zero", "one", "two", "three"]),
        "writer": datasets.Value("string"), "word": datasets.Value("string"), "numbers": datasets.List(datasets.Value("float32")),
        "ragged": datasets.List(datasets.Value("float32")),
    })  # fmt: skip
    whole = datasets.Dataset.from_dict(columns, features=features)
    parts = datasets.DatasetDict({"train": whole.select(range(20)), "validation": whole.select(range(20, 30))})
    parts.save_to_disk(str(tmp_path / "set"))
    return str(tmp_path / "set"), drawn


def test_images_are_read_in_their_order_with_all_named_classes(folder):
    where, drawn = folder
    found = build(dataset=where, input="picture", label="digit", client="writer", test="validation", largest=255).load()
    assert (found.shape, found.classes, found.value_range) == ((1, 4, 5), 4, (0.0, 1.0))
    assert np.array_equal((found.train.x[:, 0].numpy() * 255).round(), drawn[:20])
    assert np.array_equal((found.test.x[:, 0].numpy() * 255).round(), drawn[20:])
    assert found.train.y.tolist() == [n % 3 for n in range(20)] and found.test.y.tolist() == [
        n % 3 for n in range(20, 30)
    ]
    assert found.train.client.tolist() == [n % 4 for n in range(20)]


def test_lists_of_numbers_are_standardized_and_a_test_part_drawn(folder):
    found = build(dataset=folder[0], input="numbers", label="digit").load()
    assert found.shape == (2,) and len(found.train) + len(found.test) == 20 and len(found.test) > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"label": "digits"}, "train: expected a column 'digits'; got picture, digit, writer"),
        ({"label": "digit", "test": "test"}, "expected a split 'test'; got train, validation"),
        (
            {"label": "digit", "input": "word"},
            "column word: expected images, or lists of numbers; got 'a'. For texts write a table",
        ),
        ({"label": "digit", "input": "ragged"}, r"expected inputs of one shape; got \[1\] and \[2\]"),
        ({"label": "digit", "largest": 1}, r"expected pixels in 0 ... 1; got 0 to 255"),
    ],
)
def test_what_is_wrong_is_one_line(folder, given, said):
    with pytest.raises(ConfigError, match=said) as caught:
        build(dataset=folder[0], **{"input": "picture", **given}).load()
    assert "\n" not in str(caught.value)


def test_a_damaged_folder_and_none_are_one_line(folder, tmp_path):
    next((tmp_path / "set/train").glob("*.arrow")).write_bytes(b"no arrow")
    for where, said in ((folder[0], "cannot be read"), (str(tmp_path / "none"), "no such folder. Save one")):
        with pytest.raises(ConfigError, match=said) as caught:
            build(dataset=where, input="picture", label="digit").load()
        assert "\n" not in str(caught.value)


def test_nothing_is_fetched_without_a_revision(folder, monkeypatch):
    """A name of the hub that is no folder is refused before the library asks the network."""
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("the hub is asked"))
    with pytest.raises(ConfigError, match="pin a commit of the hub"):
        build(dataset="ylecun/mnist").load()
    asked = []
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, **more: asked.append((name, more)) or datasets.load_from_disk(folder[0])
    )
    commit = "0123456789abcdef" * 2 + "01234567"
    assert build(dataset="some/set", revision=commit, input="picture", label="digit", largest=255).load().classes == 4
    assert asked == [("some/set", {"revision": commit})]
