"""Data files that were cut, packed, exported by another program or made in bad faith, each changed at one place.

    python -m tests.fuzz.data --count 150 --seed 0

loads each of them as a trial does, and prints those that are not answered by a data set or by one clear line.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedguard.errors import FedGuardError
from fedguard.registry import load_registry
from tests.fuzz import Late, within

#: No file may take longer, in seconds by the clock.
LIMIT = 10.0

#: Rows of the sound data sets.
ROWS = 24

TEXT = "It was a dark and stormy night; the rain fell in torrents.\n\n" * 6

#: In place of a value of a table, or of JSON as text.
VALUES = (
    "", "inf", "-inf", "Infinity", "nan", "NA", "1e400", "-1e308", "1e-400", "9" * 400, "x" * 5000, "\x1b[31mred", "\x00", "1,5", "1 000", "0x1F",
    "true", "None", "'", "=1+1", "2026-01-01", "12:30", "é", "\u202e", "\ufeff1", "[1]", '"', "-0.0", "\uff11",
)  # fmt: skip

#: In place of a value of JSON.
NODES = (
    "null", "true", "-1", "1e999", "NaN", "9" * 400, '""', '"x"', '"\\u001b[31m"', '"' + "x" * 5000 + '"', "[]", "{}", "[[]]", "[1, [2]]",
    '{"x": 1}', "[" * 900 + "]" * 900, "[" * 90_000, '["a", 1]', '{"x": [1], "y": []}', '["\\ud800"]',
)  # fmt: skip

#: In place of an array.
ARRAYS: dict[str, Callable[[], Any]] = {
    "objects": lambda: np.array([1, "a", None], object),
    "scalar": lambda: np.float32(1),
    "empty": lambda: np.empty(0),
    "none of some": lambda: np.empty((0, 4)),
    "infinite": lambda: np.full((ROWS, 4), np.inf),
    "not numbers": lambda: np.full((ROWS, 4), np.nan),
    "texts": lambda: np.array(["x" * 4000] * ROWS),
    "bytes": lambda: np.array([b"\x1b"] * ROWS),
    "complex": lambda: np.ones((ROWS, 4), complex),
    "times": lambda: np.zeros(ROWS, "datetime64[s]"),
    "records": lambda: np.zeros(ROWS, [("a", "f4")]),
    "half": lambda: np.full((ROWS, 4), 1e-30),
    "large": lambda: np.full((ROWS, 4), 1e308),
    "negative": lambda: -np.arange(ROWS),
    "wide": lambda: np.ones((ROWS, 0)),
    "many axes": lambda: np.ones((ROWS,) + (1,) * 20),
    "longdouble": lambda: np.ones((ROWS, 4), np.longdouble),
    "bools": lambda: np.ones(ROWS, bool),
}


@dataclass(frozen=True)
class Case:
    """One damaged data set: what was changed, in its folder the files, and the data that read them."""

    what: str
    data: dict[str, Any]


def cases(folder: Path, count: int, seed: int) -> Iterator[Case]:
    """As many as ``count``, each in ``folder`` in the place of the one before."""
    rng = random.Random(seed)
    for number in range(count):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make = KINDS[number % len(KINDS)]
        data, files, special = make(folder, rng)
        harm = special if special is not None and rng.random() < 0.55 else rng.choice(FILES)
        path = rng.choice(files)
        what = harm(path, rng)
        yield Case(f"{data['name']}: {path.name}: {what}", data)


def answer(data: dict[str, Any], folder: Path) -> str:
    """What the data are, or the one line of an error.

    Raises:
        AssertionError: anything else: another exception, several lines, a line without a place, or too long a time.
    """
    try:
        with within(LIMIT, signal.ITIMER_REAL), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = load_registry().build("data", data).load()
            return f"{len(found.train)} and {len(found.test)} examples of {found.classes} classes"
    except FedGuardError as error:
        said = str(error)
        assert "\n" not in said, f"several lines: {said[:300]!r}"
        assert said.isprintable(), f"what no terminal should be sent: {said[:300]!r}"
        assert len(said) <= 800, f"a line of {len(said)} characters: {said[:200]!r}"
        assert str(folder) in said, f"no place: {said[:300]!r}"
        return said
    except (Exception, Late) as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:200]!r}") from error


Made = tuple[dict[str, Any], list[Path], Callable[[Path, random.Random], str] | None]


def _npz(folder: Path, rng: random.Random) -> Made:
    path = folder / "data.npz"
    arrays = {"x": np.random.default_rng(0).random((ROWS, 4)), "y": np.arange(ROWS) % 3}
    np.savez(path, **arrays)

    def harm(path: Path, rng: random.Random) -> str:
        key, what = rng.choice(list(arrays)), rng.choice(list(ARRAYS))
        if rng.random() < 0.15:
            with zipfile.ZipFile(path, "w") as archive:
                for name in arrays:
                    archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '|O'}  ")
            return "headers of objects"
        np.savez(path, allow_pickle=True, **{**arrays, key: ARRAYS[what]()})
        return f"{key} is {what}"

    return {"name": "npz", "file": str(path)}, [path], harm


def _idx(folder: Path, rng: random.Random) -> Made:
    ending = rng.choice(("", ".gz"))
    for part in ("train", "t10k"):
        for what, shape in (("images-idx3-ubyte", (ROWS, 4, 4)), ("labels-idx1-ubyte", (ROWS,))):
            values = np.arange(np.prod(shape)) % (3 if len(shape) == 1 else 256)
            content = (
                struct.pack(">HBB", 0, 8, len(shape))
                + b"".join(struct.pack(">I", one) for one in shape)
                + bytes(values.tolist())
            )
            (folder / f"{part}-{what}{ending}").write_bytes(gzip.compress(content) if ending else content)

    def harm(path: Path, rng: random.Random) -> str:
        packed = path.suffix == ".gz"
        content = bytearray(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
        at, value = rng.randrange(16), rng.randrange(256)
        content[at % len(content)] = value
        path.write_bytes(gzip.compress(bytes(content)) if packed else bytes(content))
        return f"byte {at} is {value}"

    return {"name": "idx", "folder": str(folder)}, sorted(folder.iterdir()), harm


def _csv(folder: Path, rng: random.Random) -> Made:
    path = folder / "data.csv"
    rows = [["a", "b", "who", "label"], *([f"{n % 7}", f"{n / 3:.3f}", f"p{n % 4}", f"c{n % 3}"] for n in range(ROWS))]

    def harm(path: Path, rng: random.Random) -> str:
        row, column, value = rng.randrange(len(rows)), rng.randrange(4), rng.choice(VALUES)
        if rng.random() < 0.2:
            rows[row] = rows[row][: rng.randrange(4)] if rng.random() < 0.5 else [*rows[row], value]
        else:
            rows[row][column] = value
        path.write_text("\n".join(",".join(one) for one in rows) + "\n", encoding="utf-8")
        return f"row {row}, column {column}: {value[:20]!r}"

    path.write_text("\n".join(",".join(one) for one in rows) + "\n")
    return {"name": "table", "file": str(path), "label": "label"}, [path], harm


def _parquet(folder: Path, rng: random.Random) -> Made:
    import pandas as pd

    path = folder / "data.parquet"
    frame = pd.DataFrame({"a": np.arange(ROWS) % 7, "b": np.arange(ROWS) / 3, "label": np.arange(ROWS) % 3})
    frame.to_parquet(path)
    columns: list[Any] = [
        [np.inf] * ROWS, [None] * ROWS, [[1, 2]] * ROWS, [{"x": 1}] * ROWS, [b"\x1b"] * ROWS, pd.to_datetime(["2026-01-01"] * ROWS),
        ["x" * 4000] * ROWS, [True] * ROWS, pd.Categorical(["a"] * ROWS), [10**18] * ROWS, ["\x1b[31m"] * ROWS, pd.to_timedelta([1] * ROWS),
        [*([1.0] * (ROWS - 1)), np.inf], [*(["1"] * (ROWS - 1)), "x" * 4000],
    ]  # fmt: skip

    def harm(path: Path, rng: random.Random) -> str:
        column, number = rng.choice(("a", "label")), rng.randrange(len(columns))
        frame.assign(**{column: columns[number]}).to_parquet(path)
        return f"column {column} of kind {number}"

    return {"name": "table", "file": str(path), "label": "label"}, [path], harm


def _leaf(folder: Path, rng: random.Random) -> Made:
    content: dict[str, Any] = {"users": ["u", "v"], "num_samples": [6, 6], "user_data": {}}
    for user in content["users"]:
        content["user_data"][user] = {"x": [[n / 6, 1.0] for n in range(6)], "y": [n % 2 for n in range(6)]}
    for part in ("train", "test"):
        (folder / part).mkdir()
        (folder / part / "all.json").write_text(json.dumps(content))

    def harm(path: Path, rng: random.Random) -> str:
        waiting, places = [json.loads(path.read_text())], []
        whole = waiting[0]
        while waiting:
            node = waiting.pop()
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            places += [(node, key) for key in keys]
            waiting += [node[key] for key in keys if isinstance(node[key], dict | list)]
        node, key = rng.choice(places)
        value = rng.choice(NODES)
        if rng.random() < 0.2:
            del node[key]
            value = "gone"
        else:
            node[key] = "PLACE"
        path.write_text(json.dumps(whole).replace('"PLACE"', value))
        return f"{key} is {value[:20]}"

    return {"name": "leaf", "folder": str(folder)}, sorted(folder.glob("*/*.json")), harm


def _images(folder: Path, rng: random.Random) -> Made:
    from PIL import Image

    for label in ("cats", "dogs"):
        (folder / label).mkdir()
        for number in range(4):
            Image.fromarray(np.full((6, 6, 3), 40 * number, np.uint8)).save(folder / label / f"{number}.png")

    def harm(path: Path, rng: random.Random) -> str:
        way = rng.randrange(5)
        if way == 0:
            (folder / "birds").mkdir()
        elif way == 1:
            shutil.rmtree(path.parent)
        elif way == 2:
            Image.fromarray(np.zeros((3, 3), np.int32)).save(path.with_suffix(".tif"))
        elif way == 3:  # 60,000 x 60,000 by its header
            content = bytearray(path.read_bytes())
            content[16:24] = struct.pack(">II", 60_000, 60_000)
            path.write_bytes(bytes(content))
        else:
            (folder / "\x1b[31m").mkdir()
            shutil.copy(path, folder / "\x1b[31m" / path.name)
        return f"way {way}"

    return {"name": "image_folder", "folder": str(folder), "size": [4, 4]}, sorted(folder.glob("*/*.png")), harm


def _text(folder: Path, rng: random.Random) -> Made:
    path = folder / "data.txt"
    path.write_text(TEXT)

    def harm(path: Path, rng: random.Random) -> str:
        content = rng.choice(
            (
                "a" * 300,
                "\n" * 300,
                "\x00" * 300,
                TEXT[:20],
                TEXT.encode("utf-16").decode("latin-1"),
                "\x1b" * 300,
                "é\u202e" * 200,
            )
        )
        path.write_text(content, encoding="utf-8")
        return f"text {content[:10]!r}"

    return {"name": "text", "file": str(path), "window": 8}, [path], harm


KINDS = (_npz, _idx, _csv, _parquet, _leaf, _images, _text)


def _cut(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])
    return "cut"


def _flipped(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(bytes(content))
    return "bytes"


def _packed(path: Path, rng: random.Random) -> str:
    path.write_bytes(gzip.compress(path.read_bytes()))
    return "gzipped"


def _marked(path: Path, rng: random.Random) -> str:
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return "with a byte order mark"


def _recoded(path: Path, rng: random.Random) -> str:
    path.write_bytes(path.read_bytes().decode("latin-1").encode("utf-16"))
    return "UTF-16"


def _other(path: Path, rng: random.Random) -> str:
    what = rng.choice(("empty", "html", "pickle", "folder", "fifo", "device", "nowhere", "zip"))
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what in ("device", "nowhere"):
        path.symlink_to("/dev/zero" if what == "device" else "/nowhere/at/all")
    elif what == "zip":
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("\x1b[31m.txt", "x")
        path.write_bytes(packed.getvalue())
    else:
        path.write_bytes(
            {"empty": b"", "html": b"<!DOCTYPE html>\n<html>404</html>", "pickle": b"\x80\x04K\x01."}[what]
        )
    return what


FILES = (_cut, _flipped, _packed, _marked, _recoded, _other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print each answer")
    given = parser.parse_args()
    bad: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "data"
        for number, case in enumerate(cases(folder, given.count, given.seed)):
            try:
                said = answer(case.data, folder)
                if given.show:
                    sys.stdout.write(f"{number} {case.what[:70]!r} -> {said[:300]}\n")
            except AssertionError as error:
                bad[case.data["name"]] += 1
                sys.stdout.write(f"{number} {case.what[:80]!r}: {error}\n")
    sys.stdout.write(f"{given.count} data sets, {sum(bad.values())} answered badly {dict(bad)}\n")
    sys.exit(sum(bad.values()) > 0)


if __name__ == "__main__":
    main()
