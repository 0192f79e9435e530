"""Where the clients' training and the evaluation compute: on the processor, or on a CUDA device.

`cohort.py` and `network.py` alone move anything: what goes into them and what comes out lies in main memory, and so does all
else, the updates among it. Whatever is random is drawn there too, so that a seed means the same on both.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fedguard.errors import ConfigError

_device = torch.device("cpu")
_brought = WeakTensorKeyDictionary()


def usable(name: str) -> str:
    """``cpu`` or ``cuda``, if it can be had.

    Raises:
        ConfigError: it is neither of them, or there is no CUDA device.
    """
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"--device: expected cpu or cuda; got {name!r}.")
    if name == "cuda" and not torch.cuda.is_available():
        lacking = "this machine" if torch.version.cuda else "this torch build"
        raise ConfigError(f"--device: expected a CUDA device; {lacking} has none. Use --device cpu.")
    return name


def set_device(name: str) -> None:
    """Let the training and the evaluation of this process compute there, in full float32."""
    global _device  # noqa: PLW0603 - one device for the process
    _device = torch.device(name)
    if _device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # it would round convolutions to 10 bits
        torch.backends.cudnn.deterministic = True


def device() -> torch.device:
    """Where this process trains and evaluates."""
    return _device


def brought(data: Tensor) -> Tensor:
    """Data on the device, where they stay for as long as they are held here; they must not change."""
    if _device.type == "cpu":
        return data
    if data not in _brought:
        _brought[data] = data.to(_device)
    there: Tensor = _brought[data]
    return there


def device_name() -> str:
    """What a record calls it: ``cpu``, or the name of the GPU."""
    return torch.cuda.get_device_name(_device) if _device.type == "cuda" else _device.type
