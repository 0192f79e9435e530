"""Parameters without protection, proposed by the server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedguard.attacks.protocol.means.malicious import MaliciousServer
from fedguard.attacks.protocol.split_survivors import split
from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.keys import Identity
from fedguard.secagg.session import Roster, SessionConfig, SessionPolicy
from fedguard.secagg.simulation import Settings


class PermissivePolicy(SessionPolicy):
    """Refuses nothing."""

    def refuses(self, config: SessionConfig, clients: int) -> str | None:
        return None


class NoPolicyClient(Client):
    """Planted: it agrees to whatever the server proposes."""

    def __init__(self, id: int, identity: Identity, roster: Roster, policy: SessionPolicy, **facts: Any) -> None:
        super().__init__(id, identity, roster, PermissivePolicy(**vars(policy)), **facts)


#: Proposals that open an input, if clients accept them.
OPENING: dict[str, dict[str, Any]] = {
    "t = 1, where a share is the secret": {"threshold": 1},
    "a quorum of 1": {"quorum": 1},
    "no consistency round": {"attested": False},
}
#: Proposals that prepare other attacks, or change the inputs: small rings wrap around, another clip changes the bound.
PREPARING: dict[str, dict[str, Any]] = {
    "keys of 1 client are enough": {"members": 1},
    "4 neighbors": {"degree": 4},
    "AES-128 for AES-256": {"suite": 1},
    "a modulus of 2^32 for 2^64": {"ring": 32},
    "inputs of another length": {"length": 17},
    "another clip": {"context": b"another clip".ljust(32)},
}


@dataclass(frozen=True, kw_only=True)
class WeakParameters(ProtocolAttack):
    """The server proposes a session whose parameters protect nothing, and who agrees is opened by the rules.

    With $t = 1$ a colluder's shares are the secrets of all its neighbors. With a quorum of one, or none, the server shows
    different survivors to different clients. The attack checks that clients refuse the other proposals, among them a
    hand-written one: a modulus of $2^8$, which an honest server cannot express.
    """

    name = "weak_parameters"
    source = "folklore: a downgrade by the party that chooses the parameters"
    number: ClassVar[int] = 7
    by = "both"
    stopped_by = "each client's own policy, to which the proposal is compared before anything is sent"
    weak = NoPolicyClient
    settings = Settings(ring=64, suite=2, colluding=0.2, dropping=0.2)

    def mount(self, arena: Arena) -> Claim:
        victim, story, accepted, inputs = arena.honest[-1], [], [], []
        for what, change in (OPENING | PREPARING).items():
            config = replace(arena.config, **change)
            server = MaliciousServer(arena, config=config)
            answers = server.ask_all(dict.fromkeys(arena.honest, server.server.hello()))
            story.append(f"{what}: {server.fate(arena.honest)}")
            accepted += [what] if answers else []
            if what in OPENING and len(answers) == len(arena.honest):
                server = MaliciousServer(arena, config=config)
                server.mask(server.share(server.advertise()))
                split(server, victim)
                opened = server.recover_sum([victim])
                story.append(f"... and client {victim}'s input is {'hidden' if opened is None else 'open'}")
                inputs += [] if opened is None else [opened]
        server = MaliciousServer(arena)
        server.ask_all(dict.fromkeys(arena.honest, _tiny(server)))
        story.append(f"a modulus of 2^8, written by hand: {server.fate(arena.honest)}")
        figures = {"proposals": len(OPENING | PREPARING) + 1, "accepted": len(accepted), "inputs_opened": len(inputs)}
        broken = [f"honest clients accepted a session with {what}" for what in accepted]
        sums = {frozenset({victim}): inputs[0]} if inputs else {}
        return Claim(sums=sums, broken=broken, figures=figures, story=story)


def _tiny(server: MaliciousServer) -> bytes:
    """The proposal with a ring of 8 bits; the byte after the suite's says so."""
    hello, config = server.server.hello(), server.config.pack()
    return hello.replace(config, config[:1] + bytes([8]) + config[2:])
