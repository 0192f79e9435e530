"""Starter files for newcomers: suites, files for a plug-in, and the examples, copied from the package."""

from __future__ import annotations

import importlib.util
import keyword
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from fedguard.errors import ConfigError, UnknownName, brief
from fedguard.retired import RETIRED_KINDS, note_renamed

#: The kinds that `fedguard new` can write, with their names in the registry.
KINDS = {"attack": "attack", "defense": "defense", "data": "data"}
#: The files of a plug-in by its name, each with the ending of its template.
PARTS = {"{}.py": "py.txt", "{}.yaml": "yaml", "test_{}.py": "test.txt"}


def suite(full: bool) -> str:
    """A starter suite: with every key, or one that runs in seconds."""
    return _template("suite_full.yaml" if full else "suite.yaml")


def plugin(kind: str, name: str) -> dict[str, str]:
    """A module with one algorithm, a suite that runs it, and a test, each by the name of its file.

    Raises:
        UnknownName: no such kind.
        ConfigError: the name is not valid for a module, or taken.
    """
    if kind in RETIRED_KINDS:
        note_renamed([(f"new {kind}", f"new {RETIRED_KINDS[kind]}")])
        kind = RETIRED_KINDS[kind]
    if kind not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"expected a name of small letters, digits and '_', such as my_{kind}; got {brief(name)}.")
    from fedguard.registry import load_registry  # here, since it loads torch, which the others do not need

    if name in load_registry().names(KINDS[kind]) or importlib.util.find_spec(name) is not None:
        raise ConfigError(f"the name {name!r} is taken by another {kind} or module. Choose another, such as my_{name}.")
    words = {"name": name, "Class": "".join(part.capitalize() for part in name.split("_"))}
    return {file.format(name): Template(_template(f"{kind}.{part}")).substitute(words) for file, part in PARTS.items()}


def examples() -> dict[str, str]:
    """The examples by name, each with the first sentence of its description."""
    found = {path.stem: path for path in sorted(_examples().iterdir(), key=lambda path: path.suffix)}
    return {name: _summary(found[name]) for name in sorted(found) if not name.startswith(("_", "."))}


def example(name: str) -> dict[str, str]:
    """The files of one example, with the modules that its suite names.

    Raises:
        UnknownName: no such example.
    """
    known = examples()
    stem = name.removesuffix(".yaml").removesuffix(".py")
    if stem not in known:
        raise UnknownName("example", name, known)
    folder = _examples()
    if (folder / stem).is_dir():
        inside = sorted(path for path in (folder / stem).iterdir() if path.is_file())
        return {f"{stem}/{path.name}": path.read_text(encoding="utf-8") for path in inside}
    chosen = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{stem}.*"))}
    for module in re.findall(r"\b(\w+):\w", chosen.get(f"{stem}.yaml", "")):
        if (folder / f"{module}.py").is_file():
            chosen[f"{module}.py"] = (folder / f"{module}.py").read_text(encoding="utf-8")
    return chosen


def write(contents: Mapping[str, str], over: bool = False) -> None:
    """Write files into the working directory: all of them, or none.

    Raises:
        ConfigError: one is there already, or cannot be written.
    """
    for name in contents:
        if Path(name).exists() and not over:
            raise ConfigError(
                f"{name} is there already, and nothing was written. Move it away, or work in another folder."
            )
    for name, text in contents.items():
        try:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{name}: cannot be written: {error.strerror}.") from None


def _template(name: str) -> str:
    return files("fedguard").joinpath("templates", name).read_text(encoding="utf-8")


def _examples() -> Path:
    """The folder of the examples: inside an installed package, or beside it in a checkout."""
    package = Path(str(files("fedguard")))
    return next(folder for folder in (package / "examples", package.parent / "examples") if folder.is_dir())


def _summary(path: Path) -> str:
    if path.is_dir():
        path = min(one for one in path.iterdir() if one.is_file() and one.suffix != ".json")  # kept results say nothing
    head = re.match(r'(?:#[^\n]*\n)+|""".*?"""', path.read_text(encoding="utf-8"), re.DOTALL)
    said = " ".join(re.sub(r'^# ?|"""', "", head[0] if head else "", flags=re.MULTILINE).split())
    return re.split(r"(?<=[.?]) ", said)[0]
