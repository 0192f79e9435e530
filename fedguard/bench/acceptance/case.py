"""What each check of a contract gets: the rule, the sizes of the standard, and what is watched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedguard.bench.acceptance.rounds import ToyRound, accepts, answer, draw_attacked, draw_honest, least_rows
from fedguard.bench.acceptance.standard import ContractChecks
from fedguard.bench.acceptance.submission import Submission
from fedguard.bench.acceptance.watch import CodeSnapshot, Watch
from fedguard.bench.running.plugin_state import snapshot_modules
from fedguard.contracts import Pipeline


@dataclass
class ContractCase:
    """One submission under check.

    Attributes:
        before: the code of others before the submission was imported.
        report: the seeds of the trainings that are reported.
    """

    submission: Submission
    sizes: ContractChecks
    watch: Watch
    before: CodeSnapshot
    report: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # Before any call: a rule may keep something at the first one alone
        self.modules = snapshot_modules(self.submission.modules)
        self.attributes = [dict(vars(stage)) for stage in self.pipeline.stages]

    @property
    def pipeline(self) -> Pipeline:
        return self.submission.pipeline

    @cached_property
    def f(self) -> int:
        """The f of the standard, or the largest below it that the rule accepts on the standard's n."""
        return next((f for f in range(self.sizes.f, -1, -1) if accepts(self.pipeline, self.sizes.n, f)), 0)

    @cached_property
    def quiet_round(self) -> ToyRound:
        """A quiet round of the standard's size, honest updates alone, in seven dimensions."""
        return ToyRound(draw_honest(self.sizes.n, self.sizes.dims[1 % len(self.sizes.dims)], 1), self.f)

    @cached_property
    def malicious_round(self) -> ToyRound:
        """The same size with f updates far away."""
        return ToyRound(draw_attacked(self.sizes.n, self.f, self.quiet_round.rows.shape[1], 2, "far"), self.f)

    @cached_property
    def draws(self) -> bool:
        """Whether the answer depends on the rule's own random stream."""
        return any(
            not torch.equal(answer(self.pipeline, one), answer(self.pipeline, ToyRound(one.rows, one.f, seed)))
            for one in (self.quiet_round, self.malicious_round)
            for seed in range(1, 5)
        )

    def rounds(self) -> Iterator[ToyRound]:
        """Rounds that the rule accepts: from the fewest rows on, with and without malicious ones, in each dimension."""
        for f in sorted({0, 1, self.f}):
            least = least_rows(self.pipeline, f)
            for n in [] if least is None else sorted({least, least + 1, 2 * f + 1, self.sizes.n}):
                if n > f and accepts(self.pipeline, n, f):
                    yield from (ToyRound(draw_honest(n, d, n), f) for d in self.sizes.dims)

    def mean_and_error(self, one: ToyRound, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The mean answer over random streams and its standard error, float64 ``[d]`` each; 0 if the rule draws nothing."""
        if not self.draws:
            found = answer(self.pipeline, one)
            return found, torch.zeros_like(found)
        times = self.sizes.draws
        streams = range(seed, seed + times)
        found = torch.stack([answer(self.pipeline, replace(one, seed=s)) for s in streams])
        return found.mean(0), found.std(0) / times**0.5
