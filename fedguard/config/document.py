"""YAML with line numbers, and without the traps of YAML 1.1.

Only ``true`` and ``false`` are booleans, so ``off`` and ``no`` remain strings. ``1e-5`` is a number. Integers are decimal, so
``010`` and ``1:30`` are strings, which no numeric key accepts. Keys are strings, and a duplicate key is an error. Nothing in a
file is executed, and tags are refused. The size of a file, its nesting depth and the expansion of its aliases are bounded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedguard.errors import ConfigError, brief

Key = tuple[str | int, ...]

#: Bounds of a file: bytes, nesting depth, and keys and values once its aliases are expanded
MOST_BYTES, MOST_DEEP, MOST_NODES = 1_000_000, 32, 50_000
#: Bound of a number, which text can hold
MOST_BITS = 10_000


@dataclass(frozen=True)
class Document:
    """The content of a file or of a Python mapping, with locations.

    Attributes:
        data: the content: dicts, lists and scalars.
        name: name of the file, for messages; empty for a mapping.
        folder: folder in which plug-in modules are looked up, in addition to the working directory.
        lines: the line of each key.
        settings: keys that came from the command line.
        source: where the content came from. Documents with different sources are different suites, even under one name.
    """

    data: dict[str, Any]
    name: str = ""
    folder: Path | None = None
    lines: Mapping[Key, int] = field(default_factory=dict)
    settings: frozenset[Key] = frozenset()
    source: str | None = None

    def where(self, key: Key = ()) -> str:
        """``suite.yaml:12: training.lr`` or ``--set training.lr``, as far as the location is known."""
        if any(key[:end] in self.settings for end in range(1, len(key) + 1)):
            return f"--set {format_key(key)}"
        if key and key not in self.lines and (above := [one for one in self.settings if one[: len(key)] == key]):
            return f"--set {format_key(min(above))}"
        line = next((self.lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in self.lines), None)
        file = f"{self.name}:{line}" if self.name and line else self.name
        return ": ".join(part for part in (file, format_key(key)) if part)


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2, without tags, and with bounded nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem=f"expected no tags; got {event.tag}", problem_mark=event.start_mark)
        # The composer recurses, so unbounded nesting would end in a RecursionError instead of a message
        if self.depth == MOST_DEEP:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MOST_DEEP} deep", problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rsplit(":", 1)[1] in ("null", "merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile("^(?=.{1,4000}$)[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|nan))$"),
    list("-+.0123456789"),
)


def read_document(path: str | Path) -> Document:
    """Read a YAML file.

    Raises:
        ConfigError: the file is missing, not YAML, empty, not a mapping or out of bounds, or has a duplicate key.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            # One byte beyond the limit shows that a file is too large, without reading all of it
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a path may not hold the character 0
        raise ConfigError(
            f"{path}: cannot be read: {getattr(error, 'strerror', error)}. Give the path of a suite file, or make one with "
            "`fedguard init`."
        ) from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: expected at most {MOST_BYTES:,} bytes; got more. Is it a suite?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected a text file in UTF-8.") from None
    data, lines = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        got = "nothing" if data is None else type(data).__name__
        raise ConfigError(f"{path}: expected a mapping of keys such as `task:` and `matrix:`; got {got}.")
    return Document(data, str(path), path.resolve().parent, lines, source=str(path.resolve()))


def document_of(suite: Mapping[str, Any], folder: Path | None = None) -> Document:
    """The document of a Python mapping, with numbers of numpy as Python's and paths as text.

    Raises:
        ConfigError: a key is no string, or the mapping is nested too deep, as one that contains itself.
    """
    return Document(_plain(suite, ()), folder=folder)


def _plain(value: Any, key: Key) -> Any:
    if len(key) > MOST_DEEP:
        raise ConfigError(f"{format_key(key[:3])}: expected values nested at most {MOST_DEEP} deep; got more.")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ConfigError(f"{format_key(key)}: expected a number of at most {MOST_BITS:,} bits; got {brief(value)}.")
    if isinstance(value, Mapping):
        if others := [name for name in value if not isinstance(name, str)]:
            raise ConfigError(f"{format_key(key) or 'suite'}: expected words as keys; got {brief(others[0])}.")
        return {name: _plain(below, (*key, name)) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below, (*key, index)) for index, below in enumerate(value)]
    return (
        value.item() if isinstance(value, np.generic) else os.fspath(value) if isinstance(value, os.PathLike) else value
    )


def parse_yaml(text: str, name: str = "value") -> tuple[Any, dict[Key, int]]:
    """The content of YAML text (None if it is empty), and the line of each key."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        number = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{name}:{number}: expected text; got the character {chr(error.character)!r}.") from None
    try:
        node = loader.get_single_node()
        lines: dict[Key, int] = {}
        if node is None:
            return None, lines
        _collect_lines(node, (), lines, name)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {str(error).splitlines()[0]}.") from None
    finally:
        loader.dispose()


def format_key(key: Key) -> str:
    """``("matrix", "attack", 2)`` as ``matrix.attack[2]``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _collect_lines(node: yaml.Node, key: Key, lines: dict[Key, int], name: str) -> None:
    """Collect the line of each key below ``node``, with aliases expanded, within the bounds."""
    # Aliases share nodes, so a small file can expand exponentially ("billion laughs")
    if len(lines) > MOST_NODES or len(key) > 2 * MOST_DEEP:
        raise ConfigError(
            f"{name}:{node.start_mark.line + 1}: expected at most {MOST_NODES:,} keys and values, nested at most "
            f"{2 * MOST_DEEP} deep; got more once aliases (*) are expanded."
        )
    if isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag.rsplit(":", 1)[1] not in ("str", "merge"):
                got = brief(key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping")
                raise ConfigError(
                    f"{name}:{key_node.start_mark.line + 1}: {format_key(key) or 'keys'}: expected words as keys; got {got}."
                )
            below = (*key, key_node.value)
            if below in lines:
                raise ConfigError(
                    f"{name}:{key_node.start_mark.line + 1}: {format_key(below)} is given twice (first in line {lines[below]})."
                )
            lines[below] = key_node.start_mark.line + 1
            _collect_lines(value, below, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*key, index)] = item.start_mark.line + 1
            _collect_lines(item, (*key, index), lines, name)
