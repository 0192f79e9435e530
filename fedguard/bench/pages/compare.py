"""Two runs, seed by seed: what all cells share, what changed, and the difference of each cell."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Block,
    CheckItem,
    Checks,
    Chip,
    Choice,
    Diff,
    Heading,
    More,
    Prose,
    TableBlock,
    Verdict,
    choose,
)  # fmt: skip
from fedguard.bench.pages.checks import run_again
from fedguard.bench.pages.compare_chart import chart, format_signed, settings_of, table
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.trained import describe_training
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.compare import compare
from fedguard.bench.results.comparison import LEVEL, Comparison, Difference, OverallDifference
from fedguard.bench.results.partners import UNREADABLE, Partner, partners
from fedguard.bench.results.places import label
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import ENOUGH, p_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def blocks(run: Run, address: Address, load: Callable[[str], Run] | None = None) -> Iterator[Block]:
    """The run against the one of the address under ``other``, or against the best partner of its store.

    Args:
        load: opens a run of the store by its name.

    Raises:
        StoreError: the other run cannot be read.
    """
    found = partners(run)
    names = [one.name for one in found if one.why != UNREADABLE]
    best = next((one.name for one in found if one.rank is not None), "")
    # A run that cannot be read is no choice; whoever names it is told why, and sees no other one in its place
    damaged = [one.name for one in found if one.why == UNREADABLE]
    other = choose(address, "other", [*names, *damaged], best)
    if not other:
        yield Verdict(
            "No run to compare with",
            ["Run the suite again under another name, with what you want to compare changed:"],
            describe_training(run),
            actions=[Action("", run_again(run, "--name", "other", "--set", "KEY=VALUE"))],
        )
        yield from _others(found, "")
        if names:
            yield Choice("other", "Compare with", ["", *names], "")
        return
    before = load(other) if load else Run.open(other, run.folder.path.parent)
    metrics = [name for name in run.figures if name in before.figures] or [run.score]
    metric = choose(address, "metric", metrics, run.score if run.score in metrics else metrics[0])
    compared = compare(before, run, metric)
    query = {"run": other, "other": run.name}
    swap = Action("Swap A and B", shlex.join(["fedguard", "compare", run.name, other]), "compare", query)
    verdict, *rest = comparison(compared, describe_training(run), address, [swap])
    yield verdict
    yield Choice("other", "Compare with", names, other)
    if len(metrics) > 1:
        yield Choice("metric", "Metric", metrics, metric)
    yield from rest
    yield from _others([one for one in found if one.name != other], other)


def comparison(
    found: Comparison, trained: str = "", address: Address | None = None, actions: Sequence[Action] = ()
) -> Iterator[Block]:
    """The comparison of two runs: the broad test, what changed, then cell by cell."""
    pairs = f"{len(found.differences)} of {len(found.differences) + len(found.apart)} positions compared"
    chips = [Chip(pairs, "warn" if found.apart else "good")]
    about = " · ".join(part for part in (trained, f"A: {found.a}, B: {found.b}") if part)
    yield Verdict(_headline(found), list(_lead(found)), about, chips, actions)
    yield from _what_changed(found)
    for metric in found.figures:
        yield from _of_metric(found, metric, address or {})
    if found.apart:
        lines = reason_lines(((one.swept, one.why) for one in found.apart), "positions")
        yield Prose(list(lines), f"Not compared, and why ({len(found.apart)})")


def in_terminal(found: Comparison, trained: str = "") -> RenderableType:
    """The comparison for a terminal."""
    from fedguard.bench.pages.terminal import render_terminal

    return render_terminal(comparison(found, trained), unfold=True)


def _headline(found: Comparison) -> str:
    if not found.differences:
        return "Nothing could be compared."
    if not found.broad:
        return f"{found.b} and {found.a} have no seed in common: nothing is paired, and nothing is tested."
    first = found.broad[0]
    alike = all(one.direction == "identical" for one in found.differences if one.figure == first.figure)
    if first.direction == "identical":
        same = f"identical to the last bit in {FIGURES[first.figure].title}" if alike else "the same"
        return f"{found.b} and {found.a} are {same}, {_over(first)}."
    size, between = _size(first), f"{found.b} minus {found.a} is"
    if first.p_value is None:
        return f"One common seed, no test: {between} {size}."
    undecided = f"No difference found: {between} {size}, {p_text(first.p_value)}."
    return undecided if first.direction == "undecided" else f"{found.b} is {first.side} than {found.a}: {size}."


def _size(one: OverallDifference) -> str:
    """``+14.0 points of final accuracy on average over 42 cells [+13.3, +14.6]``."""
    known, mean, half = FIGURES[one.figure], one.paired.mean, one.half_width
    ends = (
        f" [{format_signed(known, mean - half)}, {format_signed(known, mean + half)}]"
        if half and len(one.seeds) >= ENOUGH
        else ""
    )
    unit = f"{known.unit_of_differences} of {known.title}" if known.unit_of_differences else f"in {known.title}"
    return f"{format_signed(known, mean)} {unit} {_over(one)}{ends}"


def _over(one: OverallDifference) -> str:
    return f"on average over {one.cells} cells" if one.cells > 1 else "in the one cell"


def _lead(found: Comparison) -> Iterator[str]:
    for number, one in enumerate(found.broad):
        if one.p_value is not None and one.direction != "identical":
            metrics = f", Holm over {len(found.broad)} metrics" if len(found.broad) > 1 else ""
            seeds = f"paired on {len(one.seeds)} seeds{metrics}: {p_text(one.p_value)}"
            which = f"{found.b} minus {found.a}: {_size(one)}, " if number else ""
            yield f"{which}{'o' if which else 'O'}ne test over all cells, {seeds}."
        cells = [cell for cell in found.differences if cell.figure == one.figure]
        tested = [cell for cell in cells if cell.p_adjusted is not None and cell.direction != "identical"]
        if tested:
            yield _count(tested, sum(cell.p_adjusted is not None for cell in found.differences))
        if len(cells) > 1 and cells[0].paired and cells[0].direction != "identical":
            known = FIGURES[one.figure]
            size = f"{format_signed(known, cells[0].paired.mean)} {known.unit_of_differences}".strip()
            yield f"The largest difference is {size} ({label(cells[0].swept)}{_unseparated(cells[0])})."


def _unseparated(one: Difference) -> str:
    return "" if one.direction != "undecided" or one.p_adjusted is None else "; not separated after Holm"


def _count(tested: Sequence[Difference], comparisons: int) -> str:
    """How many cells differ by themselves; both directions are said."""
    numbers = {side: sum(one.direction == side for one in tested) for side in ("worse", "better")}
    alone = sum(one.suggestive for one in tested)
    open_ = sum(one.direction == "undecided" for one in tested) - alone
    said = [f"{count or 'none'} {side}" for side, count in numbers.items()]
    said += [f"{alone} more with p < {f'{LEVEL:g}'.removeprefix('0')} alone"] if alone else []
    said += [f"{open_} not separated"] if open_ else []
    return f"By cell, after Holm over {comparisons}: {', '.join(said)}."


def _what_changed(found: Comparison) -> Iterator[Block]:
    same = [f"{one.key} {one.a}" for one in found.environment if one.a == one.b]
    other = [one for one in (*found.settings, *found.environment) if one.a != one.b]
    if other:
        rows = [
            (f"{one.key} (at {one.positions} positions)" if one.positions else one.key, one.a, one.b) for one in other
        ]
        yield Diff(rows, "What changed, from A to B")
    nothing = "Nothing differs in their configurations. " if not found.settings and found.differences else ""
    alike = f"The same in both: {'; '.join(same)}." if same else ""
    if nothing or alike:
        yield Prose([f"{nothing}{alike}".strip()], "" if other else "What changed, from A to B")
    grave = [one for one in found.warnings if one.startswith(("the data", "the version of results"))]
    if grave:
        items = [
            CheckItem("whole comparison", "bad", "Not comparable as it is.", f"{one[0].upper()}{one[1:]}.")
            for one in grave
        ]
        yield Checks(items, "Before you quote this")


def _of_metric(found: Comparison, metric: str, address: Address) -> Iterator[Block]:
    of_it = [one for one in found.differences if one.figure == metric]
    paired = [one for one in of_it if one.paired]
    if not paired:
        if of_it:
            yield table(of_it, found)
        return
    settings = settings_of(paired)
    chosen = choose(address, "setting", settings, settings[0])
    if len(settings) > 1:
        yield Choice("setting", "Setting of the chart", settings, chosen)
    yield chart(of_it, chosen, found)


def _others(found: Sequence[Partner], chosen: str) -> Iterator[Block]:
    if not found:
        return
    good = sum(one.rank is not None for one in found)
    rows = [["comparable" if one.rank is not None else "not comparable", one.name, one.why] for one in found]
    columns = [Heading("state"), Heading("run"), Heading("why")]
    which = "Other partners" if chosen else "The other runs of this store"
    yield More(f"{which}: {good} comparable, {len(found) - good} not, and why", [TableBlock(columns, rows, which)])


COMPARE = Page("compare", "Compare", blocks)
