"""One client in both lists (what Bonawitz et al., CCS 2017, forbid: nobody reveals both shares of one client)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.inputs import draw_fixed_point, looks_encoded
from fedguard.attacks.protocol.means.malicious import KEY, SEED, MaliciousServer, quorum
from fedguard.secagg import codec, messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig


class TwoListClient(Client):
    """Planted: it takes a list of the dropped beside the list of survivors, and answers for both."""

    _dropped: frozenset[int] = frozenset()

    def receive(self, data: bytes) -> bytes:
        header = codec.read_header(data)
        if header.phase is Phase.SURVIVORS:
            reader = codec.Reader(memoryview(data)[len(header.pack()) :])
            survivors = messages.Survivors.read(reader)
            plain = messages.pack(header, survivors)
            if len(data) > len(plain):
                self._dropped, data = reader.clients() - {self.id}, plain
        return super().receive(data)

    def _reveal_shares(self) -> messages.UnmaskingShares:
        keys = tuple(bytes(self._held[v][1]) for v in sorted(self._dropped))
        return messages.UnmaskingShares(super()._reveal_shares().shares + keys)


@dataclass(frozen=True, kw_only=True)
class SurvivorAndDropped(ProtocolAttack):
    """The server names the same client as a survivor and as dropped, and is given shares of both its secrets.

    The seed of its self mask and its mask key together open its input. A protocol is vulnerable if its request has a list
    of survivors and a list of dropped clients that nobody compares. Ours has one bit per client, so the server tries the
    closest variants: it appends a second list to its messages, and then asks once more with the bit flipped.

    It also tries with one secret alone, which would be enough if inputs had one kind of mask. It reports a client as
    dropped after its input has arrived, and removes the pairwise masks; and it removes the self mask of a survivor.
    """

    name = "survivor_and_dropped"
    source = "Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, which forbids it"
    number: ClassVar[int] = 1
    by = "both"
    stopped_by = "a request with one bit per client, and an answer with one share per neighbor: neither can hold both"
    weak = TwoListClient

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        return draw_fixed_point(config, entropy)

    def mount(self, arena: Arena) -> Claim:
        server = MaliciousServer(arena)
        server.mask(server.share(server.advertise()))
        victim, *others = arena.honest
        everybody, both = server.server.shared, codec.pack_clients([victim])
        story = [
            f"the server names client {victim} as a survivor, and appends a list of the dropped with client {victim}"
        ]

        doubled = {client: server.pack(server.survivors(client, everybody)) + both for client in others}
        signatures = {client: answer.signature for client, answer in server.ask_all(doubled).items()}
        story.append(server.must_refuse(others, "appended to the survivors"))
        signatures |= server.attest(everybody - signatures.keys(), everybody)
        question = server.pack(quorum(signatures))
        server.unmask(dict.fromkeys(others, question + both), everybody, [victim])
        story.append(server.must_refuse(others, "appended to the quorum"))
        server.unmask(dict.fromkeys(others, question), everybody, [victim])

        without = everybody - {victim}
        server.ask_all({client: server.survivors(client, without) for client in others})
        story.append(f"asked once more, with the bit turned over: {server.fate(others)}")

        shares = {kind: len(server.shares.get((victim, kind), ())) for kind in (SEED, KEY)}
        story.append(
            f"shares of client {victim}'s seed: {shares[SEED]}, of its mask key: {shares[KEY]}; "
            f"{server.config.threshold} of each are needed"
        )
        opened = server.recover_sum([victim])
        sums = {} if opened is None else {frozenset({victim}): opened}
        for called, included in (("silent, though its input is there", without), ("a survivor", everybody)):
            vector = _with_one_secret(arena, victim, included)
            clear = looks_encoded(vector)
            story.append(
                f"client {victim} is called {called}: one kind of mask off, {'it is clear' if clear else 'noise'}"
            )
            sums |= {frozenset({victim}): vector} if clear else {}
        return Claim(
            sums=sums,
            broken=server.taken,
            figures={"seed_shares": shares[SEED], "key_shares": shares[KEY]},
            story=story,
        )


def _with_one_secret(arena: Arena, victim: int, included: frozenset[int]) -> RingVector:
    """The victim's masked input, less the masks that a session with these survivors reveals."""
    server = MaliciousServer(arena)
    server.mask(server.share(server.advertise()))
    question = quorum(server.attest(included, included))
    server.unmask(dict.fromkeys(included & set(arena.honest), question), included)
    return server.strip_masks(victim, SEED if victim in included else KEY)
