"""Two inputs under the same masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedguard.attacks.protocol.means.relay import Peer, Relay, tried

from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.entropy import expanded
from fedguard.secagg.transitions import ServerState


class KeptKeysClient(Client):
    """Planted: it keeps the secrets of its first session for all later ones."""

    def __init__(self, *facts: Any, **others: Any) -> None:
        super().__init__(*facts, **others)
        self._entropy = expanded(self._identity.sign(b"the same in each session"))


@dataclass(frozen=True, kw_only=True)
class MaskReuse(ProtocolAttack):
    """The server runs one session twice, with the same nonce, and the second time has the clients train without a step.

        (x + masks) - (0 + masks) = x

    Round, model and nonce are the same, hence all that the session is named by but the clients' fresh keys. If those are
    kept, so are the masks, and the difference of two masked inputs is that of the inputs. The server also shows the clients
    of a third session the keys of the first.
    """

    name = "mask_reuse"
    source = "folklore: the two-time pad"
    number: ClassVar[int] = 14
    by = "server"
    stopped_by = "fresh key pairs and a fresh self mask for each session, whatever the server repeats"
    weak = KeptKeysClient

    def mount(self, arena: Arena) -> Claim:
        first = Relay(arena.server(), self._peers(arena, idle=False))
        first.step()
        old_keys = first.mail
        first.run(ServerState.ATTESTING)
        server = arena.server(nonce=first.server._nonce)
        second = Relay(server, self._peers(arena, idle=True)).run(ServerState.ATTESTING)
        kept = [client for client in arena.honest if _mask_key(first, client) == _mask_key(second, client)]
        sums = {frozenset({client}): first.masked[client] - second.masked[client] for client in arena.honest}
        story = [
            "one session run twice, with the same nonce; the second time all inputs are zeros",
            f"{len(kept)} of {len(arena.honest)} honest clients advertise the same keys again",
            "the difference of a client's two masked inputs is taken for its input",
        ]
        third = self._peers(arena, idle=True)
        for client in arena.honest:
            third[client].receive(server.hello())
        fates = sorted({tried(third[client], old_keys[client])[1] for client in arena.honest})
        story.append(f"a third time, with the keys of the first in the roster: {', '.join(fates)}")
        return Claim(sums=sums, figures={"clients_with_the_same_keys": len(kept)}, story=story)

    def _peers(self, arena: Arena, *, idle: bool) -> dict[int, Peer]:
        return {**arena.parties(idle=idle), **{client: arena.accomplice(client) for client in arena.colluders}}


def _mask_key(relay: Relay, client: int) -> bytes:
    return relay.server._advertised[client][0].mask_key
