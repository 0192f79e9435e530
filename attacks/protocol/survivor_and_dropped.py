"""One client in both lists (what Bonawitz et al., CCS 2017, forbid: nobody reveals both shares of one client)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.hostile import KEY, SEED, HostileServer, quorum

from fedguard.secagg import codec, messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack


class TwoLists(Client):
    """Planted: it takes a list of the dropped beside that of the survivors, and answers for both."""

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

    def _revealed(self) -> messages.Unmask:
        keys = tuple(bytes(self._held[v][1]) for v in sorted(self._dropped))
        return messages.Unmask(super()._revealed().shares + keys)


@dataclass(frozen=True, kw_only=True)
class SurvivorAndDropped(ProtocolAttack):
    """The server names the same client as a survivor and as dropped, and is given shares of both its secrets.

    The seed of its self mask and its mask key together open its input. A protocol falls to it whose request has a list of
    survivors and a list of the dropped that nobody compares. Ours has one bit per client, so the server tries what comes
    nearest: it appends a second list to its messages, and then asks once more with the bit turned over.
    """

    name = "survivor_and_dropped"
    source = "Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, which forbids it"
    number: ClassVar[int] = 1
    by = "both"
    stopped_by = "a request with one bit per client, and an answer with one share per neighbour: neither can hold both"
    weak = TwoLists

    def mount(self, arena: Arena) -> Claim:
        server = HostileServer(arena)
        server.mask(server.share(server.advertise()))
        victim, *others = arena.honest
        everybody, both = server.server.shared, codec.pack_clients([victim])
        story = [
            f"the server names client {victim} as a survivor, and appends a list of the dropped with client {victim}"
        ]

        doubled = {client: server.pack(server.survivors(client, everybody)) + both for client in others}
        signatures = {client: answer.signature for client, answer in server.ask_all(doubled).items()}
        story.append(f"appended to the survivors: {server.fate(others)}")
        signatures |= server.attest(everybody - signatures.keys(), everybody)
        question = server.pack(quorum(signatures))
        server.unmask(dict.fromkeys(others, question + both), everybody, [victim])
        story.append(f"appended to the quorum: {server.fate(others)}")
        server.unmask(dict.fromkeys(others, question), everybody, [victim])

        without = everybody - {victim}
        server.ask_all({client: server.survivors(client, without) for client in others})
        story.append(f"asked once more, with the bit turned over: {server.fate(others)}")

        shares = {kind: len(server.shares.get((victim, kind), ())) for kind in (SEED, KEY)}
        story.append(
            f"shares of client {victim}'s seed: {shares[SEED]}, of its mask key: {shares[KEY]}; "
            f"{server.config.threshold} of each are needed"
        )
        opened = server.opened([victim])
        sums = {} if opened is None else {frozenset({victim}): opened}
        return Claim(sums=sums, figures={"seed_shares": shares[SEED], "key_shares": shares[KEY]}, story=story)
