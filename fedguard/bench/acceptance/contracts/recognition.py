"""It is no better at the sizes of the evaluation than at sizes beside them, which no rule can expect."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import LIES, ToyRound, accepts, answer, draw_attacked
from fedguard.bench.acceptance.standard import Size

#: Rounds for each kind of lie and size
ROUNDS = 12


def check_recognition(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """The error under malicious updates at a size of the standard, beside the one at its disguise."""
    for size in case.sizes.tested:
        if not all(accepts(case.pipeline, one.n, case.f) for one in (size, size.disguised)):
            continue
        for kind in LIES:
            known, other = _errors(case, size, kind), _errors(case, size.disguised, kind)
            ratio = float(other.median() / known.median().clamp(min=1e-9))
            # All rounds of one size beyond all rounds of the other: a chance of 1 in 2.7 million for rules that do not look
            if ratio > case.sizes.tested_ratio and bool(other.min() > known.max()):
                yield AcceptanceFinding(
                    "knows_the_test", "failed",
                    f"It is {ratio:.3g} times nearer to the honest mean at a size of the evaluation than beside it.",
                    f"n = {size.n}, d = {size.d} against n = {size.disguised.n}, d = {size.disguised.d}, lies: {kind}",
                    "Do not let n, d or the sizes of layers decide how the updates are aggregated.", ratio,
                )  # fmt: skip
                return


def _errors(case: ContractCase, size: Size, kind: str) -> torch.Tensor:
    """float64 ``[ROUNDS]``: the distance of the answer from the honest mean, in honest spreads."""
    found = list[float]()
    for seed in range(ROUNDS):
        rows = draw_attacked(size.n, case.f, size.d, seed, kind)
        center = draw_attacked(size.n, 0, size.d, seed, "zero").mean(0)
        away = answer(case.pipeline, ToyRound(rows, case.f, seed, {"root": center})) - center
        found.append(float(away.norm() / size.d**0.5))
    return torch.tensor(found, dtype=torch.float64)
