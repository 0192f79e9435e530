"""The verdict of a gate: judgments for each metric of each cell and over the whole suite, and an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from fedguard.bench.records.reading import describe_error
from fedguard.bench.records.schema.types import MetricName, SweptValues, Time
from fedguard.bench.results.places import label
from fedguard.config.schema import watchable
from fedguard.retired import RETIRED_FIELDS

#: From best to worst. ``missing`` cannot be judged: no record, a failed or refused cell, or another configuration.
Word = Literal["improved", "identical", "pass", "inconclusive", "regressed", "missing"]
WORDS: tuple[Word, ...] = ("improved", "identical", "pass", "inconclusive", "regressed", "missing")

PASSED, REGRESSED, CANNOT_JUDGE = 0, 3, 4


@dataclass(frozen=True, kw_only=True)
class Judgment:
    """The judgment of one metric of one cell.

    Attributes:
        swept: position of the cell in the matrix: attack, defense, and each other swept key.
        cell: its identity.
        figure: the metric, as in `Run.rows`, or ``epsilon``.
        verdict: one of `WORDS`.
        why: one sentence, with values and units.
        before, after: means over the seeds that both runs have, in the units of `Run.rows` (shares in [0, 1]). After a second
            stage, means over its fresh seeds alone: the other seeds are biased, since they were flagged for being low.
        drop: how much worse the metric is on average, in the same unit; negative if it is better. Before, after and drop are
            None if a seed never reached a target.
        margin: the allowed drop.
        seeds: the seeds of the first stage; confirmed_on: the fresh seeds of the second stage, if it ran.
        p_value: p on the fresh seeds, adjusted by Holm; None without a second stage.
        detectable: the smallest drop that this comparison finds with a power of 80 %; None if unknown.
        worst_seed, worst_seed_drop: the seed with the largest drop, fresh seeds included, and its drop.
        lost_seed: a sentence on a ruined seed that does not prove a regression: ``one seed lost 60.0 points (seed 1), not
            confirmed on fresh ones``; "" without such a seed.
    """

    swept: SweptValues
    cell: str
    figure: MetricName
    verdict: Word
    why: str
    before: float | None = None
    after: float | None = None
    drop: float | None = None
    margin: float | None = None
    seeds: tuple[int, ...] = ()
    confirmed_on: tuple[int, ...] = ()
    p_value: float | None = None
    detectable: float | None = None
    worst_seed: int | None = None
    worst_seed_drop: float | None = None
    lost_seed: str = ""

    @property
    def label(self) -> str:
        return label(self.swept)


@dataclass(frozen=True, kw_only=True)
class SuiteJudgment:
    """The judgment of one metric over the whole suite, for small drops that many cells share.

    Attributes:
        drop: mean over seeds of the mean over cells; cells, seeds: the number of each.
        p_value: p of the one-sided paired t-test on the seeds' means, adjusted by Holm; None with one seed.
    """

    figure: MetricName
    verdict: Word
    why: str
    drop: float | None = None
    p_value: float | None = None
    cells: int = 0
    seeds: int = 0


@dataclass(frozen=True, kw_only=True)
class GateVerdict:
    """The verdict of a gate on a run.

    Attributes:
        run, baseline: name of the run, and file of the baseline.
        time: seconds since 1970.
        commit, baseline_commit: commits of the code, if known.
        judgments: one for each cell and metric.
        broad: one for each metric.
        audits: of the epsilons, as `CellAudit.as_dict`; empty if nothing adds noise or the suite asks for none.
        incompatible: why nothing can be compared, such as other data; or which requirements of the baseline's gate are relaxed.
        warnings: differences that need not matter, such as another version of torch.
        strict: whether inconclusive judgments count as not judged.
    """

    run: str
    baseline: str
    time: Time
    commit: str | None
    baseline_commit: str | None
    judgments: tuple[Judgment, ...]
    broad: tuple[SuiteJudgment, ...] = ()
    audits: tuple[Mapping[str, Any], ...] = ()
    incompatible: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    strict: bool = False

    @property
    def counts(self) -> dict[Word, int]:
        """Number of judgments of each kind."""
        counted = Counter(one.verdict for one in self.judgments)
        return {word: counted[word] for word in WORDS}

    @property
    def lost_seeds(self) -> tuple[Judgment, ...]:
        """The judgments with a ruined seed, whatever the verdict."""
        return tuple(one for one in self.judgments if one.lost_seed)

    @property
    def violated(self) -> tuple[Mapping[str, Any], ...]:
        """The audits that refute an epsilon."""
        return tuple(one for one in self.audits if one["verdict"] == "violated")

    @property
    def exit_code(self) -> int:
        """3 if anything got worse; else 4 if anything could not be judged; else 0."""
        found = {one.verdict for one in self.judgments} | {one.verdict for one in self.broad}
        if "regressed" in found or self.violated:
            return REGRESSED
        # A regression goes first: it is known, whatever else could not be judged. An empty comparison is no pass
        open_ = "inconclusive" in found or any(one["verdict"] == "not judged" for one in self.audits)
        if self.incompatible or "missing" in found or not self.judgments or (self.strict and open_):
            return CANNOT_JUDGE
        return PASSED

    @property
    def passed(self) -> bool:
        return self.exit_code == PASSED

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items() if count)
        said = {PASSED: "passed", REGRESSED: "REGRESSED", CANNOT_JUDGE: "CANNOT JUDGE"}[self.exit_code]
        broad = [one.figure for one in self.broad if one.verdict == "regressed"]
        first = [f"over the whole suite: {', '.join(broad)}"] if broad else []
        more = [f"{len(self.violated)} epsilons violated"] if self.violated else []
        cells = len({one.cell for one in self.lost_seeds})
        more += [f"in {cells} {'cell' if cells == 1 else 'cells'} a seed is ruined"] if cells else []
        unsure = sum(one["verdict"] not in ("violated", "consistent") for one in self.audits)
        more += [f"{unsure} epsilons not judged by their audits"] if unsure else []
        return f"{said}: {'; '.join([*first, counts or 'nothing to compare', *more])}"

    def as_dict(self) -> dict[str, Any]:
        """JSON; `from_dict` reads it back."""
        return {"schema": 2, "exit_code": self.exit_code, "headline": self.headline, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GateVerdict:
        """The verdict from the output of `as_dict`.

        Raises:
            ValueError: the data are no verdict, or from another version.
        """
        if not isinstance(data, Mapping):
            raise ValueError("not a verdict")
        if data.get("schema") not in (1, 2):
            raise ValueError("written by another version of FedGuard")
        data = {RETIRED_FIELDS.get(key, key): value for key, value in data.items()}
        try:
            found = _VERDICT.validate_python(data)
        except ValidationError as error:
            raise ValueError(f"not a verdict: {describe_error(error)}") from None
        figures = {one.figure for one in found.judgments} | {one.figure for one in found.broad}
        try:  # views look each of these up in FIGURES, and a stored verdict may come from anywhere
            for figure in sorted(figures):
                watchable(figure)
        except ValueError as error:
            raise ValueError(f"not a verdict: {error}") from None
        if not all(isinstance(one.get("verdict"), str) for one in found.audits):
            raise ValueError("not a verdict: expected a verdict of each audit")
        if not all({"attack", "defense"} <= one.swept.keys() for one in found.judgments):
            raise ValueError("not a verdict: expected an attack and a defense of each judgment")
        return found


_VERDICT: TypeAdapter[GateVerdict] = TypeAdapter(GateVerdict)
