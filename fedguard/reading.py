"""Arrays of callers, of any library, as tensors: read as they are meant, or refused with the reason.

Accepted are dense real numbers of numpy, torch and what numpy can read, in any order of bytes and rows: big-endian, reversed,
read-only, bfloat16, lists of tensors. Refused is what would be misread: masked values, sparse and quantized storage, complex
numbers, booleans, strings, raw bytes, and data without values (meta tensors, layers that have met no input, generators).
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from fedguard.errors import InputError, brief

#: Number types that libraries beside numpy add to it, and that numpy itself reads as raw bytes
_ADDED = ("bfloat16", "float8", "float6", "float4")


def read_array(value: Any, what: str) -> Tensor:
    """Read real numbers, or booleans, as a dense tensor without a graph, of its own type if torch has it.

    Args:
        what: the argument, for messages.

    Raises:
        InputError: it is not such an array.
    """
    if isinstance(value, Tensor):
        return _dense(value, what)
    if isinstance(value, list | tuple) and _holds_others(value):
        parts = [read_array(one, f"{what}[{row}]") for row, one in enumerate(value)]
        if len({part.shape for part in parts}) > 1:
            raise _shape_error(value, what)
        types = {part.dtype for part in parts}
        return torch.stack([part.cpu() if len(types) == 1 else part.cpu().double() for part in parts])
    if _is_raw(value):
        raise InputError(
            f"{what}: expected an array of numbers; got raw bytes, a {type(value).__name__}. Say what they hold: "
            "np.frombuffer(value, dtype)."
        )
    if _is_sparse(value):
        raise InputError(f"{what}: expected a dense array; got a sparse {type(value).__name__}. Use .toarray().")
    return _of_numpy(value, what)


def read_floats(value: Any, what: str) -> Tensor:
    """Read real numbers in float32; booleans are refused.

    Raises:
        InputError: it is not an array of real numbers.
    """
    tensor = read_array(value, what)
    if tensor.dtype == torch.bool:
        raise InputError(f"{what}: expected real numbers; got booleans.")
    return tensor.to(torch.float32)


def read_vector(value: Any, length: int, what: str) -> Tensor:
    """Read float32 ``[d]`` with finite values only.

    Raises:
        InputError: another length, or values that float32 cannot hold.
    """
    vector = read_floats(value, what)
    if tuple(vector.shape) != (length,) or not bool(vector.isfinite().all()):
        held = "" if bool(vector.isfinite().all()) else ", with NaN, infinity or values that float32 does not hold"
        raise InputError(f"{what}: expected {length} finite numbers; got shape {list(vector.shape)}{held}.")
    return vector


def _dense(value: Tensor, what: str) -> Tensor:
    """Check that a tensor is dense and has values."""
    if isinstance(value, UninitializedParameter | UninitializedBuffer):
        raise InputError(f"{what}: expected numbers; got a lazy parameter without a shape. Run the model once before.")
    if value.is_quantized:
        raise InputError(f"{what}: expected numbers; got quantized ones ({value.dtype}). Use .dequantize().")
    if value.layout != torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise InputError(f"{what}: expected a dense tensor; got a {kind} one. Use .to_dense(), or pad it.")
    if value.is_meta:
        raise InputError(f"{what}: expected numbers; got a tensor on the meta device, which holds none. Load it first.")
    if value.is_complex():
        raise InputError(f"{what}: expected real numbers; got {value.dtype}.")
    return value.detach().resolve_neg()


def _of_numpy(value: Any, what: str) -> Tensor:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(
            f"{what}: expected numbers everywhere; got a masked array with {int(np.ma.getmaskarray(value).sum())} masked. Fill "
            "them: .filled(value)."
        )
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever the array of another library raises when it is asked for its numbers
        if isinstance(value, list | tuple):
            raise _shape_error(value, what) from None
        said = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{what}: expected an array of numbers; got {type(value).__name__}, which cannot be read: {said}."
        ) from None
    if array.dtype.kind == "O":
        array = _of_objects(array, value, what)
    elif array.dtype.kind == "V" and array.dtype.name.startswith(_ADDED):
        array = array.astype(np.float32)
    if array.dtype.kind == "c":
        raise InputError(f"{what}: expected real numbers; got {array.dtype}.")
    if array.dtype.kind not in "fiub":
        wanted = "numbers in a rectangle [n, d]" if isinstance(value, list | tuple) else "an array of numbers"
        raise InputError(f"{what}: expected {wanted}; got {_describe_array(value, array)}.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what a float64 does not hold is infinite
            array = array.astype(np.float64)
    array = np.asarray(array, array.dtype.newbyteorder("="))
    if not array.flags.aligned or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        array = array.copy()  # torch takes no others
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nobody writes to it
        return torch.from_numpy(array)


def _of_objects(array: np.ndarray[Any, Any], value: Any, what: str) -> np.ndarray[Any, Any]:
    """Convert numbers that numpy holds as objects, such as fractions and integers of any length."""
    if array.ndim == 0 and not isinstance(value, numbers.Real):
        raise InputError(f"{what}: expected an array of numbers; got {_describe_array(value, array)}.")
    odd = [one for one in array.ravel().tolist() if isinstance(one, bool) or not isinstance(one, numbers.Real)]
    if odd:
        if isinstance(odd[0], Sequence | np.ndarray) and not isinstance(odd[0], str | bytes):
            raise _shape_error(value, what)
        raise InputError(f"{what}: expected an array of numbers; it holds {brief(odd[0])}, a {type(odd[0]).__name__}.")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise InputError(f"{what}: expected numbers that a float64 can hold; got larger ones.") from None


def _holds_others(value: Sequence[Any]) -> bool:
    """Whether a list holds, at any depth, something other than Python numbers or numpy arrays, which numpy would misread."""
    return any(
        _holds_others(one)
        if isinstance(one, list | tuple)
        else isinstance(one, Tensor | np.ma.MaskedArray) or _is_sparse(one) or _is_raw(one)
        for one in value
    )


def _is_sparse(value: Any) -> bool:
    """Whether it is a matrix of scipy.sparse, which numpy reads as a single object."""
    return type(value).__module__.startswith("scipy.sparse") or type(value).__module__ == "sparse"


def _is_raw(value: Any) -> bool:
    """Whether it is raw memory of unknown number type; numpy reads each byte as a number."""
    return isinstance(value, bytes | bytearray) or (isinstance(value, memoryview) and value.format in ("B", "b", "c"))


def _shape_error(value: Any, what: str) -> InputError:
    return InputError(
        f"{what}: expected numbers in a rectangle [n, d]; got {type(value).__name__} with rows of different kinds."
    )


def _describe_array(value: Any, array: np.ndarray[Any, Any]) -> str:
    return f"an array of {array.dtype}" if isinstance(value, np.ndarray | list | tuple) else f"{type(value).__name__}"
