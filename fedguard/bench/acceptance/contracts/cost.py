"""Time and memory of a large round."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedguard.aggregation import aggregate
from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.findings import AcceptanceFinding
from fedguard.bench.acceptance.rounds import ToyRound, accepts, context_of, draw_honest
from fedguard.bench.running.limit import TrialTimeout, at_most

GIB = 2**30


def check_cost(case: ContractCase) -> Iterator[AcceptanceFinding]:
    """CPU seconds and additional memory of one round of the standard's large size."""
    large = case.sizes.large
    f = case.f if accepts(case.pipeline, large.n, case.f) else 0
    one = ToyRound(draw_honest(large.n, large.d, 5), f)
    context = context_of(one)
    before, started = _reset_peak(), time.process_time()
    try:
        with at_most(4 * large.cpu_seconds, of_cpu=True):
            aggregate(case.pipeline, one.rows, context)
        seconds, over = time.process_time() - started, ""
    except TrialTimeout:
        seconds, over = time.process_time() - started, "more than "
    except Exception:  # another check says so
        return
    peak = max(0, _peak() - before) / GIB
    yield AcceptanceFinding(
        "cost", "noted", f"A round of n = {large.n}, d = {large.d:,} takes {over}{seconds:.2g} CPU seconds and {peak:.2g} GiB.",
        number=seconds,
    )  # fmt: skip
    remedy = "Work in Gram space or by coordinates, as WeightRule and CoordinateRule do."
    if seconds > large.cpu_seconds:
        yield AcceptanceFinding(
            "slow", "failed", f"A round takes {over}{seconds:.3g} CPU seconds; the standard allows {large.cpu_seconds:g}.",
            one.describe(), remedy, seconds,
        )  # fmt: skip
    if peak > large.gib:
        yield AcceptanceFinding(
            "memory", "failed", f"A round takes {peak:.2g} GiB beside the updates; the standard allows {large.gib:g}.",
            one.describe(), remedy, peak,
        )  # fmt: skip


def _reset_peak() -> float:
    """Let `_peak` start from the memory that is held now, where the system can, and return its value."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """Bytes of the largest resident memory of this process since it was reset."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found * 1024
