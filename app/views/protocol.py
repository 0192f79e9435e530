"""Visibility under secure aggregation, a round message by message, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from fedguard.app.charts.secagg import cost, flow
from fedguard.app.here import PageContext, plain
from fedguard.bench.explain.masks import ProtocolVisibility, who_sees_what
from fedguard.bench.explain.session import (
    MEANING,
    READS,
    STEPS,
    ProtocolRound,
    ProtocolStep,
    SessionMeasurement,
    costs,
    measure,
    play,
)
from fedguard.errors import FedGuardError
from fedguard.metrics.stats import Estimate, bracket, student

#: Numbers of clients with computed costs, and with measured costs, each with this number of repetitions
SIZES, MEASURED, TIMES = (10, 20, 50, 100, 200, 500, 1000), (10, 25, 50, 110), 3


def show(here: PageContext) -> None:
    """One part at a time, named in the address."""
    part = st.segmented_control(
        "Part", list(PARTS), default=next(iter(PARTS)), required=True, key="protocol", bind="query-params"
    )
    PARTS[part](here)


def _sight(here: PageContext) -> None:  # noqa: ARG001  the same for every run
    """What each side sees under each mode, and which defenses can run."""
    st.caption(
        "100 clients, 1 of them malicious, and a malicious server with clean data of its own: asked of the code that lets "
        "cells run or refuses them."
    )
    setups = _setups()
    st.dataframe(
        [_row(one) for one in setups],
        hide_index=True,
        height="content",
    )
    names = [one.name for one in setups]
    chosen = st.selectbox("Look closer at", names, index=names.index("full"), key="setup", bind="query-params")
    one = setups[names.index(chosen)]
    st.text(one.words)
    if one.noise:
        st.text(one.noise)
    left, right = st.columns(2)
    left.subheader("The server sees")
    left.dataframe([{"what": what} for what in one.server], hide_index=True)
    right.subheader("Colluders may be granted")
    right.dataframe([{"what": what} for what in one.colluders], hide_index=True)
    for heading, refused in (("Defenses refused", one.refused), ("Attacks on privacy refused", one.blind)):
        st.subheader(f"{heading}: {len(refused)}")
        for why, names in _by_reason(refused).items():
            st.text(", ".join(names))
            plain(why)
    with st.expander(f"Defenses that run: {len(one.runs)}"):
        st.text(", ".join(one.runs))


def _by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that are refused for the same reason, which starts with the name."""
    found: dict[str, list[str]] = {}
    for name, why in refused.items():
        found.setdefault(why.removeprefix(name).strip(), []).append(name)
    return found


def _row(one: ProtocolVisibility) -> dict[str, Any]:
    return {
        "protocol": one.name,
        "defenses that run": f"{len(one.runs)} of {len(one.runs) + len(one.refused)}",
        "attacks on privacy that run": f"{len(one.infer)} of {len(one.infer) + len(one.blind)}",
    }


@st.cache_data(show_spinner="Asking every rule ...")
def _setups() -> list[ProtocolVisibility]:
    return who_sees_what()


@st.fragment
def _round(here: PageContext) -> None:  # noqa: ARG001
    """One session of the real protocol, with fresh keys, in this process."""
    st.caption(
        "The real protocol with fresh keys, all parties in this process. Client i has (i + 1) times 1, 10 and 100, so that "
        "sums can be checked by eye."
    )
    left, right = st.columns([1, 2])
    clients = left.slider("Clients", 3, 12, 5, key="clients", bind="query-params")
    options = [f"client {client} from {step} on" for client in range(clients) for step in STEPS]
    chosen = right.multiselect(
        "Who falls silent, and from which step", options, [f"client {clients - 1} from masked_input on"]
    )
    if left.button("Again, with new keys", icon=":material/refresh:"):
        st.session_state["secagg_again"] = st.session_state.get("secagg_again", 0) + 1
    try:
        played = _play_session(clients, tuple(chosen), st.session_state.get("secagg_again", 0))
    except FedGuardError as error:
        st.error("There is no such round.")
        plain(str(error))
        return
    st.text(
        f"Each has {played.config.degree} neighbors; {played.config.threshold} shares rebuild a secret; "
        f"{played.config.quorum} signatures are needed before a share leaves."
    )
    kinds = [step.kind for step in played.steps]
    kind = st.select_slider("Step", kinds, key=f"secagg_step_of_{len(kinds)}")
    _step(played.steps[kinds.index(kind)], played)
    _outcome(played)


@st.cache_resource(max_entries=16, show_spinner=False)
def _play_session(clients: int, silent: tuple[str, ...], again: int) -> ProtocolRound:  # noqa: ARG001  part of the cache's key
    drop: dict[str, list[int]] = {}
    for words in silent:
        _, client, _, step, _ = words.split()
        drop.setdefault(step, []).append(int(client))
    return play(clients, drop)


def _step(step: ProtocolStep, played: ProtocolRound) -> None:
    st.subheader(f"{step.kind}: {'the server to clients' if step.from_server else 'clients to the server'}")
    st.text(f"{MEANING[step.kind]}. {len(step.events)} messages, {step.bytes:,} bytes in all.")
    reached = {event.receiver if step.from_server else event.sender for event in step.events}
    silent = [client for client in range(len(played.inputs)) if client not in reached]
    st.altair_chart(
        flow(step, len(played.inputs), silent),
        alt=f"{step.kind}: {len(step.events)} messages; silent: {', '.join(map(str, silent)) or 'nobody'}.",
    )
    if step.kind in READS:
        left, right = st.columns(2)
        left.info(f"The server can read: {READS[step.kind][0]}.", icon=":material/visibility:")
        right.info(f"It cannot read: {READS[step.kind][1]}.", icon=":material/visibility_off:")
    st.dataframe([_message(event, step, played) for event in step.events], hide_index=True)


def _message(event: Any, step: ProtocolStep, played: ProtocolRound) -> dict[str, Any]:
    names = ["server" if party is None else f"client {party}" for party in (event.sender, event.receiver)]
    row = {"from": names[0], "to": names[1], "bytes": event.size, "refused, because": event.error or "-"}
    if step.kind == "MASKED" and event.sender is not None:
        row["the client has"] = " ".join(map(str, played.inputs[event.sender].tolist()))
        row["the server sees"] = " ".join(f"{value:08x}" for value in played.masked[event.sender])
    return row


def _outcome(played: ProtocolRound) -> None:
    """What the server learns at the end, beside the sum computed without the protocol."""
    if played.total is None:
        st.error("No sum comes out, and no input is opened: too few are left, so the round is aborted.")
        plain(str(played.aborted))
        return
    who, total, clear = (", ".join(map(str, one)) for one in (played.included, played.total, played.expected))
    same = (played.total == played.expected).all()
    told = st.success if same else st.error
    told(
        f"The server learns the sum over clients {who}: {total}. Added up in the clear: {clear}. "
        f"{'They are equal' if same else 'They differ'}."
    )


@st.fragment
def _cost(here: PageContext) -> None:  # noqa: ARG001
    """Bytes computed from the message formats; times measured on request."""
    first, second, third = st.columns(3)
    colluding = first.slider("May collude with the server, %", 0, 30, 10, key="colluding", bind="query-params") / 100
    dropping = second.slider("May drop out, %", 0, 30, 10, key="dropping", bind="query-params") / 100
    length = third.number_input("Numbers in an update", 1, 10_000_000, 1000, key="length", bind="query-params")
    try:
        found = _costs(colluding, dropping, int(length))
    except FedGuardError as error:
        st.error("There is no such session.")
        plain(str(error))
        return
    st.altair_chart(
        cost(found), width="content", alt="Kilobytes that a client sends and receives over the number of clients."
    )
    st.caption(
        "Computed from the form of the messages, 4 bytes for each number of the update, nobody drops out. Up to 100 clients "
        "the protocol takes the complete graph, and beyond the sparsest one that keeps its promises, with 2^40 tries of a "
        "malicious server reckoned with where it takes the sparse graph. Fewer neighbors cost less, and hide an input among "
        "fewer in the worst case."
    )
    rows = [
        {
            "clients": one.clients,
            "graph": one.graph,
            "neighbors": one.neighbors,
            "shares that rebuild a secret": one.threshold,
            "fewest honest inputs in a sum": one.anonymity,
            "bytes sent": one.up,
            "bytes received": one.down,
        }
        for one in found
    ]
    st.dataframe(rows, hide_index=True)
    if st.button("Measure the time here", icon=":material/timer:"):
        _measure(colluding, dropping, int(length))


@st.cache_data(max_entries=16, show_spinner="Searching for sparse graphs ...")
def _costs(colluding: float, dropping: float, length: int) -> list[Any]:
    return costs(SIZES, colluding, dropping, length)


def _measure(colluding: float, dropping: float, length: int) -> None:
    rows, bar = [], st.progress(0.0, "Running real rounds ...")
    for number, clients in enumerate(MEASURED):
        rows.append(_cost_row([measure(clients, length, colluding, dropping) for _ in range(TIMES)]))
        bar.progress((number + 1) / len(MEASURED), f"{clients} clients done")
    bar.empty()
    st.dataframe(rows, hide_index=True)
    st.caption(
        f"{TIMES} rounds each, on this machine, all parties one after the other in one process: the time of clients and "
        "server together, divided by the number of clients, with a 95 % interval."
    )


def _cost_row(runs: list[SessionMeasurement]) -> dict[str, Any]:
    seconds = student([1000 * one.seconds for one in runs])
    return {
        "clients": runs[0].clients,
        "neighbors": runs[0].neighbors,
        "ms for each client": _spread(seconds, ".3g"),
        "bytes sent": round(runs[0].up),
        "bytes received": round(runs[0].down),
    }


def _spread(one: Estimate, form: str) -> str:
    few = f" ({one.seeds} {'seed' if one.seeds == 1 else 'seeds'})"
    return format(one.mean, form) + (few if one.half_width is None else f" {bracket(one.mean, one.half_width, form)}")


PARTS: dict[str, Callable[[PageContext], None]] = {
    "Who sees what": _sight,
    "A round, step by step": _round,
    "What it costs": _cost,
}
