"""Every attack against every defense: heat maps as small multiples over the other swept keys, and why cells have no value."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Block,
    Chip,
    Choice,
    Heading,
    Heatmap,
    More,
    Prose,
    TableBlock,
    Verdict,
    choose,
)
from fedguard.bench.pages.checks import run_again
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.panels import CellValue, Heat, MatrixPanel, matrix_panels
from fedguard.bench.pages.trained import describe_training, states
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, Metric, Place, default_figures, metric_name
from fedguard.metrics.stats import ENOUGH, over_seeds

#: Shares of accuracy, in percent, at which metrics that need a target can be read
_TARGETS = ("50", "60", "70", "80", "90", "95", "99")

#: More reasons than this are folded away
_REASONS = 3


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The metric of the address under ``metric``, for all settings of two swept keys; of further ones the chosen values."""
    metric, choices = _metric(run, address)
    known = FIGURES[metric]
    panels = matrix_panels(run, metric)
    yield _verdict(run, panels, known)
    yield from choices
    rows, fixed = run.swept[1:2], run.swept[2:]
    for key in fixed:
        options = list(dict.fromkeys(panel.place[key] for panel in panels)) or [""]
        best = max(options, key=lambda one: sum(len(panel.worst) for panel in panels if panel.place[key] == one))
        chosen = choose(address, key, options, best)
        yield Choice(key, key, options, chosen)
        panels = [panel for panel in panels if panel.place[key] == chosen]
    yield from _heatmaps(run, panels, known, run.swept[:2], *rows)
    yield from _reasons(panels)
    yield _every_metric(run)


def whole(run: Run, place: Place, address: Address, metric: str | None = None) -> list[Block]:
    """The page of one metric; without one, with the heat maps of all others that are shown at a place by default.

    Raises:
        UnknownName: there is no such metric.
    """
    found = list(blocks(run, {**address, "metric": metric_name(metric)} if metric else address))
    return [*found[:-1], *([] if metric else heatmaps(run, place, (run.score,))), found[-1]]


def heatmaps(run: Run, place: Place, without: Sequence[str] = ()) -> Iterator[Block]:
    """The heat maps of the metrics that are shown at a place by default, where any trial has them."""
    for name in default_figures(place):
        if name in run.figures and name not in without:
            yield from _heatmaps(run, matrix_panels(run, name), FIGURES[name], run.swept)


def _metric(run: Run, address: Address) -> tuple[str, list[Choice]]:
    """The metric, and the choices that led to it."""
    asked = address.get("metric", "")
    family, _, target = asked.rstrip(")").partition("(")
    options = [*(run.figures or [run.score]), *run.to_target]
    if asked in FIGURES and family not in options:  # no trial has it, which the page says in place of another metric
        options.append(asked)
    chosen = family if family in options else run.score
    titles = {name: FIGURES[name].heading for name in options if name in FIGURES}
    titles |= {name: f"{name.replace('_to', '')} until a target is reached" for name in run.to_target}
    choices = [Choice("metric", "Metric", options, chosen, titles)]
    if chosen not in run.to_target:
        return chosen, choices
    percent = f"{100 * float(target):g}" if target and asked in FIGURES else address.get("target", "80")
    targets = list(dict.fromkeys([*_TARGETS, percent])) if target and asked in FIGURES else list(_TARGETS)
    percent = percent if percent in targets else "80"
    titles = {one: f"{one} %" for one in targets}
    return f"{chosen}({float(percent) / 100:g})", [*choices, Choice("target", "Target", targets, percent, titles)]


def _heatmaps(
    run: Run, panels: Sequence[MatrixPanel], metric: Metric, keys: Sequence[str], rows: str = ""
) -> Iterator[Heatmap]:
    """One heat map for each value of the key of the rows, with a common scale; the keys title the panels."""
    shown = [panel for panel in panels if panel.attacks]
    if not shown:
        return
    heat = Heat(shown, metric)
    heading = metric.heading[0].upper() + metric.heading[1:]
    more = "more" if metric.more_is_better else "less"
    about = (
        f"{over_seeds(len(run.seeds)).capitalize()}; {more} is better for the defender. "
        f"Color: lost against {heat.reference}{' of the same panel' if len(panels) > 1 else ''}."
    )
    unknown = any(one.status in ("failed", "missing") for panel in shown for one in panel.entries.values())
    about += " * An attack that failed or was not run may be worse." if unknown else ""
    values = list(dict.fromkeys(panel.place[rows] for panel in shown)) if rows else [""]
    for number, value in enumerate(values):
        row = [panel for panel in shown if not rows or panel.place[rows] == value]
        first = next((at for at, panel in enumerate(row) if panel.worst), 0)
        drawn = [panel.draw(heat, [key for key in keys if key != rows]) for panel in row]
        title = f"{heading}, {rows} = {value}" if rows else heading
        yield Heatmap(drawn, "attack", title, "" if number else about, () if number else heat.scale(), first=first)


def _reasons(panels: Sequence[MatrixPanel]) -> Iterator[Block]:
    """Why cells have no value, each reason once."""
    entries = [one for panel in panels for one in panel.entries.values()]
    for status in ("refused", "failed", "missing"):
        cells = [(one.swept, reason) for one in entries if one.status == status for reason in one.reasons]
        lines = list(reason_lines(cells, "cells"))
        title = f"{status.capitalize()}, and why"
        if lines:
            yield Prose(lines[:_REASONS], title)
        if len(lines) > _REASONS:
            yield More(f"{len(lines) - _REASONS} more reasons", [Prose(lines[_REASONS:])])


def _every_metric(run: Run) -> Block:
    """Every metric as one table, to sort and to export."""
    rows: list[list[str | float | None]] = []
    defenses = list(dict.fromkeys(position["swept"]["defense"] for position in run.manifest["positions"]))
    for name in run.figures:
        for panel in matrix_panels(run, name):
            for attack in panel.attacks:
                fields = [panel.entries.get((attack, one)) for one in defenses]
                if any(one and one.estimate for one in fields):
                    texts = [f"{one.text} {one.spread}".strip() if one else "" for one in fields]
                    rows.append([FIGURES[name].heading, panel.title, attack, *texts])
    heads = [Heading("metric"), Heading("setting"), Heading("attack"), *(Heading(one, number=True) for one in defenses)]
    table = TableBlock(heads, rows, f"Every metric: {over_seeds(len(run.seeds))}")
    command = shlex.join(["fedguard", "show", run.name, "--matrix", "--all"])
    return More(f"Every metric as a table ({len(run.figures)} metrics, {len(rows)} rows)", [table], command)


# ------------------------------------------------------------------------------------------------------------ verdict


def _verdict(run: Run, panels: Sequence[MatrixPanel], metric: Metric) -> Verdict:
    headline, lead = _headline(run, panels, metric)
    unanswered = [one.headline for one in run.verdicts.values() if one.headline.startswith("No answer yet")]
    if unanswered and len(unanswered) == len(run.verdicts):  # what a model without learning loses is no answer
        headline, lead, unanswered = unanswered[0], [headline, *lead], []
    elif len(unanswered) > 1:
        unanswered = [f"In {len(unanswered)} of {len(run.verdicts)} settings: {unanswered[0]}"]
    actions = [Action("Go on:", run_again(run))] if run.with_status("missing") else []
    return Verdict(headline, [*lead, *unanswered], describe_training(run), [*states(run), *_seeds(run)], actions)


def _seeds(run: Run) -> list[Chip]:
    if len(run.seeds) >= ENOUGH:
        return []
    return [Chip("2 seeds: ranges, no intervals" if len(run.seeds) == ENOUGH - 1 else "1 seed: no intervals", "warn")]


def _headline(run: Run, panels: Sequence[MatrixPanel], metric: Metric) -> tuple[str, list[str]]:
    """The first case that applies: losses of several settings, of one, values without a clean one, no attack, nothing."""
    lossy = sorted((panel for panel in panels if panel.losses), key=lambda one: one.losses[0].lost)
    if lossy:
        first, last = lossy[0], lossy[-1]
        said = _one_panel(first, metric)
        if first is not last:
            lost = dict.fromkeys(_loses(one.losses[0].lost, metric) for one in (first, last))
            said = f"Whatever defense runs, the worst attack takes at least {' to '.join(lost)} of {metric.title}, by setting."
        shown = [first] if first is last else [first, last]
        return said, [
            *(text for panel in shown for text in (_least(panel), *_explain_refusals(panel))),
            _against(run, metric),
        ]
    entries = [one for panel in panels for one in panel.worst.values()]
    under = f"Under the worst attack on each defense, {metric.title} is"
    if not entries:
        entries = [one for panel in panels for one in panel.entries.values() if one.estimate]
        under = f"Without attack, {metric.title} is"
    if not entries:
        why = [one for panel in panels for one in _explain_refusals(panel)][:1]
        return f"No cell has a value of this metric: {metric.title}." if run.ran else "Nothing has run yet.", why
    ends = sorted(entries, key=lambda one: one.estimate.mean if one.estimate else 0.0)
    texts = dict.fromkeys(f"{one.quantity} ({_where(one)})" for one in (ends[0], ends[-1]))
    return f"{under} {' to '.join(texts)}.", [f"{over_seeds(len(run.seeds)).capitalize()}."]


def _one_panel(panel: MatrixPanel, metric: Metric) -> str:
    """``The worst of 5 attacks takes 9.0 points (median) to 45.1 points (krum).``"""
    attacks = max(sum(one.estimate is not None for one in panel.against(defense)) for defense in panel.worst)
    names = {one.entry.swept["attack"] for one in panel.losses}
    under = f"The worst of {attacks} attacks" if attacks > 1 else names.pop() if len(names) == 1 else "The worst attack"
    ends = dict.fromkeys(
        f"{_loses(one.lost, metric)} ({one.entry.swept['defense']})" for one in (panel.losses[0], panel.losses[-1])
    )
    return f"{under} takes {' to '.join(ends)} of {metric.title}{_with(panel)}."


def _with(panel: MatrixPanel) -> str:
    return f" with {panel.title}" if panel.title else ""


def _loses(lost: float, metric: Metric) -> str:
    """``6.1 points``; ``nothing`` where the value is not below the reference."""
    return metric.difference(lost) if lost > 0 and float(metric.text(lost)) else "nothing"


def _least(panel: MatrixPanel) -> str:
    """The lowest loss in the panel, and what is left."""
    one = panel.losses[0].entry
    return f"Lowest mean loss{_with(panel)}: {one.swept['defense']} has {one.quantity} under {one.swept['attack']}."


def _where(entry: CellValue) -> str:
    """``median under alie, clients.malicious = 2``."""
    attack, defense, *place = (f"{key} = {value}" if "." in key else value for key, value in entry.swept.items())
    return ", ".join([defense if attack == "none" else f"{defense} under {attack}", *place])


def _explain_refusals(panel: MatrixPanel) -> Iterator[str]:
    """The defenses against which every attack is refused."""
    cells = {defense: panel.against(defense) for defense in panel.defenses}
    names = [defense for defense, its in cells.items() if its and all(one.status == "refused" for one in its)]
    if names:
        shown = ", ".join(names) if len(names) <= _REASONS else f"{len(names)} of {len(cells)} defenses"
        yield f"Refused{_with(panel)}: {shown}."


def _against(run: Run, metric: Metric) -> str:
    seeds = f"{len(run.seeds)} seed{'s' * (len(run.seeds) != 1)}"
    said = f"Losses of {metric.title} are against the plain mean without attack, on {seeds}"
    backdoors = metric is FIGURES[run.score] and "attack_success" in run.figures
    beside = " Backdoors are judged by another metric, the backdoor success." if backdoors else ""
    return f"{said}; the Overview tests the order of defenses.{beside}"


MATRIX = Page("matrix", "Matrix", blocks)
