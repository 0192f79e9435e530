"""The simulated network as a suite describes it: durations, and the availability of devices."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, Lt

from fedguard.contracts.availability import Availability
from fedguard.contracts.specs import Spec
from fedguard.errors import ConfigError

_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}

#: Upper bound of seconds, watts and factors, which keeps simulated time finite
_MOST = 1e9


@dataclass(frozen=True, kw_only=True)
class Stragglers:
    """Devices that take longer than the others.

    Args:
        share: share of the devices that are slow; if slowness is not ``lasting``, share of the local trainings.
        factor: how many times as long they take.
        lasting: whether the same devices are always slow; otherwise any device may be slow in any of its local trainings.
        devices: numbers of the slow devices, from 0, instead of a random share.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    share: Annotated[float, Ge(0), Le(1)] = 0.0
    factor: Annotated[float, Ge(1), Le(_MOST)] = 5.0
    lasting: bool = True
    devices: tuple[Annotated[int, Ge(0)], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """How long devices compute: $seconds * examples * pace_i * a_i * b_ik * slowness$ for the k-th training of device i.

    $ln a_i$ is normal with mean 0 and standard deviation ``spread``, drawn once for each device. $ln b_ik$ is normal with
    standard deviation ``jitter``, drawn for each local training; or $b_ik$ is exponential with mean 1.

    Args:
        seconds: time of an ordinary device to train once on one example.
        paces: relative computation time of each device, one number per device in the order of their numbers; null for 1.
        spread: variation between devices.
        jitter: variation between the local trainings of one device, or ``exponential``: the slowest of n then takes $1 + 1/2 +
            ... + 1/n$ times the mean.
        slow: devices that take longer.
        watts: power that a device draws while it computes.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    seconds: Annotated[float, Ge(0), Le(_MOST)] = 0.001
    paces: tuple[Annotated[float, Ge(0), Le(_MOST)], ...] | None = None
    spread: Annotated[float, Ge(0), Le(10)] = 0.0
    jitter: Annotated[float, Ge(0), Le(10)] | Literal["exponential"] = 0.0
    slow: Stragglers = field(default_factory=Stragglers)
    watts: Annotated[float, Ge(0), Le(_MOST)] = 5.0


@dataclass(frozen=True, kw_only=True)
class Links:
    """The link between a device and the servers. A message of b bytes takes $latency + b / bandwidth$ seconds.

    Args:
        latency: seconds that any message takes.
        up, down: bytes per second from a device, and to it; null for no limit.
        spread: standard deviation of the logarithm of a lognormal factor on the bandwidths of each device.
        loss: probability that an update is lost on its way. Messages from the servers are never lost.
        joules: energy that a device spends per byte that it sends or receives.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    latency: Annotated[float, Ge(0), Le(_MOST)] = 0.0
    up: Annotated[float, Ge(1e-3)] | None = None
    down: Annotated[float, Ge(1e-3)] | None = None
    spread: Annotated[float, Ge(0), Le(10)] = 0.0
    loss: Annotated[float, Ge(0), Lt(1)] = 0.0
    joules: Annotated[float, Ge(0), Le(_MOST)] = 1e-6


@dataclass(frozen=True, kw_only=True)
class Network:
    """Durations in simulated seconds, and the availability of devices.

    Args:
        compute: how long devices compute.
        link: how long messages take.
        availability: when devices are online, such as ``on_off(on=600, off=300)``; null for always. A device that goes
            offline before its update has arrived loses it.
        malicious_pace: factor of the computation time of malicious clients: 0.1 is a tenth. A client that answers first is
            never too late, and sends more often.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    compute: Speeds = field(default_factory=Speeds)
    link: Links = field(default_factory=Links)
    availability: Spec | None = None
    malicious_pace: Annotated[float, Ge(0), Le(_MOST)] = 1.0

    def check(self, devices: int) -> None:
        """Check that the settings of single devices fit the number of devices.

        Raises:
            ConfigError: unknown device numbers, a wrong number of paces, or slow devices given twice.
        """
        slow, paces = self.compute.slow, self.compute.paces
        if paces is not None and len(paces) != devices:
            raise ConfigError(
                f"network.compute.paces: expected one number for each of the {devices} clients; got {len(paces)}. Write "
                "how many times as long each takes, in the order of their numbers."
            )
        others = sorted({device for device in slow.devices if device >= devices})
        if others:
            raise ConfigError(
                f"network.compute.slow.devices: expected numbers from 0 to {devices - 1}, of {devices} clients; got "
                f"{others[0]}. Count from 0, or raise clients.total."
            )
        if slow.devices and (slow.share or not slow.lasting):
            raise ConfigError(
                "network.compute.slow: devices says which are slow for good, and share or lasting: false says that they are "
                "drawn. Leave out one of the two."
            )

    def spec(self, availability: Availability) -> dict[str, Any]:
        """Part of a cell's identity, with the law that was built; unset keys of single devices are left out."""
        there = availability.spec() if availability.fields() else availability.name
        content = asdict(self) | {"there": there}  # the identity of a cell keeps the key of earlier versions
        del content["availability"]
        if self.compute.paces is None:
            del content["compute"]["paces"]
        if not self.compute.slow.devices:
            del content["compute"]["slow"]["devices"]
        return content
