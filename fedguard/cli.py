"""The command line. Each command is a few lines over the Python front door; `--help` loads no torch.

Exit codes: 0 done, 1 a fault of FedGuard's own, 2 usage or configuration, 3 a finding (a regression,
a violated epsilon, an attack that succeeds, or a flag under `lint --fail-on flags`), 4 something cannot be judged (trials that
failed, an audit or a gate without enough evidence), 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from fedguard.commands import dashboard, explain, flower, gate, nvflare, run, secagg, setup, show
from fedguard.commands.accept import accept
from fedguard.commands.audit import audit
from fedguard.commands.command import Command
from fedguard.commands.compare import compare
from fedguard.commands.conform import conform
from fedguard.commands.contribution import contribution
from fedguard.commands.controls import controls
from fedguard.commands.epsilon import epsilon
from fedguard.commands.figure import figure
from fedguard.commands.options import console, fail
from fedguard.commands.report import report
from fedguard.commands.site import site
from fedguard.errors import FedGuardError, printable
from fedguard.retired import RETIRED_COMMANDS

app = typer.Typer(
    name="fedguard",
    help="Attack-defense benchmarks for federated learning whose figures can be trusted.\n\n"
    "Start with `fedguard init`, then `fedguard run suite.yaml`, then `fedguard show suite`.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


for _panel, _commands in {
    "Start": (setup.init, setup.new, setup.examples, setup.doctor),
    "A suite": (run.check, run.run, run.tune),
    "A run": (
        show.show,
        dashboard.dashboard,
        report,
        site,
        figure,
        compare,
        show.lint,
        show.breakdown,
        show.privacy,
        contribution,
        controls,
        show.export,
        show.schema,
    ),
    "Continuous integration": (gate.gate, accept, conform),
    "Privacy": (epsilon, audit),
    "What there is": (explain.list_, explain.explain, explain.kappa, show.schema),
}.items():
    for _command in _commands:
        app.command(_command.__name__.rstrip("_"), cls=Command, rich_help_panel=_panel)(_command)
for _old in RETIRED_COMMANDS:
    app.command(_old, cls=Command, hidden=True)(show.RETIRED[_old])
app.add_typer(gate.app, rich_help_panel="Continuous integration")
app.add_typer(secagg.app, rich_help_panel="Privacy")
app.add_typer(flower.app, rich_help_panel="A suite")
app.add_typer(nvflare.app, rich_help_panel="A suite")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        console.print(f"fedguard {installed('fedguard')}", highlight=False)
    elif context.invoked_subcommand is None:
        console.print(context.get_help())


def main() -> NoReturn:
    """Run the command line: a user's mistake is one line and exit 2; a fault of FedGuard is a log and exit 1."""
    signal.signal(signal.SIGTERM, _end)
    try:
        code = app(standalone_mode=False, prog_name="fedguard")
        sys.exit(code if isinstance(code, int) else 0)
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        said = error.format_message().replace("Value error, ", "")  # pydantic's, by which typer reads choices
        fail(f"{said} (See `{context.command_path if context else 'fedguard'} --help`.)", 2)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted.", 130)
    except Exception as error:
        _answer(error)


def _answer(error: Exception) -> NoReturn:
    """Report an error and exit, depending on its origin: the user or a plug-in (exit 2), or FedGuard itself."""
    code = error.exit_code if isinstance(error, FedGuardError) else 1
    if code != 1:
        fail(str(error), code)
    from fedguard.bench.running.blame import blame_plugin, in_words

    if blame_plugin(error) is not None:
        fail(f"{in_words(error)} (traceback: {_crash_log()})", 2)
    if isinstance(error, FedGuardError):
        fail(str(error), 1)
    said = f"a fault of FedGuard, not yours: {type(error).__name__}: {printable(str(error))}."
    fail(f"{said} Please report it with {_crash_log()}.", 1)


def _end(*_: object) -> NoReturn:
    """End as Ctrl-C does, but not through SIGINT, which background jobs of a shell ignore."""
    raise KeyboardInterrupt


def _crash_log() -> str:
    """Write the current traceback to the working directory or else to the temporary folder; return its location in words."""
    name = f"fedguard-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    for folder in (Path(), Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            (folder / name).write_text(traceback.format_exc(), encoding="utf-8")
            return str(folder / name)
    # Neither folder is writable
    traceback.print_exc()
    return "the lines above"


#: Typer's base class of usage errors: click's own, or the copy of it in newer versions of typer
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[2]


if __name__ == "__main__":
    main()
