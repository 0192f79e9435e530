"""The scores of a cell and of the trials it is compared with, paired by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedguard.bench.records.record import silent_mean
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, Metric
from fedguard.metrics.returns import controls, score, within
from fedguard.metrics.stats import Estimate

#: A control, or the cell itself, and what it is called
_PLACES = {
    "clean_mean": "no attack, plain mean",
    "clean_defense": "no attack",
    "silent_defense": "silent",
    "own": "left",
}


class ScoreStep(NamedTuple):
    """What is lost from one control to the next, or a control's own score.

    Attributes:
        name: such as ``the attack itself``.
        total: whether it is a score, and no loss.
        found: mean over seeds; of a loss more is worse.
        values: by seed, in the order of the records.
        end: the mean score after it.
    """

    name: str
    total: bool
    found: Estimate
    values: Sequence[float]
    end: float


class CellScores:
    """Scores by seed. Actors are judged by returns.

    Args:
        records: of one cell, one for each seed.
    """

    def __init__(self, records: Sequence[CompletedRecord]) -> None:
        self.records = records
        returns = "returns" in records[0]["result"]
        self.metric: Metric = FIGURES["final_return" if returns else "final_accuracy"]
        self.loss: Metric = FIGURES["return_drop" if returns else "accuracy_drop"]
        self.attacked = records[0]["threat_card"]["attack"] is not None

    def of(self, name: str) -> list[float] | None:
        """The score of a control, or of the cell under ``own``, for each seed; None unless all seeds have it."""
        found = [self._value(record["result"], name) for record in self.records]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    @staticmethod
    def _value(result: Any, name: str) -> float | None:
        found = score(result) if name == "own" else controls(result).get(name)
        if found is None and name == "silent_mean" and "returns" not in result:
            found = silent_mean(result)  # as older records call it
        return within(found, result["returns"]) if found is not None and "returns" in result else found

    def mean(self, name: str) -> Estimate | None:
        """The mean of a score over seeds."""
        values = self.of(name)
        return None if values is None else self.metric.estimate(values)

    def loss_between(self, before: str, after: str) -> Estimate | None:
        """The mean over seeds of what is lost from one to the other, each with the same seed."""
        first, second = self.of(before), self.of(after)
        return None if first is None or second is None else self.loss.estimate(self._subtract(first, second))

    def _subtract(self, before: Sequence[float], after: Sequence[float]) -> list[float]:
        lost = [one - other for one, other in zip(before, after, strict=True)]
        if self.metric.unit:
            return lost
        results = [record["result"] for record in self.records]
        return [within(value, result["returns"], change=True) for value, result in zip(lost, results, strict=True)]

    def steps(self) -> Iterator[ScoreStep]:
        """From the first control that ran to the cell: its score, each loss, and what is left."""
        names = list(_PLACES) if self.attacked else ["clean_mean", "own"]
        if self.records[0]["threat_card"]["defense"] == "mean":
            names.remove("clean_mean")
        known = {name: values for name in names if (values := self.of(name)) is not None}
        for (before, first), (after, values) in zip(known.items(), list(known.items())[1:], strict=False):
            if before == next(iter(known)):
                start = self.metric.estimate(first)
                yield ScoreStep(_PLACES[before], True, start, first, start.mean)
            lost = self._subtract(first, values)
            end = self.metric.estimate(values).mean
            yield ScoreStep(self._name(before, after), False, self.loss.estimate(lost), lost, end)
        own = known["own"]
        found = self.metric.estimate(own)
        yield ScoreStep("left" if len(known) > 1 else "final score", True, found, own, found.mean)

    def _name(self, before: str, after: str) -> str:
        if after == "clean_defense" or not self.attacked:
            return "cost of the defense"
        if after == "silent_defense":
            return f"{self.records[0]['threat_card']['malicious']} malicious silent"
        return "the attack itself" if before == "silent_defense" else "the attack"


def partners(run: Run, records: Sequence[CompletedRecord], *, attacked: bool) -> list[CompletedRecord]:
    """For each seed the training that a cell is compared with; empty if it was not run.

    Args:
        attacked: with the plain mean under the same attack; otherwise with the same defense without attack.
    """
    if not records or not records[0]["threat_card"]["attack"]:
        return []
    wanted = {record["seed"]: _relevant_keys(record["config"], attacked) for record in records}
    attack, defense = (records[0]["config"][key] for key in ("attack", "defense"))
    found = []
    for record in run.ran.values():
        config = record["config"]
        near = (
            config["attack"] == attack and record["threat_card"]["defense"] == "mean"
            if attacked
            else config["attack"] == "none" and config["defense"] == defense
        )
        if near and _relevant_keys(config, attacked) == wanted.get(record["seed"]):
            found.append(record)
    return found if len({one["cell"] for one in found}) == 1 else []


def _relevant_keys(config: Mapping[str, Any], attacked: bool) -> dict[str, Any]:
    """A configuration without its defense, or without the settings of an attack."""
    left_out = ("defense",) if attacked else ("attack", "threat", "observer")
    kept = {key: value for key, value in config.items() if key not in left_out}
    return kept if attacked else {**kept, "clients": {**config["clients"], "malicious": 0}}
