"""The page on the protocol: who sees what, a real round, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.app.charts.secagg import cost, flow
from fedguard.bench.explain.masks import setups, who_sees_what
from fedguard.bench.explain.session import MEANING, STEPS, costs, measure, play, traffic
from fedguard.errors import ConfigError, UnknownName

PAGE = """
import os
from pathlib import Path
from fedguard.app.here import PageContext
from fedguard.app.views.protocol import show
show(PageContext(Path(os.environ["FEDGUARD_STORE"]), os.environ["RUN"] or None, {}))
"""
SUITE = {
    "name": "masked",
    "clients": {"total": 10, "malicious": 1},
    "training": {"rounds": 2},
    "seeds": 2,
    "protocol": {"secure_aggregation": "full"},
    "matrix": {"attack": ["none"], "defense": ["mean", "krum", "median", "nnm >> mean", "client_clipping >> mean"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture(scope="module")
def sights():
    return {one.name: one for one in who_sees_what()}


def page(store, run, part, monkeypatch):
    monkeypatch.setenv("FEDGUARD_STORE", str(store))
    monkeypatch.setenv("RUN", run)
    test = AppTest.from_string(PAGE, default_timeout=60)
    test.session_state["protocol"] = part
    test.run()
    assert not test.exception
    return test


def test_without_masks_the_server_sees_each_update_and_under_masks_nobody_does(sights):
    assert set(sights) == set(setups())
    for name, one in sights.items():
        masked = not name.startswith("none")
        assert ("each client's update" in one.server) is not masked
        assert ("the honest clients' updates" in one.colluders) is not masked
        assert ("the sums over groups of clients" in one.server) is (not masked or name.startswith("group"))
        assert "mean" in one.runs


def test_what_masks_refuse_is_what_a_run_refuses_with_the_same_words(run, sights):
    full = sights["full"]
    ran = {row["defense"]: row for row in run.rows()}
    for defense, name in (("krum", "krum"), ("median", "median"), ("nnm >> mean", "nnm")):
        assert ran[defense]["status"] == "refused"
        assert name in full.refused
        assert (
            ran[defense]["reason"].split(" The rule is given")[0] == full.refused[name].split(" The rule is given")[0]
        )
    for defense, name in (("mean", "mean"), ("client_clipping >> mean", "client_clipping")):
        assert ran[defense]["status"] == "ok"
        assert name in full.runs


def test_groups_bring_rules_back_that_take_means_of_groups(sights):
    assert {"krum", "median", "trimmed_mean", "nnm"} <= set(sights["groups"].runs)
    assert {"krum", "median", "trimmed_mean", "nnm"} <= set(sights["full"].refused)
    assert {"fltrust", "foolsgold"} <= set(sights["groups"].refused)  # they look up the client behind a row


def test_a_trusted_server_is_not_asked_to_attack_and_single_updates_are_needed_for_some_attacks(sights):
    assert "robbing_the_fed" in sights["none, noise of a trusted server"].blind
    assert "fed_mia" in sights["full"].blind
    assert not sights["none"].blind
    assert "Privacy, distributed" in sights["full, noise shared out among the clients"].noise


@pytest.mark.parametrize(
    "drop",
    [{}, {"masked_input": [3]}, {"unmask": [1]}, {"share_keys": [0], "consistency": [4]}, {"advertise_keys": [5]}],
    ids=str,
)
def test_the_server_learns_the_sum_of_those_who_sent_their_input(drop):
    played = play(6, drop)
    before = {client for step in ("advertise_keys", "share_keys", "masked_input") for client in drop.get(step, [])}
    assert set(played.included) == set(range(6)) - before
    wanted = [0, 0, 0]
    for client in set(range(6)) - before:
        wanted = [total + (client + 1) * factor for total, factor in zip(wanted, (1, 10, 100), strict=True)]
    assert played.total.tolist() == played.expected.tolist() == wanted
    assert [step.kind for step in played.steps] == list(MEANING)
    assert set(played.masked) == set(played.included)


def test_what_the_server_gets_of_an_input_is_another_one_each_time():
    first, second = play(4, {}), play(4, {})
    for client in range(4):
        assert (first.masked[client] != second.masked[client]).all()
        assert (first.masked[client] != first.inputs[client]).all()
    assert (np.sum([first.masked[client] for client in range(4)], 0, dtype=np.uint32) != first.total).any()


def test_a_round_with_too_few_left_opens_nothing():
    played = play(5, {"masked_input": [0, 1, 2]})
    assert played.total is None
    assert played.included == ()
    assert "TooFewSurvivors" in played.aborted
    assert [step.kind for step in played.steps][-1] == "MASKED"


def test_unknown_steps_and_clients_are_told():
    with pytest.raises(UnknownName, match="Did you mean 'unmask'"):
        play(4, {"unmusk": [1]})
    with pytest.raises(ConfigError):
        play(4, {"unmask": [9]})


@pytest.mark.parametrize("clients", [3, 4, 9, 17, 40])
def test_computed_traffic_is_that_of_a_real_round(clients):
    measured = measure(clients, 7, 0.1, 0.1)
    assert traffic(clients, measured.neighbors, 7) == (measured.up, measured.down)


def test_computed_traffic_on_a_sparse_graph_is_that_of_a_real_round():
    measured = measure(105, 3, 0.0, 0.0)
    assert measured.neighbors < 104
    assert traffic(105, measured.neighbors, 3) == (measured.up, measured.down)


def test_the_sparse_graph_costs_less_and_hides_among_fewer():
    found = {(one.clients, one.graph): one for one in costs([50, 1000], 0.1, 0.1, 1000)}
    for clients in (50, 1000):
        whole, ring = found[clients, "complete"], found[clients, "sparse"]
        assert whole.neighbors == clients - 1
        assert ring.up < whole.up
        assert ring.down < whole.down
        assert ring.anonymity < whole.anonymity
    assert (found[1000, "sparse"].neighbors, found[1000, "sparse"].threshold) == (64, 41)  # docs/secagg_parameters.md
    drawn = [row for rows in cost(list(found.values())).to_dict()["datasets"].values() for row in rows]
    assert {(row["clients"], row["graph"], row["way"]): row["kB"] for row in drawn}[
        1000, "sparse", "a client sends"
    ] == (found[1000, "sparse"].up / 1000)


def test_the_picture_of_a_step_has_a_line_for_each_message():
    played = play(5, {"masked_input": [3]})
    masked = next(step for step in played.steps if step.kind == "MASKED")
    rows = [row for rows in flow(masked, 5, [3]).to_dict()["datasets"].values() for row in rows]
    ends = [row for row in rows if "message" in row and row["y"] < 0.5]
    assert sorted(row["x"] for row in ends) == [0, 1, 2, 4]
    assert {row["label"] for row in rows if row.get("state") == "silent"} == {"client 3"}


def test_who_sees_what_is_shown_for_each_mode(run, tmp_path, sights, monkeypatch):
    test = page(tmp_path, "", "Who sees what", monkeypatch)
    table = test.dataframe[0].value
    assert list(table["protocol"]) == list(setups())
    full = sights["full"]
    assert (
        table["defenses that run"][list(setups()).index("full")]
        == f"{len(full.runs)} of {len(full.runs) + len(full.refused)}"
    )
    listed = {name for text in test.text for name in text.value.split(", ")}
    assert set(full.refused) | set(full.blind) <= listed
    assert not set(full.refused) & set(full.runs)
    test.selectbox[0].select("none").run()
    assert not test.exception
    in_time, at_nodes = (
        {"kardam", "asyncfilter", "staleness_clipping"},
        {"clipped_gossip", "cs_plus", "nna", "bridge", "ubar"},
    )
    assert {"inverse_variance", *in_time, *at_nodes} == set(sights["none"].refused)
    assert "Defenses refused: 9" in [heading.value for heading in test.subheader]


def test_a_round_is_stepped_through_to_the_sum(tmp_path, monkeypatch):
    test = page(tmp_path, "", "A round, step by step", monkeypatch)
    assert test.success[0].value.startswith("The server learns the sum over clients 0, 1, 2, 3: 10, 100, 1000.")
    assert test.success[0].value.endswith("They are equal.")
    seen = []
    for kind in MEANING:
        test.select_slider[0].set_value(kind).run()
        assert not test.exception
        assert test.subheader[0].value.startswith(f"{kind}: ")
        if kind == "MASKED":
            seen.append(list(test.dataframe[0].value["the server sees"]))
            assert list(test.dataframe[0].value["the client has"]) == [f"{i} {10 * i} {100 * i}" for i in range(1, 5)]
    test.select_slider[0].set_value("MASKED").run()
    assert list(test.dataframe[0].value["the server sees"]) == seen[0]  # the same round while one steps
    test.button[0].click().run()
    test.select_slider[0].set_value("MASKED").run()
    assert list(test.dataframe[0].value["the server sees"]) != seen[0]


def test_too_many_who_fall_silent_end_the_round_without_a_sum(tmp_path, monkeypatch):
    test = page(tmp_path, "", "A round, step by step", monkeypatch)
    test.multiselect[0].set_value([f"client {client} from masked_input on" for client in (1, 2, 3)]).run()
    assert not test.exception
    assert not test.success
    assert "no input is opened" in test.error[0].value
    assert "TooFewSurvivors" in test.code[-1].value
    test.slider[0].set_value(3).run()  # clients who are no longer there cannot fall silent
    assert not test.exception
    assert len(test.multiselect[0].options) == 3 * len(STEPS)


def test_costs_are_shown_and_what_cannot_be_is_told(tmp_path, monkeypatch):
    test = page(tmp_path, "", "What it costs", monkeypatch)
    table = test.dataframe[0].value
    row = table[(table["clients"] == 100) & (table["graph"] == "complete")].iloc[0]
    assert (row["neighbors"], row["shares that rebuild a secret"]) == (99, 55)
    assert row["bytes sent"] == traffic(100, 99, 1000)[0]
    monkeypatch.setattr("fedguard.app.views.protocol.MEASURED", (3, 5))
    test.button[0].click().run()
    assert not test.exception
    measured = test.dataframe[1].value
    assert list(measured["bytes sent"]) == [traffic(clients, clients - 1, 1000)[0] for clients in (3, 5)]
    assert measured["ms for each client"].str.contains(r"\[").all()
