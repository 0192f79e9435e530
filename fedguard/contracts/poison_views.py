"""What an attack on the training sees: of its own clients before they train, and of a round before they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.rules import State
from fedguard.contracts.sight import Needs, Sight, SightField, View
from fedguard.contracts.tasks import Examples
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


class KnownRule(Protocol):
    """The malicious clients' copy of the server's rule, without its random draws and with a guess of its root data."""

    def __call__(self, updates: Tensor) -> Tensor:
        """float32 ``[n, d]``, the honest updates first -> ``[d]``: what the server would add, at the cost of a round."""

    def probes(self, honest: Tensor, directions: Tensor, f: int) -> Callable[[Tensor], Probe]:
        """Prepare to probe rounds of ``honest`` (float32 ``[h, d]``) and f updates in the span of these and ``directions``.

        The result takes coefficients float64 ``[f, h + m]``, and returns what the rule would do if the malicious clients sent
        ``coefficients @ [honest; directions]``.

        The preparation costs one Gram matrix of ``h + m`` rows (``directions`` float32 ``[m, d]``, perhaps none). Each probe
        then costs $O(n^3)$, whatever d. Without honest rows, 0 replaces their mean. Coordinate rules are probed on a fixed
        sample of the coordinates, so a call of the rule should confirm what a search finds there.
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
        attack: Algorithm,
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
        """float32 ``[., d]``: a sample of benign updates: the honest ones if granted, else the malicious clients' own.

        In a round of malicious clients only it is one update of zeros: nothing honest moves the model.
        """
        sample = self.honest if Sight.HONEST_UPDATES in self.granted else self.own
        return sample if len(sample) else sample.new_zeros(1, self.dim)
