"""IDX files, the format of MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, PositiveFloat, Preparation
from fedguard.errors import ConfigError, oneline
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset, check_classes, pixels
from fedguard.tasks.data.files import check_digest, regular, require_path

#: By the third byte of the header.
KINDS = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
#: Images in color have four.
MOST_AXES = 4


@dataclass(frozen=True, kw_only=True)
class IDX(Data):
    """A folder with the four files of MNIST, Fashion-MNIST and the like, plain or gzipped.

    They are recognized by the words ``train-images``, ``train-labels``, ``t10k-images`` and ``t10k-labels`` in their names, or
    ``test-...`` for the last two.

    Args:
        folder: that holds the files.
        largest: what a pixel may be, by which all are divided.
        classes: their number; without it, as many as there are labels.
    """

    name = "idx"
    source = "LeCun, Cortes & Burges, The MNIST database of handwritten digits, 1998"
    outside = True

    folder: str
    largest: PositiveFloat = 255.0
    classes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)

    @property
    def preparation(self) -> Preparation:
        if self.classes is None:
            return Preparation("records", "the number of classes", "Give classes.")
        return Preparation("given", f"pixels of 0 ... {self.largest:g}, {self.classes} classes")

    def load(self) -> Dataset:
        folder = require_path(self.folder, "folder")
        train, test = read_parts(folder, self.largest)
        return assemble_dataset(str(folder), train, test, value_range=(0.0, 1.0), classes=self.classes)


def read_parts(
    folder: Path, largest: float, digests: Mapping[str, str] | None = None
) -> tuple[RawExamples, RawExamples]:
    """The train and the test examples of a folder with four files, with pixels over ``largest``.

    Args:
        digests: the expected SHA-256 of each file's unpacked content, by the first words of its name.

    Raises:
        ConfigError: a file is missing, damaged, or not the expected one.
    """
    names = ("train",), ("t10k", "test")
    images, labels = (
        [_values(_file(folder, part, what), expected, axes, (digests or {}).get(f"{part[0]}-{what}")) for part in names]
        for what, expected, axes in (("images", "images [N, height, width]", (3, 4)), ("labels", "labels [N]", (1,)))
    )
    images = [values[:, None] if values.ndim == 3 else values for values in images]
    train, test = map(RawExamples, pixels(str(folder), largest, *images), labels)
    return train, test


def read(file: Path, digest: str | None = None) -> NDArray[Any]:
    """The array of an IDX file: two zero bytes, its kind, its number of axes, their lengths, its values, all big-endian.

    Args:
        digest: the SHA-256 of its unpacked content, if that is known.

    Raises:
        ConfigError: it is none, or cut, or another than the known one.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            head = stream.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in KINDS or not 1 <= head[3] <= MOST_AXES:
                raise ConfigError(f"{file}: expected an IDX file; its first bytes are {head.hex()!r}.")
            kind, lengths = np.dtype(KINDS[head[2]]), stream.read(4 * head[3])
            shape = struct.unpack(f">{len(lengths) // 4}I", lengths[: len(lengths) // 4 * 4])
            expected = math.prod(shape) * kind.itemsize
            # No more than the header tells of: a small packed file may hold any number of zeros.
            content = stream.read(min(expected + 1, sys.maxsize))
    except (OSError, EOFError, zlib.error, MemoryError, OverflowError) as error:
        raise ConfigError(f"{file}: cannot be read: {oneline(error)}.") from None
    if len(shape) != head[3] or len(content) != expected:
        got = f"{len(content)} or more" if len(content) > expected else len(content)
        told = f"expected {expected} bytes of values; got {got}" if len(shape) == head[3] else "its header ends early"
        raise ConfigError(f"{file}: {told}. It is cut or damaged.")
    if digest is not None:
        check_digest(file, digest, head, lengths, content)
    return np.frombuffer(content, kind).reshape(shape).astype(kind.newbyteorder("="))


def _values(file: Path, expected: str, axes: tuple[int, ...], digest: str | None) -> NDArray[Any]:
    values = read(file, digest)
    if values.ndim not in axes:
        raise ConfigError(f"{file}: expected {expected}; got shape {list(values.shape)}.")
    return values


def _file(folder: Path, parts: tuple[str, ...], what: str) -> Path:
    matching = sorted(path for part in parts for path in folder.glob(f"*{part}-{what}*"))
    if len(matching) != 1:
        wanted = " or ".join(f"*{part}-{what}*" for part in parts)
        names = ", ".join(path.name for path in matching) or "none"
        raise ConfigError(f"{folder}: expected one file named {wanted}; got {names}.")
    return regular(matching[0])
