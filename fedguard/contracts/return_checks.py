"""Checks what an algorithm returned against its contract. Errors name the algorithm and its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.errors import ContractError, brief

T = TypeVar("T")


def contract_error(owner: Algorithm, said: str) -> ContractError:
    """The error of an algorithm that broke its contract, with its file unless it is FedGuard's own."""
    file = owner.stands_in()
    return ContractError(f"{owner.name} broke its contract: {said}.{f' It is defined in {file}.' if file else ''}")


def check_return(owner: Algorithm, method: str, value: Any, kind: type[T] | tuple[type[T], ...]) -> T:
    """``value``, if it is of the kind that ``owner.method`` has to return.

    Raises:
        ContractError: it is not.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(one.__name__ for one in kinds)
        raise contract_error(owner, f"{method}: expected {wanted}; got {describe_value(value)}")
    return value


def check_tensor_return(owner: Algorithm, method: str, value: Any, *shapes: Sequence[int]) -> Tensor:
    """``value``, if it is a tensor of floats of one of these shapes; of any shape if none is given.

    Raises:
        ContractError: it is not.
    """
    wanted = " or ".join(str(list(shape)) for shape in shapes)
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise contract_error(
            owner,
            f"{method}: expected a torch tensor of floats{f', {wanted}' * bool(shapes)}; got {describe_value(value)}",
        )
    if shapes and tuple(value.shape) not in {tuple(shape) for shape in shapes}:
        raise contract_error(owner, f"{method}: expected shape {wanted}; got {list(value.shape)}")
    return value


@contextmanager
def forbid_changes(owner: Algorithm, *shown: Any) -> Iterator[None]:
    """See to it that an algorithm leaves alone the tensors that it is shown, by torch's own count of changes in place.

    Args:
        shown: tensors, what has tensors as its ``parts``, and lists of these; everything else is passed over.

    Raises:
        ContractError: it changed one of them.
    """
    tensors = list(_tensors(shown))
    before = [tensor._version for tensor in tensors]
    yield
    if [tensor._version for tensor in tensors] != before:
        raise contract_error(owner, "it changed what it was shown, in place")


def _tensors(shown: Any) -> Iterator[Tensor]:
    if isinstance(shown, Tensor):
        yield shown
    elif isinstance(shown, list | tuple):
        for one in shown:
            yield from _tensors(one)
    else:
        yield from _tensors(getattr(shown, "parts", ()))


def describe_value(value: Any) -> str:
    """A value in a message: its type, and for arrays the shape and dtype."""
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"a {type(value).__module__}.{type(value).__name__} of {value.dtype} {list(value.shape)}"
    return "None" if value is None else f"{type(value).__name__} {brief(value)}"
