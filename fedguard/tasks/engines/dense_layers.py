"""The layers of a chunk of multi-layer perceptrons, one set of weights for each client.

The first layer's *delta form*: a client starts from W, and every gradient of the first layer is a combination of the client's
inputs. Therefore W_t = W + A_t^T X with one row of A per example, and the layer's output on examples I is
``Z[I] + K[I, :] A_t`` with ``Z = X W^T + b`` and ``K = X X^T + 1``. K stays the same over the rounds; its 1 carries the
bias. No client's weights are ever held; ``A^T X`` is formed once, at the end. Momentum and FedProx's proximal term are linear
and act on A in the same way. A correction R moves the weights by ``-g R``, with the same g for all clients at a step, and the
output by ``-g (X R_W^T + R_b)``.

Signals have a factor ``-lr``, so a step adds ``S^T X``, where ``S [c, batch, o]`` is the signal and c the number of clients.
Clients that still take steps are the first of the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedguard.contracts import LocalPlan

#: Weights ``[o, i]`` and biases ``[o]`` of a layer; with a leading dimension of clients if each has its own.
Parameters = tuple[Tensor, Tensor]

#: Outputs up to which a product is faster with the outputs as the rows.
NARROW = 16


class DeltaLayer:
    """A first layer as W + A^T X.

    Args:
        starts: each client's W and b.
        xs: each client's inputs, ``[m, i]``.
        grams: each client's ``X X^T + 1``; empty if all take a single step.
        rows: int64 ``[c, steps, batch]``: the examples of each step.
        steps: how many each client takes.
        corrections: each client's R; empty if no client has one.
    """

    def __init__(
        self,
        starts: Sequence[Parameters],
        xs: Sequence[Tensor],
        grams: Sequence[Tensor],
        rows: Tensor,
        steps: Sequence[int],
        plan: LocalPlan,
        corrections: Sequence[Parameters],
    ) -> None:
        self._xs, self._rows, self._steps, self._plan, self._corrections = xs, rows, steps, plan, corrections
        largest = max(len(x) for x in xs)
        self._outputs = RowOrder([_outputs(x, *start) for x, start in zip(xs, starts, strict=True)], rows, largest)
        self._grams = RowOrder(grams, rows, largest) if grams else None
        width = len(starts[0][1])
        self._a = xs[0].new_zeros(len(xs), largest, width)
        # For few outputs the memory is laid out by output, as `NARROW` says; the shape stays the same
        if width <= NARROW:
            self._a = self._a.transpose(1, 2).contiguous().transpose(1, 2)
        self._velocity = torch.zeros_like(self._a) if plan.momentum else None
        self._corrected, self._g = None, [0.0]
        if corrections:
            self._corrected = RowOrder(
                [_outputs(x, *own) for x, own in zip(xs, corrections, strict=True)], rows, largest
            )
            self._g = _correction_factors(plan, rows.shape[1])

    def forward(self, step: int, now: int) -> Tensor:
        outputs = self._outputs.at(step, now)
        # A is 0 before the first step. The rows are copies for this step alone, so they are changed in place
        if self._grams is not None and step > 0:
            outputs.baddbmm_(self._grams.at(step, now), self._a[:now])
        if self._corrected is not None:
            outputs.sub_(self._corrected.at(step, now), alpha=self._g[step])
        return outputs

    def descend(self, step: int, signal: Tensor) -> None:
        now, width = len(signal), signal.shape[2]
        a = self._a[:now]
        moving = a if self._velocity is None else self._velocity[:now].mul_(self._plan.momentum)
        # A is the distance from the start; for the part -g R of that distance `_correction_factors` has the pull
        _pull(moving, a, self._plan)
        rows = self._rows[:now, step]
        # Padding repeats row 0, and rows have to be added up: an assignment by index would keep one of them
        if moving.is_contiguous():  # the faster way
            first = torch.arange(0, now * moving.shape[1], moving.shape[1], device=rows.device)
            moving.view(-1, width).index_add_(0, (rows + first[:, None]).flatten(), signal.view(-1, width))
        else:
            moving.scatter_add_(1, rows[..., None].expand(-1, -1, width), signal)
        if self._velocity is not None:
            a.add_(moving)

    def write(self, out: Tensor, rows: Sequence[int]) -> int:
        """Write the layer's update to these rows of ``out``, and return the number of columns written."""
        width, inputs = self._a.shape[2], self._xs[0].shape[1]
        size = width * inputs
        # The bias is the weight of an input that is always 1, as in K = X X^T + 1
        out[to_index_tensor(rows, out), size : size + width] = self._a.sum(1)
        for number, (row, x) in enumerate(zip(rows, self._xs, strict=True)):
            weight = out[row, :size].view(width, inputs)
            torch.mm(self._a[number, : len(x)].T, x, out=weight)
            if self._corrections:
                # A client that stopped before the others has the factor of its own last step
                factor = self._g[self._steps[number]]
                for moved, own in zip((weight, out[row, size : size + width]), self._corrections[number], strict=True):
                    moved.sub_(own, alpha=factor)
        return size + width


class InputLayer:
    """A first layer of which each client holds its own weights, for clients with more examples than inputs."""

    def __init__(self, weights: ClientWeights, xs: Sequence[Tensor], rows: Tensor) -> None:
        self._weights = weights
        self._inputs = RowOrder(xs, rows, max(len(x) for x in xs))
        self._given = xs[0]

    def forward(self, step: int, now: int) -> Tensor:
        self._given = self._inputs.at(step, now)
        return self._weights.forward(self._given)

    def descend(self, step: int, signal: Tensor) -> None:
        self._weights.descend(self._given, signal)

    def write(self, out: Tensor, rows: Sequence[int]) -> int:
        return self._weights.write(out, rows, 0)


class ClientWeights:
    """A layer of which each client holds its own copy: weights ``[c, o, i]`` and biases ``[c, 1, o]``.

    All clients start from one set of weights, or each from its own.

    A single step is sent as it is and never added to the weights (`LocalPlan.one_step`).
    """

    def __init__(self, start: Parameters, count: int, plan: LocalPlan, corrections: Sequence[Parameters]) -> None:
        weight, bias = start if start[0].dim() == 3 else (part[None] for part in start)
        self._start, self._plan = (weight, bias[:, None]), plan
        self._held = tuple(part.repeat(count // len(part), 1, 1) for part in self._start)
        self._velocity = tuple(torch.zeros_like(part) for part in self._held) if holds_velocity(plan) else None
        self._corrections: tuple[Tensor, ...] | None = None
        if corrections:
            weights, biases = zip(*corrections, strict=True)
            self._corrections = (torch.stack(weights), torch.stack(biases)[:, None])

    def forward(self, given: Tensor) -> Tensor:
        weight, bias = (held[: len(given)] for held in self._held)
        return torch.baddbmm(bias, given, weight.transpose(1, 2))

    def back(self, signal: Tensor) -> Tensor:
        return signal @ self._held[0][: len(signal)]

    def descend(self, given: Tensor, signal: Tensor) -> None:
        moving = self._moving(len(signal))
        moving[0].baddbmm_(signal.transpose(1, 2), given)
        moving[1].add_(signal.sum(1, keepdim=True))
        self._apply_velocity(moving)

    def descend_by(self, weight: Tensor, bias: Tensor) -> None:
        """Take a step by gradients times ``-lr``: ``[c, o, i]`` and ``[c, o]``."""
        moving = self._moving(len(weight))
        moving[0].add_(weight)
        moving[1].add_(bias[:, None])
        self._apply_velocity(moving)

    def of(self, now: int) -> Parameters:
        """The first clients' weights ``[now, o, i]`` and biases ``[now, o]``."""
        weight, bias = (held[:now] for held in self._held)
        return weight, bias[:, 0]

    def _moving(self, now: int) -> list[Tensor]:
        """What a step is added to: the weights, or their velocity; the proximal term and corrections are added here."""
        held = [part[:now] for part in self._held]
        moving = held
        if self._velocity is not None:
            moving = [part[:now].mul_(self._plan.momentum) for part in self._velocity]
        for number, part in enumerate(moving):
            # Before the loss moves the weights: the pull is taken at the weights at which the gradient was
            _pull(part, held[number], self._plan, self._start[number][:now])
            if self._corrections is not None:
                # Minus lr, as signals bring this factor for the loss
                part.sub_(self._corrections[number][:now], alpha=self._plan.lr)
        return moving

    def _apply_velocity(self, moving: list[Tensor]) -> None:
        if self._velocity is not None and not self._plan.one_step:
            for part, velocity in zip(self._held, moving, strict=True):
                part[: len(velocity)].add_(velocity)

    def write(self, out: Tensor, rows: Sequence[int], offset: int) -> int:
        """Write the layer's update to these rows of ``out`` from a column on, and return the next layer's column."""
        places = to_index_tensor(rows, out)
        for number, start in enumerate(self._start):
            moved = self._held[number] - start if self._step is None else self._step[number]
            size = start[0].numel()
            out[places, offset : offset + size] = moved.flatten(1)
            offset += size
        return offset

    @property
    def _step(self) -> tuple[Tensor, ...] | None:
        """The only step of weights and biases; None if there are more steps."""
        return self._velocity if self._plan.one_step else None


class RowOrder:
    """The rows of each client's table in the order in which its steps use them.

    Rows are copied for several steps at once, with one call for each client, which costs less than a call in each step.

    Args:
        tables: ``[m, w]`` for each client.
        rows: int64 ``[c, steps, batch]``, below m.
        room: about how many rows to hold for each client.
    """

    def __init__(self, tables: Sequence[Tensor], rows: Tensor, room: int) -> None:
        count, steps, self._batch = rows.shape
        self._tables, self._rows, self._filled = tables, rows, -1
        # A run takes about the memory of one table for each client, whatever the number of steps
        self._run = min(steps, -(-room // self._batch))
        widths = [table.shape[1] for table in tables]
        self._held = tables[0].new_empty(count, self._run * self._batch, max(widths))
        if min(widths) < max(widths):
            self._held.zero_()  # narrower tables are filled up with zeros

    def at(self, step: int, now: int) -> Tensor:
        """``[now, batch, w]`` for the first ``now`` clients, which the caller may change. Steps are asked for in order."""
        run, place = divmod(step, self._run)
        # Fewer and fewer clients are at work, so what the first step of a run needs is enough for all its steps
        if run != self._filled:
            self._fill(run * self._run, now)
            self._filled = run
        return self._held[:now, place * self._batch : (place + 1) * self._batch]

    def _fill(self, step: int, now: int) -> None:
        orders = self._rows[:now, step : step + self._run].flatten(1)
        rooms = self._held[:now, : orders.shape[1]].unbind()
        # Not strict: the tables of clients that have stopped come last, and are not copied
        for room, table, order in zip(rooms, self._tables, orders, strict=False):
            torch.index_select(
                table, 0, order, out=room if table.shape[1] == room.shape[1] else room[:, : table.shape[1]]
            )


def holds_velocity(plan: LocalPlan) -> bool:
    """Whether a velocity is held beside the weights: for momentum, or for a single step."""
    return plan.momentum > 0 or plan.one_step


def to_index_tensor(numbers: Sequence[int], beside: Tensor) -> Tensor:
    """int64: the numbers, on the device of another tensor."""
    return torch.tensor(numbers).to(beside.device)


def _outputs(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``X W^T + b``."""
    if len(bias) > NARROW:
        return torch.addmm(bias, x, weight.T)
    return torch.addmm(bias[:, None], weight, x.T).T.contiguous()


def _pull(moving: Tensor, value: Tensor, plan: LocalPlan, start: Tensor | None = None) -> None:
    """Add ``-lr mu (value - start)``."""
    if plan.prox:
        moving.sub_(value if start is None else value - start, alpha=plan.lr * plan.prox)


def _correction_factors(plan: LocalPlan, steps: int) -> list[float]:
    """g before each step and after the last: ``v <- m v + 1 - mu g``, ``g <- g + lr v``."""
    # R is added to each gradient, and FedProx pulls at what it has moved so far, -g R: gradients of R (1 - mu g)
    factors, velocity = [0.0], 0.0
    for _ in range(steps):
        velocity = plan.momentum * velocity + 1 - plan.prox * factors[-1]
        factors.append(factors[-1] + plan.lr * velocity)
    return factors
