"""A node of an app under check. Its random draws do not depend on the process in which it runs, so all engines agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedguard.rng import Rng

#: Type of the message that asks a node for its partition of the data, for engines that do not reveal it.
WHO = "query.fedguard"
#: Name of the record with the answer, and of FedGuard's record in a node's state.
OURS = "fedguard"


class SeededClientApp(ClientApp):
    """An app's client with the random streams of Python, numpy and torch seeded before each message.

    For a node's k-th message of a kind, such as ``train``, the seed is ``Rng(seed).child("node", partition, kind, k)``, k from
    0. The streams depend neither on the process nor on the draws of other nodes.

    Args:
        client: the app's own client.
        seed: seed of the trial.
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
        """The number of earlier messages of the kind, which is kept in the node's state."""
        # The context is what survives between messages: a deployed node has a new process for each, Ray any of its actors
        kept = context.state.metric_records.get(OURS, MetricRecord())
        times = int(kept.get(kind, 0))  # type: ignore[arg-type]
        context.state[OURS] = MetricRecord({**kept, kind: times + 1})
        return times


@contextmanager
def drawing(rng: Rng) -> Iterator[None]:
    """Seed the process's streams of Python, numpy and torch by ``rng``, and restore their states afterwards."""
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
