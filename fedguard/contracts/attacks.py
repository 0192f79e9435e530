"""Attacks on the training: poisoning, backdoors, faults.

An attack returns data or vectors. It never scores itself: the core applies the trigger to the test set and measures success.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.lying import Channel, Reported, lies_of
from fedguard.contracts.poison_views import DataView, PoisonView
from fedguard.contracts.rules import State
from fedguard.contracts.sight import Needs, UndeclaredNeeds
from fedguard.contracts.tasks import Examples, LocalPlan, Trigger


class PoisonAttack(Algorithm):
    """An attack of colluding clients on the training.

    It may act on the malicious clients' data (`poison`), on their local training (`plan`), on what they send (`craft`), on
    whether they send at all (`silent`), and lie on any `Channel`, by a method marked with `lies`. Methods that are not
    overridden are honest. A complete attack::

        class Zeros(PoisonAttack):
            name, needs = "zeros", (Sight.NOTHING,)

            def craft(self, view):
                return torch.zeros(view.f, view.dim)
    """

    kind: ClassVar[str] = "attack"
    #: untargeted: make the model useless; backdoor: plant a hidden function; fault: no intent at all
    goal: ClassVar[Literal["untargeted", "backdoor", "fault"]] = "untargeted"
    needs: ClassVar[Needs] = UndeclaredNeeds(  # type: ignore[assignment]
        "Write needs = (Sight.OWN_DATA,), of fedguard.contracts, if it goes by the malicious clients' own data; "
        "(Sight.HONEST_UPDATES,) if it reads view.honest, BENIGN_SAMPLE if view.benign; (Sight.NOTHING,) if nothing."
    )
    #: Whether `poison` is called before each round, with the current model, instead of once before the first
    every_round: ClassVar[bool] = False
    #: Whether it sets its own strength against the rule that it attacks, by a search or by a formula
    adaptive: ClassVar[bool] = False
    #: The channels on which it lies, each with the name of its method; collected from the methods marked with `lies`
    lies: ClassVar[Mapping[Channel[Any, Any], str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.lies = lies_of(cls)

    @classmethod
    def overrides(cls, method: str) -> bool:
        """Whether it has a method of its own in place of an honest one, such as ``craft``."""
        return getattr(cls, method) is not getattr(PoisonAttack, method)

    def report(self, channel: Channel[Reported, ...], truth: Reported, *context: Any) -> Reported:
        """What a malicious client reports on a channel instead of ``truth``; the truth if the attack does not lie there.

        Raises:
            ContractError: the lie is no valid value of the channel.
        """
        if channel not in self.lies:
            return truth
        return channel.ask(self, getattr(self, self.lies[channel]), truth, *context)

    def prepare(self, view: DataView) -> State:
        """What the malicious clients agree on before they train: the ``state`` that they see from here on.

        Called once in each round in which they act, before `plan` and, for attacks with `every_round`, before `poison`.
        """
        return view.state

    def poison(self, examples: Examples, view: DataView) -> Examples:
        """What a malicious client trains on instead of its own examples."""
        return examples

    def silent(self, view: DataView) -> bool:
        """Whether nothing of this malicious client reaches the server in this round; called for each before anybody trains.

        A silent client takes no part in the round: it does not train, and no other view of the round contains it.
        """
        return False

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        """How the malicious clients train instead of by ``plan``; called once in each round."""
        return plan

    def craft(self, view: PoisonView) -> Tensor:
        """float32 ``[f, d]``: what the malicious clients send."""
        return view.own

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        """The state for the next round in which the attack acts."""
        return view.state

    def notes(self, state: State) -> dict[str, float]:
        """What a record stores about the attack beside its parameters, after its last round.

        A search for a strength returns ``strength``, and ``at_boundary``: the share of rounds in which the best strength was
        the largest or smallest one tried.
        """
        return {}

    def siblings(self) -> tuple[PoisonAttack, ...]:
        """The same attack with its step in the other directions of its family, none by default.

        In evaluated rounds the core computes what each would have sent, and how far the rule would have followed. If one of
        them would have done much more harm, the record raises a flag. They see what the attack sees.
        """
        return ()

    def backdoor(self, state: State) -> tuple[Trigger, int] | None:
        """The trigger and the target class to measure, for an attack that plants a backdoor."""
        return None


class Ensemble(Algorithm):
    """A set of attacks whose worst one is chosen on selection seeds and reported on others."""

    kind: ClassVar[str] = "attack"
    #: A member with a final accuracy this much above the worst, on the same seed, is dropped
    margin: float

    @abstractmethod
    def members(self) -> tuple[str, ...]:
        """The attacks, as specs such as ``"alie(z=1.5)"``."""

    @abstractmethod
    def choose_on(self) -> tuple[int, ...]:
        """The selection seeds."""
