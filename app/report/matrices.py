"""Every attack against every defense, metric by metric: as colors, and as a table with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from fedguard.app.charts.heatmap import heatmap
from fedguard.bench.pages.elements import el, fold_content, table
from fedguard.bench.pages.svg import draw_figure
from fedguard.bench.results.matrix import Matrix, MatrixEntry
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, default_figures

#: The metrics of the goals of attacks
HEADLINES = default_figures("report")

#: With more settings than this, metrics other than accuracy have tables only
DRAWN = 3


def matrices(run: Run) -> list[Element]:
    """Heat maps of the metrics of the attacks' goals; folded, their tables and the tables of all other metrics."""
    rows = run.rows()
    there = [
        figure
        for figure in run.figures
        if any(FIGURES[figure].fits(row["goal"]) for row in rows if row[figure] is not None)
    ]
    if not there:
        return [el("p", "No trial of this run has a value of any metric.")]
    drawn_first = [part for figure in there if figure in HEADLINES for part in _of_figure(run, figure)]
    others = [part for figure in there if figure not in HEADLINES for part in _of_figure(run, figure)]
    return [*drawn_first, fold_content("Every other metric", *others)] if others else drawn_first


def _of_figure(run: Run, figure: str) -> Iterator[Element]:
    known, matrix = FIGURES[figure], run.table(figure)
    better = "more is better" if known.more_is_better else "less is better"
    yield el("h3", f"{known.heading[0].upper()}{known.heading[1:]}: {better} for the defender")
    rows = [row for row in run.rows() if known.fits(row["goal"])]
    for block, attacks in matrix.blocks.items():
        kept = {attack: row for attack, row in attacks.items() if any(entry.estimate for entry in row.values())}
        if not kept:
            yield el("p", f"{block}: no trial has this metric.", class_="note")
            continue
        apply = [one for one in matrix.defenses if any(_applies(row[one]) for row in kept.values())]
        chosen = [
            row
            for row in rows
            if row["attack"] in kept and row["defense"] in apply and setting(row, run.swept) == block
        ]
        says = f"{known.title}, mean over seeds, attacks by defenses, with 95 % intervals over seeds."
        as_table = _table(matrix, block, kept, apply)
        if figure in HEADLINES and (figure == "final_accuracy" or len(matrix.blocks) <= DRAWN):
            yield draw_figure(heatmap(chosen, figure), f"{block}: {says}" if block else f"{says[0].upper()}{says[1:]}")
            yield fold_content("As a table", as_table)
        else:
            yield as_table


def _applies(entry: MatrixEntry) -> bool:
    """Whether there is a value, or a reason why there is none; some metrics exist for some defenses only."""
    return entry.estimate is not None or entry.status not in ("ok", "")


def _table(
    matrix: Matrix, block: str, attacks: Mapping[str, Mapping[str, MatrixEntry]], defenses: Sequence[str]
) -> Element:
    rows = [[attack, *(row[defense].text() for defense in defenses)] for attack, row in attacks.items()]
    several = len(attacks) - ("none" in attacks) > 1
    if several:
        worst = [matrix.worst(block, defense) for defense in defenses]
        rows.append(["worst of these", *(entry.text() if entry else "-" for entry in worst)])
    caption = f"{matrix.title}; {block}" if block else matrix.title
    return table(caption, ["attack", *defenses], rows, "lr", last=int(several))
