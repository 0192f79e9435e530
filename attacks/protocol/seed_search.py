"""Exhaustive search over the keys of a generator with few keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedguard.attacks.protocol.means.inputs import draw_fixed_point
from fedguard.attacks.protocol.means.relay import Peer, Relay
from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.keys import SECRET_BYTES, pairwise_mask_key, self_mask_key
from fedguard.secagg.masks import RingVector, add_mask, add_masks, keystream
from fedguard.secagg.session import SessionConfig
from fedguard.secagg.simulation import Settings
from fedguard.secagg.transitions import ServerState


def fold_key(key: bytes, bits: int) -> bytes:
    """A key of the same length with only ``bits`` bits of entropy: the exclusive or of all its pieces of that size."""
    size, seed = bits // 8, 0
    for start in range(0, len(key), size):
        seed ^= int.from_bytes(key[start : start + size], "little")
    return seed.to_bytes(len(key), "little")


class FoldedKeyClient(Client):
    """Planted: the keys of its pairwise masks are folded to 16 bits, as some frameworks fold theirs to 32."""

    bits: ClassVar[int] = 16

    def _pairwise_mask(self, v: int) -> tuple[bytes, int]:
        key, sign = super()._pairwise_mask(v)
        return fold_key(key, self.bits), sign


def dimensions(keys: Iterable[int]) -> int:
    """The rank over the field of two elements of these numbers as vectors of bits (Gaussian elimination)."""
    basis: dict[int, int] = {}
    for key in keys:
        left = key
        while left and left.bit_length() in basis:
            left ^= basis[left.bit_length()]
        if left:
            basis[left.bit_length()] = left
    return len(basis)


@dataclass(frozen=True, kw_only=True)
class SeedSearch(ProtocolAttack):
    """A curious server looks for few keys where there should be many: in the generator, in the keys, and by trying them all.

    Its colluders run the same software as all clients. So they draw thousands of secrets and check for repeats: among N
    secrets of b bits, about $N^2 / 2^(b + 1)$ pairs are equal. They derive mask keys and compute the rank of these as
    vectors of bits: it is the number of bits, unless the keys are folded or padded. The server tries the keys of its
    colluders' masks, and all $2^16$ values of a folded key, on a masked input with all other masks known.

    The server follows the protocol. It learns the self masks in due course, and its two colluders know the masks that they
    share with the victim; one mask is left, between the two honest clients. A key is right if it leaves integers of 20
    bits, as the encoding makes them, and not of 32: each coordinate contributes 12 bits of evidence.

    Args:
        seeds: number of keys to try, from zero.
        bits: of a coordinate of an encoded input; all parties know it.
        drawn: number of secrets of each kind that a colluder draws.
    """

    name = "seed_search"
    source = "folklore; Flower 1.41 folds its mask seeds to the 32 bits that numpy's Mersenne Twister takes"
    number: ClassVar[int] = 13
    by = "both"
    stopped_by = "mask keys of 128 bits and more, and no search goes through them"
    weak = FoldedKeyClient
    clients: ClassVar[int] = 4
    colluders: ClassVar[int] = 2
    settings: ClassVar[Settings] = Settings(colluding=0.5, dropping=0)

    seeds: int = 2**16
    bits: int = 20
    drawn: int = 2**11

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        return draw_fixed_point(config, entropy, self.bits)

    def mount(self, arena: Arena) -> Claim:
        figures, story, broken = self._repeats(arena)
        sums: dict[frozenset[int], RingVector] = {}
        spans, told, too_few = self._spans(arena)
        figures, story, broken = figures | spans, story + told, broken + too_few
        (victim, other), size = arena.honest, arena.config.key_bytes
        left, known = self._one_mask_left(arena)
        started = time.perf_counter()
        fits = self._test(left[victim])
        seeds = (seed.to_bytes(size, "little") for seed in range(self.seeds))
        found = next((key for key in known if fits(key)), None)
        if found is not None:
            broken.append("masks of colluders are those of honest clients as well")
        else:
            found = next((key for key in seeds if fits(key)), None)
        count = self.seeds if found is None else min(self.seeds, int.from_bytes(found, "little") + 1)
        rate = count / (time.perf_counter() - started)
        figures |= {
            "seeds_tried": count,
            "seeds_per_second": rate,
            "hours_for_2^32_seeds": 2**32 / rate / 3600,
            f"years_for_2^{8 * size}_keys": 2.0 ** (8 * size) / rate / 3600 / 24 / 365.25,
        }
        story += [
            f"clients {victim} and {other} share one mask that the server and clients "
            f"{', '.join(map(str, arena.colluders))} do not know",
            f"{count} seeds tried, {rate:.0f} per second: "
            + ("none leaves an encoded input" if found is None else f"seed {count - 1} leaves encoded inputs"),
        ]
        if found is not None:
            add_mask(left[victim], found, -1)
            add_mask(left[other], found, 1)
            sums |= {frozenset({v}): left[v] for v in arena.honest}
        return Claim(sums=sums, broken=broken, figures=figures, story=story)

    def _spans(self, arena: Arena) -> tuple[dict[str, float], list[str], list[str]]:
        """How many dimensions the keys of colluders' masks span: of each kind twice as many keys as they have bits.

        2 m random keys of m bits fail to span all dimensions with a chance of 2^-m. The secrets are drawn anew for each.
        """
        size, figures, broken, told = arena.config.key_bytes, {}, [], []
        one, other = ((client, arena.entropy(SECRET_BYTES)) for client in arena.colluders[:2])
        kinds: dict[str, Callable[[bytes], bytes]] = {
            "pairwise": lambda secret: pairwise_mask_key(arena.model_hash, secret, one, other, size),
            "self": lambda secret: self_mask_key(arena.model_hash, secret, one[0], size),
        }
        for kind, derived in kinds.items():
            keys = [int.from_bytes(derived(arena.entropy(SECRET_BYTES)), "little") for _ in range(16 * size)]
            figures[f"dimensions_of_{kind}_mask_keys"] = float(dimensions(keys))
            told.append(f"{kind} masks {dimensions(keys)}")
            if dimensions(keys) < 8 * size:
                broken.append(
                    f"keys of {kind} masks have {dimensions(keys)} bits at most, where {8 * size} are promised"
                )
        return figures, [f"dimensions that {16 * size} mask keys of {8 * size} bits span: {', '.join(told)}"], broken

    def _repeats(self, arena: Arena) -> tuple[dict[str, float], list[str], list[str]]:
        """The number of repeats among the secrets that colluders draw, with the software of all clients."""
        hello, client, figures, broken = arena.server().hello(), arena.colluders[0], {}, []
        secrets: dict[str, list[bytes]] = {"mask_keys": [], "seeds": []}
        for _ in range(self.drawn):
            accomplice = arena.accomplice(client)
            accomplice.receive(hello)
            secrets["mask_keys"].append(bytes(accomplice._mask.secret))
            secrets["seeds"].append(bytes(accomplice._seed))
        for what, drawn in secrets.items():
            figures[f"{what}_drawn_twice"] = twice = float(len(drawn) - len(set(drawn)))
            if twice:
                broken.append(f"{twice:.0f} of {self.drawn} {what.replace('_', ' ')} were drawn before: they are few")
        told = [
            f"of {self.drawn} mask keys and as many seeds that a colluder draws, {sum(figures.values()):.0f} come twice"
        ]
        return figures, told, broken

    def _one_mask_left(self, arena: Arena) -> tuple[dict[int, RingVector], list[bytes]]:
        """The honest clients' masked inputs less all masks but the one between them, after an honest session.

        And the keys of the masks that colluders know.
        """
        accomplices = {client: arena.accomplice(client) for client in arena.colluders}
        peers: dict[int, Peer] = {**arena.parties(), **accomplices}
        relay = Relay(arena.server(), peers).run(ServerState.MASKING)
        shared = {
            victim: [accomplice._pairwise_mask(victim) for accomplice in accomplices.values()]
            for victim in arena.honest
        }
        server = relay.run().server
        revealed = server._shares_by_owner()
        left = {}
        for victim in arena.honest:
            left[victim] = relay.masked[victim].copy()
            add_masks(left[victim], [*server._masks_of(victim, revealed[victim]), *shared[victim]])
        return left, [key for masks in shared.values() for key, _ in masks]

    def _test(self, left: RingVector) -> Callable[[bytes], bool]:
        """A test of whether removing the mask of a key leaves only integers of ``self.bits`` bits."""
        little, span = left.dtype.newbyteorder("<"), left.dtype.type(2**self.bits)
        # Unsigned arithmetic wraps around, so that one comparison checks both ends of the interval
        raised = left + left.dtype.type(2 ** (self.bits - 1))

        def fits(key: bytes) -> bool:
            # One of the two signs suffices: the mask was added by the lower of the two honest clients, which is the victim
            return bool((raised - np.frombuffer(keystream(key, left.nbytes), little) < span).all())

        return fits
