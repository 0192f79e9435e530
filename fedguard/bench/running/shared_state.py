"""State that all trials of one process share: a trial that changes it would alter later ones, which get a fresh process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedguard.errors import brief

SHARED: Mapping[str, Callable[[], Any]] = {
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_default_device()": torch.get_default_device,
    "torch.get_num_threads()": torch.get_num_threads,
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "torch.set_flush_denormal()": lambda: bool(torch.tensor(1e-310, dtype=torch.float64, device="cpu") * 1 == 0),
    "numpy.geterr()": np.geterr,
    "sys.path": lambda: list(sys.path),
    "sys.getrecursionlimit()": sys.getrecursionlimit,
    "os.getcwd()": lambda: str(Path.cwd()),
}
#: Variables that libraries set as they are imported, which may happen in the middle of a trial.
BY_LIBRARIES = ("KMP_", "TORCHINDUCTOR_", "PYTORCH_")

State = Mapping[str, Any]


def snapshot_shared_state() -> State:
    """The current shared state of this process."""
    variables = {
        f"os.environ[{name!r}]": value for name, value in os.environ.items() if not name.startswith(BY_LIBRARIES)
    }
    try:
        return {**{name: read() for name, read in SHARED.items()}, **variables}
    except FileNotFoundError:  # the working directory is gone
        return {**{name: read() for name, read in SHARED.items() if name != "os.getcwd()"}, **variables}


def diff_shared_state(before: State, after: State) -> list[str]:
    """The differences, in words; values of environment variables may be secret and are left out."""
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return [
        name if name.startswith("os.environ") else _describe_change(name, before.get(name), after.get(name))
        for name in names
    ]


def _describe_change(name: str, before: Any, after: Any) -> str:
    return f"{name} from {brief(before)} to {brief(after)}"
