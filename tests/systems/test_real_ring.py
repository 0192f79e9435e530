"""The simulated ring beside a real one: processes that send each other chunks over sockets, by torch.distributed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.collectives.schedule import simulate_chunk

#: One node: reduce-scatter and all-gather by sends and receives of its own, which know nothing of FedGuard; and the library's.
NODE = """
import sys, torch, torch.distributed as dist
rank, n, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=n)
mine = torch.load(f"{folder}/vectors.pt")[rank]
theirs = mine.clone()
chunks = list(mine.tensor_split(n))
after, before = (rank + 1) % n, (rank - 1) % n
for turn in (0, 1):
    for step in range(n - 1):
        out, into = (rank + turn - step) % n, (rank + turn - step - 1) % n
        got = torch.empty_like(chunks[into])
        for one in dist.batch_isend_irecv([dist.P2POp(dist.isend, chunks[out].contiguous(), after), dist.P2POp(dist.irecv, got, before)]):
            one.wait()
        chunks[into] = got if turn else chunks[into] + got
dist.all_reduce(theirs)
torch.save((torch.cat(chunks), theirs), f"{folder}/sum{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_a_real_ring_to_the_last_bit(tmp_path, dtype, monkeypatch):
    n, d = 3, 1001
    vectors = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.save(vectors, tmp_path / "vectors.pt")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    nodes = [subprocess.Popen([sys.executable, "-c", NODE, str(rank), str(n), str(tmp_path)]) for rank in range(n)]
    try:
        assert [node.wait(timeout=120) for node in nodes] == [0] * n
    finally:
        for node in nodes:
            node.kill()
    schedule = TOPOLOGIES["ring"](n, 1)
    ours = torch.cat(
        [simulate_chunk(schedule, chunk, list(vectors[:, cut]))[0] for chunk, cut in enumerate(schedule.cuts(d))]
    )
    for rank in range(n):
        theirs, library = torch.load(tmp_path / f"sum{rank}.pt")
        assert torch.equal(theirs, ours)
        assert float((library - ours).norm() / ours.norm()) < (1e-6 if dtype == torch.float32 else 1e-14)
