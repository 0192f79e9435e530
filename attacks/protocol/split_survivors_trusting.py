"""Different survivors for different clients, in a session without the consistency round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import MaliciousServer
from fedguard.attacks.protocol.split_survivors import split
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.simulation import Settings


@dataclass(frozen=True, kw_only=True)
class SplitSurvivorsTrusting(ProtocolAttack):
    """The server of a semi-honest session, which is trusted to show everybody the same survivors, shows everybody others.

    Without the consistency round $t > (k + A) / 2$ shares are needed, so the seed and the mask key of one client cannot
    both be opened: the split of `split_survivors` fails by one share. But the server may tell each client of its own k - t
    dropouts. H honest clients with different sets are enough to open the mask keys of all but two of them, if H is even,
    and the seeds of those two. Their inputs come out as a sum of two.
    """

    name = "split_survivors_trusting"
    source = "folklore; the counting is ours"
    number: ClassVar[int] = 2
    by = "both"
    stopped_by = "nothing in a session without the consistency round, but that no single input comes out"
    outside = "a session without the consistency round says of itself that its server is trusted in this (semi-honest)"
    colluders = 2
    settings = Settings(colluding=0.25, dropping=0.2, attested=False)

    def mount(self, arena: Arena) -> Claim:
        *dropped, one, other = arena.honest
        server = MaliciousServer(arena)
        server.mask(server.share(server.advertise()))
        story = ["one client is singled out:", *split(server, other)]
        alone = server.recover_sum([other])

        server = MaliciousServer(arena)
        server.mask(server.share(server.advertise()))
        half = len(dropped) // 2
        absent = {client: (dropped[i + 1 :] + dropped)[:half] for i, client in enumerate(dropped)}
        absent |= {one: dropped[:half], other: dropped[half:]}
        for client, missing in absent.items():
            included = server.server.shared - set(missing)
            server.unmask({client: server.survivors(client, included)}, included)
        story.append(
            f"everybody is told of {half} dropouts, in turn among clients {dropped}: {server.fate(arena.honest)}"
        )
        opened = {frozenset(pair): server.recover_sum(pair) for pair in ((one,), (other,), (one, other))}
        sums = {clients: vector for clients, vector in opened.items() if vector is not None}
        if alone is not None:
            sums[frozenset({other})] = alone
        fewest = min(map(len, sums), default=0)
        figures = {
            "honest_inputs_in_the_smallest_sum": fewest,
            "promised_by_an_honest_server": arena.parameters.anonymity,
        }
        return Claim(sums=sums, figures=figures, story=story)
