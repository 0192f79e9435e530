"""The overview of a run: the verdict, how far each defense falls, what was trained, and what speaks against quoting it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from fedguard.bench.pages.blocks import Action, Address, Block, Choice, Heading, More, TableBlock, Verdict, choose
from fedguard.bench.pages.checks import all_checks, checks, run_again
from fedguard.bench.pages.overview_chart import chart
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.trained import describe_training, facts, percent, references, states
from fedguard.bench.records.schema.result import WorstCaseRecord
from fedguard.bench.results.answer import RULE, DefenseSummary, standings
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.bench.results.verdict import RunVerdict
from fedguard.metrics.returns import in_shares
from fedguard.metrics.stats import estimate, over_seeds


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The setting with the most values, or the one of the address under ``setting``."""
    found = standings(run)
    settings = sorted(dict.fromkeys(one.setting for one in found), key=lambda place: -_values(found, place))
    chosen = choose(address, "setting", settings, settings[0] if settings else "")
    verdict = run.verdicts.get(chosen, RunVerdict("This run has no attack on the training."))
    measured = [one for one in found if one.setting == chosen and (one.clean or one.worst)]
    if verdict.ranked:
        measured.sort(key=lambda one: -1.0 if one.kept is None else one.kept, reverse=True)
    yield Verdict(verdict.headline, verdict.lead, describe_training(run), states(run), list(_actions(run, verdict)))
    if len(settings) > 1:
        yield Choice("setting", ", ".join(run.swept), settings, chosen)
    if measured:
        cells = [row["cell"] for row in run.rows() if setting(row, run.swept) == chosen]
        yield chart(measured, verdict, references(run, cells))
    yield facts(run)
    yield checks(run, verdict.group)
    yield from all_checks(run)
    yield from _more(run, found, chosen)


def _values(found: Sequence[DefenseSummary], place: str) -> int:
    return sum(one.measured + (one.clean is not None) for one in found if one.setting == place)


def _actions(run: Run, verdict: RunVerdict) -> Iterator[Action]:
    if verdict.action:
        seeds = re.search(r"seeds: (\d+)", verdict.action)
        yield Action(verdict.action, run_again(run, "--set", f"seeds={seeds[1]}") if seeds else "")


def _more(run: Run, found: Sequence[DefenseSummary], chosen: str) -> Iterator[Block]:
    whole = f"fedguard show {shlex.quote(run.name)} --all"
    others = {place: verdict for place, verdict in run.verdicts.items() if place != chosen}
    if others:
        rows = [[place, verdict.headline] for place, verdict in others.items()]
        table = TableBlock([Heading("setting"), Heading("verdict")], rows, "The verdicts of the other settings")
        yield More(f"Other settings ({len(others)})", [table], whole)
    texts = [one.texts() for one in found]
    names = [name for name in texts[0] if any(text[name] for text in texts)] if texts else []
    columns = [Heading(name, number=name.endswith((", %", ", points", "epsilon"))) for name in names]
    said = (
        f"{over_seeds(len(run.seeds)).capitalize()}. {RULE} The robustness tax is what a defense costs where nobody attacks: "
        "the clean accuracy of the plain mean less its own."
    )
    if texts:
        table = TableBlock(columns, [[text[name] for name in names] for text in texts], said)
        yield More(f"Defense by defense, with the cost without attack ({len(texts)})", [table], whole)
    if worst := list(_worst_cases(run)):
        heads = ["cell", "chosen", "accuracy, %", "when chosen, %", "among", "next", "further kinds may take, points"]
        said = "Chosen on seeds of their own and reported on others"
        table = TableBlock([Heading(head) for head in heads], worst, said)
        yield More(f"Worst cases, and how they were chosen ({len(worst)})", [table], whole)


def _worst_cases(run: Run) -> Iterator[list[str]]:
    """The attack chosen by each ensemble, and the uncertainty of the choice."""
    told: dict[str, tuple[WorstCaseRecord, list[float]]] = {}
    for record in run.ran.values():
        choice = record["result"].get("worst_case")
        if choice:
            told.setdefault(record["label"], (choice, []))[1].append(in_shares(record["result"])["final_accuracy"])
    for label, (choice, finals) in told.items():
        scored = [score for score in choice["scores"] if score["seeds"]]
        second = next((one for one in scored if one["attack"] != choice["chosen"]), None)
        further = choice["saturation"]["further"] if choice["saturation"] else None
        yield [
            label.removeprefix(choice["ensemble"]).strip(),
            choice["chosen"] or "-",
            _points(estimate(finals).mean),
            _points(choice["selection_accuracy"]),
            str(len(scored)),
            f"{second['attack']}, {_points(second['accuracy'])} %" if second else "",
            _points(further),
        ]


def _points(share: float | None) -> str:
    return "-" if share is None else percent(share).removesuffix(" %")


OVERVIEW = Page("overview", "Overview", blocks)
