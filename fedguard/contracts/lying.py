"""How clients report what nobody can verify, and how an attack lies.

A listener declares what it asks as one `Channel`, and asks by `Setup.report`; in an environment, by `ActingTask.report`. An
attack lies on a channel by one method::

    class UnderstatedLoss(PoisonAttack):
        @lies(LOSS)
        def understate(self, loss: float) -> float:
            return loss / 10

`fedguard.contracts.channels` has the channels of FedGuard; a plug-in declares its own beside its listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.return_checks import contract_error, describe_value, forbid_changes

#: Type of what is reported on a channel
Reported = TypeVar("Reported")
#: What a lie is given beside the truth
P = ParamSpec("P")
A = TypeVar("A")
#: A method of an attack that returns what malicious clients report instead of the truth
Lie = Callable[Concatenate[A, Reported, P], Reported]

#: Attribute of a method that lies: its channel
_MARK = "__lies_on__"

#: Methods by which attacks lied in version 0.1, with their channels: an attack that still has one would be honest
RETIRED = {
    "rewards": "REWARDS",
    "acts": "ACTIONS",
    "retell": "TRAJECTORIES",
    "recalls": "TRAJECTORIES",
    "behaviour": "BEHAVIOR",
    "priorities": "PRIORITIES",
    "memories": "MEMORIES",
    "sends": "TRANSITIONS",
    "track": "TRACKERS",
    "adds": "PARTIAL_SUMS",
    "hands_on": "FINISHED_SUMS",
    "covers": "CHECKS",
    "accuses": "ACCUSATIONS",
    "claim": "SAMPLES",
    "claim_rate": "RATE",
    "claim_weight": "WEIGHT",
    "claim_loss": "LOSS",
    "claim_availability": "AVAILABILITY",
    "mixes": "MIXING",
    "checks_in": "CHECK_IN",
    "reports": "PROMISES",
}


@dataclass(frozen=True, eq=False)
class Channel(Generic[Reported, P]):
    """One kind of report that nobody can verify: ``Channel[type of the report, [types of the context]]``.

    Attributes:
        name: in messages.
        about: its subject, after "lies about": ``how well its models do``.
        where: who asks for it, after "Use": ``dlion with transfer``.
        expects: (reported value, truth, context) -> what was expected, if the value is not valid; else None.
        card: what an attack that lies here tampers with, in the word of threat cards.
        listener: who asks: an architecture, if its `Architecture.channels` say so; every environment; or whoever takes updates,
            even an app, so that the lie is never refused.
    """

    name: str
    about: str
    where: str
    expects: Callable[..., str | None]
    card: str = "claims"
    listener: Literal["architecture", "environment", "everybody"] = "architecture"

    def __repr__(self) -> str:
        return f"Channel({self.name!r})"

    def ask(self, attack: Algorithm, lie: Callable[..., Reported], truth: Reported, *context: Any) -> Reported:
        """What a lie of an attack makes of the truth, if that is valid here.

        Raises:
            ContractError: it is not, or the lie changed its arguments.
        """
        with forbid_changes(attack, truth, *context):
            said = lie(truth, *context)
        if expected := self.expects(said, truth, *context):
            raise contract_error(attack, f"{self.name}: expected {expected}; got {_describe(said)}")
        return said


#: What an architecture asks for
Channels = frozenset[Channel[Any, ...]]
#: (channel, client, truth, round) -> what the client reports: `Setup.report`
Report = Callable[[Channel[Any, []], int, Any, int], Any]


def lies(channel: Channel[Reported, P]) -> Callable[[Lie[A, Reported, P]], Lie[A, Reported, P]]:
    """Mark the method of an attack that is asked for what malicious clients report on a channel instead of the truth."""

    def mark(method: Lie[A, Reported, P]) -> Lie[A, Reported, P]:
        vars(method)[_MARK] = channel
        return method

    return mark


def report_truth(_channel: Channel[Reported, []], _client: int, truth: Reported, _round: int) -> Reported:
    """What clients report if nobody lies."""
    return truth


def lies_of(cls: type) -> Mapping[Channel[Any, Any], str]:
    """The channels on which a class of attacks lies, each with the name of its method.

    Raises:
        TypeError: two methods of one class for a channel, or a method of version 0.1, which nobody would call.
    """
    found: dict[Channel[Any, Any], str] = {}
    for base in reversed(cls.__mro__):
        own = {name: getattr(method, _MARK) for name, method in vars(base).items() if hasattr(method, _MARK)}
        if len(set(own.values())) < len(own):
            raise TypeError(f"{base.__name__}: expected one method for each channel; got {', '.join(own)}.")
        found = {one: name for one, name in found.items() if name not in own} | {one: name for name, one in own.items()}
    for name, channel in RETIRED.items():
        method = getattr(cls, name, None)
        if callable(method) and name not in found.values() and not hasattr(method, _MARK):
            raise TypeError(
                f"{cls.__name__}.{name}: nobody calls a method of this name any more, so the attack would be honest. Write "
                f"@lies({channel}) above it, of fedguard.contracts and fedguard.contracts.channels; its first argument is the "
                "truth. Or give a method for something else another name."
            )
    return found


def _describe(said: Any) -> str:
    """A value in a message; of a tensor also its range."""
    if isinstance(said, Tensor) and said.numel():
        return f"{describe_value(said)}, {said.min():g} to {said.max():g}"
    return describe_value(said)
