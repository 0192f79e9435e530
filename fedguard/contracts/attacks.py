"""Attacks on the training: poisoning, backdoors, faults.

An attack returns data or vectors. It never scores itself: the core applies the trigger to the test set, and judges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor

from fedguard.contracts.acting import Rollout
from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.environments import Box, Choices
from fedguard.contracts.rules import State
from fedguard.contracts.sight import Needs, Sight, SightField, UndeclaredNeeds, View
from fedguard.contracts.tasks import Examples, LocalPlan, Trigger
from fedguard.rng import Rng

#: Attacks that work from a sample of benign updates: the honest ones where they are seen, else the malicious clients' own.
BENIGN_SAMPLE: Needs = (Sight.HONEST_UPDATES, Sight.OWN_DATA)


class DataView(View):
    """What a malicious client knows when it tampers with its own data or its own training.

    It is the ``position``-th of ``malicious``. ``state`` is what the attack returned from `PoisonAttack.remember`
    in its last round, empty at first, or what it has returned since from `PoisonAttack.prepare`. What depends on the model
    is there only for attacks that are asked in each round (`PoisonAttack.every_round`), and in `PoisonAttack.silent`,
    `PoisonAttack.prepare` and `PoisonAttack.plan`.
    """

    rng: Rng
    round: int
    position: int
    malicious: tuple[int, ...]
    classes: int
    shape: tuple[int, ...]
    value_range: tuple[float, float]
    state: State
    pool = SightField[tuple[Examples, ...]](
        Sight.OWN_DATA, "the examples of every malicious client, also of those not in this round"
    )
    clean = SightField[Callable[[], Tensor]](
        Sight.OWN_DATA, "float32 [f, d]: the updates that honest training would give them, at its cost; in a round only"
    )
    model = SightField[Tensor](Sight.MODEL, "float32 [d]: the global model before this round")
    predict = SightField[Callable[[Tensor, Tensor], Tensor]](
        Sight.MODEL, "logits [B, C] under a model [d] for inputs [B, *shape]; gradients flow to both"
    )


@dataclass(frozen=True)
class Probe:
    """What a rule would answer to a hypothetical round; mu is the mean of the honest updates.

    Attributes:
        deviation: $|R - mu|$.
        progress: $<R, mu> / |mu|^2$: 1 for $mu$ itself, 0 for a lost round, negative for a step backwards.
        malicious_weight: the share of the answer that the malicious clients' rows make up; None for rules without weights.
    """

    deviation: float
    progress: float
    malicious_weight: float | None


class Probes(Protocol):
    """Asks a rule about hypothetical rounds without passing over the updates again."""

    def __call__(self, coefficients: Tensor) -> Probe:
        """The answer if the malicious clients sent ``coefficients @ [honest; directions]`` (float64 ``[f, h + m]``)."""


class KnownRule(Protocol):
    """The malicious clients' copy of the server's rule: all but its random draws, and with a guess for its root data."""

    def __call__(self, updates: Tensor) -> Tensor:
        """float32 ``[n, d]``, the honest updates first -> ``[d]``: what the server would add, at the cost of a round."""

    def probes(self, honest: Tensor, directions: Tensor, f: int) -> Probes:
        """Prepare to probe rounds of ``honest`` (float32 ``[h, d]``) and f updates in the span of these and ``directions``.

        The preparation costs one Gram matrix of ``h + m`` rows (``directions`` float32 ``[m, d]``, perhaps none); each
        probe then costs $O(n^3)$, whatever d. Coordinate rules are probed on a fixed sample of the coordinates, so what a
        search finds there should be confirmed by a call of the rule.
        """


class PoisonView(View):
    """What the malicious clients see together when they craft their updates of one round.

    ``n`` updates will reach the server in this round, from ``n - len(malicious)`` honest clients and the ``malicious`` ones.
    Updates are directions in which the model moves: the server adds ``server_lr`` times their aggregate. ``state`` is
    what the attack returned from `PoisonAttack.remember` in its last round, empty at first. ``layers`` are the sizes of
    the network's parameter tensors, ``ranks`` how many dimensions each has: 1 for biases and normalization, 2 or more for
    weights, and where it is not known. ``local_lr`` is the step of the local training times the number of steps that it makes:
    how much longer an update is than the mean of its gradients, 1 in FedSGD.
    """

    round: int
    n: int
    dim: int
    malicious: tuple[int, ...]
    layers: tuple[int, ...]
    ranks: tuple[int, ...]
    server_lr: float
    local_lr: float
    rng: Rng
    state: State
    honest = SightField[Tensor](
        Sight.HONEST_UPDATES, "float32 [h, d]: the updates the honest clients are about to send"
    )
    honest_clients = SightField[tuple[int, ...]](Sight.HONEST_UPDATES, "the client behind each row of `honest`")
    own = SightField[Tensor](
        Sight.OWN_DATA, "float32 [f, d]: the malicious clients' updates, as their own data give them"
    )
    model = SightField[Tensor](Sight.MODEL, "float32 [d]: the global model before this round")
    rule = SightField[KnownRule](Sight.RULE, "the server's rule and its parameters")
    receiver = SightField[int](
        Sight.GRAPH, "the honest node that will hear what is crafted; it stands among `honest_clients`"
    )
    mixing = SightField[Tensor](
        Sight.GRAPH, "float64 [n]: the weight that the receiver gives each row, the honest ones first"
    )

    slowest = SightField[Tensor](
        Sight.GRAPH,
        "float32 [d]: $e_i sum_j e_j x_j$ of the receiver i, over all honest nodes j: the part of its value that they come to "
        "agree on last; e has length 1",
    )

    @classmethod
    def of_round(
        cls,
        attack: PoisonAttack,
        sees: Sight,
        *,
        malicious: Sequence[int],
        honest: Tensor,
        rng: Rng,
        honest_clients: Sequence[int] | None = None,
        round: int = 1,
        layers: Sequence[int] = (),
        ranks: Sequence[int] = (),
        server_lr: float = 1.0,
        local_lr: float = 1.0,
        state: State | None = None,
        **values: Any,
    ) -> PoisonView:
        """What an attack sees of a round, of all that the round has: what ``sees`` does not grant is dropped.

        Args:
            honest: float32 ``[h, d]``, perhaps of no rows.
            honest_clients: the client behind each row; 0 ... h - 1 by default.
            layers, ranks: one layer of d by default, and weights throughout.
            values: own, model, rule, and without a server receiver, mixing and slowest.
        """
        h, d = honest.shape
        return cls(
            attack.name,
            sees,
            round=round,
            n=h + len(malicious),
            dim=d,
            malicious=tuple(malicious),
            layers=tuple(layers) or (d,),
            ranks=tuple(ranks) or (2,) * max(len(layers), 1),
            server_lr=server_lr,
            local_lr=local_lr,
            rng=rng,
            state={} if state is None else state,
            honest=honest,
            honest_clients=tuple(range(h)) if honest_clients is None else tuple(honest_clients),
            **values,
        )

    @property
    def f(self) -> int:
        """Number of malicious clients in this round."""
        return len(self.malicious)

    @property
    def benign(self) -> Tensor:
        """float32 ``[., d]``: a sample of benign updates: the honest ones where granted, else the malicious clients' own."""
        return self.honest if Sight.HONEST_UPDATES in self.granted else self.own


class PoisonAttack(Algorithm):
    """An attack of colluding clients on the training.

    It acts on the malicious clients' data (`poison`, `rewards`, `retell`), on what they do (`acts`), on their local training
    (`plan`), on what they send (`craft`), pass on (`adds`, `hands_on`), say of themselves (`claim`, `checks_in`,
    `reports`, ...) and of others (`accuses`), and on whether they send at all (`silent`), or on several of these; what is
    not overridden is honest. A complete attack::

        class Zeros(PoisonAttack):
            name, needs = "zeros", (Sight.NOTHING,)

            def craft(self, view):
                return torch.zeros(view.f, view.dim)
    """

    kind: ClassVar[str] = "attack"
    #: untargeted: make the model useless; backdoor: plant a hidden function; fault: no intent at all.
    goal: ClassVar[Literal["untargeted", "backdoor", "fault"]] = "untargeted"
    needs: ClassVar[Needs] = UndeclaredNeeds(  # type: ignore[assignment]
        "Write needs = (Sight.OWN_DATA,), of fedguard.contracts, if it goes by the malicious clients' own data; "
        "(Sight.HONEST_UPDATES,) if it reads view.honest, BENIGN_SAMPLE if view.benign; (Sight.NOTHING,) if nothing."
    )
    #: Whether `poison` is asked before each round, with the current model, instead of once before the first.
    every_round: ClassVar[bool] = False
    #: Whether it sets its own strength against the rule that it faces, by a search or by a formula.
    adaptive: ClassVar[bool] = False

    def prepare(self, view: DataView) -> State:
        """What the malicious clients settle before they train: the ``state`` that they see from here on.

        Asked once in each round in which they act, before `plan` and, for attacks that are asked in each round, `poison`.
        """
        return view.state

    def poison(self, examples: Examples, view: DataView) -> Examples:
        """What a malicious client trains on instead of its own examples."""
        return examples

    def rewards(self, rewards: Tensor) -> Tensor:
        """What a malicious actor learns from instead of its rewards, float32 of any shape, that of what is returned too."""
        return rewards

    def acts(self, actions: Tensor, space: Choices | Box) -> Tensor:
        """Which actions a malicious actor takes in its environments where it says that it took these.

        Args:
            actions: int64 ``[B]`` of `Choices`, float32 ``[B, n]`` of a `Box`; and so is what is returned.
            space: which actions there are.
        """
        return actions

    def retell(self, rollout: Rollout, past: Sequence[Rollout], choices: int, rng: Rng) -> Rollout:
        """What a malicious actor says that it met with, and learns from: of the same shapes as what it did meet with.

        Args:
            rollout: with the rewards and probabilities that `rewards` and `behaviour` made of the true ones.
            past: its rollouts before this one, the latest last, `recalls` at most.
            choices: how many actions there are; 0 where they are a range.
            rng: of this actor and rollout.
        """
        return rollout

    def recalls(self) -> int:
        """How many of its rollouts a malicious actor keeps for `retell`."""
        return 0

    def behaviour(self, logs: Tensor) -> Tensor:
        """Which logarithms of the probabilities of its actions a malicious actor tells the learner; float32 of any shape."""
        return logs

    def priorities(self, told: Tensor) -> Tensor:
        """Which priorities a malicious actor tells a replay for its transitions; float32 of any shape, 0 or more."""
        return told

    def memories(self, told: Tensor) -> Tensor:
        """What a malicious actor says that its network remembered before a sequence: float32 ``[B, M]``."""
        return told

    def sends(self, order: Tensor) -> Tensor:
        """Which of its transitions a malicious actor sends to a replay, by their numbers: int64 ``[k]`` -> ``[any]``."""
        return order

    def silent(self, view: DataView) -> bool:
        """Whether nothing of this malicious client reaches the server in this round; asked of each before anybody trains.

        One that is silent takes no part in the round: it does not train, and stands in no other view of the round.
        """
        return False

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        """How the malicious clients train instead of as told; asked once in each round."""
        return plan

    def craft(self, view: PoisonView) -> Tensor:
        """float32 ``[f, d]``: what the malicious clients send."""
        return view.own

    def track(self, view: PoisonView) -> Tensor:
        """float32 ``[f, d]``: what they send in place of trackers of the mean update, where nodes exchange these, too."""
        return self.craft(view)

    def adds(self, view: PoisonView, crafted: Tensor) -> Tensor | None:
        """float32 ``[f, d]``: what each malicious client adds to the sums of others that it passes on; None for nothing.

        Asked after `craft`, with what that gave.
        """
        return None

    def hands_on(self, view: PoisonView, crafted: Tensor) -> Tensor | None:
        """float32 ``[f, d]``: what each malicious client adds to the finished sums that it hands on; None for nothing.

        Asked after `adds`. Where it does, nodes before it and after it have other sums.
        """
        return None

    def covers(self) -> bool:
        """Whether a malicious node that changed a sum lies about its own share of a check on it by as much."""
        return False

    def accuses(self) -> bool:
        """Whether a malicious node that is to check an honest one accuses it; where it does not, it finds nothing wrong."""
        return False

    @property
    def lies_about_samples(self) -> bool:
        """Whether it has a `claim` of its own."""
        return type(self).claim is not PoisonAttack.claim

    def claim(self, samples: int) -> int:
        """How many examples a malicious client says that it has, 1 or more, where it has ``samples``."""
        return samples

    def claim_rate(self, rate: float) -> float:
        """How many examples a second a malicious device says that it trains, above 0, where it trains ``rate``."""
        return rate

    def claim_weight(self, weight: float) -> float:
        """Which push-sum weight a malicious node says that it has, above 0, where it has ``weight``."""
        return weight

    def mixes(self) -> bool:
        """Whether a malicious node without a server makes of its neighbors' values what others do, and lies to them.

        One that does not trains and sends as honest ones do, and keeps its own value.
        """
        return True

    def claim_loss(self, loss: float) -> float:
        """Which loss a malicious node says that its model has, where it has ``loss``."""
        return loss

    def claim_availability(self, share: float) -> float:
        """In which share of the rounds a malicious device says that it stays, where it was seen to in ``share``."""
        return share

    def checks_in(self, told: float) -> float:
        """In how many simulated seconds a malicious device checks in that was told to do so in ``told``; 0 is at once."""
        return told

    def reports(self) -> bool:
        """Whether a malicious device that is asked to train reports; one that does not always says that it is there."""
        return True

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        """The state for the next round in which the attack acts."""
        return view.state

    def notes(self, state: State) -> dict[str, float]:
        """What a record should say of the attack beside its parameters, after its last round.

        A search for a strength says ``strength``, and ``at_boundary``: the share of rounds in which the best strength was
        the largest or smallest it tried.
        """
        return {}

    def siblings(self) -> tuple[PoisonAttack, ...]:
        """The same attack with its step in the other directions of its family, none by default.

        The core asks in evaluated rounds what each would have sent, and how far the rule would have followed; where one
        would have harmed far more, the record raises a flag. They are shown what the attack is shown.
        """
        return ()

    def backdoor(self, state: State) -> tuple[Trigger, int] | None:
        """The trigger and the target class to be measured, for an attack that plants a backdoor."""
        return None


class Ensemble(Algorithm):
    """A set of attacks of which the worst is meant: chosen on selection seeds, reported on others."""

    kind: ClassVar[str] = "attack"
    #: A member whose final accuracy is this much above the worst with the same seed is given up.
    margin: float

    @abstractmethod
    def members(self) -> tuple[str, ...]:
        """The attacks, as specs such as ``"alie(z=1.5)"``."""

    @abstractmethod
    def choose_on(self) -> tuple[int, ...]:
        """The selection seeds."""
