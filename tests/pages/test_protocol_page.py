"""The page on the protocol: a real round, who sees what, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.bench.explain.masks import setups, who_sees_what
from fedguard.bench.explain.session import MEANING, costs, measure, play, traffic
from fedguard.bench.pages import html, markdown, protocol, terminal
from fedguard.bench.pages.blocks import Chart, Choice, Facts, More, Prose, Steps, TableBlock, Verdict
from fedguard.bench.pages.elements import to_bytes
from fedguard.bench.pages.protocol_chart import cost
from fedguard.errors import ConfigError, UnknownName

PAGE = """
import os
from pathlib import Path
from fedguard.app.here import PageContext
from fedguard.app.views.protocol import show
show(PageContext(Path(os.environ["FEDGUARD_STORE"]), None, {}))
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


def page(**address):
    return list(protocol.blocks(None, address))


def only(kind, blocks):
    (found,) = [one for one in blocks if isinstance(one, kind)]
    return found


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
    drawn = cost(list(found.values())).spec["data"]["values"]
    kilobytes = {(row["clients"], row["graph"], row["way"]): row["kB"] for row in drawn}
    for way, count in (("a client sends", "up"), ("a client receives", "down")):
        assert kilobytes[1000, "sparse", way] == getattr(found[1000, "sparse"], count) / 1000


@pytest.mark.parametrize("part", ["round", "visibility", "cost"])
def test_each_part_begins_with_its_verdict_and_says_that_nothing_was_trained(part):
    first, second, *_ = page(part=part)
    assert isinstance(first, Verdict) and first.trained.startswith("nothing was trained")
    assert isinstance(second, Choice) and second.chosen == part


def test_the_picture_of_a_step_has_a_line_for_each_message():
    drawn = only(Chart, page(clients="5", silent="2", step="MASKED"))
    for spec in (drawn.spec, drawn.narrow):
        lines, circles, *_ = (layer["data"]["values"] for layer in spec["layer"])
        assert [line["client"] for line in lines] == [0, 1, 2]
        assert [one["at"] for one in circles if one["silent"]] == [3, 4]
    assert drawn.alt == "MASKED: 3 messages; none from clients 3, 4."
    assert drawn.title == "MASKED: clients to the server"
    assert [row[:2] for row in drawn.table.rows] == [[f"client {client}", "server"] for client in range(3)]
    (line, *_), *_ = (layer["data"]["values"] for layer in only(Chart, page(step="HELLO")).spec["layer"])
    assert only(Chart, page(step="HELLO")).title == "HELLO: the server to clients" and line["client"] == 0


def test_who_sees_what_is_shown_for_each_mode(sights):
    found = page(part="visibility")
    assert found[0].headline == "4 of 7 setups hide each client's update from the server"
    table = {row[0]: row[1:] for row in only(TableBlock, found).rows}
    assert list(table) == list(setups())
    for name, one in sights.items():
        assert table[name] == [
            f"{len(one.runs)} of {len(one.runs) + len(one.refused)}", f"{len(one.infer)} of {len(one.infer) + len(one.blind)}"
        ]  # fmt: skip
        closer = page(part="visibility", setup=name)
        assert dict(only(Facts, closer).items) == {
            "the server sees": one.server,
            "colluders may be granted": one.colluders,
        }
        told = [block for block in closer if isinstance(block, Prose)]
        listed = {name for block in told for text in block.paragraphs for name in text.partition(":")[0].split(", ")}
        assert set(one.refused) | set(one.blind) <= listed and not listed & set(one.runs)
        assert only(More, closer).title == f"Defenses that run: {len(one.runs)}"
    in_time, at_nodes = (
        {"kardam", "asyncfilter", "staleness_clipping"},
        {"clipped_gossip", "cs_plus", "nna", "bridge", "ubar"},
    )
    assert {"inverse_variance", *in_time, *at_nodes} == set(sights["none"].refused)
    titles = [block.title for block in page(part="visibility", setup="none") if isinstance(block, Prose)]
    assert "Defenses refused: 9" in titles


def test_a_round_is_stepped_through_to_the_sum():
    for kind in MEANING:
        found = page(step=kind, again="one")
        assert found[0].headline == "The server learns a sum and no single input: 10, 100, 1000 over clients 0, 1, 2, 3"
        assert found[0].lead[0] == "Added up in the clear: 10, 100, 1000. They are equal." and found[0].tone == "good"
        steps = only(Steps, found)
        assert [name for name, _ in steps.items] == list(MEANING) and steps.items[steps.current][0] == kind
        assert bool([block for block in found if isinstance(block, TableBlock)]) is (kind == "MASKED")

    def arrived(again):
        return [row[1:] for row in only(TableBlock, page(again=again)).rows]

    assert [row[0] for row in arrived("one")] == [f"{i} {10 * i} {100 * i}" for i in range(1, 5)]
    assert arrived("one") == arrived("one")  # the same round while one steps
    assert not {row[1] for row in arrived("one")} & {row[1] for row in arrived("another")}
    first, second = (page()[0].actions[0].query["again"] for _ in range(2))
    assert first != second


def test_too_many_who_drop_out_end_the_round_without_a_sum():
    found = page(silent="3", step="UNMASK")
    assert "no input is opened" in found[0].headline and found[0].tone == "warn"
    assert "TooFewSurvivors" in found[0].lead[0]
    steps = only(Steps, found)
    assert steps.items[steps.current][0] == "MASKED", "the last step before the round was aborted"
    fewer = page(clients="3", silent="5")  # clients who are no longer there cannot drop out
    assert next(one for one in fewer if isinstance(one, Choice) and one.key == "silent").chosen == "1"
    assert found[0].actions[0].query["silent"] == "3"


def test_a_sum_that_differs_is_told(monkeypatch):
    played = play(4, {})
    played.total[0] += 1
    verdict = protocol.summarize_round(played)
    assert verdict.tone == "bad" and "They differ." in verdict.lead[0]


def test_costs_are_computed_and_measured_on_request(monkeypatch):
    found = page(part="cost")
    assert "184 kB with 999 neighbors (complete graph), 16 kB with 64 neighbors (sparse graph)" in found[0].headline
    row = next(row for row in only(Chart, found).table.rows if row[0] == "100, complete")
    assert row[1:3] == ["99", "55"]
    assert row[4:] == [f"{count:,}" for count in traffic(100, 99, 1000)]
    monkeypatch.setattr(protocol, "MEASURED", (3, 5))
    measured = only(TableBlock, page(part="cost", time="yes")).rows
    assert [row[3] for row in measured] == [f"{traffic(clients, clients - 1, 1000)[0]:,}" for clients in (3, 5)]
    assert all("[" in row[2] for row in measured)


def test_the_dashboard_steps_through_one_round(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGUARD_STORE", str(tmp_path))
    test = AppTest.from_string(PAGE, default_timeout=60).run()
    assert not test.exception
    seen = list(test.dataframe[0].value["the server sees"])
    slider = next(one for one in test.select_slider if one.label == "Steps")
    slider.set_value("HELLO").run()
    assert not test.exception and test.query_params["step"] == "HELLO"
    assert "the server sees" not in test.dataframe[0].value
    next(one for one in test.select_slider if one.label == "Steps").set_value("MASKED").run()
    assert list(test.dataframe[0].value["the server sees"]) == seen


def test_each_renderer_lists_every_step():
    console = Console(width=200)
    with console.capture() as capture:
        console.print(terminal.render_terminal(page()))
    drawn = "".join(to_bytes(one).decode() for one in html.render_html(page()))
    for said in (capture.get(), drawn, markdown.render_markdown(page())):
        assert all(kind in said for kind in MEANING) and "the server sees" in said
