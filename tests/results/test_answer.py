"""The answer of a run names the worst over all goals of the attacks, not the accuracy alone."""

from __future__ import annotations

import pytest

from fedguard.bench.flags.answer import unanswerable
from fedguard.bench.flags.results import Case, Results
from fedguard.bench.results.answer import sentences, standings
from fedguard.bench.results.matrix import matrix
from fedguard.bench.results.trilemma import points
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import estimate


def chances(rows, chance):
    return {(one["cell"], one["seed"]): {"result": {"chance": chance}} for one in rows if one["status"] == "ok"}


class Ran:
    """A run of these rows."""

    share = "final_accuracy"

    def __init__(self, rows, swept=(), chance=0.1):
        self._rows, self.swept, self.records, self.ran = rows, list(swept), {}, chances(rows, chance)

    def rows(self):
        return self._rows

    def table(self, figure="final_accuracy"):
        return matrix("t", self._rows, self.swept, figure)


def row(attack, defense, goal=None, status="ok", **figures):
    return {
        **dict.fromkeys(FIGURES), "cell": f"{attack}/{defense}", "attack": attack, "defense": defense, "goal": goal, "seed": 0,
        "status": status, "reason": None, "epsilon": None, **figures,
    }  # fmt: skip


def measured(defense, noise, backdoor, success):
    return [
        row("none", defense, final_accuracy=0.92),
        row("ipm", defense, "untargeted", final_accuracy=noise),
        row("replaced", defense, "backdoor", final_accuracy=backdoor, attack_success=success),
    ]


ROWS = [
    *measured("mean", 0.10, 0.90, 1.0),
    *measured("geometric_median", 0.785, 0.91, 0.824),
    *measured("nnm", 0.674, 0.92, 0.01),
]


def at_seeds(rows, *shifts):
    """The same rows at several seeds, each shifted; a success falls where an accuracy rises."""
    return [
        one
        | {"seed": seed}
        | {
            name: one[name] + sign * shift
            for name, sign in (("final_accuracy", 1), ("attack_success", -1))
            if one[name] is not None
        }
        for seed, shift in enumerate(shifts)
        for one in rows
    ]


def answers(run, why=None):
    return sentences(standings(run), why)


#: Five seeds, on which all defenses vary alike.
FIVE = at_seeds(ROWS, -0.004, 0.0, 0.003, -0.001, 0.002)


def test_a_backdoor_decides_where_the_accuracy_is_kept():
    (answer,) = answers(Ran(FIVE)).values()
    assert answer.headline.startswith(
        "nnm keeps the most under the worst of 2 attacks: 67.4 % [67.1, 67.7]; next is geometric_median, "
    )
    assert answer.headline.endswith("geometric_median, 49.8 points lower on each seed, p = .003.")
    said = str(answer)
    assert "67.4 % [67.1, 67.7] accuracy (ipm) and 1.0 % [0.7, 1.3] backdoor success (replaced)" in said
    assert (
        "geometric_median has the highest mean accuracy, 78.5 % (ipm), but 82.4 % backdoor success (replaced)" in said
    )
    assert "Last is mean, " in said and "10.0 % accuracy (ipm) and 100.0 % backdoor success (replaced)." in said
    assert answer.ranked and answer.group == ("nnm",)


def test_without_backdoors_the_accuracy_decides():
    (answer,) = answers(Ran([one for one in FIVE if one["goal"] != "backdoor"])).values()
    assert answer.headline.startswith("geometric_median keeps the most under the attack: 78.5 % [")
    assert "backdoor" not in str(answer)


def test_no_winner_where_pairs_cannot_tell():
    """67.4 against 61.0 on three seeds that differ by more than that: the sentence of the demo that crowned a winner."""
    rows = [
        row("ipm", defense, "untargeted", final_accuracy=value) | {"seed": seed}
        for defense, values in {
            "nnm": (0.674, 0.60, 0.748),
            "median": (0.61, 0.65, 0.57),
            "mean": (0.2, 0.21, 0.19),
        }.items()
        for seed, value in enumerate(values)
    ]
    (answer,) = answers(Ran(rows)).values()
    assert answer.headline == "No single winner on 3 seeds: nnm and median cannot be told apart."
    assert "keeps the most" not in str(answer) and "±" not in str(answer)
    assert "nnm has the highest mean score under the attack: 67.4 % [" in str(answer)
    assert answer.group == ("nnm", "median")
    assert answer.action == "About 24 more seeds may settle nnm against median: set seeds: 27 and run again."


@pytest.mark.parametrize(("count", "apart", "said"), [
    (3, 0, "No single winner on 4 seeds: d0, d1 and d2 cannot be told apart."),
    (5, 0, "The 5 defenses cannot be told apart on 4 seeds."),
    (6, 2, "4 of 6 defenses cannot be told apart on 4 seeds."),
])  # fmt: skip
def test_a_leading_group_is_counted(count, apart, said):
    noise = [(3, -3, 1, -1), (-3, 3, 2, -2), (1, 1, -2, 0), (0, -1, -1, 2), (2, 1, -3, 0), (-1, -2, 1, 2)]
    rows = [
        row(
            "ipm",
            f"d{n}",
            "untargeted",
            final_accuracy=(0.6 - 0.0001 * n if n < count - apart else 0.2) + noise[n][seed] / 200,
        )
        | {"seed": seed}
        for n in range(count)
        for seed in range(4)
    ]
    (answer,) = answers(Ran(rows)).values()
    assert answer.headline == said


def test_one_seed_and_two_seeds_are_not_ranked():
    (one,) = answers(Ran(ROWS)).values()
    assert one.headline == "One seed: no ranking." and not one.ranked
    assert "nnm has the most, 67.4 % accuracy (ipm)" in str(one) and "keeps the most" not in str(one)
    (two,) = answers(Ran(at_seeds(ROWS, -0.01, 0.01))).values()
    assert two.headline == "Two seeds do not rank." and "p = " not in str(two) and not two.ranked
    assert "On both, nnm is above all others." in str(two) and "nnm 66.4 % to 68.4 %" in str(two)


def test_a_tie_on_one_seed_has_no_most_and_no_least():
    alike = [row("ipm", one, "untargeted", final_accuracy=0.6) | {"seed": 0} for one in ("mean", "nnm")]
    (tie,) = answers(Ran(alike)).values()
    assert "On this seed no defense has more than another: 60.0 % accuracy (ipm)." in str(tie)


def test_nothing_was_learned_or_nothing_is_left():
    (none,) = answers(Ran(FIVE), {"": "the mean without attack reaches 12.0 %."}).values()
    assert none.headline == "No answer yet: the mean without attack reaches 12.0 %." and not none.ranked
    assert "nnm" not in str(none)
    fallen = [one | {"final_accuracy": 0.09 + 0.01 * one["seed"]} for one in FIVE if one["goal"] == "untargeted"]
    (chance,) = answers(Ran(fallen)).values()
    assert chance.headline == "Every defense falls to chance under its worst attack."
    assert "keeps" not in str(chance)


def cases(clean, attacked=0.1, goal="untargeted"):
    """Of one attack against the mean, with the accuracies of the mean without attack by seed."""
    return [
        Case("", "ipm", "mean", seed, {"chance": 0.1, "controls": {"clean_mean": value, "attack_mean": attacked}}, {"attack": "ipm", "goal": goal})
        for seed, value in enumerate(clean)
    ]  # fmt: skip


@pytest.mark.parametrize(("made", "why"), [
    (cases((0.13, 0.14, 0.12)), "less than twice chance"),
    (cases((0.9, 0.2, 0.05)), "includes chance (10.0 %)"),
    (cases((0.90, 0.91, 0.92), 0.9), "the worst attack, ipm, costs the plain mean 1.0 points"),
    (cases((0.90, 0.91, 0.92)), ""),
    (cases((0.90, 0.91, 0.92), 0.9, "backdoor"), ""),
])  # fmt: skip
def test_flags_say_where_there_is_no_answer(made, why, monkeypatch):
    monkeypatch.setattr(
        "fedguard.bench.flags.answer.results_of", lambda run: Results("made", made, made, {"tuning": None})
    )
    found = unanswerable(None, [])
    assert (why in found[""]) if why else not found


def test_a_backdoor_that_succeeds_is_harm_enough_for_an_answer(monkeypatch):
    made = cases((0.90, 0.91, 0.92), 0.9)
    monkeypatch.setattr(
        "fedguard.bench.flags.answer.results_of", lambda run: Results("made", made, made, {"tuning": None})
    )
    assert unanswerable(None, standings(Ran(FIVE))) == {}
    assert unanswerable(None, standings(Ran([one for one in FIVE if one["goal"] != "backdoor"]))) != {}


def test_refused_attacks_are_not_among_the_worst_of_so_many():
    refused = [row("mimic", "nnm", "untargeted", "refused") | {"seed": seed} for seed in range(5)]
    refused += [row("mimic", "mean", "untargeted", final_accuracy=0.5) | {"seed": seed} for seed in range(5)]
    (answer,) = answers(Ran([*FIVE, *refused])).values()
    assert "nnm keeps the most under the worst of 2 attacks, 1 refused: " in answer.headline
    assert "Refused attacks are not counted: 1 of 3 against nnm." in answer.lead


def test_a_return_below_guessing_is_not_kept():
    rows = [
        row("flip", "mean", "untargeted", normalized_return=-0.2 - 0.01 * seed) | {"seed": seed} for seed in range(4)
    ]
    run = Ran(rows, chance=0.0)
    run.share = "normalized_return"
    (answer,) = answers(run).values()
    assert "keeps" not in str(answer) and "normalized return" in str(answer)


def test_what_leaks_is_said_beside():
    leak = [row("dlg", "nnm", "reconstruction", recovered=0.75) | {"seed": seed} for seed in range(5)]
    (answer,) = answers(Ran([*FIVE, *leak])).values()
    assert "backdoor success (replaced); inputs recovered exactly: 75.0 % (dlg)" in str(answer)
    leak = [
        row("dlg", "nnm", "reconstruction", recovered=0.0, revealed=0.14, psnr_gain=-3.0) | {"seed": seed}
        for seed in range(5)
    ]
    (answer,) = answers(Ran([*FIVE, *leak])).values()
    assert "; inputs nearer than any trivial guess, by 1 dB: 14.0 % (dlg)" in str(answer)


def test_a_defense_without_one_of_the_figures_is_named_and_not_put_in_order():
    lacking = [one | {"status": "failed", "attack_success": None} if one["goal"] == "backdoor" else one
               for one in at_seeds(measured("krum", 0.9, 0.9, 0.0), 0.01, 0.0, 0.02, 0.0, 0.01)]  # fmt: skip
    (answer,) = answers(Ran([*FIVE, *lacking])).values()
    assert "nnm keeps the most" in str(answer) and "Not in this order, since a value is missing: krum." in str(answer)


def test_hostile_names_stay_words():
    rows = [one | {"defense": f"<b>{one['defense']}</b> %s {{}}"} for one in FIVE]
    (answer,) = answers(Ran(rows)).values()
    assert answer.headline.startswith("<b>nnm</b> %s {} keeps the most")


def test_each_setting_has_its_answer_and_a_run_without_attacks_has_none():
    rows = [{**one, "f": str(f)} for one in ROWS for f in (2, 4)]
    assert list(answers(Ran(rows, ["f"]))) == ["f = 2", "f = 4"]
    assert answers(Ran([row("none", "mean", final_accuracy=0.9)])) == {}


def test_worst_means_the_same_in_the_trilemma_and_in_the_matrix():
    """Without attack a training may fare worse than under every attack: that is no attack's doing."""
    rows = [row("none", "mean", final_accuracy=0.5), *ROWS[1:3]]
    run = Ran([one | {"final_accuracy": 0.8} if one["attack"] == "ipm" else one for one in rows])
    (point,) = points(run.rows(), [])
    (standing,) = standings(run)
    assert point.accuracy == standing.worst
    assert (point.accuracy.attack, point.accuracy.estimate) == ("ipm", estimate([0.8]))
    part = [*run.rows(), row("ipm", "mean", "untargeted", "failed") | {"seed": 1}]
    assert points(part, [])[0].accuracy.attack == "replaced"  # ipm ran on one of two seeds: that is no figure
