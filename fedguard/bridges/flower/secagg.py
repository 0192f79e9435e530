"""FedGuard's secure aggregation over Flower's messages: each carries the protocol's bytes in one record, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedguard.bridges.flower.keeping import turn
from fedguard.secagg.client import Client
from fedguard.secagg.codec import UnreadableMessage, read_header
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.transitions import ClientState, ServerState

#: The type of message, the record in it, and its keys: the protocol's bytes, or the reason why a client refused.
KIND, RECORD, BYTES, REFUSED = "train.secagg", "fedguard.secagg", "bytes", "refused"


def secagg_client(join: Callable[[Context, int], Client], keep: Callable[[Context], Path] | None = None) -> ClientApp:
    """A client app that answers the protocol's messages.

    A node has one protocol client for each round of a run, and rounds only increase. A node refuses a server that restarts a
    round or returns to an earlier one.

    Args:
        join: makes the node's protocol client from its context and a round: with the roster and policy that the node learned
            out of band, its long-term identity, and its input. With ``keep`` it is called for each message.
        keep: a folder that belongs to the node alone, for the state of the client between messages, sealed under the node's
            identity. Without it, the state lives in memory, so one process must serve the whole session. FedGuard's own Grid
            guarantees this; Flower's deployment, which starts a process for each message, does not.
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
        # A refusal is an answer; an exception would count as a failure of the app
        except (ProtocolError, UnreadableMessage) as error:
            told = ConfigRecord({REFUSED: str(error)})
        return Message(RecordDict({RECORD: told}), reply_to=message)

    return app


class InMemoryParties:
    """Protocol clients in the memory of this process."""

    def __init__(self, join: Callable[[Context, int], Client]) -> None:
        self._join, self._adding = join, Lock()
        self._parties: dict[tuple[int, int], tuple[int, Client]] = {}

    def answer_message(self, data: bytes, context: Context) -> bytes:
        """The answer of the node's protocol client. Raises ProtocolError, UnreadableMessage."""
        return self._party(context, read_header(data).round).receive(data)

    def _party(self, context: Context, round: int) -> Client:
        node = context.run_id, context.node_id
        with self._adding:
            last, party = self._parties.get(node, (-1, None))
            # A fresh client for an old round would answer it a second time
            if round < last:
                raise UnreadableMessage(f"round {round} is over")
            if round > last or party is None:
                if party is not None:
                    party.close()
                party = self._join(context, round)
                self._parties[node] = round, party
            return party


def on_disk(data: bytes, context: Context, join: Callable[[Context, int], Client], folder: Path) -> bytes:
    """The answer of a protocol client that resumes from the disk; its new state is written before the answer is returned.

    Raises:
        ProtocolError, UnreadableMessage: there is no answer.
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
            # Also after an error, or a client that aborted could resume. But garbage that only names a higher round, which
            # leaves the client new, must not end the round that is in progress
            if party.state is not ClientState.NEW:
                slot.write(round, party.keep())


def secagg_sum(grid: Grid, nodes: Sequence[int], server: ProtocolServer, *, timeout: float | None = None) -> list[str]:
    """Run a session over a Grid to its end, after which ``server.total`` is the sum of the inputs of ``server.included``.

    A node that refuses, fails or does not answer in time counts as dropped out from that step on; later messages of it are
    ignored.

    Args:
        nodes: Flower's node ids, in the order of the roster.
        server: a new session.
        timeout: limit for each step, in seconds.

    Returns:
        errors that did not stop the round, in words.

    Raises:
        ProtocolError: the round cannot be finished, for example because too few clients survive.
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
