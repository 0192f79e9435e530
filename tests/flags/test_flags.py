"""Red flags: each has a case that raises it and one that does not, and says the figure, the threshold and the remedy."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.architectures.effect import effects
from fedguard.bench.flags.lint import lint
from fedguard.bench.flags.permutation import measure_order_effect
from fedguard.bench.flags.results import Case, Results, results_of
from fedguard.bench.flags.run_flags import NOT_YET, RUN_FLAGS, RaisedFlag, UnjudgedFlag
from fedguard.contracts import AggregationRule
from fedguard.errors import UnknownName
from fedguard.metrics.flags import FLAGS, MissingFact, find_red_flags, parameters_of
from fedguard.metrics.trend import rising
from fedguard.registry import load_registry
from tests.attacks.test_attacks import view
from tests.table import normal

RECORD_FLAGS = {flag.name: flag for flag in FLAGS}
OF_RUNS = {flag.name: flag for flag in RUN_FLAGS}

#: A record that raises nothing.
RESULT = {
    "final_accuracy": 0.85,
    "best_accuracy": 0.87,
    "worst_class_accuracy": 0.7,
    "curve": {"accuracy": [0.3, 0.7, 0.87, 0.84, 0.85, 0.86, 0.84, 0.86]},
    "diverged": False,
    "chance": 0.1,
    "controls": {"clean_mean": 0.9, "clean_defense": 0.9, "attack_mean": 0.2, "attack_defense": 0.85},
    "references": {"oracle_mean": 0.9, "root_only": 0.6},
    "rounds": {"total": 30, "not_finite": 0, "too_large": 0, "outvoted": 0, "abandoned": 0, "why_abandoned": None},
    "attack_success_raw": 0.9,
    "attack_success_clean": 0.05,
    "attack_success_counts_target": False,
    "attack_notes": {},
    "attack_effect": {"none": 0.9, "attack": 0.4, "sibling": 0.1, "by": "min_max(direction=unit)"},
    "inference": {
        "goal": "reconstruction",
        "given": {"labels": False, "examples": 8, "accuracy_of_the_model": 0.8},
    },
}
CARD = {
    "attack": "sign_flip",
    "goal": "untargeted",
    "clients": 20,
    "per_round": 20,
    "malicious": 4,
    "assumed_f": 4,
    "assumed_f_per_round": 4,
    "unproven": [],
    "defense": "median",
    "rule_needs": {"median": [["each_update"], ["group_sums"]]},
    "server_sees": ["each_update"],
    "server_shown": ["sum", "group_sums", "each_update", "model"],
    "secure_aggregation": "none",
    "root_data": {"examples": 50, "overlap_with_test": 0, "overlap_with_clients": 0},
    "epsilon": None,
    "partition": "dirichlet(alpha=0.1)",
    "dissimilarity": {"label_distance": 0.6},
    "partition_seed": None,
}


def changed(part, changes):
    """A copy with values at dotted paths replaced; ``...`` takes one out."""
    part = copy.deepcopy(part)
    for path, value in changes.items():
        *way, last = path.split(".")
        place = part
        for key in way:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return part


#: name -> (changes of the result, changes of the card, what it must say)
RAISED = {
    "weak_task": ({"controls.clean_mean": 0.19}, {}, ["19.0 %", "10.0 %", "twice"]),
    "weaker_than_its_sibling": (
        {"attack_effect.attack": 0.6}, {"attack": "min_max(direction=std)"},
        ["min_max(direction=std) took 0.30", "min_max(direction=unit) would have taken 0.80", "twice", "be chosen"],
    ),
    "timid_alie": ({}, {"attack": "alie"}, ["z = 0.16", "n = 20, f = 4", "0.3"]),
    "wrong_assumed_f": ({}, {"assumed_f": 2}, ["f = 2", "4 clients"]),
    "outvoted": ({"rounds.outvoted": 3}, {}, ["3 of 30"]),
    "unproven": ({}, {"unproven": ["outside its guarantee: median needs n >= 9. Raise n."]}, ["n >= 9"]),
    "lost_nodes": (
        {"app": {"lost": [{"node": 2, "round": 3, "how": "was killed by SIGKILL"}]}}, {},
        ["1 of 20 nodes", "node 2 from round 3 on (its process was killed by SIGKILL)"],
    ),
    "described_otherwise": ({"app": {"misfit": 0.9}}, {}, ["90.0 %", "at most 5.0 %", "app.training"]),
    "abandoned_rounds": ({"rounds.abandoned": 2, "rounds.why_abandoned": "krum needs 11 updates."}, {}, ["2 of 30", "11"]),
    "dropped_updates": (
        {"rounds.not_finite": 3, "rounds.too_large": 27}, {}, ["30 updates", "before median", "27 of them", "2^112", "not finite"],
    ),
    "read_beyond": (
        {}, {"server_shown": ["sum"], "secure_aggregation": "full"}, ["median", "secure_aggregation: full"],
    ),
    "root_suffices": ({"references.root_only": 0.86}, {}, ["85.0 %", "86.0 %", "50 root"]),
    "root_overlaps": ({}, {"root_data.overlap_with_test": 7}, ["7 root examples", "expected 0"]),
    "past_its_best": ({"best_accuracy": 0.91}, {}, ["91.0 %", "85.0 %", "5 points"]),
    "not_converged": (
        {"curve.accuracy": [0.3, 0.5, 0.6, 0.7, 0.8, 0.9]}, {}, ["last 5 evaluations", "40.0 points to 90.0 %", "Train longer"],
    ),
    "diverged": ({"diverged": True}, {}, ["not finite"]),
    "class_lost": ({"worst_class_accuracy": 0.4}, {}, ["40.0 %", "85.0 %", "half"]),
    "search_at_boundary": ({"attack_notes": {"at_boundary": 0.25}}, {}, ["25.0 %", "expected in none"]),
    "epsilon_without_proof": ({}, {"epsilon": 3.0}, ["epsilon = 3", "median"]),
    "hostile_noise_counted": (
        {"privacy": {"most_hostile": 4, "may_withhold": 2}}, {"epsilon": 3.0, "noise": "client"},
        ["4 malicious", "epsilon = 3", "2 were reckoned", "protocol.colluding"],
    ),
    "loose_delta": (
        {"privacy": {"delta": 1e-4, "units": 1437, "unit": "record", "most_hostile": 0, "may_withhold": 0}},
        {"epsilon": 3.0, "noise": "client"},
        ["delta = 0.0001", "1437 records", "7e-05"],
    ),
    "backdoor_without_baseline": ({"attack_success_clean": None}, {}, ["90.0 %", "subtract"]),
    "target_inputs_counted": ({"attack_success_counts_target": True}, {}, ["90.0 %", "expected none"]),
    "below_chance": ({"final_accuracy": 0.04}, {}, ["4.0 %", "10.0 %"]),
    "easy_inversion": (
        {"inference": {"goal": "reconstruction", "given": {"labels": True, "examples": 1, "accuracy_of_the_model": 0.15}}},
        {},
        ["labels that it was told", "a single example", "an untrained model"],
    ),
    "heterogeneity_unmeasured": ({}, {"dissimilarity": ...}, ["alpha=0.1", "label_distance"]),
    "transductive": (
        {"statistics": {"fate": "hidden", "normalization": "batch", "layers": 7, "numbers": 0, "rule": None, "floored": 0}}, {},
        ["7 layers", "hidden", "1,000"],
    ),
    "unguarded_statistics": (
        {"statistics": {
            "fate": "weighted", "normalization": "running", "layers": 7, "numbers": 240, "rule": "mean", "floored": 0,
        }},
        {"defense": "nnm >> trimmed_mean"}, ["240", "nnm >> trimmed_mean", "weighted"],
    ),
}  # fmt: skip


def test_every_flag_of_the_protocol_is_judged_or_said_not_to_be():
    numbers = {flag.number for flag in (*FLAGS, *RUN_FLAGS)} | {number for number, _, _ in NOT_YET}
    assert numbers == set(range(1, 25))
    names = [flag.name for flag in (*FLAGS, *RUN_FLAGS)]
    assert len(set(names)) == len(names)
    assert set(RAISED) == set(RECORD_FLAGS)


def test_a_sound_record_raises_nothing():
    assert find_red_flags(RESULT, CARD) == []


@pytest.mark.parametrize("name", RAISED)
def test_raised_and_says_metric_and_remedy(name):
    in_result, in_card, told = RAISED[name]
    found = {one["flag"]: one for one in find_red_flags(changed(RESULT, in_result), changed(CARD, in_card))}
    assert name in found
    assert found[name]["number"] == RECORD_FLAGS[name].number
    for part in told:
        assert part in found[name]["said"]
    assert found[name]["said"].endswith(".")


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_what_is_not_known_is_not_judged(flag):
    with pytest.raises(MissingFact):
        flag.judge({}, {})
    assert find_red_flags({}, {}) == []


@pytest.mark.parametrize(
    ("changes", "z"),
    [
        ({"attack": "alie(z=0.29)"}, "0.29"),
        ({"attack": "alie(z=-0.1)"}, "-0.10"),
        ({"attack": "alie", "clients": 10, "per_round": 10, "malicious": 2}, "0.00"),  # s = 4 of 8: Phi^-1(1/2)
        ({"attack": "alie", "clients": 100, "per_round": 20, "malicious": 20}, "0.16"),  # 4 of the 20 drawn
        ({"attack": "alie(z=0.3)"}, None),
        ({"attack": "alie(z=-1.5)"}, None),
        ({"attack": "alie", "clients": 50, "per_round": 50, "malicious": 24}, None),  # Phi^-1(24/26) = 1.43
        ({"attack": "alie", "clients": 20, "per_round": 20, "malicious": 9}, None),  # Phi^-1(9/11) = 0.91
        ({"attack": None}, None),
        ({"attack": "opt_alie"}, None),
    ],
)
def test_alie_is_judged_by_the_z_in_use(changes, z):
    said = RECORD_FLAGS["timid_alie"].judge({}, changed(CARD, changes))
    assert (said is None) if z is None else said.startswith(f"z = {z} ")


@pytest.mark.parametrize(
    ("curve", "flags"),
    [
        ([0.3, 0.5, 0.6, 0.7, 0.8, 0.9], {"not_converged"}),  # to the end: its best is its last, and nothing was lost
        ([0.1, 0.9, 0.8, 0.5, 0.45, 0.4, 0.4, 0.4], {"past_its_best"}),
        ([0.1, 0.9, 0.3, 0.1, 0.2, 0.3, 0.4, 0.5], {"past_its_best", "not_converged"}),  # destroyed, and recovering
        ([0.2, 0.9, 0.88, 0.9, 0.89, 0.9, 0.88], set()),
        ([0.5, 0.8, 0.81, 0.83, 0.82, 0.84], set()),  # 3.5 points
        ([0.5, 0.7, 0.84, 0.7, 0.84, 0.75], {"past_its_best"}),  # it leaps, and to where is chance
        ([0.4, 0.6], {"not_converged"}),
        ([0.4], set()),
        ([0.6, 0.4], {"past_its_best"}),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], {"past_its_best"}),
    ],
)
def test_a_curve_that_rises_to_its_end_is_not_past_its_best(curve, flags):
    last = curve[-5:]
    result = changed(
        RESULT, {"curve.accuracy": curve, "best_accuracy": max(curve), "final_accuracy": sum(last) / len(last)}
    )
    assert {one["flag"] for one in find_red_flags(result, CARD)} & {"not_converged", "past_its_best"} == flags


def test_the_rise_of_noise_is_seldom_flagged():
    """Evaluations that scatter by ten points around one level: 5 % of them show a rise, as its test says."""
    draws = np.random.default_rng(5).normal(0.5, 0.1, (2000, 5))
    found = [rising(list(draw)) for draw in draws]
    assert 0.035 < sum(one is not None for one in found) / 2000 < 0.065
    slopes = np.polyfit(np.arange(5), draws.T, 1)
    for one, (slope, start) in zip(found, slopes.T, strict=True):
        if one is not None:
            assert (one.rise, one.level) == (pytest.approx(4 * slope), pytest.approx(start + 4 * slope))


def test_alie_without_n_and_f_is_not_judged_unless_z_is_given():
    with pytest.raises(MissingFact, match="per_round"):
        RECORD_FLAGS["timid_alie"].judge({}, {"attack": "alie"})
    assert RECORD_FLAGS["timid_alie"].judge({}, {"attack": "alie(z=2)"}) is None


@pytest.mark.parametrize(
    ("none", "attack", "sibling", "flagged"),
    [
        (0.9, 0.61, 0.3, True),  # .29 of .6
        (0.9, 0.59, 0.3, False),  # more than half of it
        (0.9, 0.95, 0.79, True),  # it helps, and its sibling takes .11
        (0.9, 0.95, 0.81, False),  # no sibling harms
        (0.2, -0.3, -0.2, False),  # the best of its family
        (-0.1, -0.15, -0.9, True),  # a rule that goes backwards by itself
    ],
)
def test_an_attack_is_weak_that_takes_less_than_half_of_what_its_sibling_takes(none, attack, sibling, flagged):
    effect = {"none": none, "attack": attack, "sibling": sibling, "by": "min_sum(direction=sign)"}
    judge = RECORD_FLAGS["weaker_than_its_sibling"].judge
    assert (judge({"attack_effect": effect}, CARD) is not None) == flagged
    assert judge({"attack_effect": None}, CARD) is None  # it has no siblings
    tried = {"scores": [{"attack": "min_sum(direction=sign)"}]}  # an ensemble trained it in full, and it did less
    assert judge({"attack_effect": effect, "worst_case": tried}, CARD) is None


def test_an_f_that_the_suite_calls_unknown_is_no_mistake():
    assert RECORD_FLAGS["wrong_assumed_f"].judge({}, {**CARD, "assumed_f": 9, "f_known": False}) is None
    assert RECORD_FLAGS["wrong_assumed_f"].judge({}, {**CARD, "assumed_f": 9, "attack": None}) is None


def test_a_rule_may_not_see_what_it_did_not_declare():
    judge = RECORD_FLAGS["read_beyond"].judge
    assert "model, which no stage" in judge({}, changed(CARD, {"server_sees": ["each_update", "model"]}))
    assert "saw root data" in judge({}, changed(CARD, {
        "server_sees": ["each_update", "root_data"], "rule_needs": {"fltrust": [["each_update"], ["root_data"]]},
    }))  # fmt: skip
    assert judge({}, changed(CARD, {"server_shown": ["sum", "group_sums"], "server_sees": ["group_sums"]})) is None


def test_root_flags_are_for_servers_with_root_data():
    assert RECORD_FLAGS["root_suffices"].judge({}, {"root_data": None}) is None
    assert RECORD_FLAGS["root_overlaps"].judge({}, {"root_data": None}) is None
    with pytest.raises(MissingFact, match="root_only"):
        RECORD_FLAGS["root_suffices"].judge({"final_accuracy": 0.5}, CARD)


def test_epsilon_holds_for_the_mean_and_for_noise_before_the_rule():
    judge = RECORD_FLAGS["epsilon_without_proof"].judge
    assert judge({}, {"epsilon": 3.0, "defense": "client_clipping(bound=1) >> mean"}) is None
    assert judge({}, {"epsilon": 3.0, "defense": "krum", "noise": "client"}) is None
    assert judge({}, {"epsilon": 3.0, "defense": "nnm >> krum(m=2)", "noise": "server"}).startswith("epsilon = 3 is")


def test_a_worst_case_at_the_end_of_its_family():
    judge = RECORD_FLAGS["search_at_boundary"].judge
    scores = [{"attack": f"ipm(tau={tau})"} for tau in (0.1, 2, 64)] + [{"attack": "sign_flip"}]

    def of(chosen):
        return judge({"attack_notes": {}, "worst_case": {"chosen": chosen, "scores": scores}}, {})

    assert "ipm(tau=64), and tau was tried from 0.1 to 64" in of("ipm(tau=64)")
    assert of("ipm(tau=2)") is None
    assert of("sign_flip") is None
    assert of(None) is None


def test_parameters_are_read_from_labels():
    assert parameters_of("alie(z=-1.5)") == {"z": -1.5}
    assert parameters_of("huge_value(factor=-1e+06, k=2)") == {"factor": -1e6, "k": 2.0}
    assert parameters_of("min_max(direction=std)") == {}
    assert parameters_of("krum") == {}


# Flags of whole runs.


def case(attack, defense, seed, final, *, clean=0.9, clean_mean=0.92, attack_mean=0.5, setting="", **extra):
    controls = {"clean_mean": clean_mean, "clean_defense": clean, "attack_mean": attack_mean if attack else None}
    length = extra.pop("length", 1.0)
    result = {"final_accuracy": final, "controls": controls, "chance": 0.1, "aggregate": {"hostile_length": length}}
    card = {"attack": attack, "goal": "untargeted" if attack else None, "partition_seed": None, **extra}
    return Case(setting, attack, defense, seed, result, card)


def judged(name, cases, tuning=None):
    flag, results = OF_RUNS[name], Results("made", cases, cases, facts={"tuning": tuning})
    return [flag.judge(results, group) for group in flag.groups(results)]


def found(name, cases, tuning=None):
    return [one for one in judged(name, cases, tuning) if isinstance(one, RaisedFlag)]


def over_seeds(attack, defense, finals, **extra):
    return [case(attack, defense, seed, final, **extra) for seed, final in enumerate(finals)]


def asked(attack, aucs, *, defense="mean", setting=""):
    """Cases of a membership, with so much AUC in each seed."""
    card = {"attack": attack, "goal": "membership"}
    return [
        Case(setting, attack, defense, seed, {"inference": {"score": {"auc": auc}}}, card)
        for seed, auc in enumerate(aucs)
    ]


def linear(membership, attacks=()):
    flag, results = OF_RUNS["beaten_by_least_squares"], Results("made", [], [], membership, {"attacks": list(attacks)})
    return [flag.judge(results, group) for group in flag.groups(results)]


def test_3_a_membership_that_plain_least_squares_beats():
    """Beside that of the same setting and defense alone, by paired seeds, and three hundredths of AUC at least."""
    best = asked("least_squares", (0.96, 0.95, 0.97)) + asked("least_squares", (0.5, 0.5, 0.5), setting="masks")
    cosine = asked("gradient_cosine", (0.52, 0.51, 0.53))
    (one,) = [one for one in linear(cosine + best) if isinstance(one, RaisedFlag)]
    assert one.cell == "gradient_cosine against mean"
    assert "AUC of 0.52" in one.said and "0.44 more" in one.said and "0.03" in one.said
    masked = asked("gradient_cosine", (0.52, 0.51, 0.53), setting="masks")
    assert linear(masked + best)[0] is None
    assert linear(asked("lira", (0.94, 0.93, 0.95)) + best)[0] is None  # .02 more
    assert linear(asked("lira", (0.96, 0.40, 0.99)) + best)[0] is None  # .18 more, by one seed of three
    assert isinstance(linear(cosine[:1] + best[:1])[0], UnjudgedFlag)
    assert linear(asked("least_squares(ridge=0.1)", (0.1,)) + best) == [None] * 3
    assert isinstance(linear(cosine[2:] + best[:2])[0], UnjudgedFlag)  # no seed in common


def test_3_a_membership_without_least_squares_beside_it():
    for attack in ("gradient_cosine", "lira(shadows=8)"):
        (one,) = linear(asked(attack, (0.52, 0.51)))
        assert (
            isinstance(one, RaisedFlag)
            and "no least_squares" in one.said
            and "Add least_squares to matrix.attack" in one.said
        )
    (refused,) = linear(asked("gradient_cosine", (0.52,)), ["gradient_cosine", "least_squares"])
    assert isinstance(refused, UnjudgedFlag) and "refused" in refused.why
    other = asked("least_squares", (0.9, 0.9), defense="median")
    assert isinstance(linear(asked("gradient_cosine", (0.5, 0.5)) + other, ["least_squares"])[0], UnjudgedFlag)
    assert linear([]) == [None]


@pytest.mark.parametrize(
    ("chance", "clean", "weak"),
    [
        (0.5, 0.84, False),
        (0.5, 0.7, True),
        (0.63, 0.97, False),
        (0.63, 0.7, True),
        (0.1, 0.25, False),
        (0.1, 0.15, True),
    ],
)
def test_1_a_task_of_two_classes_that_is_learned_is_not_called_weak(chance, clean, weak):
    """Twice the chance of two classes is 100 %, which nobody reaches."""
    told = find_red_flags({**RESULT, "chance": chance, "controls": {**RESULT["controls"], "clean_mean": clean}}, CARD)
    assert any(flag["flag"] == "weak_task" for flag in told) == weak


def test_1_the_interval_of_the_clean_mean_includes_chance():
    wide = [case(None, "mean", seed, value, clean_mean=value) for seed, value in enumerate((0.2, 0.3, 0.55))]
    (one,) = found("clean_at_chance", wide)
    assert "35.0 % [-9.8, 79.8]" in one.said  # t(2) = 4.303, s = 0.1803: 4.303 * 0.1803 / sqrt(3) = 0.448
    assert not found("clean_at_chance", [case(None, "mean", seed, 0.9, clean_mean=0.3) for seed in range(3)])
    assert isinstance(judged("clean_at_chance", wide[:1])[0], UnjudgedFlag)


def test_2_an_attack_that_helps():
    better = over_seeds("mimic", "krum", (0.92, 0.93, 0.925))
    (one,) = found("attack_helps", better)
    assert one.cell == "mimic against krum"
    assert one.said.startswith("accuracy is 2.5 points [1.3, 3.7] higher")
    assert not found("attack_helps", over_seeds("mimic", "krum", (0.95, 0.86, 0.92)))  # +1 ±11 points
    assert not found("attack_helps", over_seeds("mimic", "krum", (0.9, 0.9, 0.9)))
    assert not found(
        "attack_helps", over_seeds("mimic", "krum", (0.9003, 0.9003, 0.9003))
    )  # would read 0.0 ±0.0 points
    assert isinstance(judged("attack_helps", better[:1])[0], UnjudgedFlag)
    assert not found("attack_helps", over_seeds("model_replacement", "krum", (0.92, 0.93, 0.925), goal="backdoor"))
    assert not found("attack_helps", over_seeds("free_rider", "krum", (0.92, 0.93, 0.925), goal="fault"))


def test_2_a_drop_that_is_mostly_lost_data():
    def cases(*silent, finals=(0.70, 0.71, 0.69), **extra):
        found = over_seeds("ipm", "krum", finals, **extra)
        for one, value in zip(found, silent, strict=True):
            one.result["controls"]["silent_defense"] = value
        return found

    (one,) = found("mostly_absence", cases(0.74, 0.74, 0.74))  # of 20 points 16 are absence
    assert one.cell == "ipm against krum"
    assert one.said.startswith("of 20.0 points lost, 16.0 are lost where the malicious clients only stay silent")
    assert found("mostly_absence", cases(0.60, 0.60, 0.60))  # an attack that does less than silence
    assert not found("mostly_absence", cases(0.86, 0.86, 0.86))  # 4 of 20
    assert not found("mostly_absence", cases(0.70, 0.80, 0.86))  # 11.3 ±20 of 20 points
    assert not found("mostly_absence", cases(0.87, 0.87, 0.87, finals=(0.86, 0.86, 0.86)))  # 3 of 4 points
    assert not found("mostly_absence", cases(0.74, 0.74, 0.74, goal="fault"))
    assert isinstance(judged("mostly_absence", cases(0.74, finals=(0.70,)))[0], UnjudgedFlag)
    with pytest.raises(MissingFact, match=r"controls\.silent_defense"):
        judged("mostly_absence", over_seeds("ipm", "krum", (0.7, 0.7)))


def test_3_weaker_than_noise_of_no_greater_length():
    attack = over_seeds("alie", "krum", (0.80, 0.81, 0.82), length=2.0)
    noise = over_seeds("gaussian(scale=1)", "krum", (0.60, 0.62, 0.61), length=2.2)
    (one,) = found("weaker_than_noise", attack + noise)
    assert one.cell == "alie against krum"
    assert "gaussian(scale=1)" in one.said
    harmless = over_seeds("gaussian(scale=1)", "krum", (0.85, 0.85, 0.85), length=2.2)
    assert not found("weaker_than_noise", attack + harmless)
    longer = over_seeds("gaussian(scale=9)", "krum", (0.1, 0.1, 0.1), length=9.0)
    assert [type(one) for one in judged("weaker_than_noise", attack + longer)] == [UnjudgedFlag, type(None)]
    elsewhere = over_seeds("gaussian(scale=1)", "mean", (0.1, 0.1, 0.1), length=1.0)
    assert "add gaussian" in judged("weaker_than_noise", attack + elsewhere)[0].why


def test_5_nothing_hurts_the_mean():
    weak = over_seeds("a", "median", (0.8, 0.8), attack_mean=0.83)
    (one,) = found("nothing_hurts", weak)
    assert "costs the plain mean 9.0 points, less than 10" in one.said
    assert not found("nothing_hurts", weak + over_seeds("b", "median", (0.8, 0.8), attack_mean=0.81))
    assert judged("nothing_hurts", over_seeds(None, "median", (0.8, 0.8))) == [None]
    assert isinstance(judged("nothing_hurts", over_seeds("a", "median", (0.8,), attack_mean=None))[0], UnjudgedFlag)


def test_6_defenses_no_further_apart_than_seeds():
    alike = over_seeds("a", "krum", (0.70, 0.90)) + over_seeds("a", "median", (0.90, 0.72))
    (one,) = found("defenses_alike", alike)
    assert "differ by 0.7 points" in one.said  # means .80 and .81: .01 / sqrt(2)
    assert "the 19.0 that seeds" in one.said  # residuals of +-.095: sqrt(4 * .095^2 / 1)
    shifted = over_seeds("a", "krum", (0.70, 0.90)) + over_seeds("a", "median", (0.80, 0.99))
    assert not found("defenses_alike", shifted)  # good and bad seeds for both alike
    assert judged("defenses_alike", over_seeds("a", "krum", (0.7, 0.9))) == [None]
    assert isinstance(judged("defenses_alike", [alike[0], alike[2]])[0], UnjudgedFlag)


def test_14_few_seeds_or_one_partition_or_tuned_on_test():
    assert found("few_seeds", [case("a", "krum", 0, 0.8), case("b", "krum", 0, 0.8)])
    assert found("few_seeds", over_seeds("a", "krum", (0.8, 0.8)))
    assert not found("few_seeds", over_seeds("a", "krum", (0.8, 0.8, 0.8)))
    assert not found("few_seeds", [])
    with pytest.raises(MissingFact, match="seed"):
        judged("few_seeds", [case("a", "krum", None, 0.8)])
    assert found("one_partition", over_seeds("a", "krum", (0.8, 0.8), partition_seed=3))
    assert not found("one_partition", over_seeds("a", "krum", (0.8, 0.8)))
    tuning = {"judged_on": "test", "attacks": ["ipm"], "seeds": [10000]}
    assert found("tuned_on_test", over_seeds("a", "krum", (0.8, 0.8)), tuning)
    assert not found("tuned_on_test", over_seeds("a", "krum", (0.8, 0.8)))


def test_15_a_tax_above_the_benefit():
    dear = over_seeds("a", "krum", (0.60, 0.61, 0.62), clean=0.7, clean_mean=0.92, attack_mean=0.5)
    (one,) = found("tax_above_benefit", dear)  # it costs 22 and is 11 above
    assert "costs 22.0 points" in one.said
    assert "11.0 points above the plain mean" in one.said
    assert not found("tax_above_benefit", over_seeds("a", "krum", (0.60, 0.61, 0.62), clean=0.7, attack_mean=0.1))
    assert not found("tax_above_benefit", over_seeds("a", "krum", (0.4, 0.4, 0.4), clean=0.915))  # half a point
    assert judged("tax_above_benefit", over_seeds("a", "mean", (0.5, 0.5))) == [None]


def test_18_tuned_on_what_is_reported():
    cases = over_seeds("ipm(tau=5)", "krum", (0.8, 0.8)) + over_seeds("mimic", "krum", (0.8, 0.8))
    tuning = {"judged_on": "test", "attacks": ["ipm(tau=5)"], "seeds": [10000]}
    (one,) = found("tuned_as_reported", cases, tuning)
    assert "1 of 2 attacks" in one.said
    assert not found("tuned_as_reported", cases, {**tuning, "attacks": ["alie"]})
    assert not found("tuned_as_reported", cases)
    several = over_seeds("a", "clip >> krum(m=1)", (0.8,)) + over_seeds("a", "clip >> krum(m=5)", (0.8,))
    (one,) = found("best_of_several", several)
    assert "2 settings of clip >> krum" in one.said
    assert not found("best_of_several", over_seeds("a", "krum", (0.8,)) + over_seeds("a", "nnm >> krum", (0.8,)))


def test_18_a_matrix_over_settings_of_a_private_training_is_tuning_by_hand(tmp_path):
    """Three learning rates with epsilons: added up. Attacks, and how much noise there is, are no settings of the training."""
    suite = {
        "name": "private",
        "seeds": 2,
        "task": {"data": "wine"},
        "clients": {"total": 4, "malicious": 1},
        "training": {"rounds": 1, "batch_size": 4},
        "matrix": {"attack": ["none", "sign_flip"]},
    }
    privacy = {"kind": "record", "epsilon": 2.0, "delta": 1e-3, "sample_rate": 0.25}

    def raised(number, **matrix):
        swept = {**suite, "name": f"private{number}", "matrix": {**suite["matrix"], **matrix}}
        run = fg.run(swept, store=tmp_path, jobs=1)
        flags = [one for one in lint(results_of(run)).findings if one.flag == "tuned_beside_epsilon"]
        epsilons = {}
        for record in run.ran.values():
            rate = record["config"]["training"]["lr"]
            epsilons[rate] = max(epsilons.get(rate, 0), record["threat_card"]["epsilon"] or 0)
            assumed = (record["result"]["privacy"] or {}).get("assumptions")
            assert assumed is None or any("this training is the only one on these records" in one for one in assumed)
        return flags, sum(epsilons.values())

    (flag,), added = raised(1, **{"training.lr": [0.1, 0.2, 0.4], "protocol.privacy": [privacy]})
    assert "3 settings of the training" in flag.said and f"epsilon {added:.3g} by adding up" in flag.said
    assert 5.5 < added <= 6.0
    assert raised(2, **{"protocol.privacy": [privacy, {**privacy, "epsilon": 4.0}]})[0] == []
    (flag,), _ = raised(3, **{"protocol.privacy": [privacy, {**privacy, "clip": 0.5}]})
    assert "2 settings" in flag.said
    assert raised(4, **{"training.lr": [0.1, 0.2], "protocol.privacy": ["none"]})[0] == []


RULES = '''
import torch
from fedguard.contracts import ROWS, WeightRule

class FirstRow(WeightRule):
    """Takes the row that happens to come first."""
    name, needs = "first_row", ROWS
    def weights(self, gram, context):
        weights = torch.zeros(gram.n, dtype=torch.float64)
        weights[0] = 1
        return weights

class RowMemory(WeightRule):
    """Takes in each round the row at the place of the longest update of the round before."""
    name, needs = "row_memory", ROWS
    def weights(self, gram, context):
        place = context.state.get("place")
        weights = torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)
        if place is not None:
            weights = torch.zeros(gram.n, dtype=torch.float64)
            weights[int(place)] = 1
        return weights
    def remember(self, context, aggregate, gram):
        return {"place": gram.norms().argmax().float()}

class ClientMemory(RowMemory):
    """The same, with the client instead of the row."""
    name, needs = "client_memory", ROWS
    def weights(self, gram, context):
        place = context.state.get("place")
        if place is None:
            return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)
        return torch.tensor([float(client == int(place)) for client in context.clients], dtype=torch.float64)
    def remember(self, context, aggregate, gram):
        return {"place": torch.tensor(float(context.clients[int(gram.norms().argmax())]))}
'''


@pytest.fixture
def odd_rules(tmp_path, monkeypatch):
    (tmp_path / "odd_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return load_registry().with_modules(["odd_rules"])


def test_19_the_order_of_clients(odd_rules):
    def change(text):
        return measure_order_effect(odd_rules.pipeline(text).spec(), 10, 2, odd_rules)

    assert change("first_row") > 0.1
    assert change("nnm >> first_row") > 0.001
    assert change("row_memory") > 0.1
    assert change("client_memory") == 0
    for text in ("mean", "median", "krum", "nnm >> trimmed_mean", "fltrust"):
        assert change(text) == 0, text
    assert "it draws" in change("bucketing >> median")
    assert "trimmed_mean needs n >= 2f + 1" in measure_order_effect(
        load_registry().pipeline("trimmed_mean").spec(), 4, 2
    )


def test_19_none_of_fedguards_own_rules_is_moved_by_the_order():
    """So the flag measures the rules of plug-ins alone. Some draw, or need what the check does not show."""
    known, unjudged = load_registry(), set()
    for _, cls in known.classes(["defense"]):
        text = cls.name if issubclass(cls, AggregationRule) else f"{cls.name} >> mean"
        change = measure_order_effect(known.pipeline(text).spec(), 11, 2)
        assert change == 0 or isinstance(change, str), text
        unjudged |= {cls.name} if change else set()
    assert len(unjudged) < 12 < len(known.names("defense"))


def test_19_a_rule_that_is_not_at_hand():
    assert "unknown defense 'first_row'" in measure_order_effect([{"name": "first_row"}], 10, 2)
    with pytest.raises(UnknownName):
        load_registry().pipeline("first_row")


# Real records.

SUITE = {
    "name": "flagged",
    "task": {"partition": {"kind": "label_sorted"}, "partition_seed": 5},
    "clients": {"total": 10, "malicious": 2, "assumed_f": 1},
    "server": {"root_data": 300},
    "training": {"rounds": 6},
    "seeds": 2,
    "matrix": {
        "attack": ["none", "alie", "gaussian(scale=0.05)"],
        "defense": ["mean", "krum", "fltrust"],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


def test_real_records_raise_what_was_planted(run):
    by_label = {}
    for record in run.records.values():
        by_label.setdefault(record["label"], set()).update(flag["flag"] for flag in record["flags"])
        assert all(set(flag) == {"flag", "number", "said"} for flag in record["flags"])
    assert {"timid_alie", "wrong_assumed_f"} <= by_label["alie against mean"]
    assert "wrong_assumed_f" not in by_label["no attack against mean"]
    assert "timid_alie" not in by_label["gaussian(scale=0.05) against mean"]
    assert {"root_suffices", "class_lost"} <= by_label["no attack against krum"]  # one client knows one or two classes
    assert not {"read_beyond", "root_overlaps", "heterogeneity_unmeasured", "diverged"} & set.union(*by_label.values())


def test_the_references_are_what_they_say(run):
    """Honest clients alone: the same as an attack that sends their mean, which alie at n = 10, f = 2 does (z = 0)."""
    final = {(record["label"], record["seed"]): record["result"] for record in run.records.values()}
    for seed in run.seeds:
        oracle = final["alie against mean", seed]["controls"]["silent_mean"]
        assert oracle == pytest.approx(final["alie against mean", seed]["final_accuracy"], abs=0.003)
        assert oracle == final["gaussian(scale=0.05) against krum", seed]["controls"]["silent_mean"]
        assert final["no attack against mean", seed]["controls"]["silent_mean"] is None
        root = {result["references"]["root_only"] for (_, one), result in final.items() if one == seed}
        assert len(root) == 1
        assert 0.6 < root.pop() < 0.9


def test_root_only_is_the_servers_own_training(tmp_path):
    """All of the training data but one example per client, one full-batch step a round: a plain loop gives the same."""
    import torch

    from fedguard.api import lay_out
    from fedguard.bench.running.workbench import Workbench
    from fedguard.contracts import ROOT

    suite = {
        "task": {"data": "wine"},
        "clients": {"total": 4},
        "server": {"root_data": 100},
        "training": {"algorithm": "fedsgd", "batch_size": None, "rounds": 8, "lr": 0.2},
        "evaluation": {"every": 8},
        "seeds": 1,
    }
    run = fg.run(suite, store=tmp_path, jobs=1)
    (record,) = run.records.values()
    task = Workbench().task(lay_out(suite)[1].cells[0], 0)
    examples, test = task.examples(ROOT), task.dataset.test
    weight, bias = torch.zeros(3, 13, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    start = task.initial_model(fg_rng(0).child("model")).double()
    weight, bias = start[:39].view(3, 13).clone(), start[39:].clone()
    x, y = examples.x.double(), torch.nn.functional.one_hot(examples.y, 3).double()
    for _ in range(8):
        error = ((x @ weight.T + bias).softmax(1) - y) / len(x)
        weight, bias = weight - 0.2 * error.T @ x, bias - 0.2 * error.sum(0)
    right = ((test.x.double() @ weight.T + bias).argmax(1) == test.y).double().mean()
    assert record["result"]["references"]["root_only"] == pytest.approx(float(right), abs=1e-12)


def fg_rng(seed):
    from fedguard.rng import Rng

    return Rng(seed)


def test_the_length_of_malicious_updates_is_measured(run):
    """alie with z = 0 sends the honest mean, which is shorter than the mean length; noise of 0.05 has the length it has."""
    for record in run.records.values():
        length = record["result"]["aggregate"]["hostile_length"]
        if record["label"].startswith("alie"):
            assert 0 < length < 1
        elif record["label"].startswith(("no attack", "dropout")):  # nobody malicious sends anything
            assert length is None
        else:
            assert length > 0


def test_a_weak_direction_is_flagged_and_a_chosen_one_is_not(tmp_path):
    """Planted: where each client has other classes, -sigma goes sideways, and -mu would have gone backwards."""
    weak = [f"{name}(direction='std')" for name in ("min_max", "min_sum", "agr_tailored")]
    suite = {
        "name": "weak",
        "task": {"partition": "label_sorted"},
        "clients": {"total": 12, "malicious": 2},
        "training": {"algorithm": "fedsgd", "rounds": 5, "lr": 0.5, "worker_momentum": 0.9},
        "evaluation": {"every": 5},
        "seeds": 1,
        "matrix": {"attack": ["min_max", "min_sum", "agr_tailored", "sign_flip", *weak], "defense": ["trimmed_mean"]},
    }
    found = {}
    for record in fg.run(suite, store=tmp_path, jobs=1).records.values():
        if "trimmed_mean" in record["label"]:
            flags = {flag["flag"] for flag in record["flags"]}
            found[record["threat_card"]["attack"]] = flags, record["result"]["attack_effect"]
    for name in ("min_max", "min_sum", "agr_tailored"):
        flags, effect = found[f"{name}(direction=std)"]
        assert "weaker_than_its_sibling" in flags
        assert effect["by"] in (f"{name}(direction=unit)", f"{name}(direction=sign)")
        assert effect["sibling"] < effect["attack"] - 0.1
        assert "weaker_than_its_sibling" not in found[name][0]
        assert found[name][1]["attack"] <= found[name][1]["sibling"] + 0.05
    assert found["sign_flip"][1] is found[None][1] is None


def test_the_effect_in_a_record_is_that_of_whole_rounds():
    """Against a round that is aggregated from the rows themselves, with each sibling's rows in turn."""
    honest, f = normal(9, 30, 1, center=0.3), 3
    attack = load_registry().build("attack", "min_max(direction='std')")
    seen = view(honest, f=f, sees=attack.needs[0], rule="krum")
    rule = view(honest, f=f, rule="krum").rule
    found = effects(attack, seen, honest, attack.craft(seen), rule)
    mean = honest.mean(0)
    sent = {"none": mean.expand(f, -1)} | {
        f"min_max(direction={way})": fg.craft("min_max", honest, f=f, direction=way) for way in ("std", "unit", "sign")
    }
    expected = {name: float(rule(torch.cat([honest, rows])) @ mean / (mean @ mean)) for name, rows in sent.items()}
    assert found == pytest.approx(expected, abs=1e-4)
    assert len(set(found.values())) > 2
    assert effects(attack, seen, honest[:0], attack.craft(seen), rule) is None
    assert effects(load_registry().build("attack", "alie"), seen, honest, honest[:f], rule) is None


def test_a_whole_run_is_judged(run):
    judged = lint(results_of(run))
    flags = {(finding.number, finding.flag) for finding in judged.findings}
    assert {(4, "timid_alie"), (5, "nothing_hurts"), (7, "wrong_assumed_f"), (14, "one_partition")} <= flags
    assert [finding.number for finding in judged.findings] == sorted(finding.number for finding in judged.findings)
    for finding in judged.findings:
        assert re.search(r"\d", finding.said), finding
        assert finding.said.endswith(".")
        assert finding.cell
    assert "order_matters" in judged.clear
    assert "read_beyond" in judged.clear
    silent = {one.flag for one in judged.not_judged} | set(judged.clear) | {flag for _, flag in flags}
    assert silent == set(RECORD_FLAGS) | set(OF_RUNS)


def test_a_tuned_suite_is_known_to_be(tmp_path):
    tuning = {"attacks": ["sign_flip"], "seeds": [10000], "budget": 4, "judged_on": "test"}
    suite = {**SUITE, "seeds": 1, "tuning": tuning, "matrix": {"attack": ["sign_flip", "ipm"], "defense": ["median"]}}
    flags = {finding.flag for finding in lint(results_of(fg.run(suite, store=tmp_path, jobs=1))).findings}
    assert {"tuned_on_test", "tuned_as_reported", "few_seeds"} <= flags


def test_spread_and_noise_by_hand():
    from fedguard.bench.flags.run_flags import _spread_and_noise

    spread, noise = _spread_and_noise([[0.9, 0.8, 0.7], [0.5, 0.4, 0.3]])
    assert spread == pytest.approx(0.4 / math.sqrt(2))
    assert noise == pytest.approx(0, abs=1e-12)
    _, noise = _spread_and_noise([[1.0, 0.0], [0.0, 1.0]])
    assert noise == pytest.approx(1.0)  # four residuals of one half, one degree of freedom
