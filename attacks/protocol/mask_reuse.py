"""Two inputs under the same masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedguard.attacks.protocol.means.relay import Peer, Relay, try_delivery
from fedguard.secagg.client import Client
from fedguard.secagg.codec import SHARE_BYTES
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.shamir import combine


class ReusedKeysClient(Client):
    """Planted: it keeps the secrets of its first session for all later ones."""

    def __init__(self, *facts: Any, **others: Any) -> None:
        super().__init__(*facts, **others)
        self._entropy = expand_seed(self._identity.sign(b"the same in each session"))


@dataclass(frozen=True, kw_only=True)
class MaskReuse(ProtocolAttack):
    """The server runs one session twice, with the same nonce, and the second time has the clients train without a step.

        $(x + masks) - (0 + masks) = x$

    Round, model and nonce are the same, so the two sessions differ in the clients' fresh keys alone. If clients keep their
    keys, the masks are the same too, and the difference of two masked inputs is the difference of the inputs. The server
    also shows the clients of a third session the keys of the first.

    It also checks for other reused pads: repeated seeds; packets from one client to another and back under one key; and
    masks of clients that do keep their secrets, which must still differ between sessions.
    """

    name = "mask_reuse"
    source = "folklore: the two-time pad"
    number: ClassVar[int] = 14
    by = "server"
    stopped_by = "fresh key pairs and a fresh self mask for each session, whatever the server repeats"
    weak = ReusedKeysClient

    def mount(self, arena: Arena) -> Claim:
        first = Relay(arena.server(), self._peers(arena, idle=False))
        first.step()
        old_keys = first.mail
        first.run()
        server = arena.server(nonce=first.server._nonce)
        second = Relay(server, self._peers(arena, idle=True)).run()
        kept = [client for client in arena.honest if _mask_key(first, client) == _mask_key(second, client)]
        seeds = [_seeds(relay) for relay in (first, second)]
        same = [client for client in arena.honest if seeds[0][client] == seeds[1][client]]
        sums = {frozenset({client}): first.masked[client] - second.masked[client] for client in arena.honest}
        story = [
            "one session run twice, with the same nonce; the second time all inputs are zeros",
            f"{len(kept)} of {len(arena.honest)} honest clients advertise the same keys again, and {len(same)} have the "
            "same self mask",
            "the difference of a client's two masked inputs is taken for its input",
        ]
        third = self._peers(arena, idle=True)
        for client in arena.honest:
            third[client].receive(server.hello())
        fates = sorted({try_delivery(third[client], old_keys[client])[1] for client in arena.honest})
        story.append(f"a third time, with the keys of the first in the roster: {', '.join(fates)}")
        streams = _same_streams(first)
        story.append(f"pairs of clients whose packets to each other are encrypted by one stream: {len(streams)}")
        broken = ["keys of an earlier session were taken for those of this one"] if "answered" in fates else []
        broken += [
            f"clients {who} have {what} again" for what, who in (("mask keys", kept), ("self masks", same)) if who
        ]
        broken += [f"clients {pair} encrypt their packets to each other by one stream" for pair in streams]
        later = self._later(arena)
        story.append(
            f"of clients that keep their secrets, in two sessions with other nonces, {len(later)} have the same masks"
        )
        broken += [f"masks of client {client} follow from its secrets, and not from the session" for client in later]
        figures = {"clients_with_the_same_keys": len(kept), "pairs_with_one_stream": len(streams)}
        return Claim(sums=sums, broken=broken, figures=figures, story=story)

    def _later(self, arena: Arena) -> list[int]:
        """Of clients that keep their secrets, those with the same masks in two sessions."""
        masks: list[tuple[RingVector, ...]] = []
        for _ in range(2):
            peers: dict[int, Peer] = {**arena.parties(kind=ReusedKeysClient, idle=True), **self._accomplices(arena)}
            relay = Relay(arena.server(), peers).run()
            revealed = relay.server._shares_by_owner()
            pairwise = {client: relay.masked[client].copy() for client in arena.honest}
            for client, vector in pairwise.items():  # inputs are zeros
                add_masks(vector, relay.server._masks_of(client, revealed[client]))
            masks.append(tuple(part for v in arena.honest for part in (pairwise[v], relay.masked[v] - pairwise[v])))
        same = [np.array_equal(one, other) for one, other in zip(*masks, strict=True)]
        return [client for i, client in enumerate(arena.honest) if any(same[2 * i : 2 * i + 2])]

    def _accomplices(self, arena: Arena) -> dict[int, Peer]:
        return {client: arena.accomplice(client, kind=ReusedKeysClient) for client in arena.colluders}

    def _peers(self, arena: Arena, *, idle: bool) -> dict[int, Peer]:
        return {**arena.parties(idle=idle), **{client: arena.accomplice(client) for client in arena.colluders}}


def _mask_key(relay: Relay, client: int) -> bytes:
    return relay.server._advertised[client][0].mask_key


def _seeds(relay: Relay) -> dict[int, int]:
    """The seeds of the self masks, as the server rebuilds them at the end."""
    threshold = relay.server.config.threshold
    revealed = relay.server._shares_by_owner()
    return {owner: combine(dict(sorted(shares.items())[:threshold])) for owner, shares in revealed.items()}


def _same_streams(relay: Relay) -> list[tuple[int, int]]:
    """Pairs of clients with the same keystream in both directions, by the known shares of seeds."""
    server, near = relay.server, relay.server._directory.neighbors
    revealed = server._shares_by_owner()

    def of_seed(owner: int, holder: int) -> int:
        """Ciphertext xor plaintext of a packet: the keystream, since GCM encrypts by a stream."""
        cipher = server._shares[owner][0].packets[near[owner].index(holder)].cipher[:SHARE_BYTES]
        return int.from_bytes(cipher, "little") ^ revealed[owner][holder + 1]

    return [(u, v) for u in near for v in near[u] if u < v and of_seed(u, v) == of_seed(v, u)]
