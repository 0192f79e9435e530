"""The files that a reader opens who follows one thing through the code: ``python -m tests.walks`` prints them.

Both walks are counted while a small trial runs, by the functions that are called (`sys.setprofile`), so that no layer is missed
because it is hard to find by reading.

- An *update* goes from `Task.local_updates` to a metric of the record. A file is on this walk if one of its functions, called
  between the two, is handed a carrier of the update or returns one: a tensor whose last axis has the d of the model, the records
  of a round that hold one, the Gram matrix of the rows, or the report that is made of them. What happens below
  `Task.local_updates` and `Task.evaluate`, the engines and the data, is another walk.
- An *epsilon* goes from the suite to the record, and from there to a page. A file is on this walk if one of its functions that
  are called has the word ``epsilon`` among its names, its arguments or its keys.

Only files of the product count. Tests, the standard library and other packages do not.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from torch import Tensor

from fedguard import api
from fedguard.aggregation import Aggregate
from fedguard.architectures.sides import Sides
from fedguard.bench.pages.page import page
from fedguard.bench.running import execute
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import Gram, ReceivedRound, RoundReport, SentRound
from fedguard.tasks.classification import Classification
from tests import inline
from tests.house_counts import PRODUCT
from tests.root import ROOT
from tests.systems.scenes import cell

#: Records that hold an update, or what has been made of it
CARRIERS = (SentRound, ReceivedRound, Sides, Aggregate, RoundReport, Gram)
#: Where the walk of an update goes below what a reader has to follow
OPAQUE = frozenset(getattr(Classification, name).__code__ for name in ("local_updates", "evaluate"))


@contextmanager
def called(seen: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Call ``seen`` with each call and return of a function."""
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)


def path_of(code: CodeType) -> str | None:
    """The path of the file of the product that has this code; None for other code."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    found = path.relative_to(ROOT)
    return found.as_posix() if found.parts[0] in PRODUCT else None


def update_walk(**settings: Any) -> list[str]:
    """The files on the walk of an update, in the order in which it first comes to them; ``settings`` are of the suite."""
    made, found = cell("server", training={"rounds": 1}, **settings), dict[str, None]()
    width, depth, trained = 650, 0, False

    def carries(value: Any) -> bool:
        if isinstance(value, Tensor):
            return value.dim() > 0 and value.shape[-1] == width
        return isinstance(value, CARRIERS)

    def seen(frame: FrameType, event: str, value: Any) -> None:
        nonlocal depth, trained
        code = frame.f_code
        if code in OPAQUE:
            depth += {"call": 1, "return": -1}.get(event, 0)
            trained |= event == "return"
        if depth > (code in OPAQUE and event == "call") or not trained or (path := path_of(code)) is None:
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if event == "call" else ()
        if any(carries(frame.f_locals.get(name)) for name in arguments) or (event == "return" and carries(value)):
            found.setdefault(path)

    with called(seen):
        run_trial(made, 0, {})
    return list(found)


def epsilon_walk() -> list[str]:
    """The files on the walk of an epsilon: a suite with noise on the clients' records, its run, and the page of privacy."""
    found = dict[str, None]()
    suite = {
        "task": {"model": "softmax"},
        "clients": {"total": 4},
        "training": {"rounds": 1, "batch_size": 16},
        "protocol": {"privacy": {"kind": "record", "epsilon": 8.0, "clip": 1.0, "delta": 1e-5, "sample_rate": 0.1}},
    }

    def seen(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event == "call" and (path := path_of(code)) is not None and mentions(code, "epsilon"):
            found.setdefault(path)

    # In this process, since what another one calls is not seen
    with tempfile.TemporaryDirectory() as folder, patch.object(execute, "LocalPool", inline.pool), called(seen):
        run = api.run(suite, store=folder, jobs=1)
        list(page("privacy").blocks(run, {}))
    return list(found)


def mentions(code: CodeType, word: str) -> bool:
    """Whether a function has this word among its names, its arguments or its keys."""
    constants = [
        one for constant in code.co_consts for one in (constant if isinstance(constant, tuple) else (constant,))
    ]
    return word in (*code.co_names, *code.co_varnames, *code.co_freevars) or word in constants


#: Each walk, by its name
WALKS: dict[str, Callable[[], list[str]]] = {
    "update, mean": lambda: update_walk(),
    "update, nnm >> trimmed_mean under an attack": lambda: update_walk(
        clients={"malicious": 1}, attack="ipm(tau=5)", defense="nnm >> trimmed_mean"
    ),
    "epsilon": epsilon_walk,
}


if __name__ == "__main__":
    for name, walk in WALKS.items():
        files = walk()
        print(f"{name}: {len(files)} files", *files, sep="\n  ")
