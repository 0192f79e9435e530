"""Tuning defenses fairly: equal budgets, and never on what is reported.

The protocol:

1. **Equal budget.** Every defense is tried with at most ``budget`` settings: the configured one, then settings from the
   grids of its stages (`fedguard.bench.tuning.candidates`). A smaller grid is tried whole; without a grid there is one setting.
2. **Other attacks.** Defenses are tuned on some attacks and reported on others, the *held-out* ones. An attack is held
   out by its name: ``ipm(tau=5)`` is not held out of a tuning on ``ipm(tau=0.1)``. An ensemble such as worst_case is
   not tuned on unless asked for, and stays in the report: a worst over more attacks can only be lower.
3. **Other seeds.** The tuning seeds are none of the suite's, and a partition seed that the suite fixes is moved as well,
   so other clients with other draws are tuned on.
4. **Score** of a setting: the mean over the tuning seeds (and over whatever else the suite sweeps) of the *worst* final
   accuracy over ``none`` and the tuning attacks. Ties go to the earlier, which is the simpler setting. A setting with a
   failed trial is not eligible, nor is one that is refused where another setting of the same defense may run. What is
   refused with every setting of a defense tells nothing between them, and is left out of its scores and listed.
5. **Proxy.** With ``proxy`` settings the trainings are those of other data, or of other models; the report is of the suite's
   own. What that costs can be asked for, at the price of another tuning on the suite's own (`fedguard.bench.tuning.proxy`).
6. **Record.** The tuned suite says under ``tuning:`` what was done; so does the manifest of every run of it.

The tuning is a run like any other, named ``<suite>-tuning``. The winner's score is the best of several, hence too good:
what counts is the run of the tuned suite. What remains shared is the data set: settings are compared on its test
examples, as ``judged_on: test`` records. A backdoor's success does not enter the score.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedguard.arguments import is_whole, whole_number, whole_numbers
from fedguard.bench.records.store import is_stored, write_atomically
from fedguard.bench.results.run import Run
from fedguard.bench.tuning.candidates import Candidates, as_text, identity
from fedguard.bench.tuning.outcome import TunedDefense, Tuning, TuningTrial
from fedguard.bench.tuning.proxy import on_proxy
from fedguard.config import Document, Plan, PlannedCell, plan, read_suite
from fedguard.config.schema import MOST_SEEDS
from fedguard.contracts import Algorithm, Ensemble
from fedguard.contracts.specs import split_spec
from fedguard.errors import ConfigError, brief
from fedguard.metrics.returns import in_shares
from fedguard.registry import Registry
from fedguard.rng import MOST_SEED

#: The most settings of one defense
MOST_BUDGET = 10_000
#: First tuning seed, and offset of a fixed partition seed.
FIRST_SEED = 10_000

#: A condition under which a setting is judged: the values of the other swept keys, and the attack.
Column = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class Proposal:
    """The plan of a tuning: settings, attacks and suites.

    Attributes:
        known: the algorithms that the suite may name.
        document: the suite of the tuning, to be run.
        source: the suite to be tuned, settings of the command line included.
        name: name of that suite.
        defenses: each defense as it is written in the suite, and its settings.
        attacks: the attacks tuned on.
        held_out: the other attacks, as they are written in the suite.
        proxy: settings that override the suite during the tuning only.
    """

    document: Document
    known: Registry
    source: Mapping[str, Any]
    name: str
    defenses: tuple[tuple[Any, Candidates], ...]
    attacks: tuple[str, ...]
    held_out: tuple[Any, ...]
    seeds: tuple[int, ...]
    budget: int
    proxy: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        document: Document,
        laid_out: Plan,
        budget: int,
        attacks: Sequence[str] | None,
        seeds: int | Sequence[int],
        proxy: Sequence[str] = (),
    ) -> Proposal:
        """What to try for a suite, which was read from ``document``.

        Raises:
            ConfigError: it has no defenses to tune, no attacks to hold out, or reports on a tuning seed.
        """
        matrix = laid_out.suite.matrix
        _require_axes(document, matrix)
        if not proxy:
            _require_no_epsilon(document, laid_out)
        if not is_whole(budget) or not 1 <= budget <= MOST_BUDGET:
            raise ConfigError(
                f"budget: expected a whole number of settings of each defense, from 1 to {MOST_BUDGET:,}; got {brief(budget)}."
            )
        tuned_on, held_out = _split(laid_out.known, document, matrix["attack"], attacks)
        tuning_seeds = _seeds(seeds, laid_out.suite.seeds)
        defenses = tuple((spec, Candidates.of(laid_out.known.pipeline(spec), budget)) for spec in matrix["defense"])
        settings = [as_text(pipeline) for _, candidates in defenses for pipeline in candidates.pipelines]
        data = copy.deepcopy(document.data)
        for section in ("tuning", "replay"):
            data.pop(section, None)
        data["name"] = f"{laid_out.suite.name}-{'proxy' if proxy else 'tuning'}"
        data["seeds"] = list(tuning_seeds)
        data["matrix"] |= {"attack": ["none", *tuned_on], "defense": list(dict.fromkeys(settings))}
        _move_partition(data)
        # Places in the file would be those of other attacks and defenses.
        lines = {key: line for key, line in document.lines.items() if key[0] not in ("name", "seeds", "matrix")}
        tuning = dataclasses.replace(document, data=data, lines=lines, settings=frozenset())
        if proxy:
            tuning = on_proxy(tuning, proxy)
            _require_no_epsilon(tuning, plan(tuning, read_suite(tuning)))
        return cls(
            tuning,
            laid_out.known,
            document.data,
            laid_out.suite.name,
            defenses,
            tuned_on,
            held_out,
            tuning_seeds,
            budget,
            tuple(proxy),
        )

    def judge_run(self, run: Run, file: Path) -> Tuning:
        """The scores and the winners, from the finished run of ``document``."""
        cells: dict[str, dict[Column, PlannedCell]] = {}
        for swept, cell in plan(self.document, read_suite(self.document)).positions:
            block = tuple(f"{key} = {value}" for key, value in swept.items() if key not in ("attack", "defense"))
            attack = as_text(cell.adversary) if cell.adversary else "none"
            cells.setdefault(identity(cell.pipeline), {})[block, attack] = cell
        judge = _Judge(run, self.seeds)
        return Tuning(
            self.name,
            run.name,
            self.budget,
            self.seeds,
            self.attacks,
            tuple(as_text(self.known.build("attack", spec)) for spec in self.held_out),
            tuple(
                judge.defense(candidates, [cells[identity(one)] for one in candidates.pipelines])
                for _, candidates in self.defenses
            ),
            len(run.failures),
            file,
            self.proxy,
            chance=_chance(run),
        )

    def write(self, tuning: Tuning) -> None:
        """Write the tuned suite: the chosen settings against the held-out attacks, and the record of the tuning.

        Raises:
            ConfigError: the file cannot be written.
        """
        chosen: dict[str, Any] = {}
        for (spec, candidates), tuned in zip(self.defenses, tuning.defenses, strict=True):
            kept = tuned.chosen == tuned.configured
            setting = next(one for one in candidates.pipelines if as_text(one) == tuned.chosen)
            chosen.setdefault(identity(setting), spec if kept else tuned.chosen)  # two may end in the same setting
        data: dict[str, Any] = copy.deepcopy(dict(self.source))
        data["name"] = f"{self.name}-tuned"
        data["matrix"] |= {"attack": ["none", *self.held_out], "defense": list(chosen.values())}
        data["tuning"] = tuning.section()
        header = (
            f"# {self.name}, with its defenses tuned by `fedguard tune` on {', '.join(tuning.attacks)};\n"
            f"# what is in the matrix is held out.\n#   fedguard run {tuning.file.name}\n"
        )
        text = header + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
        try:
            write_atomically(tuning.file, text.encode())
        except OSError as error:
            raise _unwritable(tuning.file, str(error.strerror)) from None


def _chance(run: Run) -> float | None:
    """Accuracy of guessing; 0 for normalized returns, and None if it differs between swept settings."""
    found = {in_shares(record["result"]).get("chance") for record in run.ran.values()}
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class _Judge:
    run: Run
    seeds: tuple[int, ...]

    def defense(self, candidates: Candidates, tried: Sequence[Mapping[Column, PlannedCell]]) -> TunedDefense:
        """Judge the settings of one defense; ``tried`` are the cells of each."""
        columns = [one for one in tried[0] if not all(self._status(cells[one]) == "refused" for cells in tried)]
        left_out = tuple(", ".join((attack, *block)) for block, attack in tried[0] if (block, attack) not in columns)
        if all(attack == "none" for _, attack in columns):
            columns = list(tried[0])  # nothing to be judged under: let each say why
        return TunedDefense(
            tuple(
                self._score_setting(as_text(pipeline), {column: cells[column] for column in columns})
                for pipeline, cells in zip(candidates.pipelines, tried, strict=True)
            ),
            candidates.tunable,
            candidates.invalid,
            left_out,
        )

    def _score_setting(self, setting: str, cells: Mapping[Column, PlannedCell]) -> TuningTrial:
        for (_, attack), cell in cells.items():
            for seed in self.seeds:
                record = self.run.records.get((cell.id, seed))
                if record is None or record["status"] != "ok":
                    status, reason = (record["status"], record["reason"]) if record else ("missing", "not run")
                    return TuningTrial(setting, None, f"{status} under {attack}: {reason}")
        worst: dict[tuple[tuple[str, ...], int], float] = {}
        for (block, _), cell in cells.items():
            for seed in self.seeds:
                final = in_shares(self.run.ran[cell.id, seed]["result"])["final_accuracy"]
                worst[block, seed] = min(final, worst.get((block, seed), math.inf))
        blocks = len(worst) // len(self.seeds)
        by_seed = [math.fsum(score for (_, at), score in worst.items() if at == seed) / blocks for seed in self.seeds]
        return TuningTrial(setting, math.fsum(worst.values()) / len(worst), by_seed=tuple(by_seed))

    def _status(self, cell: PlannedCell) -> str:
        record = self.run.records.get((cell.id, self.seeds[0]))
        return str(record["status"]) if record else "missing"


def resolve_output_file(document: Document, name: str, out: str | Path | None, force: bool) -> Path:
    """The file of the tuned suite, checked before anything runs.

    Raises:
        ConfigError: the file exists and ``force`` is not set, or its folder does not.
    """
    if out is not None:
        file = Path(out)
    else:
        file = Path(document.name).with_suffix(".tuned.yaml") if document.name else Path(f"{name}.tuned.yaml")
    if file.is_dir():
        raise _unwritable(file, "Is a directory")
    if is_stored(file):
        raise ConfigError(f"{file}: expected a file of your own; a run is stored in it. Choose another with --to.")
    if file.exists() and not force:
        raise ConfigError(f"{file} is there already. Choose another file with --to, or write over it with --force.")
    if not file.parent.is_dir():
        raise _unwritable(file, "No such file or directory")
    return file


def _unwritable(file: Path, why: str) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {why}.")


def _require_no_epsilon(document: Document, laid_out: Plan) -> None:
    if any(cell.private for _, cell in laid_out.positions):
        raise ConfigError(
            f"{document.where(('protocol',))}: each setting that is tried is one more training on the clients' records, and "
            "the epsilon of protocol.privacy counts one alone. Tune on public data without it (--set protocol.privacy=none), "
            "then declare tuning.trained_on: public in the suite that has it."
        )


def _require_axes(document: Document, matrix: Mapping[str, Any]) -> None:
    where = document.where(("matrix",))
    if "defense" not in matrix:
        raise ConfigError(f"{where}: expected the defenses to be tuned as a list, matrix.defense; got none.")
    if "attack" not in matrix:
        raise ConfigError(f"{where}: expected at least two attacks as a list, matrix.attack; got none.")
    for key in matrix:
        if key.startswith(("attack.", "defense.")):
            raise ConfigError(
                f"{document.where(('matrix', key))}: expected attacks and defenses spelled out in matrix.attack and "
                f"matrix.defense when defenses are tuned; got the key {key} swept beside them."
            )


def _split(
    known: Registry, document: Document, listed: Sequence[Any], given: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The attacks to tune on, and those held out as they are written in the suite."""
    where = document.where(("matrix", "attack"))
    built: list[tuple[Any, Algorithm]] = [
        (spec, known.build("attack", spec, where)) for spec in listed if split_spec("attack", spec, where)[0] != "none"
    ]
    if given is None:
        chosen = list(_every_second([attack for _, attack in built]))
    else:
        chosen = [attack for text in given for attack in _match_attacks(known, text, [attack for _, attack in built])]
    names = {name for attack in chosen for name in _names(attack)}
    held_out = tuple(spec for spec, attack in built if attack.name not in names)
    if not chosen or not held_out:
        there = ", ".join(str(attack) for _, attack in built) or "none"
        tuned_on = f" while tuning on {', '.join(map(str, chosen))}" if given is not None else ""
        raise ConfigError(
            f"{where}: expected attacks of at least two names, some to tune on and some to hold out for the report; "
            f"got {there}{tuned_on}."
        )
    return tuple(dict.fromkeys(as_text(attack) for attack in chosen)), held_out


def _every_second(attacks: Sequence[Algorithm]) -> Iterator[Algorithm]:
    """The attacks with every second name, in their order; ensembles are left for the report."""
    names = list(dict.fromkeys(attack.name for attack in attacks if not isinstance(attack, Ensemble)))
    ensembles = any(isinstance(attack, Ensemble) for attack in attacks)
    chosen = names[1::2] or (names if ensembles else [])
    return (attack for attack in attacks if attack.name in chosen)


def _match_attacks(known: Registry, text: str, listed: Sequence[Algorithm]) -> list[Algorithm]:
    """The listed attacks that a plain name means, or the attack that is spelled out."""
    name, parameters = split_spec("attack", text, "attacks")
    if name == "none":
        raise ConfigError("attacks: expected attacks; got none, which every setting is tried without anyway.")
    same = [attack for attack in listed if attack.name == name]
    return same if same and not parameters else [known.build("attack", text, "attacks")]


def _names(attack: Algorithm) -> set[str]:
    members = attack.members() if isinstance(attack, Ensemble) else ()
    return {attack.name, *(split_spec("attack", member)[0] for member in members)}


def _seeds(seeds: int | Sequence[int], reported: Sequence[int]) -> tuple[int, ...]:
    if is_whole(seeds) and seeds < 1:  # type: ignore[operator]
        raise ConfigError(f"seeds: expected at least 1 tuning seed; got {seeds}.")
    if is_whole(seeds):
        tuning = tuple(range(FIRST_SEED, FIRST_SEED + whole_number(seeds, "seeds", 1, MOST_SEEDS)))
    else:
        tuning = whole_numbers(seeds, "seeds", 0, MOST_SEED)
    if not tuning or len(set(tuning)) < len(tuning):
        raise ConfigError(f"seeds: expected one tuning seed or more, each once; got {brief(seeds)}.")
    both = sorted(set(tuning) & set(reported))
    if both:
        raise ConfigError(
            f"seeds: expected tuning seeds that are none of the suite's; got {both} in both. Tuning seeds count from "
            f"{FIRST_SEED}; take other seeds in the suite."
        )
    return tuning


def _move_partition(data: dict[str, Any]) -> None:
    """Give fixed partition seeds other values, so that defenses are not tuned on the clients that are reported."""
    for task in (data.get("task"), *data["matrix"].get("task", ())):
        if isinstance(task, dict) and task.get("partition_seed") is not None:
            task["partition_seed"] += FIRST_SEED
    if "task.partition_seed" in data["matrix"]:
        swept = data["matrix"]["task.partition_seed"]
        data["matrix"]["task.partition_seed"] = [seed if seed is None else seed + FIRST_SEED for seed in swept]
