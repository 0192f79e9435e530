"""A second message before the first one is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import MaliciousServer, quorum, withheld
from fedguard.secagg import codec, messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Header
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.masks import add_masks
from fedguard.secagg.messages import Message, ReceivedMessage


class ReentrantClient(Client):
    """Planted: it derives its masks, then asks for its input, and takes messages while it waits."""

    def receive(self, data: bytes) -> bytes:
        return self._answer(data)

    def _mask_input(self, header: Header, shares: messages.ShareDistribution) -> Message:
        self._shared, partners = shares.shared, self._directory.among(self.id, shares.shared)
        self._held |= {delivery.owner: self._decrypt_shares(delivery) for delivery in shares.deliveries}
        masks = [self._self_mask(), *map(self._pairwise_mask, partners)]
        masked = self._input()
        add_masks(masked, masks)
        self._wipe(keep_shares=True)
        return messages.MaskedInput(codec.set_hash(shares.shared), masked.tobytes())


@dataclass(frozen=True, kw_only=True)
class Race(ProtocolAttack):
    """The server sends a client two sets of shares at the same time, while it prepares its input, and has two signed inputs.

    In the first set only t of the victim's neighbors have shared, in the second everybody. The server combines the input
    masked for the few with the signature under the set for all, and shows this signature to all other clients. It tells
    them that the t dropped out: so they reveal the mask keys of the t, and the neighbors that the victim did not mask for
    reveal its seed.
    """

    name = "race"
    source = "folklore: CWE-362 (race condition), CWE-367 (time of check, time of use)"
    number: ClassVar[int] = 3
    by = "both"
    stopped_by = "a client answers one message at a time, and refuses what comes meanwhile"
    weak = ReentrantClient

    def mount(self, arena: Arena) -> Claim:
        victim, second = arena.honest[0], dict[int, ReceivedMessage | None]()

        def meanwhile(client: int) -> None:
            if client == victim and client not in second:
                # Set before asking: a client without the guard asks for its input again, and would come back here without
                # end
                second[client] = None
                second[client] = server.ask(victim, whole)
                story.append(
                    f"client {victim}, which prepares its input for a few, is told that all shared: {server.fate([victim])}"
                )

        server, story = MaliciousServer(arena, meanwhile=meanwhile), list[str]()
        packets = server.share(server.advertise())
        whole, near = packets[victim], server.server._directory.neighbors[victim]
        around = [client for client in near if client in arena.honest]
        # t neighbors in all, with the colluders among them: a client refuses fewer packets
        kept = around[: server.config.threshold - (len(near) - len(around))]
        packets[victim] = withheld(whole, [client for client in around if client not in kept])
        server.mask(packets)
        answer = second.get(victim)
        if answer is not None:
            assert isinstance(answer.message, messages.MaskedInput)
            server.proofs[victim] = answer.message.vector_hash + answer.signature
        included = server.server.shared - set(kept)
        signatures = server.attest(sorted(included), included)
        others = [client for client in arena.honest if client in included and client != victim]
        story.append(
            f"all others are told that clients {kept} dropped out, and shown what it signed: {server.fate(others)}"
        )
        server.unmask(dict.fromkeys(signatures.keys() & set(others), quorum(signatures)), included)
        opened = server.recover_sum([victim])
        return Claim(sums={} if opened is None else {frozenset({victim}): opened}, story=story)
