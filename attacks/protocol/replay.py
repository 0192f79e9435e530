"""Old messages, and messages for others, in place of new ones (Syverson, A taxonomy of replay attacks, CSFW 1994)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import KEY, SEED, MaliciousServer, quorum
from fedguard.secagg import messages
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Header, Phase
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.directory import Directory
from fedguard.secagg.messages import Delivery


class SessionlessSignatureClient(Client):
    """Planted: its signature over the survivors names neither session nor round."""

    def _header(self, phase: Phase, sender: int) -> Header:
        header = super()._header(phase, sender)
        return replace(header, sid=bytes(32), round=0) if phase is Phase.ATTEST else header


@dataclass(frozen=True, kw_only=True)
class Replay(ProtocolAttack):
    """The server says again what was said in other sessions, or hands out what was made for others.

    Signatures: in one session the victim survives and in another it drops out, and all clients attest both, honestly. In
    the third session each half of the clients is shown the signatures of one of these. Messages: each message of an earlier
    round replaces the new one. A session: the server proposes the same nonce again, and shows the victim old keys of
    others, some with secrets known by then. Shares: packets that were made for another receiver or by another sender. A
    colluder also distributes the victim's own packets as its own, so that a client that means to reveal a share of the
    colluder's mask key reveals a share of the victim's.
    """

    name = "replay"
    source = "Syverson, A Taxonomy of Replay Attacks, CSFW 1994 (the kinds of replay)"
    number: ClassVar[int] = 5
    by = "both"
    stopped_by = (
        "the session id, which contains all fresh keys, in every signature and every key; shares that open only from their "
        "owner to their holder"
    )
    weak = SessionlessSignatureClient

    def mount(self, arena: Arena) -> Claim:
        victim = arena.honest[-1]
        story, third = _signatures(arena, victim)
        opened, servers = third.recover_sum([victim]), []
        for told, asked in (_messages(arena, victim), _session(arena, victim), _shares(arena, victim)):
            story += told
            servers += asked
        shares = {f"{kind}_shares": len(third.shares.get((victim, kind), ())) for kind in (SEED, KEY)}
        return Claim(
            sums={} if opened is None else {frozenset({victim}): opened},
            blamed=set().union(*(server.named for server in servers)),
            broken=[what for server in servers for what in server.taken],
            figures=shares,
            story=story,
        )


def _signatures(arena: Arena, victim: int) -> tuple[list[str], MaliciousServer]:
    """Attestations of two sessions, shown to the two halves of the clients of a third."""
    old: dict[frozenset[int], dict[int, bytes]] = {}
    for round, absent in ((1, {victim}), (2, set[int]())):
        server = MaliciousServer(arena, round=round)
        server.mask(server.share(server.advertise()))
        included = server.server.shared - absent
        old[included] = server.attest(included & set(arena.honest), included)
    server = MaliciousServer(arena, round=3)
    server.mask(server.share(server.advertise()))
    others = [client for client in arena.honest if client != victim]
    halves = others[: len(others) // 2], others[len(others) // 2 :]
    for (included, signatures), half in zip(old.items(), halves, strict=True):
        server.attest(half, included)
        server.unmask(dict.fromkeys(half, quorum(signatures)), included)
    return [
        f"in round 1 all attest that client {victim} dropped out, in round 2 that it survived",
        f"in round 3 clients {halves[0]} are shown the signatures of round 1, {halves[1]} those of round 2: "
        f"{server.fate(others)}",
    ], server


#: The story, and the servers that took part.
Told = tuple[list[str], list[MaliciousServer]]


def _messages(arena: Arena, victim: int) -> Told:
    """Each message of round 1 to the victim, in place of the message of round 2."""
    fates: list[str] = []
    old = _honestly(MaliciousServer(arena, round=1), victim, fates, [])
    _honestly(later := MaliciousServer(arena, round=2), victim, fates, old)
    return [f"each message of round 1 once more in round 2, before the new one: {', '.join(fates)}"], [later]


def _honestly(server: MaliciousServer, victim: int, fates: list[str], old: list[bytes]) -> list[bytes]:
    """An honest session; before each message the victim is shown the same one of an old session. Returns its messages."""
    said: list[bytes] = []

    def first(message: messages.Message | bytes) -> None:
        if old:
            server.ask(victim, old[len(said)])
            fates.append(server.fates[victim])
            server.must_refuse([victim], f"message {len(said) + 1} of an earlier round")
        said.append(server.pack(message))

    first(server.server.hello())
    rosters = server.advertise()
    first(rosters[victim])
    packets = server.share(rosters)
    first(packets[victim])
    server.mask(packets)
    everybody = server.server.shared
    first(server.survivors(victim, everybody))
    question = quorum(server.attest(server.arena.honest, everybody))
    first(question)
    server.unmask({victim: question}, everybody)
    return said


def _session(arena: Arena, victim: int) -> Told:
    """The same nonce three times: others' mask keys of the first two sessions are known, and shown in the third."""
    others = [client for client in arena.honest if client != victim]
    first = MaliciousServer(arena)
    entries: dict[int, tuple[int, messages.KeyAdvertisement, bytes]] = {}
    packets: dict[int, Delivery] = {}
    second, third = (MaliciousServer(arena, nonce=first.server._nonce) for _ in range(2))
    for server, dropped in ((first, others[: len(others) // 2]), (second, others[len(others) // 2 :])):
        mail = server.share(server.advertise())
        server.mask(mail)
        staying = server.server.shared - set(dropped)
        question = quorum(server.attest(staying, staying))
        server.unmask(dict.fromkeys(staying - server.accomplices.keys(), question), staying)
        known = [client for client in dropped if server.secret(client, KEY) is not None]
        entries |= {client: (client, *server.server._advertised[client]) for client in known}
        packets |= {delivery.owner: delivery for delivery in mail[victim].deliveries if delivery.owner in known}
    third.advertise()
    entries = {client: (client, *entry) for client, entry in third.server._advertised.items()} | entries
    third.ask(victim, messages.KeyRoster(tuple(entry for _, entry in sorted(entries.items()))))
    keys = third.fates[victim]
    shown = Directory(
        third.server.proposal, third.config, third.round, {c: entry for c, (_, entry, _) in sorted(entries.items())}
    )
    third.server.sid = shown.sid
    third.ask(
        victim, messages.ShareDistribution(frozenset([victim, *packets]), tuple(packets[u] for u in sorted(packets)))
    )
    third.must_refuse([victim], "packets of an earlier session with the same nonce")
    return [
        f"the same nonce again, with old keys of clients {sorted(packets)}, whose mask keys were opened: client {victim} "
        f"{keys}; with the packets that they made for it then: {third.fates[victim]}"
    ], [third]


def _shares(arena: Arena, victim: int) -> Told:
    """Packets for other receivers, from other senders, altered, and copied by a colluder."""
    one, other, *_ = arena.honest
    story, servers = [], []
    for what in _BENT:
        servers.append(server := MaliciousServer(arena))
        packets = server.share(server.advertise())
        mine = {delivery.owner: delivery for delivery in packets[victim].deliveries}
        if what.startswith("another"):
            field = {what.rpartition(" ")[2]: arena.entropy(32)}
            mine[one] = replace(mine[one], packet=replace(mine[one].packet, **field))
        elif what.startswith("two"):
            mine[one], mine[other] = replace(mine[other], owner=one), replace(mine[one], owner=other)
        else:
            mine |= {delivery.owner: delivery for delivery in packets[other].deliveries if delivery.owner == one}
        server.ask(victim, replace(packets[victim], deliveries=tuple(mine[owner] for owner in sorted(mine))))
        story.append(server.must_refuse([victim], what))
    servers.append(server := MaliciousServer(arena))
    packets = server.share(server.advertise())
    copied = _copy_packets(server, victim, arena.colluders[0])
    server.server._shares[arena.colluders[0]] = copied, server.sign_as_colluder(arena.colluders[0], copied)
    server.ask_all(
        {client: message for client, message in server.server._deliveries().items() if client in arena.honest}
    )
    story.append(server.must_refuse(arena.honest, f"client {arena.colluders[0]} deals out client {victim}'s packets"))
    return story, servers


_BENT = (
    "a packet that was made for another",
    "two packets with their senders exchanged",
    "another commitment in the place of seed_share",
    "another commitment in the place of key_share",
)


def _copy_packets(server: MaliciousServer, victim: int, colluder: int) -> messages.ShareSubmission:
    """The victim's packets, in the order of the colluder's own."""
    near, share = server.server._directory.neighbors, server.server._shares[victim][0]
    places = {holder: place for place, holder in enumerate(near[victim])}
    return messages.ShareSubmission(
        share.seed, tuple(share.packets[places.get(holder, 0)] for holder in near[colluder])
    )
