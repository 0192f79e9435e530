"""Arrays of callers: whatever made them they are taken as they are meant, or refused with the true reason."""

from __future__ import annotations

import re
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import fedguard as fg
from fedguard.errors import InputError

ROWS = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0], [7.0, 8.0, 10.0], [-1.0, 2.0, 2.0], [3.0, 3.0, 1.0]])
MEAN = [sum(column) / 5 for column in ROWS.T.tolist()]


class Lazy:
    """An array that computes its numbers when numpy asks."""

    def __array__(self, dtype=None, copy=None):
        return ROWS if dtype is None else ROWS.astype(dtype)


class Gone(Lazy):
    """One whose file is not there any more."""

    def __array__(self, dtype=None, copy=None):
        raise OSError("the file is closed")


def quantized(values) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):  # torch is going to leave it out
        return torch.quantize_per_tensor(torch.tensor(values).float(), 0.5, 0, torch.qint8)


def nested() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned() -> np.ndarray:
    """Numbers behind one byte."""
    raw = np.empty(ROWS.nbytes + 1, np.uint8)[1:]
    found = raw.view(np.float64).reshape(ROWS.shape)
    found[:] = ROWS
    return found


TAKEN = {
    "reversed": lambda: ROWS[::-1],
    "reversed in both": lambda: ROWS[::-1, ::-1][::1, ::-1],
    "big-endian": lambda: ROWS.astype(">f8"),
    "big-endian whole": lambda: (ROWS * 2).astype(">i2") / 2,
    "half": lambda: ROWS.astype(np.float16),
    "long double": lambda: ROWS.astype(np.longdouble),
    "read-only": lambda: read_only(ROWS),
    "column-major": lambda: np.asfortranarray(ROWS),
    "unaligned": unaligned,
    "masked nowhere": lambda: np.ma.masked_array(ROWS, mask=False),
    "fractions": lambda: [[Fraction(value) for value in row] for row in ROWS.tolist()],
    "objects": lambda: ROWS.astype(object),
    "a table": lambda: pd.DataFrame(ROWS),
    "a table of nullable numbers": lambda: pd.DataFrame(ROWS).astype("Float64"),
    "lazy": Lazy,
    "tuples": lambda: tuple(map(tuple, ROWS.tolist())),
    "numpy rows": lambda: list(ROWS[:, ::-1][:, ::-1]),
    "bfloat16": lambda: torch.tensor(ROWS).to(torch.bfloat16),
    "float8": lambda: torch.tensor(ROWS).to(torch.float8_e4m3fn),
    "a list of tensors": lambda: list(torch.tensor(ROWS).float()),
    "a list of bfloat16": lambda: list(torch.tensor(ROWS).to(torch.bfloat16)),
    "a list with a graph": lambda: list(torch.tensor(ROWS).requires_grad_()),
    "tensors beside arrays": lambda: [torch.tensor(ROWS[0]), *ROWS[1:]],
    "a list of lists of tensors": lambda: [list(torch.tensor(row)) for row in ROWS],
    "negated": lambda: torch.complex(torch.zeros(5, 3), -torch.tensor(ROWS).float()).conj().imag,
    "a parameter": lambda: torch.nn.Parameter(torch.tensor(ROWS)),
    "transposed": lambda: torch.tensor(ROWS.T.copy()).T,
}  # fmt: skip
masked = np.ma.masked_array(ROWS, mask=ROWS > 9)
REFUSED = {
    "masked": (lambda: masked, "a masked array with 1 masked"),
    "a list of masked rows": (lambda: list(masked), "[2]: expected numbers everywhere; got a masked array"),
    "sparse": (lambda: scipy.sparse.csr_matrix(ROWS), "expected a dense array; got a sparse csr_matrix"),
    "sparse rows": (lambda: [scipy.sparse.csr_array(row[None]) for row in ROWS], "[0]: expected a dense array"),
    "sparse in torch": (lambda: torch.tensor(ROWS).to_sparse(), "expected a dense tensor; got a sparse_coo one"),
    "quantized": (lambda: quantized(ROWS), "got quantized ones"),
    "on no device": (lambda: torch.zeros(5, 3, device="meta"), "meta device, which holds none"),
    "not initialised": (lambda: torch.nn.LazyLinear(2).weight, "a lazy parameter without a shape"),
    "nested": (lambda: nested(), "expected a dense tensor; got a nested one"),
    "complex": (lambda: ROWS.astype(complex), "expected real numbers; got complex128"),
    "complex in torch": (lambda: torch.tensor(ROWS).to(torch.complex64), "expected real numbers; got torch.complex64"),
    "booleans": (lambda: ROWS > 0, "expected real numbers; got booleans"),
    "booleans in torch": (lambda: torch.tensor(ROWS) > 0, "expected real numbers; got booleans"),
    "words": (lambda: ROWS.astype(str), "expected an array of numbers; got an array of <U"),
    "numbers as words": (lambda: ROWS.astype(str).astype(object), "it holds '1.0', a str"),
    "dates": (lambda: ROWS.astype("datetime64[s]"), "got an array of datetime64[s]"),
    "records": (lambda: np.zeros((5, 3), dtype=[("a", "f4")]), "got an array of [('a', '<f4')]"),
    "holes": (lambda: pd.DataFrame(ROWS).astype("Float64").mask(ROWS > 9), "it holds <NA>, a NAType"),
    "none": (lambda: [[1.0, None], [2.0, 3.0]], "it holds None, a NoneType"),
    "decimals": (lambda: [[Decimal(1)], [Decimal(2)]], "it holds Decimal('1'), a Decimal"),
    "a generator": (lambda: (row for row in ROWS), "expected an array of numbers; got generator"),
    "a set": (lambda: {1.0, 2.0}, "expected an array of numbers; got set"),
    "raw bytes": (lambda: bytearray(b"12"), "expected an array of numbers; got raw bytes, a bytearray"),
    "rows of raw bytes": (lambda: [memoryview(b"12"), memoryview(b"34")], "expected an array of numbers; got raw bytes"),
    "a word": (lambda: "1, 2", "expected an array of numbers; got str"),
    "nothing": (lambda: None, "expected an array of numbers; got NoneType"),
    "a function": (lambda: len, "expected an array of numbers; got builtin_function_or_method"),
    "gone": (Gone, "got Gone, which cannot be read: OSError: the file is closed"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "rows of different kinds"),
    "ragged tensors": (lambda: [torch.ones(2), torch.ones(3)], "rows of different kinds"),
    "a row": (lambda: ROWS[0], "expected shape [n, d] with n, d >= 1; got [3]"),
    "a number": (lambda: np.float32(3), "expected shape [n, d] with n, d >= 1; got []"),
    "huge": (lambda: [[1.0, 10**400]], "a float64 can hold"),
    "beyond float32": (lambda: ROWS * 1e300, "hold values beyond 2^112"),
    "not finite": (lambda: [[1.0, np.nan], [1.0, 2.0]], "rows [0] hold NaN or infinity"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_dense_real_numbers_are_taken_whatever_made_them(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = TAKEN[name]()
        found = fg.aggregate("mean", made)
        crafted = fg.craft("ipm(tau=2)", TAKEN[name](), f=1)
        summed = fg.secure_sum(TAKEN[name]())
    assert np.asarray(found).tolist() == pytest.approx(MEAN, rel=1e-6)
    assert np.asarray(crafted)[0].tolist() == pytest.approx([-2 * value for value in MEAN], rel=1e-6)
    assert summed.sum.tolist() == pytest.approx([5 * value for value in MEAN], abs=1e-5)
    kind = torch.Tensor if isinstance(made, torch.Tensor) else np.ndarray if isinstance(made, np.ndarray) else list
    assert isinstance(found, kind) and isinstance(crafted, kind)


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_read_as_something_else_is_refused_with_the_reason(name):
    make, said = REFUSED[name]
    for call in (lambda: fg.aggregate("mean", make()), lambda: fg.craft("ipm", make(), f=1)):
        with pytest.raises(InputError, match=re.escape(said)) as caught:
            call()
        assert "\n" not in str(caught.value)


VECTORS = {
    "reversed": (lambda v: v[::-1], True),
    "big-endian": (lambda v: v.astype(">f4"), True),
    "read-only": (read_only, True),
    "a list": (lambda v: v.tolist(), True),
    "bfloat16": (lambda v: torch.tensor(v).to(torch.bfloat16), True),
    "masked": (lambda v: np.ma.masked_array(v, mask=v > 1), False),
    "booleans": (lambda v: v > 0, False),
    "complex": (lambda v: v + 1j, False),
    "words": (lambda v: v.astype(str), False),
    "sparse": (lambda v: torch.tensor(v).to_sparse(), False),
    "a number": (lambda v: v[0], False),
    "beyond float32": (lambda v: v.astype(float) * 1e300, False),
    "not finite": (lambda v: v * np.inf, False),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_beside_the_updates_are_read_by_the_same_reader(name):
    change, right = VECTORS[name]
    vector = np.array([2.0, 1.0, 0.5], np.float32)
    for argument, rule in (("root", "fltrust"), ("model", "crfl")):
        call = lambda made, argument=argument, rule=rule: fg.aggregate(rule, ROWS, f=1, **{argument: made})  # noqa: E731
        if right:
            truth = call(np.ascontiguousarray(np.array(change(vector), dtype=np.float32) if not isinstance(change(vector), torch.Tensor) else vector))  # fmt: skip
            assert call(change(vector)).tolist() == pytest.approx(truth.tolist())
        else:
            with pytest.raises(InputError, match=f"^{argument}: expected"):
                call(change(vector))


STATE = {"w": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), "b": np.array([5.0], np.float32), "seen": np.array(7)}


def changed(state: dict, shift: float) -> dict:
    return {name: value if name == "seen" else value + np.float32(shift) for name, value in state.items()}


@pytest.mark.parametrize(
    "kind", [">f4", "f2", "f8", "longdouble", "reversed", "read-only", "bfloat16", "float8", "list"]
)
def test_entries_of_states_keep_their_kind(kind):
    def as_kind(value):
        if value.dtype.kind == "i":
            return value
        if kind in ("bfloat16", "float8"):
            return torch.tensor(value).to(torch.bfloat16 if kind == "bfloat16" else torch.float8_e4m3fn)
        if kind == "reversed":
            return np.ascontiguousarray(value[::-1])[::-1]
        if kind in ("read-only", "list"):
            return read_only(value) if kind == "read-only" else value.tolist()
        return value.astype(kind)

    model, clients = STATE, [changed(STATE, shift) for shift in (1.0, 2.0, 6.0)]
    model, *clients = ({name: as_kind(value) for name, value in state.items()} for state in (model, *clients))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fg.Guard(defense="median").step(model, clients)
    for name, truth in changed(STATE, 2.0).items():
        assert (
            np.asarray(found[name].float() if isinstance(found[name], torch.Tensor) else found[name]).tolist()
            == truth.tolist()
        )
        if kind != "list":
            assert found[name].dtype == model[name].dtype
    assert fg.aggregate("mean", clients)["b"] is not None and len(fg.craft("ipm", clients, f=2)) == 2


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (np.ma.masked_array([5.0], mask=True), "b: expected numbers everywhere"),
        (np.array([5.0 + 1j]), "b: expected real numbers"),
        (torch.tensor([5.0]).to_sparse(), "b: expected a dense tensor"),
        (quantized([5.0]), "b: expected numbers; got quantized"),
        (torch.zeros(1, device="meta"), "b: expected numbers; got a tensor on the meta device"),
        (torch.nn.LazyLinear(1).bias, "b: expected numbers; got a lazy parameter"),
        (np.array(["5"]), "b: expected an array of numbers"),
        (None, "b: expected an array of numbers; got NoneType"),
        (Gone(), "b: expected an array of numbers; got Gone, which cannot be read"),
    ],
)  # fmt: skip
def test_entries_of_states_that_are_no_numbers_are_named(entry, said):
    for call in (
        lambda: fg.Guard().step(STATE, [{**STATE, "b": entry}]),
        lambda: fg.Guard().step({**STATE, "b": entry}, [STATE]),
        lambda: fg.aggregate("mean", [{**STATE, "b": entry}] * 2),
    ):
        with pytest.raises(InputError, match=said):
            call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_what_its_type_cannot_hold_is_never_handed_back(dtype):
    """The result is computed in float32, and 60,000 + 60,000 is more than float16 can hold; float8 ends earlier."""
    most = torch.finfo(dtype).max
    model = {"v": torch.tensor([1.0], dtype=dtype), "w": torch.tensor([0.9 * most, 1.0]).to(dtype)}
    clients = [{"v": model["v"], "w": torch.tensor([-0.9 * most, 1.0]).to(dtype)}] * 3
    guard = fg.Guard(attack="ipm(tau=50)", f=1)
    with pytest.raises(InputError, match=f"the next model, w: expected values that {str(dtype)[6:]} can hold"):
        guard.step(model, clients)
    with pytest.raises(InputError, match=f"the result, w: expected values that {str(dtype)[6:]} can hold"):
        fg.craft("ipm(tau=50)", clients, f=1)
    assert fg.craft("ipm(tau=0.5)", clients, f=1)[0]["w"].dtype == dtype
    halves = [{"w": np.array([-50000.0, 1.0], np.float16)}] * 3
    with pytest.raises(InputError, match="w: expected values that float16 can hold"):
        fg.craft("ipm(tau=50)", halves, f=1)


def test_a_model_that_has_diverged_is_said_to_have():
    for bad in (float("nan"), float("inf"), 1e300):
        model = {"w": torch.tensor([1.0, bad], dtype=torch.float64)}
        with pytest.raises(InputError, match="model: expected finite numbers"):
            fg.Guard().step(model, [{"w": torch.ones(2)}] * 3)
        with pytest.raises(InputError, match="root: expected finite numbers"):
            fg.Guard(defense="fltrust", assumed_f=1).step({"w": torch.ones(2)}, [{"w": torch.ones(2)}] * 3, root=model)


def test_vectors_of_numpy_are_models_too():
    model, clients = np.zeros(2, ">f4"), [np.array([1.0, 4.0])[::-1], np.array([2.0, 6.0])]
    found = fg.Guard().step(model, clients)
    assert isinstance(found, np.ndarray) and found.dtype == ">f4" and found.tolist() == [3.0, 3.5]
