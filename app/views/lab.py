"""Compose one cell, see at once whether it is legal, run it with live curves, and export it as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.app.lab.composition import as_yaml
from fedguard.app.lab.composition_check import CompositionCheck, judge_composition
from fedguard.app.lab.live import run
from fedguard.app.lab.menus import read_menus
from fedguard.app.lab.result import curves, result
from fedguard.bench.pages.blocks import Verdict
from fedguard.bench.pages.escape import markdown


def show(here: PageContext) -> None:
    """The verdict; menus on the left, beside them Run and the curves; below, the result, who sees what, and the suite."""
    head = st.container()
    menus, answer = st.columns([2, 3])
    with menus:
        suite = read_menus().suite()
    found = judge_composition(suite)
    with head:
        blocks.draw([_verdict(found, suite)], here)
    stored = found.legal and (here.store / suite["name"] / "manifest.json").is_file()
    below = st.empty()  # removes the result of an earlier run while a new one is under way
    with answer, st.container(key="lab-answer"):
        for line in found.unproven:
            st.warning(markdown(f"It runs, but outside of what was proven: {line}"), icon=":material/warning:")
        if _ask_for_run(found):
            run(suite, here.store, found.rounds, found.measure)
            stored = False
        elif stored:
            curves(here, suite["name"], found)
        else:
            _assumptions(found)
    with below.container():
        if stored:
            result(here, suite["name"], found)
            _assumptions(found)
        _suite(suite)


def _verdict(found: CompositionCheck, suite: Mapping[str, Any]) -> Verdict:
    """Whether it may run, and if not, why."""
    task = suite["task"]
    said = f"{task['data']}, {task['model']}, {task['partition']} · {suite['training']['algorithm']}"
    if found.mistake:
        return Verdict("This cannot be laid out: a value is missing or wrong", [found.mistake], said, tone="bad")
    place = f"{found.attack} against {found.defense}"
    if found.reasons:
        return Verdict(f"Refused: {place} cannot run", found.reasons, said, tone="warn")
    size = f"{found.trials} trials of {found.rounds} rounds" if found.rounds else f"{found.trials} trials"
    lead = "These are this cell and the controls that it is compared with, on each seed."
    return Verdict(f"May run: {place}, {size}", [lead], said, tone="good")


def _assumptions(found: CompositionCheck) -> None:
    if found.words:
        st.header("Who sees what")
        for line in found.words:
            st.text(line)


def _suite(suite: Mapping[str, Any]) -> None:
    text = as_yaml(suite)
    st.header("The suite")
    st.code(text, language="yaml", wrap_lines=True)  # a box that scrolls could not be reached by keyboard
    st.download_button(
        "Download", text, file_name=f"{suite['name']}.yaml", on_click="ignore", icon=":material/download:"
    )


def _ask_for_run(found: CompositionCheck) -> bool:
    """The buttons; returns whether a run was requested in this script run."""
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
            f"{found.trials} trials: this cell and the controls that it is compared with. Stop, another choice or leaving "
            "the page ends the workers; what is finished stays stored."
        )
    return asked
