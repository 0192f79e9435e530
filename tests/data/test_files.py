"""Data from files: what is written is what is loaded, and what is wrong with a file is said in one line."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fedguard.errors import ConfigError
from fedguard.registry import load_registry


def load(name, **given):
    return load_registry().build("data", {"name": name, **given}).load()


def draw(*shape, high=256, seed=0):
    return np.random.default_rng(seed).integers(high, size=shape)


# IDX: by struct, as LeCun's page says, not by NumPy.


def idx(path, values, kind=0x08, code="B"):
    values = np.asarray(values)
    header = struct.pack(">HBB", 0, kind, values.ndim) + b"".join(struct.pack(">I", n) for n in values.shape)
    content = header + struct.pack(f">{values.size}{code}", *values.ravel().tolist())
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return content


def mnist(folder, ending="", test="t10k"):
    images, labels = draw(30, 4, 5), np.arange(30) % 3
    idx(folder / f"train-images-idx3-ubyte{ending}", images[:20])
    idx(folder / f"train-labels-idx1-ubyte{ending}", labels[:20])
    idx(folder / f"{test}-images-idx3-ubyte{ending}", images[20:])
    idx(folder / f"{test}-labels-idx1-ubyte{ending}", labels[20:])
    return images, labels


@pytest.mark.parametrize(("ending", "test"), [("", "t10k"), (".gz", "t10k"), (".gz", "test")])
def test_idx_files_give_their_images_over_255_and_their_labels(tmp_path, ending, test):
    images, labels = mnist(tmp_path, ending, test)
    found = load("idx", folder=str(tmp_path))
    assert (found.shape, found.classes, found.value_range) == ((1, 4, 5), 3, (0.0, 1.0))
    assert torch.equal(found.train.x, torch.from_numpy(images[:20, None] / np.float32(255)).float())
    assert found.test.y.tolist() == labels[20:].tolist()


@pytest.mark.parametrize(("kind", "code"), [(0x0B, "h"), (0x0C, "i"), (0x0D, "f"), (0x0E, "d")])
def test_idx_numbers_of_every_kind_are_big_endian(tmp_path, kind, code):
    mnist(tmp_path)
    idx(tmp_path / "train-images-idx3-ubyte", np.full((20, 4, 5), 51), kind, code)
    assert load("idx", folder=str(tmp_path)).train.x.unique().tolist() == [pytest.approx(0.2)]


def test_both_parts_are_over_255_where_one_of_them_is_all_but_black(tmp_path):
    images, _ = mnist(tmp_path)
    idx(tmp_path / "t10k-images-idx3-ubyte", images[20:] % 2)
    found = load("idx", folder=str(tmp_path))
    assert found.test.x.unique().tolist() == [0, pytest.approx(1 / 255)] and float(found.train.x.max()) > 0.9


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda one: one[:-1], "expected 400 bytes of values; got 399. It is cut or damaged"),
        (lambda one: one + b"\0", "expected 400 bytes of values; got 401 or more. It is cut or damaged"),
        (lambda one: one[:9], "its header ends early. It is cut or damaged"),
        (lambda one: b"\0\0\x08\xff" + one, "expected an IDX file; its first bytes are '000008ff'"),
        (lambda one: b"\0\0\x08\3" + b"\xff" * 12, "train-images-idx3-ubyte: "),
        (lambda one: b"", "expected an IDX file; its first bytes are ''"),
        (lambda one: b"GIF89a" + one, "expected an IDX file; its first bytes are '47494638'"),
        (
            lambda one: struct.pack(">HBBI", 0, 8, 1, 3) + b"abc",
            r"expected images \[N, height, width\]; got shape \[3\]",
        ),
        (lambda one: struct.pack(">HBBIII", 0, 8, 3, 0, 4, 5), "expected examples; got none"),
        (
            lambda one: struct.pack(">HBBIII", 0, 8, 3, 1, 4, 5) + bytes(20),
            r"expected 1 labels \[N\]; got shape \[20\]",
        ),
    ],
)
def test_a_cut_or_foreign_idx_file_is_refused(tmp_path, harm, said):
    mnist(tmp_path)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(ConfigError, match=said):
        load("idx", folder=str(tmp_path))


def test_idx_files_that_are_missing_doubled_or_badly_packed_are_named(tmp_path):
    with pytest.raises(
        ConfigError, match="nowhere: no such folder. Paths are relative to where `fedguard` was started"
    ):
        load("idx", folder="nowhere")
    with pytest.raises(ConfigError, match=r"expected one file named \*train-images\*; got none"):
        load("idx", folder=str(tmp_path))
    mnist(tmp_path, ".gz")
    packed = tmp_path / "train-labels-idx1-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ConfigError, match="train-labels-idx1-ubyte.gz: cannot be read"):
        load("idx", folder=str(tmp_path))
    mnist(tmp_path)
    with pytest.raises(ConfigError, match="got train-images-idx3-ubyte, train-images-idx3-ubyte.gz"):
        load("idx", folder=str(tmp_path))


# NumPy.


def npz(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_npz_with_a_test_part_is_taken_as_it_is(tmp_path):
    x, y = draw(10, 3) / 256, np.arange(10) % 2
    file = npz(
        tmp_path / "a.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:], client_train=np.arange(6) // 2
    )
    found = load("npz", file=file, value_range=[0, 1])
    assert torch.equal(found.train.x, torch.from_numpy(x[:6]).float()) and torch.equal(
        found.test.y, torch.tensor(y[6:])
    )
    assert found.train.client.tolist() == [0, 0, 1, 1, 2, 2] and found.test.client is None


def test_npz_without_one_is_split_and_standardized_by_the_train_part_alone(tmp_path):
    x, y = draw(100, 3).astype(float), np.arange(100) % 4
    x[:, 1] = 0.1  # a column that never changes
    found = load("npz", file=npz(tmp_path / "a.npz", x=x, y=y), test=0.25)
    assert (len(found.train), len(found.test)) == (75, 25)
    assert sorted(found.train.y.bincount().tolist()) == [18, 19, 19, 19]  # of each class alike
    assert found.train.x.mean(0).abs().max() < 1e-6
    assert found.train.x.std(0, unbiased=False).tolist() == pytest.approx([1, 0, 1], abs=1e-5)
    assert found.value_range == (float(found.train.x.min()), float(found.train.x.max()))
    every = torch.cat([found.train.x, found.test.x]).double().numpy()
    for j in (0, 2):  # one line maps the file's column to the loaded one, row for row
        assert np.allclose(
            np.diff(np.sort(x[:, j])) / np.ptp(x[:, j]), np.diff(np.sort(every[:, j])) / np.ptp(every[:, j]), atol=1e-6
        )


X, Y = draw(20, 3) / 256, np.arange(20) % 2


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X}, "expected arrays x and y, or x_train, y_train, x_test and y_test; got x"),
        ({"x": X[:0], "y": Y[:0]}, "expected examples; got none"),
        ({"x": X[:, 0], "y": Y}, r"expected inputs \[N, ...\]; got shape \[20\]"),
        ({"x": X[:, :0], "y": Y}, r"expected inputs \[N, ...\]; got shape \[20, 0\]"),
        ({"x": np.array(3.0), "y": np.array(1)}, r"expected inputs \[N, ...\]; got shape \[\]"),
        ({"x": X, "y": Y, "client": np.where(Y, np.nan, 0)}, "expected finite clients"),
        ({"x": X, "y": Y[:7]}, r"expected 20 labels \[N\]; got shape \[7\]"),
        ({"x": X, "y": np.eye(2)[Y]}, r"expected 20 labels \[N\]; got shape \[20, 2\]"),
        ({"x": X, "y": Y, "client": Y[:3]}, r"expected 20 clients \[N\]; got shape \[3\]"),
        ({"x": X.astype(str), "y": Y}, "expected inputs that are numbers"),
        ({"x": X * 1j, "y": Y}, "expected inputs that are numbers; got complex128"),
        ({"x": np.where(X > 0.9, np.nan, X), "y": Y}, "expected finite inputs; some are NaN or infinite. Fill or drop them"),
        ({"x": X + 1e300, "y": Y}, r"expected inputs from -3.4e.38 to 3.4e.38, which float32 holds; got 1e.300. Write them"),
        ({"x": np.where(X > 0.9, -1e39, X), "y": Y}, r"which float32 holds; got -1e.39"),
        ({"x": np.where(X > 0.9, -np.inf, X), "y": Y}, "expected finite inputs; some are NaN or infinite"),
        ({"x": 2**60 + np.arange(20)[:, None], "y": Y}, "got whole numbers beyond 2.53, which look alike as floats"),
        ({"x": np.uint64(2**64 - 1) - np.arange(20, dtype=np.uint64)[:, None], "y": Y}, "got whole numbers beyond 2.53"),
        ({"x": -(2**53) - np.arange(20)[:, None], "y": Y}, "got whole numbers beyond 2.53"),
        ({"x": X, "y": np.array(["", "b"])[Y]}, "expected labels that are not empty; got '' for 10 examples, first for example 1. F"),
        ({"x": X, "y": np.array(["a", " "])[Y]}, "expected labels that are not empty; got ' ' for 10 examples, first for example 2"),
        ({"x": X, "y": Y, "client": np.array(["", "b"])[Y]}, "expected clients that are not empty"),
        ({"x": X, "y": Y, "clients": Y}, "expected arrays x, y, and client where .* got clients as well, which nobody reads"),
        ({"x": X, "y": Y, "mask": Y, "ids": Y}, "got mask, ids as well"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y, "client": Y}, "and client_train where .* got client as well"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y, "x": X, "y": Y}, "got x, y as well"),
        ({"x": X, "y": np.where(Y, np.nan, 0)}, "expected finite labels"),
        ({"x": X, "y": 2 * Y}, "got 2 different ones from 0 to 2, with 2 in the place of 1. Number the classes without gaps"),
        ({"x": X, "y": Y + 1}, "with 1 in the place of 0"),
        ({"x": X, "y": Y - 1}, "from -1 to 0, with -1 in the place of 0"),
        ({"x": X, "y": 0 * Y}, r"expected at least two classes; got \[0\]"),
        ({"x": X, "y": np.arange(20) // 19}, "expected two examples of each class or more, to split off a test part; class 1"),
        ({"x": X, "y": np.arange(20) // 2}, "a test part of 0.2 cannot be split off"),
        ({"x": X, "y": Y.astype(str).astype("S")}, "expected labels that are numbers or texts"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, r"expected test inputs of the train inputs' shape \[3\]"),
        ({"x_train": X, "y_train": Y, "x_test": X[:0], "y_test": Y[:0]}, "test part: expected examples; got none"),
        ({"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3] + 1}, "class 2 is in the test part alone"),
        ({"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": ["a", "b", "c"]}, "expected labels of one kind"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_data_set_are_refused(tmp_path, arrays, said):
    with pytest.raises(ConfigError, match=said) as caught:
        load("npz", file=npz(tmp_path / "a.npz", **arrays))
    assert "\n" not in str(caught.value) and "a.npz" in str(caught.value)


def test_inputs_outside_the_range_that_is_claimed_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"expected inputs in \[0, 0.5\]; got 0"):
        load("npz", file=npz(tmp_path / "a.npz", x=X, y=Y), value_range=[0, 0.5])


class Bomb:
    """What a malicious file would run as it is read."""

    def __reduce__(self):
        return (open, ("harm", "w"))


def test_an_array_of_objects_is_never_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.array([[Bomb()]] * 4, dtype=object)
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 0, 1, 1]))
    x.dump(tmp_path / "b.npz")
    for file in ("a.npz", "b.npz"):
        with pytest.raises(ConfigError, match=f"{file}: expected an .npz file of plain arrays"):
            load("npz", file=file)
    assert not (tmp_path / "harm").exists()


def test_a_header_that_claims_more_than_there_is_memory_for_is_refused(tmp_path):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)})
    for name, content in (("big", head.getvalue()), ("foreign", b"hello")):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as packed:
            packed.writestr("x.npy", content)
            packed.writestr("y.npy", b"hello")
        with pytest.raises(ConfigError, match=f"{name}.npz: expected an .npz file of plain arrays: "):
            load("npz", file=str(tmp_path / f"{name}.npz"))


def test_arrays_that_are_not_needed_are_not_read(tmp_path):
    file = npz(tmp_path / "a.npz", x=X, y=Y, names=np.array([Bomb()], dtype=object))
    with pytest.raises(ConfigError, match="got names as well"):
        load("npz", file=file)
    large = 2**60 + 2**40 * np.arange(20)[:, None]  # these floats tell apart
    assert len(load("npz", file=npz(tmp_path / "b.npz", x=large, y=Y)).train) == 16


def test_columns_of_very_small_or_very_unequal_numbers(tmp_path):
    found = load("npz", file=npz(tmp_path / "a.npz", x=X * 1e-320, y=Y))
    assert found.train.x.isfinite().all() and np.isfinite(found.value_range).all()
    with pytest.raises(ConfigError, match="differ by too much to be standardised"):
        x_test = np.where(X > 0.5, 1e38, X)
        load("npz", file=npz(tmp_path / "b.npz", x_train=X * 1e-30, y_train=Y, x_test=x_test, y_test=Y))


def test_a_home_of_nobody_and_a_name_that_is_too_long_are_refused():
    for file in ("~no-such-user/a.npz", "a" * 5000):
        with pytest.raises(ConfigError, match="cannot be opened"):
            load("npz", file=file)


def test_npz_files_that_are_none_are_refused(tmp_path):
    np.save(tmp_path / "single.npy", X)
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    whole = tmp_path / "cut.npz"
    npz(whole, x=X, y=Y)
    whole.write_bytes(whole.read_bytes()[:200])
    for file in ("single.npy", "text.npz", "empty.npz", "cut.npz"):
        with pytest.raises(ConfigError, match=f"{file}: expected an .npz file of plain arrays"):
            load("npz", file=str(tmp_path / file))
    with pytest.raises(ConfigError, match="missing.npz: no such file"):
        load("npz", file=str(tmp_path / "missing.npz"))
    with pytest.raises(ConfigError, match=r"npz: test: expected a number in \(0, 1\); got 1"):
        load("npz", file="a.npz", test=1.0)


# Images.


def picture(path, value, size=(6, 4), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_a_folder_of_images_gives_channels_first_in_0_to_1_with_classes_in_order_of_their_names(tmp_path):
    for number in range(5):
        picture(tmp_path / "zebra" / f"{number}.png", (255, 51, 0))
        picture(tmp_path / "ant" / f"{number}.PNG", (0, 0, 102))
    (tmp_path / "ant" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    found = load("image_folder", folder=str(tmp_path), size=[3, 2])
    assert (found.shape, found.classes, len(found.train), len(found.test)) == ((3, 3, 2), 2, 8, 2)
    ant, zebra = (found.train.x[found.train.y == label] for label in (0, 1))
    assert zebra.amax((0, 2, 3)).tolist() == zebra.amin((0, 2, 3)).tolist() == pytest.approx([1, 0.2, 0])
    assert ant.amax((0, 2, 3)).tolist() == pytest.approx([0, 0, 0.4])


def test_rows_and_columns_of_an_image_are_not_swapped(tmp_path):
    for name in ("a", "b"):
        for number in range(4):
            picture(tmp_path / "train" / name / f"{number}.png", 0, (3, 2), "L")
            picture(tmp_path / "test" / name / f"{number}.png", 0, (3, 2), "L")
    image = Image.new("L", (3, 2), 0)
    image.putpixel((2, 0), 255)  # x = 2, y = 0: the end of the first row
    image.save(tmp_path / "test" / "a" / "0.png")
    found = load("image_folder", folder=str(tmp_path), size=[2, 3], gray=True)
    assert (found.shape, len(found.train), len(found.test)) == ((1, 2, 3), 8, 8)
    assert found.test.x[0, 0].tolist() == [[0, 0, 1], [0, 0, 0]]


def test_images_of_16_bits_keep_their_shades_and_those_of_32_are_refused(tmp_path):
    for name, value in (("a", 16_384), ("b", 49_152)):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.fromarray(np.full((4, 4), value, np.uint16)).save(tmp_path / name / f"{number}.png")
    for gray in (False, True):
        found = load("image_folder", folder=str(tmp_path), size=[2, 2], gray=gray)
        assert found.train.x[found.train.y == 0].unique().tolist() == [pytest.approx(0.25, abs=1e-4)]
        assert found.train.x[found.train.y == 1].unique().tolist() == [pytest.approx(0.75, abs=1e-4)]
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "b" / "9.tif")
    with pytest.raises(ConfigError, match="9.tif: expected 8 or 16 bits for each pixel and channel"):
        load("image_folder", folder=str(tmp_path))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA", "CMYK"])
def test_images_of_every_mode_are_read_without_a_warning(tmp_path, mode):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            image = Image.new("RGB", (4, 4), (255, 255, 255)).convert(mode)
            more = {"transparency": bytes([255] * 100 + [128] * 156)} if mode == "P" else {}
            image.save(tmp_path / name / f"{number}.{'tif' if mode == 'CMYK' else 'png'}", **more)
    assert load("image_folder", folder=str(tmp_path)).train.x.min() == 1


def test_a_train_folder_without_a_test_folder_is_told_what_is_missing(tmp_path):
    picture(tmp_path / "train" / "a" / "1.png", 0, mode="L")
    with pytest.raises(ConfigError, match="got folders; the test part has to stand in test/CLASS beside train/CLASS"):
        load("image_folder", folder=str(tmp_path))


def test_folders_without_images_and_damaged_images_are_named(tmp_path):
    with pytest.raises(ConfigError, match="expected folders of images, one for each class; got none"):
        load("image_folder", folder=str(tmp_path))
    picture(tmp_path / "a" / "1.png", 0, mode="L")
    (tmp_path / "b").mkdir()
    with pytest.raises(ConfigError, match="b: expected images .*; got none"):
        load("image_folder", folder=str(tmp_path))
    (tmp_path / "b" / "1.png").write_bytes((tmp_path / "a" / "1.png").read_bytes()[:45])
    with pytest.raises(ConfigError, match="1.png: cannot be read as an image"):
        load("image_folder", folder=str(tmp_path))
    with pytest.raises(ConfigError, match="size.0: expected a number in .1, 16384.; got 0"):
        load("image_folder", folder=str(tmp_path), size=[0, 4])


# Tables.

CSV = "site,age,colour,sick\n" + "".join(
    f"{'north' if i % 3 else 'south'},{20 + i},{('red', 'blue')[i % 2]},{('no', 'yes')[i // 5 % 2]}\n"
    for i in range(40)
)


def write_table(folder, kind):
    import pandas as pd

    file = folder / f"table.{kind}"
    if kind == "csv":
        file.write_text(CSV)
    else:
        pd.read_csv(io.StringIO(CSV)).to_parquet(file)
    return str(file)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_gives_numbers_indicators_labels_and_clients(tmp_path, kind):
    found = load("table", file=write_table(tmp_path, kind), label="sick", client="site")
    assert (found.shape, found.classes, len(found.train), len(found.test)) == ((3,), 2, 32, 8)
    parts = (found.train, found.test)
    age, blue, red = torch.cat([part.x for part in parts]).T.double()
    assert torch.allclose(blue, -red, atol=1e-6) and blue.unique().numel() == 2  # standardized opposites
    rows = age.argsort().argsort()  # the age tells the row of the file
    y, client = (torch.cat([getattr(part, what) for part in parts]) for what in ("y", "client"))
    assert torch.equal(y, rows // 5 % 2)
    assert torch.equal(client, (rows % 3 == 0).long())  # north, south
    assert torch.equal((blue > 0).long(), rows % 2)
    years = found.train.x[:, 0].double()
    assert torch.allclose(age.sort().values.diff(), age.diff().abs().min().expand(39), atol=1e-5)
    assert abs(float(years.mean())) < 1e-6 and float(years.std(unbiased=False)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        (CSV, {"label": "sik"}, "unknown column 'sik'. Did you mean 'sick'"),
        (CSV, {"label": "sick", "client": "place"}, "unknown column 'place'"),
        (
            CSV.replace(",30,", ",,"),
            {"label": "sick"},
            "column 'age' has none in 1, first in row 11 below the header. .* Fill or drop them",
        ),
        (
            CSV.replace(",30,", ",inf,"),
            {"label": "sick"},
            "expected finite numbers or texts; column .age. has inf in row",
        ),
        ("sick\n1\n0\n", {"label": "sick"}, "expected columns beside the label.s; got none"),
        ("a,sick\n", {"label": "sick"}, "expected examples; got none"),
        ("", {"label": "sick"}, "cannot be read: it is empty"),
        ("a,b\n1,2\n1,2,3\n", {"label": "b"}, "expected 2 cells in each row, as in the header; line 3 has 3"),
        (
            "a,y\n" + "".join(f"name{i},{i % 2}\n" for i in range(1002)),
            {"label": "y"},
            "'a' has 1002 in 1002 rows, such as 'name0'. Leave it out",
        ),
        ("a,y\n" + "".join(f"{i},{i % 2 + 0.5}\n" for i in range(20)), {"label": "z"}, "unknown column 'z'"),
        ("a,y\n" + "".join(f"{i},{2 * (i % 2)}\n" for i in range(20)), {"label": "y"}, "with 2 in the place of 1"),
        (
            CSV.replace(",", ";"),
            {"label": "sick"},
            "separated by commas, and no comments; the header is 'site;age;colour;sick'",
        ),
        (CSV.replace("age,", "sick,"), {"label": "sick"}, "columns of different names; 'sick' is listed there twice"),
        (CSV.replace("site,", ","), {"label": "sick"}, "a name for each column; column 1 has none"),
        (
            CSV.replace("site,age", "site"),
            {"label": "sick"},
            "expected 3 cells in each row, as in the header; line 2 has 4",
        ),
        (
            CSV.replace(",30,", ",?,"),
            {"label": "sick"},
            "expected numbers in column 'age', as in most rows; got '[?]' in row 11",
        ),
        (
            "day,y\n" + "".join(f"2020-02-{i + 1},{i % 2}\n" for i in range(28)),
            {"label": "y"},
            "expected numbers or categories in column 'day'; got dates or times, such as '2020-02-1'",
        ),
        (
            "a,y\n" + "".join(f"{10**30 + i},{i % 2}\n" for i in range(28)),
            {"label": "y"},
            "column 'a'; got whole numbers beyond 2.53, which look alike as floats",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, content, given, said):
    file = tmp_path / "table.csv"
    file.write_text(content)
    with pytest.raises(ConfigError, match=said) as caught:
        load("table", file=str(file), **given)
    assert "\n" not in str(caught.value)


def test_a_tables_columns_keep_their_place_whatever_marks_the_file_begins_with(tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(CSV.replace("site,", "2,").replace("\n", "\r\n").encode("utf-8-sig"))
    assert load("table", file=str(file), label="sick", client="2").train.client.unique().tolist() == [0, 1]


def test_one_text_at_the_end_of_a_long_column_of_numbers_is_found(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("a,y\n" + "".join(f"{i % 50},{i % 2}\n" for i in range(150_000)) + "x,1\nx,0\n")
    with pytest.raises(ConfigError, match="as in most rows; got 'x' in row 150001 below the header"):
        load("table", file=str(file), label="y")


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ConfigError, match="a.parquet: cannot be read"):
        load("table", file=str(tmp_path / "a.parquet"), label="y")
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"ends in .csv or .parquet"):
        load("table", file=str(tmp_path / "a.xlsx"), label="y")


# LEAF.


def leaf(folder, part, users, name="all.json"):
    (folder / part).mkdir(exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    content = {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}
    (folder / part / name).write_text(json.dumps(content))


def test_leafs_numbers_keep_their_users(tmp_path):
    users = {f"writer{i}": (np.full((4, 6), i / 4).tolist(), [0, 1, 2, 0]) for i in range(4)}
    leaf(tmp_path, "train", {user: users[user] for user in ("writer0", "writer3")}, "a.json")
    leaf(tmp_path, "train", {"writer1": users["writer1"], "silent": ([], [])}, "b.json")
    leaf(tmp_path, "test", {user: users[user] for user in ("writer2", "writer3")})
    found = load("leaf", folder=str(tmp_path), shape=[1, 2, 3], value_range=[0, 1])
    assert (found.shape, found.classes, len(found.train), len(found.test)) == ((1, 2, 3), 3, 12, 8)
    assert found.train.client.tolist() == [0] * 4 + [3] * 4 + [1] * 4  # writer3 is the same in both parts
    assert found.test.client.tolist() == [2] * 4 + [3] * 4
    assert torch.equal(found.train.x[:, 0, 0, 0], torch.tensor([0.0] * 4 + [0.75] * 4 + [0.25] * 4))


def test_leafs_texts_become_characters_by_number(tmp_path):
    leaf(tmp_path, "train", {"ROMEO": (["abc", "bcd"], ["d", "a"]), "JULIET": (["dab"], ["é"])})
    leaf(tmp_path, "test", {"ROMEO": (["aaa", "abz"], ["b", "a"])})
    found = load("leaf", folder=str(tmp_path))
    assert found.tokens and (found.classes, found.value_range, found.shape) == (5, (0.0, 4.0), (3,))
    assert found.train.x.tolist() == [[0, 1, 2], [1, 2, 3], [3, 0, 1]] and found.train.y.tolist() == [3, 0, 4]
    assert found.test.x.tolist() == [[0, 0, 0]]  # nobody can read the z


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"users": ["a"], "user_data": {}}', "expected LEAF's users and user_data: user 'a' has no data. Add it"),
        ('{"users": ["a"]}', "expected an object for user_data; got none"),
        ('["a"]', "expected an object for the file; got a list"),
        ('{"users": [', "expected LEAF's users and user_data: it is no JSON: .* may be cut"),
        ("[" * 200_000, "expected LEAF's users and user_data: it is nested too deeply"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [0, 1]}}}', "user 'a' has 1 inputs and 2 labels"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [0, 1]}}}', "expected inputs of one length"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[NaN], [1]], "y": [0, 1]}}}', "a.json: .*inputs that are finite numbers or texts of user 'a'; got nan"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5, "0.5"]], "y": [0]}}}', "a.json: .* of user 'a'; got '0.5'"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5, true]], "y": [0]}}}', "inputs that are finite .* of user 'a'; got True"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5], [1]], "y": [0, true]}}}', "labels that are finite .* of user 'a'; got True"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5], [1]], "y": [false, true]}}}', "labels that are .*; got False"),
        ('{"users": "a", "user_data": {"a": {"x": [[0.5]], "y": [0]}}}', "expected a list for users; got a text"),
        ('{"users": [true], "user_data": {"True": {"x": [[0.5]], "y": [0]}}}', "texts or whole numbers for users; got True"),
        ('{"users": ["a"], "user_data": {"a": []}}', "expected an object for the data of user 'a'; got a list"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]]}}}', "user 'a' has no y: expected x, the inputs, and y, the labels"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": 0}}}', "expected a list for the labels of user 'a'; got a number"),
        ('{"users": ["a"], "num_samples": ["1"], "user_data": {"a": {"x": [[1]], "y": [0]}}}', "whole numbers in num_samples; got '1'"),
        ('{"users": ["a"], "num_samples": 1, "user_data": {"a": {"x": [[1]], "y": [0]}}}', "expected a list for num_samples; got a number"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [1' + "0" * 30 + "]}}}", "labels that are finite numbers or texts of user 'a', below"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1], [1]], "y": [0, 1, 3]}}}', "with 3 in the place of 2"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1]], "y": [null, 2]}}}', "labels that are finite numbers or texts of user 'a'; got None"),
        ('{"users": ["a"], "user_data": {"a": {"x": ["ab", "abc"], "y": ["a", "b"]}}}', "expected texts, each with the one character"),
        ('{"users": [], "user_data": {}}', "expected examples; got none"),
        ('{"users": ["a", "a"], "user_data": {"a": {"x": [[1], [1]], "y": [0, 1]}}}', "a user is named twice"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1]], "y": [0, "1"]}}}', "user 'a' has texts among numbers, such as '1'"),
        ('{"users": ["a"], "user_data": {"a": {"x": "ab", "y": "bc"}}}', "expected a list for the inputs of user 'a'; got a text"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_leafs_files_is_said(tmp_path, content, said):
    leaf(tmp_path, "test", {"b": ([[1.0], [2.0]], [0, 1])})
    (tmp_path / "train").mkdir()
    with pytest.raises(ConfigError, match="train: expected .json files of LEAF; got none"):
        load("leaf", folder=str(tmp_path))
    (tmp_path / "train" / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=said) as caught:
        load("leaf", folder=str(tmp_path))
    assert "\n" not in str(caught.value)


def test_leafs_texts_have_to_be_of_one_length_with_one_character_each(tmp_path):
    leaf(tmp_path, "test", {"b": (["ab"], ["c"])})
    leaf(tmp_path, "train", {"b": (["ab", "abc"], ["a", "b"])})
    with pytest.raises(ConfigError, match="expected texts of one length; got 2 to 3 characters. Cut them alike"):
        load("leaf", folder=str(tmp_path))
    leaf(tmp_path, "train", {"b": (["ab", "cd"], ["a", "good"])})
    with pytest.raises(ConfigError, match="expected texts, each with the one character that follows as its label"):
        load("leaf", folder=str(tmp_path))


def test_inputs_of_another_size_than_the_shape_are_refused(tmp_path):
    for part in ("train", "test"):
        leaf(tmp_path, part, {"b": ([[0.0] * 5, [1.0] * 5], [0, 1])})
    with pytest.raises(ConfigError, match=r"shape: expected 5 values for each input; got \[2, 3\]"):
        load("leaf", folder=str(tmp_path), shape=[2, 3])
