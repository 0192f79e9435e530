"""LEAF's JSON files, whose clients are people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError
from fedguard.tasks.data.assembly import Part, assembled, found, shaped
from fedguard.tasks.data.text import tokens


@dataclass(frozen=True, kw_only=True)
class LEAF(Data):
    """``folder/train/*.json`` and ``folder/test/*.json`` as LEAF writes them; each user is a natural client.

    Inputs are numbers (FEMNIST, synthetic) or texts (Shakespeare), which become characters by number, all of one length; then the
    label is the character that follows.

    Args:
        folder: that holds ``train`` and ``test``.
        shape: of an input of numbers, such as ``[1, 28, 28]``.
        value_range: smallest and largest value of an input of numbers.
    """

    name = "leaf"
    source = "Caldas et al., LEAF: A Benchmark for Federated Settings, 2018"

    folder: str
    shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] = (0.0, 1.0)

    def load(self) -> Dataset:
        folder = found(self.folder, "folder")
        train, test = self._read(folder / "train"), self._read(folder / "test")
        if train.x.dtype.kind == "U":
            return tokens(str(folder), train, test)
        return assembled(str(folder), train, test, value_range=self.value_range)

    def _read(self, folder: Path) -> Part:
        files = sorted(folder.glob("*.json"))
        if not files:
            raise ConfigError(f"{folder}: expected .json files of LEAF; got none.")
        x, y, users = [], [], []
        for file in files:
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                for user in content["users"]:
                    data = content["user_data"][user]
                    x += data["x"]
                    y += data["y"]
                    users += [user] * len(data["y"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{file}: expected LEAF's users and user_data: {type(error).__name__}: {error}."
                ) from None
        try:
            inputs = np.array(x)
        except ValueError:
            raise ConfigError(f"{folder}: expected inputs of one length; got different ones.") from None
        if inputs.dtype.kind != "U" and self.shape is not None:
            inputs = shaped(str(folder), inputs, self.shape)
        return Part(inputs, np.array(y), np.array(users))
