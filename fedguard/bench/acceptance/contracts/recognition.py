"""It is no better at the sizes and seeds of the evaluation than at those beside them, which no rule can expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import LIES, ToyRound, accepts, answer, draw_attacked
from fedguard.bench.acceptance.standard import Size

#: Rounds for each kind of lie and size
ROUNDS = 12
#: Seeds from here on belong to no training of a standard
UNKNOWN = 900_000_000


def check_recognition(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """The error under malicious updates at a size of the standard, and with its seeds, beside the error at a disguise."""
    for size in case.sizes.tested:
        if not all(accepts(case.pipeline, one.n, case.f) for one in (size, size.disguised)):
            continue
        for kind in LIES:
            known = _errors(case, size, kind, case.report)
            others = {
                f"n = {size.disguised.n}, d = {size.disguised.d}": _errors(case, size.disguised, kind, case.report),
                "other seeds": _errors(case, size, kind, ()),
            }
            for disguise, errors in others.items():
                ratio = float(errors.median() / known.median().clamp(min=1e-9))
                # All rounds of one kind beyond all of the other: a chance of 1 in 2.7 million for rules that do not look
                if ratio > case.sizes.tested_ratio and bool(errors.min() > known.max()):
                    yield AcceptanceFinding(
                        "knows_the_test", "failed",
                        f"It is {ratio:.3g} times nearer to the honest mean in the evaluation than beside it.",
                        f"n = {size.n}, d = {size.d} and the report seeds against {disguise}, lies: {kind}",
                        "Do not let n, d, the sizes of layers or seeds decide how the updates are aggregated.", ratio,
                    )  # fmt: skip
                    return


def _errors(case: ContractCase, size: Size, kind: str, seeds: Sequence[int]) -> torch.Tensor:
    """float64 ``[ROUNDS]``: the distance of the answer from the honest mean, in honest spreads.

    Args:
        seeds: of the rule's own draws, in turn; if there are none, seeds of no training.
    """
    found = list[float]()
    for number in range(ROUNDS):
        rows = draw_attacked(size.n, case.f, size.d, number, kind)
        center = draw_attacked(size.n, 0, size.d, number, "zero").mean(0)
        seed = seeds[number % len(seeds)] if seeds else UNKNOWN + number
        away = answer(case.pipeline, ToyRound(rows, case.f, seed, {"root": center})) - center
        found.append(float(away.norm() / size.d**0.5))
    return torch.tensor(found, dtype=torch.float64)
