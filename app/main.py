"""The dashboard, started by `fedguard dashboard`, which passes the store. It reads records and nothing else."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from fedguard.app import address, data, style
from fedguard.app.here import PageContext, empty, plain
from fedguard.app.views import PAGES, NavigationEntry
from fedguard.errors import FedGuardError

if TYPE_CHECKING:
    from streamlit.navigation.page import StreamlitPage


_MISSING = (
    "There is no such run in this store; what is shown below is another one, chosen in the sidebar. The link asks for:"
)


def main() -> None:
    """Sidebar, navigation, and the page that the address names."""
    st.set_page_config(page_icon=str(Path(__file__).with_name("shield.svg")), layout="wide")
    style.page()
    store = Path(os.environ.get("FEDGUARD_STORE", "runs"))
    names = data.run_names(store)
    with address.write_address():
        name = None
        if names:
            says = f"Runs in {store}, the latest first."
            name = address.menu("Run", names, "run", place=st.sidebar, help=says, missing=_MISSING)
        known: dict[str, StreamlitPage] = {}
        here = PageContext(store, name, known)
        sections = {
            section: [_page(page, here, default=page is PAGES["A run"][0]) for page in pages]
            for section, pages in PAGES.items()
        }
        for pages in sections.values():
            known |= {page.url_path or "overview": page for page in pages}
        st.navigation(sections).run()


def _page(page: NavigationEntry, here: PageContext, *, default: bool) -> StreamlitPage:
    return st.Page(
        partial(_show, page, here),
        title=page.title,
        icon=f":material/{page.icon}:",
        url_path=page.name,
        default=default,
    )


def _show(page: NavigationEntry, here: PageContext) -> None:
    """Show a page, or why it cannot be shown. An error in a file is shown as one line, never as a traceback."""
    st.set_page_config(page_title=f"{page.title} · FedGuard")
    if page.reads == "run" and here.name is None:
        st.title(page.title, anchor=False)
        empty(f"There is no run yet in {here.store.name}.", "fedguard run examples/quick.yaml")
        return
    try:
        page.show(here)
    except FedGuardError as error:
        st.title(page.title, anchor=False)
        st.error("This cannot be shown.")
        plain(str(error))


main()
