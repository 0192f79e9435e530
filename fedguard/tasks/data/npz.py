"""Arrays in a NumPy file."""

from __future__ import annotations

from dataclasses import dataclass
from zipfile import BadZipFile

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError
from fedguard.tasks.data.assembly import Part, assembled, found


@dataclass(frozen=True, kw_only=True)
class NPZ(Data):
    """Arrays ``x`` and ``y``, or ``x_train``, ``y_train``, ``x_test`` and ``y_test``, in an ``.npz`` file; never a pickle.

    ``client`` or ``client_train`` may name the natural client of each (train) example, for the partition ``natural``.

    Args:
        file: the file.
        value_range: smallest and largest value of an input, such as ``[0, 1]``; without one, columns are standardised.
        test: the share of the examples kept for testing, if the file has no test part.
    """

    name = "npz"
    source = "NumPy's format"

    file: str
    value_range: tuple[float, float] | None = None
    test: float = 0.2

    def load(self) -> Dataset:
        path = found(self.file, "file")
        try:
            with np.load(path, allow_pickle=False) as content:
                arrays = {key: content[key] for key in content.files}
        except (ValueError, OSError, BadZipFile) as error:
            raise ConfigError(f"{path}: expected an .npz file of plain arrays: {error}.") from None
        split = {"x_train", "y_train", "x_test", "y_test"} <= set(arrays)
        if not split and not {"x", "y"} <= set(arrays):
            raise ConfigError(
                f"{path}: expected arrays x and y, or x_train, y_train, x_test and y_test; got {', '.join(arrays) or 'none'}."
            )
        if not split:
            part = Part(arrays["x"], arrays["y"], arrays.get("client"))
            return assembled(str(path), part, share=self.test, value_range=self.value_range)
        train = Part(arrays["x_train"], arrays["y_train"], arrays.get("client_train"))
        return assembled(str(path), train, Part(arrays["x_test"], arrays["y_test"]), value_range=self.value_range)
