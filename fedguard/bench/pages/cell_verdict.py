"""The verdict on a cell, and the trials that it is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedguard.bench.pages.blocks import Action, Chip, Verdict
from fedguard.bench.pages.cell_scores import CellScores, partners
from fedguard.bench.pages.checks import run_again
from fedguard.bench.pages.trained import describe_training
from fedguard.bench.records.schema import CompletedRecord, Position, Record
from fedguard.bench.results.places import label
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, PRIVACY_GOALS
from fedguard.metrics.stats import ENOUGH, Estimate


@dataclass(frozen=True)
class CellRecords:
    """A position of the matrix with its trials."""

    run: Run
    position: Position

    @property
    def keys(self) -> Mapping[str, str]:
        """Attack, defense and the other swept keys."""
        return {key: str(self.position["swept"][key]) for key in ("attack", "defense", *self.run.swept)}

    @property
    def place(self) -> str:
        """``alie against median, clients.malicious = 4``."""
        return label(self.keys)

    @cached_property
    def records(self) -> list[Record]:
        """The record of each seed that has one."""
        found = (self.run.records.get((self.position["cell"], seed)) for seed in self.run.seeds)
        return [record for record in found if record is not None]

    @cached_property
    def ran(self) -> list[CompletedRecord]:
        """The record of each seed that ran."""
        found = (self.run.ran.get((self.position["cell"], seed)) for seed in self.run.seeds)
        return [record for record in found if record is not None]

    @cached_property
    def clean(self) -> list[CompletedRecord]:
        """The same defense and seeds without attack."""
        return partners(self.run, self.ran, attacked=False)

    @cached_property
    def plain(self) -> list[CompletedRecord]:
        """The plain mean under the same attack with the same seeds; empty if it is the cell's own defense."""
        own = not self.ran or self.ran[0]["threat_card"]["defense"] == "mean"
        return [] if own else partners(self.run, self.ran, attacked=True)

    @cached_property
    def without(self) -> list[dict[str, Any]]:
        """The rows of the seeds without a result."""
        rows = (row for row in self.run.rows() if row["cell"] == self.position["cell"])
        return [row for row in rows if row["status"] != "ok" and {key: str(row[key]) for key in self.keys} == self.keys]


def judge_cell(cell: CellRecords, known: bool) -> Verdict:
    chips = [] if known else [Chip("the address names a cell that is not in this run; this is another", "warn")]
    chips += [Chip(name.replace("_", " "), "warn") for name in _flags(cell)]
    seeds = len(cell.run.seeds)
    if seeds < ENOUGH:
        chips.append(Chip(f"{seeds} seed{'s' * (seeds > 1)}: no intervals", "warn"))
    trained = f"{cell.place} · {describe_training(cell.run)}"
    if cell.without:
        return _explain_status(cell, trained, chips)
    headline, lead = sum_up_cell(cell)
    return Verdict(headline, lead, trained, chips)


def _flags(cell: CellRecords) -> list[str]:
    return list(dict.fromkeys(flag["flag"] for record in cell.records for flag in record["flags"]))


def _explain_status(cell: CellRecords, trained: str, chips: Sequence[Chip]) -> Verdict:
    """A cell of which not every seed has a result: no mean of the others is a value of it."""
    statuses = [row["status"] for row in cell.without]
    status = next(one for one in ("failed", "missing", "refused") if one in statuses)
    rows = [row for row in cell.without if row["status"] == status]
    seeds = f"{len(rows)} of {len(cell.run.seeds)} seeds"
    headline, action = {
        "refused": (f"Refused: {cell.place} cannot run.", None),
        "failed": (f"Failed: {cell.place}, {seeds}.", Action("Run it again:", run_again(cell.run, "--retry-failed"))),
        "missing": (f"Not run yet: {cell.place}, {seeds}.", Action("Go on:", run_again(cell.run))),
    }[status]
    lead = list(dict.fromkeys(str(row["reason"]) for row in rows))
    lead += ["The seeds that ran are below; their mean would be another quantity."] if cell.ran else []
    return Verdict(headline, lead, trained, chips, [action] if action else [], "bad" if status == "failed" else "warn")


def sum_up_cell(cell: CellRecords) -> tuple[str, list[str]]:
    """The headline and the evidence of a cell all of whose seeds ran."""
    scores = CellScores(cell.ran)
    threat = cell.ran[0]["threat_card"]
    own, metric = scores.mean("own"), scores.metric
    assert own is not None  # every trial that ran has a score
    left, defense = metric.format_with_unit(own), cell.keys["defense"]
    if not threat["attack"]:
        cost = scores.loss_between("clean_mean", "own") if threat["defense"] != "mean" else None
        said = (
            [f"The plain mean reaches {_quantity(scores, 'clean_mean')}, {_difference(scores, cost)} more."]
            if cost
            else []
        )
        return f"Without attack, {defense} reaches {_amount(scores, left)}.", [*said, *_beyond(cell.ran, scores)]
    attack, goal = cell.keys["attack"], threat["goal"]
    leak = next((known for known in FIGURES.values() if known.goal == goal and _values(cell.ran, known.of)), None)
    if goal in PRIVACY_GOALS:
        value = leak.format_with_unit(leak.estimate(_values(cell.ran, leak.of))) if leak else "no value"
        what = f"{leak.title}: {value}" if leak else value
        return f"{attack} against {defense}: {what}.", [
            f"The model has {_amount(scores, left)}.",
            *_beyond(cell.ran, scores),
        ]
    lost = scores.loss_between("clean_defense", "own")
    success = FIGURES["attack_success"]
    planted = _values(cell.ran, success.of)
    if planted:
        rate = success.format_with_unit(success.estimate(planted))
        return f"The backdoor of {attack} succeeds on {rate} of the inputs under {defense}.", [
            "Success is counted above a clean model's.", _remainder(scores, left, lost), *_beyond(cell.ran, scores),
        ]  # fmt: skip
    return _loss(attack, defense, scores, lost), [
        _remainder(scores, left, lost),
        *_shares(scores),
        *_beyond(cell.ran, scores),
    ]


def _values(records: Sequence[CompletedRecord], of: Any) -> list[float]:
    """The values of a metric, if every trial has one."""
    values = [of(record) for record in records]
    return [] if None in values else values


def _amount(scores: CellScores, text: str) -> str:
    """``67.4 % accuracy``, or ``a return of 28.9 per episode``."""
    return f"{text} accuracy" if scores.metric.unit else f"a return of {text} per episode"


def _quantity(scores: CellScores, name: str) -> str:
    found = scores.mean(name)
    return "no value" if found is None else scores.metric.format_with_unit(found)


def _difference(scores: CellScores, lost: Estimate) -> str:
    return f"{scores.loss.difference(lost.mean)} {scores.loss.interval(lost)}".strip().replace("-", "\N{MINUS SIGN}")


def _loss(attack: str, defense: str, scores: CellScores, lost: Estimate | None) -> str:
    """``sign_flip takes 23.6 points [4.1, 43.1] from median; the plain mean would lose 0.9.``; a loss that may be 0 is none."""
    if lost is None:
        return f"{attack} leaves {defense} {_quantity(scores, 'own')}."
    plain = scores.loss_between("clean_mean", "attack_mean")
    beside = f"; the plain mean would lose {_difference(scores, plain)}" if plain and defense != "mean" else ""
    if lost.low is not None and lost.low <= 0 <= (lost.high or 0):
        return f"No loss is separated from zero: {attack} takes {_difference(scores, lost)} from {defense}{beside}."
    if lost.mean <= 0:
        return f"{attack} takes nothing from {defense}{beside}."
    return f"{attack} takes {_difference(scores, lost)} from {defense}{beside}."


def _remainder(scores: CellScores, left: str, lost: Estimate | None) -> str:
    of = f" of {_quantity(scores, 'clean_defense')} without attack" if lost else ""
    amount = _amount(scores, left)
    return f"{amount[0].upper()}{amount[1:]} is left{of}."


def _shares(scores: CellScores) -> Iterator[str]:
    """What silence alone would cost, and so what the attack itself does."""
    silent, harm = (_cost(scores, *pair) for pair in (("clean_defense", "silent_defense"), ("silent_defense", "own")))
    if silent and harm:
        yield f"Silence of the malicious clients would {silent}, so the attack itself {harm.replace(' ', 's ', 1)}."


def _cost(scores: CellScores, before: str, after: str) -> str:
    """``cost 3.1 points [1.0, 5.2]``, or ``gain 0.2 points [-1.5, 2.0]`` where the mean is higher after; "" without a value."""
    lost = scores.loss_between(before, after)
    if lost is not None and lost.mean < 0:
        return f"gain {_difference(scores, gained)}" if (gained := scores.loss_between(after, before)) else ""
    return f"cost {_difference(scores, lost)}" if lost else ""


def _beyond(records: Sequence[CompletedRecord], scores: CellScores) -> Iterator[str]:
    """The accuracy of a guess, and what is left of a model whose inputs are changed at test time."""
    chance = [record["result"]["chance"] for record in records]
    if scores.metric.unit and None not in chance:
        yield f"Chance is {FIGURES['final_accuracy'].quantity(sum(chance) / len(chance))}."  # type: ignore[arg-type]
    for name in ("evasion_accuracy", "evaded_return"):
        known = FIGURES[name]
        if values := _values(records, known.of):
            yield f"{known.title[0].upper()}{known.title[1:]}: {known.format_with_unit(known.estimate(values))}."
