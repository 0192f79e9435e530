"""LEAF's JSON files, whose clients are people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError
from fedguard.tasks.data.assembly import Part, assembled, found, shaped
from fedguard.tasks.data.text import tokens


@dataclass(frozen=True, kw_only=True)
class LEAF(Data):
    """``folder/train/*.json`` and ``folder/test/*.json`` as LEAF writes them; each user is a natural client.

    Inputs are numbers (FEMNIST, synthetic) or texts of one length (Shakespeare), which become characters by number; then
    the label is the character that follows.

    Args:
        folder: that holds ``train`` and ``test``.
        shape: of an input of numbers, such as ``[1, 28, 28]``.
        value_range: smallest and largest value of an input of numbers; without one, columns are standardised.
    """

    name = "leaf"
    source = "Caldas et al., LEAF: A Benchmark for Federated Settings, 2018"
    outside = True

    folder: str
    shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] | None = None

    def load(self) -> Dataset:
        folder = found(self.folder, "folder")
        train, test = _read(folder / "train"), _read(folder / "test")
        if "U" in (train.x.dtype.kind, test.x.dtype.kind):
            return tokens(str(folder), train, test)
        if self.shape is not None:
            train, test = (Part(shaped(str(folder), one.x, self.shape), one.y, one.client) for one in (train, test))
        return assembled(str(folder), train, test, value_range=self.value_range)


def _read(folder: Path) -> Part:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ConfigError(f"{folder}: expected .json files of LEAF; got none.")
    x: list[Any] = []
    y: list[Any] = []
    users: list[str] = []
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            for user in content["users"]:
                data = content["user_data"][user]
                if len(data["x"]) != len(data["y"]):
                    raise ValueError(f"user {user} has {len(data['x'])} inputs and {len(data['y'])} labels")
                x += data["x"]
                y += data["y"]
                users += [str(user)] * len(data["y"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{file}: expected LEAF's users and user_data: {type(error).__name__}: {error}."
            ) from None
    try:
        return Part(np.array(x), np.array(y), np.array(users))
    except ValueError:
        raise ConfigError(f"{folder}: expected inputs of one length; got different ones.") from None
