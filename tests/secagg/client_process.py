"""One client in a process of its own: `python client_process.py PORT VALUE`. Frames on the socket have a length of 4 bytes.

It sends its public identity and process id, is told its place and the pinned roster, and then answers the server until it hangs up.
"""

import os
import socket
import sys

import numpy as np

from fedguard.secagg.client import Client
from fedguard.secagg.keys import Identity
from fedguard.secagg.session import Roster, SessionPolicy

LENGTH = 1000


def frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(exactly(connection, 4), "little")
    return exactly(connection, size)


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(len(data).to_bytes(4, "little") + data)


def main(port: int, value: int) -> None:
    identity = Identity()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        send(connection, identity.public + os.getpid().to_bytes(4, "little"))
        place = int.from_bytes(frame(connection), "little")
        packed = frame(connection)
        roster = Roster(tuple(packed[i : i + 32] for i in range(0, len(packed), 32)))
        vector = np.full(LENGTH, value, np.uint32) + np.arange(LENGTH, dtype=np.uint32)
        policy = SessionPolicy(
            members=3, threshold=2, quorum=3, degree=len(roster) - 1, length=LENGTH, context=bytes(32)
        )
        client = Client(place, identity, roster, policy, round=1, model_hash=bytes(32), vector=lambda sid: vector)
        try:
            while True:
                send(connection, client.receive(frame(connection)))
        except EOFError:
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
