"""One attack against one defense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
import yaml

from fedguard.app import address, data, words
from fedguard.app.charts.curves import AXES, MEASURES, axes, classes, curves, points
from fedguard.app.charts.graph import by_round, graph
from fedguard.app.charts.timeline import timeline
from fedguard.app.here import PageContext, plain
from fedguard.app.times import times
from fedguard.bench.records.schema import CompletedRecord, Position, Record
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.metrics.stats import over_seeds


def show(here: PageContext) -> None:
    """The cell that the address names: verdict, curves, controls, threat card, configuration, flags, log and times."""
    run = here.run()
    position = _choose_position(run)
    if position is None:
        st.info("The suite has no such cell. Choose other values.")
        return
    cell = position["cell"]
    rows = [row for row in run.rows() if row["cell"] == cell and _is_at(row, position["swept"])]
    records = {seed: record for (one, seed), record in run.records.items() if one == cell}
    _why_not(run, rows)
    ran = [record for record in records.values() if record["status"] == "ok"]
    if ran:
        st.markdown(f"##### {words.escape_label(words.verdict(ran))}")
        _results(ran, clean_models(run, ran))
        _nodes(ran)
        _timeline(ran)
    if records:
        _assumptions(next(iter(records.values())))
        _records(list(records.values()))
    if ran:
        st.subheader("Where the time goes")
        times(run, position["swept"])


# ---------------------------------------------------------------------------------------------------- which cell


def _choose_position(run: Run) -> Position | None:
    """The position that the menus select; menus and address are kept in sync."""
    positions = run.manifest["positions"]
    keys = ["attack", "defense", *run.swept]
    asked = st.query_params.get("cell")
    now = _position(positions, {key: st.session_state.get(_menu(key)) for key in keys})
    if now is None or (asked is not None and now["cell"] != asked):
        named = next((position for position in positions if position["cell"] == asked), None)
        if asked is not None and named is None:
            st.warning(
                "The address names a cell that is not in this run; here is the one in which an attack did most harm."
            )
        now = named or _worst(run)
        for key in keys:
            st.session_state[_menu(key)] = str(now["swept"][key])
    address.say("cell", now["cell"])
    columns = st.columns(min(len(keys), 4))
    for number, key in enumerate(keys):
        options = list(dict.fromkeys(str(position["swept"][key]) for position in positions))
        columns[number % len(columns)].selectbox(
            words.escape_label(key), options, key=_menu(key), on_change=_follow, args=(positions, keys)
        )
    return _position(positions, {key: st.session_state[_menu(key)] for key in keys})


def _worst(run: Run) -> Position:
    """The position in which an attack leaves the lowest accuracy; the first position if none was measured."""
    blocks, measured = run.table().blocks, []
    positions = run.manifest["positions"]
    for position in positions:
        swept = position["swept"]
        entry = blocks.get(setting(swept, run.swept), {}).get(swept["attack"], {}).get(swept["defense"])
        if swept["attack"] != "none" and entry is not None and entry.estimate is not None:
            measured.append((entry.estimate.mean, position))
    return min(measured, key=lambda one: one[0])[1] if measured else positions[0]


def _follow(positions: Sequence[Position], keys: Sequence[str]) -> None:
    """Callback of a menu: write the new cell to the address."""
    chosen = _position(positions, {key: st.session_state[_menu(key)] for key in keys})
    if chosen is not None:
        st.query_params["cell"] = chosen["cell"]


def _menu(key: str) -> str:
    return f"cell: {key}"


def _position(positions: Sequence[Position], values: Mapping[str, Any]) -> Position | None:
    return next((position for position in positions if _is_at(position["swept"], values)), None)


def _is_at(swept: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(str(swept[key]) == str(value) for key, value in values.items())


def clean_models(run: Run, records: Sequence[Record]) -> list[CompletedRecord]:
    """For each seed the training of the same defense without attack; empty if it was not run."""
    wanted = {(record["seed"], _peaceful(record)) for record in records if record["threat_card"]["attack"]}
    return [
        record
        for record in run.ran.values()
        if record["config"]["attack"] == "none" and (record["seed"], _peaceful(record)) in wanted
    ]


def _peaceful(record: Record) -> str:
    """A configuration without the settings of an attack."""
    config: dict[str, Any] = {
        key: value for key, value in record["config"].items() if key not in ("attack", "threat", "observer")
    }
    return repr({**config, "clients": {**config["clients"], "malicious": 0}})


# ---------------------------------------------------------------------------------------------------- why there is nothing


def _why_not(run: Run, rows: Sequence[Mapping[str, Any]]) -> None:
    """Each status other than ok with its reason, and the log if there is one."""
    said: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["status"] != "ok":
            said.setdefault((row["status"], str(row["reason"])), []).append(row)
    for (status, reason), these in said.items():
        seeds = ", ".join(str(row["seed"]) for row in these)
        if status == "refused":
            st.warning("Refused: this cell may not run.")
        elif status == "missing":
            st.warning(f"Missing for seed {seeds}: run the suite again to go on where it stopped.")
        else:
            st.error(f"Failed for seed {seeds}. `fedguard run SUITE --retry-failed` runs it again.")
        plain(reason)
        for row in these if status == "failed" else []:
            path = run.folder.log_path(row["cell"], row["seed"])
            with st.expander(f"The log of seed {row['seed']}"):
                plain(str(path))
                plain(data.log_text(path))


# ---------------------------------------------------------------------------------------------------- results


@st.fragment
def _results(ran: Sequence[CompletedRecord], clean: Sequence[CompletedRecord]) -> None:
    """Curves and metrics of the selected seeds."""
    seeds = [record["seed"] for record in ran]
    chosen = st.pills("Seeds", seeds, selection_mode="multi", default=seeds, key="seeds of a cell")
    shown = [record for record in ran if record["seed"] in chosen]
    if not shown:
        st.info("Switch a seed on.")
        return
    behind = [record for record in clean if record["seed"] in chosen]
    st.subheader("Over the training")
    known = axes([*shown, *behind])
    over = known[0]
    if len(known) > 1:
        over = (
            st.pills("Over", known, default=over, format_func=AXES.__getitem__, key="over what a cell's curves go")
            or over
        )
    if behind:
        st.caption("Gray and dashed: the same defense with the same seeds while nobody attacks.")
    measures = [name for name in MEASURES if any(points(record, name) for record in shown)]
    for column, name in zip(st.columns(max(1, len(measures))), measures, strict=False):
        words_of = f"{MEASURES[name].title} over {AXES[over]}, one line per seed"
        column.altair_chart(curves(shown, behind, name, over), width="stretch", alt=words_of)
    left, right = st.columns(2)
    with left:
        st.subheader("Metrics")
        _spread(shown)
        st.dataframe(
            words.figures(shown),
            hide_index=True,
            width="stretch",
            column_config={"value": st.column_config.Column(width=160)},
        )
        st.subheader("Controls")
        st.caption(
            "Final accuracy in %, with and without attack, with the defense and with the plain mean. What is lost where the "
            "malicious clients send nothing is the absence of their data; the rest is the attack's harm. "
            + words.chance(shown)
        )
        st.dataframe(words.controls(shown), hide_index=True, width="stretch")
    with right:
        if any(record["result"]["class_accuracy"] for record in shown):
            st.subheader("By class")
            _spread(shown)
            st.altair_chart(classes(shown), width="stretch", alt="Final accuracy of each class in %, mean over seeds")
        parties = words.parties(shown)
        if parties:
            st.caption("Parties with different tasks: each on the test examples of its classes.")
            st.dataframe(parties, hide_index=True, width="stretch")
        minority = words.minority(shown)
        if minority:
            st.caption("Honest clients that hold a class which fewer than a quarter of all clients hold.")
            st.dataframe(minority, hide_index=True, width="stretch")


@st.fragment
def _nodes(ran: Sequence[CompletedRecord]) -> None:
    """The graph of nodes and the accuracy of each, for a training without a server."""
    known = {record["seed"]: record for record in ran if record["result"].get("nodes")}
    if not known:
        return
    st.subheader("The nodes")
    seed = st.pills("Seed", list(known), default=next(iter(known)), key="seed of a graph") if len(known) > 1 else None
    record = known[next(iter(known)) if seed is None else seed]
    found, rounds = record["result"]["nodes"], record["result"]["curve"]["round"]
    st.caption(
        f"The worst of {len(found['honest'])} honest nodes ends with {100 * found['worst']:.1f} %, the best with "
        f"{100 * found['best']:.1f} %. The mean of their models has {100 * found['mean_model']:.1f} %, and nobody has it."
    )
    at = rounds[-1]
    if len(rounds) > 1:
        at = st.select_slider("After round", rounds, value=rounds[-1], key="round of a graph")
    left, right = st.columns(2)
    says = "A graph of the nodes: circles are honest and as bright as they are accurate, crosses are malicious"
    left.altair_chart(graph(found, rounds.index(at)), width="stretch", alt=says)
    says = "Accuracy of the best and the worst node over the rounds, and accuracy of the mean of their models"
    right.altair_chart(by_round(found, rounds), width="stretch", alt=says)


def _timeline(ran: Sequence[CompletedRecord]) -> None:
    """Which client trained when, with simulated time."""
    known = {record["seed"]: found for record in ran if (found := record["result"].get("time", {}).get("timeline"))}
    if not known:
        return
    st.subheader("Who trained when")
    seed = (
        st.pills("Seed", list(known), default=next(iter(known)), key="seed of a timeline") if len(known) > 1 else None
    )
    found = known[next(iter(known)) if seed is None else seed]
    shown, total = len(found["client"]), found["total"]
    first = "All" if shown == total else f"The first {shown} of {total}"
    st.caption(
        f"{first} trainings, each from the pull of the model until its update arrived, or nobody waited for it any more. "
        "No bar: idle, waiting or away. Gray lines end the rounds, where they are few."
    )
    says = f"{first} trainings over simulated seconds, a row for each client, colored by what became of the update"
    st.altair_chart(timeline(found), width="stretch", alt=says)


def _spread(shown: Sequence[CompletedRecord]) -> None:
    st.caption(f"{over_seeds(len(shown)).capitalize()}.")


# ---------------------------------------------------------------------------------------------------- what it rests on


def _assumptions(record: Record) -> None:
    card = record["threat_card"]
    st.subheader("Under which assumptions")
    plain(card["in_words"])
    if card["protocol"]:
        plain(card["protocol"]["in_words"])
    left, right = st.columns(2)
    with left:
        st.markdown("**Who sees what**")
        st.caption("What is granted to the attacker and shown to the server, and what attack and rule look at.")
        st.dataframe(words.sights(card), hide_index=True, width="stretch", height="content")
    with right:
        st.markdown("**What the rule needs**")
        st.caption("A stage that has several lines can do with any of them.")
        st.dataframe(words.needs(card), hide_index=True, width="stretch", height="content")
    st.markdown("**Threat card**")
    narrow = {"fact": st.column_config.Column(width=280)}
    st.dataframe(words.card(card), hide_index=True, width="stretch", height="content", column_config=narrow)
    st.markdown("**What kind of federation**")
    st.dataframe(words.kind(record), hide_index=True, width="stretch", height="content")
    with st.expander("Configuration"):
        st.code(yaml.safe_dump(record["config"], sort_keys=False), language="yaml")


def _records(records: Sequence[Record]) -> None:
    flags = [{"seed": record["seed"], **flag} for record in records for flag in record["flags"]]
    if flags:
        st.subheader("Red flags")
        st.caption("Of single trials; the overview has those of the whole run too.")
        order = ["seed", "flag", "said"]
        st.dataframe(flags, hide_index=True, width="stretch", column_order=order, row_height=72)
    st.subheader("Cost and origin")
    st.dataframe(words.costs(records), hide_index=True, width="stretch", height="content")
