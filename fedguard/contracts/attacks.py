"""Attacks on the training: poisoning, backdoors, faults.

An attack returns data or vectors. It never scores itself: the core applies the trigger to the test set and measures success.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor

from fedguard.contracts.acting import Rollout
from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.rules import State
from fedguard.contracts.sight import Needs, Sight, SightField, UndeclaredNeeds, View
from fedguard.contracts.spaces import Box, Choices
from fedguard.contracts.tasks import Examples, LocalPlan, Trigger
from fedguard.rng import Rng

#: Attacks that work from a sample of benign updates: the honest ones if visible, else the malicious clients' own
BENIGN_SAMPLE: Needs = (Sight.HONEST_UPDATES, Sight.OWN_DATA)


class DataView(View):
    """What a malicious client knows when it tampers with its own data or its own training.

    It is the ``position``-th of ``malicious``. ``state`` is what `PoisonAttack.remember` returned in the attack's last round
    (empty at first), or what `PoisonAttack.prepare` has returned since. Fields that depend on the model exist only for attacks
    that are called in each round (`PoisonAttack.every_round`), and in `PoisonAttack.silent`, `PoisonAttack.prepare` and
    `PoisonAttack.plan`.
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
    """What a rule would return for a hypothetical round; mu is the mean of the honest updates.

    Attributes:
        deviation: $|R - mu|$.
        progress: $<R, mu> / |mu|^2$: 1 for $mu$ itself, 0 for a lost round, negative for a step backwards.
        malicious_weight: total weight of the malicious clients' rows in the result; None for rules without weights.
    """

    deviation: float
    progress: float
    malicious_weight: float | None


class Probes(Protocol):
    """Evaluates a rule on hypothetical rounds without another pass over the updates."""

    def __call__(self, coefficients: Tensor) -> Probe:
        """The result if the malicious clients sent ``coefficients @ [honest; directions]`` (float64 ``[f, h + m]``)."""


class KnownRule(Protocol):
    """The malicious clients' copy of the server's rule, without its random draws and with a guess of its root data."""

    def __call__(self, updates: Tensor) -> Tensor:
        """float32 ``[n, d]``, the honest updates first -> ``[d]``: what the server would add, at the cost of a round."""

    def probes(self, honest: Tensor, directions: Tensor, f: int) -> Probes:
        """Prepare to probe rounds of ``honest`` (float32 ``[h, d]``) and f updates in the span of these and ``directions``.

        The preparation costs one Gram matrix of ``h + m`` rows (``directions`` float32 ``[m, d]``, perhaps none). Each probe
        then costs $O(n^3)$, whatever d. Coordinate rules are probed on a fixed sample of the coordinates, so a call of the rule
        should confirm what a search finds there.
        """


class PoisonView(View):
    """What the malicious clients see together when they craft their updates of one round.

    ``n`` updates will reach the server in this round, from ``n - len(malicious)`` honest clients and the ``malicious`` ones.
    Updates are directions in which the model moves: the server adds ``server_lr`` times their aggregate. ``state`` is what
    `PoisonAttack.remember` returned in the attack's last round, empty at first. ``layers`` are the sizes of the network's
    parameter tensors. ``ranks`` are their numbers of dimensions: 1 for biases and normalization, 2 or more for weights and if
    unknown. ``local_lr`` is the local learning rate times the number of local steps: how much longer an update is than the mean
    of its gradients, 1 in FedSGD.
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
        """What an attack sees of a round: the given values without those that ``sees`` does not grant.

        Args:
            honest: float32 ``[h, d]``, perhaps without rows.
            honest_clients: the client behind each row; 0 ... h - 1 by default.
            layers, ranks: one layer of size d by default, and weights throughout.
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
        """float32 ``[., d]``: a sample of benign updates: the honest ones if granted, else the malicious clients' own."""
        return self.honest if Sight.HONEST_UPDATES in self.granted else self.own


class PoisonAttack(Algorithm):
    """An attack of colluding clients on the training.

    It may act on the malicious clients' data (`poison`, `rewards`, `retell`), on their actions (`acts`), on their local
    training (`plan`), on what they send (`craft`) and pass on (`adds`, `hands_on`), on their claims about themselves (`claim`,
    `checks_in`, `reports`, ...) and about others (`accuses`), and on whether they send at all (`silent`). Methods that are not
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

    def prepare(self, view: DataView) -> State:
        """What the malicious clients agree on before they train: the ``state`` that they see from here on.

        Called once in each round in which they act, before `plan` and, for attacks with `every_round`, before `poison`.
        """
        return view.state

    def poison(self, examples: Examples, view: DataView) -> Examples:
        """What a malicious client trains on instead of its own examples."""
        return examples

    def rewards(self, rewards: Tensor) -> Tensor:
        """The rewards from which a malicious actor learns instead of its true ones: float32, of the same shape."""
        return rewards

    def acts(self, actions: Tensor, space: Choices | Box) -> Tensor:
        """The actions that a malicious actor takes in its environments when it reports these actions.

        Args:
            actions: int64 ``[B]`` of `Choices`, float32 ``[B, n]`` of a `Box`; the result has the same form.
            space: the possible actions.
        """
        return actions

    def retell(self, rollout: Rollout, past: Sequence[Rollout], choices: int, rng: Rng) -> Rollout:
        """The rollout that a malicious actor reports and learns from, of the same shapes as the true one.

        Args:
            rollout: with the rewards and probabilities that `rewards` and `behaviour` made of the true ones.
            past: its rollouts before this one, the latest last, `recalls` at most.
            choices: number of actions; 0 if they are continuous.
            rng: stream of this actor and rollout.
        """
        return rollout

    def recalls(self) -> int:
        """How many of its rollouts a malicious actor keeps for `retell`."""
        return 0

    def behaviour(self, logs: Tensor) -> Tensor:
        """The log-probabilities of its actions that a malicious actor reports to the learner; float32 of any shape."""
        return logs

    def priorities(self, told: Tensor) -> Tensor:
        """The priorities that a malicious actor reports to a replay for its transitions; float32 of any shape, 0 or more."""
        return told

    def memories(self, told: Tensor) -> Tensor:
        """The memory before a sequence that a malicious actor reports for its network: float32 ``[B, M]``."""
        return told

    def sends(self, order: Tensor) -> Tensor:
        """The transitions that a malicious actor sends to a replay, by their numbers: int64 ``[k]`` -> ``[any]``."""
        return order

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

    def track(self, view: PoisonView) -> Tensor:
        """float32 ``[f, d]``: what they send instead of trackers of the mean update, if nodes exchange trackers too."""
        return self.craft(view)

    def adds(self, view: PoisonView, crafted: Tensor) -> Tensor | None:
        """float32 ``[f, d]``: what each malicious client adds to the sums of others that it passes on; None for nothing.

        Called after `craft`, with its result.
        """
        return None

    def hands_on(self, view: PoisonView, crafted: Tensor) -> Tensor | None:
        """float32 ``[f, d]``: what each malicious client adds to the finished sums that it hands on; None for nothing.

        Called after `adds`. Nodes before and after a client that adds something have different sums.
        """
        return None

    def covers(self) -> bool:
        """Whether a malicious node that changed a sum falsifies its own share of a check on it by the same amount."""
        return False

    def accuses(self) -> bool:
        """Whether a malicious node accuses each honest node that it checks; otherwise it reports no fault."""
        return False

    @property
    def lies_about_samples(self) -> bool:
        """Whether it overrides `claim`."""
        return type(self).claim is not PoisonAttack.claim

    def claim(self, samples: int) -> int:
        """The number of examples that a malicious client claims, 1 or more, if it has ``samples``."""
        return samples

    def claim_rate(self, rate: float) -> float:
        """The examples per second that a malicious device claims to train, above 0, if its true rate is ``rate``."""
        return rate

    def claim_weight(self, weight: float) -> float:
        """The push-sum weight that a malicious node claims, above 0, if its true weight is ``weight``."""
        return weight

    def mixes(self) -> bool:
        """Whether a malicious node without a server mixes its neighbors' values as honest ones do, and sends them a lie.

        If not, it trains and sends as honest nodes do, but keeps its own value.
        """
        return True

    def claim_loss(self, loss: float) -> float:
        """The loss that a malicious node claims for its model, if the true loss is ``loss``."""
        return loss

    def claim_availability(self, share: float) -> float:
        """The share of the rounds in which a malicious device claims to stay, if it was observed to stay in ``share``."""
        return share

    def checks_in(self, told: float) -> float:
        """Simulated seconds until a malicious device checks in, if the server asked for ``told``; 0 is at once."""
        return told

    def reports(self) -> bool:
        """Whether a malicious device that is asked to train reports; one that does not report still claims to be available."""
        return True

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
