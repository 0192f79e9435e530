"""Attacks: on the training (poisoning, faults) and on the clients' privacy (inference).

An attack returns data, vectors or a reconstruction. It never sees the truth and never scores itself: the core applies
the trigger to the test set, compares the reconstruction, and judges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.rules import State
from fedguard.contracts.sight import Needs, Sight, View, seen
from fedguard.contracts.tasks import Examples, LocalPlan, Trigger
from fedguard.rng import Rng

#: Attacks that work from a sample of benign updates: the honest ones where they are seen, else the colluders' own.
BENIGN_SAMPLE: Needs = (Sight.HONEST_UPDATES, Sight.OWN_DATA)


class DataView(View):
    """What a colluder knows when it tampers with its own data."""

    rng: Rng
    classes: int
    value_range: tuple[float, float]


class PoisonView(View):
    """What the colluders see together when they craft their updates of one round.

    ``n`` updates will reach the server in this round, from ``n - len(hostile)`` honest clients and the ``hostile`` ones.
    Updates are directions in which the model moves: the server adds ``server_lr`` times their aggregate. ``state`` is
    what the attack returned from `PoisonAttack.remember` in its last round, empty at first.
    """

    round: int
    n: int
    dim: int
    hostile: tuple[int, ...]
    server_lr: float
    rng: Rng
    state: State
    honest = seen[Tensor](Sight.HONEST_UPDATES, "float32 [h, d]: the updates the honest clients are about to send")
    honest_clients = seen[tuple[int, ...]](Sight.HONEST_UPDATES, "the client behind each row of `honest`")
    own = seen[Tensor](Sight.OWN_DATA, "float32 [f, d]: the colluders' updates, as their own data give them")
    model = seen[Tensor](Sight.MODEL, "float32 [d]: the global model before this round")
    rule = seen[Callable[[Tensor], Tensor]](Sight.RULE, "the server's rule: float32 [n, d] -> [d]")

    @property
    def f(self) -> int:
        """Number of colluders in this round."""
        return len(self.hostile)

    @property
    def benign(self) -> Tensor:
        """float32 ``[., d]``: a sample of benign updates: the honest ones where granted, else the colluders' own."""
        return self.honest if Sight.HONEST_UPDATES in self.granted else self.own


class PoisonAttack(Algorithm):
    """An attack of colluding clients on the training.

    It acts on the colluders' data (`poison`), on their local training (`plan`), on what they send (`craft`), or on
    several of these; what is not overridden is honest. A complete attack::

        class Zeros(PoisonAttack):
            name, needs = "zeros", (Sight.NOTHING,)

            def craft(self, view):
                return torch.zeros(view.f, view.dim)
    """

    kind: ClassVar[str] = "attack"
    #: untargeted: make the model useless; backdoor: plant a hidden function; fault: no intent at all.
    goal: ClassVar[Literal["untargeted", "backdoor", "fault"]] = "untargeted"
    needs: ClassVar[Needs] = (Sight.OWN_DATA,)

    def poison(self, examples: Examples, view: DataView) -> Examples:
        """What a colluder trains on instead of its own examples."""
        return examples

    def plan(self, plan: LocalPlan) -> LocalPlan:
        """How a colluder trains instead of as told."""
        return plan

    def craft(self, view: PoisonView) -> Tensor:
        """float32 ``[f, d]``: what the colluders send."""
        return view.own

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        """The state for the next round in which the attack acts."""
        return view.state

    def backdoor(self) -> tuple[Trigger, int] | None:
        """The trigger and the target class to be measured, for an attack that plants a backdoor."""
        return None


@dataclass(frozen=True)
class Reconstruction:
    """What an inversion claims the inputs were: float32 ``[B, *shape]``, with labels int64 ``[B]`` if it found any."""

    x: Tensor
    y: Tensor | None = None


@dataclass(frozen=True)
class Membership:
    """What a membership inference claims: float64 ``[N]``, larger for "was trained on"."""

    scores: Tensor


class InferenceView(View):
    """What a curious server sees of the clients' data when it tries to infer more.

    ``network`` and ``plan`` are public: the server hands them out. ``candidates`` are the examples whose membership is
    asked for; an inversion gets none. The truth is not here, under any sight.
    """

    rng: Rng
    network: nn.Module
    shape: tuple[int, ...]
    classes: int
    value_range: tuple[float, float]
    plan: LocalPlan
    candidates: Examples | None
    model = seen[Tensor](Sight.MODEL, "float32 [d]: the global model before the round")
    update = seen[Tensor](Sight.EACH_UPDATE, "float32 [d]: the update of the client under attack")
    aggregate = seen[Tensor](Sight.SUM, "float32 [d]: the mean of the round's updates")


class InferenceAttack(Algorithm):
    """An attack of a curious server on the clients' privacy."""

    kind: ClassVar[str] = "attack"
    goal: ClassVar[Literal["reconstruction", "membership"]]

    @abstractmethod
    def infer(self, view: InferenceView) -> Reconstruction | Membership:
        """What can be told of the clients' data from this view."""
