"""The figures that a reader asks for first: what each defense costs, what it withstands, and what still leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.bench.matrix import FIGURES, Matrix
from fedguard.bench.places import setting
from fedguard.bench.run import Run
from fedguard.bench.stats import Estimate, estimate
from fedguard.bench.trilemma import LEAKAGE, Point, Worst, points


@dataclass(frozen=True)
class Headline:
    """One defense under one setting, with shares in [0, 1].

    Attributes:
        setting: the values of the swept keys beside attack and defense; "" where there are none.
        clean: final accuracy without attack.
        worst: the attack on the training that hurts most, and the final accuracy under it.
        measured: how many attacks on the training that is the worst of.
        refused, unknown: how many more were refused; and failed or were not run, which may be worse.
        tax: what the defense costs where nobody attacks: clean accuracy of the plain mean less that of the defense.
        epsilon: the largest over seeds and attacks; None without guarantee.
        leakage: by figure, the attack on the clients' privacy that learns most.
    """

    setting: str
    defense: str
    clean: Estimate | None
    worst: Worst | None
    measured: int
    refused: int
    unknown: int
    tax: Estimate | None
    epsilon: float | None
    leakage: Mapping[str, Worst]

    def texts(self) -> dict[str, str]:
        """Column by column, with units in the headings; columns that no defense fills are left to the reader to drop."""
        beside = f", {self.refused} refused" if self.refused else ""
        beside += f", {self.unknown} failed or not run" if self.unknown else ""
        return {
            "setting": self.setting,
            "defense": self.defense,
            "clean accuracy, %": _percent(self.clean),
            "worst attack": self.worst.attack if self.worst else "",
            "accuracy under it, %": _percent(self.worst.estimate if self.worst else None),
            "worst of": f"{self.measured} {'attack' if self.measured == 1 else 'attacks'}{beside}"
            if self.measured or beside
            else "",
            "robustness tax, points": _percent(self.tax),
            "epsilon": "" if self.epsilon is None else f"{self.epsilon:.3g}",
            **{heading(figure): _leak(figure, self.leakage.get(figure)) for figure in LEAKAGE},
        }


def headlines(run: Run) -> list[Headline]:
    """One for each defense and combination of the other swept keys."""
    rows = run.rows()
    table = run.table()
    known = {(point.setting, point.defense): point for point in points(rows, run.swept)}
    members: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        members.setdefault((setting(row, run.swept), row["defense"]), []).append(row)
    return [_headline(run, table, place, its, known.get(place)) for place, its in members.items()]


def answers(run: Run) -> dict[str, str]:
    """By setting, which defense keeps the most accuracy under its worst attack, and which the least."""
    found: dict[str, list[Headline]] = {}
    for one in headlines(run):
        if one.worst:
            found.setdefault(one.setting, []).append(one)
    return {place: _answer(those) for place, those in found.items()}


def _answer(found: Sequence[Headline]) -> str:
    def said(one: Headline) -> str:
        return (
            f"{one.defense} keeps {_percent(one.worst.estimate)} % ({one.worst.attack})" if one.worst else one.defense
        )

    ordered = sorted(found, key=lambda one: one.worst.estimate.mean if one.worst else 0.0)
    least = f", and {said(ordered[0])}, the least" if len(ordered) > 1 else ""
    return f"Under its worst attack {said(ordered[-1])} of accuracy, the most{least}."


def heading(figure: str) -> str:
    """The column of a leak: ``leaks: labels recovered, %``."""
    unit = FIGURES[figure].unit
    return f"leaks: {figure.replace('_', ' ')}" + (f", {unit}" if unit else "")


def _headline(
    run: Run, table: Matrix, place: tuple[str, str], rows: Sequence[Mapping[str, Any]], point: Point | None
) -> Headline:
    block, defense = place
    entries = {attack: row[defense] for attack, row in table.blocks.get(block, {}).items() if defense in row}
    clean = entries.pop("none").estimate if "none" in entries else None
    words = [entry.status for entry in entries.values()]
    worst = table.worst(block, defense) if entries else None
    named = next((attack for attack, entry in entries.items() if entry is worst), "")
    return Headline(
        block,
        defense,
        clean,
        Worst(named, worst.estimate) if worst and worst.estimate else None,
        measured=sum(entry.estimate is not None for entry in entries.values()),
        refused=words.count("refused"),
        unknown=words.count("failed") + words.count("missing"),
        tax=_tax(run, rows),
        epsilon=point.epsilon if point else None,
        leakage=point.leakage if point else {},
    )


def _tax(run: Run, rows: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The cells of a defense share their clean corners, so one value stands for each seed."""
    found: dict[int, float] = {}
    for row in rows:
        result = (run.records.get((row["cell"], row["seed"])) or {}).get("result") or {}
        if result.get("robustness_tax") is not None:
            found.setdefault(row["seed"], result["robustness_tax"])
    return estimate(list(found.values())) if found else None


def _percent(found: Estimate | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.mean:.1f}" + ("" if found.half_width is None else f" ± {100 * found.half_width:.1f}")


def _leak(figure: str, worst: Worst | None) -> str:
    if worst is None:
        return ""
    known, half = FIGURES[figure], worst.estimate.half_width
    spread = "" if half is None else f" ± {known.text(half)}"
    return f"{known.text(worst.estimate.mean)}{spread} ({worst.attack})"
