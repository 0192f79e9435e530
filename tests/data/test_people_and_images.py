"""What users of LEAF, images and arrays of a function are taken for: what is not plain is refused, with what to do."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pandas as pd
import pytest
import torch

from fedguard.contracts import Dataset, Examples
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.tasks.data.dataset_checks import check_dataset
from tests.told import told


def load(name, **parameters):
    return load_registry().build("data", {"name": name, **parameters}).load()


def leaf(folder, part, name, users):
    (folder / part).mkdir(exist_ok=True)
    data = {user: {"x": [[0.1], [0.9], [0.5]], "y": [0, 1, 0]} for user in users}
    (folder / part / name).write_text(json.dumps({"users": list(users), "user_data": data}))


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_user_in_two_shards_is_refused(tmp_path, part):
    leaf(tmp_path, "train", "a.json", ["ann", "bob"])
    leaf(tmp_path, "test", "a.json", ["ann", "bob"])
    assert len(load("leaf", folder=str(tmp_path)).train) == 6
    leaf(tmp_path, part, "b.json", ["cid", "bob"])
    with pytest.raises(ConfigError, match=r"b.json: expected each user in one file.*'bob' is in a.json, too"):
        load("leaf", folder=str(tmp_path))


def test_a_user_named_by_number_and_by_text_is_one(tmp_path):
    (tmp_path / "train").mkdir()
    content = {"users": [7, "7"], "user_data": {"7": {"x": [[0.0]], "y": [0]}}}
    (tmp_path / "train" / "a.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="a user is named twice"):
        load("leaf", folder=str(tmp_path))


def test_a_user_in_train_and_test_part_is_one_client_however_the_name_is_written(tmp_path):
    leaf(tmp_path, "train", "a.json", ["ann", "bob ", "zo\u00e9"])
    leaf(tmp_path, "test", "a.json", ["bob", "cid", "zoe\u0301"])
    found = load("leaf", folder=str(tmp_path))
    assert (found.train.client.unique().tolist(), found.test.client.unique().tolist()) == ([0, 1, 3], [1, 2, 3])
    leaf(tmp_path, "train", "b.json", ["bob"])
    with pytest.raises(ConfigError, match=r"'bob' is in a.json, too"):
        load("leaf", folder=str(tmp_path))


OWN = {"x": [[0.1], [0.9]], "y": [0, 1]}
MISTOLD = {
    "data of nobody": (json.dumps({"users": ["ann"], "user_data": {"ann": OWN, "bob": OWN}}), "'bob' has data and is not among the users"),
    "other counts": (
        json.dumps({"users": ["ann", "bob"], "num_samples": [2, 3], "user_data": {"ann": OWN, "bob": OWN}}),
        "num_samples tells of 3 examples of user 'bob', who has 2",
    ),
    "fewer counts": (
        json.dumps({"users": ["ann", "bob"], "num_samples": [2], "user_data": {"ann": OWN, "bob": OWN}}),
        "num_samples has 1 numbers for 2 users",
    ),
    "twice": (
        f'{{"users": ["ann"], "user_data": {{"ann": {json.dumps(OWN)}, "ann": {json.dumps(OWN)}}}}}',
        "'ann' is listed there twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISTOLD)
def test_a_file_of_leaf_that_contradicts_itself_is_refused(tmp_path, kind):
    content, said = MISTOLD[kind]
    leaf(tmp_path, "train", "a.json", ["ann"])
    leaf(tmp_path, "test", "a.json", ["ann"])
    (tmp_path / "train" / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=f"expected LEAF's users and user_data.*{said}"):
        load("leaf", folder=str(tmp_path))


def images(folder, shape, name="a.npz"):
    np.savez(folder / name, x=np.random.default_rng(0).random((20, *shape)), y=np.arange(20) % 2)
    return str(folder / name)


LAST = [(28, 28, 1), (32, 32, 3), (8, 6, 4), (5, 40, 2)]
#: Channels may be first or last.
EITHER = [(3, 32, 3), (32, 3, 3), (3, 28, 1), (28, 3, 1), (2, 9, 4), (16, 4, 4), (28, 1, 1)]
FIRST = [
    (1, 28, 28),
    (3, 32, 32),
    (4, 8, 6),
    (3, 4, 4),
    (1, 2, 3),
    (1, 8, 3),
    (3, 3, 32),
    (16, 5, 5),
    (28, 28),
    (12,),
    (2, 3, 4, 5),
]


@pytest.mark.parametrize("shape", LAST)
def test_images_with_their_channels_last_are_refused_whatever_brings_them(tmp_path, shape, monkeypatch):
    said = r"expected images \[channels, height, width\]; got .*channels seem to be last"
    file = images(tmp_path, shape)
    for more in ({}, {"shape": shape}):
        with pytest.raises(ConfigError, match=said):
            load("npz", file=file, **more)
    part = Examples(torch.from_numpy(np.load(file)["x"]).float(), torch.from_numpy(np.load(file)["y"]))
    with pytest.raises(ConfigError, match=said):
        check_dataset("mine", Dataset(part, part, 2, (0.0, 1.0)))


@pytest.mark.parametrize("shape", EITHER)
def test_images_whose_channels_may_be_first_or_last_are_refused_until_a_shape_says_it(tmp_path, shape):
    file, said = images(tmp_path, shape), r"images \[channels, height, width\]; got .* may be first or last.*shape: "
    with pytest.raises(ConfigError, match=said):
        load("npz", file=file)
    found = load("npz", file=file, shape=shape, value_range=[0, 1])
    assert found.shape == shape and found.train.x.double().sum() > 0
    part = found.train
    with pytest.raises(ConfigError, match=said):
        check_dataset("mine", Dataset(part, part, 2, (0.0, 1.0)))
    check_dataset("mine", Dataset(part, part, 2, (0.0, 1.0)), shape=shape)
    with pytest.raises(ConfigError, match=r"mine: shape: expected inputs of the declared shape \[1, 2\]; got"):
        check_dataset("mine", Dataset(part, part, 2, (0.0, 1.0)), shape=(1, 2))


@pytest.mark.parametrize("shape", FIRST)
def test_other_inputs_are_taken_as_they_are(tmp_path, shape):
    assert load("npz", file=images(tmp_path, shape)).shape == shape


def test_a_shape_folds_flat_inputs_and_mixes_up_no_others(tmp_path):
    for there in ((12,), (3, 4), (1, 3, 4), (3, 4, 1)):
        found = load("npz", file=images(tmp_path, there), shape=[1, 3, 4], value_range=[0, 1])
        flat = load("npz", file=images(tmp_path, (12,)), value_range=[0, 1])
        assert found.shape == (1, 3, 4) and torch.equal(found.train.x.flatten(1), flat.train.x)
    for there in ((8, 8, 3), (8, 3, 8), (4, 48)):
        with pytest.raises(ConfigError, match=r"shape: expected flat inputs, or such of the shape \[3, 8, 8\]; got"):
            load("npz", file=images(tmp_path, there), shape=[3, 8, 8])
    leaf(tmp_path, "test", "a.json", ["ann"])
    leaf(tmp_path, "train", "a.json", ["ann"])
    data = {"ann": {"x": np.zeros((2, 8, 8, 3)).tolist(), "y": [0, 1]}}
    for part in ("train", "test"):
        (tmp_path / part / "a.json").write_text(json.dumps({"users": ["ann"], "user_data": data}))
    with pytest.raises(ConfigError, match=r"shape: expected flat inputs"):
        load("leaf", folder=str(tmp_path), shape=[3, 8, 8], value_range=[0, 1])


def test_public_examples_have_the_shape_too(tmp_path):
    file, public = images(tmp_path, (12,)), images(tmp_path, (1, 3, 4), "b.npz")
    assert load("npz", file=file, public=public, shape=[1, 3, 4]).shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.ma.masked_greater(np.random.default_rng(0).random((20, 3)), 0.5), "masked"),
        (np.array([b"12"] * 20)[:, None], "numbers"),
        (pd.DataFrame({"a": pd.Series([memoryview(b"12")] * 20, dtype=object)}), "numbers"),
        (np.array([["3,14"]] * 20, object), "numbers"),
        (np.ones((20, 3)) * 1j, "real numbers"),
        (pd.DataFrame({"a": ["1,5"] * 20}), "numbers"),
    ],
    ids=["masked", "bytes", "views of memory", "texts", "complex", "frame of texts"],
)
def test_arrays_of_a_function_that_would_be_misread_are_refused(x, said, monkeypatch):
    module = types.ModuleType("arrays_of_mine")
    module.load = lambda: (x, np.arange(20) % 2)
    monkeypatch.setitem(sys.modules, "arrays_of_mine", module)
    with pytest.raises(ConfigError, match=f"arrays_of_mine:load.*{said}") as told:
        load("function", target="arrays_of_mine:load")
    assert "\n" not in str(told.value)


def test_masked_labels_of_a_function_are_refused(monkeypatch):
    module = types.ModuleType("arrays_of_mine")
    module.load = lambda: (np.arange(40.0).reshape(20, 2), np.ma.masked_array(np.arange(20) % 2, np.arange(20) > 17))
    monkeypatch.setitem(sys.modules, "arrays_of_mine", module)
    with pytest.raises(ConfigError, match="arrays_of_mine:load: expected a label for each example; some are masked"):
        load("function", target="arrays_of_mine:load")


def test_check_tells_shapes_and_clients(tmp_path):
    said = told(name="npz", file=images(tmp_path, (3, 8, 6)), value_range=[0, 1])
    assert "16 train and 4 test examples; images [3, 8, 6]: 3 channels of 8 rows and 6 columns, from 0 to 1" in said
    assert "2 classes; no natural clients." in said
    leaf(tmp_path, "train", "a.json", ["ann", "bob"])
    leaf(tmp_path, "test", "a.json", ["bob", "cid"])
    said = told(name="leaf", folder=str(tmp_path))
    assert "inputs [1] from" in said
    assert "2 natural clients with 3 to 3 train examples, and 1 with test examples alone." in said
