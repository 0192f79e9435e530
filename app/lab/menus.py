"""The menus of the Lab, generated from algorithms and sections."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import streamlit as st

from fedguard.app.lab.composition import ChosenPart, Composition
from fedguard.bench.docstrings import plain
from fedguard.bench.explain.catalogue import algorithms, entries
from fedguard.bench.explain.settings import SECTIONS, Setting, settings, value_of
from fedguard.bench.pages.escape import markdown
from fedguard.registry import load_registry

#: Initial choices of the Lab that differ from the suite's defaults
START: dict[str, str] = {
    "attack": "sign_flip",
    "rule": "median",
    "clients.malicious": "4",
    "groups.groups": "5",
    "record.epsilon": "10",
    "client.epsilon": "30",
    "distributed.epsilon": "30",
}
#: Keys of a section that are always visible; the others are under "More"
FIRST = {
    "clients": ("total", "malicious"),
    "training": ("rounds", "local_epochs", "batch_size", "lr"),
    "threat": ("knowledge",),
    "observer": ("server", "round", "victims", "labels"),
    "server": ("root_data",),
    "network": ("malicious_pace",),
    "network.compute": ("seconds", "spread"),
    "network.compute.slow": ("share", "factor"),
    "network.link": ("latency", "loss"),
}
#: Keys of a section with menus of their own
ELSEWHERE = {
    "training": ("algorithm",),
    "protocol": ("secure_aggregation", "privacy", "dropout", "encoding"),
    "network": ("compute", "link", "availability"),
    "network.compute": ("slow",),
}


def read_menus() -> Composition:
    """All menus, and the choices. Every choice is in the address."""
    with st.container(border=True):
        st.header("Who attacks")
        offered = [_NO_ATTACK, *entries(load_registry(), ["attack", "inference"])]
        attack = _algorithm("Attack", "attack", offered)
        entry = next(one for one in offered if one["name"] == attack.name)
        sections = _sections("clients", "observer" if entry["kind"] == "inference" else "threat")
    with st.container(border=True):
        st.header("Who defends")
        defense = _defense()
        modes = entries(load_registry(), ["masking"])
        mode = _algorithm("Secure aggregation", "mode", modes)
        noise = _algorithm("Noise for privacy", "noise", entries(load_registry(), ["noise"]))
        masked = next(one["masked"] for one in modes if one["name"] == mode.name)
        masks = ("protocol", "protocol.encoding") if masked else ()
        sections |= _sections("server", "protocol.dropout", *masks)
    with st.expander("What is learned"):
        task = {
            kind: _algorithm(kind.capitalize(), kind, entries(load_registry(), [kind]))
            for kind in ("data", "model", "partition")
        }
        algorithm = _algorithm("Algorithm", "algorithm", entries(load_registry(), ["algorithm"]))
        sections = _sections("training", "evaluation") | sections
    with st.expander("Who waits for whom"):
        architecture = _algorithm("Architecture", "architecture", entries(load_registry(), ["architecture"]))
        there = _algorithm("Devices are there", "availability", entries(load_registry(), ["availability"]))
        sections |= _sections("network", "network.compute", "network.compute.slow", "network.link")
    with st.expander("How often"):
        seeds = st.text_input(
            "seeds", value="3", key="seeds", bind="query-params", help="How many, or a list of them, such as 0, 1, 2."
        )
    return Composition(
        data=task["data"],
        model=task["model"],
        partition=task["partition"],
        algorithm=algorithm,
        attack=attack,
        defense=defense,
        mode=mode,
        noise=noise,
        architecture=architecture,
        there=there,
        sections=sections,
        seeds=_seeds(seeds),
        beside_mean=entry["kind"] != "attack" or "goal" in entry,
    )


_NO_ATTACK = {"name": "none", "kind": "none", "summary": "Nobody is malicious.", "goal": ""}


def _algorithm(label: str, key: str, offered: Sequence[Mapping[str, Any]]) -> ChosenPart:
    """One of these algorithms, with its parameters."""
    names = [one["name"] for one in offered]
    name = _select_option(label, names, key)
    entry = next(one for one in offered if one["name"] == name)
    st.caption(markdown(entry["summary"]))
    return ChosenPart(name, _parameters(entry["kind"], name))


def _defense() -> tuple[ChosenPart, ...]:
    """Client transforms >> mixings >> a rule."""
    offered = entries(load_registry(), ["defense"])
    before = []
    for label, key, stage in (
        ("Client transforms", "transforms", "client transform"),
        ("Mixings", "mixings", "mixing"),
    ):
        names = [one["name"] for one in offered if one["stage"] == stage]
        chosen = st.multiselect(
            label,
            names,
            key=key,
            bind="query-params",
            placeholder="none",
            help="In the order in which they are chosen.",
        )
        before += [ChosenPart(name, _parameters("defense", name)) for name in chosen]
    rules = [one for one in offered if one["stage"].endswith("rule")]
    return (*before, _algorithm("Rule", "rule", rules))


def _parameters(kind: str, name: str) -> dict[str, Any]:
    found = [settings(cls) for cls in algorithms(load_registry(), name) if cls.kind == kind]
    return _fields(name, found[0]) if found else {}


def _sections(*names: str) -> dict[str, dict[str, Any]]:
    """The values that are set in these sections of a suite."""
    given, more = {}, {}
    for name in names:
        found, first = settings(SECTIONS[name]), FIRST.get(name, ())
        given[name] = _section(name, [one for one in found if one.name in first])
        more[name] = [one for one in found if one.name not in (*first, *ELSEWHERE.get(name, ()))]
    with st.expander("More"):
        for name, rest in more.items():
            given[name] |= _section(name, rest)
    return given


def _section(name: str, found: Sequence[Setting]) -> dict[str, Any]:
    """Some keys of a section under its name."""
    if not found:
        return {}
    st.caption(f"**{name}**")
    return _fields(name, found)


def _fields(owner: str, found: Sequence[Setting]) -> dict[str, Any]:
    """Widgets for these settings, two in a row; returns the values that the reader set."""
    given, columns = {}, st.columns(2)
    narrow = [setting for setting in found if not setting.several]
    for setting in found:
        with columns[narrow.index(setting) % 2] if setting in narrow else nullcontext():
            value = _field(setting, f"{owner}.{setting.name}")
        if value is not None:
            given[setting.name] = value
    return given


def _field(setting: Setting, key: str) -> Any:
    """One widget; None if it is left at the default."""
    label, help = markdown(setting.name), markdown(plain(setting.meaning)) or None
    same: dict[str, Any] = {"key": key, "help": help, "bind": "query-params"}
    if setting.type == "bool":
        on = setting.default == "True"
        ticked = st.checkbox(label, value=on, **same)
        return ticked if ticked != on else None
    if setting.several:
        usual = list(ast.literal_eval(setting.default))
        several = st.multiselect(label, setting.choices, default=usual, **same)
        return several if several != usual else None
    if setting.choices:
        one = st.selectbox(
            label,
            setting.choices,
            index=setting.choices.index(setting.default),
            accept_new_options=not setting.type.startswith("Literal"),
            **same,
        )
        return one if one != setting.default else None
    same["help"] = markdown(f"{plain(setting.meaning)} ({setting.type})".strip())
    text = st.text_input(label, value=START.get(key, ""), placeholder=setting.default, **same)
    return value_of(text) if text else None


def _seeds(text: str) -> Any:
    """A number of seeds, or a list of them, with or without brackets."""
    return value_of(f"[{text}]" if "," in text and "[" not in text else text)


def _select_option(label: str, names: Sequence[str], key: str) -> str:
    start = START.get(key, names[0])
    return st.selectbox(label, names, index=names.index(start) if start in names else 0, key=key, bind="query-params")
