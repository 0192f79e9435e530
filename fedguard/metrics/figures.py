"""The table of metrics: what each is, where a record stores it, its margin in a gate, and where it is shown.

A new metric is one row here, and the code that computes it. Every metric is a column of `Run.rows` and so of each export. It
has a matrix (`fedguard show --metric`), a breakdown and a comparison, and appears on the dashboard and in the HTML report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedguard.errors import UnknownName
from fedguard.metrics.returns import read_score_curve, within
from fedguard.metrics.stats import Bounds, CensoredValue, Estimate, estimate
from fedguard.retired import renew_metric

#: Bounds of shares, and of differences of two shares
SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)

#: The goals of attacks on the clients' privacy.
PRIVACY_GOALS = ("reconstruction", "labels", "membership", "property", "text")

#: Where some metrics are shown by default: in `fedguard show`, as a heat map in the HTML report, as leakage
#: in a trilemma, and on the scorecard of the dashboard's Lab
Place = Literal["show", "report", "trilemma", "lab"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One row of the table.

    Attributes:
        title: what it is, in words.
        path: where a record stores it.
        more_is_better: for the defender.
        unit: shares are stored in [0, 1] and shown in percent.
        goal: goal of the attacks on the clients' privacy to which it belongs; ``training`` for all other attacks, ``any`` for
            all.
        bounds: smallest and largest possible value.
        margin: by how much a cell's mean may be worse before a gate fails, in the metric's stored unit, unless the suite sets a
            margin; None if no gate can watch it.
        watched: whether a gate watches it by default; metrics that repeat a watched one, or are too noisy, are not.
        computed: whether it is computed from the settings and has no sampling error: in a gate any drop counts at once, without
            fresh seeds.
        shown: where it is shown by default, in the order of the table.
        aliases: names of it in other people's tables.
    """

    title: str
    path: tuple[str, ...] = ()
    more_is_better: bool = False
    unit: str = "%"
    goal: str = "training"
    bounds: Bounds | None = SHARE
    margin: float | None = None
    watched: bool = False
    computed: bool = False
    shown: tuple[Place, ...] = ()
    aliases: tuple[str, ...] = ()

    def fits(self, goal: str | None) -> bool:
        """Whether the metric applies to a row of an attack with this goal."""
        return self.goal in (goal, "any") or (self.goal == "training" and goal not in PRIVACY_GOALS)

    def of(self, record: Mapping[str, Any]) -> float | None:
        """The metric's value in a record; None if it has none. Metrics of the training apply under every attack."""
        known = self.goal in ("training", "any", record["threat_card"]["goal"])
        return number_at(record, self.path) if known else None

    @property
    def scale(self) -> float:
        """Factor between a stored value and its display."""
        return 100.0 if self.unit == "%" else 1.0

    def text(self, value: float) -> str:
        """``93.1``, or three significant digits if it is not a share; values within rounding of 0 are shown as 0."""
        return f"{self.scale * value:.1f}" if self.unit == "%" else f"{value if abs(value) > 1e-9 else 0:.3g}"

    def quantity(self, value: float) -> str:
        """``81.2 %``, ``17.3 dB``, ``2.9``."""
        return f"{self.text(value)} {self.unit}".strip()

    def difference(self, value: float) -> str:
        """``6.1 points``, ``1.2 dB``, ``0.03``."""
        return f"{self.text(value)} {self.unit_of_differences}".strip()

    @property
    def unit_of_differences(self) -> str:
        """A difference of two shares is in points."""
        return "points" if self.unit == "%" else self.unit

    def interval(self, found: Estimate) -> str:
        """``[50.9, 80.4]``: the ends of the interval, in stored order; "" without an interval."""
        if found.low is None or found.high is None:
            return ""
        return f"[{self.text(found.low)}, {self.text(found.high)}]"

    def format_estimate(self, found: Estimate) -> str:
        """``67.4 [50.9, 80.4]``: the mean with its interval; or ``>12.3`` if some seeds have only a lower bound."""
        return f"{'>' if found.censored else ''}{self.text(found.mean)} {self.interval(found)}".strip()

    def format_with_unit(self, found: Estimate) -> str:
        """``67.4 % [50.9, 80.4]``."""
        mean = f"{'>' if found.censored else ''}{self.text(found.mean)} {self.unit}".strip()
        return f"{mean} {self.interval(found)}".strip()

    def estimate(self, values: Sequence[float]) -> Estimate:
        """The mean over seeds, with an interval within the metric's bounds."""
        return estimate(values, self.bounds)

    @property
    def heading(self) -> str:
        """``final accuracy in %``."""
        return f"{self.title} in {self.unit}" if self.unit else self.title


@dataclass(frozen=True, kw_only=True)
class TargetMetric(Metric):
    """Cost until the accuracy reached a target for good; the cost of the whole training, as a `CensoredValue`, if it did not.

    For good means: at an evaluation that reaches it, and at each later one too. Touching the target once is not enough. If
    actors act, the normalized return, $(return - guess) / (perfect - guess)$, has to reach it.

    Attributes:
        target: an accuracy, or a normalized return, in (0, 1].
        over: the axis of a record's curve.
    """

    target: float
    over: str
    bounds: Bounds | None = None

    def text(self, value: float) -> str:
        return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"

    def of(self, record: Mapping[str, Any]) -> float | None:
        curve = record["result"]["curve"] if record["result"] else {}
        if not curve.get(self.over):
            return None
        below = [number for number, share in enumerate(read_score_curve(record["result"])) if share < self.target]
        first = below[-1] + 1 if below else 0
        places = curve[self.over]
        return float(places[first]) if first < len(places) else CensoredValue(places[-1])


@dataclass(frozen=True, kw_only=True)
class ReturnMetric(Metric):
    """A metric of the returns of actors, which their environment bounds (`within`).

    Attributes:
        change: whether it is a difference of two returns.
    """

    change: bool = False
    bounds: Bounds | None = None

    def of(self, record: Mapping[str, Any]) -> float | None:
        value = super().of(record)
        return (
            value
            if value is None
            else within(value, record["result"]["returns"], change=self.change, share=self.unit == "%")
        )


def number_at(part: Mapping[str, Any] | None, path: Sequence[str]) -> float | None:
    """The number at a path of a record or of a part of it; None if a part of the path does not apply."""
    value: Any = part
    for key in path:
        value = value.get(key) if isinstance(value, (dict, Mapping)) else None
    return None if value is None else float(value)


_SCORE = ("result", "inference", "score")

#: Cost until a training has reached its target: the axis of a record's curve, and the unit
TO_TARGET = {
    "rounds_to": ("round", "rounds"),
    "steps_to": ("steps", "steps of environments"),
    "updates_to": ("updates", "updates"),
    "seconds_to": ("seconds", "simulated seconds"),
    "bytes_to": ("bytes_up", "bytes sent by the devices"),
    "joules_to": ("joules", "joules of the devices"),
}


class MetricTable(dict[str, Metric]):
    """Metrics by name. In addition to the listed ones it knows the families of `TO_TARGET`: ``seconds_to(0.9)``."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _to_target(name) is not None)

    def __missing__(self, name: str) -> Metric:
        found = _to_target(name)
        if found is None:
            raise KeyError(name)
        return found


def _to_target(name: str) -> Metric | None:
    """The metric of a family with its target; None for any other name."""
    said = re.fullmatch(r"(\w+)\((0?\.\d{1,9}|1|1\.0{1,9})\)", name)
    if said is None or said[1] not in TO_TARGET or not float(said[2]):
        return None
    target, (over, unit) = float(said[2]), TO_TARGET[said[1]]
    return TargetMetric(
        title=f"what it takes to {100 * target:g} % accuracy, or normalized return, for good",
        unit=unit,
        target=target,
        over=over,
    )


#: Every metric by name, which is also its column, its key in ``gate.metrics``, and its value of ``--metric``
FIGURES = MetricTable({
    "final_accuracy": Metric(
        title="final accuracy", path=("result", "final_accuracy"), more_is_better=True, margin=0.02, watched=True,
        shown=("show", "report", "lab"),
        aliases=("accuracy", "acc", "test_accuracy", "test_acc", "final_acc", "main_accuracy", "main_task_accuracy", "top1"),
    ),
    "best_accuracy": Metric(
        title="best accuracy of any round (a diagnostic, not a result)", path=("result", "best_accuracy"), more_is_better=True,
        margin=0.02, aliases=("best_acc", "max_accuracy", "max_acc", "peak_accuracy", "best_test_accuracy"),
    ),
    "final_return": ReturnMetric(
        title="final return of an episode", path=("result", "returns", "final"), more_is_better=True, unit="",
        shown=("show", "report", "lab"), aliases=("return", "mean_return", "episode_return", "reward"),
    ),
    "normalized_return": ReturnMetric(
        title="final return between guessing (0) and perfect (100)", path=("result", "returns", "normalized"),
        more_is_better=True, margin=0.05, watched=True, shown=("lab",),
    ),
    "best_return": ReturnMetric(
        title="best return of any round (a diagnostic, not a result)", path=("result", "returns", "best"), more_is_better=True,
        unit="",
    ),
    "return_drop": ReturnMetric(
        title="return lost under the attack", path=("result", "returns", "drop"), unit="", change=True, shown=("lab",),
    ),
    "return_absence": ReturnMetric(
        title="return lost as the malicious actors are absent", path=("result", "returns", "absence"), unit="", change=True,
    ),
    "return_harm": ReturnMetric(
        title="return lost to what the malicious actors send", path=("result", "returns", "harm"), unit="", change=True,
        shown=("report", "lab"),
    ),
    "return_tax": ReturnMetric(
        title="return that the defense costs where nobody attacks", path=("result", "returns", "tax"), unit="", change=True,
    ),
    "perplexity": Metric(
        title="perplexity of the next token", path=("result", "perplexity"), unit="", bounds=None, margin=0.5, shown=("lab",),
    ),
    "worst_class_accuracy": Metric(
        title="accuracy of the worst class", path=("result", "worst_class_accuracy"), more_is_better=True, margin=0.05,
        shown=("lab",), aliases=("worst_class", "min_class_accuracy", "worst_class_acc"),
    ),
    "worst_node_accuracy": Metric(
        title="accuracy of the worst node", path=("result", "nodes", "worst"), more_is_better=True, margin=0.05, watched=True,
        shown=("show", "report", "lab"),
    ),
    "tenth_node_accuracy": Metric(
        title="accuracy below which a tenth of the nodes are", path=("result", "nodes", "tenth"), more_is_better=True,
        margin=0.05,
    ),
    "node_spread": Metric(
        title="standard deviation of the nodes' accuracies", path=("result", "nodes", "spread"), margin=0.02,
    ),
    "mean_model_accuracy": Metric(
        title="accuracy of the mean of all models (a diagnostic)",
        path=("result", "nodes", "mean_model"), more_is_better=True,
    ),
    "consensus_distance": Metric(
        title="distance of the nodes' models from their mean", path=("result", "nodes", "consensus"), unit="", bounds=None,
    ),
    "solved_updates": Metric(
        title="updates that the nodes which look can solve for", path=("result", "inference", "seat", "whole"), unit="",
        goal="reconstruction", bounds=None,
    ),
    "worst_party_accuracy": Metric(
        title="accuracy of the worst party on its own task", path=("result", "parties", "worst"), more_is_better=True,
        margin=0.05, shown=("lab",),
    ),
    "accuracy_drop": Metric(
        title="accuracy lost under the attack", path=("result", "accuracy_drop"), bounds=DIFFERENCE, margin=0.02,
        shown=("lab",),
    ),
    "absence": Metric(
        title="accuracy lost as the malicious clients' data are absent", path=("result", "absence"), bounds=DIFFERENCE,
        margin=0.02, shown=("lab",),
    ),
    "harm": Metric(
        title="accuracy lost to what the malicious clients send", path=("result", "harm"), bounds=DIFFERENCE, margin=0.02,
        shown=("report", "lab"),
    ),
    "robustness_tax": Metric(
        title="accuracy that the defense costs where nobody attacks", path=("result", "robustness_tax"), bounds=DIFFERENCE,
        margin=0.02,
    ),
    "attack_success": Metric(
        title="backdoor success above that of a clean model", path=("result", "attack_success"), bounds=DIFFERENCE, margin=0.05,
        watched=True, shown=("show", "report", "lab"),
    ),
    "evasion_accuracy": Metric(
        title="accuracy on inputs changed at test time", path=("result", "evasion", "accuracy"), more_is_better=True,
        margin=0.05, shown=("show", "report", "lab"),
        aliases=("robust_accuracy", "adversarial_accuracy", "robust_acc", "pgd_accuracy"),
    ),
    "evaded_return": ReturnMetric(
        title="return where observations are changed at test time", path=("result", "returns", "evaded"), more_is_better=True,
        unit="", shown=("show", "report", "lab"), aliases=("robust_return", "adversarial_return"),
    ),
    "durability": Metric(
        title="how long a backdoor outlived the attack, at least", path=("result", "durability", "rounds"), unit="rounds",
        bounds=None, shown=("lab",),
    ),
    "filter_precision": Metric(
        title="malicious updates among those that the filter excluded", path=("result", "filter", "precision"),
        more_is_better=True,
    ),
    "filter_recall": Metric(
        title="malicious updates that the filter excluded", path=("result", "filter", "recall"), more_is_better=True,
    ),
    "honest_excluded": Metric(
        title="honest updates that the filter excluded", path=("result", "filter", "honest_excluded"),
    ),
    "simulated_seconds": Metric(
        title="simulated seconds of the training", path=("result", "time", "seconds"), unit="s", bounds=None,
    ),
    "updates_a_second": Metric(
        title="updates that reach the server in a simulated second", path=("result", "time", "updates_a_second"),
        more_is_better=True, unit="", bounds=None,
    ),
    "staleness": Metric(
        title="mean staleness of the updates", path=("result", "time", "staleness", "mean"), unit="", bounds=None,
    ),
    "joules": Metric(
        title="joules that the devices spent on computing, sending and receiving", path=("result", "time", "joules"), unit="J",
        bounds=None,
    ),
    "malicious_share": Metric(
        title="malicious updates among those that reached the server", path=("result", "time", "malicious_share"),
    ),
    "kappa": Metric(
        title="kappa: the largest that a round showed", path=("result", "aggregate", "kappa"), unit="", bounds=None,
    ),
    "factor_bias": Metric(
        title="distance of the product of mean factors from the mean of products, relative to it",
        path=("result", "aggregate", "factor_bias"), unit="", bounds=None,
    ),
    "psnr": Metric(
        title="PSNR of the reconstructions", path=(*_SCORE, "psnr"), unit="dB", goal="reconstruction", bounds=None, margin=1.0,
        shown=("lab",),
    ),
    "ssim": Metric(
        title="SSIM of the reconstructions", path=(*_SCORE, "ssim"), unit="", goal="reconstruction", bounds=DIFFERENCE,
        margin=0.05, shown=("lab",),
    ),
    "recovered": Metric(
        title="inputs recovered exactly", path=(*_SCORE, "recovered"), goal="reconstruction", margin=0.05, watched=True,
        shown=("show", "report", "trilemma", "lab"),
    ),
    "revealed": Metric(
        title="inputs nearer than any trivial guess, by 1 dB", path=(*_SCORE, "revealed"), goal="reconstruction", margin=0.05,
        watched=True, shown=("show", "report", "trilemma", "lab"),
    ),
    "psnr_gain": Metric(
        title="PSNR of the reconstructions above the best trivial guess", path=(*_SCORE, "gain"), unit="dB",
        goal="reconstruction", bounds=None, margin=1.0, watched=True, shown=("show", "report", "trilemma", "lab"),
    ),
    "reconstructed_labels": Metric(
        title="labels recovered beside the inputs", path=(*_SCORE, "label_accuracy"), goal="reconstruction", margin=0.05,
        shown=("lab",),
    ),
    "label_accuracy": Metric(
        title="labels recovered", path=(*_SCORE, "label_accuracy"), goal="labels", margin=0.05, watched=True,
        shown=("show", "report", "trilemma", "lab"),
    ),
    "label_gain": Metric(
        title="labels recovered above the best trivial guess", path=(*_SCORE, "gain"), goal="labels", bounds=DIFFERENCE,
        margin=0.05, shown=("lab",),
    ),
    "membership_auc": Metric(
        title="AUC of membership (0.5 is chance)", path=(*_SCORE, "auc"), unit="", goal="membership", margin=0.03, watched=True,
        shown=("show", "report", "trilemma", "lab"),
    ),
    "membership_tpr": Metric(
        title="members found at 1 % false alarms", path=(*_SCORE, "tpr"), goal="membership", margin=0.05, shown=("show", "lab"),
    ),
    "membership_tpr_01": Metric(
        title="members found at 0.1 % false alarms", path=(*_SCORE, "tpr_01"), goal="membership", margin=0.05,
        shown=("show", "lab"),
    ),
    "property_auc": Metric(
        title="AUC of the property over clients (0.5 is chance)", path=(*_SCORE, "auc"), unit="", goal="property", margin=0.05,
        watched=True, shown=("show", "report", "trilemma", "lab"),
    ),
    "token_recall": Metric(
        title="tokens recovered", path=(*_SCORE, "recall"), goal="text", margin=0.05, watched=True,
        shown=("show", "report", "trilemma", "lab"),
    ),
    "token_precision": Metric(
        title="recovered tokens that are right", path=(*_SCORE, "precision"), goal="text", margin=0.05, shown=("show", "lab"),
    ),
    "token_gain": Metric(
        title="F1 of the recovered tokens above the most frequent ones", path=(*_SCORE, "gain"), goal="text",
        bounds=DIFFERENCE, margin=0.05, shown=("lab",),
    ),
    "rouge_l": Metric(
        title="ROUGE-L of the recovered texts", path=(*_SCORE, "rouge_l"), goal="text", unit="", margin=0.05, shown=("lab",),
    ),
    "gradient_rank": Metric(
        title="rank of the gradient that the tokens were read from", path=(*_SCORE, "rank"), goal="text", unit="", bounds=None,
        shown=("lab",),
    ),
    "epsilon": Metric(
        title="epsilon that the noise proves", path=("threat_card", "epsilon"), unit="", goal="any", bounds=None, margin=0.0,
        watched=True, computed=True, shown=("lab",),
    ),
})  # fmt: skip


def metric_name(name: str) -> str:
    """The name of a metric today, from its name in this version or an earlier one.

    Raises:
        UnknownName: there is none.
    """
    name = renew_metric(name)
    if name not in FIGURES:
        families = " or ".join(f"{family}(0.9)" for family in TO_TARGET)
        raise UnknownName("metric", name, FIGURES.keys(), remedy=f" Or how long it took, as {families}.")
    return name


def default_figures(place: Place) -> tuple[str, ...]:
    """Names of the metrics shown at a place by default."""
    return tuple(name for name, figure in FIGURES.items() if place in figure.shown)
