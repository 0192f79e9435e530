"""Packages that load a name when it is first asked for.

A package lists what it offers in one block of imports under ``if TYPE_CHECKING:``, which type checkers and editors read, and
takes its ``__getattr__`` from here. So whoever asks it for one name loads the module of this name, not all of them: what reads
a stored run never loads torch.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, which loads the names that the source of the package imports from elsewhere."""

    @cache
    def homes() -> dict[str, str]:
        source = inspect.getsource(sys.modules[package])
        imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
        return {one.name: str(node.module) for node in imports for one in node.names}

    def load(name: str) -> Any:
        if name.startswith("_") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes()[name]), name)

    return load
