"""The reader's context: store, run and page, and links from one page to another."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import streamlit as st

from fedguard.app import data

if TYPE_CHECKING:
    from streamlit.navigation.page import StreamlitPage

    from fedguard.bench.results.run import Run


@dataclass(frozen=True)
class PageContext:
    """The context of a page.

    Attributes:
        store: the folder of all runs.
        name: name of the chosen run; None in an empty store.
        pages: Streamlit's pages by name, to link to.
    """

    store: Path
    name: str | None
    pages: Mapping[str, StreamlitPage] = field(repr=False)

    def run(self) -> Run:
        """The chosen run, its records in memory.

        Raises:
            StoreError: there is none, or its manifest cannot be read.
        """
        return data.open_run(self.store, self.name or "")

    def go(self, page: str, **query: str) -> NoReturn:
        """Show another page, as ``here.go("cell", cell="dcda69c54e57")``. Keys bound to widgets are not allowed."""
        st.switch_page(self.pages[page], query_params=self._query(query))

    def link(self, page: str, label: str, **query: str) -> None:
        """A link to another page."""
        st.page_link(self.pages[page], label=label, query_params=self._query(query))

    def _query(self, query: Mapping[str, str]) -> dict[str, str]:
        """The query with the run, so that the address can be shared."""
        return {**({"run": self.name} if self.name else {}), **query}


def empty(what: str, *commands: str) -> None:
    """Say that there is nothing to show, with the commands that would create it."""
    st.info(f"{what} To make some:" if commands else what)
    for command in commands:
        st.code(_from_here(command), language="sh", wrap_lines=True)


def _from_here(command: str) -> str:
    """The command with the store of this dashboard, unless it is the default one."""
    store = os.environ.get("FEDGUARD_STORE", "runs")
    elsewhere = Path(store).resolve() != Path("runs").resolve()
    return (
        f"{command} {shlex.join(['--store', store])}" if elsewhere and command.startswith("fedguard run ") else command
    )


def plain(text: str) -> None:
    """A line from a file of the reader, shown literally: never as Markdown or HTML."""
    st.code(text, language=None, wrap_lines=True)
