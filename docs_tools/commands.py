"""The reference of the commands, from the data behind `--help`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from docs_tools.markup import code, fenced, inline, page, paragraphs, table
from fedguard import cli


def pages() -> dict[str, str]:
    """``reference/commands.md``."""
    _, codes = (cli.__doc__ or "").split("Exit codes:")
    commands = list(_commands(get_command(cli.app), "fedguard"))
    listed = (
        [f'<a href="#{name.replace(" ", "-")}">{code(name)}</a>', inline(str(command.help).split("\n\n")[0])]
        for name, command in commands
    )
    written = (_written(name, command) for name, command in commands)
    return {
        "reference/commands.md": page("Commands", table(["", ""], listed), f"Exit codes: {inline(codes)}", *written)
    }


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group, with its full name."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}")
        elif not command.hidden:
            yield f"{name} {word}", command


def _written(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = command.get_usage(context).removeprefix("Usage:")
    records = (parameter.get_help_record(context) for parameter in command.params)
    rows = [[code(" ".join(spelled.split())), *_meaning(said)] for spelled, said in filter(None, records)]
    return "\n\n".join([
        f"## {name}",
        fenced(" ".join(usage.split()), "text"),
        paragraphs(command.help or ""),
        table(["", "meaning", "default"], rows) if rows else "",
    ])  # fmt: skip


def _meaning(said: str) -> tuple[str, str]:
    """The help text of an option, and its default, which ends the help text in brackets."""
    help_, extra = re.fullmatch(r"(.*?)\s*(\[[^\[]*\])?", said, re.DOTALL).groups()  # type: ignore[union-attr]
    facts = [fact.strip() for fact in (extra or "[]")[1:-1].split(";") if fact.strip()]
    default = next((fact.removeprefix("default:").strip() for fact in facts if fact.startswith("default:")), "")
    rest = "; ".join(fact for fact in facts if not fact.startswith("default:"))
    return inline(f"{help_} ({rest})" if rest else help_), code(default) if default else ""
