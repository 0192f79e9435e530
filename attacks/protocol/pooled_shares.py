"""Fewer shares than it takes (Shamir, CACM 1979)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import KEY, SEED, MaliciousServer, quorum
from fedguard.secagg.client import Client
from fedguard.secagg.codec import SHARE_BYTES, Header
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.keys import SECRET_BYTES, KeyPair, seed_commitment
from fedguard.secagg.messages import KeyRoster, Message
from fedguard.secagg.shamir import PRIME, combine
from fedguard.secagg.simulation import Settings


class LowerThresholdClient(Client):
    """Planted: its secrets open with one share less than was agreed on."""

    def _share(self, header: Header, roster: KeyRoster) -> Message:
        agreed = self._config
        self._config = replace(agreed, threshold=agreed.threshold - 1)
        share = super()._share(header, roster)
        self._config = agreed
        return share


@dataclass(frozen=True, kw_only=True)
class PooledShares(ProtocolAttack):
    """As many colluders as are reckoned with put their shares together, t - 1 of them, and guess at the secrets.

    They verify a guess by what the victim has sent: its commitment to the seed, and its public mask key. The guesses are

        the secret that 1, 2, ... t - 1 of their shares make
        their share less what one of them added to a secret of its own at that point: where all polynomials are the same
        the key's share less the seed's share, and the seed: where both secrets have one polynomial
        what the packets of all holders say in plain: where they are not encrypted

    With the mask key, and the seed that an honest round reveals at its end, they open the input.
    """

    name = "pooled_shares"
    source = "Shamir, How to Share a Secret, CACM 1979, on what t - 1 shares tell"
    number: ClassVar[int] = 21
    by = "both"
    stopped_by = (
        "a fresh polynomial for each secret, of which t - 1 shares tell nothing; and packets that only their holder "
        "reads"
    )
    weak = LowerThresholdClient
    clients: ClassVar[int] = 4
    colluders: ClassVar[int] = 2
    settings: ClassVar[Settings] = Settings(colluding=0.5, dropping=0)

    def mount(self, arena: Arena) -> Claim:
        victim, pooled = arena.honest[0], len(arena.colluders)
        server = MaliciousServer(arena)
        server.mask(server.share(server.advertise()))
        found = {kind: _right(server, victim, kind, _guesses(server, victim, kind)) for kind in (SEED, KEY)}
        story = [
            f"{pooled} colluders pool their shares of client {victim}'s secrets; it takes {server.config.threshold}"
        ]
        story += [f"its {kind}: {'open' if secret else 'no guess is right'}" for kind, secret in found.items()]
        everybody, held = server.server.shared, {kind: dict(server.shares[victim, kind]) for kind in (SEED, KEY)}
        server.unmask(dict.fromkeys(arena.honest, quorum(server.attest(everybody, everybody))), everybody)
        seed = server.secret(victim, SEED)
        if seed is not None and found[KEY] is None:
            number = int.from_bytes(seed, "little")
            guesses = [(held[KEY][x] - held[SEED][x] + number) % PRIME for x in held[KEY]]
            found[KEY] = _right(server, victim, KEY, guesses)
            story.append(f"and once its seed is revealed, its key: {'open' if found[KEY] else 'no guess is right'}")
        broken = [f"{pooled} shares tell the {kind} of client {victim}" for kind, secret in found.items() if secret]
        opened = None
        if (key := found[KEY]) is not None:
            server._known[victim, KEY] = key
            opened = server.recover_sum([victim])
        sums = {} if opened is None else {frozenset({victim}): opened}
        figures = {"shares_pooled": pooled, "threshold": server.config.threshold}
        return Claim(sums=sums, broken=broken, figures=figures, story=story)


def _guesses(server: MaliciousServer, victim: int, kind: str) -> Iterator[int]:
    """Guesses at one of the victim's secrets, before anything is revealed."""
    held, directory = server.shares[victim, kind], server.server._directory
    for count in range(1, len(held) + 1):
        yield from (combine({x: held[x] for x in points}) for points in combinations(sorted(held), count))
    for owner, holder in permutations(server.accomplices, 2):
        secret = server.secret(owner, kind)
        assert secret is not None
        added = server.shares[owner, kind][holder + 1] - int.from_bytes(secret, "little")
        yield (held[holder + 1] - added) % PRIME
    start = 0 if kind == SEED else SHARE_BYTES
    packets = zip(directory.neighbors[victim], server.server._shares[victim][0].packets, strict=True)
    plain = {v + 1: int.from_bytes(packet.cipher[start : start + SHARE_BYTES], "little") for v, packet in packets}
    if max(plain.values()) < PRIME:
        yield combine(plain)


def _right(server: MaliciousServer, victim: int, kind: str, guesses: Iterable[int]) -> bytes | None:
    """The guess that matches the victim's commitment, if one does."""
    committed, advertised = server.server._shares[victim][0].seed, server.server._directory.entries[victim].mask_key
    for guess in guesses:
        if guess < 2 ** (8 * SECRET_BYTES):
            secret = guess.to_bytes(SECRET_BYTES, "little")
            fits = (
                seed_commitment(server.server.sid, victim, secret) == committed
                if kind == SEED
                else KeyPair(secret).public == advertised
            )
            if fits:
                return secret
    return None
