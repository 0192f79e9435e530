"""The horizontal profile of FATE: masks that cancel if all parties send, and weights in clear (Liu et al., JMLR 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le

from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.masking.pairwise import KEY, PairwiseKeys
from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import (
    Cell,
    Exposure,
    Fate,
    MaskedRound,
    Masking,
    Participation,
    PositiveFloat,
    ReceivedRound,
    Receiver,
    SentRound,
    Setup,
    Sight,
)
from fedguard.errors import ConfigError
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.masks import RingVector
from fedguard.simulated.barriers import Barrier, bsp

#: Bytes of an element of the ring, and of a weight.
_ELEMENT, _WEIGHT = 4, 8


@dataclass(frozen=True, kw_only=True)
class FATE(EventServer):
    """Guest and hosts mask in pairs, and the arbiter adds up: one party silent, no sum.

    $w <- w + server_lr * (sum_i n_i x_i) / (sum_i n_i)$ with the update x and the number of examples n of each party.

    Party i sends $n_i x_i + sum_{j > i} PRG(k_{ij}) - sum_{j < i} PRG(k_{ij})$ in the ring of 32 bits, with a key for each
    pair, and $n_i$ in clear. The masks cancel in the sum of all chosen parties. Nobody can remove the masks of a silent party,
    so any party, also a malicious one, can stop every round. The guest starts the training and holds examples like the hosts;
    it is one of the parties. Besides the sum the arbiter sees each party's number of examples.

    Args:
        bits: bits of one coordinate, sign included.
        clip: largest absolute value of a coordinate that an honest party sends.
    """

    name = "fate"
    source = "Liu et al., FATE: An Industrial Grade Platform for Collaborative Learning With Data Protection, JMLR 2021"
    exposes = Exposure(
        server=Sight.SUM | Sight.MODEL | Sight.MASKED | Sight.WEIGHTS,
        clients=Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )

    bits: Annotated[int, Ge(2), Le(24)] = 20
    clip: PositiveFloat = 4.0

    @property
    def more_rows(self) -> str:
        return "The arbiter of fate has one sum: use mean."

    def barrier(self, clients: Participation) -> Barrier:
        return bsp(clients.most)

    def rows(self, updates: int) -> int:
        return 1

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.masking.masked:
            yield "fate brings masks of its own. Set secure_aggregation: none, or use server."
        if cell.noise.unit == "record":
            yield "the arbiter of fate reads each party's number of examples, which no noise hides. Use server."
        if cell.clients.expected < 3:
            yield (
                "of two parties each learns the other's update from the sum, and fate hides nothing. Set clients.per_round "
                "to at least 3."
            )
        looking = [stage.name for stage in cell.pipeline.stages if stage.reads_clients and not stage.by_samples]
        if looking:
            yield f"{' and '.join(looking)} looks up the client behind each row; under fate there is one sum. Use server."
        try:
            Encoding(bits=self.bits, clip=self.clip).check(cell.clients.most)
        except ConfigError as error:
            yield f"fate: {error}"

    def as_trained(self, setup: Setup) -> Setup:
        masks = PairwiseMasks(bits=self.bits, clip=self.clip)
        return setup.with_parts(masking=masks)


@dataclass(frozen=True, kw_only=True)
class PairwiseMasks(Masking):
    """Pairwise masks without recovery; not a mode that a suite can set."""

    name = "pairwise"
    shows = Sight.SUM | Sight.MASKED | Sight.WEIGHTS
    words = "The server sees one sum, if all have sent, and each client's number of examples."
    cost = "a key for each other client and one masked vector for each client"

    bits: int = 20
    clip: float = 4.0

    def receiver(self, setup: Setup) -> Receiver:
        return PairwiseReceiver(setup, self)


class PairwiseReceiver(Receiver):
    """One row if all chosen parties have sent, else none. Keys come from the operating system, rounding from the seed."""

    def __init__(self, setup: Setup, masks: PairwiseMasks) -> None:
        super().__init__(setup)
        self._sizes = setup.task.sizes
        # The grid is as fine as the largest party allows: n_i x_i is encoded relative to the largest n
        self._encoding = Encoding(bits=masks.bits, clip=masks.clip, largest_weight=max(self._sizes))
        self._pairs = PairwiseKeys()

    def receive(self, sent: SentRound) -> ReceivedRound:
        chosen = self.setup.choose_clients(sent.round)
        came = tuple(client for client in chosen if client in set(sent.senders) - {*sent.of_fate(Fate.SILENT)})
        new, handed = self._pairs.introduce(chosen)
        # Counted before the round may fail: what was sent in vain has cost as much
        up, down = KEY * new + len(came) * (_ELEMENT * len(sent.model) + _WEIGHT), KEY * handed
        # Of two parties each could subtract its own update from the sum
        if len(came) < max(len(chosen), 3):
            silent = len(chosen) - len(came)
            why = f"{silent} of {len(chosen)} parties sent nothing, and their masks do not cancel"
            if len(chosen) < 3:
                why = f"{len(chosen)} parties were chosen, and it takes at least 3"
            masked = MaskedRound(len(chosen), 1, (why,), 0, None, None, None, 0.0, up, down)
            return ReceivedRound(sent.updates[:0], (), None, 0, (), sent, why=why, masked=masked)
        inputs = Inputs(sent, self._encoding, None, self._sizes, self.setup.rng.child("masking"), "all")
        # uint32 wraps modulo 2^32, where the masks cancel; the last element stays 0, since weights travel in clear
        total = np.zeros(self._encoding.length(len(sent.model)), np.uint32)
        for client in came:
            total[:-1] += self.message(inputs, client, chosen, sent)
        weight = sum(self._sizes[client] for client in came)
        summed, _ = self._encoding.decode(total, dim=len(sent.model), seed=inputs.seed)
        mean, true = torch.from_numpy(summed / weight), inputs.mean(came)
        masked = MaskedRound(
            clients=len(chosen),
            sessions=1,
            aborted=(),
            survivors=len(came),
            anonymity=len(came) - self.setup.cell.protocol.colluders(len(came)),
            contributors=None,
            error=float((mean - true).norm() / true.norm()) if true.norm() > 0 else None,
            clipped=inputs.mean_clip_fraction(came),
            bytes_up=up,
            bytes_down=down,
        )
        return ReceivedRound(
            rows=mean.to(sent.model.dtype)[None],
            behind=(came,),
            samples=torch.tensor([weight], dtype=torch.float64),
            assumed_f=min(self.setup.assume_f_among(len(came)), 1),
            clients=came,
            sent=sent,
            masked=masked,
        )

    def message(self, inputs: Inputs, client: int, parties: Sequence[int], sent: SentRound) -> RingVector:
        """uint32 ``[d]``: masked update that a party sends besides its number of examples."""
        vector: RingVector = inputs.encode_update(client)[:-1].copy()
        self._pairs.mask(vector, client, parties, sent)
        return vector
