"""Different survivors for different clients (Bonawitz et al., CCS 2017, and their consistency round against it)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedguard.attacks.protocol.means.malicious import KEY, SEED, MaliciousServer, quorum
from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.keys import Identity
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import Roster, SessionPolicy


class NoConsistencyClient(Client):
    """Planted: it does without the consistency round if the server says so, at a threshold that was chosen for one."""

    def __init__(self, id: int, identity: Identity, roster: Roster, policy: SessionPolicy, **facts: Any) -> None:
        super().__init__(id, identity, roster, replace(policy, attested=False), **facts)


def split(server: MaliciousServer, victim: int, *, fill: bool = True) -> list[str]:
    """Tell half of the others that the victim survived, the rest that it dropped out, and store the shares they reveal.

    With attestation, each half receives the signatures over its own survivors; ``fill`` adds signatures of the other half
    up to the quorum.
    """
    everybody = server.server.shared
    others = sorted(everybody - {victim} - server.accomplices.keys())
    told = {everybody: others[: len(others) // 2], everybody - {victim}: others[len(others) // 2 :]}
    signed = {}
    if server.config.attested:
        signed = {
            included: server.attest({*half, *server.accomplices} | (included & {victim}), included)
            for included, half in told.items()
        }
    for included, half in told.items():
        if server.config.attested:
            own = signed[included]
            foreign = {
                c: s for signatures in signed.values() for c, s in signatures.items() if c in included - own.keys()
            }
            # The foreign signatures make up the number, but cover the other set: only verifying them tells
            lacking = max(0, server.config.quorum - len(own)) if fill else 0
            filled = {**own, **dict(sorted(foreign.items())[:lacking])}
            server.unmask(dict.fromkeys(half, quorum(filled)), included)
        else:
            server.unmask({client: server.survivors(client, included) for client in half}, included)
    shares = {kind: len(server.shares.get((victim, kind), ())) for kind in (SEED, KEY)}
    survived, dropped = told.values()
    return [
        f"the server tells clients {survived} that client {victim} survived, and clients {dropped} that it dropped out",
        f"asked for their shares: {server.fate(others)}",
        f"shares of client {victim}'s seed: {shares[SEED]}, of its mask key: {shares[KEY]}; "
        f"{server.config.threshold} of each are needed",
    ]


@dataclass(frozen=True, kw_only=True)
class SplitSurvivors(ProtocolAttack):
    """The server tells half of the clients that the victim survived, and the other half that it dropped out.

    The first half would reveal shares of the victim's seed, the second half shares of its mask key; colluders add both. The
    server tries this in sessions with the consistency round, where it shows each half a full quorum of signatures, or only
    the valid ones; then it proposes a session without the round.
    """

    name = "split_survivors"
    source = "Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017"
    number: ClassVar[int] = 2
    by = "both"
    stopped_by = "the consistency round: no share leaves before a quorum has signed the same survivors"
    weak = NoConsistencyClient

    def mount(self, arena: Arena) -> Claim:
        victim = arena.honest[-1]
        story = ["with the consistency round:"]
        opened: RingVector | None = None
        for fill in (True, False):
            server = MaliciousServer(arena)
            server.mask(server.share(server.advertise()))
            told = split(server, victim, fill=fill)
            story += told if fill else [f"the same with no signatures but those that there are: {told[1]}"]
            opened = server.recover_sum([victim]) if opened is None else opened
        if opened is None:
            server = MaliciousServer(arena, config=replace(arena.config, attested=False))
            answers = server.ask_all(dict.fromkeys(server.peers, server.server.hello()))
            story.append(f"proposed without the consistency round: {server.fate(arena.honest)}")
            if answers.keys() >= set(arena.honest):
                server = MaliciousServer(arena, config=server.config)
                server.mask(server.share(server.advertise()))
                story += split(server, victim)
                opened = server.recover_sum([victim])
        return Claim(sums={} if opened is None else {frozenset({victim}): opened}, story=story)
