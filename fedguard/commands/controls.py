"""`fedguard controls`: which controls of standards and laws a run is evidence for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedguard.commands.options import Force, RunName, Store, console, files_of, load_run, print_json
from fedguard.errors import StoreError


def controls(
    run: RunName,
    to: Annotated[
        list[str] | None, typer.Option(metavar="FILE.md|FILE.json", help="Write the report to a file. Repeatable.")
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Say which controls of standards and laws a run is evidence for, what the evidence does not show, and what was not tested.

    The controls come from a table with versions and links: AISVS, NIST SP 800-226 and AI 100-2, the EDPB's opinion on AI
    models, the AI Act. Nothing here says that a system complies.
    """
    import json

    from fedguard.bench.controls.evidence import collect_evidence
    from fedguard.bench.controls.report import describe_controls
    from fedguard.bench.controls.table import load_controls
    from fedguard.bench.pages.markdown import render_markdown
    from fedguard.bench.pages.terminal import render_terminal

    files = files_of(to, ("md", "json"), force)
    found, table = load_run(run, store), load_controls()
    content = {"version": table.version, "controls": [one.as_dict() for one in collect_evidence(found, table)]}
    for form, path in files:
        text = (
            render_markdown(describe_controls(found, table)) if form == "md" else json.dumps(content, indent=1) + "\n"
        )
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None
    if as_json:
        print_json(content)
    elif not files:
        console.print(render_terminal(describe_controls(found, table)), highlight=False)
