"""What a reader chose stands in the address: who opens it elsewhere, or later, sees the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import streamlit as st

from fedguard.app.here import plain

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

#: In the session: the last choice of each menu, for pages whose address does not say, and what this page says.
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
) -> str:
    """A select box that the address leads, and that leads the address.

    Streamlit's own ``bind`` writes the titles, and leaves out the first option, which may be another one tomorrow.

    Args:
        options: as the address has them; the first, or the ``default``, is chosen where nothing else is.
        titles: what is shown for an option.
        place: where it stands, such as a column.
        missing: what to say where the address asks for one that is not there, instead of showing another one silently.
    """
    last, wanted = st.session_state.setdefault(_LAST, {}), read_choice(key)
    chosen = wanted if wanted is not None and wanted in options else default or options[0]
    if missing and st.query_params.get(key, chosen) not in options:
        st.warning(missing, icon=":material/link_off:")
        plain(st.query_params[key])
    box = f"menu: {key}"
    st.session_state[box] = chosen
    draw = st.selectbox if place is None else place.selectbox
    draw(label, options, format_func=titles, key=box, on_change=_follow, args=(key, box), help=help)
    last[key] = chosen
    say(key, chosen)
    return chosen


def read_choice(key: str) -> str | None:
    """What the address asks for; or what was chosen last, where it does not say."""
    found: str | None = st.query_params.get(key, st.session_state.get(_LAST, {}).get(key))
    return found


def say(key: str, value: str) -> None:
    """Have the address name a value when the page is drawn."""
    st.session_state.setdefault(_SAID, {})[key] = value


@contextmanager
def write_address() -> Iterator[None]:
    """Write what is said within into the address at once: each change of it is a step for the browser's way back."""
    st.session_state[_SAID] = {}
    yield
    said = st.session_state[_SAID]
    if any(st.query_params.get(key) != value for key, value in said.items()):
        st.query_params.update(said)


def _follow(key: str, box: str) -> None:
    """The reader chose."""
    st.query_params[key] = st.session_state[box]
