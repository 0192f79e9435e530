"""A node of an app under check: its draws are its own, whatever process it runs in, so that all engines agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedguard.rng import Rng

#: The message in which a node is asked which part of the data it has, where nobody else knows.
WHO = "query.fedguard"
#: Under which name the answer stands, and what is kept in a node's state.
OURS = "fedguard"


class SeededClientApp(ClientApp):
    """An app's client whose streams of Python, numpy and torch are seeded before each message.

    A node's k-th message of a kind, such as ``train``, starts them at ``Rng(seed).child("node", partition, kind, k)``, k from
    0: they depend neither on the process nor on what other nodes drew.

    Args:
        client: the app's own.
        seed: the trial's.
    """

    def __init__(self, client: ClientApp, seed: int) -> None:
        super().__init__()
        self._client, self._seed = client, seed

    def __call__(self, message: Message, context: Context) -> Message:
        number, kind = int(context.node_config["partition-id"]), message.metadata.message_type  # type: ignore[arg-type]
        if kind == WHO:
            return Message(RecordDict({OURS: ConfigRecord({"partition-id": number})}), reply_to=message)
        times = self._count_messages(context, kind)
        with drawing(Rng(self._seed).child("node", number, kind, times)):
            return self._client(message, context)

    @staticmethod
    def _count_messages(context: Context, kind: str) -> int:
        """How many messages of the kind came before; the node's state outlives the process."""
        kept = context.state.metric_records.get(OURS, MetricRecord())
        times = int(kept.get(kind, 0))  # type: ignore[arg-type]
        context.state[OURS] = MetricRecord({**kept, kind: times + 1})
        return times


@contextmanager
def drawing(rng: Rng) -> Iterator[None]:
    """The process's streams of Python, numpy and torch, started by ``rng``; afterwards they are as they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002  apps draw from there
    seed = rng.entropy()
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed % 2**63)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
