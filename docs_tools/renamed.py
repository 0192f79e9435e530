"""`docs/renamed.md`: every name of an earlier version with the one that replaces it, from the tables of `fedguard.retired`.

``python -m docs_tools.renamed`` writes the page, and a test holds it against the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fedguard.retired import (
    RETIRED_ARGUMENTS,
    RETIRED_CHECKS,
    RETIRED_COLUMNS,
    RETIRED_COMMANDS,
    RETIRED_FIELDS,
    RETIRED_FLAGS,
    RETIRED_KEYS,
    RETIRED_KINDS,
    RETIRED_METRICS,
    RETIRED_NAMES,
    RETIRED_OPTIONS,
    RETIRED_PARAMETERS,
    RETIRED_PYTEST,
    RETIRED_VALUES,
)

PAGE = Path(__file__).parents[1] / "docs" / "renamed.md"

#: How long an old name is understood
ONE_VERSION, ALWAYS, REFUSED = "one more version", "always", "no longer: an error names the new one"

Row = tuple[str, str, str]

_HEAD = """# Renamed

For everyone whose script, suite or stored run comes from an earlier version of FedGuard. After this page you can replace each
old name. Reading takes two minutes; the tables are made from the code.

An old name that still works writes a line to standard error, or a `DeprecationWarning` in Python, with the new name. An old
name that means something else today is an error, which names the new one. Stored runs and baselines stay as they are: every
reader shows them under today's names.
"""


def page() -> str:
    """The page, in Markdown."""
    tables = {
        "Commands and options of `fedguard`, and of its plug-in of pytest": _commands(),
        "Keys and values of suites": _suites(),
        "Algorithms and their parameters": _algorithms(),
        "Metrics": _rows(RETIRED_METRICS, ALWAYS),
        "Columns of the file of a graph": _rows(RETIRED_COLUMNS, ONE_VERSION),
        "Arguments in Python": _arguments(),
        "Fields of records, run manifests and verdicts": _rows(RETIRED_FIELDS, ALWAYS),
        "Red flags": _rows(RETIRED_FLAGS, ALWAYS),
        "Checks of audits and trivial guesses in records": _rows(RETIRED_CHECKS, ALWAYS),
    }
    return "\n".join([_HEAD, *(f"## {title}\n\n{_table(rows)}" for title, rows in tables.items())])


def _commands() -> Iterator[Row]:
    for row in RETIRED_OPTIONS:
        old, until = f"{row.old} {'VALUE' if row.has_value else ''}".strip(), ONE_VERSION if row.accepted else REFUSED
        for command in row.commands:
            yield f"{command} {old}", f"{command} {row.new.format('VALUE')}", until
    yield from _rows(RETIRED_COMMANDS, ONE_VERSION)
    yield from _rows(RETIRED_PYTEST, ONE_VERSION, "pytest {}")
    yield from _rows(RETIRED_KINDS, ONE_VERSION, "new {}")


def _suites() -> Iterator[Row]:
    yield "kind: NAME", "name: NAME", ONE_VERSION
    yield from _rows(
        {old: new for old, new in RETIRED_KEYS.items() if not old.startswith("gate.metrics.")}, ONE_VERSION
    )
    for key, values in RETIRED_VALUES.items():
        yield from _rows({str(old).lower(): new for old, new in values.items()}, ONE_VERSION, f"{key}: {{}}")


def _algorithms() -> Iterator[Row]:
    yield from _rows(RETIRED_NAMES, ONE_VERSION)
    for name, parameters in RETIRED_PARAMETERS.items():
        yield from _rows(parameters, ONE_VERSION, f"{name}({{}}=)")


def _arguments() -> Iterator[Row]:
    for function, old, new in RETIRED_ARGUMENTS:
        yield f"fg.{function}({old}=)", f"fg.{function}({new}=)", ONE_VERSION


def _rows(names: dict[str, str], until: str, form: str = "{}") -> Iterator[Row]:
    return ((form.format(old), form.format(new), until) for old, new in names.items())


def _table(rows: Iterable[Row]) -> str:
    lines = (f"| `{old}` | `{new}` | {until} |" for old, new, until in rows)
    return "\n".join(["| old name | new name | the old name works |", "|---|---|---|", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
