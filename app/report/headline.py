"""The headline: the worst case of each defense, and what there is no figure of and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from fedguard.app.report.elements import el, listed, paragraphs, table

from fedguard.bench.matrix import FIGURES, Entry, Matrix
from fedguard.bench.reasons import reason_lines
from fedguard.bench.report import worst_cases
from fedguard.bench.run import Run

_ACCURACY = FIGURES["final_accuracy"]


def headline(run: Run) -> list[Element]:
    """What each defense keeps under the attack that lowers its accuracy most; then what was refused, failed or not run."""
    final, lost = run.table(), [run.table("accuracy_drop"), run.table("harm")]
    parts = [part for block in final.blocks for part in _worst(final, lost, block)]
    if not parts:
        parts = [el("p", "This run has no attack on the training.")]
    else:
        parts.append(
            el(
                "p",
                "The worst is the attack with the lowest mean of those that ran; one that was refused, failed or was not "
                "thought of might lower it further. Lost: against the same defense without attack, seed by seed; harm: against "
                "the same defense while the colluders send nothing. Means over seeds ± 95 % interval.",
                class_="note",
            )
        )
    ensembles = [str(text) for text in worst_cases(run)]
    return [*parts, *(paragraphs(ensembles)), *_without_figures(run)]


def _worst(final: Matrix, lost: Sequence[Matrix], block: str) -> Iterator[Element]:
    rows = final.blocks[block]
    found = {defense: final.worst(block, defense) for defense in final.defenses}
    attacked = [
        (defense, next(name for name, row in rows.items() if row[defense] is worst), worst)
        for defense, worst in found.items()
        if worst is not None
    ]
    if not any(attack != "none" for attack in rows):
        return
    if block:
        yield el("h3", block)
    sentence = _sentence(attacked, sum(attack != "none" for attack in rows))
    yield el("p", sentence, class_="lead")
    table_rows = [
        (defense, rows["none"][defense].text() if "none" in rows else "-", *"----", _not_measured(rows, defense))
        for defense, worst in found.items()
        if worst is None
    ]
    for defense, attack, worst in attacked:
        clean = rows["none"][defense].text() if "none" in rows else "-"
        parts = [
            one.blocks[block][attack][defense].text() if attack in one.blocks.get(block, {}) else "-" for one in lost
        ]
        table_rows.append((defense, clean, attack, worst.text(), *parts, _not_measured(rows, defense)))
    heads = [
        "defense",
        "without attack",
        "worst attack",
        "accuracy under it",
        "lost",
        "harm",
        "attacks without a figure",
    ]
    caption = "Final accuracy in % without attack and under the worst attack; lost, and the harm in it, in points"
    yield table(f"{caption}; {block}" if block else caption, heads, table_rows, "lrlrrrl")


def _sentence(attacked: list[tuple[str, str, Entry]], attacks: int) -> str:
    if not attacked:
        return "No attack on the training has a figure here."
    ordered = sorted(attacked, key=lambda one: one[2].estimate.mean if one[2].estimate else 0.0)
    kept = [f"{defense} keeps {entry.text()} % ({attack})" for defense, attack, entry in (ordered[-1], ordered[0])]
    under = "Under the attack" if attacks == 1 else f"Under the worst of {attacks} attacks"
    if len(ordered) == 1:
        return f"{under}, {kept[0]}."
    return f"{under}, {kept[0]}, the most by its mean, and {kept[1]}, the least."


def _not_measured(rows: Mapping[str, Mapping[str, Entry]], defense: str) -> str:
    bad = [f"{attack} {row[defense].status}" for attack, row in rows.items() if row[defense].estimate is None]
    return ", ".join(bad) or "none"


def _without_figures(run: Run) -> Iterator[Element]:
    headings = {
        "refused": "Refused, and why",
        "failed": "Failed, and why",
        "missing": "Not run",
    }
    for status, heading in headings.items():
        rows = run.with_status(status)
        if rows:
            yield el("h3", heading)
            yield listed(reason_lines(((row["attack"], row["defense"], row["reason"]) for row in rows), "trials"))
    if all(row["status"] == "ok" for row in run.rows()):
        yield el("p", "No trial was refused, none failed, and none is missing.")
