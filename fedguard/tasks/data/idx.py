"""IDX files, the format of MNIST."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError
from fedguard.tasks.data.assembly import Part, assembled, found, pixels

#: By the third byte of the header.
KINDS = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True, kw_only=True)
class IDX(Data):
    """A folder with the four files of MNIST, Fashion-MNIST and the like, plain or gzipped.

    They are told by the words ``train-images``, ``train-labels``, ``t10k-images`` and ``t10k-labels`` in their names, or
    ``test-...`` for the last two.

    Args:
        folder: that holds the files.
    """

    name = "idx"
    source = "LeCun, Cortes & Burges, The MNIST database of handwritten digits, 1998"
    outside = True

    folder: str

    def load(self) -> Dataset:
        folder = found(self.folder, "folder")
        train, test = (
            Part(_images(_file(folder, part, "images")), read(_file(folder, part, "labels")))
            for part in (("train",), ("t10k", "test"))
        )
        return assembled(str(folder), train, test, value_range=(0.0, 1.0))


def read(file: Path) -> NDArray[Any]:
    """The array of an IDX file: two zero bytes, its kind, its number of axes, their lengths, its values, all big-endian.

    Raises:
        ConfigError: it is none, or cut.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: cannot be read: {error}.") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in KINDS:
        raise ConfigError(f"{file}: expected an IDX file; its first bytes are {content[:4].hex()!r}.")
    axes, kind = content[3], np.dtype(KINDS[content[2]])
    shape = np.frombuffer(content, ">u4", axes, 4).tolist() if len(content) >= 4 + 4 * axes else []
    expected = 4 + 4 * axes + math.prod(shape) * kind.itemsize
    if len(content) != expected or not shape:
        raise ConfigError(f"{file}: expected {expected} bytes; got {len(content)}. It is cut or damaged.")
    return np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(shape).astype(kind.newbyteorder("="))


def _images(file: Path) -> NDArray[Any]:
    images = read(file)
    if images.ndim not in (3, 4):
        raise ConfigError(f"{file}: expected images [N, height, width]; got shape {list(images.shape)}.")
    return pixels(str(file), images[:, None] if images.ndim == 3 else images)


def _file(folder: Path, parts: tuple[str, ...], what: str) -> Path:
    matching = sorted(path for part in parts for path in folder.glob(f"*{part}-{what}*"))
    if len(matching) != 1:
        wanted = " or ".join(f"*{part}-{what}*" for part in parts)
        names = ", ".join(path.name for path in matching) or "none"
        raise ConfigError(f"{folder}: expected one file named {wanted}; got {names}.")
    return matching[0]
