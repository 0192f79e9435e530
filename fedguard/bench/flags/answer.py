"""The answer of a run: its leading defense, or, if red flags are raised, why the run has no answer."""

from __future__ import annotations

from collections.abc import Sequence

from fedguard.bench.flags.results import Case, Results, results_of
from fedguard.bench.flags.run_flags import RaisedFlag, clean_at_chance, nothing_hurts
from fedguard.bench.results.answer import DefenseSummary, sentences, standings
from fedguard.bench.results.run import Run
from fedguard.bench.results.verdict import RunVerdict
from fedguard.metrics.flags import MissingFact, require_value, weak_task

#: Success of a backdoor, net of a clean model's, from which on defenses can be compared even if no attack lowers accuracy.
BACKDOOR = 0.10


def answers(run: Run) -> dict[str, RunVerdict]:
    """The answer by setting; empty for a run without attacks on the training.

    A setting has no answer if, over its seeds:

    - the task is weak (`weak_task`),
    - the mean without attack is not above chance (`clean_at_chance`), or
    - neither an attack (`nothing_hurts`) nor a backdoor does harm.
    """
    found = standings(run)
    return sentences(found, unanswerable(run, found))


def unanswerable(run: Run, found: Sequence[DefenseSummary]) -> dict[str, str]:
    """The reason by setting, for settings without an answer."""
    results = results_of(run)
    settings: dict[str, list[Case]] = {}
    for case in results.cases:
        settings.setdefault(case.setting, []).append(case)
    backdoors = {one.setting for one in found if one.success and one.success.estimate.mean >= BACKDOOR}
    reasons = {place: _why(results, cases, place in backdoors) for place, cases in settings.items()}
    return {place: why for place, why in reasons.items() if why}


def _why(results: Results, cases: Sequence[Case], backdoor: bool) -> str:
    try:
        clean = {case.seed: float(require_value(case.result, "controls.clean_mean")) for case in cases}
        result = {"controls": {"clean_mean": sum(clean.values()) / len(clean)}, "chance": cases[0].result.get("chance")}
        if said := weak_task(result, {}):
            return said
    except MissingFact:  # what cannot be judged does not speak against the run
        pass
    for judge in (clean_at_chance, *(() if backdoor else (nothing_hurts,))):
        try:
            judged = judge(results, cases)
        except MissingFact:
            continue
        if isinstance(judged, RaisedFlag):
            return judged.said if judge is nothing_hurts else f"{judged.cell}: {judged.said}"
    return ""
