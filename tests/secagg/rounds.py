"""A round driven by hand, so that tests can bend any message on its way."""

from collections.abc import Callable

import numpy as np

from fedguard.secagg.client import Client
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.keys import Identity
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.session import Roster, SessionConfig, SessionPolicy
from fedguard.secagg.transitions import ServerState

MODEL = bytes(range(32))

#: (sender, receiver, bytes) -> the bytes that arrive, or None where nothing does. The server is -1.
Tap = Callable[[int, int, bytes], bytes | None]


def config(n: int, length: int = 5, **changed) -> SessionConfig:
    quorum = n // 2 + 1
    plain = {
        "length": length,
        "members": max(quorum, 3),
        "degree": n - 1,
        "threshold": max(quorum - 1, 2),
        "quorum": quorum,
    }
    return SessionConfig(**{**plain, **changed})


class Round:
    """n clients and a server on a network that a test controls.

    `complaints` collects (who, error) of every party.
    """

    def __init__(self, n: int = 4, *, seed: bytes = b"round", roster: Roster | None = None, round: int = 1, **changed):
        self.n, self.config, self.round, self.entropy = n, config(n, **changed), round, expand_seed(seed)
        self.identities = [Identity(self.entropy) for _ in range(n)]
        self.roster = roster or Roster(tuple(identity.public for identity in self.identities))
        self.inputs = np.random.default_rng(7).integers(
            0, 2**self.config.ring, (n, self.config.length), dtype=self.config.dtype
        )
        self.clients = [self.client(i) for i in range(n)]
        self.server = ProtocolServer(self.config, self.roster, round=round, model_hash=MODEL, entropy=self.entropy)
        self.complaints: list[tuple[int, ProtocolError]] = []

    def client(self, i: int, **changed) -> Client:
        facts = {
            "round": self.round,
            "model_hash": MODEL,
            "vector": lambda sid: self.inputs[i],
            "entropy": self.entropy,
        }
        policy = changed.pop("policy", SessionPolicy.like(self.config))
        return Client(i, changed.pop("identity", self.identities[i]), self.roster, policy, **{**facts, **changed})

    def sum(self, clients) -> np.ndarray:
        """The truth, element by element."""
        modulus = 2**self.config.ring
        columns = range(self.config.length)
        return np.array([sum(int(self.inputs[i][j]) for i in clients) % modulus for j in columns], self.config.dtype)

    def run(self, tap: Tap = lambda sender, receiver, data: data, order=lambda clients: clients) -> "Round":
        """Drive it to its end; `server.total` stays None where it was aborted."""
        mail = {i: self.server.hello() for i in range(self.n)}
        while self.server.state is not ServerState.DONE:
            answers = {}
            for i in order(list(mail)):
                data = tap(-1, i, mail[i])
                if data is not None:
                    answers[i] = self._ask(i, self.clients[i].receive, data)
            for i in order([i for i in answers if answers[i] is not None]):
                data = tap(i, -1, answers[i])
                if data is not None:
                    self._ask(-1, self.server.receive, data)
            mail = self._ask(-1, self.server.close)
            if mail is None:
                break
        return self

    def _ask(self, who, question, *arguments):
        try:
            return question(*arguments)
        except ProtocolError as error:
            self.complaints.append((who, error))
            return None

    def names(self) -> set[str]:
        return {type(error).__name__ for _, error in self.complaints}
