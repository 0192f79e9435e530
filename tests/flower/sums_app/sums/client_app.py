"""A node: its identity and the roster lie in a folder of its own, which its SuperNode was told when it started."""

from pathlib import Path

import numpy as np

from fedguard.flower.secagg import secagg_client
from fedguard.secagg.client import Client
from fedguard.secagg.keys import Identity
from fedguard.secagg.session import Roster, SessionPolicy
from fedguard.secagg.simulation import Settings

#: A sum of four nodes, of which one may be lost.
NODES, LENGTH = 4, 512
CONFIG = Settings(colluding=0.0, dropping=0.3).config(NODES, LENGTH)
MODEL = bytes(range(32))


def update(place, round):
    """uint32 ``[LENGTH]``: small numbers, as updates are."""
    return np.random.default_rng((place, round)).integers(0, 1000, LENGTH, dtype=np.uint32)


def roster(home):
    keys = (home / "roster").read_bytes()
    return Roster(tuple(keys[start : start + 32] for start in range(0, len(keys), 32)))


def join(context, round):
    home, place = Path(context.node_config["home"]), int(context.node_config["partition-id"])
    return Client(
        place,
        Identity(lambda size: (home / "identity").read_bytes()),
        roster(home),
        SessionPolicy.like(CONFIG),
        round=round,
        model_hash=MODEL,
        vector=lambda sid: update(place, round),
    )


app = secagg_client(join, keep=lambda context: Path(context.node_config["home"]) / "kept")
