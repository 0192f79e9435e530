"""Where the clients' training and the evaluation compute, and the memory that the engines may take.

`cohort.py`, `network.py` and the evaluation alone move anything: what goes in and what comes out lies in main memory, and so
does all else, the updates among it. Whatever is random is drawn there too: a seed means the same on every device.
"""

from __future__ import annotations

import torch

from fedguard.errors import ConfigError, require

#: Bytes that the engines may take beside data, models and updates where nobody says.
USUAL_MEMORY = 256 << 20


class Compute:
    """The processor, or a CUDA device in full float32, with an allowance of memory.

    Attributes:
        device: where it computes.
        memory: bytes that the engines may take for what they work on and for what they keep between rounds.
    """

    def __init__(self, device: str = "cpu", memory: int = USUAL_MEMORY) -> None:
        self.device = torch.device(device)
        self.memory = memory
        if self.device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = False  # it would round convolutions to 10 bits
            torch.backends.cudnn.deterministic = True

    @property
    def memory(self) -> int:
        return 4 * self.floats

    @memory.setter
    def memory(self, size: int) -> None:
        require(size > 0, f"memory of the training: expected more than 0 bytes; got {size}.")
        self.floats = size // 4

    @property
    def name(self) -> str:
        """What a record calls it: ``cpu``, or the name of the GPU."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type


def usable(name: str, here: bool = True) -> str:
    """``cpu`` or ``cuda``, if it can be had; where it is not used ``here``, those that do use it will see.

    Raises:
        ConfigError: it is neither of them, or there is no CUDA device.
    """
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"--device: expected cpu or cuda; got {name!r}.")
    if name == "cuda" and here and not torch.cuda.is_available():
        lacking = "this machine" if torch.version.cuda else "this torch build"
        raise ConfigError(f"--device: expected a CUDA device; {lacking} has none. Use --device cpu.")
    return name
