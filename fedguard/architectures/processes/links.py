"""Vectors from process to process, by torch.distributed over gloo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor


class VectorTransfer(NamedTuple):
    """A vector on its way.

    Attributes:
        other: the process at the other end.
        vector: the vector to send, or the buffer to receive into, of the same size.
        tag: distinguishes vectors between the same two processes.
    """

    other: int
    vector: Tensor
    tag: int = 0


class ProcessLinks:
    """One of n processes that send each other vectors.

    Args:
        rank: its number, from 0.
        nodes: n.
        meeting: a file that does not exist yet, in a folder that all processes share.
        timeout: seconds that any of them waits for another.
    """

    def __init__(self, rank: int, nodes: int, meeting: Path, timeout: float = 60.0) -> None:
        self.rank, self.nodes = rank, nodes
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        patience = timedelta(seconds=timeout)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=nodes, timeout=patience)

    def exchange(self, sent: Sequence[VectorTransfer], received: Sequence[VectorTransfer]) -> None:
        """Send and receive these vectors, all at once, so that no two processes wait for each other."""
        work = [dist.P2POp(dist.isend, one.vector.contiguous(), one.other, tag=one.tag) for one in sent]
        into = [one.vector.contiguous() for one in received]
        work += [
            dist.P2POp(dist.irecv, vector, one.other, tag=one.tag) for one, vector in zip(received, into, strict=True)
        ]
        for one in dist.batch_isend_irecv(work) if work else ():
            one.wait()
        for parcel, vector in zip(received, into, strict=True):
            parcel.vector.copy_(vector)

    def together(self) -> None:
        """Wait until all are here."""
        dist.barrier()

    def close(self) -> None:
        dist.destroy_process_group()
