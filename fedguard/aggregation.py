"""Runs a defense pipeline on the updates of one round, or on hypothetical rounds.

Weight rules and mixings see the Gram matrix alone, so a pipeline of any length costs one Gram matrix and one weighted
sum: two passes over the updates. Coordinate rules get blocks of columns, mixed on the way if there are mixings before them.
Except for matrix rules behind a mixing, no second ``[n, d]`` matrix is made, and the input is not changed.

Robustness (Allouah et al., AISTATS 2023): a rule R is (f, kappa)-robust if for all x_1 ... x_n and every S with
``|S| = n - f``: ``|R(x) - mean_S|^2 <= kappa * mean_{i in S} |x_i - mean_S|^2``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from fedguard.contracts import (
    CoordinateRule,
    Defense,
    Gram,
    MatrixRule,
    Pipeline,
    Probe,
    RuleContext,
    State,
    StatisticsFate,
    StatisticsLayout,
    WeightRule,
    first_met,
    needs_in_words,
)
from fedguard.contracts.return_checks import check_tensor_return, contract_error
from fedguard.errors import NotAllowed, PreconditionError
from fedguard.kernels import all_finite, gram_matrix
from fedguard.rows import Rows, VectorRows


@dataclass(frozen=True)
class Aggregate:
    """The result of a pipeline.

    Attributes:
        vector: float32 ``[d]``.
        weights: float64 ``[n]``, the share of each update in the vector; None for coordinate and matrix rules.
        states: the state of each stage for the next round.
    """

    vector: Tensor
    weights: Tensor | None
    states: tuple[State, ...]


def aggregate(
    pipeline: Pipeline, updates: Tensor | Rows, context: RuleContext, states: Sequence[State] = ()
) -> Aggregate:
    """Run the server's part of ``pipeline`` on ``updates`` (float32 ``[n, d]``, finite), or on rows in another form.

    Args:
        context: what the server sees; each stage gets its own state and its own random stream.
        states: the `Aggregate.states` of the previous round; empty in the first.

    Raises:
        PreconditionError: a stage cannot run on this n and f.
        NotAllowed: a stage needs to see more than the context grants.
        ContractError: a stage returned weights or a vector of the wrong shape, values that are not finite, or changed the
            updates.
    """
    rows = VectorRows(updates) if isinstance(updates, Tensor) else updates
    n, d = rows.updates.shape
    # torch counts in-place writes; a comparison at the end would need a copy of all updates
    version = rows.updates._version
    run = _Run(pipeline, context, states, d)
    rule, rule_context = pipeline.rule, run.contexts[-1]
    gram = Gram(
        lambda: rows.products(run.anchored),
        n,
        tuple(run.anchors),
        lambda: rows.whole(str(pipeline)),
        lambda name: rows.distances(run.anchors.get(name)),
        lambda: rows.projections(context.rng.child("ties").torch()),
    )
    grams, mixed = run.mix(gram)
    weights: Tensor | None = None
    if isinstance(rule, CoordinateRule):
        vector = rows.reduce(partial(_reduce_block, rule, rule_context), mixed)
    elif isinstance(rule, MatrixRule):
        # Only unmixed updates can be read in blocks: a mixing makes a matrix of its own
        by_blocks = mixed is None and rule.by_blocks
        vector = rule.combine(rows.updates if by_blocks else grams[-1].vectors, rule_context)
    else:
        affine = run.weigh(grams[-1])
        weights = affine[: grams[-1].n] if mixed is None else affine[: grams[-1].n] @ mixed
        vector = rows.combine(weights)
        # The last weight is the origin's, which adds nothing to the vector
        for weight, anchor in zip(affine[grams[-1].n : -1].tolist(), run.anchored, strict=True):
            vector += weight * anchor
    _check_result(rule, "combine" if isinstance(rule, MatrixRule) else "its result", vector, (d,))
    kept = zip(run.stages, run.contexts, grams, strict=True)
    result = Aggregate(vector, weights, tuple(stage.remember(seen, vector, given) for stage, seen, given in kept))
    if rows.updates._version != version:
        raise contract_error(rule, "it changed the updates, which it may only read")
    return result


def aggregate_statistics(
    fate: StatisticsFate, rows: Tensor, samples: Tensor, layout: StatisticsLayout, context: RuleContext
) -> tuple[Tensor | None, int]:
    """Combine the running statistics of some clients as ``fate`` says.

    Args:
        rows: float32 ``[n, s]``, finite; variances below 0 are taken for 0.
        samples: float64 ``[n]``: the number of examples that each client claims.
        context: what a rule on statistics sees.

    Returns:
        float32 ``[s]``, or None if there are too few rows for its rule; and the number of variances below 0.
    """
    below = (rows < 0) & layout.variances
    rows, count = rows.masked_fill(below, 0), int(below.sum())
    if fate.rule is None:
        return fate.combine(rows, samples, layout), count
    try:
        return aggregate(Pipeline((fate.rule,)), rows, context).vector, count
    except PreconditionError:
        return None, count


class KnownPipeline:
    """A copy of the server's pipeline that an adversary can query, as `fedguard.contracts.KnownRule` describes it.

    Args:
        context: makes the copy's context for a matrix ``[n, d]``; its first h rows are honest.
        states: the states of the server's stages, as far as public knowledge determines them.
    """

    #: Coordinates on which coordinate rules are probed.
    SAMPLE = 4096

    def __init__(
        self, pipeline: Pipeline, context: Callable[[int, Tensor], RuleContext], states: Sequence[State] = ()
    ) -> None:
        self._pipeline, self._context, self._states = pipeline, context, states

    def __call__(self, updates: Tensor) -> Tensor:
        return aggregate(self._pipeline, updates, self._context(len(updates), updates), self._states).vector

    def probes(self, honest: Tensor, directions: Tensor, f: int) -> _Probes:
        context = self._context(len(honest) + f, honest)
        return _Probes(self._pipeline, context, self._states, honest, directions)


class _Probes:
    """Hypothetical rounds in Gram space: see `fedguard.contracts.KnownRule.probes`."""

    def __init__(
        self, pipeline: Pipeline, context: RuleContext, states: Sequence[State], honest: Tensor, directions: Tensor
    ) -> None:
        self._run = _Run(pipeline, context, states, honest.shape[1])
        self._honest, self._directions = honest, directions
        h, m = len(honest), len(directions)
        self._mean = torch.zeros(h + m + len(self._run.anchored) + 1, dtype=torch.float64)
        # Without honest rows the origin stands for their mean
        self._mean[:h] = 1 / max(h, 1)
        self._mean[-1] = float(h == 0)
        self._rows = h + m
        self._sample: Tensor | None = None
        if not isinstance(pipeline.rule, WeightRule):
            dim, whole = honest.shape[1], isinstance(pipeline.rule, MatrixRule)
            rows = [honest, directions]
            if dim > KnownPipeline.SAMPLE and not whole:
                # Coordinate rules treat each coordinate alone, so a sample of them estimates the answer; matrix rules need all
                drawn = torch.randperm(dim, generator=context.rng.child("probes").torch())[: KnownPipeline.SAMPLE]
                rows = [honest.index_select(1, drawn), directions.index_select(1, drawn)]
            self._sample = torch.cat(rows)
            self._scale = (dim / self._sample.shape[1]) ** 0.5

    @cached_property
    def _base(self) -> Tensor:
        """The Gram matrix of the honest updates, the directions, the anchors and the origin; made on first use."""
        rows, others = (self._honest, self._directions) if len(self._honest) else (self._directions, self._honest)
        return gram_matrix(rows, [*others, *self._run.anchored])

    def __call__(self, coefficients: Tensor) -> Probe:
        h = len(self._honest)
        rows = torch.cat([torch.eye(h, self._rows, dtype=torch.float64), coefficients.double()])
        span = Gram(lambda: self._base, self._rows, tuple(self._run.anchors), self._material)
        grams, mixed = self._run.mix(span.mix(rows))
        rule, context = self._run.pipeline.rule, self._run.contexts[-1]
        if isinstance(rule, WeightRule):
            affine = self._run.weigh(grams[-1])
            on_rows = affine[: grams[-1].n] if mixed is None else affine[: grams[-1].n] @ mixed
            return self._in_gram_space(on_rows, affine[grams[-1].n : -1], rows)
        assert self._sample is not None
        sampled = rows.to(self._sample.dtype) @ self._sample
        if mixed is not None:
            sampled = mixed.to(sampled.dtype) @ sampled
        if isinstance(rule, CoordinateRule):
            # Stored column by column, as aggregate() hands blocks over
            answer = rule.reduce(sampled.T.contiguous().T, context)
        else:
            answer = rule.combine(sampled, context)
        mean = self._sample[:h].mean(0) if h else torch.zeros_like(answer)
        progress = float(answer.double() @ mean.double() / mean.double().square().sum().clamp(min=1e-300))
        return Probe(float((answer - mean).double().norm()) * self._scale, progress, None)

    def _material(self) -> Tensor:
        return torch.cat([self._honest, self._directions])

    def _in_gram_space(self, weights: Tensor, on_anchors: Tensor, rows: Tensor) -> Probe:
        """The probe from the weights on the round's rows and anchors, computed without vectors ``[d]``."""
        answer = torch.zeros_like(self._mean)
        answer[: self._rows] = weights @ rows
        answer[self._rows : -1] = on_anchors
        # Differences of affine combinations have weights that add up to 0, on which the reference point has no effect
        answer[-1] = 1 - answer.sum()
        origin = torch.zeros_like(answer)
        origin[-1] = 1
        away, mean, point = answer - self._mean, self._mean - origin, answer - origin
        squared, along = float(away @ self._base @ away), float(point @ self._base @ mean)
        norm = float(mean @ self._base @ mean)
        malicious = float(weights[len(self._honest) :].sum())
        return Probe(max(squared, 0.0) ** 0.5, along / max(norm, 1e-300), malicious)


class _Run:
    """The stages of a pipeline, each with the part of the context that it declares in ``needs``."""

    def __init__(self, pipeline: Pipeline, context: RuleContext, states: Sequence[State], dim: int) -> None:
        self.pipeline, self._f = pipeline, context.f
        self.stages = (*pipeline.mixings, pipeline.rule)
        self.contexts = [_context_of(stage, i, context, states) for i, stage in enumerate(self.stages)]
        rule = pipeline.rule
        self.anchors: Mapping[str, Tensor] = (
            rule.anchors(self.contexts[-1], dim) if isinstance(rule, WeightRule) else {}
        )
        self.anchored = list(self.anchors.values())

    def mix(self, gram: Gram) -> tuple[list[Gram], Tensor | None]:
        """The Gram matrix that each stage gets, and the product of all mixings (float64 ``[m, n]``; None without mixings)."""
        self.pipeline.check(gram.n, self._f)
        grams, mixed = [gram], None
        for mixing, context in zip(self.pipeline.mixings, self.contexts, strict=False):
            gram = grams[-1]
            # Checked before it is used: NaN in a mixing would be blamed on the rule behind it
            matrix = _check_result(mixing, "matrix", mixing.matrix(gram, context), (mixing.rows_out(gram.n), gram.n))
            if mixing.keeps_rows and not torch.equal(matrix, matrix.diagonal().diag()):
                raise contract_error(mixing, "matrix: it declares keeps_rows, and its matrix is not diagonal")
            mixed = matrix if mixed is None else matrix @ mixed
            grams.append(gram.mix(matrix))
        return grams, mixed

    def weigh(self, gram: Gram) -> Tensor:
        """The affine weights of a weight rule on its rows, its anchors and the origin."""
        rule = self.pipeline.rule
        assert isinstance(rule, WeightRule)
        weights = rule.weights(gram, self.contexts[-1])
        return gram.affine(_check_result(rule, "weights", weights, (gram.n,), (gram.rows - 1,)))


def _context_of(stage: Defense, number: int, context: RuleContext, states: Sequence[State]) -> RuleContext:
    """The part of ``context`` that the stage declares in ``needs``, with its own state and random stream."""
    sees = first_met(stage.needs, context.granted)
    if sees is None:
        raise NotAllowed(
            f"{stage.name} needs {needs_in_words(stage.needs)}; the server sees {context.granted.words()}."
        )
    state = states[number] if states else {}
    # A stream per stage and place: what one stage draws does not change what the others draw
    return context.restrict(stage.name, sees, state=state, rng=context.rng.child(number, stage.name))


def _reduce_block(rule: CoordinateRule, context: RuleContext, block: Tensor) -> Tensor:
    return check_tensor_return(rule, "reduce", rule.reduce(block, context), (block.shape[1],))


def _check_result(stage: Defense, method: str, result: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    if not all_finite(check_tensor_return(stage, method, result, *shapes)):
        raise contract_error(stage, "its result holds NaN or infinity although all updates are finite")
    return result
