"""A model without a gradient for all but one (Pasquini et al., CCS 2022)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedguard.attacks.protocol.means.relay import Peer, Relay, try_delivery
from fedguard.secagg.client import Client
from fedguard.secagg.codec import SERVER, Header, Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.messages import KeyAdvertisement, KeyRoster, pack, unpack


class ModelBlindClient(Client):
    """Planted: it hashes no model into the session; where the hash belongs stand zeros."""

    def __init__(self, *facts: Any, model_hash: bytes, **others: Any) -> None:
        super().__init__(*facts, model_hash=bytes(len(model_hash)), **others)


@dataclass(frozen=True, kw_only=True)
class ModelPerClient(ProtocolAttack):
    """The server sends a victim the true model, and all others one with dead neurons, on which every gradient is zero.

    The inputs of the others are then zeros, and the sum, properly masked, is the victim's input. The attack works if the
    masks cancel although the models differ. The server tries one session for all, with either model or with none in its
    header; and a session for each model, in which it tells the victim that the others' keys belong to the victim's session.
    """

    name = "model_per_client"
    source = (
        "Pasquini, Francati and Ateniese, Eluding Secure Aggregation in Federated Learning via Model Inconsistency, "
        "CCS 2022"
    )
    number: ClassVar[int] = 8
    by = "server"
    stopped_by = (
        "the session id, from which all keys follow, contains the hash of the model that a client itself received"
    )
    weak = ModelBlindClient

    def mount(self, arena: Arena) -> Claim:
        victim, *others = arena.honest
        dead = hashlib.sha256(b"dead neurons" + arena.model_hash).digest()
        story = [f"client {victim} gets the true model, clients {others[0]}..{others[-1]} one without a gradient"]
        for whose, model in (("the true model", arena.model_hash), ("the dead one", dead), ("none", bytes(32))):
            relay = Relay(arena.server(model_hash=model), self._peers(arena, victim, dead, model))
            try:
                total = relay.run().server.total
            except ProtocolError as error:
                story.append(f"one session, made out for {whose}: {relay.refusals()}, and {type(error).__name__}")
                continue
            if victim not in relay.server.included:
                story.append(f"one session, made out for {whose}: {relay.refusals()}, and a sum of zeros")
                continue
            assert total is not None
            for colluder in relay.server.included & set(arena.colluders):
                total = total - arena.input(colluder)
            story.append(f"one session, made out for {whose}: nobody objects, and the sum holds a single input")
            return Claim(sums={frozenset({victim}): total}, story=story)
        return Claim(story=[*story, *self._a_session_each(arena, victim, dead)])

    def _peers(self, arena: Arena, victim: int, dead: bytes, model: bytes) -> Mapping[int, Peer]:
        """The victim, the idle others, and colluders that claim to hold ``model``."""
        peers: dict[int, Peer] = {**arena.parties(model_hash=dead, idle=True), victim: arena.parties()[victim]}
        for client in arena.colluders:
            peers[client] = accomplice = arena.accomplice(client)
            accomplice._model_hash = model
        return peers

    def _a_session_each(self, arena: Arena, victim: int, dead: bytes) -> list[str]:
        """Tries to bring the others' keys, from a session for the dead model, into the victim's session."""
        story = []
        for deceit in ("as they are", "with the true model's hash", "left out"):
            peers = self._peers(arena, victim, dead, arena.model_hash)
            true, other = arena.server(), arena.server(model_hash=dead)
            entries = []
            for client, peer in sorted(peers.items()):
                with_victim = client == victim or client in arena.colluders
                answer, fate = try_delivery(peer, (true if with_victim else other).hello())
                if answer is None:
                    return [f"a session for each model: client {client}: {fate}"]
                received = unpack(answer)
                assert isinstance(received.message, KeyAdvertisement)
                claimed = arena.model_hash if deceit == "with the true model's hash" else received.message.model_hash
                if with_victim or deceit != "left out":
                    entries.append((client, replace(received.message, model_hash=claimed), received.signature))
            header = Header(arena.config.suite, Phase.ROSTER, true.proposal, arena.round, SERVER)
            _, fate = try_delivery(peers[victim], pack(header, KeyRoster(tuple(entries))))
            story.append(f"a session for each model, the others' keys {deceit}: client {victim}: {fate}")
        return story
