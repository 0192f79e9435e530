"""Whether honest clients are heard when nobody is malicious."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import ToyRound, answer, draw_honest, is_close

#: Quiet rounds, and the share of clients without influence above which a reader should know it
ROUNDS, MOST = 3, 0.3


def check_influence(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """The share of honest updates that could be any others near them without a change of the answer, in quiet rounds."""
    n, d = case.sizes.n, max(case.sizes.dims)
    without = 0
    for seed in range(ROUNDS):
        one = ToyRound(draw_honest(n, d, 50 + seed), case.f)
        one = replace(one, facts={"root": one.rows.mean(0)})
        before, others = answer(case.pipeline, one), draw_honest(n, d, 90 + seed)
        for row in range(n):
            rows = one.rows.clone()
            rows[row] += 0.02 * (others[row] - rows[row])  # so little that it stays where it is among the others
            # Weights of zero still leave rounding
            without += is_close(answer(case.pipeline, replace(one, rows=rows)), before, one.rows, 1e-6)
    share = without / (ROUNDS * n)
    if share > MOST:
        yield AcceptanceFinding(
            "drops_clients", "flagged",
            f"With honest updates alone, {100 * share:.0f} % of the clients have no influence on the answer.",
            f"{ROUNDS} rounds of n = {n}, f = {case.f}, d = {d}", number=share,
        )  # fmt: skip
