"""What a mechanism claims, and what follows from it for R rounds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from fedguard.arguments import is_real, is_whole
from fedguard.errors import ConfigError, brief, require
from fedguard.privacy.audit.gaussian import delta_of, epsilon_of

#: zero_out: an update or nothing; replace: any two updates; add_remove: a record or none.
Relation: TypeAlias = Literal["zero_out", "replace", "add_remove"]
Law: TypeAlias = Literal["gaussian", "laplace"]

KEYS = ("epsilon", "delta", "per", "relation", "law", "unit")
#: The largest epsilon that a claim may have; above it every event is possible.
LARGEST_EPSILON = 1e6


@dataclass(frozen=True, kw_only=True)
class EpsilonClaim:
    """An epsilon with its meaning.

    Attributes:
        epsilon, delta: P[M(x) in S] <= e^epsilon P[M(y) in S] + delta for all neighboring inputs x, y and sets S of outputs.
        per: ``release`` for each release, or the number of rounds that it covers together.
        relation: which inputs are neighbors; None if the claim does not say.
        law: the law of the noise that the claim names, which composes more tightly; None if it names none.
        unit: whose data it protects.
    """

    epsilon: float
    delta: float = 0.0
    per: Literal["release"] | int = "release"
    relation: Relation | None = None
    law: Law | None = None
    unit: str = "one client's update"

    def __post_init__(self) -> None:
        number = is_real(self.epsilon) and 0 < self.epsilon <= LARGEST_EPSILON
        require(number, f"claim: epsilon: expected a number above 0 and at most 1e6; got {brief(self.epsilon)}.")
        share = is_real(self.delta) and 0 <= self.delta < 1
        require(share, f"claim: delta: expected a number from 0 to below 1; got {brief(self.delta)}.")
        rounds = self.per == "release" or (is_whole(self.per) and int(self.per) >= 1)
        require(rounds, f"claim: per: expected release, or a number of rounds from 1; got {brief(self.per)}.")
        for key, value, words in (("relation", self.relation, Relation), ("law", self.law, Law)):
            known = value is None or value in get_args(words)
            require(known, f"claim: {key}: expected {', '.join(get_args(words))}; got {brief(value)}.")
        law = self.law != "gaussian" or self.delta > 0
        require(law, "claim: delta: expected above 0 for Gaussian noise, which has no epsilon at delta = 0.")

    @property
    def relation_to_judge(self) -> Relation:
        """The relation that may refute the claim: without one, the weakest promise counts."""
        return self.relation or "zero_out"

    def over(self, rounds: int) -> tuple[float, float]:
        """The (epsilon, delta) that the claim implies for ``rounds`` releases with fresh noise; epsilon may be infinite.

        With a Gaussian law, epsilon and delta determine mu, and R releases are sqrt(R) mu-GDP. Else, and for a claim over
        several rounds, k such claims compose to (k epsilon, k delta).
        """
        if self.per == "release" and self.law == "gaussian":
            return epsilon_of(self.mu * math.sqrt(rounds), self.delta), self.delta
        k = rounds if self.per == "release" else math.ceil(rounds / int(self.per))
        delta = k * self.delta
        return (k * self.epsilon, delta) if delta < 1 else (math.inf, 1.0)

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy with this epsilon at this delta: by bisection, since delta grows with mu."""
        low, high = 0.0, math.sqrt(2 * self.epsilon) + 10
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if delta_of(middle, self.epsilon) < self.delta else (low, middle)
        return high

    def describe(self) -> str:
        """``epsilon = 8 at delta = 1e-05 per release, for any two updates (replace)``."""
        when = "per release" if self.per == "release" else f"over {self.per} rounds"
        relation = f"relation {self.relation}" if self.relation else "no relation stated"
        law = f", {self.law} noise" if self.law else ""
        return f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g} {when}, {relation}{law}, for {self.unit}"

    @classmethod
    def parse(cls, text: str | Mapping[str, Any]) -> EpsilonClaim:
        """A claim from ``epsilon=8, delta=1e-5, per=release, relation=replace, law=gaussian``.

        Raises:
            ConfigError: a key or value is invalid, or epsilon or per is missing.
        """
        found = dict(_split(text)) if isinstance(text, str) else dict(text)
        unknown = [key for key in found if key not in KEYS]
        require(not unknown, f"claim: expected the keys {', '.join(KEYS)}; got {brief(', '.join(map(str, unknown)))}.")
        require("epsilon" in found, f"claim: expected epsilon=NUMBER; got {brief(text)}.")
        require(
            "per" in found,
            "claim: expected per=release or per=ROUNDS: the epsilon of one release and of a training are different numbers.",
        )
        numbers = {key: _number(key, found[key]) for key in ("epsilon", "delta") if key in found}
        per = found["per"] if found["per"] == "release" else _number("per", found["per"])
        whole = per if per == "release" or per != int(per) else int(per)
        return cls(**{**found, **numbers, "per": whole})


@dataclass(frozen=True, kw_only=True)
class NoiseParameters:
    """What the parameters of a mechanism say of it.

    Attributes:
        law: of the noise.
        scale: its standard deviation (Gaussian), or its b (Laplace).
        clip: the largest length of an input after clipping: in L2 (Gaussian), or in L1 (Laplace).
    """

    law: Law
    scale: float
    clip: float

    def epsilon(self, relation: Relation, rounds: int, delta: float) -> float:
        """The exact epsilon of ``rounds`` releases.

        The sensitivity is Delta = clip, or 2 clip if any two inputs are neighbors. Gaussian: mu = sqrt(R) Delta / scale.
        Laplace: R Delta / b, at delta = 0.
        """
        distance = self.clip * (2 if relation == "replace" else 1)
        if self.scale == 0:
            return math.inf if distance else 0.0
        if self.law == "laplace":
            return rounds * distance / self.scale
        return epsilon_of(math.sqrt(rounds) * distance / self.scale, delta)


def _split(text: str) -> list[tuple[str, str]]:
    parts = [part for part in re.split(r"[,;]\s*", text.strip()) if part]
    for part in parts:
        require("=" in part, f"claim: expected KEY=VALUE, separated by commas; got {brief(part)}.")
    pairs = [(key.strip(), value.strip()) for key, _, value in (part.partition("=") for part in parts)]
    keys = [key for key, _ in pairs]
    require(len(set(keys)) == len(keys), f"claim: expected each key once; got {brief(text)}.")
    return pairs


def _number(key: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(f"claim: {key}: expected a number; got {brief(value)}.")
    return found
