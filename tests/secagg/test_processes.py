"""Five clients in operating-system processes of their own; one is killed in the middle of the round."""

import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedguard.secagg.codec import Phase, read_header
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.session import Roster, SessionConfig
from fedguard.secagg.transitions import ServerState
from tests.secagg.client_process import LENGTH, frame, send

CLIENTS = 5
SCRIPT = Path(__file__).parent / "client_process.py"


@pytest.mark.parametrize(("killed_after", "survives"), [(Phase.SHARE, False), (Phase.MASKED, True)])
def test_one_client_is_killed_and_the_sum_is_still_right(killed_after, survives):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        processes = [
            subprocess.Popen([sys.executable, str(SCRIPT), str(port), str(10**i % 997)]) for i in range(CLIENTS)
        ]
        values = {process.pid: 10**i % 997 for i, process in enumerate(processes)}
        listener.settimeout(60)
        try:
            connections = [listener.accept()[0] for _ in processes]
            server, pids, victim = drive(connections, killed_after)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            for connection in connections:
                connection.close()
    assert set(server.included) == set(range(CLIENTS)) - (set() if survives else {victim})
    expected = sum(values[pids[place]] + np.arange(LENGTH) for place in server.included)
    assert server.total.tolist() == expected.tolist()
    assert {p.pid: p.returncode for p in processes}[pids[victim]] == -signal.SIGKILL


def drive(connections, killed_after):
    """The server's side of the network: relay frames, and kill client 2 once it has sent ``killed_after``."""
    for connection in connections:
        connection.settimeout(60)
    cards = [frame(connection) for connection in connections]
    pids = [int.from_bytes(card[32:], "little") for card in cards]
    roster = Roster(tuple(card[:32] for card in cards))
    for place, connection in enumerate(connections):
        send(connection, place.to_bytes(4, "little"))
        send(connection, b"".join(roster.identities))
    config = SessionConfig(length=LENGTH, members=3, degree=CLIENTS - 1, threshold=2, quorum=3)
    server = ProtocolServer(config, roster, round=1, model_hash=bytes(32))
    victim, alive = 2, set(range(CLIENTS))
    mail = dict.fromkeys(range(CLIENTS), server.hello())
    while server.state is not ServerState.DONE:
        for place in set(mail) & alive:
            send(connections[place], mail[place])
        for place, data in answers(connections, set(mail) & alive):
            server.receive(data)
            if place == victim and read_header(data).phase is killed_after:
                os.kill(pids[victim], signal.SIGKILL)
                alive.discard(victim)
        mail = server.close()
    return server, pids, victim


def answers(connections, places):
    """(place, frame), as they come in."""
    with selectors.DefaultSelector() as selector:
        for place in places:
            selector.register(connections[place], selectors.EVENT_READ, place)
        while selector.get_map():
            ready = selector.select(timeout=60)
            assert ready, "no client answered within a minute"
            for key, _ in ready:
                selector.unregister(key.fileobj)
                yield key.data, frame(key.fileobj)
