"""Summaries of the defenses of a run, and the sentence on the leading defense, or why there is none.

The score of a defense is what it keeps under the worst attack of each goal: accuracy, and resistance to backdoors. The
sentence is made here for all views (`fedguard show`, report, dashboard), from paired differences by seed
(`fedguard.metrics.ranking`). Red flags decide whether a run has an answer at all: `fedguard.bench.flags.answer`. Leakage to
attacks on privacy is stated separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedguard.bench.results.matrix import Matrix, MatrixEntry
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run, once_for_run
from fedguard.bench.results.trilemma import LEAKAGE, LINEAR, Point, WorstAttack, points
from fedguard.bench.results.verdict import RunVerdict
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.ranking import Ranking, join_names, rank
from fedguard.metrics.returns import in_shares
from fedguard.metrics.stats import ENOUGH, Estimate, estimate

#: How the defenses are put in order.
RULE = (
    "A defense is as good as the worse of two numbers: the accuracy under the attack that lowers it most, and 100 % less the "
    "success of the backdoor that succeeds most. Worst attacks are chosen on the seeds that they are reported on."
)


#: Names of the metrics that judge a training.
NOUNS = {"final_accuracy": "accuracy", "normalized_return": "normalized return"}


@dataclass(frozen=True)
class DefenseSummary:
    """One defense under one setting, with shares in [0, 1].

    Attributes:
        setting: the values of the swept keys beside attack and defense; "" if there are none.
        clean: final accuracy without attack.
        worst: the attack on the training with the lowest final accuracy, and this accuracy.
        success: the most successful backdoor, and its success net of a clean model's; None without a backdoor that has one.
        measured: number of attacks on the training among which these are the worst.
        refused, unknown: number of further attacks that were refused; and that failed or were not run, and may be worse.
        tax: cost of the defense without attack: clean accuracy of the plain mean less clean accuracy of the defense.
        epsilon: the largest over seeds and attacks; None without guarantee.
        leakage: by metric, the attack on the clients' privacy that learns most.
        linear: whether a plain regression is among the membership inferences.
        score: the metric in the role of accuracy: ``normalized_return`` in reinforcement learning.
        by_seed: the score with each seed; `kept` is the mean.
        chance: accuracy of guessing; None if unknown.
    """

    setting: str
    defense: str
    clean: Estimate | None
    worst: WorstAttack | None
    success: WorstAttack | None
    measured: int
    refused: int
    unknown: int
    tax: Estimate | None
    epsilon: float | None
    leakage: Mapping[str, WorstAttack]
    linear: bool = True
    score: str = "final_accuracy"
    by_seed: Mapping[int, float] = field(default_factory=dict)
    chance: float | None = None

    @property
    def kept(self) -> float | None:
        """``min(accuracy, 1 - backdoor success)``, each under its worst attack; None without a figure."""
        shares = [self.worst.estimate.mean] if self.worst else []
        return min([*shares, *([1 - self.success.estimate.mean] if self.success else [])], default=None)

    @property
    def judged_by(self) -> Estimate | None:
        """The figure that `kept` is the mean of, with its interval."""
        if self.worst and self.worst.estimate.mean == self.kept:
            return self.worst.estimate
        return _complement(self.success.estimate) if self.success else None

    @property
    def at_chance(self) -> bool:
        """Whether the interval of the accuracy under the worst attack is not above chance."""
        low = self.worst.estimate.low if self.worst else None
        return self.chance is not None and low is not None and low <= self.chance

    def words(self, intervals: bool = False) -> str:
        """``67.4 % accuracy (sign_flip) and 0.0 % backdoor success (model_replacement)``, with what leaks most."""
        shown = _format_with_interval if intervals else _figure
        parts = [f"{shown(self.worst, self.score)} {NOUNS[self.score]} ({self.worst.attack})"] if self.worst else []
        if self.success:
            parts.append(f"{shown(self.success, 'attack_success')} backdoor success ({self.success.attack})")
        return " and ".join(parts) + self.leaks()

    def leaks(self) -> str:
        """The most telling figure of what leaks, such as ``; inputs recovered exactly: 100.0 % (dlg)``; "" without one."""
        known = [one for one in LEAKAGE if one in self.leakage]
        if not known:
            return ""
        figure = next((one for one in known if self.leakage[one].estimate.mean > 0), known[0])
        worst = self.leakage[figure]
        beside = f", without {LINEAR} beside it" if figure == "membership_auc" and not self.linear else ""
        return f"; {FIGURES[figure].title}: {_figure(worst, figure)} ({worst.attack}{beside})"

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
            "backdoor success, %": _format_worst("attack_success", self.success),
            "worst of": f"{self.measured} {'attack' if self.measured == 1 else 'attacks'}{beside}"
            if self.measured or beside
            else "",
            "robustness tax, points": _text("accuracy_drop", self.tax),
            "epsilon": "" if self.epsilon is None else f"{self.epsilon:.3g}",
            **{heading(figure): _format_worst(figure, self.leakage.get(figure)) for figure in LEAKAGE},
        }


def sentences(found: Sequence[DefenseSummary], unanswerable: Mapping[str, str] | None = None) -> dict[str, RunVerdict]:
    """The verdict by setting; empty for a run without attacks on the training.

    Args:
        found: the standings of a run.
        unanswerable: by setting, why there is no answer, for example because nothing was learned.
    """
    places: dict[str, list[DefenseSummary]] = {}
    for one in found:
        if one.measured or one.refused or one.unknown:
            places.setdefault(one.setting, []).append(one)
    return {place: _answer(its, (unanswerable or {}).get(place, "")) for place, its in places.items()}


@once_for_run
def standings(run: Run) -> list[DefenseSummary]:
    """One summary for each defense and combination of the other swept keys."""
    rows = run.rows()
    tables = run.table(run.share), run.table("attack_success")
    known = {(point.setting, point.defense): point for point in points(rows, run.swept)}
    members: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        members.setdefault((setting(row, run.swept), row["defense"]), []).append(row)
    chances = _chances(run)
    return [_standing(tables, place, its, known.get(place), run.share, chances) for place, its in members.items()]


def _chances(run: Run) -> dict[str, float]:
    """Accuracy of guessing by cell; 0 for normalized returns."""
    found = {}
    for (cell, _), record in run.ran.items():
        chance = in_shares(record["result"])["chance"]
        if chance is not None:
            found[cell] = float(chance)
    return found


def heading(figure: str) -> str:
    """The column of a leak: ``leaks: labels recovered, %``."""
    unit = FIGURES[figure].unit
    return f"leaks: {figure.replace('_', ' ')}" + (f", {unit}" if unit else "")


def _answer(found: Sequence[DefenseSummary], why_none: str) -> RunVerdict:
    """The first case that applies, as docs/read_result.md lists them."""
    whole = any(one.success for one in found)
    able = [one for one in found if one.worst and (one.success or not whole) and one.by_seed]
    if not able:
        return RunVerdict("No attack on the training has a value here.", tuple(_explain_omissions(found, able)))
    if why_none:
        return RunVerdict(f"No answer yet: {why_none}", tuple(_explain_omissions(found, able)))
    ranking = rank({one.defense: one.by_seed for one in able})
    by_name = {one.defense: one for one in able}
    ranked = [by_name[ranking.first], *(by_name[one.name] for one in ranking.behind)]
    notes = tuple(_explain_omissions(found, ranked))
    if len(ranked) == 1:
        return _alone(ranked[0], notes)
    if ranking.seeds < ENOUGH:
        return _few_seeds(ranking, ranked, notes)
    if all(one.at_chance for one in ranked):
        chance = _percent(ranked[0].chance or 0.0)
        best = f"{ranked[0].defense} has the highest mean score: {ranked[0].words()}; chance is {chance}."
        return RunVerdict("Every defense falls to chance under its worst attack.", (best, *notes))
    figure, judged_by = FIGURES[ranked[0].score], ranked[0].judged_by
    assert judged_by is not None  # it has a figure
    headline = ranking.sentence(figure, judged_by, _under(ranked[0]))
    lead = (*_leader(ranking, ranked), *_more_accurate(ranked), *_lowest(ranking, ranked), *notes)
    return RunVerdict(headline, lead, ranking.action(), ranked=True, group=ranking.group)


def _alone(one: DefenseSummary, notes: Sequence[str]) -> RunVerdict:
    """A single defense, without others to rank it with."""
    few = {1: ", on one seed", 2: ", on two seeds"}.get(len(one.by_seed), "")
    said = f"This does not lie above chance, {_percent(one.chance or 0.0)}." if one.at_chance else ""
    verb = "has" if one.at_chance or (one.kept or 0.0) <= 0 else "keeps"
    headline = f"{_under(one).capitalize()}, {one.defense} {verb} {one.words(intervals=True)}{few}."
    return RunVerdict(headline, (*([said] if said else []), *notes))


def _few_seeds(ranking: Ranking, ranked: Sequence[DefenseSummary], notes: Sequence[str]) -> RunVerdict:
    """One or two seeds: facts of these seeds, and no ranking."""
    first, last = ranked[0], ranked[-1]
    action = "For a ranking set seeds: 5."
    if ranking.seeds == 1:
        said = (
            f"On this seed {first.defense} has the most, {first.words()}, and {last.defense} the least, {last.words()}."
            if first.kept != last.kept
            else f"On this seed no defense has more than another: {first.words()}."
        )
        return RunVerdict("One seed: no ranking.", (said, *_more_accurate(ranked), *notes), action)
    ahead = ranking.ahead_on_all
    said = (
        f"On both, {first.defense} is above {join_names(ahead)}."
        if ahead
        else f"None that {first.defense} is above on both."
    )
    if len(ahead) == len(ranking.behind):
        said = f"On both, {first.defense} is above all others."
    spans = " and ".join(f"{one.defense} {_span(one)}" for one in (first, last))
    return RunVerdict(
        "Two seeds do not rank.", (said, f"What is kept ranges so: {spans}.", *_more_accurate(ranked), *notes), action
    )


def _leader(ranking: Ranking, ranked: Sequence[DefenseSummary]) -> Iterator[str]:
    """The leader in full, and its nearest rival if there is one."""
    first = ranked[0]
    nearest = ranking.nearest
    if nearest is None:
        yield f"{first.defense} has {first.words(intervals=bool(first.success))}."
        return
    yield f"{first.defense} has the highest mean score {_under(first)}: {first.words(intervals=True)}."
    yield f"Next is {nearest.words(FIGURES[first.score])}."


def _more_accurate(ranked: Sequence[DefenseSummary]) -> Iterator[str]:
    """The defense with the highest accuracy, if backdoors make another one the leader."""
    most = max(ranked, key=lambda one: one.worst.estimate.mean if one.worst else 0.0)
    if most not in (ranked[0], ranked[-1]) and most.worst and most.success:
        yield (
            f"{most.defense} has the highest mean {NOUNS[most.score]}, {_figure(most.worst, most.score)} "
            f"({most.worst.attack}), but {_figure(most.success, 'attack_success')} backdoor success ({most.success.attack})."
        )


def _lowest(ranking: Ranking, ranked: Sequence[DefenseSummary]) -> Iterator[str]:
    """The last defense, if it is separated from the leader and was not named yet."""
    last = ranking.behind[-1]
    if last.apart and len(ranked) > 2:
        yield f"Last is {last.words(FIGURES[ranked[0].score])}: {ranked[-1].words()}."


def _under(one: DefenseSummary) -> str:
    """``under the worst of 5 attacks, 1 refused``: of those that ran against it."""
    beside = f", {one.refused} refused" if one.refused else ""
    if one.measured == 1:
        return f"under the only attack that ran{beside}" if beside or one.unknown else "under the attack"
    return f"under the worst of {one.measured} attacks{beside}"


def _span(one: DefenseSummary) -> str:
    """``60.1 % to 74.7 %``: over seeds."""
    return f"{_percent(min(one.by_seed.values()))} to {_percent(max(one.by_seed.values()))}"


def _percent(share: float) -> str:
    return FIGURES["final_accuracy"].quantity(share)


def _explain_omissions(found: Sequence[DefenseSummary], ranked: Sequence[DefenseSummary]) -> Iterator[str]:
    without = [one.defense for one in found if one not in ranked]
    if without:
        yield f"Not in this order, since a value is missing: {', '.join(without)}."
    refused = [
        f"{one.refused} of {one.measured + one.refused + one.unknown} against {one.defense}"
        for one in ranked
        if one.refused
    ]
    if refused:
        yield f"Refused attacks are not counted: {', '.join(refused)}."
    unknown = [one.defense for one in ranked if one.unknown]
    if unknown:
        yield f"Attacks failed or were not run, which may be worse, against: {', '.join(unknown)}."


def _complement(found: Estimate) -> Estimate:
    """The estimate of one less the metric."""
    low, high = (None if end is None else 1 - end for end in (found.high, found.low))
    return Estimate(1 - found.mean, low, high, found.seeds, found.censored)


def _standing(
    tables: tuple[Matrix, Matrix],
    place: tuple[str, str],
    rows: Sequence[Mapping[str, Any]],
    point: Point | None,
    score: str,
    chances: Mapping[str, float],
) -> DefenseSummary:
    block, defense = place
    final, backdoors = tables
    worst, success = _worst(final, block, defense), _worst(backdoors, block, defense)
    entries = {attack: row[defense] for attack, row in final.blocks.get(block, {}).items() if defense in row}
    clean = entries.pop("none").estimate if "none" in entries else None
    words = [entry.status for entry in entries.values()]
    return DefenseSummary(
        block,
        defense,
        clean,
        worst,
        success,
        measured=sum(entry.estimate is not None for entry in entries.values()),
        refused=words.count("refused"),
        unknown=words.count("failed") + words.count("missing"),
        tax=_tax(rows),
        epsilon=point.epsilon if point else None,
        leakage=point.leakage if point else {},
        linear=point.linear if point else True,
        score=score,
        by_seed=_by_seed(rows, score, worst, success),
        chance=next((chances[row["cell"]] for row in rows if row["cell"] in chances), None),
    )


def _by_seed(
    rows: Sequence[Mapping[str, Any]], score: str, worst: WorstAttack | None, success: WorstAttack | None
) -> dict[int, float]:
    """The score with each seed, for the goal with the lower mean."""
    if success and (worst is None or 1 - success.estimate.mean < worst.estimate.mean):
        values = _values(rows, "attack_success", success.attack)
        return {seed: 1 - value for seed, value in values.items()}
    return _values(rows, score, worst.attack) if worst else {}


def _values(rows: Sequence[Mapping[str, Any]], figure: str, attack: str) -> dict[int, float]:
    return {row["seed"]: row[figure] for row in rows if row["attack"] == attack and row[figure] is not None}


def _worst(table: Matrix, block: str, defense: str) -> WorstAttack | None:
    worst = table.worst(block, defense) if defense in table.defenses and block in table.blocks else None
    if worst is None or worst.estimate is None:
        return None
    return WorstAttack(next(name for name, row in table.blocks[block].items() if row[defense] is worst), worst.estimate)


def _tax(rows: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The cost of the defense by seed; the cells of a defense share their clean controls, so there is one value per seed."""
    found: dict[int, float] = {}
    for row in rows:
        if row["robustness_tax"] is not None:
            found.setdefault(row["seed"], row["robustness_tax"])
    return estimate(list(found.values())) if found else None


def _text(figure: str, found: Estimate | None) -> str:
    return "" if found is None else MatrixEntry(found, "ok", FIGURES[figure]).text()


def _format_worst(figure: str, worst: WorstAttack | None) -> str:
    return "" if worst is None else f"{_text(figure, worst.estimate)} ({worst.attack})"


def _figure(worst: WorstAttack, figure: str) -> str:
    """The mean alone, since the tables have the intervals."""
    return FIGURES[figure].quantity(worst.estimate.mean)


def _format_with_interval(worst: WorstAttack, figure: str) -> str:
    """``67.4 % [50.9, 80.4]``."""
    return FIGURES[figure].format_with_unit(worst.estimate)
