"""Impossible sets of clients, at each step where the server names a set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fedguard.attacks.protocol.means.malicious import MaliciousServer, quorum, withheld
from fedguard.secagg import codec, messages
from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.parameters import Parameters, sparse
from fedguard.secagg.simulation import Settings


class UncheckedSetClient(Client):
    """Planted: it takes every set that the server names."""

    def _check_set(self, clients: frozenset[int], before: object, what: str) -> None:
        pass


class SmallSparseGraph(Settings):
    """A sparse graph for few clients: it gives no security, but quorum, members and threshold differ widely."""

    def parameters(self, clients: int) -> Parameters:
        return sparse(clients, self.colluding, self.dropping, security=1, failure=2)


@dataclass(frozen=True, kw_only=True)
class FalseSets(ProtocolAttack):
    """The server names clients that were not there before, leaves out whom it asks, or names fewer than were agreed on.

    Each lie has its own session: keys of too few clients; a set of sharing clients, or of survivors, with a client that
    never shared, without the receiver, or smaller than a quorum; fewer packets than owners; signatures of too few clients,
    of one client twice, or of a client that is no survivor. Each is a step towards a sum that is smaller than promised, so
    clients must refuse each at once.
    """

    name = "false_sets"
    source = "folklore; the checks of Bonawitz et al., CCS 2017, figure 4, on U1, U2, U3 and U4"
    number: ClassVar[int] = 22
    by = "both"
    stopped_by = (
        "each set is held against the one before it, against quorum and threshold, and must hold the client itself"
    )
    weak = UncheckedSetClient
    clients: ClassVar[int] = 20
    colluders: ClassVar[int] = 2
    settings: ClassVar[Settings] = SmallSparseGraph(colluding=0.1, dropping=0.1)

    def mount(self, arena: Arena) -> Claim:
        story, broken = [], []
        for what, lie in _LIES.items():
            server = MaliciousServer(arena)
            lie(server, arena.honest[0])
            story.append(server.must_refuse([arena.honest[0]], what))
            broken += server.taken
        return Claim(broken=broken, figures={"lies": len(_LIES)}, story=story)


def _few_keys(server: MaliciousServer, victim: int) -> None:
    server.advertise()
    entries = [(client, *entry) for client, entry in sorted(server.server._advertised.items())]
    server.ask(victim, messages.KeyRoster(tuple(entries[: server.config.members - 1])))


def _packets(server: MaliciousServer, victim: int) -> messages.ShareDistribution:
    """The packets for the victim; the last colluder never shares."""
    rosters = server.advertise()
    return server.share({client: roster for client, roster in rosters.items() if client != server.arena.colluders[-1]})[
        victim
    ]


def _lie_about_shares(
    change: Callable[[MaliciousServer, int, messages.ShareDistribution], messages.ShareDistribution],
) -> Callable[..., None]:
    """A lie about the clients that shared."""

    def lie(server: MaliciousServer, victim: int) -> None:
        packets = _packets(server, victim)
        server.ask(victim, change(server, victim, packets))

    return lie


def _few(server: MaliciousServer, victim: int, packets: messages.ShareDistribution) -> messages.ShareDistribution:
    return withheld(packets, packets.shared - _one_below_the_quorum(server, victim, packets.shared))


def _one_below_the_quorum(server: MaliciousServer, victim: int, clients: frozenset[int]) -> frozenset[int]:
    """The victim, its neighbors, and others, one fewer than a quorum in all."""
    near = server.server._directory.among(victim, clients)
    return frozenset([victim, *near, *sorted(clients - {victim, *near})][: server.config.quorum - 1])


def _lie_about_survivors(
    change: Callable[[MaliciousServer, int, frozenset[int]], frozenset[int]],
) -> Callable[..., None]:
    """A lie about the survivors."""

    def lie(server: MaliciousServer, victim: int) -> None:
        everybody = _mask_inputs(server)
        server.ask(victim, server.survivors(victim, change(server, victim, everybody)))

    return lie


def _mask_inputs(server: MaliciousServer) -> frozenset[int]:
    """All clients but the last colluder mask their inputs."""
    rosters = server.advertise()
    server.mask(server.share({v: roster for v, roster in rosters.items() if v != server.arena.colluders[-1]}))
    return server.server.shared


def _lie_about_signers(
    change: Callable[[MaliciousServer, Mapping[int, bytes]], messages.Quorum],
) -> Callable[..., None]:
    """A lie about the signers; the last colluder has masked its input, but the server reports it as dropped."""

    def lie(server: MaliciousServer, victim: int) -> None:
        server.mask(server.share(server.advertise()))
        included = server.server.shared - {server.arena.colluders[-1]}
        signatures = server.attest(included, included)
        told = messages.Attestation(codec.set_hash(server.server.shared), codec.set_hash(included))
        signatures[server.arena.colluders[-1]] = server.sign_as_colluder(server.arena.colluders[-1], told)
        server.ask(victim, change(server, signatures))

    return lie


def _outsider(server: MaliciousServer, signatures: Mapping[int, bytes]) -> messages.Quorum:
    last = sorted(signatures)[-server.config.quorum :]
    return quorum({client: signatures[client] for client in last})


def _one_twice(server: MaliciousServer, signatures: Mapping[int, bytes]) -> messages.Quorum:
    few = dict(sorted(signatures.items())[: server.config.quorum - 1])
    first, *others = few.values()
    return messages.Quorum(frozenset(sorted(signatures)[: server.config.quorum]), (first, first, *others))


#: The lies to a victim, with the functions that tell them.
_LIES: dict[str, Callable[[MaliciousServer, int], None]] = {
    "keys of too few": _few_keys,
    "shares of one that has dealt none": _lie_about_shares(
        lambda server, victim, packets: replace(packets, shared=packets.shared | {len(server.arena.roster)})
    ),
    "shares of others alone": _lie_about_shares(
        lambda server, victim, packets: replace(packets, shared=packets.shared - {victim})
    ),
    "shares of fewer than a quorum": _lie_about_shares(_few),
    "fewer packets than owners": _lie_about_shares(
        lambda server, victim, packets: replace(packets, deliveries=packets.deliveries[1:])
    ),
    "a survivor that has not shared": _lie_about_survivors(
        lambda server, victim, everybody: everybody | {len(server.arena.roster)}
    ),
    "survivors without the one that is asked": _lie_about_survivors(
        lambda server, victim, everybody: everybody - {victim}
    ),
    "survivors fewer than a quorum": _lie_about_survivors(_one_below_the_quorum),
    "signatures of too few": _lie_about_signers(
        lambda server, signatures: quorum(dict(sorted(signatures.items())[: server.config.quorum - 1]))
    ),
    "one signature twice": _lie_about_signers(_one_twice),
    "a signature of one that is no survivor": _lie_about_signers(_outsider),
}
