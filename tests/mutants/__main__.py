"""Plant each weakness of the table into a copy of the source, and see who notices.

    python -m tests.mutants                     the short form: each plant against the one who is expected to notice it first
    python -m tests.mutants --all               each plant against all attacks, and all tests of tests/secagg
    python -m tests.mutants --table FILE        write the table plant x who noticed into a document, in either form

Exit code 1 where a plant is noticed by nobody (or not by the one expected), or where anything complains of the unplanted source.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.mutants.planting import ROOT, Plant
from tests.mutants.plants import PLANTS
from tests.mutants.watching import Noticed, protocol_attacks, watch

#: Where the table begins and ends in a document.
BEGIN, END = "<!-- plants -->", "<!-- end of plants -->"
#: What is imported once, before processes are forked: nothing of FedGuard, and all that it takes.
_OUTSIDE = ("torch", "numpy", "scipy.stats", "scipy.special", "yaml", "pydantic", "pytest", "hypothesis.strategies")
_OUTSIDE += ("cryptography.hazmat.primitives.asymmetric.x25519", "cryptography.hazmat.primitives.ciphers.aead")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _asked(arguments)
    plants = [one for one in PLANTS if not asked.only or any(word in one.name for word in asked.only)]
    started, jobs = time.perf_counter(), min(asked.jobs, len(plants) + 1)
    for name in _OUTSIDE:
        importlib.import_module(name)
    mode = "all" if asked.all else "attacks" if asked.attacks else "first"
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        found: list[Noticed] = []
        for one, noticed in zip([None, *plants], pool.imap(partial(_judged, mode), [None, *plants]), strict=True):
            found.append(noticed)
            print(_line(one, noticed), flush=True)
    control, *rest = found
    bad = [one.name for one, noticed in zip(plants, rest, strict=True) if not noticed or noticed.error]
    seconds = time.perf_counter() - started
    print(f"{len(plants)} plants, {len(plants) - len(bad)} noticed, {seconds:.0f} s")
    if asked.table:
        _write(asked.table, plants, rest)
    if control or control.frozen or control.error:
        print("The unplanted source is complained of as well: nothing of the above means anything.")
    for name in bad:
        print(f"NOT NOTICED: {name}")
    return int(bool(bad or control or control.frozen or control.error))


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="all attacks and tests, not only the first to notice")
    parser.add_argument("--attacks", action="store_true", help="all attacks, and no tests")
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="plants with one of these in their names")
    parser.add_argument("--table", type=Path, metavar="FILE", help=f"a document with {BEGIN} and {END} in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    return parser.parse_args(arguments)


def _judged(mode: str, one: Plant | None) -> Noticed:
    """One plant, or the control: which is against everything that some plant is against."""
    if mode == "all":
        return watch(one, protocol_attacks(), _TESTS, whole=True)
    if mode == "attacks":
        return watch(one, protocol_attacks(), ())
    firsts = dict.fromkeys(each.first for each in (PLANTS if one is None else [one]))
    return watch(one, [first for first in firsts if "::" not in first], [first for first in firsts if "::" in first])


#: Files of tests/secagg that run in the process that they are called in.
_TESTS = sorted(
    path.name
    for path in (ROOT / "tests" / "secagg").glob("test_*.py")
    if path.name not in ("test_commands.py", "test_processes.py")
)


def _line(one: Plant | None, noticed: Noticed) -> str:
    name = one.name if one else "control: nothing planted"
    frozen = ["a frozen vector"] if noticed.frozen else []
    said = noticed.error or ", ".join([*noticed.attacks, *noticed.tests, *frozen]) or "nobody"
    return f"{name}: {said}"


def _write(file: Path, plants: Sequence[Plant], found: Sequence[Noticed]) -> None:
    """The table between the two marks."""
    rows = ["| planted | so that this no longer holds | noticed by attacks | noticed by tests |", "|---|---|---|---|"]
    for one, noticed in zip(plants, found, strict=True):
        attacks = ", ".join(f"`{name}`" for name in noticed.attacks) or "-"
        tests = ", ".join(f"`{_plain(test)}`" for test in noticed.tests) or "-"
        rows.append(f"| {one.name} | {one.because} | {attacks} | {tests} |")
    text = file.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    file.write_text("".join([head, BEGIN, "\n", "\n".join(rows), "\n", END, tail]))


def _plain(test: str) -> str:
    """A test without the parameters that it was called with."""
    return test.partition("[")[0]


if __name__ == "__main__":
    sys.exit(main())
