"""The reader's choices are in the address, so that a link shows the same page elsewhere or later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import streamlit as st

from fedguard.app.here import plain

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

#: Session keys: the last choice of each menu, for pages with an incomplete address, and the values of this page
_LAST, _SAID = "address: last", "address: said"


def menu(
    label: str,
    options: Sequence[str],
    key: str,
    *,
    titles: Callable[[str], str] = str,
    place: DeltaGenerator | None = None,
    help: str | None = None,
    missing: str = "",
    default: str | None = None,
    chosen: str | None = None,
    slider: bool = False,
) -> str:
    """A select box that is kept in sync with the address.

    Streamlit's own ``bind`` writes the titles, and leaves out the first option, which may be a different one tomorrow.

    Args:
        options: as they are written in the address; by default the first, or ``default``, is chosen.
        titles: the text of an option.
        place: container of the box, such as a column.
        chosen: the choice, if the page has read it from the address itself.
        slider: draw a slider over the options instead, which are a sequence.
        missing: message if the address asks for an unknown option, instead of silently showing another one.
    """
    last, wanted = st.session_state.setdefault(_LAST, {}), read_choice(key)
    chosen = chosen or (wanted if wanted is not None and wanted in options else default or options[0])
    if missing and st.query_params.get(key, chosen) not in options:
        st.warning(missing, icon=":material/link_off:")
        plain(st.query_params[key])
    box = f"menu: {key}"
    st.session_state[box] = chosen
    at = st if place is None else place
    draw = at.select_slider if slider else at.selectbox
    draw(label, options, format_func=titles, key=box, on_change=_follow, args=(key, box), help=help)
    last[key] = chosen
    say(key, chosen)
    return chosen


def read_choice(key: str) -> str | None:
    """The choice in the address; if there is none, the last choice."""
    found: str | None = st.query_params.get(key, st.session_state.get(_LAST, {}).get(key))
    return found


def say(key: str, value: str) -> None:
    """Set a value in the address when the page is drawn."""
    st.session_state.setdefault(_SAID, {})[key] = value


@contextmanager
def write_address() -> Iterator[None]:
    """Write all values set in this context to the address at once: each change is a step in the browser's history."""
    st.session_state[_SAID] = {}
    yield
    said = st.session_state[_SAID]
    if any(st.query_params.get(key) != value for key, value in said.items()):
        st.query_params.update(said)


def _follow(key: str, box: str) -> None:
    """Callback of a menu: write the choice to the address."""
    st.query_params[key] = st.session_state[box]
