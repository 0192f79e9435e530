"""The answer of a run: which defense keeps the most, by the worst over all goals of the attacks.

The report, the dashboard and `fedguard show` all take it from here. A defense is worth what it keeps under the worst attack of
each goal: accuracy, and the trainings in which no backdoor succeeds. What leaks to attacks on privacy is said beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.bench.results.matrix import Entry, Matrix
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.bench.results.trilemma import LEAKAGE, Point, Worst, points
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import Estimate, estimate

#: How the defenses are put in order.
RULE = (
    "A defense is as good as the worse of two figures: the accuracy under the attack that lowers it most, and 100 % less the "
    "success of the backdoor that succeeds most."
)


#: What the figures are called that a training is judged by.
NOUNS = {"final_accuracy": "accuracy", "normalised_return": "normalised return"}


@dataclass(frozen=True)
class Standing:
    """One defense under one setting, with shares in [0, 1].

    Attributes:
        setting: the values of the swept keys beside attack and defense; "" where there are none.
        clean: final accuracy without attack.
        worst: the attack on the training under which the final accuracy is lowest, and that accuracy.
        success: the backdoor that succeeds most, and its success above that of a clean model; None where no backdoor has one.
        measured: how many attacks on the training these are the worst of.
        refused, unknown: how many more were refused; and failed or were not run, which may be worse.
        tax: what the defense costs where nobody attacks: clean accuracy of the plain mean less that of the defense.
        epsilon: the largest over seeds and attacks; None without guarantee.
        leakage: by figure, the attack on the clients' privacy that learns most.
        score: the figure that accuracy stands for: ``normalised_return`` where actors act.
    """

    setting: str
    defense: str
    clean: Estimate | None
    worst: Worst | None
    success: Worst | None
    measured: int
    refused: int
    unknown: int
    tax: Estimate | None
    epsilon: float | None
    leakage: Mapping[str, Worst]
    score: str = "final_accuracy"

    @property
    def kept(self) -> float | None:
        """``min(accuracy, 1 - backdoor success)``, each under its worst attack; None without a figure."""
        shares = [self.worst.estimate.mean] if self.worst else []
        return min([*shares, *([1 - self.success.estimate.mean] if self.success else [])], default=None)

    def words(self) -> str:
        """``67.4 % accuracy (sign_flip) and 0.0 % backdoor success (model_replacement)``, with what leaks most."""
        parts = [f"{_figure(self.worst, self.score)} {NOUNS[self.score]} ({self.worst.attack})"] if self.worst else []
        if self.success:
            parts.append(f"{_figure(self.success, 'attack_success')} backdoor success ({self.success.attack})")
        return " and ".join(parts) + self.leaks()

    def leaks(self) -> str:
        """The most telling figure of what leaks, such as ``; inputs recovered exactly: 100.0 % (dlg)``; "" without one."""
        figure = next((one for one in LEAKAGE if one in self.leakage), None)
        if figure is None:
            return ""
        worst = self.leakage[figure]
        return f"; {FIGURES[figure].title}: {_figure(worst, figure)} ({worst.attack})"

    def texts(self) -> dict[str, str]:
        """Column by column, with units in the headings; columns that no defense fills are left to the reader to drop."""
        beside = f", {self.refused} refused" if self.refused else ""
        beside += f", {self.unknown} failed or not run" if self.unknown else ""
        return {
            "setting": self.setting,
            "defense": self.defense,
            f"clean {NOUNS[self.score]}, %": _text(self.score, self.clean),
            "worst attack": self.worst.attack if self.worst else "",
            f"{NOUNS[self.score]} under it, %": _text(self.score, self.worst.estimate if self.worst else None),
            "backdoor success, %": _named("attack_success", self.success),
            "worst of": f"{self.measured} {'attack' if self.measured == 1 else 'attacks'}{beside}"
            if self.measured or beside
            else "",
            "robustness tax, points": _text("accuracy_drop", self.tax),
            "epsilon": "" if self.epsilon is None else f"{self.epsilon:.3g}",
            **{heading(figure): _named(figure, self.leakage.get(figure)) for figure in LEAKAGE},
        }


def answers(run: Run) -> dict[str, str]:
    """By setting, which defense keeps the most and which the least; of a run without attack on the training, none."""
    places: dict[str, list[Standing]] = {}
    for one in standings(run):
        if one.measured or one.refused or one.unknown:
            places.setdefault(one.setting, []).append(one)
    return {place: _answer(found) for place, found in places.items()}


def standings(run: Run) -> list[Standing]:
    """One for each defense and combination of the other swept keys."""
    rows = run.rows()
    tables = run.table(run.share), run.table("attack_success")
    known = {(point.setting, point.defense): point for point in points(rows, run.swept)}
    members: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        members.setdefault((setting(row, run.swept), row["defense"]), []).append(row)
    return [_standing(tables, place, its, known.get(place), run.share) for place, its in members.items()]


def heading(figure: str) -> str:
    """The column of a leak: ``leaks: labels recovered, %``."""
    unit = FIGURES[figure].unit
    return f"leaks: {figure.replace('_', ' ')}" + (f", {unit}" if unit else "")


def _answer(found: Sequence[Standing]) -> str:
    whole = any(one.success for one in found)
    ranked = sorted(
        (one for one in found if one.worst and (one.success or not whole)),
        key=lambda one: one.kept or 0.0,
        reverse=True,
    )
    if not ranked:
        return "No attack on the training has a figure here."
    attacks = max(one.measured + one.refused + one.unknown for one in found)
    under = "Under the attack" if attacks == 1 else f"Under the worst of {attacks} attacks"
    if len(ranked) == 1:
        said = [f"{under}, {ranked[0].defense} keeps {ranked[0].words()}."]
    else:
        said = [f"{under}, {ranked[0].defense} keeps the most, by the means: {ranked[0].words()}."]
        said += [*_more_accurate(ranked), f"{ranked[-1].defense} keeps the least: {ranked[-1].words()}."]
    return " ".join([*said, *_left_out(found, ranked)])


def _more_accurate(ranked: Sequence[Standing]) -> Iterator[str]:
    """Who keeps most accuracy, where a backdoor decides for another one."""
    most = max(ranked, key=lambda one: one.worst.estimate.mean if one.worst else 0.0)
    if most not in (ranked[0], ranked[-1]) and most.worst and most.success:
        yield (
            f"{most.defense} keeps more {NOUNS[most.score]}, {_figure(most.worst, most.score)} ({most.worst.attack}), but has "
            f"{_figure(most.success, 'attack_success')} backdoor success ({most.success.attack})."
        )


def _left_out(found: Sequence[Standing], ranked: Sequence[Standing]) -> Iterator[str]:
    without = [one.defense for one in found if one not in ranked]
    if without:
        yield f"Not in this order, since a figure is missing: {', '.join(without)}."
    unknown = [one.defense for one in ranked if one.unknown]
    if unknown:
        yield f"Attacks failed or were not run, which may be worse, against: {', '.join(unknown)}."


def _standing(
    tables: tuple[Matrix, Matrix],
    place: tuple[str, str],
    rows: Sequence[Mapping[str, Any]],
    point: Point | None,
    score: str,
) -> Standing:
    block, defense = place
    final, backdoors = tables
    entries = {attack: row[defense] for attack, row in final.blocks.get(block, {}).items() if defense in row}
    clean = entries.pop("none").estimate if "none" in entries else None
    words = [entry.status for entry in entries.values()]
    return Standing(
        block,
        defense,
        clean,
        _worst(final, block, defense),
        _worst(backdoors, block, defense),
        measured=sum(entry.estimate is not None for entry in entries.values()),
        refused=words.count("refused"),
        unknown=words.count("failed") + words.count("missing"),
        tax=_tax(rows),
        epsilon=point.epsilon if point else None,
        leakage=point.leakage if point else {},
        score=score,
    )


def _worst(table: Matrix, block: str, defense: str) -> Worst | None:
    worst = table.worst(block, defense) if defense in table.defenses and block in table.blocks else None
    if worst is None or worst.estimate is None:
        return None
    return Worst(next(name for name, row in table.blocks[block].items() if row[defense] is worst), worst.estimate)


def _tax(rows: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The cells of a defense share their clean corners, so one value stands for each seed."""
    found: dict[int, float] = {}
    for row in rows:
        if row["robustness_tax"] is not None:
            found.setdefault(row["seed"], row["robustness_tax"])
    return estimate(list(found.values())) if found else None


def _text(figure: str, found: Estimate | None) -> str:
    return "" if found is None else Entry(found, "ok", FIGURES[figure]).text()


def _named(figure: str, worst: Worst | None) -> str:
    return "" if worst is None else f"{_text(figure, worst.estimate)} ({worst.attack})"


def _figure(worst: Worst, figure: str) -> str:
    """The mean alone: intervals stand in the tables."""
    return FIGURES[figure].quantity(worst.estimate.mean)
