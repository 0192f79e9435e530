"""One attack against one defense: what happened, beside what it is compared with, and under which assumptions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import yaml

from fedguard.bench.pages.blocks import (
    Address,
    Block,
    Choice,
    Code,
    Columns,
    Heading,
    More,
    Prose,
    TableBlock,
    choose,
)
from fedguard.bench.pages.cell_chart import AXES, axes, classes, curves, measures, waterfall
from fedguard.bench.pages.cell_events import graph, over_rounds, timeline
from fedguard.bench.pages.cell_facts import (
    card,
    fates,
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
from fedguard.bench.pages.cell_scores import CellScores
from fedguard.bench.pages.cell_verdict import CellRecords, judge_cell, sum_up_cell
from fedguard.bench.pages.page import Page
from fedguard.bench.records.reading import content
from fedguard.bench.records.schema import Position
from fedguard.bench.records.schema.result import Axis, Measured
from fedguard.bench.results.answer import standings
from fedguard.bench.results.places import setting
from fedguard.bench.results.profile import profile
from fedguard.bench.results.run import Run
from fedguard.errors import UnknownName

#: Cells in a report
_LEADERS = 3

#: Characters of a log that are shown, from its end
_LOG_SHOWN = 20_000


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The cell of the address under attack, defense and the swept keys; ``cell`` is its hash, for links of earlier versions."""
    positions = run.manifest["positions"]
    keys = ["attack", "defense", *run.swept]
    position, known = _find(run, address, keys)
    cell = CellRecords(run, position)
    yield judge_cell(cell, known)
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


# ------------------------------------------------------------------------------------------------------------- screens


def _screens(cell: CellRecords, address: Address) -> Iterator[Block]:
    """Screen one: where the score went, and the curves. Screen two: classes, what attack and rule did, who saw what."""
    known = axes([*cell.ran, *cell.clean, *cell.plain])
    over = cast("Axis", choose(address, "over", known, known[0]))
    if len(known) > 1:
        yield Choice("over", "Curves over", known, over, {name: AXES[name] for name in known})
    yield from _summary(cell, over)
    groups = {"this cell": cell.ran, **({"no attack": cell.clean} if cell.clean else {})}
    backdoor = [curves(groups, "backdoor", over)] if "backdoor" in measures(cell.ran) else []
    drawn = [one for one in (classes(cell.ran, cell.clean), *backdoor) if one]
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


def _summary(cell: CellRecords, over: Axis = "round") -> Iterator[Block]:
    """Where the score went, beside the curves of the cell, of no attack, and of the plain mean under the same attack."""
    measure: Measured = "returns" if "returns" in measures(cell.ran) else "accuracy"
    groups = {"this cell": cell.ran, "no attack": cell.clean, "plain mean, same attack": cell.plain}
    groups = {name: records for name, records in groups.items() if records}
    drawn = curves(groups, measure, over)
    yield Columns([drawn] if cell.without else [waterfall(CellScores(cell.ran), sum_up_cell(cell)[0]), drawn])


def worst_cells(run: Run) -> Iterator[Block]:
    """The cells that matter: each defense of a leading group under its worst attack, the first few of them."""
    leaders = [one for one in standings(run) if one.worst and one.defense in run.verdicts[one.setting].group]
    for one in leaders[:_LEADERS]:
        place = (one.worst.attack if one.worst else "", one.defense, one.setting)
        for position in run.manifest["positions"]:
            swept = position["swept"]
            if (swept["attack"], swept["defense"], setting(swept, run.swept)) == place:
                cell = CellRecords(run, position)
                if cell.ran and not cell.without:
                    headline, lead = sum_up_cell(cell)
                    yield Prose(lead, headline)
                    scores = waterfall(CellScores(cell.ran), headline).table  # pictures would double the report
                    yield More("Scores beside its controls", [scores] if scores else [])
                break


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
    yield from (More(f"Running statistics ({len(one.rows)} fates)", [one], command) for one in [fates(ran)] if one)
    if "loss" in measures(ran):
        yield More(
            "The loss over the training",
            [curves({"this cell": ran, **({"no attack": cell.clean} if cell.clean else {})}, "loss", "round")],
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
