"""Whether the catalog has the rule under another name."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import LIES, ToyRound, accepts, answer, draw_attacked, draw_honest, is_close
from fedguard.contracts import AggregationRule, Defense, Mixing, Pipeline
from fedguard.errors import FedGuardError
from fedguard.registry import BUILT_IN

#: Size of the rounds on which rules are compared, odd and even
SIZES = ((11, 2, 5), (14, 3, 7))


def check_sameness(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """Rules of the catalog, each with its own parameters, that answer every random and adversarial round alike."""
    if case.draws:
        return
    rounds = list(_rounds(case))
    expected = [_answer_or_none(case.pipeline, one) for one in rounds]
    if all(one is None for one in expected):
        return
    for pipeline in _catalog(case):
        # A rule with a memory is no other rule without one, even if its first answers are the same
        if str(pipeline) == case.submission.text or _remembers(pipeline) != _remembers(case.pipeline):
            continue
        if all(_is_same(pipeline, one, found) for one, found in zip(rounds, expected, strict=True)):
            yield AcceptanceFinding(
                "same_as", "flagged", f"This is `{pipeline}`: both answer {len(rounds)} rounds alike.",
                remedy="Say so, or say where they differ.", number=float(len(rounds)),
            )  # fmt: skip
            return


def _rounds(case: ContractCase) -> Iterator[ToyRound]:
    """First a few rounds that tell most rules apart, then as many as the standard asks for."""
    n, f, d = SIZES[0]
    for seed in range(case.sizes.sameness.adversarial):
        n, f, d = SIZES[seed % 2]
        rows = draw_attacked(n, f, d, seed, LIES[seed // 2 % len(LIES)])
        yield ToyRound(rows, f, facts={"root": rows.median(0).values})
    for seed in range(case.sizes.sameness.random):
        n, f, d = SIZES[seed % 2]
        spread = 10.0 ** (seed % 5 - 2)
        yield ToyRound(draw_honest(n, d, 1000 + seed, spread), f)


def _catalog(case: ContractCase) -> Iterator[Pipeline]:
    """The built-in rules that need no parameter, and each mixing before the mean."""
    registry = case.submission.registry
    for name in registry.names("defense"):
        if registry.origin("defense", name) != BUILT_IN:
            continue
        kind = registry.get("defense", name)
        if issubclass(kind, AggregationRule | Mixing):
            try:
                yield registry.pipeline(name if issubclass(kind, AggregationRule) else f"{name} >> mean")
            except FedGuardError:  # it has parameters without defaults
                continue


def _remembers(pipeline: Pipeline) -> bool:
    return any(type(stage).remember is not Defense.remember for stage in pipeline.stages)


def _is_same(pipeline: Pipeline, one: ToyRound, expected: Tensor | None) -> bool:
    found = _answer_or_none(pipeline, one)
    if found is None or expected is None:
        return found is expected
    return is_close(found, expected, one.rows, 1e-5)


def _answer_or_none(pipeline: Pipeline, one: ToyRound) -> Tensor | None:
    if not accepts(pipeline, len(one.rows), one.f):
        return None
    try:
        found = answer(pipeline, one)
    except (FedGuardError, RuntimeError, ValueError):
        return None
    return found if bool(torch.isfinite(found).all()) else None
