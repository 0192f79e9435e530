"""A failed round and its retry, with signatures of the first run in the second."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import MaliciousServer, quorum, withheld
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Header, Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack


class ProposalSignatureClient(Client):
    """Planted: its signatures under masked input and survivors name what was proposed, and not its fresh keys."""

    def _header(self, phase: Phase, sender: int) -> Header:
        header = super()._header(phase, sender)
        return replace(header, sid=self.proposal) if phase in (Phase.MASKED, Phase.ATTEST) else header


@dataclass(frozen=True, kw_only=True)
class Retry(ProtocolAttack):
    """The server lets a round fail, has it run again with the same nonce, and shows old signatures of the victim.

    In the first run the victim honestly signs a masked input for all clients that shared, and the survivors without some t
    neighbors; then the server reports that the run failed. In the second run all keys are fresh, but round, model,
    configuration and nonce are the old ones. Now the server sends the victim the packets of those t neighbors alone, so it
    masks for nobody else. The server shows all others the victim's signature of the first run, as if it had masked for
    everybody, and tells them that the t dropped out. So they reveal the mask keys of the t, and the neighbors that the
    victim did not mask for reveal its seed. A third run is honest except for the victim's attestation, which is taken from
    the first.
    """

    name = "retry"
    source = "found by reading this protocol's first version; the kind: Syverson, CSFW 1994 (replay into a later run)"
    number: ClassVar[int] = 5
    by = "both"
    stopped_by = "the session id contains all fresh keys, and stands in every signature: so a retry is another session"
    weak = ProposalSignatureClient

    def mount(self, arena: Arena) -> Claim:
        victim = arena.honest[0]
        first = MaliciousServer(arena)
        second, third = (MaliciousServer(arena, nonce=first.server._nonce) for _ in range(2))
        first.mask(first.share(first.advertise()))
        packets = second.share(second.advertise())

        near, everybody = second.server._directory.neighbors[victim], second.server.shared
        around = [client for client in near if client in arena.honest]
        # t neighbors in all, with the colluders among them: a client refuses fewer packets
        kept = around[: second.config.threshold - (len(near) - len(around))]
        included = everybody - set(kept)
        old = first.attest([victim], included)
        packets[victim] = withheld(packets[victim], [client for client in around if client not in kept])
        second.mask(packets)
        second.proofs[victim] = first.proofs[victim]
        others = [client for client in arena.honest if client in included and client != victim]
        signatures = second.attest(included - {victim}, included) | old
        story = [
            f"first run: client {victim} attests the survivors without clients {kept}",
            f"second run, client {victim}'s input is masked for clients {kept} and colluders alone, and shown with its "
            f"signature of the first: {second.fate(others)}",
        ]
        second.unmask(
            dict.fromkeys(signatures.keys() & set(others), quorum(dict(sorted(signatures.items())))), included
        )

        third.mask(third.share(third.advertise()))
        signatures = dict(sorted((third.attest(included - {victim}, included) | old).items()))
        third.unmask(dict.fromkeys(others, quorum(signatures)), included)
        story.append(f"third run, only its attestation is of the first: {third.fate(others)}")
        opened = second.recover_sum([victim])
        return Claim(sums={} if opened is None else {frozenset({victim}): opened}, story=story)
