"""The process of one node: ``python -m fedguard.bench.conformance.process JOB``, with a job as `gloo.GlooEngine` writes it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.processes import collective, gossip
from fedguard.architectures.processes.links import ProcessLinks
from fedguard.architectures.systems.all_reduce import AllReduce
from fedguard.bench.conformance.engine import set_up_of
from fedguard.bench.conformance.gloo import FOUND
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Architecture, Setup
from fedguard.registry import load_registry


def main(file: str) -> None:
    """Train as one node together with the others, and write the outcome."""
    torch.set_num_threads(1)
    job = json.loads(Path(file).read_text())
    folder, rank = Path(job["folder"]), job["rank"]
    cells = [build_cell(CellConfig.model_validate(cell), load_registry()) for cell in job["cells"]]
    setups = [set_up_of(cell, job["seed"]) for cell in cells]
    links = ProcessLinks(rank, job["nodes"], folder / "meeting")
    models, seconds = list[Tensor](), list[float]()
    for cell, setup in zip(cells, setups, strict=True):
        links.together()
        began, model = time.monotonic(), torch.empty(0)
        for after in _models(cell.architecture, setup, links):
            model = after
        models.append(model)
        seconds.append(time.monotonic() - began)
    np.savez(folder / (FOUND % rank), models=torch.stack(models).numpy(), seconds=np.array(seconds))
    links.together()
    links.close()


def _models(architecture: Architecture, setup: Setup, links: ProcessLinks) -> Iterator[Tensor]:
    if isinstance(architecture, Gossip):
        return gossip.models(architecture, setup, links)
    assert isinstance(architecture, AllReduce)
    return collective.models(architecture, setup, links)


if __name__ == "__main__":
    main(sys.argv[1])
