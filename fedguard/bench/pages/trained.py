"""What was trained: one line for every page, six facts for the overview, and what its metrics compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any, cast

from fedguard.bench.pages.blocks import Chip, Facts
from fedguard.bench.records import taxonomy
from fedguard.bench.records.record import silent_mean
from fedguard.bench.records.schema import CompletedRecord, Result, ThreatCard
from fedguard.bench.records.schema.result import MaskingRecord
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, number_at
from fedguard.metrics.returns import in_shares
from fedguard.metrics.stats import estimate

#: More values of one kind than this are only counted
_NAMED = 3


def describe_training(run: Run) -> str:
    """``quick · digits, softmax · 4 of 20 clients malicious · fedavg, 30 rounds · 3 seeds``."""
    records = [record for _, record in run.trials()]
    cards = [record["threat_card"] for record in records]
    attacked = [f"{card['malicious']} of {card['clients']}" for card in cards if card["attack"] and card["malicious"]]
    parts = [
        _list(_task(record) for record in records),
        _list(attacked, " clients malicious")
        or _list((str(card["clients"]) for card in cards), " clients, none malicious"),
        _list(_training(record) for record in records),
        _seeds(run),
    ]
    return " · ".join([run.name, *filter(None, parts)])


def states(run: Run) -> list[Chip]:
    """Whether the run is complete, and the numbers of its trials by status."""
    rows = run.rows()
    counts = Counter(row["status"] for row in rows)
    whole = not (counts["missing"] or run.failures or run.broken)
    others = [f"{counts[status]} {status}" for status in ("refused", "failed", "missing") if counts[status]]
    others += [f"{count_controls(controls)} failed"] if (controls := len(run.failures) - counts["failed"]) else []
    others += [f"{len(run.broken)} damaged"] if run.broken else []
    trials = ", ".join([f"{counts['ok']} of {len(rows)} trials", *(others or ["none refused, none failed"])])
    return [Chip("✓ complete", "good") if whole else Chip("not complete", "warn"), Chip(trials)]


def count_controls(number: int) -> str:
    """A number of trials that are no part of the matrix, trained to compare with."""
    return f"{number} control{'s' * (number > 1)}"


def facts(run: Run) -> Facts:
    """Task, data, threat, training, what the server sees, and the software."""
    records = [record for _, record in run.trials()]
    if not records:
        return Facts([("Trials", ["none has run"])], "What was trained")
    cards = [record["threat_card"] for record in records]
    threats = list(dict.fromkeys(card["in_words"] for card in cards if card["attack"]))
    said = (
        ["nobody is malicious"] if not threats else threats if len(threats) <= 2 else [f"{len(threats)} threat models"]
    )
    items = [
        ("Task", [_list(_task(record) for record in records)]),
        ("Data", [_list(_partition(record) for record in records), *_dissimilarity(records)]),
        ("Threat", said),
        (
            "Training",
            [
                _list(_training(record) for record in records),
                _list(_steps(record) for record in records),
                *_personal(records),
            ],
        ),
        ("The server sees", [*_without_server(records), *_masks(records), *_notes(cards)]),
        ("Kind", [taxonomy.in_words(list({record["cell"]: record for record in records}.values()))]),
        ("Made with", [_seeds(run), *_software(run)]),
    ]
    return Facts([(name, [line for line in lines if line]) for name, lines in items], "What was trained")


def references(run: Run, cells: Iterable[str] | None = None) -> dict[str, float]:
    """Shares to compare with: chance, the root data alone, the honest clients alone, on these cells and the controls.

    Args:
        cells: of one setting; None for all of the run.
    """
    kept = set(cells if cells is not None else (cell for cell, _ in run.ran))
    records = [record for (cell, _), record in run.ran.items() if cell in kept]
    found = {}
    for name, value in (
        ("chance", lambda result: result["chance"]),
        ("root data alone", partial(number_at, path=("references", "root_only"))),
        ("honest clients alone", silent_mean),
    ):
        by_seed = {record["seed"]: value(_in_shares(record)) for record in records}
        by_seed |= {r["seed"]: value(_in_shares(r)) for r in records if r["threat_card"]["attack"]}
        values = [one for one in by_seed.values() if one is not None]
        if values:
            found[name] = estimate(values).mean
    return found


def _in_shares(record: CompletedRecord) -> Result:
    return cast(Result, in_shares(record["result"]))


def _list(values: Iterable[str], unit: str = "") -> str:
    """The distinct values, or how many there are."""
    names = [one for one in dict.fromkeys(values) if one]
    return "" if not names else (" or ".join(names) if len(names) <= _NAMED else f"{len(names)} settings") + unit


def _seeds(run: Run) -> str:
    return f"{len(run.seeds)} seed{'s' * (len(run.seeds) != 1)}"


def _task(record: CompletedRecord) -> str:
    task = record["config"]["task"]
    return f"{task['data']['name']}, {task['model']['name']}"


def _training(record: CompletedRecord) -> str:
    rounds, card = record["config"]["training"]["rounds"], record["threat_card"]
    architecture = card.get("architecture", "server")
    where = "" if architecture == "server" else f" on {architecture}"
    return f"{card['algorithm']}{where}" + (f", {rounds} rounds" if rounds else "")


def _steps(record: CompletedRecord) -> str:
    training: Mapping[str, Any] = record["config"]["training"]
    names = {"batch_size": "batch", "lr": "lr", "momentum": "momentum"}
    return ", ".join(f"{name} {training[key]:g}" for key, name in names.items() if training.get(key))


def _partition(record: CompletedRecord) -> str:
    partition, name = dict(record["config"]["task"]["partition"]), record["threat_card"]["partition"]
    alpha = partition.get("alpha")
    return f"{name}, alpha {alpha:g}" if isinstance(alpha, float) and name == partition["name"] else name


def _dissimilarity(records: Sequence[CompletedRecord]) -> Iterator[str]:
    measured = [one for record in records if (one := record["threat_card"]["dissimilarity"]) is not None]
    if measured and len({(_task(record), _partition(record)) for record in records}) == 1:
        yield f"label distance {estimate([one['label_distance'] for one in measured]).mean:.2f} (0 alike, 1 disjoint)"
        yield f"gradient dissimilarity {estimate([one['gradient_dissimilarity'] for one in measured]).mean:.2f}"


def _personal(records: Sequence[CompletedRecord]) -> Iterator[str]:
    """What accuracy is where each client has running statistics of its own."""
    personal = sum("worst" in (record["result"].get("statistics") or ()) for record in records)
    if personal:
        some = "" if personal == len(records) else " of some cells"
        yield f"accuracy{some} is the mean over honest clients of each one's own model on its own shares of the labels"


def say_who_sees(records: Sequence[CompletedRecord]) -> str:
    """Who sees each update where nothing is masked."""
    shapes = {taxonomy.taxonomy(one)[3].word for one in {record["cell"]: record for record in records}.values()}
    server, nodes = "The server sees each client's update.", "each node sees what its neighbors send."
    if shapes == {"decentralized"}:
        return f"There is no server: {nodes}"
    return f"{server} Where there is no server, {nodes}" if "decentralized" in shapes else server


def _without_server(records: Sequence[CompletedRecord]) -> Iterator[str]:
    said = say_who_sees(records)
    if "no server" in said:
        yield said


def _masks(records: Sequence[CompletedRecord]) -> Iterator[str]:
    """Each mode of secure aggregation: who was hidden, and how exact the sums were."""
    modes: dict[str, list[MaskingRecord]] = {}
    for record in records:
        card, sums = record["threat_card"], record["result"]["secure_aggregation"]
        mode = card["secure_aggregation"] + (", with noise" if card["noise"] else "")
        modes.setdefault(mode, []).extend([sums] if sums else [])
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
        yield f"Secure aggregation, {mode}: {said}" if found else f"Secure aggregation: {mode}"


def _notes(cards: Sequence[ThreatCard]) -> list[str]:
    """What the epsilons cover."""
    notes = list(dict.fromkeys(str(card["epsilon_note"]) for card in cards))
    return notes if len(notes) <= _NAMED else [f"{len(notes)} settings of differential privacy"]


def _software(run: Run) -> Iterator[str]:
    environments = [record["environment"] for record in run.ran.values()]
    codes = _list(digest[:8] for one in environments for digest in one.get("code", {}).values())
    yield f"FedGuard {_list(one['fedguard'] for one in environments)}" + (f", code {codes}" if codes else "")
    yield f"torch {_list(one['torch'] for one in environments)}"
    yield datetime.fromtimestamp(run.manifest["started"], UTC).strftime("%Y-%m-%d %H:%M UTC")


def percent(share: float) -> str:
    """``10.3 %``."""
    return FIGURES["final_accuracy"].quantity(share)
