"""IDX files, the format of MNIST."""

from __future__ import annotations

import gzip
import math
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
    """A folder with the four files of MNIST, Fashion-MNIST, EMNIST and the like, plain or gzipped.

    Named as there: ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``;
    anything may stand before these words.

    Args:
        folder: that holds the files.
    """

    name = "idx"
    source = "LeCun, Cortes & Burges, The MNIST database of handwritten digits, 1998"

    folder: str

    def load(self) -> Dataset:
        folder = found(self.folder, "folder")
        train, test = (
            Part(self._images(folder, part), read(_file(folder, f"{part}-labels"))) for part in ("train", "t10k")
        )
        return assembled(str(folder), train, test, value_range=(0.0, 1.0))

    def _images(self, folder: Path, part: str) -> NDArray[np.float32]:
        file = _file(folder, f"{part}-images")
        images = read(file)
        if images.ndim not in (3, 4):
            raise ConfigError(f"{file}: expected images [N, height, width]; got shape {list(images.shape)}.")
        return pixels(str(file), images[:, None] if images.ndim == 3 else images)


def read(file: Path) -> NDArray[Any]:
    """The array of an IDX file: two zero bytes, its kind, its number of axes, their lengths, its values, all big-endian.

    Raises:
        ConfigError: it is none, or cut.
    """
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        try:
            content = stream.read()
        except (OSError, EOFError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}.") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in KINDS:
        raise ConfigError(f"{file}: expected an IDX file; its first bytes are {content[:4].hex()}.")
    axes, kind = content[3], np.dtype(KINDS[content[2]])
    shape = np.frombuffer(content, ">u4", axes, 4).tolist() if len(content) >= 4 + 4 * axes else []
    expected = 4 + 4 * axes + math.prod(shape) * kind.itemsize
    if len(content) != expected or not shape:
        raise ConfigError(
            f"{file}: expected {expected} bytes for an array {shape}; got {len(content)}. It is cut or damaged."
        )
    return np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(shape).astype(kind.newbyteorder("="))


def _file(folder: Path, words: str) -> Path:
    matching = sorted(folder.glob(f"*{words}*"))
    if len(matching) != 1:
        names = ", ".join(path.name for path in matching) or "none"
        raise ConfigError(f"{folder}: expected one file named *{words}*; got {names}.")
    return matching[0]
