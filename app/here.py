"""Where the reader is: which store, which run, which page; and how to get from one page to another."""

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
    """What a page is drawn from.

    Attributes:
        store: the folder of all runs.
        name: of the chosen run; None in an empty store.
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
        """Show another page, as ``here.go("cell", cell="dcda69c54e57")``. Keys that widgets are bound to may not be named."""
        st.switch_page(self.pages[page], query_params=self._query(query))

    def link(self, page: str, label: str, **query: str) -> None:
        """A link to another page."""
        st.page_link(self.pages[page], label=label, query_params=self._query(query))

    def _query(self, query: Mapping[str, str]) -> dict[str, str]:
        """With the run, so that the address can be passed on."""
        return {**({"run": self.name} if self.name else {}), **query}


def empty(what: str, *commands: str) -> None:
    """Say that there is nothing to show, and the commands that would make something."""
    st.info(f"{what} To make some:" if commands else what)
    for command in commands:
        st.code(_from_here(command), language="sh")


def _from_here(command: str) -> str:
    """The command with the store that this dashboard reads, where it is not the usual one."""
    store = os.environ.get("FEDGUARD_STORE", "runs")
    elsewhere = Path(store).resolve() != Path("runs").resolve()
    return (
        f"{command} {shlex.join(['--store', store])}" if elsewhere and command.startswith("fedguard run ") else command
    )


def plain(text: str) -> None:
    """A line from a file of the reader's, shown as it is: never as Markdown or HTML."""
    st.code(text, language=None, wrap_lines=True)
