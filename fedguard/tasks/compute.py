"""The device of training and evaluation, and the memory that the engines may take.

Only `cohort.py`, `network.py` and the evaluation move tensors between devices: inputs and outputs, such as updates, are in main
memory. Random numbers are drawn in main memory too, so a seed gives the same draws on every device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedguard.errors import ConfigError, brief, require

#: Default of the bytes that the engines may take beside data, models and updates.
USUAL_MEMORY = 256 << 20


@contextmanager
def computing_in(dtype: str) -> Iterator[None]:
    """Within the context torch makes tensors of floats in this type, ``float32`` or ``float64``, if no other one is given."""
    before, wanted = torch.get_default_dtype(), getattr(torch, dtype)
    torch.set_default_dtype(wanted)
    try:
        yield
    finally:
        if torch.get_default_dtype() == wanted:  # what a plug-in has set is left for whoever looks for such changes
            torch.set_default_dtype(before)


class Compute:
    """The processor, or a CUDA device in full float32 or float64, with an allowance of memory.

    Attributes:
        device: the device that computes.
        memory: bytes that the engines may take for work and for what they keep between rounds.
    """

    def __init__(self, device: str = "cpu", memory: int = USUAL_MEMORY) -> None:
        self.device = torch.device(device)
        self.memory = memory
        if self.device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = False  # it would round convolutions to 10 bits
            torch.backends.cudnn.deterministic = True

    @property
    def memory(self) -> int:
        return self._memory

    @memory.setter
    def memory(self, size: int) -> None:
        require(size > 0, f"memory of the training: expected more than 0 bytes; got {size}.")
        self._memory = size

    @property
    def floats(self) -> int:
        """The memory in numbers of the type that is computed in."""
        return self._memory // torch.get_default_dtype().itemsize

    @property
    def name(self) -> str:
        """The name in records: ``cpu``, or the name of the GPU."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type


def usable(name: str, here: bool = True) -> str:
    """``cpu`` or ``cuda``, if this machine has it; without ``here`` another machine uses it, and only the name is checked.

    Raises:
        ConfigError: ``name`` is neither of them, or there is no CUDA device.
    """
    if not isinstance(name, str) or name not in ("cpu", "cuda"):
        raise ConfigError(f"--device: expected cpu or cuda; got {brief(name)}.")
    if name == "cuda" and here and not torch.cuda.is_available():
        lacking = "this machine" if torch.version.cuda else "this torch build"
        raise ConfigError(f"--device: expected a CUDA device; {lacking} has none. Use --device cpu.")
    return name
