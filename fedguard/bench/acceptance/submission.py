"""What is handed in: a Python file with one rule, or a pipeline by name."""

from __future__ import annotations

import ast
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

    A file with several defenses, or with parameters to be judged, says which in ``rule = "nnm >> mine(x=2)"``. A mixing
    alone is judged before the mean.

    Raises:
        ConfigError: there is no such file or name, or the file leaves open which rule is meant.
        PluginError: the file cannot be imported, or a class in it breaks its contract.
    """
    path = Path(given)
    if path.is_dir():
        raise ConfigError(f"accept: {given}: expected a Python file with a rule; this is a folder.")
    if path.suffix != ".py":
        pipeline = load_registry().pipeline(given, "accept")
        _require_server_part(pipeline, given)
        return Submission(given, str(pipeline), pipeline, load_registry(), None, None, _digest(str(pipeline).encode()))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"accept: {given}: cannot be read: {error.strerror}. Give a Python file or a rule.") from None
    module, folder = path.stem, path.absolute().parent
    if not module.isidentifier():
        raise ConfigError(
            f"accept: {given}: expected a name that Python can import, such as my_rule.py. Rename the file."
        )
    _require_own_name(module, path, given)
    registry = load_registry().with_modules([module], folder, [given])
    text = getattr(load_module(module, folder), "rule", None)
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"accept: {given}: rule: expected a pipeline such as 'nnm >> mine(x=2)'; got {brief(text)}.")
    pipeline = registry.pipeline(text or _only_rule(registry, module, given), f"accept: {given}")
    _require_server_part(pipeline, given)
    return Submission(given, str(pipeline), pipeline, registry, module, folder, _digest_all(path, content, folder))


def _require_server_part(pipeline: Pipeline, given: str) -> None:
    """Raise ConfigError if clients do a part of the pipeline: what no check runs must not look as if it were judged."""
    if pipeline.transforms:
        raise ConfigError(
            f"accept: {given}: {pipeline.transforms[0].name} is what clients do to their own updates, which these checks never "
            "run. Submit the server's part, and try the transform in a suite."
        )


def _require_own_name(module: str, path: Path, given: str) -> None:
    """Raise ConfigError if Python would import another file under this name: it would be judged in its place."""
    with importable(path.absolute().parent):
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


def _digest_all(path: Path, content: bytes, folder: Path) -> str:
    """SHA-256 of the file; if it imports modules beside it, of all of them, by name."""
    files = {path.name: content}
    waiting = [content]
    while waiting:
        for name in _imports_of(waiting.pop()):
            file = folder / f"{name}.py"
            if file.name not in files and file.is_file():
                files[file.name] = file.read_bytes()
                waiting.append(files[file.name])
    if len(files) == 1:
        return _digest(content)
    return _digest(b"".join(name.encode() + b"\0" + files[name] + b"\0" for name in sorted(files)))


def _imports_of(content: bytes) -> set[str]:
    """The top-level names that a module imports, anywhere in it."""
    found = set[str]()
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
