"""`fedguard dashboard`: the runs in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedguard.commands.options import Store
from fedguard.errors import MissingExtra


def dashboard(
    store: Store = Path("runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 8501,
    address: Annotated[
        str, typer.Option(help="Where to listen. Anybody who reaches it can read all runs.")
    ] = "localhost",
) -> None:
    """Explore runs in the browser."""
    import importlib.util
    import os
    import subprocess

    from fedguard.bench.pages.tokens import TOKENS

    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtra("the dashboard", "streamlit", "dashboard")
    page = importlib.util.find_spec("fedguard.app.main")
    assert page is not None and page.origin is not None
    command = [sys.executable, "-m", "streamlit", "run", page.origin, "--browser.gatherUsageStats", "false"]
    command += [
        "--theme.light.primaryColor",  # a color for both would be a theme of its own, which is always light
        "#2f6f8f",
        "--theme.dark.primaryColor",
        "#5fa8cc",
        "--theme.light.textColor",  # captions, heads of tables and labels are a thinner coat of it, and must stay readable
        "#0a0a0a",
        *(f"--theme.{name}.backgroundColor={TOKENS['ground'][name == 'dark']}" for name in ("light", "dark")),
        "--client.toolbarMode",
        "minimal",
        "--server.address",
        address,
        "--server.port",
        str(port),
    ]
    environment = {**os.environ, "FEDGUARD_STORE": str(store.resolve())}
    try:
        raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
