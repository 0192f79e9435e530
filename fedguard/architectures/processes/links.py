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
        vector: what is sent; or where what comes is put, of the size that is sent.
        tag: tells vectors between the same two processes apart.
    """

    other: int
    vector: Tensor
    tag: int = 0


class ProcessLinks:
    """One of n processes that send each other vectors.

    Args:
        rank: its number, from 0.
        nodes: n.
        meeting: a file that is not there yet, in a folder that all of them see.
        timeout: seconds that any of them waits for another.
    """

    def __init__(self, rank: int, nodes: int, meeting: Path, timeout: float = 60.0) -> None:
        self.rank, self.nodes = rank, nodes
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        patience = timedelta(seconds=timeout)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=nodes, timeout=patience)

    def exchange(self, sent: Sequence[VectorTransfer], received: Sequence[VectorTransfer]) -> None:
        """Send these, and fill those; all at once, so that nobody waits for who waits for him."""
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
