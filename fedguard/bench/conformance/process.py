"""The process of one node: ``python -m fedguard.bench.conformance.process JOB``, with a job as `gloo.Gloo` writes it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.processes import collective, gossip
from fedguard.architectures.processes.links import Links
from fedguard.architectures.systems.all_reduce import AllReduce
from fedguard.bench.conformance.engine import set_up_of
from fedguard.bench.conformance.gloo import FOUND
from fedguard.config import Cell
from fedguard.config.schema import CellConfig
from fedguard.registry import installed


def main(file: str) -> None:
    """Train as one node, beside the others, and write what comes of it."""
    torch.set_num_threads(1)
    job = json.loads(Path(file).read_text())
    folder, rank = Path(job["folder"]), job["rank"]
    cell = Cell.build(CellConfig.model_validate(job["cell"]), installed())
    setup, architecture = set_up_of(cell, job["seed"]), cell.architecture
    links = Links(rank, job["nodes"], folder / "meeting")
    links.together()
    began, model = time.monotonic(), torch.empty(0)
    assert isinstance(architecture, Gossip | AllReduce)
    each = gossip.models if isinstance(architecture, Gossip) else collective.models
    for after in each(architecture, setup, links):  # type: ignore[arg-type]
        model = after
    np.savez(folder / (FOUND % rank), model=model.numpy(), seconds=time.monotonic() - began)
    links.together()
    links.close()


if __name__ == "__main__":
    main(sys.argv[1])
