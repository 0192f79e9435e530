"""Arrays in a NumPy file."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, Preparation, ProperFraction
from fedguard.errors import ConfigError, oneline
from fedguard.tasks.data.assembly import Classes, RawExamples, assemble_dataset, check_classes, describe_preparation
from fedguard.tasks.data.columns import few
from fedguard.tasks.data.files import require_path, sniff_format

WITH_TEST, WITHOUT = ("x_train", "y_train", "x_test", "y_test"), ("x", "y")


@dataclass(frozen=True, kw_only=True)
class NPZ(Data):
    """Arrays ``x`` and ``y``, or ``x_train``, ``y_train``, ``x_test`` and ``y_test``, in an ``.npz`` file.

    ``client`` or ``client_train`` may name the natural client of each (train) example, for the partition ``natural``. Plain
    arrays only: an array of Python objects is refused, since to read one is to run what it says. So is a file with other
    arrays, which nobody would read.

    Args:
        file: the file.
        shape: of an input, such as ``[1, 28, 28]``: flat inputs are folded into it, and it says that an image of few pixels has
            its channels first.
        value_range: smallest and largest value of an input, such as ``[0, 1]``; without one, columns are standardized.
        classes: their number, or their names; without them, as many as there are labels.
        public: another such file, of examples that need no protection: mean, deviation, range and classes are taken from it.
        test: the share of the examples kept for testing, if the file has no test part.
    """

    name = "npz"
    source = "NumPy's format"
    outside = True

    file: str
    shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] | None = None
    classes: Classes | None = None
    public: str | None = None
    test: ProperFraction = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)

    @property
    def preparation(self) -> Preparation:
        return describe_preparation(self.value_range, self.classes, self.public, ", or public examples")

    def load(self) -> Dataset:
        path = require_path(self.file, "file")
        train, test = _parts(path)
        public = None if self.public is None else _parts(require_path(self.public, "file"))[0]
        return assemble_dataset(
            str(path),
            train,
            test,
            share=self.test,
            value_range=self.value_range,
            classes=self.classes,
            public=public,
            shape=self.shape,
        )


def _parts(path: Path) -> tuple[RawExamples, RawExamples | None]:
    """The train examples and those for testing, if the file has them."""
    arrays = _read(path)
    if "x_train" in arrays:
        test = RawExamples(arrays["x_test"], arrays["y_test"])
        return RawExamples(arrays["x_train"], arrays["y_train"], arrays.get("client_train")), test
    return RawExamples(arrays["x"], arrays["y"], arrays.get("client")), None


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a data set with a test part, or without one; none that is not needed."""
    try:
        with path.open("rb") as stream:
            head = stream.read(6)
            stream.seek(0)
            if not head.startswith((b"PK", b"\x93NUMPY")):  # NumPy would take it for objects
                told = sniff_format(path) or f"its first bytes are {head.hex()!r}"
                raise ConfigError(f"{path}: expected an .npz file of plain arrays, as numpy.savez writes it; {told}.")
            content = np.load(stream, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise ConfigError(f"{path}: expected an .npz file of plain arrays; got a single array.")
            with content:
                needed = next((names for names in (WITH_TEST, WITHOUT) if set(names) <= set(content.files)), None)
                if needed is None:
                    raise ConfigError(
                        f"{path}: expected arrays x and y, or x_train, y_train, x_test and y_test; got "
                        f"{', '.join(content.files) or 'none'}."
                    )
                known = (*needed, "client_train" if needed is WITH_TEST else "client")
                if others := [key for key in content.files if key not in known]:
                    raise ConfigError(
                        f"{path}: expected arrays {', '.join(needed)}, and {known[-1]} where examples have natural clients; "
                        f"got {few(others)} as well, which nobody reads. Leave that out, or give it one of these names."
                    )
                arrays = {key: content[key] for key in known if key in content.files}
    except (
        ValueError,
        OSError,
        EOFError,
        BadZipFile,
        zlib.error,
        MemoryError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        # NumPy would tell how to read objects all the same.
        objects = any(sign in str(error) for sign in ("Object arrays", "(object)"))
        told = "it holds Python objects" if objects else oneline(error)
        raise ConfigError(f"{path}: expected an .npz file of plain arrays: {told}.") from None
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):  # NumPy gives what it cannot tell as bytes
            raise ConfigError(f"{path}: expected an .npz file of plain arrays: {key} is none.")
    return arrays
