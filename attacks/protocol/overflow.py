"""More bits than the sum has room for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedguard.attacks.protocol.means.network import ProtocolNetwork
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Header
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.encoding import Encoding, OverflowBudgetError
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.messages import Hello, Message
from fedguard.secagg.session import SessionConfig

#: The encoding that nine clients agree on: in 32 bits there is no room for one bit more.
AGREED = Encoding(bits=28, clip=1.0)
TOO_FINE = replace(AGREED, bits=29)
_SEED = bytes(32)


class UnboundedInputClient(Client):
    """Planted: it writes its input with as many bits as the server asks for, and has never heard of a budget."""

    def _advertise(self, header: Header, hello: Hello) -> Message:
        self._policy = replace(self._policy, context=SessionConfig.unpack(hello.config).context)
        return super()._advertise(header, hello)

    def _input(self) -> RingVector:
        vector = super()._input()
        if self._config.context != _context(TOO_FINE):
            return vector
        values, weight = AGREED.decode(vector, dim=len(vector) - 1, seed=_SEED)
        return TOO_FINE.encode(values, weight=weight, seed=_SEED, entropy=self._entropy)


@dataclass(frozen=True, kw_only=True)
class Overflow(ProtocolAttack):
    """The server asks for one bit more than the sum has room for, in a round in which all inputs are as large as they may be.

    With b bits, n clients reach $n (2^(b-1) - 1)$. Beyond $2^31 - 1$ the sum wraps around, and nine times the largest value
    reads as a negative number. This needs no attacker: a configuration without the check has the same effect.
    """

    name = "overflow"
    source = "folklore"
    number: ClassVar[int] = 16
    by = "server"
    stopped_by = (
        "the budget n (ceil(S C) + 1) <= 2^31 - 1, checked before anything runs; clients take no other encoding"
    )
    weak = UnboundedInputClient
    clients: ClassVar[int] = 9
    colluders: ClassVar[int] = 0

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        """The largest honest input."""
        largest = np.full(config.length - 1, AGREED.clip)
        return AGREED.encode(largest, seed=_SEED, entropy=entropy)

    def mount(self, arena: Arena) -> Claim:
        n, story = len(arena.roster), []
        for encoding in (TOO_FINE, AGREED):
            proposed = f"{n} clients, {encoding.bits} bits each"
            try:
                encoding.check(n)
            except OverflowBudgetError:
                story.append(f"{proposed}: OverflowBudgetError; the server goes on all the same")
            server = arena.server(config=replace(arena.config, context=_context(encoding)))
            network = ProtocolNetwork(server, arena.parties()).run()
            if server.total is None:
                story.append(
                    f"{proposed}: {', '.join(dict.fromkeys(type(error).__name__ for error in network.errors))}"
                )
                continue
            values, weight = encoding.decode(server.total, dim=arena.config.length - 1, seed=_SEED)
            story.append(f"{proposed}: the sum of {weight} times {AGREED.clip:g} reads as {values[0]:g}")
            figures = {"bits": encoding.bits, "largest_sum": n * AGREED.clip, "decoded_sum": float(values[0])}
            return Claim(totals=[(server.included, _encode_sum(values, weight))], figures=figures, story=story)
        return Claim(story=story)


def _context(encoding: Encoding) -> bytes:
    """The hash of an encoding in a session's configuration; zeros for the agreed one."""
    return bytes(32) if encoding == AGREED else hashlib.sha256(repr(encoding).encode()).digest()


def _encode_sum(values: np.ndarray, weight: int) -> RingVector:
    """A sum of reals in the agreed encoding."""
    # By way of int64: a cast of negative floats to unsigned integers is not defined
    return np.append(np.rint(values * AGREED.scale), weight).astype(np.int64).astype(np.uint32)
