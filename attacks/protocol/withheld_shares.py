"""Withheld packets of shares, so that a victim masks its input for too few neighbors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import MaliciousServer, quorum, withheld
from fedguard.secagg import messages
from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.simulation import Settings


class UnverifiedSharesClient(Client):
    """Planted: it takes the server's word that its neighbors were told of the same shares."""

    def _check_survivors(self, survivors: messages.Survivors) -> None:
        self._check_set(survivors.included, self._shared, "masked inputs")
        self._included = survivors.included


@dataclass(frozen=True, kw_only=True)
class WithheldShares(ProtocolAttack):
    """The server hands a victim fewer packets than there are, so that it masks its input for fewer neighbors.

    The server sends the victim the packets of t neighbors. It tells all other clients that everybody shared, and that those
    t have dropped out: so they reveal the mask keys of the t. The victim's other neighbors, for which it did not mask,
    reveal its seed. Then nothing hides its input. The attack takes 2 (t - a) honest neighbors, where a colluders are
    neighbors of the victim: the complete graph has too few, a ring has enough. Other clients receive t - 1 packets or none,
    or fewer than the server names owners.
    """

    name = "withheld_shares"
    source = "folklore"
    number: ClassVar[int] = 6
    by = "both"
    stopped_by = (
        "fewer than t packets are refused; and no share of a client's seed leaves before that client has signed a masked "
        "input for those who shared, as the holder of the share was told"
    )
    weak = UnverifiedSharesClient
    clients = 101
    colluders = 5
    settings = Settings(colluding=0.05, dropping=0.05)

    def mount(self, arena: Arena) -> Claim:
        server = MaliciousServer(arena)
        packets = server.share(server.advertise())
        threshold, near = server.config.threshold, server.server._directory.neighbors
        # The client with the most colluders around it needs the fewest shares of honest neighbors
        victim = min(arena.honest, key=lambda client: len(set(near[client]) & set(arena.honest)))
        around = [client for client in near[victim] if client in arena.honest]
        kept = around[: threshold - (len(near[victim]) - len(around))]
        unseen = [client for client in around if client not in kept]

        # More than two steps from the victim, so that these refusals do not reach its neighbors
        far = [client for client in arena.honest if client not in {v for u in near[victim] for v in (u, *near[u])}]
        few, none, named = far[:3]
        packets[few] = withheld(packets[few], near[few][threshold - 1 :])
        packets[none] = withheld(packets[none], near[none])
        packets[named] = replace(packets[named], deliveries=packets[named].deliveries[1:])
        packets[victim] = withheld(packets[victim], unseen)
        server.mask(packets)
        server.must_refuse([few, none], "fewer than t packets")
        server.must_refuse([named], "fewer packets than owners")
        everybody = server.server.shared
        included = everybody - {*kept, few, none, named}
        story = [
            f"handed t - 1 = {threshold - 1} packets: {server.fate([few])}; none: {server.fate([none])}; "
            f"one less than named: {server.fate([named])}",
            f"handed t = {threshold}, of {len(kept)} honest neighbors and {threshold - len(kept)} colluders: "
            f"{server.fate([victim])}",
            f"all others are told that everybody shared, and that the {len(kept)} have dropped out",
        ]
        honest = (included & set(arena.honest)) - {victim}
        signatures = server.attest(included - {victim}, included)
        refusing = [client for client in honest if server.fates[client] != "answered"]
        story.append(f"shown the survivors: {len(honest) - len(refusing)} answer, {len(refusing)} refuse")
        story.append(f"those who hold shares of client {victim}: {server.fate(set(unseen) & honest)}")
        question = quorum(signatures)
        server.unmask(dict.fromkeys(signatures.keys() & honest, question), included)
        opened = server.recover_sum([victim])
        figures = {
            "neighbors": len(near[victim]),
            "packets_handed_on": threshold,
            "neighbors_that_refuse": len(refusing),
        }
        sums = {} if opened is None else {frozenset({victim}): opened}
        return Claim(sums=sums, broken=server.taken, figures=figures, story=story)
