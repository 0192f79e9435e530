"""Red flags: conditions that make the metrics of one record doubtful. One flag, one function, one row in `FLAGS`.

Each function gets a record's result and threat card. It returns None, or one line that names the metric, the threshold, and
what to do about it. If the record lacks a fact that is needed to judge, it raises `MissingFact`: not judged is not the same as
fine. The flags of a whole run are in `fedguard.bench.flags.run_flags`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from fedguard.metrics.returns import in_shares, read_score_curve
from fedguard.metrics.trend import Rise, rising, take_moments

Part = Mapping[str, Any]

#: Allowed excess of the best evaluation over the final ones, and allowed rise at the end
FALLEN = RISEN = 0.05

#: Allowed distance of an app's update from the step that its description predicts, over the length of this step
MISFIT = 0.05


class MissingFact(Exception):
    """A flag cannot be judged for lack of a fact; ``path`` names it as in records: ``controls.clean_mean``."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class Flag:
    """One row: the flag's number in the evaluation protocol, and its function."""

    number: int
    judge: Callable[[Part, Part], str | None]

    @property
    def name(self) -> str:
        return self.judge.__name__


@lru_cache(256)
def _split(path: str) -> Sequence[str]:
    return path.split(".")


def require_value(part: Part, path: str) -> Any:
    """The value at a dotted path. Raises `MissingFact` if there is none."""
    value: Any = part
    for key in _split(path):
        value = value.get(key) if isinstance(value, (dict, Mapping)) else None
    if value is None:
        raise MissingFact(path)
    return value


def require_entry(part: Part, key: str) -> Any:
    """The value of a key that may be None for "there is none". Raises `MissingFact` if the key is missing."""
    if key not in part:
        raise MissingFact(key)
    return part[key]


def percent(share: float) -> str:
    """``93.1 %``."""
    return f"{100 * share:.1f} %"


def weak_task(result: Part, card: Part) -> str | None:
    clean, chance = require_value(result, "controls.clean_mean"), require_value(result, "chance")
    half = (1 + chance) / 2
    if clean >= (min(2 * chance, half) if chance else half):  # of two classes, twice chance is more than there is
        return None
    if not chance:  # of returns, of which guessing has 0
        return (
            f"the mean without attack comes to {percent(clean)} of the way from guessing to a perfect return, less than half: "
            "train longer, or take a task that can be learned."
        )
    return (
        f"the mean without attack reaches {percent(clean)}, less than twice chance ({percent(chance)}) and less than half way "
        "from there to 100 %: train longer, or take a task that can be learned."
    )


def weaker_than_its_sibling(result: Part, card: Part) -> str | None:
    effect = require_entry(result, "attack_effect")
    if effect is None or effect["by"] in _ensemble_attacks(result):
        return None
    harm, possible = effect["none"] - effect["attack"], effect["none"] - effect["sibling"]
    if possible < LEAST_HARM or harm >= possible / 2:
        return None
    return (
        f"{card['attack']} took {harm:.2f} of the progress that the rule makes along the honest mean, and {effect['by']} would "
        f"have taken {possible:.2f} in the same rounds, more than twice as much: leave the direction to be chosen, "
        f"or run {effect['by']} beside it, before the rule is said to stand this attack."
    )


def timid_alie(result: Part, card: Part) -> str | None:
    attack = require_entry(card, "attack")
    if attack is None or name_of(attack) != "alie":
        return None
    z, whose = parameters_of(attack).get("z"), "as it is set"
    if z is None:
        n, total = require_value(card, "per_round"), require_value(card, "clients")
        f = round(require_value(card, "malicious") * n / total)
        z, whose = _formula_z(n, f), f"by the source's formula for n = {n}, f = {f}"
    if abs(z) >= 0.3:
        return None
    return (
        f"z = {z:.2f} {whose}, below 0.3: a shift so small moves next to nothing. "
        "Try alie(z=1.5) and alie(z=-1.5) beside it, or worst_case, before a rule is said to stand ALIE."
    )


def wrong_assumed_f(result: Part, card: Part) -> str | None:
    if require_entry(card, "attack") is None or require_value(card, "assumed_f") == require_value(card, "malicious"):
        return None
    if not card.get("f_known", True):  # the suite says that nobody knows f, and the rule is told the most it can stand
        return None
    if card.get("acts_on") and set(card["acts_on"]) <= {
        "participation",
        "promises",
    }:  # nothing false reaches the rule, so no f is wrong
        return None
    return (
        f"the rule assumes f = {card['assumed_f']} while {card['malicious']} clients are malicious: "
        "drop clients.assumed_f, unless an unknown f is what you study."
    )


def outvoted(result: Part, card: Part) -> str | None:
    rounds = require_value(result, "rounds")
    if not require_value(rounds, "outvoted"):
        return None
    return (
        f"in {rounds['outvoted']} of {rounds['total']} rounds more malicious clients were drawn than the rule was told: "
        "draw more clients per round, or raise clients.assumed_f."
    )


def unproven(result: Part, card: Part) -> str | None:
    return "; ".join(require_value(card, "unproven")) or None


def abandoned_rounds(result: Part, card: Part) -> str | None:
    rounds = require_value(result, "rounds")
    if not require_value(rounds, "abandoned"):
        return None
    return f"{rounds['abandoned']} of {rounds['total']} rounds changed nothing: {rounds['why_abandoned']}"


def lost_nodes(result: Part, card: Part) -> str | None:
    """Nodes of an app that ended in the middle of its training."""
    require_value(result, "rounds")
    app = result.get("app", {})
    lost, sites = app.get("lost", []), app.get("sites")
    if not lost:
        return None
    names = [sites[one["node"]] if sites else f"node {one['node']}" for one in lost]
    told = [
        f"{name} from round {one['round']} on" + (f" (its process {one['how']})" if one["how"] else "")
        for name, one in zip(names, lost, strict=True)
    ]
    return (
        f"{len(lost)} of {require_value(card, 'clients')} nodes stopped answering: {', '.join(told)}. "
        "The figures are of the others. See the trial's log, and run it again with --fresh."
    )


def described_otherwise(result: Part, card: Part) -> str | None:
    """What an app's team says of its training, beside what its nodes sent."""
    require_value(result, "rounds")
    misfit = result.get("app", {}).get("misfit")
    if misfit is None or misfit <= MISFIT:
        return None
    return (
        f"an update of the app's nodes differs by {percent(misfit)} from the step that app.training describes (expected: at "
        f"most {percent(MISFIT)}), so the attack was told, or scored by, something else than what happened. Check model, data, "
        "lr or batch_size; if the nodes add noise or a penalty of their own, this is that."
    )


def dropped_updates(result: Part, card: Part) -> str | None:
    """Updates that no rule saw, since the server refuses values that no float32 sum can hold."""
    rounds = require_value(result, "rounds")
    dropped = require_value(rounds, "not_finite") + require_value(rounds, "too_large")
    if not dropped:
        return None
    return (
        f"{dropped} updates were refused before {require_value(card, 'defense')} saw them (expected: none), "
        f"{rounds['too_large']} of them with values beyond 2^112, the others with values that are not finite: what is measured "
        "here is that refusal, and a server without it may be lost to a single such update. Take a weaker attack to measure "
        "the rule."
    )


def read_beyond(result: Part, card: Part) -> str | None:
    sees, shown, needs = (
        set(require_value(card, "server_sees")),
        set(require_value(card, "server_shown")),
        require_value(card, "rule_needs"),
    )
    declared = {sight for alternatives in needs.values() for alternative in alternatives for sight in alternative}
    hidden, unsaid = sees - shown, sees - declared
    blind = [stage for stage, ways in needs.items() if not any(set(way) <= shown for way in ways)]
    if not (hidden or unsaid or blind):
        return None
    if blind:
        read = f"{' and '.join(blind)} would have to see what secure_aggregation: {card['secure_aggregation']} hides"
    elif hidden:
        read = f"the server's rule saw {_join_names(hidden)}, and the server is shown no more than {_join_names(shown)}"
    else:
        read = f"the server's rule saw {_join_names(unsaid)}, which no stage of it declares to need"
    return f"{read}: the number belongs to no server that could exist. Leave it out, or run without masking."


def root_suffices(result: Part, card: Part) -> str | None:
    if require_entry(card, "root_data") is None:
        return None
    root, final = require_value(result, "references.root_only"), require_value(result, "final_accuracy")
    if root < final:
        return None
    return (
        f"{percent(final)} is no more than the {percent(root)} that the server reaches alone on its "
        f"{card['root_data']['examples']} root examples: such a federation is not worth its risk. Give the server fewer."
    )


def root_overlaps(result: Part, card: Part) -> str | None:
    root = require_entry(card, "root_data")
    if root is None:
        return None
    test, clients = require_value(root, "overlap_with_test"), root.get("overlap_with_clients") or 0
    if not test and not clients:
        return None
    return (
        f"{test} root examples are test examples and {clients} are clients' own (expected 0): "
        "draw the root data from examples that nobody else has."
    )


def past_its_best(result: Part, card: Part) -> str | None:
    best, final = require_value(result, "best_accuracy"), require_value(result, "final_accuracy")
    end = _find_rise(result) if "curve" in result else None
    if best - (end.level if end else final) <= FALLEN:  # of a curve that still rises, the best is its end
        return None
    curve = "look at the curve" if "curve" in result else "its curve would tell whether it fell, or rose to the end"
    return (
        f"best {percent(best)}, final {percent(final)}, more than 5 points apart: never quote the best round; {curve}."
    )


def _find_rise(result: Part) -> Rise | None:
    """The rise over the last evaluations that count, or else over the last rounds: one slow round may fill the former."""
    return rising(take_moments(result)) or rising(read_score_curve(result))


def not_converged(result: Part, card: Part) -> str | None:
    require_value(result, "curve")
    end = rising(take_moments(result))
    if end is None or end.rise <= RISEN:
        return None
    return (
        f"the last {end.evaluations} evaluations rise by {100 * end.rise:.1f} points to {percent(end.level)}, more than 5: "
        "the training has not come to its end. Train longer before you quote or rank its accuracy."
    )


def diverged(result: Part, card: Part) -> str | None:
    if not require_value(result, "diverged"):
        return None
    return "the loss is not finite: divergence, which a lower lr may prevent, is no finer success of the attack."


def class_lost(result: Part, card: Part) -> str | None:
    worst, final = require_value(result, "worst_class_accuracy"), require_value(result, "final_accuracy")
    if worst >= final / 2:
        return None
    return (
        f"the worst class has {percent(worst)}, less than half of the {percent(final)} overall: "
        "quote it beside the average."
    )


def search_at_boundary(result: Part, card: Part) -> str | None:
    share = require_value(result, "attack_notes").get("at_boundary")
    if share is not None and share > 0:
        return (
            f"in {percent(share)} of the rounds the best strength was the largest or smallest that was tried "
            "(expected in none): widen the range that the attack searches."
        )
    return _flag_boundary_choice(result.get("worst_case") or {})


def epsilon_without_proof(result: Part, card: Part) -> str | None:
    epsilon = require_entry(card, "epsilon")
    if epsilon is None:
        return None
    rule = name_of(require_value(card, "defense").split(">>")[-1])
    if rule == "mean" or card.get("noise") in NOISE_BEFORE_THE_RULE:
        return None
    return (
        f"epsilon = {epsilon:g} is claimed for {rule}: noise calibrated to the sensitivity of the mean proves nothing for "
        'another rule. Say "no guarantee", or add the noise before the rule and say so.'
    )


def hostile_noise_counted(result: Part, card: Part) -> str | None:
    of_records = (result.get("privacy") or {}).get("unit") == "record"
    if require_entry(card, "epsilon") is None or card.get("noise") == "server" or of_records:
        return None
    malicious, spared = require_value(result, "privacy.most_hostile"), require_value(result, "privacy.may_withhold")
    if malicious <= spared:
        return None
    return (
        f"{malicious} malicious clients stood in one sum, and {spared} were reckoned with: epsilon = {card['epsilon']:g} "
        "charges that they added no noise; an accountant who does not know them would print less. Raise protocol.colluding."
    )


def loose_delta(result: Part, card: Part) -> str | None:
    if require_entry(card, "epsilon") is None:
        return None
    delta, units, unit = (require_value(result, f"privacy.{one}") for one in ("delta", "units", "unit"))
    if 10 * delta * units <= 1:
        return None
    return (
        f"delta = {delta:g} among {units} {unit}s is above 1 / (10 n) = {1 / (10 * units):.2g}: the chance that the promise "
        "breaks down for one of them is no longer small. Lower delta."
    )


def easy_inversion(result: Part, card: Part) -> str | None:
    if require_entry(result, "inference") is None or require_value(result, "inference.goal") != "reconstruction":
        return None
    given = require_value(result, "inference.given")
    easy = [
        *(["labels that it was told"] if given.get("labels") else []),
        *(["a single example"] if given.get("examples") == 1 else []),
        *(["an untrained model"] if _is_untrained(result, given) else []),
    ]
    if not easy:
        return None
    return (
        f"the reconstruction is from {' and '.join(easy)}, where inversion is easiest: say so with the number, and invert "
        "later rounds (observer.round) and larger batches as well."
    )


def _is_untrained(result: Part, given: Part) -> bool:
    accuracy = given.get("accuracy_of_the_model")
    return accuracy is not None and accuracy < 2 * require_value(result, "chance")


def backdoor_without_baseline(result: Part, card: Part) -> str | None:
    if require_entry(result, "attack_success_raw") is None:
        return None
    if result.get("attack_success_clean") is not None:
        return None
    return (
        f"a success of {percent(result['attack_success_raw'])} without the rate of a clean model (expected beside it): "
        "train without the attack, measure the same trigger, and subtract."
    )


def target_inputs_counted(result: Part, card: Part) -> str | None:
    if require_entry(result, "attack_success_raw") is None:
        return None
    if not require_value(result, "attack_success_counts_target"):
        return None
    return (
        f"the success of {percent(result['attack_success_raw'])} counts inputs that are of the target class anyway "
        "(expected none): leave them out."
    )


def below_chance(result: Part, card: Part) -> str | None:
    final, chance = require_value(result, "final_accuracy"), require_value(result, "chance")
    if final >= chance / 2 or "returns" in result:  # actors have no labels, and may well do worse than at random
        return None
    return (
        f"{percent(final)} is less than half of chance ({percent(chance)}): the labels were permuted rather than the model "
        "destroyed. Say so, and look at the classes."
    )


def heterogeneity_unmeasured(result: Part, card: Part) -> str | None:
    partition = require_value(card, "partition")
    if name_of(partition) == "iid" or card.get("dissimilarity") is not None:
        return None
    return (
        f"{partition} is declared, and how far the clients differ was not measured (expected: a number): one alpha gives "
        "very different clients on other data. Measure label_distance, 0 alike to 1 disjoint."
    )


def transductive(result: Part, card: Part) -> str | None:
    found = require_value(result, "statistics")
    if found["normalization"] != "batch":
        return None
    return (
        f"{found['layers']} layers normalize test examples by the batch that they are in (training.statistics: "
        f"{found['fate']}), so that accuracy depends on which examples come together: say that test batches have 1,000 "
        "examples in the order of the test set, and compare with fates whose model can label a single example."
    )


def unguarded_statistics(result: Part, card: Part) -> str | None:
    found, defense = require_value(result, "statistics"), require_value(card, "defense")
    if found["rule"] != "mean" or name_of(defense.rpartition(">>")[2]) in ("mean", "weighted_mean"):
        return None
    return (
        f"{defense} guards the parameters, and the {found['numbers']} running statistics beside them are averaged "
        f"(training.statistics: {found['fate']}): one client can move a mean anywhere, and with it the accuracy. Set a rule "
        "for them, or statistics that nobody sends."
    )


#: A sibling that reduces the progress ``<R, mu> / |mu|^2`` by less than this does no harm, whatever the attack does
LEAST_HARM = 0.1

#: Noise added at these places gives an epsilon that holds whatever the server's rule does afterwards
NOISE_BEFORE_THE_RULE = ("client", "local", "before the rule")

#: Every flag of one record, in the order of the evaluation protocol
FLAGS: tuple[Flag, ...] = (
    Flag(1, weak_task),
    Flag(3, weaker_than_its_sibling),
    Flag(4, timid_alie),
    Flag(7, wrong_assumed_f),
    Flag(7, outvoted),
    Flag(7, unproven),
    Flag(7, abandoned_rounds),
    Flag(7, dropped_updates),
    Flag(7, lost_nodes),
    Flag(7, described_otherwise),
    Flag(8, read_beyond),
    Flag(9, root_suffices),
    Flag(9, root_overlaps),
    Flag(10, past_its_best),
    Flag(10, not_converged),
    Flag(11, diverged),
    Flag(12, class_lost),
    Flag(13, search_at_boundary),
    Flag(16, epsilon_without_proof),
    Flag(16, hostile_noise_counted),
    Flag(16, loose_delta),
    Flag(17, backdoor_without_baseline),
    Flag(17, target_inputs_counted),
    Flag(20, below_chance),
    Flag(21, easy_inversion),
    Flag(22, heterogeneity_unmeasured),
    Flag(23, transductive),
    Flag(24, unguarded_statistics),
)


def find_red_flags(result: Part, card: Part) -> list[dict[str, Any]]:
    """The flags that a record raises, as ``{"flag": name, "number": in the protocol, "said": one line}``."""
    found, result = [], in_shares(result)
    for flag in FLAGS:
        try:
            said = flag.judge(result, card)
        except MissingFact:
            continue
        if said is not None:
            found.append({"flag": flag.name, "number": flag.number, "said": said})
    return found


def name_of(label: str) -> str:
    """``alie`` of ``alie(z=1.5)``."""
    return label.partition("(")[0].strip()


def parameters_of(label: str) -> dict[str, float]:
    """The numbers among the parameters in ``alie(z=1.5)``."""
    found = re.findall(r"(\w+)=(-?\d[\d.]*(?:e[-+]?\d+)?)(?=[,)])", label)
    return {name: float(value) for name, value in found}


def _formula_z(n: int, f: int) -> float:
    """Baruch et al. (2019): Phi^-1((n - f - s) / (n - f)), s = floor(n / 2) + 1 - f, and s = 1 where that is less."""
    supporters = max(n // 2 + 1 - f, 1)
    return NormalDist().inv_cdf(min(max((n - f - supporters) / (n - f), 1e-6), 1 - 1e-6))


def _flag_boundary_choice(choice: Part) -> str | None:
    """The flag's text for an ensemble with a worst attack at the largest or smallest strength of its family."""
    chosen = choice.get("chosen")
    strength = parameters_of(chosen or "")
    if not chosen or len(strength) != 1:
        return None
    ((parameter, value),) = strength.items()
    family = [score["attack"] for score in choice["scores"] if name_of(score["attack"]) == name_of(chosen)]
    tried = sorted({parameters_of(one).get(parameter, value) for one in family})
    if len(tried) < 2 or value not in (tried[0], tried[-1]):
        return None
    return (
        f"the worst case is {chosen}, and {parameter} was tried from {tried[0]:g} to {tried[-1]:g} (expected: a worst "
        "strength between others): add stronger and weaker ones to the ensemble's attacks."
    )


def _ensemble_attacks(result: Part) -> set[str]:
    """The attacks that an ensemble trained in full before it chose."""
    return {score["attack"] for score in (result.get("worst_case") or {}).get("scores", ())}


def _join_names(names: set[str]) -> str:
    return ", ".join(sorted(names)).replace("_", " ")
