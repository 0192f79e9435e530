"""The answer of a run names the worst over all goals of the attacks, not the accuracy alone."""

from __future__ import annotations

from fedguard.bench.results.answer import answers, standings
from fedguard.bench.results.matrix import matrix
from fedguard.bench.results.trilemma import points
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import estimate


class Ran:
    """A run of these rows."""

    share = "final_accuracy"

    def __init__(self, rows, swept=()):
        self._rows, self.swept, self.records = rows, list(swept), {}

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


def test_a_backdoor_decides_where_the_accuracy_is_kept():
    (answer,) = answers(Ran(ROWS)).values()
    assert answer.startswith("Under the worst of 2 attacks, nnm keeps the most")
    assert "67.4 % accuracy (ipm) and 1.0 % backdoor success (replaced)" in answer
    assert "geometric_median keeps more accuracy, 78.5 % (ipm), but has 82.4 % backdoor success (replaced)" in answer
    assert answer.endswith("mean keeps the least: 10.0 % accuracy (ipm) and 100.0 % backdoor success (replaced).")


def test_without_backdoors_the_accuracy_decides():
    (answer,) = answers(Ran([one for one in ROWS if one["goal"] != "backdoor"])).values()
    assert answer.startswith("Under the attack, geometric_median keeps the most, by the means: 78.5 % accuracy (ipm).")
    assert "backdoor" not in answer


def test_what_leaks_is_said_beside():
    leak = row("dlg", "nnm", "reconstruction", recovered=0.75)
    (answer,) = answers(Ran([*ROWS, leak])).values()
    assert "1.0 % backdoor success (replaced); inputs recovered exactly: 75.0 % (dlg)" in answer


def test_a_defense_without_one_of_the_figures_is_named_and_not_put_in_order():
    lacking = [one | {"status": "failed", "attack_success": None} if one["goal"] == "backdoor" else one
               for one in measured("krum", 0.9, 0.9, 0.0)]  # fmt: skip
    (answer,) = answers(Ran([*ROWS, *lacking])).values()
    assert "nnm keeps the most" in answer and "Not in this order, since a figure is missing: krum." in answer


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
