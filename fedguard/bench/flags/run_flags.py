"""Red flags of a whole run, which no single record can show. One flag, one function, one row in `RUN_FLAGS`.

Each function judges one group of trials, such as the seeds of one cell. It returns None, a raised flag, or why it cannot
judge; it raises `MissingFact` if the results lack a fact. Intervals are 95 % over seeds, of paired differences if two values
are compared; a single seed has none. `fedguard.metrics.flags` has the flags of single records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from fedguard.bench.flags.results import Case, Results
from fedguard.bench.results.trilemma import LINEAR
from fedguard.errors import FedGuardError
from fedguard.metrics.flags import MissingFact, name_of, percent, require_entry, require_value
from fedguard.metrics.stats import ENOUGH, Estimate, bracket, student
from fedguard.registry import BUILT_IN, load_registry

#: Least cost of the worst attack to the mean; below it, task or attacks are too weak to compare defenses.
COST = 0.10
#: Greatest length of noise, relative to an attack's updates, for a fair comparison.
LONGER = 1.25
#: A smaller rise of accuracy under an attack means that it did nothing, which other flags report.
HELP = 0.001
#: Advantage in AUC of a plain regression from which on another attack counts as weak.
LINEAR_MARGIN = 0.03
#: Loss under an attack below which its causes are not separated.
DROP = 0.05


@dataclass(frozen=True)
class RaisedFlag:
    """A flag is raised on a cell."""

    cell: str
    said: str


@dataclass(frozen=True)
class UnjudgedFlag:
    """A flag that could not be judged, and why."""

    why: str


Judged = RaisedFlag | UnjudgedFlag | None
Group = Sequence[Case]


@dataclass(frozen=True)
class RunFlag:
    """One row: the flag's number in the evaluation protocol, the groups that it judges one by one, and its function."""

    number: int
    groups: Callable[[Results], Iterable[Group]]
    judge: Callable[[Results, Group], Judged]

    @property
    def name(self) -> str:
        return self.judge.__name__


ONE_SEED = "one seed has no interval: run at least five"


def clean_at_chance(results: Results, setting: Group) -> Judged:
    # By seed: all cells of a setting share this control, and repeated it would narrow the interval
    clean = {case.seed: _figure(case, "controls.clean_mean") for case in setting}
    chance, found = _figure(setting[0], "chance"), student(list(clean.values()))
    if found.half_width is None:
        return UnjudgedFlag(ONE_SEED)
    if found.mean - found.half_width > chance:
        return None
    return RaisedFlag(
        _place("the mean without attack", setting),
        f"its interval, {_interval(found, '%')}, includes chance ({percent(chance)}): nothing is learned for certain. "
        "Train longer, or take more seeds.",
    )


def attack_helps(results: Results, cell: Group) -> Judged:
    if not _means_harm(cell[0]):
        return None
    gain = _estimate_difference(
        cell, lambda case: _figure(case, "final_accuracy") - _figure(case, "controls.clean_defense")
    )
    if gain.half_width is None:
        return UnjudgedFlag(ONE_SEED)
    if gain.mean < HELP or gain.mean - gain.half_width <= 0:
        return None
    return RaisedFlag(
        cell[0].cell,
        f"accuracy is {_interval(gain, 'points')} higher under the attack than without it (threshold 0.1, and beyond its "
        "interval): no attack on this defense. Raise its strength, or leave it out.",
    )


def mostly_absence(results: Results, cell: Group) -> Judged:
    if not _means_harm(cell[0]):
        return None
    drop = _estimate_difference(
        cell, lambda case: _figure(case, "controls.clean_defense") - _figure(case, "final_accuracy")
    )
    if drop.mean < DROP:
        return None
    absence, more = (
        _estimate_difference(cell, _absence),
        # Paired by seed: whether silence explains more than half is about this difference, not about two means
        _estimate_difference(cell, lambda case: _absence(case) - _harm(case)),
    )
    if more.half_width is None:
        return UnjudgedFlag(ONE_SEED)
    if more.mean - more.half_width <= 0:
        return None
    return RaisedFlag(
        cell[0].cell,
        f"of {100 * drop.mean:.1f} points lost, {100 * absence.mean:.1f} are lost where the malicious clients only stay silent "
        "(threshold: half): the drop is that of their data, more than of the attack. Quote harm, or set task.partition_among: "
        "honest.",
    )


def weaker_than_noise(results: Results, cell_and_noises: Group) -> Judged:
    """Compare with Gaussian noise that is hardly longer than the attack's own updates."""
    case = cell_and_noises[0]
    if not _means_harm(case) or _is_noise(case):
        return None
    cell = [one for one in cell_and_noises if not _is_noise(one)]
    noises = _group_cases([one for one in cell_and_noises if _is_noise(one)], lambda one: one.attack)
    if not noises:
        return UnjudgedFlag("there is no Gaussian noise to compare with: add gaussian to matrix.attack")
    fair = [noise for noise in noises if _length(noise) <= LONGER * _length(cell)]
    if not fair:
        return UnjudgedFlag(
            "all noise is longer than the attack's updates, so that more harm would say nothing: add gaussian with a scale "
            "small enough"
        )
    return _against_noise(cell, min(fair, key=lambda noise: _mean([_figure(one, "final_accuracy") for one in noise])))


def _against_noise(cell: Group, noise: Group) -> Judged:
    there = {case.seed: _figure(case, "final_accuracy") for case in noise}
    if not any(case.seed in there for case in cell):
        return UnjudgedFlag("the noise was not run with the attack's seeds")
    less = _estimate_difference(cell, lambda case: _figure(case, "final_accuracy") - there[case.seed], there)
    if less.half_width is None:
        return UnjudgedFlag(ONE_SEED)
    if less.mean - less.half_width <= 0:
        return None
    return RaisedFlag(
        cell[0].cell,
        f"{noise[0].named}, noise of no greater length, costs {_interval(less, 'points')} more (threshold 0): an attack that "
        "knows so much should beat noise. Raise its strength, or look for a fault in it.",
    )


def beaten_by_least_squares(results: Results, cell_and_linear: Group) -> Judged:
    """Compare membership inference with the linear regression of the same setting and defense."""
    if not cell_and_linear:
        return None if "attacks" in results.facts else UnjudgedFlag("other tables do not tell who was asked about")
    cell = [case for case in cell_and_linear if not _is_linear(case)]
    linear = [case for case in cell_and_linear if _is_linear(case)]
    if not cell or linear:
        return _against_linear(cell, linear)
    if any(name_of(attack) == LINEAR for attack in results.facts.get("attacks", ())):
        return UnjudgedFlag(f"{LINEAR} was refused beside it, or has not run")
    return RaisedFlag(
        cell[0].cell,
        f"an AUC of {_mean([*map(_auc, cell)]):.2f}, and no {LINEAR} beside it (expected in matrix.attack): a sum is "
        "linear in what it is made of, and a plain regression on the candidates' gradients often tells far more than other "
        f"attacks. Add {LINEAR} to matrix.attack before you say how little leaks.",
    )


def _against_linear(cell: Group, linear: Group) -> Judged:
    there = {case.seed: _auc(case) for case in linear}
    both = [case for case in cell if case.seed in there]
    if not both:
        return UnjudgedFlag(f"{LINEAR} was not run with its seeds") if cell else None
    more = _estimate_difference(both, lambda case: there[case.seed] - _auc(case))
    if more.half_width is None:
        return UnjudgedFlag(ONE_SEED)
    if more.mean < LINEAR_MARGIN or more.mean - more.half_width <= 0:
        return None
    return RaisedFlag(
        cell[0].cell,
        f"an AUC of {_mean([*map(_auc, cell)]):.2f}, where {LINEAR} has {more.mean:.2f} more (threshold {LINEAR_MARGIN}, and "
        f"beyond its interval): it is weaker than a plain regression. Quote the number of {LINEAR} for what leaks.",
    )


def nothing_hurts(results: Results, setting: Group) -> Judged:
    attacks: dict[str, list[Case]] = {}
    for case in setting:
        if _is_untargeted(case):
            attacks.setdefault(str(case.attack), []).append(case)
    costs = {attack: cost for attack, cases in attacks.items() if (cost := _cost_to_the_mean(cases)) is not None}
    if not attacks:
        return None
    if not costs:
        return UnjudgedFlag(
            "no attack was run against the plain mean, or the mean not without attack: add both to the matrix"
        )
    worst = max(costs, key=lambda attack: costs[attack])
    if costs[worst] >= COST:
        return None
    return RaisedFlag(
        _place("the mean", setting),
        f"the worst attack, {worst}, costs the plain mean {100 * costs[worst]:.1f} points, less than {100 * COST:.0f}: task or "
        "attacks are too weak to tell defenses apart. Add stronger ones (worst_case), or more heterogeneity.",
    )


def defenses_alike(results: Results, attack: Group) -> Judged:
    """Compare the spread of the defenses' means with the spread of the residuals of a two-way layout with seeds."""
    if not _is_untargeted(attack[0]):
        return None
    by_defense: dict[str, dict[int | None, float]] = {}
    for case in attack:
        by_defense.setdefault(case.defense, {})[case.seed] = _figure(case, "final_accuracy")
    seeds = sorted(set.intersection(*(set(one) for one in by_defense.values())), key=str)
    if len(by_defense) < 2:
        return None
    if len(seeds) < 2:
        return UnjudgedFlag(ONE_SEED)
    # Defenses share their seeds, so what a seed does to all of them is no noise of their comparison
    spread, noise = _spread_and_noise([[one[seed] for seed in seeds] for one in by_defense.values()])
    if spread > noise:
        return None
    return RaisedFlag(
        _place(str(attack[0].attack), attack),
        f"the {len(by_defense)} defenses differ by {100 * spread:.1f} points (standard deviation), no more than the "
        f"{100 * noise:.1f} that seeds alone bring: do not rank them. Take more seeds, or a stronger attack.",
    )


def few_seeds(results: Results, run: Group) -> Judged:
    seeds = {case.seed for case in run}
    if None in seeds:
        raise MissingFact("seed")
    if not 0 < len(seeds) < ENOUGH:  # without any case there is no metric to doubt
        return None
    count = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    return RaisedFlag(WHOLE, f"{count} (at least {ENOUGH}, better 5): no metric has an interval. Set seeds: 5.")


def one_partition(results: Results, run: Group) -> Judged:
    fixed = {require_entry(case.card, "partition_seed") for case in run}
    if len(fixed) > 1 or None in fixed or len({case.seed for case in run}) < 2:
        return None
    return RaisedFlag(
        WHOLE,
        f"all seeds share the partition of partition_seed {next(iter(fixed))} (at least 2 partitions): the intervals say "
        "nothing of other partitions. Drop task.partition_seed.",
    )


def tuned_on_test(results: Results, run: Group) -> Judged:
    tuning = results.tuning
    if not tuning or require_value(tuning, "judged_on") != "test":
        return None
    return RaisedFlag(
        WHOLE,
        "the defenses were tuned on the test examples themselves (expected: 0 of them): their numbers lean to the good "
        "side. Say so, and confirm on other data.",
    )


def tax_above_benefit(results: Results, cell: Group) -> Judged:
    if not _is_untargeted(cell[0]) or cell[0].defense == "mean":
        return None
    tax, loss = _estimate_difference(cell, _tax), _estimate_difference(cell, lambda case: _tax(case) - _benefit(case))
    if loss.half_width is None:
        return UnjudgedFlag(ONE_SEED)
    if tax.mean <= 0.01 or loss.mean - loss.half_width <= 0:
        return None
    return RaisedFlag(
        cell[0].cell,
        f"without attack it costs {100 * tax.mean:.1f} points, under this attack it is {_against_mean(tax.mean - loss.mean)} "
        "(threshold: as many above as it costs): here the plain mean is better. Say so, or take another defense.",
    )


def _against_mean(benefit: float) -> str:
    return f"{100 * abs(benefit):.1f} points {'above' if benefit > 0 else 'below'} the plain mean"


def tuned_as_reported(results: Results, run: Group) -> Judged:
    tuning = results.tuning
    reported = {str(case.attack) for case in run if case.attack is not None}
    both = sorted(reported & set(require_value(tuning, "attacks"))) if tuning else []
    if not both:
        return None
    return RaisedFlag(
        WHOLE,
        f"{len(both)} of {len(reported)} attacks reported are those that the defenses were tuned on (expected none): "
        f"{', '.join(both)}. Report attacks that the tuning never saw.",
    )


def best_of_several(results: Results, run: Group) -> Judged:
    settings: dict[str, list[str]] = {}
    for defense in dict.fromkeys(case.defense for case in run):
        settings.setdefault(" >> ".join(name_of(stage) for stage in defense.split(" >> ")), []).append(defense)
    several = {name: found for name, found in settings.items() if len(found) > 1}
    if not several:
        return None
    name, found = max(several.items(), key=lambda one: len(one[1]))
    return RaisedFlag(
        WHOLE,
        f"{len(found)} settings of {name} stand in the matrix (threshold 1): {', '.join(found)}. Whoever picks the best by "
        "these figures tunes it on the attacks and seeds that are reported. Tune on others (`fedguard tune`), or quote all.",
    )


def noise_from_seed(results: Results, run: Group) -> Judged:
    told = require_value(results.facts, "noise_from_seed")
    if not told:
        return None
    return RaisedFlag(
        WHOLE,
        f"{told} records claim a finite epsilon for noise that comes from the seed they hold (expected 0, of what is "
        "published): whoever has a record draws its noise again, and of models or records that are published no privacy is "
        "left. Run with --secret-noise before you publish any.",
    )


def tuned_beside_epsilon(results: Results, run: Group) -> Judged:
    tried = require_value(results.facts, "trainings_beside_epsilon")
    if tried["settings"] < 2:
        return None
    return RaisedFlag(
        WHOLE,
        f"{tried['settings']} settings of the training were tried on the same clients' records (threshold 1), and each epsilon "
        "counts one of them: whoever picks one by these numbers tunes by hand, and all together prove epsilon "
        f"{tried['sum']:.3g} by adding up. Choose settings on public data, or quote the sum.",
    )


def keeps_state(results: Results, run: Group) -> Judged:
    kept = require_value(results.facts, "kept")
    if not kept:
        return None
    (name, trials), *others = sorted(kept.items(), key=lambda item: (-item[1], item[0]))
    return RaisedFlag(
        WHOLE,
        f"{trials} trials left {name} other than they found it{f', and {len(others)} things more' if others else ''} (expected "
        "0): a plug-in keeps what belongs to one trial where the next one finds it. Each of the next got a process of its own; "
        "within one, what was trained to compare with may have found it. Return from `remember` what a rule keeps.",
    )


def order_matters(results: Results, defense: Group) -> Judged:
    case = defense[0]
    if case.pipeline is None:
        raise MissingFact("pipeline")
    try:
        origins = {load_registry().origin("defense", stage["name"]) for stage in case.pipeline}
    except FedGuardError as error:
        return UnjudgedFlag(f"{case.defense}: {error}")
    if origins == {BUILT_IN}:  # the tests hold FedGuard's own rules to this
        return None
    from fedguard.bench.flags.permutation import measure_order_effect  # here, since it loads torch: no other flag does

    rows = case.card.get("rows") or require_value(case.card, "per_round")
    change = measure_order_effect(case.pipeline, rows, require_value(case.card, "assumed_f_per_round"))
    if isinstance(change, str):
        return UnjudgedFlag(f"{case.defense}: {change}")
    if change == 0:
        return None
    return RaisedFlag(
        case.defense,
        f"the aggregates of random updates move by {percent(change)} of their length when clients change places "
        "(expected 0): the order of the clients decides. Fix the rule; break ties by value.",
    )


def _whole(results: Results) -> list[Group]:
    return [results.cases]


def _settings(results: Results) -> list[Group]:
    return _group_cases(results.cases, lambda case: case.setting)


def _cells(results: Results) -> list[Group]:
    return _group_cases(results.cases, lambda case: (case.setting, case.attack, case.defense))


def _cells_and_noises(results: Results) -> list[Group]:
    """Each cell, followed by the cells of Gaussian noise against the same defense."""
    noises: dict[tuple[str, str], list[Case]] = {}
    for case in results.cases:
        if _is_noise(case):
            noises.setdefault((case.setting, case.defense), []).append(case)
    return [[*cell, *noises.get((cell[0].setting, cell[0].defense), [])] for cell in _cells(results)]


def _memberships_and_linear(results: Results) -> list[Group]:
    """Each cell of a membership inference, followed by the cells of the regression in the same setting."""
    linear = [case for case in results.membership if _is_linear(case)]
    cells = _group_cases(results.membership, lambda case: (case.setting, case.named, case.defense))
    return [
        [*cell, *(one for one in linear if (one.setting, one.defense) == (cell[0].setting, cell[0].defense))]
        for cell in cells
    ] or [[]]  # an empty group, so that tables that cannot tell are reported as not judged


def _attacks(results: Results) -> list[Group]:
    return _group_cases(results.cases, lambda case: (case.setting, case.attack))


def _defenses(results: Results) -> list[Group]:
    return _group_cases(results.cases, lambda case: case.defense)


#: Every flag of a whole run, in the order of the evaluation protocol.
RUN_FLAGS: tuple[RunFlag, ...] = (
    RunFlag(1, _settings, clean_at_chance),
    RunFlag(2, _cells, attack_helps),
    RunFlag(2, _cells, mostly_absence),
    RunFlag(3, _cells_and_noises, weaker_than_noise),
    RunFlag(3, _memberships_and_linear, beaten_by_least_squares),
    RunFlag(5, _settings, nothing_hurts),
    RunFlag(6, _attacks, defenses_alike),
    RunFlag(14, _whole, few_seeds),
    RunFlag(14, _whole, one_partition),
    RunFlag(14, _whole, tuned_on_test),
    RunFlag(14, _whole, keeps_state),
    RunFlag(15, _cells, tax_above_benefit),
    RunFlag(16, _whole, noise_from_seed),
    RunFlag(18, _whole, tuned_as_reported),
    RunFlag(18, _whole, best_of_several),
    RunFlag(18, _whole, tuned_beside_epsilon),
    RunFlag(19, _defenses, order_matters),
)

#: Flags of the evaluation protocol that are not judged yet: number, what, why.
NOT_YET = (
    (
        16,
        "a sampling mismatch",
        "suites refuse a sampling that the accountant has no proof for; other tables do not tell",
    ),
    (
        21,
        "an inversion that knows batch statistics",
        "no matching attack reads batch statistics; other tables do not tell",
    ),
)

#: The cell named by a flag of the whole run.
WHOLE = "the whole run"


def _group_cases(cases: Group, key: Callable[[Case], object]) -> list[Group]:
    found: dict[object, list[Case]] = {}
    for case in cases:
        found.setdefault(key(case), []).append(case)
    return list(found.values())


def _is_linear(case: Case) -> bool:
    return name_of(str(case.named)) == LINEAR


def _auc(case: Case) -> float:
    """AUC of the membership inference."""
    return float(require_value(case.result, "inference.score.auc"))


def _is_untargeted(case: Case) -> bool:
    return case.attack is not None and case.card.get("goal") != "backdoor"


def _means_harm(case: Case) -> bool:
    """Whether it is an attack on accuracy: a fault may well be harmless."""
    return _is_untargeted(case) and case.card.get("goal") != "fault"


def _is_noise(case: Case) -> bool:
    return case.attack is not None and name_of(case.attack) == "gaussian"


def _figure(case: Case, path: str) -> float:
    return float(require_value(case.result, path))


def _estimate_difference(
    cases: Group, difference: Callable[[Case], float], seeds: Container[object] | None = None
) -> Estimate:
    """The mean over seeds of a difference; with ``seeds``, over these only."""
    return student([difference(case) for case in cases if seeds is None or case.seed in seeds])


def _absence(case: Case) -> float:
    return _figure(case, "controls.clean_defense") - _figure(case, "controls.silent_defense")


def _harm(case: Case) -> float:
    return _figure(case, "controls.silent_defense") - _figure(case, "final_accuracy")


def _tax(case: Case) -> float:
    return _figure(case, "controls.clean_mean") - _figure(case, "controls.clean_defense")


def _benefit(case: Case) -> float:
    return _figure(case, "final_accuracy") - _figure(case, "controls.attack_mean")


def _length(cases: Group) -> float:
    return _mean([_figure(case, "aggregate.hostile_length") for case in cases])


def _cost_to_the_mean(cases: Group) -> float | None:
    costs = {}  # by seed, since the cases of all defenses repeat the same controls
    for case in cases:
        controls = require_value(case.result, "controls")
        if controls.get("attack_mean") is not None and controls.get("clean_mean") is not None:
            costs[case.seed] = controls["clean_mean"] - controls["attack_mean"]
    return _mean(list(costs.values())) if costs else None


def _spread_and_noise(table: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Standard deviations of the rows' means, and of the residuals after removing the means of rows and columns."""
    k, m = len(table), len(table[0])
    rows, columns = [_mean(row) for row in table], [_mean(column) for column in zip(*table, strict=True)]
    overall = _mean(rows)
    spread = math.fsum((row - overall) ** 2 for row in rows) / (k - 1)
    left = math.fsum(
        (value - rows[i] - columns[j] + overall) ** 2 for i, row in enumerate(table) for j, value in enumerate(row)
    )
    return math.sqrt(spread), math.sqrt(left / ((k - 1) * (m - 1)))


def _place(what: str, group: Group) -> str:
    return f"{what}, {group[0].setting}" if group[0].setting else what


def _interval(found: Estimate, unit: str) -> str:
    """``2.5 points [1.3, 3.7]``."""
    assert found.half_width is not None
    return f"{100 * found.mean:.1f} {unit} {bracket(100 * found.mean, 100 * found.half_width, '.1f')}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
