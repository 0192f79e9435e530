"""Two sums that differ in one client."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.relay import Peer, Relay, try_delivery
from fedguard.secagg.codec import Header, Phase, set_hash
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.messages import Attestation, Message, Quorum, Survivors, signature_payload, unpack
from fedguard.secagg.transitions import ServerState


@dataclass(frozen=True, kw_only=True)
class Differencing(ProtocolAttack):
    """The server takes the sum of all in one session, and in the next the sum of all but the victim.

        $sum_{i in U} x_i - sum_{i in U, i != v} x_i = x_v$,      if the inputs are the same in both sessions

    In the first session the server also tries two sets of survivors: it asks a second time, and it shows the full set to
    some clients and the smaller set to the others, in any split. The colluder signs both.
    """

    name = "differencing"
    source = "folklore; of sums that differ in one row: Denning, Denning and Schwartz, The Tracker, ACM TODS 1979"
    number: ClassVar[int] = 10
    by = "both"
    stopped_by = (
        "within a session, one attestation per client and a quorum that two sets cannot both have; across sessions nothing "
        "but inputs that change, or noise"
    )
    outside = "each of the two sums is as large as promised; that inputs do not repeat is not the masks' affair"

    def mount(self, arena: Arena) -> Claim:
        victim, *others = arena.honest
        whole, story = self._session(arena, 1, arena.honest), []
        refusals = self._repeat_attestation(whole, victim)
        story.append(f"one session, all asked a second time, for the survivors without client {victim}: {refusals}")
        opened = [self._count_split_openings(arena, victim, others[:count]) for count in range(1, len(others) + 1)]
        story.append(
            f"one session, client {victim} a survivor for some and dropped for 1 to {len(others)} others: "
            f"at most {max(opened)} set of survivors finds a quorum"
        )
        rest = self._session(arena, 2, others)
        assert whole.server.total is not None and rest.server.total is not None
        story.append(f"two sessions, the second without client {victim}: the sums differ by its input")
        return Claim(
            sums={frozenset({victim}): whole.server.total - rest.server.total},
            broken=["one session has given two sums"] if max(opened) > 1 else [],
            figures={"sessions": 2, "sums_within_one_session": max(opened), "splits_tried": len(opened)},
            story=story,
        )

    def _session(
        self, arena: Arena, round: int, honest: Collection[int], until: ServerState = ServerState.DONE
    ) -> Relay:
        """A session of an honest server with these clients and the colluders; the other clients do not take part."""
        peers: dict[int, Peer] = {client: arena.parties(round=round)[client] for client in honest}
        peers |= {client: arena.accomplice(client, round=round) for client in arena.colluders}
        return Relay(arena.server(round=round), peers).run(until)

    def _repeat_attestation(self, relay: Relay, victim: int) -> str:
        """Ask all other clients, after the session, to attest again, to survivors without the victim."""
        smaller = relay.server.included - {victim}
        others = [client for client in relay.peers if client != victim]
        return ", ".join(
            sorted({try_delivery(relay.peers[client], _survivors(relay, client, smaller))[1] for client in others})
        )

    def _count_split_openings(self, arena: Arena, victim: int, deceived: Collection[int]) -> int:
        """How many sets of survivors get t shares, if the server tells some clients that the victim dropped out."""
        relay = self._session(arena, 1, arena.honest, ServerState.ATTESTING)
        server, opened = relay.server, 0
        for included in (server.included, server.included - {victim}):
            attest = Attestation(set_hash(server.shared), set_hash(included))
            signatures = {client: self._sign_attestation(arena, relay, client, attest) for client in arena.colluders}
            told = [client for client in arena.honest if (client in deceived) == (victim not in included)]
            for client in told:
                answer, _ = try_delivery(relay.peers[client], _survivors(relay, client, included))
                if answer is not None:
                    signatures[client] = unpack(answer).signature
            quorum = Quorum(frozenset(signatures), tuple(signature for _, signature in sorted(signatures.items())))
            answers = [try_delivery(relay.peers[client], server._message(quorum))[0] for client in told]
            # Colluders contribute their shares to both sets
            shares = len(arena.colluders) + sum(answer is not None for answer in answers)
            opened += shares >= arena.config.threshold
        return opened

    def _sign_attestation(self, arena: Arena, relay: Relay, client: int, message: Message) -> bytes:
        """A colluder's signature over any message."""
        header = Header(arena.config.suite, Phase.ATTEST, relay.server.sid, arena.round, client)
        return arena.identity(client).sign(signature_payload(header, message))


def _survivors(relay: Relay, client: int, included: frozenset[int]) -> bytes:
    """The survivors as a message to a client, with the proofs that it checks."""
    server = relay.server
    proofs = tuple(server._added[v] for v in server._directory.among(client, included))
    return server._message(Survivors(included, proofs))
