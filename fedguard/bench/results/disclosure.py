"""The clients' privacy in records: guarantees, membership inference, reconstructions, and anonymity sets."""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedguard.bench.records.pictures import IMAGES, grid, load, png
from fedguard.bench.records.reading import content
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError
from fedguard.metrics.figures import SHARE
from fedguard.metrics.membership import pool_membership
from fedguard.metrics.stats import Bounds, Estimate, estimate

#: Largest size of the arrays of one file, in bytes.
LARGEST = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class TrialPosition:
    """Where in the matrix, and with which seed."""

    setting: str
    attack: str
    defense: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class PrivacyClaim:
    """The privacy guarantee of trials under one setting: epsilons with the same meaning, or none for the same reason.

    Attributes:
        setting: the values of the swept keys beside attack and defense.
        epsilon: the smallest and the largest over these trials; None without guarantee.
        why: the reason if there is none.
        attacks: the attacks of these trials; trials: their number.
        facts: delta, unit and so on from the record of the trial with the largest epsilon; empty without noise.
    """

    setting: str
    epsilon: tuple[float, float] | None
    why: str | None
    attacks: tuple[str, ...]
    trials: int
    facts: Mapping[str, Any]

    @property
    def unit(self) -> str | None:
        """Whose presence is hidden, and by which noise: ``record``, ``client``, or ``client (distributed)``."""
        if not self.facts:
            return None
        kind = str(self.facts["kind"])
        unit = self.facts.get("unit", kind)
        return kind if unit == kind else f"{unit} ({kind})"

    @property
    def figure(self) -> str:
        """``9.999``, ``30 to 33.5`` or ``no guarantee``."""
        if self.epsilon is None:
            return "no guarantee"
        least, largest = (f"{value:.4g}" for value in self.epsilon)
        return least if least == largest else f"{least} to {largest}"

    @property
    def words(self) -> str:
        """The figure with its meaning, in a sentence."""
        if self.why is not None:
            return f"{self.why[0].upper()}{self.why[1:]}."
        if not self.facts:
            return "No guarantee: the protocol adds no noise."
        if "delta" not in self.facts:
            return "Nothing was released, so nothing is lost."
        estimated = "" if self.facts["bound"] else " An estimate, which proves nothing."
        return (
            f"Hides one {self.facts['unit']} from whoever sees {self.facts['view']}: epsilon = {self.figure} at delta = "
            f"{self.facts['delta']:g}, by {self.facts['accountant']}. Neighbors: {self.facts['relation']}; sampling: "
            f"{self.facts['sampling']}.{estimated}"
        )


@dataclass(frozen=True, kw_only=True)
class MembershipResult:
    """Scores of a membership inference on one target; see `fedguard.metrics.membership`."""

    place: TrialPosition
    target: int
    score: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ReconstructionResult:
    """A reconstruction of one target with its scores; see `fedguard.metrics.reconstruction`.

    Attributes:
        arrays: the file of truth and claim; None if it is missing, or not known to belong to this target.
    """

    place: TrialPosition
    target: int
    score: Mapping[str, Any]
    arrays: Path | None


def promises(run: Run) -> list[PrivacyClaim]:
    """Every epsilon of a run, setting by setting, or why there is none."""
    found: dict[tuple[Any, ...], list[tuple[TrialPosition, Mapping[str, Any]]]] = {}
    for place, record in _trials(run):
        facts: Mapping[str, Any] = record["result"]["privacy"] or {}
        meaning = (place.setting, *(facts.get(key) for key in _MEANING), facts.get("epsilon") is None)
        found.setdefault(meaning, []).append((place, facts))
    return [_promise(members) for members in found.values()]


#: Facts that two epsilons must share to be stated together.
_MEANING = ("kind", "why", "unit", "delta", "relation", "sampling", "view", "accountant", "bound")


def _promise(members: list[tuple[TrialPosition, Mapping[str, Any]]]) -> PrivacyClaim:
    values = [facts.get("epsilon") for _, facts in members]
    known = [value for value in values if value is not None]
    first, worst = members[0], max(members, key=lambda one: one[1].get("epsilon") or 0.0)
    return PrivacyClaim(
        setting=first[0].setting,
        epsilon=(min(known), max(known)) if known else None,
        why=first[1].get("why"),
        attacks=tuple(dict.fromkeys(place.attack for place, _ in members)),
        trials=len(members),
        facts=worst[1],
    )


def list_membership_targets(run: Run) -> list[MembershipResult]:
    """The targets of all membership inferences."""
    return [
        MembershipResult(place=place, target=number, score=score)
        for place, record in _trials(run, "membership")
        for number, score in enumerate(_targets(record))
    ]


def pool_target_scores(targets: Sequence[MembershipResult]) -> Mapping[str, Any] | None:
    """The pooled score of several targets and seeds; None if a record of an earlier version lacks the scores."""
    if not targets or any("scores" not in one.score for one in targets):
        return None
    return pool_membership([one.score for one in targets])


def rebuilt(run: Run) -> list[ReconstructionResult]:
    """The targets of all reconstructions."""
    files: dict[str, list[tuple[int, Path]]] = {}
    for path in (run.folder.path / "artifacts").glob("*-target-*.npz"):
        if named := re.fullmatch(r"(.+)-target-(\d+)", path.stem):
            files.setdefault(named[1], []).append((int(named[2]), path))
    found = []
    for place, record in _trials(run, "reconstruction"):
        scores = _targets(record)
        its = [path for _, path in sorted(files.get(f"{record['cell']}-seed-{record['seed']:03d}", []))]
        arrays = its if len(its) == len(scores) else [None] * len(scores)  # a target that nobody saw has neither
        found += [
            ReconstructionResult(place=place, target=number, score=score, arrays=path)
            for number, (score, path) in enumerate(zip(scores, arrays, strict=True))
        ]
    return found


@dataclass(frozen=True, kw_only=True)
class MaskingResult:
    """The outcome of secure aggregation under one setting; see `fedguard.metrics.masking`.

    Attributes:
        anonymity: the fewest clients in any sum, colluders not counted, over all trials; None without sums.
        sessions, aborted: number of sessions begun, and aborted; why: the first reason.
        error: relative error of the decoded mean against the true mean, noise included.
        clipped: the share of honest updates that were clipped.
        up, down: bytes per client and round.
    """

    setting: str
    mode: str
    anonymity: int | None
    sessions: int
    aborted: int
    why: str | None
    error: Estimate | None
    clipped: Estimate
    up: Estimate
    down: Estimate


def summarize_masking(run: Run) -> list[MaskingResult]:
    """The results of each setting with masks: means over seeds of the means over each seed's trials."""
    found: dict[tuple[str, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for place, record in _trials(run):
        sums = record["result"]["secure_aggregation"]
        if sums:
            found.setdefault((place.setting, sums["mode"]), []).append((place.seed, sums))
    return [_summarize_sums(setting, mode, trials) for (setting, mode), trials in found.items()]


def _summarize_sums(setting: str, mode: str, trials: list[tuple[int, Mapping[str, Any]]]) -> MaskingResult:
    sums = [one for _, one in trials]
    errors = [(seed, one["error"]["mean"]) for seed, one in trials if one["error"]]
    return MaskingResult(
        setting=setting,
        mode=mode,
        anonymity=min((one["anonymity"] for one in sums if one["anonymity"] is not None), default=None),
        sessions=sum(one["sessions"] for one in sums),
        aborted=sum(one["aborted_sessions"] for one in sums),
        why=next((one["why_aborted"] for one in sums if one["why_aborted"]), None),
        error=_over_seeds(errors) if errors else None,
        clipped=_over_seeds([(seed, one["clipped"]) for seed, one in trials], SHARE),
        up=_over_seeds([(seed, one["bytes_up"]) for seed, one in trials]),
        down=_over_seeds([(seed, one["bytes_down"]) for seed, one in trials]),
    )


def _over_seeds(values: Iterable[tuple[int, float]], bounds: Bounds | None = None) -> Estimate:
    seeds: dict[int, list[float]] = {}
    for seed, value in values:
        seeds.setdefault(seed, []).append(value)
    return estimate([math.fsum(one) / len(one) for one in seeds.values()], bounds)


#: Errors of `zipfile` and numpy on a file that is damaged or encrypted.
_NO_ARRAYS = (OSError, ValueError, KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile)


def picture(path: Path, pairs: int) -> bytes | None:
    """A PNG of truth and claim, drawn from an ``.npz`` of a run; None if the inputs are no images.

    Shades span the range of the true inputs.

    Args:
        pairs: number of inputs that are drawn at most, in one row; with fewer, the rest of the row is empty.

    Raises:
        StoreError: the file is too large, or does not hold what was expected.
    """
    try:
        file = io.BytesIO(content(path, 2 * LARGEST))
        with zipfile.ZipFile(file) as archive:
            size = sum(one.file_size for one in archive.infolist())
        if size > LARGEST:
            raise StoreError(f"{path}: expected at most {LARGEST:,} bytes of arrays; got {size:,}. It is not shown.")
        truth, found = load(file)
    except _NO_ARRAYS as error:
        raise StoreError(f"{path}: cannot be read: {' '.join(str(error).split())}. It is not shown.") from None
    for name, one in (("truth", truth), ("found", found)):
        if one.dtype != np.float32 or one.shape != truth.shape or not 0 < len(one) <= IMAGES:
            raise StoreError(
                f"{path}: {name}: expected float32 of at most {IMAGES} inputs, both of one shape; got {one.dtype} "
                f"{list(one.shape)} beside {list(truth.shape)}. It is not shown."
            )
    if not np.isfinite(truth).all():
        raise StoreError(f"{path}: truth: expected finite numbers. It is not shown.")
    low, high = float(truth.min()), float(truth.max())
    drawn = grid(truth[:pairs], found[:pairs], (low, high if high > low else low + 1), pairs)
    return None if drawn is None else png(drawn)


def _trials(run: Run, goal: str | None = None) -> Iterator[tuple[TrialPosition, CompletedRecord]]:
    """The trials that ran; of attacks with this goal."""
    for swept, record in run.trials():
        if goal in (None, record["threat_card"]["goal"]):
            where = setting(swept, run.swept)
            yield (
                TrialPosition(setting=where, attack=swept["attack"], defense=swept["defense"], seed=record["seed"]),
                record,
            )


def _targets(record: CompletedRecord) -> Sequence[Mapping[str, Any]]:
    """What was found of each target."""
    found = record["result"]["inference"]
    return found["targets"] if found else []
