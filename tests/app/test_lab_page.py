"""The Lab: what is composed is what runs, what is refused says why, and a run that is ended leaves no workers."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import textwrap
from contextlib import suppress
from html import escape, unescape
from os import getpid

import pytest
import yaml
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.app.charts.live import MOST, live
from fedguard.app.lab.composition import ChosenPart, Composition, as_yaml
from fedguard.app.lab.composition_check import judge_composition
from fedguard.app.lab.result import against_clean, controls
from fedguard.bench.explain.settings import SECTIONS, settings, value_of
from fedguard.bench.pages.escape import markdown
from fedguard.bench.records.record import reproducible
from fedguard.bench.running.progress import Listener
from fedguard.config import read_document
from fedguard.contracts.rules import AggregationRule
from fedguard.errors import ConfigError
from fedguard.registry import load_registry

SCRIPT = """
    from pathlib import Path
    import streamlit as st
    from fedguard.app.here import PageContext
    from fedguard.app.views import {page}

    class Alone(PageContext):
        def link(self, page, label, **query):
            st.caption(f"{{page}} {{sorted(query.items())}}")

    {page}.show(Alone(Path({store!r}), {name!r}, {{}}))
"""


def lab(tmp_path, **query: str) -> AppTest:
    script = tmp_path / "page.py"
    script.write_text(textwrap.dedent(SCRIPT.format(page="lab", store=str(tmp_path / "store"), name=None)))
    test = AppTest.from_file(str(script), default_timeout=120)
    for key, value in query.items():
        test.query_params[key.replace("__", ".")] = value
    test.run()
    assert not test.exception
    return test


def drawn(test: AppTest) -> str:
    """What is drawn as HTML, such as the verdict, as text."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", " ".join(node.proto.body for node in test.get("html")))).split())


def composition(attack="alie", defense="krum", **more) -> Composition:
    return Composition(
        **{
            "data": ChosenPart("digits", {}),
            "model": ChosenPart("softmax", {}),
            "partition": ChosenPart("dirichlet", {"alpha": 0.5}),
            "attack": ChosenPart(attack, {}),
            "defense": (ChosenPart("nnm", {}), ChosenPart(defense, {})),
            "mode": ChosenPart("none", {}),
            "noise": ChosenPart("none", {}),
            "algorithm": ChosenPart("fedavg", {}),
            "architecture": ChosenPart("server", {}),
            "there": ChosenPart("always", {}),
            "sections": {"clients": {"malicious": 4}, "training": {"rounds": 2}},
            "seeds": 2,
            **more,
        }
    )


def workers() -> list[str]:
    """This process's worker processes."""
    lines = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if "fedguard.bench.running.worker" in line and line.split()[0] == str(getpid())]


def test_the_suite_holds_the_four_controls_and_its_yaml_reads_back_the_same(tmp_path):
    suite = composition(attack="alie").suite()
    assert suite["matrix"] == {"attack": ["none", "alie"], "defense": ["mean", "nnm >> krum"]}
    (tmp_path / "suite.yaml").write_text(as_yaml(suite))
    assert read_document(tmp_path / "suite.yaml").data == suite


def test_parameters_masks_and_noise_stand_in_the_suite_as_a_suite_takes_them():
    suite = composition(
        attack="none",
        mode=ChosenPart("group_testing", {"tests": 8}),
        noise=ChosenPart("record", {"epsilon": 3.0}),
        model=ChosenPart("mlp", {"hidden": [32, 16]}),
    ).suite()
    assert suite["matrix"]["attack"] == ["none"]
    assert suite["protocol"] == {
        "secure_aggregation": "group_testing(tests=8)",
        "privacy": {"kind": "record", "epsilon": 3.0},
    }
    assert suite["task"]["model"] == "mlp(hidden=[32, 16])"
    groups = composition(mode=ChosenPart("groups", {"groups": 4})).suite()
    assert groups["protocol"] == {"secure_aggregation": "groups(groups=4)"}
    assert fg.api.lay_out(groups)[1].positions[-1][1].rows == 4


def test_an_architecture_and_its_network_stand_in_the_suite_as_a_suite_takes_them(tmp_path):
    """One who answers late, and one who comes and goes: what was left alone is not there."""
    query = {
        "architecture": "fedbuff", "fedbuff.buffer": "5", "availability": "on_off", "on_off.on": "60", "on_off.off": "30",
        "network.malicious_pace": "0.5", "network.compute.slow.share": "0.2", "network.link.latency": "0.1",
        "clients.most_trainings": "30",
    }  # fmt: skip
    page = lab(tmp_path, **{key.replace(".", "__"): value for key, value in query.items()})
    suite = yaml.safe_load(next(one.value for one in page.code if "schema: 1" in one.value))
    assert suite["architecture"] == "fedbuff(buffer=5)" and suite["clients"]["most_trainings"] == 30
    assert suite["network"] == {
        "malicious_pace": 0.5, "compute": {"slow": {"share": 0.2}}, "link": {"latency": 0.1}, "availability": "on_off(on=60, off=30)",
    }  # fmt: skip
    _, plan = fg.api.lay_out(suite)
    assert plan.positions[-1][1].architecture.name == "fedbuff"
    assert "architecture" not in composition().suite()
    assert "network" not in composition().suite()


def test_another_composition_has_another_name():
    names = {composition(attack=attack, seeds=seeds).suite()["name"] for attack in ("alie", "ipm") for seeds in (1, 2)}
    assert len(names) == 4


def test_every_algorithm_can_be_laid_out_with_its_defaults_or_says_what_it_needs():
    kinds = {"inference": "attack", "availability": "there"}
    for kind, cls in load_registry().classes(
        ["attack", "inference", "data", "model", "partition", "architecture", "availability"]
    ):
        key = kinds.get(kind, kind)
        more = {} if key == "attack" else {key: ChosenPart(cls.name, {})}
        suite = composition(attack=cls.name if key == "attack" else "none", defense="mean", **more).suite()
        needed = [one.name for one in settings(cls) if one.default == "required"]
        if needed:
            with pytest.raises(ConfigError, match=f"{cls.name}.*{needed[0]}"):
                fg.api.lay_out(suite)
        else:
            fg.api.lay_out(suite)
    for _, cls in load_registry().classes(["defense"]):
        rule = () if issubclass(cls, AggregationRule) else (ChosenPart("mean", {}),)
        fg.api.lay_out(dataclasses.replace(composition(), defense=(ChosenPart(cls.name, {}), *rule)).suite())


def test_every_setting_says_what_it_means():
    described = [*(cls for _, cls in load_registry().classes()), *SECTIONS.values()]
    silent = [(cls.__name__, one.name) for cls in described for one in settings(cls) if not one.meaning]
    assert silent == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4), ("0.2", 0.2), ("1e-5", 1e-5), ("[32, 16]", [32, 16]), ("None", None), ("unknown", "unknown"),
        ("{quantile: 0.5}", {"quantile": 0.5}), ("true", True), ("off", "off"), ("'", "'"), ("a: b: c", "a: b: c"),
    ],
)  # fmt: skip
def test_what_somebody_types_is_read_as_a_suite_reads_it(text, value):
    assert value_of(text) == value


@pytest.mark.parametrize("text", ["**x** _y_ `z`", ":red[x] :material/home:", "<b>x</b> $a$", "# x", "1. x", "[a](http://b)", "a \\* b ~~c~~ |"])  # fmt: skip
def test_escaped_text_is_shown_as_it_is(text):
    assert MarkdownIt().render(markdown(text)) == f"<p>{escape(text)}</p>\n"


def test_what_masks_hide_is_refused_with_every_reason_and_cannot_be_run(tmp_path):
    test = lab(tmp_path, mode="full", rule="krum", attack="none")
    said = drawn(test)
    assert "Refused: none against krum cannot run krum needs each client's update" in said and "full hides it" in said
    assert test.button[0].label == "Run"
    assert test.button[0].disabled


def test_too_few_clients_for_a_rule_are_refused_in_the_rule_s_own_words(tmp_path):
    test = lab(tmp_path, rule="krum", clients__malicious="10", attack="none")
    assert re.search(r"Refused: .*krum.*needs n >", drawn(test))


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ({"clients__malicious": "40"}, "clients: malicious: expected fewer than clients.total = 20; got 40."),
        ({"attack": "alie", "alie__z": "high"}, "alie: z: expected a number"),
        ({"attack": "ipm", "ipm__tau": "-1"}, "ipm: tau: expected more than 0; got -1.0."),
        ({"noise": "record", "record__noise_multiplier": "1"}, "expected exactly one of noise_multiplier and epsilon; got both."),
    ],
)  # fmt: skip
def test_what_cannot_be_laid_out_is_one_line(tmp_path, query, line):
    test = lab(tmp_path, **query)
    assert "This cannot be laid out: a value is missing or wrong" in drawn(test) and line in drawn(test)


def test_a_field_says_in_which_range_its_value_may_be(tmp_path):
    field = next(one for one in lab(tmp_path, attack="ipm").text_input if one.label == "tau")
    assert field.help.endswith(markdown("(float > 0)"))


def test_what_is_legal_says_who_sees_what():
    found = judge_composition(composition(attack="alie", defense="krum").suite())
    assert found.legal
    assert found.words[0].startswith("4 of 20 clients are malicious from round 1 to the end")
    assert "The attack sees the honest clients' updates." in found.words
    assert any("assumes f = 4 of n = 20 rows" in line for line in found.words)
    # {none, silent colluders, alie} x {mean, krum} on two seeds
    assert found.trials == 12


def test_a_run_gives_what_its_yaml_gives_and_stays_in_sight(tmp_path):
    test = lab(tmp_path, attack="sign_flip", rule="median", training__rounds="5", seeds="2")
    text = next(code.value for code in test.code if code.value.startswith("# fedguard run"))
    assert "May run: sign_flip against median, 12 trials of 5 rounds" in drawn(test)
    test.button[0].click().run()
    assert not test.exception
    assert "What came out" in [heading.value for heading in test.header]
    (folder,) = [path for path in (tmp_path / "store").iterdir() if path.is_dir()]
    (tmp_path / "suite.yaml").write_text(text)
    again = fg.run(tmp_path / "suite.yaml", store=tmp_path / "again", jobs=2)
    stored = fg.open_run(folder.name, tmp_path / "store")
    assert again.name == stored.name
    assert set(again.records) == set(stored.records)
    for trial, record in again.records.items():
        assert reproducible(record) == reproducible(stored.records[trial])
    finals = [
        row["final_accuracy"] for row in stored.rows() if row["attack"] == "sign_flip" and row["defense"] == "median"
    ]
    shown = next(metric.value for metric in test.metric if metric.label == "final accuracy")
    assert shown == f"{100 * sum(finals) / 2:.1f} %"
    table = controls(stored)
    assert [(row["attack"], row["defense"], row["seeds"]) for row in table] == [
        ("none", "mean", "2"), ("none", "median", "2"), ("sign_flip", "mean", "2"), ("sign_flip", "median", "2"),
    ]  # fmt: skip
    cell = stored.manifest["positions"][-1]["cell"]
    clean = [record["result"]["controls"]["clean_mean"] for (one, _), record in stored.records.items() if one == cell]
    assert f"{100 * (sum(finals) - sum(clean)) / 2:+.1f} points, 2 seeds: no interval" in against_clean(stored, cell)
    # what is stored is shown without a run, and pressing the button again runs nothing
    before = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/*.json")}
    test.button[0].click().run()
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/*.json")}


class Gone(BaseException):
    """Like what Streamlit ends a script with."""


def test_ending_the_script_ends_the_workers_and_keeps_what_is_finished(tmp_path):
    class Leaves(Listener):
        stored = 0

        def note_record(self, record):
            self.stored += 1

        def waiting(self):
            if self.stored:
                raise Gone

        def note_progress(self, trial, round, rounds, scores):
            self.waiting()

    suite = {"name": "left", "training": {"rounds": 300}, "seeds": 4, "evaluation": {"every": 20}}
    with suppress(Gone):
        fg.run(suite, store=tmp_path, jobs=1, listener=Leaves())
    assert workers() == []
    records = list(tmp_path.glob("left/cells/*/*.json"))
    assert len(records) == 1
    assert json.loads(records[0].read_text())["status"] == "ok"
    with fg.open_run("left", tmp_path).folder.lock():
        pass  # another run may write there


def test_a_listener_is_asked_while_nothing_happens(tmp_path):
    """So that the page can be left while the workers still load their libraries."""

    class Leaves(Listener):
        def waiting(self):
            raise Gone

    class Silent:
        def free(self):
            return 1

        def submit(self, job):
            pass

        def wait(self, timeout):
            return None

        def close(self):
            self.closed = True

    from fedguard.bench.records.store import RunFolder
    from fedguard.bench.running.runner import Runner

    pool = Silent()
    _, plan = fg.api.lay_out({"seeds": 1, "training": {"rounds": 1}})
    with pytest.raises(Gone):
        Runner(plan, RunFolder(tmp_path / "run"), Leaves()).run(lambda: pool, 1)
    assert pool.closed


def test_a_run_that_another_one_writes_to_is_told_in_one_line(tmp_path):
    test = lab(tmp_path, training__rounds="3", seeds="1")
    name = (
        next(code.value for code in test.code if code.value.startswith("# fedguard run")).split("name: ")[1].split()[0]
    )
    folder = fg.bench.records.store.RunFolder(tmp_path / "store" / name)
    folder.create()
    with folder.lock():
        test.button[0].click().run()
    assert not test.exception
    assert any("another `fedguard run` is writing there" in code.value for code in test.code)


def test_actors_are_drawn_by_their_returns(tmp_path):
    test = lab(tmp_path, attack="reward_flip", data="cartpole", model="towers", algorithm="actor_critic", rule="mean",
               architecture="a2c", training__rounds="2", evaluation__every="2", clients__total="4",
               clients__malicious="1", seeds="1")  # fmt: skip
    assert "May run: reward_flip against mean, " in drawn(test)
    suite = yaml.safe_load(next(code.value for code in test.code if code.value.startswith("# fedguard run")))
    assert (
        judge_composition(suite).measure == "returns" and judge_composition(composition().suite()).measure == "accuracy"
    )
    fg.run(suite, store=tmp_path / "store", jobs=1)
    test.run()
    assert not test.exception
    (chart,) = [one.proto.spec for one in test.get("vega_lite_chart")]
    assert "mean return of an episode" in chart
    assert "test accuracy" not in chart
    assert any("final return is the mean of the last five" in caption.value for caption in test.caption)


def test_a_long_training_is_drawn_with_few_points_and_its_last_round():
    points = [{"cell": "a", "seed": 0, "round": round, "value": 0.5} for round in range(1, 1502)]
    (rows,) = live(points, 1501).to_dict()["datasets"].values()
    assert len(rows) <= MOST + 1
    assert rows[-1]["round"] == 1501
    assert {row["value"] for row in rows} == {50.0}
    as_they_are = live(points, 1501, "returns").to_dict()["datasets"]
    assert {row["value"] for (rows,) in [as_they_are.values()] for row in rows} == {0.5}
