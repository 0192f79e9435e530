"""FedGuard's secure aggregation in Flower's messages: its bytes travel in a record of each, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedguard.secagg.client import Client
from fedguard.secagg.codec import Unreadable, read_header
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.server import Server
from fedguard.secagg.transitions import ServerState

#: The kind of message, the record in it, and its keys: the protocol's bytes, or why a client gives none.
KIND, RECORD, BYTES, REFUSED = "train.secagg", "fedguard.secagg", "bytes", "refused"


def secagg_client(join: Callable[[Context, int], Client]) -> ClientApp:
    """A client app that answers the protocol's messages.

    A node has one party for each round, and rounds only go up: a server that begins one anew, or goes back to one, is
    refused. The party and its secrets are in this process alone, so the process has to stay from one message to the next: it
    does in FedGuard's own Grid, and does not where Flower starts a process for each message.

    Args:
        join: from the node's context and a round its party: with the roster and policy that the node was told out of band, its
            long-term identity, and its input.
    """
    app, parties, adding = ClientApp(), dict[tuple[int, int], tuple[int, Client]](), Lock()

    def party_of(context: Context, round: int) -> Client | None:
        with adding:
            last, party = parties.get((context.run_id, context.node_id), (-1, None))
            if round > last:
                if party is not None:
                    party.close()
                party = join(context, round)
                parties[context.run_id, context.node_id] = round, party
            return party if round >= last else None

    @app.train(KIND.partition(".")[2])
    def answer(message: Message, context: Context) -> Message:
        record = message.content.config_records[RECORD]
        try:
            data = record[BYTES]
            assert isinstance(data, bytes)
            round = read_header(data).round
            party = party_of(context, round)
            told = ConfigRecord({REFUSED: f"round {round} is over"} if party is None else {BYTES: party.receive(data)})
        except (ProtocolError, Unreadable) as error:
            told = ConfigRecord({REFUSED: str(error)})
        return Message(RecordDict({RECORD: told}), reply_to=message)

    return app


def secagg_sum(grid: Grid, nodes: Sequence[int], server: Server, *, timeout: float | None = None) -> list[str]:
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
