"""The same question twice (what Bonawitz et al., CCS 2017, forbid: nobody reveals both shares of one client)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import KEY, SEED, MaliciousServer, quorum
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Header
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.transitions import ClientState


class RepeatedAnswerClient(Client):
    """Planted: when it has revealed its shares it keeps them, and waits for survivors again."""

    def _transition(self, header: Header) -> tuple[str, ClientState]:
        action, after = super()._transition(header)
        return action, ClientState.MASKED if after is ClientState.DONE else after


@dataclass(frozen=True, kw_only=True)
class SecondRequest(ProtocolAttack):
    """The server lets the round end as it should, and then says that one survivor has dropped out after all.

    The first answers contain shares of the victim's seed, the second ones would contain shares of its mask key. The server
    asks a second time before it shows the signatures, after the clients reveal the shares, and from the start.
    """

    name = "second_request"
    source = "Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, which forbids it"
    number: ClassVar[int] = 3
    by = "both"
    stopped_by = "each state takes one message and is left for good; after the answer the shares are wiped"
    weak = RepeatedAnswerClient

    def mount(self, arena: Arena) -> Claim:
        server = MaliciousServer(arena)
        server.mask(server.share(server.advertise()))
        victim, *others = arena.honest
        everybody = server.server.shared
        without = everybody - {victim}
        story = [f"everybody attests that client {victim} survived"]
        first = quorum(server.attest(everybody, everybody))

        early = server.attest(without, without)
        story.append(server.must_refuse(others, f"told at once that client {victim} dropped out"))
        server.unmask(dict.fromkeys(arena.honest, first), everybody)
        story.append(f"shown the signatures: {server.fate(arena.honest)}")
        late = server.attest(without, without)
        story.append(server.must_refuse(others, f"told, after all is revealed, that client {victim} dropped out"))
        server.unmask(dict.fromkeys(others, quorum(early | late)), without)
        story.append(f"shown signatures over these survivors: {server.fate(others)}")
        opened = server.recover_sum([victim])
        server.ask_all(dict.fromkeys(arena.honest, server.server.hello()))
        story.append(server.must_refuse(arena.honest, "asked to begin anew"))

        shares = {kind: len(server.shares.get((victim, kind), ())) for kind in (SEED, KEY)}
        story.append(
            f"shares of client {victim}'s seed: {shares[SEED]}, of its mask key: {shares[KEY]}; "
            f"{server.config.threshold} of each are needed"
        )
        sums = {} if opened is None else {frozenset({victim}): opened}
        return Claim(
            sums=sums,
            broken=server.taken,
            figures={"seed_shares": shares[SEED], "key_shares": shares[KEY]},
            story=story,
        )
