"""The output of `fedguard lint`: every red flag of a run, what could not be judged, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedguard.bench.flags.columns import describe_missing_fact
from fedguard.bench.flags.foreign import read_results
from fedguard.bench.flags.results import Case, Results, results_of
from fedguard.bench.flags.run_flags import NOT_YET, RUN_FLAGS, RaisedFlag, RunFlag, UnjudgedFlag
from fedguard.bench.results.run import Run
from fedguard.bench.terminal.printed import Printed
from fedguard.metrics.flags import FLAGS, Flag, MissingFact


@dataclass(frozen=True)
class Finding:
    """A flag raised on a cell; ``seed`` is None if the flag is judged over all seeds together."""

    number: int
    flag: str
    cell: str
    seed: int | None
    said: str


@dataclass(frozen=True)
class UnjudgedSummary:
    """A flag that could not be judged on ``cases`` of ``of`` trials, cells or settings, and why."""

    number: int
    flag: str
    why: str
    cases: int
    of: int


@dataclass(frozen=True)
class Lint(Printed):
    """The red flags of some results.

    Attributes:
        name: name of the run, or of the file.
        findings: in the order of the evaluation protocol.
        not_judged: flags that could not be judged in all cases or in some; the latter may also be raised or clear.
        clear: the flags that were judged and raised nowhere.
        trials: number of trials.
        notes: how a table was read.
    """

    name: str
    findings: tuple[Finding, ...]
    not_judged: tuple[UnjudgedSummary, ...]
    clear: tuple[str, ...]
    trials: int
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "name": self.name,
            "trials": self.trials,
            "notes": list(self.notes),
            "flags": [asdict(finding) for finding in self.findings],
            "not_judged": [asdict(one) for one in self.not_judged],
            "clear": list(self.clear),
            "not_yet": [{"number": number, "what": what, "why": why} for number, what, why in NOT_YET],
        }

    @property
    def open(self) -> list[UnjudgedSummary]:
        """The flags that were judged in no case: neither raised nor clear."""
        judged = {*self.clear, *(finding.flag for finding in self.findings)}
        return [one for one in self.not_judged if one.flag not in judged]

    def gaps(self, flag: str) -> str:
        """``not judged in 2 of 12 cases: REASON`` for a flag that was judged in other cases; "" if it was judged in all."""
        parts = [
            f"not judged in {one.cases} of {one.of} cases: {one.why}" for one in self.not_judged if one.flag == flag
        ]
        return "; ".join(parts)

    def __rich__(self) -> RenderableType:
        return Group(*_render_findings(self))

    def flags(self) -> dict[tuple[int, str], list[Finding]]:
        """The findings of each flag, by number and name."""
        grouped: dict[tuple[int, str], list[Finding]] = {}
        for finding in self.findings:
            grouped.setdefault((finding.number, finding.flag), []).append(finding)
        return grouped


def results_named(what: str, store: Path, open_run: Callable[[str, Path], Run] = Run.open) -> Results:
    """A run by its name in the store or by its path, or a table of results by its file.

    Args:
        open_run: opens a run, and may report files that cannot be read.

    Raises:
        StoreError: there is no such run.
        ConfigError: the file cannot be read as a table of results.
    """
    # A run may be called fedavg.json: what is in the store goes first
    if Path(what).suffix.lower() in (".json", ".csv") and not (store / what / "manifest.json").is_file():
        return read_results(Path(what))
    return results_of(open_run(what, store))


def lint(results: Results) -> Lint:
    """Judge every flag, on every trial and on the whole run."""
    findings: list[Finding] = []
    not_judged: list[UnjudgedSummary] = []
    clear: list[str] = []
    rows: Sequence[Flag | RunFlag] = sorted((*FLAGS, *RUN_FLAGS), key=lambda row: row.number)
    for row in rows:
        judged = _of_records(row, results) if isinstance(row, Flag) else _of_run(row, results)
        outcomes = list(judged)
        raised = [one for one in outcomes if isinstance(one, Finding)]
        why = Counter(one.why for one in outcomes if isinstance(one, UnjudgedFlag))
        findings += raised
        not_judged += [UnjudgedSummary(row.number, row.name, reason, n, len(outcomes)) for reason, n in why.items()]
        if not raised and sum(why.values()) < len(
            outcomes
        ):  # judged at least once, or silence would pass for a clean bill
            clear.append(row.name)
    return Lint(results.name, tuple(findings), tuple(not_judged), tuple(clear), len(results.trials), results.notes)


def lint_run(run: Run) -> Lint:
    """Judge every flag of a run."""
    return lint(results_of(run))


def flag_lines(found: Lint) -> Iterator[Text]:
    """Each flag with its count and one example."""
    for (_, flag), cases in found.flags().items():
        one = cases[0]
        seeds = "" if one.seed is None else f", seed {one.seed}"
        count = f"{len(cases)} of {found.trials} trials" if one.seed is not None else _count(len(cases))
        yield Text.assemble((f"  {flag}", "bold"), f" ({count}): {one.cell}{seeds}: {one.said}")


def _places(found: Lint, number: int, flag: str) -> Iterator[Text]:
    """Every cell on which a flag is raised, each with its seeds; nothing if the example is the only one."""
    cells: dict[str, list[str]] = {}
    for one in found.flags()[number, flag]:
        cells.setdefault(one.cell, []).extend([] if one.seed is None else [str(one.seed)])
    if len(found.flags()[number, flag]) > 1:
        for cell, seeds in cells.items():
            yield Text(f"       {cell}" + (f": seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}" if seeds else ""))


def _of_records(row: Flag, results: Results) -> Iterator[Finding | UnjudgedFlag | None]:
    for case in results.trials:
        try:
            said = row.judge(case.result, case.card)
        except MissingFact as lacking:
            yield UnjudgedFlag(_want(lacking, case))
        else:
            yield None if said is None else Finding(row.number, row.name, case.cell, case.seed, said)


def _of_run(row: RunFlag, results: Results) -> Iterator[Finding | UnjudgedFlag | None]:
    for group in row.groups(results):
        try:
            judged = row.judge(results, group)
        except MissingFact as lacking:
            yield UnjudgedFlag(_want(lacking, group[0] if group else None))
        else:
            if isinstance(judged, RaisedFlag):
                yield Finding(row.number, row.name, judged.cell, None, judged.said)
            else:
                yield judged


def _want(lacking: MissingFact, case: Case | None) -> str:
    if case is None or case.pipeline is not None:  # FedGuard's own records, to which nobody can add a column
        return f"the records do not hold {lacking.path}"
    return f"it would take {describe_missing_fact(lacking.path)}"


def _render_findings(found: Lint) -> Iterator[Text]:
    yield Text(f"{found.name}: {found.trials} trials judged by the red flags of the evaluation protocol.", "bold")
    yield from (Text(note) for note in found.notes)
    if found.findings:
        yield Text("\nRaised, each with one example, what to do, and all cells:", "bold")
        for (number, flag), line in zip(found.flags(), flag_lines(found), strict=True):
            yield line
            yield from _places(found, number, flag)
            if gaps := found.gaps(flag):
                yield Text(f"       {gaps}.")
    if found.clear:
        yield Text("\nJudged and not raised:", "bold")
        yield Text(f"  {', '.join(flag for flag in found.clear if not found.gaps(flag))}")
        yield from (Text(f"  {flag}, {found.gaps(flag)}.") for flag in found.clear if found.gaps(flag))
    if found.open:
        yield Text("\nNot judged here:", "bold")
        for one in found.open:
            yield Text.assemble((f"  {one.flag}", "bold"), f": {one.why}.")
    yield Text("\nNot yet judged by this version:", "bold")
    yield from (Text.assemble((f"  {what}", "bold"), f": {why}.") for _, what, why in NOT_YET)


def _count(cells: int) -> str:
    return f"{cells} case" if cells == 1 else f"{cells} cases"
