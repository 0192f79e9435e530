"""What the episodes of a model return that acts, and how far that is from guessing and from perfect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Count, Number
from fedguard.metrics.stats import BoundedValue, Bounds

if TYPE_CHECKING:
    from fedguard.contracts import Evaluation


class ReturnCorners(TypedDict):
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
    """Of a task of actors, in place of accuracies: returns are sums of rewards in an episode, undiscounted.

    Attributes:
        final: the mean over the episodes of the last evaluations.
        best: that of the best evaluation, a diagnostic.
        last: of the last evaluation.
        normalised: $(final - guess) / (perfect - guess)$: 0 for one who acts at random, 1 for a perfect policy.
        guess: the mean return of one who acts at random, in the same episodes.
        perfect: what the environment calls the best.
        bounds: the least and the most that an episode can return; None where the environment does not say. Earlier versions
            did not know them.
        episodes: of an evaluation.
        corners: final returns of the cells that it is compared with.
        drop, absence, harm, tax: as of accuracies, in returns.
        evaded: the mean return of the final model where an attack at test time changes what it observes. Earlier versions
            knew no such attack.
    """

    final: Number
    best: Number
    last: Number
    normalised: Number
    guess: Number
    perfect: Number
    bounds: NotRequired[list[Number] | None]
    episodes: Count
    corners: ReturnCorners
    drop: Number | None
    absence: Number | None
    harm: Number | None
    tax: Number | None
    evaded: NotRequired[Number]


def mean_return(evaluation: Evaluation) -> float:
    """Of one evaluation."""
    return sum(evaluation.returns) / len(evaluation.returns)


def normalize_return(final: float, guess: float, perfect: float) -> float:
    """$(final - guess) / (perfect - guess)$."""
    return (final - guess) / (perfect - guess)


def within(value: float, returns: Mapping[str, Any], *, change: bool = False, share: bool = False) -> float:
    """A figure of the returns of a record, `BoundedValue` what it can be; as it is where the environment does not say.

    Args:
        change: it is a difference of two returns, and so from ``worst - best`` to ``best - worst`` of the environment.
        share: it is normalized, and so are its bounds.
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
    """What a training is judged by: the final accuracy, or where actors act the final return."""
    returns = result.get("returns")
    return float(result["final_accuracy"] if returns is None else returns["final"])


def corners(result: Mapping[str, Any]) -> Mapping[str, float | None]:
    """The scores of the cells that it is compared with."""
    returns = result.get("returns")
    found: Mapping[str, float | None] = result["corners"] if returns is None else returns["corners"]
    return found


def in_shares(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record's result with normalized returns where others have accuracies, so that what judges these judges both."""
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
        "corners": {name: share(value) for name, value in returns["corners"].items()},
        "accuracy_drop": points(returns["drop"]),
        "absence": points(returns["absence"]),
        "harm": points(returns["harm"]),
        "robustness_tax": points(returns["tax"]),
    }


def read_score_curve(result: Mapping[str, Any]) -> list[float]:
    """The accuracy at each evaluation, or where actors act the normalized return."""
    curve, returns = result["curve"], result.get("returns")
    if returns is None or "returns" not in curve:
        return list(curve["accuracy"])
    return [normalize_return(value, returns["guess"], returns["perfect"]) for value in curve["returns"]]


def means(evaluations: Sequence[Evaluation]) -> list[float]:
    """The mean return of each; none of evaluations on examples."""
    return [mean_return(one) for one in evaluations if one.returns]
