"""Judging a run: comparability, screening on its own seeds, confirmation on fresh seeds, and absolute bounds."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedguard.bench.gate.baseline import Baseline
from fedguard.bench.gate.comparable import incompatible, list_relaxations, newcomers, other_data, unlike, warnings
from fedguard.bench.gate.pair import (
    GateCriterion,
    MetricPair,
    check_bounds,
    describe_drop,
    describe_reach,
    exact_mean,
    select_figures,
)
from fedguard.bench.gate.ruined_seed import annotate_worst_seed
from fedguard.bench.gate.snapshot import Snapshot, SnapshotCell, SnapshotPosition
from fedguard.bench.gate.stages import ConfirmationResult, confirm_drops, detectable, judge_across_cells, screen_drops
from fedguard.bench.gate.verdict import GateVerdict, Judgment, SuiteJudgment, Word
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import has_lower_bound, p_text

#: Runs cells (by their hashes) on seeds, with the code that is installed.
Confirm = Callable[[Sequence[str], Sequence[int]], Snapshot]
#: Audits the run's epsilons; each as `CellAudit.as_dict`.
Audits = Callable[[], Sequence[Mapping[str, Any]]]


def judge(
    run: Snapshot,
    baseline: Baseline,
    *,
    confirm: Confirm,
    audit: Audits = tuple,
    run_name: str = "",
    file: str = "",
    stale: Sequence[str] = (),
    strict: bool = False,
    now: float | None = None,
) -> GateVerdict:
    """Judge a run against a baseline.

    Args:
        confirm: called at most once, with the flagged cells and the confirmation seeds.
        audit: called if the run's suite asks for audits of its epsilons.
        run_name, file: names of run and baseline in the verdict.
        stale: why the run does not show what the installed code does (`snapshot.stale`).
        strict: whether inconclusive judgments count as not judged.
        now: seconds since 1970.
    """
    why = (*stale, *incompatible(run, baseline.snapshot))
    judgments: tuple[Judgment, ...] = ()
    broad: tuple[SuiteJudgment, ...] = ()
    if not why:
        comparison = BaselineComparison(run, baseline)
        judgments = comparison.judgments(confirm)
        broad = comparison.broad()
    return GateVerdict(
        run=run_name or run.suite,
        baseline=file,
        time=time.time() if now is None else now,
        commit=run.commit,
        baseline_commit=baseline.snapshot.commit,
        judgments=judgments,
        broad=broad,
        audits=tuple(audit()) if run.gate.audit and not why else (),
        incompatible=(*why, *list_relaxations(run, baseline.snapshot)),
        warnings=warnings(run, baseline.snapshot),
        strict=strict,
    )


class BaselineComparison:
    """A run beside its baseline, position by position."""

    def __init__(self, run: Snapshot, baseline: Baseline) -> None:
        self.run, self.base, self.gate = run, baseline.snapshot, run.gate
        there = {figure for part in (run, self.base) for cell in part.cells.values() for figure in cell.values}
        self.watched = select_figures(run.gate, there)
        self.seeds = tuple(seed for seed in run.seeds if seed in self.base.seeds)
        # A seed that took part in screening is low because it was flagged: on it every false alarm would be confirmed
        self.fresh_seeds = tuple(seed for seed in baseline.confirmation if seed not in run.seeds)
        self.lacking: list[Judgment] = []
        self.again: dict[tuple[str, str], MetricPair] = {}
        self.pairs = list(self._find_pairs())

    def judgments(self, confirm: Confirm) -> tuple[Judgment, ...]:
        """One judgment for each metric of each cell, in the order of the matrix; flagged cells run on fresh seeds."""
        found: dict[tuple[str, str], Judgment] = {}
        flagged = []
        for pair in self.pairs:
            broken, word = check_bounds(pair.watch, pair.after), screen_drops(pair.drops, pair.watch.margin)
            if broken:  # first, since a floor holds whatever the baseline was and whatever fresh seeds would say
                found[pair.key] = pair.judgment("regressed", broken)
            elif word is None and pair.watch.is_computed and len(set(pair.drops)) == 1:
                found[pair.key] = pair.judgment(
                    "regressed", f"{describe_drop(pair)}. It is computed, not measured: no seed needs to confirm it."
                )
            elif word == "improved" and pair.watch.is_computed:
                found[pair.key] = pair.judgment(
                    "missing",
                    f"{describe_drop(pair)}. It is computed from the same settings, so the accounting has changed: "
                    "look why, then "
                    "`fedguard baseline update`.",
                )
            elif word is None:
                flagged.append(pair)
            elif word == "inconclusive":
                found[pair.key] = pair.judgment(word, f"{describe_drop(pair)}: nothing is known of any seed.")
            else:
                found[pair.key] = pair.judgment(
                    word, f"{describe_drop(pair)}.", detectable=self._detectable(pair, pair.drops)
                )
        found |= self._confirm_pairs(flagged, confirm)  # all at once: Holm's correction is over everything flagged
        forbidden = self.gate.single_seed == "fail"
        whole = (annotate_worst_seed(found[pair.key], self._drops(pair), forbidden) for pair in self.pairs)
        return (*whole, *self.lacking, *self._new_beyond_bounds())

    def broad(self) -> tuple[SuiteJudgment, ...]:
        """One judgment for each measured metric."""
        drops: dict[str, list[Sequence[float]]] = {}
        for pair in self.pairs:
            # A computed metric has no sampling error; a mean per seed takes every cell on the same seeds
            if not pair.watch.is_computed and pair.seeds == self.seeds and not pair.censored:
                drops.setdefault(pair.watch.figure, []).append(pair.drops)
        margins = {watch.figure: watch.margin for watch in self.watched}
        found = []
        for figure, one in judge_across_cells(drops, margins).items():
            p = "" if one.p_value is None else f", {p_text(one.p_value)}"
            way, cells = "worse" if one.drop >= 0 else "better", len(drops[figure])
            over = f"on average over {cells} cells" if cells > 1 else "in one cell"
            why = f"{way} by {FIGURES[figure].difference(abs(one.drop))} {over}{p}."
            if one.verdict == "identical":
                why = "the same in every cell."
            found.append(
                SuiteJudgment(
                    figure=figure,
                    verdict=one.verdict,
                    why=why,
                    drop=one.drop,
                    p_value=one.p_value,
                    cells=len(drops[figure]),
                    seeds=len(self.seeds),
                )
            )
        return tuple(found)

    def _find_pairs(self) -> Iterator[MetricPair]:
        """The pairs that can be compared; all others go to ``lacking``. Positions that share a cell make one pair."""
        now = {one.place: one.cell for one in self.run.positions}
        compared = set()
        for position in self.base.positions:
            before, cell = self.base.cells[position.cell], now.get(position.place)
            after = None if cell is None else self.run.cells[cell]
            why = unlike(position.cell, before, cell, after)
            # What was refused in the baseline has nothing to lose; a cell at two positions would count twice for Holm
            if before.status == "refused" or (why is None and position.cell in compared):
                continue
            compared.add(position.cell)
            there = [watch for watch in self.watched if watch.figure in before.values]
            unknown = [watch for watch in self.watched if why is None and after and watch.figure in after.values]
            unknown = [watch for watch in unknown if watch not in there]
            for watch in (*(there or self.watched[: why is not None]), *unknown):
                pair = self._pair(position, watch, before, after, why)
                if pair is not None:
                    yield pair

    def _pair(
        self,
        position: SnapshotPosition,
        watch: GateCriterion,
        before: SnapshotCell,
        after: SnapshotCell | None,
        why: str | None,
    ) -> MetricPair | None:
        old, new = before.of(watch.figure), after.of(watch.figure) if after else {}
        seeds = tuple(seed for seed in self.seeds if seed in old)
        kept = tuple(seed for seed in seeds if seed in new)
        # On all seeds or none: those on which the metric is lacking now may be the ones that became worse
        if why is None and seeds and kept == seeds:
            return MetricPair(
                position, watch, seeds, tuple(old[one] for one in seeds), tuple(new[one] for one in seeds)
            )
        lacking = MetricPair(position, watch, (), (), ())
        if why is None and seeds and watch.is_computed:
            self.lacking.append(
                lacking.judgment(
                    "regressed", f"the baseline has {watch.figure}, the run has none any more: nothing is guaranteed."
                )
            )
            return None
        if why is None:
            why = "the run lacks this metric." if seeds else "the run and the baseline have no seed in common."
            why = why if old else "the baseline lacks this metric: `fedguard baseline update` takes it in."
        broken = check_bounds(watch, tuple(new.values()))  # bounds also hold for cells that cannot be compared
        word: Word = "regressed" if broken else "missing"
        why = f"{broken.removesuffix('.')}; {why}" if broken else why
        means = {name: exact_mean(list(part.values())) for name, part in (("before", old), ("after", new)) if part}
        self.lacking.append(lacking.judgment(word, why, **means))
        return None

    def _confirm_pairs(self, flagged: Sequence[MetricPair], confirm: Confirm) -> dict[tuple[str, str], Judgment]:
        """The second stage."""
        able = [pair for pair in flagged if len(self.fresh_seeds) > 1 and self._before(pair) is not None]
        cells = list(dict.fromkeys(pair.key[0] for pair in able))
        ran = confirm(cells, self.fresh_seeds).cells if cells else {}
        fresh: dict[tuple[str, str], tuple[MetricPair, MetricPair]] = {}
        found = {}
        for pair in flagged:
            again = self._again(pair, ran.get(pair.key[0]))
            if isinstance(again, str):
                found[pair.key] = pair.judgment("missing", f"{describe_drop(pair)}; {again}")
            else:
                fresh[pair.key] = pair, again
                self.again[pair.key] = again
        margins = {key: again.watch.margin for key, (_, again) in fresh.items()}
        second = confirm_drops({key: again.drops for key, (_, again) in fresh.items()}, margins, self.gate.alpha)
        return found | {key: self._second(*fresh[key], one) for key, one in second.items()}

    def _again(self, pair: MetricPair, ran: SnapshotCell | None) -> MetricPair | str:
        """The same pair on fresh seeds, or why there is none."""
        before = self._before(pair)
        if before is None or len(self.fresh_seeds) < 2:
            return "the baseline has no values on fresh seeds to confirm it: `fedguard baseline save` makes them."
        after = _on(self.fresh_seeds, ran.of(pair.watch.figure)) if ran else None
        if ran is None or after is None:
            return f"the fresh seeds did not run: {(ran.reason if ran else None) or 'they lack this metric.'}"
        if other_data(ran, self.base.cells[pair.key[0]]):
            return "the fresh seeds ran on other data than the baseline."
        found = MetricPair(pair.position, pair.watch, self.fresh_seeds, before, after)
        return found if found.drops else "no fresh seed reaches the target, before or now: nothing is known."

    def _second(self, first: MetricPair, fresh: MetricPair, one: ConfirmationResult) -> Judgment:
        figure, count = first.watch.figure, len(fresh.drops)
        ending = {
            "regressed": f"confirmed, p = {one.p_value:.2g}.",
            "inconclusive": f"p = {one.p_value:.2g} is not below {self.gate.alpha:g}: more fresh seeds would tell, by "
            "gate.confirm and a baseline with as many.",
            "pass": "not confirmed.",
        }[one.verdict]
        seeds = (
            f"on {count} fresh seeds" if not one.cut else f"in the middle {count - 2 * one.cut} of {count} fresh seeds"
        )
        again = f"by {FIGURES[figure].difference(one.drop)} {seeds}"
        if fresh.censored:
            again = f"with fresh seeds {describe_reach(fresh)}"
        why = f"{describe_drop(first)}; {again}: {ending}"
        return fresh.judgment(
            one.verdict,
            why,
            seeds=first.seeds,
            confirmed_on=fresh.seeds,
            p_value=one.p_value,
            drop=None if fresh.censored else one.drop,
            detectable=self._detectable(first, fresh.drops),
        )

    def _drops(self, pair: MetricPair) -> dict[int, float]:
        """The drops by seed, fresh seeds included."""
        both = (pair, self.again[pair.key]) if pair.key in self.again else (pair,)
        return {seed: drop for one in both for seed, drop in one.by_seed.items()}

    def _before(self, pair: MetricPair) -> tuple[float, ...] | None:
        return _on(self.fresh_seeds, self.base.cells[pair.key[0]].of(pair.watch.figure))

    def _detectable(self, pair: MetricPair, drops: Sequence[float]) -> float | None:
        """The detectable drop by the spread of the drops; if all are equal, by the metric's, as if pairs were independent."""
        values = list(self.base.cells[pair.key[0]].of(pair.watch.figure).values())
        if pair.censored or has_lower_bound(values) or not all(map(math.isfinite, drops)):
            return None
        spread = statistics.stdev(drops) if len(drops) > 1 else 0.0
        if spread == 0:
            if len(values) < 2:
                return None
            spread = 2**0.5 * statistics.stdev(values)  # a difference of two independent values
        return detectable(spread, pair.watch.margin, self.gate.alpha, len(pair.seeds), len(self.fresh_seeds))

    def _new_beyond_bounds(self) -> Iterator[Judgment]:
        """Judgments of positions that the baseline lacks and that break a floor or ceiling."""
        for position in newcomers(self.run, self.base):
            for watch in self.watched:
                values = tuple(self.run.cells[position.cell].of(watch.figure).values())
                broken = check_bounds(watch, values)
                if broken:
                    pair = MetricPair(position, watch, (), (), ())
                    yield pair.judgment(
                        "regressed", f"new in the run: {broken}", after=exact_mean(values), seeds=self.run.seeds
                    )


def _on(seeds: Sequence[int], values: Mapping[int, float]) -> tuple[float, ...] | None:
    """The values on all of these seeds, or None."""
    return tuple(values[seed] for seed in seeds) if all(seed in values for seed in seeds) else None
