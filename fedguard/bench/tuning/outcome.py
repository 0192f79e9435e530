"""The outcome of a tuning of defenses: every candidate with its score, and the winners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fedguard.bench.terminal.printed import Printed
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.ranking import rank
from fedguard.metrics.stats import Estimate, bracket


@dataclass(frozen=True)
class TuningTrial:
    """One setting of a defense; ``score`` is an accuracy in [0, 1] or a normalized return, or None with the reason in ``why``.

    ``by_seed`` are the accuracies that the score is the mean of, in the order of the tuning seeds.
    """

    setting: str
    score: float | None
    why: str = ""
    by_seed: tuple[float, ...] = ()


@dataclass(frozen=True)
class TunedDefense:
    """The candidates of one defense.

    Attributes:
        candidates: the settings, the configured one first.
        tunable: whether any of its stages has a grid.
        invalid: number of settings of the grid skipped because their values exclude each other.
        left_out: conditions under which all of its settings are refused, so that they do not count.
    """

    candidates: tuple[TuningTrial, ...]
    tunable: bool
    invalid: int
    left_out: tuple[str, ...]

    @property
    def configured(self) -> str:
        return self.candidates[0].setting

    @property
    def eligible(self) -> tuple[TuningTrial, ...]:
        return tuple(tried for tried in self.candidates if tried.score is not None)

    @property
    def chosen(self) -> str:
        """The setting with the highest score, the earliest of equals; the configured one if none is eligible."""
        best = max(self.eligible, key=lambda tried: tried.score or 0.0, default=self.candidates[0])
        return best.setting

    def verdict(self, chance: float | None = None) -> str:
        """Whether the choice can be distinguished from the other settings, by seed; "" if there was nothing to choose.

        Args:
            chance: accuracy of guessing; None if unknown.
        """
        tried = [one for one in self.eligible if one.by_seed]
        if len(tried) < 2:
            return ""
        ranking = rank({one.setting: dict(enumerate(one.by_seed)) for one in tried})
        figure = FIGURES["final_accuracy"]
        found = {one.setting: figure.estimate(one.by_seed) for one in tried}
        lows = [one.low for one in found.values()]
        if chance is not None and all(low is not None and low <= chance for low in lows):
            return f"Every setting falls to chance ({figure.quantity(chance)}) in its worst case: nothing to choose by."
        return ranking.sentence(figure, found[ranking.first], "in its worst case", "settings")

    def note(self, tried: TuningTrial, budget: int) -> str:
        """The remark on a setting in a table."""
        first = tried is self.candidates[0]
        notes = ["configured"] if first and self.tunable else []
        if first and not self.tunable:
            notes.append("nothing to tune")
        elif first and len(self.candidates) < budget:
            notes.append(f"the whole grid: {len(self.candidates)} settings")
        if first and self.invalid:
            notes.append(f"{self.invalid} settings exclude themselves")
        if tried.why:
            notes.append(tried.why)
        if tried.setting == self.chosen:
            notes.append("chosen" if self.eligible else "kept: none is eligible")
        return "; ".join(notes)


@dataclass(frozen=True)
class Tuning(Printed):
    """How the defenses of a suite were tuned. Printing it shows a table.

    Attributes:
        name: name of the suite.
        run: name of the run in the store that tried the settings.
        budget: largest number of settings of each defense.
        attacks: the attacks tuned on, beside none.
        held_out: the attacks left for the report.
        failed: number of trials that failed.
        file: the tuned suite.
        proxy: settings that replaced the suite's during the tuning.
        chance: accuracy of guessing on the tuning's data; None if unknown.
        regret: by configured defense, the cost of the proxy in accuracy on the suite's own data; empty unless asked for.
    """

    name: str
    run: str
    budget: int
    seeds: tuple[int, ...]
    attacks: tuple[str, ...]
    held_out: tuple[str, ...]
    defenses: tuple[TunedDefense, ...]
    failed: int
    file: Path
    proxy: tuple[str, ...] = ()
    regret: Mapping[str, Estimate] = field(default_factory=dict)
    chance: float | None = None

    def section(self) -> dict[str, Any]:
        """The section ``tuning:`` of the tuned suite."""
        return {
            "run": self.run,
            "attacks": list(self.attacks),
            "seeds": list(self.seeds),
            "budget": self.budget,
            "judged_on": "test",
            **({"proxy": list(self.proxy)} if self.proxy else {}),
            **({"regret": {name: one.mean for name, one in self.regret.items()}} if self.regret else {}),
            "defenses": [
                {
                    "chosen": defense.chosen,
                    "candidates": [
                        {"setting": tried.setting, "score": tried.score}
                        if tried.score is not None
                        else {"setting": tried.setting, "why": tried.why}
                        for tried in defense.candidates
                    ],
                }
                for defense in self.defenses
            ],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        seeds = f"{len(self.seeds)} tuning seed{'s' if len(self.seeds) > 1 else ''}"
        yield Text(f"{self.name}: at most {self.budget} settings of each defense, {seeds}", "bold")
        yield Text(f"Tuned on {', '.join(self.attacks)} and without attack; held out: {', '.join(self.held_out)}.")
        if self.proxy:
            yield Text(f"Trained and judged on a proxy: {', '.join(self.proxy)}.")
        yield Text(f"Score in %: mean over seeds of the worst final accuracy over none and {', '.join(self.attacks)}.")
        table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("setting", overflow="fold")
        table.add_column("score", justify="right", no_wrap=True)
        table.add_column("", overflow="fold")
        for defense in self.defenses:
            for tried in defense.candidates:
                score = "-" if tried.score is None else f"{100 * tried.score:.1f}"
                style = "bold" if tried.setting == defense.chosen else "dim" if tried.score is None else ""
                table.add_row(*(Text(text, style) for text in (tried.setting, score, defense.note(tried, self.budget))))
            table.add_section()
        yield table
        for defense in self.defenses:
            if said := defense.verdict(self.chance):
                yield Text(f"{defense.configured}: {said}")
        left_out: dict[tuple[str, ...], list[str]] = {}
        for defense in self.defenses:
            if defense.left_out and defense.eligible:
                left_out.setdefault(defense.left_out, []).append(defense.configured)
        for where, defenses in left_out.items():
            yield Text(f"Not judged under {'; '.join(where)}, where all settings are refused: {', '.join(defenses)}.")
        for configured, one in self.regret.items():
            ends = (
                f" {bracket(100 * one.mean, 100 * one.half_width, '.1f')} (95 %)" if one.half_width is not None else ""
            )
            yield Text(f"Regret of {configured}: {100 * one.mean:.1f} points{ends} on the suite's own data.")
        for setting, count in Counter(defense.chosen for defense in self.defenses).items():
            if count > 1:
                yield Text(f"{count} defenses end in {setting}, which stands once in the tuned suite.")
