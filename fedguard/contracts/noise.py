"""The noise that is added for privacy: by the clients to their sum, by each to its training, or by the server."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

_STRICT: dict[str, str] = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True)
class DistributedNoise:
    """Each client adds its share of the noise before it is masked, so that the sum alone has differential privacy.

    Args:
        mechanism: the distribution of the integer noise.
        clip: the largest length of an honest client's update.
        noise_multiplier: standard deviation of the summed noise over the clip; None takes the least with which the expected
            contributors keep all rounds within epsilon.
        delta: of the (epsilon, delta) that is reported.
        epsilon: the most that all rounds may spend: a sum with too few contributors for that is never opened. None: no bound.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    kind: Literal["distributed"]
    mechanism: Literal["skellam", "discrete_gaussian"] = "skellam"
    clip: Annotated[float, Gt(0)] = 1.0
    noise_multiplier: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    epsilon: Annotated[float, Gt(0)] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """What `fedguard.privacy.distributed.DistributedDP` takes."""
        return {key: value for key, value in asdict(self).items() if key not in ("kind", "epsilon")}


@dataclass(frozen=True, kw_only=True)
class Level:
    """What one party asks for: a noise multiplier or an epsilon.

    Args:
        noise_multiplier: standard deviation of a step's noise over the clip.
        epsilon: the most that all rounds may spend on it.
        clip: of its own; None for the common one.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    noise_multiplier: Annotated[float, Gt(0)] | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    clip: Annotated[float, Gt(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordNoise:
    """Each client trains by DP-SGD, so that each of its examples is hidden from all who see its updates.

    Exactly one of ``noise_multiplier`` and ``epsilon`` is given, here or in each level. ``training.batch_size`` is what the
    noisy sum of a step is divided by, and an epoch has ``round(1 / sample_rate)`` steps: both are public.

    Args:
        clip: the largest length of one example's gradient.
        noise_multiplier: standard deviation of a step's noise over the clip.
        epsilon: the most that all rounds may spend on a client that takes part in each; the noise is found from it.
        delta: of the (epsilon, delta) that is reported.
        sample_rate: q, the probability with which each example is in a step's batch.
        levels: parties that ask for different noise: client i takes number i modulo their number. Who takes which is public.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    kind: Literal["record"]
    clip: Annotated[float, Gt(0)] = 1.0
    noise_multiplier: Annotated[float, Gt(0)] | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    sample_rate: Annotated[float, Gt(0), Le(1)] = 0.1
    levels: tuple[Level, ...] = ()

    @property
    def parties(self) -> tuple[Level, ...]:
        """The levels with their clips; one for all where none are given."""
        levels = self.levels or (Level(noise_multiplier=self.noise_multiplier, epsilon=self.epsilon),)
        return tuple(replace(level, clip=level.clip or self.clip) for level in levels)


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """A clip that follows a quantile of the updates' lengths, told by a noisy count (Andrew et al., NeurIPS 2021).

    Args:
        quantile: the share of the updates that shall be shorter than the clip.
        initial: the clip of the first round.
        lr: step size of its logarithm.
        bit_noise: standard deviation of the noise on the count; None takes a twentieth of the expected clients as the source
            does, but no less than the noise multiplier.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    quantile: Annotated[float, Gt(0), Lt(1)] = 0.5
    initial: Annotated[float, Gt(0)] = 0.1
    lr: Annotated[float, Gt(0)] = 0.2
    bit_noise: Annotated[float, Gt(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class Bands:
    """The key under which correlated noise stands in a suite.

    Args:
        bands: the noise of so many rounds in a row cancels in part.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    bands: Annotated[int, Ge(1)]


@dataclass(frozen=True, kw_only=True)
class ClientNoise:
    """A trusted server clips each update and adds noise to their sum, so that each client is hidden in what it publishes.

    Exactly one of ``noise_multiplier`` and ``epsilon`` is given.

    Args:
        clip: the largest length of an update, or how it is found.
        noise_multiplier: standard deviation over the clip of the noise that is drawn in a round.
        epsilon: the most that all rounds may spend; the noise is found from it.
        delta: of the (epsilon, delta) that is reported.
        noise: drawn anew in each round, or correlated over rounds, which takes ``clients.sampling: cyclic``.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    kind: Literal["client"]
    clip: Annotated[float, Gt(0)] | AdaptiveClip = 1.0
    noise_multiplier: Annotated[float, Gt(0)] | None = None
    epsilon: Annotated[float, Gt(0)] | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    noise: Literal["independent"] | Bands = "independent"

    @property
    def bands(self) -> int:
        return self.noise.bands if isinstance(self.noise, Bands) else 1
