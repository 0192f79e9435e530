"""The part of the Python front door that looks things up and runs nothing. It loads no torch, unless it explains something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedguard.arguments import of_kind, path_like, words
from fedguard.bench.results.run import Run
from fedguard.errors import UnknownName
from fedguard.registry import KINDS, load_registry

if TYPE_CHECKING:
    from fedguard.bench.explain.catalogue import Explanation
    from fedguard.bench.flags.lint import Lint


def open_run(run: str | Path, store: str | Path = "runs") -> Run:
    """Open a complete or incomplete run by its name in the store, or by its path.

    Raises:
        StoreError: there is none, or its manifest cannot be read.
    """
    path_like(run, "run")
    path_like(store, "store")
    return Run.open(run, store)


def lint(run: Run | str | Path, store: str | Path = "runs") -> Lint:
    """Raise the red flags of a run, or of a table of results (a .json or .csv file), as `fedguard lint` does.

    Args:
        run: a run, its name in the store, its path, or the file.

    Raises:
        StoreError: there is no such run.
        ConfigError: the file cannot be read as a table of results.
    """
    from fedguard.bench.flags.lint import lint as judge
    from fedguard.bench.flags.lint import results_named
    from fedguard.bench.flags.results import results_of

    if isinstance(run, Run):
        return judge(results_of(run))
    path_like(run, "run")
    path_like(store, "store")
    return judge(results_named(str(run), Path(store)))


def explain(name: str, plugins: Sequence[str] = ()) -> Explanation:
    """Explain an algorithm as `fedguard explain` does: formula, parameters, what it needs to see, where it comes from.

    Args:
        name: an attack, a defense, or anything else that `names` lists.
        plugins: modules with algorithms of your own, here or installed.

    Raises:
        UnknownName: nothing has this name.
    """
    from fedguard.bench.explain.catalogue import Explanation

    of_kind(name, "name", str, "the name of an algorithm")
    return Explanation(load_registry().with_modules(words(plugins, "plugins"), Path.cwd()), name)


def names(kind: str) -> list[str]:
    """The known names of a kind: attack, defense, data, partition, model ..."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    return load_registry().names(kind)
