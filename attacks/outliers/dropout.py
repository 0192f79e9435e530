"""Dropout: clients whose updates do not arrive."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import DataView, PoisonAttack, Share, Sight


@dataclass(frozen=True, kw_only=True)
class DropoutFault(PoisonAttack):
    """Faulty clients drop out of rounds: they were chosen, but nothing of theirs reaches the server.

    In each round each faulty client drops out with probability ``rate``, independently; otherwise it sends its honest
    update. The round continues with the updates that arrived, fewer than the server asked for, and the assumed f is the one
    for this number of updates. A client that drops out does not train, so with worker momentum it returns with the momentum
    of its last round.

    Args:
        rate: probability of staying away from a round; 1 is a client that crashed for good. Bonawitz et al. report 6 to
            10 percent over all devices.
    """

    name = "dropout"
    source = "a fault seen in practice; cf. Bonawitz et al., Towards Federated Learning at Scale, MLSys 2019"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    rate: Share = 1.0

    def silent(self, view: DataView) -> bool:
        return bool(view.rng.numpy().random() < self.rate)
