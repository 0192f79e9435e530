"""The input of the flags: the trials of a run, or the rows of somebody else's table, in one form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run, once_for_run
from fedguard.errors import ConfigError, StoreError
from fedguard.metrics.figures import PRIVACY_GOALS
from fedguard.metrics.flags import Part, require_entry
from fedguard.metrics.returns import in_shares

#: Parameters of `protocol.privacy` that set the amount of noise: sweeping them shows its cost and is no tuning.
HOW_MUCH = ("epsilon", "noise_multiplier", "delta", "levels")


@dataclass(frozen=True)
class Case:
    """One trial.

    Attributes:
        setting: the values of the other swept keys, as text; cases are compared within one setting.
        named: the attack as the matrix names it; for an ensemble, ``card["attack"]`` is the attack that it chose.
        seed: None if unknown.
        result, card: as in a record; missing keys are unknown.
        pipeline: the specs of the defense's stages; None if it is somebody else's code.
    """

    setting: str
    named: str | None
    defense: str
    seed: int | None
    result: Part
    card: Part
    pipeline: Sequence[Mapping[str, Any]] | None = None

    @property
    def attack(self) -> str | None:
        """The attack, or None. Raises `MissingFact` if the results do not state attacks."""
        require_entry(self.card, "attack")
        return self.named

    @property
    def cell(self) -> str:
        """``alie against median, clients.malicious = 4``."""
        attack = self.named or ("no attack" if "attack" in self.card else "")
        against = f"{attack} against {self.defense}" if attack else self.defense
        return f"{against}, {self.setting}" if self.setting else against


@dataclass(frozen=True)
class Results:
    """The results that flags are judged on.

    Attributes:
        name: name of the run, or of the file.
        cases: one for each position of the matrix and each seed that ran.
        trials: every trial once, controls included: the input of the flags of single records.
        membership: the cases of membership inference, which leaves the training alone.
        facts: facts about the whole run:

            - ``tuning``: how the defenses were tuned, None if they were not;
            - ``attacks``: all attacks of the matrix;
            - ``noise_from_seed``: number of records that claim a finite epsilon for noise drawn from their seed;
            - ``trainings_beside_epsilon``: number of settings of the training with a finite epsilon, and the sum of these;
            - ``kept``: for each piece of state that a trial changed for later ones, the number of such trials.

        notes: how a table was read.
    """

    name: str
    cases: Sequence[Case]
    trials: Sequence[Case]
    membership: Sequence[Case] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def tuning(self) -> Mapping[str, Any] | None:
        """How the defenses were tuned, or None. Raises `MissingFact` if it is unknown."""
        found: Mapping[str, Any] | None = require_entry(self.facts, "tuning")
        return found


@once_for_run
def results_of(run: Run) -> Results:
    """The trials of a run that have a result."""
    cases, controls, membership = [], [], []
    positioned = set()
    for position in run.manifest["positions"]:
        swept = position["swept"]
        where = setting(swept, run.swept)
        attack = None if swept["attack"] == "none" else swept["attack"]
        for seed in run.seeds:
            record = run.ran.get((position["cell"], seed))
            if record is not None and record["threat_card"]["goal"] == "membership":
                membership.append(_case(record, where, attack))
            elif record is not None and not _infers(record):
                case = _case(record, where, attack)
                cases.append(case)
                # Positions may share a cell: its record is one trial, which flags of records must not count twice
                if (position["cell"], seed) not in positioned:
                    positioned.add((position["cell"], seed))
                    controls.append(case)
    for trial, record in run.ran.items():
        if trial not in positioned and not _infers(record):
            controls.append(_control(record, trial[0] in run.manifest["controls"]))
    return Results(run.name, cases, controls, membership, _facts(run))


def _control(record: CompletedRecord, compared: bool) -> Case:
    """A trial outside the matrix, such as a control, with words for its purpose."""
    attack = record["threat_card"]["attack"]
    if compared and record["config"]["attack"] == {"name": "dropout", "rate": 1.0}:  # see `PlannedCell.silenced`
        attack = "silent malicious clients"
    return _case(record, "not in the matrix, trained to compare with" if compared else "not in the matrix", attack)


def _case(record: CompletedRecord, setting: str, attack: str | None) -> Case:
    config, result = record["config"], dict(in_shares(record["result"]))
    card = {**record["threat_card"], "partition_seed": config["task"]["partition_seed"]}
    if result["attack_success_raw"] is not None:  # `Task.backdoor_success` never counts them
        result["attack_success_counts_target"] = False
    defense = record["threat_card"]["defense"]
    return Case(setting, attack, defense, record["seed"], result, card, config["defense"])


def _infers(record: CompletedRecord) -> bool:
    """Whether a record is of an attack on the clients' privacy, which leaves the training alone."""
    return record["threat_card"]["goal"] in PRIVACY_GOALS


def _facts(run: Run) -> dict[str, Any]:
    """Facts from the suite beside its cells, and from all records together."""
    found: dict[str, Any] = {
        "attacks": sorted({position["swept"]["attack"] for position in run.manifest["positions"]}),
        "noise_from_seed": sum(map(_has_seed_noise, run.ran.values())),
        "trainings_beside_epsilon": _settings_beside_epsilon(run.ran.values()),
        "kept": Counter(name for one in run.ran.values() for name in one["environment"].get("changed", ())),
    }
    try:
        suite = run.folder.config().data
    except (StoreError, ConfigError):
        return found
    return {**found, "tuning": suite.get("tuning")}


def _settings_beside_epsilon(records: Iterable[CompletedRecord]) -> dict[str, float]:
    """Number of settings of the training with a finite epsilon on the same data, and the sum of their epsilons.

    Of several data sets, the one with the most settings counts. A setting is the training, the model, and the privacy
    parameters except the amount of noise; attacks and defenses do not belong to it.
    """
    tried: dict[str, dict[str, float]] = {}
    for record in records:
        epsilon, config = record["threat_card"]["epsilon"], cast(Mapping[str, Any], record["config"])
        if epsilon is None:
            continue
        privacy = config["protocol"]["privacy"]
        noise = (
            {key: value for key, value in privacy.items() if key not in HOW_MUCH}
            if isinstance(privacy, dict)
            else privacy
        )
        data = json.dumps(config["task"]["data"], sort_keys=True)
        setting = json.dumps([config["training"], config["task"]["model"], noise], sort_keys=True)
        found = tried.setdefault(data, {})
        found[setting] = max(
            found.get(setting, 0.0), epsilon
        )  # a sweep of the noise is one setting, at its largest epsilon
    most = max(tried.values(), key=len, default={})
    return {"settings": len(most), "sum": sum(most.values())}


def _has_seed_noise(record: CompletedRecord) -> bool:
    """Whether a record claims a finite epsilon for noise from its seed; records that do not state the source count."""
    card = record["threat_card"]
    return card["epsilon"] is not None and card.get("noise_from", "seed") == "seed"
