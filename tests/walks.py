"""The files that a reader opens who follows one thing through the code: ``python -m tests.walks`` lists them.

A walk is counted while a small trial runs, by the functions that are called (`sys.setprofile`), so that no layer is overlooked.

- An *update* goes from `Task.local_updates` to the metrics of a trial, in a synchronous round of ``server``. A file is on this
  walk if one of its functions, called after the first local training has ended, is handed a carrier of the update or returns
  one: a tensor whose last axis has the d of the model, or a record of the round that holds one (`CARRIERS`). What
  `Task.local_updates` and `Task.evaluate` call, the engines and the data, is left out: a reader need not follow it.
- An *epsilon* goes from a suite to the record, and from there to the page of privacy. A file is on this walk if one of its
  functions that are called has the word ``epsilon`` among its names, arguments or keys.

Only files of the product count, and only functions: a field of a section or of a record's schema that nobody calls does not.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
from fedguard.contracts import Gram, ReceivedRound, RoundReport, SentRound
from fedguard.metrics.trajectory import summarize
from fedguard.tasks.classification import Classification
from tests import inline
from tests.house_counts import PRODUCT
from tests.root import ROOT
from tests.systems.scenes import scene

#: Records that hold an update, or what has been made of it
CARRIERS = (SentRound, ReceivedRound, Sides, Aggregate, RoundReport, Gram)
#: What a reader need not follow further
OPAQUE = tuple(getattr(Classification, name).__code__ for name in ("local_updates", "evaluate"))


@contextmanager
def profile(seen: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Call ``seen`` with each call of a function, and with each return."""
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)


def path_of(code: CodeType) -> str | None:
    """The path of the product's file with this code; None for other code."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    found = path.relative_to(ROOT)
    return found.as_posix() if found.parts[0] in PRODUCT else None


def update_walk(**settings: Any) -> list[str]:
    """The files on the walk of an update, in the order in which it comes to them; ``settings`` are of the suite."""
    made, setup = scene("server", network=None, training={"rounds": 1}, **settings)
    found, width = dict[str, None](), setup.task.dim
    below, trained = 0, False

    def carries(value: Any) -> bool:
        return value.shape[-1:] == (width,) if isinstance(value, Tensor) else isinstance(value, CARRIERS)

    def seen(frame: FrameType, event: str, value: Any) -> None:
        nonlocal below, trained
        if event not in ("call", "return"):
            return
        code, depth = frame.f_code, below
        if code in OPAQUE:
            below += 1 if event == "call" else -1
            trained |= event == "return"
            depth = min(depth, below)
        path = path_of(code) if trained and not depth else None
        if path is None or path in found:
            return
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if event == "call" else ()
        if any(carries(frame.f_locals.get(name)) for name in named) or (event == "return" and carries(value)):
            found[path] = None

    with profile(seen):
        summarize(list(made.architecture.run(setup)))
    return list(found)


def epsilon_walk() -> list[str]:
    """The files on the walk of an epsilon: of a suite with noise on the clients' records, of its run and of its page."""
    found = dict[str, None]()
    suite = {
        "task": {"model": "softmax"},
        "clients": {"total": 4},
        "training": {"rounds": 1, "batch_size": 16},
        "protocol": {"privacy": {"name": "record", "epsilon": 8.0, "clip": 1.0, "delta": 1e-5, "sample_rate": 0.1}},
    }

    def seen(frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and has_word(frame.f_code, "epsilon") and (path := path_of(frame.f_code)) is not None:
            found[path] = None

    # In this process, since the calls of another one are not seen
    with tempfile.TemporaryDirectory() as folder, patch.object(execute, "LocalPool", inline.pool), profile(seen):
        run = api.run(suite, store=folder, jobs=1)
        list(page("privacy").blocks(run, {}))
    return list(found)


def has_word(code: CodeType, word: str) -> bool:
    """Whether a function has this word among its names, arguments or keys."""
    keys = [one for constant in code.co_consts for one in (constant if isinstance(constant, tuple) else (constant,))]
    return word in (*code.co_names, *code.co_varnames, *code.co_freevars) or word in keys


#: The walks by their names
WALKS: dict[str, Callable[[], list[str]]] = {
    "an update under the mean": update_walk,
    "an update under an attack and nnm >> trimmed_mean": partial(
        update_walk, clients={"malicious": 1}, attack="ipm(tau=5)", defense="nnm >> trimmed_mean"
    ),
    "an epsilon": epsilon_walk,
}


if __name__ == "__main__":
    for name, walk in WALKS.items():
        files = walk()
        print(f"{name}: {len(files)} files", *files, sep="\n  ")
