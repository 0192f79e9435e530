"""Published data sets that are read from files: where they are found, whether they are the right ones, what they hold.

Tests of the real files skip where these are not installed; small files of the same form take their place.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.tasks.data import fashion_mnist

KNOWN = load_registry()


def load(name, **given):
    return KNOWN.build("data", {"name": name, **given}).load()


# --- Fashion-MNIST

NAMES = {"train-images": "idx3", "train-labels": "idx1", "t10k-images": "idx3", "t10k-labels": "idx1"}


def small(folder: Path, ending: str = "") -> Mapping[str, str]:
    """Write four small files, and return the SHA-256 of each."""
    folder.mkdir(parents=True, exist_ok=True)
    draw, found = np.random.default_rng(0), {}
    for name, kind in NAMES.items():
        count = 30 if name.startswith("train") else 20
        values = draw.integers(256, size=(count, 4, 4)) if "images" in name else np.arange(count) % 10
        content = struct.pack(">HBB", 0, 8, values.ndim) + b"".join(struct.pack(">I", one) for one in values.shape)
        content += values.astype(np.uint8).tobytes()
        packed = gzip.compress(content, mtime=7) if ending else content
        (folder / f"{name}-{kind}-ubyte{ending}").write_bytes(packed)
        found[name] = hashlib.sha256(content).hexdigest()
    return found


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Debian's folder and the cache, both below a folder of the test; and the sums of the small files."""
    folders = tmp_path / "debian", tmp_path / "cache"
    monkeypatch.setattr(fashion_mnist, "FOLDERS", tuple(map(str, folders)))
    monkeypatch.setattr(fashion_mnist, "SHA256", small(tmp_path / "small"))
    return folders


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_fashion_mnist_is_found_in_each_place_plain_or_packed(places, tmp_path, ending):
    debian, cache = places
    found = []
    for where in (cache, debian):  # a file of both is Debian's
        small(where, ending)
        found.append(load("fashion_mnist"))
    found.append(load("fashion_mnist", folder=str(tmp_path / "small")))
    for one in found:
        assert (one.shape, one.classes, one.value_range) == ((1, 4, 4), 10, (0.0, 1.0))
        assert (len(one.train), len(one.test)) == (30, 20)
        assert one.train.y.tolist() == [n % 10 for n in range(30)] and one.test.y.tolist() == [
            n % 10 for n in range(20)
        ]
    pixels = np.random.default_rng(0).integers(256, size=(30, 4, 4))
    assert np.array_equal((found[0].train.x[:, 0].numpy() * 255).round(), pixels)


def test_without_the_files_one_line_names_the_three_ways_to_get_them(places):
    with pytest.raises(ConfigError) as caught:
        load("fashion_mnist")
    said = str(caught.value)
    assert "\n" not in said
    for way in ("apt install dataset-fashion-mnist", f"into {places[1]}", "{name: fashion_mnist, folder: FOLDER}"):
        assert way in said
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        load("fashion_mnist", folder="nowhere")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_one_changed_bit_of_any_file_is_noticed_in_one_line(places, name, ending):
    small(places[0], ending)
    file = places[0] / f"{name}-{NAMES[name]}-ubyte{ending}"
    content = bytearray(gzip.decompress(file.read_bytes()) if ending else file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(gzip.compress(content) if ending else content)
    with pytest.raises(
        ConfigError, match=r"expected content with SHA-256 [0-9a-f]{16}\.\.\.; got [0-9a-f]{16}\.\.\."
    ) as caught:
        load("fashion_mnist")
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


def test_the_sums_are_of_the_unpacked_content(places):
    """Debian packs the files anew; each packing of the right content is the right file."""
    small(places[0], ".gz")
    for file in places[0].iterdir():
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), compresslevel=1, mtime=99))
    assert len(load("fashion_mnist").train) == 30


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda file: file.unlink(), r"expected one file named \*train-images\*; got none"),
        (lambda file: file.write_bytes(file.read_bytes()[:-3]), "It is cut or damaged"),
        (lambda file: file.write_bytes(b"\x80\x04K\x01."), "expected an IDX file; its first bytes are '80044b01'"),
    ],
)
def test_damaged_files_are_one_line(places, harm, said):
    small(places[0])
    harm(places[0] / "train-images-idx3-ubyte")
    with pytest.raises(ConfigError, match=said) as caught:
        load("fashion_mnist")
    assert "\n" not in str(caught.value)


def test_fashion_mnist_itself():
    if not any(Path(folder).expanduser().is_dir() for folder in fashion_mnist.FOLDERS):
        pytest.skip("Fashion-MNIST is not installed (apt install dataset-fashion-mnist)")
    found = load("fashion_mnist")
    assert (len(found.train), len(found.test), found.shape) == (60_000, 10_000, (1, 28, 28))
    assert found.train.y.bincount().tolist() == [6_000] * 10 and found.test.y.bincount().tolist() == [1_000] * 10
    # Mean and deviation of the pixels as published for normalization, 0.2860 and 0.3530
    assert float(found.train.x.mean()) == pytest.approx(0.2860, abs=1e-4)
    assert float(found.train.x.std()) == pytest.approx(0.3530, abs=1e-4)
