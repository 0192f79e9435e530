"""LEAF's JSON files, in which the clients are people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.errors import ConfigError, brief, oneline, require
from fedguard.tasks.data.assembly import (
    Classes,
    RawExamples,
    assemble_dataset,
    check_classes,
    describe_preparation,
    join_parts,
)
from fedguard.tasks.data.cells import plain_text
from fedguard.tasks.data.files import regular, require_path, sniff_format
from fedguard.tasks.data.text import check_characters, tokens


@dataclass(frozen=True, kw_only=True)
class LEAF(Data):
    """``folder/train/*.json`` and ``folder/test/*.json`` as LEAF writes them; each user is a natural client.

    Inputs are numbers (FEMNIST, synthetic) or texts of one length (Shakespeare), which become characters by number; then
    the label is the character that follows.

    Args:
        folder: that holds ``train`` and ``test``.
        shape: of an input of numbers, such as ``[1, 28, 28]``.
        value_range: smallest and largest value of an input of numbers; without one, columns are standardized.
        classes: of numbers: how many, or their names; without them, as many as there are labels.
        characters: the characters that texts may hold; a text with another one is left out. By default, all of the train part.
    """

    name = "leaf"
    source = "Caldas et al., LEAF: A Benchmark for Federated Settings, 2018"
    outside = True

    folder: str
    shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] | None = None
    classes: Classes | None = None
    characters: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)
        check_characters(self.name, self.characters)

    @property
    def preparation(self) -> Preparation:
        if self.characters is not None:
            return Preparation("given", "the vocabulary")
        return describe_preparation(self.value_range, self.classes, remedy=", or of texts the characters")

    @property
    def record(self) -> str:
        return "" if self.characters is None else "a text and the character that follows: texts of one user may overlap"

    def load(self) -> Dataset:
        folder = require_path(self.folder, "folder")
        train, test = _read(folder / "train"), _read(folder / "test")
        if "U" in (train.x.dtype.kind, test.x.dtype.kind):
            return tokens(str(folder), train, test, self.characters)
        require(
            self.characters is None, f"{folder}: characters: expected texts; got inputs that are numbers. Leave it out."
        )
        return assemble_dataset(
            str(folder), train, test, value_range=self.value_range, classes=self.classes, shape=self.shape
        )


def _read(folder: Path) -> RawExamples:
    files = sorted(folder.glob("*.json"), key=lambda file: file.name)
    if not files:
        raise ConfigError(f"{folder}: expected .json files of LEAF; got none.")
    parts: list[RawExamples] = []
    seen: dict[str, Path] = {}
    for file in files:
        try:
            of_users = list(_users(json.loads(regular(file).read_text(encoding="utf-8-sig"), object_pairs_hook=_once)))
        except (OSError, ValueError, RecursionError) as error:
            told = sniff_format(file) or _tell(error)
            raise ConfigError(f"{file}: expected LEAF's users and user_data: {told}.") from None
        for user, part in of_users:
            if user in seen:
                raise ConfigError(
                    f"{file}: expected each user in one file, as in LEAF's shards; {brief(user)} is in {seen[user].name}, "
                    "too, and its examples would count twice. Leave one of the files out, or join what the user has."
                )
            seen[user] = file
            parts += [part] * (len(part.y) > 0)
    if not parts:
        raise ConfigError(f"{folder}: expected examples; got none.")
    if len({(part.x.shape[1:], part.x.dtype.kind == "U", part.y.dtype.kind == "U") for part in parts}) > 1:
        raise ConfigError(
            f"{folder}: expected inputs of one length, and of one kind as the labels are; got different ones."
        )
    return join_parts(parts)


def _tell(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON: {oneline(error)}. It may be cut: write or copy it again"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return oneline(error)


def _users(content: Any) -> Iterator[tuple[str, RawExamples]]:
    """The users of a file with their examples as arrays; the parsed JSON takes much memory and is not kept."""
    _check_kind(content, dict, "the file")
    for key, kind in (("users", list), ("user_data", dict)):
        _check_kind(content.get(key), kind, key)
    users, counts = content["users"], content.get("num_samples")
    if odd := [user for user in users if not isinstance(user, str) and type(user) is not int]:
        raise ValueError(f"expected texts or whole numbers for users; got {brief(odd[0])}")
    if len({plain_text(str(user)) for user in users}) != len(users):
        raise ValueError("a user is named twice")
    if nobody := sorted(set(content["user_data"]) - set(map(str, users))):
        raise ValueError(f"{brief(nobody[0])} has data and is not among the users")
    if counts is not None:
        _check_kind(counts, list, "num_samples")
        if odd := [count for count in counts if type(count) is not int]:
            raise ValueError(f"expected whole numbers in num_samples; got {brief(odd[0])}")
        if len(counts) != len(users):
            raise ValueError(f"num_samples has {len(counts)} numbers for {len(users)} users")
    for user, count in zip(users, counts or [None] * len(users), strict=True):
        x, y = _examples(content["user_data"], user)
        if count not in (None, len(y)):
            raise ValueError(f"num_samples tells of {count} examples of user {brief(user)}, who has {len(y)}")
        name = plain_text(str(user))
        yield name, RawExamples(x, y, np.full(len(y), name))


def _examples(data: dict[str, Any], user: str | int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and labels of one user."""
    if str(user) not in data:
        raise ValueError(f"user {brief(user)} has no data. Add it to user_data, or take the name out of users")
    own = data[str(user)]
    _check_kind(own, dict, f"the data of user {brief(user)}")
    if missing := [key for key in ("x", "y") if key not in own]:
        raise ValueError(f"user {brief(user)} has no {missing[0]}: expected x, the inputs, and y, the labels")
    x, y = _array(own["x"], "inputs", user), _array(own["y"], "labels", user)
    if len(x) != len(y):
        raise ValueError(f"user {brief(user)} has {len(x)} inputs and {len(y)} labels")
    return x, y


_KINDS = {list: "a list", dict: "an object", str: "a text", bool: "true or false", int: "a number", float: "a number"}


def _check_kind(value: Any, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"expected {_KINDS[kind]} for {what}; got {_KINDS.get(type(value), 'none')}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON with unique names; of a repeated name, Python would silently keep the last value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{brief(next(name for name in names if names.count(name) > 1))} is listed there twice")
    return found


def _array(values: Any, what: str, user: str | int) -> NDArray[Any]:
    """The inputs or labels of one user, all of one length and kind.

    Raises:
        ValueError: they are not; it names the first that is no finite number and no text.
    """
    _check_kind(values, list, f"the {what} of user {brief(user)}")
    try:
        found = np.array(values)
    except ValueError:
        raise ValueError(f"expected {what} of one length; user {brief(user)} has different ones") from None
    texts = [isinstance(one, str) for one in values]
    if any(texts):
        if not all(texts):
            raise ValueError(f"user {brief(user)} has texts among numbers, such as {brief(values[texts.index(True)])}")
        return found
    plain = found.dtype.kind in "iuf" and bool(np.isfinite(found).all())
    if not plain or _holds_truth(values):
        odd = [one for one in _flat(values) if type(one) not in (int, float) or not abs(one) < np.inf]
        got = f"; got {brief(odd[0])}" if odd else ", below 2^64"
        raise ValueError(f"expected {what} that are finite numbers or texts of user {brief(user)}{got}")
    return found


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for one in values:
            yield from _flat(one)
    else:
        yield values


def _holds_truth(values: list[Any]) -> bool:
    """Whether true or false is among the numbers, which NumPy would turn into 1 and 0."""
    return any(_holds_truth(one) if isinstance(one, list) else isinstance(one, bool) for one in values)
