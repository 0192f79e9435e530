"""The headline: the answer, the worst case of each defense, and the missing metrics with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from fedguard.app.report.elements import bullet_list, el, paragraphs, table
from fedguard.bench.flags.answer import answers
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.report import worst_cases
from fedguard.bench.results.answer import NOUNS, RULE, DefenseSummary, standings
from fedguard.bench.results.matrix import Matrix
from fedguard.bench.results.run import Run
from fedguard.bench.results.verdict import RunVerdict
from fedguard.metrics.stats import over_seeds

_HEADS = [
    "defense", "without attack", "worst attack", "accuracy under it", "lost", "harm", "backdoor success",
    "attacks without a value",
]  # fmt: skip


def headline(run: Run) -> list[Element]:
    """Which defense keeps the most, by the worst over all goals of the attacks; then what was refused, failed or not run."""
    tables = run.table(run.share), run.table(_choose_drop_metric(run)), run.table(_harm(run))
    found = standings(run)
    parts = [
        part
        for place, answer in answers(run).items()
        for part in _of_setting(place, answer, [one for one in found if one.setting == place], tables)
    ]
    if not parts:
        parts.append(el("p", "This run has no attack on the training."))
    else:
        said = over_seeds(len(run.seeds))
        note = (
            f"{RULE} {said[0].upper()}{said[1:]}. Another attack might be worse. Lost: against the same defense without "
            "attack, seed by seed; harm: against the same defense while the malicious clients send nothing. Backdoor success: "
            "above a clean model's."
        )
        parts.append(el("p", note, class_="note"))
    ensembles = [str(text) for text in worst_cases(run)]
    return [*parts, *(paragraphs(ensembles)), *_without_figures(run)]


def _choose_drop_metric(run: Run) -> str:
    return "accuracy_drop" if run.share == "final_accuracy" else "return_drop"


def _harm(run: Run) -> str:
    return "harm" if run.share == "final_accuracy" else "return_harm"


def _of_setting(
    place: str, answer: RunVerdict, found: Sequence[DefenseSummary], tables: tuple[Matrix, ...]
) -> Iterator[Element]:
    if place:
        yield el("h3", place)
    yield el("p", answer.headline, class_="lead")
    if behind := " ".join((*answer.lead, answer.action)).strip():
        yield el("p", behind)
    caption = "Final accuracy in % without attack and under the worst attack; lost, and the harm in it, in points"
    order = sorted(found, key=lambda one: -1.0 if one.kept is None else one.kept, reverse=True)
    rows = [_row(one, tables) for one in (order if answer.ranked else found)]
    if any(one.score != "final_accuracy" for one in found):
        caption = (
            "Normalized return in % (0 guesses, 100 is perfect) without attack and under the worst attack; lost, and the harm "
            "in it, in returns"
        )
    heads = [head.replace("accuracy", NOUNS[found[0].score]) for head in _HEADS]
    columns = [number for number, _ in enumerate(_HEADS) if number != 6 or any(row[6] != "-" for row in rows)]
    yield table(
        f"{caption}; {place}" if place else caption,
        [heads[number] for number in columns],
        [[row[number] for number in columns] for row in rows],
        "lrlrrr" + "rl"[len(columns) < len(_HEADS) :],
    )


def _row(one: DefenseSummary, tables: tuple[Matrix, ...]) -> list[str]:
    final, *lost = tables
    rows = final.blocks[one.setting]
    clean = rows["none"][one.defense].text() if "none" in rows else "-"
    bad = [f"{attack} {row[one.defense].status}" for attack, row in rows.items() if row[one.defense].estimate is None]
    missing = ", ".join(bad) or "none"
    if one.worst is None:
        return [one.defense, clean, *"-----", missing]
    attack = one.worst.attack
    parts = [
        table.blocks[one.setting][attack][one.defense].text() if attack in table.blocks.get(one.setting, {}) else "-"
        for table in lost
    ]
    texts = one.texts()
    under = texts[f"{NOUNS[one.score]} under it, %"]
    return [
        one.defense, clean, attack, under, *parts, texts["backdoor success, %"] or "-", missing
    ]  # fmt: skip


def _without_figures(run: Run) -> Iterator[Element]:
    refused, missing = (
        [(run.place(row), row["reason"]) for row in run.with_status(status)] for status in ("refused", "missing")
    )
    failed = [(one.place, one.reason) for one in run.failures]
    for heading, trials in (("Refused, and why", refused), ("Failed, and why", failed), ("Not run", missing)):
        if trials:
            yield el("h3", heading)
            yield bullet_list(reason_lines(trials, "trials"))
    if not (refused or failed or missing):
        yield el("p", "No trial was refused, none failed, and none is missing.")
