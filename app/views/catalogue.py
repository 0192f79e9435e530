"""Every attack, defense, data set, partition and model, with the content of `fedguard explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import streamlit as st
from rich.console import Console

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.docstrings import plain, prose
from fedguard.bench.explain.catalogue import algorithms, entries, facts, works_with
from fedguard.bench.explain.settings import settings
from fedguard.bench.explain.toy import picture_of
from fedguard.bench.pages.blocks import Code, Facts, Verdict
from fedguard.bench.pages.escape import markdown
from fedguard.registry import load_registry

#: Titles of the kinds; kinds that no suite names and that attack no protocol are left out
KINDS = {
    "attack": "attack on the training",
    "inference": "attack on privacy",
    "protocol": "attack on the protocol",
    "defense": "defense",
    "trigger": "trigger",
    "data": "data",
    "partition": "partition",
    "model": "model",
    "masking": "mode of masking",
    "algorithm": "federated algorithm",
    "noise": "noise for privacy",
    "evasion": "attack at test time",
    "availability": "when devices are there",
    "statistics": "fate of running statistics",
}


def show(here: PageContext) -> None:
    """A table with a search field, and one algorithm in full."""
    offered = _entries()
    head = st.container()
    chosen = _filter_algorithms(offered)
    with head:
        blocks.draw([_verdict(chosen, offered)], here)
    table = [_row(one) for one in chosen]
    # A new selection of rows needs a new key, or Streamlit would keep the selected row number of the old table
    key = f"table {hash(tuple(line['name'] for line in table))}"
    widths = {"what it does": st.column_config.Column(width=290), "needs to see": st.column_config.Column(width=190)}
    event: Any = st.dataframe(
        table,
        hide_index=True,
        height=440,
        row_height=72,
        width="stretch",
        on_select="rerun",
        selection_mode="single-cell",
        key=key,
        column_config=widths,
    )
    picked = [line for line, _ in event.selection.cells]
    names = list(dict.fromkeys(one["name"] for one in offered))
    if picked and (line := (chosen[picked[0]]["kind"], chosen[picked[0]]["name"])) != st.session_state.get("picked"):
        st.session_state["picked"] = line
        st.session_state["name"] = line[1]
    name = st.selectbox("In full", names, key="name", bind="query-params", help="Type to search.")
    for entry in offered:
        if entry["name"] == name:
            _in_full(here, entry)


def _verdict(chosen: Sequence[dict[str, Any]], offered: Sequence[dict[str, Any]]) -> Verdict:
    """How many there are, and of them how many fit."""
    kinds = Counter(one["kind"] for one in chosen)
    most = ", ".join(f"{count} of the kind {KINDS[kind]}" for kind, count in kinds.most_common(3))
    all_ = f"{len(offered)} attacks, defenses and other parts of a suite"
    headline = f"{all_}, each with its formula" if len(chosen) == len(offered) else f"{len(chosen)} of {all_} fit"
    lead = [f"{most}." if most else "Take a filter away.", "Click a line to read it in full below."]
    return Verdict(headline, lead, "nothing was trained; read from the code and its docstrings")


@st.cache_data(show_spinner="Reading the catalog ...")
def _entries() -> list[dict[str, Any]]:
    return entries(load_registry(), list(KINDS))


def _filter_algorithms(offered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The algorithms that match the reader's filter."""
    words, kinds = st.columns(2)
    text = words.text_input("Search", key="search", bind="query-params", placeholder="name or what it does").lower()
    kind = kinds.multiselect("Kind", list(KINDS), key="kind", bind="query-params", placeholder="all")
    more = st.expander("More filters (3)")
    goals, masks = more.columns(2)
    known = sorted({one["goal"] for one in offered if "goal" in one})
    goal = goals.multiselect("Goal of the attack", known, key="goal", bind="query-params", placeholder="all")
    full = masks.selectbox("Under full masking", ["all", "runs", "refused"], key="masking", bind="query-params")
    sees = more.multiselect(
        "Needs no more than",
        sorted({name for one in offered for way in one["needs"] for name in way}),
        key="sees",
        bind="query-params",
        placeholder="whatever it needs",
        help="What somebody sees: those are left that can work with it.",
    )
    return [
        one
        for one in offered
        if text in f"{one['name']} {one['summary']}".lower()
        and (not kind or one["kind"] in kind)
        and (not goal or one.get("goal") in goal)
        and (full == "all" or _under_full(one) == full)
        and (not sees or works_with(one["needs"], sees))
    ]


def _row(entry: dict[str, Any]) -> dict[str, str]:
    return {
        "name": entry["name"],
        "kind": entry.get("stage") or KINDS[entry["kind"]],
        "what it does": entry["summary"],
        "needs to see": " or ".join(" + ".join(way) or "nothing" for way in entry["needs"]),
        "goal": entry.get("goal", ""),
        "under full masking": _under_full(entry),
    }


def _under_full(entry: dict[str, Any]) -> str:
    if "runs_under" not in entry:
        return ""
    return "runs" if "full" in entry["runs_under"] else "refused"


def _in_full(here: PageContext, entry: dict[str, Any]) -> None:
    """Docstring, facts, parameters, and the picture of `fedguard explain`."""
    cls = next(one for one in algorithms(load_registry(), entry["name"]) if one.kind == entry["kind"])
    st.header(f"{markdown(entry['name'])} ({KINDS[entry['kind']]})", anchor=False)
    left, right = st.columns([3, 2])
    with left:
        for paragraph in plain(prose(cls.__doc__ or "")).split("\n\n"):
            st.text(paragraph if "\n    " in f"\n{paragraph}" else " ".join(paragraph.split()))
        _try(here, entry)
    with right:
        blocks.draw([Facts([(name, [value]) for name, value in [*facts(cls), ("from", entry["origin"])]])], here)
    if found := settings(cls):
        st.markdown("**Parameters**")
        st.dataframe(
            [
                {"parameter": one.name, "type": one.type, "default": one.default, "what it means": plain(one.meaning)}
                for one in found
            ],
            hide_index=True,
            column_config={"what it means": st.column_config.TextColumn(width="large")},
        )
    if picture := picture_of(cls):
        console = Console(width=110, no_color=True)
        with console.capture() as capture:
            console.print(picture)
        blocks.draw([Code(capture.get())], here)


def _try(here: PageContext, entry: dict[str, Any]) -> None:
    """How to use it."""
    stages = {"client transform": "transforms", "mixing": "mixings"}
    keys = {"inference": "attack", "defense": stages.get(entry.get("stage", ""), "rule")}
    if entry["kind"] == "protocol":
        st.code(f"fedguard secagg attack {entry['name']}", language="sh", wrap_lines=True)
    elif entry["kind"] != "trigger":
        here.link("lab", "Try it in the Lab", **{keys.get(entry["kind"], entry["kind"]): entry["name"]})
