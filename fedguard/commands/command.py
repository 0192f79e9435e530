"""A command of the command line that also understands its options of earlier versions (`fedguard.retired`)."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from fedguard.retired import RetiredOption, note_renamed, options_of


class Command(TyperCommand):
    """Replaces retired options before the arguments are read. Neither `--help` nor shell completion shows them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        retired = options_of(ctx.command_path)
        if retired and not ctx.resilient_parsing:  # completion parses incomplete commands, and must not print
            args = self._replace(ctx, args, retired)
        return super().parse_args(ctx, args)

    def _replace(self, ctx: Any, args: list[str], retired: dict[str, RetiredOption]) -> list[str]:
        with_value = {name for one in self.params if not getattr(one, "is_flag", True) for name in one.opts}
        rest, replaced = list(args), list[str]()
        used: list[RetiredOption] = []
        while rest:
            argument = rest.pop(0)
            name, equals, value = argument.partition("=")
            row = retired.get(name)
            if argument == "--":
                return [*self._once(ctx, replaced, used), argument, *rest]
            if row is None or (name == "--json" and not equals and not _is_file(rest)):
                replaced.append(argument)
                if argument in with_value:  # its value is not an option, whatever it looks like
                    replaced += rest[:1]
                    del rest[:1]
                continue
            if not row.accepted:
                ctx.fail(f"{row.old} is now {row.successor}, since {row.old} means something else in other commands.")
            if equals and not row.has_value:
                ctx.fail(f"Option {row.old!r} does not take a value. It is now {row.successor}.")
            if row.has_value and not equals:
                if not rest:
                    ctx.fail(f"Option {row.old!r} requires an argument. It is now {row.successor}.")
                value = rest.pop(0)
            used.append(row)
            replaced += row.translate(value)
        return self._once(ctx, replaced, used)

    def _once(self, ctx: Any, args: list[str], used: list[RetiredOption]) -> list[str]:
        """Name the new options; an option with one value must not be given under its old and its new name."""
        for row in used:
            names = next(one.opts for one in self.params if row.new.split()[0] in one.opts)
            repeatable = any(getattr(one, "multiple", False) for one in self.params if one.opts == names)
            short = tuple(name for name in names if not name.startswith("--"))
            times = sum(word.partition("=")[0] in names or word.startswith(short) for word in args)
            if row.has_value and not repeatable and times > 1:
                ctx.fail(f"{row.old} is the old name of {row.successor}. Give {row.successor} alone, once.")
        note_renamed((row.old, row.successor) for row in used)
        return args


def _is_file(rest: list[str]) -> bool:
    """Whether a file follows ``--json``, as in earlier versions, where it was no flag."""
    return bool(rest) and (rest[0] == "-" or rest[0].endswith(".json"))
