"""The output of `fedguard show` for a run: matrix, refusals, failures, flags."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.text import Text

from fedguard.bench.flags.answer import answers
from fedguard.bench.flags.lint import flag_lines, lint
from fedguard.bench.flags.results import results_of
from fedguard.bench.records import taxonomy
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.records.record import silent_mean
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.records.schema.result import MaskingRecord, WorstCaseRecord
from fedguard.bench.results.matrix import Matrix
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError
from fedguard.metrics.figures import FIGURES, default_figures, number_at
from fedguard.metrics.returns import in_shares
from fedguard.metrics.stats import estimate


def overview(run: Run) -> RenderableType:
    """The output of `fedguard show`: matrix, backdoors, refusals and failures, flags, and next steps."""
    return Group(*_parts(run))


def matrices(run: Run) -> Iterator[Matrix]:
    """The metrics shown by default that any trial has; the final accuracy if no trial has run."""
    held = run.figures or [run.score]
    for figure in default_figures("show"):
        if figure != "attack_success" and figure in held:
            yield run.table(figure)
    if "attack_success" in held:
        backdoors = run.table("attack_success")
        kept = {
            block: {attack: row for attack, row in rows.items() if any(entry.estimate for entry in row.values())}
            for block, rows in backdoors.blocks.items()
        }
        yield Matrix(backdoors.title, backdoors.figure, backdoors.defenses, kept)


def _parts(run: Run) -> Iterator[RenderableType]:
    yield from _answers(run)
    yield from matrices(run)
    yield from worst_cases(run)
    yield from _setting(run)
    refused = [(run.place(row), str(row["reason"])) for row in run.with_status("refused")]
    yield from _list_trials(refused, "Refused, and why")
    failed = [(one.place, one.reason) for one in run.failures]
    yield from _list_trials(failed, "Failed; `fedguard run SUITE --retry-failed` runs them again")
    missing = len(run.with_status("missing"))
    if missing:
        yield Text(
            f"\n{missing} of {len(run.rows())} trials have not been run: run the suite again to go on.", "yellow"
        )
    yield from _flags(run)


def _answers(run: Run) -> Iterator[RenderableType]:
    for place, answer in answers(run).items():
        yield Text(f"{place}: {answer.headline}" if place else answer.headline, "bold")
        behind = " ".join((*answer.lead, answer.action)).strip()
        yield Text(f"{behind}\n" if behind else "")


def _setting(run: Run) -> Iterator[RenderableType]:
    """A sentence on each threat, and one on the data if all cells share them."""
    named = {
        position["cell"] for position in run.manifest["positions"]
    }  # silent colluders are not what was asked about
    records = [record for (cell, _), record in run.ran.items() if cell in named]
    cards = [record["threat_card"] for record in records]
    threats = list(dict.fromkeys(card["in_words"] for card in cards if card["attack"]))
    partitions = {card["partition"] for card in cards}
    if len(threats) <= 2:  # masks may hide something from the colluders of some cells
        yield from (Text(f"\nThreat: {threat}") for threat in threats)
    if records:
        yield Text(f"Kind: {taxonomy.in_words(records)}.")
    measured = [one for card in cards if (one := card["dissimilarity"]) is not None]
    if len(partitions) == 1 and measured:
        distance = estimate([one["label_distance"] for one in measured]).mean
        gradient = estimate([one["gradient_dissimilarity"] for one in measured]).mean
        yield Text(
            f"Data: {partitions.pop()}; measured label distance {distance:.2f} (0 alike, 1 disjoint), "
            f"gradient dissimilarity {gradient:.2f}."
        )
    yield from _sums(records)
    yield from references(run)


def _sums(records: Sequence[CompletedRecord]) -> Iterator[RenderableType]:
    """A sentence on each mode of secure aggregation that ran: who was hidden, and how exact the sums were."""
    modes: dict[str, list[MaskingRecord]] = {}
    for record in records:
        card, sums = record["threat_card"], record["result"]["secure_aggregation"]
        if sums:
            mode = card["secure_aggregation"] + (", with noise" if card["noise"] else "")
            modes.setdefault(mode, []).append(sums)
    for mode, found in modes.items():
        hidden = min((one["anonymity"] for one in found if one["anonymity"] is not None), default=None)
        errors = [one["error"]["mean"] for one in found if one["error"]]
        lost, sessions = sum(one["aborted_sessions"] for one in found), sum(one["sessions"] for one in found)
        said = f"{lost} of {sessions} sums lost"
        if hidden is not None and errors:
            said = (
                f"each update is hidden among {hidden} or more, colluders not counted; the means are off by "
                f"{median(errors):.1g} of their length (median of the trials); {said}"
            )
        yield Text(f"Secure aggregation, {mode}: {said}.")


def references(run: Run) -> Iterator[RenderableType]:
    """Reference values for the metrics, if there is one setting."""
    records = list(run.ran.values())
    if run.swept or not records:
        return
    chance, returns = records[0]["result"]["chance"], records[0]["result"].get("returns")
    said = [] if chance is None else [f"chance {_points(chance)} %"]
    said += (
        [f"a return of {returns['guess']:.3g} by acting at random, and {returns['perfect']:.3g} at best"]
        if returns
        else []
    )
    for value, meaning in (
        (partial(number_at, path=("references", "root_only")), "the root data alone"),
        (silent_mean, "the mean of the honest clients alone"),
    ):
        found_by_seed = {record["seed"]: value(record["result"]) for record in records}
        found_by_seed |= {r["seed"]: value(r["result"]) for r in records if r["threat_card"]["attack"]}
        values = [one for one in found_by_seed.values() if one is not None]
        if values:
            figure = FIGURES["final_accuracy"]
            said.append(f"{meaning} {figure.format_estimate(figure.estimate(values))} %")
    if said:
        yield Text(f"To compare with: {', '.join(said)}.")


def worst_cases(run: Run) -> Iterator[RenderableType]:
    """The attack chosen by each ensemble, and the uncertainty of the choice."""
    told: dict[str, tuple[WorstCaseRecord, list[float]]] = {}
    for record in run.ran.values():
        choice = record["result"].get("worst_case")
        if choice:
            told.setdefault(record["label"], (choice, []))[1].append(in_shares(record["result"])["final_accuracy"])
    if not told:
        return
    yield Text("\nWorst cases, chosen on seeds of their own and reported on others:", "bold")
    for label, (choice, finals) in told.items():
        scored = [score for score in choice["scores"] if score["seeds"]]
        second = next((score for score in scored if score["attack"] != choice["chosen"]), None)
        further = choice["saturation"]["further"] if choice["saturation"] else None
        yield Text(
            f"  {label.removeprefix(choice['ensemble']).strip()}: {choice['chosen']}, {_points(estimate(finals).mean)} % "
            f"({_points(choice['selection_accuracy'])} % when chosen among {len(scored)})"
            + (f"; next {second['attack']}, {_points(second['accuracy'])} %" if second else "")
            + (f"; more kinds of attack may take {_points(further)} points more" if further is not None else "")
            + "."
        )


def _points(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _list_trials(trials: Sequence[tuple[Mapping[str, str], str]], heading: str) -> Iterator[RenderableType]:
    if trials:
        yield Text(f"\n{heading}:", "bold")
        yield from (Text(f"  {line}") for line in reason_lines(trials, "trials"))


def _flags(run: Run) -> Iterator[RenderableType]:
    found = lint(results_of(run))
    if found.findings:
        yield Text("\nRed flags, each with one example (all of them: `fedguard lint`):", "bold")
        yield from flag_lines(found)


def write_svg(tables: Sequence[Matrix], path: Path) -> None:
    """Write matrices as a picture.

    Raises:
        StoreError: the file cannot be written.
    """
    wide = Console(record=True, width=max(table.width for table in tables), file=io.StringIO(), force_terminal=True)
    for table in tables:
        wide.print(table)
    # Rich has its pictures load a font from the network; a picture of ours does not.
    picture = re.sub(r"@font-face \{.*?\}", "", wide.export_svg(title="FedGuard"), flags=re.DOTALL)
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None
