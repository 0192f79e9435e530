"""What speaks against quoting a result: red flags and trials without a result, each with its remedy."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedguard.bench.flags.lint import Finding, Lint
from fedguard.bench.flags.run_flags import WHOLE
from fedguard.bench.pages.blocks import Action, Block, CheckItem, Checks, Heading, More, Prose, TableBlock, Tone
from fedguard.bench.pages.trained import count_controls
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.run import Run

#: Flags that leave a run without an answer
_DECISIVE = ("weak_task", "clean_at_chance", "nothing_hurts")

_ORDER: tuple[Tone, ...] = ("bad", "warn", "plain", "good")


def checks(run: Run, group: Sequence[str]) -> Checks:
    """The red flags by kind, those about the leading group first, after trials that failed or are missing.

    Args:
        group: the defenses that lead.
    """
    found: Lint = run.checks
    raised = [_flag(found, flag, cases, group) for (_, flag), cases in found.flags().items()]
    items = [*_incomplete(run), *sorted(raised, key=lambda one: _ORDER.index(one.tone))]
    judged = len(found.clear) + len(raised)
    about = f"{len(raised)} of {judged} checks raised; those about the leading group come first."
    if not raised:
        about = f"None of {judged} checks is raised." if found.trials else "Nothing has run, so nothing can be judged."
    return Checks(items, "Before you quote this", about)


def all_checks(run: Run) -> Iterator[Block]:
    """Every case of every flag, and what could not be judged; then what was refused, failed or is missing, and why."""
    found: Lint = run.checks
    if found.findings or found.not_judged:
        columns = [Heading("flag"), Heading("cell"), Heading("seed", number=True), Heading("what it says")]
        rows = [[one.flag, one.cell, "" if one.seed is None else str(one.seed), one.said] for one in found.findings]
        open_ = [[one.flag, f"{one.cases} of {one.of}", one.why] for one in found.not_judged]
        heads = [Heading("flag"), Heading("cases"), Heading("why")]
        clear = f"Judged and not raised: {', '.join(found.clear) or 'none'}."
        flags = len(found.flags())
        cases = f"{len(rows)} case{'s' * (len(rows) != 1)} of {flags} flag{'s' * (flags != 1)}"
        title = f"All checks: {cases}, and what could not be judged"
        tables: list[Block] = [TableBlock(columns, rows, "Every case of a flag"), Prose([clear])]
        tables += [TableBlock(heads, open_, "Not judged")] if open_ else []
        yield More(title, tables, f"fedguard lint {shlex.quote(run.name)}")
    refused, missing = (
        [(run.place(row), str(row["reason"])) for row in run.with_status(status)] for status in ("refused", "missing")
    )
    failed = [(one.place, one.reason) for one in run.failures]
    said = [
        Prose(list(reason_lines(trials, "trials")), title)
        for title, trials in (("Refused, and why", refused), ("Failed, and why", failed), ("Not run", missing))
        if trials
    ]
    if said:
        count = len(refused) + len(failed) + len(missing)
        yield More(f"Without a result: {count} trials, and why", said, f"fedguard show {shlex.quote(run.name)} --all")


def run_again(run: Run, *options: str) -> str:
    """The command that runs the suite again, from its file if that lies below this folder."""
    source = run.manifest.get("source")
    path = Path(source) if source else run.folder.path / "config.resolved.yaml"
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name) if source else path
    return shlex.join(["fedguard", "run", str(shown), *options])


def _flag(found: Lint, flag: str, cases: Sequence[Finding], group: Sequence[str]) -> CheckItem:
    leading = [one for one in cases if _defense(one.cell) in group]
    one = (leading or cases)[0]
    whole = one.cell.startswith(WHOLE) or flag in _DECISIVE
    defenses = {_defense(case.cell) for case in cases}
    cells = len({case.cell for case in cases})
    scope = f"{cells} cell{'s' * (cells != 1)}"
    if whole or leading:
        scope = "whole run" if whole else "leading group"
    elif len(defenses) == 1 and defenses != {""}:
        scope = f"{defenses.pop()} only"
    tone: Tone = "bad" if flag in _DECISIVE else "warn" if whole or leading else "plain"
    where = "" if one.cell.startswith(WHOLE) else f"{one.cell}{'' if one.seed is None else f', seed {one.seed}'}: "
    count = (
        f"{len(cases)} of {found.trials} trials"
        if one.seed is not None
        else f"{len(cases)} case{'s' * (len(cases) > 1)}"
    )
    return CheckItem(scope, tone, f"{flag.replace('_', ' ').capitalize()}.", f"{where}{one.said}", flag, count)


def _defense(cell: str) -> str:
    """The defense in ``alie against median, clients.malicious = 4``."""
    return cell.partition(" against ")[2].partition(", ")[0]


def _incomplete(run: Run) -> Iterator[CheckItem]:
    rows = len(run.rows())
    missing = run.with_status("missing")
    if run.failures:
        again = Action("Run them again:", run_again(run, "--retry-failed"))
        failed = len(run.with_status("failed"))
        counts = [f"{failed} of {rows} trials"] if failed else []
        if controls := len(run.failures) - failed:
            counts.append(count_controls(controls))
        yield _trials("Trials failed.", ((one.place, one.reason) for one in run.failures), ", ".join(counts), again)
    if missing:
        again = Action("Go on:", run_again(run))
        where = ((run.place(row), str(row["reason"])) for row in missing)
        yield _trials("Trials are missing.", where, f"{len(missing)} of {rows} trials", again)
    if run.broken:
        text = f"{len(run.broken)} damaged records are left out; a new run sets them aside and replaces them."
        again = Action("Replace them:", run_again(run))
        yield CheckItem("whole run", "bad", "Records are damaged.", text, action=again)


def _trials(title: str, trials: Iterable[tuple[dict[str, str] | object, str]], count: str, again: Action) -> CheckItem:
    first, *others = reason_lines(trials, "trials")  # type: ignore[arg-type]
    more = f" And {len(others)} more reasons." if others else ""
    return CheckItem("whole run", "bad", title, f"{first}{more}", count=count, action=again)
