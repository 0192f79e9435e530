"""The trilemma of a run: epsilon x worst-case accuracy x leakage, one point for each defense and setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fedguard.bench.results.places import setting
from fedguard.bench.terminal.parted import split_table
from fedguard.bench.terminal.plot import chart
from fedguard.bench.terminal.printed import Printed
from fedguard.errors import ConfigError
from fedguard.metrics.figures import FIGURES, PRIVACY_GOALS, default_figures
from fedguard.metrics.stats import Estimate

#: Metrics of leakage, the more informative ones first.
LEAKAGE = default_figures("trilemma")
#: The membership inference by plain regression; without it, a small leakage has not been shown.
LINEAR = "least_squares"


@dataclass(frozen=True)
class WorstAttack:
    """The worst of several attacks by its mean over seeds."""

    attack: str
    estimate: Estimate


@dataclass(frozen=True)
class Point:
    """One defense under one setting.

    Attributes:
        setting: the values of the swept keys beside attack and defense.
        epsilon: the largest over seeds and attacks on the training; None without guarantee.
        accuracy: the final accuracy under the worst attack on the training; without attack if no attack is on the training.
        leakage: by metric, the result of the attack with this goal that learns most.
        linear: whether `least_squares` is among the membership inferences.
    """

    setting: str
    defense: str
    epsilon: float | None
    accuracy: WorstAttack | None
    leakage: Mapping[str, WorstAttack]
    linear: bool = True

    @property
    def unread(self) -> bool:
        """Whether the point has a membership score, but no linear regression was tried."""
        return "membership_auc" in self.leakage and not self.linear

    def as_row(self) -> dict[str, Any]:
        """JSON, with shares in [0, 1]."""
        worst = {"final_accuracy": self.accuracy, **self.leakage}
        return {
            "setting": self.setting,
            "defense": self.defense,
            "epsilon": self.epsilon,
            **{
                figure: {
                    "attack": one.attack,
                    "mean": one.estimate.mean,
                    "low": one.estimate.low,
                    "high": one.estimate.high,
                }
                for figure, one in worst.items()
                if one is not None
            },
        }


@dataclass(frozen=True)
class Trilemma(Printed):
    """All points of a run, from the largest epsilon to the smallest."""

    name: str
    points: tuple[Point, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each point."""
        return [point.as_row() for point in self.points]

    @property
    def note(self) -> str:
        """A warning before its membership score is quoted; "" if there is none."""
        weak = sum(point.unread for point in self.points)
        if not weak:
            return ""
        where = "The" if weak == len(self.points) else f"In {weak} of {len(self.points)} points the"
        return (
            f"{where} membership AUC was measured without {LINEAR}: a plain regression often tells far more. Add {LINEAR} to "
            "matrix.attack before you say how little leaks."
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"{self.name}: what privacy costs and what still leaks; each the worst of its attacks", "bold")
        figures = [figure for figure in LEAKAGE if any(figure in point.leakage for point in self.points)]
        yield from self._tables(figures, options.max_width)
        if self.note:
            yield Text(self.note)
        for figure in ("final_accuracy", *figures):
            yield from self._chart(figure, min(options.max_width, 72))

    def _tables(self, figures: Sequence[str], room: int) -> Iterator[Table]:
        columns = {"worst accuracy, %": [point.accuracy for point in self.points]}
        for figure in figures:
            unit = FIGURES[figure].unit
            title = figure.replace("_", " ")
            columns[f"{title}, {unit}" if unit else title] = [point.leakage.get(figure) for point in self.points]
        named = [len({one.attack for one in column if one}) > 1 for column in columns.values()]
        heads = ["setting", "defense", "epsilon"]
        for (heading, column), apart in zip(columns.items(), named, strict=True):
            attack = next((one.attack for one in column if one), "")
            heads.append(heading if apart else f"{heading} {attack}")
        rows = []
        for number, point in enumerate(self.points):
            texts = [
                _text(figure, column[number], apart)
                for figure, column, apart in zip(("final_accuracy", *figures), columns.values(), named, strict=True)
            ]
            said = number > 0 and point.setting == self.points[number - 1].setting
            rows.append(["" if said else point.setting, point.defense, _epsilon(point.epsilon), *texts])
        yield from split_table(heads, [[Text(text) for text in row] for row in rows], 3, room)

    def _chart(self, figure: str, width: int) -> Iterator[Text]:
        """One metric over epsilon, with points without guarantee on the right; drawn if epsilons differ."""
        labels = list(dict.fromkeys(_epsilon(point.epsilon) for point in reversed(self.points)))
        known = sorted({point.epsilon for point in self.points if point.epsilon is not None})
        if len(labels) < 2 or not known or known[0] <= 0:
            return
        axis = [math.log(epsilon) for epsilon in known]
        if len(axis) < len(labels):
            axis.append(axis[-1] + max(1.0, (axis[-1] - axis[0]) / max(1, len(axis) - 1)))
        lines: dict[str, list[float | None]] = {}
        for point in self.points:
            one = point.accuracy if figure == "final_accuracy" else point.leakage.get(figure)
            line = lines.setdefault(point.defense, [None] * len(labels))
            if one is not None:
                line[labels.index(_epsilon(point.epsilon))] = FIGURES[figure].scale * one.estimate.mean
        values = [value for line in lines.values() for value in line if value is not None]
        if values and max(values) > min(values):
            yield Text(chart(f"\n{FIGURES[figure].heading}, over epsilon", lines, labels, axis, width))


def trilemma(name: str, rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> Trilemma:
    """The points of a run.

    Args:
        name: of the run.
        rows: as `Run.rows` gives them.
        swept: the keys swept beside attack and defense.

    Raises:
        ConfigError: the run has no attack on the clients' privacy.
    """
    if not any(row["goal"] in PRIVACY_GOALS for row in rows):
        raise ConfigError(
            f"{name}: expected attacks on the clients' privacy beside those on the training; it has none. Add some to "
            "matrix.attack: see `fedguard list inference`."
        )
    return Trilemma(name, points(rows, swept))


def points(rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> tuple[Point, ...]:
    """The points of a run, from the largest epsilon to the smallest, whatever its attacks; see `trilemma`."""
    members: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        members.setdefault((setting(row, swept), row["defense"]), []).append(row)
    found = [_point(where, defense, its) for (where, defense), its in members.items()]
    found = [point for point in found if point.accuracy or point.leakage]
    return tuple(sorted(found, key=lambda point: -(point.epsilon or math.inf)))


def _point(setting: str, defense: str, rows: Sequence[Mapping[str, Any]]) -> Point:
    ran = [row for row in rows if row["status"] == "ok"]
    epsilons = [row["epsilon"] for row in ran]
    leakage = {figure: worst for figure in LEAKAGE if (worst := _worst(rows, figure)) is not None}
    epsilon = max(epsilons) if epsilons and None not in epsilons else None
    linear = any(row["goal"] == "membership" and row["attack"].partition("(")[0] == LINEAR for row in ran)
    return Point(setting, defense, epsilon, _worst(rows, "final_accuracy"), leakage, linear)


def _worst(rows: Sequence[Mapping[str, Any]], figure: str) -> WorstAttack | None:
    """The attack that is worst for the defender, among the attacks to which the metric applies."""
    known = FIGURES[figure]
    values: dict[str, list[float]] = {}
    for row in rows:
        if known.fits(row["goal"]) and row[figure] is not None:
            values.setdefault(row["attack"], []).append(row[figure])
    if len(values) > 1:  # no attack is none, here and in a matrix
        values.pop("none", None)
    partly = {row["attack"] for row in rows if row["status"] != "ok"}  # seeds that happened to work are another figure
    worst = [WorstAttack(attack, known.estimate(found)) for attack, found in values.items() if attack not in partly]
    sign = 1 if known.more_is_better else -1
    return min(worst, key=lambda one: sign * one.estimate.mean, default=None)


def _text(figure: str, worst: WorstAttack | None, named: bool) -> str:
    if worst is None:
        return "-"
    return FIGURES[figure].format_estimate(worst.estimate) + (f" ({worst.attack})" if named else "")


def _epsilon(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
