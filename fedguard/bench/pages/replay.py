"""The rounds of a trial: its updates in a plane, what each weighs in the aggregate, and where the aggregate fell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from fedguard.bench.pages.blocks import (
    Action,
    Address,
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
from fedguard.bench.pages.replay_chart import chart, small_multiples
from fedguard.bench.pages.trained import describe_training, percent, states
from fedguard.bench.records import replay
from fedguard.bench.records.record import curve
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.places import setting
from fedguard.bench.results.replay import RoundInPlane, draw_in_plane
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError

#: The two choices of axes
_AXES = {"round": "of each round: along the honest mean, across it", "first": "of the first round, fixed"}


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The cell of the address under ``cell`` or by its swept values, the axes under ``axes``, the round under ``round``."""
    kept = {record["cell"]: (swept, record) for swept, record in _list_replays(run)}
    cells = {cell: _name(run, swept) for cell, (swept, _) in kept.items()}
    if not cells:
        add = Action("To keep rounds, add `replay: {}` to the suite and run it again, or see", "examples/rounds.yaml")
        yield Verdict("This run keeps no rounds to replay", (), describe_training(run), states(run), [add])
        return
    asked = {key: address[key] for key in ("attack", "defense", *run.swept) if key in address}
    fitting = [cell for cell, (swept, _) in kept.items() if all(str(swept[key]) == asked[key] for key in asked)]
    attacked = [cell for cell in fitting or cells if kept[cell][1]["threat_card"]["attack"]]
    cell = choose(address, "cell", list(cells), [*attacked, *fitting, *cells][0])
    axes = choose(address, "axes", list(_AXES), "round")
    record = kept[cell][1]
    try:
        rounds = draw_in_plane(replay.load(run.folder, cell, record["seed"]), "first" if axes == "first" else "round")
    except StoreError as error:  # the other cells can be replayed
        damaged = f"The rounds of {cells[cell]} cannot be replayed"
        yield Verdict(damaged, [str(error)], describe_training(run), states(run))
        yield Choice("cell", "Cell", list(cells), cell, cells)
        return
    yield _verdict(run, record, rounds)
    yield Choice("cell", "Cell", list(cells), cell, cells)
    if not rounds:
        return
    yield Choice("axes", "Axes", list(_AXES), axes, _AXES)
    numbers = [str(one.kept.round) for one in rounds]
    chosen = choose(address, "round", numbers, numbers[-1])
    yield Choice("round", "Round", numbers, chosen, ordered=True)
    scores = _scores(record)
    yield chart(rounds, numbers.index(chosen), scores, axes, cells[cell])
    yield _table(rounds, scores)
    if len(rounds) > 1:
        several = small_multiples(rounds, axes, cells[cell])
        count = len(several.table.rows)
        yield More(f"{count} of {len(rounds)} rounds beside each other", [several])
    yield Prose(list(_reading(record, axes)), "How to read it")


def _list_replays(run: Run) -> Iterator[tuple[Mapping[str, Any], CompletedRecord]]:
    """The trials with kept rounds, of each cell the first, by the cell's place in the matrix, with the swept values."""
    seen = set[str]()
    for swept, record in run.trials():
        if record["cell"] not in seen and run.folder.replay_path(record["cell"], record["seed"]).exists():
            seen.add(record["cell"])
            yield swept, record


def _name(run: Run, swept: Mapping[str, Any]) -> str:
    where = setting(swept, run.swept)
    return f"{swept['attack']} against {swept['defense']}{f', {where}' if where else ''}"


def _verdict(run: Run, record: CompletedRecord, rounds: Sequence[RoundInPlane]) -> Verdict:
    card, trained, chips = record["threat_card"], describe_training(run), states(run)
    if not rounds:
        return Verdict("No update arrived in any round, so there is nothing to replay", (), trained, chips)
    under = f"Under {card['attack']}" if card["attack"] else "Without attack"
    lead = [f"Seed {record['seed']}, {len(rounds)} of {record['config']['training']['rounds']} rounds kept."]
    headline, progress = f"{under}, {_headline(card['defense'], rounds)}", _progress(rounds)
    if progress and " of the way to " not in headline:
        lead.append(progress)
    lead.append(_say_variance(rounds))
    if card["secure_aggregation"] != "none":
        lead.append("This is the evaluator's view: under secure aggregation the server sees no single update.")
    return Verdict(headline, lead, trained, chips)


def _headline(defense: str, rounds: Sequence[RoundInPlane]) -> str:
    acted = [one for one in rounds if one.malicious and one.kept.aggregated]
    weights = [one.malicious_weight for one in acted if one.malicious_weight is not None]
    if not weights:
        return _progress(rounds, f"the aggregate of {defense}").rstrip(".") or f"{defense} aggregated no round"
    who, most = "the malicious clients", max(one.malicious for one in acted)
    if most == min(one.malicious for one in acted):
        who = f"the {most} malicious clients" if most > 1 else "the malicious client"
    none = sum(weight < 1e-9 for weight in weights)
    if none:
        return f"{defense} gave {who} no weight in {none} of {len(weights)} rounds"
    share = median(one.malicious / len(one.kept.clients) for one in acted)
    return (
        f"{defense} gave {who}, who sent {percent(share)} of the updates, {percent(median(weights))} of the weight (medians of "
        f"{len(weights)} rounds)"
    )


def _progress(rounds: Sequence[RoundInPlane], who: str = "The aggregate") -> str:
    made = [one.progress for one in rounds if one.progress is not None]
    if not made:
        return ""
    back = sum(one < 0 for one in made)
    said = f"{who} went {median(made):.2f} of the way to the honest mean (median of {len(made)} rounds)"
    return said + (f", and backward in {back}." if back else ".")


def _say_variance(rounds: Sequence[RoundInPlane]) -> str:
    shares = sorted(one.explained for one in rounds)
    ends = f", {percent(shares[0])} to {percent(shares[-1])} over the rounds" if shares[0] < shares[-1] - 0.0005 else ""
    return f"The plane keeps {percent(median(shares))} of the updates' variance (median{ends})."


def _scores(record: CompletedRecord) -> Mapping[int, float]:
    """Accuracy in percent by evaluated round; of actors the return."""
    shares = {int(at): 100 * value for at, value in curve(record, "accuracy")}
    return shares or {int(at): value for at, value in curve(record, "returns")}


def _table(rounds: Sequence[RoundInPlane], scores: Mapping[int, float]) -> TableBlock:
    heads = ["round", "updates", "malicious", "their weight, %", "aggregate along the honest mean",
             "aggregate from the honest mean", "variance kept, %", "accuracy or return"]  # fmt: skip
    rows = [
        [
            str(one.kept.round), str(len(one.kept.clients)), str(one.malicious),
            None if one.malicious_weight is None else f"{100 * one.malicious_weight:.1f}",
            *(None if value is None else f"{value:.2f}" for value in (one.progress, one.missed)),
            f"{100 * one.explained:.1f}",
            None if one.kept.round not in scores else f"{scores[one.kept.round]:.1f}",
        ]
        for one in rounds
    ]  # fmt: skip
    about = "In lengths of the honest mean; distances are in all coordinates, not in the plane."
    return TableBlock([Heading(head, number=True) for head in heads], rows, about, "Round by round")


def _reading(record: CompletedRecord, axes: str) -> Iterator[str]:
    if axes == "first":
        yield (
            "Both axes are the same vectors in all rounds: along the honest mean of the first kept round, and across it where "
            "its updates vary most; one unit is the length of that mean. Later updates turn away from them and become shorter."
        )
    else:
        yield (
            "x is along the mean of the round's honest updates, in its lengths: the model before the round is at 0, the honest "
            "mean at 1. y is across it, where all updates of the round vary most. The axes mean the same in every round, and "
            "are other vectors in each."
        )
    yield "Two updates that are close in the plane may be far apart elsewhere; the table of the chart has their true distances."
    if record["threat_card"]["defense"] and record["result"]["secure_aggregation"]:
        yield "A client behind a sum has an equal part of the weight of the sum."


REPLAY = Page("replay", "Round replay", blocks)
