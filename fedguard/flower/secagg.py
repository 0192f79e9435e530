"""FedGuard's secure aggregation in Flower's messages: its bytes travel in a record of each, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedguard.flower.keeping import turn
from fedguard.secagg.client import Client
from fedguard.secagg.codec import UnreadableMessage, read_header
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.transitions import ClientState, ServerState

#: The kind of message, the record in it, and its keys: the protocol's bytes, or why a client gives none.
KIND, RECORD, BYTES, REFUSED = "train.secagg", "fedguard.secagg", "bytes", "refused"


def secagg_client(join: Callable[[Context, int], Client], keep: Callable[[Context], Path] | None = None) -> ClientApp:
    """A client app that answers the protocol's messages.

    A node has one party for each round of a run, and rounds only go up: a server that begins one anew, or goes back to one, is
    refused.

    Args:
        join: from the node's context and a round its party: with the roster and policy that the node was told out of band, its
            long-term identity, and its input. With ``keep`` it is called for each message.
        keep: the folder in which a node, and nobody else, keeps its party between messages, sealed under its identity. Without
            it the party is in this process alone, which has to stay from one message to the next: it does over FedGuard's own
            Grid, and does not where Flower starts a process for each message.
    """
    app, alone = ClientApp(), InMemoryParties(join)

    @app.train(KIND.partition(".")[2])
    def answer(message: Message, context: Context) -> Message:
        record = message.content.config_records[RECORD]
        try:
            data = record[BYTES]
            assert isinstance(data, bytes)
            answered = (
                alone.answer_message(data, context) if keep is None else on_disk(data, context, join, keep(context))
            )
            told = ConfigRecord({BYTES: answered})
        except (ProtocolError, UnreadableMessage) as error:
            told = ConfigRecord({REFUSED: str(error)})
        return Message(RecordDict({RECORD: told}), reply_to=message)

    return app


class InMemoryParties:
    """Parties that live as long as this process."""

    def __init__(self, join: Callable[[Context, int], Client]) -> None:
        self._join, self._adding = join, Lock()
        self._parties: dict[tuple[int, int], tuple[int, Client]] = {}

    def answer_message(self, data: bytes, context: Context) -> bytes:
        """The party's answer to a message. Raises ProtocolError, Unreadable."""
        return self._party(context, read_header(data).round).receive(data)

    def _party(self, context: Context, round: int) -> Client:
        node = context.run_id, context.node_id
        with self._adding:
            last, party = self._parties.get(node, (-1, None))
            if round < last:
                raise UnreadableMessage(f"round {round} is over")
            if round > last or party is None:
                if party is not None:
                    party.close()
                party = self._join(context, round)
                self._parties[node] = round, party
            return party


def on_disk(data: bytes, context: Context, join: Callable[[Context, int], Client], folder: Path) -> bytes:
    """The answer of a party that is gone on with, and kept before it is given.

    Raises:
        ProtocolError, Unreadable: there is none.
    """
    round = read_header(data).round
    with turn(folder, context.run_id, context.node_id) as slot:
        if round < slot.round or (round == slot.round and not slot.sealed):
            raise UnreadableMessage(f"round {round} is over")
        party = join(context, round)
        if round == slot.round:
            party.go_on(slot.sealed)
        try:
            return party.receive(data)
        finally:
            if party.state is not ClientState.NEW:  # a message that begins nothing ends nothing
                slot.write(round, party.keep())


def secagg_sum(grid: Grid, nodes: Sequence[int], server: ProtocolServer, *, timeout: float | None = None) -> list[str]:
    """Carry a session over a Grid to its end, after which ``server.total`` is the sum of the inputs of ``server.included``.

    A node that does not answer in time, refuses or fails has dropped out from that step on; what it sends later has no place.

    Args:
        nodes: for each place of the roster, the node.
        server: a new session.
        timeout: of each step, in seconds.

    Returns:
        what went wrong without stopping the round, in words.

    Raises:
        ProtocolError: the round cannot be finished, as with too few survivors.
    """
    mail, said = dict.fromkeys(range(len(nodes)), server.hello()), list[str]()
    while server.state is not ServerState.DONE:
        sent = [
            Message(RecordDict({RECORD: ConfigRecord({BYTES: data})}), nodes[place], KIND)
            for place, data in mail.items()
        ]
        for reply in grid.send_and_receive(sent, timeout=timeout):
            record = {} if reply.has_error() else reply.content.config_records.get(RECORD, {})
            data = record.get(BYTES)
            if isinstance(data, bytes):
                try:
                    server.receive(data)
                except ProtocolError as error:
                    said.append(str(error))
            else:
                why = reply.error.reason if reply.has_error() else record.get(REFUSED, "no bytes of the protocol")
                said.append(f"node {reply.metadata.src_node_id}: {why}")
        mail = server.close()
    return said + [str(error) for error in server.blamed]
