"""One secure sum: exact for whole numbers, or a named error; never a number that wrapped around."""

from fractions import Fraction

import numpy as np
import pytest

import fedguard as fg
from fedguard.errors import ConfigError, InputError
from fedguard.secagg.encoding import Encoding, OverflowBudgetError
from fedguard.secagg.simulation import Settings

INTEGERS = [np.dtype(f"{kind}{width}") for kind in "iu" for width in (1, 2, 4, 8)]
#: What one of three clients may send, so that three times as much fits two's complement and one fits a float64.
MOST = {32: (2**31 - 1) // 3 - 1, 64: 2**52 - 1}


@pytest.mark.parametrize("ring", [32, 64])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_whole_numbers_of_any_type_are_summed_exactly_or_refused(dtype, ring):
    """The ends of the type, what is next to them, and what is next to the ring's own end; as Python adds them."""
    info, most = np.iinfo(dtype), MOST[ring]
    ends = {info.min, info.min + 1, info.max, info.max - 2, 0, 1, most, most + 1, -most, -most - 1}
    for value in sorted(end for end in ends if info.min <= end <= info.max):
        rows = [[value, 1], [1, value], [value, value]]
        inputs = np.array(rows, dtype)
        assert inputs.tolist() == rows
        try:
            total = fg.secure_sum(inputs, settings=Settings(ring=ring)).sum
        except OverflowBudgetError as error:
            assert abs(value) > most and f"up to {most} in size" in str(error) and f"got {abs(value)}" in str(error)
        else:
            assert abs(value) <= most and total.tolist() == [sum(column) for column in zip(*rows, strict=True)]


def test_rows_that_wrapped_around():
    """As 64-bit integers they are -3, 1, 1 and 2, and gave 7 with 2^64 - 3 turned into its absolute value."""
    with pytest.raises(OverflowBudgetError, match=f"got {2**64 - 3}. Set ring: 64, or scale the inputs down"):
        fg.secure_sum(np.array([[2**64 - 3], [1], [1], [2]], np.uint64))


def test_a_sum_beyond_what_a_float64_tells_apart():
    """Three times 2^52 - 1 is odd and larger than 2^53."""
    inputs = np.full((3, 1), 2**52 - 1, np.int64)
    assert fg.secure_sum(inputs, settings=Settings(ring=64)).sum.tolist() == [3 * (2**52 - 1)]


def test_weights_that_could_wrap_around():
    ones = np.ones((3, 2))
    for weight in (2**31, 10**12, 10**30):
        with pytest.raises(OverflowBudgetError, match="the sum of 3 clients may reach"):
            fg.secure_sum(ones, [weight, 1, 1])
    with pytest.raises(InputError, match="Scale them down"):
        fg.secure_sum(ones, [10**400, 1, 1])
    heavy = fg.secure_sum(ones, [2**29, 1, 1])
    assert heavy.weight == 2**29 + 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1.5, -1, "a", None, "1"])
def test_weights_that_are_no_whole_numbers(bad):
    with pytest.raises(InputError, match="weights: expected 3 whole numbers from 0"):
        fg.secure_sum(np.ones((3, 2)), [1, 1, bad])


def test_weights_of_zero_have_a_sum_and_no_mean():
    result = fg.secure_sum(np.ones((3, 2)), [0, 0, 0])
    assert result.sum.tolist() == [0, 0]
    with pytest.raises(InputError, match="no mean of nothing"):
        _ = result.mean


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("largest", [1.7e308, 2.0**1022])
def test_numbers_whose_sum_no_float_holds(largest, rotate):
    with pytest.raises(InputError, match=r"no longer than 8.99e\+307.*Scale them down"):
        fg.secure_sum(np.full((3, 2), largest), rotate=rotate)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("largest", [5e-324, 1e-310, 1e-300])
def test_numbers_of_which_a_step_is_finer_than_a_float(largest, rotate):
    """Those that a float64 holds without all its bits were decoded to 0."""
    with pytest.raises(InputError, match=r"expected 1e-292 or more in the largest number.*Scale them up"):
        fg.secure_sum(np.full((3, 2), largest), rotate=rotate)


@pytest.mark.parametrize("scale", [2.0**-970, 1e-290, 1.0, 1e300, 2.0**1020])
def test_numbers_of_any_size_between_are_summed(scale):
    inputs = scale * np.array([[1.0, -0.5], [0.25, 1.0], [-1.0, 1.0]])
    result = fg.secure_sum(inputs)
    assert np.abs(result.sum / scale - [0.25, 1.5]).max() <= result.rounding.worst / scale < 1e-7


def test_a_clip_of_which_a_step_is_finer_than_a_float():
    with pytest.raises(ConfigError, match="clip: expected more than"):
        Encoding(clip=1e-320)
    with pytest.raises(OverflowBudgetError, match="more than a float64 holds. Lower clip"):
        Encoding(clip=1e308).check(3)


@pytest.mark.parametrize("bits", [2.5, "8", None])
def test_bits_that_are_no_whole_number(bits):
    with pytest.raises(ConfigError, match="bits: expected a whole number"):
        Encoding(bits=bits)


@pytest.mark.parametrize("drop", [None, 1, "1"])
def test_dropped_clients_that_are_no_list(drop):
    with pytest.raises(ConfigError, match="drop: expected a list of clients at 'masked_input'"):
        fg.secure_sum(np.ones((4, 2)), drop={"masked_input": drop})


def test_numbers_beyond_a_float64():
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(InputError, match="expected finite numbers"):
            fg.secure_sum(np.full((3, 2), np.longdouble("1e400")))


@pytest.mark.parametrize("power", [-60, 0, 40, 100])
@pytest.mark.parametrize("above", [0, 1, 18])
def test_the_largest_input_is_within_the_clip(power, above):
    """Just above a power of two too, where a logarithm is rounded to the power itself."""
    largest = 2.0**power * (1 + above * 2.0**-52)
    result = fg.secure_sum(np.full((3, 2), largest), settings=Settings(ring=64))
    assert all(abs(Fraction(total) - 3 * Fraction(largest)) <= Fraction(result.rounding.worst) for total in result.sum)
