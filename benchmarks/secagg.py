"""Secure aggregation beside Flower's SecAgg+: CPU time of its steps, in alternation in one run, and bytes on the wire.

Flower runs in an interpreter of its own: this one, if it has flwr, or that of ``--flower``; see `secagg_flower.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from measure import arguments, keep

from fedguard.secagg import keys, shamir
from fedguard.secagg.client import Client
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.masks import add_masks
from fedguard.secagg.parameters import choose
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.session import Roster, SessionConfig, SessionPolicy

#: What is timed -> the job of Flower that does the same, and how it is called in the table.
STEPS = {
    "masks, AES-128": ("masks", "a client's masks, AES-128"),
    "masks, AES-256": ("masks", "a client's masks, AES-256"),
    "client": ("client", "client, from shares to masked input"),
    "shares": ("shares", "shares of a client's two secrets"),
    "removal": ("removal", "the server's masks, AES-128"),
    "server": ("server", "server, from masked inputs to sum"),
}
MODEL = bytes(32)


class Session:
    """A round of which every message is kept, so that each party's part can be played again."""

    def __init__(self, n: int, d: int, dropped: int) -> None:
        self.parameters, self.encoding = choose(n, 0.1, dropped / n), Encoding()
        self.config = SessionConfig.of(self.parameters, self.encoding.length(d))
        self.identities = [keys.Identity(expand_seed(b"identity %d" % i)) for i in range(n)]
        self.roster = Roster(tuple(identity.public for identity in self.identities))
        self.inputs = [np.random.default_rng(i).standard_normal(d, np.float32) for i in range(n)]
        self.encoded: dict[int, np.ndarray] = {}
        self.sent: list[list[bytes]] = []
        self.received: list[list[bytes]] = [[] for _ in range(n)]
        self._run(dropped)

    def server(self) -> ProtocolServer:
        return ProtocolServer(self.config, self.roster, round=1, model_hash=MODEL, entropy=expand_seed(b"server"))

    def client(self, i: int) -> Client:
        def vector(sid: bytes) -> np.ndarray:
            self.encoded[i] = self.encoding.encode(self.inputs[i], seed=sid)
            return self.encoded[i]

        policy, entropy = SessionPolicy.like(self.config), expand_seed(b"client %d" % i)
        facts = {"round": 1, "model_hash": MODEL, "vector": vector, "entropy": entropy}
        return Client(i, self.identities[i], self.roster, policy, **facts)

    def _run(self, dropped: int) -> None:
        """The first ``dropped`` clients send no masked input."""
        server, clients = self.server(), [self.client(i) for i in range(len(self.inputs))]
        mail = dict.fromkeys(range(len(clients)), server.hello())
        while mail:
            if len(self.sent) == 2:
                mail = {i: data for i, data in mail.items() if i >= dropped}
            for i, data in mail.items():
                self.received[i].append(data)
            self.sent.append([clients[i].receive(data) for i, data in mail.items()])
            mail = play(server, self.sent[-1])
        survivors = sum(self.encoded[i] for i in server.included)
        assert len(server.included) == len(clients) - dropped
        assert np.array_equal(server.total, survivors)

    def time_client(self) -> float:
        """The last client's third step: it checks and opens its shares, agrees on keys, encodes, masks, and packs."""
        client, data = self.client(len(self.inputs) - 1), self.received[-1]
        for message in data[:2]:
            client.receive(message)
        keys.verify_signature.cache_clear()
        return seconds(lambda: client.receive(data[2]))

    def time_server(self) -> float:
        """The server's last three steps, with all signatures and commitments checked afresh."""
        server = self.server()
        for batch in self.sent[:2]:
            play(server, batch)
        keys.verify_signature.cache_clear()
        shamir._lagrange.cache_clear()
        return seconds(lambda: [play(server, batch) for batch in self.sent[2:]])

    def bytes_sent(self) -> int:
        """Bytes that the last client sent in the whole round."""
        return sum(len(batch[-1]) for batch in self.sent)


def play(server: ProtocolServer, batch: list[bytes]) -> dict[int, bytes]:
    """One step of the server: what the clients sent, and what it sends back."""
    for data in batch:
        server.receive(data)
    return server.close()


class Flower:
    """The interpreter that runs Flower's functions."""

    def __init__(self, python: str, sizes: dict[str, int]) -> None:
        script, quiet = Path(__file__).with_name("secagg_flower.py"), {"FLWR_TELEMETRY_ENABLED": "0"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": {**os.environ, **quiet}}
        self._process = subprocess.Popen([python, str(script)], **pipes)
        self.bytes_sent: int = self._ask(sizes)["bytes"]

    def time(self, job: str) -> float:
        """CPU seconds of one of its jobs."""
        return self._ask(job)["seconds"]

    def _ask(self, question: object) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit("Flower stopped; its message stands above.")
        return json.loads(answer)


def seconds(job: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    begun = time.process_time()
    job()
    return time.process_time() - begun


def keystream(size: int, count: int, passes: int) -> Callable[[], float]:
    """One pass: the plain keystream of AES-CTR over a whole vector of ``count`` bytes, and nothing done with it."""
    zeros, out = bytes(count), bytearray(count)

    def run() -> None:
        for _ in range(passes):
            Cipher(AES(os.urandom(size)), CTR(bytes(16))).encryptor().update_into(zeros, out)

    return lambda: seconds(run) / passes


def jobs(session: Session, d: int, dropped: int) -> dict[str, Callable[[], float]]:
    """What is timed of ours. The server takes one mask off for each survivor, and one for each pair it was part of."""
    n, threshold = len(session.inputs), session.config.threshold
    vector, secrets = np.zeros(d, np.uint32), [int.from_bytes(os.urandom(32), "little") for _ in range(2)]

    def mask(count: int, size: int) -> Callable[[], float]:
        keyed = [(os.urandom(size), 1 if i % 2 else -1) for i in range(count)]
        return lambda: seconds(lambda: add_masks(vector, keyed))

    return {
        "pass, AES-128": keystream(16, 4 * d, n),
        "pass, AES-256": keystream(32, 4 * d, n),
        "masks, AES-128": mask(n, 16),
        "masks, AES-256": mask(n, 32),
        "client": session.time_client,
        "shares": lambda: seconds(lambda: shamir.split(secrets, threshold, range(1, n))),
        "removal": mask((n - dropped) * (1 + dropped), 16),
        "server": session.time_server,
    }


def main() -> None:
    options = arguments(__doc__, flower="an interpreter that has flwr")
    n, d, dropped, repeats = (6, 1000, 1, 1) if options.smoke else (50, 1_000_000, 5, 5)
    session = Session(n, d, dropped)
    sizes = {"n": n, "threshold": session.config.threshold, "d": d, "dropped": dropped}
    python = options.flower or (sys.executable if importlib.util.find_spec("flwr") else None)
    flower = Flower(python, sizes) if python else None

    known: dict[str, Callable[[], float]] = jobs(session, d, dropped)
    if flower is not None:
        known |= {f"Flower, {job}": lambda job=job: flower.time(job) for job in dict(STEPS.values())}
    taken: dict[str, list[float]] = {name: [] for name in known}
    for repeat in range(repeats + 1):
        for name, job in known.items():
            once = job()
            if repeat:
                taken[name].append(once)
    figures = table({name: median(values) for name, values in taken.items()})
    for masks in figures[:2]:
        masks["share of keystream"] = n / masks["passes"]
    figures.append(wire(session.bytes_sent(), flower and flower.bytes_sent, d))
    show(figures, sizes, flower is not None)
    keep(options.json, [{**figure, **sizes} for figure in figures])


def table(found: dict[str, float]) -> list[dict[str, Any]]:
    """A row per step: seconds of both, their ratio, and ours in passes."""
    rows = []
    for step, (job, title) in STEPS.items():
        own, theirs = found[step], found.get(f"Flower, {job}")
        one = found["pass, AES-256" if "256" in step else "pass, AES-128"]
        row = {"step": title, "seconds": own, "passes": own / one}
        rows.append(row if theirs is None else {**row, "flower": theirs, "ratio": theirs / own})
    return rows


def wire(own: int, theirs: int | None, d: int) -> dict[str, Any]:
    """The same for the bytes that a client sends; one pass is 4 d bytes."""
    row = {"step": "bytes that a client sends", "bytes": own, "passes": own / (4 * d)}
    return row if theirs is None else {**row, "flower": theirs, "ratio": theirs / own}


def show(figures: list[dict[str, Any]], sizes: dict[str, int], compared: bool) -> None:
    n, d, unit = sizes["n"], sizes["d"], figures[0]["seconds"] / figures[0]["passes"]
    print(f"n = {n}, k = {n - 1}, t = {sizes['threshold']}, d = {d:,}, {sizes['dropped']} drop out")
    print(f"one pass is the plain AES-CTR keystream of 4 d bytes: {1000 * unit:.2f} ms with AES-128")
    for figure in figures:
        ratio = f"  Flower x{figure['ratio']:7.1f}" if compared else ""
        amount = f"{1000 * figure['seconds']:10.2f} ms" if "seconds" in figure else f"{figure['bytes']:10,}   "
        print(f"{figure['step']:36} {amount} {figure['passes']:8.2f} passes{ratio}")
    for figure in figures[:2]:
        print(f"{figure['step']}: {figure['share of keystream']:.0%} of the speed of the plain keystream")
    if not compared:
        print(
            "No Flower here. To compare: pip install flwr in an environment of its own; add --flower PATH/bin/python."
        )


if __name__ == "__main__":
    main()
