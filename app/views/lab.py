"""Put one cell together, see at once whether it is legal, run it with live curves, and take it along as YAML."""

from __future__ import annotations

import streamlit as st
from fedguard.app.here import Here, plain
from fedguard.app.lab.composition import as_yaml
from fedguard.app.lab.judged import Judged, judged
from fedguard.app.lab.live import run
from fedguard.app.lab.menus import composed
from fedguard.app.lab.result import result


def show(here: Here) -> None:
    """Menus above; below, what the tool says of the composition, the suite, and its run."""
    suite = composed().suite()
    found = judged(suite)
    left, right = st.columns(2)
    with left:
        _verdict(found)
    with right:
        text = as_yaml(suite)
        st.subheader("The suite")
        st.code(text, language="yaml")
        st.download_button(
            "Download", text, file_name=f"{suite['name']}.yaml", on_click="ignore", icon=":material/download:"
        )
    if _asked(found):
        run(suite, here.store, found.rounds)
    elif found.legal and (here.store / suite["name"] / "manifest.json").is_file():
        result(here, suite["name"], found)


def _verdict(found: Judged) -> None:
    """Legal or not, and why."""
    st.subheader("Is it legal?")
    if found.mistake:
        st.error("This cannot be laid out.", icon=":material/error:")
        plain(found.mistake)
        return
    if found.reasons:
        st.error("Refused.", icon=":material/block:")
        for reason in found.reasons:
            plain(reason)
        return
    st.success("It may run.", icon=":material/check_circle:")
    for line in found.words:
        st.text(line)
    if found.unproven:
        st.warning("It runs, but outside of what was proven.", icon=":material/warning:")
        for line in found.unproven:
            plain(line)


def _asked(found: Judged) -> bool:
    """The buttons; whether a run was asked for in this drawing."""
    with st.container(horizontal=True):
        asked = st.button(
            "Run",
            type="primary",
            disabled=not found.legal,
            icon=":material/play_arrow:",
            help="Real workers on this machine. What is stored is not run again.",
        )
        if asked:
            st.button("Stop", icon=":material/stop:")  # any click ends the script, and with it the workers
    if asked:
        st.caption(
            f"{found.trials} trials: this cell and the corners that it is compared with. Stop, another choice or leaving "
            "the page ends the workers; what is finished stays stored."
        )
    return asked
