"""Runs a defense pipeline on the updates of one round.

Weight rules and mixings see the Gram matrix alone, so a pipeline of any length costs one Gram matrix and one weighted
sum: two passes over the updates. Coordinate rules get blocks of columns, mixed on the way if mixings stand before them.
No intermediate ``[n, d]`` matrix is ever made, and the input is left as it was.

Robustness (Allouah et al., AISTATS 2023): a rule R is (f, kappa)-robust if for all x_1 ... x_n and every S with
``|S| = n - f``: ``|R(x) - mean_S|^2 <= kappa * mean_{i in S} |x_i - mean_S|^2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import (
    CoordinateRule,
    Defense,
    Gram,
    Mixing,
    Pipeline,
    RuleContext,
    State,
    WeightRule,
    first_met,
    needs_in_words,
)
from fedguard.errors import ContractError, NotAllowed
from fedguard.kernels import column_blocks, gram_matrix, weighted_sum


@dataclass(frozen=True)
class Aggregate:
    """What came out of a pipeline.

    Attributes:
        vector: float32 ``[d]``.
        weights: float64 ``[n]``, the share of each update in the vector; None for coordinate rules.
        states: what each stage carries to the next round.
    """

    vector: Tensor
    weights: Tensor | None
    states: tuple[State, ...]


def aggregate(pipeline: Pipeline, updates: Tensor, context: RuleContext, states: Sequence[State] = ()) -> Aggregate:
    """Run the server's part of ``pipeline`` on ``updates`` (float32 ``[n, d]``, finite).

    Args:
        context: what the server sees; each stage gets its own state and its own random stream.
        states: the `Aggregate.states` of the round before; empty in the first.

    Raises:
        PreconditionError: a stage cannot run on this n and f.
        NotAllowed: a stage needs to see more than the context grants.
        ContractError: a stage returned weights or a vector of the wrong shape, or values that are not finite.
    """
    pipeline.check(len(updates), context.f)
    stages = (*pipeline.mixings, pipeline.rule)
    contexts = [_context_of(stage, i, context, states) for i, stage in enumerate(stages)]
    rule, rule_context = pipeline.rule, contexts[-1]
    anchors = rule.anchors(rule_context, updates.shape[1]) if isinstance(rule, WeightRule) else {}
    gram = Gram(lambda: gram_matrix(updates, list(anchors.values())), len(updates), tuple(anchors))

    mixed: Tensor | None = None
    for mixing, mixing_context in zip(pipeline.mixings, contexts, strict=False):
        matrix = _checked(mixing, mixing.matrix(gram, mixing_context), (mixing.rows_out(gram.n), gram.n))
        mixed = matrix if mixed is None else matrix @ mixed
        gram = gram.mix(matrix)

    weights: Tensor | None = None
    if isinstance(rule, CoordinateRule):
        vector = _by_coordinate(rule, updates, mixed, rule_context)
    else:
        weights, vector = _by_weight(rule, gram, updates, mixed, anchors, rule_context)
    _checked(rule, vector, (updates.shape[1],))
    return Aggregate(vector, weights, tuple(s.remember(c, vector) for s, c in zip(stages, contexts, strict=True)))


def _context_of(stage: Defense, number: int, context: RuleContext, states: Sequence[State]) -> RuleContext:
    """The part of ``context`` that the stage declared to need, with its own state and random stream."""
    sees = first_met(stage.needs, context.granted)
    if sees is None:
        raise NotAllowed(
            f"{stage.name} needs {needs_in_words(stage.needs)}; the server sees {context.granted.words()}."
        )
    state = states[number] if states else {}
    return context.narrowed(stage.name, sees, state=state, rng=context.rng.child(number, stage.name))


def _by_weight(
    rule: WeightRule,
    gram: Gram,
    updates: Tensor,
    mixed: Tensor | None,
    anchors: Mapping[str, Tensor],
    context: RuleContext,
) -> tuple[Tensor, Tensor]:
    affine = gram.affine(_checked(rule, rule.weights(gram, context), None))
    on_rows = affine[: gram.n]
    on_updates = on_rows if mixed is None else on_rows @ mixed
    vector = weighted_sum(updates, on_updates)
    for weight, anchor in zip(affine[gram.n : -1].tolist(), anchors.values(), strict=True):
        vector += weight * anchor
    return on_updates, vector


def _by_coordinate(rule: CoordinateRule, updates: Tensor, mixed: Tensor | None, context: RuleContext) -> Tensor:
    n, d = updates.shape
    mix = None if mixed is None else mixed.to(updates.dtype).to(updates.device).T
    rows = n if mix is None else mix.shape[1]
    vector = torch.empty(d, dtype=updates.dtype, device=updates.device)
    scratch = torch.empty(0, dtype=updates.dtype, device=updates.device)
    for block in column_blocks(rows, d):
        columns = scratch.resize_(block.stop - block.start, rows)
        if mix is None:
            columns.copy_(updates[:, block].T)
        else:
            torch.mm(updates[:, block].T, mix, out=columns)
        vector[block] = rule.reduce(columns.T, context)
    return vector


def _checked(stage: Mixing | WeightRule | CoordinateRule, result: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    if shape is not None and tuple(result.shape) != shape:
        raise ContractError(f"{stage.name} broke its contract: expected shape {list(shape)}, got {list(result.shape)}.")
    if not bool(result.isfinite().all()):
        raise ContractError(
            f"{stage.name} broke its contract: its result holds NaN or infinity although all updates are finite."
        )
    return result
