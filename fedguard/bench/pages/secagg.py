"""Secure aggregation in a run: what each mode hides, costs and leaves of the accuracy, and which sums were lost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Bar,
    Block,
    Choice,
    Heading,
    More,
    Prose,
    TableBlock,
    Verdict,
    choose,
)  # fmt: skip
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.protections import SEES, Protection, list_protections, other_keys
from fedguard.bench.pages.trained import describe_training, say_who_sees, states
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.disclosure import MaskingResult, summarize_masking
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import Estimate, bracket, over_seeds

#: A mode, and what its sums measured; None without masks
Mode = tuple[Protection, MaskingResult | None]


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The modes of the run, under one setting of the other swept keys, with the accuracy of one defense."""
    rows = run.rows()
    others = list(dict.fromkeys(setting(row, other_keys(run)) for row in rows))
    defenses = list(dict.fromkeys(row["defense"] for row in rows))
    other = choose(address, "setting", others, others[0] if others else "")
    defense = choose(address, "defense", defenses, "mean" if "mean" in defenses else next(iter(defenses), ""))
    sums = {one.setting: one for one in summarize_masking(run)}
    found: list[Mode] = [
        (one, sums.get(setting(one.rows[0], run.swept))) for one in list_protections(run, other, defense, None)
    ]
    masked = [(one, its) for one, its in found if its is not None]
    yield _verdict(run, masked)
    if len(others) > 1:
        yield Choice("setting", ", ".join(other_keys(run)), others, other)
    if not masked:
        return
    if len(defenses) > 1:
        yield Choice("defense", "accuracy of", defenses, defense)
    yield from _tables(run, found, defense)
    lost = [
        f"{one.name}: {its.aborted} of {its.sessions} sums lost. The first: {its.why}" for one, its in masked if its.why
    ]
    if lost:
        yield Prose(lost, "Aborted sessions")
    refused = [row for row in rows if row["status"] == "refused" and setting(row, other_keys(run)) == other]
    if refused:
        lines = list(reason_lines([(run.place(row), str(row["reason"])) for row in refused], "trials"))
        command = f"fedguard show {shlex.quote(run.name)} --page secagg --all"
        cells = len({row["cell"] for row in refused})
        yield More(f"Refused, and why ({cells} cell{'s' * (cells != 1)})", [Prose(lines)], command)


def _verdict(run: Run, masked: Sequence[tuple[Protection, MaskingResult]]) -> Verdict:
    trained, chips = describe_training(run), states(run)
    if not masked:
        make = Action("To make a run with masks:", "fedguard run examples/secure_aggregation.yaml")
        sees = say_who_sees([record for _, record in run.trials()])
        return Verdict("This run masks nothing", [sees], trained, chips, [make])
    crowds = [f"{its.anonymity} clients ({_name(one)})" for one, its in masked if its.anonymity is not None]
    headline = f"An update hides among at least {', '.join(crowds)}" if crowds else "No sum came out, so none was shown"
    lost, sessions = sum(its.aborted for _, its in masked), sum(its.sessions for _, its in masked)
    errors = [its.error.mean for one, its in masked if its.error and not one.noisy]
    lead = ["Colluders are not counted."]
    lead += [f"{lost} of {sessions} sums were lost." if lost else f"None of {sessions} sums was lost."]
    lead += (
        [f"Without noise, sums are off by {max(errors):.1g} of the mean's length on average, or less."]
        if errors
        else []
    )
    return Verdict(headline, lead, trained, chips)


def _name(one: Protection) -> str:
    return one.name if one.noisy else one.mode.replace("_", " ")


def _tables(run: Run, found: Sequence[Mode], defense: str) -> Iterator[TableBlock]:
    """What each mode hides, what it costs, and what it leaves of the accuracy, each narrow enough for a page."""
    accuracy = FIGURES["final_accuracy"]
    hides, costs, leaves = ([[one.name] for one, _ in found] for _ in range(3))
    bars: list[Bar | None] = []
    for number, (one, its) in enumerate(found):
        clean, worst = (one.summary.clean, one.summary.worst) if one.summary else (None, None)
        seconds = [row["seconds"] for row in one.rows if row["status"] == "ok"]
        crowd = str(its.anonymity or "-") if its else "1"
        hides[number] += [SEES.get(one.mode, one.about), crowd, _defenses(run, one)]
        sent = [_spread(way, ",.0f") for way in (its.up, its.down)] if its else ["0", "0"]
        lost = f"{its.aborted} of {its.sessions}" if its else "-"
        costs[number] += [*sent, f"{fmean(seconds):.1f}" if seconds else "-", lost]
        leaves[number] += [
            accuracy.format_estimate(clean) if clean else "-",
            accuracy.format_estimate(worst.estimate) if worst else "-", worst.attack if worst else "-",
            *((_spread(its.error, ".2g"), accuracy.format_estimate(its.clipped)) if its else ("-", "-")),
        ]  # fmt: skip
        bars.append(_bar(worst.estimate, None if clean is None else 100 * clean.mean) if worst else None)
    mean = over_seeds(len(run.seeds))
    yield _draw(
        "hides", ("the server sees", "smallest crowd", "defenses that run"), hides, "Colluders are not counted."
    )
    yield _draw(
        "costs", ("bytes up, a client and round", "bytes down, a client and round", "seconds, a trial", "sums lost"), costs,
        f"Bytes are the protocol's own; {mean}.",
    )  # fmt: skip
    error = "Error: the distance from the true mean, in lengths of the true mean; noise for privacy is part of it."
    said = f"Accuracy of {defense}; {mean}. {error}"
    heads = ("no attack, %", "worst attack, %", "which", "error of the mean", "updates cut, %")
    legend = "● worst attack   ─ 95 % interval   ○ no attack"
    yield replace(_draw("leaves", heads, leaves, said), bars=bars, legend=legend)


def _draw(does: str, heads: Sequence[str], rows: list[list[str]], caption: str) -> TableBlock:
    return TableBlock([Heading(name) for name in ("mode", *heads)], rows, caption, f"What each mode {does}")


def _bar(found: Estimate, ring: float | None) -> Bar:
    low, high = (None if end is None else 100 * end for end in (found.low, found.high))
    return Bar(100 * found.mean, low, high, ring)


def _defenses(run: Run, one: Protection) -> str:
    """How many defenses run, and which of them are refused."""
    where = setting(one.rows[0], run.swept)
    rows = [row for row in run.rows() if setting(row, run.swept) == where]
    names = list(dict.fromkeys(row["defense"] for row in rows))
    running = {row["defense"] for row in rows if row["status"] != "refused"}
    refused = [name for name in names if name not in running]
    return f"{len(names) - len(refused)} of {len(names)}" + (f"; refused: {', '.join(refused)}" if refused else "")


def _spread(one: Estimate | None, form: str) -> str:
    if one is None:
        return "-"
    return format(one.mean, form) + (f" {bracket(one.mean, one.half_width, form)}" if one.half_width else "")


SECAGG = Page("secagg", "Secure aggregation", blocks)
