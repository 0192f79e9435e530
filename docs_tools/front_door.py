"""The reference of the Python interface: every name in `fedguard.__all__`, from its docstring."""

from __future__ import annotations

import fedguard
from docs_tools.markup import page

_FIRST = """The commands are thin over these functions. `import fedguard as fg` is cheap; the first call loads torch."""

_ERRORS = """## Errors

Every error that a user can cause is a `FedGuardError`, and one line: what was expected, what came, how to remedy it.

::: fedguard.errors
    options: {show_root_heading: false, show_root_toc_entry: false, heading_level: 3}"""


def pages() -> dict[str, str]:
    """``reference/python.md``; mkdocstrings fills in the text for each ``:::``."""
    return {
        "reference/python.md": page("Python", _FIRST, *(f"::: fedguard.{name}" for name in fedguard.__all__), _ERRORS)
    }
