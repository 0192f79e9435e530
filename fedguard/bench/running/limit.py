"""A time limit for plug-in code in this process."""

from __future__ import annotations

import _weakrefset
import gc
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: The modules whose callbacks Python runs when an object is collected.
_WEAK = frozenset({weakref.__file__, _weakrefset.__file__})


class TrialTimeout(BaseException):
    """The time is up. No `Exception`: a plug-in that catches all of those would go on."""


@contextmanager
def at_most(seconds: float | None, *, of_cpu: bool = False) -> Iterator[None]:
    """Raise `TrialTimeout` within the block after ``seconds``, and each second from then on.

    Args:
        seconds: wall time, or with ``of_cpu`` CPU time of the process; None for no limit.

    There is no limit outside of the main thread or on systems without an alarm signal. Code that never returns to Python is
    not stopped.
    """
    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not alarmed:
        yield
        return
    timer, told = (signal.ITIMER_PROF, signal.SIGPROF) if of_cpu else (signal.ITIMER_REAL, signal.SIGALRM)
    before = signal.signal(told, _up)
    signal.setitimer(timer, max(seconds, 1e-3), 1.0)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(told, before)


def _up(_: int, frame: FrameType | None) -> None:
    # What a finalizer raises is printed and dropped, so the block would go on without a word; the next alarm is a second away.
    collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        code = frame.f_code
        if code in collecting or code.co_name == "__del__" or code.co_filename in _WEAK:
            return
        frame = frame.f_back
    raise TrialTimeout
