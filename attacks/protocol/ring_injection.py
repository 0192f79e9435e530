"""Any ring element as an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Lt

from fedguard.attacks.protocol.means.network import ProtocolNetwork
from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.masks import RingVector


@dataclass(frozen=True, kw_only=True)
class RingInjection(ProtocolAttack):
    """One client adds whatever it likes to the sum: no clip, no bound, and nothing that shows who it was.

    $y = x + shift$ in the ring; the sum changes by exactly this shift. An honest coordinate is bounded by a clip; the shift
    may be as large as the ring. The server sees one more masked vector that looks uniform, like the others.

    Args:
        exponent: the shift of every coordinate is $2^exponent$ ring units.
    """

    name = "ring_injection"
    source = "folklore; Lycklama et al., RoFL: Robustness of Secure Federated Learning, S&P 2023"
    number: ClassVar[int] = 16
    by = "client"
    stopped_by = "nothing that masks; the mode `norm_bound` shows what a proof of the norm would do"
    outside = "masking hides inputs and bounds none; that takes a proof for each input (RoFL 2023, ACORN 2023)"

    exponent: Annotated[int, Ge(0), Lt(32)] = 30

    def mount(self, arena: Arena) -> Claim:
        cheat = arena.colluders[0]
        shift = np.full(arena.config.length, 2**self.exponent, arena.config.dtype)

        class Injector(Client):
            def _input(self) -> RingVector:
                return super()._input() + shift

        network = ProtocolNetwork.of(arena, kind=Injector).run()
        server = network.server
        assert server.total is not None, "a session in which nobody drops out and all vectors fit has a sum"
        others = server.total - shift - arena.input(cheat)
        return Claim(
            sums={frozenset(arena.honest): others},
            totals=[(server.included, server.total)],
            figures={"complaints": len(network.errors), "shift_ring_units": float(2**self.exponent)},
            story=[
                f"client {cheat} adds 2^{self.exponent} to each of its {arena.config.length} coordinates, and masks as ever",
                f"the server takes a sum of {len(server.included)} clients; complaints: {len(network.errors)}",
                "the sum less the shift and the cheat's own input is what the honest clients add up to",
            ],
        )
