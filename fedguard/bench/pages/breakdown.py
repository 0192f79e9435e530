"""A metric over a swept key: curves where the key is a number, rows of dots where its values have names; where half is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedguard.bench.pages.blocks import Action, Address, Block, Chip, Choice, Verdict, choose
from fedguard.bench.pages.breakdown_chart import chart
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.trained import describe_training, references, states
from fedguard.bench.pages.weight import weight_tables
from fedguard.bench.results.breakdown import ACCURACIES, MALICIOUS, Breakdown, BreakdownCurve
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import ENOUGH

#: Target of a metric of the cost to reach one, where the address names none
_TARGET = 0.8


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The key of the address under ``over``, the metric under ``metric``, the setting under ``others``."""
    keys = list_keys(run)
    if not keys:
        empty = Action("A suite that sweeps one:", "fedguard run examples/breakdown_f.yaml")
        yield Verdict("This run sweeps no key", (), describe_training(run), (), [empty])
        yield from weight_tables(run)
        return
    key = choose(address, "over", keys, keys[0])
    metrics = _metrics(run, address)
    metric = choose(address, "metric", metrics, run.share if run.share in metrics else metrics[0])
    found = run.breakdown(key, metric)
    settings = list(dict.fromkeys(curve.setting for curve in found.curves))
    chosen = choose(address, "others", settings, settings[0])
    chips = [*states(run), *([Chip(f"{len(run.seeds)} seeds do not rank", "warn")] if len(run.seeds) < ENOUGH else [])]
    yield Verdict(_headline(found, chosen), list(_lead(found, chosen)), describe_training(run), chips)
    yield Choice("over", "Over", keys, key)
    yield Choice("metric", "Metric", metrics, metric)
    if len(settings) > 1:
        yield Choice("others", ", ".join(other for other in run.swept if other != key), settings, chosen)
    yield _chart(run, found, chosen)
    yield from weight_tables(run)


def draw_numbers(run: Run) -> Iterator[Block]:
    """The charts of a report: each swept key that is a number, in each setting."""
    for key in list_keys(run):
        found = run.breakdown(key)
        if found.positions is not None:
            yield from (_chart(run, found, place) for place in dict.fromkeys(one.setting for one in found.curves))


def list_keys(run: Run) -> list[str]:
    """The swept keys: the malicious clients first, then other numbers, then names."""
    positions = run.manifest["positions"]
    names = {key for key in run.swept if not all(_is_number(one["swept"][key]) for one in positions)}
    return sorted(run.swept, key=lambda key: (key != MALICIOUS, key in names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _metrics(run: Run, address: Address) -> list[str]:
    """The metrics of the run, and costs to reach a target; the one of the address too, even if no trial has it."""
    asked = address.get("metric", "")
    options = [*run.figures, *(f"{family}({_TARGET:g})" for family in run.to_target)] or ["final_accuracy"]
    return [*options, asked] if asked in FIGURES and asked not in options else options


def _chart(run: Run, found: Breakdown, place: str) -> Block:
    others = [key for key in run.swept if key != found.key]
    rows = [row for row in run.rows(found.figure) if setting(row, others) == place]
    lines = references(run, [row["cell"] for row in rows]) if found.figure in ACCURACIES else {}
    return chart(found, place, rows, lines.get("chance"))


def _worst(found: Breakdown, place: str) -> list[BreakdownCurve]:
    """The curves under the worst attack at each point, or without an attack if there is none."""
    worst = [curve for curve in found.worst if curve.setting == place]
    return worst or [curve for curve in found.curves if curve.setting == place]


def _under(found: Breakdown, place: str) -> str:
    attacks = {curve.attack for curve in found.curves if curve.setting == place} - {"none"}
    return (
        f"under the worst of {len(attacks)} attacks"
        if len(attacks) > 1
        else "under the attack"
        if attacks
        else "without attack"
    )


def _headline(found: Breakdown, place: str) -> str:
    curves, under = _worst(found, place), _under(found, place)
    measured = [curve for curve in curves if curve.until]
    if not any(entry.estimate for curve in curves for entry in curve.entries):
        return f"No value of {FIGURES[found.figure].title} over {found.key} yet."
    if found.figure not in ACCURACIES or not measured:
        return _range(found, curves, under)
    lost = [curve for curve in measured if curve.half is not None]
    kept = len(measured) - len(lost)
    if not lost:
        return (
            f"No defense loses half of its accuracy above chance {under}, over {found.key} up to {measured[0].until}."
        )
    if found.positions is None:
        return _range(found, curves, under)
    order = sorted(lost, key=lambda curve: float(curve.half or 0), reverse=found.positions[0] > found.positions[-1])
    first = f"{order[0].defense} at {found.key} = {order[0].half:.3g}"
    rest = f"; {kept} of {len(measured)} defenses keep more than half throughout" if kept else ""
    last = f", the last {order[-1].defense} at {order[-1].half:.3g}" if len(order) > 1 and not kept else ""
    return f"Half of the accuracy above chance is lost first by {first}{last}, {under}{rest}."


def _range(found: Breakdown, curves: Sequence[BreakdownCurve], under: str) -> str:
    """The lowest and the highest mean, which are facts and no ranking."""
    known = FIGURES[found.figure]
    values = [
        (entry.estimate.mean, f"{curve.defense}, {label}")
        for curve in curves
        for label, entry in zip(found.labels, curve.entries, strict=True)
        if entry.estimate
    ]
    low, high = min(values), max(values)
    ends = f"from {known.quantity(low[0])} ({low[1]}) to {known.quantity(high[0])} ({high[1]})"
    return f"Over {found.key}, mean {known.title} {under} goes {ends}."


def _lead(found: Breakdown, place: str) -> Iterator[str]:
    """Where each defense loses half, and what could not be measured."""
    if found.figure in ACCURACIES and found.positions is not None:
        said = [f"{curve.defense} {_describe_half(curve)}" for curve in _worst(found, place) if curve.until]
        if said:
            yield f"Where the mean loses half, {_under(found, place)}: {', '.join(said)}."
    statuses = [
        entry.status
        for curve in found.curves
        if curve.setting == place
        for entry in curve.entries
        if entry.status != "ok"
    ]
    if statuses:
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
        yield f"Points without a value: {counts}."


def _describe_half(curve: BreakdownCurve) -> str:
    return f"not up to {curve.until}" if not isinstance(curve.half, float) else f"at {curve.half:.3g}"


BREAKDOWN = Page("breakdown", "Breakdown", blocks)
