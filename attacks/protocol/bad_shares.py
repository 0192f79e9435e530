"""Shares, secrets and messages that are not what they should be, so that somebody else takes the blame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from cryptography.exceptions import InvalidTag

from fedguard.attacks.protocol.means.network import Arrivals, ProtocolNetwork
from fedguard.secagg import codec, errors, keys, messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import SHARE_BYTES, Header, Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.messages import Message, Packet
from fedguard.secagg.shamir import PRIME

#: The honest client that the attack tries to exclude or to blame.
VICTIM = 0


class GarbledShare(Client):
    """In R1 the victim gets a share that does not open."""

    def _packet(self, v: int, shares: tuple[int, ...]) -> Packet:
        packet = super()._packet(v, shares)
        return packet if v != VICTIM else replace(packet, cipher=bytes(len(packet.cipher)))


class OtherShare(Client):
    """In R1 the victim gets shares that are not those committed to, and would be caught when it reveals them."""

    def _packet(self, v: int, shares: tuple[int, ...]) -> Packet:
        wrong = super()._packet(v, tuple((share + 1) % PRIME for share in shares))
        return replace(super()._packet(v, shares), cipher=wrong.cipher) if v == VICTIM else super()._packet(v, shares)


class OutOfFieldShare(Client):
    """In R1 the victim gets a share that is no element of the field, rightly committed to."""

    def _packet(self, v: int, shares: tuple[int, ...]) -> Packet:
        return super()._packet(v, tuple(share + PRIME for share in shares) if v == VICTIM else shares)


class OffPolynomialShare(Client):
    """In R1 everybody gets a random share, rightly committed to: no polynomial goes through them."""

    def _packet(self, v: int, shares: tuple[int, ...]) -> Packet:
        return super()._packet(v, tuple(int.from_bytes(self._entropy(32), "little") for _ in shares))


class TooFewPackets(Client):
    """In R1 it leaves out one neighbor."""

    def _share(self, header: Header, roster: messages.KeyRoster) -> Message:
        share = super()._share(header, roster)
        assert isinstance(share, messages.ShareSubmission)
        return replace(share, packets=share.packets[1:])


class OtherSeed(Client):
    """It commits to another b than it shares."""

    def _share(self, header: Header, roster: messages.KeyRoster) -> Message:
        share = super()._share(header, roster)
        assert isinstance(share, messages.ShareSubmission)
        return replace(share, seed=bytes(32))


class OversizedSeed(Client):
    """It shares a b that has 257 bits, and commits to it."""

    def _advertise(self, header: Header, hello: messages.Hello) -> Message:
        own = super()._advertise(header, hello)
        self._seed = bytearray((2**256 + 5).to_bytes(SHARE_BYTES, "little"))
        return own


class OtherMaskKey(Client):
    """It shares another mask key than it advertised, and falls silent, so that this one is needed."""

    def _advertise(self, header: Header, hello: messages.Hello) -> Message:
        own = super()._advertise(header, hello)
        self._mask.secret[:] = self._entropy(keys.SECRET_BYTES)
        return own

    def _mask_input(self, header: Header, shares: messages.ShareDistribution) -> Message:
        raise self._error(errors.TooFewSurvivors, "it says nothing any more")


class ShortInput(Client):
    """Its masked input lacks the last element."""

    def _mask_input(self, header: Header, shares: messages.ShareDistribution) -> Message:
        masked = super()._mask_input(header, shares)
        assert isinstance(masked, messages.MaskedInput)
        return replace(masked, vector=masked.vector[: -self._config.ring // 8])


class OtherSurvivors(Client):
    """In R3 it attests survivors that nobody was shown."""

    def _attestation(self) -> messages.Attestation:
        return replace(super()._attestation(), included_hash=bytes(32))


class WrongRevealedShares(Client):
    """In R4 it reveals a wrong share of everybody."""

    def _reveal_shares(self) -> messages.UnmaskingShares:
        return messages.UnmaskingShares(
            tuple(bytes([share[0] ^ 1]) + share[1:] for share in super()._reveal_shares().shares)
        )


class TooFewRevealedShares(Client):
    """In R4 it leaves out one share, so that all others would count for the wrong owners."""

    def _reveal_shares(self) -> messages.UnmaskingShares:
        return messages.UnmaskingShares(super()._reveal_shares().shares[1:])


class UncheckedShareClient(Client):
    """Planted: it does not compare a share with what its owner committed to."""

    def _decrypt_shares(self, delivery: messages.Delivery) -> tuple[bytearray, bytearray]:
        try:
            return super()._decrypt_shares(delivery)
        except errors.ShareDecryptError:
            u, directory = delivery.owner, self._directory
            key = keys.share_key(self.sid, self._agreed[u][0], directory.encryption(u), directory.encryption(self.id))
            try:
                plain = keys.decrypt_share(key, delivery.packet.cipher, directory.share_header(u, self.id))
            except InvalidTag:
                plain = b""
            if len(plain) != 2 * SHARE_BYTES:
                raise
            return bytearray(plain[:SHARE_BYTES]), bytearray(plain[SHARE_BYTES:])


TRICKS = (
    GarbledShare, OtherShare, OutOfFieldShare, OffPolynomialShare, TooFewPackets, OtherSeed, OversizedSeed, OtherMaskKey,
    ShortInput, OtherSurvivors, WrongRevealedShares, TooFewRevealedShares,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BadShares(ProtocolAttack):
    """A malicious client sends what it should not, and hopes that the sum is spoilt or an honest client is blamed for it.

    It distributes shares that do not decrypt, do not match their commitments or lie on no polynomial, secrets that it did
    not commit to, and vectors of the wrong length, and it reveals wrong shares of others. It also sends messages in the
    name of an honest client: made-up messages, copies of true messages, and true messages of an earlier session.
    """

    name = "bad_shares"
    source = "folklore"
    number: ClassVar[int] = 17
    by = "client"
    stopped_by = (
        "each share and secret is bound to a signed commitment, so a wrong one names who made it; and nobody is named for "
        "what anybody could have sent"
    )
    weak = UncheckedShareClient

    def mount(self, arena: Arena) -> Claim:
        cheat = arena.colluders[0]
        networks: dict[str, ProtocolNetwork] = {}
        for trick in TRICKS:
            # The class docstrings are the words of the story: what they say is shown to users
            networks[trick.__doc__ or ""] = ProtocolNetwork.of(arena, kind=trick).run()
        networks["In R4 it reveals a wrong share of everybody, where none is to spare."] = ProtocolNetwork.of(
            arena, kind=WrongRevealedShares
        ).run(self._none_to_spare(arena))
        forgeries = {
            f"It makes up messages in the name of client {VICTIM}.": self._forge_messages(arena, cheat),
            f"It reads the fresh keys of client {VICTIM} on their way, and is faster to advertise them.": (
                self._copy_advertisement(arena, cheat)
            ),
            f"It repeats what client {VICTIM} sends.": self._twice,
            f"It repeats what client {VICTIM} sent in earlier sessions.": self._replay_messages(arena),
        }
        for words, arrivals in forgeries.items():
            networks[words] = ProtocolNetwork.of(arena).run(arrivals)
        sums = [(network.server.included, network.server.total) for network in networks.values()]
        return Claim(
            totals=[(included, total) for included, total in sums if total is not None],
            blamed=set().union(*(network.named for network in networks.values())),
            figures={"tricks": len(networks)},
            story=[f"{words} {_came_to(network)}" for words, network in networks.items()],
        )

    def _none_to_spare(self, arena: Arena) -> Arrivals:
        """Enough honest clients drop out in R4 that each remaining share is needed."""
        silent = arena.honest[1 : 1 + len(arena.roster) - arena.parameters.survivors]

        def arrivals(client: int, answer: bytes) -> Iterable[bytes]:
            return [] if client in silent and codec.read_header(answer).phase is Phase.UNMASK else [answer]

        return arrivals

    def _forge_messages(self, arena: Arena, cheat: int) -> Arrivals:
        """Each message of the victim comes with others in its name, signed with the cheat's key."""
        draw = arena.entropy

        def arrivals(client: int, answer: bytes) -> Iterable[bytes]:
            if client != VICTIM:
                return [answer]
            header = codec.read_header(answer)
            of_another_model = messages.KeyAdvertisement(draw(32), draw(32), draw(32), arena.config.hash())
            zeros = messages.MaskedInput(draw(32), bytes(arena.config.zeros()))
            made_up = (of_another_model, zeros, messages.Attestation(draw(32), draw(32)), messages.UnmaskingShares(()))
            return [*(_sign_message(arena, cheat, header, message) for message in made_up), answer]

        return arrivals

    def _copy_advertisement(self, arena: Arena, cheat: int) -> Arrivals:
        def arrivals(client: int, answer: bytes) -> Iterable[bytes]:
            received = messages.unpack(answer)
            if client != VICTIM or not isinstance(received.message, messages.KeyAdvertisement):
                return [answer]
            return [_sign_message(arena, cheat, replace(received.header, sender=cheat), received.message), answer]

        return arrivals

    def _twice(self, client: int, answer: bytes) -> Iterable[bytes]:
        return [answer, answer] if client == VICTIM else [answer]

    def _replay_messages(self, arena: Arena) -> Arrivals:
        """Messages from an aborted session with another model, and from the round before."""
        old: list[bytes] = []

        def record_answer(client: int, answer: bytes) -> Iterable[bytes]:
            old.extend([answer] if client == VICTIM else [])
            return [answer]

        model = arena.entropy(32)
        ProtocolNetwork(arena.server(model_hash=model), arena.parties(model_hash=model)).run(record_answer)
        ProtocolNetwork(arena.server(round=arena.round - 1), arena.parties(round=arena.round - 1)).run(record_answer)
        return lambda client, answer: [*old, answer] if client == VICTIM else [answer]


def _sign_message(arena: Arena, cheat: int, header: Header, message: Message) -> bytes:
    """A forged message, signed with the cheat's key."""
    header = replace(header, phase=message.phase)
    return messages.pack(header, message, arena.identity(cheat).sign(messages.signature_payload(header, message)))


def _came_to(network: ProtocolNetwork) -> str:
    """The outcome in words, such as ``BadSecret names client 7; no sum``."""
    found = dict.fromkeys((type(error).__name__, error.party) for error in network.errors)
    said = [f"{kind} names {'nobody' if party is None else f'client {party}'}" for kind, party in found]
    total = "no sum" if network.server.total is None else f"a sum of {len(network.server.included)}"
    return "; ".join([*said, total])
