"""One attack against one defense: what happened, beside what it is compared with, and under which assumptions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Block,
    Chip,
    Choice,
    Code,
    Columns,
    Heading,
    More,
    Prose,
    TableBlock,
    Verdict,
    choose,
)
from fedguard.bench.pages.cell_chart import AXES, axes, classes, curves, measures, waterfall
from fedguard.bench.pages.cell_events import graph, over_rounds, timeline
from fedguard.bench.pages.cell_facts import (
    card,
    kind,
    metrics,
    minority,
    needs,
    parties,
    rounds,
    sights,
    stages,
    trials,
)
from fedguard.bench.pages.cell_scores import CellScores, partners
from fedguard.bench.pages.checks import run_again
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.trained import describe_training
from fedguard.bench.records.reading import content
from fedguard.bench.records.schema import CompletedRecord, Position, Record
from fedguard.bench.records.schema.result import Axis, Measured
from fedguard.bench.results.places import label
from fedguard.bench.results.profile import profile
from fedguard.bench.results.run import Run
from fedguard.errors import UnknownName
from fedguard.metrics.figures import FIGURES, PRIVACY_GOALS
from fedguard.metrics.stats import ENOUGH, Estimate

#: Characters of a log that are shown, from its end
_LOG_SHOWN = 20_000


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
    def without(self) -> list[dict[str, Any]]:
        """The rows of the seeds without a result."""
        rows = (row for row in self.run.rows() if row["cell"] == self.position["cell"])
        return [row for row in rows if row["status"] != "ok" and {key: str(row[key]) for key in self.keys} == self.keys]


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The cell of the address under attack, defense and the swept keys; ``cell`` is its hash, for links of earlier versions."""
    positions = run.manifest["positions"]
    keys = ["attack", "defense", *run.swept]
    position, known = _find(run, address, keys)
    cell = CellRecords(run, position)
    yield _verdict(cell, known)
    for key in keys:
        options = list(dict.fromkeys(str(one["swept"][key]) for one in positions))
        yield Choice(key, key, options, cell.keys[key])
    if cell.ran:
        yield from _screens(cell, address)
    elif cell.records:
        yield Columns([sights(cell.records[0]["threat_card"]), needs(cell.records[0]["threat_card"])])
    yield from _logs(cell)
    yield from _more(cell)


def _find(run: Run, address: Address, keys: Sequence[str]) -> tuple[Position, bool]:
    """The position that the address asks for, or the nearest one; and whether there is one as it asks for."""
    positions = run.manifest["positions"]
    asked = {key: address[key] for key in keys if key in address}
    if not asked and "cell" in address:
        found = next((one for one in positions if one["cell"] == address["cell"]), None)
        return (found, True) if found else (_worst(run), False)
    start = _worst(run)
    wanted = {**{key: str(start["swept"][key]) for key in keys}, **asked}
    alike = [sum(str(one["swept"][key]) == wanted[key] for key in keys) for one in positions]
    found = positions[alike.index(max(alike))]
    return found, all(str(found["swept"][key]) == value for key, value in asked.items())


def find_cell(run: Run, text: str) -> dict[str, str]:
    """Attack and defense in ``ATTACK,DEFENSE``, as the address of their cell.

    Raises:
        UnknownName: the run has no such attack or no such defense.
    """
    pairs = {(str(one["swept"]["attack"]), str(one["swept"]["defense"])) for one in run.manifest["positions"]}
    known = {f"{attack},{defense}".replace(" ", ""): (attack, defense) for attack, defense in sorted(pairs)}
    found = known.get(text.replace(" ", ""))
    if found is None:
        raise UnknownName("cell", text, [f"{attack},{defense}" for attack, defense in sorted(pairs)])
    return {"attack": found[0], "defense": found[1]}


def _worst(run: Run) -> Position:
    """The position in which an attack leaves the lowest mean score; the first one if none was measured."""
    scores: dict[tuple[str, ...], list[float]] = {}
    keys = ["attack", "defense", *run.swept]
    for row in run.rows():
        if row["attack"] != "none" and row["status"] == "ok" and row[run.score] is not None:
            scores.setdefault(tuple(str(row[key]) for key in keys), []).append(row[run.score])
    whole = {place: sum(values) / len(values) for place, values in scores.items() if len(values) == len(run.seeds)}
    positions = run.manifest["positions"]
    if not whole:
        return positions[0]
    worst = min(whole, key=whole.__getitem__)
    return next(one for one in positions if tuple(str(one["swept"][key]) for key in keys) == worst)


# ------------------------------------------------------------------------------------------------------------- verdict


def _verdict(cell: CellRecords, known: bool) -> Verdict:
    chips = [] if known else [Chip("the address names a cell that is not in this run; this is another", "warn")]
    chips += [Chip(name.replace("_", " "), "warn") for name in _flags(cell)]
    seeds = len(cell.run.seeds)
    if seeds < ENOUGH:
        chips.append(Chip(f"{seeds} seed{'s' * (seeds > 1)}: no intervals", "warn"))
    trained = f"{cell.place} · {describe_training(cell.run)}"
    if cell.without:
        return _explain_status(cell, trained, chips)
    headline, lead = _say(cell)
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


def _say(cell: CellRecords) -> tuple[str, list[str]]:
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
        return f"Without attack, {defense} reaches {left}{_unit(scores)}.", [*said, *_beyond(cell.ran, scores)]
    attack, goal = cell.keys["attack"], threat["goal"]
    leak = next((known for known in FIGURES.values() if known.goal == goal and _values(cell.ran, known.of)), None)
    if goal in PRIVACY_GOALS:
        value = leak.format_with_unit(leak.estimate(_values(cell.ran, leak.of))) if leak else "no value"
        what = f"{leak.title}: {value}" if leak else value
        return f"{attack} against {defense}: {what}.", [
            f"The model has {left}{_unit(scores)}.",
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


def _unit(scores: CellScores) -> str:
    return " accuracy" if scores.metric.unit else " of return an episode"


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
    return f"{left}{_unit(scores)} is left{of}."


def _shares(scores: CellScores) -> Iterator[str]:
    """What silence alone would cost, and so what the attack itself does."""
    silent, harm = scores.loss_between("clean_defense", "silent_defense"), scores.loss_between("silent_defense", "own")
    if silent and harm:
        yield (
            f"Silence of the malicious clients would cost {_difference(scores, silent)}, so the attack itself costs "
            f"{_difference(scores, harm)}."
        )


def _beyond(records: Sequence[CompletedRecord], scores: CellScores) -> Iterator[str]:
    """What a guess has, and what is left of a model whose inputs are changed at test time."""
    chance = [record["result"]["chance"] for record in records]
    if scores.metric.unit and None not in chance:
        yield f"A guess has {FIGURES['final_accuracy'].quantity(sum(chance) / len(chance))}."  # type: ignore[arg-type]
    for name in ("evasion_accuracy", "evaded_return"):
        known = FIGURES[name]
        if values := _values(records, known.of):
            yield f"{known.title[0].upper()}{known.title[1:]}: {known.format_with_unit(known.estimate(values))}."


# ------------------------------------------------------------------------------------------------------------- screens


def _screens(cell: CellRecords, address: Address) -> Iterator[Block]:
    """Screen one: where the score went, and the curves. Screen two: classes, what attack and rule did, who saw what."""
    known = axes(cell.ran)
    over = cast("Axis", choose(address, "over", known, known[0]))
    if len(known) > 1:
        yield Choice("over", "Curves over", known, over, {name: AXES[name] for name in known})
    yield from summary(cell, over)
    clean = partners(cell.run, cell.ran, attacked=False)
    groups = {"this cell": cell.ran, **({"no attack": clean} if clean else {})}
    backdoor = [curves(groups, "backdoor", over)] if "backdoor" in measures(cell.ran) else []
    drawn = [one for one in (classes(cell.ran, clean), *backdoor) if one]
    did = rounds(cell.ran)
    if drawn or did.items:
        yield Columns([*drawn, *([did] if did.items else [])])
    for record in cell.ran[:1]:
        result = record["result"]
        if "nodes" in result:
            yield Columns([
                graph(result["nodes"], record["seed"]),
                over_rounds(result["nodes"], result["curve"]["round"], record["seed"]),
            ])  # fmt: skip
        if (found := result.get("time", {}).get("timeline")) is not None:
            yield timeline(found, record["seed"])
    yield Columns([sights(record["threat_card"]), needs(record["threat_card"])])


def summary(cell: CellRecords, over: Axis = "round") -> Iterator[Block]:
    """Where the score went, beside the curves of the cell, of no attack, and of the plain mean under the same attack."""
    measure: Measured = "returns" if "returns" in measures(cell.ran) else "accuracy"
    clean = partners(cell.run, cell.ran, attacked=False)
    plain = partners(cell.run, cell.ran, attacked=True) if cell.ran[0]["threat_card"]["defense"] != "mean" else []
    groups = {"this cell": cell.ran}
    groups |= ({"no attack": clean} if clean else {}) | ({"plain mean, same attack": plain} if plain else {})
    drawn = curves(groups, measure, over)
    yield Columns([drawn] if cell.without else [waterfall(CellScores(cell.ran), _say(cell)[0]), drawn])


# ------------------------------------------------------------------------------------------------------------ on demand


def _logs(cell: CellRecords) -> Iterator[Block]:
    """The log of each failed trial."""
    for row in cell.without:
        if row["status"] == "failed":
            path = cell.run.folder.log_path(row["cell"], row["seed"])
            yield More(f"The log of seed {row['seed']}", [Prose([str(path)]), Code(read_log(path))], _command(cell))


def read_log(path: Path) -> str:
    """The log of a failed trial, of a long one its end; or why there is none."""
    try:
        text = content(path).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return "There is no log: the attack's choice failed before, or the file was removed."
    except ValueError as error:
        return f"The log cannot be shown: {error}."
    return text if len(text) <= _LOG_SHOWN else f"... (the last {_LOG_SHOWN:,} characters)\n{text[-_LOG_SHOWN:]}"


def _command(cell: CellRecords) -> str:
    at = [part for key in cell.run.swept for part in ("--at", f"{key}={cell.keys[key]}")]
    pair = f"{cell.keys['attack']},{cell.keys['defense']}"
    return shlex.join(["fedguard", "show", cell.run.name, "--cell", pair, *at, "--all"])


def _more(cell: CellRecords) -> Iterator[Block]:
    command = _command(cell)
    if not cell.records:
        return
    ran, first = cell.ran, cell.records[0]
    if ran and not cell.without:
        table = metrics(ran)
        yield More(f"Metrics ({len(table.rows)})", [table], command)
    beside: list[Block] = [one for one in (parties(ran), minority(ran)) if one]
    if beside:
        yield More("Parties and clients with rare classes", beside, command)
    clean = partners(cell.run, ran, attacked=False)
    if "loss" in measures(ran):
        yield More(
            "The loss over the training",
            [curves({"this cell": ran, **({"no attack": clean} if clean else {})}, "loss", "round")],
            command,
        )
    facts = card(first["threat_card"])
    yield More(f"Threat card ({len(facts.rows)} facts)", [facts, kind(first)], command)
    if flags := [
        [str(record["seed"]), flag["flag"], flag["said"]] for record in cell.records for flag in record["flags"]
    ]:
        heads = [Heading("seed", number=True), Heading("flag"), Heading("what it says")]
        yield More(f"Red flags ({len(flags)})", [TableBlock(heads, flags, "Of single trials")], command)
    yield More(f"Trials ({len(cell.records)}: seconds, memory, versions)", [trials(cell.records)], command)
    timed = profile(cell.run.name, {(one["cell"], one["seed"]): one for one in ran}, [cell.position])
    if timed.cells:
        said = Prose([f"Every cell of the run: {shlex.join(['fedguard', 'show', cell.run.name, '--profile'])}"])
        yield More(
            f"Where the time went ({timed.cells[0].ms_per_round:.3g} ms a round)",
            [stages(timed.cells[0]), said],
            command,
        )
    elif ran:
        yield Prose([timed.without()])
    suite = {"name": f"{cell.run.name}-cell", "seeds": cell.run.seeds, **first["config"]}
    how = "Save these lines as cell.yaml: this cell with every default spelled out. Then run: fedguard run cell.yaml"
    lines = Code(yaml.safe_dump(suite, sort_keys=False), "yaml")
    yield More("How to run it again: a suite file", [Prose([how]), lines], command)


CELL = Page("cell", "Cell", blocks)
