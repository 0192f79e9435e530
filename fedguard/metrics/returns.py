"""Returns of the episodes of a model that acts, compared with random actions and with a perfect policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Count, Number
from fedguard.metrics.stats import BoundedValue, Bounds

if TYPE_CHECKING:
    from fedguard.contracts import Evaluation


class ReturnControls(TypedDict):
    """Final returns without attack, with silent malicious actors and with the attack; under the plain mean and the defense.

    Attributes:
        clean_mean, clean_defense: without attack.
        attack_mean, attack_defense: with the attack.
        silent_mean, silent_defense: with silent malicious actors.
    """

    clean_mean: Number | None
    clean_defense: Number | None
    attack_mean: Number | None
    attack_defense: Number | None
    silent_mean: Number | None
    silent_defense: Number | None


class Returns(TypedDict):
    """For a task of actors, in place of accuracies. Returns are undiscounted sums of rewards in an episode.

    Attributes:
        final: mean over the episodes of the last evaluations.
        best: return of the best evaluation, a diagnostic.
        last: return of the last evaluation.
        normalized: $(final - guess) / (perfect - guess)$: 0 for random actions, 1 for a perfect policy.
        guess: mean return of random actions in the same episodes.
        perfect: the best return by the environment's definition.
        bounds: smallest and largest possible return of an episode; None if the environment does not give them. Absent in
            records of earlier versions.
        episodes: number of episodes of an evaluation.
        controls: final returns of the control cells.
        drop, absence, harm, tax: as for accuracies, in returns.
        evaded: mean return of the final model under an attack at test time on its observations. Absent in records of earlier
            versions.
    """

    final: Number
    best: Number
    last: Number
    normalized: Number
    guess: Number
    perfect: Number
    bounds: NotRequired[list[Number] | None]
    episodes: Count
    controls: ReturnControls
    drop: Number | None
    absence: Number | None
    harm: Number | None
    tax: Number | None
    evaded: NotRequired[Number]


def mean_return(evaluation: Evaluation) -> float:
    """The mean return of one evaluation."""
    return sum(evaluation.returns) / len(evaluation.returns)


def normalize_return(final: float, guess: float, perfect: float) -> float:
    """$(final - guess) / (perfect - guess)$."""
    return (final - guess) / (perfect - guess)


def within(value: float, returns: Mapping[str, Any], *, change: bool = False, share: bool = False) -> float:
    """A metric of the returns of a record as a `BoundedValue`; unchanged if the environment gives no bounds.

    Args:
        change: whether it is a difference of two returns, with bounds from ``worst - best`` to ``best - worst`` of the
            environment.
        share: whether it is normalized, and so are its bounds.
    """
    told = returns.get("bounds")
    if told is None:
        return value
    worst, best = told
    bounds: Bounds = (worst - best, best - worst) if change else (worst, best)
    if share:
        guess, span = 0.0 if change else returns["guess"], returns["perfect"] - returns["guess"]
        bounds = (bounds[0] - guess) / span, (bounds[1] - guess) / span
    return BoundedValue(value, bounds)


def score(result: Mapping[str, Any]) -> float:
    """The score of a training: the final accuracy, or if actors act the final return."""
    returns = result.get("returns")
    return float(result["final_accuracy"] if returns is None else returns["final"])


def controls(result: Mapping[str, Any]) -> Mapping[str, float | None]:
    """The scores of the control cells."""
    returns = result.get("returns")
    found: Mapping[str, float | None] = result["controls"] if returns is None else returns["controls"]
    return found


def in_shares(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record's result with normalized returns in place of accuracies, so that the same code judges both."""
    returns = result.get("returns")
    if returns is None:
        return result
    span = returns["perfect"] - returns["guess"]

    def share(value: float | None) -> float | None:
        return (
            None
            if value is None
            else within(normalize_return(value, returns["guess"], returns["perfect"]), returns, share=True)
        )

    def points(value: float | None) -> float | None:
        return None if value is None else within(value / span, returns, change=True, share=True)

    return {
        **result,
        "chance": 0.0,
        "final_accuracy": share(returns["final"]),
        "best_accuracy": share(returns["best"]),
        "controls": {name: share(value) for name, value in returns["controls"].items()},
        "accuracy_drop": points(returns["drop"]),
        "absence": points(returns["absence"]),
        "harm": points(returns["harm"]),
        "robustness_tax": points(returns["tax"]),
    }


def read_score_curve(result: Mapping[str, Any]) -> list[float]:
    """The accuracy at each evaluation, or if actors act the normalized return."""
    curve, returns = result["curve"], result.get("returns")
    if returns is None or "returns" not in curve:
        return list(curve["accuracy"])
    return [normalize_return(value, returns["guess"], returns["perfect"]) for value in curve["returns"]]


def means(evaluations: Sequence[Evaluation]) -> list[float]:
    """The mean return of each evaluation; empty for evaluations on examples."""
    return [mean_return(one) for one in evaluations if one.returns]
