"""Tests by behavior, before any training, that each example's gradient in a network is its own, as DP-SGD requires.

Clipping bounds what one example adds to a sum $g_1 + ... + g_B$ only if $g_j$ depends on the example j and the weights
alone, and if all of $g_j$ is clipped. The tests use made-up weights and inputs:

    together     logits, gradients by the inputs, and Opacus's per-example gradients of a batch equal what plain autograd
                 gives for each example alone, in every order, and beside far larger examples
    empty        an empty batch, which Poisson sampling draws now and then, gives an empty answer
    again        an example alone gets the same answer at the end: the network has no memory and draws nothing
    loss         the summed loss of a batch is the sum of its examples' losses

Near their start, networks hide much: gates are zero, activations small, logits flat. The weights are therefore also moved far
away. What is compared is a random linear function of the logits, which never saturates. All is computed in float64, where
rounding is far below the effect of another example; a network that cannot compute in float64 gets three tries in float32.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from opacus.grad_sample import GradSampleModule
from scipy.stats import binom
from torch import Tensor, nn

from fedguard.contracts import Reduction
from fedguard.contracts.tasks import NOT_ASKED, select_trained
from fedguard.contracts.user_function import FAILURES
from fedguard.errors import ConfigError, oneline
from fedguard.tasks.network import FlatNetwork

#: Examples that are made up; larger batches hold them several times.
POOL = 8
#: Batches of these, by number in the pool: in order, backwards, alone, beside the largest, and one of them twice.
BATCHES = (tuple(range(POOL)), tuple(reversed(range(POOL))), (0,), (1, 5), (5, 3, 2, 2, 7))
#: Most numbers that Opacus is asked for at a time, since it holds a gradient for each example.
MOST_NUMBERS = 2**22
#: Number in the pool of the largest example.
LARGEST = 5
#: Largest distance of two equal answers over their size, in float64 and in float32; the share of a gradient below which a
#: parameter's part is rounding; and the same as an absolute size.
TOLERANCE, SMALL, TINY = {torch.float64: 1e-6, torch.float32: 1e-3}, 1e-3, 1e-12

Loss: TypeAlias = Callable[[Tensor, Tensor, Reduction], Tensor]

#: Most input values of a batch that is tried.
MOST_VALUES = 2**20

#: The largest batch with which a network was tried and found right.
_FOUND_RIGHT: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


class _BrokenRequirement(Exception):
    """A sentence that says what is wrong, and the remedy."""


def hold(network: FlatNetwork, largest: int = 0) -> None:
    """Check that a network meets the requirements of DP-SGD; a network that passed is not tried again.

    Args:
        largest: size of the largest batch of the training. Sizes up to `POOL` are always tried, and then doubled up to it.

    Raises:
        ConfigError: the examples of a batch see each other, or Opacus does not get at their gradients.
    """
    tried = _FOUND_RIGHT.get(network.module, 0)
    largest = max(POOL, min(largest, MOST_VALUES // max(1, math.prod(network.shape))))
    if tried >= largest:
        return
    # A network may compute across its batch from some size on (`if len(x) >= 60`): small batches prove nothing for large ones
    sizes = [
        size
        for size in (*itertools.takewhile(largest.__gt__, (POOL * 2**k for k in range(1, 40))), largest)
        if size > POOL
    ]
    try:
        # A network that draws at random is refused, but its draws must not move the caller's generator before that
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            if not tried:
                _loss(network.loss, network.answers, network.classes)
            _module(network, () if tried else BATCHES, [size for size in sizes if size > tried])
    except _BrokenRequirement as broken:
        raise ConfigError(
            f"model {network.name} cannot be trained by DP-SGD, which clips the gradient of each example: {broken}"
        ) from broken.__cause__
    _FOUND_RIGHT[network.module] = largest


def largest_batch(sizes: Iterable[int], rate: float) -> int:
    """The size that a client's Poisson batch exceeds in at most one of a billion steps: the maximum over ``sizes``."""
    return max((int(binom.ppf(1 - 1e-9, size, rate)) for size in sizes), default=0)


def _loss(loss: Loss, answers: tuple[int, ...], classes: int) -> None:
    """Check that a batch's summed loss has the gradients of its examples' own losses, for flat and steep logits."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (POOL, *answers), generator=draw)
    if answers:
        y[torch.arange(POOL) % 2 > 0, 1:] = NOT_ASKED  # of different numbers of tokens
    for scale in (0.1, 3.0, 300.0):
        logits = scale * torch.randn(POOL, *answers, classes, generator=draw, dtype=torch.float64)
        try:
            alone, together = _slopes(loss, logits, y)
        except FAILURES:
            try:  # some have constants in float32
                alone, together = _slopes(loss, logits.float(), y)
            except FAILURES as error:
                raise _wrap_failure("its loss fails", error) from error
        for rows, found in together:
            # 1e-4 leaves room for losses with constants in float32; in the comparison below NaN counts as a difference
            off = (found - alone[list(rows)]).norm(dim=-1) - 1e-4 * alone[list(rows)].norm(dim=-1)
            if not bool((off <= 1e-6).all()):
                raise _BrokenRequirement(
                    "its loss over a batch, with reduction 'sum', is not the sum of its examples' own losses. Add up losses of "
                    "which each depends on one row of the logits and on its label."
                )


def _slopes(loss: Loss, logits: Tensor, y: Tensor) -> tuple[Tensor, list[tuple[Sequence[int], Tensor]]]:
    """Gradients of the loss by the logits: ``[POOL, classes]`` of each example alone, and the gradients of each batch."""

    def slope(rows: Sequence[int]) -> Tensor:
        given = logits[list(rows)].requires_grad_()
        (found,) = torch.autograd.grad(loss(given, y[list(rows)], "sum"), given)
        return found

    return torch.cat([slope([row]) for row in range(POOL)]), [(rows, slope(rows)) for rows in (*BATCHES, ())]


def _module(network: FlatNetwork, batches: Sequence[Sequence[int]], sizes: Sequence[int]) -> None:
    exact = _exact(network)
    # A gate that is 0 at the start hides what is behind it: large batches, which cost most, are tried with moved weights alone
    for setting in range(3) if batches else (1,):
        for attempt in itertools.count():
            trial = _Trial.build_trial(network, exact, setting, attempt)
            try:
                trial.run(batches, sizes if setting == 1 else ())
            except _AnswerMismatch as broken:
                if exact is torch.float32 and attempt < 2:  # a kink that rounding crossed will not be met again
                    continue
                raise _BrokenRequirement(str(broken)) from None
            break


class _AnswerMismatch(_BrokenRequirement):
    """Two answers differ that should be equal."""


def _exact(network: FlatNetwork) -> torch.dtype:
    """float64, or float32 for a network that cannot compute in it."""
    try:
        module = copy.deepcopy(network.module).double()
        with torch.no_grad():
            found = module(_inputs(network, torch.Generator().manual_seed(0)).double()[:2])
    except FAILURES:
        return torch.float32
    return torch.float64 if found.dtype == torch.float64 else torch.float32


@dataclass
class _Trial:
    """A network with made-up weights and inputs, and its answers for each input alone.

    Attributes:
        plain, hooked: copies of the network, the second with Opacus's hooks.
        x: ``[POOL, *shape]``.
        weights: ``[POOL, classes]``: coefficients of the linear function of the logits that is differentiated.
        logits: ``[POOL, classes]``, of each input alone.
        slopes: ``[POOL, *shape]``: the gradient by the input; None if there is none, as for text.
        gradients: ``[POOL, ...]`` for each parameter.
        finite: bool ``[POOL]``: whether an input alone gives finite answers; the others only serve as neighbors.
    """

    plain: nn.Module
    hooked: GradSampleModule
    x: Tensor
    weights: Tensor
    tolerance: float

    @classmethod
    def build_trial(cls, network: FlatNetwork, dtype: torch.dtype, setting: int, attempt: int) -> _Trial:
        draw = torch.Generator().manual_seed(1000 * setting + attempt)
        module = copy.deepcopy(network.module).to(dtype)
        _move(module, setting, draw)
        x = _inputs(network, draw).to(dtype)
        weights = torch.randn(POOL, *network.answers, network.classes, generator=draw).to(dtype)
        try:
            hooked = GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
        except FAILURES as error:
            raise _wrap_failure("Opacus refuses it", error, module) from error
        return cls(module, hooked, x, weights, TOLERANCE[dtype])

    def run(self, batches: Sequence[Sequence[int]], sizes: Sequence[int]) -> None:
        self._alone()
        self._again()
        for rows in batches:
            self._together(rows, per_example=True)
        if batches:
            self._empty()
        d = sum(parameter.numel() for parameter in select_trained(self.plain).values())
        for size in sizes:
            rows = (torch.randperm(size, generator=torch.Generator().manual_seed(size)) % POOL).tolist()
            self._together(rows, per_example=size * d <= MOST_NUMBERS)
        self._again()

    def _alone(self) -> None:
        answers = []
        for row in range(POOL):
            try:
                answers.append(self._answer([row]))
            except FAILURES as error:
                # The largest input alone may be outside the value range, where a network may fail
                if row != LARGEST:
                    raise _wrap_failure("it fails on a batch of one example", error, self.plain) from error
                self.x[row] = self.x[0]
                answers.append(self._answer([row]))
        logits, slopes, gradients = zip(*answers, strict=True)
        self.logits = torch.cat(logits)
        self.slopes = None if slopes[0] is None else torch.cat(slopes)
        self.gradients = [torch.stack(one) for one in zip(*gradients, strict=True)]
        self.finite = torch.stack([one.isfinite().flatten(1).all(1) for one in (self.logits, *self.gradients)]).all(0)
        # Squares of large numbers may overflow where the numbers do not, so parts are measured first.
        self._size = _length(torch.stack([_length(one) for one in self.gradients], 1))

    def _answer(self, rows: Sequence[int]) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """By plain autograd: logits, gradient by the inputs, and gradient by the parameters, summed over the batch."""
        x = self.x[list(rows)].requires_grad_()
        parameters = list(select_trained(self.plain).values())
        logits = self.plain(x.clone())  # which a network may change in place
        value = (self.weights[list(rows)] * logits).sum()
        slope, *found = torch.autograd.grad(value, [x, *parameters], allow_unused=True)
        gradients = [torch.zeros_like(p) if one is None else one for p, one in zip(parameters, found, strict=True)]
        return logits.detach(), slope, gradients

    def _together(self, rows: Sequence[int], *, per_example: bool) -> None:
        taken = torch.tensor(rows)
        try:
            logits, slopes, total = self._answer(rows)
        except FAILURES as error:
            raise _wrap_failure(f"it fails on a batch of {len(rows)}", error, self.plain) from error
        if self._differ(logits, self.logits[taken], taken):
            raise _mixing(rows, "logits")
        if slopes is not None and self.slopes is not None and self._differ(slopes, self.slopes[taken], taken):
            raise _mixing(rows, "gradients by the inputs")
        # A custom backward pass may mix examples in the gradients by the parameters alone, and text has no gradients by inputs.
        # The bound is relative to the sum of lengths, since opposite gradients may cancel in the sum
        if bool(self.finite[taken].all()):
            for found, each in zip(total, self.gradients, strict=True):
                own = each[taken]
                size = float(_length(own).sum() + SMALL * self._size[taken].sum())
                if not float((found - own.sum(0)).norm()) <= self.tolerance * (size + TINY):
                    raise _mixing(rows, "gradients")
        if per_example:
            for found, each in zip(self._samples(rows), self.gradients, strict=True):
                if len(found) != len(rows):
                    raise _clipping_error(f"gives {len(found)} gradients of {len(rows)} examples")
                if self._differ(found, each[taken], taken, SMALL * self._size[taken]):
                    raise _clipping_error("finds another gradient of an example than autograd does")

    def _samples(self, rows: Sequence[int]) -> Iterator[Tensor]:
        """Opacus's gradients ``[B, ...]`` by each parameter, as its optimizer reads them."""
        parameters: list[Any] = list(select_trained(self.hooked).values())
        for parameter in parameters:
            # Opacus appends to a `grad_sample` that is left in place, and the earlier batch would be compared too
            parameter.grad = parameter.grad_sample = None
        try:
            (self.weights[list(rows)] * self.hooked(self.x[list(rows)])).sum().backward()
        except FAILURES as error:
            how = (
                f"on a batch of {len(rows)}" if rows else "on an empty batch, which Poisson sampling draws now and then"
            )
            raise _wrap_failure(f"Opacus fails {how}", error, self.plain) from error
        for parameter in parameters:
            found = parameter.grad_sample
            if found is None:
                raise _clipping_error("finds no gradient by a parameter")
            yield torch.cat(list(found)) if isinstance(found, list) else found

    def _empty(self) -> None:
        try:
            with torch.no_grad():
                logits = self.plain(self.x[:0])
        except FAILURES as error:
            told = "it fails on an empty batch, which Poisson sampling draws now and then"
            raise _wrap_failure(told, error, self.plain) from error
        if logits.shape != self.weights[:0].shape:
            raise _BrokenRequirement(
                f"expected logits of shape {[0, self.weights.shape[1]]} for an empty batch, which Poisson sampling draws now "
                f"and then; got {list(logits.shape)}."
            )
        if any(len(found) for found in self._samples([])):
            raise _clipping_error("finds gradients of examples in an empty batch")

    def _again(self) -> None:
        for row in range(POOL):
            with torch.no_grad():
                logits = self.plain(self.x[[row]])
            if self._differ(logits, self.logits[[row]], torch.tensor([row])):
                raise _AnswerMismatch(
                    "the same example gets other logits the next time: it remembers batches, or draws at random. Make the "
                    "logits a function of the input and the parameters."
                )

    def _differ(self, found: Tensor, own: Tensor, taken: Tensor, small: Tensor | float = 0.0) -> bool:
        """Whether a row of ``found`` differs from the row of ``own``; examples without finite answers are left out."""
        near = _length(found - own) <= self.tolerance * (torch.maximum(_length(own), _length(found)) + small + TINY)
        return not bool((near | ~self.finite[taken]).all())


def _length(rows: Tensor) -> Tensor:
    """``[B]``: the length of each row."""
    length: Tensor = rows.flatten(1).norm(dim=1)
    return length


def _mixing(rows: Sequence[int], what: str) -> _BrokenRequirement:
    return _AnswerMismatch(
        f"in a batch of {len(rows)} the {what} of an example are not those that it has alone: examples see each other, and "
        "none adds a bounded share. Let no layer compute across the batch: GroupNorm or LayerNorm in place of what normalises "
        "over it."
    )


def _clipping_error(how: str) -> _BrokenRequirement:
    return _AnswerMismatch(
        f"Opacus {how}, so not all of it is clipped. Use each parameter by calling the layer that owns it, and not by "
        "F.linear(x, layer.weight) or the like."
    )


def _wrap_failure(what: str, error: BaseException, module: nn.Module | None = None) -> _BrokenRequirement:
    return _BrokenRequirement(f"{what}: {type(error).__name__}: {oneline(error)}. {_suggest_remedy(error, module)}")


def _suggest_remedy(error: BaseException, module: nn.Module | None) -> str:
    """The remedy, as far as the error and the layers show it."""
    layers = [] if module is None else list(module.modules())
    if "inplace" in str(error) or any(getattr(one, "inplace", False) for one in layers):
        return "Let no layer change its input in place: ReLU(inplace=False), x = x + y in place of x += y."
    if any(isinstance(one, nn.RNNBase) for one in layers):
        return "Take DPRNN, DPGRU or DPLSTM of opacus.layers, which are made of layers whose gradients it finds."
    if any(isinstance(one, nn.MultiheadAttention) for one in layers):
        return "Take DPMultiheadAttention of opacus.layers, whose gradients it finds."
    if any(nn.utils.parametrize.is_parametrized(one) for one in layers):
        return "Leave out weight_norm and other parametrizations."
    return (
        "Take layers that work on each example by itself and on none (GroupNorm or LayerNorm, flatten(1) in place of "
        "view(len(x), -1))."
    )


def _move(module: nn.Module, setting: int, draw: torch.Generator) -> None:
    """Setting 0: weights as they are; 1: moved far away; 2: large, and none of them zero."""
    with torch.no_grad():
        for parameter in select_trained(module).values():
            noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64).to(parameter.dtype)
            fan = max(1, parameter[0].numel()) if parameter.dim() > 1 else 1
            if setting == 1:
                parameter.add_(noise / fan**0.5)
            elif setting == 2:
                # The sign keeps every weight away from 0 (no gate stays closed), and 0.5 gives the weights a mean other than 0
                parameter.copy_((2 * noise + noise.sign() + 0.5) / fan**0.5)


def _inputs(network: FlatNetwork, draw: torch.Generator) -> Tensor:
    """``[POOL, *shape]``: asymmetric inputs within the range, but for one that is a thousand times as large."""
    (low, high), shape = network.value_range, (POOL, *network.shape)
    if network.tokens:
        x = torch.randint(round(low), round(high) + 1, shape, generator=draw).float()
        x[3], x[LARGEST] = low, high
        return x
    share, middle, span = torch.rand(shape, generator=draw), (low + high) / 2, high - low
    share[2] = share[2] ** 8  # near the low end but for a few
    share[3] = 1 - share[3] / 100
    share[4] = share[4] / 100
    x = low + span * share
    x[LARGEST] = middle + 1000 * span * (share[LARGEST] - 0.3)
    return x
