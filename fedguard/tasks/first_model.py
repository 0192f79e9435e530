"""A first model from a file: its parameters by name, or one vector. Files are parsed, and nothing in them is executed."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor, nn

from fedguard.contracts.first_model import read_pinned
from fedguard.contracts.tasks import select_trained
from fedguard.errors import ConfigError, oneline

#: The entry of a file that holds all parameters as one vector
WHOLE = ""

#: Largest size of the unpacked arrays of an ``.npz`` file: these bytes, and this many times the file. A zip bomb has more
MOST, RATIO = 2**30, 20


def read_first_model(pinned: str, module: nn.Module) -> Tensor:
    """``[d]``: the trained parameters in a file, in the order of ``module.parameters()``, and of their type.

    A file has the parameters under their names in the network, in any order (``.npz``, ``.safetensors``), or all of them as
    one vector (``.npy``, as runs store final models).

    Args:
        pinned: the file with its digest: `fedguard.contracts.first_model.pin`.

    Raises:
        ConfigError: it cannot be read, or has other names, shapes or types than the network, or numbers that are not finite.
    """
    file, held = read_pinned(pinned)
    trained = select_trained(module)
    arrays, wanted = _parse(file, held), {name: tuple(one.shape) for name, one in trained.items()}
    dtype = next(iter(trained.values())).dtype
    if arrays.keys() == {WHOLE}:
        wanted = {WHOLE: (sum(one.numel() for one in trained.values()),)}
    if others := sorted(wanted.keys() ^ arrays.keys()):
        missing = [name for name in others if name in wanted]
        more = [name for name in others if name not in wanted]
        told = " and ".join(
            f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("has", more)) if names
        )
        raise ConfigError(
            f"training.first_model: {file}: expected the network's parameters {', '.join(wanted)}; the file {told}. "
            "Save exactly these, under these names."
        )
    for name, shape in wanted.items():
        _check_array(f"{file}: {name}" if name else file, arrays[name], shape, dtype)
    return torch.cat(
        [
            torch.from_numpy(arrays[name].astype(arrays[name].dtype.newbyteorder("="))).reshape(-1).to(dtype)
            for name in wanted
        ]
    )


def describe_first_model(pinned: str) -> str:
    """``first.npz@sha256:...: 650 parameters of float32: 1.weight [10, 64], 1.bias [10]``; raises as `read_first_model`."""
    file, held = read_pinned(pinned)
    arrays = _parse(file, held)
    kinds = ", ".join(sorted({str(one.dtype) for one in arrays.values()}))
    parts = ", ".join(f"{name} {list(one.shape)}".strip() for name, one in arrays.items())
    return f"{pinned}: {sum(one.size for one in arrays.values()):,} parameters of {kinds}: {parts}"


def _check_array(where: str, array: NDArray[Any], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    wanted = str(dtype).removeprefix("torch.")
    if array.shape != shape:
        turned = array.shape == shape[::-1]
        remedy = (
            "It is transposed: save it as the network has it" if turned else "Save the network that the suite names"
        )
        raise ConfigError(
            f"training.first_model: {where}: expected shape {list(shape)}; got {list(array.shape)}. {remedy}."
        )
    if array.dtype.kind != "f" or array.dtype.itemsize not in (4, dtype.itemsize):
        more = ", or set training.dtype: float64" if array.dtype == np.float64 else ""
        raise ConfigError(
            f"training.first_model: {where}: expected {wanted}; got {array.dtype}. Save it as {wanted}{more}."
        )
    if not (finite := np.isfinite(array)).all():
        place = np.argwhere(~finite)[0].tolist()
        raise ConfigError(
            f"training.first_model: {where}: expected finite numbers; got {array[tuple(place)]} at {place}. "
            "Train the first model again, at a smaller rate."
        )


def _parse(file: str, held: bytes) -> Mapping[str, NDArray[Any]]:
    """The arrays of a file by name; one without name is under `WHOLE`."""
    suffix = Path(file).suffix.lower()
    if suffix not in (".npz", ".npy", ".safetensors"):
        raise ConfigError(
            f"training.first_model: {file}: expected a file of .npz, .npy or .safetensors, which are parsed and never "
            f"executed; got {suffix or 'no suffix'}. Save it with numpy.savez."
        )
    try:
        if suffix == ".safetensors":
            return _load_safetensors(held)
        found = np.load(io.BytesIO(held), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {WHOLE: found}
        with found:
            return _unpack(found, held)
    except ImportError:
        raise ConfigError(
            f"training.first_model: {file}: safetensors is not installed. pip install 'fedguard[safetensors]'."
        ) from None
    except Exception as error:  # NumPy raises a dozen kinds for what is no such file
        # NumPy would tell how to read objects all the same
        objects = any(sign in str(error) for sign in ("Object arrays", "Cannot load file", "(object)"))
        told = "it holds Python objects, and to read them is to run what they say" if objects else oneline(error)
        raise ConfigError(
            f"training.first_model: {file}: expected plain arrays, as numpy.savez writes them: {told}."
        ) from None


def _unpack(packed: NpzFile[Any], held: bytes) -> Mapping[str, NDArray[Any]]:
    if twice := [name for name, many in Counter(packed.files).items() if many > 1]:
        raise ValueError(f"{twice[0]} is there twice")
    with ZipFile(io.BytesIO(held)) as entries:
        size, most = sum(one.file_size for one in entries.infolist()), MOST + RATIO * len(held)
    if size > most:
        raise ValueError(f"it unpacks to {size:,} bytes, more than {most:,}")
    arrays: dict[str, Any] = {name: packed[name] for name in packed.files}
    if others := [name for name, one in arrays.items() if not isinstance(one, np.ndarray)]:
        raise ValueError(f"{others[0]} is no array")
    return arrays


def _load_safetensors(held: bytes) -> Mapping[str, NDArray[Any]]:
    from safetensors.numpy import load

    try:
        return dict(load(held))
    except KeyError as error:  # the types of safetensors that NumPy lacks
        kind = {"BF16": "bfloat16"}.get(error.args[0], error.args[0])
        raise ValueError(f"it holds numbers of type {kind}, which NumPy does not have; save it as float32") from None
