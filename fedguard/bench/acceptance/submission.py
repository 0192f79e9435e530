"""What is handed in: a Python file with one rule, or a pipeline by name."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from fedguard.contracts import AggregationRule, Defense, Pipeline
from fedguard.errors import ConfigError, brief
from fedguard.modules import importable, load_module
from fedguard.registry import Registry, load_registry


@dataclass(frozen=True)
class Submission:
    """A rule to be judged.

    Attributes:
        given: the file, or the pipeline in words, as it was handed in.
        text: the pipeline in words.
        module: name of the file's module; None for a pipeline by name.
        folder: the folder of the file.
        digest: SHA-256 of the file's bytes, or of the pipeline in words.
    """

    given: str
    text: str
    pipeline: Pipeline
    registry: Registry
    module: str | None
    folder: Path | None
    digest: str

    @property
    def modules(self) -> frozenset[str]:
        """The top-level modules of its code that are not FedGuard's own."""
        return frozenset[str]().union(*(stage.modules for stage in self.pipeline.stages)) - {"fedguard"}


def read_submission(given: str) -> Submission:
    """The rule in a file, or the pipeline with this name.

    A file with several defenses, or with parameters to be judged, says which in ``rule = "nnm >> mine(x=2)"``. A mixing or a
    client transform alone is judged before the mean.

    Raises:
        ConfigError: there is no such file or name, or the file leaves open which rule is meant.
        PluginError: the file cannot be imported, or a class in it breaks its contract.
    """
    path = Path(given)
    if path.suffix != ".py":
        pipeline = load_registry().pipeline(given, "accept")
        return Submission(given, str(pipeline), pipeline, load_registry(), None, None, _digest(str(pipeline).encode()))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"accept: {given}: cannot be read: {error.strerror}. Give a Python file or a rule.") from None
    module, folder = path.stem, path.resolve().parent
    _require_own_name(module, path, given)
    registry = load_registry().with_modules([module], folder, [given])
    text = getattr(load_module(module, folder), "rule", None)
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"accept: {given}: rule: expected a pipeline such as 'nnm >> mine(x=2)'; got {brief(text)}.")
    pipeline = registry.pipeline(text or _only_rule(registry, module, given), f"accept: {given}")
    return Submission(given, str(pipeline), pipeline, registry, module, folder, _digest(content))


def _require_own_name(module: str, path: Path, given: str) -> None:
    """Raise ConfigError if Python would import another file under this name: it would be judged in its place."""
    with importable(path.resolve().parent):
        # Not importlib.util.find_spec: it answers with a module of this name that is loaded already
        found = PathFinder.find_spec(module)
    origin = (
        "a module of its own" if module in sys.builtin_module_names else found.origin if found is not None else None
    )
    if origin is not None and Path(origin).resolve() != path.resolve():
        raise ConfigError(f"accept: {given}: Python imports {origin} under this name. Rename the file.")


def _only_rule(registry: Registry, module: str, given: str) -> str:
    """The name of the one defense of the module, with the mean behind it if it ends no pipeline."""
    names = [name for name in registry.names("defense") if registry.origin("defense", name) == f"module {module}"]
    if len(names) != 1:
        have, mine = ", ".join(names) or "none", names[0] if names else "mine"
        raise ConfigError(
            f"accept: {given}: expected one defense; it has {have}. Say which pipeline is meant: rule = 'nnm >> {mine}'."
        )
    found = registry.get("defense", names[0])
    assert issubclass(found, Defense)
    return names[0] if issubclass(found, AggregationRule) else f"{names[0]} >> mean"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
