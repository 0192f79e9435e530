"""What every mode of secure aggregation does: from what leaves the clients to what the server has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fedguard.architectures.wire import Sent, Wire
from fedguard.contracts import MaskedRound, Setup


@dataclass(frozen=True)
class Received:
    """What the server has of one round.

    Attributes:
        rows: float32 ``[m, d]``: single updates, or the means behind the sums that it sees; none where it has nothing.
        behind: the clients behind each row.
        samples: float64 ``[m]``: the examples that these claim together; None where nobody tells.
        told: how many of the rows may be malicious, as far as the server reckons.
        clients: whose updates reached it, those that were left out included.
        excluded: the clients whom the protocol itself has left out as malicious.
        truth: the single updates behind it all, for measurements; under masks the server has never seen them.
        why: why it has nothing, where it has nothing.
        masked: what the sessions came to; None without masks.
        inputs: by client, float64 ``[d]``: what it put into its session, where somebody watches who sees everything.
    """

    rows: Tensor
    behind: tuple[tuple[int, ...], ...]
    samples: Tensor | None
    told: int
    clients: tuple[int, ...]
    truth: Wire
    excluded: tuple[int, ...] = ()
    why: str = "no update reached the server"
    masked: MaskedRound | None = None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)


class Masking(ABC):
    """One mode of secure aggregation in one training, with what its parties keep from round to round."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def receive(self, sent: Sent) -> Received:
        """What reaches the server of what the clients send. The memory of the updates may be used again."""
