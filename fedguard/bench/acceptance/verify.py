"""A stranger's check of a verdict: do its metrics follow from its records, and do randomly drawn trials repeat?

If a share q of the records was doctored, k trials drawn at random miss it with a chance of (1 - q)^k: 12 find 25 % with 97 %,
29 find 10 % with 95 %, 59 find 5 % with 95 %.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from fedguard.bench.acceptance.accept import rerun_trials
from fedguard.bench.acceptance.findings import AcceptanceFinding, seal_of
from fedguard.bench.acceptance.standard import Standard, load_standard
from fedguard.bench.acceptance.submission import Submission, read_submission
from fedguard.bench.acceptance.trainings import metrics_of
from fedguard.bench.records.reading import content, json_of, parse_json
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.errors import ConfigError, StoreError
from fedguard.rng import Rng

#: What a repeated trial is compared by; other values of a record come from its controls
COMPARED = ("curve", "final_accuracy", "best_accuracy", "class_accuracy", "attack_success_raw", "diverged")


@dataclass(frozen=True)
class Verification:
    """What a check of a verdict found.

    Attributes:
        nonce: decides which trials were drawn.
        trials: how many were repeated.
        records: how many records the verdict names.
        findings: what is wrong, or different here.
    """

    nonce: int
    trials: int
    records: int
    findings: Sequence[AcceptanceFinding]

    @property
    def exit_code(self) -> int:
        """3 if something is wrong, 0 otherwise."""
        return 3 if any(one.level == "failed" for one in self.findings) else 0

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON types."""
        return {
            "nonce": self.nonce,
            "trials": self.trials,
            "records": self.records,
            "findings": [one.as_dict() for one in self.findings],
            "exit_code": self.exit_code,
        }


def verify(
    given: str,
    folder: Path,
    standard: str = "2026",
    *,
    trials: int = 12,
    nonce: int | None = None,
    listener: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Hold a verdict against its file and its records, and repeat some of its trials.

    Args:
        given: the file that was judged, or the pipeline by name.
        folder: of the verdict.
        trials: how many are repeated, drawn at random without replacement.
        nonce: decides which; None draws it, so that nobody can know it before.
        listener: receives what happens.

    Raises:
        StoreError: there is no verdict that can be read.
        ConfigError: it is of another standard, or holds no trainings.
    """
    rule, submission = load_standard(standard), read_submission(given)
    verdict = _read_verdict(folder / "verdict.json", standard, rule)
    records = verdict["records"]
    nonce = secrets.randbelow(2**62) if nonce is None else nonce
    listener("records")
    findings = [
        *_check_files(verdict, submission, folder / "runs", records),
        *_check_metrics(verdict, rule, folder / "runs"),
    ]
    drawn = _draw(folder / "runs", records, trials, nonce)
    findings += _repeat(given, standard, rule, folder / "runs", drawn, listener)
    return Verification(nonce, len(drawn), len(records), tuple(findings))


class _Stored(TypedDict):
    """What has to be in the file of a verdict; the paths of records lead nowhere else."""

    standard: dict[str, str]
    submission: dict[str, str]
    records: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]+/cells/[0-9a-f]+/seed-[0-9]+\.json$")], str]
    cells: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    seal: str


def _read_verdict(path: Path, standard: str, rule: Standard) -> Mapping[str, Any]:
    """A verdict with trainings by this standard."""
    try:
        text = content(path)
        parse_json(TypeAdapter(_Stored), text)
        found: Mapping[str, Any] = json_of(text)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: expected the verdict that accept wrote; {error}.") from None
    if found["standard"].get("digest") != rule.digest:
        raise ConfigError(f"{path}: expected a verdict by the standard {standard}; got one by another. Set --standard.")
    if not found["records"]:
        raise ConfigError(f"{path}: expected a verdict with trainings; it has none. Run accept without --stage.")
    return found


def _check_files(
    verdict: Mapping[str, Any], submission: Submission, store: Path, records: Mapping[str, str]
) -> list[AcceptanceFinding]:
    """The verdict's seal, the submission, and each record, by their digests."""
    found = []
    if verdict.get("seal") != seal_of(verdict):
        found.append(AcceptanceFinding("verdict_edited", "failed", "The verdict is not what was sealed."))
    if verdict["submission"].get("digest") != submission.digest:
        words = "The file is not the one that was judged: its digest is another one."
        found.append(AcceptanceFinding("file_changed", "failed", words, remedy="Judge it anew."))
    missing = [name for name in records if not (store / name).is_file()]
    edited = [name for name in records if name not in missing and _digest(store / name) != records[name]]
    for code, names, what in (
        ("record_missing", missing, "not there"),
        ("record_edited", edited, "not what was judged"),
    ):
        if names:
            words = f"{len(names)} of {len(records)} records are {what}."
            found.append(AcceptanceFinding(code, "failed", words, names[0], number=float(len(names))))
    return found


def _check_metrics(verdict: Mapping[str, Any], rule: Standard, store: Path) -> list[AcceptanceFinding]:
    """The metrics of each cell, computed again from its records."""
    kept = {one["cell"]: one for one in verdict["cells"]}
    found = []
    for cell in rule.trainings.cells:
        if cell.name not in kept:
            continue
        try:
            runs = [Run.open(store / name) for name in (f"{cell.name}-honest", cell.name)]
            now = json.loads(json.dumps(asdict(metrics_of(cell, *runs))))
        except StoreError as error:
            found.append(
                AcceptanceFinding("metrics_differ", "failed", f"The metrics of {cell.name} cannot be computed: {error}")
            )
            continue
        if now != kept[cell.name]:
            keys = [key for key in now if now[key] != kept[cell.name].get(key)]
            words = f"The records of {cell.name} give other metrics: {', '.join(keys)}."
            found.append(AcceptanceFinding("metrics_differ", "failed", words))
    return found


def _draw(store: Path, records: Mapping[str, str], trials: int, nonce: int) -> list[str]:
    """Records whose trials are repeated: those that are there and ran, in an order that the nonce decides."""
    names = [name for name in sorted(records) if (store / name).is_file()]
    order = Rng(nonce).child("verify").numpy().permutation(len(names))
    return [names[int(k)] for k in order][:trials]


def _repeat(
    given: str, standard: str, rule: Standard, store: Path, drawn: Sequence[str], listener: Callable[[str], None]
) -> list[AcceptanceFinding]:
    """Trials whose results are other ones here, by how far their final accuracies are apart."""
    asked, kept = list[dict[str, Any]](), list[tuple[str, Mapping[str, Any]]]()
    for name in drawn:
        run, _, cell, file = name.split("/")
        record = RunFolder(store / run).read(cell, int(file.removeprefix("seed-").removesuffix(".json")))
        if record is None or record["status"] != "ok":
            continue
        config = {**record["config"]}
        selection = record["result"].get("worst_case")
        chosen = None if selection is None else selection["chosen"]
        if chosen is not None:  # what is reported of an ensemble is the training under the attack that it chose
            config["attack"] = chosen
        asked.append({"config": config, "seed": record["seed"]})
        kept.append((name, record["result"]))
    found = []
    for number, result in rerun_trials(given, standard, asked, listener):
        name, before = kept[number]
        if result is None:
            found.append(
                AcceptanceFinding("not_repeated", "failed", "A trial could not be repeated: it raised an error.", name)
            )
        elif any(result.get(key) != before.get(key) for key in COMPARED):
            found.append(_describe_difference(name, before, result, rule.trainings.repeats_within))
    return found


def _describe_difference(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], within: float
) -> AcceptanceFinding:
    away = abs(float(before["final_accuracy"]) - float(now["final_accuracy"]))
    shares = [f"{100 * one['final_accuracy']:.2f} %" for one in (now, before)]
    words = f"A repeated trial ends at {shares[0]}; the record says {shares[1]}."
    if away <= within and away > 0:
        return AcceptanceFinding(
            "repeated_within", "noted", f"{words} This is within the standard's tolerance.", name, number=away
        )
    return AcceptanceFinding(
        "differs", "failed", words if away else "A repeated trial has another course.", name, number=away
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
