"""Keys under false names (Diffie, van Oorschot and Wiener, DCC 1992)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedguard.attacks.protocol.means.malicious import MaliciousServer
from fedguard.secagg import codec, keys, messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import SHARE_BYTES, Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.directory import Directory
from fedguard.secagg.keys import KeyPair
from fedguard.secagg.masks import RingVector, add_masks
from fedguard.secagg.messages import Delivery, KeyAdvertisement, Packet
from fedguard.secagg.shamir import combine

#: The points of low order on Curve25519, 0 and 1 also as p and p + 1: with them, everybody agrees on zero.
LOW_ORDER = (
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    *(bytes([first]) + b"\xff" * 30 + b"\x7f" for first in (0xEC, 0xED, 0xEE)),
)


class UnverifiedSignatureClient(Client):
    """Planted: it verifies no signature, and so takes keys and packets for whose the server says they are."""

    def _is_signed(self, client: int, phase: Phase, digest: bytes, signature: bytes) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class KeySubstitution(ProtocolAttack):
    """The server puts its own keys in the place of everybody else's, and the victim masks its input for the server alone.

    The victim distributes its shares to keys of the server as well, so the server needs no other client. Two more variants
    target the keys: the server, or a colluder that advertises it as its own, reflects the victim's own key; and a colluder
    advertises points of low order, with which all clients agree on a secret that everybody knows.
    """

    name = "key_substitution"
    source = "Diffie, van Oorschot and Wiener, Authentication and Authenticated Key Exchanges, DCC 1992 (substitution)"
    number: ClassVar[int] = 4
    by = "both"
    stopped_by = "keys signed under pinned identities, no key in two places, and no point of low order"
    weak = UnverifiedSignatureClient

    def mount(self, arena: Arena) -> Claim:
        victim, other, colluder = arena.honest[0], arena.honest[1], arena.colluders[0]
        middles: list[_ManInTheMiddle] = []
        story, sums = [], {}

        def middle() -> _ManInTheMiddle:
            middles.append(_ManInTheMiddle(arena, victim))
            return middles[-1]

        for forger in ("nobody", f"client {colluder}"):
            between = middle()
            what = f"the server's keys for all others, signed by {forger}"
            story.append(between.tell(between.forge_keys(signed=forger != "nobody"), what))
            opened = None if between.share is None else between.recover_input()
            if opened is not None:
                sums[frozenset({victim})] = opened
                story.append(f"client {victim} shares its secrets with the server, and masks its input for it")

        own, signature = (between := middle()).advertised[victim]
        story.append(between.tell({other: (own, signature)}, f"client {victim}'s keys as client {other}'s"))
        own, _ = (between := middle()).advertised[victim]
        story.append(between.as_its_own(own, f"client {victim}'s keys as client {colluder}'s, signed by it"))
        entry, signature = (between := middle()).advertised[victim]
        altered = {victim: (replace(entry, mask_key=between.pairs[other][1].public), signature)}
        story.append(between.tell(altered, f"another mask key as client {victim}'s own"))
        entry, signature = (between := middle()).advertised[other]
        altered = {other: (replace(entry, model_hash=arena.entropy(32)), signature)}
        story.append(between.tell(altered, f"another model as client {other}'s"))
        for field in ("encryption_key", "mask_key"):
            told = f"{len(LOW_ORDER)} points of low order as client {colluder}'s {field}"
            fates = set()
            for point in LOW_ORDER:
                entry, _ = (between := middle()).advertised[colluder]
                fates.add(between.as_its_own(replace(entry, **{field: point}), told).rpartition(": ")[2])
            story.append(f"{told}: {', '.join(sorted(fates))}")
        return Claim(
            sums=sums,
            blamed=set().union(*(between.server.named for between in middles)),
            broken=[what for between in middles for what in between.server.taken],
            figures={"low_order_points": len(LOW_ORDER)},
            story=story,
        )


class _ManInTheMiddle:
    """A server between the victim and all others, with keys of its own for these."""

    def __init__(self, arena: Arena, victim: int) -> None:
        self.arena, self.victim, self.server = arena, victim, MaliciousServer(arena)
        self.share: messages.ShareSubmission | None = None
        answers = self.server.ask_all(dict.fromkeys(self.server.peers, self.server.server.hello()))
        self.advertised: dict[int, tuple[KeyAdvertisement, bytes]] = {}
        for client, answer in answers.items():
            assert isinstance(answer.message, KeyAdvertisement)
            self.advertised[client] = answer.message, answer.signature
        self.pairs = {
            client: (KeyPair(arena.entropy(32)), KeyPair(arena.entropy(32))) for client in answers if client != victim
        }

    def forge_keys(self, *, signed: bool) -> dict[int, tuple[KeyAdvertisement, bytes]]:
        """Keys of the server for all others, with the signatures of the true ones or with a colluder's."""
        forged = {}
        for client, (encryption, mask) in self.pairs.items():
            entry, signature = self.advertised[client]
            entry = replace(entry, encryption_key=encryption.public, mask_key=mask.public)
            forged[client] = (
                entry,
                self.server.sign_as_colluder(self.arena.colluders[0], entry) if signed else signature,
            )
        return forged

    def as_its_own(self, entry: KeyAdvertisement, what: str) -> str:
        """Show the victim these keys as the colluder's, signed by it."""
        colluder = self.arena.colluders[0]
        return self.tell({colluder: (entry, self.server.sign_as_colluder(colluder, entry))}, what)

    def tell(self, forged: Mapping[int, tuple[KeyAdvertisement, bytes]], what: str) -> str:
        """Show the victim a roster with some forged entries, which it must refuse; return its answer in words."""
        entries = {**self.advertised, **forged}
        self.directory = Directory(
            self.server.server.proposal,
            self.server.config,
            self.server.round,
            {c: entry for c, (entry, _) in entries.items()},
        )
        # The victim derives the session id from the forged roster; the server must follow, or its next message is refused
        # for that
        self.server.server.sid = self.directory.sid
        roster = messages.KeyRoster(tuple((client, *entries[client]) for client in sorted(entries)))
        answer = self.server.ask(self.victim, roster)
        if answer is not None:
            assert isinstance(answer.message, messages.ShareSubmission)
            self.share = answer.message
        self.server.must_refuse([self.victim], what)
        return f"{what}: {self.server.fates[self.victim]}"

    def recover_input(self) -> RingVector | None:
        """The victim's input, from its shares and masks, all under keys of the server; None if it sends none."""
        assert self.share is not None
        config, directory, victim = self.server.config, self.directory, self.victim
        sid, neighbors = directory.sid, directory.neighbors[self.victim]
        packets = messages.ShareDistribution(frozenset(directory.entries), tuple(map(self._packet, neighbors)))
        self.server.mask({victim: packets})
        if victim not in self.server.masked:
            return None
        dealt = dict(zip(neighbors, self.share.packets, strict=True))
        shares = {client + 1: self._share_of_seed(client, dealt[client]) for client in neighbors[: config.threshold]}
        seed = combine(shares).to_bytes(keys.SECRET_BYTES, "little")
        masks = [(keys.self_mask_key(sid, seed, victim, config.key_bytes), -1)]
        for client, (_, pair) in self.pairs.items():
            agreed, ends = (
                pair.agree(directory.entries[victim].mask_key),
                (directory.mask(victim), directory.mask(client)),
            )
            key = keys.pairwise_mask_key(sid, agreed, *ends, config.key_bytes)
            masks.append((key, -1 if victim < client else 1))
        add_masks(total := self.server.masked[victim].copy(), masks)
        return total

    def _key(self, sender: int, receiver: int) -> AESGCM:
        """The key that encrypts a share between the victim and one of the server's keys."""
        agreed = self.pairs[receiver if sender == self.victim else sender][0].agree(
            self.directory.entries[self.victim].encryption_key
        )
        ends = self.directory.encryption(sender), self.directory.encryption(receiver)
        return keys.share_key(self.directory.sid, agreed, *ends)

    def _packet(self, owner: int) -> Delivery:
        """Shares of zero for the victim, in the name of ``owner``."""
        sid, victim, share = self.directory.sid, self.victim, bytes(SHARE_BYTES)
        header = self.directory.share_header(owner, victim)
        packet = Packet(
            keys.encrypt_share(self._key(owner, victim), 2 * share, header),
            keys.share_commitment(sid, owner, victim, b"b", share),
            keys.share_commitment(sid, owner, victim, b"s", share),
        )
        return Delivery(owner, packet, bytes(32), (), bytes(codec.SIGNATURE_BYTES))

    def _share_of_seed(self, holder: int, packet: Packet) -> int:
        """The share of the victim's seed for ``holder``."""
        header = self.directory.share_header(self.victim, holder)
        plain = keys.decrypt_share(self._key(self.victim, holder), packet.cipher, header)
        return int.from_bytes(plain[:SHARE_BYTES], "little")
