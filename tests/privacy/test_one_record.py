"""One record more, less or another: all sources of data and all their options, and not a bit of the others may change.

Or the source says that it looks at the records, and is refused beside an epsilon. A neighbor that is refused as a whole (a label that is
no class, a text among numbers) changes nothing either: nothing is trained on it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import types
from collections import Counter
from dataclasses import dataclass, fields

import numpy as np
import pytest
import sklearn.datasets
import torch
from PIL import Image

from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Data, Dataset, Examples
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.tasks import DATA
from fedguard.tasks.data import fashion_mnist, mnist_5k

CLASSES = ("a", "b", "c")


@dataclass(frozen=True)
class Record:
    """Two numbers, a category, a label by number, a client; and the pixels of an image."""

    numbers: tuple
    category: str = "x"
    label: int | float | str = 0
    client: str = "u1"
    image: tuple = (10, 20, 30, 40)
    mode: str = "L"


BASE = [
    Record((k % 5, 7 - k % 3), "xyz"[k % 3], k % 2, f"u{k % 3}", (k, 2 * k, 50 + k, 9 * k % 200)) for k in range(40)
]
#: Records unlike all others, one way each.
ODD = {
    "extreme": Record((9, 9), "x", 1, "u1", (255, 255, 255, 255)),
    "beyond the range": Record((1e6, -1e6), "x", 0, "u2"),
    "alone in its class": Record((1, 5), "y", 2, "u0"),
    "of no class": Record((2, 6), "y", 3, "u0"),
    "a fraction among whole numbers": Record((0.25, 3.5), "z", 0, "u2", (1, 2, 3, 4)),
    "texts among numbers": Record(("none", 3), "z", 0, "u2"),
    "a number among texts": Record((3, 3), "1.5", 1, "u2"),
    "a text among what look like numbers": Record((3, 3), "w", 1, "u2"),
    "a label in another form": Record((1, 6), "y", 1.0, "u0"),
    "another kind of image": Record((1, 4), "y", 0, "u0", (9, 8, 7, 6), "RGB"),
    "of a client that has few": Record((4, 4), "y", 0, "u9"),
    "twice there": BASE[3],
}


def neighbors():
    """By name, the records that are there instead of `BASE`, and how many of them differ on each side."""
    for name, odd in ODD.items():
        for place in (0, len(BASE)):
            yield f"{name}, more at {place}", [*BASE[:place], odd, *BASE[place:]]
        yield f"{name}, in place of 11", [*BASE[:11], odd, *BASE[12:]]
    for place in (0, 20, 39):
        yield f"without {place}", [*BASE[:place], *BASE[place + 1 :]]


# How each source's files are written.


def x_of(records):
    return np.array([record.numbers for record in records])


def y_of(records):
    return np.array([record.label for record in records])


def npz(folder, records, test=True):
    if any(isinstance(one, str) for record in records for one in record.numbers):
        raise ConfigError("no such array")
    more = {"x_test": x_of(BASE[:6]), "y_test": y_of(BASE[:6])} if test else {}
    names = ("x_train", "y_train", "client_train") if test else ("x", "y", "client")
    clients = np.array([record.client for record in records])
    np.savez(folder / "a.npz", **dict(zip(names, (x_of(records), y_of(records), clients), strict=True)), **more)
    np.savez(folder / "public.npz", x=[[0.0, 0.0], [4.0, 9.0], [8.0, 3.0]], y=[0, 1, 2])


def rows_of(records):
    return [
        [*record.numbers, record.category, record.client, CLASSES[int(record.label)] if record.label != 3 else "d"]
        for record in records
    ]


def table(folder, records):
    for name, some in (
        ("a", rows_of(records)),
        ("public", [[0, 0, "x", "p", "a"], [9, 9, "y", "p", "b"], [4, 2, "z", "p", "c"]]),
    ):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["n", "m", "kind", "who", "label"], *some])


def table_of_numbers(folder, records):
    """A category and labels that look like numbers in most rows, and in all private ones of `BASE`."""
    number = {"x": "0.10", "y": 2, "z": 2, "w": "k"}
    rows = [
        [*r.numbers, number.get(r.category, r.category), r.client, "c" if r.label == 2 else r.label] for r in records
    ]
    public = [[0, 0, "0.10", "p", 0], [9, 9, 2, "p", 1], [4, 2, "k", "p", "c"], [4, 2, "m", "p", "d"]]
    for name, some in (("a", rows), ("public", public)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["n", "m", "kind", "who", "label"], *some])


def table_of_codes(folder, records):
    """A category of codes, all of them numbers, but for one private record."""
    code = {"x": "01", "y": "2", "z": "03"}
    for name, some in (
        (
            "a",
            [
                [*r.numbers, code.get(r.category, r.category), r.client, CLASSES[int(r.label)]]
                for r in records
                if r.label != 3
            ],
        ),
        ("public", [[0, 0, "01", "p", "a"], [9, 9, "2", "p", "b"], [4, 2, "03", "p", "c"]]),
    ):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["n", "m", "kind", "who", "label"], *some])


def parquet(folder, records):
    import pandas as pd

    for name, some in (
        ("a", rows_of(records)),
        ("public", [[0, 0, "x", "p", "a"], [9, 9, "y", "p", "b"], [4, 2, "z", "p", "c"]]),
    ):
        frame = pd.DataFrame(some, columns=["n", "m", "kind", "who", "label"])
        try:
            frame.to_parquet(folder / f"{name}.parquet", index=False)
        except (ValueError, TypeError) as error:  # texts among numbers
            raise ConfigError("no such file") from error


def whole(record):
    return all(isinstance(one, int) for one in record.numbers) and isinstance(record.label, int) and record.mode == "L"


def idx(folder, records):
    if not all(map(whole, records)):
        raise ConfigError("no such file")
    for part, some in (("train", records), ("t10k", BASE[:4])):
        x, y = (
            np.array([r.image for r in some], np.uint8).reshape(-1, 2, 2),
            np.array([r.label for r in some], np.uint8),
        )
        for what, array in (("images-idx3", x), ("labels-idx1", y)):
            head = b"\0\0\x08" + bytes([array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
            (folder / f"{part}-{what}-ubyte").write_bytes(head + array.tobytes())


def mnist_rows(folder, records):
    if not all(map(whole, records)):
        raise ConfigError("no such file")
    (folder / "rows.csv").write_text(
        "".join(",".join(map(str, [*r.image, *[0] * 780, r.label])) + "\n" for r in records)
    )


def text_rows(folder, records):
    tokenizers = pytest.importorskip("tokenizers", reason="the library tokenizers is not installed")
    known = {token: number for number, token in enumerate(("[PAD]", "[UNK]", "x", "y", "z"))}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    with (folder / "rows.csv").open("w", newline="") as file:
        written = csv.writer(file)
        written.writerow(["category", "label", "client"])
        written.writerows([r.category, r.label, r.client] for r in records)


def hugging_face(folder, records):
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")

    def columns(some):
        if not all(map(whole, some)):
            raise ConfigError("no such data set")
        return datasets.Dataset.from_dict({
            "image": [[float(one) for one in r.image] for r in some],
            "numbers": [[float(one) for one in r.numbers] for r in some],
            "label": [int(r.label) for r in some],
            "client": [r.client for r in some],
        })  # fmt: skip

    parts = datasets.DatasetDict({"train": columns(records), "test": columns(BASE[:4])})
    parts.save_to_disk(str(folder / "set"))


def leaf(folder, records):
    for part, some in (("train", records), ("test", BASE[:4])):
        data = {}
        for record in sorted(some, key=lambda one: one.client):
            own = data.setdefault(record.client, {"x": [], "y": []})
            own["x"].append(list(record.numbers))
            own["y"].append(record.label)
        (folder / part).mkdir()
        told = {"users": list(data), "num_samples": [len(one["y"]) for one in data.values()], "user_data": data}
        (folder / part / "a.json").write_text(json.dumps(told))


def leaf_texts(folder, records):
    texts = {0: "ab", 1: "ba", 2: "cc", 3: "zz"}
    for part, some in (("train", records), ("test", BASE[:4])):
        data = {}
        for record in sorted(some, key=lambda one: one.client):
            own = data.setdefault(record.client, {"x": [], "y": []})
            own["x"].append(texts[record.label])
            own["y"].append("b" if record.category == "x" else "a")
        (folder / part).mkdir()
        told = {"users": list(data), "num_samples": [len(one["y"]) for one in data.values()], "user_data": data}
        (folder / part / "a.json").write_text(json.dumps(told))


def image_folder(folder, records, test=True):
    for part, some in (("train", records), ("test", BASE[:6])) if test else (("", records),):
        for record in some:
            number = BASE.index(record) if record in BASE else 99
            if sum(record == one for one in some[: some.index(record) + 1]) and some.count(record) > 1:
                number += 100 * record.image[0]
            name = "abcd"[int(record.label)]
            place = folder / part / name
            place.mkdir(parents=True, exist_ok=True)
            pixels = np.array(record.image, np.uint8).reshape(2, 2)
            image = Image.fromarray(pixels)
            image = image.convert("RGB") if record.mode == "RGB" else image
            image.save(place / f"{number:03d}.png")


def function(folder, records):
    if any(isinstance(one, str) for record in records for one in record.numbers):
        raise ConfigError("no such array")
    module = types.ModuleType("records_of_mine")
    module.load = lambda: (x_of(records), y_of(records))
    x, y = torch.from_numpy(x_of(records).astype(np.float32)), torch.from_numpy(y_of(records).astype(np.int64))
    own = Examples(x, y)
    shown = Examples(torch.zeros(3, 2), torch.arange(3))
    module.whole = lambda: Dataset(own, shown, 3, (0.0, 9.0))
    sys.modules["records_of_mine"] = module


SOURCES = {
    "npz, known": ("npz", npz, {"file": "{at}/a.npz", "value_range": [0, 9], "classes": 3}),
    "npz, known, drawn for testing": (
        "npz", lambda at, records: npz(at, records, test=False), {"file": "{at}/a.npz", "value_range": [0, 9], "classes": 3, "test": 0.3}
    ),
    "npz, public": ("npz", npz, {"file": "{at}/a.npz", "public": "{at}/public.npz"}),
    "npz, public, drawn for testing": (
        "npz", lambda at, records: npz(at, records, test=False), {"file": "{at}/a.npz", "public": "{at}/public.npz"}
    ),
    "npz, shaped": ("npz", npz, {"file": "{at}/a.npz", "value_range": [0, 9], "classes": 3, "shape": [1, 2]}),
    "npz, public, shaped": ("npz", npz, {"file": "{at}/a.npz", "public": "{at}/public.npz", "shape": [1, 2]}),
    "npz, classes alone": ("npz", npz, {"file": "{at}/a.npz", "classes": 3}),
    "npz": ("npz", npz, {"file": "{at}/a.npz"}),
    "table": ("table", table, {"file": "{at}/a.csv", "label": "label"}),
    "table, public": ("table", table, {"file": "{at}/a.csv", "label": "label", "client": "who", "public": "{at}/public.csv", "test": 0.3}),
    "table, public, in numbers": (
        "table", table_of_numbers, {"file": "{at}/a.csv", "label": "label", "client": "who", "public": "{at}/public.csv"}
    ),
    "table, public, codes": (
        "table",
        table_of_codes,
        {"file": "{at}/a.csv", "label": "label", "client": "who", "public": "{at}/public.csv", "categories": ["kind"]},
    ),
    "table, Parquet": ("table", parquet, {"file": "{at}/a.parquet", "label": "label", "client": "who", "public": "{at}/public.parquet"}),
    "idx, known": ("idx", idx, {"folder": "{at}", "classes": 3, "largest": 255}),
    "idx": ("idx", idx, {"folder": "{at}"}),
    "leaf, known": ("leaf", leaf, {"folder": "{at}", "value_range": [0, 9], "classes": 3}),
    "leaf, shaped": ("leaf", leaf, {"folder": "{at}", "value_range": [0, 9], "classes": 3, "shape": [1, 2]}),
    "leaf": ("leaf", leaf, {"folder": "{at}"}),
    "leaf, texts": ("leaf", leaf_texts, {"folder": "{at}", "characters": "abcz"}),
    "leaf, texts, unknown": ("leaf", leaf_texts, {"folder": "{at}"}),
    "image_folder, known": ("image_folder", image_folder, {"folder": "{at}", "size": [2, 2], "gray": True, "classes": CLASSES}),
    "image_folder, known, drawn for testing": (
        "image_folder",
        lambda at, records: image_folder(at, records, test=False),
        {"folder": "{at}", "size": [4, 4], "classes": CLASSES, "test": 0.3},
    ),
    "image_folder": ("image_folder", image_folder, {"folder": "{at}", "size": [2, 2], "gray": True}),
    "function, arrays": (
        "function",
        function,
        {"target": "records_of_mine:load", "public": True, "value_range": [0, 9], "classes": 3, "test": 0.3, "shape": [2, 1]},
    ),
    "function, a Dataset": ("function", function, {"target": "records_of_mine:whole", "public": True}),
    "function": ("function", function, {"target": "records_of_mine:load"}),
    "openml, pixels": ("openml", None, {"dataset": "d", "version": 2, "shape": [1, 2, 2], "classes": 3, "largest": 255, "test": 0.3}),
    "openml": ("openml", None, {"dataset": "d"}),
    "fashion_mnist": ("fashion_mnist", idx, {"folder": "{at}"}),
    "text_table, known": ("text_table", text_rows, {
        "file": "{at}/rows.csv", "tokenizer": "{at}/tokenizer.json", "length": 3, "text": "category", "label": "label",
        "client": "client", "padding": "[PAD]", "classes": 3, "test": 0.3,
    }),
    "text_table": ("text_table", text_rows, {
        "file": "{at}/rows.csv", "tokenizer": "{at}/tokenizer.json", "length": 3, "text": "category", "label": "label",
    }),
    "hugging_face, known": ("hugging_face", hugging_face, {
        "dataset": "{at}/set", "input": "image", "label": "label", "client": "client", "largest": 255, "classes": 3, "train": "train", "share": 0.3,
    }),
    "hugging_face": ("hugging_face", hugging_face, {"dataset": "{at}/set", "input": "numbers", "label": "label", "test": "test"}),
    "mnist_5k": ("mnist_5k", mnist_rows, {"file": "{at}/rows.csv"}),
}  # fmt: skip
#: Of these nothing can be added or taken away: what they hold came with a library, or is drawn; see below.
PUBLISHED = {"digits", "wine", "breast_cancer"}
ALWAYS_REFUSED = {"python_topics", "synthetic"}
#: Texts have windows and not rows, see below.
WINDOWED = {"text", "shakespeare_roles"}


def fetched(records):
    def fetch(**_):
        x = np.array([record.image for record in records])
        return types.SimpleNamespace(data=x, target=np.array([str(int(record.label)) for record in records], object))

    return fetch


def loaded(case, records, folder, monkeypatch):
    """The source and its data set, or None where it is refused."""
    name, write, parameters = SOURCES[case]
    folder.mkdir()
    told = {key: one.format(at=folder) if isinstance(one, str) else one for key, one in parameters.items()}
    if name == "openml":
        told["classes"] = ["0", "1", "2"] if "classes" in told else None
        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetched(records))
    monkeypatch.setattr(fashion_mnist, "SHA256", {})  # a neighbor of the published files
    try:
        if write is not None:
            write(folder, records)
        if name == "mnist_5k":
            monkeypatch.setattr(mnist_5k, "SHA256", hashlib.sha256((folder / "rows.csv").read_bytes()).hexdigest())
        data = load_registry().build(
            "data", {"name": name, **{key: one for key, one in told.items() if one is not None}}
        )
        return data, data.load()
    except ConfigError:
        return None, None


def rows(part):
    owners = [None] * len(part) if part.client is None else part.client.tolist()
    return [(x.numpy().tobytes(), int(y), owner) for x, y, owner in zip(part.x, part.y, owners, strict=True)]


def differ(before, after):
    """How many rows were taken from one list and put into it to make the other; the others stand in the same order."""
    start = next(
        (n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    rest = before[start:], after[start:]
    end = next(
        (n for n, (one, other) in enumerate(zip(*map(reversed, rest), strict=False)) if one != other),
        min(map(len, rest)),
    )
    in_one_place = sum(len(one) - end for one in rest)
    gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
    in_two = gone.total() + come.total() if without(before, gone) == without(after, come) else in_one_place
    return min(in_one_place, in_two)


def without(rows, left_out):
    """The rows in their order, but for so many of these, the last ones first."""
    left, kept = Counter(left_out), []
    for row in reversed(rows):
        if left[row]:
            left[row] -= 1
        else:
            kept.append(row)
    return kept


def by_client(rows):
    """What each client has, in order; files of LEAF have one client after the other."""
    held = {}
    for row in rows:
        held.setdefault(row[2], []).append(row)
    return held


def apart(first, second):
    """Whether more than one record differs between two data sets, in train and test part together."""
    alike = all(getattr(first, name) == getattr(second, name) for name in ("classes", "value_range", "shape", "tokens"))
    replaced = len(first.train) + len(first.test) == len(second.train) + len(second.test)
    moved = 0
    for part in ("train", "test"):
        held = [by_client(rows(getattr(one, part))) for one in (first, second)]
        moved += sum(differ(*(one.get(client, []) for one in held)) for client in set().union(*held))
    return not alike or moved > 1 + replaced


def refused(data):
    config = {
        "task": {"data": data.spec()},
        "clients": {"total": 2},
        "training": {"batch_size": 8},
        "protocol": {"privacy": {"kind": "record", "epsilon": 1.0}},
    }
    return any(
        "from the clients' own records" in one
        for one in build_cell(CellConfig.model_validate(config), load_registry()).verdict.reasons
    )


@pytest.mark.parametrize("case", SOURCES)
def test_one_record_changes_itself_alone_or_no_epsilon_stands_beside_it(case, tmp_path, monkeypatch):
    data, before = loaded(case, BASE, tmp_path / "base", monkeypatch)
    assert before is not None
    moved, met = [], 0
    for number, (name, records) in enumerate(neighbors()):
        if case.startswith("image_folder") and ("twice" in name or "client" in name):
            continue  # the same file
        _, after = loaded(case, records, tmp_path / str(number), monkeypatch)
        met += after is not None
        if after is not None and apart(before, after):
            moved.append(name)
    assert met > 5, "hardly any neighbor is read at all"
    if refused(data):
        assert moved, "it is refused beside an epsilon for nothing, or this test sees nothing"
    else:
        assert moved == []


def test_every_source_and_every_option_is_tried():
    tried = {}
    for name, _, parameters in SOURCES.values():
        tried.setdefault(name, set()).update(parameters)
    sources = {name for name in DATA if issubclass(load_registry().get("data", name), Data)}
    assert set(tried) | PUBLISHED | ALWAYS_REFUSED | WINDOWED == sources
    for name, parameters in tried.items():
        known = {one.name for one in fields(load_registry().get("data", name))}
        assert known <= parameters | {"characters", "revision"}, name


@pytest.mark.parametrize("name", sorted(ALWAYS_REFUSED))
def test_what_is_drawn_or_differs_by_version_stands_beside_no_epsilon(name):
    assert refused(load_registry().build("data", name))


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_values_of_a_published_set_are_prepared_one_by_one(name, monkeypatch):
    right = getattr(sklearn.datasets, f"load_{name}")
    x, y = right(return_X_y=True)
    before = load_registry().build("data", name).load()
    for row in (0, 50, len(x) - 1):
        other = x.copy()
        other[row] = np.abs(x).max(0)  # the most there is
        monkeypatch.setattr(sklearn.datasets, f"load_{name}", lambda return_X_y, other=other: (other, y))
        assert not apart(before, load_registry().build("data", name).load())


def test_a_character_stands_in_so_many_windows_as_the_source_says(tmp_path, monkeypatch):
    """And an added paragraph leaves all others alone. Without characters that are given, both change everything."""
    text = "\n\n".join("abcabbcacbabcca" * 4 for _ in range(3))
    where = tmp_path / "a.txt"

    def windows(content, **parameters):
        where.write_text(content)
        data = load_registry().build(
            "data", {"name": "text", "file": str(where), "window": 6, "stride": 2, **parameters}
        )
        found = data.load()
        return data, rows(found.train) + rows(found.test), (found.classes, found.value_range)

    data, before, known = windows(text, characters="abcz")
    assert data.preparation.origin == "given" and not refused(data)
    assert "a window of 7 characters" in data.record and "up to 4" in data.record
    most = 0
    for place in range(len(text)):
        if text[place] == "\n":
            continue
        _, after, same = windows(text[:place] + "z" + text[place + 1 :], characters="abcz")
        differ = sum(one != other for one, other in zip(before, after, strict=True))
        assert same == known and differ <= 4
        most = max(most, differ)
    assert most == 4
    _, after, same = windows(text + "\n\n" + "zab" * 20, characters="abcz")
    assert same == known and set(before) < set(after)
    loose, _, known = windows(text)
    assert refused(loose) and windows(text + "\n\n" + "zab" * 20)[2] != known
