"""Input that a person might get wrong, or somebody makes wrong in bad faith; here: what no reader may take longer than."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_SIGNALS = {signal.ITIMER_REAL: signal.SIGALRM, signal.ITIMER_PROF: signal.SIGPROF}


class Late(BaseException):
    """No `OSError`, as `TimeoutError` is, which a reader would take for its file's, and no `Exception`, which it may swallow."""


@contextlib.contextmanager
def within(seconds: float, clock: int) -> Iterator[None]:
    """Ends what takes too long by a clock of `signal.setitimer` (in the main thread; not on Windows).

    Raises:
        Late: it did.
    """

    def late(number: int, frame: FrameType | None) -> None:
        raise Late(f"still busy after {seconds:g} s")

    before = signal.signal(_SIGNALS[clock], late)
    signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        signal.setitimer(clock, 0)
        signal.signal(_SIGNALS[clock], before)
