"""YAML with line numbers, and without the traps of YAML 1.1.

Only ``true`` and ``false`` are booleans, so that ``off`` and ``no`` stay words; ``1e-5`` is a number; a key that stands
twice is an error instead of the last one winning. Nothing in a file is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedguard.errors import ConfigError

Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """What a file (or a Python mapping) says, and where.

    Attributes:
        data: the content: dicts, lists and scalars.
        name: of the file, for messages; empty for a mapping.
        folder: where plug-in modules named in the file are looked for beside the working directory.
        lines: the line of each key.
        settings: keys that came from the command line.
    """

    data: dict[str, Any]
    name: str = ""
    folder: Path | None = None
    lines: Mapping[Key, int] = field(default_factory=dict)
    settings: frozenset[Key] = frozenset()

    def where(self, key: Key = ()) -> str:
        """``suite.yaml:12: training.lr`` or ``--set training.lr``, as far as it is known."""
        if any(key[:end] in self.settings for end in range(1, len(key) + 1)):
            return f"--set {dotted(key)}"
        if key and key not in self.lines and (above := [one for one in self.settings if one[: len(key)] == key]):
            return f"--set {dotted(min(above))}"
        line = next((self.lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in self.lines), None)
        file = f"{self.name}:{line}" if self.name and line else self.name
        return ": ".join(part for part in (file, dotted(key)) if part)


class _Loader(yaml.SafeLoader):
    """The safe loader, with the scalars of YAML 1.2."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rsplit(":", 1)[1] in ("null", "int", "merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|nan))$"),
    list("-+.0123456789"),
)


def read_document(path: str | Path) -> Document:
    """Read a YAML file.

    Raises:
        ConfigError: no such file, not YAML, not a mapping, or a key that stands twice.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}. Mend: give the path of a suite file, or make one with `fedguard init`."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected a text file in UTF-8.") from None
    data, lines = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: expected a mapping of keys such as `task:` and `matrix:`; got {type(data).__name__}."
        )
    return Document(data, str(path), path.resolve().parent, lines)


def parse_yaml(text: str, name: str = "value") -> tuple[Any, dict[Key, int]]:
    """The content of YAML text and the line of each key."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Key, int] = {}
        if node is None:
            return {}, lines
        _collect_lines(node, (), lines, name)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {str(error).splitlines()[0]}.") from None
    finally:
        loader.dispose()


def dotted(key: Key) -> str:
    """``("matrix", "attack", 2)`` as ``matrix.attack[2]``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _collect_lines(node: yaml.Node, key: Key, lines: dict[Key, int], name: str) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            below = (*key, str(key_node.value))
            if below in lines:
                raise ConfigError(
                    f"{name}:{key_node.start_mark.line + 1}: {dotted(below)} stands twice (first in line {lines[below]})."
                )
            lines[below] = key_node.start_mark.line + 1
            _collect_lines(value, below, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*key, index)] = item.start_mark.line + 1
            _collect_lines(item, (*key, index), lines, name)
