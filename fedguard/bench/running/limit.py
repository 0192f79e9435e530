"""A limit in time on what a plug-in does in this very process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """The time is up. No `Exception`: a plug-in that catches all of those would go on."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTime` within the block after so many seconds, and each second from then on.

    There is no limit outside of the main thread or where the system has no alarm, and code that never returns to Python
    is not stopped.
    """
    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not alarmed:
        yield
        return
    before = signal.signal(signal.SIGALRM, _up)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _up(_: int, __: FrameType | None) -> None:
    raise OutOfTime
